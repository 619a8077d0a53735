package coordinator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
)

// handShapes are texts of n parts, as a person, a script or an accident may write them
// into tasks.md. Each part comes after the last, so that n and 4n compare.
var handShapes = []struct {
	name string
	text func(n int) string
}{
	{"one id", each("## Task same\n- label: l%[1]d\n")},
	{"one id, queued", each("## Task same\n- status: queued\n- prompt: number %[1]d\n")},
	{"one id, key each", each("## Task same\n- key%[1]d: x\n")},
	{"own ids", each("## Task t%[1]d\n- status: queued\n- prompt: number %[1]d\n")},
	{"one session, after", each("## Task t%[1]d\n- status: queued\n- sessionKey: web\n- order: 1\n- after: missing\n- prompt: number %[1]d\n")},
	{"circles", each("## Task a%[1]d\n- status: queued\n- prompt: x\n- after: b%[1]d\n\n## Task b%[1]d\n- status: queued\n- prompt: x\n- after: a%[1]d\n")},
	{"hub", func(n int) string {
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("t%d", i))
		}
		return "## Task hub\n- status: queued\n- prompt: x\n- after: " + strings.Join(ids, ", ") + "\n\n" + each("## Task t%[1]d\n- status: queued\n- prompt: x\n- after: hub\n")(n)
	}},
	{"chain", each("## Task t%[1]d\n- status: queued\n- prompt: x\n- after: t%[2]d\n")},
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
	{"lists in lists", func(n int) string { return each("- \n")(n) + strings.Repeat("- ", n) + "x\n\n## Task t\n- status: draft\n" }},
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

// handWorks are what reads such a text.
var handWorks = []struct {
	name string
	work func(b *testing.B, text string)
}{
	{"check", func(b *testing.B, text string) { coordinator.CheckLedger("tasks.md", []byte(text)) }},
	{"repair", func(b *testing.B, text string) { coordinator.RepairLedger("tasks.md", []byte(text), nil) }},
	{"fsck", func(b *testing.B, text string) {
		dir := handDir(b, text)
		b.StartTimer()
		_, err := coordinator.Fsck(context.Background(), dir, "", func() bool { return false })
		fatal(b, err)
	}},
	{"start", func(b *testing.B, text string) {
		dir := handDir(b, text)
		b.StartTimer()
		c, err := coordinator.Open(handConfig(dir))
		fatal(b, err)
		fatal(b, c.Close())
	}},
	{"start again", func(b *testing.B, text string) {
		dir := handDir(b, text)
		c, err := coordinator.Open(handConfig(dir))
		fatal(b, err)
		fatal(b, c.Close())
		saved, err := os.ReadFile(filepath.Join(dir, "tasks.md"))
		fatal(b, err)
		edited := strings.ReplaceAll(strings.ReplaceAll(string(saved), "- label: l", "- label: m"), "- prompt: ", "- prompt: again ")
		writeRested(b, filepath.Join(dir, "tasks.md"), edited)
		b.StartTimer()
		c, err = coordinator.Open(handConfig(dir))
		fatal(b, err)
		fatal(b, c.Close())
	}},
	{"live", func(b *testing.B, text string) {
		dir := handDir(b, "")
		c, err := coordinator.Open(handConfig(dir))
		fatal(b, err)
		writeRested(b, filepath.Join(dir, "tasks.md"), text)
		b.StartTimer()
		_, err = c.Reconcile(context.Background(), true)
		fatal(b, err)
		b.StopTimer()
		fatal(b, c.Close())
	}},
	{"compact", func(b *testing.B, text string) {
		c, err := coordinator.Open(handConfig(handDir(b, text)))
		fatal(b, err)
		b.StartTimer()
		if _, err = c.Compact(context.Background(), time.Hour, false); err != nil {
			b.Log(err)
		}
		b.StopTimer()
		fatal(b, c.Close())
	}},
	{"restore", func(b *testing.B, text string) {
		dir := handDir(b, "")
		c, err := coordinator.Open(handConfig(dir))
		fatal(b, err)
		fatal(b, c.Close())
		copied := filepath.Join(b.TempDir(), "copy.md")
		fatal(b, os.WriteFile(copied, []byte(text), 0o600))
		b.StartTimer()
		p, err := coordinator.ReadRestore(dir, copied)
		fatal(b, err)
		_, err = coordinator.Restore(handConfig(dir), p, func(*coordinator.Restoration) error { return nil })
		fatal(b, err)
	}},
}

func fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// handDir is a state directory with a journal that is empty and that tasks.md.
func handDir(b *testing.B, text string) string {
	dir := filepath.Join(b.TempDir(), "state")
	c, err := coordinator.Open(handConfig(dir))
	fatal(b, err)
	fatal(b, c.Close())
	if text != "" {
		writeRested(b, filepath.Join(dir, "tasks.md"), text)
	}
	return dir
}

// writeRested writes a file that nobody has changed for a while: it is not waited for.
func writeRested(b *testing.B, path, text string) {
	b.Helper()
	fatal(b, os.WriteFile(path, []byte(text), 0o600))
	rested := time.Now().Add(-time.Minute)
	fatal(b, os.Chtimes(path, rested, rested))
}

func handConfig(dir string) coordinator.Config {
	return coordinator.Config{StateDir: dir, Agents: map[string]coordinator.Agent{"demo": &fakeAgent{do: answer("fine")}}, DefaultAgent: func() string { return "demo" }}
}

// BenchmarkHandWritten is what a text of n parts costs for each, by what reads it. A
// cost that is not about the same at 4n grows with the square.
func BenchmarkHandWritten(b *testing.B) {
	for _, shape := range handShapes {
		for _, work := range handWorks {
			for _, n := range handSizes() {
				b.Run(fmt.Sprintf("%s/%s/n=%d", shape.name, work.name, n), func(b *testing.B) {
					text := shape.text(n)
					b.ReportAllocs()
					b.StopTimer()
					b.ResetTimer()
					for range b.N {
						if work.name == "check" || work.name == "repair" {
							b.StartTimer()
						}
						work.work(b, text)
						b.StopTimer()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/part")
				})
			}
		}
	}
}

func handSizes() []int {
	if n, err := strconv.Atoi(os.Getenv("HAND_N")); err == nil {
		return []int{n, 4 * n}
	}
	return []int{1000, 4000}
}
