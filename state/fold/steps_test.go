package fold

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/state"
	"stint/state/lanes"
)

// loopRecords are those of a task that passes its verify command in the second
// iteration, after its master was killed while the command ran for the first time.
func loopRecords(j *journal) {
	j.task("t", "status: queued", "prompt: p", "verifyCommand: make test", "createdAt: "+at(0), "updatedAt: "+at(0))
	j.task("t", "status: running", "runId: a1", "attempt: 1", "maxIterations: 3", "startedAt: "+at(0), "updatedAt: "+at(0))
	j.task("t", "status: running", "runId: v1", "phase: verify", "iteration: 1", "startedAt: "+at(time.Second), "updatedAt: "+at(time.Second), "inputTokens: 10", "result: one")
	j.task("t", "status: queued", "retries: 1", "attempt: 0", "reason: interrupted", "updatedAt: "+at(2*time.Second))
	j.task("t", "status: running", "runId: v2", "attempt: 1", "reason:", "startedAt: "+at(3*time.Second), "updatedAt: "+at(3*time.Second))
	j.task("t", "status: running", "runId: a2", "phase:", "iteration: 2", "verifyExitCode: 1", "verifyTime: 1s", "verifyOutput: ## Task x\n- seq: 1",
		"startedAt: "+at(4*time.Second), "updatedAt: "+at(4*time.Second))
	j.task("t", "status: running", "runId: v3", "phase: verify", "startedAt: "+at(5*time.Second), "updatedAt: "+at(5*time.Second), "inputTokens: 30", "result: two")
	j.task("t", "status: done", "phase:", "verifyExitCode: 0", "verifyTime: 2s", "verifyOutput:", "updatedAt: "+at(6*time.Second))
}

// TestSteps: each run of a task is told by its records alone, the iterations with how
// their command ended; what was cut off is no iteration.
func TestSteps(t *testing.T) {
	j := newJournal(t)
	loopRecords(j)
	got := j.whole("t")
	want := []state.Iteration{
		{Iteration: 1, Attempt: 1, ExitCode: 1, Duration: "1s", RunID: "v2", EndedAt: noon.Add(4 * time.Second)},
		{Iteration: 2, Attempt: 1, Duration: "2s", RunID: "v3", EndedAt: noon.Add(6 * time.Second)},
	}
	if diff := cmp.Diff(want, state.Iterations(got.Steps)); diff != "" {
		t.Error(diff)
	}
	if s := fmt.Sprint(stepNames(got.Steps)); s != "[a1 v1 v2 a2 v3]" {
		t.Errorf("steps: %s", s)
	}
	if got.Phase != "" || got.Iteration != 2 || *got.VerifyExitCode != 0 || got.VerifyOutput != "" || got.Result != "two" {
		t.Errorf("%+v", got)
	}
	if n := length(j.state); n != 1 {
		t.Errorf("what the command printed made %d tasks of one", n)
	}
	var used []int64
	for _, r := range j.runs("t") {
		used = append(used, r.Usage.InputTokens)
	}
	if diff := cmp.Diff([]int64{10, 20}, used); diff != "" { // the command's runs use nothing, and are none of an agent
		t.Errorf("runs: %s", diff)
	}
	j.checkRefold()
}

func stepNames(steps []state.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.RunID)
	}
	return names
}

// TestStepsAreCompacted: one record tells of all of them, also of a task that is in the middle of its loop.
func TestStepsAreCompacted(t *testing.T) {
	whole := newJournal(t)
	loopRecords(whole)
	for n := 3; n <= len(whole.sections); n++ {
		j := newJournal(t)
		for i, raw := range whole.sections[:n] {
			j.sections = append(j.sections, raw)
			must(t, j.apply(j.state, parse(t, raw, 0), i))
		}
		next := j.compacted(j.compact(time.Time{}))
		if len(next.sections) != 2 {
			t.Errorf("%d records beside that of the compaction", len(next.sections)-1)
		}
		for _, raw := range whole.sections[n:] {
			next.sections = append(next.sections, raw)
			must(t, next.apply(next.state, parse(t, raw, 0), len(next.sections)-1))
		}
		if diff := cmp.Diff(whole.whole("t"), next.whole("t"), ignoreSeq); diff != "" {
			t.Errorf("compacted after %d records: %s", n, diff)
		}
	}
}

