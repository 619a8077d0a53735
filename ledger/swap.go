package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// rewrite gives what tasks.md becomes: the text outside of sections as it stands,
// and the merged records in the places where the sections of their tasks began. The
// first of texts is the mark; the others belong to records. Places are filled in the
// order of the records, so that the order of the file is that of the journal; the
// records for which there is no place stand at the end.
func rewrite(doc *Document, records []Record, texts [][]byte) []byte {
	places := placesFor(doc, records)
	var out []byte
	put := func(n int) {
		for _, text := range texts[:n] {
			if len(out) > 0 && out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			out = append(out, text...)
		}
		texts = texts[n:]
	}
	pos, first := 0, true
	for i := range doc.Sections {
		s := &doc.Sections[i]
		out = append(out, doc.data[pos:s.Off]...)
		switch {
		case places[i] && first:
			put(2)
			first = false
		case places[i]:
			put(1)
		}
		out = append(out, textIn(s)...)
		pos = endOfSection(doc.data, s)
	}
	out = append(out, doc.data[pos:]...)
	put(len(texts))
	return out
}

// placesFor says which sections are the first ones of a task that stays.
func placesFor(doc *Document, records []Record) map[int]bool {
	stays := map[string]bool{}
	for i := range records {
		if records[i].Kind != KindControl {
			stays[nameOfRecord(&records[i])] = true
		}
	}
	places := map[int]bool{}
	for i := range doc.Sections {
		if name := nameOf(&doc.Sections[i]); stays[name] {
			places[i] = true
			delete(stays, name)
		}
	}
	return places
}

// endOfSection gives where the text behind a section begins. The empty line that
// stint writes behind a record belongs to it.
func endOfSection(data []byte, s *Section) int {
	end := int(s.Off) + len(s.Raw)
	if s.Seq == 0 {
		return end
	}
	if line, next, ok := cutLine(data, end); ok && len(trimRight(line)) == 0 {
		return next
	}
	return end
}

// textIn gives the lines of a person's section that are no fields: they are kept.
func textIn(s *Section) []byte {
	if s.Seq > 0 {
		return nil
	}
	field := map[int]bool{0: true} // the heading
	for i := range s.Fields {
		f := &s.Fields[i]
		field[f.line] = true
		if f.form == formLine {
			continue
		}
		lines := bytes.Count(f.raw, []byte("\n"))
		if n := len(f.raw); n > 0 && f.raw[n-1] != '\n' {
			lines++
		}
		for n := range lines {
			field[f.line+1+n] = true
		}
	}
	var out []byte
	n := 0
	for line := range bytes.Lines(s.Raw) {
		if !field[n] && hasText(line) {
			out = append(out, line...)
		}
		n++
	}
	return out
}

// beforeSuffix is added to the name of tasks.md for the file that a compaction has
// put in its place.
const beforeSuffix = ".before"

// writeNew writes a file that nobody else has open, durable but for its name, and
// gives it open for reading and appending. Nothing is left of one that has no room.
func writeNew(fsys durable.FS, name string, data []byte, mode fs.FileMode) (f durable.File, err error) {
	if err := dropFile(fsys, name); err != nil {
		return nil, err
	}
	if f, err = fsys.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close(), dropFile(fsys, name))
	}
	return f, nil
}

