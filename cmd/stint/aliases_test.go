package main

import (
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func TestTakeAgent(t *testing.T) {
	for _, c := range []struct {
		args  []string
		agent string
		left  []string
	}{
		{[]string{"claude", "fix it"}, "claude", []string{"fix it"}},
		{[]string{"--model", "m", "codex", "fix", "it"}, "codex", []string{"fix", "it"}},
		{[]string{"gemini", "--", "--help"}, "gemini", []string{"--help"}},
		{[]string{"--prompt", "x", "demo"}, "demo", nil},
		{[]string{"claude", "--edit"}, "claude", nil},
		{[]string{"claude", "--spec", "x.json"}, "claude", nil},
		{[]string{"--", "claude"}, "", []string{"claude"}},
		{[]string{"--", "claude", "is", "slow"}, "", []string{"claude", "is", "slow"}},
		{[]string{"--agent", "demo", "claude", "is", "slow"}, "demo", []string{"claude", "is", "slow"}},
		{[]string{"--tool", "demo", "claude", "is", "slow"}, "demo", []string{"claude", "is", "slow"}},
		{[]string{"fix", "claude"}, "", []string{"fix", "claude"}},
	} {
		var left []string
		o := &taskOptions{}
		cmd := &cobra.Command{Use: "enqueue", RunE: func(cmd *cobra.Command, args []string) (err error) {
			left, err = o.takeAgent(cmd, args)
			return err
		}}
		o.addFlags(cmd)
		cmd.SetArgs(c.args)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if o.spec.Agent != c.agent || !slices.Equal(left, c.left) {
			t.Errorf("%q: agent %q and %q, want %q and %q", c.args, o.spec.Agent, left, c.agent, c.left)
		}
	}
}

func TestFillIn(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := task.TaskSpec{Prompt: "x", Priority: 9, After: []string{"a"}}
	fillIn(&s, &task.TaskSpec{Priority: 3, Label: "red", After: []string{"b"}, OutputSpec: []string{"c"}, NotBefore: at, Hold: true})
	if s.Prompt != "x" || s.Priority != 9 || s.Label != "red" || s.After[0] != "a" || s.OutputSpec[0] != "c" || !s.NotBefore.Equal(at) || !s.Hold {
		t.Errorf("%+v", s)
	}
}

func TestSilentRunIsMarked(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status state.Status
		silent time.Duration
		want   string
	}{
		{state.Running, 9*time.Minute + 3*time.Second, "running (silent 9m03s)"},
		{state.Running, time.Minute, "running (silent 1m00s)"},
		{state.Running, 59 * time.Second, "running"},
		{state.Done, time.Hour, "done"},
	} {
		v := &wire.TaskView{Task: state.Task{Status: c.status}, LastOutput: now.Add(-c.silent)}
		if got := statusNow(v, now); got != c.want {
			t.Errorf("%s, silent for %s: %q, want %q", c.status, c.silent, got, c.want)
		}
	}
	if got := statusNow(&wire.TaskView{Task: state.Task{Status: state.Running}}, now); got != "running" {
		t.Errorf("of a master that does not know: %q", got)
	}
}
