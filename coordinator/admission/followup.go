package admission

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/followup"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
	"stint/state/limits"
)

// Follow-ups. A task that ends failed or dead, or done with findings, queues another one in the change that ends
// it: no crash can come between them. It is a submission like any other, with a place and a prompt and without
// the rights of its task. What stands in its way is noted at that task's end.

// PlaceOf looks at the directory in which a follow-up of a task may be queued: before
// the end is recorded, because a file system may keep us waiting. nil: it has none.
func (a *Admission) PlaceOf(id string) *Place {
	t, err := a.tasks.Whole(id)
	if err != nil {
		return &Place{} // the end notes why
	}
	onFailure, _ := a.followUpText(&t, state.OnFailure)
	onIssue, _ := a.followUpText(&t, state.OnIssue)
	if onFailure+onIssue == "" {
		return nil
	}
	w := &Place{}
	if t.Workspace != "" {
		w = a.lookAt(t.Workspace, t.Within)
		if wrong := a.WorkspaceError(&t); wrong != "" {
			w.err = errors.New(wrong)
		}
	}
	return w
}

// AddError adds the error with which a task ends: also as its result, while its attempt has no answer.
func AddError(rec *ledger.Record, t *state.Task, text string) *ledger.Record {
	rec.AddIf(state.KeyError, text)
	if t.Phase == "" && t.Iteration <= 1 {
		rec.AddIf(state.KeyResult, text)
	}
	return rec
}

// End appends the record with which a task may end, and those of the task that then follows
// it, for which place was looked at. If what is to follow cannot be queued, the record says so.
func (a *Admission) End(st *fold.State, tx *ledger.Tx, rec *ledger.Record, findings []state.Issue, place *Place) {
	follow := &ledger.Tx{}
	if place != nil {
		if err := a.followUp(st, follow, rec, findings, place); err != nil {
			addNote(rec, "no follow-up was queued: "+err.Error())
			follow = &ledger.Tx{}
		}
	}
	tx.Append(rec)
	tx.Merge(follow)
}

// followUp enqueues what is to follow the end that rec says, if anything is.
func (a *Admission) followUp(st *fold.State, tx *ledger.Tx, rec *ledger.Record, findings []state.Issue, place *Place) error {
	var trigger state.Trigger
	switch status, _ := rec.Get(state.KeyStatus); {
	case status == string(state.Failed) || status == string(state.Dead):
		trigger = state.OnFailure
	case status == string(state.Done) && len(findings) > 0:
		trigger = state.OnIssue
	default:
		return nil
	}
	t, err := a.tasks.WholeIn(st, rec.ID)
	if err != nil {
		return err
	}
	status, reason := "", "" // it is followed as it is after its end
	for key, field := range map[string]*string{
		state.KeyStatus: &status, state.KeyReason: &reason, state.KeyError: &t.Error, state.KeyResult: &t.Result, state.KeyVerifyOutput: &t.VerifyOutput,
	} {
		if value, named := rec.Get(key); named {
			*field = value
		}
	}
	t.Status, t.Reason, t.Findings = state.Status(status), state.Class(reason), findings
	text, own := a.followUpText(&t, trigger)
	if text == "" && len(findings) > 0 { // it has failed, and is flagged as well
		trigger = state.OnIssue
		text, own = a.followUpText(&t, trigger)
	}
	if text == "" || !own && st.Depth(t.ID, a.tasks.Config.FollowUpDepth) >= a.tasks.Config.FollowUpDepth { // a configured prompt is meant to end there: no note says so
		return nil
	}
	prompt, err := followup.Prompt(text, &t)
	if err != nil {
		return err
	}
	s := submission{parent: t.ID, trigger: trigger, environment: t.Environment, TaskSpec: task.TaskSpec{
		Prompt: prompt, Workspace: t.Workspace, Agent: t.Agent, TenantID: t.TenantID, Queue: t.Queue, Priority: t.Priority,
		SessionKey: a.tasks.Workspace(t.Workspace).TriggerSession, Budget: t.Budget, Spare: t.Spare,
	}}
	if t.Pinned {
		s.Account = t.Account
	}
	if !own && t.Status != state.Done { // it is to look at what has failed: the command cannot be expected to pass
		s.VerifyCommand = task.NoVerify
	}
	in := a.emptyIntake(func(f func(*fold.State)) { f(st) })
	in.seen[t.Workspace] = place
	if err := in.add(s); err != nil {
		return err
	}
	if t.Trigger == state.ByAgent { // what follows it is its agent's wish as well
		a.capBy(&in.list[0], &t)
	}
	a.prepare(&in.list[0])
	return in.record(st, tx)
}

