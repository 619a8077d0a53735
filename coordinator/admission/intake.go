package admission

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// A submission is a spec with what it leaves to the master filled in.
type submission struct {
	task.TaskSpec
	named bool     // the spec names an agent
	open  bool     // it leaves the fallback to the configuration
	root  string   // checkout or directory whose lane it may be in
	after []string // the ids that After means, set on the log's goroutine

	parent  string        // the task that queues it
	asker   *state.Task   // that task as its run knows it, if it is at work here
	trigger state.Trigger // why that does; "": nobody but a client asks
	held    string        // why it is held
	note    string        // what else its user should know
	since   string        // of one that continues a conversation: the named session that was used there later; "": none

	session string        // id of the session that it begins, if it does
	resume  string        // its resume policy
	fields  []ledger.Pair // of its record, as far as no other task matters; see prepare
}

// A request is what a client wants to be enqueued together, all or none.
type request struct {
	specs  []task.TaskSpec
	isList bool   // else it is a single one
	key    string // idempotency key of the list as a whole; "": it has none
}

// An intake is one or more specs that are enqueued together. It belongs to one
// call; what is in the last fields is made anew on the log's goroutine.
type intake struct {
	a *Admission
	request
	list     []submission
	index    map[string]int    // id to place in list
	agent    string            // the default agent, asked at most once
	runAgent string            // that of the task whose run asks
	agents   map[string]string // by lane: that of the last spec
	seen     map[string]*Place

	st      *fold.State     // the fold, for a follow-up, which is made where it is locked; else nil
	natives map[string]bool // fields of the journal that name agents' sessions; read when a spec names one that is not in use

	ids   []string      // of the tasks: new ones, or old ones that were asked for again
	old   []*state.Task // the old ones, by their places; nil for a new one
	fresh []state.Task
	now   string
	begun map[sessionPlace]string // sessions of the new tasks: the last one of each place
}

// A Place is what is known of a workspace that a task names.
type Place struct {
	path       string // without links
	root       string // the directory whose lane is its own; "": nobody has asked yet
	holdsState bool   // the state directory lies in it
	err        error  // why no task can work there
	agent      string // for a follow-up of a task that names none
}

// sessionPlace is what a session is the current one of.
type sessionPlace struct{ lane, agent, account string }

// tasks returns the tasks of all specs once they are durable. It takes the place of fresh
// for them where it can. The texts of one that has not run are those of its spec: to read
// thousands back takes longer than all the rest.
func (in *intake) tasks() (tasks []state.Task, err error) {
	if tasks = in.fresh; len(in.fresh) < len(in.list) {
		tasks = make([]state.Task, len(in.list))
	}
	for i := range in.ids {
		if in.old[i] != nil {
			tasks[i] = *in.old[i]
			continue
		}
		t, s := &tasks[i], &in.list[i]
		*t, _ = in.a.Peek(in.ids[i])
		if t.Status.Terminal() || t.RunID != "" { // a run may have changed its texts
			if *t, err = in.a.Whole(in.ids[i]); err != nil {
				return nil, err
			}
			continue
		}
		t.Title, t.Prompt, t.InputFiles, t.OnFailure, t.OnIssue = state.TitleOf(s.Prompt), s.Prompt, s.InputFiles, s.OnFailure, s.OnIssue
	}
	return tasks, nil
}

// newIntake checks all of specs that does not depend on other tasks.
func (a *Admission) newIntake(ctx context.Context, req request) (*intake, error) {
	specs := req.specs
	if a.IsShut() {
		return nil, a.StoppedError()
	}
	switch {
	case len(specs) == 0:
		return nil, task.Invalid("give at least one", "there is no task to take in")
	case len(specs) > task.MaxBatch:
		return nil, task.ErrLongList
	}
	in := a.emptyIntake()
	in.request, in.list, in.index = req, make([]submission, 0, len(specs)), make(map[string]int, len(specs))
	for i, s := range specs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := in.add(submission{TaskSpec: s}); err != nil {
			return nil, in.at(i, err)
		}
	}
	if in.key != "" {
		if err := in.shareKey(); err != nil {
			return nil, err
		}
	}
	keys := map[string]int{}
	for i := range in.list { // two that want to be the same task
		s := &in.list[i]
		if first, twice := in.index[s.ID]; twice {
			return nil, in.at(i, task.Wrong("id", "give each task an id of its own, or none", "the id %s is that of task %d as well", s.ID, first+1))
		}
		if first, twice := keys[s.IdempotencyKey]; twice {
			return nil, in.at(i, task.Wrong("idempotencyKey", "give each task a key of its own, or none", "the idempotency key %q is that of task %d as well", s.IdempotencyKey, first+1))
		}
		in.index[s.ID] = i
		if s.IdempotencyKey != "" {
			keys[s.IdempotencyKey] = i
		}
		if err := a.prepare(s); err != nil {
			return nil, in.at(i, err)
		}
	}
	return in, nil
}

