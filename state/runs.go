package state

import (
	"cmp"
	"strings"
	"time"

	"stint/ledger"
)

// A Run is one execution of an agent for a task that has ended, as the task's
// records show it.
type Run struct {
	ID         string // "" if the records do not say
	TaskID     string
	SessionKey string
	Agent      string
	Model      string
	Account    string    // as Task.AccountName returns it
	Ended      time.Time // zero if the records do not say
	Usage      Usage     // of this run alone
	Took       time.Duration
}

// RunsAfter returns the runs of a task that have ended with a record of it, sec, which
// made after of before; runs are those until then.
func RunsAfter(runs []Run, before, after *Task, sec *ledger.Section) []Run {
	if f := sec.Get(KeyEndedRuns); f != nil {
		runs, _ = parseRuns(f.String()) // what cannot be read was refused
		for i := range runs {
			runs[i].TaskID = after.ID
		}
		return runs
	}
	if before.Status == "" {
		return MergedRun(after)
	}
	if r, ended := endedRun(before, after); ended {
		return append(runs, r)
	}
	if last := len(runs) - 1; last >= 0 && lateUsage(before, after) {
		runs[last].Usage = runs[last].Usage.Plus(after.Usage.since(before.Usage))
	}
	return runs
}

// FormatRuns returns the value of endedRuns: a line for each run.
func FormatRuns(runs []Run) string {
	lines := make([]string, len(runs))
	for i, r := range runs {
		lines[i] = FormatWords("run", r.ID, "session", r.SessionKey, "agent", r.Agent, "model", r.Model, "account", r.Account,
			"ended", ExactTime(r.Ended), "used", FormatThread(r.Usage), "took", formatTook(r.Took))
	}
	return strings.Join(lines, "\n")
}

// parseRuns is the inverse of formatRuns, but for the task's id.
func parseRuns(text string) (runs []Run, err error) {
	for line := range strings.Lines(text) {
		m, err := ParseWords(line)
		if err != nil {
			return nil, err
		}
		r := Run{ID: m["run"], SessionKey: m["session"], Agent: m["agent"], Model: m["model"], Account: m["account"]}
		var errs [3]error
		r.Ended, errs[0] = ParseTime(m["ended"])
		r.Usage, errs[1] = ParseThread([]byte(m["used"]))
		if m["took"] != "" {
			r.Took, errs[2] = time.ParseDuration(m["took"])
		}
		if err := cmp.Or(errs[:]...); err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// formatTook returns how long a run took, with milliseconds; "" if that is not known.
func formatTook(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// lateUsage reports whether a record has what the last run used: a person had
// taken the task out of it, and it ended after that.
func lateUsage(before, after *Task) bool {
	return before.Status != Running && after.Status != Running && after.By == ""
}

// MergedRun returns the run that the first record of a task shows, which is
// one at most.
func MergedRun(t *Task) []Run {
	if t.RunID == "" || t.Status == Running && t.Usage == (Usage{}) {
		return nil
	}
	return []Run{runOf(t, t.UpdatedAt, t.Usage)}
}

// endedRun returns the run that a record ends. What it used is what the task's totals
// have grown by; where they went down, they were begun anew.
func endedRun(before, after *Task) (r Run, ended bool) {
	if before.Status != Running || before.Phase == PhaseVerify || after.Status == Running && after.RunID == before.RunID {
		return Run{}, false
	}
	return runOf(before, after.UpdatedAt, after.Usage.since(before.Usage)), true
}

// Spent returns the run of which a record tells that it spent something: of one that it ends all, and
// of one that a person had taken the task out of, when that ends, what it used.
func Spent(before, after *Task) (r Run, ok bool) {
	if r, ok = endedRun(before, after); ok || before.Status == "" || !lateUsage(before, after) {
		return r, ok
	}
	r = runOf(before, after.UpdatedAt, after.Usage.since(before.Usage))
	r.Took = 0 // until it was taken out
	return r, true
}

func runOf(t *Task, ended time.Time, u Usage) Run {
	r := Run{ID: t.RunID, TaskID: t.ID, SessionKey: t.SessionKey, Agent: t.Agent, Model: t.Model, Account: t.AccountName(), Ended: ended, Usage: u}
	if !t.RunStartedAt.IsZero() && ended.After(t.RunStartedAt) {
		r.Took = ended.Sub(t.RunStartedAt).Round(time.Millisecond)
	}
	return r
}

// since returns what was added to old to make u.
func (u Usage) since(old Usage) Usage {
	if old.Grown(u) != (Usage{}) { // some amount went down
		return u
	}
	return u.Grown(old)
}

// Combine returns the amounts that tokens and usd make of those of u and v.
func (u Usage) Combine(v Usage, tokens func(u, v int64) int64, usd func(u, v float64) float64) Usage {
	return Usage{
		InputTokens: tokens(u.InputTokens, v.InputTokens), CachedInputTokens: tokens(u.CachedInputTokens, v.CachedInputTokens),
		OutputTokens: tokens(u.OutputTokens, v.OutputTokens), ReasoningTokens: tokens(u.ReasoningTokens, v.ReasoningTokens),
		CostUSD: usd(u.CostUSD, v.CostUSD),
	}
}

func sum[T int64 | float64](u, v T) T   { return u + v }
func grown[T int64 | float64](u, v T) T { return max(0, u-v) }

// Plus returns the sum of two amounts.
func (u Usage) Plus(v Usage) Usage { return u.Combine(v, sum, sum) }

// Grown returns by how much each amount is more than that of old.
func (u Usage) Grown(old Usage) Usage { return u.Combine(old, grown, grown) }
