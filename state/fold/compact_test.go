package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"stint/ledger"
	"stint/ledger/mark"
	"stint/state"
	"stint/state/lanes"
)

// A kept is what a compaction leaves.
type kept struct {
	Records []ledger.Record
	Out     []ledger.Moved
}

// compacted folds what Compact keeps, as the ledger does: the archive first.
func (j *journal) compacted(keep kept) *journal {
	j.t.Helper()
	next := newJournal(j.t)
	next.seq, next.archive = j.seq, slices.Clone(j.archive)
	for _, m := range keep.Out {
		next.archive = append(next.archive, m.Entry)
	}
	for _, a := range next.archive {
		next.state.Archive(a)
	}
	next.control(mark.Compaction)
	for i := range keep.Records {
		r := &keep.Records[i]
		next.seq++
		r.Seq = next.seq
		sec, err := ledger.Encode(r)
		must(j.t, err)
		next.sections = append(next.sections, slices.Clone(sec.Raw))
		if err := next.apply(next.state, sec, len(next.sections)-1); err != nil {
			j.t.Fatalf("a merged record is refused: %v", err)
		}
	}
	return next
}

// runs returns the runs of one task.
func (j *journal) runs(id string) (runs []state.Run) {
	j.t.Helper()
	err := j.state.EachTask(func(list []state.Run) error {
		if len(list) > 0 && list[0].TaskID == id {
			runs = list
		}
		return nil
	})
	must(j.t, err)
	return runs
}

func (j *journal) compact(before time.Time) (all kept) {
	j.t.Helper()
	keep, err := j.state.Compact(before, false, func(m ledger.Moved) error {
		all.Out = append(all.Out, m)
		return nil
	})
	must(j.t, err)
	for _, merge := range keep {
		r, err := merge()
		must(j.t, err)
		all.Records = append(all.Records, r)
	}
	return all
}

// facts is Dump without where records stand and without the tasks in out.
func facts(t testing.TB, s *State, out map[string]bool) string {
	t.Helper()
	var b strings.Builder
	gone := map[string]float64{}
	for line := range strings.Lines(dump(t, s)) {
		var row map[string]any
		must(t, json.Unmarshal([]byte(line), &row))
		if task, isTask := row["task"].(map[string]any); isTask && out[task["id"].(string)] {
			if row["kept"] == 0.0 && row["deleted"] == false {
				gone[task["status"].(string)]++
			}
			continue
		}
		delete(row, "records")
		if counts, ok := row["counts"].(map[string]any); ok {
			for status, n := range gone {
				if counts[status] = counts[status].(float64) - n; counts[status].(float64) == 0 {
					delete(counts, status)
				}
			}
		}
		text, err := json.MarshalIndent(row, "", " ")
		must(t, err)
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}

// drawHistory appends good and bad records of all kinds, with texts that must come back byte for byte.
func drawHistory(t *rapid.T, j *journal, most int) {
	for range rapid.IntRange(0, most).Draw(t, "records") {
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			_ = j.append(ledger.KindTask, pick(t, uuid(1), uuid(2), "five"), "prompt: "+rapid.String().Draw(t, "prompt"),
				"result: "+rapid.String().Draw(t, "result"), "color: "+rapid.String().Draw(t, "color"))
		case 1:
			_ = j.append(ledger.KindControl, ControlDeleted, pick(t, "tasks", "back", "removed")+": "+pick(t, uuid(1), uuid(2)+"\n"+uuid(3), "five"))
		case 2:
			_ = j.append(ledger.KindTask, pick(t, uuid(1), uuid(2), uuid(3)), "startedAt: "+pick(t, "", at(0), "2026-11-21T12:00:00.0000005Z"),
				"updatedAt: "+pick(t, "", at(time.Hour)))
		case 3:
			_ = j.append(ledger.KindTask, pick(t, uuid(1), uuid(2), uuid(3)), "sessionKey: "+pick(t, "web", "api"),
				"agent: "+pick(t, "codex", "claude"), pick(t, "runId: r", "account: codex", "sessionId: s1", "codexSessionId: n1"), "by: "+pick(t, "hand", "ana"))
		default:
			_ = drawRecord(t, j)
		}
	}
}

