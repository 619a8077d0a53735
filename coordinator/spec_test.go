package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/state"
)

// TestEveryFieldCanBeSpecified: no field of a spec is forgotten by ParseSpecs.
func TestEveryFieldCanBeSpecified(t *testing.T) {
	typ := reflect.TypeFor[task.TaskSpec]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "-" { // no client's to say
			continue
		}
		if _, err := task.ParseSpecs("spec.json", fmt.Appendf(nil, `{"%s": null}`, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestBadSpecFields: what Submit refuses, with the words in which it does.
func TestBadSpecFields(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.open()
	defer w.close()
	old := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", AgentSession: "n-0"})
	if _, err := w.c.Cancel(t.Context(), old.ID, "client"); err != nil {
		t.Fatal(err)
	}
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", AgentSession: "n-1"})
	files := func(names ...string) (list []state.InputFile) {
		for _, n := range names {
			list = append(list, state.InputFile{Name: n, Content: "x"})
		}
		return list
	}
	past := time.Now().Add(-2 * time.Minute)
	tests := []struct {
		spec task.TaskSpec
		want string
	}{
		{task.TaskSpec{Agent: "codx"}, `there is no agent "codx"; did you mean codex?; stint doctor`},
		{task.TaskSpec{Agent: "gpt"}, `there is no agent "gpt"; known are codex, demo; stint doctor`},
		{task.TaskSpec{Model: "gpt 5"}, `"gpt 5" cannot be the name of a model`},
		{task.TaskSpec{Model: "--yolo"}, `"--yolo" cannot be the name of a model`},
		{task.TaskSpec{Agent: "codex", AgentSession: "n-1"}, `the session n-1 belongs to demo, not to codex; use --agent demo`},
		{task.TaskSpec{Agent: "codex", AgentSession: "n-0"}, `the session n-0 belongs to demo, not to codex; use --agent demo`},
		{task.TaskSpec{After: []string{"nobody"}}, `there is no task "nobody"; stint ls`},
		{task.TaskSpec{AfterPolicy: "some"}, `the after-policy "some" is unknown; use done or any`},
		{task.TaskSpec{NotBefore: past}, `the time ` + past.UTC().Format(time.RFC3339) + ` has passed; it is `},
		{task.TaskSpec{TenantID: "a\nb"}, `the tenant cannot be used`},
		{task.TaskSpec{Queue: strings.Repeat("x", 257)}, `the queue cannot be used; use at most 256 printable characters`},
		{task.TaskSpec{Fallback: []string{"claud"}}, `fallback: there is no agent "claud"; known are codex, demo; stint doctor`},
		{task.TaskSpec{Fallback: []string{"none", "codex"}}, `fallback: there is no agent "none"`},
		{task.TaskSpec{OutputSpec: []string{"/etc/passwd"}}, `the output file "/etc/passwd" is an absolute path`},
		{task.TaskSpec{OutputSpec: []string{"a/../../b"}}, `leads out of its directory by ".."`},
		{task.TaskSpec{OutputSpec: []string{"a\nb"}}, `has a name that cannot be used`},
		{task.TaskSpec{OutputSpec: []string{" a"}}, `has a name that cannot be used`},
		{task.TaskSpec{OutputSpec: []string{"out/"}}, `is a directory`},
		{task.TaskSpec{OutputSpec: []string{""}}, `has no name`},
		{task.TaskSpec{OutputSpec: make([]string, 101)}, `101 output files are too many; at most 100`},
		{task.TaskSpec{InputFiles: files("a", "b/../../x")}, `the input file "b/../../x" leads out`},
		{task.TaskSpec{InputFiles: files("a", "./a")}, `two input files are named "a"`},
		{task.TaskSpec{InputFiles: files("a/b", "a")}, `"a" is an input file and a directory of the input file "a/b"`},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a", Content: strings.Repeat("x", 1<<20+1)}}}, `more than 1048576 bytes`},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a", Content: "\xff"}}}, `the input file a is not valid UTF-8`},
	}
	for _, tt := range tests {
		tt.spec.Prompt = "p"
		_, err := w.try(tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v:\ngot  %v\nwant %s", tt.spec, err, tt.want)
		}
	}
	if got := len(w.c.List(state.Filter{})); got != 2 {
		t.Errorf("%d tasks were taken in", got)
	}
}

// TestAnIdChoosesItsAgent: who names a session need not name its agent.
func TestAnIdChoosesItsAgent(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers, w.cfg.Agents["codex"] = 0, w.agent
	w.open()
	defer w.close()
	w.submit(task.TaskSpec{Prompt: "p", Agent: "codex", AgentSession: "n1"})
	if got := w.submit(task.TaskSpec{Prompt: "p", AgentSession: "n1", DefaultAgent: "demo"}); got.Agent != "codex" || got.AgentSession != "n1" {
		t.Errorf("%s, session %s", got.Agent, got.AgentSession)
	}
}

// TestAnIdThatAnAgentDidNotKnow is not that agent's: it may be tried with another.
func TestAnIdThatAnAgentDidNotKnow(t *testing.T) {
	for _, key := range []string{"web", ""} { // a session that stays known, and one that does not
		w := newWorld(t)
		w.cfg.ResumeMissing, w.cfg.Agents["codex"] = "error", w.agent
		w.outcomes(task.Outcome{Class: state.ClassSessionLost, ExitCode: 1, Error: "no rollout found"}, task.Outcome{Result: "fine"})
		w.open()
		named := task.TaskSpec{Prompt: "p", SessionKey: key, Parallel: key == "", AgentSession: "n1"}
		w.expect(w.wait(w.submit(named).ID), state.Failed, state.ClassSessionLost)
		named.Agent = "codex"
		w.expect(w.wait(w.submit(named).ID), state.Done, "")
		w.close()
	}
}

