package state

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
)

// ControlCarried is the control record that compaction writes behind the merged
// ones. It has what the fold knows and no merged record says: the sessions, and
// idempotency keys that belong to another task than the oldest that names them.
// Each line of its lists is made of name="value" words, quoted as Go does it.
const (
	ControlCarried = "carried"
	keySessions    = "sessions"
	keyKeys        = "keys"
)

// Compact gives what a journal must hold to give this state again: one record of
// each task, in the order of age, then what cannot be said that way, then the
// controls. Tasks that ended before that instant, and those that a person has
// deleted, are to be moved out; so are those of which no record says when they
// ended. The error is the Reader's.
func (s *State) Compact(before time.Time) (ledger.Keep, error) {
	c := compaction{state: s, holder: map[string]string{}}
	for n := uint32(1); n < s.entries.len(); n++ {
		if s.entries.at(n).kept != inJournal {
			continue
		}
		if err := c.task(n, before); err != nil {
			return ledger.Keep{}, fmt.Errorf("merge task %s: %w", s.id(n), err)
		}
	}
	c.keep.Records = slices.Concat(c.keep.Records, c.seconds, s.mergedControls())
	carried := ledger.Record{Kind: ledger.KindControl, ID: ControlCarried}
	if lines := s.carriedSessions(); c.sessions || len(lines) > 0 {
		carried.Add(keySessions, strings.Join(lines, "\n"))
	}
	carried.AddIf(keyKeys, strings.Join(c.carriedKeys(), "\n"))
	if len(carried.Fields) > 0 {
		c.keep.Records = append(c.keep.Records, carried)
	}
	return c.keep, nil
}

// CompactedSize estimates, without reading anything, how many bytes of a journal of
// that size Compact would leave: of a task that stays about its first and its newest
// record, which have the prompt and the answer.
func (s *State) CompactedSize(before time.Time, size int64) (left int64) {
	for n := uint32(1); n < s.entries.len(); n++ {
		e := s.entries.at(n)
		if e.kept != inJournal || s.movesOut(e, before) {
			continue
		}
		first := e.last
		for s.refs.at(first).prev != 0 {
			first = s.refs.at(first).prev
		}
		left += s.recordSize(e.last, size)
		if first != e.last {
			left += s.recordSize(first, size)
		}
	}
	return left
}

// recordSize gives the room from a record to the next one of a task.
func (s *State) recordSize(r uint32, size int64) int64 {
	next := size
	if r+1 < s.refs.len() {
		next = s.refs.at(r + 1).off
	}
	return max(0, next-s.refs.at(r).off)
}

// movesOut reports whether a task goes to the archive.
func (s *State) movesOut(e *entry, before time.Time) bool {
	return statuses[e.status].Terminal() && (e.deleted || e.updatedAt().Before(before))
}

// A compaction collects what stays and what goes.
type compaction struct {
	state    *State
	keep     ledger.Keep
	seconds  []ledger.Record   // second records of tasks for which one is not enough
	holder   map[string]string // idempotency keys, as the records alone would give them away
	sessions bool              // some record names one
}

// task decides about one task.
func (c *compaction) task(n uint32, before time.Time) error {
	s := c.state
	e, id := s.entries.at(n), s.id(n)
	m, err := s.merge(n)
	if err != nil {
		return err
	}
	key := m.values[KeyIdempotencyKey]
	if !s.movesOut(e, before) {
		first, second := m.records()
		c.sessions = c.sessions || m.task.SessionID != ""
		c.keep.Records = append(c.keep.Records, first)
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
	c.keep.Out = append(c.keep.Out, ledger.Moved{
		Record: first,
		Entry:  ledger.ArchiveEntry{ID: id, Status: string(statuses[e.status]), Key: key, Parent: m.task.TriggeredBy, Trigger: string(m.task.Trigger), UpdatedAt: e.updatedAt()},
	})
	return nil
}

// A merger puts the records of one task together.
type merger struct {
	id     string
	task   folded
	keys   []string // in the order in which they came up
	values map[string]string
	runs   []Run
	steps  []Step
	first  uint64 // number of the first record
}

// merge reads the records of task n. Those that were refused are not among them.
func (s *State) merge(n uint32) (*merger, error) {
	m := &merger{id: s.id(n), values: map[string]string{}, first: s.entries.at(n).first}
	for _, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		if err != nil {
			return nil, err
		}
		if string(sec.ID) != m.id || sec.Kind != ledger.KindTask {
			return nil, fmt.Errorf("at offset %d stands %s %s", off, sec.Kind, sec.ID)
		}
		before := m.task.Task
		if err := m.task.apply(sec, s.pool, keepNone); err != nil {
			return nil, err
		}
		m.runs = runsAfter(m.runs, &before, &m.task.Task, sec)
		m.steps = stepsAfter(m.steps, &before, &m.task.Task, sec)
		m.add(sec)
	}
	m.values[KeyReason] = string(m.task.Reason) // a release changes it
	return m, nil
}

