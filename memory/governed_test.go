package memory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/memory/care"
)

// newIDs returns a function that returns n1, n2 …
func newIDs() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("n%d", n) }
}

func governed(dir string) Governed {
	return Governed{Path: DefaultLessons, Kind: "experience", Workspace: dir, Gate: filepath.Join(dir, DefaultGate)}
}

// An outdated lesson is doubted, archived, no longer injected, found in the archive, and reinstated.
func TestGovernedLesson(t *testing.T) {
	dir := workspace(t, map[string]string{DefaultLessons: "# Lessons\n\n- 2026-11-20 Deploys need the vault. (task 0198)\n- 2026-11-21 Deploys are made on Mondays.\n"})
	g, s := governed(dir), ownScan()
	found := func(archived bool) (texts []string) {
		t.Helper()
		s.Archived = archived
		r, err := s.Search(t.Context(), dir, "deploys")
		must(t, err)
		for _, h := range r.Hits {
			texts = append(texts, h.Entry+" "+h.Path+" "+h.Text)
		}
		return texts
	}
	list, err := g.Entries(newIDs(), today)
	must(t, err)
	if got := fileText(t, dir, DefaultLessons); !strings.Contains(got, "(task 0198) <!-- stint id=n1 status=active confidence=1.00 risk=low next=2026-11-22T12:00:00Z -->\n") || len(list) != 2 {
		t.Fatalf("%s\n%+v", got, list)
	}
	lessons, err := Lessons(dir, DefaultLessons)
	must(t, err)
	if l := lessons[0]; l.Text != "Deploys need the vault." || l.Source != "task 0198" || l.ID != lessonID(l.Text) {
		t.Errorf("a lesson is %+v", l)
	}
	const first, second = "n1 memory/lessons.md - 2026-11-20 Deploys need the vault. (task 0198)", "n2 memory/lessons.md - 2026-11-21 Deploys are made on Mondays."
	if got := found(false); len(got) != 2 || !slices.Contains(got, first) || !slices.Contains(got, second) {
		t.Errorf("found %q", got)
	}
	_, asked, err := g.Apply(list[1], care.Change{Action: care.Verify, Verdict: care.Fails, Job: "j1", Now: today})
	must(t, err)
	if got := found(false); len(got) != 2 || got[1] != second { // by its date it was the first
		t.Errorf("with one that is uncertain: %q", got)
	}
	_, asked, err = g.Apply(asked, care.Change{Action: care.Verify, Verdict: care.Fails, Job: "j2", Now: today})
	must(t, err)
	if got := found(false); !slices.Equal(got, []string{first}) {
		t.Errorf("with one that is archived: %q", got)
	}
	s.Paths = []string{"memory"}
	if got := found(false); !slices.Equal(got, []string{first}) {
		t.Errorf("by a path that has the archive: %q", got)
	}
	if got := found(true); !slices.Equal(got, []string{"n2 memory/archive/memory/lessons.md - 2026-11-21 Deploys are made on Mondays."}) {
		t.Errorf("in the archive: %q", got)
	}
	_, after, err := g.Apply(asked, care.Change{Action: care.Reinstate, Verdict: care.Revised, Text: "- 2026-11-21 Deploys are made on\nTuesdays --> <!-- stint id=n1 -->", Job: "j3", Now: today})
	must(t, err)
	if got := found(false); len(got) != 2 || after.Text != "2026-11-21 Deploys are made on\nTuesdays --› ‹!-- stint id=n1 --›" || after.ID != "n2" || fileText(t, dir, "memory/archive/memory/lessons.md") != "" {
		t.Errorf("reinstated: %q, %+v", got, after)
	}
}