func (a *Admission) emptyIntake() *intake {
	return &intake{a: a, agents: map[string]string{}, seen: map[string]*Place{}}
}

// add checks a submission, fills in what it leaves to us, and adds it to the intake. What
// depends on other tasks is looked at by record.
func (in *intake) add(s submission) error {
	a := in.a
	var by state.Task // whose run asks
	if s.FromRun != "" {
		s.AllowStateInWorkspace = false // no run gives itself that right
		var err error
		a.View(func(st *fold.State) { by, err = taskOfRun(st, s.FromRun) })
		if err != nil {
			return err
		}
		in.runAgent = by.Agent
	}
	if err := task.CheckPrompt(s.Prompt); err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = a.Config.ID()
	} else if _, err := uuid.Parse(s.ID); err != nil || len(s.ID) != 36 {
		return task.Wrong("id", "leave it out, or write one as uuidgen gives it", "the id %q is no UUID", s.ID)
	}
	if err := in.checkPlace(&s); err != nil {
		return err
	}
	if err := in.checkAgent(&s); err != nil {
		return err
	}
	if err := CheckFields(&s.TaskSpec); err != nil {
		return err
	}
	if s.Continue {
		a.lookForNamed(&s)
	}
	if err := a.fillFallback(&s); err != nil {
		return err
	}
	if by.ID != "" {
		s.parent, s.trigger, s.asker = by.ID, state.ByAgent, a.live.TaskOf(by.ID)
		if s.IdempotencyKey != "" {
			s.IdempotencyKey = state.RunKey(s.IdempotencyKey, by.ID)
		}
		a.capBy(&s, &by)
	}
	in.list = append(in.list, s)
	return nil
}

// isMany reports whether there are specs that come after others of the same intake.
func (in *intake) isMany() bool { return len(in.specs) > 1 }

// at says which spec an error is about.
func (in *intake) at(i int, err error) error {
	if !in.isList {
		return err
	}
	return task.AtTask(err, i, len(in.specs))
}

// lookForNamed notes the named session that was used last in the directory where a
// submission continues the conversation without a name, if that was used before.
func (a *Admission) lookForNamed(s *submission) {
	const most = 100 // sessions that are looked at: the last task of each may have to be read
	var current state.Session
	var sessions []state.Session
	a.View(func(st *fold.State) {
		current, _ = st.CurrentSession(s.lane(), s.Agent, s.Account)
		sessions = st.Sessions()
	})
	for _, named := range sessions[:min(len(sessions), most)] {
		if !named.UpdatedAt.After(current.UpdatedAt) {
			return
		}
		if last, err := a.Whole(named.LastTask); err == nil && task.IsNamedLane(named.Key) && last.Workspace != "" && checkoutAbove(last.Workspace) == s.root {
			s.since = named.Key
			break
		}
	}
	if s.since != "" && current.ID != "" {
		s.note = "this continues the last conversation without a name; session " + s.since + " was used here since: stint task --session " + s.since
	}
}

