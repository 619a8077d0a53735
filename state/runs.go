package state

import (
	"fmt"
	"time"
)

// A Run is one execution of an agent for a task that has ended, as the task's
// records tell it. Of a task whose records were merged into one, all runs up to then
// are one.
type Run struct {
	ID         string // "" if the records do not say
	TaskID     string
	SessionKey string
	Agent      string
	Model      string
	Account    string    // as Task.AccountName gives it
	Ended      time.Time // zero if the records do not say
	Usage      Usage     // of this run alone
}

// EachRun gives the runs of all tasks in the journal, task by task in the order of
// age, and the runs of a task in their order. It reads all records anew. The error is
// the Reader's, or f's, which ends it.
func (s *State) EachRun(f func(Run) error) error {
	for n := uint32(1); n < s.entries.len(); n++ {
		if s.entries.at(n).kept != inJournal {
			continue
		}
		if err := s.eachRunOf(n, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) eachRunOf(n uint32, f func(Run) error) error {
	var t folded
	var runs []Run
	t.ID = s.id(n)
	for i, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		if err != nil {
			return fmt.Errorf("read task %s: %w", t.ID, err)
		}
		before := t.Task
		if err := t.apply(sec, s.pool, keepNone); err != nil {
			return err
		}
		r, ended := MergedRun(&t.Task)
		if i > 0 {
			r, ended = endedRun(&before, &t.Task)
		}
		if ended {
			runs = append(runs, r)
		} else if last := len(runs) - 1; last >= 0 && lateUsage(&before, &t.Task) {
			runs[last].Usage = runs[last].Usage.Plus(t.Usage.since(before.Usage))
		}
	}
	for _, r := range runs {
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// lateUsage reports whether a record tells what the last run used: a person had
// taken the task out of it, and it ended after that.
func lateUsage(before, after *Task) bool {
	return before.Status != Running && after.Status != Running && after.By == ""
}

// MergedRun gives the runs that one record tells of, which is all that there is of
// its task, as one. ended is false if there were none.
func MergedRun(t *Task) (r Run, ended bool) {
	if t.RunID == "" || t.Status == Running && t.Usage == (Usage{}) {
		return Run{}, false
	}
	return runOf(t, t.UpdatedAt, t.Usage), true
}

// endedRun gives the run that a record ends. What it used is what the task's totals
// have grown by; where they went down, they were begun anew.
func endedRun(before, after *Task) (r Run, ended bool) {
	if before.Status != Running || after.Status == Running && after.RunID == before.RunID {
		return Run{}, false
	}
	return runOf(before, after.UpdatedAt, after.Usage.since(before.Usage)), true
}

func runOf(t *Task, ended time.Time, u Usage) Run {
	return Run{ID: t.RunID, TaskID: t.ID, SessionKey: t.SessionKey, Agent: t.Agent, Model: t.Model, Account: t.AccountName(), Ended: ended, Usage: u}
}

// since gives what was added to old to make u.
func (u Usage) since(old Usage) Usage {
	if u.InputTokens < old.InputTokens || u.CachedInputTokens < old.CachedInputTokens || u.OutputTokens < old.OutputTokens ||
		u.ReasoningTokens < old.ReasoningTokens || u.CostUSD < old.CostUSD {
		return u
	}
	return Usage{
		InputTokens: u.InputTokens - old.InputTokens, CachedInputTokens: u.CachedInputTokens - old.CachedInputTokens,
		OutputTokens: u.OutputTokens - old.OutputTokens, ReasoningTokens: u.ReasoningTokens - old.ReasoningTokens,
		CostUSD: u.CostUSD - old.CostUSD,
	}
}

// Plus gives the sum of two amounts.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		InputTokens: u.InputTokens + v.InputTokens, CachedInputTokens: u.CachedInputTokens + v.CachedInputTokens,
		OutputTokens: u.OutputTokens + v.OutputTokens, ReasoningTokens: u.ReasoningTokens + v.ReasoningTokens,
		CostUSD: u.CostUSD + v.CostUSD,
	}
}
