package main

import (
	"context"
	"os/exec"
	"time"

	"stint/memory"
)

// searcher gives the search of a workspace's notes as it is configured.
func searcher(cfg *Config, workspace string) *memory.Searcher {
	c := cfg.forWorkspace(workspace)
	s := &memory.Searcher{Paths: c.MemoryPaths, MaxHits: c.MaxMemoryHits, MaxChars: c.MaxMemoryChars, Now: time.Now()}
	if len(s.Paths) == 0 {
		s.Paths = memory.DefaultPaths
	}
	s.Ripgrep, _ = exec.LookPath("rg") // without one there is grep, and without that our own scan
	s.Grep, _ = exec.LookPath("grep")
	return s
}

// searchNotes gives the search that the coordinator calls for each turn.
func searchNotes(cfg *Config) func(ctx context.Context, workspace, prompt string) (memory.Result, error) {
	return func(ctx context.Context, workspace, prompt string) (memory.Result, error) {
		return searcher(cfg, workspace).Search(ctx, workspace, prompt)
	}
}
