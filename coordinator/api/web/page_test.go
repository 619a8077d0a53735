package web

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

// A fakeMaster is what the pages of tests show.
type fakeMaster struct {
	runs   string // directory of the runs
	tasks  []state.Task
	health task.Health
	says   string // of accounts
	shared *task.SharedStatus
}

func newFake(t testing.TB) *fakeMaster { return &fakeMaster{runs: t.TempDir()} }

func (m *fakeMaster) add(t state.Task) { m.tasks = append(m.tasks, t) }

// write makes the log of a run.
func (m *fakeMaster) write(t testing.TB, run string, events ...task.LogEvent) {
	t.Helper()
	dir := filepath.Join(m.runs, run)
	_ = os.RemoveAll(dir) // of another page
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := rundir.NewEventLog(dir, "")
	for _, e := range events {
		e.Time = time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
		l.Add(e, "")
	}
}

// List returns the tasks, newest first.
func (m *fakeMaster) List(f state.Filter) (tasks []state.Task) {
	for i, t := range slices.Backward(m.tasks) {
		if f.Before == 0 || uint64(i)+1 < f.Before {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

func (m *fakeMaster) rows(f state.Filter) (rows [][]byte, next uint64, err error) {
	if f.Before > uint64(len(m.tasks)) {
		return nil, 0, task.BadCursor("it is from another list")
	}
	for i, t := range m.List(f) {
		if i == f.Limit {
			next = uint64(len(m.tasks) - i + 1)
			break
		}
		row, err := json.Marshal(m.view(t))
		if err != nil {
			return nil, 0, err
		}
		rows = append(rows, row)
	}
	return rows, next, nil
}

func (m *fakeMaster) view(t state.Task) wire.TaskView {
	v := wire.TaskView{Task: t}
	if t.RunID != "" {
		v.RunDir = filepath.Join(m.runs, t.RunID)
	}
	if !t.Status.Terminal() {
		v.Why = "it is " + string(t.Status)
	}
	return v
}

func (m *fakeMaster) task(_ context.Context, ref string) (wire.TaskView, error) {
	i := slices.IndexFunc(m.tasks, func(t state.Task) bool { return t.ID == ref })
	if i < 0 {
		return wire.TaskView{}, &task.Error{Code: task.CodeNotFound, Message: "no task " + ref}
	}
	return m.view(m.tasks[i]), nil
}

// ask returns what the page at a path is.
func (m *fakeMaster) ask(path string, agents ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	m.site(agents...).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func (m *fakeMaster) site(agents ...string) *Site {
	return &Site{Agents: agents, Master: m, Rows: m.rows, Shown: m.task, Topics: testTopics, Due: m.due, Shared: func(context.Context) *task.SharedStatus { return m.shared }, Fleet: m}
}

func (m *fakeMaster) Seq() uint64 { return 7 }

// Instances returns one that says a text wherever it can, if there is one.
func (m *fakeMaster) Instances() []task.Instance {
	if m.says == "" {
		return nil
	}
	return []task.Instance{{ID: m.says, Server: m.says, User: m.says, Health: m.says, Detail: m.says, FailCount: 4712, CheckedAt: time.Unix(1_795_000_000, 0)}}
}

func (m *fakeMaster) Servers() ([]task.Server, error) {
	if m.says == "" {
		return nil, nil
	}
	return []task.Server{{ID: m.says, Instances: 4713, Last: &task.ServerMetric{CPU: 47.14, SampledAt: time.Unix(1_795_000_000, 0)}}, {ID: "new"}}, nil
}

func (m *fakeMaster) Health() task.Health { return m.health }

// Accounts returns one that is held, for that reason, and one that is not shown.
func (m *fakeMaster) Accounts() []state.AccountUse {
	return []state.AccountUse{
		{Account: state.Account{Name: m.says, Quota: []state.Window{{Name: m.says, Used: 35}}}, Why: m.says, Running: 1},
		{Account: state.Account{Name: "unused"}},
	}
}

// due returns a schedule and a dead letter that say that.
func (m *fakeMaster) due(context.Context) Due {
	return Due{
		Mistake:   m.says,
		Schedules: []task.Schedule{{Name: m.says, Title: m.says, Cron: m.says, Zone: m.says, Next: []time.Time{time.Unix(1_800_000_000, 0)}, Last: &task.JobRun{Outcome: task.RunError, Reason: m.says, Detail: m.says}}},
		Jobs:      []jobs.Job{{ID: m.says, Spec: jobs.Spec{Action: "verify", ObjectID: m.says}, Status: jobs.DeadLetter, Attempt: 3, LastError: &m.says}},
	}
}

// xssCorpus returns the texts of testdata/xss.txt, in which each line is a Go string.
func xssCorpus(t testing.TB) (texts []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/xss.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		text, err := strconv.Unquote(line)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		texts = append(texts, text)
	}
	return texts
}

// parsePage parses a page as a browser does, with scripts on.
func parsePage(t testing.TB, text string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// find returns the first element of which holds is true, nil if there is none.
func find(n *html.Node, holds func(*html.Node) bool) *html.Node {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && holds(d) {
			return d
		}
	}
	return nil
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func byID(t testing.TB, doc *html.Node, id string) *html.Node {
	t.Helper()
	n := find(doc, func(n *html.Node) bool { return attr(n, "id") == id })
	if n == nil {
		t.Fatalf("the page has no #%s", id)
	}
	return n
}

// textOfNode returns the text within a node.
func textOfNode(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// skeleton writes the elements of a page with their attributes, without any text, which it
// takes out. Of the attributes that a task may have a say in, only that they are harmless.
func skeleton(t testing.TB, page *html.Node) string {
	t.Helper()
	for n := range page.Descendants() {
		if n.Type == html.TextNode || n.Type == html.CommentNode {
			n.Data = ""
		}
		for i, a := range n.Attr {
			n.Attr[i].Val = harmless(n.Data, a)
		}
	}
	var b strings.Builder
	if err := html.Render(&b, page); err != nil {
		t.Error(err)
	}
	return b.String()
}

var ownLink = regexp.MustCompile(`^/\?(task|cursor)=[A-Za-z0-9%._~-]*$`)

// harmless returns the value of an attribute; of those that a task may have a say in a
// star, once it cannot lead anywhere.
func harmless(element string, a html.Attribute) string {
	switch {
	case a.Key == "href" && ownLink.MatchString(a.Val):
		return "*"
	case a.Key == "id" && element == "a", a.Key == "data-task" && element == "button", a.Key == "value" && element == "input":
		return "*"
	}
	return a.Val
}

// taskSaying returns a task that has a text in every field.
func taskSaying(text string) state.Task {
	begun, code := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), 1
	return state.Task{
		ID: text, Status: state.Failed, SessionKey: text, Workspace: text, Agent: text, Model: text, Account: text, Label: text, Priority: 7,
		After: []string{text}, TenantID: text, Queue: text, VerifyCommand: text, TriggeredBy: text, Trigger: state.OnIssue, Phase: state.Phase(text),
		RunID: "run-1", Attempt: 1, Reason: state.Class(text), Error: "x" + text, Note: text, CreatedAt: begun, StartedAt: begun, UpdatedAt: begun,
		InputFiles: []state.InputFile{{Name: text, Content: text}}, OutputFiles: []state.OutputFile{{Path: text, SHA256: text}},
		Changes: &state.Changes{Files: 1, Added: 1}, ChangedFiles: []state.FileChange{{Path: text, Change: state.FileAdded}},
		Findings: []state.Issue{{Kind: text, Message: text}}, VerifyOutput: text, FollowUps: []string{text},
		Steps: []state.Step{{RunID: text, Phase: state.Phase(text), Attempt: 1, Iteration: 1, Started: begun, Ended: begun, ExitCode: &code, Took: text}},
		Title: text, Prompt: text, Result: text, Extra: map[string]string{text: text},
	}
}

// healthSaying returns the health of a master that says a text wherever it can.
func healthSaying(text string) task.Health {
	return task.Health{
		Version: text, StateDir: text, Paused: true, PauseWhy: text, Findings: []string{text}, LastError: text,
		Postgres: &task.MirrorStatus{Target: text, State: task.MirrorState(text), LagRecords: 1, LastError: text, ErrorAt: time.Unix(1_795_000_000, 0), Warning: text, Skipped: []string{text, text}},
	}
}

// pages returns the pages that show a task which says a text: list, task, and two errors.
func (m *fakeMaster) pages(t testing.TB, text string) map[string]string {
	t.Helper()
	m.tasks = []state.Task{taskSaying(text)}
	m.write(t, "run-1", task.LogEvent{Kind: task.LogMessage, Text: text})
	m.health, m.says = healthSaying(text), text
	m.shared = &task.SharedStatus{Workers: []task.WorkerRow{{ID: text, Host: text, PID: 4711, Accounts: text, Processes: 4, Leases: 2, Draining: true, Silent: text}}}
	pages := map[string]string{}
	for name, path := range map[string]string{
		"list": "/", "task": "/?task=" + url.QueryEscape(text), "unknown": "/?task=no" + url.QueryEscape(text), "cursor": "/?cursor=" + url.QueryEscape(text),
		"help": "/?help", "topic": "/?help=http", "no topic": "/?help=no" + url.QueryEscape(text),
	} {
		pages[name] = m.ask(path, text).Body.String()
	}
	return pages
}

// TestPromise6NoTextBecomesMarkup: no text in any field adds an element, an attribute,
// a comment or a link to the page, and all of it is there to be read.
func TestPromise6NoTextBecomesMarkup(t *testing.T) {
	t.Parallel()
	m, want := newFake(t), map[string]string{}
	for name, text := range m.pages(t, "plain") {
		want[name] = skeleton(t, parsePage(t, text))
	}
	corpus := xssCorpus(t)
	if len(corpus) < 200 {
		t.Fatalf("the corpus has %d texts", len(corpus))
	}
	for _, raw := range corpus {
		text := strings.ReplaceAll(raw, "\x00", "\ufffd") // as html/template shows it
		shown := task.EscapeText(text)
		for name, page := range m.pages(t, raw) {
			doc := parsePage(t, page)
			if strings.ContainsFunc(page, task.IsHarmful) {
				t.Errorf("%q: the page %s has characters that are to be escaped", text, name)
			}
			switch name {
			case "list":
				if got := textOfNode(byID(t, doc, "tasks")); strings.Count(got, shown) < 4 && utf8.ValidString(text) { // JSON has none that is not
					t.Errorf("%q is not in the list: %q", text, got)
				}
				if got := textOfNode(byID(t, doc, "accounts")); strings.Count(got, shown) < 3 || !strings.Contains(got, ": 35 % used") || strings.Contains(got, "unused") {
					t.Errorf("%q is not in the accounts: %q", text, got)
				}
				if got := textOfNode(byID(t, doc, "instances")) + textOfNode(byID(t, doc, "servers")); strings.Count(got, shown) < 6 && utf8.ValidString(text) || !strings.Contains(got, "4712") || !strings.Contains(got, "4713") || !strings.Contains(got, "47.14") {
					t.Errorf("%q is not in the instances and servers: %q", text, got)
				}
				if got := textOfNode(byID(t, doc, "workers")); strings.Count(got, shown) < 3 && utf8.ValidString(text) || !strings.Contains(got, "4711") || !strings.Contains(got, "draining") {
					t.Errorf("%q is not in the workers: %q", text, got)
				}
			case "task":
				logged := strings.ReplaceAll(strings.Trim(strings.ToValidUTF8(text, "\ufffd"), "\r\n"), "\n", "\n         ")
				if got := textOfNode(byID(t, doc, "log-text")); strings.Count(got, "\ufffd") == 0 && got != "12:00:00 "+task.EscapeText(logged)+"\n" {
					t.Errorf("%q is %q in the log", text, got)
				}
				for _, id := range []string{"prompt-text", "answer-text", "check-text"} {
					if got := textOfNode(byID(t, doc, id)); got != shown {
						t.Errorf("%q is %q in #%s", text, got, id)
					}
				}
				if got := textOfNode(byID(t, doc, "task-title")); got != shown {
					t.Errorf("%q is %q in the title", text, got)
				}
			}
			if got := skeleton(t, doc); got != want[name] {
				t.Errorf("%q changes the page %s:\n%s", text, name, got)
			}
		}
	}
}

// FuzzPage: the same for any text.
func FuzzPage(f *testing.F) {
	for i, text := range xssCorpus(f) {
		if i%16 == 0 {
			f.Add(text)
		}
	}
	render := func(t testing.TB, text string) string {
		w := httptest.NewRecorder()
		row := wire.TaskView{Task: taskSaying(text), Why: text, RunDir: text}
		writePage(w, httptest.NewRequest("GET", "/", nil), 200, &page{
			Known: true, Title: text, Health: healthSaying(text), Rows: []wire.TaskView{row}, Agents: []string{text}, Workspace: text,
			Task: &pageTask{TaskView: row, Actions: []string{"retry"}, Log: text, LogNote: text},
		})
		return skeleton(t, parsePage(t, w.Body.String()))
	}
	want := render(f, "plain")
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return // shown as none
		}
		if got := render(t, text); got != want {
			t.Errorf("%q changes the page:\n%s", text, got)
		}
	})
}

// TestPageScriptWritesTextOnly: the script has no way to make markup or code of a text.
func TestPageScriptWritesTextOnly(t *testing.T) {
	for name, banned := range map[string]string{
		"app.js":    `(?i)location\.(reload|assign|href\s*=)|innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\b|\bFunction\s*\(|import\s*\(|setHTML|\.on\w+\s*=\s*["']|javascript:|\.cookie|//[a-z0-9.-]+\.[a-z]{2,}/|set(Timeout|Interval)\(\s*["']`,
		"page.html": `(?i)\son[a-z]+\s*=|<style|style\s*=|javascript:|<script(\s[^>]*)?>[^<]|https?:|safe|{{\s*js|<iframe|<base|srcdoc`,
		"style.css": `(?i)url\(|@import|expression|behavior|-moz-binding`,
	} {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(banned).FindString(string(text)); found != "" {
			t.Errorf("%s has %q", name, found)
		}
	}
}

// TestPageIsAccessible: what people need who hear the page or use no mouse.
func TestPageIsAccessible(t *testing.T) {
	for name, text := range newFake(t).pages(t, "plain") {
		doc := parsePage(t, text)
		if root := find(doc, func(n *html.Node) bool { return n.Data == "html" }); attr(root, "lang") != "en" {
			t.Errorf("%s: no language", name)
		}
		ids, level := map[string]int{}, 0
		for n := range doc.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if id := attr(n, "id"); id != "" {
				ids[id]++
			}
			if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
				next := int(n.Data[1] - '0')
				if next > level+1 {
					t.Errorf("%s: a heading of level %d behind one of %d", name, next, level)
				}
				level = next
			}
			switch n.Data {
			case "input", "select", "textarea":
				id := attr(n, "id")
				if find(doc, func(l *html.Node) bool { return l.Data == "label" && attr(l, "for") == id }) == nil || id == "" {
					t.Errorf("%s: %s %q has no label", name, n.Data, id)
				}
			case "section":
				if byID(t, doc, attr(n, "aria-labelledby")) == nil {
					t.Errorf("%s: a section has no name", name)
				}
			case "a", "button":
				if strings.TrimSpace(textOfNode(n)) == "" {
					t.Errorf("%s: a %s without text", name, n.Data)
				}
			}
		}
		for id, n := range ids {
			if n > 1 {
				t.Errorf("%s: #%s is there %d times", name, id, n)
			}
		}
		if ids["live"]+ids["said"]+ids["new"] != 3 {
			t.Errorf("%s: %v", name, ids)
		}
	}
}

