package main

import (
	"cmp"
	"encoding/json"
	"errors"
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
	"stint/ledger/lock":                       {"stint/ledger/durable"},
	"stint/ledger/lazy":                       {},
	"stint/ledger/plain":                      {},
	"stint/ledger":                            {"stint/ledger/lazy"},
	"stint/ledger/mark":                       {"stint/ledger"},
	"stint/ledger/reconcile":                  {"stint/ledger", "stint/ledger/mark"},
	"stint/ledger/repair":                     {"stint/ledger/lazy", "stint/ledger", "stint/ledger/salvage"},
	"stint/ledger/salvage":                    {"stint/ledger", "stint/ledger/mark"},
	"stint/ledger/archive":                    {"stint/ledger", "stint/ledger/durable", "stint/ledger/mark"},
	"stint/ledger/follow":                     {"stint/ledger", "stint/ledger/durable", "stint/ledger/mark"},
	"stint/ledger/journal":                    {"stint/ledger/plain", "stint/ledger/reconcile", "stint/ledger/tasksfile", "stint/ledger", "stint/ledger/follow", "stint/ledger/archive", "stint/ledger/salvage", "stint/ledger/durable", "stint/ledger/mark"},
	"stint/ledger/tasksfile":                  {"stint/ledger/plain", "stint/ledger", "stint/ledger/durable"},
	"stint/state":                             {"stint/ledger", "stint/state/limits"},
	"stint/state/limits":                      {},
	"stint/state/heap":                        {},
	"stint/state/table":                       {"stint/ledger/plain", "stint/state"},
	"stint/state/lanes":                       {"stint/ledger/plain", "stint/state/table", "stint/state", "stint/ledger", "stint/state/heap"},
	"stint/state/explain":                     {"stint/state/lanes", "stint/state"},
	"stint/state/fold":                        {"stint/ledger/plain", "stint/state/explain", "stint/state/lanes", "stint/state/table", "stint/state", "stint/ledger", "stint/ledger/mark"},
	"stint/state/jobs":                        {"stint/ledger/lazy", "stint/state", "stint/ledger", "stint/state/heap"},
	"stint/session":                           {"stint/ledger/durable", "stint/ledger/lock", "stint/state"},
	"stint/memory":                            {"stint/ledger/lazy", "stint/memory/care", "stint/ledger/durable"},
	"stint/memory/care":                       {"stint/ledger/lazy"},
	"stint/prompt":                            {"stint/ledger/lazy", "stint/memory"},
	"stint/coordinator/store":                 {"stint/ledger/plain", "stint/ledger", "stint/ledger/journal"},
	"stint/coordinator/task":                  {"stint/ledger", "stint/ledger/durable", "stint/memory", "stint/prompt", "stint/state", "stint/state/limits"},
	"stint/coordinator/worktree":              {"stint/coordinator/checkout", "stint/ledger/durable", "stint/ledger/lock", "stint/state"},
	"stint/coordinator/queue":                 {"stint/coordinator/checkout", "stint/coordinator/worktree", "stint/ledger/lock", "stint/ledger/plain", "stint/coordinator/redact", "stint/coordinator/rundir", "stint/coordinator/store", "stint/coordinator/task", "stint/ledger", "stint/ledger/archive", "stint/ledger/journal", "stint/ledger/reconcile", "stint/ledger/durable", "stint/memory", "stint/prompt", "stint/session", "stint/state", "stint/state/explain", "stint/state/fold", "stint/state/lanes", "stint/state/limits"},
	"stint/coordinator/query":                 {"stint/coordinator/admission", "stint/coordinator/attempt", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/archive", "stint/ledger/journal", "stint/memory", "stint/session", "stint/state", "stint/state/explain", "stint/state/fold", "stint/state/lanes"},
	"stint/coordinator/statedir":              {"stint/ledger/tasksfile", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/schedule/due", "stint/state/jobs", "stint/coordinator/task", "stint/ledger", "stint/ledger/follow", "stint/ledger/archive", "stint/ledger/repair", "stint/ledger/journal", "stint/ledger/durable", "stint/state", "stint/state/explain", "stint/state/fold", "stint/state/lanes", "stint/ledger/mark"},
	"stint/coordinator/dispatch":              {"stint/coordinator/admission", "stint/coordinator/attempt", "stint/coordinator/queue", "stint/coordinator/task", "stint/ledger", "stint/ledger/durable", "stint/state", "stint/state/fold", "stint/state/lanes", "stint/state/limits"},
	"stint/coordinator/attempt":               {"stint/coordinator/worktree", "stint/ledger/lock", "stint/coordinator/admission", "stint/coordinator/answer", "stint/coordinator/checkout", "stint/coordinator/queue", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/ledger/journal", "stint/ledger/durable", "stint/memory", "stint/prompt", "stint/session", "stint/state", "stint/state/fold"},
	"stint/coordinator/admission":             {"stint/coordinator/worktree", "stint/coordinator/queue", "stint/coordinator/task", "stint/ledger", "stint/ledger/archive", "stint/prompt", "stint/state", "stint/state/fold", "stint/state/lanes", "stint/state/limits", "stint/coordinator/followup"},
	"stint/coordinator/followup":              {"stint/coordinator/task", "stint/prompt", "stint/state"},
	"stint/coordinator/rundir":                {"stint/coordinator/redact", "stint/coordinator/task", "stint/ledger/durable", "stint/memory", "stint/state"},
	"stint/coordinator/answer":                {"stint/state"},
	"stint/coordinator/redact":                {"stint/ledger/lazy"},
	"stint/coordinator/checkout":              {"stint/state"},
	"stint/coordinator":                       {"stint/coordinator/admission", "stint/coordinator/dispatch", "stint/coordinator/query", "stint/coordinator/queue", "stint/coordinator/task", "stint/ledger/journal", "stint/ledger/durable", "stint/state", "stint/state/fold"},
	"stint/coordinator/agent/gate/hold":       {}, // it starts with each run
	"stint/coordinator/agent/gate":            {"stint/coordinator/agent/gate/hold", "stint/coordinator/redact", "stint/coordinator/task", "stint/ledger/durable"},
	"stint/coordinator/agent":                 {"stint/coordinator/agent/gate", "stint/coordinator/agent/gate/hold", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger/lazy", "stint/state"},
	anyAgent:                                  {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/task", "stint/ledger/durable", "stint/ledger/lazy", "stint/state"},
	"stint/coordinator/agent/demo":            {"stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/agent/gate/hold", anyAgent, "stint/coordinator/task", "stint/ledger/durable", "stint/ledger/lazy"}, // it speaks codex's events
	"stint/coordinator/api/wire":              {"stint/coordinator/task", "stint/ledger", "stint/ledger/durable", "stint/session", "stint/state", "stint/state/jobs"},
	"stint/coordinator/api/client":            {"stint/coordinator/api/guard", "stint/coordinator/api/wire", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/api/metrics":           {"stint/coordinator/task", "stint/state", "stint/state/jobs"},
	"stint/coordinator/api/guard":             {"stint/coordinator/api/wire", "stint/coordinator/task", "stint/ledger/durable"},
	"stint/coordinator/api/request":           {"stint/coordinator/api/guard", "stint/coordinator/api/wire", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/api/logs":              {"stint/coordinator/redact", "stint/coordinator/rundir", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/api/web":               {"stint/coordinator/api/guard", "stint/coordinator/api/wire", "stint/coordinator/rundir", "stint/coordinator/task", "stint/state", "stint/state/jobs"},
	"stint/coordinator/api":                   {"stint/coordinator/redact", "stint/coordinator/api/guard", "stint/coordinator/api/metrics", "stint/coordinator/api/request", "stint/coordinator/api/web", "stint/coordinator/api/wire", "stint/coordinator/rundir", "stint/coordinator/task", "stint/ledger", "stint/session", "stint/state", "stint/state/jobs", "stint/coordinator/api/logs"},
	"stint/coordinator/notify":                {"stint/ledger/lazy", "stint/coordinator/task", "stint/ledger", "stint/state"},
	"stint/coordinator/schedule":              {"stint/ledger/lazy", "stint/coordinator/task", "stint/ledger/durable", "stint/state"},
	"stint/coordinator/schedule/due":          {"stint/coordinator/store", "stint/coordinator/task", "stint/ledger", "stint/ledger/archive", "stint/ledger/durable", "stint/ledger/journal", "stint/ledger/reconcile", "stint/state", "stint/state/jobs"},
	"stint/coordinator/schedule/govern":       {"stint/coordinator/task", "stint/memory", "stint/memory/care", "stint/prompt", "stint/state", "stint/state/jobs"},
	"stint/coordinator/fleet":                 {"stint/coordinator/task", "stint/ledger/durable", "stint/ledger/lazy", "stint/state", "stint/state/jobs"},
	"stint/coordinator/postgres/dsn":          {"stint/coordinator/task"},
	"stint/coordinator/postgres/schema":       {"stint/coordinator/task"},
	"stint/coordinator/postgres/server":       {"stint/coordinator/postgres/dsn", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/postgres":              {"stint/coordinator/postgres/schema", "stint/coordinator/postgres/server", "stint/coordinator/postgres/tables", "stint/coordinator/task", "stint/ledger", "stint/ledger/follow", "stint/state", "stint/ledger/mark"},
	"stint/coordinator/postgres/tables":       {"stint/coordinator/redact", "stint/coordinator/rundir", "stint/coordinator/task", "stint/state"},
	"stint/coordinator/postgres/shared":       {"stint/coordinator/postgres/schema", "stint/coordinator/postgres/server", "stint/coordinator/postgres/tables", "stint/coordinator/task", "stint/ledger", "stint/state"},
	"stint/coordinator/postgres/postgrestest": {}, // only tests import it
	"stint/cmd/stint": {
		"stint/coordinator", "stint/coordinator/worktree", "stint/coordinator/checkout", "stint/coordinator/query", "stint/coordinator/statedir", "stint/coordinator/attempt", "stint/coordinator/admission", "stint/coordinator/rundir", "stint/coordinator/queue", "stint/coordinator/task", "stint/coordinator/agent", "stint/coordinator/agent/gate", "stint/coordinator/agent/gate/hold", anyAgent, "stint/coordinator/agent/demo",
		"stint/coordinator/api", "stint/coordinator/api/guard", "stint/coordinator/api/client", "stint/coordinator/api/wire", "stint/coordinator/fleet", "stint/coordinator/notify", "stint/coordinator/schedule", "stint/coordinator/schedule/due", "stint/coordinator/schedule/govern", "stint/coordinator/postgres", "stint/coordinator/postgres/dsn", "stint/coordinator/postgres/shared", "stint/coordinator/postgres/tables", "stint/coordinator/redact",
		"stint/state", "stint/state/jobs", "stint/ledger", "stint/ledger/follow", "stint/ledger/journal", "stint/ledger/tasksfile", "stint/ledger/durable", "stint/ledger/lazy", "stint/ledger/lock", "stint/prompt", "stint/memory", "stint/memory/care", "stint/state/limits", "stint/coordinator/followup",
	},
	"stint/cmd/stint-gate": {"stint/coordinator/agent/gate/hold"},
	"stint/examples":       {}, // its tests may import anything
}

// anyAgent stands for the folders of agents that have no row of their own.
const anyAgent = "stint/coordinator/agent/*"

// rowOf returns the row of a package in the table.
func rowOf(path string) string {
	if _, own := arrows[path]; !own && strings.HasPrefix(path, strings.TrimSuffix(anyAgent, "*")) {
		return anyAgent
	}
	return path
}

// adapters begin the paths of the packages that are handed what they need as small interfaces,
// and that no room of the master, nor what keeps its ledger, comes with.
var (
	adapters   = []string{"stint/coordinator/agent", "stint/coordinator/api", "stint/coordinator/notify", "stint/coordinator/postgres", "stint/coordinator/schedule"}
	ofTheRooms = []string{
		"stint/coordinator/admission", "stint/coordinator/attempt", "stint/coordinator/dispatch", "stint/coordinator/query", "stint/coordinator/queue", "stint/coordinator/statedir", "stint/coordinator/store",
		"stint/ledger/archive", "stint/ledger/journal", "stint/ledger/reconcile", "stint/ledger/salvage", "stint/ledger/tasksfile", "stint/state/fold",
	}
)

// withoutIO has the packages that do no I/O, start nothing and read no clock, and
// what of the standard library they therefore do without.
var withoutIO = map[string][]string{
	"stint/state":         {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/heap":    {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/limits":  {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/table":   {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/lanes":   {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/explain": {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/fold":    {"os", "net", "os/exec", "syscall", "sync"},
	"stint/state/jobs":    {"os", "net", "os/exec", "syscall", "sync"},
	"stint/prompt":        {"os", "net", "os/exec", "syscall", "sync"},
	"stint/memory/care":   {"os", "net", "os/exec", "syscall", "sync"},
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
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "./...") // stint/... would ask for modules of other systems too
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	all := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all[p.ImportPath] = p
	}
}

func inModule(path string) bool { return strings.HasPrefix(path, "stint/") }

// needs adds to found the packages of this module that path needs.
func needs(all map[string]goPackage, path string, found map[string]bool) {
	for _, imported := range all[path].Imports {
		if inModule(imported) && !found[imported] {
			found[imported] = true
			needs(all, imported, found)
		}
	}
}

// TestArrows keeps who may import whom, and that each permission is used.
func TestArrows(t *testing.T) {
	all, used := listPackages(t), map[string]bool{}
	for path, p := range all {
		if !inModule(path) {
			continue
		}
		allowed, known := arrows[rowOf(path)]
		if !known {
			t.Errorf("package %s is not in the table of arrows", path)
		}
		for _, imported := range p.Imports {
			used[rowOf(path)+" imports "+rowOf(imported)] = true
			if inModule(imported) && !slices.Contains(allowed, rowOf(imported)) {
				t.Errorf("%s imports %s", path, imported)
			}
			if slices.Contains(withoutIO[path], imported) {
				t.Errorf("%s imports %s, but does no I/O and starts nothing", path, imported)
			}
		}
		if path != "stint/coordinator/schedule/due" && slices.ContainsFunc(adapters, func(a string) bool { return path == a || strings.HasPrefix(path, a+"/") }) {
			found := map[string]bool{}
			needs(all, path, found)
			for _, far := range ofTheRooms {
				if found[far] {
					t.Errorf("%s, an adapter, needs %s: go list -deps %s", path, far, path)
				}
			}
		}
	}
	for path, allowed := range arrows {
		for _, imported := range allowed {
			if arrow := path + " imports " + imported; !used[arrow] {
				t.Errorf("%s: it may, and no longer does", arrow)
			}
		}
	}
}

// TestHumaIsForTests: huma makes openapi.json, in a test. Linked into the program it would begin before main, in
// every client and every gate.
func TestHumaIsForTests(t *testing.T) {
	for path := range listPackages(t) {
		if strings.Contains(path, "huma") {
			t.Errorf("the program needs %s", path)
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

// TestOnlyCmdReadsTheEnvironment keeps environment, flags and configuration in cmd/stint.
func TestOnlyCmdReadsTheEnvironment(t *testing.T) {
	for path, p := range listPackages(t) {
		for _, imported := range p.Imports {
			if inModule(path) && path != "stint/cmd/stint" && !slices.Contains(forTests, filepath.Base(path)) && slices.Contains([]string{"flag", "github.com/spf13/pflag", "github.com/spf13/cobra"}, imported) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
	walkCode(t, false, func(path, decl string) {
		if found := readsEnvironment.FindString(decl); found != "" && filepath.Base(filepath.Dir(filepath.Dir(path))) != "cmd" {
			t.Errorf("%s has %s", path, found)
		}
	})
}

var readsEnvironment = regexp.MustCompile(`\bos\.(Getenv|LookupEnv|Environ|Args)\b`)

// TestTopLevel keeps the repository's first level as it is meant to be; names that begin with a dot are free.
func TestTopLevel(t *testing.T) {
	known := strings.Fields("cmd coordinator ledger session memory prompt state examples go.mod go.sum README.md LICENSE")
	entries, err := os.ReadDir("../..")
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(known, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}

// opens has the files, or where that is not enough the functions, that use one of them, and why they may.
var opens = map[string]string{
	"cgroup.go":                    "the kernel's files",
	"proc.go readOnce":             "the kernel's files",
	"proc_linux.go":                "the kernel's files",
	"metrics.go process":           "the kernel's files",
	"tcp.go readTables":            "the kernel's files",
	"supervise.go openInput":       "/dev/null",
	"program_linux.go findProgram": "the gate beside this program, as the one who installs it",
	"server.go Accept":             "/dev/null",
	"probe.go":                     "the agent's program, or the user's files of the agent",
	"settings.go":                  "the user's files of the agent",
	"directive.go":                 "the workspace, in a process of the run",
	"program.go lookAround":        "the workspace, in a process of the run",
	"outputs.go Tidy":              "a directory: with a slash behind it nothing else is opened",
	"files.go openRoot":            "a directory: with a slash behind it nothing else is opened",
	"memory.go openRoot":           "a directory: with a slash behind it nothing else is opened",
	"prune.go remove":              "a directory: with a slash behind it nothing else is opened",
	"durable.go SyncDir":           "a directory that a file was just made in",
	"open.go Open":                 "it is what the others use",
	"restore.go ReadLedger":        "a file that a person names",
	"configload.go":                "the configuration",
	"land.go inUse":                "the user's repository",
	"tree.go enterTree":            "a worktree, which nothing leads out of",
	"worktree.go admin":            "the user's repository",
	"undo.go":                      "the checkout, in a process of the user's, and a new directory in the temporary one",
	"help.go writeManPage":         "a directory that a person names",
	"spec.go":                      "a file that a person names, or a new directory in the temporary one",
}

// forTests are directories with what only tests use.
var forTests = []string{"testdata", "postgrestest"}

// walkCode calls f for each function of the Go files of the module, with what stands
// before the next one, and for the head of each file; tests says whether of what tests use.
func walkCode(t *testing.T, tests bool, f func(file, decl string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil // of a test beside this one
		}
		if err != nil || e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return cmp.Or(err, filepath.SkipDir)
		}
		inTests := func(dir string) bool { return slices.Contains(forTests, dir) }
		isTest := strings.HasSuffix(path, "_test.go") || slices.ContainsFunc(strings.Split(path, "/"), inTests)
		if filepath.Ext(path) != ".go" || isTest != tests {
			return nil
		}
		text, err := os.ReadFile(path)
		for decl := range strings.SplitSeq(string(text), "\nfunc ") {
			f(path, comment.ReplaceAllString(decl, ""))
		}
		return err
	})
	must(t, err)
}

var (
	opensByName = regexp.MustCompile(`\bos\.(Open|OpenFile|ReadFile|WriteFile|Create|OpenRoot|Truncate)\b`)
	comment     = regexp.MustCompile(`(?m)//.*$`)
	funcName    = regexp.MustCompile(`^(?:\([^)]*\) )?(\w+)`)
	skips       = regexp.MustCompile(`[.]Skip(f|Now)?[(]`)
	skipLine    = regexp.MustCompile(`(?m)^(\[.*\] *)?skip\b.*`)
	skipByInCI  = regexp.MustCompile(`^\[!(root|curl|mount|fuse|sshd)\] skip `)
)

// TestOpens: whoever opens a file by its name with package os is on the list. What lies
// below the state directory, where agents may have put another thing, is opened with
// package durable: durable.Open, ReadFile and PutFile follow no link and wait at no FIFO.
func TestOpens(t *testing.T) {
	used := map[string]bool{}
	walkCode(t, false, func(path, decl string) {
		if !opensByName.MatchString(decl) {
			return
		}
		where := filepath.Base(path)
		if opens[where] == "" {
			where += " " + funcName.FindStringSubmatch(decl)[1]
		}
		if used[where] = true; opens[where] == "" {
			t.Errorf("%s opens a file with package os: below the state directory that is for package durable; elsewhere, say here why", where)
		}
	})
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
	walkCode(t, true, func(path, decl string) {
		if !skips.MatchString(decl) {
			return
		}
		if guarded++; !strings.Contains(decl, `Getenv("CI")`) {
			t.Errorf("%s: this skips a test, and would in CI:%s", path, decl)
		}
	})
	if guarded == 0 {
		t.Error("no guarded skips were found")
	}
	scripts, err := filepath.Glob("testdata/*/*.txtar")
	must(t, err)
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		for _, line := range skipLine.FindAllString(string(text), -1) {
			if !skipByInCI.MatchString(line) {
				t.Errorf("%s: %q would be skipped in CI", path, line)
			}
		}
	}
	t.Setenv("CI", "true")
	if _, err := inCI("mount", false); err == nil {
		t.Error("a condition that does not hold is no error in CI")
	}
	if holds, err := inCI("mount", true); !holds || err != nil {
		t.Errorf("a condition that holds: %v, %v", holds, err)
	}
}
