package fold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/lanes"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// pick returns one of the words.
func pick(t *rapid.T, words ...string) string { return rapid.SampledFrom(words).Draw(t, "word") }

// drawField returns a field that may be good or bad, of the few that matter to order.
func drawField(t *rapid.T) string {
	switch key := pick(t, "status", "status", "status", "sessionKey", "sessionId", "agent", "account", "order", "priority", "hold",
		"notBefore", "attempt", "after", "after", "afterPolicy", "idempotencyKey", "codexSessionId", "claudeSessionId", "by", "label", "prompt",
		"threadTokens", "threadTokens", "promptKept", "phase", "phase", "iteration", "verifyExitCode", "verifyCommand", "maxIterations", "steps", "reason", "runId", "inputTokens", "endedRuns", "workspace", "updatedAt", "exitCode", "color"); key {
	case "status":
		return "status: " + pick(t, "queued", "queued", "running", "running", "done", "failed", "canceled", "dead", "draft", "qeued")
	case "sessionKey":
		return "sessionKey: " + pick(t, "web", "api", "dir:/w", "task:"+uuid(1), "task:"+uuid(2), "")
	case "sessionId":
		return "sessionId: " + pick(t, uuid(21), uuid(22), "s3", "")
	case "agent":
		return pick(t, "agent", "tool") + ": " + pick(t, "codex", "claude", "")
	case "account":
		return "account: " + pick(t, "two", "one", "")
	case "order", "priority", "attempt":
		return key + ": " + pick(t, "1", "2", "9", "", "x")
	case "hold":
		return "hold: " + pick(t, "true", "false", "")
	case "notBefore", "updatedAt":
		return key + ": " + pick(t, at(0), at(time.Minute), at(time.Hour), "", "soon")
	case "after":
		return "after: " + pick(t, uuid(1), uuid(2)+" "+uuid(3), "five", "nobody", "")
	case "afterPolicy":
		return "afterPolicy: " + pick(t, "any", "")
	case "idempotencyKey":
		return "idempotencyKey: " + pick(t, "k1", "k2", state.PartKey("k", 1), state.PartKey("k", 2), state.PartKey("k", 4), "")
	case "threadTokens":
		return "threadTokens: " + pick(t, "1 2 3 4 0.5", "9 0 9 0 0", "0 0 0 0 0", "", "1 2 3")
	case "inputTokens":
		return "inputTokens: " + pick(t, "1", "2", "30", "x")
	case "endedRuns":
		return "endedRuns: " + pick(t, "", `run="r1" agent="codex" ended="2026-11-21T12:00:00.5Z" used="1 2 3 4 0.5"`, `used="1"`, "x")
	case "reason":
		return "reason: " + pick(t, "orphaned", "orphaned", "network", "")
	case "phase":
		return "phase: " + pick(t, "verify", "verify", "evaluate", "", "x")
	case "steps":
		return "steps: " + pick(t, "", `run="r1" phase="verify" attempt="1" iteration="2" ended="2026-11-21T12:00:00.5Z" exit="1" took="1s"`, `run="1" attempt="x"`, "x")
	case "by":
		return "by: " + pick(t, "hand", "ana")
	default:
		return key + ": " + pick(t, "1", "2", "3", "")
	}
}

// drawRecord appends one record of a few tasks and controls.
func drawRecord(t *rapid.T, j *journal) error {
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		id := pick(t, "dispatch", "account:two", "account:codex")
		return j.append(ledger.KindControl, id, pick(t, "paused: true", "paused: false", "hold: true", "hold: false",
			"coolUntil: "+at(time.Minute), "coolUntil:", "coolGuessed: true", "limitWaits: 1", "hold: x"))
	}
	id := pick(t, uuid(1), uuid(2), uuid(3), uuid(4), "five")
	if rapid.Bool().Draw(t, "plain") { // many records that are good, so that tasks get about
		return j.append(ledger.KindTask, id, "status: "+pick(t, "queued", "queued", "running", "done"), "by: "+pick(t, "hand", "ana"))
	}
	return j.append(ledger.KindTask, id, rapid.SliceOfN(rapid.Custom(drawField), 1, 4).Draw(t, "fields")...)
}