// TestCompactedJournalGivesTheSameState: whatever happened, the fold of what a compaction keeps is the fold
// of the whole history, but for what was moved out. So it stays when the same records follow.
func TestCompactedJournalGivesTheSameState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		drawHistory(rt, j, 40)
		before := rapid.SampledFrom([]time.Time{{}, noon, noon.Add(time.Second), noon.Add(2 * time.Hour)}).Draw(rt, "before")
		keep := j.compact(before)
		out := map[string]bool{}
		for _, m := range keep.Out {
			out[m.Entry.ID] = true
			checkMoved(rt, j, m)
		}
		next := j.compacted(keep)
		same := func(when string) {
			if diff := cmp.Diff(facts(t, j.state, out), facts(t, next.state, out)); diff != "" {
				rt.Fatalf("%s, before (-) and after (+):\n%s", when, diff)
			}
			checkSameTasks(rt, j, next, out)
		}
		same("after compaction")
		again := next.compact(time.Time{})
		if diff := cmp.Diff(facts(t, next.state, nil), facts(t, next.compacted(kept{Records: again.Records, Out: keep.Out}).state, nil)); diff != "" {
			rt.Fatalf("compacted twice:\n%s", diff)
		}
		j.seq = next.seq // the records that follow have the same numbers
		for range rapid.IntRange(0, 20).Draw(rt, "more") {
			kind, id, fields := ledger.KindTask, pick(rt, uuid(1), uuid(2), uuid(3), uuid(4), "five", "six"), []string{drawField(rt), drawField(rt)}
			if rapid.Bool().Draw(rt, "plain") {
				fields = []string{"status: " + pick(rt, "queued", "running", "done"), "by: " + pick(rt, "hand", "ana")}
			}
			if out[id] {
				continue
			}
			one, two := j.append(kind, id, fields...), next.append(kind, id, fields...)
			if (one == nil) != (two == nil) {
				rt.Fatalf("%q on %s: %v before, and %v after", fields, id, one, two)
			}
		}
		same("when more records follow")
	})
}

// ignoreSeq leaves out the numbers: compaction numbers records anew.
var ignoreSeq = cmpopts.IgnoreFields(state.Task{}, "Seq")

// checkMoved compares the one record of a task that goes out with the task.
func checkMoved(t *rapid.T, j *journal, m ledger.Moved) {
	want := j.whole(m.Entry.ID)
	sec, err := ledger.Encode(&m.Record)
	must(t, err)
	got, err := TaskOf(sec)
	must(t, err)
	if want.Title = got.Title; cmp.Diff(want, got, cmpopts.EquateEmpty(), ignoreSeq) != "" || !want.Status.Terminal() || m.Entry.Status != string(want.Status) {
		t.Fatalf("moved out:\n%s", cmp.Diff(want, got))
	}
	runs, err := RunsOf(sec)
	if diff := cmp.Diff(j.runs(want.ID), runs, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("runs of the task that was moved out: %v\n%s", err, diff)
	}
	if id, ok := j.state.ByIdempotencyKey(m.Entry.Key); m.Entry.Key != "" && (!ok || id != want.ID) {
		t.Fatalf("%s does not have the key %q", want.ID, m.Entry.Key)
	}
}

// checkSameTasks compares the tasks with their texts, and what may run.
func checkSameTasks(t *rapid.T, j, next *journal, out map[string]bool) {
	for n := uint32(1); n < j.state.Entries.Len(); n++ {
		id := j.state.ID(n)
		if out[id] {
			checkArchived(t, j, next, id)
			continue
		}
		was, is := j.whole(id), next.whole(id)
		if diff := cmp.Diff(was, is, cmpopts.EquateEmpty(), ignoreSeq); diff != "" {
			t.Fatalf("task %s: %s", id, diff)
		}
		if diff := cmp.Diff(j.runs(id), next.runs(id), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("runs of task %s: %s", id, diff)
		}
	}
	for _, now := range []time.Time{noon, noon.Add(time.Minute), noon.Add(3 * time.Hour)} {
		lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 5, Account: slotsOfTwo}
		if diff := cmp.Diff(j.state.Ready(now, lim), next.state.Ready(now, lim), cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Title" }, cmp.Ignore()), ignoreSeq); diff != "" {
			t.Fatalf("ready at %v: %s", now, diff)
		}
		if a, b := j.state.NextWake(now), next.state.NextWake(now); !a.Equal(b) {
			t.Fatalf("wakes at %v and at %v", a, b)
		}
	}
}