// TestLastAttempt begins with the agent's turn of the first iteration, the last one.
func TestLastAttempt(t *testing.T) {
	j := newJournal(t)
	loopRecords(j)
	if got := fmt.Sprint(stepNames(state.LastAttempt(j.whole("t").Steps))); got != "[a1 v1 v2 a2 v3]" {
		t.Error(got)
	}
	j.task("t", "status: queued", "attempt: 0", "iteration:", "by: client")
	j.task("t", "status: running", "runId: a0", "attempt: 1")
	j.task("t", "status: queued", "attempt: 0", "reason: interrupted")
	j.task("t", "status: running", "runId: a3", "attempt: 1")
	j.task("t", "status: running", "runId: v4", "phase: verify", "iteration: 1")
	if got := fmt.Sprint(stepNames(state.LastAttempt(j.whole("t").Steps))); got != "[a3 v4]" {
		t.Error(got)
	}
}

// TestStartedAt: an attempt begins with the first turn of its agent, whatever runs later
// in it, and also in what a compaction has made of it.
func TestStartedAt(t *testing.T) {
	j := newJournal(t)
	expect := func(began, run time.Duration) {
		t.Helper()
		for name, j := range map[string]*journal{"the history": j, "compacted": j.compacted(j.compact(time.Time{}))} {
			got := j.whole("t")
			if !got.StartedAt.Equal(noon.Add(began)) || !got.RunStartedAt.Equal(noon.Add(run)) || !state.LastAttempt(got.Steps)[0].Started.Equal(got.StartedAt) {
				t.Errorf("%s: began at %s, run at %s", name, got.StartedAt, got.RunStartedAt)
			}
		}
	}
	loopRecords(j)
	expect(0, 5*time.Second)
	j.task("t", "status: queued", "by: client", "updatedAt: "+at(7*time.Second))
	expect(0, 5*time.Second)
	j.task("t", "status: running", "runId: a3", "attempt: 2", "iteration: 1", "startedAt: "+at(8*time.Second))
	expect(8*time.Second, 8*time.Second)
	j.task("t", "status: running", "runId: v4", "phase: verify", "startedAt: "+at(9*time.Second))
	expect(8*time.Second, 9*time.Second)
	j.task("t", "status: running", "runId: a4", "phase:", "iteration: 2", "startedAt: "+at(10*time.Second))
	expect(8*time.Second, 10*time.Second)
	j.checkRefold()
}

// TestPhaseInterrupted: a task goes on where it was; with another prompt, or queued
// again by hand, it begins anew.
func TestPhaseInterrupted(t *testing.T) {
	begin := func() *journal {
		j := newJournal(t)
		j.task("t", "status: queued", "prompt: p")
		j.task("t", "status: running", "runId: a1")
		j.task("t", "status: running", "runId: v1", "phase: verify", "iteration: 2")
		j.task("t", "status: queued", "reason: interrupted")
		return j
	}
	j := begin()
	if got := j.peek("t"); got.Phase != state.PhaseVerify || got.Iteration != 2 {
		t.Errorf("it goes on in phase %q, iteration %d", got.Phase, got.Iteration)
	}
	j.task("t", "prompt: another", "by: hand")
	if got := j.peek("t"); got.Phase != "" || got.Iteration != 1 {
		t.Errorf("with another prompt it is in phase %q, iteration %d", got.Phase, got.Iteration)
	}
	j.checkRefold()

	j = begin()
	j.task("t", "status: running", "runId: v2")
	j.task("t", "status: failed", "phase:", "reason: verify", "verifyExitCode: 1")
	again := &ledger.Record{Kind: ledger.KindTask, ID: "t", Fields: []ledger.Pair{{Key: "status", Value: "queued"}}}
	if diff := cmp.Diff([]ledger.Pair{{Key: "iteration"}, {Key: "reason"}}, j.state.ImpliedChanges(again)); diff != "" {
		t.Errorf("queued by hand: %s", diff)
	}
}

