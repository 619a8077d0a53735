package repair

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stint/ledger"
)

// refuseBad is a check that refuses what says so.
func refuseBad(s *ledger.Section) error {
	if s.Value("status") == "bad" {
		return errors.New(`unknown status "bad"`)
	}
	return nil
}

// ledgerOf makes a ledger of n records with text and hand-written sections between them, and its journal.
func ledgerOf(r *rand.Rand, n int) (tasks, journal []byte) {
	journal = []byte(ledger.VersionLine + "\n\n")
	tasks = []byte(ledger.Preamble)
	for seq := 1; seq <= n; seq++ {
		rec := &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprintf("t%d", r.IntN(n)), Seq: uint64(seq)}
		rec.Add("status", []string{"queued", "done", "draft"}[r.IntN(3)]).Add("prompt", []string{"short", "two\nlines\n\n~~~\n## Task x\n- seq: 1", "tail \n"}[r.IntN(3)])
		raw, err := ledger.AppendRecord(nil, rec)
		if err != nil {
			panic(err)
		}
		journal = append(journal, raw...)
		tasks = append(tasks, raw...)
		switch r.IntN(5) {
		case 0:
			tasks = append(tasks, "Some text.\n\n```\ncode\n## Task hidden\n```\n\n"...)
		case 1:
			tasks = append(tasks, fmt.Sprintf("## Task hand%d\n- status: queued\n- prompt: |\n  by hand\n\n  more\n\nA note.\n\n", seq)...)
		case 2:
			tasks = append(tasks, "# A heading\n\n- an item\n\n      - deep\n\n"...)
		}
	}
	return tasks, journal
}

// mutate damages one line of a ledger.
func mutate(r *rand.Rand, data []byte) []byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	i := r.IntN(len(lines))
	junk := []string{
		"```\n", "~~~~ x\n", "<!--\n", "-->\n", "<pre>\n", "</pre>\n", "<div>\n", "<?php\n", "<![CDATA[\n", "<!DOCTYPE\n",
		" - x\n", "## Task \xff\xfe\n", "## Task open\n", "- seq: 7\n", "- status: bad\n", "\n", "text\n", "<!-- end 3 -->\n", "\x00\n", "  body\n", " one blank\n", "## Task t1\n- seq: 99x\n",
	}
	switch r.IntN(6) {
	case 0:
		lines = slices.Delete(lines, i, i+1)
	case 1:
		lines[i] = lines[i][:r.IntN(len(lines[i])+1)]
	case 2:
		lines[i] = append([]byte(" "), lines[i]...)
	case 3: // a block is copied
		j := min(len(lines), i+r.IntN(8))
		lines = slices.Insert(lines, j, slices.Clone(lines[i:j])...)
	default:
		lines = slices.Insert(lines, i, []byte(junk[r.IntN(len(junk))]))
	}
	return bytes.Join(lines, nil)
}

// TestRepairWithoutASeq: the end line also says which record a section is.
func TestRepairWithoutASeq(t *testing.T) {
	record := "## Task a\n- seq: 2\n- status: queued\n<!-- end 2 -->\n"
	for _, line := range []string{"", "- seq: 77\n", "- seq:\n", "- sq: 2\n"} {
		got, _ := Repair([]byte(strings.Replace(record, "- seq: 2\n", line, 1)), []byte(record), nil)
		if !strings.HasPrefix(string(got), record) {
			t.Errorf("with %q in place of the seq:\n%s", line, got)
		}
	}
}

// TestRepairLosesNothing damages ledgers and repairs them: no finding is left, all
// good records are there in their order, all lines are, and a second repair
// changes nothing.
func TestRepairLosesNothing(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(1, uint64(round)))
		data, journal := ledgerOf(r, 1+r.IntN(12))
		for range r.IntN(6) {
			data = mutate(r, data)
		}
		if r.IntN(2) == 0 {
			journal = nil
		}
		var check func(*ledger.Section) error
		if r.IntN(2) == 0 {
			check = refuseBad
		}
		if err := checkRepair(data, journal, check); err != nil {
			t.Fatalf("round %d: %v\n--- was\n%s", round, err, data)
		}
	}
}

