package query

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/fold"
)

// usageKeys returns the key of a run for each way to put runs together.
var usageKeys = map[string]func(*state.Run, *time.Location) string{
	"":     func(*state.Run, *time.Location) string { return "" },
	"run":  func(r *state.Run, _ *time.Location) string { return r.ID },
	"task": func(r *state.Run, _ *time.Location) string { return r.TaskID },
	"session": func(r *state.Run, _ *time.Location) string {
		if strings.HasPrefix(r.SessionKey, state.LanePrefixTask) {
			return "" // a lane of its own is no session that anyone goes on with
		}
		return r.SessionKey
	},
	"agent":   func(r *state.Run, _ *time.Location) string { return r.Agent },
	"model":   func(r *state.Run, _ *time.Location) string { return r.Model },
	"account": func(r *state.Run, _ *time.Location) string { return r.Account },
	"day": func(r *state.Run, in *time.Location) string {
		if r.Ended.IsZero() {
			return ""
		}
		return r.Ended.In(in).Format(time.DateOnly)
	},
}

// ReadUsage adds up what runs have used, from the journal and the archive of a state directory. It needs no lock: a master may
// be at work. A session is named by its key; tasks with a lane of their own have none. Days come newest first, all else by
// tokens, most first; a query for all in one row gives just that one. The error of an unknown By is an *Error.
func ReadUsage(ctx context.Context, dir string, q task.UsageQuery) ([]task.UsageRow, error) {
	st, err := queue.FoldDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	return UsageOf(ctx, st, dir, q)
}

// isSummed reports whether the sums of a fold have what is asked for.
func isSummed(q task.UsageQuery) bool {
	isWhole := q.Since.Truncate(fold.Quarter).Equal(q.Since) && q.Until.Truncate(fold.Quarter).Equal(q.Until)
	return isWhole && !strings.Contains(q.By, "run") && !strings.Contains(q.By, "task")
}

// UsageOf is ReadUsage with the journal as it was folded.
func UsageOf(ctx context.Context, st *fold.State, dir string, q task.UsageQuery) ([]task.UsageRow, error) {
	return addUp(q, func(add func(...fold.Used)) error {
		if isSummed(q) && st.HasUsed() {
			add(st.Used()...)
			return nil
		}
		return queue.EachRuns(st, dir, func(runs []state.Run) error {
			for i, r := range runs {
				add(fold.Used{Run: r, Runs: 1, Tasks: max(0, 1-i)}) // a task counts where its first run does
			}
			return context.Cause(ctx) // a journal may be large, and whoever asked may be gone
		})
	})
}

// addUp puts together what each adds.
func addUp(q task.UsageQuery, each func(add func(...fold.Used)) error) ([]task.UsageRow, error) {
	names := strings.Split(q.By, ",")
	for _, name := range names {
		if usageKeys[name] == nil {
			known := slices.DeleteFunc(slices.Sorted(maps.Keys(usageKeys)), func(s string) bool { return s == "" })
			return nil, task.Invalid("use some of "+strings.Join(known, ", ")+", with commas between them", "usage cannot be put together by %q", name)
		}
	}
	q.Location = cmp.Or(q.Location, time.UTC)
	sums := map[string]*task.UsageRow{}
	if q.By == "" {
		sums[""] = &task.UsageRow{}
	}
	err := each(func(list ...fold.Used) {
		for i := range list {
			u := &list[i]
			if u.Runs == 0 || u.Ended.Before(q.Since) || !q.Until.IsZero() && !u.Ended.Before(q.Until) {
				continue
			}
			var parts []string
			for _, name := range names {
				parts = append(parts, usageKeys[name](&u.Run, q.Location))
			}
			key := strings.Join(parts, ", ")
			if sums[key] == nil {
				sums[key] = &task.UsageRow{Key: key}
			}
			row := sums[key]
			row.Runs, row.Tasks, row.Usage = row.Runs+u.Runs, row.Tasks+u.Tasks, row.Plus(u.Usage)
		}
	})
	if err != nil {
		return nil, err
	}
	rows := []task.UsageRow{}
	for _, r := range sums {
		r.CostUSD = math.Round(min(r.CostUSD, 1e15)*1e9) / 1e9 // sums of decimal fractions; more is a slip of a hand
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b task.UsageRow) int {
		switch {
		case q.By == "day":
			return cmp.Compare(b.Key, a.Key)
		case len(names) > 1:
			return cmp.Compare(a.Key, b.Key)
		}
		tokens := cmp.Compare(b.InputTokens+b.OutputTokens, a.InputTokens+a.OutputTokens)
		return cmp.Or(tokens, cmp.Compare(b.CostUSD, a.CostUSD), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Key, b.Key))
	})
	return rows, nil
}

// Usage is ReadUsage of the master's own files, which it reads if the sums that it has do not answer.
func (q *Query) Usage(ctx context.Context, by task.UsageQuery) ([]task.UsageRow, error) {
	var list []fold.Used
	q.tasks.View(func(st *fold.State) {
		if isSummed(by) && st.HasUsed() {
			list = st.Used() // what is made of them takes longer
		}
	})
	if list != nil {
		return addUp(by, func(add func(...fold.Used)) error { add(list...); return nil })
	}
	return ReadUsage(ctx, q.tasks.Config.StateDir, by)
}
