package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// arrows says which packages of this module each package may import. A package
// that is not here may not exist.
var arrows = map[string][]string{
	"stint/ledger/durable":                    {},
	"stint/ledger":                            {},
	"stint/ledger/reconcile":                  {"stint/ledger"},
	"stint/ledger/journal":                    {"stint/ledger/reconcile", "stint/ledger", "stint/ledger/durable"},
	"stint/state":                             {"stint/ledger"},
	"stint/state/table":                       {"stint/state"},
	"stint/state/lanes":                       {"stint/state/table", "stint/state", "stint/ledger"},
	"stint/state/fold":                        {"stint/state/lanes", "stint/state/table", "stint/state", "stint/ledger"},
	"stint/session":                           {"stint/ledger/durable"},
	"stint/memory":                            {},
	"stint/prompt":                            {"stint/memory"},
	"stint/coordinator/store":                 {"stint/ledger", "stint/ledger/journal", "stint/ledger/reconcile"},
	"stint/coordinator/task":                  {"stint/ledger", "stint/ledger/durable", "stint/memory", "stint/prompt", "stint/state"},
	"stint/coordinator/queue":                 {"stint/coordinator/store", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/reconcile", "stint/ledger/durable", "stint/session", "stint/state", "stint/state/fold", "stint/state/lanes"},
	"stint/coordinator/query":                 {"stint/coordinator/attempt", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/memory", "stint/session", "stint/state", "stint/state/fold", "stint/state/lanes"},
	"stint/coordinator/statedir":              {"stint/coordinator/admission", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/reconcile", "stint/ledger/durable", "stint/state", "stint/state/fold"},
	"stint/coordinator/dispatch":              {"stint/coordinator/admission", "stint/coordinator/attempt", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/durable", "stint/state", "stint/state/fold", "stint/state/lanes"},
	"stint/coordinator/attempt":               {"stint/coordinator/admission", "stint/coordinator/answer", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/memory", "stint/prompt", "stint/session", "stint/state", "stint/state/fold"},
	"stint/coordinator/admission":             {"stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/prompt", "stint/state", "stint/state/fold", "stint/state/lanes"},
	"stint/coordinator/rundir":                {"stint/coordinator/queue", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/memory", "stint/state", "stint/state/fold"},
	"stint/coordinator/answer":                {"stint/state"},
	"stint/coordinator":                       {"stint/coordinator/dispatch", "stint/coordinator/query", "stint/coordinator/queue", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/state/fold"},
	"stint/coordinator/agent/gate":            {"stint/coordinator/task", "stint/ledger/durable"},
	"stint/coordinator/agent/gate/gatetest":   {"stint/coordinator/task", "stint/ledger/durable"}, // only tests import it
	"stint/coordinator/agent":                 {"stint/coordinator/agent/gate", "stint/coordinator/rundir", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/agent/codex":           {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/agent/claude":          {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/task", "stint/ledger/durable", "stint/state"},
	"stint/coordinator/agent/gemini":          {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/task", "stint/ledger/durable", "stint/state"},
	"stint/coordinator/agent/demo":            {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/agent/codex", "stint/coordinator/task", "stint/ledger/durable"}, // it speaks codex's events
	"stint/coordinator/agent/agenttest":       {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/agent/gate/gatetest", "stint/coordinator/task", "stint/state"},  // only tests import it
	"stint/coordinator/api/wire":              {"stint/coordinator/task", "stint/session", "stint/state"},
	"stint/coordinator/api/client":            {"stint/coordinator/api/wire", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/state"},
	"stint/coordinator/api/metrics":           {"stint/coordinator/task", "stint/state"},
	"stint/coordinator/api/guard":             {"stint/coordinator/api/wire", "stint/coordinator/task", "stint/ledger/durable"},
	"stint/coordinator/api/web":               {"stint/coordinator/api/guard", "stint/coordinator/api/wire", "stint/coordinator/rundir", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/api":                   {"stint/coordinator/api/guard", "stint/coordinator/api/metrics", "stint/coordinator/api/web", "stint/coordinator/api/wire", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/session", "stint/state", "stint/state/fold"},
	"stint/coordinator/postgres/dsn":          {"stint/coordinator/task"},
	"stint/coordinator/postgres":              {"stint/coordinator/postgres/dsn", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/state"},
	"stint/coordinator/postgres/postgrestest": {}, // only tests import it
	"stint/cmd/stint": {
		"stint/coordinator", "stint/coordinator/query", "stint/coordinator/statedir", "stint/coordinator/attempt", "stint/coordinator/admission", "stint/coordinator/rundir", "stint/coordinator/queue", "stint/coordinator/task", "stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/agent/codex", "stint/coordinator/agent/claude", "stint/coordinator/agent/gemini", "stint/coordinator/agent/demo",
		"stint/coordinator/api", "stint/coordinator/api/guard", "stint/coordinator/api/client", "stint/coordinator/api/wire", "stint/coordinator/postgres", "stint/coordinator/postgres/dsn",
		"stint/state", "stint/session", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/prompt", "stint/memory",
	},
	"stint/examples": {}, // its tests may import anything
}

// withoutIO has the packages that do no I/O, start nothing and read no clock, and
// what of the standard library they therefore do without.
var withoutIO = map[string][]string{
	"stint/state":       {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/table": {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/lanes": {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/fold":  {"os", "net", "os/exec", "syscall", "sync"},
	"stint/prompt":      {"os", "net", "os/exec", "syscall", "sync"},
}

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

// listPackages returns every package that the module's packages need.
func listPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "stint/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func inModule(path string) bool { return strings.HasPrefix(path, "stint/") }

// TestArrows keeps who may import whom.
func TestArrows(t *testing.T) {
	for path, p := range listPackages(t) {
		if !inModule(path) {
			continue
		}
		allowed, known := arrows[path]
		if !known {
			t.Errorf("package %s is not in the table of arrows", path)
		}
		for _, imported := range p.Imports {
			if inModule(imported) && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s", path, imported)
			}
			if slices.Contains(withoutIO[path], imported) {
				t.Errorf("%s imports %s, but does no I/O and starts nothing", path, imported)
			}
		}
	}
}

// TestDurableIsStandard keeps ledger/durable free of other modules but those of Go.
func TestDurableIsStandard(t *testing.T) {
	for _, imported := range listPackages(t)["stint/ledger/durable"].Imports {
		if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && first != "golang.org" {
			t.Errorf("ledger/durable imports %s", imported)
		}
	}
}

// TestOnlyCmdReadsTheEnvironment keeps environment, flags and configuration in
// cmd/stint.
func TestOnlyCmdReadsTheEnvironment(t *testing.T) {
	for path, p := range listPackages(t) {
		if !inModule(path) || path == "stint/cmd/stint" || strings.HasSuffix(path, "test") { // those are no part of the program
			continue
		}
		for _, imported := range p.Imports {
			if imported == "flag" || imported == "github.com/spf13/pflag" || imported == "github.com/spf13/cobra" {
				t.Errorf("%s imports %s", path, imported)
			}
		}
		for _, file := range sourceFiles(t, path) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []string{"os.Getenv(", "os.LookupEnv(", "os.Environ(", "os.Args"} {
				if strings.Contains(string(text), call) {
					t.Errorf("%s has %s", file, strings.TrimSuffix(call, "("))
				}
			}
		}
	}
}

// sourceFiles returns the files of a package of ours, without tests.
func sourceFiles(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(path, "stint/"), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
}

// TestTopLevel keeps the repository's first level as it is meant to be; names
// that begin with a dot are free.
func TestTopLevel(t *testing.T) {
	known := []string{
		"cmd", "coordinator", "ledger", "session", "memory", "prompt", "state", "examples",
		"go.mod", "go.sum", "README.md", "LICENSE",
	}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}