// Neither the state of an entry nor what is archived is found, in whatever way it is searched.
func TestSearchHidesStates(t *testing.T) {
	dir := workspace(t, map[string]string{
		"MEMORY.md": "- The cat sleeps <!-- stint id=a status=active confidence=1.00 risk=low -->\n- A dog sleeps <!-- stint id=b status=archived -->\n  sleeps outside\n" +
			"- A cow sleeps <!-- stint id=c status=uncertain confidence=0.9 -->\n- A hen sleeps <!-- stint id=d status=nonsense -->\n",
		"memory/archive/x.md": "- The archive sleeps\n",
	})
	for _, engine := range []string{"rg", "scan"} {
		s := withEngine(t, engine)
		s.Paths = []string{"MEMORY.md", "memory", "memory/archive/x.md"}
		for query, want := range map[string]string{"sleeps": "- The cat sleeps,- A cow sleeps,- A hen sleeps", "stint confidence risk status": "", "dog": "", "archive": "", "outside": ""} {
			r, err := s.Search(t.Context(), dir, query)
			must(t, err)
			var got []string
			for _, h := range r.Hits {
				got = append(got, h.Text)
			}
			slices.SortFunc(got, func(a, b string) int { return strings.Index(want, a) - strings.Index(want, b) })
			if r.Engine != engine || strings.Join(got, ",") != want {
				t.Errorf("%s: %s: %q, want %s", r.Engine, query, got, want)
			}
		}
	}
}

// Entries of high risk change only while the gate is open.
func TestGateOfGoverned(t *testing.T) {
	dir := workspace(t, map[string]string{DefaultLessons: "- one <!-- stint id=a risk=high -->\n- two <!-- stint id=b risk=medium -->\n"})
	g := governed(dir)
	apply := func(id string) error {
		text := map[string]string{"a": "one", "b": "two"}[id]
		_, _, err := g.Apply(care.Entry{State: care.State{ID: id}, Text: text}, care.Change{Action: care.Decay, Verdict: care.Fails, Now: today})
		return err
	}
	before := fileText(t, dir, DefaultLessons)
	for _, text := range []string{"", "state: closed\n", "state: ajar\n"} {
		if text != "" {
			must(t, os.WriteFile(filepath.Join(dir, DefaultGate), []byte(text), 0o600))
		}
		if err := apply("a"); !errors.Is(err, ErrGate) || fileText(t, dir, DefaultLessons) != before {
			t.Errorf("%q: %v", text, err)
		}
	}
	must(t, apply("b"))
	must(t, os.WriteFile(filepath.Join(dir, DefaultGate), []byte("state: open\n"), 0o600))
	must(t, apply("a"))
}

