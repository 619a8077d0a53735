package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
