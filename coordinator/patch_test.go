package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

func (w *world) patch(id, patch string, seqs ...uint64) (state.Task, error) {
	return w.c.Edit(context.Background(), id, task.Patch{Fields: []byte(patch), Seqs: seqs}, ledger.ByClient)
}

// editWorld is a master with two agents that starts nothing.
func editWorld(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.WorkspaceRoot = ""
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.cfg.Models, w.cfg.ResumePolicy = map[string]string{"codex": "gpt"}, "always"
	w.open()
	return w
}

func TestEdit(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	other := w.submit(task.TaskSpec{Prompt: "other"})
	entry := w.submit(task.TaskSpec{Prompt: "p", Label: "l", Timeout: "9m"})
	when := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	dir := filepath.Join(w.work, "sub")
	check(t, os.Mkdir(dir, 0o700))
	got, err := w.patch(entry.ID, fmt.Sprintf(`{"prompt":"q\nr","tool":"codex","model":"m","workspace":%q,"sessionKey":"web","label":"x","priority":9,
		"scheduled_at":%q,"timeout":null,"max_attempts":2,"after":[%q],"afterPolicy":"any","resume":"never","tenantId":"t","queue":"n","fallback":["demo"],
		"verify":"true","maxIterations":2,"verifyTimeout":"1m","onFailure":"f","onIssue":"i","outputSpec":["./a b","c"],"hold":true}`, dir, when.Format(time.RFC3339), other.ID[24:]))
	check(t, err)
	want := entry
	want.Prompt, want.Title, want.Agent, want.Model, want.Workspace, want.SessionKey, want.Label, want.Priority = "q\nr", "q", "codex", "m", dir, "web", "x", 9
	want.NotBefore, want.Timeout, want.MaxAttempts, want.After, want.AfterPolicy, want.Resume = when, "", 2, []string{other.ID}, "any", "never"
	want.TenantID, want.Queue, want.Fallback, want.VerifyCommand, want.MaxIterations, want.VerifyTimeout = "t", "n", []string{"demo"}, "true", 2, "1m"
	want.OnFailure, want.OnIssue, want.OutputSpec, want.Hold, want.By = "f", "i", []string{"a b", "c"}, true, ledger.ByClient
	want.SessionID, want.Account = "", "" // as after an edit by hand: its next run finds those of its new place
	want.UpdatedAt, want.Seq = got.UpdatedAt, got.Seq
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := w.patch(entry.ID, `{"prompt":"q\nr","sessionKey":"web","priority":9,"after":["`+other.ID+`"],"hold":true,"outputSpec":["a b","./c"],"tool":"codex"}`)
	if err != nil || again.Seq != got.Seq {
		t.Errorf("what changes nothing wrote record %d after %d, %v", again.Seq, got.Seq, err)
	}

	w.restart()
	got, err = w.patch(entry.ID, `{"tool":null,"model":null,"sessionKey":null,"label":"","priority":0,"notBefore":null,"max_attempts":null,"after":[],"afterPolicy":"done",
		"resume":null,"tenantId":null,"queue":null,"fallback":null,"verify":null,"maxIterations":null,"verifyTimeout":null,"onFailure":null,"onIssue":null,"outputSpec":null,"hold":null}`)
	check(t, err)
	want = entry
	want.Prompt, want.Title, want.Workspace, want.SessionKey, want.Label, want.Timeout = "q\nr", "q", dir, "dir:"+dir, "", ""
	want.Agent, want.Model, want.Resume, want.SessionID, want.Account = "demo", "", "always", "", ""
	want.By, want.UpdatedAt, want.Seq = ledger.ByClient, got.UpdatedAt, got.Seq
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all unset: %s", diff)
	}
}

