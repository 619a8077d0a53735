package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/memory"
	"stint/session"
	"stint/state"
)

// runLines writes down what the runs of a task are.
func runLines(runs []task.TaskRun) (lines []string) {
	for _, r := range runs {
		exit := "-"
		if r.ExitCode != nil {
			exit = fmt.Sprint(*r.ExitCode)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s#%d attempt %d iteration %d %s/%s exit %s %s used %d out %d kept %v %v %s",
			r.Phase, r.Number, r.Attempt, r.Iteration, r.Agent, r.Account, exit, r.Took, r.Usage.InputTokens, r.Stdout, r.Kept, r.EndedAt.Sub(r.StartedAt), r.Reason)))
	}
	return lines
}

// TestRunsOfATask: they are told from the first to the last, with what each has used,
// while the task runs, after its end, and from the archive.
func TestRunsOfATask(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		w.shell.do = exits(3, 0)
		turns := 0
		var atWork []task.TaskRun
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			time.Sleep(time.Second)
			turns++
			check(t, os.WriteFile(filepath.Join(w.c.RunDir(turn.RunID), "stdout"), []byte(strings.Repeat("x", turns)), 0o600))
			if turns == 1 {
				return task.Outcome{Class: state.ClassNetwork, ExitCode: 1, Error: "broken"}
			}
			var err error
			if atWork, err = w.c.Runs(w.t.Context(), turn.TaskID); err != nil {
				t.Error(err)
			}
			return task.Outcome{Result: "ok", Session: "n1", Usage: state.Usage{InputTokens: int64(turns)}}
		}
		id := w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: "make"}).ID
		w.wait(id)
		want := []string{
			"#1 attempt 1 iteration 1 demo/demo exit 1  used 0 out 1 kept true 1s network",
			"#2 attempt 2 iteration 1 demo/demo exit -  used 2 out 2 kept true 1s",
			"verify#0 attempt 2 iteration 1 / exit 3 2s used 0 out 0 kept true 2s verify",
			"#3 attempt 2 iteration 2 demo/demo exit -  used 3 out 3 kept true 1s",
			"verify#0 attempt 2 iteration 2 / exit 0 2s used 0 out 0 kept true 2s",
		}
		runs, err := w.c.Runs(w.t.Context(), id)
		if diff := cmp.Diff(want, runLines(runs)); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
		if n := len(atWork); n != 4 || !atWork[3].EndedAt.IsZero() || atWork[3].Agent != "demo" || atWork[2].EndedAt.IsZero() {
			t.Errorf("while the last turn was made: %+v", atWork)
		}
		for _, r := range runs {
			if step, err := rundir.FindRun(&state.Task{Steps: []state.Step{{RunID: r.RunID}}}, r.RunID); err != nil || step.RunID != r.RunID || r.RunDir != w.c.RunDir(r.RunID) {
				t.Errorf("run %+v cannot be found: %v", r, err)
			}
		}
		w.compact(0)
		archived, err := w.c.Runs(w.t.Context(), id)
		if diff := cmp.Diff(runs, archived); diff != "" || err != nil {
			t.Errorf("in the archive: %s %v", diff, err)
		}
		check(t, os.RemoveAll(runs[0].RunDir))
		if archived, err = w.c.Runs(w.t.Context(), id); err != nil || archived[0].Kept || archived[0].Stdout != 0 || !archived[1].Kept {
			t.Errorf("without its files: %+v, %v", archived[0], err)
		}
		later := w.submit(task.TaskSpec{Prompt: "later", Hold: true}).ID
		if runs, err := w.c.Runs(w.t.Context(), later); err != nil || len(runs) != 0 {
			t.Errorf("of a task that has not run: %+v, %v", runs, err)
		}
		if _, err := w.c.Runs(w.t.Context(), "zz"); !errors.Is(err, notFound) {
			t.Errorf("of no task: %v", err)
		}
	})
}

var notFound = &task.Error{Code: task.CodeNotFound}

