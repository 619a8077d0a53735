package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// openers are the functions of package os that open a file by its name. Below the state
// directory durable.Open, durable.ReadFile and durable.PutFile do: they follow no link,
// and wait at no FIFO.
var openers = []string{"Open", "OpenFile", "ReadFile", "WriteFile", "Create", "OpenRoot", "Truncate"}

// opens has the files, or where that is not enough the functions, that use one of them,
// and why they may.
var opens = map[string]string{
	"cgroup.go":               "the kernel's files",
	"proc.go":                 "the kernel's files",
	"proc_linux.go":           "the kernel's files",
	"process.go":              "the kernel's files",
	"rlimit_linux.go":         "the kernel's files",
	"tcpuid.go":               "the kernel's files",
	"gate.go open":            "/dev/null",
	"shortage.go Accept":      "/dev/null",
	"probe.go":                "the agent's program, or the user's files of the agent",
	"settings.go":             "the user's files of the agent",
	"directive.go":            "the workspace, in a process of the run",
	"files.go openRoot":       "a directory: with a slash behind it nothing else is opened",
	"memory.go openRoot":      "a directory: with a slash behind it nothing else is opened",
	"durable.go SyncDir":      "a directory that a file was just made in",
	"open.go Open":            "it is what the others use",
	"place.go ReadLedger":     "a file that a person names",
	"configload.go":           "the configuration",
	"demo.go":                 "a new directory in the temporary one",
	"fsck.go writeNew":        "a file that a person names",
	"postgres.go readURLFile": "a file that a person names",
	"spec.go":                 "a file that a person names, or a new directory in the temporary one",
}

// TestOpens: whoever opens a file by its name with package os is on the list. What lies
// below the state directory, where agents may have put another thing, is opened with
// package durable.
func TestOpens(t *testing.T) {
	used := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && name != "." || e.Name() == "testdata" || e.Name() == "postgrestest" || e.Name() == "agenttest"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			where := filepath.Base(name)
			if f, is := decl.(*ast.FuncDecl); is && opens[where] == "" {
				where += " " + f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if s, is := n.(*ast.SelectorExpr); is && slices.Contains(openers, s.Sel.Name) {
					if x, is := s.X.(*ast.Ident); is && x.Name == "os" {
						used[where] = true
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for where := range used {
		if opens[where] == "" {
			t.Errorf("%s opens a file with package os: below the state directory that is for package durable; elsewhere, say here why", where)
		}
	}
	for where := range opens {
		if !used[where] {
			t.Errorf("%s opens nothing any more", where)
		}
	}
}

// TestCISkipsNothing: whatever a test needs and cannot have is a failure in CI. So a
// function that skips a test asks first whether this is CI, and a script is skipped
// by a condition, which inCI makes an error there.
func TestCISkipsNothing(t *testing.T) {
	guarded := 0
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(path, "_test.go"), filepath.Ext(path) == ".go" && slices.Contains([]string{"postgrestest", "agenttest"}, filepath.Base(filepath.Dir(path))): // which tests import
			guarded += checkSkips(t, path)
		case strings.HasSuffix(path, ".txtar"):
			checkScriptSkips(t, path)
		}
		return nil
	})
	if err != nil || guarded == 0 {
		t.Errorf("%d guarded skips were found: %v", guarded, err)
	}
	t.Setenv("CI", "true")
	if _, err := inCI("mount", false); err == nil {
		t.Error("a condition that does not hold is no error in CI")
	}
	if holds, err := inCI("mount", true); !holds || err != nil {
		t.Errorf("a condition that holds: %v, %v", holds, err)
	}
}

// checkSkips counts the functions of a file that skip a test, and fails for those
// that do not ask for CI.
func checkSkips(t *testing.T, path string) (guarded int) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Error(err)
		return 0
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !calls(f, "", "Skip", "Skipf", "SkipNow") {
			continue
		}
		if !calls(f, `"CI"`, "Getenv") && !calls(f, "", "Short") { // CI never asks for less
			t.Errorf("%s: %s skips a test, and would in CI", fset.Position(f.Pos()), f.Name.Name)
		}
		guarded++
	}
	return guarded
}

// calls reports whether a function calls a method or function of one of those names,
// with that first argument if it is not "".
func calls(f *ast.FuncDecl, argument string, names ...string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, sel.Sel.Name) {
			return true
		}
		if argument == "" {
			found = true
		} else if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Value == argument {
			found = true
		}
		return true
	})
	return found
}

var (
	skipLine        = regexp.MustCompile(`(?m)^(\[.*\] *)?skip\b.*`)
	skipByCondition = regexp.MustCompile(`^\[!(root|mount|fuse)\] skip `)
)

// checkScriptSkips fails for a script that is skipped by anything but a condition of
// inCI.
func checkScriptSkips(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	for _, line := range skipLine.FindAllString(string(text), -1) {
		if !skipByCondition.MatchString(line) {
			t.Errorf("%s: %q would be skipped in CI", path, line)
		}
	}
}
