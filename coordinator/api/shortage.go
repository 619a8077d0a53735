package api

import (
	"net"
	"os"
	"time"

	"stint/coordinator/task"
)

// shortAgain is how long nothing is lacking until that is logged anew.
const shortAgain = time.Minute

// noteShortage logs that the machine lacks something, once however often that is met.
func (s *Server) noteShortage(err error) {
	if now := time.Now().UnixNano(); now-s.short.Swap(now) > int64(shortAgain) {
		s.opts.Log.Error("clients may have to wait for what the machine lacks", "error", err)
	}
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

// Accept returns the next connection, once there is a descriptor for it.
func (l *spareListener) Accept() (net.Conn, error) {
	for {
		if l.spare == nil {
			l.spare, _ = os.Open(os.DevNull) // else the next time
		}
		c, err := l.Listener.Accept()
		if err != nil && l.spare != nil {
			_ = l.spare.Close() // nothing was read from it
			l.spare = nil
			if task.ShortageOf(err) != 0 {
				l.note(err)
				if c, err = l.Listener.Accept(); err == nil {
					time.AfterFunc(spareFor, func() { _ = c.Close() }) // nearly always it is closed by then
				}
			}
		}
		if task.ShortageOf(err) == 0 {
			return c, err
		}
		l.note(err)
		time.Sleep(acceptAgain)
	}
}
