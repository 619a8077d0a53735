package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// fallBack hands tasks that would start now, if their account did not cool down, to
// the first of their fallback agents that can take them.
func (c *Coordinator) fallBack() {
	able := c.able(c.stranded())
	if len(able) == 0 || len(c.handOvers(able)) == 0 {
		return
	}
	err := c.exclusive(context.Background(), func(tx *ledger.Tx) error {
		for _, r := range c.handOvers(able) {
			tx.Append(r)
		}
		return nil
	})
	if err != nil && !errors.Is(err, &task.Error{Code: task.CodeStopped}) {
		c.trouble("tasks could not be handed to their fallback agents", err)
	}
}

func (c *Coordinator) stranded() []state.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Stranded(c.cfg.Now(), c.limits())
}

// able says of all fallback agents of tasks whether they are there and logged in. It
// may be slow.
func (c *Coordinator) able(tasks []state.Task) map[string]bool {
	able := map[string]bool{}
	for _, t := range tasks {
		for _, agent := range t.Fallback {
			if _, asked := able[agent]; !asked {
				able[agent] = c.cfg.Agents[agent] != nil && (c.cfg.AgentReady == nil || c.cfg.AgentReady(agent))
			}
		}
	}
	return able
}

// hasFallback reports whether an able agent takes a task over, now or when there is
// a place for it. mu is held.
func (c *Coordinator) hasFallback(t *state.Task, able map[string]bool, now time.Time) bool {
	return slices.ContainsFunc(t.Fallback, func(agent string) bool {
		a := c.state.Account(agent)
		return agent != t.Agent && able[agent] && !a.Hold && !a.CoolUntil.After(now)
	})
}

// handOvers gives a record for each task that an able agent takes over now. An
// account that was limited itself takes one at a time, its own first.
func (c *Coordinator) handOvers(able map[string]bool) (records []*ledger.Record) {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	full := map[string]bool{}
	for _, t := range c.state.Ready(now, c.limits()) {
		name := t.AccountName()
		full[name] = c.state.Account(name).LimitWaits > 0
	}
	for _, t := range c.state.Stranded(now, c.limits()) {
		for _, agent := range t.Fallback {
			if agent == t.Agent || !able[agent] || full[agent] || !c.state.Open(agent, now, c.limits()) {
				continue
			}
			full[agent] = c.state.Account(agent).LimitWaits > 0
			records = append(records, c.handOver(&t, agent, now))
			break
		}
	}
	return records
}

// handOver gives the record with which a task goes to another agent, in a new
// session there. mu is held.
func (c *Coordinator) handOver(t *state.Task, agent string, now time.Time) *ledger.Record {
	rest := slices.DeleteFunc(slices.Clone(t.Fallback), func(a string) bool { return a == agent })
	until := c.state.Account(t.AccountName()).CoolUntil.In(now.Location()).Format("2006-01-02 15:04:05 MST")
	rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
	rec.Add(state.KeyAgent, agent).Add(state.KeyAccount, agent).Add(state.KeySessionID, c.cfg.ID()).
		Add(state.KeyFallback, strings.Join(rest, ", ")).
		Add(state.KeyNote, fmt.Sprintf("%s is rate-limited until %s; %s carries it out in a new session", t.Agent, until, agent))
	if model := c.workspace(t.Workspace).Models[agent]; model != t.Model {
		rec.Add(state.KeyModel, model)
	}
	unset(rec, state.KeyNotBefore, !t.NotBefore.IsZero())
	unset(rec, state.KeyLimitSince, !t.LimitSince.IsZero())
	unset(rec, state.KeyPromptKept, t.PromptKept != "")
	return rec.Add(state.KeyUpdatedAt, state.FormatTime(now))
}