// followUpText returns the template of a task's follow-up, "" for none, and whether it is the task's own.
func (a *Admission) followUpText(t *state.Task, trigger state.Trigger) (text string, own bool) {
	set := a.tasks.Workspace(t.Workspace)
	text, configured := t.OnFailure, set.OnFailure
	if trigger == state.OnIssue {
		text, configured = t.OnIssue, set.OnIssue
	}
	own = text != ""
	if text = cmp.Or(text, configured); followup.IsNone(text) {
		return "", own
	}
	return text, own
}

// addNote adds a sentence to a record's note.
func addNote(rec *ledger.Record, text string) {
	const most = 600 // bytes: it may tell of a text that a person wrote
	note, _ := rec.Get(state.KeyNote)
	rec.Set(ledger.Pair{Key: state.KeyNote, Value: strings.TrimPrefix(note+"; "+task.OneSentence(text, most), "; ")})
}

// checkFamily reports whether a task may queue one more, beside those that it has queued and those that it
// queues just now: chains and families are bounded, so that tasks that queue tasks come to an end. What its
// agent asks for and what is queued at its ends are counted apart: neither takes the other's place.
func (in *intake) checkFamily(st *fold.State, s *submission) error {
	a, now := in.a, 0
	for i := range in.fresh {
		if in.fresh[i].TriggeredBy == s.parent {
			now++
		}
	}
	have, who := st.Asked(s.parent), "the agent of task "+s.parent
	if s.trigger != state.ByAgent {
		have, who = len(st.FollowUps(s.parent))-have, "task "+s.parent
	}
	refused := func(key, format string, args ...any) error {
		return &task.Error{Code: task.CodeForbidden, Message: fmt.Sprintf(format, args...), Hint: "queue it by hand, or set " + key + " in the configuration"}
	}
	switch depth := st.Depth(s.parent, a.tasks.Config.FollowUpDepth); {
	case a.tasks.Config.FollowUpDepth == 0:
		return refused("follow_up_depth", "follow_up_depth is 0: no task queues another")
	case depth >= a.tasks.Config.FollowUpDepth:
		return refused("follow_up_depth", "follow_up_depth is %d, and task %s is number %d of a chain", a.tasks.Config.FollowUpDepth, s.parent, depth)
	case have+now >= a.tasks.Config.MaxFollowUps:
		return refused("max_follow_ups", "max_follow_ups is %d, and %s has queued as many", a.tasks.Config.MaxFollowUps, who)
	}
	return nil
}

// What a run asks for. An agent can call stint; what it queues is the work of its task's run, and no user's:
// it is bounded like follow-ups, and what would give it more than its own task has waits for a person.

// taskOfRun returns the task that a run runs, which asks for something.
func taskOfRun(st *fold.State, run string) (state.Task, error) {
	id, ok := st.RunningAs(run)
	if !ok {
		return state.Task{}, &task.Error{
			Code: task.CodeForbidden, Message: fmt.Sprintf("run %s, which asks for it, does not run any more, or not here", run),
			Hint: "a run queues tasks while it lasts, in the state directory that it belongs to",
		}
	}
	t, _ := st.Peek(id)
	return t, nil
}

