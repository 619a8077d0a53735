package coordinator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/statedir"
	"stint/ledger"
	"stint/state"
)

// format002 is the ledger format of document 002, as it stands there.
const format002 = `## Task <taskId>
- status: queued|running|done|failed
- sessionKey: <key>
- runId: <runId>
- retries: <n>
- attempt: <n>
- createdAt: <iso>
- updatedAt: <iso>
- resume: auto|always|never
- verifyCommand: <cmd?>
- maxIterations: <n?>
- triggeredByTaskId: <id?>
- codexSessionId: <id?>
- prompt: |
  <user prompt...>
- result: |
  <assistant text or error...>
`

// section002 fills in the format; what is left empty has no value there.
func section002(id, status, retries, native, result string) string {
	return strings.NewReplacer("<taskId>", id, "queued|running|done|failed", status, "<key>", "web", "<runId>", "run-"+id, "- retries: <n>", "- retries: "+retries, "<n>", "1",
		"<iso>", "2026-01-05T10:00:00.000Z", "auto|always|never", "auto", "<cmd?>", "", "<n?>", "", "<id?>", native, "- triggeredByTaskId: <id?>", "- triggeredByTaskId: ",
		"<user prompt...>", "Fix the login test.\n  It is flaky.", "<assistant text or error...>", result).Replace(format002)
}

// ledger002 has a task of each status; it was appended to, as that master does. One task
// was running when that ended.
func ledger002() string {
	return section002("ended", "queued", "0", "", "") + section002("ended", "running", "0", "", "") + section002("ended", "done", "0", "n0", "It passes.") + "\n" +
		section002("broken", "failed", "2", "", "exit 1") + "\n" +
		section002("cut", "queued", "0", "", "") + section002("cut", "running", "0", "native-cut", "") + "\n" +
		section002("alone", "running", "3", "", "") + "\n" + section002("next", "queued", "0", "", "")
}

// TestLedgerOfDocument002 is taken over whole: what it says is running was interrupted,
// and queued again with one retry more.
func TestLedgerOfDocument002(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		w := newWorld(t)
		w.cfg.Agents["codex"] = w.agent
		w.cfg.MaxWorkers = 0
		w.open()
		if !live {
			w.close()
			for _, name := range []string{ledger.JournalName, ledger.TasksName} {
				check(t, os.Remove(filepath.Join(w.dir, name)))
			}
		}
		path := filepath.Join(w.dir, ledger.TasksName)
		check(t, os.WriteFile(path, []byte(ledger002()), 0o600))
		w.clean("before", live)
		if live {
			if r, err := w.c.Reconcile(t.Context(), false); err != nil || len(r.Findings) > 0 {
				t.Errorf("%v, %v", r.Findings, err)
			}
		} else {
			w.open()
		}
		for id, want := range map[string]state.Task{
			"ended":  {Status: state.Done, Retries: 0, Attempt: 1, Result: "It passes.\n"},
			"broken": {Status: state.Failed, Retries: 2, Attempt: 1, Result: "exit 1\n"},
			"cut":    {Status: state.Queued, Retries: 1, Reason: state.ClassInterrupted, Agent: "codex", AgentSession: "native-cut"},
			"alone":  {Status: state.Queued, Retries: 4, Reason: state.ClassInterrupted},
			"next":   {Status: state.Queued, Attempt: 1},
		} {
			got := w.task(id)
			if got.Status != want.Status || got.Retries != want.Retries || got.Reason != want.Reason || got.Attempt != want.Attempt || strings.TrimSpace(got.Result) != strings.TrimSpace(want.Result) ||
				want.Agent != "" && (got.Agent != want.Agent || got.AgentSession != want.AgentSession) ||
				got.Prompt != "Fix the login test.\nIt is flaky." || got.SessionKey != "web" || got.RunID != "run-"+id || got.Resume != "auto" || got.CreatedAt.IsZero() {
				t.Errorf("live %v: %s is %+v", live, id, got)
			}
		}
		if list := w.c.Findings(); len(list) > 0 {
			t.Errorf("live %v: %v", live, list)
		}
		w.close()
		w.clean("after", false)
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), ledger002()) {
			t.Errorf("live %v: what was written is not there any more: %v", live, err)
		}
		w.cfg.MaxWorkers = 1
		w.open()
		for _, id := range []string{"cut", "alone", "next"} {
			w.expect(w.wait(id), state.Done, "")
		}
		if first := w.agent.turns[0]; first.TaskID != "cut" || first.Session != "native-cut" || first.Attempt != 1 || len(w.agent.turns) != 3 {
			t.Errorf("live %v: the turns are %+v", live, w.agent.turns)
		}
		w.close()
	}
}

// clean expects that fsck finds nothing.
func (w *world) clean(when string, live bool) {
	w.t.Helper()
	r, err := statedir.Fsck(w.t.Context(), w.dir, w.work, func() bool { return false })
	if err != nil || len(r.Faults) > 0 && !live {
		w.t.Errorf("%s: %v, %v", when, r.Faults, err)
	}
}
