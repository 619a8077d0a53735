package coordinator

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// What an attempt has done to the tests, as its diff tells. Only what was there when
// it began counts: a new test may be as weak as it likes.

// A fileDiff is what a diff says of one file.
type fileDiff struct {
	old, new string // its path before and after; "" where there was none, or is none
	hunks    []hunk
}

// A hunk is a place where a file was changed, without context.
type hunk struct{ gone, added []string }

// parseDiff reads the output of git diff -U0. What it does not know it passes over.
func parseDiff(text string) (files []*fileDiff) {
	var f *fileDiff
	inHunk := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "diff --git "):
			f, inHunk = &fileDiff{}, false
			f.old, f.new = headNames(line)
			files = append(files, f)
		case f == nil:
		case strings.HasPrefix(line, "@@ "):
			inHunk = true
			f.hunks = append(f.hunks, hunk{})
		case inHunk && line != "":
			f.hunks[len(f.hunks)-1].take(line)
		case strings.HasPrefix(line, "deleted file mode "):
			f.new = ""
		case strings.HasPrefix(line, "new file mode "):
			f.old = ""
		case strings.HasPrefix(line, "rename from "):
			f.old = strings.TrimPrefix(line, "rename from ")
		case strings.HasPrefix(line, "rename to "):
			f.new = strings.TrimPrefix(line, "rename to ")
		}
	}
	return files
}

func (h *hunk) take(line string) {
	switch line[0] {
	case '-':
		h.gone = append(h.gone, line[1:])
	case '+':
		h.added = append(h.added, line[1:])
	}
}

// headNames gives the two names of "diff --git a/x b/x", which are the same unless
// further lines say otherwise.
func headNames(line string) (old, now string) {
	names := strings.TrimPrefix(line, "diff --git ")
	if half := len(names) / 2; len(names)%2 == 1 && strings.HasPrefix(names, "a/") && names[half] == ' ' {
		return names[2:half], names[half+3:]
	}
	return "", ""
}

// lines gives all lines that went and came.
func (f *fileDiff) lines() (gone, added []string) {
	for _, h := range f.hunks {
		gone, added = append(gone, h.gone...), append(added, h.added...)
	}
	return gone, added
}

var (
	testName = regexp.MustCompile(`(?:_test\.(?:go|py|rb|exs|dart|cc|cpp|c)|^test_[^/]*\.py|\.(?:test|spec)\.[cm]?[jt]sx?|(?:Test|Tests|IT|Spec)\.(?:java|kt|kts|scala|groovy|cs|swift|php)|_spec\.rb|\.bats)$`)
	testDir  = regexp.MustCompile(`(?:^|/)(?:tests?|specs?|__tests__|t)/`)
	codeName = regexp.MustCompile(`\.(?:go|py|rb|exs?|rs|[cm]?[jt]sx?|java|kt|scala|cs|swift|php|c|cc|cpp|h|hpp|sh|bats|t|pl|lua|sql|dart)$`)

	testDecl = regexp.MustCompile(`^\s*(?:func ((?:Test|Fuzz|Example)\w*)\(|(?:async )?def (test\w*)\(|(?:export )?(?:it|test|specify|describe|context)(?:\.\w+)*\(?\s*(["'\x60].+?["'\x60])|@test (".+")|TEST(?:_F|_P)?\((\w+, *\w+)\)|(?:public )?(?:async )?func(?:tion)? (test\w+)\()`)
	testMark = regexp.MustCompile(`^\s*(?:@(?:Test|ParameterizedTest|RepeatedTest)\b|\[(?:Fact|Theory|Test|TestMethod)\b|#\[(?:\w+::)?test\b)`)

	skips = regexp.MustCompile(`\b[tbf]\.Skip(?:Now|f)?\(|@(?:pytest\.mark|unittest)\.(?:skip|xfail|expectedFailure)|\bpytest\.(?:skip|xfail)\(|^\s*pytestmark\s*=.*skip|\bself\.skipTest\(|\bunittest\.SkipTest\b|` +
		`\b(?:it|test|describe|context|suite)\.(?:skip|todo|fixme|only)\b|^\s*(?:x(?:it|test|describe|context)|f(?:it|describe))\(|\bthis\.skip\(\)|#\[ignore\b|^\s*@(?:Disabled|Ignore)\b|\[(?:Fact|Theory)\(Skip|^\s*\[Ignore\b|` +
		`\bmarkTest(?:Skipped|Incomplete)\(|\bXCTSkip\b|\bGTEST_SKIP\(|\bDISABLED_\w+|@tag :skip|^//go:build ignore|^\s*(?:skip|pending)(?:\s+["']|\s*$)`)
	asserts = regexp.MustCompile(`\bassert\w*\b|\bexpect\(|\brequire\.\w+\(|\bt\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\bshould\b|\bEXPECT_\w+|\bASSERT_\w+|\bself\.assert\w+|\bAssert\.\w+|\bXCTAssert\w*|\bcmp\.Diff\(`)
	vacuous = regexp.MustCompile(`^\s*(?:assert(?:\s+True\b|\s+1\b|\(\s*true\s*\)|!\(\s*true\s*\)|\.ok\(\s*true\s*\)|True\(\s*true\s*\)|\.True\(\w+,\s*true\))|self\.assertTrue\(True\)|expect\(\s*true\s*\)\.to(?:Be|Equal)\(\s*true\s*\)|expect\(\s*1\s*\)\.toBe\(\s*1\s*\)|assert\.Equal\(t, 1, 1\))\s*[;]?\s*$`)
	passes  = regexp.MustCompile(`\|\|\s*(?:true|:|exit 0|/bin/true)\b?|\|\|\s*:\s*$|^\s*(?:[-\w"':]*\s*)?exit 0\s*$|^\s*set \+e\b|--passWithNoTests|--exit-zero|continue-on-error:\s*true`)
)

