package ledger

// Waiting gives how many updates wait for the log's goroutine.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}
