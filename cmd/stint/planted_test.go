//go:build planted

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A bug is one that was planted on purpose, to prove that the tests see it: in a
// copy of file, old is replaced by now, and the tests named run of pkg must fail.
type bug struct {
	name     string
	file     string // from the module's root; "": nothing is changed
	old, now string
	pkg, run string
	env      []string
}

// TestPlantedBugs builds the program with one bug at a time and expects a test to
// fail that passes without it. It is not part of the usual run, because it builds
// every package many times. STINT_TEST_PLANTED says how many are taken, spread evenly;
// or they are chosen by a piece of their names:
//
//	go test -tags planted -run TestPlantedBugs -timeout 90m ./cmd/stint
//	go test -tags planted -run TestPlantedBugs/the_exit_code ./cmd/stint
func TestPlantedBugs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tried, caught, passed := 0, 0, map[string]bool{}
	n := envInt(t, "STINT_TEST_PLANTED", len(bugs))
	for i, b := range bugs {
		if i*n/len(bugs) == (i+1)*n/len(bugs) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			tried++
			none := bug{pkg: b.pkg, run: b.run, env: b.env}
			if tests := fmt.Sprint(none); !passed[tests] {
				if out, failed := runWith(t, root, &none); failed {
					t.Fatalf("without a bug in it %s fails:\n%s", b.pkg, out)
				}
				passed[tests] = true
			}
			out, failed := runWith(t, root, &b)
			switch {
			case strings.Contains(out, "[build failed]"):
				t.Fatalf("it does not build:\n%s", out)
			case !failed:
				t.Fatalf("not caught:\n%s", out)
			}
			caught++
		})
	}
	t.Logf("planted: bugs=%d caught=%d", tried, caught)
}

// runWith runs the tests of one bug, with the changed file laid over the real one.
func runWith(t *testing.T, root string, b *bug) (out string, failed bool) {
	t.Helper()
	args := []string{"test", "-vet=off", "-count=1", "-timeout=5m", "-run", b.run}
	if b.file != "" {
		args = append(args, "-overlay", overlay(t, root, b))
	}
	cmd := exec.Command("go", append(args, b.pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), b.env...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), err != nil
}

// overlay writes the changed file, and the list that go build wants of such files.
func overlay(t *testing.T, root string, b *bug) string {
	t.Helper()
	path := filepath.Join(root, b.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		t.Fatalf("%q stands %d times in %s", b.old, n, b.file)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(b.file))
	name := filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	err = errors.Join(
		err,
		os.WriteFile(changed, []byte(strings.Replace(string(source), b.old, b.now, 1)), 0o600),
		os.WriteFile(name, list, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return name
}
