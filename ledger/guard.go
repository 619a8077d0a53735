package ledger

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stint/ledger/durable"
)

// This file keeps the name journal.md with what the log has written. Whatever another
// hand does to that name, to the file behind it or to the directory: nothing is
// acknowledged that the next start would not find.

// ErrGone ends a log whose directory was removed, moved away or unmounted: what it
// acknowledged from then on would be kept in files that nobody finds.
var ErrGone = errors.New("the state directory is gone")

// guardTries bounds how often the journal is put back for one batch where another hand
// changes it each time.
const guardTries = 5

// holdsPlace reports whether the file named journal.md is the one that is written here,
// and has what was written and no more.
func (j *journal) holdsPlace() bool {
	named, err := j.fs.Stat(j.path)
	if err != nil {
		return false
	}
	ours, err := j.file.Stat()
	return err == nil && ours.Size() == j.size && sameFile(idOf(named), idOf(ours)) && !j.doubted.Load()
}

// guard makes sure that the journal holds its place, on the log's goroutine or where that
// does not run. An error means that it cannot, and the log must stop.
func (l *Log) guard() (err error) {
	last := false
	for n := 0; n < guardTries && !last; n++ {
		if l.journal.holdsPlace() {
			return nil
		}
		last, err = l.putBackJournal()
		l.journal.doubted.Store(err != nil)
	}
	if errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%s was changed by another hand and cannot be put back: %w", l.journal.path, cmp.Or(err, errors.New("it is changed all the time")))
}

// putBackJournal is one try. last reports whether another
// try would do no better; it would where a name was removed or made in that moment.
func (l *Log) putBackJournal() (last bool, err error) {
	if dir, err := l.opts.FS.Stat(l.opts.Dir + "/."); errors.Is(err, fs.ErrNotExist) || err == nil && !sameFile(idOf(dir), l.dir) {
		return true, fmt.Errorf("%w: %s was removed, moved away or unmounted while it was in use", ErrGone, l.opts.Dir)
	}
	ours, there, err := l.names(l.journal.path)
	if err != nil {
		return false, err
	}
	if isTasks, _, err := l.names(l.tasks.path); err == nil && isTasks && !ours {
		if err := swapNames(l.opts.FS, l.tasks.path, l.journal.path); err != nil {
			return false, fmt.Errorf("%s has the name %s and cannot be put back: %w", journalName, TasksName, err)
		}
		l.note(Notice{Damage: true, Text: fmt.Sprintf("%s and %s had each other's name; they have their own again", journalName, TasksName)})
		return false, l.opts.FS.SyncDir(l.opts.Dir)
	}
	return l.regain(there && !ours)
}

// names reports whether a name is that of the journal's file, as it is open, and whether
// it is that of anything.
func (l *Log) names(path string) (ours, there bool, err error) {
	named, err := l.opts.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	file, err := l.journal.file.Stat()
	return err == nil && sameFile(idOf(named), idOf(file)), true, err
}

