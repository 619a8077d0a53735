package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// missing skips a test for want of something, which must not happen in CI.
func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// address returns an address for one browser, taken apart: its Host, and the code.
func (s *tcpServer) address(t testing.TB) (host, code string) {
	t.Helper()
	status, body, _ := s.do(t, "POST", "/v1/ui/code", "", s.bearer())
	host, code, ok := strings.Cut(strings.TrimPrefix(decode[wire.PageAddress](t, []byte(body)).URL, "http://"), "/#code=")
	if status != 200 || !ok {
		t.Fatalf("%d %s", status, body)
	}
	return host, code
}

// signIn lets a browser in, and returns its Host, its cookie and its page key, as headers.
func (s *tcpServer) signIn(t testing.TB) (host, cookie, key string) {
	t.Helper()
	host, code := s.address(t)
	_, body, h := s.do(t, "POST", pathSignIn, `{"code":"`+code+`"}`, "Host: "+host, "Origin: http://"+host, "Sec-Fetch-Site: same-origin")
	pair, _, _ := strings.Cut(h.Get("Set-Cookie"), ";")
	return "Host: " + host, "Cookie: " + pair, guard.KeyHeader + ": " + decode[struct{ Key string }](t, []byte(body)).Key
}

// TestBrowserIsLetInOnce: a code is exchanged for a cookie, once, by who comes by its name.
func TestBrowserIsLetInOnce(t *testing.T) {
	s := serveTCP(t, twoTasks(t), Options{})
	host, code := s.address(t)
	other, _ := s.address(t)
	if !regexp.MustCompile(`^[a-z2-7]{26}\.localhost:[0-9]+$`).MatchString(host) || other == host {
		t.Errorf("%s, %s", host, other)
	}
	ask := `{"code":"` + code + `"}`
	if code, _, _ := s.do(t, "POST", pathSignIn, ask, "Host: "+host, "Origin: http://evil.example"); code != 403 {
		t.Errorf("another page gets a cookie: %d", code)
	}
	for _, elsewhere := range []string{s.addr, strings.Replace(s.addr, "127.0.0.1", "localhost", 1), other} {
		if code, _, h := s.do(t, "POST", pathSignIn, ask, "Host: "+elsewhere, "Origin: http://"+elsewhere); code != 401 || h.Get("Set-Cookie") != "" {
			t.Errorf("at %s: %d %v", elsewhere, code, h)
		}
	}
	status, body, h := s.do(t, "POST", pathSignIn, ask, "Host: "+host, "Origin: http://"+host, "Sec-Fetch-Site: same-origin")
	cookie := h.Get("Set-Cookie")
	if status != 200 || !strings.HasSuffix(cookie, "; Path=/; HttpOnly; SameSite=Strict") || strings.Contains(cookie+body, s.token) {
		t.Fatalf("%d %q", status, cookie)
	}
	if code, _, h := s.do(t, "POST", pathSignIn, ask, "Host: "+host); code != 401 || h.Get("Set-Cookie") != "" {
		t.Errorf("the code counts twice: %d", code)
	}
	pair, _, _ := strings.Cut(cookie, ";")
	tunnel := "Host: " + host[:strings.LastIndexByte(host, ':')] + ":8000" // ssh -L 8000:...
	for _, at := range []string{"Host: " + host, tunnel} {
		if code, body, _ := s.do(t, "GET", "/v1/tasks", "", at, "Cookie: "+pair); code != 200 {
			t.Errorf("%s: %d %s", at, code, body)
		}
	}
	for _, at := range []string{s.addr, other} {
		if code, body, _ := s.do(t, "GET", "/v1/tasks", "", "Host: "+at, "Cookie: "+pair); code != 401 {
			t.Errorf("the cookie counts at %s: %d %s", at, code, body)
		}
	}
	if code, body, _ := s.do(t, "GET", "/v1/tasks", "", "Host: "+other, "Cookie: stint="); code != 401 {
		t.Errorf("no cookie counts where there is none yet: %d %s", code, body)
	}
}

