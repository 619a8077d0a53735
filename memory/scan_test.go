package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var engineNames = []string{"rg", "scan"}

// TestEnginesAgree: what is found does not depend on which programs there are.
func TestEnginesAgree(t *testing.T) {
	dir := workspace(t, map[string]string{
		"MEMORY.md":       "\ufeffDeploy with a byte order mark\r\n# Deploy\r\n\r\nUse `make deploy`; the KEY is in the vault\r\nno newline: deploy the größe",
		"memory/a b:1.md": "- 2026-11-20 deploy: never on Friday\n- größe der Schlüssel\n" + strings.Repeat("filler\n", 3000) + "last deploy key\n",
		"memory/bytes.md": "deploy \xff\xfe key\n\ndeploy\x0ckey\n",
		"memory/中文.md":    "部署失败时先看日志。\n发布前检查。\n",
		"-.md":            "deploy from a file that is named like an option\n",
		"-":               "deploy from a file that is named like stdin\n",
		"memory/nul.md":   strings.Repeat("filler\n", 2000) + "deploy\x00 key\ndeploy key after a NUL byte\n",
	})
	results := map[string]Result{}
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			s := withEngine(t, name)
			s.Paths, s.MaxHits = append(slices.Clone(DefaultPaths), "-.md", "-"), 30
			r := search(t, s, dir, "Why did the deploy key fail? GRÖSSE Größe 部署失败")
			if r.Engine != name || r.Partial != "" || len(r.Skipped) != 0 || len(r.Hits) < 9 {
				t.Errorf("engine %q, partial %q, skipped %v, hits %v", r.Engine, r.Partial, r.Skipped, places(r))
			}
			results[name] = r
		})
	}
	for name, r := range results {
		r.Engine = "scan"
		if diff := cmp.Diff(results["scan"], r, cmpopts.IgnoreUnexported(Term{})); diff != "" {
			t.Errorf("%s finds something else than our own scan (-scan +%s):\n%s", name, name, diff)
		}
	}
}

// TestALargeNoteIsLast: when the time ends while a note of megabytes is searched, what the
// others have is found.
func TestALargeNoteIsLast(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": strings.Repeat("the deploy key is in the vault\n", 40_000), "memory/a.md": "rotate the deploy key\n"})
	root, err := openRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			s, c := withEngine(t, name), &collector{terms: termsOf("Rotate the deploy key"), sorted: true}
			c.notes, _ = s.find(t.Context(), root, time.Minute)
			passes := 0
			err := c.passes(t.Context(), func() error {
				switch passes++; {
				case passes > 1:
					return context.DeadlineExceeded
				case s.Ripgrep == "":
					return c.read(t.Context(), root)
				}
				return c.ripgrep(t.Context(), dir, s.Ripgrep)
			})
			found := slices.ContainsFunc(c.lines, func(f found) bool { return strings.HasPrefix(f.text, "rotate") })
			if !errors.Is(err, context.DeadlineExceeded) || !found {
				t.Errorf("after %d passes, which ended with %v: the rare line was found: %v", passes, err, found)
			}
		})
	}
}

// TestPromise6NoPromptIsAnOption: terms are fixed strings behind -e, and file names stand
// after -- with a directory before them.
func TestPromise6NoPromptIsAnOption(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "x\n", "-rf": "x\n"})
	fake, args := fakeRg(t, "exit 1")
	for _, prompt := range []string{
		"-e foo", "--pre=sh", "--pre=sh -e foo\n--files\n-f/etc/passwd", "$(touch pwned) `id`; rm -rf /", "(foo|.*)[a", "foo\n-e\nbar", "a\x00b --hidden",
		"--", "-", "-.- -_-", "\u2010-e \ufe63foo", "./--pre", "'--pre'", "@--pre",
	} {
		s := ownScan()
		s.Ripgrep, s.Paths = fake, []string{"MEMORY.md", "-rf"}
		r := search(t, s, dir, prompt+" deploy")
		if r.Engine != "rg" {
			t.Fatalf("%q: searched by %q", prompt, r.Engine)
		}
		got := args()
		at := slices.Index(got, "-e")
		if !slices.Contains(got[:at], "-F") || !slices.Contains(got[:at], "--no-config") {
			t.Errorf("%q: the options are %q", prompt, got[:at])
		}
		for _, term := range r.Terms {
			if got[at] != "-e" || got[at+1] != term.Text || strings.HasPrefix(term.Text, "-") {
				t.Errorf("%q: %q stands as %q", prompt, term.Text, got[at:at+2])
			}
			at += 2
		}
		if want := []string{"--", "./MEMORY.md", "./-rf"}; !slices.Equal(got[at:], want) {
			t.Errorf("%q: then follows %q, want %q", prompt, got[at:], want)
		}
	}
}