// ownScriptAlone is how the policy of a page begins.
const ownScriptAlone = "default-src 'none'; script-src 'self'; worker-src 'none'; "

func TestPageList(t *testing.T) {
	m := newFake(t)
	page := func(path string) *html.Node {
		w := m.ask(path)
		if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), ownScriptAlone) {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
		return parsePage(t, w.Body.String())
	}
	if text := textOfNode(byID(t, page("/"), "tasks")); !strings.Contains(text, "There are no tasks yet") {
		t.Error(text)
	}
	for i := range pageRows + 10 {
		m.add(state.Task{ID: fmt.Sprintf("t%03d", i), Status: state.Done, Title: "title", Workspace: "/home/ana/shop", CreatedAt: time.Now()})
	}
	titles := func(doc *html.Node) (ids []string) {
		for n := range doc.Descendants() {
			if n.Data == "a" && strings.HasPrefix(attr(n, "id"), "t-") {
				ids = append(ids, strings.TrimPrefix(attr(n, "id"), "t-"))
			}
		}
		return ids
	}
	first := page("/")
	older := page(attr(byID(t, first, "older"), "href"))
	all := append(titles(first), titles(older)...)
	if len(titles(first)) != pageRows || len(all) != pageRows+10 || all[0] != "t059" || !slices.IsSortedFunc(all, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%d and then %v", len(titles(first)), titles(older))
	}
	if find(older, func(n *html.Node) bool { return attr(n, "id") == "older" }) != nil || byID(t, older, "newest") == nil {
		t.Error("the last page has another one behind it, or no way back")
	}
	if got := attr(byID(t, first, "new-workspace"), "value"); got != "/home/ana/shop" {
		t.Errorf("the form begins with the workspace %q", got)
	}
}

