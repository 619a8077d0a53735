package logs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"stint/coordinator/redact"
	"stint/state"
)

// fakeMaster has runs and nothing else.
type fakeMaster struct {
	Master
	dir string
}

func (f fakeMaster) RunDir(runID string) string { return filepath.Join(f.dir, runID) }

// write appends to a file of a run.
func (f fakeMaster) write(t *testing.T, runID, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(f.RunDir(runID), 0o700))
	file, err := os.OpenFile(filepath.Join(f.RunDir(runID), name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, errors.Join(err, file.Close()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFollowAfterALag: the runs that began and ended while no subscription lasted are
// copied as well, in their order.
func TestFollowAfterALag(t *testing.T) {
	m := fakeMaster{dir: t.TempDir()}
	var out bytes.Buffer
	f := &follower{runDir: m.RunDir, name: "stdout", out: (*redact.Filter)(nil).Writer(&out)}
	defer f.close()
	task := state.Task{ID: "a", Status: state.Running}
	for _, r := range []string{"r1", "r2", "r3", "r4"} {
		m.write(t, r, "stdout", r+" ")
		task.RunID, task.Steps = r, append(task.Steps, state.Step{RunID: r})
		if r == "r1" || r == "r4" {
			f.note(&task)
		}
	}
	if err := f.copyRuns(true); err != nil || out.String() != "r1 r2 r3 r4 " {
		t.Errorf("%q %v", out.String(), err)
	}
}

// TestFollowALogThatChanges: a run can begin its file anew. Where a shorter file takes the
// place of a log that grew too long, who follows it goes on with the one that it has open.
func TestFollowALogThatChanges(t *testing.T) {
	for want, change := range map[string]func(path string) error{
		"a long beginning\nthe end\n": func(path string) error { return os.Truncate(path, 0) },
		"a long beginning\n":          os.Remove,
	} {
		m := fakeMaster{dir: t.TempDir()}
		task := state.Task{ID: "t", Status: state.Running, RunID: "r1"}
		m.write(t, "r1", "stdout", "a long beginning\n")
		var out bytes.Buffer
		f := &follower{runDir: m.RunDir, name: "stdout", out: (*redact.Filter)(nil).Writer(&out)}
		f.note(&task)
		defer f.close()
		first := f.copyRuns(true)
		must(t, errors.Join(first, change(filepath.Join(m.RunDir("r1"), "stdout"))))
		m.write(t, "r1", "stdout", "the end\n")
		if err := f.copyRuns(true); err != nil || out.String() != want {
			t.Errorf("%q, %v, want %q", out.String(), err, want)
		}
	}
}