// capBy lowers what a submission has to what the task t has, which queues it: no task gets more through
// another one than its user allowed. What the submission leaves to the configuration is lowered too.
func (a *Admission) capBy(s *submission, t *state.Task) {
	var capped []string
	lower := func(field, to string) { capped = append(capped, strings.TrimSpace(field+" "+to)) }
	set := a.tasks.Workspace(s.Workspace)
	asks := state.Task{Workspace: s.Workspace, Timeout: s.Timeout, VerifyTimeout: s.VerifyTimeout, MaxIterations: s.MaxIterations, VerifyCommand: cmp.Or(s.VerifyCommand, set.VerifyCommand)}
	isLonger := func(d, most time.Duration) bool { return most > 0 && (d == 0 || d > most) } // 0: without an end
	const usual = 5
	if most := cmp.Or(t.Priority, usual); cmp.Or(s.Priority, usual) > most {
		s.Priority = most
		lower(state.KeyPriority, strconv.Itoa(most))
	}
	switch most := t.MaxAttempts; {
	case most == 0 && s.MaxAttempts > 1: // with a number of its own it would be tried again after failures of other kinds
		s.MaxAttempts = 0
		lower(state.KeyMaxAttempts, "as configured")
	case most > 0 && cmp.Or(s.MaxAttempts, set.MaxAttempts) > most:
		s.MaxAttempts = most
		lower(state.KeyMaxAttempts, strconv.Itoa(most))
	}
	if most := a.tasks.Timeout(t); isLonger(a.tasks.Timeout(&asks), most) {
		s.Timeout = most.String()
		lower(state.KeyTimeout, s.Timeout)
	}
	if most := a.tasks.VerifyTimeout(t); (task.HasVerify(&asks) || s.VerifyTimeout != "") && isLonger(a.tasks.VerifyTimeout(&asks), most) {
		s.VerifyTimeout = most.String()
		lower(state.KeyVerifyTimeout, s.VerifyTimeout)
	}
	if most := a.tasks.MaxIterations(t); (task.HasVerify(&asks) || s.MaxIterations > 0) && a.tasks.MaxIterations(&asks) > most {
		s.MaxIterations = most
		lower(state.KeyMaxIterations, strconv.Itoa(most))
	}
	s.Spare = s.Spare || t.Spare
	own, _ := limits.ParseBudget(s.Budget)
	most, _ := limits.ParseBudget(cmp.Or(t.Budget, a.tasks.Config.BudgetTask))
	switch rest := most.Rest(state.SpendingOf(t.Usage, 0), own); {
	case most == limits.Budget{} && s.Budget != "" && a.tasks.Config.BudgetSession != "": // for which its own would stand in
		s.Budget = ""
		lower(state.KeyBudget, "as configured")
	case rest != own:
		s.Budget = rest.String()
		lower(state.KeyBudget, s.Budget)
	}
	if t.MaxLimitWait == noWait && !s.NoWaitLimit {
		s.NoWaitLimit = true
		lower(state.KeyMaxLimitWait, noWait)
	}
	s.Notify = s.Notify && t.Notify
	if s.Model == "" && s.Agent == t.Agent {
		s.Model = t.Model
	}
	if len(capped) > 0 {
		s.note = strings.TrimPrefix(s.note+"; limited to the values of task "+t.ID+", which queued it: "+strings.Join(capped, ", "), "; ")
	}
}

// needsApproval returns what a submission has that the asking task t has not, and where to look; "" if nothing.
func (in *intake) needsApproval(st *fold.State, s *submission, t *state.Task) string {
	var what, where []string
	hold := func(is bool, why, field string) {
		if is {
			what, where = append(what, why), append(where, field)
		}
	}
	configured := cmp.Or(in.a.tasks.Workspace(s.Workspace).VerifyCommand, task.NoVerify)
	model := in.a.tasks.Workspace(t.Workspace).Models[s.Agent]
	if s.Agent == t.Agent {
		model = t.Model
	}
	isOwn := func(agent string) bool { return agent == t.Agent || slices.Contains(t.Fallback, agent) }
	hold(s.VerifyCommand == task.NoVerify && configured != task.NoVerify, "without the configured verify command", "verifyCommand")
	hold(cmp.Or(s.VerifyCommand, task.NoVerify) != task.NoVerify && s.VerifyCommand != configured, "with a verify command of its own, which is run as you", "verifyCommand")
	isWithin := task.IsWithin(s.Workspace, t.Workspace)
	below, _ := filepath.Rel(t.Workspace, s.Workspace)
	hold(!isWithin, "outside of "+t.Workspace, "workspace and prompt")
	hold(isWithin && slices.ContainsFunc(strings.Split(below, string(filepath.Separator)), in.a.tasks.Config.IsGuardedDir), "in a directory of git's or an agent's own", "workspace and prompt")
	hold(!isOwn(s.Agent), "for another agent", "agent and prompt")
	hold(isOwn(s.Agent) && s.Account != "" && s.Account != t.Account, "with another account", "account")
	hold(isOwn(s.Agent) && s.Model != "" && s.Model != model, "with another model", "model")
	hold(!s.open && slices.ContainsFunc(s.Fallback, func(agent string) bool { return !isOwn(agent) }), "with another fallback", "fallback")
	hold(len(task.Beyond(s.Allow, t.Allow)) > 0, "with --allow rules that its own task lacks", "allow and prompt")
	hold(in.isForeignSession(st, s, t), "in a session that is not its own", "session and prompt")
	if len(what) == 0 {
		return ""
	}
	return strings.Join(what, ", ") + ": look at " + strings.Join(where, ", ")
}

