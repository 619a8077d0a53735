package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"stint/coordinator/api/client"
	"stint/coordinator/postgres/postgrestest"
)

// scriptCommands are the commands that scripts have beside testscript's own.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits":        cmdExits,
	"capture":      cmdCapture,
	"waitfor":      cmdWaitFor,
	"waitstatus":   cmdWaitStatus,
	"killmaster":   cmdKillMaster,
	"stopmaster":   cmdStopMaster,
	"masterpid":    cmdMasterPID,
	"noagents":     cmdNoAgents,
	"checkoverlap": cmdCheckOverlap,
	"ranorder":     cmdRanOrder,
	"requests":     cmdRequests,
	"edit":         cmdEdit,
	"makefile":     cmdMakeFile,
	"nocompare":    cmdNoCompare,
	"killagent":    cmdKillAgent,
	"stopmodel":    cmdStopModel,
	"http":         cmdHTTP,
	"listen":       cmdListen,
	"postgres":     cmdPostgres,
	"sql":          cmdSQL,
	"console":      cmdConsole,
	"recording":    cmdRecording,
}

// scriptDeadline is how long a script waits for anything.
const scriptDeadline = 2 * time.Minute

// poll calls done until it is true, and says whether that happened in time. It
// is for other processes, which cannot tell us.
func poll(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

func stateOf(ts *testscript.TestScript) *scriptState {
	return ts.Value(scriptStateKey{}).(*scriptState)
}

// need checks the number of arguments.
func need(ts *testscript.TestScript, neg bool, args []string, low, high int, use string) {
	if neg || len(args) < low || len(args) > high {
		ts.Fatalf("usage: %s", use)
	}
}

// cmdExits: exits CODE PROGRAM [ARG...] runs a program and checks its exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 1000, "exits CODE PROGRAM [ARG...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdCapture: capture NAME puts the last output on stdout into a variable.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, 1, "capture NAME")
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// cmdWaitFor: waitfor FILE REGEXP waits until a file has a match.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 2, "waitfor FILE REGEXP")
	form := regexp.MustCompile(`(?m)` + args[1])
	path := ts.MkAbs(args[0])
	var text []byte
	if !poll(scriptDeadline, func() bool {
		text, _ = os.ReadFile(path) // it may come later
		return form.Match(text)
	}) {
		ts.Fatalf("no %q in %s, which has:\n%s", args[1], args[0], text)
	}
}

// cmdWaitStatus: waitstatus ID STATUS [KEY=VALUE...] waits until a task has that
// status, and these values in its JSON.
func cmdWaitStatus(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 10, "waitstatus ID STATUS [KEY=VALUE...]")
	want := append([]string{"status=" + args[1]}, args[2:]...)
	if !poll(scriptDeadline, func() bool {
		if ts.Exec("stint", "show", "--json", args[0]) != nil {
			return false
		}
		var task map[string]any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &task))
		return !slices.ContainsFunc(want, func(kv string) bool {
			k, v, _ := strings.Cut(kv, "=")
			return fmt.Sprint(task[k]) != v
		})
	}) {
		ts.Fatalf("task %s does not get %v", args[0], want)
	}
}

// A heartbeat is what the tests need of heartbeat.json.
type heartbeat struct {
	PID        int       `json:"pid"`
	Start      time.Time `json:"start"`
	Socket     string    `json:"socket"`
	Background bool      `json:"background"`
}

// master returns the running master's heartbeat; pid 0 if none runs.
func (s *scriptState) master() heartbeat {
	var h heartbeat
	text, err := os.ReadFile(filepath.Join(s.state, "heartbeat.json"))
	if err != nil || json.Unmarshal(text, &h) != nil || !isAlive(h.PID) {
		return heartbeat{}
	}
	return h
}

// running returns the heartbeat of the master that runs, or starts: it answers before it has
// written that. The pid is 0 if none comes.
func (s *scriptState) running() (h heartbeat) {
	poll(scriptDeadline, func() bool { h = s.master(); return h.PID != 0 })
	return h
}

// isAlive reports a process that is there and no zombie.
func isAlive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && pid > 0 && !hasProc()
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// end sends a signal to the master and waits until it is gone.
func (s *scriptState) end(sig syscall.Signal, limit time.Duration) error {
	h := s.running()
	if h.PID == 0 {
		return errors.New("no master is running")
	}
	if err := syscall.Kill(h.PID, sig); err != nil {
		return err
	}
	if !poll(limit, func() bool { return !isAlive(h.PID) }) {
		return fmt.Errorf("the master (pid %d) does not end on %v", h.PID, sig)
	}
	return nil
}

