package store

import "sync"

// A Feed hands values to subscribers. One who lags behind is cut off, and must look anew:
// a slow reader never delays the rest. The zero Feed is ready for use.
type Feed[T any] struct {
	mu   sync.Mutex // guards subs
	subs map[chan T]bool
}

// Subscribe returns the values that are published from now on. A reader who lags behind by more than buffer
// is cut off: the channel is closed. cancel ends the subscription; it may be called more than once.
func (f *Feed[T]) Subscribe(buffer int) (values <-chan T, cancel func()) {
	ch := make(chan T, buffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[chan T]bool{}
	}
	f.subs[ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(ch)
	}
}

// Publish calls make for the value and hands it to all subscribers, if there are any.
func (f *Feed[T]) Publish(make func() T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		return
	}
	v := make()
	for ch := range f.subs {
		select {
		case ch <- v:
		default:
			f.drop(ch)
		}
	}
}

// Close ends all subscriptions.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subs {
		f.drop(ch)
	}
}

func (f *Feed[T]) drop(ch chan T) {
	if f.subs[ch] {
		delete(f.subs, ch)
		close(ch)
	}
}
