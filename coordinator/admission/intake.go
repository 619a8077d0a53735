package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"stint/coordinator/followup"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/prompt"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// A submission is a spec with what it leaves to the master filled in.
type submission struct {
	task.TaskSpec
	named      bool     // the spec names an agent
	open       bool     // it leaves the fallback to the configuration
	root       string   // its checkout or directory, whose lane it may be in
	isCheckout bool     // root is one
	after      []string // the ids that After means, set on the log's goroutine

	parent  string        // the task that queues it
	asker   *state.Task   // that task, if its run asks, as the run knows it
	within  string        // see state.Task.Within
	trigger state.Trigger // why that does; "": nobody but a client asks
	held    string        // why it is held
	note    string        // what else its user should know

	environment string // digest of its environment

	old     *state.Task   // that is there already, and that the spec asks for again; nil: it is new
	session string        // id of the session that it begins, if it does
	account string        // with which it begins, set on the log's goroutine
	resume  string        // its resume policy
	fields  []ledger.Pair // of its record, as far as no other task matters; see prepare
	files   string        // its input files as JSON
}

// A request is what a client wants to be enqueued together, all or none.
type request struct {
	specs  []task.TaskSpec
	isList bool   // else it is a single one
	key    string // idempotency key of the list as a whole; "": it has none

	also func(*fold.State, *ledger.Tx) // what else the change has, if anything
}

// An intake is one or more specs that are enqueued together. It belongs to one
// call; what is in the last fields is made anew on the log's goroutine.
type intake struct {
	a *Admission
	request
	list       []submission
	index      map[string]int    // id to place in list
	agent      string            // the default agent, asked at most once
	agents     map[string]string // by lane: that of the last spec
	seen       map[string]*Place
	configured queue.Accounts

	view func(func(*fold.State)) // the store's; of a follow-up, which is made where the fold is locked, that fold

	fresh []state.Task // the new ones
	now   string
	begun map[sessionPlace]string // their sessions: the last one of each place; for a place without an account, that
}

// Submit enqueues a task. When it returns nil, the task is on the disk. A spec whose ID or idempotency key is
// known returns the task that is there already; the same key with another body is a conflict. The spec is
// checked first: where its workspace has gone meanwhile, it is refused although its key is known.
func (a *Admission) Submit(ctx context.Context, s task.TaskSpec) (state.Task, error) {
	tasks, err := a.submit(ctx, request{specs: []task.TaskSpec{s}})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
}

// SubmitOnce enqueues many tasks, all or none, in one durable change, and returns them in the order of their
// specs. A spec may come after others of the batch by their ids. Specs whose id or idempotency key is known return
// the tasks that are there. The error names the first spec that is wrong: "task 3 of 7: …".
//
// key is the idempotency key of the list as a whole; its specs have none, unless it is "". The same list under the
// same key returns the tasks that are there already, and anything else under it is a conflict: another list, a
// longer or a shorter one, one in another order, or a single task.
func (a *Admission) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error) {
	if key != "" && task.CheckKey(key) != nil {
		return nil, task.CheckKey(key)
	}
	return a.submit(ctx, request{specs: specs, isList: true, key: key})
}

func (a *Admission) submit(ctx context.Context, req request) ([]state.Task, error) {
	in, err := a.newIntake(ctx, req)
	if err != nil {
		return nil, err
	}
	if tasks, err := in.again(ctx); tasks != nil || err != nil {
		return tasks, err
	}
	for i := range in.list {
		if i > 0 && in.list[i].environment == in.list[i-1].environment {
			continue
		}
		if _, err := a.tasks.KeepEnvironment(in.list[i].Environment); err != nil {
			return nil, fmt.Errorf("keep the environment of the call: %w", err)
		}
	}
	if err := a.tasks.Update(ctx, in.record); err != nil {
		return nil, err
	}
	tasks, err := in.tasks()
	if err == nil {
		in.noteBeside(&tasks[0])
	}
	return tasks, err
}

