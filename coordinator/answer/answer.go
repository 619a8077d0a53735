// Package answer checks the form of a finished attempt: whether the final message of its agent is empty, and whether it deleted
// test files. It reads no meaning: whether an answer is right, complete or a refusal is for the self-evaluation to judge. An agent
// that ends with exit code 0 and without a final message needs no check here: by the table in coordinator/agent, it has failed.
//
// Nothing that is found changes how a task ends. The findings are recorded with it and may queue the follow-up of --on-issue.
package answer

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"stint/state"
)

// The kinds of findings.
const (
	KindEmpty        = "empty"         // the final message says nothing
	KindTestsDeleted = "tests-deleted" // test files are gone
)

// CheckMessage returns what is wrong with the final message of an agent: at most one finding. A
// message is empty if all of it is blanks, punctuation and code fences, such as "…" or "---".
func CheckMessage(message string) []state.Issue {
	isContent := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsSymbol(r) && r != '`' || strings.ContainsRune(`[]{}"`, r)
	}
	if strings.ContainsFunc(message, isContent) {
		return nil
	}
	return []state.Issue{{Kind: KindEmpty, Message: "the answer has no words"}}
}

// CheckChanges returns what is wrong with the changes of an attempt: at most one finding, which
// names the test files that were deleted or renamed to something that is no test.
func CheckChanges(changes []state.FileChange) []state.Issue {
	var gone []string
	for _, c := range changes {
		switch {
		case c.Change == state.FileDeleted && IsTest(c.Path):
			gone = append(gone, c.Path)
		case c.Change == state.FileRenamed && IsTest(c.From) && !IsTest(c.Path):
			gone = append(gone, c.From)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return []state.Issue{{Kind: KindTestsDeleted, Message: state.Cut("test files were deleted or renamed away: "+strings.Join(gone, ", "), 200)}}
}

var (
	codeExtensions = strings.Fields(".go .py .rb .ex .exs .rs .js .jsx .ts .tsx .cjs .mjs .cts .mts .java .kt .kts .scala .groovy .cs .swift .php .c .cc .cpp .h .hpp .sh .t .pl .lua .sql .dart")
	testSuffixes   = strings.Fields("_test .test _spec .spec Test Tests Spec")
	testDirs       = strings.Fields("test tests spec specs __tests__ t")
)

// IsTest reports whether a file is a test by its path: code whose name says so (calc_test.go, test_calc.py,
// calc.spec.ts, CalcTest.java) or that lies below a directory of tests, and *.bats.
func IsTest(file string) bool {
	dir, base := path.Split(file)
	ext := path.Ext(base)
	if ext == ".bats" {
		return true
	}
	if !slices.Contains(codeExtensions, ext) {
		return false
	}
	stem := strings.TrimSuffix(base, ext)
	return strings.HasPrefix(base, "test_") ||
		slices.ContainsFunc(testSuffixes, func(suffix string) bool { return strings.HasSuffix(stem, suffix) }) ||
		slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return slices.Contains(testDirs, name) })
}
