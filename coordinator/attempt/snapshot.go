package attempt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// What an attempt changes in a git checkout is seen by comparing two trees of git: one
// from before the agent's first turn, one from after its last. They hold the tracked
// files and those that came new in the attempt. Files that were not tracked before are
// the user's: their content is not copied, so a change in them is not seen. Without git,
// or if it takes too long, nothing is known of the changes.

const (
	snapshotName = "snapshot" // in a run's directory: see snapshot
	gitLimit     = 30 * time.Second
	mostChanges  = 4 << 20 // bytes of git's output that are read
)

// gitCommand runs no program that the checkout names, but for filters of its
// attributes, without which git does not know the content of a file, and waits for
// nobody.
const gitCommand = "GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 " +
	"git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.quotePath=false -c diff.relative=false "

// treeCommand prints the id of the checkout's tree and the names of the files that are
// not tracked. The command %s writes the names of those that the tree leaves out. All is
// done with a copy of the index, so the user's stays as it is. $d is the directory of the
// command's files.
const treeCommand = `i=$(` + gitCommand + `rev-parse --git-path index) && { [ ! -e "$i" ] || cp -p "$i" "$d/index"; } && GIT_INDEX_FILE=$d/index && export GIT_INDEX_FILE &&
` + gitCommand + `ls-files --others --exclude-standard >"$d/others" && LC_ALL=C sort "$d/others" >"$d/untracked" && %s >"$d/known" &&
{ ` + gitCommand + `diff-files --name-only --relative --ignore-submodules=all && LC_ALL=C comm -13 "$d/known" "$d/untracked"; } >"$d/changed" &&
` + gitCommand + `update-index --add --remove --stdin <"$d/changed" && ` + gitCommand + `write-tree --missing-ok && cat "$d/untracked"
code=$?; rm -f "$d/index"; exit $code`

// changesCommand compares two trees.
const changesCommand = gitCommand + `diff --no-ext-diff --no-textconv --no-color --ignore-submodules=all --relative -M %s %s %s -- .`

// A snapshot is what is known of the checkout of an attempt: the ids of its trees, the
// workspace that they are of, and the names of the files that were not tracked before,
// as git quotes and sort orders them. Each run of the attempt has it in its directory.
type snapshot struct{ before, after, workspace, untracked string }

var (
	treeForm     = regexp.MustCompile(`\A[0-9a-f]{40,64}\n`)
	snapshotForm = regexp.MustCompile(`\A([0-9a-f]{40,64}) ([0-9a-f]{40,64})?\n(".*")\n`)
)

// untrackedLine is the line of a snapshot's file where the names begin.
const untrackedLine = 3

// String returns the text that snapshotOf reads.
func (s *snapshot) String() string {
	return s.before + " " + s.after + "\n" + strconv.Quote(s.workspace) + "\n" + s.untracked
}

// snapshotOf reads the snapshot in a run's directory. ok is false if there is none.
func (a *Attempts) snapshotOf(runID string) (s snapshot, ok bool) {
	data, err := durable.ReadFile(durable.OS, filepath.Join(a.tasks.RunDir(runID), snapshotName))
	parts := snapshotForm.FindStringSubmatch(string(data))
	if err != nil || parts == nil {
		return s, false
	}
	s = snapshot{before: parts[1], after: parts[2], untracked: string(data)[len(parts[0]):]}
	s.workspace, err = strconv.Unquote(parts[3])
	return s, err == nil
}

func (a *Attempts) keepSnapshot(runID string, s *snapshot) error {
	dir := a.tasks.RunDir(runID)
	if err := a.tasks.MakeDir(dir); err != nil {
		return err
	}
	return durable.PutFile(filepath.Join(dir, snapshotName), []byte(s.String()))
}

// carrySnapshot copies the snapshot of a run to the one that follows it in the attempt.
func (a *Attempts) carrySnapshot(from, to string) {
	s, ok := a.snapshotOf(from)
	if from == "" || !ok {
		return
	}
	if err := a.keepSnapshot(to, &s); err != nil {
		a.tasks.Trouble("the snapshot of a checkout could not be kept", err)
	}
}

