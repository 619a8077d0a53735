package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
)

// planner is a fakeAgent that can say what it would run.
type planner struct{ *fakeAgent }

func (planner) Plan(t task.Turn) task.Plan {
	return task.Plan{Argv: []string{"/bin/agent", "--resume", t.Session, "-C", t.Workspace}, Env: []string{"HOME", "PATH"}}
}

// previewWorld is a world with notes, whose agent can be planned with.
func previewWorld(t *testing.T) *world {
	return noteWorld(t, func(text string) (memory.Result, error) {
		return memory.Result{Engine: "scan", Hits: []memory.Hit{{Path: "MEMORY.md", Line: 3, Text: "about: " + text}}}, nil
	})
}

// noteWorld is one whose notes give what find says.
func noteWorld(t *testing.T, find func(text string) (memory.Result, error)) *world {
	w := newWorld(t)
	w.cfg.Agents = map[string]task.Agent{"demo": planner{w.agent}}
	w.cfg.OutputPolicy, w.cfg.MaxIterations, w.cfg.VerifyTimeout = "Be brief.", 3, time.Minute
	w.cfg.Memory = func(_ context.Context, _, text string) (memory.Result, error) { return find(text) }
	w.open()
	return w
}

func (w *world) preview(specs ...task.TaskSpec) []task.TaskPreview {
	w.t.Helper()
	for i := range specs {
		specs[i].Workspace = w.work
	}
	before := w.files()
	list, err := w.c.Preview(w.t.Context(), specs, true)
	check(w.t, err)
	if diff := cmp.Diff(before, w.files()); diff != "" {
		w.t.Errorf("the preview has changed the state directory:\n%s", diff)
	}
	return list
}

// files returns the journal, and the names of what stands for runs and transcripts.
// Other files follow the journal in their own time.
func (w *world) files() []string {
	w.t.Helper()
	found := []string{read(w.t, w.dir, "journal.md")}
	for _, pattern := range []string{"runs/*", "runs/*/*", "sessions/*"} {
		names, _ := filepath.Glob(filepath.Join(w.dir, pattern)) // the pattern is a good one
		found = append(found, names...)
	}
	return found
}

// What a preview says is what the run is, but for ids; it leaves no trace, and no agent is started.
func TestPreviewIsTheRun(t *testing.T) {
	t.Parallel()
	w := previewWorld(t)
	spec := task.TaskSpec{
		ID: "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11", Prompt: "do it", SessionKey: "web", Model: "m", Timeout: "10m",
		InputFiles: []state.InputFile{{Name: "a/b.txt", Content: "x"}}, OutputSpec: []string{"out.txt"}, VerifyCommand: task.NoVerify,
	}
	p := w.preview(spec)[0]
	if len(w.agent.turns) > 0 {
		t.Fatalf("the agent was started: %+v", w.agent.turns)
	}
	if p.Known || p.Session != task.SessionNew || p.Resumes != "" || p.Ahead != 0 || p.Reason != "" || p.Timeout != "10m" || p.MaxIterations != 0 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff([]string{"/bin/agent", "--resume", "", "-C", w.work}, p.Argv); diff != "" {
		t.Error(diff)
	}
	if p.Memory == nil || len(p.Memory.Hits) != 1 || p.Task.Model != "m" || p.Task.Status != state.Queued || p.Task.SessionKey != "web" {
		t.Errorf("memory %+v, task %+v", p.Memory, p.Task)
	}
	check(t, os.WriteFile(filepath.Join(w.work, "out.txt"), nil, 0o600))
	got := w.wait(w.submit(spec).ID)
	sent := read(t, filepath.Join(w.c.RunDir(got.RunID), "prompt.md"))
	if diff := cmp.Diff(withoutIDs(string(sent)), withoutIDs(p.Prompt)); diff != "" || !strings.Contains(p.Prompt, "> MEMORY.md:3 about: do it") {
		t.Errorf("the prompt (-sent +preview):\n%s", diff)
	}
}

