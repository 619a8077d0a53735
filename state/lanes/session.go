package lanes

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/table"
)

// sessions holds every session that is the current one of its place, or that a live task uses. All others are forgotten. Of most
// that are waited for, the one task that names them says all: they are kept as the number of that task; see [Queues.imply].
type sessions struct {
	byID    map[string]*session
	seats   map[place]*session // the current sessions
	implied map[[16]byte]uint32
	spare   table.Spares[session]
}

// place is what a session is the current one of.
type place struct{ key, agent, account string }

func placeOf(t *state.Folded) place { return place{t.SessionKey, t.Agent, t.Account} }

type session struct {
	ID string
	place
	thread
	UpdatedAt time.Time
	last      uint32 // the last task
	uses      uint32 // live tasks
	seated    bool   // it is the current one of its place
}

// A thread is the conversation as the agent's CLI knows it; the zero one has not begun.
type thread struct {
	native  string
	counted state.Usage
}

// imply forgets the session of a queued task that says all of it: nobody else uses it, and
// no agent has begun it. The current session of a place is found again by the lane, so its
// task must be the only one that waits there; one of a directory is kept, it is one of few.
func (s *Queues) imply(l *Item, t *state.Folded) {
	x, current := l.sess, l.sess.seated
	if !l.is(state.Queued) || !x.impliedBy(t) || current && (len(l.lane.queue) > 1 || l.lane.excludes()) {
		return
	}
	if u, ok := state.ParseUUID(x.ID); ok {
		s.sessions.implied[u] = l.N
		s.sessions.unseat(x)
		x.uses, l.sess, l.implies, l.current = 0, nil, true, current
		s.sessions.dropUnused(x)
	}
}

// implyLast is imply for a session that the record of another task has changed.
func (s *Queues) implyLast(x *session) {
	if l := s.live[x.last]; l != nil && l.sess == x && x.uses == 1 && x.thread == (thread{}) {
		s.imply(l, s.Whole(l))
	}
}

// impliedBy reports whether the last task of a session says all of it, but for whether it is the current one.
func (x *session) impliedBy(t *state.Folded) bool {
	return x.ID == t.SessionID && x.uses == 1 && x.thread == (thread{}) && x.place == placeOf(t) && x.UpdatedAt.Equal(t.UpdatedAt)
}

// implied makes x the session that l, which is t, implies.
func (s *Queues) implied(x *session, l *Item, t *state.Folded) *session {
	*x = session{ID: t.SessionID, place: placeOf(t), UpdatedAt: t.UpdatedAt, last: l.N, uses: 1, seated: l.current}
	return x
}

// hold is the inverse of imply, if l, which is t, implies its session.
func (s *Queues) hold(l *Item, t *state.Folded) {
	if l == nil || !l.implies {
		return
	}
	if t == nil {
		t = s.Whole(l)
	}
	x := s.implied(s.sessions.spare.Take(), l, t)
	if l.current {
		s.sessions.seats[x.place] = x
	}
	u, _ := state.ParseUUID(x.ID)
	delete(s.sessions.implied, u)
	s.sessions.byID[x.ID] = x
	l.sess, l.implies, l.current = x, false, false
}

// implying returns the task that implies the session of that id; nil if none does.
func (s *Queues) implying(id string) *Item {
	if u, ok := state.ParseUUID(id); ok {
		return s.live[s.sessions.implied[u]]
	}
	return nil
}

// seating returns the task that implies the current session of a place; nil if none does.
func (s *Queues) seating(p place) *Item {
	if ln := s.lanes[p.key]; ln != nil && len(ln.queue) == 1 && ln.queue[0].current && placeOf(s.Whole(ln.queue[0])) == p {
		return ln.queue[0]
	}
	return nil
}

// allSessions returns every session, in no order.
func (s *Queues) allSessions(yield func(*session) bool) {
	for _, x := range s.sessions.byID {
		if !yield(x) {
			return
		}
	}
	for _, n := range s.sessions.implied {
		if l := s.live[n]; !yield(s.implied(new(session), l, s.Whole(l))) {
			return
		}
	}
}

// current returns the current session of a place; nil if there is none.
func (s *Queues) current(p place) *session {
	if x := s.sessions.seats[p]; x != nil {
		return x
	}
	if l := s.seating(p); l != nil {
		return s.implied(new(session), l, s.Whole(l))
	}
	return nil
}

