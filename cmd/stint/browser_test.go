package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"stint/ledger"
	"stint/state"
)

// A pageWorld is a master with a page on a port of its own.
type pageWorld struct {
	*world
	base string // address of the page, without the last slash
	life *life
}

// newPageWorld starts a master. tasks, if not nil, is what its tasks.md begins with.
func newPageWorld(t *testing.T, tasks []byte) *pageWorld {
	t.Helper()
	w := &pageWorld{world: newWorld(t, 1)}
	if tasks != nil {
		w.write("state/tasks.md", string(tasks))
	}
	w.open("127.0.0.1:0")
	return w
}

// open starts a master with its page at an address, such as 127.0.0.1:0.
func (w *pageWorld) open(address string) {
	w.t.Helper()
	w.life = w.serve("--http", address)
	w.t.Cleanup(w.end)
	w.goTo(w.address())
}

// goTo makes the page of an address the one that is meant from now on.
func (w *pageWorld) goTo(address string) {
	w.t.Helper()
	u, err := url.Parse(address)
	must(w.t, err)
	w.base = "http://" + u.Host
}

// plain returns the address where no browser is signed in.
func (w *pageWorld) plain() string {
	return "http://127.0.0.1" + w.base[strings.LastIndexByte(w.base, ':'):]
}

// end ends the master, unless it has ended.
func (w *pageWorld) end() {
	w.t.Helper()
	w.world.end(w.life, syscall.SIGTERM)
	if !w.life.cmd.ProcessState.Success() {
		w.t.Errorf("the master: %v", w.life.cmd.ProcessState)
	}
}

// address returns an address that lets one browser in.
func (w *pageWorld) address() string { return w.run("ui", "--print") }

// wholeState returns all that a request could have changed, over the socket.
func (w *pageWorld) wholeState() string {
	w.t.Helper()
	text, err := masterState(w.t.Context(), w.socket)
	must(w.t, err)
	return string(text)
}

// signIn opens the page in a tab, with the address that stint ui gives.
func (w *pageWorld) signIn(b *tab) (address string) {
	w.t.Helper()
	address = w.address()
	w.goTo(address)
	b.open(address)
	b.await("the list of tasks", "document.getElementById('tasks') !== null")
	b.await("live", "document.getElementById('link').textContent === 'live'")
	return address
}

// TestPageInChromium is what a person does with the page, with the keyboard where that is harder.
func TestPageInChromium(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	w := newPageWorld(t, nil)
	b := newTab(t, browser)
	address := w.signIn(b)
	if at := eval[string](b, "location.href"); at != w.base+"/" {
		t.Errorf("the code is to be seen: %s", at)
	}
	if twice := eval[bool](b, "performance.getEntriesByType('resource').some((e) => new URL(e.name).pathname === '/')"); twice {
		t.Error("the page was loaded twice")
	}
	if size := eval[float64](b, "['navigation', 'resource'].flatMap((t) => performance.getEntriesByType(t)).reduce((n, e) => n + e.transferSize, 0)"); size > 25<<10 {
		t.Errorf("the first load has %.0f bytes", size)
	}
	t.Run("the code counts once", func(t *testing.T) {
		other := newTab(t, browser, chromedp.WithNewBrowserContext())
		other.open(address)
		other.await("that it is refused", "document.getElementById('said').textContent.includes('Signing in failed: the code was used before')")
		if eval[bool](other, "document.getElementById('tasks') !== null") {
			t.Error("the page is shown")
		}
	})
	t.Run("the file that stint ui opens", func(t *testing.T) {
		w.env = append(w.env, "BROWSER=true")
		w.run("ui")
		other := newTab(t, browser, chromedp.WithNewBrowserContext())
		other.open("file://" + filepath.Join(w.state, "ui.html"))
		other.await("the list of tasks", "document.getElementById('tasks') !== null && /^http:.*[.]localhost:[0-9]+[/]$/.test(location.href)")
	})
	for name, do := range map[string]func(*tab){
		"submit with the keyboard": w.submitByKeys, "the same form twice": w.submitTwice, "buttons": w.pressButtons, "errors": w.showErrors, "phone and night": w.lookOnPhone,
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.open(w.base + "/")
			b.await("live", "document.getElementById('link').textContent === 'live'")
			do(b)
		})
	}
	b.t = t
	b.expectNothingBad(w.base, "status of 4") // the page to sign in, and what showErrors asks for
}

