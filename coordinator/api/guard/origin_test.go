package guard

import (
	"context"
	"log/slog"
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
	visitPaths   = []string{"/", "/ui/app.js", "/ui/session", "/v1/tasks", "/v1/events", "/v1/tasks/aa-2/cancel", "/health", "/nowhere"}
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
// page beside the cookie, and for the token in a browser; 200 for what may pass.
func (v *visit) expect() int {
	ours := len(v.origins) == 0 || len(v.origins) == 1 && v.origins[0] == "http://"+ourPage
	alone := len(v.sites) == 0 || len(v.sites) == 1 && (v.sites[0] == "same-origin" || v.sites[0] == "none")
	link := v.method == "GET" && v.path == "/" && v.mode == "navigate" && v.dest == "document"
	reads := v.method == "GET" || v.method == "HEAD"
	known := v.credential == "token" && len(v.sites) == 0 || v.credential == "cookie and key" || reads && strings.HasPrefix(v.credential, "cookie")
	switch {
	case !ours || !alone && !link:
		return http.StatusForbidden
	case !known && !isPublic(v.method, v.path):
		return http.StatusUnauthorized
	}
	return http.StatusOK
}

// request returns the visit as net/http passes it to the
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

// credentialsOf returns the headers with what a visit may have, and lets the browsers into g
// that they are of.
func credentialsOf(t testing.TB, g *Guard) map[string]http.Header {
	t.Helper()
	token := textOf(t, g.opts.Token)
	for _, name := range []string{"mine", "another"} {
		g.browsers.all = append(g.browsers.all, browser{name: name, cookie: name + "-cookie", key: name + "-key", token: token, until: time.Now().Add(time.Hour)})
	}
	cookie, key, other, otherKey := "stint=mine-cookie", "mine-key", "stint=another-cookie", "another-key"
	return map[string]http.Header{
		"": {}, "token": {"Authorization": {"Bearer " + token}},
		"cookie": {"Cookie": {cookie}}, "cookie and key": {"Cookie": {cookie}, KeyHeader: {key}},
		"cookie and another's key": {"Cookie": {cookie}, KeyHeader: {otherKey}}, "another's cookie and key": {"Cookie": {other}, KeyHeader: {otherKey}},
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

// isPublic is what a server may say needs no token.
func isPublic(method, path string) bool {
	return strings.HasPrefix(path, "/ui/") && (method == "GET" || method == "HEAD") || path == "/ui/session" && method == "POST"
}

// newGuard returns a guard at ourAddr, behind which every request is answered with 200.
func newGuard(t testing.TB) *Guard {
	t.Helper()
	return New([]net.Listener{addressed{}}, Options{
		Token: newToken(t), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		IsPublic: func(r *http.Request) bool { return isPublic(r.Method, r.URL.Path) },
		IsLong:   func(*http.Request) bool { return false },
		Handler:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	})
}

// addressed is a listener that only has an address.
type addressed struct{ net.Listener }

func (addressed) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7433} }

// pass returns the answer of g.
func (g *Guard) pass(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// TestPromise11Origin: what a page of another origin sends is refused, whoever's cookie
// the browser adds; and no refusal lets such a page read it.
func TestPromise11Origin(t *testing.T) {
	t.Parallel()
	g, sent := newGuard(t), map[int]int{}
	credentials := credentialsOf(t, g)
	visits(func(v visit) {
		want := v.expect()
		sent[want]++
		w := g.pass(v.request(credentials))
		if w.Code != want {
			t.Errorf("%+v: %d instead of %d: %s", v, w.Code, want, w.Body)
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%+v: %s", v, name)
			}
		}
	})
	t.Logf("origins: visits=%d foreign=%d unknown=%d taken=%d", sent[200]+sent[401]+sent[403], sent[403], sent[401], sent[200])
}

// TestPromise11Token: without the token nothing gets through, whatever is shown in its place:
// of any length, and such as begins or ends as the right one does.
func TestPromise11Token(t *testing.T) {
	g := newGuard(t)
	right := textOf(t, g.opts.Token)
	given := map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, right: 401, "Basic " + right: 401, "Token " + right: 401,
		"Bearer " + right: 200, "bearer " + right: 200,
	}
	for _, wrong := range []string{strings.ToLower(right), right + "x", right + "=", right + " ", " " + right, right + "," + right, right[:42] + "\x00", "%" + right, `"` + right + `"`} {
		given["Bearer "+wrong] = 401
	}
	for n := range 2 * len(right) {
		given["Bearer "+strings.Repeat("A", n)] = 401
		if n != len(right) {
			given["Bearer "+(right + right)[:n]] = 401
		}
	}
	ask := func(headers http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/tasks?token="+right, nil) // in a URL it counts for nothing
		r.Host = ourAddr
		maps.Copy(r.Header, headers)
		return g.pass(r)
	}
	for auth, want := range given {
		w := ask(http.Header{"Authorization": {auth}})
		if w.Code != want || want == 401 && (w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), `"code":"unauthorized"`)) {
			t.Errorf("%q: %d %s", auth, w.Code, w.Body)
		}
	}
	for _, headers := range []http.Header{nil, {"Cookie": {"stint=" + right}}, {"Authorization": {"Bearer " + right, "Bearer " + right}}} {
		if w := ask(headers); w.Code != 401 {
			t.Errorf("%v: %d %s", headers, w.Code, w.Body)
		}
	}
}

// TestLostPlaceAnswersNothing: a connection that loses its place just when its request was
// read gets no answer, which a client would take for success.
func TestLostPlaceAnswersNothing(t *testing.T) {
	srv := httptest.NewUnstartedServer(newGuard(t))
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &tcpConn{Conn: c, places: newPlaces(1)})
	}
	srv.Start()
	defer srv.Close()
	resp, err := srv.Client().Post(srv.URL, "application/json", strings.NewReader("{}"))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("it was answered with %s", resp.Status)
	}
}
