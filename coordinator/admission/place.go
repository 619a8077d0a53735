package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// A Place is what is known of a workspace that a task names.
type Place struct {
	path       string // without links
	root       string // the top of its checkout, or itself: the directory whose lane is its own
	isCheckout bool   // root is a checkout
	holdsState bool   // the state directory lies in it
	err        error  // why no task can work there
}

// checkPlace checks the workspace, once for all specs that name the same. It is
// recorded without links: another task may change where they lead.
func (in *intake) checkPlace(s *submission) error {
	if s.Workspace == "" && s.parent != "" { // the follow-up of a task without one, which a person wrote
		return nil
	}
	name, origin, inTree := in.a.tasks.Config.Trees.Origin(s.Workspace) // as the task before it, whose worktree that is
	base, ofTree := state.WorktreeBase(s.Isolation)
	if inTree && ofTree && name != worktree.NameOf(s.SessionKey) { // another one is asked for
		s.Workspace, inTree = origin, false
	}
	switch {
	case s.Isolation == "" && !inTree && s.parent == "": // a follow-up works where its task has
		s.Isolation = in.a.isolationOf(s)
		base, ofTree = state.WorktreeBase(s.Isolation)
	case s.Isolation != state.IsolationTemp:
		s.Isolation = strings.TrimSuffix(s.Isolation, state.IsolationInPlace)
	case s.Workspace != "":
		return task.Wrong("isolation", "leave one of them out; what the task is to read comes with it as input files", "the task names the workspace %s, and is to have a directory of its own", s.Workspace)
	default:
		for i, f := range s.InputFiles {
			if slices.ContainsFunc(strings.Split(f.Name, "/"), in.a.tasks.Config.IsGuardedDir) {
				return task.Wrong(fmt.Sprintf("inputFiles.%d.name", i), "give it another name", "the input file %q would lie in a directory of git's or an agent's own, which may say what is to be run", f.Name)
			}
		}
		s.Workspace, s.Parallel = filepath.Join(in.a.tasks.Config.WorkDir, s.ID), true // nobody else works there
	}
	if s.Workspace = cmp.Or(s.Workspace, in.a.tasks.Config.WorkspaceRoot); s.Workspace == "" {
		return task.Wrong("workspace", "name the directory in which the agent is to work, an absolute path, or set workspace_root in the configuration", "the task has no workspace")
	}
	if s.asker != nil {
		if s.within = task.RepositoryRoot(s.asker.Place()); !task.IsCheckout(s.within) {
			s.within = ""
		}
	}
	w, checked := in.seen[s.Workspace]
	if !checked {
		w = in.a.lookTogether(s.Workspace, s.within)
		in.seen[s.Workspace] = w
	}
	switch {
	case w.err != nil:
		return w.err
	case w.holdsState && !s.AllowStateInWorkspace:
		return task.Wrong("workspace", "choose another workspace with -C, or set STINT_STATE_DIR to a directory outside of it",
			"the state directory %s lies in the workspace %s, where the agent could change tasks and configuration", in.a.tasks.Config.StateDir, s.Workspace)
	}
	s.Workspace, s.root, s.isCheckout, s.within = w.path, w.root, w.isCheckout, ""
	if ofTree && !inTree {
		if err := in.a.checkWorktree(s, base); err != nil {
			return err
		}
		w = &Place{path: s.Workspace, root: s.root}
	}
	if w.root != w.path {
		s.within = w.root
	}
	return nil
}

// isolationOf returns the isolation of a task that names none: its session has a worktree of that repository, or one is configured.
func (a *Admission) isolationOf(s *submission) string {
	if s.SessionKey != "" {
		root := task.RepositoryRoot(cmp.Or(s.Workspace, a.tasks.Config.WorkspaceRoot))
		dirs := queue.Read(a.tasks, func(st *fold.State) (dirs []string) {
			home, _ := st.HomeOf(&state.Task{SessionKey: s.SessionKey}, "")
			for _, t := range st.Lane(s.SessionKey) {
				dirs = append(dirs, t.Workspace)
			}
			return append(dirs, home)
		})
		for _, dir := range dirs {
			if _, origin, ok := a.tasks.Config.Trees.Origin(dir); ok && task.RepositoryRoot(origin) == root {
				return state.IsolationWorktree
			}
		}
		if tree, err := a.tasks.Config.Trees.At(worktree.NameOf(s.SessionKey), root); err == nil && tree.IsMade() { // its last task worked elsewhere
			return state.IsolationWorktree
		}
	}
	if s.Continue || s.AgentSession != "" || s.SharedID != "" || strings.HasPrefix(s.Prompt, task.NoteQuestion) { // it has begun in the workspace, or changes nothing there
		return ""
	}
	return strings.TrimSuffix(a.tasks.Workspace(cmp.Or(s.Workspace, a.tasks.Config.WorkspaceRoot)).Isolation, state.IsolationInPlace)
}