// submitByKeys fills in the form without a mouse, and sees the task done without a reload.
func (w *pageWorld) submitByKeys(b *tab) {
	b.eval("window.same = true")
	focus := func(id string) {
		b.t.Helper()
		b.await("the focus on "+id, "document.activeElement.id === '"+id+"'")
	}
	key := func(keys string) { b.do(chromedp.KeyEvent(keys)) }
	key(kb.Tab)
	b.await("the way to the form", "document.activeElement.className === 'skip'")
	key(kb.Enter)
	key(kb.Tab)
	focus("new-prompt")
	key("demo:sleep=3 demo:say=<i>hello</i>")
	key(kb.Tab)
	focus("new-workspace")
	b.eval("document.activeElement.select()")
	key(w.work)
	key(kb.Tab)
	focus("new-agent")
	key("dem")
	key(kb.Tab)
	focus("new-priority")
	key("7")
	key(kb.Tab)
	focus("new-session")
	key("keys")
	key(kb.Tab)
	focus("new-verify")
	key("true")
	key(kb.Tab)
	b.await("the focus on the button", "document.activeElement.type === 'submit'")
	key(kb.Enter)
	b.await("that it was submitted", "document.getElementById('said').textContent.startsWith('Submitted: ')")
	row := "[...document.querySelectorAll('#tasks tr')].find((row) => row.textContent.includes('<i>hello</i>'))?"
	b.await("it runs", row+".querySelector('td.running') != null")
	b.await("it is done", row+".querySelector('td.done') != null")
	if !eval[bool](b, "window.same === true") {
		b.t.Error("the page was loaded anew")
	}
	b.eval(row + ".querySelector('a').click()")
	b.await("the answer", "document.getElementById('answer-text')?.textContent === '<i>hello</i>'")
	var task state.Task
	must(b.t, json.Unmarshal([]byte(w.run("ls", "--json", "--session", "keys")), &task))
	if task.Agent != "demo" || task.Priority != 7 || task.SessionKey != "keys" || task.VerifyCommand != "true" || task.Workspace != w.work {
		b.t.Errorf("the form made %+v", task)
	}
}

// submitTwice sends the same form again before it was answered.
func (w *pageWorld) submitTwice(b *tab) {
	b.eval("document.getElementById('new-prompt').value = 'demo:say=once'; document.getElementById('new-workspace').value = " + asJSON(b.t, w.work) + "; form.requestSubmit(); form.requestSubmit()")
	b.await("it is done", "[...document.querySelectorAll('#tasks tr')].some((row) => row.textContent.includes('once') && row.querySelector('td.done'))")
	if n := strings.Count(w.run("ls", "--json"), `"title":"demo:say=once"`); n != 1 {
		b.t.Errorf("%d tasks", n)
	}
}

// showErrors asks for what cannot be.
func (w *pageWorld) showErrors(b *tab) {
	b.eval("document.getElementById('new-prompt').value = 'x'; document.getElementById('new-workspace').value = '/nowhere'; form.requestSubmit()")
	b.await("what is wrong", "said.className === 'failed' && said.textContent.includes('/nowhere')")
	b.await("where", "document.activeElement.id === 'new-workspace' && document.activeElement.getAttribute('aria-invalid') === 'true'")
	b.open(w.base + "/?task=nothing")
	b.await("that there is none", "document.getElementById('error').textContent.includes('nothing')")
}