// regain writes the journal anew: from the open file, which has all of it unless another
// hand has written there, and for what it lacks from tasks.md. The fold is made anew if
// records may have other places then. keep is that of install.
func (l *Log) regain(keep bool) (last bool, err error) {
	l.journal.doubted.Store(false)
	data, err := l.journal.all()
	if err != nil {
		return true, err
	}
	ours := data[:min(int64(len(data)), l.journal.size)]
	extra, whole, lost := data[len(ours):], true, ""
	pieces := split(ours, true)
	if l.stale || int64(len(ours)) < l.journal.size || slices.ContainsFunc(pieces, func(p piece) bool { return p.seq == 0 }) {
		doc, terr := l.journal.readTasks()
		if doc == nil {
			doc = &Document{}
		}
		known := append(Parse(slices.Concat(l.recent.old, l.recent.new)).Sections, doc.Sections...)
		doc.Sections = slices.DeleteFunc(known, func(s Section) bool { // a person's number, or one of before a compaction
			return s.Seq > l.seq || l.lacks.has(s.Seq)
		})
		whole, extra = false, nil
		pieces = slices.DeleteFunc(pieces, func(p piece) bool {
			isExtra := p.seq == 0 || p.seq > l.seq
			if isExtra {
				extra = append(extra, p.raw...)
			}
			return isExtra
		})
		extra = append(extra, data[len(ours):]...)
		ours = merge(pieces, newPatch(nil, 0, doc).known)
		lost = l.lacks.gaps(ours, l.seq)
		if lost != "" && terr != nil {
			return true, fmt.Errorf("what it lacks may be in %s, which cannot be read: %w", TasksName, terr)
		}
	} else if l.journal.holdsPlace() {
		return false, nil // who doubted it was wrong
	}
	file, aside, err := l.install(ours, extra, keep)
	if err != nil {
		return false, err
	}
	l.note(Notice{Damage: true, Text: fmt.Sprintf("%s was changed by another hand and has been put back%s%s", journalName, aside, lost)})
	if lost != "" { // it was acknowledged, so to go on as if nothing had happened would be a lie
		return true, errors.Join(errors.New(strings.TrimPrefix(lost, "; ")), file.Close())
	}
	if !whole {
		err = l.goOnWith(file, ours)
		return err != nil, err
	}
	err = l.journal.swap(file).Close()
	l.journal.setSize(int64(len(ours)))
	for _, f := range l.followers() {
		f.replaced()
	}
	return err != nil, err
}

// recent are the last records of the journal: what another hand takes away from both files
// at once is nowhere else. They are owned by the log's goroutine.
type recent struct{ old, new []byte }

// maxRecent is how many bytes of them there are at least, and half of what there are at most.
const maxRecent = 4 << 20

