package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stint/ledger/durable"
)

var testTime = time.Date(2026, 11, 21, 3, 12, 45, 131e6, time.UTC)

// conversation has what can go wrong in a line of text.
var conversation = []Message{
	{Role: RoleUser, Text: "Fix <the> flaky test.\n\n## Task x\n\"quoted\"\u2028", TaskID: "t-1", RunID: "r-1"},
	{Role: RoleAssistant, Text: "Done & tested: 漢字 \x00\x1b[0m", TaskID: "t-1", RunID: "r-1"},
	{Role: RoleAssistant, Text: "", TaskID: "t-2", RunID: "r-2", Error: "exit: status 1"},
}

// A transcript is that of testID.
type transcript struct {
	dir, path string
	fs        durable.FS
}

func (tr *transcript) Append(m Message) error {
	m.SessionID = testID
	return Append(tr.fs, tr.dir, m)
}

func openTest(t testing.TB, dir string) *transcript {
	t.Helper()
	return &transcript{dir, TranscriptPath(dir, testID), durable.OS}
}

// say appends the conversation and returns it as it is to be read back.
func say(t *testing.T, tr *transcript) []Message {
	t.Helper()
	want := make([]Message, len(conversation))
	for i, m := range conversation {
		m.TS = testTime.Add(time.Duration(i) * time.Second)
		must(t, tr.Append(m))
		m.Type, m.SessionID = "message", testID
		want[i] = m
	}
	return want
}

func checkRead(t *testing.T, path string, want []Message) {
	t.Helper()
	got, err := ReadPage(path, 0, 0)
	must(t, err)
	if diff := cmp.Diff(want, got.Messages, cmpopts.EquateEmpty()); diff != "" || got.Begin != 0 {
		t.Errorf("from %d on; messages (-want +got):\n%s", got.Begin, diff)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func writeFile(t *testing.T, path, data string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(data), 0o600))
}

func TestTranscriptRoundTrip(t *testing.T) {
	dir := t.TempDir()
	tr := openTest(t, dir)
	want := say(t, tr)
	want = append(want, say(t, openTest(t, dir))...) // what is there stays
	checkRead(t, tr.path, want)
	checkModes(t, dir)
	if got := strings.Count(readFile(t, tr.path), "\n"); got != len(want) {
		t.Errorf("%d lines for %d messages", got, len(want))
	}
}

// TestNoStateDirectory: it is never made anew.
func TestNoStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := openTest(t, dir).Append(conversation[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a transcript in no directory: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// The form of a line is document 002's, which other programs read.
func TestTranscriptLine(t *testing.T) {
	tr := openTest(t, t.TempDir())
	m := Message{Role: RoleUser, Text: "a <b>\n", TS: testTime.In(time.FixedZone("", 3600)), RunID: "r-1", TaskID: "t-1", Type: "other"}
	must(t, tr.Append(m))
	want := `{"type":"message","role":"user","text":"a <b>\n","ts":"2026-11-21T03:12:45.131Z","sessionId":"` + testID + `","taskId":"t-1","runId":"r-1"}` + "\n"
	if got := readFile(t, tr.path); got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

// A crash may cut the file at any byte; whole lines before it and everything appended after it are kept.
func TestTranscriptCutAnywhere(t *testing.T) {
	tr := openTest(t, t.TempDir())
	want := say(t, tr)
	whole := readFile(t, tr.path)
	for cut := range len(whole) {
		writeFile(t, tr.path, whole[:cut])
		kept := strings.Count(whole[:cut], "\n")
		if strings.HasPrefix(whole[cut:], "\n") {
			kept++ // only the line break is missing
		}
		expect := append(want[:kept:kept], say(t, tr)...)
		checkRead(t, tr.path, expect)
		if t.Failed() {
			t.Fatalf("cut at %d", cut)
		}
	}
}

func TestReadTranscriptDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	good := `{"type":"message","role":"user","text":"hello"}`
	m := Message{Type: "message", Role: "user", Text: "hello"}
	for name, c := range map[string]struct {
		data string
		want []Message
	}{
		"empty":         {"", nil},
		"blank lines":   {"\n\r\n" + good + "\r\n \n", []Message{m}},
		"no line break": {good, []Message{m}},
		"half line":     {good[:20] + "\n" + good + "\n", []Message{m}},
		"half at end":   {good + "\n" + good[:20], []Message{m}},
		"two in one":    {good + good + "\n" + good, []Message{m}},
		"NUL bytes":     {good + "\n\x00\x00\x00\x00\n" + good + "\n", []Message{m, m}},
		"no object":     {"[]\n7\nnull\n\"x\"\n" + good, []Message{m}},
		"wrong types":   {`{"type":"message","role":7}` + "\n" + good, []Message{m}},
		"unknown role":  {`{"type":"message","role":"system"}` + "\n" + good, []Message{m}},
		"other type":    {`{"type":"note","x":1}` + "\n" + good, []Message{m}},
		"unknown field": {`{"x":1,` + good[1:], []Message{m}},
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, path, c.data)
			checkRead(t, path, c.want)
		})
	}
	if _, err := ReadPage(path+"-none", 0, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := ReadPage(filepath.Dir(path), 0, 0); err == nil {
		t.Error("a directory was read")
	}
}

