package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/postgres"
	"stint/coordinator/task"
	"stint/state"
)

// FuzzSafeWriter: however the bytes are cut into writes, a terminal sees the same, and
// nothing harmful; JSON stays the same value.
func FuzzSafeWriter(f *testing.F) {
	f.Add("é漢😀\x1b[31m \u009b \u202e\xff\xf0\x9f", uint8(3))
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		var quoted bytes.Buffer
		must(t, printJSON(&quoted, s))
		var back string
		if err := json.Unmarshal(quoted.Bytes(), &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Errorf("%q comes back as %q, %v", s, back, err)
		}
		plain, err := json.Marshal(s)
		must(t, err)
		for _, c := range []struct {
			escape func(string) string
			text   string
		}{{escapeText, s}, {escapeJSON, string(plain)}} {
			var b bytes.Buffer
			w := &runeWriter{w: &b, escape: c.escape}
			for rest := c.text; rest != ""; {
				k := min(len(rest), int(n%7)+1)
				if _, err := w.Write([]byte(rest[:k])); err != nil {
					t.Fatal(err)
				}
				rest = rest[k:]
			}
			must(t, w.flush())
			if b.String() != c.escape(c.text) {
				t.Errorf("%q in parts is %q, at once %q", c.text, b.String(), c.escape(c.text))
			}
			if strings.ContainsFunc(strings.TrimSuffix(b.String(), "\n"), task.IsHarmful) {
				t.Errorf("%q lets something through: %q", c.text, b.String())
			}
		}
	})
}

func TestShortIDs(t *testing.T) {
	const one, two = "01a1fcac-dc95-7885-9f7b-39cdf56b17d8", "01a1fcac-dc6d-769a-8c86-84d75f21a9c2"
	for _, c := range []struct{ ids, want []string }{
		{[]string{one, two}, []string{"f56b17d8", "5f21a9c2"}},
		{[]string{one, two, "01a1fcac-dc6d-769a-8c86-84d05f21a9c2"}, []string{"df56b17d8", "75f21a9c2", "05f21a9c2"}},
		{[]string{one, one}, []string{"f56b17d8", "f56b17d8"}},
		{[]string{"short"}, []string{"short"}},
		{[]string{"fix-login-bug-1", one}, []string{"fix-login-bug-1", "f56b17d8"}},
	} {
		if got := shortIDs(c.ids); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.ids, got, c.want)
		}
	}
}

func TestLaneName(t *testing.T) {
	for key, want := range map[string]string{"web": "web", "dir:/home/ana/shop": "-", "task:x": "-", "": ""} {
		if got := laneName(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	rows := escapeRows([][]string{{"ID", "PROMPT"}, {"1", "évil\x1b\nline"}, {"1234", "x"}})
	must(t, writeTable(&b, rows, nil))
	if want := "ID    PROMPT\n1     évil\\x1b; line\n1234  x\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestTaskTable: the table has one line for each task and one cell for each column, whatever the texts of the task are,
// and nothing in it can harm a terminal but its own colours.
func TestTaskTable(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const one, two = "01a1fcac-dc95-7885-9f7b-39cdf56b17d8", "01a1fcac-dc6d-769a-8c86-84d75f21a9c2"
	evil := "a\tb\nc\rd\x1b[2J\u009b\u202ee\xff"
	views := []wire.TaskView{
		{Task: state.Task{ID: one, Status: state.Failed, Reason: state.Class(evil), SessionKey: evil, Agent: evil, Title: evil, CreatedAt: now.Add(-90 * time.Second), StartedAt: now.Add(-5 * time.Second), UpdatedAt: now}},
		{Task: state.Task{ID: two, Status: state.Queued, Title: "x", TriggeredBy: one}, Waits: "b" + evil},
		{Task: state.Task{ID: "mine", Status: state.Draft, Agent: "codex", Changes: &state.Changes{Files: 1}, Title: "x", CreatedAt: now.Add(-3 * time.Hour)}},
	}
	var lines []byte
	for _, v := range views {
		lines = append(append(lines, taskLine(v, wire.Look{Now: now.In(time.FixedZone("", 3600))})...), '\n')
	}
	const text = `a b; c; d\x1b[2J\x9b\u202ee\xff`
	want := [][]string{
		{"ID", "STATUS", "TIME", "AGE", "SESSION", "AGENT", "CHANGES", "PROMPT"},
		{"f56b17d8", "failed (" + text + ")", "5s", "1m30s", text, text, "", text},
		{"5f21a9c2", "queued (b" + text + ")", "", "-", "", "", "", "↳ x"},
		{"mine", "draft", "", "3h00m", "", "codex", "files: 1", "x"},
	}
	for _, isColoured := range []bool{false, true} {
		colours := []string(nil)
		if isColoured {
			colours = []string{"", sgr[state.Failed], "", sgr[state.Draft]}
		}
		var got, table bytes.Buffer
		must(t, writeTasks(&got, lines, wire.Look{Now: now, Colour: isColoured}))
		must(t, writeTable(&table, want, colours))
		if got.String() != table.String() {
			t.Errorf("%s\nwant\n%s", &got, &table)
		}
		if isColoured != strings.Contains(got.String(), "\x1b[31mfailed") || strings.Contains(strings.ReplaceAll(got.String(), "\x1b[0m", ""), "\x1b[2J") {
			t.Errorf("colours %v: %q", isColoured, &got)
		}
	}
}

// TestListOfOlderMaster: a master that makes no tables is asked for the tasks.
func TestListOfOlderMaster(t *testing.T) {
	out, _ := listOf(t, &lsOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/table" {
			wire.ProblemOf(&task.Error{Code: task.CodeNotFound, Message: "there is no such path"}).Write(w)
			return
		}
		_, _ = io.WriteString(w, `{"tasks":[{"id":"mine","status":"draft","title":"x"}]}`)
	})
	if want := "ID    STATUS  TIME  AGE  SESSION  AGENT  PROMPT\nmine  draft         -                    x\n"; out != want {
		t.Errorf("%q", out)
	}
}

// TestListIsCut: who sees a part of the tasks is told so, also where older ones that run come on top of it.
func TestListIsCut(t *testing.T) {
	for head, isCut := range map[string]bool{"1": false, "2": true, "3": true} {
		o := &lsOptions{filter: state.Filter{Limit: 2}}
		if _, hints := listOf(t, o, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(wire.ListHeader, head) }); isCut != strings.Contains(hints, "the newest 2;") {
			t.Errorf("%s tasks: %q", head, hints)
		}
	}
}