// useSession notes what the last record of a live task says of its session;
// before is the native id that the task named until then.
func (s *Queues) useSession(l *Item, t *state.Folded, before string) {
	if l.sess != nil && l.sess.ID != t.SessionID {
		s.leaveSession(l, false)
	}
	if t.SessionID == "" {
		return
	}
	x := l.sess
	if x == nil {
		x = s.named(t.SessionID)
		x.uses++
		l.sess = x
	}
	var counted state.Usage
	isNew := x.last == 0
	if to := placeOf(t); t.Binds || isNew {
		s.hold(s.seating(to), nil)
		old := s.current(to)
		if old != nil && old != x && old.native == t.AgentSession {
			counted = old.counted // x takes its place, with the same native session
		}
		s.account(to.account) // for who asks where a conversation is
		s.sessions.move(x, to, t.Binds)
		if old != nil && old != x {
			s.implyLast(old)
		}
	}
	x.learn(t, before)
	if x.thread != (thread{}) && x.counted == (state.Usage{}) {
		x.counted = counted
	}
	x.UpdatedAt, x.last = t.UpdatedAt, l.N
	if s.imply(l, t); isNew && l.sess != nil {
		s.sessions.byID[x.ID] = x
	}
}

// learn notes the native session that a task names and what was counted in it. An empty one, in a record that
// names it, says that the agent has lost the session, unless it was another one that the task had to itself.
func (x *session) learn(t *state.Folded, before string) {
	own := t.AgentSession
	switch {
	case own == "":
		if t.Learned && (before == "" || before == x.native) {
			x.thread = thread{}
		}
		return
	case own != x.native && (t.Learned || x.native == ""):
		x.thread = thread{native: own}
	}
	if own == x.native && (t.Counted || x.counted == state.Usage{}) {
		x.counted = t.Thread
	}
}

// named returns the session of that id; a new one is not among the sessions yet.
func (s *Queues) named(id string) *session {
	s.hold(s.implying(id), nil)
	x := s.sessions.byID[id]
	if x == nil {
		x = s.sessions.spare.Take()
		x.ID = id
	}
	return x
}

// move puts x where the task that uses it says. It becomes the current session there if the task named it, or if there is none.
func (t *sessions) move(x *session, to place, named bool) {
	if x.place != to {
		t.unseat(x)
		if x.agent != to.agent {
			x.thread = thread{}
		}
		x.place = to
	}
	old := t.seats[to]
	if x.seated || old != nil && !named {
		return
	}
	if t.seat(x); old != nil {
		t.dropUnused(old)
	}
}

// seat makes x the current session of its place.
func (t *sessions) seat(x *session) {
	if old := t.seats[x.place]; old != nil {
		old.seated = false
	}
	t.seats[x.place], x.seated = x, true
}

// unseat makes x the current session of nothing.
func (t *sessions) unseat(x *session) {
	if x.seated {
		delete(t.seats, x.place)
		x.seated = false
	}
}

// leaveSession ends a task's use of its session. The session of a lane that ends with its task goes with it.
func (s *Queues) leaveSession(l *Item, ended bool) {
	x := l.sess
	if x == nil {
		return
	}
	l.sess = nil
	x.uses--
	if ended && strings.HasPrefix(x.key, state.LanePrefixTask) {
		s.sessions.unseat(x)
	}
	s.sessions.dropUnused(x)
}

// dropUnused forgets x unless a task uses it or it is a current one.
func (t *sessions) dropUnused(x *session) {
	if x.uses > 0 || x.seated {
		return
	}
	delete(t.byID, x.ID)
	*x = session{}
	t.spare.Give(x)
}

// native returns the native session id that a task will continue, or "".
func (s *Queues) native(t *state.Task) string {
	if t.AgentSession != "" || t.SessionID == "" {
		return t.AgentSession
	}
	if x := s.sessions.byID[t.SessionID]; x != nil && x.agent == t.Agent {
		return x.native
	}
	return ""
}

// ThreadOf returns what an agent's CLI has counted over a native session so far; ok is false if no session that is known has
// one. Several sessions of stint may go on with one native session: the highest count is the latest.
func (s *Queues) ThreadOf(agent, native string) (counted state.Usage, ok bool) {
	for _, x := range s.sessions.byID {
		if native != "" && x.native == native && x.agent == agent && x.counted != (state.Usage{}) {
			counted, ok = counted.Combine(x.counted, highest, highest), true
		}
	}
	return counted, ok
}

func highest[T int64 | float64](a, b T) T { return max(a, b) }