// pressButtons holds, releases, cancels and retries a task.
func (w *pageWorld) pressButtons(b *tab) {
	id := w.run("task", "-d", "--session", "buttons", "demo:sleep=300")
	b.await("the task of another client", "document.getElementById('t-"+id+"')?.closest('tr').querySelector('td.running') != null")
	b.open(w.base + "/?task=" + id)
	b.await("live", "document.getElementById('link').textContent === 'live'")
	press := func(button, then string) {
		b.t.Helper()
		b.await("a button to "+button, "document.getElementById('do-"+button+"') !== null")
		b.eval("document.getElementById('do-" + button + "').focus()")
		b.do(chromedp.KeyEvent(kb.Enter))
		b.await(then, "document.querySelector('#task dd."+then+"') !== null")
	}
	press("cancel", "canceled")
	press("retry", "running")
	press("cancel", "canceled")
	waiting := w.run("task", "-d", "--session", "buttons", "--delay", "1h", "demo:say=later")
	b.open(w.base + "/?task=" + waiting)
	press("hold", "queued")
	b.await("held", "document.querySelector('#task dd.queued').textContent === 'queued (held)'")
	press("release", "queued")
	b.await("not held", "document.querySelector('#task dd.queued').textContent === 'queued'")
	press("cancel", "canceled")
}

// lookOnPhone looks at the pages on a small screen, and in the dark.
func (w *pageWorld) lookOnPhone(b *tab) {
	w.run("task", "--session", "phone", "demo:say="+strings.Repeat("long", 500))
	b.do(chromedp.EmulateViewport(390, 844))
	colours := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			return err
		}))
		for _, path := range []string{"/", "/?task=@last", "/?task=nothing"} {
			b.open(w.base + path)
			if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 390 {
				b.t.Errorf("%s is %d pixels wide", path, wide)
			}
		}
		colours[scheme] = eval[string](b, "getComputedStyle(document.body).color + ' on ' + getComputedStyle(document.body).backgroundColor")
	}
	if colours["light"] == colours["dark"] {
		b.t.Errorf("day and night are the same: %v", colours)
	}
	b.do(chromedp.ResetViewport())
}

// hostileTasks returns a tasks.md with a task for each text of the corpus, which has it in
// every field, and tasks that have many of them at once; and the ids of the latter.
func hostileTasks(t *testing.T) (tasks []byte, one, many []string) {
	t.Helper()
	data := get(t, "../../coordinator/api/web/testdata/xss.txt")
	var texts []string
	for line := range strings.Lines(string(data)) {
		text, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		must(t, err)
		texts = append(texts, text)
	}
	tasks = []byte("<!-- stint ledger 1 -->\n# Tasks\n\n")
	seq := uint64(0)
	add := func(text string) string {
		seq++
		id := fmt.Sprintf("hostile-%04d", seq)
		inJSON := func(form string) string { return strings.ReplaceAll(form, "TEXT", asJSON(t, text)) }
		r := &ledger.Record{Kind: ledger.KindTask, ID: id, Seq: seq}
		r.Add(state.KeyStatus, "failed")
		for _, key := range []string{
			state.KeySessionKey, state.KeyWorkspace, state.KeyAgent, state.KeyModel, state.KeyLabel, state.KeyVerifyCommand, state.KeyReason,
			state.KeyError, state.KeyNote, state.KeyVerifyOutput, state.KeyPrompt, state.KeyResult,
		} {
			r.Add(key, text)
		}
		r.Add(state.KeyFindings, inJSON(`[{"kind":TEXT,"message":TEXT}]`)).Add(state.KeyOutputFiles, inJSON(`[{"path":TEXT,"size":1}]`))
		var err error
		if tasks, err = ledger.AppendRecord(tasks, r); err != nil {
			t.Fatal(err)
		}
		return id
	}
	for i, text := range texts {
		one = append(one, add(text))
		if i%16 == 15 {
			many = append(many, add(strings.Join(texts[i-15:i+1], "\n")))
		}
	}
	return tasks, one, many
}

