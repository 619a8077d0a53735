package ledger

import (
	"fmt"
	"strings"
	"testing"
)

// TestCheckJournal finds damage in the middle, and tells it from a torn tail; of a
// change that is not complete nothing counts.
func TestCheckJournal(t *testing.T) {
	rec := func(seq, more int) string {
		raw, err := AppendPart(nil, (&Record{Kind: KindTask, ID: "a", Seq: uint64(seq)}).Add("status", "done"), more)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	head := VersionLine + "\n\n"
	for _, tt := range []struct{ name, data, applied, want string }{
		{"whole", head + rec(1, 0) + rec(2, 1) + rec(3, 0), "1 2 3", ""},
		{"damage", head + rec(1, 0) + "xx\n" + strings.Replace(rec(2, 0), "- seq", "-seq", 1) + rec(3, 0), "1 3", "journal.md:8: 52 bytes at offset 75 are damaged and are passed over"},
		{"torn record", head + rec(1, 0) + rec(2, 0)[:20], "1", "journal.md:8: the last 20 bytes are of a change that is not complete; it was never acknowledged (torn)"},
		{"torn change", head + rec(1, 0) + rec(2, 2) + rec(3, 1), "1", "journal.md:8: the last 116 bytes are of a change that is not complete; it was never acknowledged (torn)"},
	} {
		var applied, got []string
		for _, f := range CheckJournal([]byte(tt.data), func(s *Section) bool {
			applied = append(applied, fmt.Sprint(s.Seq))
			if !strings.HasPrefix(tt.data[s.Off:], string(s.Raw)) || strings.Count(tt.data[:s.Off], "\n") != s.Line-1 {
				t.Errorf("%s: record %d is not at offset %d, line %d", tt.name, s.Seq, s.Off, s.Line)
			}
			return true
		}) {
			text := f.Error()
			if f.Torn > 0 {
				text += " (torn)"
			}
			got = append(got, text)
		}
		if a, g := strings.Join(applied, " "), strings.Join(got, "|"); a != tt.applied || g != tt.want {
			t.Errorf("%s: applied %s, found %q\nwant %s, %q", tt.name, a, g, tt.applied, tt.want)
		}
	}
}

// TestCheckJournalEnds: it ends with the record that is the last one wanted, which may stand within a change.
func TestCheckJournalEnds(t *testing.T) {
	data := []byte(VersionLine + "\n\n")
	for i, more := range []int{0, 2, 1, 0, 0} {
		var err error
		if data, err = AppendPart(data, (&Record{Kind: KindTask, ID: "a", Seq: uint64(i + 1)}).Add("status", "done"), more); err != nil {
			t.Fatal(err)
		}
	}
	for last := uint64(1); last <= 5; last++ {
		var applied uint64
		found := CheckJournal(data, func(s *Section) bool { applied = s.Seq; return s.Seq < last })
		if applied != last || len(found) > 0 {
			t.Errorf("it ended at record %d, want %d: %v", applied, last, found)
		}
	}
}
