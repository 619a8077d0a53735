package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/mark"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// This file keeps the name journal.md with what the log has written. Whatever another hand does to that name,
// to the file behind it or to the directory: nothing is acknowledged that the next start would not find.

// ErrGone ends a log whose directory was removed, moved away or unmounted: what it
// acknowledged from then on would be kept in files that nobody finds.
var ErrGone = errors.New("the state directory is gone")

// guardTries bounds how often the journal is put back for one batch where another hand changes it each time.
const guardTries = 5

// maxExtra bounds how much is kept of what another hand has written behind the journal.
const maxExtra = 64 << 20

// holdsPlace reports whether the file named journal.md is the one that is written here, and has what was written and no more.
func (j *journal) holdsPlace() bool {
	named, err := durable.IDAt(j.fs, j.path)
	return err == nil && named.Size == j.size && j.is(named) && !j.doubted.Load()
}

// is reports whether a file is the one that the log writes.
func (j *journal) is(id durable.ID) bool {
	fi, err := j.file.Stat()
	return err == nil && id.SameFile(durable.IDOf(fi))
}

// guard makes sure that the journal holds its place, on the log's goroutine or where that
// does not run. An error means that it cannot, and the log must stop.
func (l *Log) guard() error {
	err := errors.New("it is changed all the time")
	for range guardTries {
		if l.journal.holdsPlace() {
			return nil
		}
		perr := l.putBackJournal()
		l.journal.doubted.Store(perr != nil)
		if errors.Is(perr, ErrGone) {
			return perr
		}
		if err = cmp.Or(perr, err); perr != nil && !errors.Is(perr, fs.ErrNotExist) && !errors.Is(perr, fs.ErrExist) { // no name was made or removed in this moment
			break
		}
	}
	return fmt.Errorf("%s was changed by another hand and cannot be put back: %w", l.journal.path, err)
}

// putBackJournal tries once to write the journal anew: from the open file, which has all of it unless another hand has written
// there, and what that lacks from memory and tasks.md. The fold is made anew, because records may have other places then.
func (l *Log) putBackJournal() error {
	if dir, err := l.opts.FS.Stat(l.opts.Dir + "/."); errors.Is(err, fs.ErrNotExist) || err == nil && !durable.IDOf(dir).SameFile(l.dir) {
		return fmt.Errorf("%w: %s was removed, moved away or unmounted while it was in use", ErrGone, l.opts.Dir)
	}
	if swapped, err := l.swapBack(); swapped || err != nil {
		return err
	}
	l.journal.doubted.Store(false)
	data, err := io.ReadAll(io.NewSectionReader(l.journal.file, 0, l.journal.size+maxExtra))
	if err != nil {
		return err
	}
	size := min(int64(len(data)), l.journal.size)
	data, extra, lost := data[:size], data[size:], ""
	pieces := ledger.Pieces(data)
	isForeign := func(p ledger.Piece) bool { return p.Seq == 0 || p.Seq > l.seq }
	switch {
	case size < l.journal.size || l.stale || slices.ContainsFunc(pieces, isForeign):
		snap, terr := tasksfile.ReadSnapshot(context.Background(), l.opts.FS, l.opts.Dir, l.opts.Files)
		if errors.Is(terr, fs.ErrNotExist) || ledger.IsJournal(snap.Data) { // one of those has the same records
			terr = nil
		} else if terr != nil {
			snap.Data = nil
		}
		doc := ledger.Parse(snap.Data)
		known := salvage.Known(doc.Sections, salvage.OriginalsOf(doc))
		maps.Copy(known, salvage.Known(ledger.Parse(l.recent).Sections, nil))
		maps.DeleteFunc(known, func(seq uint64, _ []byte) bool { // a person's number, or one of before a compaction
			return seq > l.seq || l.lacks.Has(seq)
		})
		var foreign []byte
		pieces = slices.DeleteFunc(pieces, func(p ledger.Piece) bool {
			if isForeign(p) {
				foreign = append(foreign, p.Raw...)
			}
			return isForeign(p)
		})
		data, _ = salvage.Merge(pieces, known, l.seq)
		extra = append(foreign, extra...)
		if lost = l.lacks.New(data, l.seq); lost != "" && terr != nil {
			return fmt.Errorf("what it lacks may be in %s, which cannot be read: %w", l.opts.Files.Ledger(), terr)
		}
	case l.journal.holdsPlace():
		return nil // who doubted it was wrong
	}
	return l.install(data, extra, "was changed by another hand and has been put back", lost)
}

