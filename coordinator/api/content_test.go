package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// get asks for a path with some headers, "Name: value".
func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return ask(h, http.MethodGet, path, "", "", headers...)
}

// twoRuns has a task whose last attempt has two runs, which wrote text in all.
func twoRuns(t *testing.T, text string) (*fakeMaster, *Server) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Running, RunID: "r2", Steps: []state.Step{{RunID: "r1"}, {RunID: "r2", Phase: state.PhaseVerify}}})
	m.write(t, "r1", "stdout", text[:len(text)/3])
	m.write(t, "r2", "stdout", text[len(text)/3:])
	return m, newServer(m, Options{})
}

// TestLogRanges: a range of a log is that piece of the whole, which several runs have written.
func TestLogRanges(t *testing.T) {
	const text = "one\ntwo\nthree\nfour\nfive\n"
	_, s := twoRuns(t, text)
	const path = "/v1/tasks/a/logs"
	for _, c := range []struct {
		query, header string
		status        int
		want          string
		contentRange  string
	}{
		{"", "", 200, text, ""},
		{"", "bytes=0-", 206, text, "bytes 0-23/24"},
		{"", "bytes=0-0", 206, "o", "bytes 0-0/24"},
		{"", "bytes=6-9", 206, "o\nth", "bytes 6-9/24"}, // over the end of the first run
		{"", "bytes=7-7", 206, "\n", "bytes 7-7/24"},
		{"", "bytes=8-", 206, text[8:], "bytes 8-23/24"},
		{"", "bytes=-5", 206, "five\n", "bytes 19-23/24"},
		{"", "bytes=-1000", 206, text, "bytes 0-23/24"},
		{"", "bytes=20-1000", 206, "ive\n", "bytes 20-23/24"},
		{"", "bytes=24-", 416, "", "bytes */24"},
		{"", "bytes=9-8", 416, "", ""},
		{"", "bytes=x", 416, "", ""},
		{"", "bytes=-", 416, "", ""},
		{"", "lines=1-2", 416, "", ""},
		{"?run=1", "bytes=-3", 206, text[5:8], "bytes 5-7/8"},
	} {
		w := get(s, path+c.query, "Range: "+c.header)
		if w.Code != c.status || w.Header().Get("Content-Range") != c.contentRange && (c.status < 400 || c.contentRange != "") {
			t.Errorf("%s %q: %d %q", c.query, c.header, w.Code, w.Header().Get("Content-Range"))
		}
		if w.Code >= 400 {
			if p := decode[wire.Problem](t, w.Body.Bytes()); p.Status != c.status || p.Code != task.CodeInvalid || p.Field == "" || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %q: %+v", c.query, c.header, p)
			}
			continue
		}
		if w.Body.String() != c.want || w.Header().Get("Accept-Ranges") != "bytes" || w.Header().Get("Content-Length") != fmt.Sprint(len(c.want)) || w.Header().Get("Content-Type") != textPlain {
			t.Errorf("%s %q: %q, %v", c.query, c.header, w.Body, w.Header())
		}
	}
}

// TestLogThatGrows: who goes on where it left off gets what was added.
func TestLogThatGrows(t *testing.T) {
	m, s := twoRuns(t, strings.Repeat("0123456789abcde\n", 1024))
	const path = "/v1/tasks/a/logs"
	size := get(s, path).Body.Len()
	m.write(t, "r2", "stdout", "more\n")
	if w := get(s, path, fmt.Sprintf("Range: bytes=%d-", size)); w.Code != 206 || w.Body.String() != "more\n" {
		t.Errorf("what was added: %d %.50q", w.Code, w.Body)
	}
}

// hidden is what stands in files that nobody may have.
const hidden = "the words of somebody else"

