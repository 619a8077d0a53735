package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator"
	"stint/state"
)

// What a plan says is what the run is: the same arguments and variables. It starts
// nothing and writes nothing.
func TestPlan(t *testing.T) {
	b := newBench(t)
	program := b.fakeProgram("program", `[ "$1" = --version ] || touch started`)
	for name, planner := range map[string]interface {
		coordinator.Agent
		coordinator.Planner
	}{
		"demo":   b.demo,
		"codex":  &Codex{Runner: b.demo.Runner, Bin: program, Profile: "work"},
		"claude": &Claude{Runner: b.demo.Runner, Bin: program, AllowedTools: []string{"Bash(go test:*)"}},
		"gemini": &Gemini{Runner: b.demo.Runner, Bin: program},
	} {
		t.Run(name, func(t *testing.T) {
			turn := b.turn("hello")
			turn.Session, turn.Model, turn.Files = someUUID, "m-1", filepath.Join(turn.RunDir, "files")
			must(t, os.RemoveAll(turn.RunDir))
			plan := planner.Plan(turn)
			if plan.Class != "" || plan.Error != "" {
				t.Errorf("plan: %+v", plan)
			}
			for _, path := range []string{turn.RunDir, filepath.Join(turn.Workspace, "started")} {
				if exists(path) == nil {
					t.Errorf("the plan has made %s", path)
				}
			}
			must(t, os.MkdirAll(turn.RunDir, 0o700))
			must(t, os.WriteFile(turn.Prompt, []byte("hello"), 0o600))
			planner.Run(t.Context(), turn, quiet)
			run, err := readRecord(turn.RunDir)
			must(t, err)
			if diff := cmp.Diff(plan, coordinator.Plan{Argv: run.Argv, Env: run.Env}); diff != "" {
				t.Errorf("the plan and the run (-plan +run):\n%s", diff)
			}
			_ = os.Remove(filepath.Join(turn.Workspace, "started")) // the demo agent makes none
		})
	}
}

// A plan says why a turn cannot start, as its run does.
func TestPlanRefuses(t *testing.T) {
	b := newBench(t)
	turn := b.turn("hello")
	for _, c := range []struct {
		codex Codex
		model string
		class state.Class
	}{
		{Codex{Bin: "no-such-codex"}, "", state.ClassAgentMissing},
		{Codex{Bin: "true"}, "--yes", state.ClassExit},
	} {
		c.codex.Runner, turn.Model = b.demo.Runner, c.model
		plan, out := c.codex.Plan(turn), c.codex.Run(t.Context(), turn, quiet)
		if plan.Class != c.class || plan.Argv != nil || out.Class != plan.Class || out.Error != plan.Error {
			t.Errorf("plan %+v, run %+v", plan, out)
		}
	}
}
