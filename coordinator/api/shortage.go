package api

import (
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"stint/coordinator"
)

// A shortLog tells once of what the machine lacks, however often it is met.
type shortLog struct {
	mu   sync.Mutex
	last time.Time
}

// shortAgain is how long a shortage is not met until it is told anew.
const shortAgain = time.Minute

func (l *shortLog) note(log *slog.Logger, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) > shortAgain {
		log.Error("clients may have to wait for what the machine lacks", "error", err)
	}
	l.last = time.Now()
}

// A spareListener keeps a descriptor for a client that calls when there is no other, so
// that it gets an answer. Only one goroutine may accept.
type spareListener struct {
	net.Listener
	note  func(error)
	spare *os.File // nil: it is in use, or cannot be had
}

const (
	acceptAgain = 20 * time.Millisecond // how soon a connection is accepted again that could not be
	spareFor    = 2 * time.Second       // how long one may have the spare descriptor: others call too
)

// Accept gives the next connection, once there is a descriptor for it.
func (l *spareListener) Accept() (net.Conn, error) {
	for {
		if l.spare == nil {
			l.spare, _ = os.Open(os.DevNull) // else the next time
		}
		c, err := l.Listener.Accept()
		if err != nil && l.spare != nil {
			_ = l.spare.Close() // nothing was read from it
			l.spare = nil
			if coordinator.ShortageOf(err) != 0 {
				l.note(err)
				if c, err = l.Listener.Accept(); err == nil {
					time.AfterFunc(spareFor, func() { _ = c.Close() }) // nearly always it is closed by then
				}
			}
		}
		if coordinator.ShortageOf(err) == 0 {
			return c, err
		}
		l.note(err)
		time.Sleep(acceptAgain)
	}
}
