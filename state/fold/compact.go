package fold

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/table"
)

// Compact returns what a journal must hold for this state: one record of each task, in the order of age, then what cannot be said
// that way, then the controls. Tasks that ended before that instant, and those that a person has deleted, are moved out; so are
// those of which no record says when they ended. With keepFailed, failed and dead ones stay. The error is the Reader's, or out's.
// Nothing must be applied before the records were taken: they are merged then, so that not all of them are in memory.
func (s *State) Compact(before time.Time, keepFailed bool, out func(ledger.Moved) error) (ledger.Keep, error) {
	c := compaction{state: s, out: out, holder: map[string]string{}}
	for n := uint32(1); n < s.Entries.Len(); n++ {
		if s.Entries.At(n).Kept != table.InJournal {
			continue
		}
		if err := c.task(n, before, keepFailed); err != nil {
			return nil, fmt.Errorf("merge task %s: %w", s.ID(n), err)
		}
	}
	c.keep.Add(slices.Concat(c.seconds, s.ControlRecords())...)
	carried := ledger.Record{Kind: ledger.KindControl, ID: controlCarried}
	if lines := s.CarriedSessions(); c.sessions || len(lines) > 0 {
		carried.Add(keySessions, strings.Join(lines, "\n"))
	}
	carried.AddIf(keyKeys, strings.Join(c.carriedKeys(), "\n"))
	if len(carried.Fields) > 0 {
		c.keep.Add(carried)
	}
	return c.keep, nil
}

// movesOut reports whether a task goes to the archive.
func (s *State) movesOut(e *table.Entry, before time.Time, keepFailed bool) bool {
	st := e.Status()
	return st.Terminal() && (e.Deleted || e.UpdatedAt().Before(before) && !(keepFailed && (st == state.Failed || st == state.Dead)))
}

// A compaction collects what stays and what goes.
type compaction struct {
	state    *State
	out      func(ledger.Moved) error
	keep     ledger.Keep
	seconds  []ledger.Record   // second records of tasks for which one is not enough
	holder   map[string]string // idempotency keys, as they are by the records alone
	sessions bool              // some record names one
}

// task decides about one task.
func (c *compaction) task(n uint32, before time.Time, keepFailed bool) error {
	s := c.state
	e, id := s.Entries.At(n), s.ID(n)
	m, err := s.merge(n)
	if err != nil {
		return err
	}
	key := m.values[state.KeyIdempotencyKey]
	if !s.movesOut(e, before, keepFailed) {
		_, second := m.records()
		c.sessions = c.sessions || m.task.SessionID != ""
		c.keep = append(c.keep, func() (ledger.Record, error) {
			m, err := s.merge(n)
			first, _ := m.records()
			return first, err
		})
		if len(second.Fields) > 0 {
			c.seconds = append(c.seconds, second)
		}
		if _, taken := c.holder[key]; key != "" && !taken {
			c.holder[key] = id
		}
		return nil
	}
	if s.byKey.task(key) != n {
		key = ""
	}
	if key != "" {
		c.holder[key] = id // the archive comes before all records
	}
	first, _ := m.records()
	runs := state.FormatRuns(m.runs)
	return c.out(ledger.Moved{
		Record: first,
		Entry:  ledger.ArchiveEntry{ID: id, Status: string(e.Status()), Key: key, Parent: m.task.TriggeredBy, Trigger: string(m.task.Trigger), UpdatedAt: e.UpdatedAt(), Runs: &runs},
	})
}

// A merger puts the records of one task together.
type merger struct {
	task   state.Folded
	keys   []string // in the order in which they came up
	values map[string]string
	runs   []state.Run
	steps  []state.Step
	first  uint64 // number of the first record
}

// merge reads the records of task n. Those that were refused are not among them.
func (s *State) merge(n uint32) (*merger, error) {
	m := &merger{values: map[string]string{}, first: s.Entries.At(n).First}
	err := s.read(n, &m.task, state.KeepNone, func(before *state.Task, sec *ledger.Section) {
		m.runs = state.RunsAfter(m.runs, before, &m.task.Task, sec)
		m.steps = state.StepsAfter(m.steps, before, &m.task.Task, sec)
		m.add(sec)
	})
	m.values[state.KeyReason] = string(m.task.Reason) // a release changes it
	return m, err
}

// add takes the fields of a record, as they stand there. What a person has edited since stands in a later one.
func (m *merger) add(sec *ledger.Section) {
	for i := range sec.Fields {
		key := string(sec.Fields[i].Key)
		switch key {
		case state.KeyStatus, state.KeyBy, state.KeyStartedAt, state.KeyAttemptStarted, state.KeyThreadTokens, state.KeyPromptInHistory, state.KeyEndedRuns, state.KeySteps, state.KeyFirstSeq, state.KeyWorkspaceBy, state.KeyPhase, state.KeyIteration:
			continue // the fold has it
		case state.KeyTool:
			key = state.KeyAgent
		}
		if ledger.IsEngineKey(key) {
			continue
		}
		if _, known := m.values[key]; !known {
			m.keys = append(m.keys, key)
		}
		m.values[key] = sec.Fields[i].String()
	}
}