// maxRecent is how many bytes of the journal are remembered at least, and half of what there are at most.
const maxRecent = 4 << 20

// remember notes a batch, or its end: what another hand takes away from both files at once is nowhere else.
func (l *Log) remember(batch []byte) {
	batch = batch[max(0, len(batch)-maxRecent):]
	if len(l.recent)+len(batch) > 2*maxRecent {
		l.recent = append(l.recent[:0], l.recent[len(l.recent)-maxRecent:]...)
	}
	l.recent = append(l.recent, batch...)
}

// restoreMissing puts into the journal the records of tasks.md that it lacks, or has otherwise and without an
// effect: nobody was ever told of a record that has none. Another hand has cut them out or changed them, or
// has put an older copy in its place, while no log was open, or the disk has damaged them. It is called at
// start, where no section of tasks.md can be newer than the journal.
func (l *Log) restoreMissing(doc *ledger.Document) error {
	refused := l.refused
	l.refused = nil
	written, superseded := salvage.Written(doc), l.lacks.Superseded()
	missing, newest := []ledger.Section{}, uint64(0)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		newest = max(newest, s.Seq)
		lacked := !superseded(s.Seq) && (s.Seq > l.seq || l.lacks.Has(s.Seq)) && !ledger.SeqOutOfRange(s.Seq, l.seq)
		if (lacked || refused[s.Seq]) && written[ledger.Digest(s.Raw)] == 0 {
			missing = append(missing, *s)
		}
	}
	if len(missing)+len(l.damage) == 0 {
		return nil
	}
	known := salvage.Known(missing, salvage.OriginalsOf(doc))
	data, err := io.ReadAll(io.NewSectionReader(l.journal.file, 0, l.journal.size))
	if err != nil {
		return err
	}
	var extra []byte
	superseded = mark.Superseded(missing) // the journal is from before a compaction or a restore
	pieces := slices.DeleteFunc(ledger.Pieces(data), func(p ledger.Piece) bool {
		raw := known[p.Seq]
		heading, _, has := bytes.Cut(raw, []byte("- seq:"))
		isOther := refused[p.Seq] && has && bytes.HasPrefix(p.Raw, heading) && !bytes.HasPrefix(p.Raw, raw[:bytes.LastIndex(raw, []byte("<!-- end "))])
		goes := isOther || superseded(p.Seq)
		if goes {
			extra = append(extra, p.Raw...) // nothing else may have it
		}
		return goes
	})
	data, damaged := salvage.Merge(pieces, known, newest)
	if len(known)+len(damaged) == 0 {
		return nil
	}
	what := fmt.Sprintf("was damaged, or another hand has changed it or put an older copy in its place: %s put back from %s", ledger.Plural(len(known), "record was", "records were"), l.opts.Files.Ledger())
	if err := l.install(data, append(extra, damaged...), what, ""); err != nil {
		return fmt.Errorf("%s lacks records that %s has, and they cannot be put back: %w", l.journal.path, l.opts.Files.Ledger(), err)
	}
	return nil
}