// TestPromise6HostileTextsInChromium: none of the texts of the corpus, in any field, opens
// a dialog, sends a request elsewhere or breaks the page's policy; neither as the server
// writes them nor as the script puts them in the place of what was there.
func TestPromise6HostileTextsInChromium(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	tasks, one, many := hostileTasks(t)
	w := newPageWorld(t, tasks)
	b := newTab(t, browser)
	w.signIn(b)
	rows := 0
	for next := w.base + "/"; next != ""; next = eval[string](b, "document.getElementById('older')?.href ?? ''") {
		b.open(next)
		rows += eval[int](b, "document.querySelectorAll('#tasks tbody tr').length")
	}
	if rows != len(one)+len(many) {
		t.Errorf("%d rows of %d", rows, len(one)+len(many))
	}
	for _, id := range many {
		b.open(w.base + "/?task=" + id)
	}
	b.await("live", "document.getElementById('link').textContent === 'live'")
	shown := eval[int](b, `(async () => {
		let shown = 0;
		for (const id of `+asJSON(t, one)+`) {
			history.replaceState(null, "", "/?task=" + id);
			replace((await load()).responseXML.getElementById("live"));
			if (live.querySelector("#task code").textContent === id) shown++;
		}
		return shown;
	})()`)
	if shown != len(one) {
		t.Errorf("%d of %d tasks were shown", shown, len(one))
	}
	b.eval(`say("<img src=x onerror=alert(1)>\u202e")`)
	b.expectNothingBad(w.base, "status of 401")
	if !t.Failed() {
		t.Logf("pages: texts=%d lists=%d tasks=%d dialogs=0 elsewhere=0 violations=0", len(one), (rows+49)/50, shown+len(many))
	}

	// What counts them can count.
	b.eval("new Image().src = 'http://evil.example/'; setTimeout(() => alert(1)); 0")
	if !poll(chromiumDeadline, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.dialogs) > 0 && len(b.blocked) > 0
	}) {
		t.Error("a dialog, or a broken policy, would not have been seen")
	}
}

// An attacker serves the attacking page, and notes the cookies that browsers send there.
type attacker struct {
	*httptest.Server
	mu      sync.Mutex
	cookies []string // guarded by mu
}

// newAttacker serves a page that attacks the server at an address, where there is a task.
func newAttacker(t *testing.T, victim, task string) *attacker {
	t.Helper()
	text := get(t, "testdata/attack.html")
	page := strings.NewReplacer("VICTIM", victim, "TASK", task).Replace(string(text))
	a := &attacker{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.cookies = append(a.cookies, r.Header.Get("Cookie"))
		a.mu.Unlock()
		rw.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(rw, page) // the browser may be gone
	}))
	t.Cleanup(a.Close)
	return a
}

// attack lets a browser open the attacking page under a name, and gives what the page could read.
func (a *attacker) attack(t *testing.T, browser context.Context, host string) (read map[string]int) {
	t.Helper()
	_, port, _ := strings.Cut(a.Listener.Addr().String(), ":")
	b := newTab(t, browser)
	b.open("http://" + host + ":" + port + "/")
	b.await("the attack is over", "over")
	if pending := eval[[]string](b, "[...pending]"); len(pending) > 0 {
		t.Errorf("from %s, these did not end: %q", host, pending)
	}
	return eval[map[string]int](b, "read")
}

