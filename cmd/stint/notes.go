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
	s := &memory.Searcher{Paths: notePaths(c), Lessons: c.SelfEvalMemoryPath, MaxHits: c.MaxMemoryHits, MaxChars: c.MaxMemoryChars, Now: time.Now()}
	s.Ripgrep = lookUp("rg")
	return s
}

// lookUp gives the path of a program; "" if there is none, or if it would be one of the
// current directory, in which an agent may write.
func lookUp(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// notePaths gives what is searched.
func notePaths(c *Config) []string {
	if len(c.MemoryPaths) == 0 {
		return memory.DefaultPaths
	}
	return c.MemoryPaths
}

// searchNotes gives the search that the coordinator calls for each turn.
func searchNotes(cfg *Config) func(ctx context.Context, workspace, prompt string) (memory.Result, error) {
	return func(ctx context.Context, workspace, prompt string) (memory.Result, error) {
		return searcher(cfg, workspace).Search(ctx, workspace, prompt)
	}
}
