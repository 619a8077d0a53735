package memory

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// notesSize is how much is searched.
const notesSize = 100 << 20

// writeNotes makes notes of 100 MB in so many files. The word frobnicator is in few of
// their lines, gizmo in about 2,000, server in every tenth.
func writeNotes(b *testing.B, files int) string {
	b.Helper()
	dir := b.TempDir()
	must(b, os.Mkdir(filepath.Join(dir, "memory"), 0o755))
	r := rand.New(rand.NewPCG(7, 7))
	words := bytes.Fields([]byte("lorem ipsum dolor sit amet consectetur adipiscing elit sed eiusmod tempor incididunt labore magna aliqua quis nostrud"))
	line := 0
	for f := range files {
		var text bytes.Buffer
		for text.Len() < notesSize/files {
			text.WriteString("- ")
			for range 12 {
				text.Write(words[r.IntN(len(words))])
				text.WriteByte(' ')
			}
			switch line++; {
			case line%100_000 == 0:
				text.WriteString("frobnicator")
			case line%600 == 0:
				text.WriteString("gizmo")
			case line%10 == 0:
				text.WriteString("server")
			}
			text.WriteByte('\n')
		}
		must(b, os.WriteFile(filepath.Join(dir, noteName(f)), text.Bytes(), 0o600))
	}
	return dir
}

func noteName(f int) string { return fmt.Sprintf("memory/%05d.md", f) }

// BenchmarkSearch measures a search of 100 MB beside bare rg of the same terms, in turns: row 12 of the
// targets. Ours is all that a run waits for: finding the notes, ranking and the hashes of the files. Both get
// the names of the files; rg's lines are read and counted, and nothing else.
func BenchmarkSearch(b *testing.B) {
	rg := program(b, "rg")
	for _, files := range []int{1, 100, 1000} {
		dir := writeNotes(b, files)
		for _, c := range []struct{ name, prompt string }{
			{"few hits", "Where does the frobnicator come from?"},
			{"2000 hits", "Where do the gizmo and the frobnicator come from, and what is a widget for?"},
			{"very many hits", "Why does the server say that there is no frobnicator?"},
		} {
			b.Run(fmt.Sprintf("%d files/%s", files, c.name), func(b *testing.B) {
				s := ownScan()
				s.Ripgrep = rg
				var ours, bare []time.Duration
				var lines int
				for b.Loop() {
					begin := time.Now()
					r, err := s.Search(b.Context(), dir, c.prompt)
					if err != nil || len(r.Hits) == 0 || r.Engine != "rg" {
						b.Fatal(err, r.Engine, r.Hits)
					}
					ours = append(ours, time.Since(begin))
					begin = time.Now()
					lines = bareRg(b, rg, dir, files, r.Terms)
					bare = append(bare, time.Since(begin))
				}
				slices.Sort(ours)
				slices.Sort(bare)
				mine, other := ours[len(ours)/2], bare[len(bare)/2]
				b.ReportMetric(0, "ns/op") // of both together: it says nothing
				b.ReportMetric(float64(mine.Microseconds())/1000, "ms/search")
				b.ReportMetric(float64(other.Microseconds())/1000, "ms/rg")
				b.ReportMetric(float64(mine)/float64(other), "ratio")
				b.ReportMetric(float64(lines), "lines")
			})
		}
	}
}

// bareRg runs rg as a person would who has the terms, and counts what it prints.
func bareRg(b *testing.B, rg, dir string, files int, terms []Term) (lines int) {
	args := []string{"--no-config", "-n", "-i", "-F", "--no-heading", "--with-filename"}
	for _, t := range terms {
		args = append(args, "-e", t.Text)
	}
	args = append(args, "--")
	for f := range files {
		args = append(args, noteName(f))
	}
	cmd := exec.Command(rg, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	must(b, err)
	return bytes.Count(out, []byte("\n"))
}
