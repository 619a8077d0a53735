package fold

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
	"stint/state/lanes"
)

// records feeds "id: key=value, key=value" lines; "control NAME: …" is a control record.
func records(j *journal, lines ...string) {
	j.t.Helper()
	for _, line := range lines {
		id, rest, _ := strings.Cut(line, ": ")
		var fields []string
		for f := range strings.SplitSeq(rest, "; ") {
			fields = append(fields, strings.Replace(f, "=", ": ", 1))
		}
		if name, ok := strings.CutPrefix(id, "control "); ok {
			j.control(name, fields...)
		} else {
			j.task(id, fields...)
		}
	}
}

func TestReady(t *testing.T) {
	const q = "status=queued"
	late := at(time.Hour)
	tests := []struct {
		name    string
		records []string
		workers int
		want    string
	}{
		{"without a key, the workspace is the lane", []string{"a: " + q + "; workspace=/w", "b: " + q + "; sessionKey=dir:/w", "c: " + q + "; workspace=/v"}, 4, "a c"},
		{"held is passed over, but not if its agent may live", []string{"a: " + q + "; sessionKey=1; hold=true; reason=orphaned", "b: " + q + "; sessionKey=1", "c: " + q + "; sessionKey=2"}, 4, "c"},
		{"nor in the lane of a directory", []string{"a: " + q + "; sessionKey=dir:/w; hold=true; reason=orphaned", "b: " + q + "; sessionKey=dir:/w"}, 4, ""},
		{"nor is its session free", []string{"a: " + q + "; sessionKey=1; sessionId=x; hold=true; reason=orphaned", "b: " + q + "; sessionKey=2; sessionId=x", "c: " + q + "; sessionKey=3; sessionId=y"}, 4, "c"},
		{"it is free once released", []string{"a: " + q + "; sessionKey=1; hold=true; reason=orphaned", "a: hold=", "b: " + q + "; sessionKey=1"}, 4, "a"},
		{"or canceled", []string{"a: " + q + "; sessionKey=1; hold=true; reason=orphaned", "a: status=canceled", "b: " + q + "; sessionKey=1"}, 4, "b"},
		{"a hold from then on is a person's", []string{"a: " + q + "; sessionKey=1; hold=true; reason=orphaned", "a: hold=", "a: hold=true", "b: " + q + "; sessionKey=1"}, 4, "b"},
		{"an interrupted task blocks its lane", []string{"a: " + q + "; sessionKey=1; retries=1; notBefore=" + late, "b: " + q + "; sessionKey=1"}, 4, ""},
		{"a limit wait blocks its lane", []string{"a: " + q + "; sessionKey=1; limitWaits=1; notBefore=" + late, "b: " + q + "; sessionKey=1"}, 4, ""},
		{"a held retry is passed over", []string{"a: " + q + "; sessionKey=1; hold=true; attempt=1; notBefore=" + late, "b: " + q + "; sessionKey=1"}, 4, "b"},
		{"a verify command needs no account, nor does a judgement", []string{
			"a: " + q + "; sessionKey=1; account=x; phase=verify; maxLimitWait=0s", "b: " + q + "; sessionKey=2; account=y; phase=verify; fallback=z",
			"z: " + q + "; sessionKey=dir:/w; account=x", "c: " + q + "; sessionKey=dir:/w; account=x; phase=verify", "d: " + q + "; sessionKey=3; account=x; phase=evaluate",
			"control account:x: hold=true", "control account:y: coolUntil=" + late + "; limitWaits=1",
		}, 4, "a b c d"},
		{"but it takes its account while it is made", []string{
			"a: status=running; sessionKey=1; account=x; phase=evaluate; startedAt=" + at(0), "b: " + q + "; sessionKey=2; account=x",
			"control account:x: coolUntil=" + at(-time.Second) + "; limitWaits=1",
		}, 4, ""},
		{"and is no trial after a cool-down", []string{
			"a: status=running; sessionKey=1; account=x; phase=verify; startedAt=" + at(0), "b: " + q + "; sessionKey=2; account=x", "c: " + q + "; sessionKey=3; account=x",
			"control account:x: coolUntil=" + at(-time.Second) + "; limitWaits=1",
		}, 4, "b"},
		{"after a cool-down, one at a time", []string{
			"a: " + q + "; sessionKey=1; account=x", "b: " + q + "; sessionKey=2; account=x", "c: " + q + "; sessionKey=3; account=y",
			"control account:x: coolUntil=" + at(0) + "; limitWaits=2",
		}, 4, "a c"},
		{"after a cool-down, while one is tried", []string{
			"a: " + q + "; sessionKey=1; account=x", "b: " + q + "; sessionKey=2; account=x",
			"control account:x: coolUntil=" + at(-time.Second) + "; limitWaits=2", "a: status=running; startedAt=" + at(-time.Second),
		}, 4, ""},
		{"after a cool-down, beside what began before it", []string{
			"a: " + q + "; sessionKey=1; account=x", "b: " + q + "; sessionKey=2; account=x", "c: " + q + "; sessionKey=3; account=x",
			"a: status=running; startedAt=" + at(-time.Minute), "control account:x: coolUntil=" + at(-time.Second) + "; limitWaits=1",
		}, 4, "b"},
		{"after one got through, all", []string{
			"a: " + q + "; sessionKey=1; account=x", "b: " + q + "; sessionKey=2; account=x",
			"control account:x: coolUntil=" + at(0) + "; limitWaits=2", "control account:x: coolUntil=; limitWaits=",
		}, 4, "a b"},
		{"the default account bears its agent's name", []string{"a: " + q + "; agent=codex", "control account:codex: hold=true"}, 4, ""},
		{"native session of the session", []string{
			"o: " + q + "; sessionKey=1; agent=codex; sessionId=s", "o: status=running; codexSessionId=n",
			"b: " + q + "; sessionKey=2; agent=codex; codexSessionId=n",
		}, 4, ""},
		{"the same session, before its native id is known", []string{
			"a: " + q + "; sessionKey=1; agent=codex; sessionId=s", "a: status=running", "b: " + q + "; sessionKey=2; agent=codex; sessionId=s",
		}, 4, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, tt.records...)
			lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: tt.workers, Account: slotsOfTwo}
			for range 2 { // it changes nothing
				if got := strings.Join(taskIDs(j.state.Ready(noon, lim)), " "); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
			for _, task := range j.state.Ready(noon, lim) {
				if why := j.why(task.ID, noon, lim); why != "ready: it starts next" {
					t.Errorf("%s is ready, but %s", task.ID, why)
				}
			}
			j.checkRefold()
		})
	}
}