// TestSearchProgramHasNoEnvironment: nothing of ours, no RIPGREP_CONFIG_PATH.
func TestSearchProgramHasNoEnvironment(t *testing.T) {
	t.Setenv("RIPGREP_CONFIG_PATH", "/somewhere")
	dir := workspace(t, map[string]string{"MEMORY.md": "x\n"})
	fake, args := fakeRg(t, `export -p >"$0.args"; exit 1`)
	s := ownScan()
	s.Ripgrep = fake
	search(t, s, dir, "deploy")
	if got := strings.Join(args(), " "); strings.Contains(got, "RIPGREP") || !strings.Contains(got, "LC_ALL") {
		t.Errorf("its environment is %s", got)
	}
}

// fakeRg makes a program that notes its arguments, then does what the script says.
func fakeRg(t *testing.T, script string) (path string, args func() []string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rg")
	text := "#!/bin/sh\nprintf '%s\\0' \"$@\" >\"$0.args\"\n" + script + "\n"
	// A child that a parallel test forks meanwhile would have the script open for writing,
	// and nothing can be run then (go.dev/issue/22315).
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	must(t, err)
	return path, func() []string {
		t.Helper()
		noted, err := os.ReadFile(path + ".args")
		must(t, err)
		return strings.Split(strings.TrimSuffix(string(noted), "\x00"), "\x00")
	}
}

// TestABrokenProgramIsNoHarm: the next engine is asked, and nothing that the broken one said is believed.
func TestABrokenProgramIsNoHarm(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\n"})
	for name, script := range map[string]string{
		"fails":                  "exit 2",
		"is killed":              "kill -9 $$",
		"answers nonsense":       "echo hello; exit 0",
		"answers half":           "printf './MEMORY.md\\0001:'; exit 0",
		"names another file":     "printf '/etc/passwd\\0001:0:deploy key\\n'; exit 0",
		"counts backwards":       "printf './MEMORY.md\\0001:x:deploy key\\n'; exit 0",
		"begins before it":       "printf './MEMORY.md\\0001:-5:deploy key\\n'; exit 0",
		"says an endless line":   "head -c 3000000 /dev/zero | tr '\\0' x; exit 0",
		"says an endless number": "printf './MEMORY.md\\0'; head -c 300000 /dev/zero | tr '\\0' 1; exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			s := ownScan()
			s.Ripgrep, _ = fakeRg(t, script)
			r := search(t, s, dir, "the deploy key")
			if r.Engine != "scan" || !slices.Equal(places(r), []string{"MEMORY.md:1"}) {
				t.Errorf("engine %q, hits %v", r.Engine, r.Hits)
			}
		})
	}
}

// TestAFalseAnswerIsNoHit: every hit is read again from the file in the workspace.
func TestAFalseAnswerIsNoHit(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\nanother line\n"})
	for name, answer := range map[string]string{
		"another text":       "1:0:the deploy password",
		"an offset too far":  "1:4000:the deploy key",
		"amidst a line":      "1:4:deploy key",
		"at the end of file": "3:28:deploy key",
	} {
		t.Run(name, func(t *testing.T) {
			s := ownScan()
			s.Ripgrep, _ = fakeRg(t, "printf './MEMORY.md\\000"+answer+"\\n'")
			if r := search(t, s, dir, "the deploy key"); len(r.Hits) != 0 {
				t.Errorf("by %s: hits %v, want none", r.Engine, r.Hits)
			}
		})
	}
}

// TestAFileReplacedWhileItIsRead: a link to outside that takes a note's place
// between our look at it and the search has no hit.
func TestAFileReplacedWhileItIsRead(t *testing.T) {
	outside := workspace(t, map[string]string{"secret": "the deploy key is hunter2\n"})
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key is in the vault\n"})
	s := ownScan()
	s.Ripgrep, _ = fakeRg(t, "ln -sf "+outside+"/secret MEMORY.md; exec "+program(t, "rg")+` "$@"`)
	r := search(t, s, dir, "the deploy key")
	if r.Engine != "rg" || r.Terms[0].Lines != 1 || len(r.Hits) != 0 {
		t.Errorf("engine %q, terms %v, hits %v; want a line that is found and not given", r.Engine, r.Terms, r.Hits)
	}
}

