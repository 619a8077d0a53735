package queue

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/state"
)

// The environment of the call that submitted a task is kept outside of the ledger, once for all
// tasks that have the same: env/<digest>. The task's record has the digest.

// environmentUnused is how long ago the last task with an environment must have been
// submitted until its file can be removed: a submit that is under way is not in the ledger yet.
const environmentUnused = 24 * time.Hour

func (s *Store) environmentDir() string { return filepath.Join(s.Config.StateDir, "env") }

// KeepEnvironment makes a captured environment durable, if it is not there yet, and returns its
// digest; "" if there is none to keep.
func (s *Store) KeepEnvironment(env []string) (digest string, err error) {
	data, digest := task.EncodeEnvironment(env)
	if digest == "" {
		return "", nil
	}
	dir := s.environmentDir()
	path := filepath.Join(dir, digest)
	now := time.Now() // by the clock of the files
	if os.Chtimes(path, now, now) == nil {
		return digest, nil
	}
	if err = durable.MkdirAll(durable.OS, dir); err == nil {
		err = durable.WriteFile(durable.OS, path, data)
	}
	return digest, err
}

// Environment returns the environment with that digest, KEY=VALUE. ok is false if it is lost:
// its file is not there, or was changed. Without a digest it is nil.
func (s *Store) Environment(digest string) (env []string, ok bool) {
	if digest == "" {
		return nil, true
	}
	if !task.IsEnvironmentDigest(digest) {
		return nil, false
	}
	data, err := durable.ReadFile(durable.OS, filepath.Join(s.environmentDir(), digest))
	if err != nil {
		return nil, false
	}
	return task.DecodeEnvironment(data, digest)
}

// dropEnvironments removes the environments that no task in the journal or the archive names.
func (s *Store) dropEnvironments() error {
	entries, err := os.ReadDir(s.environmentDir())
	if err != nil || len(entries) == 0 {
		return nil // there is none to remove
	}
	named := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(s.Config.StateDir, archive.Dir, "*.md")) // the pattern is well formed
	for _, file := range append(files, filepath.Join(s.Config.StateDir, ledger.JournalName)) {
		if err := namedEnvironments(file, named); err != nil {
			return err
		}
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || named[e.Name()] || time.Since(fi.ModTime()) < environmentUnused {
			continue
		}
		if err := os.Remove(filepath.Join(s.environmentDir(), e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// namedEnvironments adds the digests that the records of a file name. No text of a prompt or a
// result can begin a line at column 0.
func namedEnvironments(file string, named map[string]bool) error {
	f, err := durable.Open(file, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	r := bufio.NewReaderSize(f, 256<<10)
	for err == nil || errors.Is(err, bufio.ErrBufferFull) {
		var line []byte
		line, err = r.ReadSlice('\n')
		if digest, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "- "+state.KeyEnvironment+": "); ok {
			named[digest] = true
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
