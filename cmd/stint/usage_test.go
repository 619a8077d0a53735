package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

func TestParsePast(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 21, 15, 4, 5, 0, zone)
	for _, c := range []struct {
		text  string
		after int
		want  string // "": refused
	}{
		{"7d", 0, "2026-11-14T15:04:05+01:00"},
		{"90m", 1, "2026-11-21T13:34:05+01:00"},
		{"2026-11-01", 0, "2026-11-01T00:00:00+01:00"},
		{"2026-11-30", 1, "2026-12-01T00:00:00+01:00"},
		{"2026-11-20 08:30", 1, "2026-11-20T08:30:00+01:00"},
		{"2026-11-20T08:30:00Z", 0, "2026-11-20T08:30:00Z"},
		{"08:30", 0, ""},
		{"-7d", 0, ""},
		{"yesterday", 0, ""},
		{"2026-02-30", 0, ""},
	} {
		got, err := parsePast(c.text, now, c.after)
		if (err != nil) != (c.want == "") || err == nil && got.Format(time.RFC3339) != c.want {
			t.Errorf("%q: %v, %v, want %s", c.text, got, err, c.want)
		}
	}
	if got, err := parsePast("", now, 1); err != nil || !got.IsZero() {
		t.Errorf("nothing is %v, %v", got, err)
	}
}

func TestUsageQuery(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	q, err := (&usageOptions{by: "total", since: "2026-11-21", until: "2026-11-21"}).query(now)
	if err != nil || q.By != "" || q.Until.Sub(q.Since) != 24*time.Hour || q.Location != now.Location() {
		t.Errorf("one day: %+v, %v", q, err)
	}
	for _, c := range []struct {
		options usageOptions
		want    string
	}{
		{usageOptions{by: "week"}, `--by: "week" is not one of day, agent`},
		{usageOptions{by: "day", since: "soon"}, `--since: "soon" is neither a time`},
		{usageOptions{by: "day", until: "soon"}, `--until: "soon" is neither a time`},
		{usageOptions{by: "day", since: "1d", until: "2d"}, "nothing can lie between --since 1d and --until 2d"},
	} {
		_, err := c.options.query(now)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || exitCode(err) != exitUsage {
			t.Errorf("%+v: %v, want %s", c.options, err, c.want)
		}
	}
}

func TestUsageTable(t *testing.T) {
	rows := []task.UsageRow{
		{Key: "codex", Runs: 10, Tasks: 9, Usage: state.Usage{InputTokens: 1000, CachedInputTokens: 400, OutputTokens: 7}},
		{Runs: 1, Tasks: 1, Usage: state.Usage{InputTokens: 5}},
	}
	want := [][]string{
		{"AGENT", "RUNS", "TASKS", "INPUT", "CACHED", "OUTPUT"},
		{"codex", "  10", "    9", " 1000", "   400", "     7"},
		{"-", "   1", "    1", "    5", "     0", "     0"},
		{"total", "  11", "     ", " 1005", "   400", "     7"},
	}
	if got := usageTable("agent", rows); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
	// Money has a column once there is some, and no figure where a CLI tells none; one
	// row needs no sum.
	rows[0].CostUSD = 0.25
	for i, row := range usageTable("agent", rows) {
		if cost := []string{"   COST", "$0.2500", "      -", "$0.2500"}[i]; row[6] != cost {
			t.Errorf("row %d costs %q, want %q", i, row[6], cost)
		}
	}
	want = [][]string{
		{"TOTAL", "RUNS", "TASKS", "INPUT", "CACHED", "OUTPUT", "   COST"},
		{"total", "  10", "    9", " 1000", "   400", "     7", "$0.2500"},
	}
	if got := usageTable("total", rows[:1]); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
	rows[1].Key = "01a1fcac-dc6d-769a-8c86-84d75f21a9c2"
	if got := usageTable("task", rows[1:]); got[1][0] != shortID(rows[1].Key) {
		t.Errorf("a task is named %q", got[1][0])
	}
}
