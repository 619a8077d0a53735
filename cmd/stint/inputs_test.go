package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
)

func TestReadInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("sub", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"sub/a": 3, "half": task.MaxInputFiles / 2, "whole": task.MaxInputFiles, "more": task.MaxInputFiles + 1} {
		if err := os.WriteFile(name, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths []string
		names string // "" if they are refused
		why   string
	}{
		{[]string{"sub/a", "./half"}, "sub/a half", ""},
		{[]string{filepath.Join(dir, "sub/a"), "../" + filepath.Base(dir) + "/half"}, "a half", ""},
		{[]string{"whole"}, "whole", ""},
		{[]string{"more"}, "", "more than 1048576 bytes"},
		{[]string{"none"}, "", "no such file"},
		{[]string{"sub"}, "", "is a directory"},
	} {
		files, err := readInputs(c.paths)
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.names || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %q, %v; want %q, %q", c.paths, got, err, c.names, c.why)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: exit code %d", c.paths, exitCode(err))
		}
	}
}