// TestFree: the running tasks of an account fill its slots; one that waits for another one
// lends its worker, and not its slot.
func TestFree(t *testing.T) {
	j := newJournal(t)
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 2, Account: slotsOfTwo}
	records(j, "a: status=queued; sessionKey=1; account=two", "a: status=running", "b: status=queued; sessionKey=2; account=two")
	if got := j.state.Free("two", noon, lim); got != 1 {
		t.Errorf("one slot is free, not %d", got)
	}
	records(j, "b: status=running", "c: status=queued; sessionKey=3; account=two", "d: status=queued; sessionKey=4")
	if got := j.state.Free("two", noon, lim); got != 0 || j.state.Free("other", noon, lim) != math.MaxInt {
		t.Errorf("%d slots are free", got)
	}
	for i, want := range []string{"", "d", "d"} {
		lim.Lent = map[string]bool{}
		for _, id := range []string{"a", "b"}[:i] {
			lim.Lent[id] = true
		}
		if got := strings.Join(taskIDs(j.state.Ready(noon, lim)), " "); got != want {
			t.Errorf("%d workers lent: %q are ready, want %q", i, got, want)
		}
	}
}

// TestSpare: a spare task waits where there is no spare quota, and could move away, while others start.
func TestSpare(t *testing.T) {
	j := newJournal(t)
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 9, Account: func(a *state.Account) (rule state.AccountRule) {
		if a.Name == "two" {
			rule.SpareFrom = noon.Add(time.Hour)
		}
		return rule
	}}
	records(j, "a: status=queued; sessionKey=1; account=two; spare=true", "b: status=queued; sessionKey=2; account=two", "c: status=queued; sessionKey=3; account=two; spare=true; pinned=true")
	if ready, movable := ready(j, 9), taskIDs(j.state.Movable(noon, lim)); strings.Join(taskIDs(j.state.Ready(noon, lim)), " ") != "b" || strings.Join(movable, " ") != "a" {
		t.Errorf("%s are ready without rules; with them %q may move", ready, movable)
	}
	if j.state.Free("two", noon, lim) == 0 || j.state.Free("two", noon, lim.For(true)) != 0 || j.state.Free("one", noon, lim.For(true)) == 0 {
		t.Error("the accounts are not as free as they are")
	}
}

