package coordinator_test

import (
	"fmt"
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

// TestLedgerOfDocument002 is taken over whole, at a start and by a master at work: what it
// says is running was interrupted, and queued again with one retry more.
func TestLedgerOfDocument002(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, live := range []bool{false, true} {
		w := newWorld(t)
		w.cfg.Agents["codex"] = w.agent
		w.cfg.MaxWorkers = 0
		w.open()
		path := filepath.Join(w.dir, ledger.TasksName)
		if live {
			write(t, path, ledger002())
			r, err := w.c.Reconcile(t.Context(), false)
			if err != nil || len(r.Findings) > 0 {
				t.Errorf("%v, %v", r.Findings, err)
			}
		} else {
			w.close()
			check(t, os.Remove(filepath.Join(w.dir, ledger.JournalName)))
			write(t, path, ledger002())
			w.clean()
			w.open()
		}
		for id, want := range map[string]string{
			"ended":  "done, retries 0, attempt 1, n0: It passes.",
			"broken": "failed, retries 2, attempt 1: exit 1",
			"cut":    "queued interrupted, retries 1, attempt 0, native-cut:",
			"alone":  "queued interrupted, retries 4, attempt 0:",
			"next":   "queued, retries 0, attempt 1:",
		} {
			got := w.task(id)
			is := strings.TrimSpace(fmt.Sprintf("%s %s", got.Status, got.Reason)) + fmt.Sprintf(", retries %d, attempt %d", got.Retries, got.Attempt)
			if got.AgentSession != "" {
				is += ", " + got.AgentSession
			}
			if is = strings.TrimSpace(is + ": " + got.Result); is != want {
				t.Errorf("live %v: %s is %q, want %q", live, id, is, want)
			}
			if got.Prompt != "Fix the login test.\nIt is flaky." || got.SessionKey != "web" || got.RunID != "run-"+id || got.Resume != "auto" || got.CreatedAt.IsZero() {
				t.Errorf("live %v: %s is %+v", live, id, got)
			}
		}
		if list := w.c.Findings(); len(list) > 0 {
			t.Errorf("live %v: %v", live, list)
		}
		w.close()
		w.clean()
		if !strings.Contains(read(t, path), ledger002()) {
			t.Errorf("live %v: what was written is not there any more", live)
		}
		w.cfg.MaxWorkers = 1
		w.open()
		for _, id := range []string{"cut", "alone", "next"} {
			w.endsAs(id, state.Done, "")
		}
		if first := w.agent.turns[0]; first.TaskID != "cut" || first.Session != "native-cut" || first.Attempt != 1 || len(w.agent.turns) != 3 {
			t.Errorf("live %v: the turns are %+v", live, w.agent.turns)
		}
	}
}

// clean expects that fsck finds nothing.
func (w *world) clean() {
	w.t.Helper()
	if r, err := statedir.Fsck(w.t.Context(), w.dir, w.work, func() bool { return false }); err != nil || len(r.Faults) > 0 {
		w.t.Errorf("%v, %v", r.Faults, err)
	}
}
