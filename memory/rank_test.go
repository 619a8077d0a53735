package memory

import (
	"fmt"
	"strings"
	"testing"
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
			"near terms before lonely ones",
			"we call it frobnicator\n" + filler + filler + "the gizmo is set up thus\nwe call it frobnicator\n" + filler, "frobnicator gizmo", 13, 1,
		},
		{
			"below a heading that fits before elsewhere",
			"# Colours\n" + filler + "the port is 8099\n" + filler + "# Frobnicator\n" + filler + "the port is 8100\n", "frobnicator port", 19, 7,
		},
		{"the beginning of a word before its middle", "import sand\n" + filler + "a port for the sand\n", "port sand", 7, 1},
		{"an identifier whole before its parts", "the token and the refresh and the store\n" + filler + "see RefreshTokenStore there\n", "RefreshTokenStore", 7, 1},
		{"a newer lesson before an older one", "- 2025-01-03 the vault moved to rack one\n" + filler + "- 2026-11-20 the vault moved to rack two\n", "where is the vault?", 7, 1},
		{"an older one that fits before a newer one", "- 2025-01-03 the vault key is in rack one\n" + filler + "- 2026-11-20 the vault is painted blue\n", "the vault key in the rack", 1, 7},
		{"a short line before a long one", "the vault " + strings.Repeat("and so on and on ", 15) + "\n" + filler + "the vault is here\n", "vault", 7, 1},
		{"a heading before a line like it", "Deploy keys\n" + filler + "# Deploy keys\n", "deploy keys", 7, 1},
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
			if tt.name == "a heading before a line like it" { // they say the same: only the better is there
				rank[tt.second] = 100 - 99*rank[tt.first]/100
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

// TestEqualHitsKeepTheirOrder: the same notes give the same prompt.
func TestEqualHitsKeepTheirOrder(t *testing.T) {
	files := map[string]string{}
	for i := range 9 {
		files[fmt.Sprintf("memory/%d.md", i)] = fmt.Sprintf("the vault %d\nand\nmore\n\nthe vault %d again\n", i, i)
	}
	dir := workspace(t, files)
	s := withEngine(t, "rg")
	s.MaxHits = 100
	want := places(search(t, s, dir, "the vault"))
	for range 20 {
		if got := places(search(t, s, dir, "the vault")); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("hits %v, before %v", got, want)
		}
	}
	if want[0] != "memory/0.md:1" {
		t.Errorf("the first of equals is %s", want[0])
	}
}

func TestHeadingsAbove(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"# One\n## Two\ntext\n":           "## two\n# one\n",
		"# One\n## Two\n# Three\n":        "# three\n",
		"## Two\n### A\n### B\n\n":        "### b\n## two\n",
		"no heading\nat all\n":            "",
		"####### seven is no heading\n":   "",
		"# One\r\ntext\r\n":               "# one\r\n",
		"#hashtag\n":                      "",
		"```\n# a comment\n```\n# Real\n": "# real\n",
	} {
		if got := headings([]byte(text)); got != want {
			t.Errorf("headings(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestSameText(t *testing.T) {
	for _, same := range [][]string{
		{"- 2026-01-02 Run make gen first.", "* 2025-12-31 run `make gen` first", "RUN MAKE GEN FIRST!!"},
		{"部署前检查", "- 部署前检查。"},
	} {
		for _, text := range same {
			if sameText(text) != sameText(same[0]) {
				t.Errorf("%q and %q differ: %q, %q", text, same[0], sameText(text), sameText(same[0]))
			}
		}
	}
	if sameText("run make gen") == sameText("run make test") {
		t.Error("what differs is the same")
	}
}
