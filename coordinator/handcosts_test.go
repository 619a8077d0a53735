package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
)

// handShapes are texts of n parts, as a person, a script or an accident may write them
// into tasks.md. Each part comes after the last, so that n and 4n compare.
var handShapes = []struct {
	name string
	text func(n int) string
}{
	{"one id", each("## Task same\n- label: l%[1]d\n")},
	{"one id, queued", each("## Task same\n- status: queued\n- prompt: number %[1]d\n")},
	{"one id, done", func(n int) string {
		return "## Task same\n- status: done\n- prompt: x\n\n" + each("## Task same\n- label: l%[1]d\n")(n)
	}},
	{"one id, key each", each("## Task same\n- key%[1]d: x\n")},
	{"own ids", each("## Task t%[1]d\n- status: queued\n- prompt: number %[1]d\n")},
	{"one session, after", each("## Task t%[1]d\n- status: queued\n- sessionKey: web\n- order: 1\n- after: missing\n- prompt: number %[1]d\n")},
	{"one session, ordered anew", func(n int) string {
		return each("## Task t%[1]d\n- status: queued\n- sessionKey: web\n- prompt: x\n\n")(n) + each("## Task t%[1]d\n- order: -%[2]d\n- after: missing\n")(n)
	}},
	{"circles", each("## Task a%[1]d\n- status: queued\n- prompt: x\n- after: b%[1]d\n\n## Task b%[1]d\n- status: queued\n- prompt: x\n- after: a%[1]d\n")},
	{"hub", func(n int) string {
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("t%d", i))
		}
		return "## Task hub\n- status: queued\n- prompt: x\n- after: " + strings.Join(ids, ", ") + "\n\n" + each("## Task t%[1]d\n- status: queued\n- prompt: x\n- after: hub\n")(n)
	}},
	{"chain", each("## Task t%[1]d\n- status: queued\n- prompt: x\n- after: t%[2]d\n")},
	{"chain to a hub", each("## Task t%[1]d\n- status: queued\n- prompt: x\n- after: t%[2]d, t0\n")},
	{"bare headings", each("## Task t%[1]d\n")},
	{"bare headings of one id", each("## Task same\n")},
	{"headings without text", each("## Task\n")},
	{"copies of one seq", each("## Task same\n- seq: 1\n- status: draft\n- label: l%[1]d\n<!-- end 1 -->\n")},
	{"copies of one seq, other ids", each("## Task t%[1]d\n- seq: 1\n- status: draft\n- prompt: p%[1]d\n<!-- end 1 -->\n")},
	{"records", each("## Task t%[1]d\n- seq: %[2]d\n- status: draft\n- label: l\n<!-- end %[2]d -->\n")},
	{"records of one id", each("## Task same\n- seq: %[2]d\n- status: draft\n- label: l%[1]d\n<!-- end %[2]d -->\n")},
	{"torn records", each("## Task t%[1]d\n- seq: %[2]d\n- status: draft\n- label: l\n")},
	{"findings", each("## Task t%[1]d\n- status: qeued\n")},
	{"headings nearly", each("## Taks t%[1]d\n- status: queued\n")},
	{"fields nearly", func(n int) string { return "## Task t\n" + each("– label: x%[1]d\n")(n) }},
	{"lines of text", func(n int) string { return "## Task t\n- status: draft\n\n" + each("some text %[1]d\n")(n) }},
	{"fields", func(n int) string { return "## Task t\n" + each("- label: x%[1]d\n")(n) }},
	{"keys", func(n int) string { return "## Task t\n" + each("- key%[1]d: x\n")(n) }},
	{"lists in lists", func(n int) string {
		return each("- \n")(n) + strings.Repeat("- ", n) + "x\n\n## Task t\n- status: draft\n"
	}},
	{"quotes in quotes", func(n int) string { return strings.Repeat(strings.Repeat("> ", 100)+"x\n", n/100) }},
	{"fences", each("```\n")},
	{"records in a comment", func(n int) string {
		return "<!--\n" + each("## Task t%[1]d\n- seq: %[2]d\n- status: draft\n- label: l\n<!-- end %[2]d -->\n<!--\n")(n)
	}},
	{"records in a fence", func(n int) string {
		return "~~~\n" + each("## Task t%[1]d\n- seq: %[2]d\n- status: draft\n- label: l\n<!-- end %[2]d -->\ntext\n")(n)
	}},
	{"hand sections below a torn record", func(n int) string {
		return "<!--\n" + each("## Task r%[1]d\n- seq: %[2]d\n- status: draft\n\n<!--\n\n## Task t%[1]d\n- status: draft\n\n")(n)
	}},
	{"conflicts", each("<<<<<<< a\n## Task t%[1]d\n- status: draft\n=======\n>>>>>>> b\n")},
	{"end lines", each("<!-- end %[2]d -->\n")},
	{"blank lines", func(n int) string { return each("## Task t%[1]d\n\n\n\n\n\n\n\n\n")(n / 8) }},
	{"one long line", func(n int) string { return "## Task t\n- label: " + strings.Repeat("\u2028- label: x", n) + "\n" }},
	{"glued headings", func(n int) string {
		return "## Task t\n- seq: 1\n- label: x\n<!-- end 1 -->" + strings.Repeat("-->## Task t", n) + "\n- seq: 2\n- label: y\n<!-- end 2 -->\n"
	}},
}