// TestAttackIsOne: against a server that trusts everybody the attacking page reads and changes what it wants.
func TestAttackIsOne(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	var mu sync.Mutex
	changes := map[string]bool{}
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Allow-Headers", "Content-Type, Stint-Page")
		h.Set("Access-Control-Allow-Methods", "PUT, PATCH, DELETE")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodOptions:
			kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
			mu.Lock()
			changes[r.Method+" "+kind] = true
			mu.Unlock()
		case r.URL.Path == "/v1/events":
			h.Set("Content-Type", "text/event-stream")
		case r.URL.Path == "/ui/app.js":
			h.Set("Content-Type", "text/javascript")
		}
		_, _ = io.WriteString(w, "//") // the browser may be gone
	}))
	t.Cleanup(victim.Close)
	read := newAttacker(t, victim.URL, "x").attack(t, browser, "evil.example")
	for _, name := range []string{"fetch /v1/tasks", "request /v1/tasks", "script /ui/app.js", "post of json /v1/tasks", "PUT", "events"} {
		if read[name] == 0 {
			t.Errorf("%s reads nothing", name)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, change := range []string{
		"POST text/plain", "POST ", "POST application/json", "POST application/x-www-form-urlencoded", "POST multipart/form-data", "PUT ", "PATCH ", "DELETE ",
	} {
		if !changes[change] {
			t.Errorf("no %s: %v", change, changes)
		}
	}
}

// TestPromise11OtherSites: a page of another site, or of another port of this machine, changes nothing and
// reads nothing, while the browser has the cookie. Nor does one whose name leads here.
func TestPromise11OtherSites(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	w := newPageWorld(t, nil)
	task := w.run("task", "-d", "--delay", "1h", "demo:say=mine")
	mine := newTab(t, browser)
	w.signIn(mine)
	a := newAttacker(t, w.base, task)
	before := w.wholeState()
	ours, _, _ := strings.Cut(strings.TrimPrefix(w.base, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "evil.example", "localhost", ours} { // the last one knows our name
		read, total := a.attack(t, browser, host), 0
		for name, n := range read {
			if total += n; n != 0 {
				t.Errorf("from %s, %s reads %d", host, name, n)
			}
		}
		if now := w.wholeState(); now != before {
			t.Errorf("a page of %s has changed the state from\n%s\nto\n%s", host, before, now)
		}
		if !t.Failed() {
			t.Logf("attack: from=%s attempts=%d read=%d changes=0", host, len(read), total)
		}
	}
	if n := eval[int](mine, "fetch('/v1/tasks').then((answer) => answer.text()).then((text) => text.length)"); n == 0 {
		t.Error("our own page reads nothing either")
	}
	t.Run("a stolen cookie", func(t *testing.T) { w.replay(t, a, before) })
	t.Run("a name that leads here", func(t *testing.T) {
		b := newTab(t, browser)
		_, own, _ := strings.Cut(strings.TrimPrefix(w.base, "http://"), ":")
		b.open("http://evil.example:" + own + "/")
		statuses := eval[[]int](b, "Promise.all(['/', '/v1/tasks', '/ui/app.js'].map((path) => fetch(path).then((answer) => answer.status)))")
		text := eval[string](b, "document.body.innerText")
		if fmt.Sprint(statuses) != "[421 421 421]" || strings.Contains(text, task) || !strings.Contains(text, "421") {
			t.Errorf("%v %s", statuses, text)
		}
	})
}

// stolen is what who has stolen a cookie asks for.
const stolen = `{"prompt":"demo:say=stolen","agent":"demo","workspace":"/"}`

// replay makes requests with the cookie that the browser has sent to the other port. It
// must have come there, else nothing is shown.
func (w *pageWorld) replay(t *testing.T, a *attacker, before string) {
	a.mu.Lock()
	cookies := strings.Join(a.cookies, "; ")
	a.mu.Unlock()
	if !strings.Contains(cookies, "stint=") {
		t.Fatalf("the browser keeps our cookie from other ports: %q", cookies)
	}
	for _, path := range []string{"/v1/tasks", "/v1/pause", "/v1/ui/code"} {
		resp, err := w.request("POST "+path, stolen, "Cookie: "+cookies, "Origin: "+w.base)
		must(t, err)
		_ = resp.Body.Close() // its status is enough
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if now := w.wholeState(); now != before {
		t.Errorf("who has the cookie has changed the state to\n%s", now)
	}
}

// chromiumNames are what Chromium is called, the usual names first.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome"}

// findChromium ends the test where there is no Chromium.
func findChromium(t *testing.T) {
	t.Helper()
	if _, found := chromiumPath(); !found {
		missing(t, "there is no Chromium: install the package chromium, or set STINT_TEST_CHROMIUM")
	}
}

func chromiumPath() (path string, found bool) {
	if path := os.Getenv("STINT_TEST_CHROMIUM"); path != "" {
		return path, true
	}
	for _, name := range chromiumNames {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// chromiumDeadline is how long a test waits for what a page is to become.
const chromiumDeadline = 3 * time.Minute

// A tab is one tab of a headless Chromium, and what went on in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	dialogs  []string // guarded by mu, like what follows
	requests []string // URLs
	blocked  []string // what a page's policy has refused
	errors   []string // exceptions of scripts, and what the console told of as errors
}

// newBrowser returns a browser of its own: it shares a Chromium with others, but no
// cookie, cache or service worker.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	notShort(t)
	findChromium(t)
	chromium, err := startChromium()
	must(t, err)
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	must(t, chromedp.Do(ctx))
	return ctx
}

// endChromium ends the Chromium that the tests share.
var endChromium = func() {}

// startChromium starts it, once. It takes evil.example for this machine.
var startChromium = sync.OnceValues(func() (context.Context, error) {
	dir, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	path, _ := chromiumPath()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(dir),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	endChromium = func() {
		cancel()
		end()
		_ = os.RemoveAll(dir) // in the temporary directory
	}
	return ctx, chromedp.Do(ctx)
})

// newTab opens a tab in a browser.
func newTab(t *testing.T, browser context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser, append(options, chromedp.WithListener(b.note))...)
	t.Cleanup(cancel)
	b.ctx = ctx
	err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { // the tab lasts as long as the context of what is done first
		_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
		return err
	}))
	must(t, err)
	return b
}