// CheckFields returns what is wrong with fields of a spec that can be looked at by
// themselves.
func CheckFields(s *task.TaskSpec) error {
	for _, check := range []func(*task.TaskSpec) error{task.CheckSession, task.CheckTime, task.CheckLimits, task.CheckVerify, checkFollowUps, task.CheckInputFiles, task.CheckOutputSpec} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// checkNotPast refuses a time that has passed.
func (in *intake) checkNotPast(s *task.TaskSpec) error {
	now := in.a.Config.Now()
	if s.NotBefore.IsZero() || !s.NotBefore.Before(now.Add(-clockDifference)) {
		return nil
	}
	return task.Wrong("notBefore", "leave it out to run the task at once", "the time %s has passed; it is %s now",
		s.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// lane returns the lane that the task has unless it is parallel.
func (s *submission) lane() string {
	return cmp.Or(s.SessionKey, state.LanePrefixDir+s.root)
}

// checkAgent fills in agent and account. A session goes on with its own agent.
func (in *intake) checkAgent(s *submission) error {
	owner, err := in.ownerOf(s)
	if err != nil {
		return err
	}
	lane := s.lane()
	s.named = s.Agent != "" && s.parent == "" // a follow-up has its task's, which nobody named for it
	if s.Agent = cmp.Or(s.Agent, owner); s.Agent == "" && (s.SessionKey != "" || s.Continue) {
		laneAgent := func(st *fold.State) string { return st.LaneAgent(lane, slices.Sorted(maps.Keys(in.a.Config.Agents))) }
		if s.Agent = in.agents[lane]; s.Agent == "" && in.st != nil {
			s.Agent = laneAgent(in.st)
		} else if s.Agent == "" {
			s.Agent = queue.Read(in.a.Store, laneAgent)
		}
	}
	if s.Agent == "" && s.FromRun != "" { // what a run queues is for its own agent, not for the user's default
		s.Agent = in.runAgent
	}
	if s.Agent = cmp.Or(s.Agent, s.DefaultAgent); s.Agent == "" {
		in.agent = cmp.Or(in.agent, in.a.Config.DefaultAgent())
		s.Agent = in.agent
	}
	if in.isMany() && !s.Parallel { // else it is in no lane that others of them go on with
		in.agents[lane] = s.Agent
	}
	if err := in.a.checkAgentName(s.Agent); err != nil {
		return err
	}
	if s.Account == "" {
		s.Account = s.Agent
	} else if s.Account != s.Agent {
		return task.Wrong("account", "leave it out", "there is no account %q; known is %s", s.Account, s.Agent)
	}
	if owner != "" && owner != s.Agent {
		return task.Wrong("agentSession", "use --agent "+owner+", or the id of a session of "+s.Agent, "the session %s belongs to %s, not to %s", s.AgentSession, owner, s.Agent)
	}
	return nil
}

// ownerOf returns the agent whose session a spec names: as the sessions in use tell,
// or the records of tasks that have ended; "" if it names none or nobody knows.
func (in *intake) ownerOf(s *submission) (string, error) {
	if s.AgentSession == "" {
		return "", nil
	}
	var owner string
	ok := false
	in.a.View(func(st *fold.State) { owner, ok = st.NativeOwner(s.AgentSession) })
	if ok {
		return owner, nil
	}
	if in.natives == nil {
		natives, err := nativeFields(filepath.Join(in.a.Config.StateDir, ledger.JournalName))
		if err != nil {
			return "", fmt.Errorf("look whose session %s is: %w", s.AgentSession, err)
		}
		in.natives = natives
	}
	for _, agent := range append([]string{s.Agent}, slices.Sorted(maps.Keys(in.a.Config.Agents))...) {
		if in.natives["- "+state.NativeKey(agent)+": "+s.AgentSession] {
			return agent, nil
		}
	}
	return "", nil
}

// nativeFields returns the fields of a journal that name agents' sessions, each as its
// line says it. No text of a prompt or a result can begin a line at column 0. What a
// task named that failed because its agent did not know the session is left out.
func nativeFields(journal string) (map[string]bool, error) {
	f, err := durable.Open(journal, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	task, named := "", map[string][]string{} // by the task's heading
	r := bufio.NewReaderSize(f, 256<<10)
	for whole := true; err == nil || errors.Is(err, bufio.ErrBufferFull); {
		var line []byte
		line, err = r.ReadSlice('\n')
		switch text := bytes.TrimSuffix(line, []byte("\n")); {
		case !whole: // a piece of a long line
		case bytes.HasPrefix(text, []byte("## ")):
			task = string(text)
		case bytes.HasPrefix(text, []byte("- ")) && bytes.Contains(text, []byte("SessionId: ")):
			named[task] = append(named[task], string(text))
		case string(text) == "- "+state.KeyReason+": "+string(state.ClassSessionLost):
			delete(named, task)
		}
		whole = err == nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	fields := map[string]bool{}
	for _, list := range named {
		for _, field := range list {
			fields[field] = true
		}
	}
	return fields, nil
}

// checkAgentName returns what is wrong with the name of an agent.
func (a *Admission) checkAgentName(name string) error {
	if a.Config.Agents[name] != nil {
		return nil
	}
	known := slices.Sorted(maps.Keys(a.Config.Agents))
	if near := state.Nearest(strings.ToLower(name), known); near != "" {
		return task.Wrong("agent", "stint doctor", "there is no agent %q; did you mean %s?", name, near)
	}
	return task.Wrong("agent", "stint doctor", "there is no agent %q; known are %s", name, strings.Join(known, ", "))
}

// checkPlace checks the workspace, once for all specs that name the same. It is
// recorded without links: another task may change where they lead.
func (in *intake) checkPlace(s *submission) error {
	if s.Workspace == "" && s.parent != "" { // the follow-up of a task without one, which a person wrote
		return nil
	}
	if s.Workspace = cmp.Or(s.Workspace, in.a.Config.WorkspaceRoot); s.Workspace == "" {
		return task.Wrong("workspace", "name the directory in which the agent is to work, an absolute path, or set workspace_root in the configuration", "the task has no workspace")
	}
	w, checked := in.seen[s.Workspace]
	if !checked {
		w = in.a.lookAt(s.Workspace)
		in.seen[s.Workspace] = w
	}
	switch {
	case w.err != nil:
		return w.err
	case w.holdsState && !s.AllowStateInWorkspace:
		return task.Wrong("workspace", "choose another workspace with -C, or set STINT_STATE_DIR to a directory outside of it",
			"the state directory %s lies in the workspace %s, where the agent could change tasks and configuration", in.a.Config.StateDir, s.Workspace)
	}
	if s.Workspace = w.path; !task.IsNamedLane(s.SessionKey) { // else it is in the lane of its session
		s.root = w.lane()
	}
	return nil
}

// lookAt asks the file system about a workspace, which may take long: never on the
// log's goroutine.
func (a *Admission) lookAt(dir string) *Place {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\r\n") {
		return &Place{err: task.Wrong("workspace", "name a directory with -C", "the workspace %q is no absolute path", dir)}
	}
	path, err := filepath.EvalSymlinks(dir + "/") // only a directory can have a slash behind it
	if err != nil {
		switch fi, err := os.Stat(dir); {
		case err != nil:
			return &Place{err: task.Wrong("workspace", "name a directory that exists with -C", "the workspace %s cannot be used: %v", dir, errors.Unwrap(err))}
		case !fi.IsDir():
			return &Place{err: task.Wrong("workspace", "name a directory with -C", "the workspace %s is not a directory", dir)}
		}
		path = dir
	}
	return &Place{path: path, holdsState: task.IsWithin(a.Home, path)}
}

// lane returns the directory whose lane is the workspace's own; "" if no task can work
// there. It asks the file system, but once.
func (w *Place) lane() string {
	if w.root == "" && w.err == nil {
		w.root = checkoutAbove(w.path)
	}
	return w.root
}

// record appends the records of all specs that ask for something new. The log may
// call it more than once.
func (in *intake) record(st *fold.State, tx *ledger.Tx) error {
	n := len(in.list)
	in.ids, in.old, in.fresh, in.begun = make([]string, n), make([]*state.Task, n), make([]state.Task, 0, n), map[sessionPlace]string{}
	in.now = state.FormatTime(in.a.Config.Now())
	if in.key != "" {
		if err := in.checkShared(st, tx); err != nil {
			return err
		}
	}
	for i := range in.list {
		if err := in.recordOne(st, tx, i); err != nil {
			return in.at(i, err)
		}
	}
	// A client cannot put more into a queue that is full. What the master queues itself, to follow
	// a task that has ended, has a bound of its own.
	most, more, waiting := in.a.Config.MaxQueued, len(in.fresh), st.Queued()+tx.Ahead()
	if tx.Count(more); most > 0 && more > 0 && in.list[0].by() != "" && waiting+more > most {
		return &task.Error{
			Code: task.CodeTooMany, Message: fmt.Sprintf("the queue is full: %d tasks wait, %d more would come, and max_queued is %d", waiting, more, most),
			Hint: "try again when some have run (stint ls --status queued), or set max_queued in the configuration",
		}
	}
	err := st.CheckOrder(in.fresh)
	var cycle *lanes.CycleError
	if errors.As(err, &cycle) {
		return in.at(in.index[cycle.ID], task.Wrong("after", "let it come after other tasks, or be in another session", "it would wait for itself: %s", cycle.Text))
	}
	return err
}

// recordOne appends the record of one spec, if it is new.
func (in *intake) recordOne(st *fold.State, tx *ledger.Tx, i int) error {
	s := &in.list[i]
	old, err := in.known(st, s)
	if err != nil {
		return err
	}
	if in.ids[i] = s.ID; old != nil {
		in.ids[i], in.old[i] = old.ID, old
		return nil
	}
	if err := in.resolveAfter(st, s); err != nil {
		return err
	}
	if s.FromRun != "" {
		t, err := taskOfRun(st, s.FromRun)
		if err != nil {
			return err
		}
		if r := s.asker; r != nil { // where it runs, whatever a person has written of the task since
			t.Workspace, t.SessionKey, t.SessionID, t.AgentSession = r.Workspace, r.SessionKey, r.SessionID, r.AgentSession
		}
		tx.Claim(string(ledger.KindTask) + " " + t.ID) // its end, and what else it queues, are decided after this
		if why := in.needsApproval(st, s, &t); why != "" {
			s.Hold, s.held = true, "an agent asked for it, "+why+" in stint show, then stint release "+s.ID
		}
	}
	if s.parent != "" {
		if err := in.checkFamily(st, s); err != nil {
			return err
		}
	}
	if err := in.checkNotPast(&s.TaskSpec); err != nil {
		return err
	}
	in.fresh = append(in.fresh, state.Task{})
	t := &in.fresh[len(in.fresh)-1]
	*t = state.Task{ID: s.ID, Status: state.Queued, Hold: s.Hold, After: s.after, TriggeredBy: s.parent, Agent: s.Agent, AgentSession: s.AgentSession}
	if t.SessionKey, t.SessionID, err = in.sessionFor(st, s, tx); err != nil {
		return err
	}
	if s.FromRun != "" && s.Await && !t.Hold { // one that is held is accepted, so that a person sees it; BeginWait refuses the wait
		child := *t
		child.Account, child.Trigger = s.Account, state.ByAgent
		if why := in.a.mayNotWait(st, s.parent, &child); why != "" {
			return &task.Error{Code: task.CodeConflict, Message: "this run cannot wait for a new task: " + why, Hint: "stint task --parallel, without --after and --agent-session, or stint task -d"}
		}
	}
	if s.IdempotencyKey != "" {
		tx.Claim("key " + s.IdempotencyKey)
	}
	tx.Append(in.newTask(s, t))
	return nil
}

// clockDifference is how much the clock of a client may be behind ours.
const clockDifference = time.Minute

// maxAfter is how many tasks one may come after.
const maxAfter = 1000

// resolveAfter finds the tasks that a spec comes after: of those that are given
// together, or of those that are there.
func (in *intake) resolveAfter(st *fold.State, s *submission) error {
	s.after = nil
	if len(s.After) > maxAfter {
		return task.Wrong("after", "let it come after the last of them", "a task can come after %d others, not %d", maxAfter, len(s.After))
	}
	for _, ref := range s.After {
		id := ref
		if _, together := in.index[ref]; !together {
			var err error
			if id, err = queue.FindIn(st, ref); err != nil {
				return task.InField("after", err)
			}
		}
		if id == s.ID {
			return task.Wrong("after", "name another task", "the task cannot come after itself")
		}
		if !slices.Contains(s.after, id) {
			s.after = append(s.after, id)
		}
	}
	return nil
}

// noWait is the maxLimitWait of a task that fails instead of waiting.
const noWait = "0s"

// isBodyOf reports whether a task is what the spec asks for. What the spec leaves
// to the configuration does not count, nor do times and holds, which pass, nor whether it
// is to continue a session: the task has one in either case. The agent's session that the
// spec names counts until there is a run, which may have come to another one.
func (s *submission) isBodyOf(t *state.Task) bool {
	key := t.SessionKey
	if !task.IsNamedLane(key) {
		key = ""
	}
	policy := strings.TrimPrefix(s.AfterPolicy, state.AfterDone)
	return t.Prompt == s.Prompt && t.Workspace == s.Workspace && key == s.SessionKey &&
		s.Parallel == strings.HasPrefix(t.SessionKey, state.LanePrefixTask) && (s.Resume == "" || t.Resume == s.Resume) && s.NoWaitLimit == (t.MaxLimitWait == noWait) &&
		(s.AgentSession == "" || t.RunID != "" || t.AgentSession == s.AgentSession) &&
		t.Label == s.Label && t.Priority == s.Priority && t.Timeout == s.Timeout && t.MaxAttempts == s.MaxAttempts &&
		t.TenantID == s.TenantID && t.Queue == s.Queue && t.AfterPolicy == policy && s.comesAfter(t.After) &&
		(s.VerifyCommand == "" || t.VerifyCommand == s.VerifyCommand) && (s.MaxIterations == 0 || t.MaxIterations == s.MaxIterations) && t.VerifyTimeout == s.VerifyTimeout &&
		t.OnFailure == s.OnFailure && t.OnIssue == s.OnIssue &&
		slices.Equal(t.InputFiles, s.InputFiles) && slices.Equal(t.OutputSpec, s.OutputSpec) && s.isCarriedOutBy(t)
}

// comesAfter reports whether what the spec comes after can have meant these tasks: @last
// or a piece of an id need not mean the same now.
func (s *submission) comesAfter(ids []string) bool {
	means := func(ref, id string) bool { return ref == state.LastRef || strings.Contains(id, ref) }
	return !slices.ContainsFunc(s.After, func(ref string) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return means(ref, id) })
	}) && !slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(s.After, func(ref string) bool { return means(ref, id) })
	})
}

