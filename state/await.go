package state

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
// count, by after and by the order of their lanes, and those that running ones wait
// for, as waits tells; fresh are tasks that are taken in with it.
func (s *State) Behind(t *Task, running string, fresh []Task, waits map[string][]string) (o Obstacle, ok bool) {
	n, _ := s.ids.find([]byte(running))
	at := s.live[n]
	if at == nil {
		return o, false
	}
	given := map[string]*Task{t.ID: t}
	for i := range fresh {
		given[fresh[i].ID] = &fresh[i]
	}
	seen := map[string]bool{t.ID: true}
	for list := []string{t.ID}; len(list) > 0; list = list[1:] {
		x := given[list[0]]
		if n, _ := s.ids.find([]byte(list[0])); x == nil && n != 0 && s.live[n] != nil {
			x = &s.live[n].Task
		}
		if is := s.obstacle(list[0], x, at); is != "" {
			return Obstacle{list[0], is}, true
		}
		next := waits[list[0]]
		if x != nil && x.Status == Queued {
			next = append(s.earlier(list[0], x), x.After...)
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
func (s *State) obstacle(id string, x *Task, at *live) string {
	switch {
	case id == s.id(at.n):
		return ObstacleSelf
	case x == nil || x.Status != Queued:
		return ""
	case x.Hold:
		return ObstacleHeld
	case x.Lane() == at.Lane():
		return ObstacleLane
	}
	for i, name := range s.sessionsOf(x) {
		if name.id != "" && name == s.sessionsOf(&at.Task)[i] {
			return ObstacleSession
		}
	}
	return ""
}

// earlier gives the task that is before x in a lane that has an order. One that is
// held is passed there.
func (s *State) earlier(id string, x *Task) []string {
	ln := s.lanes[x.Lane()]
	if ln == nil || ln.excludes() {
		return nil
	}
	before := ""
	if n, _ := s.ids.find([]byte(id)); n != 0 && s.live[n] != nil {
		before = s.beforeInLane(s.live[n])
	} else if last := len(ln.queue) - 1; last >= 0 {
		before = s.id(ln.queue[last].n)
	}
	for before != "" {
		n, _ := s.ids.find([]byte(before))
		if l := s.live[n]; l == nil || l.Status != Queued || !l.Hold {
			return []string{before}
		}
		before = s.beforeInLane(s.live[n])
	}
	return nil
}
