package memory

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// runs are two corpora. The weights of rank.go were found with the first alone; the
// second has other lines, names and prompts, and asks about other aspects.
var runs = []struct {
	name    string
	seed    uint64
	heldOut bool
}{{"tuned", 1, false}, {"held_out", 20261122, true}}

// A place is a line of a note.
type place struct {
	path string
	line int
}

// A method returns the lines that fit a prompt, best first.
type method struct {
	name   string
	search func(prompt string) []place
}

// quality is what a method reaches within its first eight lines.
type quality struct{ recall, mrr float64 }

const firstLines = 8

func measure(c *corpus, stratum string, search func(string) []place) (q quality) {
	n := 0.0
	for _, ask := range c.questions {
		if ask.stratum != stratum {
			continue
		}
		n++
		list := search(ask.prompt)
		at := slices.Index(list[:min(len(list), firstLines)], place{ask.path, ask.line})
		if at >= 0 {
			q.recall++
			q.mrr += 1 / float64(at+1)
		}
	}
	return quality{q.recall / n, q.mrr / n}
}

// TestRetrieval: the search is ahead of rg for each kind of prompt and language of
// notes. What it measures is in the log (-v), at the end over all questions.
func TestRetrieval(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			t.Parallel()
			c := newCorpus(run.seed, run.heldOut)
			if len(c.questions) != questionsEach*len(strata) {
				t.Fatalf("%d questions", len(c.questions))
			}
			methods := retrievalMethods(t, &c)
			whole := make([]quality, len(methods))
			for _, stratum := range strata {
				var got []quality
				for i, m := range methods {
					q := measure(&c, stratum, m.search)
					t.Logf("%-9s %-14s recall@%d %.2f  MRR %.2f", stratum, m.name, firstLines, q.recall, q.mrr)
					got = append(got, q)
					whole[i].recall += q.recall / float64(len(strata))
					whole[i].mrr += q.mrr / float64(len(strata))
				}
				for i, q := range got[1:] {
					if got[0].recall <= q.recall || got[0].mrr <= q.mrr {
						t.Errorf("%s: the search has %+v, %s %+v", stratum, got[0], methods[i+1].name, q)
					}
				}
			}
			var figures strings.Builder
			for i, m := range methods {
				fmt.Fprintf(&figures, " %s=%.2f/%.2f", m.name, whole[i].recall, whole[i].mrr)
			}
			t.Logf("retrieval: questions=%d about=%s recall%d/mrr%s", len(c.questions), run.name, firstLines, figures.String())
		})
	}
}

// retrievalMethods returns ours, and three ways to use rg: the whole prompt as one
// pattern, each word in the order of the files, the lines with the most words first.
func retrievalMethods(t testing.TB, c *corpus) []method {
	dir := c.write(t)
	s := ownScan()
	lines := newLines(c)
	return []method{
		{"stint", func(prompt string) (list []place) {
			r, err := s.Search(t.Context(), dir, prompt)
			if err != nil {
				t.Error(err)
			}
			for _, h := range r.Hits {
				list = append(list, place{h.Path, h.Line})
			}
			return list
		}},
		{"rg_prompt", func(prompt string) []place { return lines.having(strings.ToLower(prompt)) }},
		{"rg_words", func(prompt string) []place { return lines.having(rgWords(prompt)...) }},
		{"most_words", func(prompt string) []place { return lines.mostWords(rgWords(prompt)) }},
	}
}

// rgWords splits a prompt at what is no letter, digit or underscore. As a kindness to
// rg, what is not ASCII becomes pairs: it has no blanks between words.
func rgWords(prompt string) (list []string) {
	for _, word := range strings.FieldsFunc(strings.ToLower(prompt), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
		runes := []rune(word)
		if isASCII(word) || len(runes) < 2 {
			list = append(list, word)
			continue
		}
		for i := range len(runes) - 1 {
			list = append(list, string(runes[i:i+2]))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// corpusLines are the lines of a corpus, by file and line: what rg does with fixed strings without the cost of a thousand processes.
type corpusLines struct {
	places []place
	text   []string         // in lower case
	known  map[string][]int // the lines that have a pattern
}

func newLines(c *corpus) *corpusLines {
	l := &corpusLines{known: map[string][]int{}}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		for i, line := range strings.Split(strings.TrimSuffix(c.files[path], "\n"), "\n") {
			l.places = append(l.places, place{path, i + 1})
			l.text = append(l.text, strings.ToLower(line))
		}
	}
	return l
}

// count returns how many of the patterns each line has.
func (l *corpusLines) count(patterns []string) []int {
	count := make([]int, len(l.text))
	for _, p := range patterns {
		list, known := l.known[p]
		if !known {
			for i, text := range l.text {
				if strings.Contains(text, p) {
					list = append(list, i)
				}
			}
			l.known[p] = list
		}
		for _, i := range list {
			count[i]++
		}
	}
	return count
}

// having returns the lines that have one of the patterns.
func (l *corpusLines) having(patterns ...string) (list []place) {
	for i, n := range l.count(patterns) {
		if n > 0 {
			list = append(list, l.places[i])
		}
	}
	return list
}

// mostWords returns them with the most different words first.
func (l *corpusLines) mostWords(words []string) (list []place) {
	count := l.count(words)
	var order []int
	for i, n := range count {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return count[j] - count[i] })
	for _, i := range order {
		list = append(list, l.places[i])
	}
	return list
}

// TestReferenceIsRg: what the test takes for rg is what rg prints.
func TestReferenceIsRg(t *testing.T) {
	program(t, "rg")
	c := newCorpus(runs[0].seed, false)
	dir, lines := c.write(t), newLines(&c)
	for i := 0; i < len(c.questions); i += 10 {
		prompt := c.questions[i].prompt
		for _, patterns := range [][]string{{strings.ToLower(prompt)}, rgWords(prompt)} {
			want := rgLines(t, dir, patterns...)
			if got := lines.having(patterns...); !slices.Equal(got, want) {
				t.Errorf("%.60q: %d lines, by rg %d", patterns, len(got), len(want))
			}
		}
	}
}

// rgLines returns the lines that rg finds, by file and line; none if it refuses the
// pattern, as it does for one with a line break.
func rgLines(t testing.TB, dir string, patterns ...string) (list []place) {
	args := []string{"--no-config", "-n", "-i", "-F", "--sort=path", "--no-heading", "--with-filename", "--null"}
	for _, p := range patterns {
		args = append(args, "-e", p)
	}
	cmd := exec.Command("rg", append(args, "--", "MEMORY.md", "memory")...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		path, rest, _ := strings.Cut(string(line), "\x00")
		no, _, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(no)
		must(t, err)
		list = append(list, place{path, n})
	}
	return list
}