// slotsOfTwo returns the account "two" two slots, and no limit to any other.
func slotsOfTwo(a *state.Account) state.AccountRule {
	if a.Name == "two" {
		return state.AccountRule{Slots: 2}
	}
	return state.AccountRule{}
}

func TestIdle(t *testing.T) {
	j := newJournal(t)
	for _, step := range []struct {
		record string
		want   bool
	}{
		{"d: prompt=p", true},
		{"a: status=queued; hold=true", true},
		{"a: hold=false", false},
		{"a: notBefore=" + at(time.Hour), false},
		{"a: hold=true", true},
		{"a: status=running", false},
		{"a: status=queued; hold=true", true},
		{"a: status=canceled", true},
		{"b: status=queued; account=acct", false},
		{"control account:acct: coolUntil=" + at(time.Hour), false},
		{"control account:acct: hold=true", true}, // only a person ends that
		{"control account:acct: reason=" + state.MissingPrefix + "x", false},
		{"control account:acct: reason=; hold=; disabled=true", true},
		{"control account:acct: disabled=", false},
		{"b: status=canceled", true},
	} {
		records(j, step.record)
		if got := j.state.Idle(); got != step.want {
			t.Errorf("after %q: idle is %v", step.record, got)
		}
	}
	if got := j.state.Counts(); len(got) != 2 || got[state.Draft] != 1 || got[state.Canceled] != 2 {
		t.Errorf("counts %v", got)
	}
}

func TestRunningOldestFirst(t *testing.T) {
	j := newJournal(t)
	for i := range 5 {
		j.task(uuid(i), "status: queued", "sessionKey: "+uuid(i))
	}
	for _, i := range []int{3, 1, 4, 0} {
		j.task(uuid(i), "status: running")
	}
	j.task(uuid(1), "status: done")
	if got := j.state.Running(); !slices.Equal(got, []string{uuid(0), uuid(3), uuid(4)}) {
		t.Error(got)
	}
}

func TestLongLane(t *testing.T) {
	j := newJournal(t)
	const n = 300 // longer than shortQueue
	for i := range n {
		j.task(uuid(i), "status: queued", "sessionKey: web")
	}
	j.task(uuid(150), "status: canceled")
	j.task(uuid(200), "order: 1")
	want := []int{200}
	for i := range n {
		if i != 150 && i != 200 {
			want = append(want, i)
		}
	}
	for _, i := range want {
		if got := ready(j, 1); got != uuid(i) {
			t.Fatalf("%q is ready, not task %d", got, i)
		}
		j.task(uuid(i), "status: running")
		j.task(uuid(i), "status: done")
	}
}

// TestLongLaneOfHeld: however many tasks of a directory are on hold or before their time, the one behind them starts.
func TestLongLaneOfHeld(t *testing.T) {
	for _, field := range []string{"hold: true", "notBefore: " + at(time.Hour)} {
		j := newJournal(t)
		for i := range 300 {
			j.task(uuid(i), "status: queued", "sessionKey: "+state.LanePrefixDir+"/w", field)
		}
		j.task(uuid(300), "status: queued", "sessionKey: "+state.LanePrefixDir+"/w")
		if got := ready(j, 1); got != uuid(300) {
			t.Errorf("%s: %q is ready, want the last task", field, got)
		}
	}
}