// TestFilesAreGiven: what came with it, and what each run has left; nothing else.
func TestFilesAreGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	turns := 0
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		turns++
		check(t, os.WriteFile(filepath.Join(w.work, "a"), fmt.Appendf(nil, "turn %d", turns), 0o600))
		return task.Outcome{Result: "ok"}
	}
	w.open()
	id := w.wait(w.submit(task.TaskSpec{Prompt: "p", OutputSpec: []string{"a"}, InputFiles: []state.InputFile{{Name: "notes.txt", Content: "notes"}}}).ID).ID
	w.retry(id)
	entry := w.wait(id)
	runs, err := w.c.Runs(t.Context(), id)
	if err != nil || len(runs) != 2 {
		t.Fatalf("%+v, %v", runs, err)
	}
	for _, when := range []string{"after the end", "in the archive"} {
		if when == "in the archive" {
			_, err := w.c.Compact(t.Context(), 0, false, false)
			check(t, err)
		}
		want := task.TaskFiles{
			Inputs:  []task.TaskFile{{Name: "notes.txt", Size: 5}},
			Outputs: []task.TaskFile{{Name: "a", Size: 6, SHA256: entry.OutputFiles[0].SHA256, RunID: entry.RunID}},
		}
		got, err := w.c.Files(t.Context(), id, "")
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %s %v", when, diff, err)
		}
		for _, c := range []struct{ run, name, want string }{
			{"", "a", "turn 2"}, {"", "notes.txt", "notes"}, {"1", "a", "turn 1"}, {"1", "notes.txt", "notes"}, {runs[0].RunID, "a", "turn 1"}, {"2", "a", "turn 2"},
		} {
			if got := w.content(id, c.run, c.name); got != c.want {
				t.Errorf("%s, run %q, %s: %q, want %q", when, c.run, c.name, got, c.want)
			}
		}
	}
	first, err := w.c.Files(t.Context(), id, "1")
	if err != nil || len(first.Inputs) != 1 || first.Inputs[0].RunID != runs[0].RunID || len(first.Outputs) != 1 || first.Outputs[0].Size != 6 {
		t.Errorf("of the first run: %+v, %v", first, err)
	}
	check(t, os.WriteFile(filepath.Join(w.c.RunDir(entry.RunID), "files", "planted"), nil, 0o600))
	for _, c := range [][2]string{{"", "planted"}, {"2", "planted"}, {"3", "a"}, {"zz", "a"}, {"", "../run.json"}, {"1", "../run.json"}, {"", ""}, {"", strings.Repeat("x", 5000)}} {
		content, err := w.c.OpenFile(t.Context(), id, c[0], c[1])
		if !errors.Is(err, notFound) || len(err.Error()) > 500 {
			t.Errorf("run %q, %.20q: %+v, %v", c[0], c[1], content, err)
		}
	}
	check(t, os.RemoveAll(w.c.RunDir(entry.RunID)))
	if got, err := w.c.Files(t.Context(), id, ""); err != nil || !strings.HasPrefix(got.Outputs[0].Problem, rundir.ErrNotKept.Error()) || got.Inputs[0].Problem != "" {
		t.Errorf("when it was removed: %+v, %v", got, err)
	}
}

// content reads a file of a task.
func (w *world) content(id, run, name string) string {
	w.t.Helper()
	c, err := w.c.OpenFile(w.t.Context(), id, run, name)
	if err != nil {
		w.t.Error(err)
		return ""
	}
	text, err := io.ReadAll(c)
	check(w.t, errors.Join(err, c.Close()))
	return string(text)
}

// TestAccounts: the default ones of the agents are known though nothing uses them.
func TestAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Agents["claude"] = w.agent
	w.open()
	w.submit(task.TaskSpec{Prompt: "p", Hold: true})
	configs := []state.AccountConfig{{ID: "claude", Tool: "claude"}, {ID: "demo", Tool: "demo"}}
	want := []state.AccountUse{
		{Account: state.Account{Name: "claude"}, AccountConfig: configs[0], Agent: "claude"},
		{Account: state.Account{Name: "demo"}, AccountConfig: configs[1], Agent: "demo", Waiting: 1},
	}
	if diff := cmp.Diff(want, w.c.Accounts()); diff != "" {
		t.Error(diff)
	}
}

