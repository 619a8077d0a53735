package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"stint/ledger/durable"
)

// Labels of the two sides of a conflict, as they stand in its markers.
const (
	labelEdited  = "your copy"
	labelCurrent = "tasks.md"
)

// merge puts what a person made of base together with what tasks.md has become
// meanwhile. What was only appended there is appended again. Other changes are
// merged by lines, with git; conflict says that the text has conflict markers.
// Temporary files are made in dir, because they hold what others are not to read.
func merge(dir string, base, edited, current []byte) (merged []byte, conflict bool, err error) {
	switch {
	case bytes.Equal(base, current) || bytes.Equal(edited, current):
		return edited, false, nil
	case bytes.Equal(base, edited):
		return current, false, nil
	}
	if added, ok := bytes.CutPrefix(current, base); ok && startsLine(base, added) {
		return append(endLine(edited), added...), false, nil
	}
	return mergeByGit(dir, base, edited, current)
}

// startsLine reports whether what was added to base begins a line of its own.
func startsLine(base, added []byte) bool {
	return len(base) == 0 || base[len(base)-1] == '\n' || added[0] == '\n'
}

// endLine gives a copy of text that ends with a newline, unless it is empty.
func endLine(text []byte) []byte {
	text = bytes.Clone(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}

// mergeByGit merges by lines.
func mergeByGit(dir string, base, edited, current []byte) (merged []byte, conflict bool, err error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, false, errors.New("tasks.md was changed by another hand meanwhile, and git, which can merge the two, is not installed")
	}
	tmp, err := os.MkdirTemp(dir, "stint-edit-merge-")
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // it holds copies
	cmd := exec.Command(git, "merge-file", "-p", "-L", labelEdited, "-L", "before", "-L", labelCurrent)
	for _, side := range []struct {
		name string
		text []byte
	}{{"edited", edited}, {"base", base}, {"current", current}} {
		name := filepath.Join(tmp, side.name)
		if err := os.WriteFile(name, side.text, durable.FileMode); err != nil {
			return nil, false, err
		}
		cmd.Args = append(cmd.Args, name)
	}
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR="+filepath.Join(tmp, "none"))
	return mergeOutput(cmd)
}

// mergeOutput runs git merge-file. Its exit code is the number of conflicts, at
// most 127; above that it could not merge.
func mergeOutput(cmd *exec.Cmd) (merged []byte, conflict bool, err error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	merged, err = cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return merged, false, nil
	case errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < 128:
		return merged, true, nil
	}
	return nil, false, fmt.Errorf("tasks.md was changed by another hand meanwhile, and git could not merge the two: %s (%w)", oneLine(said.String()), err)
}

// hasMarkers reports whether a text still has the markers of a conflict.
func hasMarkers(text []byte) bool {
	for line := range bytes.Lines(text) {
		switch string(bytes.TrimRight(line, " \t\r\n")) {
		case "<<<<<<< " + labelEdited, ">>>>>>> " + labelCurrent:
			return true
		}
	}
	return false
}