// TestLiveStateEqualsRefold makes random histories of good and bad records, asks
// in between, and compares the state with a new fold of the same journal, with
// the records read back, and Ready with a plain telling of its rules.
func TestLiveStateEqualsRefold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		for range rapid.IntRange(1, 40).Draw(rt, "records") {
			before := ""
			if rapid.IntRange(0, 4).Draw(rt, "look") == 0 {
				before = dump(t, j.state)
			}
			if err := drawRecord(rt, j); err != nil && before != "" && before != dump(t, j.state) {
				rt.Fatalf("a refused record had an effect: %v", err)
			}
			if rapid.IntRange(0, 2).Draw(rt, "ask") == 0 {
				checkReady(rt, j)
			}
		}
		checkReady(rt, j)
		if live, again := dump(t, j.state), dump(t, j.refold()); live != again {
			rt.Fatalf("live state and refold differ:\n--- live\n%s--- refold\n%s", live, again)
		}
		checkReadBack(rt, j)
	})
}

// checkReadBack compares what is in memory of the live tasks with their records.
func checkReadBack(t *rapid.T, j *journal) {
	for n := uint32(1); n < j.state.Entries.Len(); n++ {
		l, again := j.state.Live(n), state.Folded{}
		if l == nil {
			continue
		}
		must(t, j.state.read(n, &again, state.KeepNone, nil))
		again.ID = "" // as in memory
		if diff := gocmp.Diff(again, *j.state.Whole(l), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("in the journal (-) and in memory (+):\n%s", diff)
		}
	}
}

// checkReady compares Ready, at a random time and with random limits, with a plain
// telling of the rules, and with Why.
func checkReady(t *rapid.T, j *journal) {
	now := noon.Add(time.Duration(rapid.IntRange(-1, 3601).Draw(t, "now")) * time.Second)
	lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: rapid.IntRange(0, 5).Draw(t, "workers"), Account: slotsOfTwo}
	got, want := taskIDs(j.state.Ready(now, lim)), plainReady(j, now, lim)
	if !slices.Equal(got, want) {
		t.Fatalf("ready: %v, by the rules %v\n%s", got, want, dump(j.t, j.state))
	}
	for _, task := range allTasks(j) {
		why := j.why(task.ID, now, lim)
		if slices.Contains(got, task.ID) && why != "ready: it starts next" {
			t.Fatalf("%s is ready, but %s", task.ID, why)
		}
		if task.Status != state.Queued && strings.HasPrefix(why, "ready") || why == "" {
			t.Fatalf("%s is %s, but %q", task.ID, task.Status, why)
		}
	}
	wake := j.state.NextWake(now)
	if !wake.IsZero() && !wake.After(now) {
		t.Fatalf("at %v it wakes at %v", now, wake)
	}
	before := noon.Add(2 * time.Hour)
	if !wake.IsZero() {
		before = wake.Add(-time.Millisecond)
	}
	if later := plainReady(j, before, lim); !slices.Equal(later, want) {
		t.Fatalf("ready changes from %v to %v before %v", want, later, wake)
	}
}

// allTasks returns all tasks by age.
func allTasks(j *journal) (tasks []state.Task) {
	for n := uint32(1); n < j.state.Entries.Len(); n++ {
		t, _ := j.state.Peek(j.state.ID(n))
		tasks = append(tasks, t)
	}
	return tasks
}

