package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openers are the functions of package os that open a file by its name. Below the state
// directory durable.Open, durable.ReadFile and durable.PutFile do: they follow no link,
// and wait at no FIFO.
var openers = []string{"Open", "OpenFile", "ReadFile", "WriteFile", "Create", "OpenRoot", "Truncate"}

// opens has the functions that use one of them, and why they may.
var opens = map[string]string{
	"coordinator/agent/cgroup.go ownCgroup":             "the kernel's files",
	"coordinator/agent/cgroup.go make":                  "the kernel's files",
	"coordinator/agent/cgroup.go kill":                  "the kernel's files",
	"coordinator/agent/cgroup.go empty":                 "the kernel's files",
	"coordinator/agent/proc.go readOnce":                "the kernel's files",
	"coordinator/agent/proc_linux.go listProcs":         "the kernel's files",
	"coordinator/agent/proc_linux.go markedProcs":       "the kernel's files",
	"coordinator/agent/proc_linux.go readProc":          "the kernel's files",
	"coordinator/agent/rlimit_linux.go asVictim":        "the kernel's files",
	"coordinator/agent/rlimit_linux.go ownSpace":        "the kernel's files",
	"coordinator/api/metrics/process.go ownMemory":      "the kernel's files",
	"coordinator/api/tcppeer_linux.go findRow":          "the kernel's files",
	"coordinator/api/tcppeer_linux.go hasOpen":          "the kernel's files",
	"coordinator/agent/gate.go open":                    "/dev/null",
	"coordinator/api/shortage.go Accept":                "/dev/null",
	"coordinator/agent/probe.go PackageVersion":         "the agent's program",
	"coordinator/agent/codex/probe.go provider":         "the user's files of the agent",
	"coordinator/agent/gemini/probe.go has":             "the user's files of the agent",
	"coordinator/agent/gemini/settings.go unset":        "the user's files of the agent",
	"coordinator/agent/gemini/settings.go readSettings": "the user's files of the agent",
	"coordinator/agent/demo/directive.go writeFile":     "the workspace, in a process of the run",
	"coordinator/files.go openRoot":                     "a directory: with a slash behind it nothing else is opened",
	"memory/memory.go openRoot":                         "a directory: with a slash behind it nothing else is opened",
	"ledger/durable/durable.go SyncDir":                 "a directory that a file was just made in",
	"ledger/durable/open.go Open":                       "it is what the others use",
	"ledger/place.go ReadLedger":                        "a file that a person names",
	"cmd/stint/configdocument.go readDocument":          "the configuration",
	"cmd/stint/configload.go loadFile":                  "the configuration",
	"cmd/stint/demo.go newDemonstration":                "a new directory in the temporary one",
	"cmd/stint/fsck.go writeNew":                        "a file that a person names",
	"cmd/stint/inputs.go readInput":                     "a file that a person names",
	"cmd/stint/merge.go mergeByGit":                     "a new directory with a name that nobody knows",
	"cmd/stint/postgres.go readURLFile":                 "a file that a person names",
	"cmd/stint/prompt.go readPromptFile":                "a file that a person names",
	"cmd/stint/prompt.go runEditor":                     "a new directory in the temporary one",
	"cmd/stint/spec.go readWhole":                       "a file that a person names",
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
			where := filepath.ToSlash(name)
			if f, is := decl.(*ast.FuncDecl); is {
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