// records returns the one record that says all, and a second one, mostly empty, with what it cannot say of a running task: that
// a person had the last word or has changed the prompt meanwhile, and that nobody knows when it started.
func (m *merger) records() (first, second ledger.Record) {
	t := &m.task
	first = ledger.Record{Kind: ledger.KindTask, ID: t.ID}
	second = first
	first.Add(state.KeyStatus, string(t.Status))
	for _, key := range m.keys {
		first.AddIf(key, m.values[key])
	}
	if !t.StartedAt.Equal(t.RunStartedAt) {
		first.Add(state.KeyAttemptStarted, state.ExactTime(t.StartedAt))
	}
	first.AddIf(state.KeyStartedAt, state.ExactTime(t.RunStartedAt)).
		AddIf(state.KeyThreadTokens, state.ThreadTokens(t.Thread)).AddIf(state.KeyPromptInHistory, t.PromptInHistory).AddIf(state.KeyPhase, string(t.Phase)).
		AddIf(state.KeyIteration, state.OrNone(t.Iteration)).Add(state.KeyFirstSeq, strconv.FormatUint(m.first, 10))
	if t.WorkspaceByHand {
		first.Add(state.KeyWorkspaceBy, ledger.ByHand)
	} else if t.Workspace != "" && t.By == ledger.ByHand {
		first.Add(state.KeyWorkspaceBy, "none")
	}
	if !slices.Equal(m.runs, state.MergedRun(&t.Task)) {
		first.Add(state.KeyEndedRuns, state.FormatRuns(m.runs))
	}
	merged := t.Task // the task as its one record makes it
	if t.Status == state.Running && t.RunStartedAt.IsZero() {
		merged.RunStartedAt = t.UpdatedAt
	}
	if !slices.EqualFunc(m.steps, state.MergedSteps(&merged), state.Step.Same) {
		first.Add(state.KeySteps, state.FormatSteps(m.steps))
	}
	if t.Status == state.Running && t.RunStartedAt.IsZero() && !t.UpdatedAt.IsZero() {
		second.Add(state.KeyStartedAt, "")
	}
	if t.PromptChanged {
		second.Add(state.KeyPrompt, m.values[state.KeyPrompt]).AddIf(state.KeyPromptInHistory, t.PromptInHistory)
	}
	if len(second.Fields) > 0 || t.Status == state.Running && t.By == ledger.ByHand {
		second.AddIf(state.KeyBy, t.By)
	} else {
		first.AddIf(state.KeyBy, t.By)
	}
	return first, second
}

// carriedKeys returns the idempotency keys that belong to others than the records alone would say, a line each.
func (c *compaction) carriedKeys() []string {
	s := c.state
	for key := range s.byKey.all() {
		if id, ok := s.ByIdempotencyKey(key); ok {
			if _, archived := s.Archived(id); archived {
				c.holder[key] = id
			}
		}
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(c.holder)) {
		if id, _ := s.ByIdempotencyKey(key); id != c.holder[key] {
			lines = append(lines, state.FormatWords("key", key, "task", id))
		}
	}
	return lines
}

// applyCarried folds the control record of that name.
func (s *State) applyCarried(sec *ledger.Section) error {
	sessions, err := readLines(sec, keySessions)
	if err != nil {
		return err
	}
	keys, err := readLines(sec, keyKeys)
	if err != nil {
		return err
	}
	if sec.Get(keySessions) != nil {
		s.SetSessions(sessions)
	}
	for _, k := range keys {
		if n := s.Number(k["task"]); n != 0 {
			s.byKey.set(k["key"], n)
		} else {
			s.byKey.drop(k["key"])
		}
	}
	return nil
}

// controlCarried is the control record that compaction writes behind the merged ones. It has what the fold
// knows and no merged record says: the sessions, and idempotency keys that belong to another task than the
// oldest that names them. Each line of its lists is made of name="value" words, quoted as Go does it.
const (
	controlCarried = "carried"
	keySessions    = "sessions"
	keyKeys        = "keys"
)

func readLines(sec *ledger.Section, key string) ([]map[string]string, error) {
	f := sec.Get(key)
	if f == nil {
		return nil, nil
	}
	list, err := state.ParseLines("list of words", f.String(), func(m map[string]string) (map[string]string, error) { return m, nil })
	if err != nil {
		return nil, state.NewRecordError(sec, f, err)
	}
	return list, nil
}
