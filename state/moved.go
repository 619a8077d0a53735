package state

import (
	"strconv"

	"stint/ledger"
)

// LeftBehind gives the fields that a person's record takes from a task by giving it
// another session key or agent: its session, which stays where it is, with what a run
// has learned there, and the account of the old agent. Its next run finds those of
// its new place. One that has ended and is queued again begins with the first round
// of its verify loop. What the record names itself counts as it is.
func (s *State) LeftBehind(r *ledger.Record) (fields []ledger.Pair) {
	now, err := s.nowOf([]byte(r.ID))
	if r.Kind != ledger.KindTask || err != nil || now.Status == "" || now.Status == Running {
		return nil // what cannot be read is told when the record is checked
	}
	leave := func(key, value string) {
		if _, named := r.Get(key); !named && value != "" {
			fields = append(fields, ledger.Pair{Key: key})
		}
	}
	key, moved := r.Get(KeySessionKey)
	moved = moved && key != now.SessionKey
	agent, given := r.Get(KeyAgent)
	if tool, ok := r.Get(KeyTool); ok {
		agent, given = tool, true
	}
	given = given && agent != now.Agent
	if moved || given {
		leave(KeySessionID, now.SessionID)
	}
	if given && now.Account == now.Agent {
		leave(KeyAccount, now.Account)
	}
	if moved && now.RunID != "" && !namesNative(r) {
		for i, agent := range agents {
			leave(NativeKey(agent), now.natives[i])
		}
	}
	if to, _ := r.Get(KeyStatus); now.Status.Terminal() && to == string(Queued) {
		leave(KeyPhase, string(now.Phase))
		leave(KeyIteration, orNone(now.Iteration))
	}
	return fields
}

// orNone gives a number, "" for 0.
func orNone(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func namesNative(r *ledger.Record) bool {
	for _, agent := range agents {
		if _, ok := r.Get(NativeKey(agent)); ok {
			return true
		}
	}
	return false
}
