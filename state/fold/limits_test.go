package fold

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"stint/state"
	"stint/state/lanes"
)

// TestStranded: a task with a fallback is stranded when it would start now but for
// its account's cool-down, and not before its turn.
func TestStranded(t *testing.T) {
	cool := "control account:codex: coolUntil=" + at(time.Minute) + "; limitWaits=1"
	f := func(key, more string) string {
		return "status=queued; agent=codex; fallback=claude; sessionKey=" + key + more
	}
	tests := []struct {
		name    string
		records []string
		workers int
		want    string
	}{
		{"nobody cools down", []string{"a: " + f("1", "")}, 4, ""},
		{"the heads of lanes", []string{"a: " + f("1", ""), "b: " + f("1", ""), "c: " + f("2", ""), cool}, 4, "a c"},
		{"without a fallback", []string{"a: status=queued; agent=codex", cool}, 4, ""},
		{"no longer than there are workers", []string{"a: " + f("1", ""), "b: " + f("2", ""), "c: " + f("3", ""), cool}, 2, "a b"},
		{"more urgent ones take the workers", []string{
			"a: " + f("1", ""), "b: status=queued; agent=claude; sessionKey=2; priority=9", "c: " + f("3", "; priority=9"), cool,
		}, 2, "c"},
		{"the workers are busy", []string{"a: " + f("1", ""), "b: status=running; sessionKey=9", cool}, 1, ""},
		{"held", []string{"a: " + f("1", "; hold=true"), cool}, 4, ""},
		{"its time has not come", []string{"a: " + f("1", "; notBefore="+at(time.Hour)), cool}, 4, ""},
		{"it comes after another", []string{"z: status=queued; hold=true; sessionKey=z", "a: " + f("1", "; after=z"), cool}, 4, ""},
		{"it waits for its judgement", []string{"a: " + f("1", "; phase=evaluate"), cool}, 4, ""},
		{"paused", []string{"a: " + f("1", ""), cool, "control dispatch: paused=true"}, 4, ""},
		{"on hold as well", []string{"a: " + f("1", ""), cool, "control account:codex: hold=true"}, 4, ""},
		{"the cool-down is over", []string{"a: " + f("1", ""), "control account:codex: coolUntil=" + at(0) + "; limitWaits=1"}, 4, ""},
		{"it has ended", []string{"a: " + f("1", ""), cool, "a: status=canceled"}, 4, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, tt.records...)
			lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: tt.workers}
			for range 2 { // it changes nothing
				if got := strings.Join(taskIDs(j.state.Stranded(noon, lim)), " "); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
			j.checkRefold()
		})
	}
}

// TestWhySettling: what has run, and waits for a save of tasks.md to be settled, is not told as if it ran.
func TestWhySettling(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=running; sessionKey=web; sessionId=s", "b: status=queued; sessionKey=web", "c: status=queued; sessionKey=api; sessionId=s",
		"d: status=running; sessionKey=d", "e: status=queued; sessionKey=d")
	for id, want := range map[string]string{
		"a": "its run has ended; the result waits until the save of tasks.md is settled",
		"b": "behind a, which has a result that waits until the save of tasks.md is settled, in session web",
		"c": "its agent session is used by a, which has a result that waits until the save of tasks.md is settled",
		"e": "behind d, which is running, in session d",
	} {
		if got := j.why(id, noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 9, Settling: map[string]bool{"a": true, "d": false}}); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestStrandedCostsLittle: the dispatcher asks after every record, however much there is in the queue.
func TestStrandedCostsLittle(t *testing.T) {
	j := newJournal(t)
	for i := range 5000 {
		records(j, uuid(i)+": status=queued; agent=codex; fallback=claude; sessionKey="+state.LanePrefixTask+uuid(i))
	}
	records(j, "control account:codex: coolUntil="+at(time.Minute))
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4}
	j.state.Stranded(noon, lim) // looks at all lanes, once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := j.state.Stranded(noon, lim); len(got) != 4 || got[3].ID != uuid(3) {
		t.Errorf("got %v", taskIDs(got))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 5000*8 {
		t.Errorf("it allocates %d bytes, as for a list of all tasks", n)
	}
}

// TestStrandedWakes: while anything waits for an account, the end of any other's cool-down is a
// time to look: that of a fallback, or of another account of the agent.
func TestStrandedWakes(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; agent=codex; fallback=claude",
		"control account:codex: coolUntil="+at(time.Hour), "control account:claude: coolUntil="+at(time.Minute))
	if got := j.state.NextWake(noon); !got.Equal(noon.Add(time.Minute)) {
		t.Errorf("wakes at %v", got)
	}
	records(j, "a: status=canceled")
	if got := j.state.NextWake(noon); !got.IsZero() {
		t.Errorf("when nothing waits it wakes at %v", got)
	}
}

