package fold

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
)

// TestUsedIsTheSumOfTheRuns: after any history, with compactions, tasks that came back from the archive and records that were
// refused, the sums are those of the runs that the records tell of, and so they are when the journal is folded anew.
func TestUsedIsTheSumOfTheRuns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j, moved := newJournal(t), map[string]ledger.Record{}
		for range rapid.IntRange(1, 6).Draw(rt, "parts") {
			if len(moved) == 0 { // else it would bring tasks back with records that are not whole, as nobody does
				drawHistory(rt, j, 6)
			}
			for range rapid.IntRange(0, 12).Draw(rt, "records") {
				drawRun(rt, j, moved)
			}
			switch rapid.IntRange(0, 2).Draw(rt, "then") {
			case 0:
				before := rapid.SampledFrom([]time.Time{{}, noon, noon.Add(time.Second), noon.Add(2 * time.Hour)}).Draw(rt, "before")
				keep := j.compact(before)
				for _, m := range keep.Out {
					moved[m.Entry.ID] = m.Record
				}
				j = j.compacted(keep)
			case 1:
				id := pick(rt, uuid(1), uuid(2), uuid(3), "five")
				if _, isAway := j.state.Archived(id); !isAway {
					continue
				}
				var fields []string
				for _, f := range moved[id].Fields {
					fields = append(fields, f.Key+": "+f.Value)
				}
				must(t, j.append(ledger.KindTask, id, fields...))
				must(t, j.append(ledger.KindTask, id, "status: queued", "updatedAt: "+at(time.Hour)))
			}
		}
		want := toldUsage(j, moved)
		if diff := cmp.Diff(want, usedBy(j.state)); diff != "" {
			rt.Fatalf("by the runs (-) and by the sums (+):\n%s", diff)
		}
		if diff := cmp.Diff(want, usedBy(j.refold())); diff != "" {
			rt.Fatalf("folded anew, by the runs (-) and by the sums (+):\n%s", diff)
		}
	})
}

// drawRun appends a record of a task that is on its way, most of them good. None says what a run used late that had ended before
// the task was archived: no run is at work then.
func drawRun(t *rapid.T, j *journal, moved map[string]ledger.Record) {
	id := pick(t, uuid(1), uuid(2), uuid(3), "five")
	if _, isAway := j.state.Archived(id); isAway {
		return
	}
	status := pick(t, "queued", "running", "running", "done", "failed", "canceled")
	if before, _ := j.state.Peek(id); moved[id].ID != "" && before.Status != state.Running && status != "running" {
		return
	}
	_ = j.append(ledger.KindTask, id, "status: "+status, "runId: "+pick(t, "r1", "r2", "r3"),
		"agent: "+pick(t, "codex", "claude"), "sessionKey: "+pick(t, "web", "task:"+uuid(1), "dir:/w"), "by: "+pick(t, "", "", "hand"),
		"updatedAt: "+pick(t, at(0), at(time.Minute), at(20*time.Minute), at(time.Hour), ""),
		"inputTokens: "+pick(t, "1", "20", "300", "4000"), "costUsd: "+pick(t, "", "0.1", "0.25", "1.37"))
}

// usage is what runs have used, by what they have in common, and how many tasks began with them.
type usage struct {
	Runs, Tasks map[string]int
	Used        map[string]state.Usage
}

func (u usage) add(r *state.Run, runs, tasks int) {
	if runs == 0 {
		return
	}
	session := r.SessionKey
	if strings.HasPrefix(session, state.LanePrefixTask) {
		session = ""
	}
	name := fmt.Sprintf("%s %q %q %q %q", r.Ended.Truncate(15*time.Minute).Format(time.RFC3339), session, r.Agent, r.Model, r.Account)
	u.Runs[name] += runs
	u.Tasks[name] += tasks
	sum := u.Used[name].Plus(r.Usage)
	sum.CostUSD = math.Round(sum.CostUSD*1e6) / 1e6
	u.Used[name] = sum
}

func newUsage() usage { return usage{map[string]int{}, map[string]int{}, map[string]state.Usage{}} }

func usedBy(s *State) usage {
	u := newUsage()
	for _, one := range s.Used() {
		u.add(&one.Run, one.Runs, one.Tasks)
	}
	return u
}

// toldUsage adds up the runs that the records of a journal tell of, and those of tasks that are in the archive.
func toldUsage(j *journal, moved map[string]ledger.Record) usage {
	j.t.Helper()
	u := newUsage()
	add := func(runs []state.Run) error {
		for i := range runs {
			u.add(&runs[i], 1, max(0, 1-i))
		}
		return nil
	}
	must(j.t, j.state.EachTask(add))
	for id, r := range moved {
		if _, isAway := j.state.Archived(id); isAway {
			sec, err := ledger.Encode(&r)
			must(j.t, err)
			runs, err := RunsOf(sec)
			must(j.t, err)
			must(j.t, add(runs))
		}
	}
	return u
}

// RunsOf returns the runs of a task that has one record alone, as who reads the archive has them.
func RunsOf(sec *ledger.Section) ([]state.Run, error) {
	t, err := TaskOf(sec)
	if err != nil {
		return nil, err
	}
	return state.RunsAfter(nil, &state.Task{}, &t, sec), nil
}