// TestPageStates: what the page says of a task, and offers to do.
func TestPageStates(t *testing.T) {
	m := newFake(t)
	for i, c := range []struct {
		task                state.Task
		state, why, buttons string
	}{
		{state.Task{Status: state.Queued}, "queued", "it is queued", "hold cancel"},
		{state.Task{Status: state.Queued, Hold: true}, "queued (held)", "it is queued", "release cancel"},
		{state.Task{Status: state.Running, RunID: "r"}, "running", "it is running", "cancel"},
		{state.Task{Status: state.Running, RunID: "r", Phase: state.PhaseVerify}, "running (verify)", "it is running", "cancel"},
		{state.Task{Status: state.Draft}, "draft", "it is draft", "cancel"},
		{state.Task{Status: state.Done}, "done", "", "retry"},
		{state.Task{Status: state.Failed, Reason: state.ClassExit, Error: "exit code 1\nmore"}, "failed", "exit: exit code 1 more", "retry"},
		{state.Task{Status: state.Dead, Reason: state.ClassTimeout}, "dead", "timeout", "retry"},
		{state.Task{Status: state.Canceled, Archived: "tasks-2026-11.md"}, "canceled", "", ""},
	} {
		c.task.ID = fmt.Sprintf("task-%d", i)
		m.add(c.task)
		row := byID(t, parsePage(t, m.ask("/").Body.String()), "t-"+c.task.ID).Parent.Parent
		var cells []string
		for n := range row.ChildNodes() {
			if n.Type == html.ElementNode {
				cells = append(cells, textOfNode(n))
			}
		}
		if cells[1] != c.state || cells[2] != c.why {
			t.Errorf("%+v: %q", c, cells)
		}
		task := parsePage(t, m.ask("/?task="+c.task.ID).Body.String())
		var buttons []string
		for n := range byID(t, task, "task").Descendants() {
			if n.Data == "button" {
				buttons = append(buttons, textOfNode(n))
			}
		}
		if got := strings.Join(buttons, " "); got != c.buttons {
			t.Errorf("%+v: buttons %s", c, got)
		}
	}
}

