package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"stint/ledger/durable"
)

// Names of the archive, below the state directory.
const (
	archiveDir = "archive"
	indexName  = "index"
)

// KeyArchived stands in the record of a task that compaction has moved out: when
// that was. It is no field of the task.
const KeyArchived = "archivedAt"

// ControlCompaction is the id of the control record that begins a compacted journal.
const ControlCompaction = "compaction"

// Keys of that record.
const (
	keyThrough = "through" // all records up to that seq were merged or moved out
	keyMerged  = "merged"  // so many records that follow it are merged ones
	keyArchive = "archive" // the file that has what was superseded
)

// The keys of a moved-out record that its entry in the index repeats. They are
// read only where an index is lost.
const (
	keyStatus  = "status"
	keyIdem    = "idempotencyKey"
	keyParent  = "triggeredByTaskId"
	keyTrigger = "trigger"
	keyUpdated = "updatedAt"
)

// An ArchiveEntry is what the index of the archive says of a task that was moved
// out: what is needed of it every day, and where all of it stands.
type ArchiveEntry struct {
	ID        string
	Status    string    // its last one
	Key       string    // idempotency key; "" if it has none
	Parent    string    // the task that has queued it; "" if none has
	Trigger   string    // why that has
	UpdatedAt time.Time // of its last record; zero if it has none
	File      string    // base name of the file in archive/
	Off       int64     // offset of its record there
}