// TestBrowsersEndWithTheListener: what a browser has sent to whoever listens at our port
// when we do not is worth nothing when we do again, even in one master.
func TestBrowsersEndWithTheListener(t *testing.T) {
	m := twoTasks(t)
	s := serveTCP(t, m, Options{})
	host, cookie, key := s.signIn(t)
	waiting, code := s.address(t)
	must(t, s.stop())
	if w := ask(s.api, "POST", "/v1/ui/code", "", ""); w.Code != 409 {
		t.Errorf("there is a code for a port that may be another user's: %d %s", w.Code, w.Body)
	}
	s.ln = newMemoryListener() // at the same address
	token, err := guard.OpenToken(s.file)
	must(t, err)
	start(t, s.api.Loopback([]net.Listener{s.ln}, token, 0))
	for at, want := range map[string]int{host: 421, "Host: " + s.addr: 401} {
		for _, method := range []string{"GET", "POST"} {
			if code, body, h := s.do(t, method, "/v1/tasks/aa-1", "", at, cookie, key); code != want || h.Get("Clear-Site-Data") != `"storage"` {
				t.Errorf("%s %s: %d %s", method, at, code, body)
			}
		}
	}
	if code, _, _ := s.do(t, "POST", pathSignIn, `{"code":"`+code+`"}`, "Host: "+waiting); code != 421 {
		t.Errorf("an old code gets %d", code)
	}
	s.signIn(t)
}

// TestPortOfThePage: where no port is open, the request for a code opens one. It is closed an
// hour after it was used last, and an event stream is a use all the while; who is not let in
// uses nothing. The next request opens another one. In fake time.
func TestPortOfThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		token, err := guard.OpenToken(file)
		must(t, err)
		s := &tcpServer{file: file}
		s.token, err = token.Text()
		must(t, err)
		opened := 0
		var serving sync.WaitGroup
		defer serving.Wait()
		s.api = newServer(twoTasks(t), Options{OpenPage: func() error {
			opened++
			s.ln = newMemoryListener()
			s.addr = s.ln.Addr().String()
			serve := s.api.Loopback([]net.Listener{s.ln}, token, time.Hour)
			serving.Go(func() {
				if err := serve(t.Context()); err != nil {
					t.Error(err)
				}
			})
			return nil
		}})
		code := func(want int) {
			t.Helper()
			synctest.Wait()
			if w := ask(s.api, "POST", "/v1/ui/code", "", ""); w.Code != 200 || opened != want {
				t.Fatalf("%d %s; %d ports, want %d", w.Code, w.Body, opened, want)
			}
		}
		code(1)
		time.Sleep(59 * time.Minute)
		code(1)
		time.Sleep(59 * time.Minute)
		status, body, _ := s.do(t, "GET", "/v1/tasks", "", s.bearer())
		if status != 200 {
			t.Fatal(status, body)
		}
		stream := s.dial(t)
		_, err = io.WriteString(stream, s.fill("GET /v1/events HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n"))
		must(t, err)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, stream) // until it is closed
		}()
		time.Sleep(5 * time.Hour)
		code(1)
		must(t, stream.Close())
		<-drained
		for range 2 {
			time.Sleep(29 * time.Minute)
			if status, body, _ := s.do(t, "GET", "/v1/tasks", ""); status != 401 {
				t.Error(status, body)
			}
		}
		time.Sleep(3 * time.Minute)
		code(2)
		time.Sleep(61 * time.Minute)
	})
}