// TestSearchMemory: what a task would get can be asked for by everyone, by a run for its own workspace alone.
func TestSearchMemory(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	configure := func(w *world) {
		w.cfg.Memory = func(_ context.Context, workspace, prompt string) (memory.Result, error) {
			return memory.Result{Engine: workspace + " " + prompt}, nil
		}
	}
	fromRun(t, configure, func(w *world, parent state.Task) {
		below := filepath.Join(w.work, "below")
		link := filepath.Join(w.work, "link")
		file := filepath.Join(other, "file")
		check(t, errors.Join(os.Mkdir(below, 0o700), os.Symlink(other, link), os.WriteFile(file, nil, 0o600)))
		defer func() {
			check(t, errors.Join(os.Remove(below), os.Remove(link)))
		}()
		for _, c := range []struct {
			run, workspace, prompt string
			want                   string // "" is an error
			field                  string
		}{
			{"", w.work, "key", w.work + " key", ""},
			{"", link, "key", other + " key", ""},
			{"", "", "key", "", "workspace"},
			{"", "work", "key", "", "workspace"},
			{"", file, "key", "", "workspace"},
			{"", w.work + "\x00", "key", "", "workspace"},
			{"", w.work, " \n", "", "prompt"},
			{parent.RunID, w.work, "key", w.work + " key", ""},
			{parent.RunID, below, "key", below + " key", ""},
			{parent.RunID, link, "key", "", "workspace"},
			{parent.RunID, filepath.Dir(w.work), "key", "", "workspace"},
			{"no run", w.work, "key", "", "workspace"},
		} {
			found, err := w.c.SearchMemory(t.Context(), task.MemoryQuery{Workspace: c.workspace, Prompt: c.prompt, FromRun: c.run})
			var bad *task.Error
			if found.Engine != c.want || (err == nil) != (c.want != "") || err != nil && (!errors.As(err, &bad) || bad.Field != c.field) {
				t.Errorf("run %q, %.40q, %.10q: %q, %v", c.run, c.workspace, c.prompt, found.Engine, err)
			}
		}
	})
}

// TestSessionPage: a transcript can be had from its end on.
func TestSessionPage(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	for _, prompt := range []string{"one", "two"} {
		w.wait(w.submit(task.TaskSpec{Prompt: prompt, SessionKey: "web"}).ID)
	}
	s, p, err := w.c.Session("web", 0, 2)
	if err != nil || s.Key != "web" || len(p.Messages) != 2 || p.Messages[0].Text != "two" || p.Begin == 0 {
		t.Fatalf("%+v, %+v, %v", s, p, err)
	}
	if _, p, err = w.c.Session("web", p.Begin, 9); err != nil || len(p.Messages) != 2 || p.Messages[0].Text != "one" || p.Begin != 0 {
		t.Errorf("before that: %+v, %v", p, err)
	}
	var bad *task.Error
	if _, _, err := w.c.Session("web", 3, 1); !errors.As(err, &bad) || bad.Field != "cursor" {
		t.Errorf("from no place: %v", err)
	}
	if _, _, err := w.c.Session("nope", 0, 1); !errors.Is(err, notFound) {
		t.Errorf("of no session: %v", err)
	}
	check(t, os.Remove(session.TranscriptPath(w.dir, w.c.Sessions()[0].ID)))
	if _, p, err = w.c.Session("web", 0, 9); err != nil || len(p.Messages) > 0 || p.Begin != 0 {
		t.Errorf("of a file that is gone: %+v, %v", p, err)
	}
}

// compact moves out what has ended for so long.
func (w *world) compact(age time.Duration) {
	w.t.Helper()
	_, err := w.c.Compact(w.t.Context(), age, false, false)
	check(w.t, err)
}