// TestEditOfAgentAndPlace: the model goes with the agent, the lane of a directory with
// the workspace, and a task of its own lane stays there.
func TestEditOfAgentAndPlace(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	other := t.TempDir()
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "of-codex", Agent: "codex"})
	for _, tt := range []struct {
		spec  task.TaskSpec
		patch string
		want  string // agent, model, lane; $ID is the task
	}{
		{task.TaskSpec{}, `{"agent":"codex"}`, "codex gpt dir:" + w.work},
		{task.TaskSpec{Agent: "codex"}, `{"agent":"demo"}`, "demo  dir:" + w.work},
		{task.TaskSpec{Agent: "codex", Model: "m"}, `{"agent":"demo","model":"m"}`, "demo m dir:" + w.work},
		{task.TaskSpec{Agent: "codex", Model: "m"}, `{"agent":"codex"}`, "codex m dir:" + w.work},
		{task.TaskSpec{Agent: "codex", Model: "m"}, `{"model":null}`, "codex gpt dir:" + w.work},
		{task.TaskSpec{}, `{"sessionKey":"web"}`, "demo  web"},
		{task.TaskSpec{}, `{"sessionKey":"of-codex","agent":null}`, "codex gpt of-codex"}, // the session's
		{task.TaskSpec{}, `{"workspace":"` + other + `"}`, "demo  dir:" + other},
		{task.TaskSpec{SessionKey: "api"}, `{"workspace":"` + other + `"}`, "demo  api"},
		{task.TaskSpec{SessionKey: "api"}, `{"workspace":"` + other + `","sessionKey":null}`, "demo  dir:" + other},
		{task.TaskSpec{Parallel: true}, `{"workspace":"` + other + `"}`, "demo  task:$ID"},
		{task.TaskSpec{Parallel: true}, `{"sessionKey":""}`, "demo  dir:" + w.work},
		{task.TaskSpec{}, `{"sessionKey":"dir:` + w.work + `"}`, "demo  dir:" + w.work}, // as it is
	} {
		tt.spec.Prompt = "p"
		entry := w.submit(tt.spec)
		got, err := w.patch(entry.ID, tt.patch)
		if err != nil {
			t.Errorf("%s: %v", tt.patch, err)
			continue
		}
		if is := got.Agent + " " + got.Model + " " + got.SessionKey; is != strings.ReplaceAll(tt.want, "$ID", entry.ID) {
			t.Errorf("%+v %s: %s, want %s", tt.spec, tt.patch, is, tt.want)
		}
		if moved := got.SessionKey != entry.SessionKey || got.Agent != entry.Agent; moved != (got.SessionID == "") {
			t.Errorf("%s: the session is %q", tt.patch, got.SessionID)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	first := w.submit(task.TaskSpec{Prompt: "first", SessionKey: "web"})
	entry := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Label: "l"})
	next := w.submit(task.TaskSpec{Prompt: "next", After: []string{entry.ID}})
	ended := w.submit(task.TaskSpec{Prompt: "ended"})
	w.cancel(ended.ID)
	for _, tt := range []struct {
		id, patch string
		code      task.Code
		field     string
		want      string
	}{
		{ended.ID, `{"label":"x"}`, task.CodeConflict, "", "canceled; only one that waits can be edited; to run it again: stint retry"},
		{"nobody", `{"label":"x"}`, task.CodeNotFound, "", "nobody"},
		{entry.ID, `{"prompt":null}`, task.CodeInvalid, "prompt", "the prompt is empty"},
		{entry.ID, `{"workspace":null}`, task.CodeInvalid, "workspace", "the task has no workspace"},
		{entry.ID, `{"workspace":"/"}`, task.CodeInvalid, "workspace", "the state directory"},
		{entry.ID, `{"agent":"nobody"}`, task.CodeInvalid, "agent", "there is no agent"},
		{entry.ID, `{"priority":10}`, task.CodeInvalid, "priority", "1 to 9"},
		{entry.ID, `{"notBefore":"2020-01-01T00:00:00Z"}`, task.CodeInvalid, "notBefore", "has passed"},
		{entry.ID, `{"outputSpec":["/etc/passwd"]}`, task.CodeInvalid, "outputSpec.0", "relative"},
		{entry.ID, `{"onIssue":"{{"}`, task.CodeInvalid, "onIssue", "no template"},
		{entry.ID, `{"after":["nobody"]}`, task.CodeNotFound, "after", "nobody"},
		{entry.ID, `{"after":["` + entry.ID + `"]}`, task.CodeInvalid, "after", "itself"},
		{entry.ID, `{"after":["` + next.ID + `"]}`, task.CodeInvalid, "after", "it would wait for itself"},
		{first.ID, `{"after":["` + next.ID + `"]}`, task.CodeInvalid, "after", "is behind"},                // through the lane
		{next.ID, `{"sessionKey":"web","after":[]}`, "", "", ""},                                           // and out of it
		{first.ID, `{"after":["` + next.ID + `"]}`, task.CodeInvalid, "after", "it would wait for itself"}, // now it is behind them
		{entry.ID, `{"label":"x","labl":"x"}`, task.CodeInvalid, "labl", "did you mean label?"},
		{entry.ID, `{}`, "", "", ""},
	} {
		_, err := w.patch(tt.id, tt.patch)
		if tt.code == "" && err == nil {
			continue
		}
		if !errors.Is(err, &task.Error{Code: tt.code}) || fieldOf(err) != tt.field || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v (%s)", tt.patch, err, fieldOf(err))
		}
	}
	if got, err := w.c.Task(t.Context(), entry.ID); err != nil || got.Label != "l" || got.Seq != 2 {
		t.Errorf("something was changed by what was refused: %+v %v", got, err)
	}
}