// install writes data under the name journal.md, durable, notes what was done and goes on with it.
// What had the name is kept under another one, unless it is the file that the log had open; extra,
// what another hand wrote into that one, is kept too. lost says what data lacks.
func (l *Log) install(data, extra []byte, what, lost string) error {
	fsys, path, aside := l.opts.FS, l.journal.path, ""
	if ledger.HasText(extra) {
		name := l.asideName(path)
		if err := durable.WriteFile(fsys, name, extra); err != nil {
			return err
		}
		aside = "; what stood there besides is now in " + filepath.Base(name)
	}
	name := l.asideName(path) // a crash may leave our file there, never another one's without a name
	file, err := durable.WriteNew(fsys, name, durable.FileMode, func(w io.Writer) error { _, err := w.Write(data); return err })
	if err != nil {
		return err
	}
	if err := swapNames(fsys, name, path); err != nil {
		return errors.Join(err, file.Close(), durable.Drop(fsys, name))
	}
	switch out, oerr := durable.IDAt(fsys, name); {
	case errors.Is(oerr, fs.ErrNotExist):
	case oerr == nil && l.journal.is(out):
		err = durable.Drop(fsys, name)
	default:
		aside += "; the other one is now " + filepath.Base(name)
	}
	if err = errors.Join(err, fsys.SyncDir(l.opts.Dir)); err == nil {
		l.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s %s%s%s", l.opts.Files.Journal(), what, aside, lost)})
		if lost != "" { // it was acknowledged, so to go on as if nothing had happened would be a lie
			err = errors.New(strings.TrimPrefix(lost, "; "))
		}
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	return l.refold(file, data)
}

// asideName returns a free name with the time for what another hand has put at path.
func (l *Log) asideName(path string) string {
	return durable.FreeName(l.opts.FS, path+".foreign-"+l.opts.now().UTC().Format("20060102T150405.000Z"))
}

// swapNames lets two files change places, or gives the first one the other name if there is no other.
func swapNames(fsys durable.FS, a, b string) error {
	err := fsys.Exchange(a, b)
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Rename(a, b)
	}
	return err
}

// swapBack gives the two files their own names back where the beginning of one says that
// it is the other. What is wrong with a file that cannot be read is said where that is done.
func (l *Log) swapBack() (swapped bool, err error) {
	from, to := l.tasks.Path(), filepath.Join(l.opts.Dir, l.opts.Files.Journal())
	t, terr := durable.Head(l.opts.FS, from)
	j, jerr := durable.Head(l.opts.FS, to)
	switch {
	case terr != nil || jerr != nil:
		return false, nil
	case ledger.IsJournal(t) && !ledger.IsJournal(j), ledger.IsTasks(j) && t != nil && !ledger.IsTasks(t):
	case ledger.IsTasks(j) && t == nil:
		from, to = to, from
	default:
		return false, nil
	}
	if err := swapNames(l.opts.FS, from, to); err != nil {
		return false, fmt.Errorf("%s and %s have each other's name and cannot be put back: %w", from, to, err)
	}
	l.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s and %s had each other's name; they have their own again", l.opts.Files.Journal(), l.opts.Files.Ledger())})
	return true, l.opts.FS.SyncDir(l.opts.Dir)
}

// Rebuilt reports whether the journal was lost when the log was opened, and tasks.md was all there was.
func (l *Log) Rebuilt() bool { return l.rebuilt }

// ensureJournal gives the two files their own names back at a start. Where there are two files like
// tasks.md, the one that has the journal's name is set aside. If there is no journal then, or one in
// which nothing was ever written, it is made of tasks.md: a person has put his into a new directory.
func (l *Log) ensureJournal() error {
	if _, err := l.swapBack(); err != nil {
		return err
	}
	fsys, path := l.opts.FS, filepath.Join(l.opts.Dir, l.opts.Files.Journal())
	if head, err := durable.Head(fsys, path); err == nil && ledger.IsTasks(head) {
		name := l.asideName(path)
		if err := fsys.Rename(path, name); err != nil {
			return err
		}
		l.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s was no journal of this ledger; it is now %s", l.opts.Files.Journal(), filepath.Base(name))})
	}
	fi, err := fsys.Stat(path)
	empty := err == nil && fi.Size() <= int64(len(ledger.EmptyJournal))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && !empty {
		return err
	}
	snap, err := l.tasks.Read(context.Background())
	if err != nil {
		return err
	}
	doc := ledger.Parse(snap.Data)
	if err := ledger.CheckFormat(l.tasks.Path(), doc.Version); err != nil {
		return err
	}
	out, n := salvage.Journal(doc)
	if empty && n == 0 {
		return nil
	}
	if n > 0 {
		l.rebuilt = true
		l.note(ledger.Notice{Text: fmt.Sprintf("there was no journal: it was rebuilt with %d records from %s", n, l.opts.Files.Ledger())})
	}
	return durable.WriteFile(fsys, path, out)
}