// listOf returns what stint ls prints and hints at if a master answers so.
func listOf(t *testing.T, o *lsOptions, answer http.HandlerFunc) (text, hints string) {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "r") // short enough for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	state := t.TempDir()
	put(t, filepath.Join(state, "tasks.md"), "")
	socket := defaultSocket(state)
	must(t, os.MkdirAll(filepath.Dir(socket), 0o700))
	ln, err := net.Listen("unix", socket)
	must(t, err)
	master := &httptest.Server{Listener: ln, Config: &http.Server{Handler: answer}}
	master.Start()
	defer master.Close()
	var out, told bytes.Buffer
	must(t, (&app{stateOption: state, stdout: &out, stderr: &told}).list(t.Context(), o))
	return out.String(), told.String()
}

// Text of any script takes its columns.
func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "évil": 4, "e\u0301": 1, "修正テスト": 10, "한글": 4, "🙂!": 3, "…": 1} {
		if got := textWidth(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for n, want := range map[int]string{10: "修正テスト", 9: "修正テス…", 8: "修正テ…", 1: "…"} {
		if got := clip("修正テスト", n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	var b bytes.Buffer
	must(t, writeTable(&b, [][]string{{"修正", "x"}, {"abcde", "y"}}, nil))
	if want := "修正   x\nabcde  y\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// The progress fits into any terminal, and the step goes last.
func TestProgressLine(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	running := wire.TaskView{Task: state.Task{ID: "01a1fcac-dc6d-769a-8c86-84d75f21a9c2", Agent: "codex", Status: state.Running, RunStartedAt: now.Add(-134 * time.Second)}}
	with := func(change func(v *wire.TaskView)) wire.TaskView {
		v := running
		change(&v)
		return v
	}
	event := func(e task.LogEvent) wire.TaskView {
		e.Time = now.Add(-12 * time.Second)
		return with(func(v *wire.TaskView) { v.Event = &e })
	}
	test := event(task.LogEvent{Kind: task.LogCommand, State: task.LogStarted, Text: "go test\n./...", Tokens: 48213})
	for _, c := range []struct {
		view  wire.TaskView
		width int
		want  string
	}{
		{running, 80, "codex 5f21a9c2 · 2m14s · starting"},
		{test, 80, "codex 5f21a9c2 · 2m14s · 48.2k tokens · for 12s: $ go test ./..."},
		{test, 60, "codex 5f21a9c2 · 2m14s · 48.2k tokens · for 12s: $ go test …"},
		{test, 25, "codex 5f21a9c2 · 2m14s ·…"},
		{event(task.LogEvent{Kind: task.LogMessage, Text: "テスト\nを修正します"}), 40, "codex 5f21a9c2 · 2m14s · テスト を修正…"},
		{event(task.LogEvent{Kind: task.LogCommand, State: task.LogCompleted, Text: "go test"}), 80, "codex 5f21a9c2 · 2m14s · thinking"},
		{event(task.LogEvent{Kind: task.LogRetry, Text: "waiting for the network"}), 80, "codex 5f21a9c2 · 2m14s · waiting for the network"},
		{event(task.LogEvent{Kind: task.LogEdit, State: task.LogStarted, Text: "a\x1b[2J", Added: 3}), 80, `codex 5f21a9c2 · 2m14s · for 12s: edit a\x1b[2J +3`},
		{with(func(v *wire.TaskView) { v.LastOutput = now.Add(-2 * time.Minute) }), 80, "codex 5f21a9c2 · 2m14s · silent 2m00s · starting"},
		{with(func(v *wire.TaskView) { v.Status, v.Why = state.Queued, "behind x\nin the lane\x1b" }), 80, `behind x; in the lane\x1b`},
		{with(func(v *wire.TaskView) { v.Settling, v.Why = true, "a save is settled" }), 10, "a save is…"},
	} {
		if got := progressLine(&c.view, now, c.width); got != c.want || textWidth(got) > c.width {
			t.Errorf("%d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

func TestOutcomeLine(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	v := wire.TaskView{Task: state.Task{Status: state.Done}}
	if got := outcomeLine(&v); got != "done" {
		t.Errorf("%q", got)
	}
	v.StartedAt, v.UpdatedAt = now, now.Add(134*time.Second)
	v.Usage = state.Usage{InputTokens: 48000, OutputTokens: 213, CostUSD: 0.314}
	v.ID, v.Findings = "01234567-89ab-7cde-8f01-23456789abcd", []state.Issue{{Kind: "empty"}}
	v.Changes = &state.Changes{Files: 2, Added: 12, Removed: 3, Before: "4b825dc642cb6eb9a060e54bf8d69288fbee4904"}
	if got, want := outcomeLine(&v), "done in 2m14s · 2 files, +12 −3 · 48.2k tokens · $0.31 · 1 finding · stint diff 6789abcd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Events are shown with their times, escaped; what goes on stands last.
func TestLogWriter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	one := 1
	events := []task.LogEvent{
		{Time: now.Add(-24 * time.Hour), Kind: task.LogMessage, Text: "One.\n\x1b[2JTwo."},
		{Time: now, Kind: task.LogCommand, State: task.LogStarted, Text: "go test ./shop/cart"},
		{Time: now.Add(4 * time.Second), Kind: task.LogCommand, State: task.LogCompleted, Text: "go test ./shop/cart", ExitCode: &one, DurationMS: 4321, Output: "FAIL\n"},
		{Time: now.Add(5 * time.Second), Kind: task.LogEdit, State: task.LogStarted, Text: "a.go"},
	}
	show := func(l *logWriter) string {
		var b bytes.Buffer
		l.w, l.now = &b, func() time.Time { return now.Add(13 * time.Second) }
		for _, e := range events {
			data, err := json.Marshal(e)
			must(t, err)
			for _, part := range [][]byte{data[:20], append(data[20:], '\n')} {
				_, err = l.Write(part)
				must(t, err)
			}
		}
		must(t, l.flush())
		return b.String()
	}
	for want, l := range map[string]*logWriter{
		"2026-11-20\n12:00:00 One.\n         \\x1b[2JTwo.\n2026-11-21\n12:00:04 $ go test ./shop/cart  exit 1 · 4.3s\n           FAIL\n12:00:05 edit a.go  running 8s\n": {},
		"2026-11-20\n12:00:00 One.\n         \\x1b[2JTwo.\n2026-11-21\n12:00:04 $ go test …  exit 1 · 4.3s\n           FAIL\n12:00:05 edit a.go  running 8s\n":           {width: 35},
	} {
		if got := show(l); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	var note bytes.Buffer
	l := &logWriter{note: &note}
	l.w, l.now = &note, func() time.Time { return now.Add(9 * time.Second) }
	for _, e := range events[1:] {
		l.open.Note(&e)
	}
	waits := &wire.TaskView{Task: state.Task{Status: state.Queued}, Why: "waits until 12:30:00, in 30m"}
	for range 2 { // once each
		l.open.Note(&task.LogEvent{Time: now.Add(time.Second), Kind: task.LogCommand, State: task.LogStarted, Text: "make", ID: "2"})
		l.look(waits, nil)
		waits.Why = "waits until 12:30:00, in 29m"
	}
	if want := "12:00:01 $ make  running 8s\n12:00:09 waiting: until 12:30:00, in 30m\n"; note.String() != want {
		t.Errorf("%q\nwant %q", note.String(), want)
	}
	if got := show(&logWriter{json: true}); strings.Count(got, "\n") != 4 || strings.Contains(got, "\x1b") || !strings.Contains(got, `"exitCode":1`) {
		t.Errorf("%q", got)
	}
}

func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	text := describe(&wire.TaskView{
		Task: state.Task{
			ID: "x", Status: state.Failed, Reason: state.ClassExit, Error: "one\ntwo", Prompt: "p1\np2\n", Result: "r",
			StartedAt: now, RunStartedAt: now.Add(30 * time.Second), UpdatedAt: now.Add(time.Minute),
			VerifyCommand: "make", Iteration: 2, MaxIterations: 2, VerifyExitCode: new(int), VerifyTime: "1s", VerifyOutput: "bad\x1b\n",
			Findings: []state.Issue{{Kind: "empty", Message: "it is\nempty"}},
		},
		Iterations: []state.Iteration{{Iteration: 1, ExitCode: -1, Duration: "9s", RunID: "r1"}, {Iteration: 2, ExitCode: 0, Duration: "1s", RunID: "r2"}, {Iteration: 1, Attempt: 2, ExitCode: 3, Duration: "1s", RunID: "r3"}},
		Env:        []string{"HOME", "PATH"},
	}, "claude --resume y", "priority (seq 12)", now).String()
	for _, want := range []string{
		"status:        failed (exit) after 1m00s\n", "error:         one; two\n", "environment:   HOME PATH\n", "resume with:   claude --resume y\n", "edited by hand: priority (seq 12)\n", "prompt:\n  p1\n  p2\n", "answer:\n  r\n",
		"verify:        make\niteration:     2 of 2\nlast check:    passed after 1s\n", "iterations:\n  1  did not end by itself after 9s, run r1\n  2  passed after 1s, run r2\n  attempt 2, iteration 1  exit code 3 after 1s, run r3\n",
		"findings:\n  empty: it is; empty\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "label") {
		t.Error("a line that says nothing is shown")
	}
}

// TestAddressIsShownOnATerminalAlone: who sees no page gets the address, but no file does.
func TestAddressIsShownOnATerminalAlone(t *testing.T) {
	page := wire.PageAddress{URL: "http://127.0.0.1:7433/#code=secret"}
	if got := opened(page, true); !strings.Contains(got, page.URL) {
		t.Errorf("on a terminal: %q", got)
	}
	if got := opened(page, false); strings.Contains(got, "secret") || !strings.Contains(got, "--print") {
		t.Errorf("elsewhere: %q", got)
	}
}

// A collected file is read only where it lies in the directory of its run,
// whatever a person has written into the ledger or an agent has left there.
func TestPromise6CollectedFilesStayInTheirDirectory(t *testing.T) {
	run := t.TempDir()
	files := filepath.Join(run, "files")
	for name, text := range map[string]string{"secret": "s", "files/sub/a.txt": "hello", "files/empty": "", "files/bin": "\xff\x00", "files/big": strings.Repeat("x", maxContent+1)} {
		path := filepath.Join(run, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		put(t, path, text)
	}
	must(t, os.Symlink("../secret", filepath.Join(files, "link")))
	must(t, os.Symlink("..", filepath.Join(files, "up")))
	must(t, syscall.Mkfifo(filepath.Join(files, "pipe"), 0o600))
	for path, want := range map[string]string{
		"sub/a.txt": "text hello", "empty": "text ", "bin": "base64 \xff\x00",
		"big": "problem it has more than", "gone": "problem the copy is not kept any more", "sub": "problem the copy is a directory",
		"link": "problem the copy is or lies behind a symbolic link", "pipe": "problem the copy is no regular file",
		"../secret": "problem ", "up/secret": "problem ", filepath.Join(run, "secret"): "problem ", "": "problem ", "/dev/null": "problem ",
	} {
		v := &wire.TaskView{RunDir: run, Task: state.Task{OutputFiles: []state.OutputFile{{Path: path}}}}
		c := collectedFiles(v, true)[0]
		got := "problem " + c.Problem
		switch {
		case c.Problem == "" && c.Text != nil:
			got = "text " + *c.Text
		case c.Problem == "":
			got = "base64 " + string(c.Base64)
		case c.Text != nil || c.Base64 != nil:
			t.Errorf("%q: content beside the problem %q", path, c.Problem)
		}
		if !strings.HasPrefix(got, want) || want == "problem " && got == want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	v := &wire.TaskView{Task: state.Task{OutputFiles: []state.OutputFile{{Path: "a", Size: 3}}}}
	if text := fileList(v); !strings.Contains(text, "a  3 bytes  the copy is not kept any more") {
		t.Errorf("of a task without a run: %q", text)
	}
	var out bytes.Buffer
	if err := printJSON(&out, taskWithFiles{v, collectedFiles(v, true)}); err != nil || !strings.Contains(out.String(), `"files":[{"path":"a","size":3,"problem":`) {
		t.Errorf("%s %v", &out, err)
	}
}

// TestUsageTable: money has a column once there is some, and no figure where a CLI tells
// none; one row needs no sum. usage.txtar has the rest.
func TestUsageTable(t *testing.T) {
	rows := []task.UsageRow{
		{Key: "codex", Runs: 10, Tasks: 9, Usage: state.Usage{InputTokens: 1000, CachedInputTokens: 400, OutputTokens: 7, CostUSD: 0.25}},
		{Runs: 1, Tasks: 1, Usage: state.Usage{InputTokens: 5}},
	}
	for by, want := range map[string][][]string{
		"agent": {
			{"AGENT", "RUNS", "TASKS", "INPUT", "CACHED", "OUTPUT", "   COST"},
			{"codex", "  10", "    9", " 1000", "   400", "     7", "$0.2500"},
			{"-", "   1", "    1", "    5", "     0", "     0", "      -"},
			{"total", "  11", "     ", " 1005", "   400", "     7", "$0.2500"},
		},
		"total": {
			{"TOTAL", "RUNS", "TASKS", "INPUT", "CACHED", "OUTPUT", "   COST"},
			{"total", "  10", "    9", " 1000", "   400", "     7", "$0.2500"},
		},
	} {
		if by == "total" {
			rows = rows[:1]
		}
		if got := usageTable(by, slices.Clone(rows)); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%q, want %q", got, want)
		}
		rows = rows[:2]
	}
}

// A list of differences that nobody would read is cut, and its length told.
func TestDifferencesAreBounded(t *testing.T) {
	r := postgres.Report{Seq: 7, Tasks: 150, Runs: 1, InFlight: 2, More: 20}
	for i := range 130 {
		r.Differences = append(r.Differences, postgres.Difference{Table: "tasks", ID: fmt.Sprint(i), Text: fmt.Sprintf("tasks %d: only\nhere", i)})
	}
	for _, c := range []struct {
		json  bool
		lines int
		end   string
	}{
		{false, 132, "and 20 more\n150 differences in 150 tasks, 1 run and 0 files, up to record 7; 2 tasks changed meanwhile, not compared\n"},
		{true, 131, `{"seq":7,"tasks":150,"runs":1,"files":0,"differences":150,"inFlight":2}` + "\n"},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out, json: c.json}
		must(t, a.printDifferences(&r))
		if lines := strings.Count(out.String(), "\n"); lines != c.lines || !strings.HasSuffix(out.String(), c.end) {
			t.Errorf("JSON %v: %d lines, want %d that end with %q:\n%.200s", c.json, lines, c.lines, c.end, out.String())
		}
		if c.json && !json.Valid([]byte(strings.SplitN(out.String(), "\n", 2)[0])) {
			t.Errorf("no JSON: %.100s", out.String())
		}
	}
}

// What a database or a ledger has to say has exit code 1, whatever its kind; Ctrl-C has its own.
func TestSyncExitCodes(t *testing.T) {
	detached, cancel := context.WithCancelCause(t.Context())
	cancel(errDetached)
	for _, code := range []task.Code{task.CodeInvalid, task.CodeNotFound, task.CodeBusy, task.CodeStopped} {
		err := &task.Error{Code: code, Message: "no", Hint: "do"}
		if got := exitCode(syncError(t.Context(), err)); got != exitFailure {
			t.Errorf("%s: exit code %d", code, got)
		}
		if got := exitCode(syncError(detached, err)); got != exitInterrupted {
			t.Errorf("%s after Ctrl-C: exit code %d", code, got)
		}
	}
	if err := syncError(detached, nil); err != nil {
		t.Errorf("done before Ctrl-C: %v", err)
	}
}
