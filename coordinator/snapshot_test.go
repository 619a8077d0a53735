package coordinator_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// A gitWorld has a checkout with a test in it, runs the commands of git, and answers for verify commands.
type gitWorld struct {
	*world
	checks   []task.VerifyResult
	git      func(v task.VerifyRun) *task.VerifyResult // nil, or its result is: git runs
	gitCalls []string
}

const soundTest = "package calc\n\nfunc TestAdd(t *testing.T) {\n\tif add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n"

const gitCommit = "git -c user.name=ana -c user.email=ana@localhost commit -q"

func newGitWorld(t *testing.T) *gitWorld {
	w := &gitWorld{world: newWorld(t), checks: []task.VerifyResult{{}}}
	w.cfg.Shell, w.cfg.MaxIterations = w, 3
	w.write("calc_test.go", soundTest)
	w.run("git init -q && git add . && " + gitCommit + " -m start")
	return w
}

func (w *gitWorld) write(name, text string) {
	w.t.Helper()
	check(w.t, os.WriteFile(filepath.Join(w.work, name), []byte(text), 0o600))
}

func (w *gitWorld) run(command string) {
	w.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir = w.work
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func (w *gitWorld) Verify(ctx context.Context, v task.VerifyRun) task.VerifyResult {
	if v.Command == "make test" {
		res := w.checks[0]
		if len(w.checks) > 1 {
			w.checks = w.checks[1:]
		}
		return res
	}
	if v.Safe == "" {
		w.t.Error("git may be any program that a run has put there")
	}
	w.gitCalls = append(w.gitCalls, filepath.Base(v.RunDir))
	if w.git != nil {
		if res := w.git(v); res != nil {
			return *res
		}
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", v.Command)
	cmd.Dir = v.Workspace
	if err := cmd.Run(); err != nil {
		return task.VerifyResult{ExitCode: 1, Error: err.Error()}
	}
	return task.VerifyResult{}
}

// does makes the agent run one of these commands in each of its first turns.
func (w *gitWorld) does(commands ...string) {
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		if n := len(w.agent.turns); n <= len(commands) {
			w.run(commands[n-1])
		}
		return task.Outcome{Result: "Mended.", Session: "native-1"}
	}
}

func (w *gitWorld) verified(change func(*task.TaskSpec)) state.Task {
	w.t.Helper()
	spec := task.TaskSpec{Prompt: "Mend it.", VerifyCommand: "make test"}
	if change != nil {
		change(&spec)
	}
	return w.wait(w.submit(spec).ID)
}

func kinds(t state.Task) string {
	var list []string
	for _, f := range t.Findings {
		list = append(list, f.Kind)
	}
	return strings.Join(list, " ")
}

var failedCheck = task.VerifyResult{ExitCode: 1, Error: "the verify command ended with exit code 1"}

// TestDeletedTestsAreFound in any iteration and any attempt, against the beginning of
// the task; what the user had changed before is no agent's doing.
func TestDeletedTestsAreFound(t *testing.T) {
	t.Parallel()
	const once, twice = "git-before git-after", "git-before git-after git-after"
	for name, c := range map[string]struct {
		does        []string
		checks      []task.VerifyResult
		spec        func(*task.TaskSpec)
		want, calls string
	}{
		"honest":            {nil, []task.VerifyResult{{}}, nil, "", once},
		"in the first turn": {[]string{"rm calc_test.go"}, []task.VerifyResult{failedCheck, {}}, nil, "tests-deleted", once},
		"in the last turn":  {[]string{"", "rm calc_test.go"}, []task.VerifyResult{failedCheck, {}}, nil, "tests-deleted", once},
		"never passed":      {[]string{"rm calc_test.go"}, []task.VerifyResult{failedCheck}, nil, "tests-deleted", once},
		"second attempt": {
			[]string{"rm calc_test.go"},
			[]task.VerifyResult{failedCheck, failedCheck, failedCheck, {}},
			func(s *task.TaskSpec) { s.MaxAttempts = 2 }, "tests-deleted", twice,
		},
		"no verify command": {[]string{"rm calc_test.go"}, nil, func(s *task.TaskSpec) { s.VerifyCommand = "" }, "", once},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitWorld(t)
			w.write("other_test.go", soundTest)
			w.run("git add . && " + gitCommit + " -m more && rm other_test.go") // by the user, not committed
			w.does(c.does...)
			if c.checks != nil {
				w.checks = c.checks
			}
			w.open()
			got := w.verified(c.spec)
			if kinds(got) != c.want || strings.Join(w.gitCalls, " ") != c.calls {
				t.Errorf("the findings are %v, git was called for %v", got.Findings, w.gitCalls)
			}
			w.run("git status --porcelain >status && grep -q '^ D other_test.go' status && test -z \"$(git stash list)\"") // all is as it was
		})
	}
}

