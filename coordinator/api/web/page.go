// Package web is the page of a master: what GET / shows, and the files that belong to it.
//
// It is written by the server from one template, which escapes every text; what is left of control characters
// is escaped behind it. Its script replaces parts of it by what the server writes anew, and makes no markup
// of a text, which the page's policy forbids too. Who is not let in gets the page without anything in it, and
// its files. Each page has a mark that only its master knows. The script takes nothing without it, and then
// stops: it is signed out, or another user answers. It never loads the page anew.
package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

// files are the template of the page, and what GET /ui/ returns.
//
//go:embed page.html app.js style.css icon.svg
var files embed.FS

// assets are the files of the page that anybody may read, with their types.
var assets = map[string]string{"app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}

// pageTemplate is compiled when it is first used: few processes are masters.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{
		"short": state.ShortID, "named": task.IsNamedLane, "stateOf": stateOf, "statuses": func() []state.Status { return state.Statuses[:] },
	}).ParseFS(files, "page.html"))
})

const (
	pageRows = 50       // tasks of one page
	pageLog  = 64 << 10 // bytes of a log that the page shows
)

type (
	// A page is what the template shows. Unless the reader is known, it is the page to sign in, and empty.
	page struct {
		Known     bool
		Mark      string // tells the script which master has written it
		Seq       uint64 // of the newest record before it was written
		Title     string
		Health    task.Health
		Error     *wire.Problem // instead of what follows
		Task      *pageTask     // instead of the list
		Topics    []wire.Topic  // of the manual, if there are any
		HTML      template.HTML // of one of them
		Rows      []wire.TaskView
		Cursor    string             // of this list; "" if it is the newest
		Older     string             // of the next one; "" if there is none
		Accounts  []state.AccountUse // that are used, are closed, or have told their quota
		Due       *Due               // nil: there is nothing of it
		Instances []task.Instance
		Servers   []task.Server
		Shared    *task.SharedStatus // nil: no database is configured
		Agents    []string
		Workspace string // of the task that was queued last
	}

	// A pageTask is the one task that is shown.
	pageTask struct {
		wire.TaskView
		Actions []string // that are possible now
		Log     string   // what the last run did
		LogNote string   // what is missing of it
	}
)

// Master is what the page shows of a master as it is.
type Master interface {
	Seq() uint64 // number of the newest record
	Health() task.Health
	List(f state.Filter) []state.Task // without their texts, newest first
	Accounts() []state.AccountUse     // that are known, in the order of their names
}

// A Site is the page of a master, and where it gets what it shows.
type Site struct {
	Master
	Agents []string                                                     // names that it offers for a new task
	Rows   func(f state.Filter) (rows [][]byte, next uint64, err error) // of a list, as the API has them in JSON, and where the next begins
	Shown  func(ctx context.Context, ref string) (wire.TaskView, error)
	Topics []wire.Topic // of the manual
	Due    func(ctx context.Context) Due
	Shared func(ctx context.Context) *task.SharedStatus // nil: no database is configured
	Fleet  interface {
		Instances() []task.Instance
		Servers() ([]task.Server, error)
	}
}

// Due is what happens at set times.
type Due struct {
	Schedules []task.Schedule
	Mistake   string     // in schedules.toml; the schedules are those of before
	Jobs      []jobs.Job // that are due or at work, and dead letters
}

// ServeHTTP shows the list of tasks, the task that ?task= names, or the topic of the manual that ?help=
// names. Over TCP, who has no token and no cookie gets the same page without anything in it.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := guard.Of(r.Context())
	if g != nil && !g.Authenticated(r) {
		g.Challenge(w, r)
		writePage(w, r, http.StatusUnauthorized, &page{})
		return
	}
	p := &page{Known: true, Seq: s.Seq(), Health: s.Health(), Agents: s.Agents}
	if last := s.List(state.Filter{Limit: 1}); len(last) > 0 {
		p.Workspace = last[0].Workspace
	}
	if g != nil {
		p.Mark = g.Mark
	}
	var err error
	if q := r.URL.Query(); q.Get("task") != "" {
		err = s.fillTask(r.Context(), p, q.Get("task"))
	} else if q.Has("help") {
		err = s.fillHelp(p, q.Get("help"))
	} else {
		err = s.fillList(r.Context(), p, q.Get("cursor"))
	}
	status := http.StatusOK
	if err != nil {
		p.Error = wire.ProblemOf(err)
		status = p.Error.Status
	}
	writePage(w, r, status, p)
}

// writePage writes a page in which no text can be taken for anything else: the template
// escapes what HTML would take for markup, and the rest is escaped here.
func writePage(w http.ResponseWriter, r *http.Request, status int, p *page) {
	var buf bytes.Buffer
	if err := pageTemplate().Execute(&buf, p); err != nil {
		wire.ProblemOf(fmt.Errorf("the page: %w", err)).Write(w)
		return
	}
	guard.SecureHeaders(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	text := compressed(w.Header(), r, []byte(task.EscapeText(buf.String())))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone
}

// compressed returns the body of an answer as its reader wants it, and says in the header how that is.
func compressed(h http.Header, r *http.Request, body []byte) []byte {
	h.Set("Vary", "Accept-Encoding")
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if q, err := strconv.ParseFloat(cmp.Or(weight, "1"), 64); name != "gzip" || err != nil || q <= 0 {
			continue
		}
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		if _, err := z.Write(body); errors.Join(err, z.Close()) != nil {
			break // which a buffer never does
		}
		h.Set("Content-Encoding", "gzip")
		return buf.Bytes()
	}
	return body
}

