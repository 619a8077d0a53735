package state

import "testing"

// TestBehind: a task cannot run before the one that runs where anything that it waits
// for cannot, whatever way leads there, or waits for a person.
func TestBehind(t *testing.T) {
	j := newJournal(t)
	records(j,
		"run: status=queued; sessionKey=1; agent=codex; codexSessionId=native", "run: status=running",
		"other: status=queued; sessionKey=2", "other: status=running",
		"lane: status=queued; sessionKey=1", "session: status=queued; sessionKey=3; agent=codex; codexSessionId=native",
		"after: status=queued; sessionKey=4; after=lane", "behind: status=queued; sessionKey=4",
		"held: status=queued; sessionKey=5; hold=true", "passes: status=queued; sessionKey=5",
		"waits: status=queued; sessionKey=6; after=held", "through: status=queued; sessionKey=7; after=other gone",
		"taker: status=queued; sessionKey=dir:/p; sessionId=s; agent=codex; codexSessionId=its", "taker: status=running",
		"beside: status=queued; sessionKey=dir:/p", "named: status=queued; sessionKey=9; sessionId=s",
		"native: status=queued; sessionKey=10; agent=codex; codexSessionId=its", "elsewhere: status=queued; sessionKey=dir:/q",
		"first: status=queued; sessionKey=dir:/q; sessionId=c; after=run", "second: status=queued; sessionKey=dir:/q; sessionId=c",
		"third: status=queued; sessionKey=dir:/q; sessionId=d",
	)
	for _, id := range []string{"beside", "named", "native"} { // the taker's run waits for this one
		task, _ := j.state.Peek(id)
		if got, _ := j.state.Behind(&task, "run", nil, map[string][]string{"taker": {"run"}}); got != (Obstacle{"run", ObstacleSelf}) {
			t.Errorf("%s, behind one whose run waits: %+v", id, got)
		}
	}
	for id, want := range map[string]Obstacle{
		"run": {"run", ObstacleSelf}, "lane": {"lane", ObstacleLane}, "session": {"session", ObstacleSession},
		"after": {"lane", ObstacleLane}, "behind": {"lane", ObstacleLane}, "other": {"lane", ObstacleLane},
		"held": {"held", ObstacleHeld}, "waits": {"held", ObstacleHeld}, "through": {"lane", ObstacleLane}, "passes": {},
		"beside": {}, "named": {}, "native": {}, "elsewhere": {}, "second": {"run", ObstacleSelf}, "third": {},
	} {
		task, _ := j.state.Peek(id)
		got, behind := j.state.Behind(&task, "run", nil, map[string][]string{"other": {"after"}})
		if got != want || behind != (want != Obstacle{}) {
			t.Errorf("%s: %+v, %v, want %+v", id, got, behind, want)
		}
	}
	task := Task{ID: "new", Status: Queued, SessionKey: "8", After: []string{"first"}}
	if got, _ := j.state.Behind(&task, "run", []Task{{ID: "first", Status: Queued, SessionKey: "1"}}, nil); got != (Obstacle{"first", ObstacleLane}) {
		t.Errorf("a new one after a new one: %+v", got)
	}
	for _, task := range []Task{{SessionKey: "dir:/p"}, {SessionKey: "dir:/q", SessionID: "c"}} {
		task.ID, task.Status = "new", Queued
		if got, _ := j.state.Behind(&task, "run", nil, map[string][]string{"taker": {"run"}}); got != (Obstacle{"run", ObstacleSelf}) {
			t.Errorf("a new one in %s: %+v", task.SessionKey, got)
		}
	}
}
