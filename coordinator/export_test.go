package coordinator

import (
	"context"
	"io"
	"sync"

	"stint/coordinator/queue"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
)

// OpenUnwatched is Open without the watch of tasks.md, whose waiting for the kernel
// would stop the clock of a test's bubble.
func OpenUnwatched(cfg queue.Config) (*Coordinator, error) {
	cfg.Unwatched = true
	return Open(cfg)
}

// OpenOn is OpenUnwatched with the ledger on a file system of the test's.
func OpenOn(cfg queue.Config, fs durable.FS) (*Coordinator, error) {
	cfg.FS = fs
	return OpenUnwatched(cfg)
}

// Occupy calls f on the ledger's goroutine, when it has written something.
func (c *Coordinator) Occupy(f func()) error {
	occupy := sync.OnceFunc(f)
	hooks := c.hooks()
	committed := hooks.Committed
	hooks.Committed = func(w *journal.Commit) {
		committed(w)
		occupy()
	}
	c.Listen(hooks)
	r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlDispatch}
	return c.Append(r.Add(state.KeyReason, "occupied"))
}

// Append appends records as they are.
func (c *Coordinator) Append(records ...*ledger.Record) error {
	return c.Update(context.Background(), func(_ *fold.State, tx *ledger.Tx) error {
		for _, r := range records {
			tx.Append(r)
		}
		return nil
	})
}

// Dispatch starts what is ready, once, where Run is not at work.
func (c *Coordinator) Dispatch() { c.StartReady() }

// DumpJournal writes the state that the journal of a state directory gives, as Dump does.
func DumpJournal(dir string, w io.Writer) error {
	st, err := queue.FoldDir(context.Background(), dir)
	if err != nil {
		return err
	}
	return st.Dump(w)
}