// Naming returns the queued tasks, oldest first, that themselves name a native session of an agent, without their texts.
func (s *Queues) Naming(agent, native string) []state.Task {
	var list []*Item
	for _, l := range s.live {
		if native != "" && l.is(state.Queued) && l.named && s.agent(l) == agent && s.Whole(l).AgentSession == native {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, byAge)
	return s.views(list)
}

// CurrentSession returns the session that the last task of that session key, agent
// and account names; account is as the tasks name it, "" for the default one.
func (s *Queues) CurrentSession(key, agent, account string) (state.Session, bool) {
	return s.sessionView(s.current(place{key, agent, account}))
}

// LaneAgent returns the one of agents that the next task in the lane of that key goes on with, and its account: those of the
// last task that waits there, else of the session that was used last; "" if there is none.
func (s *Queues) LaneAgent(key string, agents []string) (agent, account string) {
	if ln := s.lanes[key]; ln != nil && len(ln.queue) > 0 {
		last := ln.queue[len(ln.queue)-1]
		if agent := s.agent(last); slices.Contains(agents, agent) {
			return agent, s.Whole(last).Account
		}
	}
	return s.lastUsed(key, agents, false)
}

// SessionAgent returns the one of agents that a task goes on with which is the next to start in the lane of
// that key: that of the session that was used last. One that no agent has begun counts only where there is no
// other: it may be that of a task further behind.
func (s *Queues) SessionAgent(key string, agents []string) string {
	begun, _ := s.lastUsed(key, agents, true)
	any, _ := s.lastUsed(key, agents, false)
	return cmp.Or(begun, any)
}

func (s *Queues) lastUsed(key string, agents []string, begun bool) (last, account string) {
	var at time.Time
	for _, agent := range agents {
		for _, name := range slices.Sorted(maps.Keys(s.accounts)) {
			x := s.current(place{key, agent, name})
			if x != nil && !x.UpdatedAt.Before(at) && (x.native != "" || !begun) {
				last, account, at = agent, name, x.UpdatedAt
			}
		}
	}
	return last, account
}

// SessionByID returns the session with that id of stint's, if it is the current one
// of its lane or a task that has not ended uses it.
func (s *Queues) SessionByID(id string) (state.Session, bool) {
	if l := s.implying(id); l != nil {
		return s.sessionView(s.implied(new(session), l, s.Whole(l)))
	}
	return s.sessionView(s.sessions.byID[id])
}

func (s *Queues) sessionView(x *session) (state.Session, bool) {
	if x == nil {
		return state.Session{}, false
	}
	return state.Session{
		Key: x.key, ID: x.ID, Agent: x.agent, Account: x.account, Native: x.native, UpdatedAt: x.UpdatedAt, LastTask: s.ID(x.last), Thread: x.counted,
	}, true
}

// Sessions returns the current sessions, the one that was used last first. Those of lanes that belong to one task are left out.
func (s *Queues) Sessions() []state.Session {
	var list []*session
	for p, x := range s.sessions.seats {
		if !strings.HasPrefix(p.key, state.LanePrefixTask) {
			list = append(list, x)
		}
	}
	for key, ln := range s.lanes {
		if len(ln.queue) == 1 && ln.queue[0].current && !strings.HasPrefix(key, state.LanePrefixTask) {
			list = append(list, s.implied(new(session), ln.queue[0], s.Whole(ln.queue[0])))
		}
	}
	slices.SortFunc(list, func(a, b *session) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(b.last, a.last), cmp.Compare(a.ID, b.ID))
	})
	views := make([]state.Session, len(list))
	for i, x := range list {
		views[i], _ = s.sessionView(x)
	}
	return views
}

// CarriedSessions returns the sessions that the fold knows, a line each, and the workspaces of sessions where the task that has
// named one has ended, is held or was moved to another session. Of most that wait, the merged record says either.
func (s *Queues) CarriedSessions() []string {
	var lines []string
	for x := range s.allSessions {
		if l := s.live[x.last]; l != nil && !x.seated && x.impliedBy(s.Whole(l)) && s.current(x.place) != nil {
			continue
		}
		lines = append(lines, state.FormatWords("key", x.key, "sessionId", x.ID, "agent", x.agent, "account", x.account, "nativeId", x.native,
			"updatedAt", state.ExactTime(x.UpdatedAt), "lastTask", s.ID(x.last), "current", state.Flag(x.seated), "thread", state.ThreadTokens(x.counted)))
	}
	for key, h := range s.homes {
		if l := s.live[h.n]; l == nil || s.Entries.At(h.n).Key != key || !l.namesHome(s.Whole(l)) {
			lines = append(lines, state.FormatWords("key", s.Keys.List[key], "lastTask", s.ID(h.n), "workspace", s.Keys.List[h.dir], "workspaceBy", s.Keys.List[h.by]))
		}
	}
	slices.Sort(lines)
	return lines
}

