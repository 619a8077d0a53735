package ledger

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// brokenLedgers reads testdata/broken. In an archive, x.md is a ledger and x.want what is expected of it.
// x.crlf.md is read with CRLF line ends, and x.raw has what no text file can hold: escapes as in |escaped,
// and a backslash at the end of a line that takes the line break away.
func brokenLedgers(tb testing.TB, each func(file, name string, data []byte)) {
	tb.Helper()
	for file, a := range brokenArchives(tb) {
		for _, f := range a.Files {
			if !strings.HasSuffix(f.Name, ".want") {
				each(file, f.Name, bytesOf(f))
			}
		}
	}
}

func brokenArchives(tb testing.TB) map[string]*txtar.Archive {
	tb.Helper()
	files, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil {
		tb.Fatal(err)
	}
	archives := map[string]*txtar.Archive{}
	for _, file := range files {
		if archives[file], err = txtar.ParseFile(file); err != nil {
			tb.Fatal(err)
		}
	}
	return archives
}

// bytesOf returns the ledger that a file of an archive stands for.
func bytesOf(f txtar.File) []byte {
	switch {
	case strings.HasSuffix(f.Name, ".raw"):
		return unescape(bytes.ReplaceAll(f.Data, []byte("\\\n"), nil))
	case strings.HasSuffix(f.Name, ".crlf.md"):
		return bytes.ReplaceAll(f.Data, newline, []byte("\r\n"))
	}
	return f.Data
}

// summaryOf returns the findings, a line each, and the good records in one line.
func summaryOf(doc *Document) string {
	var b strings.Builder
	for _, f := range doc.Findings {
		fmt.Fprintf(&b, "%d: %s\n", f.Line, f.Msg)
	}
	b.WriteString("good:")
	for i := range doc.Sections {
		s := &doc.Sections[i]
		fmt.Fprintf(&b, " %s %s", s.Kind, s.ID)
		if s.Seq > 0 {
			fmt.Fprintf(&b, " seq %d", s.Seq)
		}
		fmt.Fprintf(&b, " %s;", s.Value("status"))
	}
	return strings.TrimSuffix(b.String(), ";") + "\n"
}

// sound is the heading of a record that nothing may happen to: all of them stand at
// the beginning of a line, and have an id that begins with ok. But those that people
// wrote (okhand) are text where a block is open that hides them.
var sound = regexp.MustCompile(`(?m)^## Task (ok\w*)[ \r]*$`)

// updateBroken writes the expectations anew. Read them: a message that does not say what to do is a defect.
var updateBroken = flag.Bool("update-broken", false, "write the findings expected in testdata/broken anew")

// TestPromise5BrokenLedgersLoseOnlyWhatIsBroken reads what editors, merges,
// formatters, disks and tired people make of ledgers.
func TestPromise5BrokenLedgersLoseOnlyWhatIsBroken(t *testing.T) {
	n := 0
	for file, a := range brokenArchives(t) {
		want := map[string]string{}
		for _, f := range a.Files {
			want[f.Name] = string(f.Data)
		}
		fresh := &txtar.Archive{Comment: a.Comment}
		for _, f := range a.Files {
			base, _, _ := strings.Cut(f.Name, ".")
			if f.Name == base+".want" {
				continue
			}
			n++
			data := bytesOf(f)
			doc := Parse(data)
			got := summaryOf(doc)
			fresh.Files = append(fresh.Files, f, txtar.File{Name: base + ".want", Data: []byte(got)})
			if diff := cmp.Diff(want[base+".want"], got); diff != "" && !*updateBroken {
				t.Errorf("%s: %s: %s\n%s", file, f.Name, diff, data)
			}
			if err := soundRecords(doc, data); err != nil {
				t.Errorf("%s: %s: %v in\n%s", file, f.Name, err, data)
			}
		}
		if *updateBroken {
			if err := os.WriteFile(file, txtar.Format(fresh), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d broken ledgers", n)
	}
}

// soundRecords looks for the records that nothing may happen to, and says whether
// each finding has a place in the file.
func soundRecords(doc *Document, data []byte) error {
	good := map[string]int{}
	for i := range doc.Sections {
		good[string(doc.Sections[i].ID)]++
	}
	open := slices.ContainsFunc(doc.Findings, func(f *SyntaxError) bool { return strings.Contains(f.Msg, "still open") })
	for _, m := range sound.FindAllSubmatch(data, -1) {
		if id := string(m[1]); good[id] == 0 && !(open && strings.HasPrefix(id, "okhand")) {
			return fmt.Errorf("record %s is lost", id)
		}
		good[string(m[1])]--
	}
	for _, f := range doc.Findings {
		if lines := 1 + bytes.Count(data, newline); f.Line < 1 || f.Line > lines || f.Msg == "" {
			return fmt.Errorf("finding %v in a file of %d lines", f, lines)
		}
	}
	return nil
}