// TestSnapshotSurvivesACrash: the attempt that goes on is looked at from where it began.
func TestSnapshotSurvivesACrash(t *testing.T) {
	t.Parallel()
	w := newGitWorld(t)
	begun := make(chan struct{})
	w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		w.run("rm calc_test.go")
		close(begun)
		<-ctx.Done()
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	}
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "Mend it.", VerifyCommand: "make test"}).ID
	<-begun
	next := newGitWorld(t)
	next.copies(w.world)
	w.close()
	next.does()
	next.open()
	got := next.wait(id)
	next.close()
	if kinds(got) != "tests-deleted" || strings.Join(next.gitCalls, " ") != "git-after" {
		t.Errorf("the findings are %v, git was called for %v", got.Findings, next.gitCalls)
	}
	// Whoever queues a task again begins anew: the tests may be another's by now.
	next.open()
	if _, err := next.c.Retry(t.Context(), id, "client"); err != nil {
		t.Fatal(err)
	}
	if got = next.wait(id); kinds(got) != "" {
		t.Errorf("after a retry by hand: %v", got.Findings)
	}
	next.close()
}

// TestGitDoesNoHarm: without git, with a slow one, and with a checkout that names
// programs, the task ends as it does, and none of them is run.
func TestGitDoesNoHarm(t *testing.T) {
	t.Parallel()
	slow := task.VerifyResult{Class: state.ClassTimeout, ExitCode: -1, Error: "too long"}
	for name, c := range map[string]struct {
		setup string
		git   func(v task.VerifyRun) *task.VerifyResult
		want  string
	}{
		"no git":    {"rm -rf .git", nil, ""},
		"no commit": {"rm -rf .git && git init -q", nil, "tests-deleted"},
		"slow":      {"", func(task.VerifyRun) *task.VerifyResult { return &slow }, ""},
		"slow at the end": {"", func(v task.VerifyRun) *task.VerifyResult {
			return map[bool]*task.VerifyResult{true: &slow}[strings.Contains(v.Command, " diff ")]
		}, ""},
		"broken": {"echo x >.git/HEAD", nil, ""},
		"programs": {
			`touch ../tool && chmod +x ../tool && t=$(cd .. && pwd)/tool && printf "#!/bin/sh\ntouch $t.ran\n" >../tool
			git config core.fsmonitor "$t" && git config diff.external "$t" && git config core.pager "$t" && git config diff.x.textconv "$t" && echo '*.go diff=x' >.git/info/attributes &&
			touch -t 202001010000 calc_test.go && for h in post-index-change pre-commit reference-transaction post-checkout; do cp "$t" .git/hooks/$h; done`, nil, "tests-deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitWorld(t)
			if c.setup != "" {
				w.run(c.setup)
			}
			w.git = c.git
			w.does("rm calc_test.go")
			w.open()
			got := w.verified(nil)
			w.expect(got, state.Done, "")
			w.close()
			if kinds(got) != c.want {
				t.Errorf("the findings are %v", got.Findings)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(w.work), "tool.ran")); err == nil {
				t.Error("a program that the checkout names was run")
			}
		})
	}
}