// checkArchived: what was moved out is still known.
func checkArchived(t *rapid.T, j, next *journal, id string) {
	was, _ := j.state.Peek(id)
	is, ok := next.state.Peek(id)
	a, archived := next.state.Archived(id)
	if !ok || !archived || found(next.state, id) != id || a.Status != string(was.Status) || is.Status != was.Status || !is.UpdatedAt.Equal(was.UpdatedAt) {
		t.Fatalf("archived: %+v, %+v; it was %+v", is, a, was)
	}
	if _, _, err := next.state.Task(id); err == nil {
		t.Fatal("an archived task was read from the journal")
	}
	section := encode(j.t, ledger.KindTask, id, 1, "status: queued", "by: hand")
	if err := next.state.CheckNext(section); err == nil || !strings.Contains(err.Error(), "was archived") {
		t.Fatalf("the id of an archived task was used again by hand: %v", err)
	}
}

// TestArchivedTaskComesBack: a whole record brings an archived task back, as the newest, with its key.
func TestArchivedTaskComesBack(t *testing.T) {
	j := newJournal(t)
	j.task(uuid(1), "status: done", "prompt: one", "idempotencyKey: k", "updatedAt: "+at(0))
	j.task(uuid(2), "status: queued", "after: "+uuid(1))
	next := j.compacted(j.compact(noon.Add(time.Second)))
	if got := ready(next, 4); got != uuid(2) {
		t.Errorf("a task that comes after an archived one: %q is ready", got)
	}
	if id, ok := next.state.ByIdempotencyKey("k"); !ok || id != uuid(1) {
		t.Errorf("the key gives %q", id)
	}
	if n := length(next.state); n != 1 {
		t.Errorf("%d tasks", n)
	}
	if id := found(next.state, "000000001"); id != uuid(1) {
		t.Errorf("found by a piece of its id: %q", id)
	}
	if err := next.refuse(uuid(1), "verifyExitCode: 0"); !errors.Is(err, errArchived) {
		t.Errorf("a record of a part of it: %v", err)
	}
	for i, fields := range [][]string{{"status: done", "prompt: one", "idempotencyKey: k"}, {"status: queued"}} {
		if err := next.append(ledger.KindTask, uuid(1), fields...); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	if task := next.whole(uuid(1)); task.Prompt != "one" || task.Status != state.Queued {
		t.Errorf("it is back as %+v", task)
	}
	if id, ok := next.state.ByIdempotencyKey("k"); !ok || id != uuid(1) || length(next.state) != 2 {
		t.Errorf("the key gives %q, %d tasks", id, length(next.state))
	}
	if got := found(next.state, state.LastRef); got != uuid(1) {
		t.Errorf("the last one is %s", got)
	}
}

// TestCarriedIsStintsOwn: nobody edits what compaction carries over.
func TestCarriedIsStintsOwn(t *testing.T) {
	for _, id := range []string{controlCarried, mark.Compaction, mark.Restore} {
		if err := Check(encode(t, ledger.KindControl, id, 1, "by: hand", "keys: x")); err == nil {
			t.Errorf("an edit of Control %s was taken", id)
		}
	}
	j := newJournal(t)
	if err := j.append(ledger.KindControl, controlCarried, "sessions: nonsense"); err == nil {
		t.Error("nonsense was folded")
	}
	line := state.FormatWords("key", "a \"b\"\xff\n", "empty", "", "x", "=")
	got, err := state.ParseWords(line)
	if want := map[string]string{"key": "a \"b\"\xff\n", "x": "="}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%s gives %q, %v", line, got, err)
	}
}

// TestCompactReadFails: nothing is merged of a task that cannot be read.
func TestCompactReadFails(t *testing.T) {
	j := newJournal(t)
	j.task(uuid(1), "status: queued")
	j.broken = true
	if _, err := j.state.Compact(noon, false, nil); err == nil || !strings.Contains(err.Error(), uuid(1)) {
		t.Errorf("the error is %v", err)
	}
}