// TestEditOfADraft: it stays one. A person wrote it, and it has not all fields.
func TestEditOfADraft(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	write(t, filepath.Join(w.dir, "tasks.md"), "## Task mine\n- prompt: p\n")
	if _, err := w.c.Reconcile(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	got, err := w.patch("mine", `{"label":"x","hold":true,"workspace":"`+w.work+`"}`)
	if err != nil || got.Status != state.Draft || got.Label != "x" || !got.Hold || got.Workspace != w.work || got.WorkspaceByHand {
		t.Errorf("%+v %v", got, err)
	}
}

// TestEditOfAnEarlierState: of many who have seen the same, one changes it.
func TestEditOfAnEarlierState(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	id := w.submit(task.TaskSpec{Prompt: "p"}).ID
	for range 4 {
		seen := w.task(id)
		var wg sync.WaitGroup
		var won atomic.Int32
		for i := range 16 {
			wg.Go(func() {
				switch _, err := w.patch(id, fmt.Sprintf(`{"label":"%d %d"}`, seen.Seq, i), 77777, seen.Seq); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, &task.Error{Code: task.CodeChanged}):
					t.Error(err)
				}
			})
		}
		if wg.Wait(); won.Load() != 1 || w.task(id).Seq <= seen.Seq {
			t.Fatalf("%d have changed it", won.Load())
		}
	}
}

// TestEditsNeverCloseACircle: two edits at once, each of which is right by itself.
func TestEditsNeverCloseACircle(t *testing.T) {
	t.Parallel()
	w := editWorld(t)
	var wg sync.WaitGroup
	for range 50 {
		a, b := w.submit(task.TaskSpec{Prompt: "a", Parallel: true}).ID, w.submit(task.TaskSpec{Prompt: "b", Parallel: true}).ID
		for _, pair := range [][2]string{{a, b}, {b, a}} {
			wg.Go(func() {
				if _, err := w.patch(pair[0], `{"after":["`+pair[1]+`"]}`); err != nil && fieldOf(err) != "after" {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	after := map[string][]string{}
	for _, entry := range w.c.List(state.Filter{}) {
		after[entry.ID] = entry.After
	}
	for id, list := range after {
		if len(list) == 1 && slices.Contains(after[list[0]], id) {
			t.Errorf("%s and %s wait for each other", id, list[0])
		}
	}
}

// TestEditCountsOrIsRefused: of a task that is started in the same moment, the edit is
// refused, or the agent gets the new prompt.
func TestEditCountsOrIsRefused(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	specs := make([]task.TaskSpec, 200)
	for i := range specs {
		specs[i] = task.TaskSpec{Prompt: "the old one", Parallel: true}
	}
	tasks, err := w.submitAll(specs)
	check(t, err)
	edited := make([]bool, len(tasks))
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() {
			_, err := w.patch(tasks[i].ID, `{"prompt":"the new one"}`)
			if edited[i] = err == nil; err != nil && code(err) != task.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range tasks {
		got := w.wait(tasks[i].ID)
		if sent := read(t, w.c.RunDir(got.RunID), "prompt.md"); strings.HasSuffix(sent, "the new one") != edited[i] {
			t.Errorf("the edit of %s was taken: %v, and its agent got %q", got.ID, edited[i], sent)
		}
	}
}
