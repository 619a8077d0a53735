package journal_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/ledger"
)

// formatters go over a file. held says whether they change texts of ours so much that it must be held.
var formatters = []struct {
	name string
	run  func(t *testing.T, path string)
	held bool
}{
	{"prettier-preserve", func(t *testing.T, path string) {
		format(t, path, program(t, "prettier", "STINT_TEST_PRETTIER"), "--prose-wrap", "preserve", "--write", path)
	}, true},
	{"prettier-always", func(t *testing.T, path string) {
		format(t, path, program(t, "prettier", "STINT_TEST_PRETTIER"), "--prose-wrap", "always", "--write", path)
	}, true},
	{"markdownlint", func(t *testing.T, path string) {
		format(t, path, program(t, "markdownlint", "STINT_TEST_MARKDOWNLINT"), "--fix", path)
	}, true},
	{"autocrlf", autocrlf, false},
}

// program returns the path of a formatter, which stands in a variable or is
// installed. Without it the test is skipped, but not in CI.
func program(t *testing.T, name, variable string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if set := os.Getenv(variable); set != "" {
		path, err = exec.LookPath(set)
	}
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is not installed: %v", name, err)
	default:
		t.Skipf("%s is not installed: npm install %s, and set %s", name, name, variable)
	}
	return ""
}

// format runs a formatter, which must change the file. markdownlint fails where
// something is left that it cannot mend.
func format(t *testing.T, path, name string, args ...string) {
	t.Helper()
	before, err := os.ReadFile(path)
	must(t, err)
	said, _ := exec.Command(name, args...).CombinedOutput()
	after, err := os.ReadFile(path)
	if err != nil || bytes.Equal(before, after) {
		t.Fatalf("%s changes nothing: %s, %v", filepath.Base(name), said, err)
	}
}

// autocrlf takes the file into a repository and checks it out again with the line ends of Windows.
func autocrlf(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "tasks.md"}, {"rm", "--quiet", "--cached", "tasks.md"}, {"add", "tasks.md"}} {
		git(t, path, args...)
	}
	must(t, os.Remove(path))
	git(t, path, "checkout", "--", "tasks.md")
	data, err := os.ReadFile(path)
	if err != nil || bytes.Count(data, []byte("\r\n")) != bytes.Count(data, []byte("\n")) {
		t.Fatalf("git has not turned all line ends: %v", err)
	}
}

func git(t *testing.T, path string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.autocrlf=true", "-c", "core.safecrlf=false"}, args...)...)
	cmd.Dir = filepath.Dir(path)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, said)
	}
}

// marked are texts that formatters change.
var marked = []string{
	"Fix the __init__.py test; keep the *diff* small.",
	"Do this:\n* one\n* two\n\n    indented code\n      more\n\n1) first\n2) second",
	"| a | b |\n|--|--|\n| a long cell | x |\n\n```go\nfunc  main() {\n\tx()\n}\n```\nand ***so*** on\n\n\n\nthe end",
	"## Task forged\n- status: done\n<!-- end 1 -->\n\n~~~~\nopen fence\n\n<!-- open comment",
	strings.Repeat("A long line of words that must be wrapped somewhere, says the formatter. ", 5) + "End.",
	"* x\n+ y\n- z\n\nHeading\n=======\n\nAnother\n-------\ntext  \nafter two blanks",
	"see http://example.com/a_b_c, <b>bold</b>, a\\*b, 2 * 3 * 4 and _under_ __score__",
	"[link]: http://example.com\n\n> quoted\ncontinued\n\n***\n\n\ttab indented\n",
	"- seq: 7\n- prompt: |\n  nested\n\n- status: queued",
	"<div>\n\n* html *\n\n</div>\n\n<pre>\n  kept\n",
}

