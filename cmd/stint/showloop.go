package main

import (
	"fmt"
	"strings"

	"stint/state"
)

// What is shown of a verify loop.

// roundOf says in which round of the loop a task is or has ended: "2 of 3"; "" if
// there is no loop.
func roundOf(t *state.Task) string {
	switch {
	case t.Iteration == 0 || t.VerifyCommand == "":
		return ""
	case t.MaxIterations == 0:
		return fmt.Sprint(t.Iteration)
	}
	return fmt.Sprintf("%d of %d", t.Iteration, t.MaxIterations)
}

// phaseOf says what the run of a task that is running does, if that is more than an
// agent's first turn: "verify 2/3".
func phaseOf(t *state.Task) string {
	round := strings.ReplaceAll(roundOf(t), " of ", "/")
	switch {
	case t.Phase == state.PhaseVerify:
		return strings.TrimSpace("verify " + round)
	case t.Phase != "":
		return string(t.Phase)
	case t.Iteration > 1 && round != "":
		return "round " + round
	}
	return ""
}

// lastCheck says how the verify command ended when it was last run.
func lastCheck(t *state.Task) string {
	if t.VerifyExitCode == nil {
		return ""
	}
	return checkEnd(*t.VerifyExitCode) + " after " + t.VerifyTime
}

func checkEnd(code int) string {
	switch {
	case code == 0:
		return "passed"
	case code < 0:
		return "did not end by itself"
	}
	return fmt.Sprintf("exit code %d", code)
}

// roundList has a line for each round whose verify command has ended. Each attempt
// counts its rounds from 1.
func roundList(list []state.Iteration) string {
	lines := make([]string, len(list))
	for i, r := range list {
		round := fmt.Sprint(r.Iteration)
		if r.Attempt > 1 {
			round = fmt.Sprintf("attempt %d, round %d", r.Attempt, r.Iteration)
		}
		lines[i] = fmt.Sprintf("%s  %s after %s, run %s", round, checkEnd(r.ExitCode), r.Duration, r.RunID)
	}
	return strings.Join(lines, "\n")
}

func findingList(list []state.Issue) string {
	lines := make([]string, len(list))
	for i, f := range list {
		lines[i] = f.Kind + ": " + oneLine(f.Message)
	}
	return strings.Join(lines, "\n")
}
