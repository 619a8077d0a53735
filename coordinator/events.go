package coordinator

import "stint/coordinator/task"

// A subscriber is one reader of changes. It may lag by its buffer; then it is cut off.
type subscriber struct {
	ch chan *task.Change
}

// Subscribe gives the changes of tasks from now on. A reader that lags behind by
// more than buffer is cut off: its channel is closed, and it must look anew. cancel
// ends the subscription; it may be called more than once.
func (c *Coordinator) Subscribe(buffer int) (changes <-chan *task.Change, cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribe(buffer)
}

// maxMissed bounds what one call of SubscribeAfter gives: a task has 1 KB, and all
// readers of a master that was away come back at once.
const maxMissed = 256

// SubscribeAfter is Subscribe for a reader who knows all up to record after, and is to
// miss nothing that came since, nor to hear of it twice. missed has the tasks that have
// changed, in the order of their newest records, each once and as it is now; it is a
// Resync alone if that cannot be told. If there are too many it has the first of them,
// and changes is nil: the reader asks again, with the number of the last one.
func (c *Coordinator) SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.Covers(after) {
		missed = []*task.Change{{Seq: c.state.Seq(), Resync: true}}
	} else if missed = c.since(after); len(missed) == maxMissed {
		return missed, nil, func() {}
	}
	changes, cancel = c.subscribe(buffer)
	return missed, changes, cancel
}

// since gives the first of what has changed after a record. mu is held.
func (c *Coordinator) since(after uint64) []*task.Change {
	list := c.state.Since(after, maxMissed)
	changes := make([]*task.Change, len(list))
	for i := range list {
		changes[i] = &task.Change{Seq: list[i].Seq, Task: list[i].Task}
	}
	return changes
}

// subscribe is Subscribe with mu held.
func (c *Coordinator) subscribe(buffer int) (changes <-chan *task.Change, cancel func()) {
	s := &subscriber{ch: make(chan *task.Change, buffer)}
	c.subs[s] = true
	return s.ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(s)
	}
}

// Seq gives the number of the newest record: who lists afterwards and then follows from
// there misses nothing.
func (c *Coordinator) Seq() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Seq()
}

// publish hands a change to all subscribers. mu is held.
func (c *Coordinator) publish(change task.Change) {
	if len(c.subs) > 0 {
		c.handOut(change)
	}
}

// handOut is publish for subscribers. It is apart because it lets a change outlive the
// call, for which memory would be taken although nobody listens.
func (c *Coordinator) handOut(change task.Change) {
	p := change.Shared()
	for s := range c.subs {
		select {
		case s.ch <- p:
		default:
			c.drop(s)
		}
	}
}

// publishResync tells subscribers to list anew. mu is held.
func (c *Coordinator) publishResync() { c.publish(task.Change{Seq: c.state.Seq(), Resync: true}) }

// drop ends a subscription. mu is held.
func (c *Coordinator) drop(s *subscriber) {
	if c.subs[s] {
		delete(c.subs, s)
		close(s.ch)
	}
}
