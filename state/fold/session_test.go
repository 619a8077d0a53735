package fold

import (
	"regexp"
	"testing"
	"time"

	"stint/state"

	"github.com/google/go-cmp/cmp"
)

func TestSessions(t *testing.T) {
	j := newJournal(t)
	records(j,
		"t1: status=queued; sessionKey=web; sessionId=s1; agent=codex; updatedAt="+at(0),
		"t1: status=running; updatedAt="+at(time.Second),
	)
	want := state.Session{Key: "web", ID: "s1", Agent: "codex", UpdatedAt: noon.Add(time.Second), LastTask: "t1"}
	check := func() {
		t.Helper()
		got, ok := j.state.CurrentSession("web", "codex", "")
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Error(ok, diff)
		}
		j.checkRefold()
	}
	check()
	records(j, "t1: codexSessionId=native-1")
	want.Native = "native-1"
	check()
	records(j, "t1: status=done; updatedAt="+at(2*time.Second))
	want.UpdatedAt = noon.Add(2 * time.Second)
	check()

	// The next task of the lane goes on with it, and learns the native id from it.
	records(j, "t2: status=queued; sessionKey=web; sessionId=s1; agent=codex; updatedAt="+at(3*time.Second))
	want.UpdatedAt, want.LastTask = noon.Add(3*time.Second), "t2"
	check()
	records(j, "t2: status=running", "x: status=queued; sessionKey=other; agent=codex; codexSessionId=native-1")
	if got := ready(j, 9); got != "" {
		t.Errorf("%s runs in a native session that is in use", got)
	}
	records(j, "x: status=canceled", "t2: status=done; updatedAt="+at(4*time.Second))

	// A new one takes its place, and the old one is forgotten.
	records(j, "t3: status=queued; sessionKey=web; sessionId=s2; agent=codex; updatedAt="+at(5*time.Second))
	want = state.Session{Key: "web", ID: "s2", Agent: "codex", UpdatedAt: noon.Add(5 * time.Second), LastTask: "t3"}
	check()
	if _, ok := j.state.SessionByID("s1"); ok {
		t.Error("s1 is still known")
	}
	// Another agent and another account have sessions of their own.
	records(j,
		"t4: status=queued; sessionKey=web; sessionId=s3; agent=claude; updatedAt="+at(6*time.Second),
		"t5: status=queued; sessionKey=web; sessionId=s4; agent=codex; account=second; updatedAt="+at(7*time.Second),
		"t6: status=queued; sessionKey=api; sessionId=s5; agent=codex; updatedAt="+at(4*time.Second),
	)
	check()
	var ids []string
	for _, s := range j.state.Sessions() {
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"s4", "s3", "s2", "s5"}, ids); diff != "" {
		t.Error(diff)
	}
	j.checkRefold()
}

func TestSessionInUseIsKept(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; sessionKey=dir:/w; sessionId=s1; agent=codex; codexSessionId=n1",
		"b: status=queued; sessionKey=dir:/w; sessionId=s2; agent=codex",
	)
	if s, ok := j.state.SessionByID("s1"); !ok || s.Native != "n1" {
		t.Errorf("%+v, %v", s, ok)
	}
	if s, _ := j.state.CurrentSession("dir:/w", "codex", ""); s.ID != "s2" {
		t.Errorf("%+v", s)
	}
	records(j, "a: note=x") // a record that names no session does not bring it back
	if s, _ := j.state.CurrentSession("dir:/w", "codex", ""); s.ID != "s2" {
		t.Errorf("%+v", s)
	}
	records(j, "a: status=canceled")
	if _, ok := j.state.SessionByID("s1"); ok {
		t.Error("s1 is still known")
	}
	records(j, "a: status=queued") // again, and it has its session again
	if s, ok := j.state.SessionByID("s1"); !ok || s.Native != "n1" || s.LastTask != "a" {
		t.Errorf("%+v, %v", s, ok)
	}
	records(j, "a: sessionId=s9", "a: sessionId=")
	if _, ok := j.state.SessionByID("s1"); ok {
		t.Error("s1 is still known")
	}
	j.checkRefold()
}

