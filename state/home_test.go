package state

import "testing"

// TestHomeIsAUsersChoice: what an agent has queued, or follows a run, names no workspace
// for the tasks that a person writes for that session.
func TestHomeIsAUsersChoice(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=web; workspace=/shop", "b: status=queued; sessionKey=web; workspace=/shop/sub; trigger=agent; intake=open",
		"c: status=queued; sessionKey=fresh; workspace=/shop/sub; trigger=agent; intake=open", "d: status=queued; sessionKey=fresh; workspace=/shop/sub; trigger=failure")
	for key, want := range map[string]string{"web": "/shop", "fresh": "/root"} {
		if got, _ := j.state.HomeOf(&Task{SessionKey: key}, "/root"); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
