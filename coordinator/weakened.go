package coordinator

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// What an attempt has done to the tests, as its diff tells. Only what was there when
// it began counts: a new test may be as weak as it likes.

// A fileDiff is what a diff says of one file.
type fileDiff struct {
	old, new string // its path in the workspace before and after; "" where there was none, or is none
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
	testName = exactly(`(?:_test\.(?:go|py|rb|exs|dart|cc|cpp|c)|^test_[^/]*\.py|\.(?:test|spec)\.[cm]?[jt]sx?|(?:Test|Tests|IT|Spec)\.(?:java|kt|kts|scala|groovy|cs|swift|php)|_spec\.rb|\.bats)$`)
	testDir  = exactly(`(?:^|/)(?:tests?|specs?|__tests__|t)/`)
	codeName = exactly(`\.(?:go|py|rb|exs?|rs|[cm]?[jt]sx?|java|kt|scala|cs|swift|php|c|cc|cpp|h|hpp|sh|bats|t|pl|lua|sql|dart)$`)

	// testDecl is a line that declares a test, by its name or by a mark.
	testDecl = exactly(`^\s*(?:func ((?:Test|Fuzz)\w*)\(|(?:async )?def (test\w*)\(|[xf]?(?:it|test|specify|describe|context)(?:\.\w+)*\(?\s*(["'\x60].+?["'\x60])|@test (".+")|TEST(?:_F|_P)?\((\w+, *\w+)\)|(?:public )?(?:async )?func(?:tion)? (test\w+)\(|(@(?:Parameterized|Repeated)?Test\b|\[(?:Fact|Theory|Test|TestMethod)\b|#\[(?:\w+::)?test\b))`)
	skips    = exactly(`^\s*[tbf]\.Skip(?:Now|f)?\(|^\s*@(?:pytest\.mark|unittest)\.(?:skip|xfail|expectedFailure)\b|^\s*(?:pytest\.(?:skip|xfail)|self\.skipTest)\(|` +
		`^\s*(?:it|test|describe|context)\.(?:skip|only)\b|^\s*(?:x(?:it|test|describe)|f(?:it|describe))\(|#\[ignore\b|^\s*@(?:Disabled|Ignore)\b|\[(?:Fact|Theory)\(Skip|^TEST\w*\(.*\bDISABLED_|^//go:build ignore`)
	isMark    = exactly(`^\s*[@#\[]`)
	condition = exactly(`^\s*(?:\} else )?(?:if|unless|switch|case)\b`)
)

func isTestFile(name string) bool {
	base := path.Base(name)
	return testName().MatchString(base) || testDir().MatchString(name) && codeName().MatchString(base)
}

// findWeakened gives the first thing that makes the verify command check less. It
// takes clear cases alone: whether fewer assertions check less, no pattern can tell.
func findWeakened(a *answered) string {
	if a.verify == "" || a.diff == "" {
		return ""
	}
	files := parseDiff(a.diff)
	tests, things := permits(a.prompt)
	if tests {
		return neuteredScript(files, a.verify)
	}
	return cmp.Or(lostTests(files, things), addedSkip(files), neuteredScript(files, a.verify))
}

// lostTests names tests that are gone, or their files, while what they test stays: no
// test came in the attempt, the other code did not become less, and they are not named
// after what the prompt wants to be removed. For a file only tests and code near it
// count, or those of its name.
func lostTests(files []*fileDiff, removed []string) string {
	came, code := map[string]bool{}, map[string]int{}
	for _, f := range files {
		gone, added := f.lines()
		for _, name := range declared(added) {
			for _, key := range append(about(f.new), name) {
				came[key] = came[key] || !isMark().MatchString(key) // which is no name
			}
		}
		if f.old != "" && !isTestFile(f.old) && codeName().MatchString(f.old) {
			for _, key := range append(about(f.old), "") {
				code[key] += len(added) - len(gone)
			}
		}
	}
	var whole, lost []string
	from := ""
	for _, f := range files {
		gone, _ := f.lines()
		names := slices.DeleteFunc(declared(gone), func(name string) bool { return isNamed(name, removed) })
		switch {
		case f.old == "" || !isTestFile(f.old) || isNamed(path.Base(f.old), removed) || code[""] < 0 && isNamed(f.old, removed):
		case !isTestFile(f.new) && (len(names) > 0 || f.new != "" && testName().MatchString(path.Base(f.old))):
			keys := about(f.old)
			if !slices.ContainsFunc(append(names, keys...), func(key string) bool { return came[key] || code[key] < 0 }) {
				whole = append(whole, f.old)
			}
		case len(names) > 0:
			from, lost = f.old, append(lost, names...)
		}
	}
	switch {
	case len(whole) > 0:
		return "test files were deleted or renamed away: " + listed(whole)
	case len(lost) > 0 && len(came) == 0 && code[""] >= 0:
		return fmt.Sprintf("tests were removed from %s: %s", from, listed(lost))
	}
	return ""
}