// plainReady returns which may start, from the tasks alone: no caches, no heaps.
func plainReady(j *journal, now time.Time, lim lanes.Limits) []string {
	tasks := allTasks(j)
	byID, age := map[string]state.Task{}, map[string]int{}
	laneBusy, accounts, used := map[string]bool{}, map[string]int{}, map[string]bool{}
	running, probes := 0, map[string]int{} // those that began after the account's last cool-down
	sessions := func(t state.Task) (names []string) {
		native := t.AgentSession
		if s, ok := j.state.SessionByID(t.SessionID); native == "" && ok && s.Agent == t.Agent {
			native = s.Native
		}
		if native != "" {
			names = append(names, t.Agent+" "+native)
		}
		if t.SessionID != "" {
			names = append(names, t.SessionID)
		}
		return names
	}
	lanes := map[string][]state.Task{}
	for i, t := range tasks {
		byID[t.ID], age[t.ID] = t, i
		switch t.Status {
		case state.Running:
			running++
			laneBusy[t.Lane()] = true
			accounts[accountFor(t)]++
			if a := j.state.Account(accountFor(t)); !t.RunStartedAt.Before(a.CoolUntil) {
				probes[accountFor(t)]++
			}
			for _, name := range sessions(t) {
				used[name] = true
			}
		case state.Queued:
			lanes[t.Lane()] = append(lanes[t.Lane()], t)
			if t.Hold && t.Reason == state.ClassOrphaned { // its agent may be at work
				laneBusy[t.Lane()] = true
				for _, name := range sessions(t) {
					used[name] = true
				}
			}
		}
	}
	var heads []state.Task
	for key, queue := range lanes {
		inRoot := key == state.LanePrefixDir && laneBusy[key+lim.WorkspaceRoot]
		if h := plainHead(j, queue, byID, age, now); h != nil && !laneBusy[key] && !inRoot {
			heads = append(heads, *h)
		}
	}
	slices.SortFunc(heads, func(a, b state.Task) int { return cmp.Or(b.Rank()-a.Rank(), age[a.ID]-age[b.ID]) })
	ids := []string{}
	for _, t := range heads {
		a := j.state.Account(accountFor(t))
		slots := slotsOfTwo(&a).Slots
		paused, _ := j.state.Paused()
		switch {
		case paused || running+len(ids) >= lim.MaxWorkers, a.Hold, a.CoolUntil.After(now), slots > 0 && accountFor(t) != "" && accounts[accountFor(t)] >= slots:
			continue
		case a.LimitWaits > 0 && probes[accountFor(t)] > 0:
			continue
		case slices.ContainsFunc(sessions(t), func(name string) bool { return used[name] }):
			continue
		}
		for _, name := range sessions(t) {
			used[name] = true
		}
		accounts[accountFor(t)]++
		probes[accountFor(t)]++
		ids = append(ids, t.ID)
	}
	return ids
}

// accountFor returns the account that a task's run needs: a verify command has none, and a
// judgement does not wait for one.
func accountFor(t state.Task) string {
	if t.Phase == state.PhaseVerify || t.Phase == state.PhaseEvaluate && t.Status != state.Running {
		return ""
	}
	return t.AccountName()
}

func plainHead(j *journal, queue []state.Task, byID map[string]state.Task, age map[string]int, now time.Time) *state.Task {
	slices.SortFunc(queue, func(a, b state.Task) int {
		switch {
		case a.Order != 0 && b.Order == 0:
			return -1
		case a.Order == 0 && b.Order != 0:
			return 1
		}
		return cmp.Or(cmp.Compare(a.Order, b.Order), age[a.ID]-age[b.ID])
	})
	strict, waiting := !strings.HasPrefix(queue[0].Lane(), state.LanePrefixDir), map[string]bool{}
	var limited *state.Task
	for i := range queue {
		t := &queue[i]
		if t.Hold || t.NotBefore.After(now) && !t.Tried() || t.SessionID != "" && waiting[t.SessionID] {
			continue
		}
		blocked := t.NotBefore.After(now)
		for _, id := range t.After {
			dep := byID[id]
			blocked = blocked || dep.Status != state.Done && !(t.AfterPolicy == state.AfterAny && dep.Status.Terminal())
		}
		a := j.state.Account(accountFor(*t))
		closed := a.Hold || a.CoolUntil.After(now)
		switch {
		case strict && blocked:
			return nil
		case strict || !blocked && !closed:
			return t
		case !blocked && limited == nil:
			limited = t
		}
		waiting[t.SessionID] = true
	}
	return limited
}