// TestPageSaysHowTheCopyIs: in a line, where there is one.
func TestPageSaysHowTheCopyIs(t *testing.T) {
	m := newFake(t)
	show := func(status *task.MirrorStatus) *html.Node {
		m.health.Postgres = status
		doc := parsePage(t, m.ask("/").Body.String())
		return find(doc, func(n *html.Node) bool { return attr(n, "id") == "copy" })
	}
	for _, c := range []struct {
		status      task.MirrorStatus
		class, want string
	}{
		{task.MirrorStatus{State: task.MirrorConnecting}, "small", "Postgres mirror: connecting"},
		{task.MirrorStatus{Target: "audit at db:5432", State: task.MirrorFollowing}, "small", "Postgres mirror in audit at db:5432: following"},
		{task.MirrorStatus{Target: "audit at db:5432", State: task.MirrorRebuilding, LagRecords: 1, LagSeconds: 2.6}, "small", "Postgres mirror in audit at db:5432: rebuilding, 1 record behind for 3 s"},
		{
			task.MirrorStatus{Target: "audit at db:5432", State: task.MirrorFailing, LagRecords: 12, LagSeconds: 60, LastError: "it is down"},
			"warn",
			"Postgres mirror in audit at db:5432: failing, 12 records behind for 60 s. Last error: it is down",
		},
		{task.MirrorStatus{State: task.MirrorFollowing, Warning: "clocks differ", Skipped: []string{"a: too large", "b: as well"}}, "small", "Postgres mirror: following. clocks differ. Not in it: a: too large; b: as well"},
	} {
		line := show(&c.status)
		if line == nil || textOfNode(line) != c.want || attr(line, "class") != c.class {
			t.Errorf("%+v: %v", c, line)
		}
	}
	if show(nil) != nil {
		t.Error("the page shows a copy that nobody wants")
	}
}

