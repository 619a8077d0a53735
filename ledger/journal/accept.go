package journal

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/reconcile"
)

// Reconcile takes over tasks.md without waiting for a watch to tell of a save, as
// soon as the file rests, and says what it did. With accept it also takes what is
// held as the work of a formatter. It may be called by any goroutine but the log's own.
func (l *Log) Reconcile(ctx context.Context, accept bool) (reconcile.Report, error) {
	var r reconcile.Report
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
			r.Add(p.Plan)
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
func Preview(opts Options, tasks []byte) (r reconcile.Report, err error) {
	if opts.FS == nil {
		opts.FS = durable.OS
	}
	opts.OnDelete = nil
	doc := ledger.Parse(tasks)
	path := filepath.Join(opts.Dir, ledger.JournalName)
	journal, err := durable.ReadFile(opts.FS, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p := &reconcile.Plan{}
		p.Parsed(doc.Findings)
		r.Add(p)
		return r, nil
	case err != nil:
		return reconcile.Report{}, err
	case doc.Version > ledger.FormatVersion:
		return reconcile.Report{}, ledger.NewerFormat(filepath.Join(opts.Dir, ledger.TasksName), doc.Version)
	case ledger.VersionOf(journal) > ledger.FormatVersion:
		return reconcile.Report{}, ledger.NewerFormat(path, ledger.VersionOf(journal))
	}
	p, err := reconcile.Compare(context.Background(), doc, journal, opts.terms())
	if err != nil {
		return reconcile.Report{}, err
	}
	p.Sort()
	r.Add(p)
	return r, nil
}
