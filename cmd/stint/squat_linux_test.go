package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
)

// A squatter is another user who listens at our port while no master does. It notes what browsers send there.
type squatter struct {
	servers []*http.Server
	ended   sync.WaitGroup
	page    []byte
	script  []byte

	mu      sync.Mutex
	hosts   map[string]bool // guarded by mu, like what follows: what Host was
	cookies map[string]bool
	keys    map[string]bool // what Stint-Page was, or a page has kept
	bodies  []string
	sent    map[string]int // requests by path, with their query
}

// listenAsNobody listens at an address as another user. The thread that was made that user is thrown away.
func listenAsNobody(network, address string) (ln net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		const nobody = 65534
		for _, call := range [][2]uintptr{{syscall.SYS_SETGROUPS, 0}, {syscall.SYS_SETRESGID, nobody}, {syscall.SYS_SETRESUID, nobody}} {
			id := call[1]
			if _, _, errno := syscall.RawSyscall(call[0], id, id, id); errno != 0 {
				err = errno
				return
			}
		}
		ln, err = net.Listen(network, address)
	}()
	<-done
	return ln, err
}

// squat takes a port on both addresses of this machine.
func squat(t *testing.T, port string) *squatter {
	t.Helper()
	s := &squatter{hosts: map[string]bool{}, cookies: map[string]bool{}, keys: map[string]bool{}, sent: map[string]int{}}
	for name, text := range map[string]*[]byte{"squat.html": &s.page, "squat.js": &s.script} {
		data := get(t, "testdata/"+name)
		*text = data
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		ln, err := listenAsNobody("tcp", net.JoinHostPort(host, port))
		must(t, err)
		srv := &http.Server{Handler: s}
		s.servers = append(s.servers, srv)
		s.ended.Go(func() { _ = srv.Serve(ln) }) // until end
	}
	t.Cleanup(s.end)
	return s
}

func (s *squatter) end() {
	for _, srv := range s.servers {
		_ = srv.Close() // of one that is closed
	}
	s.ended.Wait()
}

// ServeHTTP returns the attacking page to who navigates, and as the list of tasks to our
// page's script, but to that of a task what makes it think that it is signed out.
func (s *squatter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	s.hosts[r.Host] = true
	s.sent[r.URL.RequestURI()]++
	for _, c := range r.Cookies() {
		s.cookies[c.String()] = true
	}
	s.keys[r.Header.Get("Stint-Page")] = true
	s.bodies = append(s.bodies, string(body))
	s.mu.Unlock()
	h := w.Header()
	h.Set("Cache-Control", "max-age=1000000")
	switch {
	case r.URL.Path == "/v1/events":
		h.Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: task\ndata: {}\n\n") // the browser may be gone
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, ".js"):
		h.Set("Content-Type", "text/javascript")
		_, _ = w.Write(s.script)
	case r.URL.RawQuery != "" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		w.WriteHeader(http.StatusUnauthorized)
	default:
		h.Set("Content-Type", "text/html")
		_, _ = w.Write(s.page)
	}
}

// has reports whether a browser has asked for a path.
func (s *squatter) has(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sent := range s.sent {
		sent, after, _ := strings.Cut(sent, "?after=") // from where a page goes on
		if sent == path && strings.Trim(after, "0123456789") == "" {
			return true
		}
	}
	return false
}

// TestPromise11SquattedSocket: another user listens at a socket where the master may be. What heartbeat.json
// names from earlier is passed over; at the one of the next master, no other is started.
func TestPromise11SquattedSocket(t *testing.T) {
	if os.Getuid() != 0 {
		missing(t, "only root can be somebody else")
	}
	run, err := os.MkdirTemp("/tmp", "r") // short enough for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	state := t.TempDir()
	earlier, next := filepath.Join(run, "s"), defaultSocket(state)
	must(t, os.Mkdir(filepath.Dir(next), 0o700))
	put(t, filepath.Join(state, "heartbeat.json"), `{"socket":"`+earlier+`"}`)
	ask := func(c *client.Client) error { _, err := c.Health(t.Context()); return err }
	for _, socket := range []string{earlier, next} {
		for _, dir := range []string{run, filepath.Dir(next)} {
			must(t, os.Chmod(dir, 0o777))
		}
		ln, err := listenAsNobody("unix", socket)
		must(t, err)
		defer func() { _ = ln.Close() }()
		must(t, os.Chmod(run, 0o755)) // else it is not used
		a := &app{stateOption: state, stderr: io.Discard}
		if socket == earlier {
			if err := a.callRunning(t.Context(), ask); !errors.Is(err, client.ErrNoMaster) {
				t.Errorf("at an earlier socket: %v", err)
			}
			continue
		}
		err = a.call(t.Context(), ask)
		message, try := explain(err)
		if !errors.Is(err, guard.ErrForeign) || exitCode(err) != exitUsage || !strings.HasPrefix(message, "the socket "+next+" belongs to user 65534, not to you") || try == "" {
			t.Errorf("at the next socket: %v: %q, try %q", err, message, try)
		}
	}
}