func TestPageLog(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "new", Status: state.Queued})
	m.add(state.Task{ID: "lost", Status: state.Done, RunID: "gone"})
	m.add(state.Task{ID: "short", Status: state.Done, RunID: "r1"})
	m.add(state.Task{ID: "long", Status: state.Done, RunID: "r2"})
	m.add(state.Task{ID: "still", Status: state.Running, RunID: "r3"})
	m.write(t, "r1", task.LogEvent{Kind: task.LogCommand, State: task.LogStarted, Text: "ls"}, task.LogEvent{Kind: task.LogMessage, Text: "one\ntwo"})
	m.write(t, "r2", append(slices.Repeat([]task.LogEvent{{Kind: task.LogEdit, Text: "0123456789"}}, pageLog/60), task.LogEvent{Kind: task.LogMessage, Text: "the end é"})...)
	m.write(t, "r3", task.LogEvent{Kind: task.LogCommand, State: task.LogStarted, Text: "make"})
	for id, want := range map[string]string{
		"new": "It has not run yet.", "lost": "There is none: it was removed, or not written yet.", "short": "12:00:00 $ ls\n12:00:00 one\n         two\n",
		"long": "12:00:00 edit 0123456789\n12:00:00 the end é\n", "still": "12:00:00 $ make  running ",
	} {
		log := textOfNode(byID(t, parsePage(t, m.ask("/?task="+id).Body.String()), "log"))
		if !strings.Contains(log, want) || len(log) > pageLog+200 {
			t.Errorf("%s: %d bytes, %q", id, len(log), log[:min(len(log), 200)])
		}
		if id == "long" && !strings.Contains(log, "The end of it; all of it: stint logs") {
			t.Errorf("that it was cut is not said: %q", log[:200])
		}
	}
}

