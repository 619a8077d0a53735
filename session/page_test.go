package session

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger/durable"
)

// pages reads a text from its end to its beginning, n messages at a time.
func pages(t testing.TB, text string, n, limit int) (all []Message) {
	t.Helper()
	for end := int64(len(text)); ; {
		p, err := readPage(&durable.Backward{R: strings.NewReader(text), Begin: end, Limit: limit}, n)
		if err != nil || len(p.Messages) > n || p.Begin >= end && end > 0 {
			t.Fatalf("before %d: %d messages from %d on, %v", end, len(p.Messages), p.Begin, err)
		}
		all = append(p.Messages, all...)
		if end = p.Begin; end == 0 {
			return all
		}
	}
}

// allMessages returns the messages in the lines of a text.
func allMessages(text string, limit int) (all []Message) {
	for line := range strings.Lines(text) {
		if m, ok := parseLine([]byte(line)); ok && len(line) <= limit {
			all = append(all, m)
		}
	}
	return all
}

// TestPagesAreTheTranscript: page by page a transcript is the one that is read at once,
// whatever its lines are and however long.
func TestPagesAreTheTranscript(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	line := func(n int) string {
		return fmt.Sprintf(`{"type":"message","role":"user","text":"%d %s"}`, n, strings.Repeat("x", rnd.IntN(n)))
	}
	const limit = 100 << 10
	for range 60 {
		var text strings.Builder
		for range rnd.IntN(12) {
			text.WriteString([]string{
				line(10), line(1000), line(70 << 10), line(300 << 10), line(50)[:20], "", "\r", `{"type":"note"}`, "\x00", line(10) + line(10),
			}[rnd.IntN(10)] + "\n")
		}
		if rnd.IntN(2) == 0 {
			text.WriteString(line(20))
		}
		if diff := cmp.Diff(allMessages(text.String(), limit), pages(t, text.String(), 1+rnd.IntN(4), limit)); diff != "" {
			t.Fatal(diff[:min(len(diff), 2000)])
		}
	}
}

// TestReadPage: what is appended meanwhile changes nothing behind a place, and a place
// where no line begins is refused.
func TestReadPage(t *testing.T) {
	tr := openTest(t, t.TempDir())
	if p, err := ReadPage(tr.path, 0, 3); !errors.Is(err, fs.ErrNotExist) || p.Messages != nil || p.Begin != 0 {
		t.Errorf("of nothing: %+v, %v", p, err)
	}
	want := slices.Concat(say(t, tr), say(t, tr))
	p, err := ReadPage(tr.path, 0, 2)
	if diff := cmp.Diff(want[len(want)-2:], p.Messages); diff != "" || err != nil || p.Begin == 0 {
		t.Fatal(diff, err)
	}
	say(t, tr)
	older, err := ReadPage(tr.path, p.Begin, len(want))
	if diff := cmp.Diff(want[:len(want)-2], older.Messages); diff != "" || err != nil || older.Begin != 0 {
		t.Error(diff, err)
	}
	for _, before := range []int64{-1, 1, p.Begin - 1, p.Begin + 1, 1 << 40} {
		if _, err := ReadPage(tr.path, before, 1); !errors.Is(err, ErrNoPlace) {
			t.Errorf("before %d: %v", before, err)
		}
	}
	if _, err := ReadPage(tr.path+"-none", 0, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}

// TestPagesAreBounded: a page of large messages ends early, and has one at least.
func TestPagesAreBounded(t *testing.T) {
	path := t.TempDir() + "/t.jsonl"
	large := `{"type":"message","role":"user","text":"` + strings.Repeat("x", maxPage*2/3) + `"}` + "\n"
	must(t, os.WriteFile(path, []byte(strings.Repeat(large, 4)), 0o600))
	p, err := ReadPage(path, 0, 100)
	if err != nil || len(p.Messages) != 2 || p.Begin != 2*int64(len(large)) {
		t.Errorf("%d messages from %d on, %v", len(p.Messages), p.Begin, err)
	}
}

func FuzzReadPage(f *testing.F) {
	good := `{"type":"message","role":"user","text":"hello"}`
	f.Add([]byte(good+"\n{\n\n"+good), 1)
	f.Add([]byte("\n"+good+"\r\n"+good+good+"\n"), 2)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		const limit = 60
		if diff := cmp.Diff(allMessages(string(data), limit), pages(t, string(data), 1+n&7, limit)); diff != "" {
			t.Error(diff)
		}
	})
}
