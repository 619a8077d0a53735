package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinters: the description has no error and no warning by the rules of two linters.
func TestLinters(t *testing.T) {
	t.Parallel()
	for _, linter := range []struct {
		variable string
		args     []string
		clean    string // what it prints then
	}{
		{"STINT_TEST_REDOCLY", []string{"lint", "--format=json", "openapi.json"}, `"warnings": 0`},
		{"STINT_TEST_SPECTRAL", []string{"lint", "--ruleset=rules.yaml", "--fail-severity=hint", "openapi.json"}, "No results"},
	} {
		t.Run(linter.variable, func(t *testing.T) {
			program := toolOf(t, linter.variable)
			dir := clientDir(t, "")
			if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte("extends: [\"spectral:oas\"]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := runIn(t, dir, nil, program, linter.args...); !strings.Contains(out, linter.clean) {
				t.Errorf("it has something to say:\n%s", out)
			}
		})
	}
}

// TestGeneratedClients: clients that generators have made of the description tell the
// story of the HTTP interface to a running master, over TCP and with the token.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	t.Run("openapi-typescript", func(t *testing.T) {
		generate := toolOf(t, "STINT_TEST_OPENAPI_TYPESCRIPT")
		dir := clientDir(t, "typescript")
		if err := os.Symlink(filepath.Join(filepath.Dir(generate), ".."), filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		runIn(t, dir, nil, generate, "openapi.json", "-o", "schema.d.ts")
		runIn(t, dir, nil, filepath.Join(filepath.Dir(generate), "tsc"), "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable", "story.mts")
		tellStory(t, dir, "node", "story.mjs")
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		if os.Getenv("STINT_TEST_OAPI_CODEGEN") == "" {
			missing(t, "STINT_TEST_OAPI_CODEGEN is not set: it needs modules that stint does not")
		}
		dir := clientDir(t, "go")
		runIn(t, dir, nil, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "client.go", "openapi.json")
		runIn(t, dir, nil, "go", "build", "-o", "story", ".")
		tellStory(t, dir, "./story")
	})
}

// toolOf returns the program that a variable names.
func toolOf(t *testing.T, variable string) string {
	path := os.Getenv(variable)
	if path == "" {
		missing(t, variable+" is not set to a program; .ci/run installs it")
	}
	return path
}

// clientDir returns a new directory with the description, and what is below
// testdata/clients for a client in that language.
func clientDir(t *testing.T, language string) string {
	t.Helper()
	dir := t.TempDir()
	if language != "" {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/clients", language))); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(openAPIFile)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "openapi.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// tellStory runs a client against a master of its own.
func tellStory(t *testing.T, dir, program string, args ...string) {
	w := newAPIWorld(t)
	out := runIn(t, dir, []string{"STINT_URL=" + w.base, "STINT_TOKEN=" + w.token, "STINT_WORKSPACE=" + w.work}, program, args...)
	if !strings.HasSuffix(out, "the story is told\n") {
		t.Errorf("the client said:\n%s", out)
	}
}

// runIn runs a program in a directory, and returns what it prints.
func runIn(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}
