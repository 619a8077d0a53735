package ledger

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"stint/ledger/durable"
)

// A Report says what reconciling tasks.md did, or would do.
type Report struct {
	Findings []*SyntaxError // what is wrong in tasks.md, by line
	Notices  []Notice       // what a person should hear of, findings among them
	Records  []Record       // what was taken over; their Seq is 0
	Missing  int            // records that an old buffer had dropped and that were appended again
	Held     int            // sections that are held because a formatter seems to have changed them
}

// add notes what one plan did.
func (r *Report) add(p *plan) {
	r.Findings, r.Held = p.findings, len(p.held)
	r.Notices = append(r.Notices, p.notices...)
	r.Records = append(r.Records, p.records...)
	r.Missing += p.dropped
}

// Reconcile takes over tasks.md without waiting for a watch to tell of a save, as
// soon as the file rests, and says what it did. With accept it also takes what is
// held as the work of a formatter. It may be called by any goroutine but the log's own.
func (l *Log) Reconcile(ctx context.Context, accept bool) (Report, error) {
	var r Report
	rest, stop := untilRest(ctx)
	defer stop()
	for {
		if !l.rested(rest) || rest.Err() != nil {
			return r, context.Cause(rest)
		}
		snap, err := l.tasks.read(ctx)
		if err != nil {
			return r, err
		}
		if l.tasks.changed() && !l.stays(rest, snap.id, l.tasks.restOf(snap)-settle) {
			continue
		}
		l.looking.Lock()
		c, p, err := l.look(ctx, snap, accept)
		l.looking.Unlock()
		if p != nil && (c.done || c.committed) {
			r.add(p)
		}
		if err = errors.Join(err, c.trouble); c.done || err != nil {
			return r, err
		}
	}
}

// Settle takes over what another hand has written into tasks.md until now, by the rules
// of the watch and before it comes to that. It waits for an editor at work until ctx
// ends, and costs next to nothing where there is nothing.
func (l *Log) Settle(ctx context.Context) error { return l.takeOver(ctx, ctx) }

// Preview returns what Reconcile would do if tasks.md were these bytes. It reads the
// journal of opts.Dir and writes nothing; it needs no lock, and of opts only Dir,
// FS, Begin, CheckBatch, Guarded and KeepOnCopy count. Without a journal it gives the findings alone.
func Preview(opts Options, tasks []byte) (Report, error) {
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	opts.OnDelete = nil
	doc := Parse(tasks)
	path := filepath.Join(opts.Dir, journalName)
	journal, err := durable.ReadFile(opts.FS, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p := plan{}
		p.parsed(doc.Findings)
		return Report{Findings: p.findings, Notices: p.notices}, nil
	case err != nil:
		return Report{}, err
	case doc.Version > FormatVersion:
		return Report{}, newerFormat(filepath.Join(opts.Dir, TasksName), doc.Version)
	case versionOf(journal) > FormatVersion:
		return Report{}, newerFormat(path, versionOf(journal))
	}
	p, err := makePlan(context.Background(), doc, newHistory(journal), opts.terms())
	if err != nil {
		return Report{}, err
	}
	p.sort()
	var r Report
	r.add(p)
	return r, nil
}
