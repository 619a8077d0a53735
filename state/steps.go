package state

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
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

// LastAttempt returns the steps of a task's newest attempt, from the last time that its
// agent began the first iteration: a first turn that was cut off and is made again is left
// out. What was interrupted later goes on in the same attempt.
func LastAttempt(steps []Step) []Step {
	for i := len(steps) - 1; i > 0; i-- {
		if steps[i].Phase == "" && steps[i].Iteration <= 1 {
			return steps[i:]
		}
	}
	return steps
}

// StepsAfter returns the steps of a task with a record of it, sec, which made after of
// before; steps are those until then.
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

// end notes that the step has ended with a record that made t of its task, and with what:
// coded and checked say whether that record has an exit code of the task, and one of its
// verify command.
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
func ParseSteps(text string) (steps []Step, err error) {
	for line := range strings.Lines(text) {
		s, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("the step %q: %w", Cut(strings.TrimSpace(line), 40), err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func parseStep(line string) (s Step, err error) {
	m, err := ParseWords(line)
	if err != nil {
		return s, err
	}
	var errs [6]error
	s.RunID, s.Took, s.Reason = m["run"], m["took"], Class(m["reason"])
	s.Phase, errs[0] = parsePhase([]byte(m["phase"]))
	s.Attempt, errs[1] = parseCount([]byte(m["attempt"]))
	s.Iteration, errs[2] = parseCount([]byte(m["iteration"]))
	s.Started, errs[3] = ParseTime(m["started"])
	s.Ended, errs[4] = ParseTime(m["ended"])
	s.ExitCode, errs[5] = parseExit([]byte(m["exit"]))
	return s, cmp.Or(errs[:]...)
}
