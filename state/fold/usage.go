package fold

import (
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
)

// Quarter divides the days of every zone: runs that ended within one are added up.
const Quarter = 15 * time.Minute

// A Used is what runs have used together that ended in the same quarter of an hour, with the same session (a lane of its own
// is none), agent, model and account. It is told as one run, which ended when the quarter began.
type Used struct {
	state.Run
	Runs  int
	Tasks int // whose first runs are among them
}

// A slot is what the runs of a sum have in common, with texts by their numbers in Keys.
type slot struct {
	quarter                        int64
	session, agent, model, account uint32
}

type sum struct {
	runs, tasks int
	state.Usage
}

// used has the sums of the runs of all tasks in the journal and in the archive.
type used struct {
	sums map[slot]sum
	gaps bool // the runs of some task in the archive are not known
}

// runsSummed returns how many runs of task n are in the sums.
func (s *State) runsSummed(n uint32) uint32 { return s.refs.At(s.Entries.At(n).Last).runs }

// sumUpArchived adds the runs of task n that its entry in the archive has, but for those that an older entry had: it was brought
// back since. It returns how many runs of it there are.
func (s *State) sumUpArchived(n uint32, text *string) uint32 {
	if text == nil {
		s.used.gaps = true
		return 0
	}
	runs, err := state.ParseRuns(*text)
	s.used.gaps = s.used.gaps || err != nil
	had := s.runsSummed(n)
	return s.sumUp(had, nil, runs[min(int(had), len(runs)):])
}

// runsOf returns the runs that a record adds to task n, and those that they replace: a record may say how all of
// them were, or what the last one used after it had ended.
func (s *State) runsOf(n uint32, sec *ledger.Section) (replaced, runs []state.Run, err error) {
	if n != 0 && (sec.Get(state.KeyEndedRuns) != nil || state.IsLate(&s.before.Task, &s.scratch.Task)) {
		_, replaced, err = s.readRuns(n, state.KeepNone)
	}
	return replaced, state.RunsAfter(append(s.run[:0], replaced...), &s.before.Task, &s.scratch.Task, sec), err
}

// sumUp adds new runs of a task that has had some, in the place of others, and returns how many there are.
func (s *State) sumUp(had uint32, replaced, runs []state.Run) uint32 {
	if len(replaced) > 0 {
		s.addRuns(replaced, -1, true)
		had = 0
	}
	s.addRuns(runs, 1, had == 0)
	return had + uint32(len(runs))
}

// addRuns adds runs of a task; with sign -1 it takes them away. first: the first of them is the task's first.
func (s *State) addRuns(runs []state.Run, sign int, first bool) {
	for i := range runs {
		r, change := &runs[i], state.Usage.Plus
		if sign < 0 {
			change = state.Usage.Grown
		}
		of := slot{r.Ended.Unix() / int64(Quarter/time.Second), 0, s.Keys.Number(r.Agent), s.Keys.Number(r.Model), s.Keys.Number(r.Account)}
		if !strings.HasPrefix(r.SessionKey, state.LanePrefixTask) {
			of.session = s.Keys.Number(r.SessionKey)
		}
		u := s.used.sums[of]
		u.runs, u.Usage = u.runs+sign, change(u.Usage, r.Usage)
		if i == 0 && first {
			u.tasks += sign
		}
		s.used.sums[of] = u
	}
}

// HasUsed reports whether Used has all runs. Those of tasks that an older stint has moved to the archive are only there.
func (s *State) HasUsed() bool { return !s.used.gaps }

// Used returns what runs have used, added up, in no order.
func (s *State) Used() []Used {
	list, text := make([]Used, 0, len(s.used.sums)), s.Keys.List
	for of, u := range s.used.sums {
		list = append(list, Used{state.Run{
			SessionKey: text[of.session], Agent: text[of.agent], Model: text[of.model], Account: text[of.account],
			Ended: time.Unix(of.quarter*int64(Quarter/time.Second), 0).UTC(), Usage: u.Usage,
		}, u.runs, u.tasks})
	}
	return list
}
