package journal

import (
	"stint/ledger"
)

// rewrite returns what tasks.md becomes: the text outside of sections as it stands,
// and the merged records in the places where the sections of their tasks began. The
// first of texts is the mark; the others belong to records. Places are filled in the
// order of the records, so that the order of the file is that of the journal; the
// records for which there is no place stand at the end.
func rewrite(doc *ledger.Document, records []ledger.Record, texts [][]byte) []byte {
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
		out = append(out, doc.Data[pos:s.Off]...)
		switch {
		case places[i] && first:
			put(2)
			first = false
		case places[i]:
			put(1)
		}
		out = append(out, s.Text()...)
		pos = endOfSection(doc.Data, s)
	}
	out = append(out, doc.Data[pos:]...)
	put(len(texts))
	return out
}

// placesFor returns which sections are the first ones of a task that stays.
func placesFor(doc *ledger.Document, records []ledger.Record) map[int]bool {
	stays := map[string]bool{}
	for i := range records {
		if records[i].Kind != ledger.KindControl {
			stays[records[i].Name()] = true
		}
	}
	places := map[int]bool{}
	for i := range doc.Sections {
		if name := doc.Sections[i].Name(); stays[name] {
			places[i] = true
			delete(stays, name)
		}
	}
	return places
}

// endOfSection returns where the text behind a section begins. The empty line that
// stint writes behind a record belongs to it.
func endOfSection(data []byte, s *ledger.Section) int {
	end := int(s.Off) + len(s.Raw)
	if s.Seq == 0 {
		return end
	}
	if line, next, ok := ledger.CutLine(data, end); ok && !ledger.HasText(line) {
		return next
	}
	return end
}