// TestPutOff: what is on hold or before its time at the beginning of a long lane is not looked at for each task that
// comes, and a change of it counts all the same.
func TestPutOff(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		now, later := noon, func(d int) string { return state.FormatTime(noon.Add(time.Duration(d) * time.Minute)) }
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			id := uuid(rapid.IntRange(0, 8).Draw(rt, "task"))
			field := rapid.SampledFrom([]string{
				"hold: true", "hold: false", "hold: true", "notBefore:", "notBefore: " + later(1), "notBefore: " + later(2), "notBefore: " + later(3),
				"order: 1", "order: 2", "order:", "status: running", "status: done", "attempt: 1", "now: 1",
			}).Draw(rt, "field")
			if field == "now: 1" {
				now = now.Add(time.Minute)
			} else if field != "status: running" && field != "status: done" {
				_ = j.append(ledger.KindTask, id, "sessionKey: "+state.LanePrefixDir+"/w", "status: queued", field)
			} else {
				_ = j.append(ledger.KindTask, id, field) // not each is allowed
			}
			lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 9}
			again := j.refold()
			got, want := taskIDs(j.state.Ready(now, lim)), taskIDs(again.Ready(now, lim))
			if next, fresh := j.state.NextWake(now), again.NextWake(now); !slices.Equal(got, want) || !next.Equal(fresh) {
				rt.Fatalf("%v is ready, and next at %v, want %v, %v", got, next, want, fresh)
			}
		}
	})
	cost := func(n int, field string) time.Duration {
		j := newJournal(t)
		took := time.Hour
		for i := range n + 100 {
			begun := time.Now()
			j.task(uuid(i), "status: queued", "sessionKey: "+state.LanePrefixDir+"/w", field)
			if i >= n {
				ready(j, 1)
				took = min(took, time.Since(begun))
			}
		}
		return took
	}
	for _, field := range []string{"hold: true", "notBefore: " + at(time.Hour)} {
		if few, many := cost(100, field), cost(20_000, field); many > 8*few {
			t.Errorf("%s: one more takes %v behind 100 and %v behind 20,000", field, few, many)
		}
	}
}

