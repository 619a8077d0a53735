package state

import "slices"

// Queue gives the tasks that wait in the lane of that key, in the order in which
// they will run, without their texts but with titles. Running ones are not among
// them. The error is that of the Reader.
func (s *State) Queue(key string) ([]Task, error) {
	ln := s.lanes[key]
	if ln == nil {
		return nil, nil
	}
	tasks := make([]Task, 0, len(ln.queue))
	for _, l := range ln.queue {
		t, err := s.row(l.n)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// Lane gives the tasks that run or wait in the lane of that key, in its order,
// without their texts: a running one stands where it would come back to.
func (s *State) Lane(key string) []Task {
	ln := s.lanes[key]
	if ln == nil {
		return nil
	}
	list := slices.Clone(ln.queue)
	for _, r := range s.running {
		if r.lane == ln {
			i, _ := slices.BinarySearchFunc(list, r, inLane)
			list = slices.Insert(list, i, r)
		}
	}
	tasks := make([]Task, len(list))
	for i, l := range list {
		tasks[i] = s.view(l)
	}
	return tasks
}

// NativeOwner gives the agent whose native session has that id, as far as the
// sessions that are known tell. One that the agent did not know is not its own.
func (s *State) NativeOwner(native string) (agent string, ok bool) {
	for _, x := range s.sessions.byID {
		if native != "" && x.agents().native == native && !s.wasLost(x.last) {
			return x.at.agent, true
		}
	}
	return "", false
}

// wasLost reports whether a task failed because its agent did not know the session.
func (s *State) wasLost(n uint32) bool {
	if statuses[s.entries.at(n).status] != Failed {
		return false
	}
	var t folded
	return s.read(n, &t, keepNone) == nil && t.Reason == ClassSessionLost
}
