package state

import "slices"

// An Obstacle says why a task cannot run before another one has ended.
type Obstacle struct {
	Task string // the task that cannot: the one asked about, or one that it waits for
	Is   string // one of those below
}

// What stands in the way of a task.
const (
	ObstacleSelf    = "self"    // it is that other task
	ObstacleHeld    = "held"    // it is held until a person releases it, and who knows when that is
	ObstacleLane    = "lane"    // both are in one lane
	ObstacleSession = "session" // both speak with an agent in one session
)

// Behind says why a queued task, which may be a new one, cannot run before a running
// one has ended, or without a person; ok is false if it can. Those that it waits for
// count, by after, by the order of their lanes and because they take its lane or its
// session, and those that running ones wait for, as waits tells; fresh are tasks that
// are taken in with it.
func (s *State) Behind(t *Task, running string, fresh []Task, waits map[string][]string) (o Obstacle, ok bool) {
	n, _ := s.ids.find([]byte(running))
	if s.live[n] == nil {
		return o, false
	}
	at := s.whole(s.live[n]).Task
	at.ID = running
	given := map[string]*Task{t.ID: t}
	for i := range fresh {
		given[fresh[i].ID] = &fresh[i]
	}
	seen := map[string]bool{t.ID: true}
	for list := []string{t.ID}; len(list) > 0; list = list[1:] {
		x := given[list[0]]
		if n, _ := s.ids.find([]byte(list[0])); x == nil && n != 0 && s.live[n] != nil {
			x = &s.whole(s.live[n]).Task
		}
		if is := s.obstacle(list[0], x, &at); is != "" {
			return Obstacle{list[0], is}, true
		}
		next := waits[list[0]]
		if x != nil && x.Status == Queued {
			next = slices.Concat(x.After, s.earlier(list[0], x), s.takers(x))
		}
		for _, id := range next {
			if !seen[id] {
				seen[id] = true
				list = append(list, id)
			}
		}
	}
	return o, false
}

// obstacle says what x, which is nil if it has ended, has in common with a running task.
func (s *State) obstacle(id string, x, at *Task) string {
	switch {
	case id == at.ID:
		return ObstacleSelf
	case x == nil || x.Status != Queued:
		return ""
	case x.Hold:
		return ObstacleHeld
	case x.Lane() == at.Lane():
		return ObstacleLane
	}
	if s.shareSession(x, at) {
		return ObstacleSession
	}
	return ""
}

// shareSession reports whether two tasks go on with one conversation.
func (s *State) shareSession(x, y *Task) bool {
	of := s.sessionsOf(y)
	for i, name := range s.sessionsOf(x) {
		if name.id != "" && name == of[i] {
			return true
		}
	}
	return false
}

// takers gives the tasks that take the lane of x or one of its sessions now.
func (s *State) takers(x *Task) (ids []string) {
	for l := range s.occupants {
		if l.lane.key == x.Lane() || s.shareSession(x, &s.whole(l).Task) {
			ids = append(ids, s.id(l.n))
		}
	}
	return ids
}

// earlier gives the queued task that is before x in its lane; in that of a directory,
// which only excludes, the one of its session. One that is held is passed there.
func (s *State) earlier(id string, x *Task) []string {
	ln := s.lanes[x.Lane()]
	if ln == nil {
		return nil
	}
	queue := ln.queue
	if n, _ := s.ids.find([]byte(id)); n != 0 && s.live[n] != nil {
		l := s.live[n]
		if ln.excludes() && (l.sess == nil || l.sess.uses < 2) {
			return nil // there is no other task of its session
		}
		i, _ := slices.BinarySearchFunc(queue, l, inLane)
		queue = queue[:i]
	}
	for _, l := range slices.Backward(queue) {
		if !l.Hold && (!ln.excludes() || x.SessionID != "" && s.sessionID(l) == x.SessionID) {
			return []string{s.id(l.n)}
		}
	}
	return nil
}
