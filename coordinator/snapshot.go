package coordinator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// What an attempt changes in a git checkout is seen against a snapshot, a commit that
// git makes of the tracked files before the agent's first turn and that no branch
// has. Of the files that were not tracked then only the names are kept: that one was
// changed or is gone goes unseen. Where there is no git, or it takes too long, nothing
// is said.

const (
	snapshotName = "snapshot" // in a run's directory: the commit that its attempt began from, where that is, and what was not tracked
	gitLimit     = 30 * time.Second
	mostDiff     = 4 << 20 // bytes of a diff that are looked at
)

// gitCommand runs no program that the checkout names, but for filters of its
// attributes, without which git knows no file's content, and waits for nobody.
const gitCommand = "GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 " +
	"git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.quotePath=false -c diff.relative=false "

// untracked lists what is not tracked. $d is the directory of the command's files.
const untracked = gitCommand + `ls-files --others --exclude-standard >"$d/untracked" && LC_ALL=C sort "$d/untracked"`

// snapshotCommand takes HEAD where nothing differs from it. What stash create says of
// that, and of a trouble, is the same.
const snapshotCommand = "s=$(" + gitCommand + `stash create)
[ -n "$s" ] || { ` + gitCommand + `diff --no-ext-diff --no-textconv --ignore-submodules=all --quiet HEAD -- && s=$(` + gitCommand + `rev-parse --verify HEAD); } || exit 1
printf '%s\n' "$s"
` + untracked

// diffCommand shows new files too, by a copy of the index that is told of them: an
// agent seldom adds a file, and may not be able to.
const diffCommand = `cp "$(` + gitCommand + `rev-parse --git-path index)" "$d/index" && GIT_INDEX_FILE=$d/index && export GIT_INDEX_FILE && ` + untracked + ` >"$d/now" &&
tail -n +3 %[1]s | LC_ALL=C comm -13 - "$d/now" | grep -v '/"\{0,1\}$' | ` + gitCommand + `--literal-pathspecs add --intent-to-add --pathspec-from-file=- &&
` + gitCommand + `diff --no-ext-diff --no-textconv --no-color --ignore-submodules=all --relative -M --src-prefix=a/ --dst-prefix=b/ %[3]s %[2]s -- .
code=$?; rm -f "$d/index"; exit $code`

// How a diff is shown.
const (
	allLines  = "-U0"
	fileSizes = "--stat=100"
)

var (
	commitForm   = exactly(`\A[0-9a-f]{40,64}\n`)
	snapshotForm = exactly(`\A([0-9a-f]{40,64})\n(".*")\n`)
)

// snapshot makes the snapshot of an attempt that begins, or that goes on in another
// workspace.
func (c *Coordinator) snapshot(r *run, t *state.Task) {
	commit, of := c.snapshotOf(r.id)
	made := commit == "" && t.Iteration > 1 || of == strconv.Quote(t.Workspace)
	if made || !task.HasVerify(t) || c.cfg.Shell == nil || !isCheckout(repositoryRoot(t.Workspace)) {
		return
	}
	text, err := c.git(r, t, "git-snapshot", snapshotCommand)
	if err == nil && !commitForm().MatchString(text) {
		err = errors.New("git gave no commit")
	}
	if err == nil {
		commit, untracked, _ := strings.Cut(text, "\n")
		err = c.keepSnapshot(r.id, commit+"\n"+strconv.Quote(t.Workspace)+"\n"+untracked)
	}
	if err != nil {
		c.log.Info("no snapshot of the checkout: whether tests are weakened is not looked at", "task", t.ID, "error", err)
	}
}

// snapshotOf gives the commit of the snapshot in a run's directory, and the quoted
// workspace that it is of; "" if there is none.
func (c *Coordinator) snapshotOf(runID string) (commit, of string) {
	data, err := durable.ReadFile(durable.OS, filepath.Join(c.RunDir(runID), snapshotName))
	parts := snapshotForm().FindStringSubmatch(string(data))
	if err != nil || parts == nil {
		return "", ""
	}
	return parts[1], parts[2]
}

func (c *Coordinator) keepSnapshot(runID, text string) error {
	dir := c.RunDir(runID)
	if err := c.makeDir(dir); err != nil {
		return err
	}
	return durable.PutFile(filepath.Join(dir, snapshotName), []byte(text))
}

// carrySnapshot hands the snapshot of a run on to the one that follows it.
func (c *Coordinator) carrySnapshot(from, to string) {
	text, err := durable.ReadFile(durable.OS, filepath.Join(c.RunDir(from), snapshotName))
	if err != nil || from == "" {
		return
	}
	if err := c.keepSnapshot(to, string(text)); err != nil {
		c.trouble("the snapshot of a checkout could not be kept", err)
	}
}

// changes gives what the attempt of a run has changed, "" where that is not known.
func (c *Coordinator) changes(r *run, t *state.Task, shown string) string {
	commit, of := c.snapshotOf(r.id)
	if of != strconv.Quote(t.Workspace) || !task.HasVerify(t) || c.cfg.Shell == nil {
		return ""
	}
	diff, err := c.git(r, t, "git-diff", fmt.Sprintf(diffCommand, shellQuote(filepath.Join(c.RunDir(r.id), snapshotName)), commit, shown))
	if err != nil {
		c.log.Info("the changes of a checkout are not known", "task", t.ID, "error", err)
	}
	return diff
}

// git runs a command of git in the task's workspace, under the supervisor as a verify
// command, and gives what it prints.
func (c *Coordinator) git(r *run, t *state.Task, name, command string) (string, error) {
	dir := filepath.Join(c.RunDir(r.id), name)
	err := os.RemoveAll(dir) // the shell would write through what the run has put there
	if err == nil {
		err = c.makeDir(dir)
	}
	if err != nil {
		return "", err
	}
	out, code := filepath.Join(dir, "out"), filepath.Join(dir, "code")
	res := c.cfg.Shell.Verify(r.ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.id, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: dir, Workspace: t.Workspace, Timeout: gitLimit, Grace: c.cfg.Grace,
		Command: fmt.Sprintf("d=%s; { ( %s\n); echo $? >%s; } | head -c %d >%s", shellQuote(dir), command, shellQuote(code), mostDiff, shellQuote(out)),
	})
	if res.Class != "" || res.ExitCode != 0 {
		return "", errors.New(res.Error)
	}
	text, err := durable.ReadFile(durable.OS, out)
	if err == nil && len(text) == mostDiff {
		return "", fmt.Errorf("git prints more than the %d bytes that are looked at", mostDiff)
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
