package state

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
	"stint/state/limits"
)

// A Step is one run of a task, at work or ended, as the task's records show it.
type Step struct {
	RunID     string
	Phase     Phase // what it carried out
	Attempt   int
	Iteration int       // iteration of the verify loop, from 1
	Started   time.Time // zero if the records do not say, as Ended is
	Ended     time.Time
	ExitCode  *int   // of an agent's turn, if the record of its end says it, or of a verify command that was not cut off; -1: that did not end by itself
	Took      string // how long that command took
	Reason    Class  // how it failed; "": it ended well, or is at work
}

// An Iteration is one iteration of the verify loop whose command has ended.
type Iteration struct {
	Iteration int       `json:"iteration" doc:"Number of the iteration, from 1" example:"1"`
	Attempt   int       `json:"attempt" doc:"Attempt that it belongs to" example:"1"`
	ExitCode  int       `json:"exitCode" doc:"Exit code of the verify command; -1: it did not end by itself" example:"1"`
	Duration  string    `json:"duration" doc:"How long the verify command took: a Go duration" example:"8.2s"`
	RunID     string    `json:"runId" doc:"Id of its run" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	EndedAt   time.Time `json:"endedAt,omitzero" doc:"When the verify command ended" example:"2026-11-21T03:15:09.482Z"`
}

// Iterations returns the iterations of the verify loop among steps.
func Iterations(steps []Step) (list []Iteration) {
	for _, s := range steps {
		if s.Phase == PhaseVerify && s.ExitCode != nil {
			list = append(list, Iteration{s.Iteration, s.Attempt, *s.ExitCode, s.Took, s.RunID, s.Ended})
		}
	}
	return list
}

// LastAttempt returns the steps of a task's newest attempt, from the last time that its agent began the first iteration: a
// first turn that was cut off and is made again is left out. What was interrupted later goes on in the same attempt.
func LastAttempt(steps []Step) []Step {
	for i := len(steps) - 1; i > 0; i-- {
		if steps[i].Phase == "" && steps[i].Iteration <= 1 {
			return steps[i:]
		}
	}
	return steps
}

// StepsAfter returns the steps of a task with a record of it, sec, which made after of before; steps are those until then.
func StepsAfter(steps []Step, before, after *Task, sec *ledger.Section) []Step {
	if f := sec.Get(KeySteps); f != nil {
		steps, _ = ParseSteps(f.String()) // what cannot be read was refused
		return steps
	}
	if before.Status == "" {
		return MergedSteps(after)
	}
	same := before.Status == Running && after.Status == Running && before.RunID == after.RunID
	if last := len(steps) - 1; before.Status == Running && !same && last >= 0 {
		s := &steps[last]
		s.end(after, sec.Get(KeyExitCode) != nil, sec.Get(KeyVerifyExitCode) != nil)
		s.Reason = s.failure(after, after.By != "")
	}
	if after.Status == Running && !same {
		steps = append(steps, beginStep(after))
	}
	return steps
}

// MergedSteps returns the step that the first record of a task shows, which is one
// at most. The phase of a task that waits is that of its next run.
func MergedSteps(t *Task) []Step {
	if t.Status != Running && (t.RunID == "" || !t.Status.Terminal()) {
		return nil
	}
	s := beginStep(t)
	if t.Status != Running {
		s.end(t, true, true)
		s.Reason = s.failure(t, false)
	}
	return []Step{s}
}

func beginStep(t *Task) Step {
	return Step{RunID: t.RunID, Phase: t.Phase, Attempt: t.Attempt, Iteration: max(1, t.Iteration), Started: t.RunStartedAt}
}

// end notes that the step has ended with a record that made t of its task, and with what: coded and checked
// say whether that record has an exit code of the task, and one of its verify command.
func (s *Step) end(t *Task, coded, checked bool) {
	s.Ended = t.UpdatedAt
	switch {
	case s.Phase == PhaseVerify && checked:
		s.ExitCode, s.Took = t.VerifyExitCode, t.VerifyTime
	case s.Phase == "" && coded:
		s.ExitCode = t.ExitCode
	}
}

// failure returns how a step failed that has ended so; taken: somebody took its task out of
// it. How the task ends is the doing of what is judged, not of its evaluation.
func (s *Step) failure(t *Task, taken bool) Class {
	switch {
	case s.Phase == PhaseVerify && s.ExitCode != nil && *s.ExitCode != 0:
		return ClassVerify
	case s.Phase == PhaseVerify && s.ExitCode != nil, t.Status == Running:
		return ""
	case taken, t.Status == Canceled:
		return ClassCanceled
	case t.Status == Done, s.Phase == PhaseEvaluate && t.Reason != ClassInterrupted && t.Reason != ClassOrphaned:
		return ""
	}
	return t.Reason
}

// Same reports whether two steps say the same.
func (s Step) Same(o Step) bool {
	exits := s.ExitCode == o.ExitCode || s.ExitCode != nil && o.ExitCode != nil && *s.ExitCode == *o.ExitCode
	s.ExitCode, o.ExitCode = nil, nil
	return exits && s == o
}

// FormatSteps returns the value of steps: a line for each.
func FormatSteps(steps []Step) string {
	lines := make([]string, len(steps))
	for i, s := range steps {
		exit := ""
		if s.ExitCode != nil {
			exit = strconv.Itoa(*s.ExitCode)
		}
		lines[i] = FormatWords("run", s.RunID, "phase", string(s.Phase), "attempt", strconv.Itoa(s.Attempt), "iteration", strconv.Itoa(s.Iteration),
			"started", ExactTime(s.Started), "ended", ExactTime(s.Ended), "exit", exit, "took", s.Took, "reason", string(s.Reason))
	}
	return strings.Join(lines, "\n")
}

// ParseSteps is the inverse of formatSteps.
func ParseSteps(text string) ([]Step, error) {
	return ParseLines("step", text, func(m map[string]string) (s Step, err error) {
		var errs [6]error
		s.RunID, s.Took, s.Reason = m["run"], m["took"], Class(m["reason"])
		s.Phase, errs[0] = parsePhase([]byte(m["phase"]))
		s.Attempt, errs[1] = parseCount([]byte(m["attempt"]))
		s.Iteration, errs[2] = parseCount([]byte(m["iteration"]))
		s.Started, errs[3] = ParseTime(m["started"])
		s.Ended, errs[4] = ParseTime(m["ended"])
		s.ExitCode, errs[5] = parseExit([]byte(m["exit"]))
		return s, cmp.Or(errs[:]...)
	})
}

// A Run is one execution of an agent for a task that has ended, as the task's records show it.
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
		runs, _ = ParseRuns(f.String()) // what cannot be read was refused
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
	if last := len(runs) - 1; last >= 0 && IsLate(before, after) {
		runs[last].Usage = runs[last].Usage.Plus(after.Usage.since(before.Usage))
	}
	return runs
}

// FormatRuns returns the value of endedRuns: a line for each run.
func FormatRuns(runs []Run) string {
	lines := make([]string, len(runs))
	for i, r := range runs {
		took := "" // not known
		if r.Took != 0 {
			took = r.Took.String()
		}
		lines[i] = FormatWords("run", r.ID, "session", r.SessionKey, "agent", r.Agent, "model", r.Model, "account", r.Account,
			"ended", ExactTime(r.Ended), "used", FormatThread(r.Usage), "took", took)
	}
	return strings.Join(lines, "\n")
}

// ParseRuns is the inverse of FormatRuns, but for the task's id.
func ParseRuns(text string) ([]Run, error) {
	return ParseLines("run", text, func(m map[string]string) (Run, error) {
		r := Run{ID: m["run"], SessionKey: m["session"], Agent: m["agent"], Model: m["model"], Account: m["account"]}
		var errs [3]error
		r.Ended, errs[0] = ParseTime(m["ended"])
		r.Usage, errs[1] = ParseThread([]byte(m["used"]))
		if m["took"] != "" {
			r.Took, errs[2] = time.ParseDuration(m["took"])
		}
		return r, cmp.Or(errs[:]...)
	})
}

// IsLate reports whether a record has what the last run used: a person had taken the task out of it, and it ended after that.
func IsLate(before, after *Task) bool {
	return before.Status != Running && after.Status != Running && after.By == "" && before.Usage != after.Usage
}

// MergedRun returns the run that the first record of a task shows, which is one at most.
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
	if r, ok = endedRun(before, after); ok || before.Status == "" || !IsLate(before, after) {
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

func sum[T int64 | float64](u, v T) T   { return max(u, v, u+v) } // one that is too large is none
func grown[T int64 | float64](u, v T) T { return max(0, u-v) }

// Plus returns the sum of two amounts.
func (u Usage) Plus(v Usage) Usage { return u.Combine(v, sum, sum) }

// Grown returns by how much each amount is more than that of old.
func (u Usage) Grown(old Usage) Usage { return u.Combine(old, grown, grown) }

// SpendingOf returns what was spent in runs that used that and took so long.
func SpendingOf(u Usage, took time.Duration) limits.Spending {
	return limits.Spending{USD: u.CostUSD, Tokens: sum(u.InputTokens, u.OutputTokens), Time: took}
}

// SpentBy returns what the runs of a task, whole, have spent that have ended.
func SpentBy(t *Task) limits.Spending {
	spent := SpendingOf(t.Usage, 0)
	for _, step := range t.Steps {
		if step.Ended.After(step.Started) && !step.Started.IsZero() && step.Phase != PhaseVerify {
			spent.Time += step.Ended.Sub(step.Started)
		}
	}
	return spent
}
