package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// fallBack hands tasks whose account cools down to the first of their fallback agents that can take them now, in a
// new session there. An account that was limited itself takes one at a time, its own first.
func (d *Dispatcher) fallBack() {
	lim := d.Limits()
	able := d.able(queue.Read(d.tasks, func(st *fold.State) []state.Task { return st.Stranded(d.tasks.Config.Now(), lim) }))
	if len(able) == 0 {
		return
	}
	d.appendAll("tasks could not be handed to their fallback agents", func(st *fold.State) (records []*ledger.Record) {
		now := d.tasks.Config.Now()
		taken, accounts := taken(st, now, lim), d.tasks.AccountsNow()
		for _, t := range st.Stranded(now, lim) {
			if accounts.CanMove(st, &t) { // to another account of its agent, when that has room
				continue
			}
			var account string
			i := slices.IndexFunc(t.Fallback, func(agent string) (isFree bool) {
				if agent != t.Agent && able[agentIn{agent, t.Environment}] {
					account, isFree = accounts.Choose(st, agent, lim.For(t.Spare), taken)
				}
				return isFree
			})
			if i < 0 {
				continue
			}
			agent := t.Fallback[i]
			taken[account]++
			rest := slices.DeleteFunc(slices.Clone(t.Fallback), func(a string) bool { return a == agent })
			until := st.Account(t.AccountName()).CoolUntil.In(now.Location()).Format("2006-01-02 15:04:05 MST")
			rec := task.RecordOf(t.ID).Add(state.KeyAgent, agent).Add(state.KeyAccount, account).Add(state.KeySessionID, d.tasks.Config.ID()).
				Add(state.KeyFallback, strings.Join(rest, ", ")).
				Add(state.KeyNote, fmt.Sprintf("%s is rate-limited until %s; %s runs it in a new session", t.Agent, until, agent))
			model := d.tasks.Workspace(t.Workspace).Models[agent]
			rec.AddWhen(model != t.Model, state.KeyModel, model)
			rec.AddWhen(t.Pinned, state.KeyPinned, "")
			rec.AddWhen(!t.NotBefore.IsZero(), state.KeyNotBefore, "")
			rec.AddWhen(!t.LimitSince.IsZero(), state.KeyLimitSince, "")
			rec.AddWhen(t.PromptInHistory != "", state.KeyPromptInHistory, "")
			records = append(records, rec.Add(state.KeyUpdatedAt, state.FormatTime(now)))
		}
		return records
	})
}

// appendAll appends the records that are due, if any are. trouble is what is logged if that fails.
func (d *Dispatcher) appendAll(trouble string, due func(*fold.State) []*ledger.Record) {
	if len(queue.Read(d.tasks, due)) == 0 {
		return
	}
	err := d.tasks.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		for _, r := range due(st) {
			tx.Append(r)
		}
		return nil
	})
	d.tasks.TroubleUnlessStopped(trouble, err)
}

// An agentIn is an agent in an environment of tasks, by its digest.
type agentIn struct{ agent, environment string }

// able reports of all fallback agents of tasks whether they are there and logged in. It may be slow.
func (d *Dispatcher) able(tasks []state.Task) map[agentIn]bool {
	able := map[agentIn]bool{}
	for _, t := range tasks {
		for _, agent := range t.Fallback {
			key := agentIn{agent, t.Environment}
			if _, asked := able[key]; !asked {
				env, _ := d.tasks.Environment(t.Environment)
				able[key] = d.tasks.Config.Agents[agent] != nil && (d.tasks.Config.AgentReady == nil || d.tasks.Config.AgentReady(agent, env))
			}
		}
	}
	return able
}

// taken returns how many tasks of each account start now.
func taken(st *fold.State, now time.Time, lim lanes.Limits) map[string]int {
	n := map[string]int{}
	for _, t := range st.Ready(now, lim) {
		n[t.AccountName()]++
	}
	return n
}

// moveToAccounts gives tasks that would start now, if their account took any, to another account
// of the same agent that does. They have no conversation that would stay behind.
func (d *Dispatcher) moveToAccounts() {
	accounts := d.tasks.AccountsNow()
	if !slices.ContainsFunc(accounts.List, func(c state.AccountConfig) bool { return len(accounts.Of(c.Tool)) > 1 }) {
		return
	}
	lim := d.Limits()
	d.appendAll("tasks could not be given to another account", func(st *fold.State) (records []*ledger.Record) {
		now := d.tasks.Config.Now()
		taken := taken(st, now, lim)
		for _, t := range st.Movable(now, lim) {
			account := accounts.Elsewhere(st, &t, lim, taken)
			if account == "" {
				continue
			}
			taken[account]++
			rec := task.RecordOf(t.ID).Add(state.KeyAccount, account)
			rec.AddWhen(t.RunID != "", state.KeyNote, "account "+t.AccountName()+" takes no task now; "+account+" runs it")
			records = append(records, rec.Add(state.KeyUpdatedAt, state.FormatTime(now)))
		}
		return records
	})
}

// A rate limit is the account's, not the task's. The account has one cool-down for all of its tasks; it is in
// the ledger, so it holds over restarts. When it ends, one task at a time is tried until one gets through
// ([fold.State.Ready] sees to that), so that what has waited does not start all at once.