// noteTree notes the id of the checkout's tree in the snapshot of an attempt: before its
// first turn, or in another workspace than until then, as the tree before, and at its end
// as the tree after. It reports whether the snapshot has both. A checkout is looked at
// only for a task with a verify command.
func (a *Attempts) noteTree(r *Run, t *state.Task, atEnd bool) (s snapshot, ok bool) {
	s, has := a.snapshotOf(r.ID)
	current := has && s.workspace == t.Workspace
	done := current || !has && t.Iteration > 1 // its beginning was missed
	if atEnd {
		done = !current
	}
	if done || !task.HasVerify(t) || a.tasks.Config.Shell == nil || !admission.IsCheckout(admission.RepositoryRoot(t.Workspace)) {
		return s, false
	}
	name, known := "git-before", `cat "$d/untracked"`
	if atEnd {
		name, known = "git-after", fmt.Sprintf("tail -n +%d %s", untrackedLine, shellQuote(filepath.Join(a.tasks.RunDir(r.ID), snapshotName)))
	}
	text, err := a.git(r, t, name, fmt.Sprintf(treeCommand, known))
	if err == nil && !treeForm.MatchString(text) {
		err = errors.New("git printed no tree")
	}
	if err == nil {
		tree, untracked, _ := strings.Cut(text, "\n")
		if atEnd {
			s.after = tree
		} else {
			s = snapshot{before: tree, workspace: t.Workspace, untracked: untracked}
		}
		err = a.keepSnapshot(r.ID, &s)
	}
	if err != nil {
		a.tasks.Config.Log.Info("the changes of a checkout are not known", "task", t.ID, "error", err)
	}
	return s, err == nil && atEnd
}

// compare returns the difference of a snapshot's trees, in the form that option asks git
// for. ok is false if it is not known.
func (a *Attempts) compare(r *Run, t *state.Task, s *snapshot, option string) (text string, ok bool) {
	if s.workspace != t.Workspace || s.after == "" || a.tasks.Config.Shell == nil {
		return "", false
	}
	text, err := a.git(r, t, "git-diff", fmt.Sprintf(changesCommand, option, s.before, s.after))
	if err != nil {
		a.tasks.Config.Log.Info("the changes of a checkout are not known", "task", t.ID, "error", err)
	}
	return text, err == nil
}

// git runs a command of git in the task's workspace, under the supervisor as a verify
// command, and returns what it prints.
func (a *Attempts) git(r *Run, t *state.Task, name, command string) (string, error) {
	dir := filepath.Join(a.tasks.RunDir(r.ID), name)
	err := os.RemoveAll(dir) // the shell would write through what the run has put there
	if err == nil {
		err = a.tasks.MakeDir(dir)
	}
	if err != nil {
		return "", err
	}
	out, code := filepath.Join(dir, "out"), filepath.Join(dir, "code")
	res := a.tasks.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: dir, Workspace: t.Workspace, Timeout: gitLimit, Grace: a.tasks.Config.Grace,
		Command: fmt.Sprintf("d=%s; { ( %s\n); echo $? >%s; } | head -c %d >%s", shellQuote(dir), command, shellQuote(code), mostChanges, shellQuote(out)),
	})
	if res.Class != "" || res.ExitCode != 0 {
		return "", errors.New(res.Error)
	}
	text, err := durable.ReadFile(durable.OS, out)
	if err == nil && len(text) == mostChanges {
		return "", fmt.Errorf("git prints more than %d bytes", mostChanges)
	}
	ended, codeErr := durable.ReadFile(durable.OS, code)
	if err = errors.Join(err, codeErr); err == nil && strings.TrimSpace(string(ended)) != "0" {
		err = fmt.Errorf("git ended with exit code %s", strings.TrimSpace(string(ended)))
	}
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// shellQuote makes one word of a text for sh.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
