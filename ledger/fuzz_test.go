package ledger

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pieces are what ledgerOfBytes makes a ledger of.
var pieces = []string{
	"## Task a\n- seq: 1\n- status: queued\n<!-- end 1 -->\n\n", "## Task b\n- seq: 2\n- prompt: |\n  words\n\n  ```\n  ## Task x\n<!-- end 2 -->\n\n", "## Task hand\n- status: queued\n- prompt: do it\n\n",
	"## Task a\n", "## Task b\n", "## Job j\n", "## Control c\n", " ## Task a\n", "##Task a\n", "### Task a\n", "## Tsk a\n", "## Task\n", "## Task a b\n", "## Notes\n", "# One\n", "##\tTask t ##\n", "Task a\n---\n", "===\n", "---\n",
	"- seq: 1\n", "- seq: 2\n", "- seq: 3\n", "- seq: x\n", "* seq: 4\n", "-\tseq: 5\n", "  - seq: 6\n", "seq: 7\n",
	"<!-- end 1 -->\n", "<!-- end 2 -->\n", "<!-- end 3 -->\n", " <!-- end 1 -->\n", "<!-- end 1\n", "<!-- end 4, 2 more -->\n", "<!--\n", "-->\n", "<!-- x -->\n",
	"- status: queued\n", "- status: done\n", "- Status: x\n", "* label: x\n", "-   prompt: |\n", "- prompt: |\n", "- prompt: |escaped\n", "- prompt:\n", "-prompt: x\n", "– prompt: x\n", "1. status: x\n", "    - status: x\n", "- prompt: " + longWords + "\n",
	"  body\n", "  ## Task x\n", "\tbody\n", " one blank\n", "   \n", "\n", "\n", "\n\n", "text\n", "> quote\n", "> - item\n", "- item\n", "  - nested\n", "1. one\n", "-\n",
	"```\n", "~~~\n", "````go\n", "  ```\n", "<pre>\n", "</pre>\n", "<div>\n", "<x>\n", "<?\n", "<!X\n", "<![CDATA[\n", "]]>\n",
	"<<<<<<< a\n", "=======\n", ">>>>>>> b\n", "\x00\n", "a\x00b\n", "x\r## Task y\n", "\ufeff## Task a\n", "##\u00a0Task a\n", "\u00a0\n", "words## Task a\n", "caf\xe9\n", "x", "\r\n", " ",
}

const longWords = "words and words and words and words and words and words and words and words"

// ledgerOfBytes makes a ledger of one piece a byte.
func ledgerOfBytes(choices []byte) (data []byte) {
	for _, c := range choices {
		data = append(data, pieces[int(c)%len(pieces)]...)
	}
	return data
}

// addLedgers returns a fuzz target the broken ledgers as seeds, and some choices.
func addLedgers(f *testing.F) {
	brokenLedgers(f, func(_, _ string, data []byte) { f.Add(data) })
	for i := range pieces {
		f.Add([]byte{0, byte(i), 1, 2})
		f.Add([]byte{2, byte(i), byte(i), 0})
	}
}

// FuzzParse: what is found is in order and has its place; good sections and damaged
// ones share no byte; and every good section can be read and written on its own.
func FuzzParse(f *testing.F) {
	addLedgers(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkParse(t, data)
		checkParse(t, ledgerOfBytes(data))
	})
}

func checkParse(t *testing.T, data []byte) {
	doc := Parse(data)
	if err := placesOf(doc, data); err != nil {
		t.Fatalf("%v in\n%q", err, data)
	}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		want := s.Record()
		if diff := cmp.Diff(want, s.Clone().Record()); diff != "" {
			t.Fatalf("alone, the section in line %d is another one: %s\n%q", s.Line, diff, data)
		}
		want.Seq = max(1, want.Seq)
		written, err := Encode(&want)
		if err != nil {
			t.Fatalf("line %d: %v\n%q", s.Line, err, data)
		}
		if diff := cmp.Diff(want, written.Record()); diff != "" {
			t.Fatalf("written, the section in line %d is another one: %s\n%q", s.Line, diff, data)
		}
	}
	if !bytes.ContainsAny(data, "\r\x00") {
		crlf := bytes.ReplaceAll(data, newline, []byte("\r\n"))
		if diff := cmp.Diff(summaryOf(doc), summaryOf(Parse(crlf))); diff != "" {
			t.Fatalf("with CRLF: %s\n%q", diff, data)
		}
	}
}

// placesOf checks where sections and findings are.
func placesOf(doc *Document, data []byte) error {
	taken := make([]bool, len(data))
	take := func(from, to int) error {
		if from < 0 || to > len(data) || from > to {
			return fmt.Errorf("%d to %d of %d bytes", from, to, len(data))
		}
		for i := from; i < to; i++ {
			if taken[i] {
				return fmt.Errorf("byte %d belongs to two sections", i)
			}
			taken[i] = true
		}
		return nil
	}
	end := int64(-1)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Off <= end || !bytes.HasPrefix(data[s.Off:], s.Raw) || s.Line != 1+bytes.Count(data[:s.Off], newline) {
			return fmt.Errorf("section in line %d, offset %d is not there", s.Line, s.Off)
		}
		if end = s.Off; len(s.Raw) == 0 {
			return fmt.Errorf("section in line %d is empty", s.Line)
		}
		if err := take(int(s.Off), int(s.Off)+len(s.Raw)); err != nil {
			return err
		}
	}
	for _, d := range doc.Damaged {
		if err := take(d.From, d.To); err != nil {
			return fmt.Errorf("%v: %w", d.Finding, err)
		}
	}
	line := 1
	for _, f := range doc.Findings {
		if f.Line < line || f.Msg == "" || f.Line > 1+bytes.Count(data, newline) {
			return fmt.Errorf("%v is out of order", f)
		}
		line = f.Line
	}
	return nil
}