// withoutIDs takes out of a prompt what is made anew for each run.
func withoutIDs(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "- session id: ") && !strings.HasPrefix(line, "- run: ") {
			before, name, found := strings.Cut(line, "/files/")
			if found {
				before = filepath.Dir(before)
			}
			b.WriteString(before + name)
		}
	}
	return b.String()
}

// TestPreviewSession: a preview knows the sessions, also those of the tasks before it in
// its list, and passes what is held or planned.
func TestPreviewSession(t *testing.T) {
	t.Parallel()
	w := previewWorld(t)
	web, other := task.TaskSpec{Prompt: "a", SessionKey: "web"}, task.TaskSpec{Prompt: "b", SessionKey: "other", Resume: "never"}
	held, planned := task.TaskSpec{Prompt: "c", SessionKey: "later", Hold: true}, task.TaskSpec{Prompt: "d", SessionKey: "later", NotBefore: time.Now().Add(time.Hour)}
	later := task.TaskSpec{Prompt: "e", SessionKey: "later"}
	list := w.preview(web, web, other, other, task.TaskSpec{Prompt: "c", Parallel: true}, held, planned, later)
	w.submit(held)
	w.submit(planned)
	list = append(list, w.preview(later)[0])
	var got []string
	for _, p := range list {
		got = append(got, fmt.Sprint(p.Session, " behind ", p.Ahead))
	}
	begins := fmt.Sprint(task.SessionNew, " behind 0")
	if diff := cmp.Diff([]string{begins, task.SessionLater + " behind 1", begins, task.SessionNew + " behind 1", begins, begins, begins, begins, begins}, got); diff != "" {
		t.Error(diff)
	}
	w.wait(w.submit(web).ID)
	if p := w.preview(web)[0]; p.Session != task.SessionResume || p.Resumes != "native-1" || p.Argv[2] != "native-1" || p.Ahead != 0 || !strings.Contains(p.Prompt, "- continued: yes") {
		t.Errorf("behind one that has run: %+v", p)
	}
	web.Resume = "never"
	if p := w.preview(web)[0]; p.Session != task.SessionNew || p.Resumes != "" {
		t.Errorf("never resumed: %+v", p)
	}
}

// What keeps the notes from being searched is told, and nothing is kept of it. Where
// there is nothing to search, nothing is told.
func TestPreviewWithoutNotes(t *testing.T) {
	t.Parallel()
	var found memory.Result
	var err error
	w := noteWorld(t, func(string) (memory.Result, error) { return found, err })
	found.Terms = []memory.Term{{Text: "x"}}
	if p := w.preview(task.TaskSpec{Prompt: "a"})[0]; p.Memory != nil {
		t.Errorf("nothing to search: %+v", p.Memory)
	}
	found.Skipped = []memory.Skipped{{Path: "a", Why: "b"}}
	if p := w.preview(task.TaskSpec{Prompt: "a"})[0]; p.Memory == nil || len(p.Memory.Skipped) != 1 {
		t.Errorf("a note that is left out: %+v", p.Memory)
	}
	err = errors.New("no such directory")
	if p := w.preview(task.TaskSpec{Prompt: "a"})[0]; p.Memory == nil || p.Memory.Partial != "no such directory" {
		t.Errorf("a search that fails: %+v", p.Memory)
	}
	if got := w.c.Health().LastError; got != "" {
		t.Errorf("the preview is the master's trouble: %s", got)
	}
	found, err = memory.Result{Hits: []memory.Hit{}, Partial: "it took longer than 5s"}, nil
	id := w.done(task.TaskSpec{Prompt: "do it"}).ID
	if p, err := w.c.SentPrompt(t.Context(), id, ""); err != nil || p.Memory == nil || p.Memory.Partial != "it took longer than 5s" {
		t.Errorf("the notes of a run: %+v, %v", p.Memory, err)
	}
}

