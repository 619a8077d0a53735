package journal

// Waiting returns how many updates wait for the log's goroutine.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Gather says how often a log lets others go first that come with one more change each
// time, at most that often.
func Gather(most int) (n int) {
	l := Log{queue: []*update{{}}}
	l.gather(func() {
		if n++; n < most {
			l.queue = append(l.queue, &update{})
		}
	})
	return n
}