func isTestFile(name string) bool {
	base := path.Base(name)
	return testName.MatchString(base) || testDir.MatchString(name) && codeName.MatchString(base)
}

// findWeakened gives the first thing that makes the verify command check less.
func findWeakened(a *answered) string {
	if a.verify == "" || a.diff == "" {
		return ""
	}
	files := parseDiff(a.diff)
	for _, find := range []func() string{
		func() string { return deletedTests(files) },
		func() string { return removedTests(files) },
		func() string { return eachOld(files, addedSkip) },
		func() string { return removedAsserts(files) },
		func() string { return eachOld(files, vacuousTest) },
		func() string { return tamperedScript(files, a.verify) },
	} {
		if message := find(); message != "" {
			return message
		}
	}
	return ""
}

// eachOld gives what find says of the first test file that was there before.
func eachOld(files []*fileDiff, find func(*fileDiff) string) string {
	for _, f := range files {
		if f.old != "" && f.new != "" && (isTestFile(f.old) || path.Ext(f.old) == ".rs") {
			if message := find(f); message != "" {
				return message
			}
		}
	}
	return ""
}

// deletedTests names the test files that are gone. Files whose tests stand elsewhere
// now were moved.
func deletedTests(files []*fileDiff) string {
	var gone []string
	for _, f := range files {
		if f.old != "" && isTestFile(f.old) && (f.new == "" || !isTestFile(f.new)) {
			gone = append(gone, f.old)
		}
	}
	if len(gone) == 0 || len(gone) <= newTestFiles(files) {
		return ""
	}
	return "test files were deleted or renamed away: " + listed(gone)
}

func newTestFiles(files []*fileDiff) (n int) {
	for _, f := range files {
		if f.old == "" && f.new != "" && isTestFile(f.new) {
			n++
		}
	}
	return n
}

// removedTests names tests that are in no file any more. As many new ones in the same
// file are taken for them under other names.
func removedTests(files []*fileDiff) string {
	came := map[string]bool{}
	for _, f := range files {
		_, added := f.lines()
		for _, name := range declared(added) {
			came[name] = true
		}
	}
	for _, f := range files {
		if f.old == "" || f.new == "" || !isTestFile(f.old) && path.Ext(f.old) != ".rs" {
			continue
		}
		gone, added := f.lines()
		left := slices.DeleteFunc(declared(gone), func(name string) bool { return came[name] })
		fresh := slices.DeleteFunc(declared(added), func(name string) bool { return slices.Contains(declared(gone), name) })
		if len(left) > len(fresh) {
			return fmt.Sprintf("tests were removed from %s: %s", f.old, listed(left))
		}
		if n := countOf(testMark, gone) - countOf(testMark, added); n > 0 && newTestFiles(files) == 0 {
			return fmt.Sprintf("%d of the tests were removed from %s", n, f.old)
		}
	}
	return ""
}

