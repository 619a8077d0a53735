package state

import (
	"slices"
	"strconv"

	"stint/ledger"
)

// ImpliedChanges returns the fields that a person's record changes in a task beside those that it names, which count as they are:
//   - With another session key or agent the task leaves its session, which stays where
//     it is, with what a run has learned there, and the account of the old agent. Its
//     next run finds those of its new place.
//   - With another account it leaves the conversation that lies in the old one, and is pinned.
//   - With another verify command it leaves what the old one has said.
//   - Queued again after its end, or while it runs, it begins with the first iteration of
//     its verify loop, and has no failure any more.
//   - Queued again after its end, it has not been taken out of any run.
//   - Running under another master that kept the same ledger, it was interrupted. What has
//     run here is not: then running is a slip, or a copied record, and is refused.
//   - In another conversation, or for another agent, than it was accepted for, it is not
//     open any more: what an agent asks for next does not follow it there.
func (now *Folded) ImpliedChanges(r *ledger.Record) (fields []ledger.Pair) {
	if now.Status == "" || now.Status == Queued {
		fields = takenOver(r, *now)
	}
	put := func(key, value string, is bool) {
		if _, named := r.Get(key); !named && is {
			fields = append(fields, ledger.Pair{Key: key, Value: value})
		}
	}
	if now.Status == "" {
		return fields
	}
	account, named := r.Get(KeyAccount)
	named = named && account != now.Account
	put(KeyPinned, "true", named && account != "")
	put(KeyPinned, "", named && account == "" && now.Pinned)
	if command, named := r.Get(KeyVerifyCommand); named && command != now.VerifyCommand {
		for _, key := range []string{KeyVerifyExitCode, KeyVerifyTime, KeyVerifyOutput} {
			put(key, "", now.VerifyExitCode != nil)
		}
	}
	to, _ := r.Get(KeyStatus)
	again := to == string(Queued) && (now.Status == Running || now.Status.Terminal())
	put(KeyPhase, "", again && now.Phase != "")
	put(KeyIteration, "", again && now.Iteration > 0)
	put(KeyReason, "", again && now.Reason != "")
	put(KeyError, "", again && now.Error != "")
	put(KeyRequeues, "", again && now.Status.Terminal() && now.Requeues > 0)
	key, moved := r.Get(KeySessionKey)
	moved = moved && key != now.SessionKey
	agent, given := r.Get(KeyAgent)
	if tool, ok := r.Get(KeyTool); ok {
		agent, given = tool, true
	}
	given = given && agent != now.Agent
	put(KeyIntake, "", now.Intake != "" && (given || now.changesConversation(r)))
	if now.Status == Running && !again {
		return fields
	}
	isNative := func(p ledger.Pair) bool { _, native := nativeAgent(p.Key); return native }
	put(KeySessionID, "", (moved || given || named) && now.SessionID != "")
	put(KeyAccount, "", given && now.Account != "")
	put(KeyPinned, "", given && now.Pinned)
	if (moved || named) && now.RunID != "" && !slices.ContainsFunc(r.Fields, isNative) {
		for _, n := range now.Natives {
			put(NativeKey(n.Agent), "", true)
		}
	}
	return fields
}

// takenOver returns what else a record of another master says: the task that it runs there
// is queued, as after an end of ours, and what has a conversation keeps its agent.
func takenOver(r *ledger.Record, now Folded) (fields []ledger.Pair) {
	sec, err := ledger.Encode(r)
	if err != nil {
		return nil // as above
	}
	_, ours := r.Get(KeyStartedAt) // document 002 has no such key: it is a copy of a record of ours
	ours = ours || !now.RunStartedAt.IsZero()
	_ = now.Apply(sec, nil, KeepNone) // as above; a step that is not allowed changes the fields all the same
	if now.Status == Running && now.RunID != "" && !ours {
		fields = []ledger.Pair{
			{Key: KeyStatus, Value: string(Queued)},
			{Key: KeyReason, Value: string(ClassInterrupted)},
			{Key: KeyRetries, Value: strconv.Itoa(now.Retries + 1)},
			{Key: KeyAttempt, Value: strconv.Itoa(max(0, now.Attempt-1))},
		}
	}
	for _, agent := range firstAgents {
		if id, _ := r.Get(NativeKey(agent)); id != "" && now.Agent == "" {
			return append(fields, ledger.Pair{Key: KeyAgent, Value: agent})
		}
	}
	return fields
}

// changesConversation reports whether a record names another session than the task has, of ours or of an agent.
func (t *Folded) changesConversation(r *ledger.Record) bool {
	return slices.ContainsFunc(r.Fields, func(p ledger.Pair) bool {
		agent, native := nativeAgent(p.Key)
		value, _ := r.Get(p.Key) // the last one counts
		return p.Key == KeySessionKey && value != t.SessionKey || p.Key == KeySessionID && value != t.SessionID || native && value != t.Native(agent)
	})
}

// OrNone returns a number, "" for 0.
func OrNone(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Flag returns the value of a field that says yes or nothing: "true" or "".
func Flag(is bool) string {
	if is {
		return "true"
	}
	return ""
}