func TestReadTranscriptLongLines(t *testing.T) {
	line := func(n int) string {
		frame := `{"type":"message","role":"user","text":""}` + "\n"
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	data := line(10_000) + line(10_001) + line(100) + line(50_000)
	if got := pages(t, data, 9, 10_000); len(got) != 2 || len(line(10_000)) != 10_000 {
		t.Errorf("%d messages", len(got))
	}
	tr := openTest(t, t.TempDir())
	big := strings.Repeat("y", 20<<20)
	must(t, tr.Append(Message{Role: RoleAssistant, Text: big}))
	if got, err := ReadPage(tr.path, 0, 0); err != nil || len(got.Messages) != 1 || got.Messages[0].Text != big {
		t.Errorf("20 MiB: %d messages, %v", len(got.Messages), err)
	}
}

func TestTranscriptErrors(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"", "../x", "a/b", "a.b", "a b", "x\x00"} {
		if err := Append(durable.OS, dir, Message{Role: RoleUser, SessionID: id}); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
	tr := openTest(t, dir)
	if err := tr.Append(Message{Role: "system"}); err == nil {
		t.Error("an unknown role was taken")
	}
	if err := tr.Append(Message{Role: RoleUser, TS: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a year of five digits was taken")
	}
	if _, err := os.Lstat(tr.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after errors there is a file: %v", err)
	}
	say(t, tr)
	if err := os.Remove(tr.path); err != nil { // somebody tidied up: a new file begins
		t.Fatal(err)
	}
	checkRead(t, tr.path, say(t, tr))
}

// A full disk leaves half a line; the next line is whole again.
func TestTranscriptShortWrite(t *testing.T) {
	tr := openTest(t, t.TempDir())
	tr.fs = fullFS{durable.OS}
	if err := tr.Append(Message{Role: RoleUser, Text: "lost"}); !errors.Is(err, errFull) {
		t.Fatalf("a failed write gave %v", err)
	}
	tr.fs = durable.OS
	want := say(t, tr)
	checkRead(t, tr.path, want)
}

var errFull = errors.New("no space left on device")

// fullFS writes the first ten bytes of everything and then fails.
type fullFS struct{ durable.FS }

type fullFile struct{ durable.File }

func (f fullFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	return fullFile{file}, err
}

func (f fullFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p[:min(10, len(p))])
	return n, errors.Join(err, errFull)
}

func BenchmarkAppend(b *testing.B) {
	tr := openTest(b, b.TempDir())
	m := Message{Role: RoleAssistant, Text: strings.Repeat("x", 500), TS: testTime, RunID: testID, TaskID: testID}
	for b.Loop() {
		must(b, tr.Append(m))
	}
}