// TestBrowsersForget: who is not signed in is told to forget what a page at our address has left behind, and
// nobody gets a service worker's script from us; but who is signed in keeps the key.
func TestBrowsersForget(t *testing.T) {
	s := serveTCP(t, twoTasks(t), Options{})
	host, cookie, key := s.signIn(t)
	waiting, _ := s.address(t)
	for _, c := range []struct {
		path    string
		headers []string
		code    int
		forgets bool
	}{
		{"/", nil, 401, true},
		{"/", []string{host}, 401, false}, // the link of another site: it must not cost the open page its key
		{"/", []string{"Host: " + waiting}, 401, true},
		{"/", []string{"Host: evil.example"}, 421, true},
		{"/?task=aa-1", nil, 401, true},
		{"/sw.js", nil, 401, true},
		{"/ui/sw.js", nil, 404, true},
		{"/ui/app.js", nil, 200, false},
		{"/", []string{"Service-Worker: script"}, 404, true},
		{"/ui/app.js", []string{"Service-Worker: script"}, 404, true},
		{"/ui/app.js", []string{"Service-Worker: script", host, cookie, key}, 404, true},
		{"/ui/app.js", []string{"Service-Worker: script", s.bearer()}, 404, true},
		{"/", []string{"Origin: http://evil.example"}, 403, false}, // another site has no say in it
		{"/", []string{host, cookie}, 200, false},
		{"/?task=nothing", []string{host, cookie}, 404, false},
		{"/v1/tasks/nothing", []string{host, cookie}, 404, false},
		{"/nothing", []string{host, cookie}, 404, false},
	} {
		if code, _, h := s.do(t, "GET", c.path, "", c.headers...); code != c.code || (h.Get("Clear-Site-Data") == `"storage"`) != c.forgets {
			t.Errorf("%s %q: %d %q", c.path, c.headers, code, h.Get("Clear-Site-Data"))
		}
	}
}

// TestStolenCookieChangesNothing: browsers send our cookie to every port of this machine, so who has it alone
// can read, and change nothing. And what another port sets in its place does not lock the user out.
func TestStolenCookieChangesNothing(t *testing.T) {
	m := twoTasks(t)
	s := serveTCP(t, m, Options{})
	host, cookie, key := s.signIn(t)
	otherHost, _, otherKey := s.signIn(t)
	for _, headers := range [][]string{ // for more see TestPromise11Origin
		{host, cookie, guard.KeyHeader + ": "},
		{host, cookie, otherKey},
		{host, key},
		{host, cookie, key + "x"},
		{cookie, key},
		{otherHost, cookie, key},
		{host, "Cookie: stint=", guard.KeyHeader + ": "},
	} {
		if code, body, _ := s.do(t, "POST", "/v1/tasks/aa-1/hold", "", headers...); code != 401 {
			t.Errorf("%q: %d %s", headers, code, body)
		}
	}
	tossed := strings.Replace(cookie, ": ", ": stint=tossed; ", 1)
	if code, body, _ := s.do(t, "POST", "/v1/tasks/aa-1/hold", "", host, tossed, key); code != 200 {
		t.Errorf("beside another port's: %d %s", code, body)
	}
	must(t, guard.RotateToken(s.file))
	for _, method := range []string{"GET", "POST"} {
		if code, body, _ := s.do(t, method, "/v1/tasks/aa-1", "", host, cookie, key); code != 401 {
			t.Errorf("after a rotation: %d %s", code, body)
		}
	}
}

// TestRotationEndsStreams: a stream does not outlive the token that it was opened with.
func TestRotationEndsStreams(t *testing.T) {
	m := twoTasks(t)
	s := serveTCP(t, m, Options{})
	host, cookie, _ := s.signIn(t)
	ended := make(chan error, 2)
	for _, headers := range [][]string{{host, cookie}, {s.bearer()}} {
		resp := s.open(t.Context(), t, "GET", "/v1/events", nil, headers...)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body) // its end is what counts
			ended <- errors.Join(err, resp.Body.Close())
		}()
	}
	var waited int
	var wait sync.WaitGroup
	wait.Go(func() { waited, _, _ = s.do(t, "GET", "/v1/tasks/aa-2/wait", "", s.bearer()) })
	eventually(t, "three readers", func() bool { return m.subscribers() == 3 })
	must(t, guard.RotateToken(s.file))
	eventually(t, "no stream goes on with a token that counts no more", func() bool { return len(ended) == 2 })
	if wait.Wait(); waited != 401 {
		t.Errorf("a wait is answered with %d", waited)
	}
}