// rememberRecent begins them with the end of the journal.
func (l *Log) rememberRecent() error {
	data := make([]byte, min(l.journal.size, maxRecent))
	if _, err := l.journal.file.ReadAt(data, l.journal.size-int64(len(data))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l.recent = recent{new: data}
	return nil
}

// add notes a batch.
func (r *recent) add(batch []byte) {
	if len(r.new)+len(batch) > maxRecent {
		r.old, r.new = r.new, r.old[:0]
	}
	if len(batch) <= maxRecent {
		r.new = append(r.new, batch...)
	}
}

// goOnWith makes the fold anew from data, what a file has that has the journal's name now.
func (l *Log) goOnWith(file durable.File, data []byte) error {
	old, err := l.refold(file, data, l.addFinding)
	if old != nil {
		err = errors.Join(err, old.Close())
	}
	return err
}

// all gives the bytes of the open file, and no more than can be kept of what another hand
// wrote behind ours.
func (j *journal) all() ([]byte, error) {
	fi, err := j.file.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(fi.Size(), j.size+durable.MaxVoid))
	n, err := j.file.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// lacks are the numbers that the journal does not have, as it was read: those of before a
// compaction, those that a restore has taken back, and lost ones. They are owned by the
// log's goroutine.
type lacks struct {
	last  uint64      // of the records that were read
	spans [][2]uint64 // first and last number of each
	below uint64      // up to here they lack for a good reason
}

// read notes a record of a journal that is read.
func (k *lacks) read(s *Section) {
	if s.Seq > k.last+1 {
		k.spans = append(k.spans, [2]uint64{k.last + 1, s.Seq - 1})
	}
	k.last = max(k.last, s.Seq)
	if m, ok := markIn(s); ok {
		k.below = max(k.below, m.through)
	} else if s.Kind == KindControl && string(s.ID) == ControlRestored {
		k.below = max(k.below, s.Seq)
	}
}

func (k *lacks) has(seq uint64) bool {
	return slices.ContainsFunc(k.spans, func(span [2]uint64) bool { return span[0] <= seq && seq <= span[1] })
}

// gaps says which numbers up to last a journal lacks that the one that was read did not; ""
// if none.
func (k *lacks) gaps(journal []byte, last uint64) (text string) {
	now := lacks{}
	for _, p := range split(journal, true) {
		if p.seq > 0 {
			now.read(&Section{Seq: p.seq})
		}
	}
	now.read(&Section{Seq: last + 1})
	for _, span := range now.spans {
		if !slices.ContainsFunc(k.spans, func(before [2]uint64) bool { return before[0] <= span[0] && span[1] <= before[1] }) {
			text += fmt.Sprintf("; of the numbers %d to %d nothing was found, in %s neither", span[0], span[1], TasksName)
		}
	}
	return text
}

// restoreMissing puts into the journal the records of tasks.md that it lacks, or has
// otherwise and without an effect: nobody was ever told of a record that has none. Another
// hand has cut them out or changed them, or has put an older copy in its place, while no
// log was open. It is called at start, where no section of tasks.md can be newer than the
// journal.
func (l *Log) restoreMissing(doc *Document) error {
	refused := l.refused
	l.refused = nil
	missing, marked, adopted := Document{}, false, map[string]bool(nil)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		lacked := s.Seq > l.lacks.below && (s.Seq > l.seq || l.lacks.has(s.Seq)) && !isTyped(s.Seq, l.seq)
		if !lacked && !refused[s.Seq] {
			continue
		}
		if adopted == nil { // the digests of the sections that records say a person wrote
			adopted = map[string]bool{}
			for i := range doc.Sections {
				adopted[doc.Sections[i].Value(KeyAdopts)] = true
			}
		}
		if adopted[digestOf(s.Raw)] {
			continue // a person has made up that number
		}
		missing.Sections = append(missing.Sections, *s)
		_, isMark := markIn(s)
		marked = marked || isMark
	}
	if len(missing.Sections) == 0 {
		return nil
	}
	var pieces []piece
	if marked { // the journal is from before a compaction, and tasks.md has all that came of it
		missing = *doc
	} else if data, _, err := l.journal.read(); err != nil {
		return err
	} else {
		pieces = split(data, true)
	}
	known := newPatch(nil, 0, &missing).known
	pieces = slices.DeleteFunc(pieces, func(p piece) bool {
		raw := known[p.seq]
		return refused[p.seq] && nameAndSeq(raw) == nameAndSeq(p.raw) && !bytes.Equal(raw, p.raw)
	})
	data := merge(pieces, known)
	if len(known) == 0 {
		return nil
	}
	file, aside, err := l.install(data, nil, true)
	if err == nil {
		err = l.goOnWith(file, data)
	}
	if err != nil {
		return fmt.Errorf("%s lacks records that %s has, and they cannot be put back: %w", l.journal.path, TasksName, err)
	}
	l.note(Notice{Damage: true, Text: fmt.Sprintf("%s lacked %s that %s has (another hand has changed it, or put an older copy in its place?): put back%s", journalName, plural(len(known), "record", "records"), TasksName, aside)})
	return nil
}

// merge makes a journal of pieces of one and of records that it may lack, which find their
// places by their numbers. Those that it has are taken out of known.
func merge(pieces []piece, known map[uint64][]byte) []byte {
	for i := range pieces {
		delete(known, pieces[i].seq)
	}
	m, more := newPatch(nil, 0, &Document{}), slices.Sorted(maps.Keys(known))
	before := func(seq uint64) {
		for ; len(more) > 0 && more[0] < seq; more = more[1:] {
			m.record(known[more[0]], more[0])
		}
	}
	for i := range pieces {
		if seq := pieces[i].seq; seq > 0 {
			before(seq)
		}
		m.record(pieces[i].raw, pieces[i].seq)
	}
	before(maxSeq + 1)
	return m.journal()
}

// nameAndSeq gives the first two lines of a record.
func nameAndSeq(raw []byte) string {
	_, head, _ := cutLine(raw, 0)
	_, head, _ = cutLine(raw, head)
	return string(raw[:head])
}

