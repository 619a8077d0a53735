package ledger_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stint/ledger"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain has more tests run at once than there are processors, because they mostly wait;
// -parallel still counts.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // it is there
	goleak.VerifyTestMain(m)
}

// nasty are texts that a format must not let out of their field.
var nasty = []string{
	"", "x", "|", "|escaped", " leading", "trailing ", "\n", "\n\n", "a\nb", "a\n\n\nb", "\n\nfirst lines empty",
	"## Task forged\n- status: done\n<!-- end 3 -->", "<!-- end 1 -->", "- status: done", "```\nopen fence", "~~~", "<!--", "<pre>",
	"tab\tinside", "\ttab first", "  two blanks first", "a\n  \nb", "trailing blank \nnext", "cr\rlf\r\n", "a lone\rcr", "fs\x1cgs\x1drs\x1e.", "nul\x00", "bad utf8 \xff\xfe", "nel\u0085", "ls\u2028ps\u2029",
	"vt\vff\f", "back\\slash \\n \\x41", "\\", "ends with newline\n", "nbsp at the end\u00a0", "\ufeffbom", "日本語\nのテキスト", "---", "===\n---", "a: b: c", "# Tasks", strings.Repeat("long ", 5000),
}

// checkBody writes v as a value between two records and expects just these
// records back, by the strict scan and by the parser of people's files.
func checkBody(t *testing.T, v string) {
	t.Helper()
	records := []ledger.Record{
		{Kind: ledger.KindTask, ID: "before", Seq: 1, Fields: []ledger.Pair{{Key: "status", Value: "queued"}}},
		{Kind: ledger.KindTask, ID: "t", Seq: 2, Fields: []ledger.Pair{{Key: "prompt", Value: v}, {Key: "status", Value: "queued"}}},
		{Kind: ledger.KindTask, ID: "after", Seq: 3, Fields: []ledger.Pair{{Key: "status", Value: "done"}}},
	}
	data := []byte(ledger.VersionLine + "\n")
	for i := range records {
		var err error
		data, err = ledger.AppendRecord(data, &records[i])
		must(t, err)
	}
	if i := bytes.IndexAny(data, "\r\v\f\x00\x1c\x1d\x1e\u0085\u2028\u2029"); i >= 0 {
		t.Fatalf("value %q: what an editor may take for a line break is written as it is, at byte %d", v, i)
	}
	// CRLF line ends, a lost final newline and trailing blanks change nothing.
	for _, text := range [][]byte{data, bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")), bytes.TrimRight(data, "\n"), bytes.ReplaceAll(data, []byte("\n"), []byte("  \n")), append([]byte("\ufeff"), data...)} {
		doc := ledger.Parse(text)
		if len(doc.Findings) > 0 {
			t.Fatalf("value %q: %v in\n%s", v, doc.Findings[0], text)
		}
		var got []ledger.Record
		for i := range doc.Sections {
			got = append(got, doc.Sections[i].Record())
		}
		if diff := cmp.Diff(records, got); diff != "" {
			t.Fatalf("value %q: %s in\n%s", v, diff, text)
		}
	}
}

func FuzzAnyBodyIsOneRecord(f *testing.F) {
	for _, v := range nasty {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) { checkBody(t, v) })
}

// FuzzParseFormat: whatever parses is written and parsed again as the same records.
func FuzzParseFormat(f *testing.F) {
	for _, v := range nasty {
		f.Add([]byte("## Task a\n- status: queued\n- prompt: |\n  " + v + "\n"))
	}
	seeds, err := filepath.Glob("testdata/*.md")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds in testdata: %v", err)
	}
	for _, name := range seeds {
		data, err := os.ReadFile(name)
		must(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc := ledger.Parse(data)
		var out []byte
		var want []ledger.Record
		for i := range doc.Sections {
			r := doc.Sections[i].Record()
			if r.Seq == 0 {
				r.Seq = 1
			}
			var err error
			if out, err = ledger.AppendRecord(out, &r); err != nil {
				t.Fatalf("what parses cannot be written: %v", err)
			}
			want = append(want, r)
		}
		again := ledger.Parse(out)
		var got []ledger.Record
		for i := range again.Sections {
			got = append(got, again.Sections[i].Record())
		}
		if diff := cmp.Diff(want, got); diff != "" || len(again.Findings) > 0 {
			t.Fatalf("not the same records: %s %v\n%s", diff, again.Findings, out)
		}
	})
}

// FuzzPrefix: every prefix of a ledger parses to a prefix of its records.
func FuzzPrefix(f *testing.F) {
	f.Add("a\nb", uint16(10), uint16(100))
	f.Add("## Task x\n- seq: 9\n<!-- end 9 -->", uint16(300), uint16(40))
	f.Add("trailing \n", uint16(1), uint16(120))
	f.Fuzz(func(t *testing.T, v string, n, cut uint16) {
		var data []byte
		var ends []int
		for i := range int(n%20) + 1 {
			r := ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprint("t", i), Seq: uint64(i + 1)}
			r.Add("status", "queued").Add("prompt", v)
			var err error
			data, err = ledger.AppendRecord(data, &r)
			must(t, err)
			ends = append(ends, len(data)-1) // the empty line behind a record may be cut
		}
		at := int(cut) % (len(data) + 1)
		whole := 0
		for _, e := range ends {
			if at >= e-1 { // the newline of the end line, too
				whole++
			}
		}
		doc := ledger.Parse(data[:at])
		if n := len(doc.Sections); n > whole && doc.Sections[n-1].Seq == 0 && len(doc.Sections[n-1].Fields) == 0 {
			doc.Sections = doc.Sections[:n-1] // cut before its seq, a heading is what a person may have begun to write
		}
		if len(doc.Sections) != whole {
			t.Fatalf("%d of %d bytes: %d records, want %d\n%s", at, len(data), len(doc.Sections), whole, data[:at])
		}
		for i := range doc.Sections {
			if doc.Sections[i].Seq != uint64(i+1) || doc.Sections[i].Value("prompt") != v {
				t.Fatalf("record %d is another one", i)
			}
		}
	})
}

