package memory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestRanking: each case has one reason why a line comes before another.
func TestRanking(t *testing.T) {
	filler := strings.Repeat("nothing of interest\n", 5)
	for _, tt := range []struct {
		name, notes, prompt string
		first, second       int // lines
	}{
		{
			"a rare term before common ones",
			"the server is slow\nthe server is big\nthe server is old\n" + filler + "the zookeeper is old\nthe server, once more\n",
			"server zookeeper", 9, 10,
		},
		{"more terms before fewer", "the vault is locked\n" + filler + "the vault has the deploy key\n", "deploy key in the vault", 7, 1},
		{
			"below a heading that fits before elsewhere",
			"# Colours\n" + filler + "the port is 8099\n" + filler + "# Frobnicator\n" + filler + "the port is 8100\n", "frobnicator port", 19, 7,
		},
		{"an identifier whole before its parts", "the token and the refresh and the store\n" + filler + "see RefreshTokenStore there\n", "RefreshTokenStore", 7, 1},
		{"a newer lesson before an older one", "- 2025-01-03 the vault moved to rack one\n" + filler + "- 2026-11-20 the vault moved to rack two\n", "where is the vault?", 7, 1},
		{"an older one that fits before a newer one", "- 2025-01-03 the vault key is in rack one\n" + filler + "- 2026-11-20 the vault is painted blue\n", "the vault key in the rack", 1, 7},
		{"a short line before a long one", "the vault " + strings.Repeat("and so on and on ", 15) + "\n" + filler + "the vault is here\n", "vault", 7, 1},
		{"the date that a lesson begins with counts", "- the certificate is valid for 2026-11-21\n" + filler + "- 2026-10-01 the certificate is valid\n", "the certificate", 7, 1},
		{"a date to come is no news", "2099-12-31 the licence ends\n" + filler + "2026-08-31 the licence ends\n" + filler, "the licence ends", 7, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := workspace(t, map[string]string{"MEMORY.md": tt.notes})
			s := ownScan()
			s.MaxHits = 100
			r := search(t, s, dir, tt.prompt)
			rank := map[int]int{}
			for i, h := range r.Hits {
				rank[h.Line] = i + 1
			}
			if rank[tt.first] == 0 || rank[tt.second] != 0 && rank[tt.first] > rank[tt.second] {
				for _, h := range r.Hits {
					t.Logf("%.2f %s %q", h.Score, h, h.Terms)
				}
				t.Errorf("line %d is number %d, line %d number %d", tt.first, rank[tt.first], tt.second, rank[tt.second])
			}
		})
	}
}

// TestCopiesCrowdNothingOut: sessions' notes repeat themselves.
func TestCopiesCrowdNothingOut(t *testing.T) {
	var notes strings.Builder
	for i := range 400 {
		fmt.Fprintf(&notes, "- 2026-01-%02d Run make gen first.\n", 1+i%28)
	}
	notes.WriteString("- make gen needs protoc 25, as this rather long line about it says\n")
	dir := workspace(t, map[string]string{"MEMORY.md": notes.String()})
	if r := search(t, ownScan(), dir, "make gen"); len(r.Hits) != 2 || r.Hits[1].Line != 401 {
		t.Errorf("hits %v, want each text once", r.Hits)
	}
}

// TestManyHitsAreTheSame: also when more lines are found than are looked at, and rg
// has several files before it.
func TestManyHitsAreTheSame(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		var text strings.Builder
		for j := range 600 {
			fmt.Fprintf(&text, "the vault of server %d in rack %d is locked %s\n", i, j, strings.Repeat("x", (i*j)%50))
		}
		files[fmt.Sprintf("memory/%02d.md", i)] = text.String()
	}
	dir := workspace(t, files)
	var want Result
	s := withEngine(t, "rg")
	s.Timeout = time.Minute
	for i := range 10 {
		got := search(t, s, dir, "the server in the vault is locked")
		if i == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Term{})); diff != "" || !strings.HasPrefix(got.Partial, "more than 4000 lines") {
			t.Fatalf("time %d, partial %q (-first +now):\n%s", i+1, got.Partial, diff)
		}
	}
}

func TestHeadingsAbove(t *testing.T) {
	for _, tt := range []struct {
		text, want string
	}{
		{"", ""},
		{"# One\n## Two\ntext\n", "## two\n# one\n"},
		{"# One\n## Two\n# Three\n", "# three\n"},
		{"## Two\n### A\n### B\n\n", "### b\n## two\n"},
		{"no heading\nat all\n", ""},
		{"####### seven is no heading\n", ""},
		{"# One\r\ntext\r\n", "# one\r\n"},
		{"#hashtag\n", ""},
		{"```\n# a comment\n```\n# Real\n", "# real\n"},
		{"## Deploy\n```sh\n# first\nmake gen\n```\n", "## deploy\n"},
		{"## Deploy\n  ~~~\n# first\n", "## deploy\n"},
		{"cut off in code\n```\n# Real\n```sh\n", ""}, // the first one is taken for a beginning
		{"cut off in code\n```\n```sh\n# no\n```\n# Real\n", "# real\n"},
	} {
		if got := headings([]byte(tt.text)); got != tt.want {
			t.Errorf("headings(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestSameLine(t *testing.T) {
	for _, same := range [][]string{
		{"- 2026-01-02 Run make gen first.", "* 2025-12-31 run `make gen` first", "RUN  MAKE GEN FIRST!!", "## Run make gen first"},
		{"部署前检查", "- 部署前检查。"},
	} {
		for _, text := range same {
			if sameLine(text) != sameLine(same[0]) {
				t.Errorf("%q and %q differ: %q, %q", text, same[0], sameLine(text), sameLine(same[0]))
			}
		}
	}
	for _, other := range [][2]string{
		{"run make gen", "run make test"},
		{"- the freeze ends on 2026-12-15", "- the freeze ends on 2027-01-15"},
		{"limit <= 5", "limit >= 5"},
		{"use C++", "use C#"},
		{"use C++", "use C"},
		{"offset -5", "offset 5"},
		{"-5", "5"},
		{"100%", "100"},
	} {
		if sameLine(other[0]) == sameLine(other[1]) {
			t.Errorf("%q and %q are the same: %q", other[0], other[1], sameLine(other[0]))
		}
	}
}