// failLimitWaitExceeded ends the tasks that do not wait for a rate limit as long as they
// would have to: what was told not to wait has failed, the others are dead.
func (d *Dispatcher) failLimitWaitExceeded() {
	able := d.able(queue.Read(d.tasks, func(st *fold.State) []state.Task { return d.limitWaitExceeded(st, nil) }))
	list := queue.Read(d.tasks, func(st *fold.State) []state.Task { return d.limitWaitExceeded(st, able) })
	if len(list) == 0 {
		return
	}
	ends := map[string]*admission.Place{}
	for _, t := range list {
		place := d.Admission.PlaceOf(t.ID)
		if ends[t.ID] = place; place != nil {
			break // one follow-up at a time: the next may go on with its session
		}
	}
	err := d.tasks.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		for _, t := range d.limitWaitExceeded(st, able) {
			place, isNow := ends[t.ID]
			if !isNow {
				continue // the record wakes the dispatcher, which comes back
			}
			status, what := state.Dead, "is rate-limited, and "+attempt.WaitedTooLong(d.Attempts.MaxLimitWait(&t))
			if d.Attempts.MaxLimitWait(&t) == 0 {
				status, what = state.Failed, "waits for a rate limit to pass"
			}
			rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(status)).Add(state.KeyReason, string(state.ClassRateLimited))
			admission.AddError(rec, &t, "account "+t.AccountName()+" "+what).
				Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now()))
			d.Admission.End(st, tx, rec, nil, place)
		}
		return nil
	})
	d.tasks.TroubleUnlessStopped("tasks that do not wait for a rate limit could not be ended", err)
}

// limitWaitExceeded returns the queued tasks that do not wait for a rate limit as long as they would have to, and
// that no able agent can take over. One that is not known yet may be able; with nil none is.
func (d *Dispatcher) limitWaitExceeded(st *fold.State, able map[agentIn]bool) []state.Task {
	now, accounts := d.tasks.Config.Now(), d.tasks.AccountsNow()
	return slices.DeleteFunc(st.LimitWaitExceeded(now, d.tasks.Config.MaxLimitWait), func(t state.Task) bool {
		return accounts.CanMove(st, &t) || slices.ContainsFunc(t.Fallback, func(agent string) bool {
			isAble, asked := able[agentIn{agent, t.Environment}]
			return agent != t.Agent && (isAble || able != nil && !asked) && accounts.HasOther(st, &state.Task{Agent: agent, Account: t.Account})
		})
	})
}

// blockedByDependency returns the records that end the queued tasks which come after one that has
// ended otherwise than done, and those that come after them: they could never run.
func (d *Dispatcher) blockedByDependency(st *fold.State) (records []*ledger.Record) {
	const most = 200                  // bytes of another task's error that are told
	causes := map[string]state.Task{} // what others come after: those that this change ends, and those that were read
	for _, t := range st.BlockedByDependency() {
		id, status, _ := st.EndedBadly(t.After, t.AfterPolicy == state.AfterAny)
		if i := slices.IndexFunc(t.After, func(id string) bool { return causes[id].Status != "" }); i >= 0 {
			id = t.After[i]
		}
		cause, isKnown := causes[id]
		if !isKnown {
			cause, _ = d.tasks.WholeIn(st, id) // without: its status is enough
			cause.Status, cause.Prompt, cause.Result = status, "", ""
			causes[id] = cause // a task may have thousands after it
		}
		how := string(cause.Status) // a few words such as "failed (exit): no such file"
		if cause.Reason != "" && string(cause.Reason) != how {
			how += " (" + string(cause.Reason) + ")"
		}
		if cause.Error != "" {
			how += ": " + task.OneSentence(cause.Error, most)
		}
		t.Status, t.Reason, t.Error = state.Failed, cause.Reason, state.CameAfter+state.ShortID(id)+", which ended "+how
		switch {
		case t.Reason != "":
		case cause.Status == state.Canceled:
			t.Reason = state.ClassCanceled
		default:
			t.Reason = state.ClassExit
		}
		causes[t.ID] = t
		r := task.RecordOf(t.ID).Add(state.KeyStatus, string(t.Status)).Add(state.KeyReason, string(t.Reason))
		records = append(records, admission.AddError(r, &t, t.Error).Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now())))
	}
	return records
}

// A program that is missing. An upgrade takes an agent's program away for a few seconds, and whoever removes it brings it back
// at some time. Its tasks need not fail for that: the run looks once more a moment later, then the account goes on hold, which
// ends when the program is back. A program that no task here has ever run with is another matter: the user has not installed
// it. Nor does the account wait for a program that only one task's PATH lacks: that task fails.

// LookForMissing ends, until ctx ends, the holds of accounts whose agent's program or key is back. It has a
// goroutine of its own: a program that is there may not answer for long.
func (d *Dispatcher) LookForMissing(ctx context.Context) {
	const lookForAgent = 5 * time.Second // how often it is looked whether a program is back
	for on := true; on; on = task.Sleep(ctx, lookForAgent) == nil {
		for _, a := range queue.Read(d.tasks, (*fold.State).Missing) {
			known, _ := d.tasks.AccountsNow().Find(a.Name)
			if name := cmp.Or(known.Tool, a.Agent, a.Name); a.IsKeyless() && (d.tasks.Config.HasKey == nil || !d.tasks.Config.HasKey(name)) || a.IsMissing() && !d.Attempts.IsFound(name) {
				continue
			}
			d.tasks.Config.Log.Info("what an agent lacked is back", "account", a.Name)
			d.appendAll("the hold of an account could not be ended", func(st *fold.State) (records []*ledger.Record) {
				if now := st.Account(a.Name); now.IsMissing() || now.IsKeyless() { // else it is another hold by now
					records = append(records, task.AccountRecord(a.Name).Add(state.KeyHold, "").Add(state.KeyReason, ""))
				}
				return records
			})
		}
	}
}