func TestWhy(t *testing.T) {
	tests := []struct {
		name    string
		records []string
		want    string
	}{
		{"unknown", nil, "there is no task t"},
		{"draft", []string{"t: prompt=p"}, "a draft; to queue it: stint retry, or status: queued in tasks.md"},
		{"ready", []string{"t: status=queued"}, "ready: it starts next"},
		{"running", []string{"t: status=running; updatedAt=" + at(-time.Minute)}, "running since 11:59:00"},
		{"running since yesterday", []string{"t: status=running; updatedAt=" + at(-24*time.Hour)}, "running since 2026-11-20 12:00:00"},
		{"done", []string{"t: status=done; updatedAt=" + at(0) + "; by=stint"}, "done at 12:00:00"},
		{"failed", []string{"t: status=failed; updatedAt=" + at(0) + "; reason=exit; error=it broke"}, "failed at 12:00:00: exit: it broke"},
		{"canceled", []string{"t: status=canceled; by=ana"}, "canceled (by ana)"},
		{"dead", []string{"t: status=dead; reason=network"}, "dead: network"},
		{"held", []string{"t: status=queued; hold=true"}, "held; to let it run: stint release t"},
		{"held, with a reason", []string{"t: status=queued; hold=true; note=its old process may live"}, "held: its old process may live; to let it run: stint release t"},
		{"held by stint", []string{"t: status=queued; hold=true; note=then stint release t"}, "held: then stint release t"},
		{"paused", []string{"t: status=queued", "control dispatch: paused=true"}, "dispatch is paused; to continue: stint resume"},
		{"paused, with a reason", []string{"t: status=queued", "control dispatch: paused=true; reason=lunch"}, "dispatch is paused: lunch; to continue: stint resume"},
		{"the user's time", []string{"t: status=queued; notBefore=" + at(time.Hour)}, "waits until 13:00:00, as it was told"},
		{"retry", []string{"t: status=queued; attempt=1; maxAttempts=3; notBefore=" + at(30*time.Second)}, "waits until 12:00:30, in 30s (attempt 2)"},
		{"retry without a bound", []string{"t: status=queued; attempt=1; notBefore=" + at(30*time.Second)}, "waits until 12:00:30, in 30s (attempt 2)"},
		{"retry after a failure", []string{"t: status=queued; attempt=1; reason=network; error=no route; notBefore=" + at(30*time.Second)}, "waits until 12:00:30, in 30s (attempt 2): network: no route"},
		{"rate limit", []string{"t: status=queued; limitWaits=2; reason=rate-limited; notBefore=" + at(24*time.Hour)}, "waits until 2026-11-22 12:00:00, in 24h0m0s, for the rate limit (wait 2)"},
		{"a shortage", []string{"t: status=queued; reason=interrupted; error=too many open files; notBefore=" + at(30*time.Second)}, "waits until 12:00:30, in 30s: too many open files"},
		{"after", []string{"z: status=queued; sessionKey=z", "t: status=queued; after=z"}, "comes after z, which is queued"},
		{"after nobody", []string{"t: status=queued; after=z"}, "comes after z, which no record names; to run it, correct the line - after: in its section in tasks.md"},
		{"behind a running one", []string{"a: status=running; sessionKey=web", "t: status=queued; sessionKey=web"}, "behind a, which is running, in session web"},
		{"behind", []string{"a: status=queued; sessionKey=web", "h: status=queued; sessionKey=web; hold=true", "t: status=queued; sessionKey=web"}, "behind a in session web"},
		{"behind in a directory", []string{"a: status=queued; sessionKey=dir:/w", "t: status=queued; workspace=/w"}, "behind a in the lane of /w"},
		{"behind one whose agent may live", []string{"a: status=queued; sessionKey=web; hold=true; reason=orphaned", "t: status=queued; sessionKey=web"}, "behind a, which is held because its agent may still be alive, in session web"},
		{"the session of one whose agent may live", []string{"a: status=queued; sessionKey=1; sessionId=x; hold=true; reason=orphaned", "t: status=queued; sessionKey=2; sessionId=x"}, "its agent session is used by a, which is held because its agent may still be alive"},
		{"nothing to wait for", []string{
			"h: status=queued; sessionKey=web; hold=true", "l: status=queued; sessionKey=web; notBefore=" + at(time.Hour), "t: status=queued; sessionKey=web",
		}, "ready: it starts next"},
		{"account on hold", []string{"t: status=queued; agent=codex", "control account:codex: hold=true; reason=not logged in"}, "account codex is on hold: not logged in; when that is fixed: stint account enable codex"},
		{"account cools down", []string{"t: status=queued; agent=codex", "control account:codex: coolUntil=" + at(time.Minute)}, "rate-limited: account codex is available again at 12:01:00, in 1m0s"},
		{"account cools down, with a reason", []string{
			"t: status=queued; agent=codex", "control account:codex: coolUntil=" + at(252*time.Second-time.Millisecond) + "; reason=rate-limited; limitWaits=3",
		}, "rate-limited: account codex is available again at 12:04:11, in 4m12s (wait 3)"},
		{"one after the other", []string{
			"a: status=running; sessionKey=1; agent=codex; startedAt=" + at(0), "t: status=queued; agent=codex", "control account:codex: coolUntil=" + at(0) + "; reason=rate-limited; limitWaits=3",
		}, "account codex was rate-limited (wait 3); one task at a time until one gets through"},
		{"account full", []string{
			"a: status=running; sessionKey=1; account=two", "b: status=running; sessionKey=2; account=two", "t: status=queued; account=two",
		}, "all 2 slots of account two are in use"},
		{"native session", []string{
			"a: status=running; sessionKey=1; agent=codex; codexSessionId=n", "t: status=queued; sessionKey=2; agent=codex; codexSessionId=n",
		}, "its agent session is used by a, which is running"},
		{"workers", []string{"a: status=running; sessionKey=1", "b: status=running; sessionKey=2", "c: status=running; sessionKey=3", "d: status=running; sessionKey=4", "t: status=queued"}, "no worker is free: max_workers is 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, tt.records...)
			if got := j.why("t", noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4, Account: slotsOfTwo}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	j := newJournal(t)
	records(j, "a: status=running; sessionKey=1", "t: status=queued", "d: status=done; updatedAt="+at(0))
	for workers, want := range map[int]string{1: "no worker is free: max_workers is 1", 0: "no worker is free: max_workers is 0"} {
		if got := j.why("t", noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: workers}); got != want {
			t.Error(got)
		}
	}
	j.broken = true
	if got := j.why("d", noon.In(time.FixedZone("", 3600)), lanes.Limits{WorkspaceRoot: "/w"}); got != "done at 13:00:00" {
		t.Error(got)
	}
}

// BenchmarkReady is one round of dispatch with 10,000 lanes of 10 tasks: with all
// workers busy, and as tasks start and end.
func BenchmarkReady(b *testing.B) {
	setup := func(b *testing.B) *journal {
		j := newJournal(b)
		for i := range 100_000 {
			j.task(uuid(i), "status: queued", fmt.Sprintf("sessionKey: s%d", i%10_000), "agent: codex")
		}
		return j
	}
	b.Run("full", func(b *testing.B) {
		j := setup(b)
		for _, t := range j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4}) {
			j.task(t.ID, "status: running")
		}
		b.ReportAllocs()
		for b.Loop() {
			j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4})
		}
	})
	b.Run("round", func(b *testing.B) {
		j := setup(b)
		lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4}
		for b.Loop() {
			for _, t := range j.state.Ready(noon, lim) {
				j.task(t.ID, "status: running")
				j.state.Ready(noon, lim)
				j.task(t.ID, "status: queued", "retries: 1")
			}
		}
	})
	b.Run("account is full", func(b *testing.B) {
		j := setup(b)
		j.control("account:codex", "hold: true")
		j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4})
		for b.Loop() {
			j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 4})
		}
	})
}