func (s *Site) fillList(ctx context.Context, p *page, cursor string) error {
	before, err := wire.ParseCursor(cursor)
	if err != nil {
		return err
	}
	rows, next, err := s.Rows(state.Filter{Limit: pageRows, Before: before})
	if err != nil {
		return err
	}
	for _, data := range rows {
		var v wire.TaskView
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("a row of the list: %w", err)
		}
		if v.Status.Terminal() && v.Status != state.Done {
			v.Why = strings.TrimPrefix(state.Because(string(v.Reason), v.Error), ": ")
		}
		p.Rows = append(p.Rows, v)
	}
	p.Accounts = slices.DeleteFunc(s.Accounts(), func(a state.AccountUse) bool {
		return a.Running+a.Waiting == 0 && (a.Why == "" && a.Quota == nil || a.Title == "" && !a.Hold) // or it is not configured
	})
	if due := s.Due(ctx); len(due.Schedules)+len(due.Jobs)+len(due.Mistake) > 0 {
		p.Due = &due
	}
	p.Shared, p.Instances = s.Shared(ctx), s.Fleet.Instances()
	p.Servers, _ = s.Fleet.Servers() // without their samples, if those cannot be read
	if p.Cursor = cursor; next > 0 {
		p.Older = wire.FormatCursor(next)
	}
	return nil
}

// stateOf returns the status of a task and what is special about it.
func stateOf(t state.Task) string {
	switch {
	case t.Hold && !t.Status.Terminal():
		return string(t.Status) + " (held)"
	case t.Status == state.Running && t.Phase != "":
		return string(t.Status) + " (" + string(t.Phase) + ")"
	default:
		return string(t.Status)
	}
}

func (s *Site) fillTask(ctx context.Context, p *page, ref string) error {
	v, err := s.Shown(ctx, ref)
	if err != nil {
		return err
	}
	if v.Status.Terminal() {
		v.Why = string(v.Reason)
	}
	p.Title = v.Title
	p.Task = &pageTask{TaskView: v}
	p.Task.Log, p.Task.LogNote = lastLog(v.RunDir, v.Status == state.Running)
	switch {
	case v.Archived != "":
	case v.Status.Terminal():
		p.Task.Actions = []string{"retry"}
	case v.Status == state.Queued && v.Hold:
		p.Task.Actions = []string{"release", "cancel"}
	case v.Status == state.Queued:
		p.Task.Actions = []string{"hold", "cancel"}
	default:
		p.Task.Actions = []string{"cancel"}
	}
	return nil
}

// lastLog returns the end of what a run did, as stint logs shows it, and a note of what is missing.
func lastLog(runDir string, runs bool) (text, note string) {
	if runDir == "" {
		return "", "It has not run yet."
	}
	f, err := rundir.OpenOutput(runDir, rundir.EventsName)
	if err != nil {
		return "", "There is none: it was removed, or not written yet."
	}
	defer func() { _ = f.Close() }() // it was only read
	size, err := f.Seek(0, io.SeekEnd)
	from := max(0, size-pageLog)
	data, err2 := io.ReadAll(io.NewSectionReader(f, from, pageLog))
	if errors.Join(err, err2) != nil {
		return "", "It cannot be read."
	}
	if from > 0 {
		note = "The end of it; all of it: stint logs"
	}
	var lines []string
	var open task.OpenEvents
	for line := range bytes.Lines(data) {
		var e task.LogEvent
		if json.Unmarshal(line, &e) != nil { // it is cut off
			continue
		}
		if open.Note(&e); e.State != task.LogStarted {
			lines = append(lines, e.Lines(e.Time)...)
		}
	}
	if !runs {
		open = nil // it was cut off
	}
	for _, e := range open {
		lines = append(lines, e.Lines(time.Now())...)
	}
	return strings.Join(append(lines, ""), "\n"), note
}

// ServeAsset answers with the file of the page that the path names.
func ServeAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, err := files.ReadFile(name)
	if assets[name] == "" || err != nil {
		guard.ClearSite(w.Header())
		wire.NewProblem(http.StatusNotFound, "there is nothing at "+wire.Clip(r.URL.Path), "").Write(w)
		return
	}
	guard.SecureHeaders(w.Header())
	w.Header().Set("Content-Type", assets[name])
	w.Header().Set("Cache-Control", "no-cache") // it may be kept, and is asked for
	w.Header().Set("ETag", fmt.Sprintf(`W/"%08x"`, crc32.ChecksumIEEE(data)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(compressed(w.Header(), r, data)))
}

// fillHelp puts a topic into the page, or for "" the list of topics.
func (s *Site) fillHelp(p *page, name string) error {
	p.Title, p.Topics = "Help", s.Topics
	if name == "" {
		return nil
	}
	i := slices.IndexFunc(s.Topics, func(t wire.Topic) bool { return t.Name == name })
	if i < 0 {
		return &task.Error{Code: task.CodeNotFound, Message: "the manual has no topic " + wire.Clip(name), Hint: "stint help"}
	}
	p.Title = "Help: " + name
	var err error
	p.HTML, err = renderHTML(s.Topics[i].Markdown)
	return err
}

// renderHTML returns Markdown as HTML for below a heading of level 2, without any HTML that is
// in it. Links to other files of the manual lead to their topics.
func renderHTML(src []byte) (template.HTML, error) {
	doc := goldmark.DefaultParser().Parse(text.NewReader(src))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if h, ok := n.(*ast.Heading); ok && entering {
			h.Level = min(h.Level+2, 6)
		}
		if l, ok := n.(*ast.Link); ok {
			if name, ok := strings.CutSuffix(string(l.Destination), ".md"); ok {
				l.Destination = []byte("/?help=" + name)
			}
		}
		return ast.WalkContinue, nil
	}) // the function has no errors
	var b bytes.Buffer
	err := goldmark.DefaultRenderer().Render(&b, src, doc)
	return template.HTML(b.String()), err
}