// newIntake checks all of specs that does not depend on other tasks.
func (a *Admission) newIntake(ctx context.Context, req request) (*intake, error) {
	specs := req.specs
	switch {
	case a.tasks.IsShut():
		return nil, a.tasks.StoppedError()
	case len(specs) == 0:
		return nil, task.Invalid("give at least one", "the list has no task")
	case len(specs) > task.MaxBatch:
		return nil, task.ErrLongList
	}
	in := a.emptyIntake(a.tasks.View)
	in.request, in.list, in.index = req, make([]submission, 0, len(specs)), make(map[string]int, len(specs))
	for i, s := range specs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		digest := ""
		if i > 0 && s.Environment == nil {
			s.Environment, digest = in.list[0].Environment, in.list[0].environment // a long list has it once
		} else if s.Environment = task.CaptureEnvironment(s.Environment, []string{"*"}); task.EnvironmentSize(s.Environment) > task.MaxEnvironment {
			return nil, in.at(i, task.Wrong("environment", "capture fewer variables: stint config set capture_env default", "the environment has more than %d bytes beside PATH", task.MaxEnvironment))
		} else {
			_, digest = task.EncodeEnvironment(s.Environment)
		}
		if err := in.add(submission{TaskSpec: s, environment: digest}); err != nil {
			return nil, in.at(i, err)
		}
	}
	if by := in.list[0].parent; in.key != "" && by != "" { // a run asks for all of them
		in.key = state.RunKey(in.key, by)
	}
	keys := map[string]int{}
	for i := range in.list { // two that want to be the same task
		s := &in.list[i]
		if in.key != "" && s.IdempotencyKey != "" {
			return nil, in.at(i, task.Wrong("idempotencyKey", "leave it out, or give keys to the tasks alone", "the list has an idempotency key, and the task has another one"))
		} else if in.key != "" {
			s.IdempotencyKey = state.PartKey(in.key, i+1)
		}
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
		a.prepare(s)
	}
	return in, nil
}

func (a *Admission) emptyIntake(view func(func(*fold.State))) *intake {
	return &intake{a: a, view: view, agents: map[string]string{}, seen: map[string]*Place{}, configured: a.tasks.AccountsNow()}
}

// add checks a submission, fills in what it leaves to us, and adds it to the intake. What
// depends on other tasks is looked at by record.
func (in *intake) add(given submission) error {
	in.list = append(in.list, given)
	a, s := in.a, &in.list[len(in.list)-1]
	var by *state.Task // whose run asks
	if s.FromRun != "" {
		s.AllowStateInWorkspace = false // no run gives itself that right
		t, err := state.Task{}, error(nil)
		a.tasks.View(func(st *fold.State) { t, err = taskOfRun(st, s.FromRun) })
		if by = &t; err != nil {
			return err
		}
		if by.SharedID != "" {
			return task.ErrFromShared
		}
		if by.Pinned && s.Account == "" && (s.Agent == "" || s.Agent == by.Agent) {
			s.Account = by.Account
		}
		if s.asker = a.live.TaskOf(by.ID); s.asker == nil {
			s.asker = by
		}
		a.mask(&s.TaskSpec)
		s.environment, s.Environment = by.Environment, nil // never one that an agent has made up: agents' programs are looked for there
	}
	if err := task.CheckPrompt(s.Prompt); err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = a.tasks.Config.ID()
	} else if _, err := uuid.Parse(s.ID); err != nil || len(s.ID) != 36 {
		return task.Wrong("id", "leave it out, or write one as uuidgen gives it", "the id %q is no UUID", s.ID)
	}
	checkFields := func(s *submission) error { return CheckFields(&s.TaskSpec) }
	checkAllow := func(s *submission) error { return a.CheckAllow(s.Agent, s.Workspace, s.Allow) }
	for _, check := range []func(*submission) error{in.checkPlace, in.checkAgent, checkFields, checkAllow, a.fillFallback} {
		if err := check(s); err != nil {
			return err
		}
	}
	if by != nil {
		s.parent, s.trigger = by.ID, state.ByAgent
		if s.IdempotencyKey != "" {
			s.IdempotencyKey = state.RunKey(s.IdempotencyKey, by.ID)
		}
		a.capBy(s, by)
	}
	return nil
}