// cmdKillMaster: killmaster kills the master with SIGKILL.
func cmdKillMaster(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 0, "killmaster")
	ts.Check(stateOf(ts).end(syscall.SIGKILL, scriptDeadline))
}

// cmdStopMaster: stopmaster [HUP|INT] ends the master with SIGTERM or that signal.
func cmdStopMaster(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 1, "stopmaster [HUP|INT]")
	sig := syscall.SIGTERM
	if len(args) == 1 {
		sig = map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT}[args[0]]
	}
	ts.Check(stateOf(ts).end(sig, scriptDeadline))
}

// cmdMasterPID: masterpid [serve] prints the pid of the running master, and waits
// for it: with serve for one in the foreground. ! masterpid waits until there is none.
func cmdMasterPID(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, false, args, 0, 1, "[!] masterpid [serve]")
	s := stateOf(ts)
	if neg {
		if !poll(scriptDeadline, func() bool { return s.master().PID == 0 }) {
			ts.Fatalf("the master (pid %d) goes on", s.master().PID)
		}
		return
	}
	if !poll(scriptDeadline, func() bool {
		h := s.master()
		return h.PID != 0 && (len(args) == 0 || !h.Background)
	}) {
		ts.Fatalf("no master is running")
	}
	_, err := fmt.Fprintln(ts.Stdout(), s.master().PID)
	ts.Check(err)
}

// cmdNoAgents: noagents waits until no process of any run is left; it may not
// take longer than a gate needs to end a tree.
func cmdNoAgents(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 0, "noagents")
	ts.Check(stateOf(ts).noAgents(10 * time.Second))
}

// cmdRequests: requests prints what the model server was asked, a line each.
func cmdRequests(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 0, "requests")
	for i, r := range stateOf(ts).model.Requests() {
		_, err := fmt.Fprintf(ts.Stdout(), "#%d model=%s prompts=%q answers=%q key=%q check=%q\n", i+1, r.Model, r.Prompts, r.Answers, r.Key, r.Check)
		ts.Check(err)
	}
}

// cmdEdit: edit FILE OLD NEW replaces text in a file as most editors do, with a
// new file under the old name. NEW may have Go's escapes.
func cmdEdit(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 3, 3, "edit FILE OLD NEW")
	path := ts.MkAbs(args[0])
	var text []byte
	if !poll(scriptDeadline, func() bool {
		text, _ = os.ReadFile(path) // the journal may be ahead of tasks.md
		return strings.Contains(string(text), args[1])
	}) {
		ts.Fatalf("%s has no %q:\n%s", args[0], args[1], text)
	}
	fresh, err := strconv.Unquote(`"` + args[2] + `"`)
	ts.Check(err)
	next := strings.Replace(string(text), args[1], fresh, 1)
	ts.Check(os.WriteFile(path+".new~", []byte(next), 0o600))
	ts.Check(os.Rename(path+".new~", path))
}

// cmdMakeFile: makefile FILE TEXT COUNT writes TEXT, COUNT times, into a file; TEXT may have Go's escapes.
func cmdMakeFile(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 3, 3, "makefile FILE TEXT COUNT")
	text, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(text, n)), 0o600))
}

// cmdNoCompare: nocompare REASON tells that this script leaves a ledger that does
// not give the same tasks as the journal, or has findings, on purpose.
func cmdNoCompare(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, 1, "nocompare REASON")
	stateOf(ts).unlike = args[0]
}

// cmdCheckOverlap: checkoverlap checks from the demo agent's log that no lane ran two tasks at once, and each
// its tasks in the order in which they were made. It prints how many runs there were and how many at once.
func cmdCheckOverlap(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 0, "checkoverlap")
	ts.Check(ts.Exec("stint", "ls", "--json", "-n", "0"))
	lanes := map[string]string{}
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var t struct{ ID, SessionKey string }
		ts.Check(json.Unmarshal([]byte(line), &t))
		lanes[t.ID] = t.SessionKey
	}
	runs, most := 0, 0
	busy, newest := map[string]demoRun{}, map[string]string{}
	for _, r := range readDemoLog(ts) {
		lane := lanes[r.Task]
		if r.Event == "stop" {
			delete(busy, lane)
			continue
		}
		if old, ok := busy[lane]; ok && isAlive(old.PID) {
			ts.Fatalf("lane %s began %s while %s ran", lane, r.Task, old.Task)
		}
		if r.Task < newest[lane] { // a UUID's order is that of time
			ts.Fatalf("lane %s ran %s before %s", lane, newest[lane], r.Task)
		}
		busy[lane], newest[lane] = r, r.Task
		runs++
		most = max(most, len(busy))
	}
	_, err := fmt.Fprintf(ts.Stdout(), "runs: %d, at once: %d\n", runs, most)
	ts.Check(err)
}

