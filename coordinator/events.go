package coordinator

// A subscriber is one reader of changes. It may lag by its buffer; then it is cut off.
type subscriber struct {
	ch chan Change
}

// Subscribe gives the changes of tasks from now on. A reader that lags behind by
// more than buffer is cut off: its channel is closed, and it must look anew. cancel
// ends the subscription; it may be called more than once.
func (c *Coordinator) Subscribe(buffer int) (changes <-chan Change, cancel func()) {
	s := &subscriber{ch: make(chan Change, buffer)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = true
	return s.ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(s)
	}
}

// publish hands a change to all subscribers. mu is held.
func (c *Coordinator) publish(change Change) {
	for s := range c.subs {
		select {
		case s.ch <- change:
		default:
			c.drop(s)
		}
	}
}

// drop ends a subscription. mu is held.
func (c *Coordinator) drop(s *subscriber) {
	if c.subs[s] {
		delete(c.subs, s)
		close(s.ch)
	}
}