// withFiles has a task with collected files, and beside them what nobody may have.
func withFiles(t *testing.T, names ...string) *fakeMaster {
	m := newFake(t)
	a := state.Task{ID: "a", Status: state.Done, RunID: "r"}
	for _, name := range append([]string{"results.txt", "out/ü \"x\";.html", "a%b"}, names...) {
		a.OutputFiles = append(a.OutputFiles, state.OutputFile{Path: name, Size: 5})
	}
	m.add(a)
	files := filepath.Join(m.RunDir("r"), "files")
	must(t, os.MkdirAll(filepath.Join(files, "out"), 0o700))
	m.write(t, "r", "run.json", hidden)
	m.write(t, "", "secret", hidden)
	for _, name := range []string{"results.txt", "out/ü \"x\";.html", "a%b"} {
		m.write(t, "r", "files/"+name, "fine\n")
	}
	for name, to := range map[string]string{"link": "../run.json", "inside": "results.txt", "up": "..", "far": filepath.Join(m.runs, "secret"), "proc": "/proc/self/environ"} {
		must(t, os.Symlink(to, filepath.Join(files, name)))
	}
	must(t, errors.Join(os.Link(filepath.Join(m.runs, "secret"), filepath.Join(files, "hard")), syscall.Mkfifo(filepath.Join(files, "pipe"), 0o600)))
	return m
}

// TestFileIsServedToBeSaved: no browser shows a file of an agent as a page of ours.
func TestFileIsServedToBeSaved(t *testing.T) {
	s := newServer(withFiles(t), Options{})
	w := get(s, "/v1/tasks/a/files/out/"+url.PathEscape("ü \"x\";.html"))
	want := map[string]string{
		"Content-Type": "application/octet-stream", "Content-Length": "5", "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Content-Disposition": "attachment; filename*=utf-8''%C3%BC%20%22x%22%3B.html",
	}
	for name, value := range want {
		if got := w.Header().Values(name); len(got) != 1 || got[0] != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	if w.Code != 200 || w.Body.String() != "fine\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if _, params, err := mime.ParseMediaType(w.Header().Get("Content-Disposition")); err != nil || params["filename"] != "ü \"x\";.html" {
		t.Errorf("a client reads %q, %v", params["filename"], err)
	}
	if w := get(s, "/v1/tasks/a/files/"+url.PathEscape("out/ü \"x\";.html")); w.Code != 200 || w.Body.String() != "fine\n" {
		t.Errorf("a slash may be escaped: %d %q", w.Code, w.Body)
	}
	if w := get(s, "/v1/tasks/a/files/a%25b"); w.Code != 200 {
		t.Errorf("a name with %%: %d %s", w.Code, w.Body)
	}
	if w := get(s, "/v1/tasks/a/files/results.txt", "Range: bytes=-2"); w.Code != 206 || w.Body.String() != "e\n" {
		t.Errorf("a range: %d %q", w.Code, w.Body)
	}
	if w := get(s, "/v1/tasks/a/files/results.txt", "Range: bytes=9-"); w.Code != 416 || decode[wire.Problem](t, w.Body.Bytes()).Field != "Range" {
		t.Errorf("no range of it: %d %s", w.Code, w.Body)
	}
}

// TestBadFilePaths: of all paths that a client could make up, and that a person could
// have written into the ledger, none leads out of the directory of collected files.
func TestBadFilePaths(t *testing.T) {
	names := []string{
		"", ".", "..", "../run.json", "../../secret", "..//run.json", "./../run.json", "out/../../run.json", "out/../results.txt", "out/..", "/etc/passwd", "//etc/passwd", "/", "link", "inside", "up", "far", "proc", "up/run.json", "up/files/results.txt",
		"hard", "pipe", "out", "out/", "missing", "results.txt/", "results.txt/x", "results.txt\x00", "\x00", "results.txt\x00.png", "results.txt\n", "a\rb", "\xff", "results.txt ", `..\run.json`, "~/x", "RESULTS.TXT", strings.Repeat("a", 3000), strings.Repeat("../", 100) + "etc/passwd", ".git/config", "results.txt.",
	}
	var targets []string
	for _, name := range names {
		targets = append(targets, url.PathEscape(name), (&url.URL{Path: name}).EscapedPath(), strings.ReplaceAll(url.PathEscape(name), ".", "%2e"))
	}
	targets = append(targets,
		"out%2fx", "out%2F..%2F..%2Frun.json", "%2e%2e/run.json", "%2e%2e%2frun.json", "%252e%252e%252frun.json", "..%c0%afrun.json", "%2Fetc%2Fpasswd", "results.txt%00", "results.txt%", "%zz", "..;/run.json", "results.txt?x=1", "out%5c..%5crun.json",
	)
	if len(targets) < 100 {
		t.Fatalf("%d paths", len(targets))
	}
	m := withFiles(t, names...) // the ledger names them all
	ln := newMemoryListener()
	start(t, func(ctx context.Context) error { return newServer(m, Options{}).Serve(ctx, ln) })
	for _, target := range targets {
		if strings.ContainsAny(target, " \r\n") {
			continue // no request can have it
		}
		for _, a := range ln.raw(t, "GET /v1/tasks/a/files/"+target+" HTTP/1.1\r\nHost: stint\r\nConnection: close\r\n\r\n") {
			if a.StatusCode < 300 || a.StatusCode >= 500 || strings.Contains(a.body, hidden) {
				t.Errorf("%.80q: %d %.80q", target, a.StatusCode, a.body)
			}
		}
	}
}

// TestTurnstile: what costs much is done one after the other, and nobody waits for ever.
func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(turnstile, 1)
		leave, err := gate.enter(t.Context())
		must(t, err)
		_, err = gate.enter(t.Context())
		if !errors.Is(err, &task.Error{Code: task.CodeTooMany}) {
			t.Errorf("while another is at it: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := gate.enter(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("of who has gone: %v", err)
		}
		time.AfterFunc(patience/2, leave)
		if leave, err = gate.enter(t.Context()); err != nil {
			t.Fatalf("when the other has left: %v", err)
		}
		leave()
	})
}