// cmdRanOrder: ranorder ID... checks that these tasks began in this order.
func cmdRanOrder(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 100, "ranorder ID ID...")
	var began []string
	for _, r := range readDemoLog(ts) {
		if r.Event == "start" && slices.Contains(args, r.Task) {
			began = append(began, r.Task)
		}
	}
	if !slices.Equal(began, args) {
		ts.Fatalf("the order was\n%s\nwant\n%s", strings.Join(began, "\n"), strings.Join(args, "\n"))
	}
}

// A demoRun is a line of the demo agent's log.
type demoRun struct {
	Event, Task, Run string
	PID              int
	Time             int64
}

func readDemoLog(ts *testscript.TestScript) (runs []demoRun) {
	f, err := os.Open(filepath.Join(stateOf(ts).state, "demo", "log.jsonl"))
	ts.Check(err)
	defer func() { _ = f.Close() }() // only read from
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r demoRun
		ts.Check(json.Unmarshal(lines.Bytes(), &r))
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b demoRun) int { return int(a.Time - b.Time) })
	return runs
}

// headerForm is how a header stands on the line of a script.
var headerForm = regexp.MustCompile(`^([A-Za-z][A-Za-z-]*): *(.*)$`)

// cmdHTTP: http [-socket|-tcp] METHOD PATH [BODY] [HEADER...] makes a request of the running master, over its
// socket or its port. The body of the answer goes to stdout, its status and header to stderr. BODY is JSON,
// or @FILE. A HEADER is 'Name: value', and one without a value is left out. Over the port the token is sent,
// unless a HEADER is Authorization or Cookie.
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	tcp := len(args) > 0 && args[0] == "-tcp"
	if tcp || len(args) > 0 && args[0] == "-socket" {
		args = args[1:]
	}
	need(ts, neg, args, 2, 20, "http [-socket|-tcp] METHOD PATH [BODY] [HEADER...]")
	s := stateOf(ts)
	base, transport := "http://stint", dialSocket(s.running().Socket)
	if tcp {
		base, transport = "http://"+s.httpAddress(ts), &http.Transport{}
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0], base+args[1], nil)
	ts.Check(err)
	fillRequest(ts, req, args[2:])
	if tcp && req.Header["Authorization"] == nil && req.Header["Cookie"] == nil {
		req.Header.Set("Authorization", "Bearer "+s.token(ts))
	}
	resp, err := transport.RoundTrip(req) // a redirect is an answer like others
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }() // it was only read
	_, err = fmt.Fprintln(ts.Stderr(), resp.Status)
	ts.Check(err)
	ts.Check(resp.Header.Write(ts.Stderr()))
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// fillRequest puts a body and headers into a request.
func fillRequest(ts *testscript.TestScript, req *http.Request, args []string) {
	if len(args) > 0 && !headerForm.MatchString(args[0]) {
		body := args[0]
		if file, ok := strings.CutPrefix(body, "@"); ok {
			body = ts.ReadFile(file)
		}
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		args = args[1:]
	}
	for _, arg := range args {
		h := headerForm.FindStringSubmatch(arg)
		switch {
		case h == nil:
			ts.Fatalf("%q is not 'Name: value'", arg)
		case h[2] == "":
			req.Header[http.CanonicalHeaderKey(h[1])] = []string{}
		case http.CanonicalHeaderKey(h[1]) == "Host":
			req.Host = h[2]
		default:
			req.Header.Set(h[1], h[2])
		}
	}
}

// dialSocket returns a transport to a unix socket.
func dialSocket(socket string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
}

// masterState returns the whole state of a master as text, to compare it with the fold of the journal.
func masterState(ctx context.Context, socket string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stint/v1/state", nil)
	if err != nil {
		return nil, err
	}
	transport := dialSocket(socket)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return text, errors.Join(err, resp.Body.Close())
}

