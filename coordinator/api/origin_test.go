package api

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A visit is a request as a browser, or what pretends to be one, could send it.
type visit struct {
	method, path string
	origins      []string // values of Origin
	sites        []string // values of Sec-Fetch-Site
	mode, dest   string   // Sec-Fetch-Mode and -Dest; "": none
	credential   string   // see credentialsOf
}

const (
	ourAddr = "127.0.0.1:7433"
	ourPage = "mine.localhost:7433" // where a browser is signed in
)

// The columns of the table. Every visit is one of each.
var (
	visitMethods = []string{"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS"}
	visitPaths   = []string{"/", "/ui/app.js", pathSignIn, "/v1/tasks", "/v1/events", "/v1/tasks/aa-2/cancel", "/health", "/nowhere"}
	visitOrigins = [][]string{
		nil,
		{"http://" + ourPage},
		{"http://" + ourPage, "http://" + ourPage},
		{"http://" + ourAddr},
		{"http://another.localhost:7433"},
		{"http://mine.localhost:7434"},
		{"null"},
		{""},
		{"http://evil.example"},
		{"http://evil.example:7433"},
		{"https://" + ourPage},
		{"http://127.0.0.1:7434"},
		{"http://localhost:7433"},
		{"HTTP://" + ourPage},
		{"http://" + ourPage, "http://evil.example"},
	}
	visitSites = [][]string{nil, {"same-origin"}, {"none"}, {"same-site"}, {"cross-site"}, {"Same-Origin"}, {""}, {"same-origin", "same-origin"}, {"cross-site", "same-origin"}}
	visitModes = [][2]string{{"", ""}, {"navigate", "document"}, {"navigate", "iframe"}, {"websocket", "websocket"}}

	visitCredentials = []string{"", "token", "cookie", "cookie and key", "cookie and another's key", "another's cookie and key"}
)

// expect says how a visit has to end, from what is promised alone: 403 for what a page of
// another origin sends, unless a person follows a link to our page; 401 for what is not
// public and has neither token nor cookie, or, if it is not to read, not the key of the
// page beside the cookie, and for the token in a browser; 0 for what may pass.
func (v *visit) expect() int {
	ours := len(v.origins) == 0 || len(v.origins) == 1 && v.origins[0] == "http://"+ourPage
	alone := len(v.sites) == 0 || len(v.sites) == 1 && (v.sites[0] == "same-origin" || v.sites[0] == "none")
	link := v.method == "GET" && v.path == "/" && v.mode == "navigate" && v.dest == "document"
	reads := v.method == "GET" || v.method == "HEAD"
	known := v.credential == "token" && len(v.sites) == 0 || v.credential == "cookie and key" || reads && strings.HasPrefix(v.credential, "cookie")
	public := strings.HasPrefix(v.path, "/ui/") && reads || v.path == pathSignIn && v.method == "POST"
	switch {
	case !ours || !alone && !link:
		return http.StatusForbidden
	case !known && !public:
		return http.StatusUnauthorized
	}
	return 0
}

// request returns the visit as net/http gives it to the guard.
func (v *visit) request(credentials map[string]http.Header) *http.Request {
	r := httptest.NewRequest(v.method, v.path, nil)
	r.Host = ourPage
	r.Header["Origin"], r.Header["Sec-Fetch-Site"] = v.origins, v.sites
	if v.mode != "" {
		r.Header.Set("Sec-Fetch-Mode", v.mode)
		r.Header.Set("Sec-Fetch-Dest", v.dest)
	}
	maps.Copy(r.Header, credentials[v.credential])
	return r
}

// credentialsOf returns the headers with what a visit may have, and lets the browsers in
// that they are of.
func credentialsOf(t testing.TB, guards ...*guard) map[string]http.Header {
	t.Helper()
	for _, g := range guards {
		for _, name := range []string{"mine", "another"} {
			g.browsers.all = append(g.browsers.all, browser{name: name, cookie: name + "-cookie", key: name + "-key", token: textOf(t, g.opts.Token), until: time.Now().Add(time.Hour)})
		}
	}
	cookie, key, other, otherKey := "stint=mine-cookie", "mine-key", "stint=another-cookie", "another-key"
	return map[string]http.Header{
		"": {}, "token": {"Authorization": {"Bearer " + textOf(t, guards[0].opts.Token)}},
		"cookie": {"Cookie": {cookie}}, "cookie and key": {"Cookie": {cookie}, pageHeader: {key}},
		"cookie and another's key": {"Cookie": {cookie}, pageHeader: {otherKey}}, "another's cookie and key": {"Cookie": {other}, pageHeader: {otherKey}},
	}
}

// visits calls do with every visit of the table.
func visits(do func(v visit)) {
	for _, method := range visitMethods {
		for _, path := range visitPaths {
			for _, origins := range visitOrigins {
				for _, sites := range visitSites {
					for _, mode := range visitModes {
						for _, credential := range visitCredentials {
							do(visit{method, path, origins, sites, mode[0], mode[1], credential})
						}
					}
				}
			}
		}
	}
}

// addressed is a listener that only has an address.
type addressed struct{ net.Listener }

func (addressed) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7433} }

// guardFor returns the guard of a server for m, at ourAddr.
func guardFor(m Master, opts Options) *guard {
	return NewServer(m, opts).newGuard([]net.Listener{addressed{}})
}

// pass returns the answer of h, which breaks a stream off because its reader has gone.
func pass(h http.Handler, r *http.Request) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		}
	}()
	h.ServeHTTP(w, r)
	return w
}

// TestPromise11Origin: what a page of another origin sends is refused, whoever's cookie
// the browser adds; and no answer lets such a page read it.
func TestPromise11Origin(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	token := newToken(t)
	refusing := guardFor(untouchable{}, Options{Token: token}) // nothing of it may be asked for
	taking := guardFor(twoTasks(t), Options{Token: token})
	sent, credentials := map[int]int{}, credentialsOf(t, refusing, taking)
	visits(func(v visit) {
		want, h := v.expect(), refusing
		if want == 0 {
			h = taking
		}
		sent[want]++
		w := pass(h, v.request(credentials).WithContext(gone))
		refused := w.Code == http.StatusForbidden || w.Code == http.StatusUnauthorized && v.path != pathSignIn // that is a wrong code's too
		if want != 0 && w.Code != want || want == 0 && (refused || w.Code == http.StatusMisdirectedRequest || w.Code >= 500) {
			t.Errorf("%+v: %d instead of %d: %s", v, w.Code, want, short(w.Body.String()))
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%+v: %s", v, name)
			}
		}
	})
	t.Logf("origins: visits=%d foreign=%d unknown=%d taken=%d", sent[0]+sent[401]+sent[403], sent[403], sent[401], sent[0])
}
