// Package archive reads and writes what a compaction has moved out of the journal: the files archive/tasks-2026-11.md, which
// have the records as they stood, and archive/index, which has of each task what is needed every day.
package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/mark"
)

// Dir is where the archive is, below the state directory.
const Dir = "archive"

// An indexLine is one line of archive/index. One with Through begins a compaction; the Lines behind it say what that did.
type indexLine struct {
	Through uint64 `json:"through,omitempty"` // highest seq that the compaction merged or moved out
	Lines   int    `json:"lines,omitempty"`

	ledger.ArchiveEntry // without ID in lines that older versions wrote; beside Through, the file that was written to, and its size then
}

// Ends are where the last compaction that came to its end has left the archive. What is behind that is of one that was killed.
type Ends struct {
	Index int64  // 0: it is to be written anew
	File  string // that was written to; "": not known
	Size  int64  // of it
}

// Load returns the entries of the archive as they belong to the journal in dir, in order; a later one of an id counts.
//
// The index is a cache. It counts up to the compaction that the journal begins with: what is behind that in it was written by one
// that did not come to its end, and the next one cuts it off. If the index does not have all of that, the archive's files have.
func Load(fsys durable.FS, dir string, files ledger.Files) (entries []ledger.ArchiveEntry, ends Ends, err error) {
	start, err := durable.Head(fsys, filepath.Join(dir, files.Journal()))
	if err != nil {
		return nil, ends, err
	}
	var begin mark.Mark
	ledger.CheckJournal(start, func(s *ledger.Section) bool { // the first record of what is short
		begin, _ = mark.In(s)
		return false
	})
	var data []byte
	if begin.Through > 0 {
		data, err = durable.ReadFile(fsys, filepath.Join(dir, Dir, files.Index()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, ends, err
		}
	}
	head, left := indexLine{}, 0 // the compaction, and how many of its lines follow
	for line := range bytes.Lines(data) {
		var l indexLine
		if json.Unmarshal(line, &l) != nil || line[len(line)-1] != '\n' || (l.Through > 0) != (left == 0) {
			break
		}
		switch ends.Index += int64(len(line)); {
		case l.Through > 0:
			head, left, ends.File, ends.Size = l, l.Lines+1, l.File, l.Off
		case l.ID != "":
			entries = append(entries, l.ArchiveEntry)
		}
		if left--; left == 0 && head.Through == begin.Through {
			return entries, ends, nil
		}
	}
	entries, err = rebuild(fsys, dir, files)
	return entries, Ends{File: begin.Archive, Size: begin.Size}, err
}

// Lacks returns a finding if the file that was written to last is not there, or is shorter than it was then.
func (e Ends) Lacks(fsys durable.FS, dir string) *ledger.SyntaxError {
	file := filepath.Join(Dir, e.File)
	fi, err := fsys.Stat(filepath.Join(dir, file))
	if e.Size == 0 || err == nil && fi.Size() >= e.Size {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("it has %d bytes", fi.Size())
	}
	return &ledger.SyntaxError{File: file, Msg: fmt.Sprintf("%v, and the last compaction has left %d there: what is archived, and its idempotency keys, are not known; restore the file from a backup", err, e.Size)}
}

// WriteIndex writes the entries of a compaction behind the end of the index, and makes it durable.
func WriteIndex(fsys durable.FS, dir string, files ledger.Files, through uint64, ends Ends, entries []ledger.ArchiveEntry) error {
	w := NewWriter(fsys, dir, files.Index(), Ends{})
	err := w.openAt(ends.Index)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err == nil {
		err = enc.Encode(indexLine{through, len(entries), ledger.ArchiveEntry{File: ends.File, Off: ends.Size}})
	}
	for i := 0; err == nil && i < len(entries); i++ {
		err = enc.Encode(indexLine{ArchiveEntry: entries[i]})
	}
	return cmp.Or(w.Close(err), fsys.SyncDir(filepath.Join(dir, Dir)))
}

// A Writer adds records to a file of the archive.
type Writer struct {
	Entries []ledger.ArchiveEntry // of the records that were put

	Ends // after Close: of the index as before, and of what was written

	fs        durable.FS
	path      string
	file      durable.File // nil until something is written
	out       *bufio.Writer
	from, end int64 // of what is written
	buf       []byte
}

// NewWriter returns a writer for the file of that name in the archive of dir. It cuts off what is behind ends.
func NewWriter(fsys durable.FS, dir, name string, ends Ends) *Writer {
	return &Writer{Ends: ends, fs: fsys, path: filepath.Join(dir, Dir, name)}
}

// openAt begins to write behind that offset.
func (w *Writer) openAt(end int64) (err error) {
	if err = durable.MkdirAll(w.fs, filepath.Dir(w.path)); err == nil {
		w.file, err = w.fs.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, durable.FileMode)
	}
	if err != nil {
		return err
	}
	w.out, w.from, w.end = durable.Steady(w.file), end, end
	fi, err := w.file.Stat()
	if err == nil && fi.Size() > end {
		err = w.file.Truncate(end)
	}
	return err
}