// TestPromise11SquattedPort: another user takes the port while the page is open and no master runs. The open
// page shows nothing of his and tells him nothing more; and whatever he got, also from who opens his page, is
// worth nothing when a master is back. No task is made, and no service worker of his stays.
func TestPromise11SquattedPort(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		missing(t, "only root can be somebody else")
	}
	browser := newBrowser(t)
	w := newPageWorld(t, nil)
	task := w.run("task", "-d", "--delay", "1h", "demo:say=mine")
	list := newTab(t, browser)
	w.signIn(list)
	base := w.base // of this master's page
	one := newTab(t, browser)
	one.open(base + "/?task=" + task)
	one.await("live", "document.getElementById('link').textContent === 'live'")
	port := base[strings.LastIndexByte(base, ':')+1:]
	w.end()
	s := squat(t, port)

	for _, b := range []*tab{list, one} {
		b.eval("window.same = true")
		b.await("that it is signed out", "document.getElementById('said').textContent.includes('stint ui')")
		b.eval("document.getElementById('new-prompt').value = 'secret plans'; form.requestSubmit()")
	}
	plain := "http://127.0.0.1:" + port
	var evil []*tab
	for _, origin := range []string{base, plain, "http://localhost:" + port} { // a person who goes there gets his page
		b := newTab(t, browser)
		b.open(origin + "/")
		b.await("the service worker", "window.stays === true")
		evil = append(evil, b)
	}
	for _, b := range []*tab{list, one} {
		if !eval[bool](b, "window.same === true && window.evil === undefined && document.getElementById('evil-part') === null") {
			t.Errorf("the open page is another one's: %s", eval[string](b, "document.documentElement.outerHTML"))
		}
	}
	if !s.has("/") || !s.has("/?task="+task) || !s.has("/v1/events") {
		t.Errorf("the open pages have not asked him: %v", s.sent)
	}
	s.end()
	if told := strings.Join(s.bodies, "\n"); strings.Contains(told, "secret plans") {
		t.Errorf("the open page has told him the prompt: %s", told)
	}

	token, err := os.ReadFile(filepath.Join(w.state, "token")) // a program may have told him
	must(t, err)
	w.open("127.0.0.1:" + port)
	for _, b := range evil {
		b.eval("window.token = " + asJSON(t, strings.TrimSpace(string(token))) + "; window.answers.length = 0")
		b.await("answers of the master", "window.answers.length > 10")
		if statuses := eval[[]int](b, "window.answers"); slices.ContainsFunc(statuses, func(status int) bool { return status < 400 }) {
			t.Errorf("his page at %s gets %v", eval[string](b, "location.origin"), statuses)
		}
	}
	s.replay(t, w)
	if got := w.run("ls", "--json"); strings.Count(got, "\n") != 0 || !strings.Contains(got, task) {
		t.Errorf("there are other tasks: %s", got)
	}
	for _, b := range evil {
		at := eval[string](b, "location.origin")
		b.await("that no service worker stays", "(async () => { await Promise.all((await navigator.serviceWorker.getRegistrations()).map((one) => one.update().catch(() => {}))); return (await navigator.serviceWorker.getRegistrations()).length === 0; })()")
		b.eval("setTimeout(() => location.reload())")
		b.await("his page is gone from "+at, "window.evil === undefined && document.getElementById('evil-part') === null")
	}
	again := newTab(t, browser)
	w.signIn(again)
	if !eval[bool](again, "navigator.serviceWorker.controller === null && window.evil === undefined") {
		t.Error("he has got into the new page")
	}
	again.eval("document.getElementById('new-prompt').value = 'demo:say=well'; document.getElementById('new-workspace').value = " + asJSON(t, w.work) + "; form.requestSubmit()")
	again.await("that it was submitted", "document.getElementById('said').textContent.startsWith('Submitted: ')")
}

// replay makes requests with what the squatter was sent, as a process of our own user.
func (s *squatter) replay(t *testing.T, w *pageWorld) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cookies) == 0 || len(s.keys) < 2 {
		t.Fatalf("he has no cookie or no key: %v, %v", s.cookies, s.keys)
	}
	tried := 0
	for host := range s.hosts {
		for cookie := range s.cookies {
			for key := range s.keys {
				for method, body := range map[string]string{"GET": "", "POST": stolen} {
					resp, err := w.request(method+" /v1/tasks", body, "Host: "+host, "Origin: http://"+host, "Cookie: "+cookie, "Stint-Page: "+key)
					must(t, err)
					_ = resp.Body.Close() // its status is enough
					if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusMisdirectedRequest {
						t.Errorf("%s at %s with %s and %q: %s", method, host, cookie, key, resp.Status)
					}
					tried++
				}
			}
		}
	}
	t.Logf("squat: hosts=%d cookies=%d keys=%d replayed=%d", len(s.hosts), len(s.cookies), len(s.keys), tried)
}