// TestCutWhileItIsServed: an answer that cannot be ended as it was begun is not taken for a whole one.
func TestCutWhileItIsServed(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Running, RunID: "r"})
	m.write(t, "r", "stdout", strings.Repeat("x", 1<<20))
	w := &cuttingWriter{ResponseRecorder: httptest.NewRecorder(), cut: func() { _ = os.Truncate(filepath.Join(m.RunDir("r"), "stdout"), 0) }}
	newServer(m, Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/tasks/a/logs", nil))
	if got := w.Body.Bytes(); w.Header().Get("Content-Length") != fmt.Sprint(1<<20) || len(got) >= 1<<20 || bytes.IndexByte(got, 0) >= 0 {
		t.Errorf("%d bytes of %s", len(got), w.Header().Get("Content-Length"))
	}
}

// A cuttingWriter calls cut after the first write.
type cuttingWriter struct {
	*httptest.ResponseRecorder
	cut func()
}

func (w *cuttingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(b)
	w.cut()
	return n, err
}

// TestNoLinkOfARunIsFollowed: where a command has put something else in the place of a
// run's files, nothing is read through it, nobody waits for it, and the answer says so.
func TestNoLinkOfARunIsFollowed(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(`{"env":["SECRET"]}`), 0o600))
	for what, put := range map[string]func(path string) error{
		"link":         func(path string) error { return os.Symlink(secret, path) },
		"broken link":  func(path string) error { return os.Symlink(secret+"no", path) },
		"pipe":         func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory":    func(path string) error { return os.Mkdir(path, 0o700) },
		"link to here": func(path string) error { return os.Symlink(".", path) },
	} {
		m := newFake(t)
		m.add(state.Task{ID: "a", Status: state.Done, RunID: "r1", Steps: []state.Step{{RunID: "r1"}}})
		must(t, os.MkdirAll(m.RunDir("r1"), 0o700))
		for _, name := range []string{"stdout", "stderr", "run.json"} {
			must(t, put(filepath.Join(m.RunDir("r1"), name)))
		}
		s := newServer(m, Options{})
		for _, query := range []string{"", "?run=r1", "?stream=stderr", "?follow=true"} {
			w := get(s, "/v1/tasks/a/logs"+query)
			p := decode[wire.Problem](t, w.Body.Bytes())
			if w.Code != 409 || p.Code != task.CodeConflict || !strings.Contains(p.Detail, "is not read") || p.Hint == "" {
				t.Errorf("%s, %s: %d %s", what, query, w.Code, w.Body)
			}
		}
		if w := get(s, "/v1/tasks/a"); w.Code != 200 || strings.Contains(w.Body.String(), "SECRET") {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}