// Write adds text.
func (w *Writer) Write(p []byte) (n int, err error) {
	if w.file == nil {
		end, head := int64(0), ledger.VersionLine+"\n\n"
		if fi, err := w.fs.Stat(w.path); err == nil && fi.Size() > 0 {
			end, head = fi.Size(), "\n" // a crash may have cut the last line off
			if name := filepath.Base(w.path); name == w.File {
				end = min(end, w.Size)
			}
		}
		if err := w.openAt(end); err != nil {
			return 0, err
		}
		_, _ = w.Write([]byte(head)) // the next one has its error too
	}
	w.end += int64(len(p))
	return w.out.Write(p)
}

// Put adds the record of a task, and says in its entry where.
func (w *Writer) Put(m *ledger.Moved) (err error) {
	if w.buf, err = ledger.AppendRecord(w.buf[:0], &m.Record); err != nil {
		return fmt.Errorf("%s %s: %w", m.Record.Kind, m.Record.ID, err)
	}
	_, err = w.Write(w.buf)
	m.Entry.File, m.Entry.Off = filepath.Base(w.path), w.end-int64(len(w.buf))
	w.Entries = append(w.Entries, m.Entry)
	return err
}

// Close makes what was written durable, but for the name of a new file. After an error, that of the writing
// too, nothing stands there, as far as the disk allows.
func (w *Writer) Close(err error) error {
	if w.file == nil {
		return err
	}
	if err = cmp.Or(err, w.out.Flush(), w.file.Sync()); err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", w.path, err), w.file.Truncate(w.from))
	}
	w.File, w.Size = filepath.Base(w.path), w.end
	return errors.Join(err, w.file.Close())
}

// Drop takes back what was written and closed.
func (w *Writer) Drop() error {
	switch {
	case w.file == nil:
		return nil
	case w.from == 0:
		return durable.Drop(w.fs, w.path)
	}
	return durable.With(w.fs, w.path, os.O_RDWR, func(f durable.File, _ fs.FileInfo) error { return f.Truncate(w.from) })
}

// Read returns the entries of the archive in dir, in the order in which they
// were moved out, each id once. It needs no lock. A nil fsys is the machine's.
func Read(fsys durable.FS, dir string, files ledger.Files) ([]ledger.ArchiveEntry, error) {
	entries, _, err := Load(cmp.Or(fsys, durable.OS), dir, files)
	if err != nil {
		return nil, err
	}
	last := make(map[string]int, len(entries))
	for i, e := range entries {
		last[e.ID] = i
	}
	once := entries[:0]
	for i, e := range entries {
		if last[e.ID] == i {
			once = append(once, e)
		}
	}
	return once, nil
}