// TestChangesOfAnAttempt: agents seldom add a file to git, and what they moved is not gone.
// A verified task that changed nothing has a note.
func TestChangesOfAnAttempt(t *testing.T) {
	t.Parallel()
	const nothing = "the attempt changed no file"
	const subdirs = "mkdir sub other && cp calc_test.go sub && cp calc_test.go other && git add . && " + gitCommit + " -m sub"
	for name, c := range map[string]struct{ before, does, finding, note, in string }{
		"changed":               {"", "echo >>calc_test.go", "", "", ""},
		"moved":                 {"", "mkdir sub && mv calc_test.go sub/calc_test.go", "", "", ""},
		"moved into a new file": {"", "mv calc_test.go more_test.go; echo package calc >calc_test.go", "", "", ""},
		"renamed away":          {"", "mv calc_test.go calc_test.go.off", "tests-deleted", "", ""},
		"gone":                  {"", "rm calc_test.go", "tests-deleted", "", ""},
		"gone and committed":    {"", "git rm -q calc_test.go && " + gitCommit + " -m gone", "tests-deleted", "", ""},
		"a new file":            {"", "echo package calc >calc.go", "", "", ""},
		"a strange new file":    {"", "echo x >\"$(printf 'a\\nb \"é')\"", "", "", ""},
		"a new directory":       {"", "mkdir -p 'a b/:(top)*' && echo x >'a b/:(top)*/y.go'", "", "", ""},
		"nothing":               {"", "touch -t 202001010000 calc_test.go", "", nothing, ""},
		"untracked before":      {"echo x >calc.go; echo x >'a \"b\" é.go'; echo x >\"$(printf 'a\\nb')\"; git init -q nested; echo x >nested/y", "echo y >>calc.go", "", "", ""},
		"a new repository":      {"", "git init -q 'nested é'; echo x >'nested é/y'", "", nothing, ""},
		"ignored":               {"echo '*.log' >.gitignore && git add . && " + gitCommit + " -m i", "echo x >a.log", "", nothing, ""},
		"changed before":        {"echo >>calc_test.go", "", "", nothing, ""},
		"no commit yet":         {"rm -rf .git && git init -q", "rm calc_test.go", "tests-deleted", "", ""},
		"in the index alone":    {"rm -rf .git && git init -q && git add .", "rm calc_test.go", "tests-deleted", "", ""},
		"gone from a directory": {subdirs, "rm sub/calc_test.go", "tests-deleted", "", ""},
		"gone from the part":    {subdirs, "rm sub/calc_test.go", "tests-deleted", "", "sub"},
		"gone from another":     {subdirs, "rm sub/calc_test.go", "", nothing, "other"}, // for which the task does not answer
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitWorld(t)
			w.run(c.before)
			w.does(c.does + "\ngit status --porcelain >../before")
			w.open()
			got := w.verified(func(s *task.TaskSpec) { s.Workspace = filepath.Join(w.work, c.in) })
			w.close()
			if kinds(got) != c.finding || got.Note != c.note {
				t.Errorf("the findings are %v, the note is %q", got.Findings, got.Note)
			}
			w.run("git status --porcelain | cmp - ../before && test -z \"$(git stash list)\"")
			if left, err := filepath.Glob(filepath.Join(w.dir, "runs", "*", "git-*", "index")); err != nil || len(left) > 0 {
				t.Errorf("copies of the index are left: %v, %v", left, err)
			}
		})
	}
}

// TestUnknownChangesAreNoted at the task and in the log, and are not taken for none.
func TestUnknownChangesAreNoted(t *testing.T) {
	t.Parallel()
	for does, note := range map[string]string{
		"rm -rf .git/objects/* && git init -q && rm calc_test.go":                    "git ended with exit code",
		"mv .git ../moved && git -C .. init -q && git -C .. add . && rm -r ../moved": "the top of the checkout was",
	} {
		t.Run(note, func(t *testing.T) {
			w := newGitWorld(t)
			w.write("calc.go", "package calc\n")
			w.run("git add .") // so that the snapshot is a commit of its own
			log := &lines{}
			w.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			w.does(does)
			w.open()
			got := w.verified(nil)
			w.close()
			if kinds(got) != "" || got.Changes != nil || !strings.Contains(got.Note, "what it changed is not known: "+note) || !strings.Contains(log.String(), "the changes of a checkout are not known") {
				t.Errorf("logged: %s, task: %+v", log, got)
			}
		})
	}
}

// TestSnapshotOfALaterIteration: a turn that had to wait goes on from the snapshot of the first one, also
// with another prompt, and a run that never began leaves nothing. In another checkout it has one of its own.
func TestSnapshotOfALaterIteration(t *testing.T) {
	t.Parallel()
	for why, deletes := range map[string]int{"first turn limited": 1, "cools down": 2, "limited": 2, "reworded": 1, "moved": 2, "moved and reworded": 2} {
		t.Run(why, func(t *testing.T) {
			limited := strings.HasSuffix(why, "limited")
			w := newGitWorld(t)
			w.checks = []task.VerifyResult{failedCheck, {}}
			if why == "first turn limited" {
				w.checks = w.checks[1:]
			}
			turns := 0
			w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
				if turns++; turns == deletes {
					w.run("rm calc_test.go")
					if limited {
						return task.Outcome{Class: state.ClassRateLimited, ExitCode: -1, Session: "native-1", RetryAt: time.Now()}
					}
				}
				return task.Outcome{Result: "Mended.", Session: "native-1"}
			}
			w.cfg.Shell = &fakeShell{do: func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				if v.Command != "make test" || turns != 1 || limited {
					return w.Verify(ctx, v)
				}
				if strings.Contains(why, "moved") {
					w.work = newGitWorld(t).work
					w.run(gitCommit + " --amend --reset-author -m other")
					w.reconcile("## Task %s\n- workspace: %s\n", v.TaskID, w.work)
				}
				if strings.Contains(why, "reworded") {
					w.reconcile("## Task %s\n- prompt: do that\n", v.TaskID)
				}
				w.reconcile("## Control account:demo\n- coolUntil: %s\n", state.FormatTime(time.Now().Add(100*time.Millisecond)))
				return w.Verify(ctx, v)
			}}
			w.open()
			got := w.verified(nil)
			w.close()
			if kinds(got) != "tests-deleted" {
				t.Errorf("the findings are %v", got.Findings)
			}
			if dirs, err := os.ReadDir(filepath.Join(w.dir, "runs")); err != nil || len(dirs) != len(got.Steps) {
				t.Errorf("%d directories for %d runs, %v", len(dirs), len(got.Steps), err)
			}
		})
	}
}