// isForeignSession reports whether a submission goes on with a conversation that neither the task t is in nor one
// that its agent has queued and that nobody had to release or has moved.
func (in *intake) isForeignSession(st *fold.State, s *submission, t *state.Task) bool {
	current := ""
	if s.Continue {
		current = in.currentSession(st, sessionPlace{s.lane(), s.Agent, in.accountFor(st, s)})
	}
	is := func(x *state.Task) bool {
		return (s.SessionKey == "" || x.SessionKey == s.SessionKey) && (!s.Continue || x.SessionID == current) && (s.AgentSession == "" || x.AgentSession == s.AgentSession)
	}
	if is(t) {
		return false
	}
	for _, id := range st.FollowUps(t.ID) {
		if child, err := in.a.tasks.WholeIn(st, id); err == nil && child.Intake == state.IntakeOpen && is(&child) {
			return false
		}
	}
	agent, _ := st.LaneAgent(s.SessionKey, slices.Sorted(maps.Keys(in.a.tasks.Config.Agents)))
	return s.AgentSession != "" || s.Continue || agent != ""
}

// BeginWait notes that a run waits for a task until done is called, and lends its worker
// to others meanwhile. It returns an error if the run may not wait for that task.
func (a *Admission) BeginWait(run, ref string) (done func(), err error) {
	waits := false
	a.tasks.View(func(st *fold.State) {
		var id string
		if id, err = queue.FindIn(st, ref); err != nil {
			return
		}
		parent, runs := st.RunningAs(run)
		t, _ := st.Peek(id)
		if !runs || t.Status.Terminal() {
			return
		}
		if why := a.mayNotWait(st, parent, &t); why != "" {
			hint := "stint show " + id + ", once this run has ended"
			if t.Hold {
				hint = "leave it to the user"
			}
			err = &task.Error{Code: task.CodeConflict, Message: "this run cannot wait for task " + id + ": " + why, Hint: hint}
			return
		}
		waits = true
	})
	if !waits {
		return func() {}, err
	}
	a.waits.Store(&run, nil) // one key for each call
	a.tasks.Wake()           // the worker that it lends is free
	return func() { a.waits.Delete(&run) }, nil
}

// mayNotWait returns why the run of the task parent may not wait for the task t; "" if it may. One with a lane of
// its own that comes after no other needs nothing that a waiting run has, but an account with a free slot, its
// agent's session and, if that is exclusive, its checkout.
func (a *Admission) mayNotWait(st *fold.State, parent string, t *state.Task) string {
	switch {
	case t.TriggeredBy != parent || t.Trigger != state.ByAgent:
		return "it has not queued that task"
	case t.Hold:
		return "it is held until stint release " + t.ID
	case !strings.HasPrefix(t.SessionKey, state.LanePrefixTask):
		return "it has no lane of its own"
	case len(t.After) > 0:
		return "it comes after other tasks"
	case t.Status == state.Running:
		return ""
	}
	if other := st.Occupant(t, lanes.Limits{Checkout: a.Checkout}).Task; other != "" {
		return "its agent session or its checkout is used by " + other
	}
	name, accounts := t.AccountName(), a.tasks.AccountsNow()
	account, lim := st.Account(name), lanes.Limits{Account: accounts.Rule}
	_, isFree := accounts.Choose(st, t.Agent, lim, nil)
	now := a.tasks.Config.Now()
	if isFree && !t.Pinned || st.Free(name, now, lim) > 0 || account.Hold || account.Disabled || account.CoolUntil.After(now) {
		return "" // or what it waits for has nothing to do with a run that waits
	}
	lent := a.Lent(st)
	for _, id := range st.RunningWith(name) {
		if id == parent || lent[id] {
			return "account " + name + " has no slot left, and a run that waits has one"
		}
	}
	return ""
}

// Lent returns the running tasks, by id, that wait for others and lend them what they use. A run
// that has ended has nothing to lend, though a client that waits within it may not be gone yet.
func (a *Admission) Lent(st *fold.State) map[string]bool {
	lent := map[string]bool{}
	for run := range a.waits.Range {
		if id, runs := st.RunningAs(*run.(*string)); runs {
			lent[id] = true
		}
	}
	return lent
}
