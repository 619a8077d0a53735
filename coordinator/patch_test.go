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
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator"
	"stint/ledger"
	"stint/state"
)

func (w *world) patch(id, patch string, seqs ...uint64) (state.Task, error) {
	return w.c.Edit(context.Background(), id, coordinator.Patch{Fields: []byte(patch), Seqs: seqs}, ledger.ByClient)
}

// editWorld is a master with two agents that starts nothing.
func editWorld(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.WorkspaceRoot = ""
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.cfg.Workspace = func(string) coordinator.WorkspaceSettings {
		return coordinator.WorkspaceSettings{Models: map[string]string{"codex": "gpt"}, ResumePolicy: "always"}
	}
	w.open()
	return w
}

func TestEdit(t *testing.T) {
	w := editWorld(t)
	defer func() { w.close() }()
	other := w.submit(coordinator.TaskSpec{Prompt: "other"})
	task := w.submit(coordinator.TaskSpec{Prompt: "p", Label: "l", Timeout: "9m"})
	when := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	dir := filepath.Join(w.work, "sub")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := w.patch(task.ID, fmt.Sprintf(`{"prompt":"q\nr","tool":"codex","model":"m","workspace":%q,"sessionKey":"web","label":"x","priority":9,
		"scheduled_at":%q,"timeout":null,"max_attempts":2,"after":[%q],"afterPolicy":"any","resume":"never","tenantId":"t","queue":"n","fallback":["demo"],
		"verify":"true","maxIterations":2,"verifyTimeout":"1m","onFailure":"f","onIssue":"i","outputSpec":["./a b","c"],"hold":true}`, dir, when.Format(time.RFC3339), other.ID[24:]))
	if err != nil {
		t.Fatal(err)
	}
	want := task
	want.Prompt, want.Title, want.Agent, want.Model, want.Workspace, want.SessionKey, want.Label, want.Priority = "q\nr", "q", "codex", "m", dir, "web", "x", 9
	want.NotBefore, want.Timeout, want.MaxAttempts, want.After, want.AfterPolicy, want.Resume = when, "", 2, []string{other.ID}, "any", "never"
	want.TenantID, want.Queue, want.Fallback, want.VerifyCommand, want.MaxIterations, want.VerifyTimeout = "t", "n", []string{"demo"}, "true", 2, "1m"
	want.OnFailure, want.OnIssue, want.OutputSpec, want.Hold, want.By = "f", "i", []string{"a b", "c"}, true, ledger.ByClient
	want.SessionID, want.Account = "", "" // as after an edit by hand: its next run finds those of its new place
	want.UpdatedAt, want.Seq = got.UpdatedAt, got.Seq
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := w.patch(task.ID, `{"prompt":"q\nr","sessionKey":"web","priority":9,"after":["`+other.ID+`"],"hold":true,"outputSpec":["a b","./c"],"tool":"codex"}`)
	if err != nil || again.Seq != got.Seq {
		t.Errorf("what changes nothing wrote record %d after %d, %v", again.Seq, got.Seq, err)
	}

	w.close()
	w.open()
	got, err = w.patch(task.ID, `{"tool":null,"model":null,"sessionKey":null,"label":"","priority":0,"notBefore":null,"max_attempts":null,"after":[],"afterPolicy":"done",
		"resume":null,"tenantId":null,"queue":null,"fallback":null,"verify":null,"maxIterations":null,"verifyTimeout":null,"onFailure":null,"onIssue":null,"outputSpec":null,"hold":null}`)
	if err != nil {
		t.Fatal(err)
	}
	want = task
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
	w := editWorld(t)
	defer w.close()
	other := t.TempDir()
	w.submit(coordinator.TaskSpec{Prompt: "p", SessionKey: "of-codex", Agent: "codex"})
	for _, tt := range []struct {
		spec  coordinator.TaskSpec
		patch string
		want  string // agent, model, lane; $ID is the task
	}{
		{coordinator.TaskSpec{}, `{"agent":"codex"}`, "codex gpt dir:" + w.work},
		{coordinator.TaskSpec{Agent: "codex"}, `{"agent":"demo"}`, "demo  dir:" + w.work},
		{coordinator.TaskSpec{Agent: "codex", Model: "m"}, `{"agent":"demo","model":"m"}`, "demo m dir:" + w.work},
		{coordinator.TaskSpec{Agent: "codex", Model: "m"}, `{"agent":"codex"}`, "codex m dir:" + w.work},
		{coordinator.TaskSpec{Agent: "codex", Model: "m"}, `{"model":null}`, "codex gpt dir:" + w.work},
		{coordinator.TaskSpec{}, `{"sessionKey":"web"}`, "demo  web"},
		{coordinator.TaskSpec{}, `{"sessionKey":"of-codex","agent":null}`, "codex gpt of-codex"}, // the session's
		{coordinator.TaskSpec{}, `{"workspace":"` + other + `"}`, "demo  dir:" + other},
		{coordinator.TaskSpec{SessionKey: "api"}, `{"workspace":"` + other + `"}`, "demo  api"},
		{coordinator.TaskSpec{SessionKey: "api"}, `{"workspace":"` + other + `","sessionKey":null}`, "demo  dir:" + other},
		{coordinator.TaskSpec{Parallel: true}, `{"workspace":"` + other + `"}`, "demo  task:$ID"},
		{coordinator.TaskSpec{Parallel: true}, `{"sessionKey":""}`, "demo  dir:" + w.work},
		{coordinator.TaskSpec{}, `{"sessionKey":"dir:` + w.work + `"}`, "demo  dir:" + w.work}, // as it is
	} {
		tt.spec.Prompt = "p"
		task := w.submit(tt.spec)
		got, err := w.patch(task.ID, tt.patch)
		if err != nil {
			t.Errorf("%s: %v", tt.patch, err)
			continue
		}
		if is := got.Agent + " " + got.Model + " " + got.SessionKey; is != strings.ReplaceAll(tt.want, "$ID", task.ID) {
			t.Errorf("%+v %s: %s, want %s", tt.spec, tt.patch, is, tt.want)
		}
		if moved := got.SessionKey != task.SessionKey || got.Agent != task.Agent; moved != (got.SessionID == "") {
			t.Errorf("%s: the session is %q", tt.patch, got.SessionID)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	w := editWorld(t)
	defer w.close()
	first := w.submit(coordinator.TaskSpec{Prompt: "first", SessionKey: "web"})
	task := w.submit(coordinator.TaskSpec{Prompt: "p", SessionKey: "web", Label: "l"})
	next := w.submit(coordinator.TaskSpec{Prompt: "next", After: []string{task.ID}})
	ended := w.submit(coordinator.TaskSpec{Prompt: "ended"})
	if _, err := w.c.Cancel(t.Context(), ended.ID, ledger.ByClient); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		id, patch string
		code      coordinator.Code
		field     string
		want      string
	}{
		{ended.ID, `{"label":"x"}`, coordinator.CodeConflict, "", "canceled; only one that waits can be edited; to run it again: stint retry"},
		{"nobody", `{"label":"x"}`, coordinator.CodeNotFound, "", "nobody"},
		{task.ID, `{"prompt":null}`, coordinator.CodeInvalid, "prompt", "the prompt is empty"},
		{task.ID, `{"prompt":7}`, coordinator.CodeInvalid, "prompt", "prompt must be a text in quotes, not 7"},
		{task.ID, `{"workspace":null}`, coordinator.CodeInvalid, "workspace", "the task has no workspace"},
		{task.ID, `{"workspace":"/nowhere"}`, coordinator.CodeInvalid, "workspace", "/nowhere"},
		{task.ID, `{"workspace":"/"}`, coordinator.CodeInvalid, "workspace", "the state directory"},
		{task.ID, `{"agent":"nobody"}`, coordinator.CodeInvalid, "agent", "there is no agent"},
		{task.ID, `{"sessionKey":"dir:/x"}`, coordinator.CodeInvalid, "sessionKey", "reserved"},
		{task.ID, `{"priority":10}`, coordinator.CodeInvalid, "priority", "1 to 9"},
		{task.ID, `{"priority":"high"}`, coordinator.CodeInvalid, "priority", "whole number"},
		{task.ID, `{"notBefore":"2020-01-01T00:00:00Z"}`, coordinator.CodeInvalid, "notBefore", "has passed"},
		{task.ID, `{"fallback":["nobody"]}`, coordinator.CodeInvalid, "fallback", "there is no agent"},
		{task.ID, `{"outputSpec":["/etc/passwd"]}`, coordinator.CodeInvalid, "outputSpec.0", "relative"},
		{task.ID, `{"onIssue":"{{"}`, coordinator.CodeInvalid, "onIssue", "no template"},
		{task.ID, `{"after":["nobody"]}`, coordinator.CodeNotFound, "after", "nobody"},
		{task.ID, `{"after":["` + task.ID + `"]}`, coordinator.CodeInvalid, "after", "itself"},
		{task.ID, `{"after":["` + next.ID + `"]}`, coordinator.CodeInvalid, "after", "it would wait for itself"},
		{first.ID, `{"after":["` + next.ID + `"]}`, coordinator.CodeInvalid, "after", "is behind"},                // through the lane
		{next.ID, `{"sessionKey":"web","after":[]}`, "", "", ""},                                                  // and out of it
		{first.ID, `{"after":["` + next.ID + `"]}`, coordinator.CodeInvalid, "after", "it would wait for itself"}, // now it is behind them
		{task.ID, `{"id":"x"}`, coordinator.CodeInvalid, "id", `unknown field "id"`},
		{task.ID, `{"inputFiles":[]}`, coordinator.CodeInvalid, "inputFiles", "known are after"},
		{task.ID, `{"status":"done"}`, coordinator.CodeInvalid, "status", "unknown field"},
		{task.ID, `{"labl":"x"}`, coordinator.CodeInvalid, "labl", "did you mean label?"},
		{task.ID, `{"tool":"codex","agent":"codex"}`, coordinator.CodeInvalid, "agent", "mean the same"},
		{task.ID, `{"label":"x","label":"y"}`, coordinator.CodeInvalid, "label", "twice"},
		{task.ID, `{"label":"x","priority":0.5}`, coordinator.CodeInvalid, "priority", "whole number"},
		{task.ID, `[]`, coordinator.CodeInvalid, "", "what is to be changed"},
		{task.ID, `null`, coordinator.CodeInvalid, "", "what is to be changed"},
		{task.ID, `{"label":`, coordinator.CodeInvalid, "", "JSON"},
		{task.ID, ``, coordinator.CodeInvalid, "", "empty"},
		{task.ID, `{}`, "", "", ""},
	}
	for _, tt := range tests {
		_, err := w.patch(tt.id, tt.patch)
		if tt.code == "" && err == nil {
			continue
		}
		if !errors.Is(err, &coordinator.Error{Code: tt.code}) || fieldOf(err) != tt.field || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v (%s)", tt.patch, err, fieldOf(err))
		}
	}
	if got, err := w.c.Task(t.Context(), task.ID); err != nil || got.Label != "l" || got.Seq != 2 {
		t.Errorf("something was changed by what was refused: %+v %v", got, err)
	}
}

