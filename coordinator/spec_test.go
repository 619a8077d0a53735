package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/state"
)

// TestSpecIsRecorded: every field comes back, also from tasks.md alone.
func TestSpecIsRecorded(t *testing.T) {
	t.Parallel()
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
	w.close()
	check(t, os.Remove(filepath.Join(w.dir, "journal.md")))
	w.open()
	again := w.task(got.ID)
	again.Seq = got.Seq // the new journal begins anew
	if diff := cmp.Diff(got, again); diff != "" {
		t.Error(diff)
	}
}

// TestBadSpecs: what Submit refuses, with the words in which it does.
func TestBadSpecs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.open()
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", AgentSession: "n-1"})
	files := func(names ...string) (list []state.InputFile) {
		for _, n := range names {
			list = append(list, state.InputFile{Name: n, Content: "x"})
		}
		return list
	}
	past, file := time.Now().Add(-2*time.Minute), filepath.Join(w.work, "file")
	check(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		spec task.TaskSpec
		want string
	}{
		{task.TaskSpec{Prompt: " \n"}, `the prompt is empty`},
		{task.TaskSpec{Prompt: strings.Repeat("x", task.MaxPrompt+1)}, `more than the 1048576 bytes`},
		{task.TaskSpec{Prompt: "a\xff"}, `UTF-8`},
		{task.TaskSpec{Agent: "codx"}, `there is no agent "codx"; known are codex, demo; stint doctor`},
		{task.TaskSpec{Agent: "gpt"}, `there is no agent "gpt"; known are codex, demo; stint doctor`},
		{task.TaskSpec{Account: "other"}, `other`},
		{task.TaskSpec{Model: "gpt 5"}, `"gpt 5" cannot be the name of a model`},
		{task.TaskSpec{Model: "--yolo"}, `"--yolo" cannot be the name of a model`},
		{task.TaskSpec{SessionKey: "a/b"}, `a/b`},
		{task.TaskSpec{SessionKey: "a\n## Task x"}, `session`},
		{task.TaskSpec{SessionKey: "dir:/x"}, `reserved`},
		{task.TaskSpec{SessionKey: "task:x"}, `reserved`},
		{task.TaskSpec{SessionKey: "a", Parallel: true}, `session`},
		{task.TaskSpec{Workspace: "relative"}, `relative`},
		{task.TaskSpec{Workspace: "/does/not/exist"}, `the workspace /does/not/exist cannot be used`},
		{task.TaskSpec{Workspace: file}, file},
		{task.TaskSpec{AgentSession: "--last"}, `--last`},
		{task.TaskSpec{Agent: "codex", AgentSession: "n-1"}, `the session n-1 belongs to demo, not to codex; use --agent demo`},
		{task.TaskSpec{ID: "x"}, `x`},
		{task.TaskSpec{Label: "a\nb"}, `label`},
		{task.TaskSpec{Resume: "maybe"}, `maybe`},
		{task.TaskSpec{Timeout: "soon"}, `soon`},
		{task.TaskSpec{Priority: 10}, `1 to 9`},
		{task.TaskSpec{After: []string{"nobody"}}, `there is no task "nobody"; stint ls`},
		{task.TaskSpec{AfterPolicy: "some"}, `the after-policy "some" is unknown; use done or any`},
		{task.TaskSpec{NotBefore: past}, `the time ` + past.UTC().Format(time.RFC3339) + ` has passed; it is `},
		{task.TaskSpec{TenantID: "a\nb"}, `the tenant cannot be used`},
		{task.TaskSpec{Queue: strings.Repeat("x", 257)}, `the queue cannot be used; use at most 256 printable characters`},
		{task.TaskSpec{Fallback: []string{"none", "codex"}}, `fallback: there is no agent "none"; known are codex, demo; stint doctor`},
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
	} {
		if tt.spec.Prompt == "" {
			tt.spec.Prompt = "p"
		}
		_, err := w.try(tt.spec)
		var e *task.Error
		if !errors.As(err, &e) || e.Code != task.CodeInvalid && tt.spec.After == nil || e.Hint == "" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.300s:\ngot  %v\nwant %s", fmt.Sprintf("%+v", tt.spec), err, tt.want)
		}
	}
	if _, err := w.try(task.TaskSpec{Prompt: "p", Continue: true}); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Errorf("nothing to continue: %v", err)
	}
	if got := len(w.c.List(state.Filter{})); got != 1 {
		t.Errorf("%d tasks were taken in", got)
	}
}