func checkRepair(data, journal []byte, check func(*ledger.Section) error) error {
	got, notes := Repair(data, journal, check)
	if left := CheckFile("x", got, check); len(left) > 0 {
		return fmt.Errorf("%v is left in\n%s", left[0], got)
	}
	found := CheckFile("x", data, check)
	if len(found) > 0 && len(notes) == 0 || len(notes) == 0 && !bytes.Equal(got, data) {
		return fmt.Errorf("%d findings, and %d notes for\n%s", len(found), len(notes), got)
	}
	if again, _ := Repair(got, journal, check); !bytes.Equal(again, got) {
		return fmt.Errorf("the repaired file\n%s\nbecomes\n%s", got, again)
	}
	before, after := ledger.Parse(data), ledger.Parse(got)
	refused := map[*ledger.Section]bool{}
	for _, f := range refusals(before, check) {
		refused[f.section] = true
	}
	at, names := 0, map[uint64]string{}
	for _, s := range ledger.Parse(journal).Sections {
		names[s.Seq] = s.Name()
	}
	for i := range before.Sections {
		s := &before.Sections[i]
		if name := names[s.Seq]; name != "" && name != s.Name() {
			continue // it may be replaced
		}
		if refused[s] || len(before.Opens) > 0 && isCrowded(data, s) || s.Raw[0] == ' ' || len(s.Fields) == 0 {
			continue // the last two are pieces of damaged records that look like records themselves
		}
		n := slices.IndexFunc(after.Sections[at:], func(x ledger.Section) bool { return bytes.Equal(bytes.TrimSpace(x.Raw), bytes.TrimSpace(s.Raw)) })
		if n < 0 {
			return fmt.Errorf("%q of line %d is lost or moved in\n%s", s.Raw, s.Line, got)
		}
		at += n + 1
	}
	for seq, n := range seqsOf(after) {
		if n > max(1, seqsOf(before)[seq]) {
			return fmt.Errorf("record %d stands there %d times in\n%s", seq, n, got)
		}
	}
	return linesKept(data, got)
}

// isCrowded reports a line directly below a record. What that says of the record is
// seen only when the block is closed that the record stands in.
func isCrowded(data []byte, s *ledger.Section) bool {
	end := int(s.Off) + len(s.Raw)
	return end < len(data) && data[end] != '\n'
}

// seqsOf counts the records of each seq that stand as stint writes them.
func seqsOf(doc *ledger.Document) map[uint64]int {
	n := map[uint64]int{}
	for i := range doc.Sections {
		if s := &doc.Sections[i]; s.Raw[0] == '#' {
			n[s.Seq]++
		}
	}
	delete(n, 0)
	return n
}