// TestEditOfADraft: it stays one. A person wrote it, and it has not all fields.
func TestEditOfADraft(t *testing.T) {
	w := editWorld(t)
	defer w.close()
	if err := os.WriteFile(filepath.Join(w.dir, "tasks.md"), []byte("## Task mine\n- prompt: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.Reconcile(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	got, err := w.patch("mine", `{"label":"x","hold":true,"workspace":"`+w.work+`"}`)
	if err != nil || got.Status != state.Draft || got.Label != "x" || !got.Hold || got.Workspace != w.work || got.WorkspaceByHand {
		t.Errorf("%+v %v", got, err)
	}
}

func TestEditOfAnEarlierState(t *testing.T) {
	w := editWorld(t)
	defer w.close()
	id := w.submit(coordinator.TaskSpec{Prompt: "p"}).ID
	task, err := w.c.Task(t.Context(), id)
	if err != nil || task.Seq == 0 {
		t.Fatalf("%d %v", task.Seq, err)
	}
	got, err := w.patch(id, `{"label":"x"}`, 7, task.Seq)
	if err != nil || got.Seq <= task.Seq {
		t.Fatalf("%d %v", got.Seq, err)
	}
	if _, err = w.patch(id, `{"label":"y"}`, 7, task.Seq); !errors.Is(err, &coordinator.Error{Code: coordinator.CodeChanged}) {
		t.Errorf("%v", err)
	}
	for range 20 { // of many who have seen the same, one changes it
		now, _ := w.c.Task(t.Context(), id)
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 16 {
			wg.Go(func() {
				_, err := w.patch(id, fmt.Sprintf(`{"label":"%d %d"}`, now.Seq, i), now.Seq)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, &coordinator.Error{Code: coordinator.CodeChanged}) {
					t.Error(err)
				}
			})
		}
		if wg.Wait(); won != 1 {
			t.Fatalf("%d have changed it", won)
		}
	}
}

// TestEditsNeverCloseACircle: two edits at once, each of which is right by itself.
func TestEditsNeverCloseACircle(t *testing.T) {
	w := editWorld(t)
	defer w.close()
	var wg sync.WaitGroup
	for range 50 {
		a, b := w.submit(coordinator.TaskSpec{Prompt: "a", Parallel: true}).ID, w.submit(coordinator.TaskSpec{Prompt: "b", Parallel: true}).ID
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
	for _, task := range w.c.List(state.Filter{}) {
		after[task.ID] = task.After
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
	w := newWorld(t)
	var mu sync.Mutex
	sent := map[string]string{}
	w.agent.do = func(_ context.Context, turn coordinator.Turn, _ func(coordinator.Event)) coordinator.Outcome {
		prompt, err := os.ReadFile(turn.Prompt)
		mu.Lock()
		defer mu.Unlock()
		sent[turn.TaskID] = string(prompt)
		return coordinator.Outcome{Result: fmt.Sprint(err)}
	}
	w.open()
	defer w.close()
	specs := make([]coordinator.TaskSpec, 200)
	for i := range specs {
		specs[i] = coordinator.TaskSpec{Prompt: "the old one", Parallel: true}
	}
	tasks, err := w.submitAll(specs)
	if err != nil {
		t.Fatal(err)
	}
	edited := make([]bool, len(tasks))
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := n; i < len(tasks); i += 4 {
				_, err := w.patch(tasks[i].ID, `{"prompt":"the new one"}`)
				if edited[i] = err == nil; err != nil && !errors.Is(err, &coordinator.Error{Code: coordinator.CodeConflict}) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, task := range tasks {
		w.wait(task.ID)
	}
	mu.Lock()
	defer mu.Unlock()
	took := 0
	for i, is := range edited {
		if is {
			took++
		}
		if got := strings.HasSuffix(sent[tasks[i].ID], "the new one"); got != is {
			t.Errorf("the edit of %s was taken: %v, and its agent got %q", tasks[i].ID, is, sent[tasks[i].ID])
		}
	}
	t.Logf("%d of %d edits were taken", took, len(edited))
}

func TestPatchOf(t *testing.T) {
	got, err := coordinator.PatchOf([]string{"priority=9", "label=a=b", "after=x, y", "hold=true", "not_before=2026-12-01T08:00:00Z", "model=", "prompt=two\nlines"})
	want := `{"after":["x","y"],"hold":true,"label":"a=b","model":null,"notBefore":"2026-12-01T08:00:00Z","priority":9,"prompt":"two\nlines"}`
	if string(got) != want || err != nil {
		t.Errorf("%s %v", got, err)
	}
	for setting, want := range map[string]string{
		"label": "sets nothing", "": "sets nothing", "=x": "unknown field", "labl=x": "did you mean label?", "id=x": "unknown field", "priority=high": "not a whole number",
		"hold=perhaps": "neither true nor false", "notBefore=soon": "not a time",
	} {
		if _, err := coordinator.PatchOf([]string{setting}); !errors.Is(err, &coordinator.Error{Code: coordinator.CodeInvalid}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if _, err := coordinator.PatchOf([]string{"tool=a", "agent=b"}); err == nil || !strings.Contains(err.Error(), "agent is given twice") {
		t.Error(err)
	}
}

// FuzzReadPatch: a patch is refused with a sentence, or gives the same when it is put in
// twice; and what it does not name stays as it was.
func FuzzReadPatch(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"label":"x","priority":null}`, `{"tool":"a","agent":"b"}`, `{"after":["a"],"after":[]}`, `{"notBefore":"2026-12-01T08:00:00Z"}`,
		`{"prompt":7}`, `{"id":"x"}`, `[]`, `null`, `{"hold":true`, `{"outputSpec":null,"hold":false}`, "{\"label\":\"\xff\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		was := coordinator.TaskSpec{ID: "id", Label: "l", Priority: 9, After: []string{"a", "b"}, Hold: true, InputFiles: []state.InputFile{{Name: "a"}}}
		once := was
		if err := coordinator.ReadPatch(data, &once); err != nil {
			if !errors.Is(err, &coordinator.Error{Code: coordinator.CodeInvalid}) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%v", err)
			}
			return
		}
		twice := once
		if err := coordinator.ReadPatch(data, &twice); err != nil || !cmp.Equal(once, twice) {
			t.Fatalf("%+v and then %+v, %v", once, twice, err)
		}
		if once.ID != "id" || len(once.InputFiles) != 1 || !slices.Equal(was.After, []string{"a", "b"}) {
			t.Fatalf("%+v of %+v", once, was)
		}
	})
}
