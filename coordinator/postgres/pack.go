package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/follow"
	"stint/ledger/mark"
	"stint/state"
)

// A packer makes batches, one ahead of who writes them. It runs in a goroutine of its
// own, which closes batches at its end; err is to be read afterwards.
type packer struct {
	s       *session
	ctx     context.Context // ends with the session, or before
	cancel  context.CancelFunc
	batches chan *batch // capacity 1
	err     error
}

func (s *session) newPacker(ctx context.Context) *packer {
	p := &packer{s: s, batches: make(chan *batch, 1)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

func (p *packer) end() {
	p.cancel()
	for range p.batches { // until it is closed
	}
}

// errCompacted means that tasks have other places than when a rebuild began.
var errCompacted = errors.New("the ledger was compacted")

// all packs all tasks that are known. The last batch moves the cursor and ends the rebuild, if the ledger was
// not compacted meanwhile: tasks may have changed places then, and been passed over.
func (p *packer) all(to place) {
	defer close(p.batches)
	for done := 0; ; {
		ids := p.s.src.TaskIDs(done, maxTasks)
		if len(ids) == 0 {
			digest, err := digestAt(p.ctx, p.s.src, to.seq)
			switch {
			case err != nil:
				p.err = err
			case to.seq > 0 && (digest == nil || !bytes.Equal(digest, to.digest)):
				p.err = errCompacted
			default:
				p.send(&batch{to: &to, sweep: true})
			}
			return
		}
		if p.err = p.pack(ids, &batch{}); p.err != nil {
			return
		}
		done += len(ids)
	}
}

func (p *packer) send(b *batch) {
	select {
	case p.batches <- b:
	case <-p.ctx.Done():
		p.err = context.Cause(p.ctx)
	}
}

// pack hands over tasks as they are now: in one batch, or where they are large in several, of which the last is last.
func (p *packer) pack(ids []string, last *batch) error {
	b, size := &batch{since: last.since}, 0
	for _, id := range ids {
		rows, err := p.rows(id)
		if err != nil {
			return err
		}
		if rows == nil {
			continue
		}
		if size += rows.size; size > maxBytes && len(b.tasks) > 0 {
			p.send(b)
			b, size = &batch{since: last.since}, rows.size
		}
		b.tasks = append(b.tasks, rows)
	}
	last.tasks = b.tasks
	p.send(last)
	return p.err
}

// rows returns the rows of a task; nil if there is none of that id any more.
func (p *packer) rows(id string) (*taskRows, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	im, err := p.s.src.TaskRecord(id)
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		return nil, nil
	}
	if err == nil {
		var rows *taskRows
		if rows, err = p.s.rows(&im); err == nil {
			return rows, nil
		}
	}
	if errors.Is(err, follow.ErrClosed) || p.ctx.Err() != nil {
		return nil, err
	}
	// It cannot be read here: the mirror stops, as that may pass, or if it does not, goes on without it.
	why := &task.Error{Code: task.CodeUnavailable, Message: fmt.Sprintf("task %s cannot be read for the mirror: %v", id, err), Hint: "stint fsck"}
	if !p.s.mirror.unreadable(id) {
		return nil, why
	}
	p.s.mirror.skipped(id, why)
	return nil, nil
}

// A record is what a packer needs of a record of the journal.
type record struct {
	seq      uint64
	digest   []byte
	task     string // whose it is; "": no task's
	account  bool   // it changes an account
	restored bool   // a person has rolled the ledger back
	at       time.Time
}

// follow packs what the records behind a place have changed, up to one of number end.
func (p *packer) follow(from place, end uint64) {
	defer close(p.batches)
	records, done := make(chan record, 4*maxTasks), make(chan error, 1)
	ctx, cancel := context.WithCancel(p.ctx)
	go func() { done <- p.read(ctx, from.seq, end, records) }()
	defer func() {
		cancel()
		if err := <-done; p.err == nil {
			p.err = err
		}
	}()
	for r := range records {
		if r.restored {
			p.err = errRestored
			return
		}
		if p.err = p.packRecords(r, records, from.generation); p.err != nil {
			return
		}
	}
}

// read hands on the records behind one, until one of number end was read.
func (p *packer) read(ctx context.Context, after, end uint64, to chan<- record) error {
	defer close(to)
	f := p.s.src.Follow(after)
	defer func() { _ = f.Close() }() // only read from
	for after < end {
		sec, err := f.Next(ctx)
		if err != nil {
			return err
		}
		r := record{seq: sec.Seq, digest: digestOf(sec), at: p.s.o.Now()}
		if at, err := state.ParseTime(sec.Value(state.KeyUpdatedAt)); err == nil && !at.IsZero() && at.Before(r.at) {
			r.at = at
		}
		switch {
		case sec.Kind == ledger.KindTask && !sec.IsNote():
			r.task = string(sec.ID)
		case sec.Kind == ledger.KindControl:
			r.restored = string(sec.ID) == mark.Restore
			r.account = bytes.HasPrefix(sec.ID, []byte(state.ControlAccount))
		}
		switch after = f.Place(); {
		case after < r.seq:
			continue // it is a mark: the cursor moves with what was merged, which comes
		case after > r.seq: // nothing of that comes
			r.seq = after
			if r.digest, err = digestAt(ctx, p.s.src, after); err != nil {
				return err
			}
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Bounds of a wait for the fold.
const (
	foldPoll = time.Millisecond
	foldWait = 5 * time.Second
)

// packRecords makes a batch of a record and of those that are there behind it.
func (p *packer) packRecords(r record, more <-chan record, generation int64) error {
	b := &batch{since: r.at}
	var ids []string
	known, accounts := map[string]bool{}, false
	for ok := true; ok; {
		if accounts = accounts || r.account; r.task != "" && !known[r.task] {
			known[r.task] = true
			ids = append(ids, r.task)
		}
		b.to = &place{seq: r.seq, digest: r.digest, generation: generation}
		if len(ids) == maxTasks {
			break
		}
		select {
		case r, ok = <-more:
			if ok && r.restored {
				return errRestored
			}
		default:
			ok = false
		}
	}
	// A follower may get a record a moment before the source has folded it. A source that was read once may be older than
	// the journal now: then it is to be read again.
	for end := time.Now().Add(foldWait); p.s.src.Seq() < b.to.seq; {
		if !p.s.live || time.Now().After(end) {
			return errMoved
		}
		if err := task.Sleep(p.ctx, foldPoll); err != nil {
			return err
		}
	}
	if accounts {
		b.accounts = p.s.src.Accounts()
	}
	return p.pack(ids, b)
}