// note notes what happens in the tab.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.dialogs = append(b.dialogs, e.Message)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *audits.EventIssueAdded:
		text, _ := json.Marshal(e.Issue) // for the message alone
		b.blocked = append(b.blocked, string(text))
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelInfo {
			b.errors = append(b.errors, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	}
}

// do carries out actions, in time.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, chromiumDeadline)
	defer cancel()
	must(b.t, chromedp.Do(ctx, actions...))
}

// open goes to an address, and waits until what it leads to is loaded: our page may go
// on from there by itself.
func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.Navigate, page.NavigateParams{URL: address})
		return err
	}))
	b.await("loaded", "document.readyState === 'complete'")
}

// eval returns what a piece of JavaScript gives, awaited if it is a promise.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := tryEval[T](b, script)
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

func tryEval[T any](b *tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, chromiumDeadline)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// eval carries out a piece of JavaScript.
func (b *tab) eval(script string) {
	b.t.Helper()
	eval[any](b, script)
}

// await waits until a piece of JavaScript gives true. While the page goes on to another
// one it gives an error.
func (b *tab) await(what, script string) {
	b.t.Helper()
	var last error
	if !poll(chromiumDeadline, func() (holds bool) {
		holds, last = tryEval[bool](b, script)
		return holds && last == nil
	}) {
		b.t.Fatalf("never: %s (%v); the page is\n%s", what, last, eval[string](b, "document.documentElement.outerHTML"))
	}
}

// expectNothingBad: no dialog, no request to anywhere but base, nothing that the page's
// policy has refused, and no errors but those that have a text.
func (b *tab) expectNothingBad(base, but string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, request := range b.requests {
		if !strings.HasPrefix(request, base+"/") {
			b.t.Errorf("a request to %s", request)
		}
	}
	for _, e := range b.errors {
		if !strings.Contains(e, but) {
			b.t.Errorf("an error: %s", e)
		}
	}
	if len(b.dialogs)+len(b.blocked) > 0 {
		b.t.Errorf("dialogs %q, refused %q", b.dialogs, b.blocked)
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was seen")
	}
}
