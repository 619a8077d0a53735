package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func TestExitCode(t *testing.T) {
	remote := func(c task.Code) error {
		return fmt.Errorf("call: %w", &task.Error{Code: c, Message: "m"})
	}
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"some error", errors.New("x"), 1},
		{"usage", usage("", "x"), 2},
		{"invalid", remote(task.CodeInvalid), 2},
		{"no master", fmt.Errorf("dial: %w", client.ErrNoMaster), 3},
		{"stopped", remote(task.CodeStopped), 3},
		{"agent missing", remote(task.CodeAgentMissing), 4},
		{"busy", remote(task.CodeBusy), 5},
		{"not found", remote(task.CodeNotFound), 6},
		{"ambiguous", remote(task.CodeAmbiguous), 6},
		{"conflict", remote(task.CodeConflict), 1},
		{"wait timed out", &cliError{code: exitTimeout}, 124},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), 124},
		{"Ctrl-C", fmt.Errorf("x: %w", errDetached), 130},
		{"context canceled", context.Canceled, 130},
		{"wrapped", fmt.Errorf("x: %w", &cliError{code: exitVerify}), 8},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTaskCode(t *testing.T) {
	for _, c := range []struct {
		task state.Task
		want int
	}{
		{state.Task{Status: state.Done}, 0},
		{state.Task{Status: state.Done, Reason: state.ClassAuth}, 0},
		{state.Task{Status: state.Failed, Reason: state.ClassExit}, 7},
		{state.Task{Status: state.Failed, Reason: state.ClassVerify}, 8},
		{state.Task{Status: state.Dead, Reason: state.ClassVerify}, 8},
		{state.Task{Status: state.Dead, Reason: state.ClassStalled}, 10},
		{state.Task{Status: state.Failed, Reason: state.ClassAuth}, 4},
		{state.Task{Status: state.Failed, Reason: state.ClassAgentMissing}, 4},
		{state.Task{Status: state.Failed, Reason: state.ClassSessionBusy}, 5},
		{state.Task{Status: state.Failed, Reason: state.ClassRateLimited, MaxLimitWait: "0s"}, 75},
		{state.Task{Status: state.Dead, Reason: state.ClassRateLimited, MaxLimitWait: "0s"}, 75},
		{state.Task{Status: state.Dead, Reason: state.ClassRateLimited}, 10},
		{state.Task{Status: state.Canceled, Reason: state.ClassCanceled}, 9},
		{state.Task{Status: state.Queued}, 1},
	} {
		if got := taskCode(&c.task); got != c.want {
			t.Errorf("%s, %s: exit code %d, want %d", c.task.Status, c.task.Reason, got, c.want)
		}
	}
}

func TestTaskEndSaysWhatAndWhy(t *testing.T) {
	view := &wire.TaskView{Task: state.Task{
		ID: "01a1fcac-dc6d-769a-8c86-84d75f21a9c2", Agent: "codex", Status: state.Failed,
		Reason: state.ClassAuth, Error: "not logged in", RunID: "r",
	}}
	message, try := explain(taskEnd(view))
	if want := "task 5f21a9c2 failed (auth): not logged in"; message != want {
		t.Errorf("message %q, want %q", message, want)
	}
	if want := "codex login, then stint retry 5f21a9c2"; try != want {
		t.Errorf("try %q, want %q", try, want)
	}
	for agent, want := range map[string]string{"claude": "claude auth login, then stint retry 5f21a9c2", "gemini": "export GEMINI_API_KEY=", "demo": "stint logs 5f21a9c2"} {
		view.Agent = agent
		if _, try := explain(taskEnd(view)); !strings.HasPrefix(try, want) {
			t.Errorf("%s: try %q, want %q", agent, try, want)
		}
	}
	for _, text := range []string{"Quota exceeded. Check your plan and billing details.", "Credit balance is too low", "unexpected status 402 Payment Required: x"} {
		view.Agent, view.Error = "codex", text
		if _, try := explain(taskEnd(view)); try != "settle it with the provider, then stint retry 5f21a9c2" {
			t.Errorf("%s: try %q", text, try)
		}
	}
	view.Status, view.Reason, view.Error = state.Canceled, state.ClassCanceled, "canceled"
	if message, _ := explain(taskEnd(view)); message != "task 5f21a9c2 was canceled" {
		t.Errorf("message %q", message)
	}
	view.Status = state.Done
	if err := taskEnd(view); err != nil {
		t.Errorf("a task that is done gives %v", err)
	}
}

func TestPrintError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&cliError{code: 1}, ""},
		{usage("stint ls", "no %s", "task"), "stint: no task\n  try: stint ls\n"},
		{&task.Error{Message: "what", Hint: "how"}, "stint: what\n  try: how\n"},
		{
			&task.Error{Message: "what", Hint: "stint logs 01234567-89ab-7cde-8f01-23456789abcd, or ls /runs/01234567-89ab-7cde-8f01-23456789abcd"},
			"stint: what\n  try: stint logs 6789abcd, or ls /runs/01234567-89ab-7cde-8f01-23456789abcd\n",
		},
		{&cliError{message: "a", err: errors.New("b\nc")}, "stint: a: b; c\n"},
		{errors.New("\x1b[31mred"), "stint: \\x1b[31mred\n"},
		{fmt.Errorf("x: %w", client.ErrNoMaster), "stint: no master is running\n  try: stint serve\n"},
	} {
		var b bytes.Buffer
		printError(&b, c.err)
		if b.String() != c.want {
			t.Errorf("%v prints %q, want %q", c.err, b.String(), c.want)
		}
	}
}