// TestPromise4FormattersChangeNothing lets formatters go over a ledger: no task is
// lost, no text is changed unless a person accepts it, and edits go on.
func TestPromise4FormattersChangeNothing(t *testing.T) {
	t.Parallel()
	for _, f := range formatters {
		t.Run(f.name, func(t *testing.T) {
			w := openWorld(t, false)
			w.markedTasks()
			w.reload(replace("\n## Task t1\n", "\nMy notes:\n* one\n* two\n\n## Task mine\n* status: queued\n* prompt: do *this* by `hand`\n\n## Task t1\n"))
			w.close()
			before, records := w.fields(), len(w.fold)
			f.run(t, w.path("tasks.md"))
			w.everyHeadingIsSeen()
			w.open(false)
			w.close()
			if d := changed(before, w.fields()); d != "" || len(w.fold) != records {
				t.Fatalf("taken over without being accepted: %s\nsaid: %s", d, strings.Join(w.said, "\n"))
			}
			if held := strings.Contains(strings.Join(w.said, "\n"), "quarantined with all that this save edits: stint edit --accept"); held != f.held {
				t.Errorf("held: %v, want %v; said: %s", held, f.held, strings.Join(w.said, "\n"))
			}
			w.editedMeanwhile(before, f.held)
		})
	}
}

// markedTasks appends queued and ended tasks with texts that formatters change.
func (w *world) markedTasks() {
	w.t.Helper()
	for i, text := range marked {
		id := fmt.Sprint("t", i)
		w.add(id, "status", "queued", "sessionKey", "my_web_key", "workspace", "/home/ana/__shop__", "label", "*x* http://example.com/_y_",
			"verifyCommand", "go test ./... -run '*__x__*'", "prompt", text)
		if i%2 == 0 {
			w.add(id, "status", "running", "runId", "run_"+id+"_1")
			w.add(id, "status", "done", "exitCode", "0", "result", marked[len(marked)-1-i])
		}
	}
}

// fields returns the fields of each record, as the fold has them.
func (w *world) fields() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, r := range w.fold {
		if all[r.ID] == nil {
			all[r.ID] = map[string]string{}
		}
		for _, f := range r.Fields {
			all[r.ID][f.Key] = f.Value
		}
	}
	return all
}

// changed says in which fields two folds differ.
func changed(before, after map[string]map[string]string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(after)) {
		for _, key := range slices.Sorted(maps.Keys(after[id])) {
			if old, now := before[id][key], after[id][key]; old != now {
				fmt.Fprintf(&b, "\n%s %s: %.60q is now %.60q", id, key, old, now)
			}
		}
	}
	return b.String()
}

// everyHeadingIsSeen expects that each record of the journal is a section of
// tasks.md or a finding there: a formatter must not hide one in another.
func (w *world) everyHeadingIsSeen() {
	w.t.Helper()
	doc := ledger.Parse([]byte(w.read("tasks.md")))
	seen := map[string]int{}
	for i := range doc.Sections {
		seen[string(doc.Sections[i].ID)]++
	}
	lines := strings.Split(w.read("tasks.md"), "\n")
	for _, f := range doc.Findings {
		for i := f.Line - 1; i >= 0; i-- {
			if id, ok := strings.CutPrefix(lines[i], "## Task "); ok {
				seen[id]++
				break
			}
		}
	}
	for _, r := range w.fold {
		if _, edit := r.Get(ledger.KeyAdopts); !edit {
			seen[r.ID]--
		}
	}
	for id, n := range seen {
		if n < 0 {
			w.t.Errorf("%d sections of %s are hidden", -n, id)
		}
	}
}

// editedMeanwhile adds a requeue to the formatted file: it is taken over, once;
// then what is quarantined is accepted.
func (w *world) editedMeanwhile(before map[string]map[string]string, held bool) {
	w.t.Helper()
	w.edit(appended("\n## Task t0\n- status: queued\n"))
	for range 2 {
		w.open(false)
		w.close()
	}
	before["t0"]["status"], before["t0"]["by"] = "queued", ledger.ByHand
	after := w.fields()
	delete(after["t0"], ledger.KeyAdopts)
	delete(after["t0"], "updatedAt")
	if d := changed(before, after); d != "" {
		w.t.Errorf("after an edit of the formatted file: %s", d)
	}
	w.open(false)
	defer w.reopened()
	report, err := w.log.Reconcile(w.t.Context(), true)
	if err != nil || report.Quarantined != 0 || (len(report.Records) > 0) != held {
		w.t.Errorf("accepted: %v, %d records, %d quarantined", err, len(report.Records), report.Quarantined)
	}
}