// TestAloneInACheckout: who writes there waits while an attempt is at work, whose changes that would be. A
// question about a note changes nothing.
func TestAloneInACheckout(t *testing.T) {
	t.Parallel()
	w := newGitWorld(t)
	notes := func() { w.write("notes.md", "- a note\n") }
	var question, during, elsewhere bool
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		switch {
		case turn.ReadOnly:
			question = w.c.Attempts.Alone(w.work, notes)
		case turn.Attempt == 1:
			during, elsewhere = w.c.Attempts.Alone(w.work, notes), w.c.Attempts.Alone(w.dir, func() {})
		}
		w.run("echo x >new.go")
		return task.Outcome{Result: "Done.", Session: "native-1"}
	}
	w.open()
	w.wait(w.submit(task.TaskSpec{Prompt: task.NoteQuestion}).ID)
	got := w.wait(w.submit(task.TaskSpec{Prompt: "p"}).ID)
	after := w.c.Attempts.Alone(w.work, notes)
	w.close()
	if !question || during || !elsewhere || !after || got.Changes == nil || got.Changes.Uncertain {
		t.Errorf("question %v, during %v, elsewhere %v, after %v, %+v", question, during, elsewhere, after, got.Changes)
	}
}

// TestARunsOwnCheckoutIsShared: what a child changes in a checkout that the run has made in its own one is
// uncertain, while a person's task in a checkout within another one is alone.
func TestARunsOwnCheckoutIsShared(t *testing.T) {
	t.Parallel()
	for _, byRun := range []bool{true, false} {
		w := newGitWorld(t)
		w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = 2, 3
		var child state.Task
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			if turn.TaskID != taskID(1) {
				w.run("echo x >sub/new.go")
				return task.Outcome{Result: "Done.", Session: "native-2"}
			}
			w.run("git init -q sub")
			spec := task.TaskSpec{Prompt: "child", Parallel: true, Workspace: filepath.Join(w.work, "sub")}
			if byRun {
				spec.FromRun = turn.RunID
			}
			child = w.wait(w.submit(spec).ID)
			return task.Outcome{Result: "Done.", Session: "native-1"}
		}
		w.open()
		w.wait(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "parent"}).ID)
		w.close()
		if child.Changes == nil || child.Changes.Files != 1 || child.Changes.Uncertain != byRun {
			t.Errorf("from a run: %v, its changes are %+v", byRun, child.Changes)
		}
	}
}

// TestJudgeSeesWhatChanged, by the names and sizes of files.
func TestJudgeSeesWhatChanged(t *testing.T) {
	t.Parallel()
	w := newGitWorld(t)
	w.cfg.EvalPrompt = "Judge it."
	var told string
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		if turn.Schema != "" {
			text, err := os.ReadFile(turn.Prompt)
			told = fmt.Sprint(string(text), err)
			return task.Outcome{Result: `{"findings":[]}`}
		}
		w.write("calc.go", "package calc\n")
		return task.Outcome{Result: "Mended.", Session: "native-1"}
	}
	w.open()
	w.verified(nil)
	w.close()
	if !strings.Contains(told, "\n## Changed files\n\n> added calc.go +1 -0\n") {
		t.Errorf("the evaluator is told:\n%s", told)
	}
}

// A linkingShell lets verify commands put links where git's output will be written.
type linkingShell struct {
	*gitWorld
	to string
}

func (s linkingShell) Verify(ctx context.Context, v task.VerifyRun) task.VerifyResult {
	if v.Command == "make test" {
		dir := filepath.Join(v.RunDir, "git-after")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			s.t.Error(err)
		}
		for _, name := range []string{"out", "code", "others", "kept", "small", "large", "had", "entries", "changed", "index"} {
			if err := os.Symlink(s.to, filepath.Join(dir, name)); err != nil {
				s.t.Error(err)
			}
		}
	}
	return s.gitWorld.Verify(ctx, v)
}

// TestGitWritesThroughNoLink: what a verify command has put into the directory of git's
// files is not written to, and does not hide that tests were deleted.
func TestGitWritesThroughNoLink(t *testing.T) {
	t.Parallel()
	w := newGitWorld(t)
	canary := filepath.Join(t.TempDir(), "canary")
	write(t, canary, "unchanged")
	w.cfg.Shell = linkingShell{w, canary}
	w.does("rm calc_test.go")
	w.open()
	got := w.verified(nil)
	w.close()
	if text, err := os.ReadFile(canary); string(text) != "unchanged" || err != nil || kinds(got) != "tests-deleted" {
		t.Errorf("%q, %v; findings: %s", text, err, kinds(got))
	}
}