// mask masks known secrets in all texts of a spec that no person has typed.
func (a *Admission) mask(s *task.TaskSpec) {
	hide := a.tasks.Config.Redact.String
	for _, field := range task.Fields(s) {
		switch text := field.(type) {
		case *string:
			*text = hide(*text)
		case *[]string:
			*text = slices.Clone(*text)
			for i, line := range *text {
				(*text)[i] = hide(line)
			}
		}
	}
	for i := range s.InputFiles {
		s.InputFiles[i].Content = hide(s.InputFiles[i].Content)
	}
}

// at adds to an error which spec it is about.
func (in *intake) at(i int, err error) error {
	if !in.isList {
		return err
	}
	return task.AtTask(err, i, len(in.specs))
}

// CheckFields returns what is wrong with fields of a spec that can be looked at by themselves.
func CheckFields(s *task.TaskSpec) error {
	for _, check := range []func(*task.TaskSpec) error{task.CheckSession, task.CheckTime, task.CheckLimits, task.CheckVerify, task.CheckInputFiles, task.CheckOutputSpec, task.CheckAllow} {
		if err := check(s); err != nil {
			return err
		}
	}
	return cmp.Or(task.InOption("onFailure", followup.Check(s.OnFailure)), task.InOption("onIssue", followup.Check(s.OnIssue)), CheckPolicy(s.OutputPolicy))
}

// CheckPolicy checks an output policy. One word is a name.
func CheckPolicy(p string) error {
	_, named := prompt.Policies[p]
	switch {
	case len(p) > state.MaxPolicy || !utf8.ValidString(p) || strings.ContainsRune(p, 0):
		return task.Wrong("outputPolicy", "write it in a few lines", "the output policy is not UTF-8 text of at most %d bytes", state.MaxPolicy)
	case p != "" && !named && !strings.ContainsAny(strings.TrimSpace(p), " \n"):
		return task.Wrong("outputPolicy", "use brief (at most six lines), final (as long as it takes), none, @FILE, or a text of several words", "there is no output policy %q", p)
	}
	return nil
}

