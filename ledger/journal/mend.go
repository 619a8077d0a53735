package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/tasksfile"
)

// mend puts back from tasks.md what is damaged in the journal behind the last
// change that was applied. It writes a new journal and keeps the damaged one
// beside it. It gives false if there was nothing to mend with.
func (r *replayer) mend() (bool, error) {
	r.mended = true
	data, err := durable.ReadFile(r.fs, r.path)
	if err != nil {
		return false, err
	}
	doc, err := r.readTasks()
	if err != nil || doc == nil {
		return false, err
	}
	m := newPatch(data[:min(int64(len(data)), r.good)], r.last, doc)
	m.take(split(data[len(m.out):], len(m.out) == 0))
	if m.found == 0 && m.torn == 0 && m.void == 0 {
		return false, nil
	}
	aside, err := r.keepAside(data, ".damaged")
	if err != nil {
		return false, err
	}
	if err := r.replace(m.journal()); err != nil {
		return false, err
	}
	r.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s was damaged: %s; the damaged file is now %s", ledger.JournalName, m.done(), aside)})
	return true, nil
}

// readTasks returns tasks.md; nil if there is none that can be read.
func (j *journal) readTasks() (doc *ledger.Document, err error) {
	snap, err := tasksfile.ReadSnapshot(context.Background(), j.fs, filepath.Dir(j.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !ledger.IsJournal(snap.Data) { // one of those has the same records
		return nil, err
	}
	return ledger.Parse(snap.Data), nil
}

// keepAside writes data to a name that is free: the journal's with that ending, and a
// number if there must be one.
func (j *journal) keepAside(data []byte, ending string) (string, error) {
	for n := 1; ; n++ {
		name := ledger.JournalName + ending
		if n > 1 {
			name += fmt.Sprint("-", n)
		}
		path := filepath.Join(filepath.Dir(j.path), name)
		if _, err := j.fs.Stat(path); err == nil {
			continue
		}
		return name, durable.WriteFile(j.fs, path, data)
	}
}

// replace makes data the journal.
func (j *journal) replace(data []byte) error {
	if err := durable.WriteFile(j.fs, j.path, data); err != nil {
		return err
	}
	f, err := j.fs.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	old := j.file
	j.file = f
	return old.Close()
}

// A piece is a record of a journal, or bytes that are none.
type piece struct {
	raw  []byte
	seq  uint64 // 0: damaged
	more int    // records of the same change that follow
}

// split returns the pieces of a journal, or of the end of one.
func split(data []byte, first bool) []piece {
	var all []piece
	var s ledger.Section
	for len(data) > 0 {
		n, more, err := ledger.ScanPiece(data, first, &s)
		first = false
		switch {
		case err != nil:
			if n = ledger.NextRecord(data); n < 0 {
				n = len(data)
			}
			all = append(all, piece{raw: data[:n]})
		case more >= 0:
			all = append(all, piece{data[:n], s.Seq, more})
		}
		data = data[n:]
	}
	return all
}

// A patch makes a whole journal of a damaged one.
type patch struct {
	out    []byte // the journal so far
	last   uint64 // last record in it
	known  map[uint64][]byte
	newest uint64 // highest seq in tasks.md
	found  int    // records that were put back
	void   int    // damaged bytes between records of which none is missing
	torn   int    // bytes that were never acknowledged
	kept   int    // bytes that stay damaged
}

func newPatch(good []byte, last uint64, doc *ledger.Document) *patch {
	m := &patch{out: slices.Clip(good), last: last, known: map[uint64][]byte{}}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		m.newest = max(m.newest, s.Seq)
		if raw := ownForm(s); s.Seq > last && !ledger.SeqOutOfRange(s.Seq, last) && m.known[s.Seq] == nil && raw != nil {
			m.known[s.Seq] = raw
		}
	}
	return m
}

// ownForm returns a section with a seq as stint writes it; nil if it has none.
func ownForm(s *ledger.Section) []byte {
	var own ledger.Section
	if n, _, err := ledger.Scan(s.Raw, &own); err == nil && n == len(s.Raw) {
		return s.Raw
	}
	if s.Seq == 0 {
		return nil
	}
	r := s.Record() // a person has edited it; that is all there is of it
	raw, err := ledger.AppendRecord(nil, &r)
	if err != nil {
		return nil
	}
	return bytes.TrimSuffix(raw, []byte("\n"))
}

func (m *patch) journal() []byte {
	if ledger.VersionOf(m.out) == 0 {
		return append([]byte(ledger.EmptyJournal), m.out...)
	}
	return m.out
}

// take writes the pieces, and in place of damaged ones what tasks.md has of them.
func (m *patch) take(pieces []piece) {
	for i := 0; i < len(pieces); i++ {
		if p := &pieces[i]; p.seq > 0 {
			m.record(p.raw, p.seq)
			continue
		}
		next := seqBehind(pieces[i:])
		switch {
		case next == m.last+1:
			m.void += len(pieces[i].raw)
		case next > 0 && m.isTorn(&pieces[i]):
			i += m.skipTorn(pieces[i:]) - 1
		default:
			m.damaged(&pieces[i], next)
		}
	}
}

func (m *patch) record(raw []byte, seq uint64) {
	m.out = append(append(m.out, raw...), '\n')
	m.last = seq
}

// seqBehind returns the seq of the first record; 0 if there is none.
func seqBehind(pieces []piece) uint64 {
	for i := range pieces {
		if pieces[i].seq > 0 {
			return pieces[i].seq
		}
	}
	return 0
}

// isTorn reports whether a power cut has left a piece of a batch that was never
// acknowledged: there are zeros in it, and tasks.md, which gets a batch when it
// has been acknowledged, has nothing as new.
func (m *patch) isTorn(p *piece) bool {
	return bytes.IndexByte(p.raw, 0) >= 0 && m.newest <= m.last
}

// skipTorn leaves a torn piece out, and the rest of the change that it may have
// been a part of. It gives how many pieces that are.
func (m *patch) skipTorn(pieces []piece) int {
	for i := range pieces {
		m.torn += len(pieces[i].raw)
		if pieces[i].seq > 0 && pieces[i].more == 0 {
			return i + 1
		}
	}
	return len(pieces)
}

// damaged writes the records between the last one and record next that tasks.md
// has. If those are not all, the damaged bytes stay behind them. Where no record
// follows (next is 0), they are a torn tail.
func (m *patch) damaged(p *piece, next uint64) {
	missing := next - m.last - 1
	var seqs []uint64
	for seq := range m.known {
		if seq > m.last && (next == 0 || seq < next) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		m.record(m.known[seq], seq)
	}
	m.found += len(seqs)
	if next > 0 && uint64(len(seqs)) != missing {
		m.out = append(m.out, p.raw...)
		m.kept += len(p.raw)
	}
}

// done returns what was done.
func (m *patch) done() string {
	var did []string
	say := func(n int, format string) {
		if n > 0 {
			did = append(did, fmt.Sprintf(format, n))
		}
	}
	say(m.found, "%d records were put back from "+ledger.TasksName)
	say(m.void, "%d bytes between records were left out")
	say(m.torn, "%d bytes of changes that were never acknowledged were left out")
	say(m.kept, "%d bytes stay damaged")
	return strings.Join(did, ", ")
}
