package coordinator

import (
	"fmt"
	"slices"

	"stint/ledger"
	"stint/state"
)

// What a run asks for. An agent can call stint; what it queues is the work of its
// task's run, and no user's: it is bounded like follow-ups, and what would give it
// more than its own task has waits for a person.

// ErrFromRun is what a run gets that asks for more than to queue tasks and to read.
var ErrFromRun = &Error{
	Code: CodeForbidden, Message: "a run may queue tasks and read, not change them",
	Hint: "leave it to the user, who can do it outside of the run",
}

// belongTo makes a submission that came from a run one of the run's task.
func (in *intake) belongTo(s *submission, tx *ledger.Tx) error {
	c := in.c
	c.mu.Lock()
	parent, ok := c.state.RunningAs(s.FromRun)
	t, _ := c.state.Peek(parent)
	c.mu.Unlock()
	if !ok {
		return &Error{
			Code: CodeForbidden, Message: fmt.Sprintf("run %s, which asks for it, does not run any more, or not here", s.FromRun),
			Hint: "a run queues tasks while it lasts, in the state directory that it belongs to",
		}
	}
	s.parent, s.trigger = parent, state.ByAgent
	tx.Claim(string(ledger.KindTask) + " " + parent) // its end, and what else it queues, are decided after this
	s.note = ""
	if v := s.VerifyCommand; v != "" && v != NoVerify && v != c.workspace(s.Workspace).VerifyCommand {
		s.note = "an agent named its verify command, which is run as you: look at verifyCommand in stint show"
	}
	if s.Workspace != t.Workspace && !isBelow(s.Workspace, repositoryRoot(t.Workspace)) {
		s.note = "an agent of " + first(t.Workspace, "another directory") + " asked for it: look at prompt and workspace in stint show"
	}
	if s.note != "" {
		s.Hold, s.note = true, s.note+", then stint release "+s.ID
	}
	return nil
}

// checkAwait refuses a task for which its client would wait in vain: the client is
// part of a run that has to end first.
func (in *intake) checkAwait(s *submission, lane string) error {
	c := in.c
	if s.FromRun == "" || !s.Await {
		return nil
	}
	c.mu.Lock()
	parent, _ := c.state.Peek(s.parent)
	c.mu.Unlock()
	why := ""
	switch {
	case s.Hold:
		why = "it is held until a person releases it"
	case slices.Contains(s.after, s.parent):
		why = "it comes after the task that waits for it"
	case lane == parent.Lane():
		why = "both are in " + laneText(lane) + ", which runs one task at a time"
	case c.cfg.MaxWorkers == 1:
		why = "there is one worker"
	default:
		return nil
	}
	hint := "stint task -d, or --parallel"
	if lane != parent.Lane() || s.Hold {
		hint = "stint task -d"
	}
	return &Error{Code: CodeConflict, Message: "this run would wait for a task that cannot run before this run has ended: " + why, Hint: hint}
}

// laneText names a lane in a sentence.
func laneText(lane string) string {
	if isNamedLane(lane) {
		return "session " + lane
	}
	return "the lane of its directory"
}
