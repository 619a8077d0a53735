package attempt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/checkout"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// What an attempt changes in a git checkout is seen by two snapshots, from before the agent's first turn and
// after its last. Without git, or if it takes too long, nothing is known of the changes.

const (
	snapshotName = "snapshot" // in a run's directory: see snapshot
	gitLimit     = 30 * time.Second
	mostChanges  = 32 << 20 // bytes of git's output that are read
	maxFiles     = 100      // changed files that stand in the ledger
	maxCheckouts = 1000     // of which it is known who came last
)

// A snapshot is an attempt's checkout at its beginning. Each run of the attempt has it in its directory.
type snapshot struct {
	Name      string `json:"name"` // under which git keeps the trees
	Workspace string `json:"workspace"`
	Root      string `json:"root"`   // top of the checkout
	Before    string `json:"before"` // the tree
	Shared    bool   `json:"shared"` // another task was at work in the checkout
}

// snapshotOf reads the snapshot in a run's directory. ok is false if there is none.
func (a *Attempts) snapshotOf(runID string) (s snapshot, ok bool) {
	data, err := durable.ReadFile(durable.OS, filepath.Join(a.tasks.RunDir(runID), snapshotName))
	return s, err == nil && json.Unmarshal(data, &s) == nil && state.IsTree(s.Before)
}

func (a *Attempts) keepSnapshot(runID string, s *snapshot) {
	text, _ := json.Marshal(s) // texts and a bool: nothing can be wrong
	err := a.tasks.MakeDir(a.tasks.RunDir(runID))
	if err == nil {
		err = durable.PutFile(filepath.Join(a.tasks.RunDir(runID), snapshotName), text)
	}
	a.tasks.TroubleUnlessStopped("the snapshot of a checkout could not be kept", err)
}

// carrySnapshot copies the snapshot of a run to the one that follows it in the attempt.
func (a *Attempts) carrySnapshot(from, to string) {
	if s, ok := a.snapshotOf(from); from != "" && ok {
		a.keepSnapshot(to, &s)
	}
}

// noteTree makes the snapshot before the first turn of an attempt, or of a task that has moved elsewhere.
func (a *Attempts) noteTree(r *Run, t *state.Task) {
	root := task.RepositoryRoot(t.Workspace)
	s, has := a.snapshotOf(r.ID)
	onlyReads := strings.HasPrefix(t.Prompt, task.NoteQuestion) // what changes is another's work
	if a.tasks.Config.Shell == nil || a.tasks.Config.IsTemp(t.Workspace) || !task.IsCheckout(root) || onlyReads {
		return
	}
	isCurrent := has && s.Workspace == t.Workspace
	shared := a.beside.enter(task.RepositoryRoot(t.Place()), t.ID, !isCurrent)
	switch {
	case isCurrent && shared:
		s.Shared = true
		a.keepSnapshot(r.ID, &s)
		return
	case isCurrent || !has && t.Iteration > 1: // its beginning was missed
		return
	}
	s = snapshot{Name: r.ID, Workspace: t.Workspace, Root: root, Shared: shared}
	var err error
	if s.Before, _, err = a.git(r.Ctx, r, t, root, "git-before", func(p *checkout.Place) string { return p.Begin(s.Name) }); err == nil {
		a.keepSnapshot(r.ID, &s)
	}
}

// noteChanges makes the snapshot after the last turn of an attempt, and returns what has changed; nil if that is not known.
func (a *Attempts) noteChanges(r *Run, t *state.Task) (c *state.Changes, files []state.FileChange) {
	s, has := a.snapshotOf(r.ID)
	if !has || s.Workspace != t.Workspace || a.tasks.Config.Shell == nil {
		return nil, nil
	}
	ctx := context.WithoutCancel(r.Ctx) // what a run has changed that was canceled counts too
	found, rest, err := a.git(ctx, r, t, s.Root, "git-after", func(p *checkout.Place) string { return p.End(s.Name, s.Before) })
	shared := a.beside.leave(t.ID)
	if err != nil {
		return nil, nil
	}
	files = checkout.ParseChanges(a.tasks.Config.Redact.String(rest))
	c = &state.Changes{Files: len(files), Uncertain: s.Shared || shared, Before: s.Before, After: found}
	for _, f := range files {
		c.Added += f.Added
		c.Removed += f.Removed
	}
	return c, files
}