// checkWorktree gives a task the directory of its worktree that stands for its workspace. The run makes it.
func (a *Admission) checkWorktree(s *submission, base string) error {
	trees := &a.tasks.Config.Trees
	wrong := func(hint, format string, args ...any) error { return task.Wrong("isolation", hint, format, args...) }
	switch {
	case !s.isCheckout:
		return wrong("name another workspace with -C, or --workdir in-place; for a bare repository, one of its checkouts", "%s is in no git checkout, and only one can have worktrees", s.Workspace)
	case trees.Dir == "":
		return wrong("set worktree_dir", "there is no directory for worktrees")
	case task.IsWithin(a.tasks.Home, trees.Dir), task.IsWithin(trees.Dir, a.tasks.Home):
		return wrong("set worktree_dir to a directory that has nothing to do with it", "the worktrees (%s) would lie around or in the state directory", trees.Dir)
	}
	lane := s.SessionKey
	if s.Parallel = lane == ""; s.Parallel {
		lane = state.LanePrefixTask + s.ID
	}
	name := worktree.NameOf(lane)
	if a.tasks.Config.Git != nil {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		tree, err := trees.At(name, s.root)
		if err == nil && tree.IsMade() && base != "" && base != tree.Base {
			return wrong("use another session, or stint drop "+name, "the worktree of %s was made from %s, not from %s", name, tree.Base, base)
		}
		if err = errors.Join(err, worktree.Check(a.tasks.Config.Git(ctx, s.root), s.root, base)); err != nil {
			return wrong("see stint help worktrees", "%v", err)
		}
	}
	s.Workspace, s.root = trees.PathOf(name, s.Workspace), trees.PathOf(name, s.root)
	return nil
}

// lookTogether is lookAt, once for all who ask for the same before it begins: nobody gets an answer that is older
// than the question. Who can run comes first, so that those who submit at the same time share it.
func (a *Admission) lookTogether(dir, within string) *Place {
	key := dir + "\x00" + within
	place, _, _ := a.looks.Do(key, func() (any, error) {
		runtime.Gosched()
		a.looks.Forget(key)
		return a.lookAt(dir, within), nil
	})
	return place.(*Place)
}

// lookAt asks the file system about a workspace, which may take long: never on the
// log's goroutine. A checkout in which the workspace is already known to be is its checkout still.
func (a *Admission) lookAt(dir, within string) *Place {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\r\n") {
		return &Place{err: task.Wrong("workspace", "name a directory with -C", "the workspace %q is no absolute path", dir)}
	}
	if a.tasks.Config.IsTemp(dir) { // its run makes it
		work, err := a.tasks.OpenWork()
		if err != nil {
			return &Place{err: task.Wrong("isolation", "correct work_dir in the configuration", "%v", err)}
		}
		return &Place{path: dir, root: dir, err: work.Close()}
	}
	if name, origin, ok := a.tasks.Config.Trees.Origin(dir); ok { // its run makes it
		w := *a.lookAt(origin, "")
		if w.err == nil {
			w.path, w.root = a.tasks.Config.Trees.PathOf(name, w.path), a.tasks.Config.Trees.PathOf(name, w.root)
		}
		return &w
	}
	path, err := filepath.EvalSymlinks(dir + "/") // only a directory can have a slash behind it
	if err != nil {
		return &Place{err: task.Wrong("workspace", "name a directory that exists with -C", "the workspace %s cannot be used: %v", dir, cmp.Or(errors.Unwrap(err), err))}
	}
	at := state.Task{Workspace: path, Within: within}
	root := task.CheckoutAbove(at.Place())
	return &Place{path: path, root: root, isCheckout: task.IsCheckout(root), holdsState: task.IsWithin(a.tasks.Home, path)}
}

// Checkout returns the place of a task, which is its checkout as that was when it was submitted, if one
// task runs there at a time. "" is none. It asks no file system.
func (a *Admission) Checkout(t *state.Task) string {
	_, _, inTree := a.tasks.Config.Trees.Origin(t.Place()) // which a run has for itself
	if !inTree && (!a.tasks.Config.Exclusive || a.tasks.Workspace(t.Workspace).Checkout != queue.CheckoutExclusive) {
		return ""
	}
	return t.Place()
}