// TestDirectoryOnlyExcludes: in the lane of a directory a task that waits for its account, for other tasks or
// for a retry lets the others go first, but not those of its own session. In a named session it blocks them.
func TestDirectoryOnlyExcludes(t *testing.T) {
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 9}
	for _, tt := range []struct {
		name    string
		records []string
		want    string // ready at noon
		why     string // of the last task
	}{
		{"its account cools down", []string{"control account:codex: coolUntil=" + at(time.Hour), "a: status=queued; sessionKey=KEY; agent=codex", "b: status=queued; sessionKey=KEY; agent=claude"}, "b", "ready: it starts next"},
		{"its account is on hold", []string{"control account:codex: hold=true", "a: status=queued; sessionKey=KEY; agent=codex", "b: status=queued; sessionKey=KEY; agent=claude"}, "b", "ready: it starts next"},
		{"it comes after another", []string{"z: status=queued; sessionKey=z; hold=true", "a: status=queued; sessionKey=KEY; after=z", "b: status=queued; sessionKey=KEY"}, "b", "ready: it starts next"},
		{"it waits for a retry", []string{"a: status=queued; sessionKey=KEY; attempt=1; notBefore=" + at(time.Minute), "b: status=queued; sessionKey=KEY"}, "b", "ready: it starts next"},
		{"and so does its session", []string{"a: status=queued; sessionKey=KEY; sessionId=1; attempt=1; notBefore=" + at(time.Minute), "c: status=queued; sessionKey=KEY; sessionId=2", "b: status=queued; sessionKey=KEY; sessionId=1"}, "c", "behind c in the lane of /w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for key, want := range map[string]string{state.LanePrefixDir + "/w": tt.want, "web": ""} {
				j := newJournal(t)
				for _, r := range tt.records {
					records(j, strings.ReplaceAll(r, "KEY", key))
				}
				if got := strings.Join(taskIDs(j.state.Ready(noon, lim)), " "); got != want {
					t.Errorf("in %s: ready %q, want %q", key, got, want)
				}
				if why := j.why("b", noon, lim); key != "web" && why != tt.why {
					t.Errorf("why b: %s, want %s", why, tt.why)
				}
			}
		})
	}
}