// TestAHangingSearchEnds: with what it has, also if a child of the program holds its
// output open; and all is told that was left out.
func TestAHangingSearchEnds(t *testing.T) {
	const line = "printf './MEMORY.md\\0001:0:the deploy key\\n'; "
	for name, tt := range map[string]struct{ script, partial string }{
		"itself":           {line + "exec <pipe", "it took longer than 3s"},
		"a child":          {line + "(read x <pipe) & wait", "it took longer than 3s"},
		"the second round": {"if [ -e again ]; then " + line + "exec <pipe; fi; >again; cat many", "more than 4000 lines have one of the terms: of those that have only the commonest of them, not all were looked at; it took longer than 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\n", "many": strings.Repeat("./MEMORY.md\x002:15:to deploy\n", maxLines+1)})
			pipe := filepath.Join(dir, "pipe")
			must(t, syscall.Mkfifo(pipe, 0o600))
			s := ownScan()
			s.Ripgrep, _ = fakeRg(t, tt.script)
			s.Timeout = 3 * time.Second
			begin := time.Now()
			r := search(t, s, dir, "the deploy key")
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if r.Partial != tt.partial || !slices.Equal(places(r), []string{"MEMORY.md:1"}) {
				t.Errorf("partial %q, hits %v", r.Partial, r.Hits)
			}
			if w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = w.Close() // a child that still waits ends
			}
		})
	}
}

func TestACanceledSearchIsAnError(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\n"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			if _, err := withEngine(t, name).Search(ctx, dir, "deploy key"); !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// TestLongLines: of a line of 1 MB the part with the terms is returned.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("filler ", 1000) + "the deploy key is in the vault " + strings.Repeat("filler ", 150_000) + "\n"
	dir := workspace(t, map[string]string{"MEMORY.md": long + "the second line: deploy key\n" + strings.Repeat("x", 2<<20) + " deploy key"})
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			r := search(t, withEngine(t, name), dir, "Where is the deploy key? vault")
			if got := places(r); !slices.Equal(got, []string{"MEMORY.md:1", "MEMORY.md:2"}) && !slices.Equal(got, []string{"MEMORY.md:2", "MEMORY.md:1"}) {
				t.Fatalf("hits %v", got)
			}
			for _, h := range r.Hits {
				if len(h.Text) > maxText+10 || !strings.Contains(h.Text, "deploy key") {
					t.Errorf("line %d is given as %d bytes: %.80s", h.Line, len(h.Text), h.Text)
				}
			}
		})
	}
}

// TestLongLinesInOtherLetters: also where a letter has another length in lower case.
func TestLongLinesInOtherLetters(t *testing.T) {
	for name, filler := range map[string]string{"longer": "GROẞE KELVIN\u212a ", "shorter": "ȺȾ ", "bad bytes": "\xff\xfe "} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat(filler, 300) + "THE DEPLOY KEY IS IN THE VAULT " + strings.Repeat(filler, 300)
			dir := workspace(t, map[string]string{"MEMORY.md": long})
			r := search(t, ownScan(), dir, "Where is the deploy key? vault")
			if len(r.Hits) != 1 || !strings.Contains(r.Hits[0].Text, "DEPLOY KEY IS IN THE VAULT") {
				t.Errorf("hits %q", r.Hits)
			}
		})
	}
}

// TestAProgramIsNamedByItsWholePath: another one would be that of the workspace.
func TestAProgramIsNamedByItsWholePath(t *testing.T) {
	fake, _ := fakeRg(t, "touch pwned")
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\n"})
	must(t, os.Rename(fake, filepath.Join(dir, "rg")))
	s := ownScan()
	s.Ripgrep = "./rg"
	if r := search(t, s, dir, "the deploy key"); r.Engine != "scan" {
		t.Errorf("searched by %s", r.Engine)
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace's own rg was run: %v", err)
	}
}

// TestLinesAreLookedAtToTheSamePlace: by how much an engine has read does not matter.
func TestLinesAreLookedAtToTheSamePlace(t *testing.T) {
	c := &collector{terms: termsOf("deploy")}
	if f := c.match([]byte(strings.Repeat("x", maxLine-7) + " deploy key")); f.terms != 1 {
		t.Error("a term at the end of what is looked at is not found")
	}
	if f := c.match([]byte(strings.Repeat("x", maxLine-6) + " deploy key")); f.terms != 0 {
		t.Error("a term beyond what is looked at is found")
	}
}

// TestRareTermsAreFoundBehindCommonOnes: a word that floods the search hides nothing.
func TestRareTermsAreFoundBehindCommonOnes(t *testing.T) {
	var notes bytes.Buffer
	for i := range 12 * maxLines {
		fmt.Fprintf(&notes, "- an error of the server, number %d\n", i)
	}
	notes.WriteString("- frobnicate first\n")
	dir := workspace(t, map[string]string{"MEMORY.md": notes.String()})
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			s := withEngine(t, name)
			s.Timeout = time.Minute
			r := search(t, s, dir, "The server says error when I frobnicate")
			if len(r.Hits) == 0 || r.Hits[0].Line != 12*maxLines+1 {
				t.Fatalf("hits %v", r.Hits)
			}
			if !strings.Contains(r.Partial, "more than 4000 lines") {
				t.Errorf("partial %q", r.Partial)
			}
		})
	}
}
