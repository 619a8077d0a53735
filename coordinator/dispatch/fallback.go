package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// fallBack hands tasks that would start now, if their account did not cool down, to
// the first of their fallback agents that can take them.
func (d *Dispatcher) fallBack() {
	lim := d.Limits()
	able := d.able(queue.Read(d.tasks, func(st *fold.State) []state.Task { return st.Stranded(d.tasks.Config.Now(), lim) }))
	if len(able) == 0 || len(queue.Read(d.tasks, func(st *fold.State) []*ledger.Record { return d.handOvers(st, able, lim) })) == 0 {
		return
	}
	err := d.tasks.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		for _, r := range d.handOvers(st, able, lim) {
			tx.Append(r)
		}
		return nil
	})
	d.tasks.TroubleUnlessStopped("tasks could not be handed to their fallback agents", err)
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

// handOvers returns a record for each task that an able agent takes over now, in a new
// session there. An account that was limited itself takes one at a time, its own first.
func (d *Dispatcher) handOvers(st *fold.State, able map[agentIn]bool, lim lanes.Limits) (records []*ledger.Record) {
	now := d.tasks.Config.Now()
	full := map[string]bool{}
	for _, t := range st.Ready(now, lim) {
		name := t.AccountName()
		full[name] = st.Account(name).LimitWaits > 0
	}
	for _, t := range st.Stranded(now, lim) {
		i := slices.IndexFunc(t.Fallback, func(agent string) bool {
			return agent != t.Agent && able[agentIn{agent, t.Environment}] && !full[agent] && st.Open(agent, now, lim)
		})
		if i < 0 {
			continue
		}
		agent := t.Fallback[i]
		full[agent] = st.Account(agent).LimitWaits > 0
		rest := slices.DeleteFunc(slices.Clone(t.Fallback), func(a string) bool { return a == agent })
		until := st.Account(t.AccountName()).CoolUntil.In(now.Location()).Format("2006-01-02 15:04:05 MST")
		rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
		rec.Add(state.KeyAgent, agent).Add(state.KeyAccount, agent).Add(state.KeySessionID, d.tasks.Config.ID()).
			Add(state.KeyFallback, strings.Join(rest, ", ")).
			Add(state.KeyNote, fmt.Sprintf("%s is rate-limited until %s; %s carries it out in a new session", t.Agent, until, agent))
		if model := d.tasks.Workspace(t.Workspace).Models[agent]; model != t.Model {
			rec.Add(state.KeyModel, model)
		}
		task.Unset(rec, state.KeyNotBefore, !t.NotBefore.IsZero())
		task.Unset(rec, state.KeyLimitSince, !t.LimitSince.IsZero())
		task.Unset(rec, state.KeyPromptInHistory, t.PromptInHistory != "")
		records = append(records, rec.Add(state.KeyUpdatedAt, state.FormatTime(now)))
	}
	return records
}