// declared gives the names of the tests that lines declare.
func declared(lines []string) (names []string) {
	for _, line := range lines {
		if m := testDecl.FindStringSubmatch(line); m != nil {
			names = append(names, strings.Join(m[1:], ""))
		}
	}
	return names
}

// addedSkip gives a skip that an old test has now.
func addedSkip(f *fileDiff) string {
	gone, added := f.lines()
	if countOf(skips, added) <= countOf(skips, gone) {
		return ""
	}
	for _, h := range f.hunks {
		isNew := len(h.gone) == 0 && (len(declared(h.added)) > 0 || countOf(testMark, h.added) > 0) && !declaresSkipped(h.added)
		for _, line := range h.added {
			if skips.MatchString(line) && !isNew && !isComment(line) {
				return fmt.Sprintf("a skip was added to %s: %s", f.old, evidence(line))
			}
		}
	}
	return ""
}

// declaresSkipped reports whether lines that were only added can still change an old
// test: a mark that stands at their end is that of what follows.
func declaresSkipped(added []string) bool {
	return skips.MatchString(added[len(added)-1]) && !strings.HasPrefix(strings.TrimSpace(added[len(added)-1]), "t.")
}

func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "// ") || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "* ")
}

// removedAsserts says where most assertions of a file are gone and none came for them.
func removedAsserts(files []*fileDiff) string {
	came := 0
	for _, f := range files {
		if _, added := f.lines(); f.old == "" {
			came += countOf(asserts, added)
		}
	}
	return eachOld(files, func(f *fileDiff) string {
		gone, added := f.lines()
		was, is := countOf(asserts, gone), countOf(asserts, added)-countOf(vacuous, added)+came
		if was < 3 || is*4 > was {
			return ""
		}
		return fmt.Sprintf("%d assertions were removed from %s, and %d came for them", was, f.old, is)
	})
}

func vacuousTest(f *fileDiff) string {
	gone, added := f.lines()
	if i := slices.IndexFunc(added, vacuous.MatchString); i >= 0 && countOf(asserts, gone) > 0 {
		return fmt.Sprintf("a check of %s now always passes: %s", f.old, evidence(added[i]))
	}
	return ""
}

// scripts are the files that the first word of a command runs by.
var scripts = map[string][]string{
	"make": {"Makefile", "makefile", "GNUmakefile"}, "npm": {"package.json"}, "yarn": {"package.json"}, "pnpm": {"package.json"},
	"npx": {"package.json"}, "bun": {"package.json"}, "just": {"justfile", "Justfile"}, "task": {"Taskfile.yml"}, "tox": {"tox.ini"}, "rake": {"Rakefile"},
}

// tamperedScript looks into the files that the verify command runs.
func tamperedScript(files []*fileDiff, command string) string {
	var named []string
	for _, word := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\n;&|()'\"", r) }) {
		named = append(named, path.Clean(word))
		named = append(named, scripts[word]...)
	}
	for _, f := range files {
		if f.old == "" || !slices.ContainsFunc(named, func(n string) bool { return f.old == n || strings.HasSuffix(f.old, "/"+n) && path.Ext(n) != "" }) {
			continue
		}
		if f.new == "" {
			return f.old + ", which the verify command runs, was deleted"
		}
		gone, added := f.lines()
		if countOf(passes, added) <= countOf(passes, gone) {
			continue
		}
		if i := slices.IndexFunc(added, passes.MatchString); i >= 0 {
			return fmt.Sprintf("%s, which the verify command runs, passes in any case now: %s", f.old, evidence(added[i]))
		}
	}
	return ""
}

func countOf(p *regexp.Regexp, lines []string) (n int) {
	for _, line := range lines {
		if p.MatchString(line) {
			n++
		}
	}
	return n
}

// listed names the first few of a list.
func listed(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