// install gives data the name journal.md, durable, and gives the file. With keep, what had
// the name is kept under another one; extra, what another hand wrote into our own file, is
// kept too. aside says where these are.
func (l *Log) install(data, extra []byte, keep bool) (file durable.File, aside string, err error) {
	fsys, path := l.opts.FS, l.journal.path
	if hasText(extra) {
		name := l.asideName(path)
		if err := durable.WriteFile(fsys, name, extra); err != nil {
			return nil, "", err
		}
		aside = "; what stood there besides is now in " + filepath.Base(name)
	}
	name := l.asideName(path) // a crash may leave our file there, never another one's without a name
	if file, err = writeNew(fsys, name, data, durable.FileMode); err != nil {
		return nil, "", err
	}
	if !keep {
		err = fsys.Rename(name, path)
	} else if err = swapNames(fsys, name, path); err == nil {
		aside += "; the other one is now " + filepath.Base(name)
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Close(), dropFile(fsys, name))
	}
	if err := fsys.SyncDir(l.opts.Dir); err != nil {
		return nil, "", errors.Join(err, file.Close())
	}
	return file, aside, nil
}

// asideName gives a free name with the time for what another hand has put at path.
func (l *Log) asideName(path string) string {
	for name := path + ".foreign-" + l.opts.now().UTC().Format("20060102T150405.000Z"); ; name += "+" {
		if _, err := l.opts.FS.Stat(name); err != nil {
			return name
		}
	}
}

// swapNames lets two files change places, or gives the first one the other name if there
// is no other.
func swapNames(fsys durable.FS, a, b string) error {
	err := fsys.Exchange(a, b)
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Rename(a, b)
	}
	return err
}

// putInPlace lets the two files have their own names again where the beginning of one says
// that it is the other. Where there are two files like tasks.md, and no journal, the one that
// has the journal's name is set aside.
func (l *Log) putInPlace(journal string) error {
	tasks := l.tasks.path
	t, err := headOf(l.opts.FS, tasks)
	if err != nil {
		return nil // what is wrong with it is said where it is read
	}
	j, err := headOf(l.opts.FS, journal)
	if err != nil {
		return nil
	}
	switch {
	case isJournal(t) && !isJournal(j), isTasks(j) && !isTasks(t) && t != nil:
		err = swapNames(l.opts.FS, tasks, journal)
	case isTasks(j) && t == nil:
		err = swapNames(l.opts.FS, journal, tasks)
	case isTasks(j): // the journal is made anew
		name := l.asideName(journal)
		if err := l.opts.FS.Rename(journal, name); err != nil {
			return err
		}
		l.note(Notice{Damage: true, Text: fmt.Sprintf("%s was no journal of this ledger; it is now %s", journalName, filepath.Base(name))})
		return nil
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s and %s have each other's place and cannot be put back: %w", tasks, journal, err)
	}
	l.note(Notice{Damage: true, Text: fmt.Sprintf("%s and %s had each other's name; they have their own again", journalName, TasksName)})
	return l.opts.FS.SyncDir(l.opts.Dir)
}

// headOf gives the beginning of a file; nil if it is not there.
func headOf(fsys durable.FS, path string) (head []byte, err error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("no regular file"))
	}
	head = make([]byte, 4<<10)
	n, err := f.ReadAt(head, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return head[:n], err
}

// isJournal reports whether a file that begins so is a journal.
func isJournal(head []byte) bool { return bytes.HasPrefix(head, journalOpen) }

// isTasks reports whether a file that begins so can be no journal: those of before have
// the first line of a ledger, but not its title.
func isTasks(head []byte) bool {
	_, next, ok := cutLine(head, 0)
	return ok && bytes.HasPrefix(head, ledgerOpen) && bytes.HasPrefix(bytes.TrimLeft(head[next:], " \t\r\n"), []byte("# "))
}
