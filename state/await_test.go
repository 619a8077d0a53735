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
	)
	for id, want := range map[string]Obstacle{
		"run": {"run", ObstacleSelf}, "lane": {"lane", ObstacleLane}, "session": {"session", ObstacleSession},
		"after": {"lane", ObstacleLane}, "behind": {"lane", ObstacleLane}, "other": {"lane", ObstacleLane},
		"held": {"held", ObstacleHeld}, "waits": {"held", ObstacleHeld}, "through": {"lane", ObstacleLane}, "passes": {},
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
}
