package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// However the bytes are cut into writes, the terminal sees the same.
func FuzzSafeWriter(f *testing.F) {
	f.Add("é漢😀\x1b[31m\xff\xf0\x9f", uint8(3))
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		var b bytes.Buffer
		w := &runeWriter{w: &b, escape: escapeText}
		for rest := s; rest != ""; {
			k := min(len(rest), int(n%7)+1)
			if _, err := w.Write([]byte(rest[:k])); err != nil {
				t.Fatal(err)
			}
			rest = rest[k:]
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		if b.String() != escapeText(s) {
			t.Errorf("%q in parts is %q, at once %q", s, b.String(), escapeText(s))
		}
		if strings.ContainsFunc(b.String(), task.IsHarmful) {
			t.Errorf("%q lets something through: %q", s, b.String())
		}
	})
}

// What is piped is left as it is.
func TestPipedTextIsRaw(t *testing.T) {
	var b bytes.Buffer
	if err := printText(&b, "\x1b[31mred"); err != nil || b.String() != "\x1b[31mred\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestShortIDs(t *testing.T) {
	ids := []string{
		"01a1fcac-dc95-7885-9f7b-39cdf56b17d8",
		"01a1fcac-dc6d-769a-8c86-84d75f21a9c2",
		"01a1fcac-dc6d-769a-8c86-84d00f21a9c2",
	}
	got := shortIDs(ids[:2])
	if got[0] != "f56b17d8" || got[1] != "5f21a9c2" {
		t.Errorf("%q", got)
	}
	got = shortIDs([]string{ids[0], "01a1fcac-dc6d-769a-8c86-84d75f21a9c2", "01a1fcac-dc6d-769a-8c86-84d05f21a9c2"})
	for i, want := range []string{"df56b17d8", "75f21a9c2", "05f21a9c2"} {
		if got[i] != want {
			t.Errorf("%d: %s, want %s", i, got[i], want)
		}
	}
	if got := shortIDs([]string{ids[0], ids[0]}); got[0] != "f56b17d8" {
		t.Errorf("the same id twice: %q", got)
	}
	if got := shortID("short"); got != "short" {
		t.Errorf("%q", got)
	}
	if len(shortIDs(nil)) != 0 {
		t.Error("ids out of nothing")
	}
}

func TestLaneName(t *testing.T) {
	for key, want := range map[string]string{"web": "web", "dir:/home/ana/shop": "shop/", "task:x": "-", "": ""} {
		if got := laneName(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	rows := escapeRows([][]string{{"ID", "PROMPT"}, {"1", "évil\x1b\nline"}, {"1234", "x"}})
	if err := writeTable(&b, rows, nil); err != nil {
		t.Fatal(err)
	}
	if want := "ID    PROMPT\n1     évil\\x1b; line\n1234  x\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestProgressLine(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	view := &wire.TaskView{Task: state.Task{Status: state.Running, RunStartedAt: now.Add(-134 * time.Second)}}
	if got, want := progressLine(view, now, now.Add(-4*time.Second)), "running 2m14s · last output 4s ago"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := progressLine(view, now, time.Time{}), "running 2m14s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for want, change := range map[string]func(*state.Task){
		"verifying 2m14s, round 2 of 3":  func(t *state.Task) { t.Phase = state.PhaseVerify },
		"running 2m14s, round 2 of 3":    func(*state.Task) {},
		"running 2m14s":                  func(t *state.Task) { t.Iteration = 1 },
		"evaluating 2m14s, round 2 of 3": func(t *state.Task) { t.Phase = state.PhaseEvaluate },
		"verifying 2m14s":                func(t *state.Task) { t.Phase, t.Iteration = state.PhaseVerify, 0 },
	} {
		of := view.Task
		of.VerifyCommand, of.MaxIterations, of.Iteration = "make", 3, 2
		change(&of)
		if got := progressLine(&wire.TaskView{Task: of}, now, time.Time{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	view = &wire.TaskView{Task: state.Task{Status: state.Queued}, Why: "behind x\nin the lane"}
	if got, want := progressLine(view, now, time.Time{}), "behind x; in the lane"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSettling: of a task whose run has ended, what it waits for is shown.
func TestSettling(t *testing.T) {
	var b bytes.Buffer
	a := &app{stderr: &b}
	view := wire.TaskView{Task: state.Task{ID: "x", Status: state.Running, RunStartedAt: time.Now()}, Why: "it waits\x1b", Settling: true}
	if got := progressLine(&view, time.Now(), time.Now()); got != `it waits\x1b` {
		t.Errorf("%q", got)
	}
	a.tellSettling([]wire.TaskView{{Task: state.Task{Status: state.Running}, Why: "it runs"}, view})
	if b.String() != "stint: task x: it waits\\x1b\n" {
		t.Errorf("%q", b.String())
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
	}, "claude --resume y", "priority (seq 12)", "7f3a  failed  Fix it\n", now)
	for _, want := range []string{
		"status:        failed (exit) after 1m00s\n", "error:         one; two\n", "environment:   HOME PATH\n", "resume with:   claude --resume y\n", "edited by hand: priority (seq 12)\n", "chain:\n  7f3a  failed  Fix it\n", "prompt:\n  p1\n  p2\n", "answer:\n  r\n",
		"verify:        make\nround:         2 of 2\nlast check:    passed after 1s\n", "rounds:\n  1  did not end by itself after 9s, run r1\n  2  passed after 1s, run r2\n  attempt 2, round 1  exit code 3 after 1s, run r3\n",
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

// What the master wrote is printed as we would print it, however it is cut.
func TestJSONWriter(t *testing.T) {
	for _, text := range []string{"{\"a\":\"plain\"}\n", "{\"a\":\"é \u009b \x7f \u202e ü\"}\n{}\n"} {
		for cut := range len(text) {
			var b strings.Builder
			w := &runeWriter{w: &b, escape: escapeJSON}
			for _, part := range []string{text[:cut], text[cut:]} {
				if n, err := io.WriteString(w, part); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if want := escapeJSON(text); b.String() != want {
				t.Errorf("cut at %d: %q, want %q", cut, b.String(), want)
			}
		}
	}
}

// JSON is the same value for programs, and harmless on a terminal.
func TestPrintJSON(t *testing.T) {
	in := map[string]string{"a": "\x1b[31m \u009b \x7f \u202e \\x41 <b> \n\t é"}
	var b bytes.Buffer
	if err := printJSON(&b, in); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(b.String(), task.IsHarmful) || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q", b.String())
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil || out["a"] != in["a"] {
		t.Errorf("%q came back as %q, %v", in["a"], out["a"], err)
	}
}
