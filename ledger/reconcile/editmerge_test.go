package reconcile

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"testing"

	"stint/ledger"
)

// FuzzEditMerge: whatever is done to tasks.md, a record of stint's own that still stands in it as it was is
// not taken for edited, and all that is taken over can be written.
func FuzzEditMerge(f *testing.F) {
	f.Add([]byte{0, 3, 3, 1, 5, 40, 2, 9, 0})
	f.Add([]byte{3, 12, 19, 3, 14, 27})
	for i := range editPieces {
		f.Add([]byte{3, byte(i), byte(i), 1, byte(2 * i), 0})
	}
	journal := []byte(ledger.VersionLine + "\n\n")
	for seq := 1; seq <= 6; seq++ {
		r := &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprintf("t%d", (seq+1)/2), Seq: uint64(seq)}
		r.Add("status", []string{"queued", "done"}[seq%2]).Add("prompt", fmt.Sprintf("words %d\n\n## Task x\n```", seq))
		journal, _ = ledger.AppendRecord(journal, r)
	}
	tasks := bytes.Replace(journal, []byte("## Task t3"), []byte("A note.\n\n## Task hand\n- status: draft\n- prompt: x\n\n## Task t3"), 1)
	f.Fuzz(func(t *testing.T, ops []byte) {
		edited := edit3(tasks, ops)
		doc := ledger.Parse(edited)
		p, err := Compare(t.Context(), &Texts{Doc: doc, Journal: journal, End: int64(len(journal))}, Input{Seen: math.MaxUint64})
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Records {
			r := &p.Records[i]
			if _, err := ledger.Encode(r); err != nil {
				t.Errorf("%v\n%s", err, edited)
			}
			edits, _ := r.Get(ledger.KeyEdits)
			seq, err := strconv.ParseUint(edits, 10, 64)
			if err != nil {
				continue
			}
			raw := rawOf(t, journal, seq)
			if bytes.HasPrefix(edited, raw) || bytes.Contains(edited, append([]byte("\n"), raw...)) {
				t.Errorf("record %d stands as it was, and is taken for edited: %v\n%s", seq, r, edited)
			}
		}
	})
}

// editPieces are the lines that edit3 puts in.
var editPieces = []string{
	"## Task t1\n", "## Task hand\n", "## Notes\n", "# One\n", "---\n", "- seq: 1\n", "- seq: 3\n", "- seq: x\n", "<!-- end 1 -->\n", "<!-- end 3 -->\n", "<!--\n", "-->\n",
	"- status: queued\n", "* label: x\n", "- prompt: |\n", "- prompt: |escaped\n", "- prompt:\n", "  body\n", "  ## Task x\n", " one blank\n", "\n", "text\n", "> quote\n", "- item\n",
	"```\n", "<div>\n", "\x00\n", "x\r## Task y\n", "\r\n", "<<<<<<< a\n", ">>>>>>> b\n",
}

// edit3 applies edits of three bytes each to the lines of data: what, where, which piece.
func edit3(data, ops []byte) []byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for ; len(ops) >= 3 && len(lines) > 0; ops = ops[3:] {
		i := int(ops[1]) % len(lines)
		piece := []byte(editPieces[int(ops[2])%len(editPieces)])
		switch ops[0] % 5 {
		case 0:
			lines = append(lines[:i:i], lines[i+1:]...)
		case 1:
			lines = append(lines[:i+1:i+1], lines[i:]...)
		case 2:
			j := int(ops[2]) % len(lines)
			lines[i], lines[j] = lines[j], lines[i]
		case 3:
			lines = append(lines[:i:i], append([][]byte{piece}, lines[i:]...)...)
		default:
			lines = append([][]byte{}, lines...)
			lines[i] = piece
		}
	}
	return bytes.Join(lines, nil)
}

// rawOf returns the bytes of a record in a journal.
func rawOf(t *testing.T, journal []byte, seq uint64) []byte {
	doc := ledger.Parse(journal)
	for i := range doc.Sections {
		if doc.Sections[i].Seq == seq {
			return doc.Sections[i].Raw
		}
	}
	t.Fatalf("no record %d", seq)
	return nil
}