// An indexLine is one line of archive/index. A line with Through begins a
// compaction; the others say what it did.
type indexLine struct {
	Through uint64 `json:"through,omitempty"` // highest seq that the compaction merged or moved out
	Before  uint64 `json:"before,omitempty"`  // the same of the compaction before it; 0: it was the first

	ID        string    `json:"id,omitempty"`
	Status    string    `json:"status,omitempty"`
	Key       string    `json:"key,omitempty"`
	Parent    string    `json:"parent,omitempty"`
	Trigger   string    `json:"trigger,omitempty"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	File      string    `json:"file,omitempty"`
	Off       int64     `json:"off,omitempty"`

	Adopted string `json:"adopted,omitempty"` // digest of a hand-written section that was adopted
	N       int    `json:"n,omitempty"`       // number of such sections of equal text
}

// A compaction is what the index says of one.
type compaction struct {
	through, before uint64
	entries         []ArchiveEntry
	adopted         map[string]int
}

// An archive is what is known of a state directory's archive.
type archive struct {
	entries []ArchiveEntry // in order; a later one of an id counts
	adopted map[string]int // digest to number of hand-written sections that were adopted before the last compaction
}

// readArchive reads the index as it belongs to a journal whose first record says
// through. What a compaction wrote that did not come to its end is not in it. The
// index is a cache: if it is not whole it is put together from the archive's files.
// With through 0, where a journal was rebuilt, every entry counts: a task that the
// journal names is not in the archive, whatever its index says.
func readArchive(fsys durable.FS, dir string, through uint64) (a *archive, whole bool, err error) {
	list, err := readIndex(fsys, dir)
	if err != nil {
		return nil, false, err
	}
	chain := list
	if through > 0 {
		if chain, whole = chainOf(list, through); !whole {
			a, err := rebuildArchive(fsys, dir, through)
			return a, false, err
		}
	}
	a = &archive{adopted: map[string]int{}}
	for _, c := range chain {
		a.entries = append(a.entries, c.entries...)
		for digest, n := range c.adopted {
			if through > 0 {
				a.adopted[digest] += n
			}
		}
	}
	if through == 0 && len(a.entries) > 0 {
		err = a.dropPresent(fsys, dir)
	}
	return a, true, err
}

// dropPresent leaves out the tasks that the journal in dir names: the compaction that
// moved them was cut off, or they were brought back.
func (a *archive) dropPresent(fsys durable.FS, dir string) error {
	data, err := durable.ReadFile(fsys, filepath.Join(dir, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	present := map[string]bool{}
	eachRecord(data, func(s *Section) { present[nameOf(s)] = true })
	a.entries = slices.DeleteFunc(a.entries, func(e ArchiveEntry) bool { return present[string(KindTask)+" "+e.ID] })
	return nil
}

// chainOf gives the compactions that led to the one that ended at through, oldest
// first, and whether all of them are there. Others were begun and not finished.
func chainOf(list []*compaction, through uint64) (chain []*compaction, whole bool) {
	for _, c := range slices.Backward(list) {
		if through > 0 && c.through == through {
			chain = append(chain, c)
			through = c.before
		}
	}
	slices.Reverse(chain)
	return chain, through == 0
}

// readIndex gives the compactions in archive/index, none if it is not there. A
// line that cannot be read, such as the last one after a crash, spoils its compaction.
func readIndex(fsys durable.FS, dir string) (list []*compaction, err error) {
	data, err := durable.ReadFile(fsys, filepath.Join(dir, archiveDir, indexName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var c *compaction
	for line := range bytes.Lines(data) {
		var l indexLine
		bad := line[len(line)-1] != '\n' || json.Unmarshal(line, &l) != nil
		switch {
		case bad && isHeader(line):
			c = nil // the next compaction, which has just begun or was cut off
		case bad && c != nil:
			c.through = 0 // no chain finds it
		case bad:
		case l.Through > 0:
			c = &compaction{through: l.Through, before: l.Before, adopted: map[string]int{}}
			list = append(list, c)
		case c == nil:
		case l.ID != "":
			c.entries = append(c.entries, ArchiveEntry{l.ID, l.Status, l.Key, l.Parent, l.Trigger, l.UpdatedAt, l.File, l.Off})
		case l.Adopted != "":
			c.adopted[l.Adopted] += l.N
		}
	}
	return list, nil
}

// isHeader reports whether a line of the index, or what is there of it, is one that begins
// a compaction: as far as it goes, it is equal.
func isHeader(line []byte) bool {
	const begins = `{"through":`
	line = bytes.TrimSuffix(line, []byte("\n"))
	n := min(len(line), len(begins))
	return string(line[:n]) == begins[:n]
}

// appendIndex adds a compaction to archive/index and makes it durable.
func appendIndex(fsys durable.FS, dir string, c *compaction) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(indexLine{Through: c.through, Before: c.before})
	for _, e := range c.entries {
		err = errors.Join(err, enc.Encode(indexLine{ID: e.ID, Status: e.Status, Key: e.Key, Parent: e.Parent, Trigger: e.Trigger, UpdatedAt: e.UpdatedAt, File: e.File, Off: e.Off}))
	}
	for _, digest := range sortedNames(c.adopted) {
		err = errors.Join(err, enc.Encode(indexLine{Adopted: digest, N: c.adopted[digest]}))
	}
	if err != nil {
		return err
	}
	_, err = appendTo(fsys, filepath.Join(dir, archiveDir, indexName), "", out.Bytes())
	return err
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// appendTo appends data to a file and makes it durable, but for the name of a file
// that is new. It gives where data begins. A new file begins with header. After an
// error the file is as it was, as far as the disk allows.
func appendTo(fsys durable.FS, name, header string, data []byte) (off int64, err error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, durable.FileMode)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if fi.Size() > 0 {
		if header, err = lineEnd(f, fi.Size()); err != nil {
			return 0, err
		}
	}
	_, err = f.Write(append([]byte(header), data...))
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%s: %w", name, err), f.Truncate(fi.Size()))
	}
	return fi.Size() + int64(len(header)), nil
}

// lineEnd gives the line end that a crash may have cut off the end of a file.
func lineEnd(f durable.File, size int64) (string, error) {
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if last[0] != '\n' {
		return "\n", nil
	}
	return "", nil
}

// compactedThrough gives what the first record of journal.md says if that is the
// mark of a compaction: the highest seq before it. Zero if there is none.
func compactedThrough(fsys durable.FS, dir string) (through uint64, err error) {
	f, err := fsys.OpenFile(filepath.Join(dir, journalName), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := make([]byte, 4<<10) // the record has five short fields
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	m, _ := markOf(head[:n])
	return m.through, nil
}

// A mark is the record that begins a compacted journal.
type mark struct {
	seq, through uint64
	merged       int
}

// markOf gives the mark at the beginning of a journal's bytes, and where it ends;
// a zero mark if there is none.
func markOf(data []byte) (m mark, end int) {
	_, pos, ok := cutLine(data, 0) // the version line
	for ok && pos < len(data) && data[pos] == '\n' {
		pos++
	}
	var s Section
	if !ok || pos >= len(data) {
		return m, 0
	}
	n, _, err := scanStrict(data[pos:], &s)
	if err != nil {
		return m, 0
	}
	if m, ok = markIn(&s); !ok {
		return m, 0
	}
	return m, pos + n
}

// markIn reads the mark of a compaction; ok is false if s is none.
func markIn(s *Section) (m mark, ok bool) {
	if s.Kind != KindControl || string(s.ID) != ControlCompaction {
		return m, false
	}
	through, ok1 := parseUint([]byte(s.Value(keyThrough)))
	merged, ok2 := parseUint([]byte(s.Value(keyMerged)))
	if !ok1 || !ok2 || through >= s.Seq || merged > maxSeq {
		return m, false
	}
	return mark{s.Seq, through, int(merged)}, true
}

// adoptedBefore gives the digests of the hand-written sections that were adopted
// before the last compaction, with the number of sections of each: a buffer from
// before it may still have them.
func adoptedBefore(fsys durable.FS, dir string) (map[string]int, error) {
	through, err := compactedThrough(fsys, dir)
	if err != nil || through == 0 {
		return nil, err
	}
	a, _, err := readArchive(fsys, dir, through)
	if err != nil {
		return nil, err
	}
	return a.adopted, nil
}

// ReadArchive gives the entries of the archive in dir, in the order in which they
// were moved out, each id once. It needs no lock. A nil fsys is the machine's.
func ReadArchive(fsys durable.FS, dir string) ([]ArchiveEntry, error) {
	if fsys == nil {
		fsys = durable.OS
	}
	through, err := compactedThrough(fsys, dir)
	if err != nil {
		return nil, err
	}
	a, _, err := readArchive(fsys, dir, through)
	if err != nil {
		return nil, err
	}
	last := make(map[string]int, len(a.entries))
	for i, e := range a.entries {
		last[e.ID] = i
	}
	once := a.entries[:0]
	for i, e := range a.entries {
		if last[e.ID] == i {
			once = append(once, e)
		}
	}
	return once, nil
}

// ReadArchived reads the whole record of a task that was moved out. Its fields are
// the task's, and [KeyArchived]. A nil fsys is the machine's.
func ReadArchived(fsys durable.FS, dir string, e ArchiveEntry) (s *Section, err error) {
	if fsys == nil {
		fsys = durable.OS
	}
	name := filepath.Join(dir, archiveDir, e.File)
	if !filepath.IsLocal(e.File) || filepath.Base(e.File) != e.File {
		return nil, fmt.Errorf("the archive's index names %q, which is no file of the archive", e.File)
	}
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("task %s was archived: %w", e.ID, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err = sectionIn(f, name, e.Off)
	if err == nil && (string(s.ID) != e.ID || s.Get(KeyArchived) == nil) {
		err = fmt.Errorf("%s does not have task %s at offset %d, where the index says; remove %s, it is made anew", name, e.ID, e.Off, filepath.Join(archiveDir, indexName))
	}
	return s, err
}

// rebuildArchive puts the index together from the archive's files.
func rebuildArchive(fsys durable.FS, dir string, through uint64) (*archive, error) {
	a := &archive{}
	old := map[uint64][]byte{} // the superseded records; a seq that stands twice was archived by a compaction that failed, too
	for _, name := range archiveNames(time.Now()) {
		data, err := durable.ReadFile(fsys, filepath.Join(dir, archiveDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		eachRecord(data, func(s *Section) {
			switch {
			case s.Get(KeyArchived) != nil:
				updated, _ := time.Parse(time.RFC3339Nano, s.Value(keyUpdated)) // zero where a person wrote another form
				a.entries = append(a.entries, ArchiveEntry{string(s.ID), s.Value(keyStatus), s.Value(keyIdem), s.Value(keyParent), s.Value(keyTrigger), updated, name, s.Off})
			case s.Seq <= through:
				old[s.Seq] = bytes.Clone(s.Raw)
			}
		})
	}
	a.adopted = adoptedIn(joined(old))
	return a, a.dropPresent(fsys, dir) // of a compaction that was cut off
}

// joined gives records in the order of their seqs, as a journal has them.
func joined(records map[uint64][]byte) []byte {
	seqs := make([]uint64, 0, len(records))
	for seq := range records {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	var out []byte
	for _, seq := range seqs {
		out = append(append(out, records[seq]...), '\n')
	}
	return out
}

// eachRecord gives the records in data that stand there as stint wrote them.
func eachRecord(data []byte, f func(*Section)) {
	var s Section
	for pos := 0; pos < len(data); {
		if data[pos] == '#' {
			if n, _, err := scanStrict(data[pos:], &s); err == nil {
				s.Off = int64(pos)
				f(&s)
				pos += n
				continue
			}
		}
		next := bytes.IndexByte(data[pos:], '\n')
		if next < 0 {
			return
		}
		pos += next + 1
	}
}

// firstArchive is the year of the oldest archive that there can be.
const firstArchive = 2025

// archiveName gives the file into which a compaction moves records at t.
func archiveName(t time.Time) string { return t.UTC().Format("tasks-2006-01.md") }

// archiveNames gives the names that archives up to the year after now can have, in
// order: a file system of the ledger lists no directories.
func archiveNames(now time.Time) []string {
	var names []string
	for t := time.Date(firstArchive, 1, 1, 0, 0, 0, 0, time.UTC); t.Year() <= now.UTC().Year()+1; t = t.AddDate(0, 1, 0) {
		names = append(names, archiveName(t))
	}
	return names
}

func archivePath(dir string) string { return filepath.Join(dir, archiveDir) }

func archiveFile(dir, name string) string { return filepath.Join(dir, archiveDir, name) }

// adoptedIn gives the digests of the hand-written sections that the records of a
// journal have adopted, as they were last seen, with the number of each.
func adoptedIn(journal []byte) map[string]int {
	n := map[string]int{}
	for digest, list := range newHistory(journal).adopted {
		if len(list) > 0 {
			n[digest] = len(list)
		}
	}
	return n
}

// openArchive tells the fold what is in the archive, and makes an index anew that
// was lost.
func (l *Log) openArchive() error {
	through, err := compactedThrough(l.opts.FS, l.opts.Dir)
	if err != nil {
		return err
	}
	a, whole, err := readArchive(l.opts.FS, l.opts.Dir, through)
	if err != nil {
		return err
	}
	if !whole && through > 0 {
		l.note(Notice{Text: fmt.Sprintf("%s was not whole: it was made anew from the archive's files, with %d tasks", filepath.Join(archiveDir, indexName), len(a.entries))})
		err := durable.MkdirAll(l.opts.FS, archivePath(l.opts.Dir))
		if err == nil {
			err = appendIndex(l.opts.FS, l.opts.Dir, &compaction{through: through, entries: a.entries, adopted: a.adopted})
		}
		if err != nil {
			return err
		}
	}
	l.opts.Locker.Lock()
	defer l.opts.Locker.Unlock()
	l.giveArchive(a)
	return nil
}
