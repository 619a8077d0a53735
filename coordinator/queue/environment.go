package queue

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state/fold"
)

// The environment of the call that submitted a task is kept outside of the ledger, once for all
// tasks that have the same: env/<digest>. The task's record has the digest.

func (s *Store) environmentPath(digest string) string {
	return filepath.Join(s.Config.StateDir, "env", digest)
}

// KeepEnvironment makes a captured environment durable, where it is not, and returns its digest; "" for none.
func (s *Store) KeepEnvironment(env []string) (digest string, err error) {
	data, digest := task.EncodeEnvironment(env)
	if digest == "" {
		return "", nil
	}
	if old, err := durable.ReadFile(durable.OS, s.environmentPath(digest)); err == nil && bytes.Equal(old, data) && touch(s.environmentPath(digest)) == nil {
		return digest, nil
	}
	if err = durable.MkdirAll(durable.OS, s.environmentPath("")); err == nil {
		err = durable.WriteFile(durable.OS, s.environmentPath(digest), data)
	}
	return digest, err
}

// touch notes that a file is used, by the clock of the files.
func touch(path string) error { return os.Chtimes(path, time.Time{}, time.Now()) }

// Environment returns the environment with that digest, KEY=VALUE. ok is false if it is lost:
// its file is not there, or was changed. Without a digest it is nil.
func (s *Store) Environment(digest string) (env []string, ok bool) {
	if !task.IsEnvironmentDigest(digest) {
		return nil, digest == ""
	}
	data, err := durable.ReadFile(durable.OS, s.environmentPath(digest))
	if err != nil {
		return nil, false
	}
	_ = touch(s.environmentPath(digest)) // else it is removed sooner
	return task.DecodeEnvironment(data, digest)
}

// OpenEnvironments returns the digests of environments of an agent's open tasks; "": of any agent's.
func (s *Store) OpenEnvironments(agent string) map[string]bool {
	digests := map[string]bool{}
	for _, id := range Read(s, (*fold.State).OpenIDs) {
		if t, err := s.Peek(id); err == nil && (agent == "" || t.Agent == agent) {
			digests[t.Environment] = true
		}
	}
	return digests
}

// dropEnvironments removes environments that were not used for long and that no open task names.
func (s *Store) dropEnvironments() error {
	const environmentUnused = 30 * 24 * time.Hour // until then a task that has ended may be retried, and a submit that is under way is in the ledger
	entries, err := os.ReadDir(s.environmentPath(""))
	if err != nil {
		return nil // there is none to remove
	}
	open := s.OpenEnvironments("")
	for _, e := range entries {
		fi, lost := e.Info()
		if err == nil && lost == nil && time.Since(fi.ModTime()) > environmentUnused && !open[e.Name()] {
			err = os.Remove(s.environmentPath(e.Name()))
		}
	}
	return err
}