func dropFile(fsys durable.FS, name string) error {
	if err := fsys.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// is reports whether file is the one that the log writes.
func (j *journal) is(file durable.File) (bool, error) {
	fi, err := file.Stat()
	if err != nil {
		return false, err
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	ours, err := j.file.Stat()
	return err == nil && sameFile(idOf(fi), idOf(ours)), err
}

// swap goes on with another file, and gives the old one.
func (j *journal) swap(file durable.File) durable.File {
	j.mu.Lock()
	defer j.mu.Unlock()
	old := j.file
	j.file = file
	return old
}

// swapTasks puts the new tasks.md in the place of the old one, which becomes
// tasks.md.before. The journal is compacted already, so nothing that goes wrong here
// loses anything: tasks.md is then a buffer from before the compaction.
func (c *compactor) swapTasks() {
	t := c.log.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	ours, err := c.exchange(t)
	if err == nil {
		err = t.fs.SyncDir(c.log.opts.Dir)
	}
	if err != nil {
		t.foreign = true
		c.log.note(Notice{Text: fmt.Sprintf("%s could not be written anew after the compaction (%v); the merged records are appended to it instead", TasksName, err)})
		return
	}
	fi, err := t.fs.Stat(t.path)
	if err != nil || !sameFile(idOf(fi), ours) {
		t.foreign = true // a person saved in this moment
		return
	}
	t.seen, t.endsInN, t.foreign, t.dirty = idOf(fi), true, idOf(fi).size != ours.size, false
	t.shape, t.newest = outline{}, c.log.seq
	t.shape.add(c.tasks)
}

func sameFile(a, b fileID) bool { return a.dev == b.dev && a.ino == b.ino }

// exchange lets the two files change places, and then looks at the old one: if it
// is not what the new one was made of, a person has saved in this moment, and the
// files change places again. ours is the new file.
func (c *compactor) exchange(t *tasksFile) (ours fileID, err error) {
	before := t.path + beforeSuffix
	fi, err := t.fs.Stat(t.path)
	if err != nil {
		return ours, err
	}
	f, err := writeNew(t.fs, before, c.tasks, fi.Mode().Perm())
	if err != nil {
		return ours, err
	}
	fi, err = f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return ours, errors.Join(err, dropFile(t.fs, before))
	}
	ours = idOf(fi)
	err = t.fs.Exchange(before, t.path)
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return ours, c.rename(t, before)
	}
	if err != nil {
		return ours, err
	}
	for put := ours; ; {
		fi, err := t.fs.Stat(before)
		if err != nil {
			return ours, err
		}
		out := idOf(fi)
		switch {
		case out == c.snap.id:
			return ours, nil
		case put != ours && out == ours: // it is not the text from before
			return ours, dropFile(t.fs, before)
		case put != ours && sameFile(out, ours): // a person has written into it in this moment
			return ours, nil
		}
		if err := t.fs.Exchange(before, t.path); err != nil { // what was saved goes back
			return ours, err
		}
		put = out
	}
}

