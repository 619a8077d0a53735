package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// letIn signs in as the page's script does, and gives the code, the cookie's value and
// the page's key.
func (w *pageWorld) letIn() (code, cookie, key string) {
	w.t.Helper()
	address := w.address()
	w.goTo(address)
	_, code, _ = strings.Cut(address, "#code=")
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.plain()+"/ui/session", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(w.base, "http://")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var told struct{ Key string }
	if err := json.NewDecoder(resp.Body).Decode(&told); err != nil || len(resp.Cookies()) != 1 {
		w.t.Fatal(resp.Status, err)
	}
	return code, resp.Cookies()[0].Value, told.Key
}

// TestPromise11NoSecretIsWritten: what lets somebody in over TCP is in no file, command
// line or environment, but the token in its own file; neither while it is used nor when
// it is refused.
func TestPromise11NoSecretIsWritten(t *testing.T) {
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	w := newPageWorld(t, nil)
	token, err := os.ReadFile(filepath.Join(w.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	code, cookie, key := w.letIn()
	canaries := map[string]string{"token": strings.TrimSpace(string(token)), "code": code, "cookie": cookie, "key": key, "name": strings.TrimPrefix(strings.Split(w.base, ".")[0], "http://")}
	for _, header := range []string{"Authorization: Bearer " + canaries["token"], "Cookie: stint=" + cookie} {
		for _, request := range []string{"GET /", "GET /v1/tasks", "GET /nothing", "POST /v1/tasks", "GET /v1/tasks?token=" + canaries["token"], "POST /ui/session", "BAD / x"} {
			w.send(request, header, pageHeaderName+": "+key)
		}
	}
	running := w.run("task", "-d", "demo:sleep=300")
	w.run("task", "--session", "done", "demo:say=well")
	if !poll(scriptDeadline, func() bool { return w.searchProcesses(running, canaries) > 0 }) {
		t.Error("no agent's environment was seen")
	}
	w.run("cancel", running)
	files := w.searchFiles(canaries)
	if !t.Failed() {
		t.Logf("canaries: secrets=%d files=%d hits=0", len(canaries), files)
	}
}

// pageHeaderName is the header in which the page's script shows its key.
const pageHeaderName = "Stint-Page"

// send makes a request, whatever becomes of it.
func (w *pageWorld) send(request string, headers ...string) {
	w.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.plain(), strings.NewReader("{}"))
	if err != nil {
		w.t.Fatal(err)
	}
	req.URL.Opaque, req.Host = path, strings.TrimPrefix(w.base, "http://")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // the server has not understood it
	}
	_ = resp.Body.Close() // what it says does not matter
}

// searchProcesses looks for secrets on the command lines and in the environments of all
// processes, and counts those of a task's agent.
func (w *pageWorld) searchProcesses(task string, canaries map[string]string) (agents int) {
	w.t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range processes {
		environ, _ := os.ReadFile(dir + "/environ") // it may have ended, or be another user's
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		if bytes.Contains(environ, []byte("STINT_TASK_ID="+task)) {
			agents++
		}
		for name, secret := range canaries {
			if bytes.Contains(environ, []byte(secret)) || bytes.Contains(cmdline, []byte(secret)) {
				w.t.Errorf("the %s is in %s: %q", name, dir, cmdline)
			}
		}
	}
	return agents
}

// searchFiles looks for secrets in all files of the world and in its master's log.
func (w *pageWorld) searchFiles(canaries map[string]string) (files int) {
	w.t.Helper()
	found := 0
	err := filepath.WalkDir(filepath.Dir(w.state), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for name, secret := range canaries {
			switch {
			case !bytes.Contains(text, []byte(secret)):
			case name == "token" && path == filepath.Join(w.state, "token"):
				found++
			default:
				w.t.Errorf("the %s is in %s", name, path)
			}
		}
		return nil
	})
	if err != nil || found != 1 {
		w.t.Errorf("the token was found in %d places of its own: %v", found, err)
	}
	return files
}