// linesKept looks for every line of data in got, as often as it stood there. One
// may be longer now: the cut end of a record that is whole again.
func linesKept(data, got []byte) error {
	fresh := strings.Split(string(unglued(got)), "\n")
	old := map[string]int{}
	for line := range strings.Lines(string(unglued(data))) {
		old[strings.TrimSpace(string(ledger.Plain([]byte(line))))]++
	}
	for line, n := range old {
		for _, s := range fresh {
			kept := strings.TrimSpace(s)
			if spoilt := strings.TrimSpace(strings.Replace(kept, `\`, "", 1)); strings.HasPrefix(kept, line) || strings.HasPrefix(spoilt, line) {
				n--
			}
		}
		if n > 0 && line != "" {
			return fmt.Errorf("the line %q is lost in\n%s", line, got)
		}
	}
	return nil
}

// unglued puts headings that stand in an end line onto lines of their own: Repair may.
func unglued(data []byte) []byte { return bytes.ReplaceAll(data, []byte("-->#"), []byte("-->\n#")) }

// TestRepairNeverTurnsTextIntoARecord looks at what Repair sets aside.
func TestRepairNeverTurnsTextIntoARecord(t *testing.T) {
	data := "## Task a\n- seq: 5\n- prompt: x\nno field\n~~~~~\n## not a heading\n\n## Task b\n- seq: 6\n- status: queued\n"
	got, notes := Repair([]byte(data), nil, nil)
	if doc := ledger.Parse(got); len(doc.Sections) > 0 || len(doc.Findings) > 0 || len(notes) != 2 {
		t.Errorf("%d records, %v, %v in\n%s", len(doc.Sections), doc.Findings, notes, got)
	}
}

// TestRepairTakesTheJournalsRecord replaces a damaged record, and keeps what a
// person wrote in it.
func TestRepairTakesTheJournalsRecord(t *testing.T) {
	raw, err := ledger.AppendRecord(nil, (&ledger.Record{Kind: ledger.KindTask, ID: "a", Seq: 5}).Add("status", "queued").Add("prompt", "one\ntwo"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, fresh, want string }{
		{"torn", "two\n<!-- end 5 -->\n\n", "tw", ""},
		{"edited badly", "  two\n", " my two\n", "my two"},
		{"other id", "## Task a", "## Task b", "b"},
	} {
		data := strings.Replace(string(raw), tt.old, tt.fresh, 1)
		data = strings.Replace(data, "<!-- end 5", "<!-- end 4", 1)
		got, notes := Repair([]byte(data), raw, nil)
		aside := bytes.Contains(got, []byte("## Set aside: "))
		if len(notes) != 1 || aside != (tt.want != "") || !bytes.Contains(got, []byte(tt.want)) || bytes.Contains(got, raw) != (tt.name != "other id") {
			t.Errorf("%s: %v\n%s", tt.name, notes, got)
		}
	}
}

// TestPromise4RepairKeepsEdits: the journal's record stands in the place of a damaged one with
// what a person had written there.
func TestPromise4RepairKeepsEdits(t *testing.T) {
	var journal []byte
	for _, r := range []*ledger.Record{
		(&ledger.Record{Kind: ledger.KindTask, ID: "a", Seq: 1}).Add("status", "queued").Add("label", "x"),
		(&ledger.Record{Kind: ledger.KindTask, ID: "a", Seq: 2}).Add("by", "hand").Add("adopts", "d").Add("edits", "1").Add("status", "canceled").Add("ignored", "- label: y"),
	} {
		var err error
		if journal, err = ledger.AppendRecord(journal, r); err != nil {
			t.Fatal(err)
		}
	}
	got, notes := Repair([]byte("## Task a\n- seq: 1\n- status: canceled\n- label: y\n<!-- end 1 --\n"), journal, nil)
	if want := "## Task a\n- seq: 1\n- status: canceled\n- label: y\n<!-- end 1 -->"; len(notes) != 1 || !bytes.Contains(got, []byte(want)) {
		t.Errorf("%v\n%s\nwant\n%s", notes, got, want)
	}
}

// TestRepairSetsBlocksAside takes records out of the blocks that hide them, and leaves hidden
// what was.
func TestRepairSetsBlocksAside(t *testing.T) {
	const record = "## Task a\n- seq: 1\n- status: done\n<!-- end 1 -->\n"
	for _, tt := range []struct{ data, text, behind string }{
		{"```\ntext\n" + record, "```\ntext", ""},
		{"<!--\n" + record, "<!--", ""},
		{"<pre>\n" + record, "<pre>", ""},
		{"<div>\n" + record, "<div>", ""},
		{"~~~\n" + record + "## Task hidden\n- status: queued\n\nx\n~~~\nshown\n", "~~~", "## Task hidden\n- status: queued\n\nx\n~~~"},
		{"```\n## Task hidden\n- status: draft\n", "```\n## Task hidden\n- status: draft", ""},
	} {
		got, notes := Repair([]byte(tt.data), nil, nil)
		want := strings.Contains(tt.data, record)
		for _, text := range []string{tt.text, tt.behind} {
			indented := "    " + strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n    "), "    \n", "\n") + "\n"
			if text != "" && !strings.Contains(string(got), indented) {
				t.Errorf("%q is not in\n%s", indented, got)
			}
		}
		if doc := ledger.Parse(got); len(notes) != 1 || (len(doc.Sections) == 1) != want || strings.Contains(string(got), record) != want || strings.HasSuffix(tt.data, "\nshown\n") != strings.HasSuffix(string(got), "\nshown\n") {
			t.Errorf("%q\nbecomes %q\n%v", tt.data, got, notes)
		}
	}
}
