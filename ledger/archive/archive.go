// Package archive reads and writes what a compaction has moved out of the journal: the files archive/tasks-2026-11.md, which
// have the records as they stood, and archive/index, which has of each task what is needed every day.
package archive

import (
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

	ledger.ArchiveEntry // without ID in lines that older versions wrote
}

// Load returns the entries of the archive as they belong to the journal in dir, in order; a later
// one of an id counts. end is where they end in the index; 0: that is to be written anew.
//
// The index is a cache. It counts up to the compaction that the journal begins with: what is behind that in it was written by one
// that did not come to its end, and the next one cuts it off. If the index does not have all of that, the archive's files have.
func Load(fsys durable.FS, dir string, files ledger.Files) (entries []ledger.ArchiveEntry, end int64, err error) {
	start, err := durable.Head(fsys, filepath.Join(dir, files.Journal()))
	if err != nil {
		return nil, 0, err
	}
	begin, _ := mark.Of(start) // which is short
	var data []byte
	if begin.Through > 0 {
		data, err = durable.ReadFile(fsys, filepath.Join(dir, Dir, files.Index()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, err
		}
	}
	head, left := indexLine{}, 0 // the compaction, and how many of its lines follow
	for line := range bytes.Lines(data) {
		var l indexLine
		if json.Unmarshal(line, &l) != nil || line[len(line)-1] != '\n' || (l.Through > 0) != (left == 0) {
			break
		}
		switch end += int64(len(line)); {
		case l.Through > 0:
			head, left = l, l.Lines+1
		case l.ID != "":
			entries = append(entries, l.ArchiveEntry)
		}
		if left--; left == 0 && head.Through == begin.Through {
			return entries, end, nil
		}
	}
	entries, err = rebuild(fsys, dir, files)
	return entries, 0, err
}

// WriteIndex writes the entries of a compaction behind that end of the index, and makes it durable.
func WriteIndex(fsys durable.FS, dir string, files ledger.Files, through uint64, end int64, entries []ledger.ArchiveEntry) error {
	lines := []indexLine{{Through: through, Lines: len(entries)}}
	for _, e := range entries {
		lines = append(lines, indexLine{ArchiveEntry: e})
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return WriteBehind(fsys, filepath.Join(dir, Dir, files.Index()), end, out.Bytes())
}

// WriteBehind makes data what stands behind offset end of a file, durable but for the name
// of a new file. After an error nothing stands there, as far as the disk allows.
func WriteBehind(fsys durable.FS, name string, end int64, data []byte) (err error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, durable.FileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err == nil && fi.Size() > end {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), f.Truncate(end))
	}
	return nil
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
	f, err := cmp.Or(fsys, durable.OS).OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s was archived: %w", e.ID, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err = ledger.ReadSection(f, name, e.Off)
	if err == nil && (string(s.ID) != e.ID || s.Get(ledger.KeyArchived) == nil) {
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
	n := map[string]int{}
	return n, each(fsys, dir, files, func(_ string, data []byte, err error) error {
		ledger.EachRecord(data, func(s *ledger.Section) {
			if s.Get(ledger.KeyAdopts) != nil {
				n[s.Value(ledger.KeyAdopts)]++
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

// Check returns everything that is wrong in the archive of a state directory: files that are damaged, and
// tasks that the index names and that are not where it says. The File of a finding is relative to dir.
func Check(dir string, files ledger.Files) (found []*ledger.SyntaxError) {
	_ = each(durable.OS, dir, files, func(name string, data []byte, err error) error {
		file := filepath.Join(Dir, name)
		if err != nil {
			found = append(found, &ledger.SyntaxError{File: file, Msg: err.Error()})
			return nil
		}
		for _, f := range ledger.CheckJournal(data, func(*ledger.Section) bool { return true }) {
			if f.File = file; f.Torn == 0 { // a compaction that did not come to its end leaves a torn one
				found = append(found, f)
			}
		}
		return nil
	})
	wrong := func(err error) {
		found = append(found, &ledger.SyntaxError{File: filepath.Join(Dir, files.Index()), Msg: err.Error()})
	}
	entries, err := Read(durable.OS, dir, files)
	if err != nil {
		wrong(err)
	}
	for _, e := range entries {
		if _, err := ReadRecord(durable.OS, dir, e); err != nil {
			wrong(err)
		}
	}
	return found
}