// rename is exchange where the file system cannot do that: for a moment there is
// no tasks.md, and what a person saves just then stays.
func (c *compactor) rename(t *tasksFile, before string) error {
	fresh := t.path + ".new"
	if err := t.fs.Rename(before, fresh); err != nil {
		return err
	}
	if err := t.fs.Rename(t.path, before); err != nil {
		return err
	}
	fi, err := t.fs.Stat(before)
	if err != nil {
		return err
	}
	from := fresh
	if idOf(fi) != c.snap.id {
		from = before // a person has saved: that goes back
	}
	if _, err := t.fs.Stat(t.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.fs.Rename(from, t.path)
}

// finishSwap ends a rename that a crash has cut off: no tasks.md, and the new one
// beside its place.
func finishSwap(fsys durable.FS, path string) error {
	fresh := path + ".new"
	if _, err := fsys.Stat(fresh); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if _, err := fsys.Stat(path); err == nil {
		return fsys.Remove(fresh)
	}
	return fsys.Rename(fresh, path)
}

// lookBack is how long after a compaction edits of the old tasks.md still count:
// an editor that writes in place may have it open.
const lookBack = 10 * time.Minute

// past is what is known of the files before the last compaction, so that an editor
// which had the old tasks.md loaded loses nothing. It is guarded by Log.looking.
type past struct {
	journal durable.File // the old one, which has no name any more
	size    int64
	until   time.Time
	seen    fileID          // the old tasks.md when it was last looked at
	taken   map[string]bool // the edits that were taken over
}

// keepOld keeps the old journal for a while. Whoever calls it holds looking.
func (l *Log) keepOld(journal durable.File, size int64, tasks fileID) {
	l.forgetPast(time.Time{})
	l.past = &past{journal: journal, size: size, until: time.Now().Add(lookBack), seen: tasks, taken: map[string]bool{}}
}

// forgetPast closes the old journal if its time is over; with a zero time, at once.
func (l *Log) forgetPast(now time.Time) {
	if l.past != nil && (now.IsZero() || now.After(l.past.until)) {
		_ = l.past.journal.Close() // it was only read
		l.past = nil
	}
}

// edits gives the records that take over what a person changed in a text from
// before the compaction, but for those that were taken, and a name for each. With
// all, sections that a person wrote count too; in tasks.md itself they are found by
// the digests in the archive's index.
func (p *past) edits(doc *Document, t terms, all bool) (records []Record, names []string, err error) {
	data := make([]byte, p.size)
	if _, err := p.journal.ReadAt(data, 0); err != nil {
		return nil, nil, fmt.Errorf("read the journal from before the compaction: %w", err)
	}
	h, own := newHistory(data), *doc
	// What stint wrote later is no edit, though the old journal does not know it.
	own.Sections = slices.DeleteFunc(slices.Clone(doc.Sections), func(s Section) bool { return s.Seq > h.last })
	old, err := makePlan(context.Background(), &own, h, t)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range old.records {
		by, _ := r.Get(KeyBy)
		digest, _ := r.Get(KeyAdopts)
		edits, _ := r.Get(KeyEdits)
		_, isRecord := parseUint([]byte(edits))
		if name := edits + " " + digest; by == ByHand && (all || isRecord) && !p.taken[name] {
			records, names = append(records, r), append(names, name)
		}
	}
	return records, names, nil
}

// took notes that edits were taken over.
func (p *past) took(names []string) {
	for _, name := range names {
		p.taken[name] = true
	}
}

// pastNotice tells of an edit in a text from before the compaction.
func pastNotice(r *Record) Notice {
	return Notice{Text: fmt.Sprintf("%s: %s %s was edited in a text from before the compaction, and the edit was taken over", TasksName, r.Kind, r.ID)}
}

// addPast adds to a plan what a person changed in sections that the compaction has
// merged: an editor had them loaded. The caller holds looking, but at start.
func (l *Log) addPast(p *plan, doc *Document) error {
	l.forgetPast(time.Now())
	if l.past == nil || p.old.count == 0 {
		return nil
	}
	records, names, err := l.past.edits(doc, l.opts.terms(), false)
	if err != nil || len(records) == 0 {
		return err
	}
	for i := range records {
		p.notices = append(p.notices, pastNotice(&records[i]))
	}
	p.records, p.past, p.old = append(records, p.records...), names, oldBuffer{}
	return nil
}

// lookBehind takes over what a person writes into the file that the compaction has
// put aside. Nothing is put back there.
func (l *Log) lookBehind(ctx context.Context) error {
	for {
		past, seen := l.pastSeen()
		if past == nil {
			return nil
		}
		snap, err := l.readBefore(ctx, seen) // without the lock: a person may be writing for long
		if err != nil || snap.data == nil {
			return err
		}
		if done, err := l.takeBefore(snap, past, seen); done || err != nil {
			return err
		}
	}
}

// takeBefore takes over what is new in the old tasks.md since it was seen; not done if
// another look, or a compaction, has come between.
func (l *Log) takeBefore(snap snapshot, past *past, seen fileID) (done bool, err error) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if l.past != past || past.seen != seen {
		return false, nil
	}
	records, names, err := past.edits(Parse(snap.data), l.opts.terms(), true)
	if err != nil {
		return false, err
	}
	if len(records) > 0 {
		err = l.enqueue(l.newUpdate(func(tx *Tx) error {
			for i := range records {
				tx.Append(&records[i])
			}
			return nil
		}))
	}
	if err != nil {
		return false, err
	}
	past.seen = snap.id
	past.took(names)
	for i := range records {
		l.note(pastNotice(&records[i]))
	}
	return true, nil
}

// pastSeen gives what is known of the files before the last compaction, nil if its time
// is over, and the old tasks.md as it was last seen.
func (l *Log) pastSeen() (*past, fileID) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if l.forgetPast(time.Now()); l.past == nil {
		return nil, fileID{}
	}
	return l.past, l.past.seen
}

// readBefore reads the old tasks.md when it has rested for a moment; without data
// if it is as it was seen, or not there.
func (l *Log) readBefore(ctx context.Context, seen fileID) (snapshot, error) {
	path := l.tasks.path + beforeSuffix
	t := &tasksFile{fs: l.opts.FS, path: path}
	for last := t.now(); last != seen && last != (fileID{}); {
		if !wait(ctx, settle) {
			return snapshot{}, nil
		}
		if now := t.now(); now != last {
			last = now
			continue
		}
		f, err := l.opts.FS.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			return snapshot{}, err
		}
		snap, err := readSnapshot(context.Background(), f, path)
		return snap, errors.Join(err, f.Close())
	}
	return snapshot{}, nil
}