// cmdListen: listen VAR FILE [DIR] puts the URL of a server into a variable. It appends method, path, some headers
// and body of each request to a file, a line each, and answers 200 with the file of DIR that the path names, or the number that the path ends with.
func cmdListen(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 3, "listen VAR FILE [DIR]")
	var mu sync.Mutex
	log, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(log, "%s %s %q %q %s\n", r.Method, r.URL, r.Header["Title"], r.Header["Priority"], body)
		if code, err := strconv.Atoi(path.Base(r.URL.Path)); err == nil {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		} else if len(args) == 3 {
			http.ServeFileFS(w, r, os.DirFS(ts.MkAbs(args[2])), strings.TrimPrefix(r.URL.Path, "/"))
		}
	}))
	ts.Setenv(args[0], s.URL)
	ts.Defer(func() {
		s.Close()
		_ = log.Close()
	})
}

// httpAddress returns the address of the port that the running master answers at.
func (s *scriptState) httpAddress(ts *testscript.TestScript) string {
	c := client.Dial(s.running().Socket)
	defer c.Close()
	h, err := c.Health(context.Background())
	ts.Check(err)
	if h.HTTP == "" {
		ts.Fatalf("the master answers at no port")
	}
	return h.HTTP
}

// token returns the token of the script's state directory.
func (s *scriptState) token(ts *testscript.TestScript) string {
	text, err := os.ReadFile(filepath.Join(s.state, "token"))
	ts.Check(err)
	return strings.TrimSpace(string(text))
}

// cmdPostgres: postgres VAR puts the URL of an empty database into a variable; its server
// is one that all scripts share. postgres -own VAR is one of a server that this script
// may treat as it likes: postgres kill, start, pause, resume.
func cmdPostgres(ts *testscript.TestScript, neg bool, args []string) {
	use := "postgres [-own] VAR | kill | start | pause | resume"
	need(ts, neg, args, 1, 2, use)
	s := stateOf(ts)
	switch own := s.postgres; {
	case len(args) == 2 && args[0] == "-own":
		s.postgres = postgrestest.Start(s.tests)
		ts.Setenv(args[1], s.postgres.Database(s.tests))
	case len(args) == 2:
		ts.Fatalf("usage: %s", use)
	case args[0] == "kill" && own != nil:
		own.Kill(s.tests)
	case args[0] == "start" && own != nil:
		own.Restart(s.tests)
	case args[0] == "pause" && own != nil:
		own.Signal(s.tests, "STOP")
	case args[0] == "resume" && own != nil:
		own.Signal(s.tests, "CONT")
	default:
		ts.Setenv(args[0], postgrestest.Shared(s.tests).Database(s.tests))
	}
}

// cmdSQL: sql [-wait REGEXP] QUERY [ARG...] asks the database $DB and prints the rows, with
// their columns between bars. With -wait it asks until what is printed has a match.
func cmdSQL(ts *testscript.TestScript, neg bool, args []string) {
	var form *regexp.Regexp
	if len(args) > 1 && args[0] == "-wait" {
		form, args = regexp.MustCompile("(?m)"+args[1]), args[2:]
	}
	need(ts, neg, args, 1, 10, "sql [-wait REGEXP] QUERY [ARG...]")
	var rows string
	var err error
	ask := func() bool {
		rows, err = askPostgres(ts.Getenv("DB"), args[0], args[1:])
		return form == nil || err == nil && form.MatchString(rows)
	}
	if !poll(scriptDeadline, ask) {
		ts.Fatalf("%s has no row that matches %s; the last answer was %v\n%s", args[0], form, err, rows)
	}
	ts.Check(err)
	_, err = fmt.Fprint(ts.Stdout(), rows)
	ts.Check(err)
}

// query returns the rows of an answer, a line each.
func askPostgres(url, sql string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }() // it was only asked
	given := []any{pgx.QueryExecModeSimpleProtocol}
	for _, arg := range args {
		given = append(given, arg)
	}
	rows, err := conn.Query(ctx, sql, given...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var cells []string
		for _, raw := range rows.RawValues() { // as text, in this mode
			cells = append(cells, string(raw))
		}
		b.WriteString(strings.Join(cells, "|") + "\n")
	}
	return b.String(), rows.Err()
}
