package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/statedir"
	"stint/state"
)

// endOfScript stops the script's master and checks what must hold after every
// script.
func endOfScript(s *scriptState) {
	s.tests.Helper()
	live, settled := s.liveState()
	if s.master().PID != 0 {
		if err := s.end(syscall.SIGTERM, 20*time.Second); err != nil {
			s.tests.Error(errors.Join(err, s.end(syscall.SIGKILL, 20*time.Second)))
		}
	}
	if err := s.noAgents(10 * time.Second); err != nil {
		s.tests.Error(err)
	}
	if err := s.noRace(); err != nil {
		s.tests.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.state, "journal.md")); err != nil || s.unlike != "" {
		return
	}
	if err := statedir.Check(s.state); err != nil {
		s.tests.Errorf("the state directory: %v", err)
	}
	s.fsckIsClean()
	if settled {
		s.compareWithRefold(live)
	}
}

// fsckIsClean checks the state directory as `stint fsck` does.
func (s *scriptState) fsckIsClean() {
	r, err := statedir.Fsck(context.Background(), s.state, "/w", func() bool { return false })
	if err != nil {
		s.tests.Errorf("fsck: %v", err)
		return
	}
	for _, f := range r.Faults {
		s.tests.Errorf("fsck: %s (%s)", f, f.Kind)
	}
}

// liveState asks the running master for its whole state. settled says that all
// tasks have ended: only then nothing changes between this question and the
// master's end.
func (s *scriptState) liveState() (live []byte, settled bool) {
	h := s.master()
	if h.PID == 0 || h.Socket == "" {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := client.Dial(h.Socket)
	defer client.Close()
	tasks, err := client.List(ctx, state.Filter{})
	if err != nil {
		return nil, false // it is just ending
	}
	for _, v := range tasks {
		if !v.Status.Terminal() && v.Status != state.Draft {
			return nil, false
		}
	}
	live, err = client.State(ctx)
	return live, err == nil
}

// compareWithRefold compares the master's state with the fold of the journal from
// its beginning.
func (s *scriptState) compareWithRefold(live []byte) {
	var fold bytes.Buffer
	if err := statedir.Refold(s.state, &fold); err != nil {
		s.tests.Errorf("refold: %v", err)
	} else if !bytes.Equal(live, fold.Bytes()) {
		s.tests.Errorf("the live state was\n%s\nand the fold of the journal is\n%s", live, fold.Bytes())
	}
}

// noAgents waits until no process carries the mark of one of this script's runs.
func (s *scriptState) noAgents(limit time.Duration) error {
	var left []string
	if poll(limit, func() bool { left = s.agents(); return len(left) == 0 }) {
		return nil
	}
	return fmt.Errorf("processes of runs are left: %s", strings.Join(left, "; "))
}

// agents returns the processes with the environment of a run of this script.
func (s *scriptState) agents() (found []string) {
	runs, _ := filepath.Glob(filepath.Join(s.state, "runs", "*")) // the pattern is good
	envs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, env := range envs {
		text, err := os.ReadFile(env)
		if err != nil {
			continue // it has just ended
		}
		for _, run := range runs {
			if bytes.Contains(text, []byte("STINT_RUN_ID="+filepath.Base(run)+"\x00")) {
				line, _ := os.ReadFile(filepath.Join(filepath.Dir(env), "cmdline"))
				found = append(found, filepath.Base(filepath.Dir(env))+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}

// noRace looks for what the race detector found in a master in the background.
func (s *scriptState) noRace() error {
	log, err := os.ReadFile(filepath.Join(s.state, "master.log"))
	if err != nil {
		return nil // there was none
	}
	if i := bytes.Index(log, []byte("WARNING: DATA RACE")); i >= 0 {
		return fmt.Errorf("a data race in the master:\n%s", log[i:])
	}
	if i := bytes.Index(log, []byte("\ngoroutine ")); i >= 0 {
		return fmt.Errorf("the master crashed:\n%s", log)
	}
	return nil
}