// TestSpecIsRecorded: every field comes back, also from tasks.md alone.
func TestSpecIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"], w.cfg.Agents["claude"] = w.agent, w.agent
	w.cfg.Fallback = []string{"claude", "demo", "unheard"}
	w.open()
	first := w.submit(task.TaskSpec{Prompt: "p"})
	if got := strings.Join(first.Fallback, " "); got != "claude" {
		t.Errorf("the configured fallback became %q", got)
	}
	spec := task.TaskSpec{
		Prompt: "p", Agent: "codex", TenantID: "ana & co", Queue: "nightly", Hold: true, AfterPolicy: "any", After: []string{first.ID[30:], first.ID, "@last"},
		Fallback: []string{"claude", "codex", "claude"}, OutputSpec: []string{"./out/a b.txt", "out/a b.txt", "r.txt"}, IdempotencyKey: "k",
		InputFiles: []state.InputFile{{Name: "in/<x>.md", Content: "## Task x\n- status: queued\n"}, {Name: "b"}},
	}
	got := w.submit(spec)
	want := got
	want.TenantID, want.Queue, want.Hold, want.AfterPolicy, want.After = "ana & co", "nightly", true, "any", []string{first.ID}
	want.Fallback, want.OutputSpec, want.InputFiles = []string{"claude"}, []string{"out/a b.txt", "r.txt"}, spec.InputFiles
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, s := range []task.TaskSpec{{Agent: "codex"}, {SessionKey: "s"}, {Fallback: []string{"none"}}} {
		if s.Prompt = "p"; len(w.submit(s).Fallback) > 0 {
			t.Errorf("%+v got a fallback", s)
		}
	}
	w.resend(spec, got.ID)
	w.close()
	if err := os.Remove(filepath.Join(w.dir, "journal.md")); err != nil {
		t.Fatal(err)
	}
	w.open()
	again, err := w.c.Task(t.Context(), got.ID)
	again.Seq = got.Seq // the new journal begins anew
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	w.close()
}

// resend submits a spec with a known key again, as it is and with changes.
func (w *world) resend(spec task.TaskSpec, id string) {
	w.t.Helper()
	spec.After = spec.After[:1]
	if got, err := w.try(spec); err != nil || got.ID != id {
		w.t.Errorf("a resend gave %s, %v", got.ID, err)
	}
	for what, change := range map[string]func(*task.TaskSpec){
		"after":    func(s *task.TaskSpec) { s.After = nil },
		"policy":   func(s *task.TaskSpec) { s.AfterPolicy = "done" },
		"tenant":   func(s *task.TaskSpec) { s.TenantID = "bob" },
		"queue":    func(s *task.TaskSpec) { s.Queue = "" },
		"fallback": func(s *task.TaskSpec) { s.Fallback = []string{"demo"} },
		"output":   func(s *task.TaskSpec) { s.OutputSpec = s.OutputSpec[:1] },
		"input":    func(s *task.TaskSpec) { s.InputFiles = s.InputFiles[:1] },
		"agent":    func(s *task.TaskSpec) { s.Agent = "claude" },
	} {
		other := spec
		change(&other)
		if _, err := w.try(other); !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			w.t.Errorf("a resend with another %s gave %v", what, err)
		}
	}
}

func TestBadSpecs(t *testing.T) {
	w := newWorld(t)
	w.open()
	defer w.close()
	file := filepath.Join(w.work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]task.TaskSpec{
		"empty":          {Prompt: " \n"},
		"too long":       {Prompt: strings.Repeat("x", task.MaxPrompt+1)},
		"invalid UTF-8":  {Prompt: "a\xff"},
		"agent":          {Prompt: "p", Agent: "nobody"},
		"account":        {Prompt: "p", Account: "other"},
		"session slash":  {Prompt: "p", SessionKey: "a/b"},
		"session line":   {Prompt: "p", SessionKey: "a\n## Task x"},
		"session dir":    {Prompt: "p", SessionKey: "dir:/x"},
		"session task":   {Prompt: "p", SessionKey: "task:x"},
		"workspace":      {Prompt: "p", Workspace: "relative"},
		"no workspace":   {Prompt: "p", Workspace: "/does/not/exist"},
		"workspace file": {Prompt: "p", Workspace: file},
		"resume":         {Prompt: "p", Resume: "maybe"},
		"timeout":        {Prompt: "p", Timeout: "soon"},
		"priority":       {Prompt: "p", Priority: 10},
		"model":          {Prompt: "p", Model: "-x --yolo"},
		"agent session":  {Prompt: "p", AgentSession: "--last"},
		"both":           {Prompt: "p", Parallel: true, SessionKey: "a"},
		"id":             {Prompt: "p", ID: "x"},
		"label":          {Prompt: "p", Label: "a\nb"},
	} {
		_, err := w.try(s)
		var e *task.Error
		if !errors.As(err, &e) || e.Code != task.CodeInvalid || e.Message == "" || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := w.try(task.TaskSpec{Prompt: "p", Continue: true})
	if !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Errorf("nothing to continue: %v", err)
	}
	if n := len(w.c.List(state.Filter{})); n != 0 {
		t.Errorf("%d tasks were taken in", n)
	}
}