// TestPageErrors: what cannot be shown is said, with the status of the API.
func TestPageErrors(t *testing.T) {
	m := newFake(t)
	for path, c := range map[string]struct {
		code int
		says string
	}{
		"/?task=zz":    {404, "no task zz"},
		"/?cursor=%21": {422, "the cursor means nothing here"},
		"/?cursor=zzz": {422, "it is from another list"},
	} {
		w := m.ask(path)
		if text := textOfNode(byID(t, parsePage(t, w.Body.String()), "error")); w.Code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", path, w.Code, text)
		}
	}
}

// TestCompressed: who takes gzip gets less, and who has a file already gets nothing.
func TestCompressed(t *testing.T) {
	ask := newBrowser(t)
	for _, path := range []string{"/", "/ui/app.js", "/ui/style.css"} {
		whole := ask(path, "Accept-Encoding", "br, gzip;q=0").Body.String()
		w := ask(path, "Accept-Encoding", "br, gzip;q=0.5")
		if w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > len(whole)/2 {
			t.Errorf("%s: %d of %d bytes, %v", path, w.Body.Len(), len(whole), w.Header())
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || string(text) != whole {
			t.Errorf("%s is another one: %q, %v", path, text, err)
		}
		if tag := w.Header().Get("ETag"); tag != "" && ask(path, "If-None-Match", tag).Code != http.StatusNotModified {
			t.Errorf("%s comes twice", path)
		}
	}
}

// newBrowser returns what asks for a file of the page, with one header.
func newBrowser(t testing.TB) func(path, header, value string) *httptest.ResponseRecorder {
	m := newFake(t)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", m.site())
	mux.HandleFunc("GET /ui/{file}", ServeAsset)
	return func(path, header, value string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set(header, value)
		mux.ServeHTTP(w, r)
		return w
	}
}

// BenchmarkPage is the first load of the page: it and what it refers to, as they are sent. The target: at most 25 KB.
func BenchmarkPage(b *testing.B) {
	ask := newBrowser(b)
	var files, size int
	for b.Loop() {
		page := ask("/", "Accept", "*/*").Body.String()
		paths := []string{"/"}
		for _, ref := range regexp.MustCompile(`(?:src|href)="(/ui/[^"]+)"`).FindAllStringSubmatch(page, -1) {
			paths = append(paths, ref[1])
		}
		files, size = len(paths), 0
		for _, path := range paths {
			size += ask(path, "Accept-Encoding", "gzip").Body.Len()
		}
	}
	b.ReportMetric(float64(files), "files")
	b.ReportMetric(float64(size)/1024, "KB")
}