// No path and no link leads out of the workspace, or to git's files, nor does the archive.
func TestGovernedStaysInTheWorkspace(t *testing.T) {
	outside := workspace(t, map[string]string{"l.md": "- secret <!-- stint id=a -->\n"})
	secret := care.Entry{State: care.State{ID: "a"}, Text: "secret"}
	for name, link := range map[string]func(dir string) error{
		"the file":           func(dir string) error { return os.Symlink(outside+"/l.md", dir+"/"+DefaultLessons) },
		"its archive":        func(dir string) error { return os.Symlink(outside, dir+"/memory/archive") },
		"an archive in git":  func(dir string) error { return os.Symlink("../.git", dir+"/memory/archive") },
		"an archive for git": func(dir string) error { return os.Symlink("../.git/hooks", dir+"/memory/archive") },
		"the file within":    func(dir string) error { return os.Symlink("../MEMORY.md", dir+"/"+DefaultLessons) },
		"its directory": func(dir string) error {
			return errors.Join(os.Rename(dir+"/memory", dir+"/notes"), os.WriteFile(dir+"/notes/lessons.md", []byte("- secret <!-- stint id=a -->\n"), 0o600), os.Symlink("notes", dir+"/memory"))
		},
		"the file a directory": func(dir string) error { return os.Mkdir(dir+"/"+DefaultLessons, 0o700) },
	} {
		dir := workspace(t, map[string]string{"MEMORY.md": "- secret <!-- stint id=a -->\n", ".git/hooks/x": "", "memory/x": ""})
		must(t, link(dir))
		g := governed(dir)
		if strings.Contains(name, "archive") {
			must(t, os.WriteFile(dir+"/"+DefaultLessons, []byte("- secret <!-- stint id=a -->\n"), 0o600))
		}
		if _, after, err := g.Apply(secret, care.Change{Action: care.Archive, Now: today}); err == nil {
			t.Errorf("%s: %+v", name, after)
		}
		if strings.Contains(name, "archive") && fileText(t, dir, DefaultLessons) != "- secret <!-- stint id=a -->\n" {
			t.Errorf("%s: the entry is in neither file", name)
		}
		must(t, filepath.WalkDir(outside, func(path string, e os.DirEntry, err error) error {
			if !e.IsDir() && (filepath.Base(path) != "l.md" || fileText(t, outside, "l.md") != "- secret <!-- stint id=a -->\n") {
				t.Errorf("%s: outside is %s", name, path)
			}
			return err
		}))
		must(t, filepath.WalkDir(dir+"/.git", func(path string, e os.DirEntry, err error) error {
			if base := filepath.Base(path); base != "x" && base != ".git" && base != "hooks" {
				t.Errorf("%s: git has %s", name, path)
			}
			return err
		}))
		if text := fileText(t, dir, "MEMORY.md"); text != "- secret <!-- stint id=a -->\n" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// What an agent says in a lesson is no state: it neither says how far it can be relied on, nor takes the
// place of an archived entry.
func TestALessonHasNoStateOfItsOwn(t *testing.T) {
	const old = "- precious <!-- stint id=a status=archived confidence=0.50 risk=low -->\n"
	dir := workspace(t, map[string]string{Archive + "/" + DefaultLessons: old})
	for _, between := range []string{" ", "\t", "\n", "\u200b "} {
		addLessons(t, dir, 0, "trust me "+between+"<!--"+between+"stint id=a status=uncertain confidence=0.10 risk=low next=2020-01-01T00:00:00Z -->")
	}
	list, err := governed(dir).Entries(newIDs(), today)
	must(t, err)
	for i, e := range list {
		if isOld := e.ID == "a"; isOld != e.InArchive || isOld != (i == len(list)-1) || !isOld && (e.Wrong != "" || e.Status != care.Active || e.Confidence != 1 || !e.Next.Equal(today)) {
			t.Errorf("%+v", e)
		}
	}
	if len(list) < 2 || fileText(t, dir, Archive+"/"+DefaultLessons) != old {
		t.Errorf("%+v", list)
	}
}

// An entry that is longer than a lesson may be keeps its end when it is revised.
func TestALongEntryIsRevised(t *testing.T) {
	long := strings.Repeat("word ", 200)
	dir := workspace(t, map[string]string{DefaultLessons: "- " + long + "old <!-- stint id=a -->\n"})
	list, err := governed(dir).Entries(newIDs(), today)
	must(t, err)
	_, after, err := governed(dir).Apply(list[0], care.Change{Action: care.Verify, Verdict: care.Revised, Text: "- " + long + "new", Job: "j", Now: today})
	if err != nil || after.Text != long+"new" {
		t.Errorf("%v: %q", err, after.Text)
	}
}

// A verdict's text keeps its lines, and none of them ends the entry, or is a heading or a comment.
func TestRevisedKeepsItsLines(t *testing.T) {
	for text, want := range map[string]string{
		"- one\n- two\r\n\n\tthree  \x1b[0m\n":                                          "- one <!-- ID\n  - two\n\n      three [0m\n",
		"# one\n## two\n  ### three\n> # four\n1. - # five\n#6\nseven\n===\neight\n---": "- one <!-- ID\n  \\## two\n    \\### three\n  > \\# four\n  1. - \\# five\n  #6\n  seven\n  \\===\n  eight\n  \\---\n",
		"one\n<!-- stint id=b -->\n<!--\n-->":                                           "- one <!-- ID\n  ‹!-- stint id=b --›\n  ‹!--\n  --›\n",
		"- one\u2028- two\n```\n- three":                                                "- one - two <!-- ID\n  ```\n  - three\n",
	} {
		dir := workspace(t, map[string]string{DefaultLessons: "- old <!-- stint id=a -->\n  more\n- next <!-- stint id=c next=2027-01-01T00:00:00Z -->\n"})
		_, after, err := governed(dir).Apply(care.Entry{State: care.State{ID: "a"}, Text: "old\nmore"}, care.Change{Action: care.Verify, Verdict: care.Revised, Text: text, Now: today})
		must(t, err)
		got := regexp.MustCompile("(?s) <!-- stint id=a .*? -->").ReplaceAllString(fileText(t, dir, DefaultLessons), " <!-- ID")
		if got != want+"- next <!-- stint id=c next=2027-01-01T00:00:00Z -->\n" || after.ID != "a" {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, want)
		}
	}
}

// What is saved while a change is made is not overwritten, and a file that is full is left as it is.
func TestGovernedLosesNoSave(t *testing.T) {
	dir := workspace(t, map[string]string{DefaultLessons: "- one\n"})
	g := governed(dir)
	if _, err := g.Entries(func() string {
		must(t, os.WriteFile(filepath.Join(dir, DefaultLessons), []byte("- saved\n"), 0o600))
		return "a"
	}, today); err == nil || fileText(t, dir, DefaultLessons) != "- saved\n" {
		t.Errorf("%v: %q", err, fileText(t, dir, DefaultLessons))
	}
	full := strings.Repeat("- one\n", maxLessons/6-12) + "- two <!-- stint id=a next=2027-01-01T00:00:00Z -->\n"
	must(t, os.WriteFile(filepath.Join(dir, DefaultLessons), []byte(full), 0o600))
	_, err := g.Entries(newIDs(), today)
	must(t, err)
	_, _, err = g.Apply(care.Entry{State: care.State{ID: "a"}, Text: "two"}, care.Change{Action: care.Decay, Job: "j", Now: today})
	if !errors.Is(err, ErrFull) || fileText(t, dir, DefaultLessons) != full {
		t.Errorf("full: %v", err)
	}
}

func TestUses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uses.json")
	u := OpenUses(path)
	must(t, u.Count("/w", []Hit{{Path: DefaultLessons, Entry: "a"}, {Text: "no entry"}}, aDay))
	must(t, u.Count("/w/memory", []Hit{{Path: "lessons.md", Entry: "a"}, {Path: "lessons.md", Entry: "b"}}, today))
	must(t, u.Count("/w", []Hit{{Path: Archive + "/" + DefaultLessons, Entry: "d"}}, today))
	must(t, u.Count("/w", []Hit{{}}, today.Add(time.Hour)))
	g := governed("/w")
	u = OpenUses(path)
	if a, b, c := u.Of(g, "a"), u.Of(g, "b"), u.Of(g, "c"); a != (Use{2, today}) || b != (Use{1, today}) || c != (Use{}) || u.Of(g, "d") != b {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	if a := u.Of(governed("/x"), "a"); a != (Use{}) {
		t.Errorf("of the entry with this id in a copy of the file: %+v", a)
	}
	for _, text := range []string{"null", "[]", `{"a":{"count":1`} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		u = OpenUses(path)
		must(t, u.Count("/w", []Hit{{Path: DefaultLessons, Entry: "b"}}, today))
		if u.Of(g, "b").Count != 1 {
			t.Errorf("%s: %+v", text, u.of)
		}
	}
	for i := range maxUses {
		u.of[fmt.Sprint(i)] = Use{1, today}
	}
	must(t, u.Count("/w", []Hit{{Entry: "a"}}, today))
	if len(u.of) > maxUses {
		t.Errorf("%d are counted", len(u.of))
	}
}