// isCarriedOutBy reports whether the task has the spec's agent, or one that the
// configuration chose, or has come to a fallback meanwhile, with those that are left.
func (s *submission) isCarriedOutBy(t *state.Task) bool {
	if t.Agent != s.Agent && slices.Contains(s.Fallback, t.Agent) {
		return s.open || !slices.ContainsFunc(t.Fallback, func(agent string) bool { return !slices.Contains(s.Fallback, agent) })
	}
	return (t.Agent == s.Agent || !s.named) && (s.Model == "" || t.Model == s.Model) && (s.open || slices.Equal(t.Fallback, s.Fallback))
}

// resumeOf returns the resume policy of a spec.
func (a *Admission) resumeOf(s *submission) string {
	return cmp.Or(s.Resume, a.Workspace(s.Workspace).ResumePolicy, a.Config.ResumePolicy, "auto")
}

// prepare makes the fields of a new task's record that do not depend on other tasks, so that
// this takes no time on the log's goroutine. Those that depend on them are empty.
func (a *Admission) prepare(s *submission) error {
	set := a.Workspace(s.Workspace)
	s.session, s.resume = a.Config.ID(), a.resumeOf(s)
	r := &ledger.Record{Fields: make([]ledger.Pair, 0, 16)} // more than most need
	r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeySessionKey, "").Add(state.KeySessionID, "").
		AddIf(state.KeyWorkspace, s.Workspace).Add(state.KeyAgent, s.Agent).Add(state.KeyAccount, s.Account).
		AddIf(state.KeyModel, cmp.Or(s.Model, set.Models[s.Agent])).Add(state.KeyCreatedAt, "").Add(state.KeyUpdatedAt, "").Add(state.KeyResume, s.resume).
		AddIf(state.NativeKey(s.Agent), s.AgentSession).AddIf(state.KeyLabel, s.Label).AddIf(state.KeyIdempotencyKey, s.IdempotencyKey).
		AddIf(state.KeyTimeout, s.Timeout).AddIf(state.KeyBy, s.by()).AddIf(state.KeyTriggeredBy, s.parent).AddIf(state.KeyTrigger, string(s.trigger))
	addNumber := func(key string, n int) {
		if n > 0 {
			r.Add(key, strconv.Itoa(n))
		}
	}
	addNumber(state.KeyPriority, s.Priority)
	addNumber(state.KeyMaxAttempts, s.MaxAttempts)
	if s.NoWaitLimit {
		r.Add(state.KeyMaxLimitWait, noWait)
	}
	r.AddIf(state.KeyNotBefore, state.FormatTime(s.NotBefore))
	if s.AfterPolicy == state.AfterAny {
		r.Add(state.KeyAfterPolicy, state.AfterAny)
	}
	r.AddIf(state.KeyVerifyCommand, s.VerifyCommand).AddIf(state.KeyVerifyTimeout, s.VerifyTimeout).
		AddIf(state.KeyOnFailure, s.OnFailure).AddIf(state.KeyOnIssue, s.OnIssue)
	addNumber(state.KeyMaxIterations, s.MaxIterations)
	r.AddIf(state.KeyTenantID, s.TenantID).AddIf(state.KeyQueue, s.Queue).
		AddIf(state.KeyFallback, strings.Join(s.Fallback, " ")).AddIf(state.KeyOutputSpec, strings.Join(s.OutputSpec, "\n"))
	if len(s.InputFiles) > 0 {
		files, err := json.Marshal(s.InputFiles)
		if err != nil {
			return err
		}
		r.Add(state.KeyInputFiles, string(files))
	}
	s.fields = r.Fields
	return nil
}