// about gives what tells near which others a file is: its directory, the words of that
// one's name and of its own.
func about(file string) []string {
	dir := path.Dir(file)
	return append(nameWords(path.Base(dir)+" "+path.Base(file)), dir+"/")
}

// declared gives the names of the tests that lines declare.
func declared(lines []string) (names []string) {
	for _, line := range lines {
		if m := testDecl().FindStringSubmatch(line); m != nil {
			names = append(names, strings.Replace(strings.Join(m[1:], ""), "DISABLED_", "", 1))
		}
	}
	return names
}

// addedSkip gives a skip that a test has now which was there before.
func addedSkip(files []*fileDiff) string {
	for _, f := range files {
		if f.old == "" || !isTestFile(f.old) && path.Ext(f.old) != ".rs" {
			continue
		}
		gone, added := f.lines()
		if countOf(skips, added) <= countOf(skips, gone) {
			continue
		}
		old := map[string]bool{}
		for _, name := range declared(gone) {
			old[name] = true
		}
		for _, h := range f.hunks {
			if line := h.skipped(old); line != "" {
				return fmt.Sprintf("a skip was added to %s: %s", f.old, evidence(line))
			}
		}
	}
	return ""
}

// skipped gives a line of a hunk that skips a test which is not new. One behind a
// condition skips nothing here, where the command has run.
func (h *hunk) skipped(old map[string]bool) string {
	declares := func(i int) string { return strings.Join(declared(h.added[i:i+1]), "") }
	following := make([]string, len(h.added)+1) // the test that is declared next
	for i := len(h.added) - 1; i >= 0; i-- {
		following[i] = cmp.Or(declares(i), following[i+1])
	}
	last := "" // the test that was declared last
	for i, line := range h.added {
		last = cmp.Or(declares(i), last)
		test := last
		if isMark().MatchString(line) {
			test = following[i]
		}
		if isMark().MatchString(line) && test == "" && i+1 < len(h.added) {
			test = last // below the mark that makes a test of it
		}
		if skips().MatchString(line) && (test == "" || old[test]) && (i == 0 || !condition().MatchString(h.added[i-1])) {
			return line
		}
	}
	return ""
}

// scripts are the files that the first word of a command runs by.
var scripts = map[string][]string{
	"make": {"Makefile", "makefile", "GNUmakefile"}, "npm": {"package.json"}, "yarn": {"package.json"}, "pnpm": {"package.json"},
	"bun": {"package.json"}, "just": {"justfile", "Justfile"}, "task": {"Taskfile.yml"}, "tox": {"tox.ini"}, "rake": {"Rakefile"},
}

var (
	scriptName = exactly(`(?:^\./.*|\.(?:sh|bash|bats))$`)
	checks     = exactly(`(?:test|check|lint|vet|build|spec)`)
	passes     = exactly(`\s*\|\|\s*(?:true\b|:|exit 0\b)`)
)

// neuteredScript looks into the files that the verify command runs in the workspace.
func neuteredScript(files []*fileDiff, command string) string {
	named := map[string]bool{}
	for _, word := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\n;&|()'\"", r) }) {
		if scriptName().MatchString(word) {
			named[path.Clean(word)] = true
		}
		for _, name := range scripts[word] {
			named[name] = true
		}
	}
	for _, f := range files {
		switch {
		case f.old == "" || !named[f.old]:
		case f.new == "":
			return f.old + ", which the verify command runs, was deleted"
		default:
			for _, h := range f.hunks {
				if line := h.neutered(); line != "" {
					return fmt.Sprintf("%s, which the verify command runs, passes in any case now: %s", f.old, evidence(line))
				}
			}
		}
	}
	return ""
}

// neutered gives a line that passes in any case now: a check that stood there without
// that, or an end before all that follows.
func (h *hunk) neutered() string {
	bare := func(line string) string { return strings.Trim(line, " \t-@") }
	gone := map[string]bool{}
	for _, line := range h.gone {
		gone[bare(line)] = true
	}
	for _, line := range h.added {
		without := passes().ReplaceAllString(line, "")
		if !gone[bare(line)] && (strings.TrimRight(line, " \t") == "exit 0" || without != line && checks().MatchString(line) && gone[bare(without)]) {
			return line
		}
	}
	return ""
}

func countOf(p pattern, lines []string) (n int) {
	for _, line := range lines {
		if p().MatchString(line) {
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