// TestCompactionCarriesOver: what no single record of a task can say, each alone.
func TestCompactionCarriesOver(t *testing.T) {
	for name, fill := range map[string]func(*journal){
		"a person had the last word on a running task": func(j *journal) {
			j.task(uuid(1), "status: running", "startedAt: "+at(0), "updatedAt: "+at(0))
			j.task(uuid(1), "priority: 9", "by: hand")
		},
		"nobody knows when it started": func(j *journal) {
			j.task(uuid(1), "status: running")
			j.task(uuid(1), "updatedAt: "+at(0), "by: hand")
		},
		"the younger task has the key": func(j *journal) {
			j.task(uuid(1), "status: queued")
			j.task(uuid(2), "status: queued", "idempotencyKey: k")
			j.task(uuid(1), "idempotencyKey: k")
		},
		"nobody has the key that a task names": func(j *journal) {
			j.task(uuid(1), "status: queued", "idempotencyKey: k")
			j.task(uuid(2), "status: queued", "idempotencyKey: k")
			j.task(uuid(1), "idempotencyKey:")
		},
		"the older task used the session last": func(j *journal) {
			j.task(uuid(1), "status: queued", "sessionKey: web", "sessionId: s1", "agent: codex")
			j.task(uuid(2), "status: done", "sessionKey: web", "sessionId: s1", "agent: codex", "updatedAt: "+at(0))
			j.task(uuid(1), "codexSessionId: n1", "updatedAt: "+at(time.Second))
		},
		"it was released though its agent might have lived, and held again": func(j *journal) {
			j.task(uuid(1), "status: queued", "reason: orphaned", "hold: true")
			j.task(uuid(1), "hold:")
			j.task(uuid(1), "hold: true")
		},
		"two tasks wait in a session behind another one, and the older was changed last": func(j *journal) {
			j.task(uuid(1), "status: queued", "sessionKey: web", "sessionId: s1", "updatedAt: "+at(0))
			j.task(uuid(2), "status: queued", "sessionKey: web", "sessionId: s1", "updatedAt: "+at(0))
			j.task(uuid(3), "status: queued", "sessionKey: web", "sessionId: s2", "updatedAt: "+at(0))
			j.task(uuid(1), "note: x", "updatedAt: "+at(time.Second))
		},
		"the current session has left the place, and its workspace stays": func(j *journal) {
			j.task(uuid(1), "status: queued", "sessionKey: web", "sessionId: s1", "workspace: /a")
			j.task(uuid(2), "status: queued", "sessionKey: web", "sessionId: s2", "workspace: /b")
			j.task(uuid(2), "sessionKey: api", "sessionId: s2")
		},
	} {
		j := newJournal(t)
		fill(j)
		next := j.compacted(j.compact(time.Time{}))
		if diff := cmp.Diff(facts(t, j.state, nil), facts(t, next.state, nil)); diff != "" {
			t.Errorf("%s, before (-) and after (+):\n%s", name, diff)
		}
		web := &state.Task{SessionKey: "web"}
		was, _ := j.state.HomeOf(web, "")
		if is, _ := next.state.HomeOf(web, ""); is != was {
			t.Errorf("%s: the workspace of the session was %q, and is %q", name, was, is)
		}
	}
}

// TestCompactionCarriesFewSessions: the session of a task that waits behind others in a directory is in its
// own record alone, however many there are; not so one that an agent has begun for a task that ended.
func TestCompactionCarriesFewSessions(t *testing.T) {
	j := newJournal(t)
	j.task(uuid(9), "status: done", "sessionKey: dir:/w", "sessionId: s1", "agent: codex", "codexSessionId: n")
	for i := 1; i < 5; i++ {
		j.task(uuid(i), "status: queued", "sessionKey: dir:/w", fmt.Sprintf("sessionId: s%d", i), "agent: codex", "updatedAt: "+at(0))
	}
	if lines := j.state.CarriedSessions(); len(lines) != 2 || !strings.Contains(lines[0], `"s1"`) || !strings.Contains(lines[1], `"s4"`) {
		t.Errorf("carried are %q", lines)
	}
	if diff := cmp.Diff(facts(t, j.state, nil), facts(t, j.compacted(j.compact(time.Time{})).state, nil)); diff != "" {
		t.Error(diff)
	}
}