func TestSessionSharedByTwoLanes(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; sessionKey=web; sessionId=s1; agent=codex",
		"b: status=queued; sessionKey=api; sessionId=s1; agent=codex",
		"a: note=x", // names nothing of the session
	)
	if s, ok := j.state.CurrentSession("api", "codex", ""); !ok || s.Key != "api" || s.LastTask != "a" {
		t.Errorf("%+v, %v", s, ok)
	}
	if _, ok := j.state.CurrentSession("web", "codex", ""); ok {
		t.Error("one session is the current one of two lanes")
	}
	j.checkRefold()
}

func TestSessionChangesItsAgent(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; sessionKey=web; sessionId=s1; agent=codex; codexSessionId=n1",
		"a: agent=claude",
	)
	if _, ok := j.state.CurrentSession("web", "codex", ""); ok {
		t.Error("codex still has the session")
	}
	if s, ok := j.state.CurrentSession("web", "claude", ""); !ok || s.Native != "" {
		t.Errorf("%+v, %v", s, ok)
	}
	records(j, "a: claudeSessionId=n2")
	if s, _ := j.state.SessionByID("s1"); s.Native != "n2" || s.Agent != "claude" {
		t.Errorf("%+v", s)
	}
	j.checkRefold()
}

func TestSessionsOfOwnLanesEndWithTheirTask(t *testing.T) {
	j := newJournal(t)
	id := uuid(1)
	j.task(id, "status: queued", "sessionKey: task:"+id, "sessionId: s1", "agent: codex")
	if _, ok := j.state.CurrentSession("task:"+id, "codex", ""); !ok {
		t.Error("no current session")
	}
	if got := j.state.Sessions(); len(got) != 0 {
		t.Errorf("listed: %+v", got)
	}
	j.task(id, "status: canceled")
	if _, kept := j.state.SessionByID("s1"); kept {
		t.Error("the session is kept")
	}
	if got := j.peek(id).SessionKey; got != "task:"+id {
		t.Errorf("session key %q", got)
	}
	if list, err := j.state.List(state.Filter{Session: "task:" + id}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	j.checkRefold()
}

func TestControls(t *testing.T) {
	j := newJournal(t)
	if paused, _ := j.state.Paused(); paused {
		t.Error("paused from the start")
	}
	records(j, "control dispatch: paused=true; reason=lunch")
	if paused, reason := j.state.Paused(); !paused || reason != "lunch" {
		t.Error(paused, reason)
	}
	records(j, "control dispatch: paused=false; reason=")
	if paused, reason := j.state.Paused(); paused || reason != "" {
		t.Error(paused, reason)
	}
	records(j, "control account:main: hold=true; reason=not logged in; coolUntil="+at(time.Hour)+"; limitWaits=2", "control account:main: hold=")
	want := state.Account{Name: "main", Reason: "not logged in", CoolUntil: noon.Add(time.Hour), LimitWaits: 2}
	if diff := cmp.Diff(want, j.state.Account("main")); diff != "" {
		t.Error(diff)
	}
	before := dump(t, j.state)
	for _, id := range []string{"account:main", "account:new", "dispatch"} {
		if err := j.append("Control", id, "hold: false", "reason: none", "paused: false", "limitWaits: many"); err == nil {
			t.Errorf("%s: taken", id)
		}
	}
	if after := dump(t, j.state); after != before {
		t.Errorf("refused records had an effect: %s", after)
	}
	if diff := cmp.Diff(state.Account{Name: "new"}, j.state.Account("new")); diff != "" {
		t.Error(diff)
	}
	j.checkRefold()
}

// TestThreadOfASession: what the CLI has counted belongs to the native session, and goes when that goes.
func TestThreadOfASession(t *testing.T) {
	j := newJournal(t)
	check := func(id string, want state.Usage) {
		t.Helper()
		if s, ok := j.state.SessionByID(id); !ok || s.Thread != want {
			t.Errorf("session %s: %+v, %v; want %+v", id, s.Thread, ok, want)
		}
		j.checkRefold()
		if diff := cmp.Diff(dump(t, j.state), dump(t, j.compacted(j.compact(time.Time{})).state), ignoreOffsets); diff != "" {
			t.Errorf("compacted:\n%s", diff)
		}
	}
	first, second := state.Usage{InputTokens: 110, OutputTokens: 21}, state.Usage{InputTokens: 230, OutputTokens: 42, CostUSD: 0.25}
	records(j,
		"a: status=queued; sessionKey=web; sessionId=s1; agent=codex",
		"a: status=running; codexSessionId=n1",
		"a: status=queued; threadTokens="+state.FormatThread(first),
	)
	check("s1", first)
	records(j, "b: status=queued; sessionKey=web; sessionId=s1; agent=codex", "b: codexSessionId=n1; threadTokens="+state.FormatThread(second))
	check("s1", second)
	records(j, "a: note=x") // its own count is an old one
	check("s1", second)

	// Another session of stint goes on with the same native one.
	records(j, "c: status=queued; sessionKey=api; sessionId=s2; agent=codex; codexSessionId=n1")
	if got, ok := j.state.ThreadOf("codex", "n1"); !ok || got != second {
		t.Errorf("of n1 %+v is known, %v", got, ok)
	}
	for _, unknown := range [][2]string{{"claude", "n1"}, {"codex", "n2"}, {"codex", ""}} {
		if got, ok := j.state.ThreadOf(unknown[0], unknown[1]); ok {
			t.Errorf("of %v %+v is known", unknown, got)
		}
	}

	records(j, "b: status=running; codexSessionId=n2") // the CLI has begun another one
	check("s1", state.Usage{})
	records(j, "b: threadTokens="+state.FormatThread(first))
	check("s1", first)
}

// ignoreOffsets leaves out where records stand.
var ignoreOffsets = cmp.Transformer("offsets", func(s string) string {
	return regexp.MustCompile(`"records":\[[0-9,]*\]`).ReplaceAllString(s, "")
})

// TestNativeSessionIsLost: an empty id clears that of the stint session, whose own
// id stays; those of other sessions are not touched.
func TestNativeSessionIsLost(t *testing.T) {
	j := newJournal(t)
	native := func(id, want string) {
		t.Helper()
		if s, ok := j.state.SessionByID(id); !ok || s.Native != want {
			t.Errorf("session %s has native %q, %v; want %q", id, s.Native, ok, want)
		}
		j.checkRefold()
	}
	records(j,
		"a: status=queued; sessionKey=web; sessionId=s1; agent=codex; codexSessionId=n1; threadTokens=1 0 1 0 0",
		"b: status=queued; sessionKey=web; sessionId=s1; agent=codex",
		"c: status=queued; sessionKey=web; sessionId=s1; agent=codex; codexSessionId=n1",
		"d: status=queued; sessionKey=api; sessionId=s2; agent=codex; codexSessionId=n2",
	)
	if got := taskIDs(j.state.Naming("codex", "n1")); !cmp.Equal(got, []string{"a", "c"}) {
		t.Errorf("n1 is named by %v", got)
	}
	if got := append(j.state.Naming("codex", ""), j.state.Naming("claude", "n1")...); len(got) > 0 {
		t.Errorf("found %v", taskIDs(got))
	}
	records(j, "b: claudeSessionId=") // says nothing about codex
	native("s1", "n1")
	records(j, "b: status=running; codexSessionId=") // it shared the session's
	native("s1", "")
	if s, _ := j.state.SessionByID("s1"); s.Thread != (state.Usage{}) {
		t.Errorf("of a lost session %+v is counted", s.Thread)
	}
	records(j, "c: codexSessionId=", "a: codexSessionId=")
	native("s1", "")
	native("s2", "n2")
	records(j, "b: codexSessionId=n3")
	native("s1", "n3")
	records(j, "c: codexSessionId=n1", "b: codexSessionId=n3", "c: codexSessionId=") // c had another one to itself
	native("s1", "n3")
}