// noteBeside adds to the answer about the first task what another session has in its checkout.
func (in *intake) noteBeside(t *state.Task) {
	s := &in.list[0]
	if s.old != nil || s.parent != "" || s.Hold || !s.isCheckout || in.a.tasks.Workspace(s.Workspace).Checkout == queue.CheckoutExclusive {
		return
	}
	for dir, id := range queue.Read(in.a.tasks, func(st *fold.State) map[string]string { return st.Beside(s.root, t.SessionKey) }) {
		if task.RepositoryRoot(dir) == s.root {
			t.Note = strings.TrimPrefix(fmt.Sprintf("%s; task %s of another session is queued or running in this checkout; to run one at a time, set checkout = \"exclusive\" in the configuration", t.Note, state.ShortID(id)), "; ")
			return
		}
	}
}

// WorkspaceError returns why a task must not begin in its workspace, which may be another directory
// than it was when the task was accepted: an agent can put a link in its place, and what is
// recorded has none. What a person wrote since has not been checked at all, and may be a link.
func (a *Admission) WorkspaceError(t *state.Task) string {
	if t.Workspace == "" { // a person has taken it out
		return "the task has no workspace"
	}
	real, fromTask := task.WithoutLinks(t.Workspace), t.Trigger != ""
	moved, holdsState := real != t.Workspace, task.IsWithin(task.WithoutLinks(a.tasks.Config.StateDir), real)
	switch {
	case holdsState && (moved || fromTask || t.WorkspaceByHand):
		return "the state directory lies in the task's workspace, where the agent could change tasks"
	case moved && !t.WorkspaceByHand:
		return "the workspace of the task has become a link to " + real
	}
	return ""
}

// sessionPlace is what a session is the current one of.
type sessionPlace struct{ lane, agent, account string }

// lane returns the lane that the task has unless it is parallel.
func (s *submission) lane() string {
	if s.SessionKey != "" {
		return s.SessionKey
	}
	return state.LanePrefixDir + s.root
}

// resumeOf returns the resume policy of a spec.
func (a *Admission) resumeOf(s *submission) string {
	return cmp.Or(s.Resume, a.tasks.Workspace(s.Workspace).ResumePolicy, "auto")
}

// sessionFor decides about lane and session of a new task. Tasks of a named session share both. Without a name,
// the lane is the directory's, and the session is new unless the task continues the last one.
func (in *intake) sessionFor(st *fold.State, s *submission, tx *ledger.Tx) (lane, id string, err error) {
	s.account = in.accountFor(st, s)
	if s.Parallel {
		return state.LanePrefixTask + s.ID, s.session, nil
	}
	at := sessionPlace{s.lane(), s.Agent, s.account}
	goesOn := s.SessionKey != "" || s.Continue
	if goesOn && s.resume != "never" && s.AgentSession == "" {
		id = in.currentSession(st, at)
		if id == "" && s.Continue {
			what := fmt.Sprintf("there is no session of %s to continue in %s", s.Agent, strings.TrimPrefix(at.lane, state.LanePrefixDir))
			return "", "", &task.Error{Code: task.CodeNotFound, Message: what, Hint: "leave --continue out, or name a session: stint session ls", Field: "continue"}
		}
		if id == "" {
			tx.Claim("session " + at.lane) // two first tasks of a session must not both begin it
		}
	}
	id = cmp.Or(id, s.session)
	if len(in.list) > 1 { // for those that follow
		in.begun[at], in.begun[sessionPlace{lane: at.lane, agent: at.agent}] = id, at.account
	}
	return at.lane, id, nil
}

// accountFor returns the account with which a task begins: the one that its spec names, the one
// that has the conversation that it goes on with, or one that can take it now.
func (in *intake) accountFor(st *fold.State, s *submission) (account string) {
	goesOn := !s.Parallel && (s.SessionKey != "" || s.Continue)
	switch {
	case s.Account != "":
		return s.Account
	case s.AgentSession != "":
		_, account, _ = st.NativeOwner(s.AgentSession)
		account = cmp.Or(account, s.Agent) // one of the user's own, which began elsewhere
	case goesOn:
		if account = in.begun[sessionPlace{lane: s.lane(), agent: s.Agent}]; account == "" {
			_, account = st.LaneAgent(s.lane(), []string{s.Agent})
		}
	}
	if known, ok := in.configured.Find(account); ok && known.Tool == s.Agent {
		return account
	}
	account, _ = in.configured.Choose(st, s.Agent, lanes.Limits{Account: in.configured.Rule}, nil)
	return account
}

// currentSession returns the session that the next task there goes on with, also one of this intake; "": none.
func (in *intake) currentSession(st *fold.State, at sessionPlace) string {
	if id, ok := in.begun[at]; ok {
		return id
	}
	current, _ := st.CurrentSession(at.lane, at.agent, at.account)
	return current.ID
}