// add takes the fields of a record, as they stand there. What a person has edited
// since stands in a later one.
func (m *merger) add(sec *ledger.Section) {
	for i := range sec.Fields {
		key := string(sec.Fields[i].Key)
		switch key {
		case KeyStatus, KeyBy, KeyStartedAt, KeyAttemptStarted, KeyThreadTokens, KeyPromptKept, KeyEndedRuns, KeySteps, KeyFirstSeq, KeyWorkspaceBy, KeyPhase, KeyIteration,
			ledger.KeySeq, ledger.KeyAdopts, ledger.KeyEdits, ledger.KeyCopies, ledger.KeyIgnored, ledger.KeyArchived:
			continue // told by the fold, or the engine's
		case KeyTool:
			key = KeyAgent
		}
		if _, known := m.values[key]; !known {
			m.keys = append(m.keys, key)
		}
		m.values[key] = sec.Fields[i].String()
	}
}

// records gives the one record that says all, and a second one, mostly empty, with
// what it cannot say of a running task: that a person had the last word or has changed
// the prompt meanwhile, and that nobody knows when it started.
func (m *merger) records() (first, second ledger.Record) {
	t := &m.task
	first = ledger.Record{Kind: ledger.KindTask, ID: m.id}
	second = first
	first.Add(KeyStatus, string(t.Status))
	for _, key := range m.keys {
		first.AddIf(key, m.values[key])
	}
	if !t.StartedAt.Equal(t.RunStartedAt) {
		first.Add(KeyAttemptStarted, exactTime(t.StartedAt))
	}
	first.AddIf(KeyStartedAt, exactTime(t.RunStartedAt)).
		AddIf(KeyThreadTokens, threadTokens(t.thread)).AddIf(KeyPromptKept, t.PromptKept).AddIf(KeyPhase, string(t.Phase)).
		AddIf(KeyIteration, orNone(t.Iteration)).Add(KeyFirstSeq, strconv.FormatUint(m.first, 10))
	if t.WorkspaceByHand {
		first.Add(KeyWorkspaceBy, ledger.ByHand)
	} else if t.Workspace != "" && t.By == ledger.ByHand {
		first.Add(KeyWorkspaceBy, "none")
	}
	if !slices.Equal(m.runs, mergedRun(&t.Task)) {
		first.Add(KeyEndedRuns, formatRuns(m.runs))
	}
	if !slices.EqualFunc(m.steps, mergedSteps(m.merged()), Step.same) {
		first.Add(KeySteps, formatSteps(m.steps))
	}
	if t.Status == Running && t.RunStartedAt.IsZero() && !t.UpdatedAt.IsZero() {
		second.Add(KeyStartedAt, "")
	}
	if t.Reworded {
		second.Add(KeyPrompt, m.values[KeyPrompt]).AddIf(KeyPromptKept, t.PromptKept)
	}
	if len(second.Fields) > 0 || t.Status == Running && t.By == ledger.ByHand {
		second.AddIf(KeyBy, t.By)
	} else {
		first.AddIf(KeyBy, t.By)
	}
	return first, second
}

// merged gives the task as its one record makes it.
func (m *merger) merged() *Task {
	t := m.task.Task
	if t.Status == Running && t.RunStartedAt.IsZero() {
		t.RunStartedAt = t.UpdatedAt
	}
	return &t
}

// threadTokens is FormatThread, "" where nothing was counted.
func threadTokens(u Usage) string {
	if u == (Usage{}) {
		return ""
	}
	return FormatThread(u)
}

