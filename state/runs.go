package state

import (
	"fmt"
	"strings"
	"time"

	"stint/ledger"
)

// A Run is one execution of an agent for a task that has ended, as the task's
// records tell it.
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

// EachTask gives the runs of each task in the journal, in the order of age, and the
// runs of a task in their order; of a task that never ran, none. It reads all records
// anew. The error is the Reader's, or f's, which ends it.
func (s *State) EachTask(f func(runs []Run) error) error {
	for n := uint32(1); n < s.entries.len(); n++ {
		if s.entries.at(n).kept != inJournal {
			continue
		}
		runs, err := s.runsOf(n)
		if err != nil {
			return err
		}
		if err := f(runs); err != nil {
			return err
		}
	}
	return nil
}

// Runs gives the runs of one task in the journal, in their order, read from its
// records; none if there is no such task. The error is the Reader's.
func (s *State) Runs(id string) ([]Run, error) {
	n, _ := s.ids.find([]byte(id))
	if n == 0 || s.entries.at(n).kept != inJournal {
		return nil, nil
	}
	return s.runsOf(n)
}

func (s *State) runsOf(n uint32) (runs []Run, err error) {
	var t folded
	t.ID = s.id(n)
	for _, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		if err != nil {
			return nil, fmt.Errorf("read task %s: %w", t.ID, err)
		}
		before := t.Task
		if err := t.apply(sec, s.pool, keepNone); err != nil {
			return nil, err
		}
		runs = runsAfter(runs, &before, &t.Task, sec)
	}
	return runs, nil
}

// RunsOf gives the runs of a task that has one record alone.
func RunsOf(sec *ledger.Section) ([]Run, error) {
	t, err := TaskOf(sec)
	if err != nil {
		return nil, err
	}
	return runsAfter(nil, &Task{}, &t, sec), nil
}

// runsAfter gives the runs of a task that have ended with a record of it, sec, which
// made after of before; runs are those until then.
func runsAfter(runs []Run, before, after *Task, sec *ledger.Section) []Run {
	if f := sec.Get(KeyEndedRuns); f != nil {
		runs, _ = parseRuns(f.String()) // what cannot be read was refused
		for i := range runs {
			runs[i].TaskID = after.ID
		}
		return runs
	}
	if before.Status == "" {
		return mergedRun(after)
	}
	if r, ended := endedRun(before, after); ended {
		return append(runs, r)
	}
	if last := len(runs) - 1; last >= 0 && lateUsage(before, after) {
		runs[last].Usage = runs[last].Usage.Plus(after.Usage.since(before.Usage))
	}
	return runs
}

// formatRuns gives the value of endedRuns: a line for each run.
func formatRuns(runs []Run) string {
	lines := make([]string, len(runs))
	for i, r := range runs {
		lines[i] = words("run", r.ID, "session", r.SessionKey, "agent", r.Agent, "model", r.Model, "account", r.Account,
			"ended", exactTime(r.Ended), "used", FormatThread(r.Usage))
	}
	return strings.Join(lines, "\n")
}

// parseRuns is the inverse of formatRuns, but for the task's id.
func parseRuns(text string) (runs []Run, err error) {
	for line := range strings.Lines(text) {
		m, err := readWords(line)
		if err != nil {
			return nil, err
		}
		r := Run{ID: m["run"], SessionKey: m["session"], Agent: m["agent"], Model: m["model"], Account: m["account"]}
		if r.Ended, err = ParseTime(m["ended"]); err != nil {
			return nil, err
		}
		if r.Usage, err = parseThread([]byte(m["used"])); err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// lateUsage reports whether a record tells what the last run used: a person had
// taken the task out of it, and it ended after that.
func lateUsage(before, after *Task) bool {
	return before.Status != Running && after.Status != Running && after.By == ""
}

// mergedRun gives the run that the first record of a task tells of, which knows of
// one at most.
func mergedRun(t *Task) []Run {
	if t.RunID == "" || t.Status == Running && t.Usage == (Usage{}) {
		return nil
	}
	return []Run{runOf(t, t.UpdatedAt, t.Usage)}
}

// endedRun gives the run that a record ends. What it used is what the task's totals
// have grown by; where they went down, they were begun anew.
func endedRun(before, after *Task) (r Run, ended bool) {
	if before.Status != Running || before.Phase == PhaseVerify || after.Status == Running && after.RunID == before.RunID {
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