// TestPreviewRefuses: what Submit refuses, a preview refuses with the same words; it names
// the field as Submit does for one task, and SubmitOnce for a list of one.
func TestPreviewRefuses(t *testing.T) {
	t.Parallel()
	w := previewWorld(t)
	for name, spec := range map[string]task.TaskSpec{
		"no prompt": {}, "workspace": {Prompt: "a", Workspace: "/no/such"}, "after": {Prompt: "a", After: []string{"nobody"}}, "continue": {Prompt: "a", Continue: true},
		"past": {Prompt: "a", NotBefore: time.Unix(1, 0)}, "input file": {Prompt: "a", InputFiles: []state.InputFile{{Name: "../x"}}},
	} {
		if spec.Workspace == "" {
			spec.Workspace = w.work
		}
		before := w.files()
		list, err := w.c.Preview(t.Context(), []task.TaskSpec{spec}, false)
		_, want := w.c.Submit(t.Context(), spec)
		if want == nil || err == nil || withoutSeconds(err) != withoutSeconds(want) || fieldOf(err) != fieldOf(want) || list != nil {
			t.Errorf("%s: %v, and Submit says %v", name, err, want)
		}
		if diff := cmp.Diff(before, w.files()); diff != "" {
			t.Errorf("%s: it has changed\n%s", name, diff)
		}
	}
	if _, err := w.c.Preview(t.Context(), []task.TaskSpec{{Workspace: w.work}}, true); fieldOf(err) != "0.prompt" {
		t.Errorf("%v: it is about %q", err, fieldOf(err))
	}
	_, err := w.c.Preview(t.Context(), make([]task.TaskSpec, 101), true)
	if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) || !strings.Contains(err.Error(), "101 tasks are too many for a preview; at most 100 are taken") {
		t.Errorf("%v", err)
	}
}

// withoutSeconds takes the time of day out of a message.
func withoutSeconds(err error) string {
	text, _, _ := strings.Cut(err.Error(), "; it is ")
	return text
}

// TestSentPrompt: the prompt of each run of an agent can be had, by number, id or a piece
// of it, with the notes that were found.
func TestSentPrompt(t *testing.T) {
	t.Parallel()
	w := previewWorld(t)
	w.outcomes(task.Outcome{Class: state.ClassExit, Error: "no"}, task.Outcome{Result: "yes", Session: "native-1"})
	id := w.wait(w.submit(task.TaskSpec{Prompt: "do it", MaxAttempts: 2}).ID).ID
	last, err := w.c.SentPrompt(t.Context(), id, "")
	if err != nil || last.Number != 2 || last.Of != 2 || last.Attempt != 2 || last.TaskID != id || last.Memory == nil || last.Memory.Hits[0].Line != 3 {
		t.Fatalf("%+v, %v", last, err)
	}
	one, err := w.c.SentPrompt(t.Context(), id, "1")
	if err != nil || one.RunID == last.RunID || one.Number != 1 || !strings.Contains(one.Prompt, "- attempt: 1") {
		t.Errorf("%+v, %v", one, err)
	}
	for _, ref := range []string{one.RunID, one.RunID[20:]} {
		if got, err := w.c.SentPrompt(t.Context(), id, ref); err != nil || got.RunID != one.RunID {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	for _, c := range []struct {
		id, run string
		code    task.Code
		want    string
	}{
		{id, "0", task.CodeNotFound, "it has no run 0 of its agent: there are 2"},
		{id, "nobody", task.CodeNotFound, `it has no run "nobody"`},
		{id, one.RunID[:4] + "-", task.CodeNotFound, "it has no run"},
		{id, one.RunID[:3], task.CodeAmbiguous, "fits several runs of task"},
		{"nobody", "", task.CodeNotFound, "there is no task"},
	} {
		if _, err := w.c.SentPrompt(t.Context(), c.id, c.run); !errors.Is(err, &task.Error{Code: c.code}) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("run %q: %v, and not %s", c.run, err, c.want)
		}
	}
}
