package coordinator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"stint/ledger/durable"
	"stint/state"
)

// What an attempt changes in a git checkout is seen against a snapshot, a commit that
// git makes of the tracked files before the agent's first turn and that no branch
// has. Files that were not tracked then are not in it: that one is gone goes unseen.
// Where there is no git, or it takes too long, nothing is said.

const (
	snapshotName = "snapshot" // in a run's directory: the commit that its attempt began from
	gitLimit     = 30 * time.Second
	mostDiff     = 4 << 20 // bytes of a diff that are looked at
)

// gitCommand runs no program that the checkout names, and waits for nobody.
const gitCommand = "GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.quotePath=false "

// snapshotCommand takes HEAD where nothing differs from it. What stash create says of
// that, and of a trouble, is the same.
const snapshotCommand = "s=$(" + gitCommand + `stash create)
[ -n "$s" ] || { ` + gitCommand + `diff --no-ext-diff --no-textconv --ignore-submodules=all --quiet HEAD -- && s=$(` + gitCommand + `rev-parse --verify HEAD); } || exit 1
printf '%s\n' "$s"`

const diffCommand = gitCommand + "diff --no-ext-diff --no-textconv --no-color --ignore-submodules=all -M -D -U0 --src-prefix=a/ --dst-prefix=b/ %s -- ."

var commitForm = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// snapshot makes the snapshot of an attempt that begins.
func (c *Coordinator) snapshot(r *run, t *state.Task) {
	if !hasVerify(t) || t.Iteration > 1 || t.Workspace == "" || c.cfg.Shell == nil || !isCheckout(repositoryRoot(t.Workspace)) || c.snapshotOf(r.id) != "" {
		return
	}
	text, err := c.git(r, t, "git-snapshot", snapshotCommand)
	commit := strings.TrimSpace(text)
	if err == nil && !commitForm.MatchString(commit) {
		err = errors.New("git gave no commit")
	}
	if err == nil {
		err = c.keepSnapshot(r.id, commit)
	}
	if err != nil {
		c.log.Info("no snapshot of the checkout: whether tests are weakened is not looked at", "task", t.ID, "error", err)
	}
}

// snapshotOf gives the snapshot in a run's directory, "" if there is none.
func (c *Coordinator) snapshotOf(runID string) string {
	data, err := os.ReadFile(filepath.Join(c.RunDir(runID), snapshotName))
	commit := strings.TrimSpace(string(data))
	if err != nil || !commitForm.MatchString(commit) {
		return ""
	}
	return commit
}

func (c *Coordinator) keepSnapshot(runID, commit string) error {
	dir := c.RunDir(runID)
	if err := os.MkdirAll(dir, durable.DirMode); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, snapshotName), []byte(commit+"\n"), durable.FileMode)
}

// carrySnapshot hands the snapshot of a run on to the one that follows it.
func (c *Coordinator) carrySnapshot(from, to string) {
	commit := c.snapshotOf(from)
	if from == "" || commit == "" {
		return
	}
	if err := c.keepSnapshot(to, commit); err != nil {
		c.trouble("the snapshot of a checkout could not be kept", err)
	}
}

// changes gives what the attempt of a run has changed, "" where that is not known.
func (c *Coordinator) changes(r *run, t *state.Task) string {
	commit := c.snapshotOf(r.id)
	if commit == "" || t.Workspace == "" || c.cfg.Shell == nil {
		return ""
	}
	diff, err := c.git(r, t, "git-diff", fmt.Sprintf(diffCommand, commit))
	if err != nil {
		c.log.Info("the changes of a checkout are not known", "task", t.ID, "error", err)
	}
	return diff
}

// git runs a command of git in the task's workspace, under the supervisor as a verify
// command, and gives what it prints.
func (c *Coordinator) git(r *run, t *state.Task, name, command string) (string, error) {
	dir := filepath.Join(c.RunDir(r.id), name)
	if err := os.MkdirAll(dir, durable.DirMode); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "out")
	res := c.cfg.Shell.Verify(r.ctx, VerifyRun{
		TaskID: t.ID, RunID: r.id, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: dir, Workspace: t.Workspace,
		Command: fmt.Sprintf("{ %s\n} | head -c %d >%s", command, mostDiff, shellQuote(out)), Timeout: gitLimit, Grace: c.cfg.Grace,
	})
	switch {
	case res.Class != "":
		return "", errors.New(res.Error)
	case res.ExitCode != 0:
		return "", fmt.Errorf("git ended with exit code %d", res.ExitCode)
	}
	text, err := os.ReadFile(out)
	return string(text), err
}

// shellQuote makes one word of a text for sh.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
