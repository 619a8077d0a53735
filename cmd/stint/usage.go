package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/query"
	"stint/coordinator/task"
	"stint/state"
)

// usageBy are what runs can be put together by.
var usageBy = []string{"day", "agent", "model", "account", "session", "task", "run", "total"}

func (a *app) usageCommand() *cobra.Command {
	var by, since, until string
	c := command("usage [OPTIONS]", "print what runs have used, by day, agent, session or task", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		const try = "stint usage --help"
		for name := range strings.SplitSeq(by, ",") {
			if !slices.Contains(usageBy, name) || name == "total" && by != name {
				return usage(try, "--by: %q is not one of %s", name, strings.Join(usageBy, ", "))
			}
		}
		now := time.Now()
		from, err := parsePast(since, now, 0, 15*time.Minute)
		if err != nil {
			return usage(try, "--since: %v", err)
		}
		to, err := parsePast(until, now, 1, 15*time.Minute)
		if err != nil {
			return usage(try, "--until: %v", err)
		}
		var rows []task.UsageRow
		dir, none, err := a.stateMissing()
		if err == nil && !none {
			rows, err = a.readUsage(c.Context(), dir, task.UsageQuery{By: map[bool]string{false: by}[by == "total"], Since: from, Until: to, Location: now.Location()})
		}
		switch {
		case err != nil:
			return err
		case a.json:
			return printEach(a.stdout, rows)
		case len(rows) == 0:
			a.hint("stint: no runs\n")
			return nil
		}
		return writeTable(a.stdout, escapeRows(usageTable(by, rows)), nil)
	})
	f := c.Flags()
	f.StringVar(&by, "by", "day", "one row for each `key`, or for each of several with commas: "+strings.Join(usageBy, ", "))
	f.StringVar(&since, "since", "", "runs that ended at this `time` or later: 7d, 2026-11-21, \"2026-11-21 15:04\"")
	f.StringVar(&until, "until", "", "runs that ended before this `time`, or on this day or before it")
	a.withJSON(c)
	complete(c, "by", func() []string { return usageBy })
	return c
}

// readUsage asks the master that is at work, which has the sums in memory, or reads the state directory.
func (a *app) readUsage(ctx context.Context, dir string, q task.UsageQuery) ([]task.UsageRow, error) {
	v := url.Values{"by": {cmp.Or(q.By, "total")}, "since": {state.ExactTime(q.Since)}, "until": {state.ExactTime(q.Until)}, "location": {zoneName()}}
	if !strings.Contains(q.By, "run") && !strings.Contains(q.By, "task") {
		out, err := fetch[struct{ Rows []task.UsageRow }](ctx, a.callRunning, http.MethodGet, "/v1/usage?"+v.Encode(), nil)
		if err == nil {
			return out.Rows, nil
		}
	}
	return query.ReadUsage(ctx, dir, q)
}

// zoneName returns the name of the local time zone, and one that nobody knows where it has none.
func zoneName() string {
	if name, isSet := os.LookupEnv("TZ"); isSet {
		return cmp.Or(name, "UTC")
	}
	link, err := filepath.EvalSymlinks("/etc/localtime")
	if err != nil {
		return "UTC"
	}
	_, name, _ := strings.Cut(link, "zoneinfo/")
	return cmp.Or(name, link)
}

// parsePast reads an instant that lies behind: how long ago, to such a unit if that is far less, a time as [parseAt]
// knows it, or a day, which means its midnight, and so many days after it. "" is no instant.
func parsePast(s string, now time.Time, after int, unit time.Duration) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := parseDuration(s); err == nil {
		return now.Add(-d).Truncate(min(d/4, unit)), nil
	}
	if t, err := time.ParseInLocation("2006-01-02", s, now.Location()); err == nil {
		return t.AddDate(0, 0, after), nil
	}
	if t, err := parseAt(s, now); err == nil {
		if _, err := time.Parse("15:04", s); err == nil { // the last time that the clock has shown it, not the next one
			t = t.AddDate(0, 0, -1)
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 18:00, 2026-11-21 or \"2026-11-21 15:04\" nor how long ago it was, such as 12h or 7d", s)
}

// usageTable returns the rows for people, with a sum below. Money has a column if any was spent.
func usageTable(by string, rows []task.UsageRow) [][]string {
	var sum task.UsageRow
	for _, r := range rows {
		sum.Runs += r.Runs
		sum.Usage = sum.Plus(r.Usage)
	}
	names := mapped(rows, func(r *task.UsageRow) string { return cmp.Or(r.Key, "-") })
	switch by {
	case "task", "run":
		names = shortIDs(names)
	case "total":
		names = []string{by}
	}
	if len(rows) > 1 {
		names, rows = append(names, "total"), append(rows, sum)
	}
	table := [][]string{{strings.ToUpper(by), "RUNS", "TASKS", "INPUT", "CACHED", "OUTPUT", "COST"}}
	for i, r := range rows {
		tasks, cost := strconv.Itoa(r.Tasks), fmt.Sprintf("$%.4f", r.CostUSD)
		if i > 0 && i == len(rows)-1 {
			tasks = "" // a task may stand in several rows
		}
		if r.CostUSD == 0 {
			cost = "-" // the CLI tells none, which is not the same as no cost
		}
		table = append(table, []string{
			names[i], strconv.Itoa(r.Runs), tasks,
			strconv.FormatInt(r.InputTokens, 10), strconv.FormatInt(r.CachedInputTokens, 10), strconv.FormatInt(r.OutputTokens, 10), cost,
		})
	}
	if sum.CostUSD == 0 {
		drop(table, "COST")
	}
	for x := 1; x < len(table[0]); x++ {
		width := 0
		for _, row := range table {
			width = max(width, len(row[x]))
		}
		for _, row := range table {
			row[x] = fmt.Sprintf("%*s", width, row[x])
		}
	}
	return table
}