// TestVerifiedByHand: a check of a task that has ended changes nothing about how it ended.
func TestVerifiedByHand(t *testing.T) {
	j := newJournal(t)
	loopRecords(j)
	j.task("t", "verifyExitCode: 1", "verifyTime: 3s", "verifyOutput: no", "by: client")
	got := j.whole("t")
	if got.Status != state.Done || got.By != "" || *got.VerifyExitCode != 1 || !got.UpdatedAt.Equal(noon.Add(6*time.Second)) || len(state.Iterations(got.Steps)) != 2 {
		t.Errorf("%+v", got)
	}
	j.checkRefold()
}

// TestWhyRunning returns what the run does, and which iteration it is.
func TestWhyRunning(t *testing.T) {
	for want, fields := range map[string][]string{
		"running since 12:00:00":                                         {"maxIterations: 3", "iteration: 1"},
		"running since 12:00:00, iteration 2 of 3":                       {"maxIterations: 3", "iteration: 2"},
		"its verify command is running since 12:00:00, iteration 2 of 3": {"maxIterations: 3", "iteration: 2", "phase: verify"},
		"its verify command is running since 12:00:00":                   {"maxIterations: 1", "iteration: 1", "phase: verify"},
		"the agent that judges its answer is running since 12:00:00":     {"phase: evaluate"},
		"its verify command is running, iteration 1 of 2":                {"maxIterations: 2", "iteration: 1", "phase: verify", "startedAt:", "updatedAt:"},
	} {
		j := newJournal(t)
		j.task("t", append([]string{"status: running", "runId: r", "startedAt: " + at(0), "updatedAt: " + at(0)}, fields...)...)
		if strings.HasPrefix(want, "its verify command is running,") {
			j.task("t", "startedAt:")
		}
		if got := j.why("t", noon.Add(12*time.Second), lanes.Limits{WorkspaceRoot: "/w"}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPromptChangesInTheLoop: what runs goes on, and is told for what it is; the loop
// begins anew with the next turn of the agent, or when the task is queued.
func TestPromptChangesInTheLoop(t *testing.T) {
	for _, tc := range []struct {
		then      string // a record behind the change, as in TestImpliedChanges
		phase     state.Phase
		iteration int
		reworded  bool
	}{
		{"label: x", state.PhaseVerify, 2, true},
		{"status: running; runId: v2; phase: verify", state.PhaseVerify, 2, true},
		{"status: running; runId: a2; phase:; iteration: 1", "", 1, false},
		{"status: queued; reason: interrupted", "", 1, false},
		{"status: done; phase:", "", 2, false},
	} {
		j := newJournal(t)
		j.task("t", "status: queued", "prompt: p")
		j.task("t", "status: running", "runId: v1", "phase: verify", "iteration: 2", "startedAt: "+at(0))
		j.task("t", "prompt: q", "by: hand")
		if got := j.peek("t"); got.Phase != state.PhaseVerify || got.Iteration != 2 || !got.PromptChanged {
			t.Errorf("while the command runs: %+v", got)
		}
		for what, j := range map[string]*journal{"live": j, "compacted": j.compacted(j.compact(time.Time{}))} {
			j.task("t", strings.Split(tc.then, "; ")...)
			got := j.whole("t")
			if got.Phase != tc.phase || got.Iteration != tc.iteration || got.PromptChanged != tc.reworded || got.Prompt != "q" {
				t.Errorf("%s, behind %s: %+v", what, tc.then, got)
			}
			j.checkRefold()
		}
	}
}