// checkNotPast refuses a time that has passed.
func (in *intake) checkNotPast(s *task.TaskSpec) error {
	const clockDifference = time.Minute // how much the clock of a client may be behind ours
	now := in.a.tasks.Config.Now()
	if s.NotBefore.IsZero() || !s.NotBefore.Before(now.Add(-clockDifference)) {
		return nil
	}
	return task.Wrong("notBefore", "leave it out to run the task at once", "the time %s has passed; it is %s now",
		s.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// record appends the records of all specs that ask for something new. The log may call it more than once.
func (in *intake) record(st *fold.State, tx *ledger.Tx) error {
	in.fresh, in.begun = make([]state.Task, 0, len(in.list)), map[sessionPlace]string{}
	in.now = state.FormatTime(in.a.tasks.Config.Now())
	tx.Grow(len(in.list))
	if err := in.checkShared(st, tx); err != nil {
		return err
	}
	for i := range in.list {
		if err := in.recordOne(st, tx, &in.list[i]); err != nil {
			return in.at(i, err)
		}
	}
	// A client cannot put more into a queue that is full. Follow-ups have a bound of their own.
	most, more, waiting := in.a.tasks.Config.MaxQueued, len(in.fresh), st.Queued()+tx.Ahead()
	if tx.Count(more); most > 0 && more > 0 && in.list[0].by() != "" && waiting+more > most {
		return &task.Error{
			Code: task.CodeTooMany, Message: fmt.Sprintf("the queue is full: %d tasks wait, %d more would come, and max_queued is %d", waiting, more, most),
			Hint: "try again when some have run (stint ls --status queued), or set max_queued in the configuration",
		}
	}
	if in.also != nil {
		in.also(st, tx)
	}
	err := st.CheckOrder(in.fresh)
	var cycle *lanes.CycleError
	if errors.As(err, &cycle) {
		return in.at(in.index[cycle.ID], task.Wrong("after", "let it come after other tasks, or be in another session", "it would wait for itself: %s", cycle.Text))
	}
	return err
}

// recordOne appends the record of one spec, if it is new.
func (in *intake) recordOne(st *fold.State, tx *ledger.Tx, s *submission) (err error) {
	if s.old, err = in.known(st, s); err != nil || s.old != nil {
		return err
	}
	if err := in.resolveAfter(st, s); err != nil {
		return err
	}
	if s.FromRun != "" {
		t, err := taskOfRun(st, s.FromRun)
		if err != nil {
			return err
		}
		r := s.asker // where it runs, whatever a person has written of the task since
		t.Workspace, t.SessionKey, t.SessionID, t.AgentSession = r.Workspace, r.SessionKey, r.SessionID, r.AgentSession
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
	in.fresh = append(in.fresh, state.Task{ID: s.ID, Status: state.Queued, Hold: s.Hold, After: s.after, TriggeredBy: s.parent, Agent: s.Agent, AgentSession: s.AgentSession})
	t := &in.fresh[len(in.fresh)-1]
	if t.SessionKey, t.SessionID, err = in.sessionFor(st, s, tx); err != nil {
		return err
	}
	t.Account = s.account
	if s.FromRun != "" && s.Await && !t.Hold { // one that is held is accepted, so that a person sees it; BeginWait refuses the wait
		child := *t
		child.Trigger, child.Workspace, child.Within = state.ByAgent, s.Workspace, s.within
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

// resolveAfter finds the tasks that a spec comes after, in the same list or among those that are there.
func (in *intake) resolveAfter(st *fold.State, s *submission) error {
	const maxAfter = 1000
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

// prepare makes the fields of a new task's record that do not depend on other tasks, so that
// this takes no time on the log's goroutine. Those that depend on them are empty.
func (a *Admission) prepare(s *submission) {
	set := a.tasks.Workspace(s.Workspace)
	s.session, s.resume = a.tasks.Config.ID(), a.resumeOf(s)
	r := &ledger.Record{Fields: make([]ledger.Pair, 0, 16)} // more than most need
	r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeySessionKey, "").Add(state.KeySessionID, "").
		AddIf(state.KeyWorkspace, s.Workspace).AddIf(state.KeyIsolation, s.Isolation).Add(state.KeyAgent, s.Agent).Add(state.KeyAccount, "").
		AddIf(state.KeyModel, cmp.Or(s.Model, set.Models[s.Agent])).Add(state.KeyCreatedAt, "").Add(state.KeyUpdatedAt, "").Add(state.KeyResume, s.resume).
		AddIf(state.NativeKey(s.Agent), s.AgentSession).AddIf(state.KeyLabel, s.Label).AddIf(state.KeyIdempotencyKey, s.IdempotencyKey).
		AddIf(state.KeyTimeout, s.Timeout).AddIf(state.KeyBy, s.by()).AddIf(state.KeyTriggeredBy, s.parent).AddIf(state.KeySharedID, s.SharedID).AddIf(state.KeyTrigger, string(s.trigger)).AddIf(state.KeyWithin, s.within).
		AddIf(state.KeyEnvironment, s.environment)
	r.AddIf(state.KeyPriority, state.OrNone(s.Priority)).AddIf(state.KeyMaxAttempts, state.OrNone(s.MaxAttempts)).
		AddIf(state.KeyPinned, state.Flag(s.Account != "")).AddIf(state.KeyBudget, s.Budget).AddIf(state.KeySpare, state.Flag(s.Spare))
	r.AddWhen(s.NoWaitLimit, state.KeyMaxLimitWait, noWait)
	r.AddIf(state.KeyNotBefore, state.FormatTime(s.NotBefore))
	r.AddWhen(s.AfterPolicy == state.AfterAny, state.KeyAfterPolicy, state.AfterAny)
	r.AddIf(state.KeyVerifyCommand, s.VerifyCommand).AddIf(state.KeyVerifyTimeout, s.VerifyTimeout).
		AddIf(state.KeyOnFailure, s.OnFailure).AddIf(state.KeyOnIssue, s.OnIssue).AddIf(state.KeyOutputPolicy, s.OutputPolicy).
		AddIf(state.KeyMaxIterations, state.OrNone(s.MaxIterations)).AddIf(state.KeyTenantID, s.TenantID).AddIf(state.KeyQueue, s.Queue).
		AddIf(state.KeyFallback, strings.Join(s.Fallback, " ")).AddIf(state.KeyAllow, strings.Join(s.Allow, "\n")).AddIf(state.KeyOutputSpec, strings.Join(s.OutputSpec, "\n"))
	if len(s.InputFiles) > 0 {
		files, _ := json.Marshal(s.InputFiles) // texts: nothing can be wrong
		s.files = string(files)
	}
	s.fields = r.Fields
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
		case state.KeyAccount:
			f.Value = t.Account
		case state.KeyCreatedAt, state.KeyUpdatedAt:
			f.Value = in.now
		}
	}
	r.AddIf(state.KeyAfter, strings.Join(s.after, " ")).AddIf(state.KeyHold, state.Flag(s.Hold)).AddIf(state.KeyNotify, state.Flag(s.Notify))
	if r.AddIf(state.KeyNote, s.held); s.note != "" {
		addNote(r, s.note)
	}
	r.AddWhen(!s.Hold && s.trigger == state.ByAgent, state.KeyIntake, state.IntakeOpen)
	r.AddIf(state.KeyInputFiles, s.files) // long texts come last
	return r.Add(state.KeyPrompt, s.Prompt)
}

// by returns who asks: a client, a run, or, as "", the master itself.
func (s *submission) by() string {
	switch s.trigger {
	case "":
		return ledger.ByClient
	case state.ByAgent:
		return ledger.ByAgent
	}
	return ""
}

// tasks returns the tasks of all specs once they are durable, in the place of fresh where it can. The texts of
// one that has not run are those of its spec: to read thousands back takes long.
func (in *intake) tasks() (tasks []state.Task, err error) {
	if tasks = in.fresh; len(in.fresh) < len(in.list) {
		tasks = make([]state.Task, len(in.list))
	}
	for i := range in.list {
		t, s := &tasks[i], &in.list[i]
		if s.old != nil {
			*t = *s.old
			continue
		}
		*t, _ = in.a.tasks.Peek(s.ID)
		if t.Status.Terminal() || t.RunID != "" { // a run may have changed its texts
			if *t, err = in.a.tasks.Whole(s.ID); err != nil {
				return nil, err
			}
			continue
		}
		t.Title, t.Prompt, t.InputFiles, t.OnFailure, t.OnIssue, t.OutputPolicy = state.TitleOf(s.Prompt), s.Prompt, s.InputFiles, s.OnFailure, s.OnIssue, s.OutputPolicy
	}
	return tasks, nil
}

// Foresee returns what Submit would make of specs, or why it would not. isList says that the
// specs came as a list, so that errors name the field of one with its place. Nothing is kept. complete fills in the
// rest of the preview of a new task: begun says that a task before it in the list has its session, of which the ledger
// knows nothing yet.
func (a *Admission) Foresee(ctx context.Context, specs []task.TaskSpec, isList bool, complete func(p *task.TaskPreview, s *task.TaskSpec, begun bool) error) ([]task.TaskPreview, error) {
	const maxPreviews = 100 // each has a search and a prompt
	if len(specs) > maxPreviews {
		return nil, task.Invalid("give it some of them", "%d tasks are too many for a preview; at most %d are taken", len(specs), maxPreviews)
	}
	in, err := a.newIntake(ctx, request{specs: specs, isList: isList})
	if err != nil {
		return nil, err
	}
	a.tasks.View(func(st *fold.State) { err = in.record(st, &ledger.Tx{}) })
	if err != nil {
		return nil, err
	}
	list, n := make([]task.TaskPreview, len(in.list)), -1
	for i := range in.list {
		f, s := &list[i], &in.list[i]
		if f.Known = s.old != nil; f.Known {
			f.Task = *s.old
			continue
		}
		n++
		sec, err := ledger.Encode(in.newTask(s, &in.fresh[n]))
		if err != nil {
			return nil, err
		}
		if f.Task, err = fold.TaskOf(sec); err != nil {
			return nil, err
		}
		begun := false
		for _, before := range in.fresh[:n] {
			if s := &in.list[in.index[before.ID]]; s.Hold || s.NotBefore.After(a.tasks.Config.Now()) {
				continue // it is passed, as in the lane
			}
			if before.SessionKey == f.Task.SessionKey {
				f.Ahead++
			}
			begun = begun || before.SessionID == f.Task.SessionID
		}
		if err := cmp.Or(context.Cause(ctx), complete(f, &s.TaskSpec, begun)); err != nil {
			return nil, err
		}
	}
	return list, nil
}
