package care

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 28, 15, 4, 5, 6, time.FixedZone("", 3600))

// ids returns a function that returns n1, n2 …
func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("n%d", n) }
}

var due = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	behind  = "status=active confidence=1.00 risk=low -->"
	adopted = "status=active confidence=1.00 risk=low next=2027-01-02T03:04:05Z -->"
)

// Every action with every verdict in every status, and where it leads.
func TestTransitions(t *testing.T) {
	leads := map[string]string{
		"active verify holds": "active +20 30d", "active verify fails": "uncertain -30 1d", "active verify revised": "active +0 30d", "active verify unknowable": "ontic_unknowable -10 30d",
		"uncertain verify holds": "active +20 30d", "uncertain verify fails": "archived -30 30d", "uncertain verify revised": "active +0 30d", "uncertain verify unknowable": "ontic_unknowable -10 30d",
		"ontic_unknowable verify holds": "active +20 30d", "ontic_unknowable verify fails": "uncertain -30 1d", "ontic_unknowable verify revised": "active +0 30d", "ontic_unknowable verify unknowable": "ontic_unknowable -10 30d",
		"active decay ": "active +0 30d", "active decay fails": "active -10 30d", "uncertain decay ": "uncertain +0 1d", "uncertain decay fails": "uncertain -10 1d",
		"ontic_unknowable decay ": "ontic_unknowable +0 30d", "ontic_unknowable decay fails": "ontic_unknowable -10 30d",
		"active archive ": "archived +0 30d", "uncertain archive ": "archived +0 30d", "ontic_unknowable archive ": "archived +0 30d",
		"archived reinstate-check holds": "active +20 30d", "archived reinstate-check revised": "active +0 30d", "archived reinstate-check fails": "archived -30 30d", "archived reinstate-check unknowable": "archived -10 30d",
	}
	for _, status := range []Status{Active, Uncertain, Archived, Unknowable} {
		for _, action := range []Action{Verify, Revalidate, Decay, Archive, Reinstate, "x"} {
			may := false
			for _, verdict := range []Verdict{"", Holds, Revised, Fails, CannotSay, "x"} {
				c := Change{Action: action, Verdict: verdict, Job: "j", Now: now}
				if verdict == Revised {
					c.Text = "a"
				}
				s := State{ID: "a", Status: status, Confidence: 0.6, Risk: "low", Next: now}
				got := ""
				if after, err := s.after(c); err == nil {
					may = true
					got = fmt.Sprintf("%s %+.0f %.0fd", after.Status, 100*(after.Confidence-s.Confidence), after.Next.Sub(s.Next).Hours()/24)
					if (after.Tries == 1) != (verdict == CannotSay) || after.Job != "j" || after.ID != "a" {
						t.Errorf("%s %s %s: %+v", status, action, verdict, after)
					}
				} else if !errors.Is(err, ErrStep) || after != s {
					t.Errorf("%s %s %s: %+v, %v", status, action, verdict, after, err)
				}
				key := fmt.Sprint(status, " ", strings.Replace(string(action), string(Revalidate), string(Verify), 1), " ", verdict)
				if got != leads[key] {
					t.Errorf("%s (%s): %q, want %q", key, action, got, leads[key])
				}
			}
			if err := (State{Status: status}).May(action); (err == nil) != may {
				t.Errorf("%s %s: %v, but it may be: %t", status, action, err, may)
			}
		}
	}
}

func TestBoundsOfConfidence(t *testing.T) {
	for _, c := range []struct {
		status     Status
		action     Action
		verdict    Verdict
		from, want float64
	}{
		{Active, Verify, Holds, 0.95, 1},
		{Active, Decay, Fails, 0.15, 0.1},
		{Active, Decay, Fails, 0.05, 0.05},
		{Uncertain, Verify, Holds, 0.1, 0.5},
		{Archived, Reinstate, Holds, 0.1, 0.5},
		{Archived, Reinstate, Revised, 0.9, 0.9},
		{Active, Decay, "", 0.3, 0.3},
	} {
		ch := Change{Action: c.action, Verdict: c.verdict}
		if c.verdict == Revised {
			ch.Text = "a"
		}
		if got, err := (State{Status: c.status, Confidence: c.from}).after(ch); got.Confidence != c.want || err != nil {
			t.Errorf("%+v: %v, %v", c, got.Confidence, err)
		}
	}
}