// TestDispatchKeepsTheRules runs random tasks as a coordinator does: what Ready
// returns is started, tasks end, and never are two in a lane or too many at once.
func TestDispatchKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: rapid.IntRange(1, 4).Draw(rt, "workers"), Account: slotsOfTwo}
		n := rapid.IntRange(1, 20).Draw(rt, "tasks")
		for i := range n {
			j.task(uuid(i), "status: queued", "sessionKey: "+pick(rt, "a", "b", "c", "d"), "account: "+pick(rt, "two", "one"),
				"priority: "+pick(rt, "1", "5", "9"))
		}
		for steps := 0; !j.state.Idle(); steps++ {
			if steps > 3*n {
				rt.Fatalf("not done after %d steps:\n%s", steps, dump(t, j.state))
			}
			for _, task := range j.state.Ready(noon, lim) {
				j.task(task.ID, "status: running", "attempt: 1")
			}
			checkRunning(rt, j, lim)
			end := rapid.SampledFrom(j.state.Running()).Draw(rt, "end")
			j.task(end, "status: "+pick(rt, "done", "failed", "dead", "canceled"))
		}
		j.checkRefold()
	})
}

func checkRunning(t *rapid.T, j *journal, lim lanes.Limits) {
	lanes, accounts := map[string]int{}, map[string]int{}
	running := j.state.Running()
	for _, id := range running {
		task := j.peek(id)
		lanes[task.Lane()]++
		accounts[task.Account]++
		if lanes[task.Lane()] > 1 {
			t.Fatalf("two running tasks in lane %s", task.Lane())
		}
	}
	if len(running) == 0 || len(running) > lim.MaxWorkers || accounts["two"] > 2 {
		t.Fatalf("%d running with %d workers, by account %v", len(running), lim.MaxWorkers, accounts)
	}
}

// TestImpliedSessionsTellTheSame folds random histories once with UUIDs as ids of sessions,
// which a waiting task may imply, and once with others, which none does.
func TestImpliedSessionsTellTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j, held := newJournal(t), newJournal(t)
		asOther := strings.NewReplacer(uuid(21), "A"+uuid(21)[1:], uuid(22), "A"+uuid(22)[1:])
		for range rapid.IntRange(1, 40).Draw(rt, "records") {
			_ = drawRecord(rt, j)
			raw := asOther.Replace(string(j.sections[len(j.sections)-1]))
			held.sections = append(held.sections, []byte(raw))
			_ = held.apply(held.state, parse(t, []byte(raw), 0), len(held.sections)-1)
			for _, id := range []string{uuid(21), uuid(22)} {
				x, ok := j.state.SessionByID(id)
				y, also := held.state.SessionByID(asOther.Replace(id))
				if x.ID = asOther.Replace(x.ID); x != y || ok != also {
					rt.Fatalf("%+v is known as %+v", y, x)
				}
			}
			for _, key := range []string{"web", "api", "task:" + uuid(1)} {
				x, _ := j.state.CurrentSession(key, "codex", "")
				y, _ := held.state.CurrentSession(key, "codex", "")
				if x.ID = asOther.Replace(x.ID); x != y {
					rt.Fatalf("of %s %+v is current, not %+v", key, x, y)
				}
			}
			if got, want := asOther.Replace(fmt.Sprint(j.state.Sessions())), fmt.Sprint(held.state.Sessions()); got != want {
				rt.Fatalf("sessions %s, want %s", got, want)
			}
			if got, want := asOther.Replace(dump(t, j.state)), dump(t, held.state); got != want {
				rt.Fatalf("the state is\n%s\nand with sessions that are held\n%s", got, want)
			}
		}
	})
}
