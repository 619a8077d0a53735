package coordinator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestErrorsNameTheField: as JSON names it, in a list after the place of the task.
func TestErrorsNameTheField(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	w.submit(task.TaskSpec{Prompt: "p", IdempotencyKey: "known"})
	tests := []struct {
		spec  task.TaskSpec
		field string
	}{
		{task.TaskSpec{}, "prompt"},
		{task.TaskSpec{ID: "x"}, "id"},
		{task.TaskSpec{Workspace: "here"}, "workspace"},
		{task.TaskSpec{Workspace: "/"}, "workspace"},
		{task.TaskSpec{Agent: "nobody"}, "agent"},
		{task.TaskSpec{Account: "nobody"}, "account"},
		{task.TaskSpec{SessionKey: "dir:/"}, "sessionKey"},
		{task.TaskSpec{SessionKey: "a b"}, "sessionKey"},
		{task.TaskSpec{Resume: "perhaps"}, "resume"},
		{task.TaskSpec{Parallel: true, Continue: true}, "parallel"},
		{task.TaskSpec{Continue: true, Workspace: t.TempDir()}, "continue"},
		{task.TaskSpec{AgentSession: "a b"}, "agentSession"},
		{task.TaskSpec{Timeout: "soon"}, "timeout"},
		{task.TaskSpec{Priority: 10}, "priority"},
		{task.TaskSpec{MaxAttempts: -1}, "maxAttempts"},
		{task.TaskSpec{Model: "a b"}, "model"},
		{task.TaskSpec{AfterPolicy: "both"}, "afterPolicy"},
		{task.TaskSpec{After: []string{"nobody"}}, "after"},
		{task.TaskSpec{IdempotencyKey: "a\nb"}, "idempotencyKey"},
		{task.TaskSpec{IdempotencyKey: "known", Label: "x"}, "idempotencyKey"},
		{task.TaskSpec{Label: "a\nb"}, "label"},
		{task.TaskSpec{TenantID: "a\nb"}, "tenantId"},
		{task.TaskSpec{Queue: "a\nb"}, "queue"},
		{task.TaskSpec{VerifyCommand: " "}, "verifyCommand"},
		{task.TaskSpec{VerifyTimeout: "soon"}, "verifyTimeout"},
		{task.TaskSpec{MaxIterations: -1}, "maxIterations"},
		{task.TaskSpec{OnFailure: "{{.Colour}}"}, "onFailure"},
		{task.TaskSpec{OnIssue: "{{"}, "onIssue"},
		{task.TaskSpec{Fallback: []string{"nobody"}}, "fallback"},
		{task.TaskSpec{NotBefore: time.Now().Add(-time.Hour)}, "notBefore"},
		{task.TaskSpec{NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "notBefore"},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "../b"}}}, "inputFiles.1.name"},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "b", Content: "\xff"}}}, "inputFiles.1.content"},
		{task.TaskSpec{OutputSpec: []string{"a", "/b"}}, "outputSpec.1"},
	}
	for _, tt := range tests {
		if tt.field != "prompt" {
			tt.spec.Prompt = "p"
		}
		_, err := w.try(tt.spec)
		if got := fieldOf(err); got != tt.field {
			t.Errorf("%+v: field %q, want %q: %v", tt.spec, got, tt.field, err)
		}
		_, err = w.submitAll([]task.TaskSpec{{Prompt: "p"}, tt.spec})
		_, alone := w.submitAll([]task.TaskSpec{tt.spec})
		if fieldOf(err) != "1."+tt.field || fieldOf(alone) != "0."+tt.field {
			t.Errorf("in a list: %+v: field %q and %q: %v", tt.spec, fieldOf(err), fieldOf(alone), err)
		}
	}
}

func fieldOf(err error) string {
	var e *task.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Field
}

// TestWorkspaceRoot: a client that does not call from a directory need not name one.
func TestWorkspaceRoot(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers, w.cfg.WorkspaceRoot = 0, ""
	w.open()
	if _, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "p"}); fieldOf(err) != "workspace" || !strings.Contains(err.Error(), "workspace_root") {
		t.Errorf("%v", err)
	}
	w.close()
	w.cfg.WorkspaceRoot = w.work
	w.open()
	if got, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "p"}); err != nil || got.Workspace != w.work || got.SessionKey != "dir:"+w.work {
		t.Errorf("%+v %v", got, err)
	}
}

// TestWorkspaceIsADirectory: no task is taken in whose agent would have nowhere to work,
// and each is recorded with the path that has no links.
func TestWorkspaceIsADirectory(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	root, err := filepath.EvalSymlinks(t.TempDir())
	in := func(name string) string { return filepath.Join(root, name) }
	err = errors.Join(err, os.Mkdir(in("dir"), 0o700), os.WriteFile(in("file"), nil, 0o600),
		os.Symlink("dir", in("link")), os.Symlink(in("file"), in("wrong")), os.Symlink("nowhere", in("broken")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"dir": "", "dir/": "", "link": "", "link/../dir/.": "",
		"file": "is not a directory", "wrong": "is not a directory", "file/x": "cannot be used: not a directory",
		"missing": "cannot be used: no such file or directory", "broken": "cannot be used: no such file or directory",
	} {
		task, err := w.try(task.TaskSpec{Prompt: "p", Workspace: root + "/" + name})
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", name, err, want)
		case want == "" && (err != nil || task.Workspace != in("dir")):
			t.Errorf("%s: %v, in %q", name, err, task.Workspace)
		}
	}
}