func TestWrittenForm(t *testing.T) {
	r := ledger.Record{Kind: ledger.KindTask, ID: "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11", Seq: 1042}
	r.Add("status", "queued").Add("sessionKey", "web").Add("label", "").Add("prompt", "Fix the flaky login test.\n\nKeep the diff small.").Add("result", "a\r\nb \n")
	got, err := ledger.AppendRecord([]byte(ledger.VersionLine+"\n\n"), &r)
	must(t, err)
	const golden = "testdata/written.md"
	if *update {
		must(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestCannotBeWritten(t *testing.T) {
	for _, r := range []ledger.Record{
		{Kind: "Task", ID: ""},
		{Kind: "Task", ID: "a b"},
		{Kind: "Task", ID: "a\nb"},
		{Kind: "Task", ID: strings.Repeat("x", 129)},
		{Kind: "", ID: "a"},
		{Kind: "Task", ID: "a", Fields: []ledger.Pair{{Key: "bad key", Value: "x"}}},
		{Kind: "Task", ID: "a", Fields: []ledger.Pair{{Key: "seq", Value: "1"}}},
		{Kind: "Task", ID: "a", Fields: []ledger.Pair{{Key: "x\n## Task y", Value: "1"}}},
	} {
		if out, err := ledger.AppendRecord(nil, &r); err == nil || len(out) > 0 {
			t.Errorf("%v was written: %s", r, out)
		}
	}
}

func TestPromise5OneBadRecordIsOneBadRecord(t *testing.T) {
	record := "## Task ok\n- seq: 7\n- status: queued\n<!-- end 7 -->\n"
	for _, tc := range []struct {
		name, in, want string // want: "" no finding, else "line: words"
		records        int
	}{
		{"empty", "", "", 0},
		{"text only", "# Tasks\n\nsome text\n", "", 0},
		{"no end line", "## Task a\n- seq: 3\n- status: done\n" + record, "1: record 3 has no end line", 1},
		{"end of another", "## Task a\n- seq: 3\n<!-- end 4 -->\n" + record, `3: "<!-- end 4 -->" cannot be read`, 1},
		{"bad id", "## Task a b\n- status: queued\n" + record, `1: "## Task a b" cannot be read`, 1},
		{"no id", "## Task\n- status: queued\n" + record, `1: "## Task" cannot be read`, 1},
		{"one blank", "## Task a\n- prompt: |\n one blank\n" + record, `3: "one blank" cannot be read`, 1},
		{"wrapped value", "## Task a\n- prompt: a long\n  line\n" + record, `3: "line" cannot be read`, 1},
		{"bad seq", "## Task a\n- seq: x\n" + record, `2: "- seq: x" cannot be read`, 1},
		{"text in a record", "## Task a\n- seq: 3\nhello\n<!-- end 3 -->\n" + record, `3: "hello" cannot be read`, 1},
		{"NUL", "## Task a\n- prompt: x\x00y\n" + record, `2: "- prompt: x\x00y" cannot be read`, 1},
		{"what a power cut has left of a prompt", "small, \x00\x00 |\n  ## Task forged\n  - status: done\n" + record, `1: "small, \x00\x00 |" cannot be read`, 1},
		{"fence above a record", "```\nopen\n\n" + record, "1: this code fence is still open at the record in line 4", 1},
		{"comment above a record", "<!-- open\n" + record, "1: this comment is still open at the record in line 2", 1},
		{"fence that hides a hand-written one", "```\n## Task a\n- status: queued\n", "1: this code fence is still open at the record in line 2", 0},
		{"closed fence is text", "```\n## Task a\n- status: queued\n```\n", "", 0},
		{"hand-written, text around", "intro\n\n## Task a\n- status: queued\n\nnotes below\n\n# Other\n- status: x\n" + record, "", 2},
		{"in a list item", "- item\n\n  ## Task a\n  - status: queued\n", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := ledger.Parse([]byte(tc.in))
			got := ""
			if len(doc.Findings) > 0 {
				got = fmt.Sprintf("%d: %s", doc.Findings[0].Line, doc.Findings[0].Msg)
			}
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("finding %q, want %q", got, tc.want)
			}
			if len(doc.Sections) != tc.records {
				t.Errorf("%d records, want %d", len(doc.Sections), tc.records)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestGetOfScanned: a section that was scanned has the fields that it names, the last of each, and no others.
func TestGetOfScanned(t *testing.T) {
	r := ledger.Record{Kind: ledger.KindTask, ID: "t1", Seq: 1}
	for i := range 40 {
		r.Add(fmt.Sprintf("key%d", i*i), fmt.Sprint(i)).Add(fmt.Sprintf("%c", 'a'+i%26), fmt.Sprint(i))
		raw, err := ledger.AppendRecord(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		var s ledger.Section
		if _, _, err := ledger.Scan(raw, &s); err != nil {
			t.Fatal(err)
		}
		for key := range 2000 {
			key := fmt.Sprintf("key%d", key)
			if want, _ := r.Get(key); s.Value(key) != want {
				t.Errorf("%s of %d is %q, want %q", key, i, s.Value(key), want)
			}
		}
		for c := range 26 {
			if want, _ := r.Get(string(rune('a' + c))); s.Value(string(rune('a'+c))) != want {
				t.Errorf("%c of %d is not %q", 'a'+c, i, want)
			}
		}
		if s.Get("") != nil {
			t.Error("there is a field without a key")
		}
	}
}