// newTask returns the record of a new task, whose lane and session t has.
func (in *intake) newTask(s *submission, t *state.Task) *ledger.Record {
	r := &ledger.Record{Kind: ledger.KindTask, ID: s.ID, Fields: s.fields} // no copy: what an earlier call has made is not used any more
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.Key {
		case state.KeySessionKey:
			f.Value = t.SessionKey
		case state.KeySessionID:
			f.Value = t.SessionID
		case state.KeyCreatedAt, state.KeyUpdatedAt:
			f.Value = in.now
		}
	}
	r.AddIf(state.KeyAfter, strings.Join(s.after, " "))
	if s.Hold {
		r.Add(state.KeyHold, "true")
	}
	if r.AddIf(state.KeyNote, s.held); s.note != "" {
		addNote(r, s.note)
	}
	if !s.Hold && s.trigger == state.ByAgent {
		r.Add(state.KeyIntake, state.IntakeOpen)
	}
	return r.Add(state.KeyPrompt, s.Prompt)
}

// by says who asks: a client, a run, or, as "", the master itself.
func (s *submission) by() string {
	switch s.trigger {
	case "":
		return ledger.ByClient
	case state.ByAgent:
		return ledger.ByAgent
	}
	return ""
}

// sessionFor decides about lane and session of a new task. A session is context,
// a lane is order: a named session is both; without a name, the lane is the
// directory's and the session is new, unless the task continues the last one.
func (in *intake) sessionFor(st *fold.State, s *submission, tx *ledger.Tx) (lane, id string, err error) {
	if s.Parallel {
		return state.LanePrefixTask + s.ID, s.session, nil
	}
	at := sessionPlace{s.lane(), s.Agent, s.Account}
	goesOn := s.SessionKey != "" || s.Continue
	if goesOn && s.resume != "never" && s.AgentSession == "" {
		id = in.currentSession(st, at)
		if id == "" && s.Continue {
			what, hint := fmt.Sprintf("there is no session of %s to continue in %s", s.Agent, strings.TrimPrefix(at.lane, state.LanePrefixDir)), "leave --continue out"
			if s.since != "" {
				what, hint = what+"; the last conversation there is session "+s.since, "stint task --session "+s.since
			}
			return "", "", &task.Error{Code: task.CodeNotFound, Message: what, Hint: hint, Field: "continue"}
		}
		if id == "" {
			tx.Claim("session " + at.lane) // two first tasks of a session must not both begin it
		}
	}
	id = cmp.Or(id, s.session)
	if in.isMany() {
		in.begun[at] = id
	}
	return at.lane, id, nil
}

// currentSession returns the session that the next task there goes on with, "" if
// there is none yet. Those of the tasks that are taken in just now count.
func (in *intake) currentSession(st *fold.State, at sessionPlace) string {
	if id, ok := in.begun[at]; ok {
		return id
	}
	current, _ := st.CurrentSession(at.lane, at.agent, at.account)
	return current.ID
}
