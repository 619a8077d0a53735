package fold

import (
	"testing"
	"time"

	"stint/state"
	"stint/state/lanes"
)

// TestHomeIsAUsersChoice: what an agent has queued, or follows a run, names no workspace
// for the tasks that a person writes for that session.
func TestHomeIsAUsersChoice(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=web; workspace=/shop", "b: status=queued; sessionKey=web; workspace=/shop/sub; trigger=agent; intake=open",
		"c: status=queued; sessionKey=fresh; workspace=/shop/sub; trigger=agent; intake=open", "d: status=queued; sessionKey=fresh; workspace=/shop/sub; trigger=failure")
	for key, want := range map[string]string{"web": "/shop", "fresh": "/root"} {
		if got, _ := j.state.HomeOf(&state.Task{SessionKey: key}, "/root"); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestNoSessionNoWorkspace: a task that takes workspace_root waits for what runs there, or may do so still.
func TestNoSessionNoWorkspace(t *testing.T) {
	for name, tt := range map[string]struct{ there, why string }{
		"running": {"a: status=running; sessionKey=dir:/w; workspace=/w", "behind a, which is running, in the lane of /w"},
		"orphan":  {"a: status=queued; hold=true; reason=orphaned; runId=r; sessionKey=dir:/w; workspace=/w", "behind a, which is held because its agent may still be alive, in the lane of /w"},
		"nothing": {"a: status=running; sessionKey=dir:/v; workspace=/v", "ready: it starts next"},
	} {
		j := newJournal(t)
		records(j, tt.there, "b: status=queued")
		lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 9}
		if got := j.why("b", noon, lim); got != tt.why {
			t.Errorf("%s: %q, want %q", name, got, tt.why)
		}
		if got := len(j.state.Ready(noon, lim)); (got > 0) != (name == "nothing") {
			t.Errorf("%s: %d are ready", name, got)
		}
	}
}

// TestHomeAfterCompaction: the end of an older task of the session does not change it.
func TestHomeAfterCompaction(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=running; runId=r; sessionKey=web; sessionId=s1; agent=codex; workspace=/one",
		"b: status=queued; sessionKey=web; sessionId=s1; agent=codex; workspace=/two", "a: codexSessionId=n1")
	next := j.compacted(j.compact(time.Time{}))
	records(next, "a: status=done")
	if got, _ := next.state.HomeOf(&state.Task{SessionKey: "web"}, ""); got != "/two" {
		t.Errorf("it is %s", got)
	}
}

// TestHomeOfAMovedTask: a session keeps the workspace of a task that a person has moved to another one.
func TestHomeOfAMovedTask(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=web; sessionId=s1; agent=codex; workspace=/one", "a: sessionKey=other; by=hand")
	next := j.compacted(j.compact(time.Time{}))
	for when, st := range map[string]*State{"before": j.state, "after": next.state, "twice": next.compacted(next.compact(time.Time{})).state} {
		if got, _ := st.HomeOf(&state.Task{SessionKey: "web"}, ""); got != "/one" {
			t.Errorf("%s: it is %q", when, got)
		}
	}
}