// Nobody is asked a fourth time, until a person wants it; another verdict begins anew.
func TestThreeTries(t *testing.T) {
	for status, action := range map[Status]Action{Active: Revalidate, Archived: Reinstate} {
		s := State{Status: status, Confidence: 1}
		var err error
		for i := range MaxTries {
			if s, err = s.after(Change{Action: action, Verdict: CannotSay, Now: now}); err != nil || s.Next.IsZero() != (i == MaxTries-1) {
				t.Fatalf("try %d: %+v, %v", i+1, s, err)
			}
		}
		for _, verdict := range []Verdict{Holds, Fails, CannotSay} {
			if got, err := s.after(Change{Action: action, Verdict: verdict, Now: now}); !errors.Is(err, ErrStep) {
				t.Errorf("a fourth try: %+v, %v", got, err)
			}
		}
		s.Tries = 2
		if s, err = s.after(Change{Action: action, Verdict: Holds, Now: now}); s.Tries != 0 || err != nil {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# Notes\n\n- one\n- two\n  more\n\n  still\n\nText\n  - no\n", "3 one|4 two/more//still"},
		{"\ufeff- one\r\n- two\r\n\tmore\r\n", "1 one|2 two/  more"},
		{"- one\n  - below\n - beside\n-   wide\n  - beside\n", "1 one/- below|4 wide"},
		{"```\n- code\n```\n- one\n~~~ go\n```\n- code\n~~~\n- two\n`````\n````\n- code\n", "4 one|9 two"},
		{"```inline``` text\n- one\n    ```\n    - code\n- two\n\n    ```\n- three\n", "2 one/  ```/  - code|5 two//  ```|8 three"},
		{"text\n\n    ```\n- one\n", "4 one"},
		{"<!--\n- out\n- of -->\n- one\n<!-- a -->\n- two\n", "4 one|6 two"},
		{"- - -\n---\n-\n- \n-x\n* y\n1. z\n- one", "8 one"},
		{"- one <!-- stint id=a status=uncertain confidence=0.25 risk=high next=2026-12-01T00:00:00Z tries=2 job=j -->\n", "1 one {a uncertain 0.25 high 2026-12-01 00:00:00 +0000 UTC 2 j}"},
		{"- one <!-- stint id=a --> more\n  <!-- stint id=b -->\n", "1 one more {a active 1 low 0001-01-01 00:00:00 +0000 UTC 0 }"},
		{"- one <!-- stint status=archived -->\n", "1 one { archived 1 low 0001-01-01 00:00:00 +0000 UTC 0 }"},
		{"- <!-- stint id=a -->\n- one <!-- a -->\n", "2 one <!-- a -->"},
		{"- one <!-- stint id=a status=new -->\n- two <!-- stint id=a confidence=1.5 -->\n- three <!-- stint id=a next=soon -->\n- four <!-- stint id=../a -->\n- five <!-- stint id=a more=b -->\n", "1 one!|2 two!|3 three!|4 four!|5 five!"},
		{"- one <!-- a\n- two\n", "1 one <!-- a!|2 two"},
	} {
		var got []string
		for _, e := range Parse([]byte(c.text)) {
			text := fmt.Sprintf("%d %s", e.Line, strings.ReplaceAll(e.Text, "\n", "/"))
			if e.Wrong != "" {
				text += "!"
			} else if e.State != (State{Status: Active, Confidence: 1, Risk: "low"}) {
				text += fmt.Sprint(" ", e.State)
			}
			got = append(got, text)
		}
		if got := strings.Join(got, "|"); got != c.want {
			t.Errorf("%q:\n%s, want\n%s", c.text, got, c.want)
		}
	}
}

func TestAdopt(t *testing.T) {
	f := Files{[]byte("\ufeff- one  \r\n\r\n- two <!-- stint id=n1 status=uncertain confidence=0.5 -->\r\n  more\r\n- three <!-- stint id=n1 risk=high -->\r\n- four <!-- stint id=a b -->\r\n- five"), []byte("- six <!-- stint id=n2 -->\n- seven\n")}
	const next = " next=2027-01-02T03:04:05Z -->"
	want := "\ufeff- one <!-- stint id=n3 " + adopted + "\r\n\r\n- two <!-- stint id=n1 status=uncertain confidence=0.50 risk=low" + next + "\r\n  more\r\n" +
		"- three <!-- stint id=n4 status=active confidence=1.00 risk=high" + next + "\r\n- four <!-- stint id=a b -->\r\n- five <!-- stint id=n5 " + adopted
	got := f.Adopt(ids(), due)
	if string(got[0]) != want || !bytes.Equal(got[1], f[1]) {
		t.Errorf("%q, want\n%q", got[0], want)
	}
	never := Files{[]byte("- six <!-- stint id=a status=ontic_unknowable confidence=0.50 risk=low tries=3 -->\n")}
	for _, f := range []Files{got, never} {
		if again := f.Adopt(ids(), now); !bytes.Equal(again[0], f[0]) {
			t.Errorf("of what needs nothing: %q", again[0])
		}
	}
}

// Of a file with many entries, as many are adopted as it has room for, with what jobs add to them, and no more the next time.
func TestAdoptsAsManyAsFit(t *testing.T) {
	f := Files{[]byte(strings.Repeat("- a note of some forty bytes, which are more\n", 3000))}
	newID, n := ids(), 0
	for range 2 {
		f = f.Adopt(newID, due)
		count := 0
		for i, e := range f.Entries() {
			if e.ID != "" {
				count++
			} else if i < count {
				t.Errorf("the entry %d has no id", i)
			}
		}
		if n = cmp.Or(n, count); n < 700 || n != count || len(f[0]) > MaxFile-n*55 {
			t.Errorf("%d entries, then %d, in %d bytes", n, count, len(f[0]))
		}
	}
}

// An entry that is revised keeps its id, and has the lines of the new text, below its first one; all else stays.
func TestRevise(t *testing.T) {
	f := Files{[]byte("# A\r\n- one <!-- stint id=a " + behind + "\r\n  more\r\n\r\n- two\r\n")}
	out, before, after, err := f.Apply(Entry{State: State{ID: "a"}, Text: "one\nmore"}, Change{Action: Verify, Verdict: Revised, Text: "three\n- four\n\n    five\n# six", Job: "j", Now: now})
	want := "# A\r\n- three <!-- stint id=a status=active confidence=1.00 risk=low next=2026-12-28T14:04:05Z job=j -->\r\n  - four\r\n\r\n      five\r\n  # six\r\n\r\n- two\r\n"
	if string(out[0]) != want || len(out[1]) > 0 || before.Text != "one\nmore" || after.Text != "three\n- four\n\n    five\n# six" || err != nil {
		t.Errorf("%q, %+v, %+v, %v", out, before, after, err)
	}
	if again, before, after, err := out.Apply(before, Change{Action: Verify, Verdict: Fails, Job: "j", Now: now}); !bytes.Equal(again[0], out[0]) || before != after || err != nil {
		t.Errorf("the same job again: %q, %v", again, err)
	}
	for _, text := range []string{"a\n- b", "a\n\n- b", "a\n```\n<!- b", "a\n# b", "a\n-->\n- b"} {
		f := Files{[]byte("- two <!-- stint id=c -->\n- one <!-- stint id=a -->\n  more")}
		out, _, after, err := f.Apply(f.Entries()[1], Change{Action: Verify, Verdict: Revised, Text: text, Now: now})
		if err != nil || after.Text != text || !strings.HasPrefix(string(out[0]), "- two <!-- stint id=c -->\n- a <!--") || len(out.Entries()) != 2 {
			t.Errorf("%q: %q, %v", text, out[0], err)
		}
	}
}

// An entry goes to the archive and comes back, with its lines and its id.
func TestArchiveAndReinstate(t *testing.T) {
	f := Files{[]byte("- one\n- two <!-- stint id=a status=uncertain confidence=0.30 risk=low -->\n\n  more\n\n# B\n- three"), []byte("- old <!-- stint id=b status=archived -->")}
	asked := f.Entries()[1]
	out, _, after, err := f.Apply(asked, Change{Action: Verify, Verdict: Fails, Now: now})
	if string(out[0]) != "- one\n\n# B\n- three" || err != nil || !after.InArchive || after.Status != Archived ||
		string(out[1]) != "- old <!-- stint id=b status=archived -->\n- two <!-- stint id=a status=archived confidence=0.10 risk=low next=2026-12-28T14:04:05Z -->\n\n  more\n" {
		t.Fatalf("%q, %+v, %v", out, after, err)
	}
	// A crash between the two writes leaves it in both. It is not archived yet.
	left := Files{f[0], out[1]}
	if list := left.Entries(); len(list) != 4 || list[1].Status != Uncertain {
		t.Errorf("in both: %+v", list)
	}
	if again, _, _, err := left.Apply(asked, Change{Action: Verify, Verdict: Fails, Now: now}); !slices.EqualFunc(again[:], out[:], bytes.Equal) || err != nil {
		t.Errorf("after a crash: %q, %v", again, err)
	}
	back, _, after, err := out.Apply(after, Change{Action: Reinstate, Verdict: Holds, Now: now})
	if string(back[1]) != "- old <!-- stint id=b status=archived -->\n" || err != nil || after.InArchive ||
		string(back[0]) != "- one\n\n# B\n- three\n- two <!-- stint id=a status=active confidence=0.50 risk=low next=2026-12-28T14:04:05Z -->\n\n  more\n" {
		t.Errorf("%q, %+v, %v", back, after, err)
	}
	// What a person has put in the archive is archived, whatever its comment says.
	if list := (Files{nil, []byte("- one <!-- stint id=a status=active -->\n")}).Entries(); len(list) != 1 || list[0].Status != Archived || list[0].Weight() != 0 {
		t.Errorf("%+v", list)
	}
}

// The byte-order mark of a file stays at its head when its first entry leaves, or is revised.
func TestByteOrderMark(t *testing.T) {
	f := Files{[]byte("\ufeff- one <!-- stint id=a " + behind + "\n- two\n"), []byte("\ufeff- old <!-- stint id=b status=archived -->\n")}
	for _, c := range []struct {
		id         string
		change     Change
		file, arch string
	}{
		{"a", Change{Action: Archive}, "\ufeff- two\n", "\ufeff- old <!-- stint id=b status=archived -->\n- one <!-- stint id=a "},
		{"b", Change{Action: Reinstate, Verdict: Holds}, "\ufeff- one <!-- stint id=a " + behind + "\n- two\n- old <!-- stint id=b ", "\ufeff"},
		{"a", Change{Action: Verify, Verdict: Revised, Text: "three"}, "\ufeff- three <!-- stint id=a ", "\ufeff- old <!-- stint id=b "},
	} {
		asked, _ := find(f.Entries(), c.id)
		out, _, _, err := f.Apply(asked, c.change)
		if err != nil || !strings.HasPrefix(string(out[0]), c.file) || !strings.HasPrefix(string(out[1]), c.arch) || bytes.Count(bytes.Join(out[:], nil), []byte("\ufeff")) != 2 {
			t.Errorf("%+v: %q, %v", c.change, out, err)
		}
	}
}

// What a person has changed meanwhile wins.
func TestHandEditsWin(t *testing.T) {
	asked := Entry{State: State{ID: "a", Status: Active}, Text: "one"}
	for text, want := range map[string]error{
		"- one, or two <!-- stint id=a -->\n":            ErrChanged,
		"- one <!-- stint id=a -->\n  more\n":            ErrChanged,
		"- one\n":                                        ErrGone,
		"- one <!-- stint id=a status=good -->\n":        ErrGone,
		"- one <!-- stint id=a status=archived -->\n":    ErrStep,
		"- one <!-- stint id=a tries=3 -->\n":            ErrStep,
		"Text\n- one <!-- stint id=a risk=high -->\nx\n": nil,
	} {
		f := Files{[]byte(text)}
		out, _, after, err := f.Apply(asked, Change{Action: Verify, Verdict: Holds, Now: now})
		if !errors.Is(err, want) || (err == nil) == bytes.Equal(out[0], f[0]) {
			t.Errorf("%q: %q, %v, want %v", text, out[0], err, want)
		}
		if err == nil && (after.Risk != High || !strings.HasPrefix(string(out[0]), "Text\n- one <!-- stint id=a status=active ") || !strings.HasSuffix(string(out[0]), "\nx\n")) {
			t.Errorf("%q: %q", text, out[0])
		}
	}
}

// No text breaks out of its entry: it is refused, and nothing is changed.
func TestNoTextBreaksOut(t *testing.T) {
	for _, text := range []string{
		"a\r\n- b", "a \n- b", "a\n", "a\n-->\n<!-- b", "a <!-- b", "<!--", "a <!-- stint id=b status=active --> b", "a -->\n<!-- b", "a <!-- stint id=a status=active confidence=1.00 risk=low next=2026-12-28T14:04:05Z --> b", "a\n  <!--", " ", "- ",
	} {
		f := Files{[]byte("- one <!-- stint id=a -->\n- two <!-- stint id=c -->\n")}
		if out, _, _, err := f.Apply(f.Entries()[0], Change{Action: Verify, Verdict: Revised, Text: text, Now: now}); err == nil || !bytes.Equal(out[0], f[0]) {
			t.Errorf("%q: %q, %v", text, out[0], err)
		}
	}
	f := Files{[]byte("- one <!-- stint id=a -->\n- two <!-- stint id=c -->\n```\n"), []byte("- three <!-- stint id=b -->\n")}
	if out, _, _, err := f.Apply(f.Entries()[2], Change{Action: Reinstate, Verdict: Holds, Now: now}); !errors.Is(err, ErrText) || !bytes.Equal(out[0], f[0]) || !bytes.Equal(out[1], f[1]) {
		t.Errorf("behind code that does not end: %q, %v", out, err)
	}
	if out, _, _, err := f.Apply(f.Entries()[0], Change{Action: Verify, Verdict: Holds, Job: "j --> x", Now: now}); !errors.Is(err, ErrText) || !bytes.Equal(out[0], f[0]) {
		t.Errorf("the id of a job: %q, %v", out, err)
	}
}

func TestAt(t *testing.T) {
	const text = "- one <!-- stint id=a -->\n\n  more\n  - below\n- two\n  more\n\nText\n  indented\n"
	want := []string{"a", "a", "a", "a", "", "", "", "", ""}
	at := 0
	for line := range strings.Lines(text) {
		if s := At([]byte(text[:at]), []byte(line)); s.ID != want[0] {
			t.Errorf("%q: %q, want %q", line, s.ID, want[0])
		}
		at, want = at+len(line), want[1:]
	}
}

func TestGate(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "open\n": false, "state:\n": false, "the state: open\n": false, "state: opened\n": false, "state: open\nstate: closed\n": false, "state: closed\nstate: open\n": false,
		"<!--\nstate: open\n-->\n": false, "<!-- not yet\nstate: open": false, "To open it:\n```\nstate: open\n```\n": false, "<!-- state: closed -->\nstate: open <!-- again -->\n": true,
		"state: open": true, "\ufeffstate: open\r\n": true, "# Gate\r\n\r\n- State: Open \r\n": true,
	} {
		if got := Gate([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// FuzzEntries: ids change nothing but the ends of first lines; a change of one entry leaves all
// others as they are; what is written is read again.
func FuzzEntries(f *testing.F) {
	for _, seed := range []string{
		"- one\n- two\n  more\n", "\ufeff- one\r\n\r\n  more\r\n- two", "```\n- a\n```\n- b <!-- stint id=a status=uncertain -->\n- c <!-- stint id=a -->\n",
		"- a <!-- b\n- c --> <!-- stint id=x --> d <!-- stint id=y -->\n", "<!--\n- a\n-->\n- ```\n  b\n- \x00\xff\n", "- a <!-- stint id=a next=2026-12-01T00:00:00+01:00 -->\r", "-   a\n  - b\n\t- c\n",
	} {
		f.Add([]byte(seed), []byte("- old <!-- stint id=o status=archived -->\n"), "new", byte(1))
	}
	f.Fuzz(func(t *testing.T, main, archive []byte, text string, n byte) {
		files := Files{main, archive}
		adopted := files.Adopt(ids(), due)
		before, after := Parse(main), Parse(adopted[0])
		if len(before) != len(after) || !bytes.Equal(adopted.Adopt(ids(), due)[0], adopted[0]) {
			t.Fatalf("%q became %q", main, adopted[0])
		}
		plain := func(text []byte) string {
			var b strings.Builder
			for line := range strings.Lines(string(text)) {
				said, _, _ := Cut(strings.TrimRight(line, "\r\n"))
				b.WriteString(strings.TrimRight(said, " \t") + line[len(strings.TrimRight(line, "\r\n")):])
			}
			return b.String()
		}
		if plain(main) != plain(adopted[0]) {
			t.Fatalf("%q became %q", main, adopted[0])
		}
		list := adopted.Entries()
		if len(list) == 0 {
			return
		}
		asked := list[int(n)%len(list)]
		for _, c := range []Change{{Action: Archive}, {Action: Verify, Verdict: Revised, Text: text}, {Action: Verify, Verdict: CannotSay}, {Action: Reinstate, Verdict: Holds}} {
			c.Now = now
			out, _, got, err := adopted.Apply(asked, c)
			if err != nil {
				if !slices.EqualFunc(out[:], adopted[:], bytes.Equal) {
					t.Fatalf("%v, and yet %q", err, out)
				}
				continue
			}
			left := map[string]string{}
			for _, e := range list {
				left[e.ID] = e.Text + e.comment() + e.Wrong // of those without an id the last
			}
			for _, e := range out.Entries() {
				if e.ID != "" && e.ID != asked.ID && left[e.ID] != e.Text+e.comment() {
					t.Fatalf("%+v: another entry is now %+v, not %s", c, e, left[e.ID])
				}
				delete(left, e.ID)
			}
			if len(left) > 0 || got.ID != asked.ID {
				t.Fatalf("%+v: %q became %q", c, adopted, out)
			}
		}
	})
}