// TestBodiesOverTCP: 4 MiB and not a byte more, however the length is told.
func TestBodiesOverTCP(t *testing.T) {
	m := twoTasks(t)
	s := serveTCP(t, m, Options{})
	const around = len(`{"prompt":""}`)
	post := func(length int, chunks bool) (status int, text string) {
		body := io.Reader(strings.NewReader(`{"prompt":"` + strings.Repeat("x", length-around) + `"}`))
		if chunks {
			body = struct{ io.Reader }{body} // net/http cannot tell how long it is
		}
		resp := s.open(t.Context(), t, "POST", "/v1/tasks", body, s.bearer())
		answer, err := io.ReadAll(resp.Body)
		must(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(answer)
	}
	for _, chunks := range []bool{false, true} {
		if status, text := post(maxTCPBody, chunks); status != 201 {
			t.Errorf("4 MiB, in chunks %v: %d %s", chunks, status, wire.Clip(text))
		}
		if status, text := post(maxTCPBody+1, chunks); status != 413 || !strings.Contains(text, "more than 4194304 bytes") {
			t.Errorf("a byte more, in chunks %v: %d %s", chunks, status, wire.Clip(text))
		}
	}
	if n := len(m.List(state.Filter{})); n != 4 {
		t.Errorf("there are %d tasks", n)
	}
}

// TestSpecialRoutes: what is said of some routes is said of routes that there are, and of
// no others that look like them.
func TestSpecialRoutes(t *testing.T) {
	s := newServer(newFake(t), Options{})
	fill := strings.NewReplacer("{$}", "", "{file}", "app.js", "{id}", "aa-2")
	for _, routes := range []map[string]bool{publicRoutes, longRoutes, waitRoutes} {
		for route := range routes {
			method, path, _ := strings.Cut(fill.Replace(route), " ")
			if got := s.pattern(httptest.NewRequest(method, path, nil)); got != route {
				t.Errorf("%s is answered as %q", route, got)
			}
		}
	}
	for path, long := range map[string]bool{
		"/v1/events": true, "/v1/usage": true, "/v1/usage?by=day": true, "/v1/tasks/aa-2/wait": true, "/v1/tasks/a%2Fb/wait": true, "/v1/tasks/aa-2/logs?follow=1": true, "/v1/tasks/aa-2/logs": false,
		"/v1/tasks/aa-2/files/events": false, "/v1/tasks/aa-2/files/out/wait": false, "/v1/tasks/aa-2/files/out/logs?follow": false, "/v1/sessions/wait": false, "/v1/sessions/a/events": false, "/v1/tasks/wait": false,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := s.isLong(httptest.NewRequest(method, path, nil)); got != long {
				t.Errorf("%s %s is long: %v", method, path, got)
			}
		}
	}
}

