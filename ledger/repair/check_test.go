package repair

import (
	"errors"
	"strings"
	"testing"

	"stint/ledger"
)

// TestCheckFileNamesEveryLine checks one file: what does not parse, and what check
// refuses; what was taken over already is not asked about again.
func TestCheckFileNamesEveryLine(t *testing.T) {
	hand := "## Task h\n- status: bad\n"
	data := hand + "\n" + // adopted by record 3
		"## Task a\n- seq: 1\n- status: queued\n<!-- end 1 -->\n\n" +
		"## Task a\n- seq: 2\n- status: bad\n<!-- end 2 -->\n\n" + // edited; record 4 has taken it over
		"## Task h\n- seq: 3\n- by: hand\n- adopts: " + ledger.Digest([]byte(hand)) + "\n<!-- end 3 -->\n\n" +
		"## Task a\n- seq: 4\n- by: hand\n- adopts: x\n- edits: 2\n- unedited: - status: queued\n<!-- end 4 -->\n\n" +
		"## Task b\n- seq: 5\n- prompt: x\n- status: bad\n<!-- end 5 -->\n\n" +
		"## Task c\n- seq: 6\n" +
		"## Task d\n- status: bad\n"
	check := func(s *ledger.Section) error {
		if s.Value("status") == "bad" {
			return &fieldError{"status", errors.New("it is bad")}
		}
		return nil
	}
	var got []string
	for _, f := range CheckFile("x.md", []byte(data), check) {
		text, _, _ := strings.Cut(f.Error(), "; ") // what to do about it is the parser's business
		got = append(got, text)
	}
	want := "x.md:31: status: it is bad|x.md:34: record 6 has no end line <!-- end 6 -->|x.md:37: status: it is bad"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %q\nwant %q", strings.Join(got, "|"), want)
	}
}

// A fieldError says which field is wrong, as those of package state do.
type fieldError struct {
	key string
	err error
}

func (e *fieldError) Error() string    { return "Task x: " + e.key + ": " + e.err.Error() }
func (e *fieldError) FieldKey() string { return e.key }
func (e *fieldError) Unwrap() error    { return e.err }

// TestCheckFileRefusesNewerFormats does not guess what a newer stint wrote.
func TestCheckFileRefusesNewerFormats(t *testing.T) {
	found := CheckFile("x.md", []byte("<!-- stint ledger 7 -->\n"), nil)
	if len(found) != 1 || found[0].Line != 1 || !strings.Contains(found[0].Msg, "format 7") {
		t.Errorf("%v", found)
	}
}