// each repeats a part with its number, and that plus 1.
func each(part string) func(n int) string {
	return func(n int) string {
		var b strings.Builder
		for i := range n {
			text := part
			if strings.Contains(part, "%[") {
				text = fmt.Sprintf(part+"%[3]s", i, i+1, "")
			}
			b.WriteString(text)
			if strings.HasPrefix(part, "##") {
				b.WriteString("\n")
			}
		}
		return b.String()
	}
}

// handWorks are what reads such a text: each makes ready what it needs, and returns the rest.
// A first start and a live save are left out: the second start does both.
var handWorks = map[string]func(tb testing.TB, text string) func(){
	"repair": func(_ testing.TB, text string) func() {
		return func() { statedir.RepairLedger("tasks.md", []byte(text), nil) }
	},
	"fsck": func(tb testing.TB, text string) func() {
		dir := handDir(tb, text)
		return func() {
			_, err := statedir.Fsck(context.Background(), dir, "", func() bool { return false })
			fatal(tb, err)
		}
	},
	"start again": func(tb testing.TB, text string) func() {
		dir := handDir(tb, text)
		openAndClose(tb, dir)
		saved, err := os.ReadFile(filepath.Join(dir, "tasks.md"))
		fatal(tb, err)
		edited := strings.ReplaceAll(strings.ReplaceAll(string(saved), "- label: l", "- label: m"), "- prompt: ", "- prompt: again ")
		writeRested(tb, filepath.Join(dir, "tasks.md"), edited)
		return func() { openAndClose(tb, dir) }
	},
	"compact": func(tb testing.TB, text string) func() {
		c, err := coordinator.Open(handConfig(handDir(tb, text)))
		fatal(tb, err)
		tb.Cleanup(func() { fatal(tb, c.Close()) })
		return func() {
			var refused *task.Error
			if _, err := c.Compact(context.Background(), time.Hour, false, false); err != nil && !errors.As(err, &refused) {
				tb.Fatal(err)
			}
		}
	},
}

func openAndClose(tb testing.TB, dir string) {
	tb.Helper()
	c, err := coordinator.Open(handConfig(dir))
	fatal(tb, err)
	fatal(tb, c.Close())
}

func fatal(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// handDir is a state directory with a journal that is empty and that tasks.md.
func handDir(tb testing.TB, text string) string {
	dir := filepath.Join(tb.TempDir(), "state")
	openAndClose(tb, dir)
	if text != "" {
		writeRested(tb, filepath.Join(dir, "tasks.md"), text)
	}
	return dir
}

// writeRested writes a file that nobody has changed for a while: it is not waited for.
func writeRested(tb testing.TB, path, text string) {
	tb.Helper()
	fatal(tb, os.WriteFile(path, []byte(text), 0o600))
	rested := time.Now().Add(-time.Minute)
	fatal(tb, os.Chtimes(path, rested, rested))
}

func handConfig(dir string) queue.Config {
	return queue.Config{StateDir: dir, Agents: map[string]task.Agent{"demo": &fakeAgent{do: answer("fine")}}, DefaultAgent: func([]string) string { return "demo" }}
}

// TestHandWrittenCostsGrowLinearly: four times as many parts take about four times the
// memory, and not sixteen times. What is less than the rest of the process may take meanwhile
// tells nothing.
func TestHandWrittenCostsGrowLinearly(t *testing.T) {
	notShort(t)
	for _, shape := range handShapes {
		for name, work := range handWorks {
			if shape.name == "one session, ordered anew" && name == "repair" {
				continue // fsck FILE still looks at the order of each by itself: 5 s for 5,000
			}
			allocated := func(n int) int {
				var before, after runtime.MemStats
				run := work(t, shape.text(n))
				runtime.ReadMemStats(&before)
				run()
				runtime.ReadMemStats(&after)
				return int(after.TotalAlloc - before.TotalAlloc)
			}
			if few, many := allocated(100), allocated(400); many > 8*max(few, 64<<10) {
				t.Errorf("%s, %s: 100 parts take %d bytes, 400 take %d, %d times as many", shape.name, name, few, many, many/few)
			}
		}
	}
}
