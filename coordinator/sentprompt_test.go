package coordinator_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/memory"
	"stint/prompt"
	"stint/state"
)

// The prompt of each run of an agent can be had, by number, id or a piece of it; those
// of verify commands are none.
func TestSentPrompt(t *testing.T) {
	w := previewWorld(t)
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		if turn.Attempt == 1 {
			return task.Outcome{Class: state.ClassExit, Error: "no"}
		}
		return task.Outcome{Result: "yes", Session: "native-1"}
	}
	id := w.wait(w.submit(task.TaskSpec{Prompt: "do it", MaxAttempts: 2}).ID).ID
	last, err := w.c.SentPrompt(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(w.c.RunDir(last.RunID), "prompt.md"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if last.Prompt != string(text) || last.SHA256 != hex.EncodeToString(sum[:]) || last.Number != 2 || last.Of != 2 || last.Attempt != 2 || last.TaskID != id {
		t.Errorf("%+v", last)
	}
	if last.Memory == nil || last.Memory.Hits[0].Line != 3 {
		t.Errorf("the notes: %+v", last.Memory)
	}
	one, err := w.c.SentPrompt(t.Context(), id, "1")
	if err != nil || one.RunID == last.RunID || one.Number != 1 || !strings.Contains(one.Prompt, "- attempt: 1") {
		t.Errorf("%+v, %v", one, err)
	}
	for _, ref := range []string{one.RunID, one.RunID[20:]} {
		if got, err := w.c.SentPrompt(t.Context(), id, ref); err != nil || got.RunID != one.RunID {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	for run, want := range map[string]string{"0": "it has no run 0 of its agent: there are 2", "3": "it has no run 3", "nobody": "it has no run \"nobody\"", one.RunID[:4] + "-": "it has no run"} {
		w.refusesPrompt(id, run, want)
	}
	if _, err := w.c.SentPrompt(t.Context(), id, one.RunID[:3]); !errors.Is(err, &task.Error{Code: task.CodeAmbiguous}) || !strings.Contains(err.Error(), "fits several of its runs") {
		t.Error(err)
	}
	if err := os.RemoveAll(w.c.RunDir(last.RunID)); err != nil {
		t.Fatal(err)
	}
	w.refusesPrompt(id, "", "is not there: its file was removed")
	waits := w.submit(task.TaskSpec{Prompt: "later", Hold: true}).ID
	w.refusesPrompt(waits, "", "has not run yet")
	w.refusesPrompt("nobody", "", "there is no task")
}

// A search that has found nothing in its time leaves word why.
func TestSentPromptOfAPartialSearch(t *testing.T) {
	w := noteWorld(t, func(string) (memory.Result, error) {
		return memory.Result{Hits: []memory.Hit{}, Partial: "it took longer than 5s"}, nil
	})
	id := w.wait(w.submit(task.TaskSpec{Prompt: "do it"}).ID).ID
	p, err := w.c.SentPrompt(t.Context(), id, "")
	if err != nil || p.Memory == nil || p.Memory.Partial != "it took longer than 5s" {
		t.Errorf("the notes: %+v, %v", p.Memory, err)
	}
}

func (w *world) refusesPrompt(id, run, want string) {
	w.t.Helper()
	_, err := w.c.SentPrompt(w.t.Context(), id, run)
	if !errors.Is(err, &task.Error{Code: task.CodeNotFound}) || !strings.Contains(err.Error(), want) {
		w.t.Errorf("run %q: %v, and not %s", run, err, want)
	}
}

// A verify command has runs of its own, which get no prompt.
func TestSentPromptOfAVerifyLoop(t *testing.T) {
	w := previewWorld(t)
	if err := w.quit(); err != nil {
		t.Fatal(err)
	}
	shell := &failsOnce{}
	w.cfg.Shell = shell
	w.open()
	id := w.wait(w.submit(task.TaskSpec{Prompt: "do it", VerifyCommand: "make test"}).ID).ID
	for run, want := range map[string]string{"": prompt.MendIt, "2": prompt.MendIt, "1": "do it"} {
		p, err := w.c.SentPrompt(t.Context(), id, run)
		if err != nil || !strings.HasSuffix(p.Prompt, "\n\n## User message\n\n"+want) || p.Of != 2 || p.Iteration != p.Number {
			t.Errorf("run %q: %+v, %v", run, p, err)
		}
	}
	w.refusesPrompt(id, shell.first, "is one of its verify command, which gets no prompt")
}

// failsOnce is a shell whose first command fails.
type failsOnce struct{ first string }

func (f *failsOnce) Verify(_ context.Context, v task.VerifyRun) task.VerifyResult {
	if f.first == "" {
		f.first = v.RunID
		return task.VerifyResult{ExitCode: 1, Output: "FAIL\n"}
	}
	return task.VerifyResult{}
}
