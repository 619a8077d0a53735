package coordinator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

// TestErrorsNameTheField: as JSON names it, in a list after the place of the task.
func TestErrorsNameTheField(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	defer w.close()
	w.submit(coordinator.TaskSpec{Prompt: "p", IdempotencyKey: "known"})
	tests := []struct {
		spec  coordinator.TaskSpec
		field string
	}{
		{coordinator.TaskSpec{}, "prompt"},
		{coordinator.TaskSpec{ID: "x"}, "id"},
		{coordinator.TaskSpec{Workspace: "here"}, "workspace"},
		{coordinator.TaskSpec{Workspace: "/"}, "workspace"},
		{coordinator.TaskSpec{Agent: "nobody"}, "agent"},
		{coordinator.TaskSpec{Account: "nobody"}, "account"},
		{coordinator.TaskSpec{SessionKey: "dir:/"}, "sessionKey"},
		{coordinator.TaskSpec{SessionKey: "a b"}, "sessionKey"},
		{coordinator.TaskSpec{Resume: "perhaps"}, "resume"},
		{coordinator.TaskSpec{Parallel: true, Continue: true}, "parallel"},
		{coordinator.TaskSpec{Continue: true, Workspace: t.TempDir()}, "continue"},
		{coordinator.TaskSpec{AgentSession: "a b"}, "agentSession"},
		{coordinator.TaskSpec{Timeout: "soon"}, "timeout"},
		{coordinator.TaskSpec{Priority: 10}, "priority"},
		{coordinator.TaskSpec{MaxAttempts: -1}, "maxAttempts"},
		{coordinator.TaskSpec{Model: "a b"}, "model"},
		{coordinator.TaskSpec{AfterPolicy: "both"}, "afterPolicy"},
		{coordinator.TaskSpec{After: []string{"nobody"}}, "after"},
		{coordinator.TaskSpec{IdempotencyKey: "a\nb"}, "idempotencyKey"},
		{coordinator.TaskSpec{IdempotencyKey: "known", Label: "x"}, "idempotencyKey"},
		{coordinator.TaskSpec{Label: "a\nb"}, "label"},
		{coordinator.TaskSpec{TenantID: "a\nb"}, "tenantId"},
		{coordinator.TaskSpec{Queue: "a\nb"}, "queue"},
		{coordinator.TaskSpec{VerifyCommand: " "}, "verifyCommand"},
		{coordinator.TaskSpec{VerifyTimeout: "soon"}, "verifyTimeout"},
		{coordinator.TaskSpec{MaxIterations: -1}, "maxIterations"},
		{coordinator.TaskSpec{OnFailure: "{{.Colour}}"}, "onFailure"},
		{coordinator.TaskSpec{OnIssue: "{{"}, "onIssue"},
		{coordinator.TaskSpec{Fallback: []string{"nobody"}}, "fallback"},
		{coordinator.TaskSpec{NotBefore: time.Now().Add(-time.Hour)}, "notBefore"},
		{coordinator.TaskSpec{NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "notBefore"},
		{coordinator.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "../b"}}}, "inputFiles.1.name"},
		{coordinator.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "b", Content: "\xff"}}}, "inputFiles.1.content"},
		{coordinator.TaskSpec{OutputSpec: []string{"a", "/b"}}, "outputSpec.1"},
	}
	for _, tt := range tests {
		if tt.field != "prompt" {
			tt.spec.Prompt = "p"
		}
		_, err := w.try(tt.spec)
		if got := fieldOf(err); got != tt.field {
			t.Errorf("%+v: field %q, want %q: %v", tt.spec, got, tt.field, err)
		}
		_, err = w.submitAll([]coordinator.TaskSpec{{Prompt: "p"}, tt.spec})
		if got := fieldOf(err); got != "1."+tt.field {
			t.Errorf("in a list: %+v: field %q: %v", tt.spec, got, err)
		}
		if _, err = w.submitAll([]coordinator.TaskSpec{tt.spec}); fieldOf(err) != "0."+tt.field {
			t.Errorf("alone in a list: %+v: field %q: %v", tt.spec, fieldOf(err), err)
		}
	}
}

func fieldOf(err error) string {
	var e *coordinator.Error
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
	if _, err := w.c.Submit(t.Context(), coordinator.TaskSpec{Prompt: "p"}); fieldOf(err) != "workspace" || !strings.Contains(err.Error(), "workspace_root") {
		t.Errorf("%v", err)
	}
	w.close()
	w.cfg.WorkspaceRoot = w.work
	w.open()
	defer w.close()
	if got, err := w.c.Submit(t.Context(), coordinator.TaskSpec{Prompt: "p"}); err != nil || got.Workspace != w.work || got.SessionKey != "dir:"+w.work {
		t.Errorf("%+v %v", got, err)
	}
}

// TestWorkspaceIsADirectory: no task is taken in whose agent would have nowhere to work,
// and each is recorded with the path that has no links.
func TestWorkspaceIsADirectory(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	defer w.close()
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
		task, err := w.try(coordinator.TaskSpec{Prompt: "p", Workspace: root + "/" + name})
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", name, err, want)
		case want == "" && (err != nil || task.Workspace != in("dir")):
			t.Errorf("%s: %v, in %q", name, err, task.Workspace)
		}
	}
}