// git makes a snapshot of the checkout with that top, under the supervisor as a verify command. It
// returns the id on the first line of what that prints, and the rest.
func (a *Attempts) git(ctx context.Context, r *Run, t *state.Task, root, name string, command func(*checkout.Place) string) (tree, rest string, err error) {
	dir := filepath.Join(a.tasks.RunDir(r.ID), name)
	kept := filepath.Join(a.tasks.Config.StateDir, queue.CheckoutsName, fmt.Sprintf("%x", sha256.Sum256([]byte(t.Workspace)))[:16])
	defer func() {
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			a.tasks.Config.Log.Info("the changes of a checkout are not known", "task", t.ID, "error", err)
			r.note = cmp.Or(r.note, "what it changed is not known: "+err.Error())
		}
	}()
	if now := task.RepositoryRoot(t.Workspace); now != root { // the trees of two checkouts cannot be compared
		return "", "", fmt.Errorf("the top of the checkout was %s and is now %s", root, now)
	}
	text := ""
	if err = a.tasks.MakeDir(kept); err == nil {
		text, err = a.shell(ctx, r, t, t.Workspace, root, name, gitLimit)(command(&checkout.Place{Root: root, Dir: dir, Kept: kept}), "")
	}
	tree, rest, _ = strings.Cut(text, "\n")
	if err == nil && !state.IsTree(tree) {
		err = errors.New("git printed no tree")
	}
	return tree, rest, err
}

// shell returns what runs git for a run under the supervisor, as a verify command, in a directory of the checkout with that root. The
// directory of that name in the run's is there while a command runs, and stays.
func (a *Attempts) shell(ctx context.Context, r *Run, t *state.Task, work, root, name string, limit time.Duration) checkout.Shell {
	dir := filepath.Join(a.tasks.RunDir(r.ID), name)
	return func(command, stdin string) (string, error) {
		err := os.RemoveAll(dir) // the shell would write through what the run has put there
		if err == nil {
			err = a.tasks.MakeDir(dir)
		}
		in, out, code := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "code")
		if err == nil {
			err = durable.PutFile(in, []byte(stdin))
		}
		if err != nil {
			return "", err
		}
		res := a.tasks.Config.Shell.Verify(ctx, task.VerifyRun{
			TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: dir, Workspace: work, Timeout: limit, Grace: a.tasks.Config.Grace,
			Safe: root, Command: fmt.Sprintf("{ ( %s\n) <%s; echo $? >%s; } | head -c %d >%s", command, state.ShellQuote(in), state.ShellQuote(code), mostChanges, state.ShellQuote(out)),
		})
		if res.Class != "" || res.ExitCode != 0 {
			return "", errors.New(strings.ReplaceAll(res.Error, "the verify command", "git"))
		}
		text, err := durable.ReadFile(durable.OS, out)
		if err == nil && len(text) == mostChanges {
			return "", fmt.Errorf("git prints more than %d bytes", mostChanges)
		}
		ended, codeErr := durable.ReadFile(durable.OS, code)
		if err = errors.Join(err, codeErr); err == nil && strings.TrimSpace(string(ended)) != "0" {
			err = fmt.Errorf("git ended with exit code %s: %s", strings.TrimSpace(string(ended)), strings.TrimSpace(res.Output))
		}
		return string(text), err
	}
}

// beside knows which tasks are at work in a checkout, and which was there last.
type beside struct {
	mu   sync.Mutex        // guards what follows
	open map[string]string // by task whose attempt is at work: its checkout
	last map[string]string // by checkout, the task that came last; of maxCheckouts at most
}

// enter notes that a turn of a task begins in a checkout, and reports whether another task is at work there
// or, unless this is the first turn of an attempt, has come since the turn before.
func (b *beside) enter(root, id string, isFirst bool) (shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.last) > maxCheckouts {
		open := slices.Collect(maps.Values(b.open))
		maps.DeleteFunc(b.last, func(root, _ string) bool { return !slices.Contains(open, root) })
	}
	shared = !isFirst && b.last[root] != "" && b.last[root] != id
	b.last[root], b.open[id] = id, root
	for other, at := range b.open {
		shared = shared || other != id && at == root
	}
	return shared
}

// Alone calls do while no attempt is at work in the checkout of a workspace, and none begins; ok is false if one
// is. To an attempt that goes on there later, do is as another task.
func (a *Attempts) Alone(workspace string, do func()) (ok bool) {
	root, b := task.RepositoryRoot(workspace), &a.beside
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(slices.Collect(maps.Values(b.open)), root) {
		return false
	}
	b.last[root] = "notes"
	do()
	return true
}

// leave notes the end of an attempt, and reports whether another task has come since its last turn began.
func (b *beside) leave(id string) (shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.last[b.open[id]]
	delete(b.open, id)
	return last != "" && last != id
}
