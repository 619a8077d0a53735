package ledger

import (
	"bytes"
	"errors"
	"fmt"
)

// rewrite returns what tasks.md becomes: the text outside of sections as it stands,
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

// placesFor returns which sections are the first ones of a task that stays.
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

// endOfSection returns where the text behind a section begins. The empty line that
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

// textIn returns the lines of a person's section that are no fields: they are kept.
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

// swapTasks puts the new tasks.md in the place of the old one, which becomes
// tasks.md.before. The journal is compacted already, so nothing that goes wrong here
// loses anything: tasks.md is then a buffer from before the compaction.
func (c *compactor) swapTasks() {
	t := c.log.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	ours, err := replaceFile(t.fs, t.path, t.path+".before", c.snap.id, c.tasks)
	t.foreign = true
	if errors.Is(err, ErrChanged) {
		return // a person has saved in this moment; the next look takes that over
	}
	if err != nil {
		c.log.note(Notice{Text: fmt.Sprintf("%s could not be written anew after the compaction (%v); the merged records are appended to it instead", TasksName, err)})
		return
	}
	now, err := idAt(t.fs, t.path)
	if err != nil || !sameFile(now, ours) {
		return
	}
	t.seen, t.endsInN, t.foreign, t.dirty = now, true, now.size != ours.size, false
	t.newest, t.savedAll = c.log.seq, 0
}