// exactTime is FormatTime without loss.
func exactTime(t time.Time) string {
	if t.Nanosecond()%int(time.Millisecond) == 0 {
		return FormatTime(t)
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// mergedControls gives a record of each control that says anything.
func (s *State) mergedControls() []ledger.Record {
	var list []ledger.Record
	add := func(id string, c control) {
		if c == (control{}) {
			return
		}
		r := ledger.Record{Kind: ledger.KindControl, ID: id}
		if c.paused {
			r.Add(KeyPaused, "true")
		}
		if c.hold {
			r.Add(KeyHold, "true")
		}
		r.AddIf(KeyReason, c.reason).AddIf(KeyCoolUntil, exactTime(c.coolUntil))
		if c.guessed {
			r.Add(KeyCoolGuessed, "true")
		}
		if c.limitWaits > 0 {
			r.Add(KeyLimitWaits, strconv.Itoa(c.limitWaits))
		}
		list = append(list, r)
	}
	add(ControlDispatch, s.dispatch)
	for _, name := range slices.Sorted(maps.Keys(s.accounts)) {
		add(ControlAccount+name, s.accounts[name].control)
	}
	return list
}

// words makes a line of names and values, without those that are empty.
func words(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, pairs[i]+"="+strconv.Quote(pairs[i+1]))
		}
	}
	return strings.Join(list, " ")
}

// readWords is the inverse of words.
func readWords(line string) (map[string]string, error) {
	m := map[string]string{}
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		name, rest, ok := strings.Cut(line, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is not name=\"value\"", cut(line, 40))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		m[name] = strings.Clone(value) // it may be kept, and the line not
		line = rest[len(quoted):]
	}
	return m, nil
}

// carriedSessions gives the sessions that the fold knows, a line each.
func (s *State) carriedSessions() []string {
	var lines []string
	for x := range s.allSessions {
		if s.impliedByTask(x) {
			continue
		}
		current := ""
		if x.seated() {
			current = "true"
		}
		at, now := x.at.place, x.agents()
		home := s.home(at.key)
		lines = append(lines, words("key", at.key, "sessionId", x.ID, "agent", at.agent, "account", at.account, "nativeId", now.native,
			"updatedAt", exactTime(x.UpdatedAt), "lastTask", s.id(x.last), "current", current, "thread", threadTokens(now.counted),
			"workspace", s.names.list[home.dir], "workspaceBy", s.names.list[home.by]))
	}
	slices.Sort(lines)
	return lines
}

// impliedByTask reports whether the merged record of a task that has not ended says all
// of a session: nobody else uses it, and no agent has begun it. Most waiting tasks have one.
func (s *State) impliedByTask(x *session) bool {
	l := s.live[x.last]
	return l != nil && !x.seated() && x.impliedBy(s.whole(l)) && s.current(x.at.place) != nil
}

// carriedKeys gives the idempotency keys that belong to others than the records
// alone would say, a line each.
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
			lines = append(lines, words("key", key, "task", id))
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
		s.setSessions(sessions)
	}
	for _, k := range keys {
		if n, _ := s.ids.find([]byte(k["task"])); n != 0 {
			s.byKey.set(k["key"], n)
		} else {
			s.byKey.drop(k["key"])
		}
	}
	return nil
}

func readLines(sec *ledger.Section, key string) ([]map[string]string, error) {
	f := sec.Get(key)
	if f == nil {
		return nil, nil
	}
	var list []map[string]string
	for line := range strings.Lines(f.String()) {
		m, err := readWords(line)
		if err != nil {
			return nil, recordError(sec, f, err)
		}
		list = append(list, m)
	}
	return list, nil
}

// setSessions makes the sessions what they were before a compaction.
func (s *State) setSessions(lines []map[string]string) {
	t := &s.sessions
	seats := maps.Clone(t.seats) // which they share
	for _, at := range seats {
		at.taken = nil
	}
	clear(t.seats)
	for _, n := range t.implied {
		s.live[n].current = false
	}
	for _, m := range lines {
		n, _ := s.ids.find([]byte(m["lastTask"]))
		if n == 0 || m["sessionId"] == "" {
			continue
		}
		x, at := s.named(m["sessionId"]), place{m["key"], m["agent"], m["account"]}
		t.byID[x.ID] = x
		t.unseat(x) // it was named twice
		if seats[at] == nil {
			seats[at] = &seat{place: at}
		}
		x.at, x.last = seats[at], n
		x.UpdatedAt, _ = ParseTime(m["updatedAt"]) // zero if it cannot be read
		counted, _ := parseThread([]byte(m["thread"]))
		x.set(thread{m["nativeId"], counted})
		if m["workspace"] != "" && at.key != "" {
			key := s.names.number(at.key)
			s.homes[key] = home{max(n, s.homes[key].n), s.names.number(m["workspace"]), s.names.number(m["workspaceBy"])}
		}
		if m["current"] != "" {
			t.seats[at], x.at.taken = x.at, x
		}
	}
	for _, x := range t.byID {
		t.dropUnused(x)
		s.implyLast(x)
	}
}