// SetSessions makes the sessions what they were before a compaction.
func (s *Queues) SetSessions(lines []map[string]string) {
	t := &s.sessions
	for _, x := range t.seats {
		x.seated = false
	}
	clear(t.seats)
	for _, n := range t.implied {
		s.live[n].current = false
	}
	for _, m := range lines {
		n, at := s.Number(m["lastTask"]), place{m["key"], m["agent"], m["account"]}
		if n != 0 && m["workspace"] != "" && at.key != "" {
			key := s.Keys.Number(at.key)
			s.homes[key] = home{max(n, s.homes[key].n), s.Keys.Number(m["workspace"]), s.Keys.Number(m["workspaceBy"])}
		}
		if n == 0 || m["sessionId"] == "" {
			continue
		}
		x := s.named(m["sessionId"])
		t.byID[x.ID] = x
		s.account(at.account)
		t.unseat(x) // it was named twice
		x.place, x.last = at, n
		x.UpdatedAt, _ = state.ParseTime(m["updatedAt"]) // zero if it cannot be read
		counted, _ := state.ParseThread([]byte(m["thread"]))
		x.thread = thread{m["nativeId"], counted}
		if m["current"] != "" {
			t.seat(x)
		}
	}
	for _, x := range t.byID {
		t.dropUnused(x)
		s.implyLast(x)
	}
}

// OwnerOf returns the agent whose native session has that id, and the account, as far as the
// sessions that are known show; those whose last task was lost, by its number, do not.
func (s *Queues) OwnerOf(native string, lost func(n uint32) bool) (agent, account string, ok bool) {
	for _, x := range s.sessions.byID {
		if native != "" && x.native == native && !lost(x.last) {
			return x.agent, x.account, true
		}
	}
	return "", "", false
}

// A home is the workspace of the latest task of a session that a user submitted and that waits for its turn or has run.
type home struct {
	n       uint32 // the task
	dir, by uint32 // in Tasks.Keys; by is ledger.ByHand: see state.Task.WorkspaceByHand
}

// namesHome reports whether the last record of a task, l, says which is the workspace of its session. A task that is held counts
// once it is released. One that an agent asked for never does: it would choose where the tasks of a person are run.
func (l *Item) namesHome(t *state.Folded) bool {
	began := t.RunID != "" || l.waits()
	return t.Workspace != "" && t.Trigger == "" && began && t.SessionKey != "" && !strings.HasPrefix(t.SessionKey, state.LanePrefixTask)
}

// noteHome makes the workspace of such a task that of its session, unless a later task has named one.
func (s *Queues) noteHome(l *Item, t *state.Folded) {
	if !l.namesHome(t) {
		return
	}
	by := ""
	if t.WorkspaceByHand {
		by = ledger.ByHand
	}
	key := s.Entries.At(l.N).Key
	if h := s.homes[key]; l.N > h.n || l.N == h.n && (s.Keys.List[h.dir] != t.Workspace || s.Keys.List[h.by] != by) {
		s.homes[key] = home{l.N, s.Keys.Number(t.Workspace), s.Keys.Number(by)}
	}
}

// HomeOf returns the workspace of a task: its own, else that of its session, else root, which a person has configured; "": it
// has none, and waits. by is who has named one that is not its own, as in [state.KeyWorkspaceBy].
func (s *Queues) HomeOf(t *state.Task, root string) (dir, by string) {
	if t.Workspace != "" {
		return t.Workspace, ""
	}
	if t.Isolation == state.IsolationTemp { // a person's: its run names the directory, which no other task shares
		return "/" + t.ID, ""
	}
	if h := s.homes[s.Keys.Numbers[t.SessionKey]]; h.n != 0 {
		return s.Keys.List[h.dir], s.Keys.List[h.by]
	}
	return root, ledger.ByHand
}

// LaneOf returns the key of the lane in which a task will run: with neither a session nor a
// workspace it waits in another one than that of the directory which it takes.
func (s *Queues) LaneOf(t *state.Task, root string) string {
	if t.SessionKey != "" || t.Isolation != "" {
		return t.Lane()
	}
	home, _ := s.HomeOf(t, root)
	return state.LanePrefixDir + home
}

// Homeless returns the ids of the queued tasks that have no workspace, oldest first.
func (s *Queues) Homeless(root string) (ids []string) {
	for _, n := range slices.Sorted(maps.Keys(s.bare)) {
		if dir, _ := s.HomeOf(&s.Whole(s.bare[n]).Task, root); dir == "" {
			ids = append(ids, s.ID(n))
		}
	}
	return ids
}
