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