func TestUnwilling(t *testing.T) {
	const none = "control nothing: hold=false"
	cool := "control account:codex: coolUntil=" + at(2*time.Hour) + "; coolGuessed=true"
	for _, tt := range []struct{ name, task, want, more string }{
		{"waits", "status=queued; agent=codex", "", none},
		{"does not wait", "status=queued; agent=codex; maxLimitWait=0s", "t", none},
		{"does not wait, not even for a named time", "status=queued; agent=codex; maxLimitWait=0s", "t", "control account:codex: coolUntil=" + at(2*time.Hour)},
		{"has not met the limit", "status=queued; agent=codex; maxLimitWait=1m", "", none},
		{"has waited long", "status=queued; agent=codex; limitSince=" + at(-time.Hour), "t", none},
		{"has waited long, and the time is named", "status=queued; agent=codex; limitSince=" + at(-time.Hour), "", "control account:codex: coolUntil=" + at(200*time.Hour)},
		{"has waited long, and a person lets it go on", "status=queued; agent=codex; limitSince=" + at(-time.Hour), "", "control account:codex: coolUntil="},
		{"waits longer than most", "status=queued; agent=codex; maxLimitWait=3h; limitSince=" + at(-time.Minute), "", none},
		{"has waited a little", "status=queued; agent=codex; limitSince=" + at(0), "", none},
		{"held", "status=queued; agent=codex; maxLimitWait=0s; hold=true", "", none},
		{"needs no account", "status=queued; agent=codex; maxLimitWait=0s; phase=verify", "", none},
		{"waits for its judgement", "status=queued; agent=codex; maxLimitWait=0s; phase=evaluate", "", none},
		{"of another account", "status=queued; agent=claude; maxLimitWait=0s", "", none},
		{"running", "status=running; agent=codex; maxLimitWait=0s", "", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, "t: "+tt.task, cool, tt.more)
			if got := strings.Join(taskIDs(j.state.LimitWaitExceeded(noon, 2*time.Hour)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := j.state.LimitWaitExceeded(noon.Add(200*time.Hour), 0); len(got) > 0 {
				t.Error("unwilling although nobody cools down")
			}
			j.checkRefold()
		})
	}
}

// TestRuns: a run's figures are what its task's totals have grown by.
func TestRuns(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; agent=codex; sessionKey=web",
		"a: status=running; runId=r1; model=m1",
		"a: status=running; codexSessionId=n",
		"a: status=queued; retries=1; inputTokens=100; outputTokens=10; costUsd=0.5; updatedAt="+at(time.Minute),
		"a: agent=claude; account=work; model=",
		"a: status=running; runId=r2",
		"a: status=done; inputTokens=150; outputTokens=15; costUsd=0.75; updatedAt="+at(2*time.Minute),
		"a: status=queued",
		"a: status=running; runId=r3",
		"a: status=failed; inputTokens=40", // counted anew
		"b: status=queued", "b: status=canceled",
		"c: status=running; runId=r4", "c: status=queued",
		"m: status=done; runId=r5; inputTokens=7; updatedAt="+at(0), // merged
		"n: status=running; runId=r6; inputTokens=9", "n: status=done; inputTokens=11",
	)
	var got []state.Run
	must(t, j.state.EachTask(func(runs []state.Run) error { got = append(got, runs...); return nil }))
	want := []state.Run{
		{ID: "r1", TaskID: "a", SessionKey: "web", Agent: "codex", Model: "m1", Account: "codex", Ended: noon.Add(time.Minute), Usage: state.Usage{InputTokens: 100, OutputTokens: 10, CostUSD: 0.5}},
		{ID: "r2", TaskID: "a", SessionKey: "web", Agent: "claude", Model: "", Account: "work", Ended: noon.Add(2 * time.Minute), Usage: state.Usage{InputTokens: 50, OutputTokens: 5, CostUSD: 0.25}, Took: time.Minute},
		{ID: "r3", TaskID: "a", SessionKey: "web", Agent: "claude", Model: "", Account: "work", Ended: noon.Add(2 * time.Minute), Usage: state.Usage{InputTokens: 40, OutputTokens: 15, CostUSD: 0.75}},
		{ID: "r4", TaskID: "c", SessionKey: "", Agent: "", Model: "", Account: "", Ended: time.Time{}, Usage: state.Usage{}},
		{ID: "r5", TaskID: "m", SessionKey: "", Agent: "", Model: "", Account: "", Ended: noon, Usage: state.Usage{InputTokens: 7}},
		{ID: "r6", TaskID: "n", SessionKey: "", Agent: "", Model: "", Account: "", Ended: time.Time{}, Usage: state.Usage{InputTokens: 9}},
		{ID: "r6", TaskID: "n", SessionKey: "", Agent: "", Model: "", Account: "", Ended: time.Time{}, Usage: state.Usage{InputTokens: 2}},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d runs: %+v", len(got), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("run %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	j.broken = true
	if err := j.state.EachTask(func([]state.Run) error { return nil }); err == nil {
		t.Error("records that cannot be read are no error")
	}
}

// TestShortOfSomething: while the machine lacks something, one task starts at the time
// when that is tried, and each that waits says so.
func TestShortOfSomething(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=a", "b: status=queued; sessionKey=b", "r: status=running; sessionKey=r", "d: status=draft", "h: status=queued; sessionKey=h; hold=true")
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4, Short: "no inodes are left"}
	for _, tt := range []struct {
		again       time.Time
		workers     int
		ready, want string
	}{
		{noon.Add(4 * time.Second), 4, "", "no inodes are left; one task is tried again at 12:00:04, in 4s"},
		{noon, 4, "a", "no inodes are left; one task is being tried again"},
		{noon, 1, "", "no inodes are left; one task is being tried again"},
		{time.Time{}, 4, "", "no inodes are left; one task is being tried again"},
	} {
		lim.Again, lim.MaxWorkers = tt.again, tt.workers
		if got := strings.Join(taskIDs(j.state.Ready(noon, lim)), " "); got != tt.ready {
			t.Errorf("again at %s: ready are %q, want %q", tt.again, got, tt.ready)
		}
		for _, id := range []string{"a", "b"} {
			if got := j.why(id, noon, lim); got != tt.want {
				t.Errorf("%s: %q, want %q", id, got, tt.want)
			}
		}
	}
	for _, id := range []string{"r", "d", "h"} {
		if got := j.why(id, noon, lim); strings.Contains(got, "inodes") {
			t.Errorf("%s: %q", id, got)
		}
	}
	if got := len(j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4})); got != 2 {
		t.Errorf("afterwards %d are ready", got)
	}
}