// ReadRecord reads the whole record of a task that was moved out. Its fields are
// the task's, and [ledger.KeyArchived]. A nil fsys is the machine's.
func ReadRecord(fsys durable.FS, dir string, e ledger.ArchiveEntry) (s *ledger.Section, err error) {
	name := filepath.Join(dir, Dir, e.File)
	if !filepath.IsLocal(e.File) || filepath.Base(e.File) != e.File {
		return nil, fmt.Errorf("the archive's index names %q, which is no file of the archive", e.File)
	}
	err = durable.With(cmp.Or(fsys, durable.OS), name, os.O_RDONLY, func(f durable.File, _ fs.FileInfo) (err error) {
		s, err = ledger.ReadSection(f, name, e.Off)
		return err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%s was archived: %w", e.ID, err)
	case string(s.ID) != e.ID || s.Get(ledger.KeyArchived) == nil:
		err = fmt.Errorf("%s does not have %s at offset %d, where the index says; remove the index, it is made anew", name, e.ID, e.Off)
	}
	return s, err
}

// rebuild puts the index together from the archive's files. A task that the journal
// has is not in the archive: the compaction that moved it was cut off, or it was brought back.
func rebuild(fsys durable.FS, dir string, files ledger.Files) (entries []ledger.ArchiveEntry, err error) {
	err = each(fsys, dir, files, func(name string, data []byte, err error) error {
		ledger.EachRecord(data, func(s *ledger.Section) {
			if s.Get(ledger.KeyArchived) == nil {
				return
			}
			updated, _ := time.Parse(time.RFC3339Nano, s.Value(ledger.KeyUpdated)) // zero where a person wrote another form
			entries = append(entries, ledger.ArchiveEntry{
				ID: string(s.ID), Status: s.Value("status"), Key: s.Value("idempotencyKey"), Parent: s.Value("triggeredByTaskId"), Trigger: s.Value("trigger"),
				UpdatedAt: updated, File: name, Off: s.Off,
			})
		})
		return err
	})
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	data, err := durable.ReadFile(fsys, filepath.Join(dir, files.Journal()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	present := map[string]bool{}
	ledger.EachRecord(data, func(s *ledger.Section) {
		if !s.IsNote() {
			present[s.Name()] = true
		}
	})
	return slices.DeleteFunc(entries, func(e ledger.ArchiveEntry) bool { return present[string(files.Kind())+" "+e.ID] }), nil
}

// Adopted returns how often sections without seq of each digest were adopted, as the records say that compactions have moved out.
func Adopted(fsys durable.FS, dir string, files ledger.Files) (map[string]int, error) {
	n, seen := map[string]int{}, map[uint64]bool{} // a compaction that was killed may have written them before
	return n, each(fsys, dir, files, func(_ string, data []byte, err error) error {
		ledger.EachRecord(data, func(s *ledger.Section) {
			if s.Get(ledger.KeyAdopts) != nil && !seen[s.Seq] {
				n[s.Value(ledger.KeyAdopts)]++
				seen[s.Seq] = true
			}
		})
		return err
	})
}

// each calls f with the name and the bytes of each file of the archive, in order, or with the error. It tries all names from
// the first that there can be to those of the year after now: a file system of the ledger lists no directories.
func each(fsys durable.FS, dir string, files ledger.Files, f func(name string, data []byte, err error) error) error {
	for t := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC); t.Year() <= time.Now().UTC().Year()+1; t = t.AddDate(0, 1, 0) {
		data, err := durable.ReadFile(fsys, filepath.Join(dir, Dir, files.Archive(t)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := f(files.Archive(t), data, err); err != nil {
			return err
		}
	}
	return nil
}

// Check returns everything that is wrong in the archive of a state directory: files that are damaged, records that
// check refuses, if there is one, and tasks that the index names and that are not where it says. The File of a finding
// is relative to dir.
func Check(dir string, files ledger.Files, check func(*ledger.Section) error) (found []*ledger.SyntaxError) {
	_ = each(durable.OS, dir, files, func(name string, data []byte, err error) error {
		file := filepath.Join(Dir, name)
		if err != nil {
			found = append(found, &ledger.SyntaxError{File: file, Msg: err.Error()})
			return nil
		}
		for _, f := range ledger.CheckJournal(data, func(s *ledger.Section) bool {
			if check != nil {
				if err := check(s); err != nil {
					found = append(found, &ledger.SyntaxError{File: file, Line: s.Line, Msg: err.Error()})
				}
			}
			return true
		}) {
			if f.File = file; f.Torn == 0 { // a compaction that did not come to its end leaves a torn one
				found = append(found, f)
			}
		}
		return nil
	})
	wrong := func(err error) {
		found = append(found, &ledger.SyntaxError{File: filepath.Join(Dir, files.Index()), Msg: err.Error()})
	}
	entries, ends, err := Load(durable.OS, dir, files)
	if err != nil {
		wrong(err)
	}
	lacks := ends.Lacks(durable.OS, dir)
	if lacks != nil {
		found = append(found, lacks)
	}
	for _, e := range entries {
		if _, err := ReadRecord(durable.OS, dir, e); err != nil && (lacks == nil || e.File != ends.File) { // else that says enough
			wrong(err)
		}
	}
	return found
}