// TestStreamsOverTCP: 64 requests that last, and no more, until one of them ends; what
// does not last and what comes over the socket is answered all the while.
func TestStreamsOverTCP(t *testing.T) {
	m := twoTasks(t)
	m.set("aa-2", func(t *state.Task) { t.Status = state.Running })
	s := serveTCP(t, m, Options{})
	paths := []string{"/v1/events", "/v1/tasks/aa-2/wait", "/v1/tasks/aa-2/logs?follow=1"}
	var ends []func()
	var streams sync.WaitGroup
	for i := range maxStreams {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		c := s.dial(t)
		streams.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", paths[i%len(paths)], s.addr, s.bearer())
			_, _ = io.Copy(io.Discard, c) // until it is ended
		})
	}
	eventually(t, "all streams are open", func() bool { return m.subscribers() == maxStreams })
	for _, path := range append(paths, "/v1/ledger/compact", "/v1/ledger/prune") {
		method := map[bool]string{true: "GET", false: "POST"}[slices.Contains(paths, path)]
		if code, body, _ := s.do(t, method, path, "", s.bearer()); code != 429 || decode[wire.Problem](t, []byte(body)).Code != task.CodeTooMany {
			t.Errorf("one more %s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/v1/tasks", "/v1/health", "/v1/tasks/aa-2/logs?stream=stderr"} {
		if code, body, _ := s.do(t, "GET", path, "", s.bearer()); code == 429 {
			t.Errorf("%s does not last: %s", path, body)
		}
	}
	if w := ask(s.api, "GET", "/v1/usage", "", ""); w.Code != 200 { // as over the socket
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ends[0]()
	eventually(t, "another one is taken", func() bool {
		code, _, _ := s.do(t, "GET", "/v1/usage", "", s.bearer())
		return code == 200
	})
	for _, end := range ends {
		end()
	}
	streams.Wait()
}

// TestStrangersAreToldNothing: what needs no token says nothing about the master, and
// reads no more than it has to.
func TestStrangersAreToldNothing(t *testing.T) {
	m := twoTasks(t)
	m.paused, m.findings = "secret plans", []task.Finding{{}}
	s := serveTCP(t, m, Options{})
	for _, body := range []string{`{"code":"x"}`, `{}`, `{"code":"` + strings.Repeat("x", maxSignIn) + `"}`} {
		code, answer, h := s.do(t, "POST", pathSignIn, body)
		if want := map[bool]int{true: 413}[len(body) > maxSignIn]; want != 0 && code != want {
			t.Errorf("%d bytes: %d %s", len(body), code, answer)
		}
		if h.Get(wire.FindingsHeader)+h.Get(wire.PausedHeader)+h.Get(wire.PauseWhyHeader) != "" {
			t.Errorf("%s: %v", wire.Clip(body), h)
		}
	}
	code, alive, h := s.do(t, "GET", "/health", "")
	if code != 200 || strings.TrimSpace(alive) != `{"status":"ok","api_enabled":true}` || h.Get(wire.FindingsHeader)+h.Get(wire.PausedHeader)+h.Get(wire.SeqHeader) != "" {
		t.Errorf("GET /health: %d %s %v", code, alive, h)
	}
	if _, _, h := s.do(t, "GET", "/v1/health", "", s.bearer()); h.Get(wire.FindingsHeader) != "1" {
		t.Errorf("who has the token is not told: %v", h)
	}
}

// TestPromise11Page: over TCP nobody sees anything of the page who has not signed in.
func TestPromise11Page(t *testing.T) {
	m := twoTasks(t)
	m.health = task.Health{Paused: true, PauseWhy: "secret plans", StateDir: "/home/ana"}
	s := serveTCP(t, m, Options{Agents: []string{"codex"}})
	host, cookie, _ := s.signIn(t)
	for _, path := range []string{"/", "/?task=aa-1", "/?cursor=1"} {
		code, body, h := s.do(t, "GET", path, "")
		if code != 401 || h.Get("WWW-Authenticate") == "" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; ") || !strings.Contains(body, "stint ui") {
			t.Errorf("%s: %d %v", path, code, h)
		}
		_, other, _ := s.do(t, "GET", path, "", host, "Cookie: stint=x")
		if strings.ContainsAny(body, "0123456789") && regexp.MustCompile(`aa-|secret|/home|codex|<form|<table`).MatchString(body) || other != body {
			t.Errorf("%s tells strangers: %s", path, body)
		}
		if code, body, _ := s.do(t, "GET", path, "", host, cookie); code == 401 || !strings.Contains(body, "secret plans") {
			t.Errorf("%s: who has signed in sees %d %s", path, code, body)
		}
	}
	for path, kind := range map[string]string{"/ui/app.js": "text/javascript; charset=utf-8", "/ui/style.css": "text/css; charset=utf-8", "/ui/icon.svg": "image/svg+xml"} {
		code, _, h := s.do(t, "GET", path, "")
		if code != 200 || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %d %v", path, code, h)
		}
	}
	for _, path := range []string{"/ui/page.html", "/ui/", "/ui/x", "/ui/..%2fpage.go", "/ui/%2e%2e", "/ui/app.js/x", "/favicon.ico", "//", "/index.html"} {
		if code, body, _ := s.do(t, "GET", path, ""); code == 200 || strings.Contains(body, "aa-1") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if code, _, _ := s.do(t, method, "/", ""); code != 401 {
			t.Errorf("%s /: %d", method, code)
		}
	}
}
