package admission

import (
	"cmp"
	"fmt"
	"strings"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// sessionPlace is what a session is the current one of.
type sessionPlace struct{ lane, agent, account string }

// lane returns the lane that the task has unless it is parallel.
func (s *submission) lane() string {
	return cmp.Or(s.SessionKey, state.LanePrefixDir+s.root)
}

// resumeOf returns the resume policy of a spec.
func (a *Admission) resumeOf(s *submission) string {
	return cmp.Or(s.Resume, a.tasks.Workspace(s.Workspace).ResumePolicy, "auto")
}

// sessionFor decides about lane and session of a new task. Tasks of a named session share both. Without a name,
// the lane is the directory's, and the session is new unless the task continues the last one.
func (in *intake) sessionFor(st *fold.State, s *submission, tx *ledger.Tx) (lane, id string, err error) {
	s.account = in.accountFor(st, s)
	if s.Parallel {
		return state.LanePrefixTask + s.ID, s.session, nil
	}
	at := sessionPlace{s.lane(), s.Agent, s.account}
	goesOn := s.SessionKey != "" || s.Continue
	if goesOn && s.resume != "never" && s.AgentSession == "" {
		id = in.currentSession(st, at)
		if id == "" && s.Continue {
			what, hint := fmt.Sprintf("there is no session of %s to continue in %s", s.Agent, strings.TrimPrefix(at.lane, state.LanePrefixDir)), "leave --continue out"
			if s.since != "" {
				what, hint = what+"; the last conversation there is session "+s.since, "stint task --session "+s.since
			}
			return "", "", &task.Error{Code: task.CodeNotFound, Message: what, Hint: hint, Field: "continue"}
		}
		if id == "" {
			tx.Claim("session " + at.lane) // two first tasks of a session must not both begin it
		}
	}
	id = cmp.Or(id, s.session)
	if len(in.list) > 1 { // for those that follow
		in.begun[at], in.accounts[sessionPlace{lane: at.lane, agent: at.agent}] = id, at.account
	}
	return at.lane, id, nil
}

// accountFor returns the account with which a task begins: the one that its spec names, the one
// that has the conversation that it goes on with, or one that can take it now.
func (in *intake) accountFor(st *fold.State, s *submission) (account string) {
	goesOn := !s.Parallel && (s.SessionKey != "" || s.Continue)
	switch {
	case s.Account != "":
		return s.Account
	case s.AgentSession != "":
		_, account, _ = st.NativeOwner(s.AgentSession)
		account = cmp.Or(account, s.Agent) // one of the user's own, which began elsewhere
	case goesOn:
		if account = in.accounts[sessionPlace{lane: s.lane(), agent: s.Agent}]; account == "" {
			_, account = st.LaneAgent(s.lane(), []string{s.Agent})
		}
	}
	if known, ok := in.configured.Find(account); ok && known.Tool == s.Agent {
		return account
	}
	account, _ = in.configured.Choose(st, s.Agent, lanes.Limits{Account: in.configured.Rule}, nil)
	return account
}

// currentSession returns the session that the next task there goes on with, also one of this intake; "": none.
func (in *intake) currentSession(st *fold.State, at sessionPlace) string {
	if id, ok := in.begun[at]; ok {
		return id
	}
	current, _ := st.CurrentSession(at.lane, at.agent, at.account)
	return current.ID
}

// lookForNamed notes the named session that was used last in the directory where a
// submission continues the conversation without a name, if that was used before.
func (a *Admission) lookForNamed(s *submission) {
	const most = 100 // sessions that are looked at: the last task of each may have to be read
	var current state.Session
	var sessions []state.Session
	a.tasks.View(func(st *fold.State) {
		current, _ = st.CurrentSession(s.lane(), s.Agent, a.emptyIntake().accountFor(st, s))
		sessions = st.Sessions()
	})
	for _, named := range sessions[:min(len(sessions), most)] {
		if !named.UpdatedAt.After(current.UpdatedAt) {
			return
		}
		if last, err := a.tasks.Whole(named.LastTask); err == nil && task.IsNamedLane(named.Key) && last.Workspace != "" && task.CheckoutAbove(last.Workspace) == s.root {
			s.since = named.Key
			break
		}
	}
	if s.since != "" && current.ID != "" {
		s.note = "this continues the last conversation without a name; session " + s.since + " was used here since: stint task --session " + s.since
	}
}
