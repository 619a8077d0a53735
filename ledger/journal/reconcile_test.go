package journal_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/ledger"
)

// A save is what a person does to the text of tasks.md.
type save func(string) string

// A row is a case of the reconcile table: what stands in the ledger, what a
// person saves one after the other, and what comes of it.
type row struct {
	name  string
	has   []string // records, as "id key=value …"; nil: usual
	saves []save
	want  string   // the records that are added
	start string   // those where the save is found at start; "": the same
	said  []string // what is told of it
	quiet []string // what must not be told
	wrong []string // the findings that are left
	lost  []uint64 // records that have no section any more
	live  bool     // it depends on the save before, which a start knows nothing of
}

// usual is a task that runs and is edited below.
var usual = []string{"a status=queued priority=5 label=x prompt=first", "a status=running runId=r1"}

// cycle has a finished task and two that wait, all with sections of their own.
var cycle = []string{
	"a status=queued priority=5 label=x prompt=first idempotencyKey=k verifyCommand=make", "b status=queued prompt=second",
	"a status=running runId=r1 attempt=1", "a status=done result=fine codexSessionId=s1", "c status=queued prompt=third",
}

// many are as many tasks as a formatter needs to be noticed.
var many = []string{
	"a status=queued prompt=__a__", "b status=queued prompt=__b__", "c status=queued prompt=__c__",
	"d status=queued prompt=__d__", "e status=queued prompt=__e__ label=x",
}

func sub(old, now string) save { return replace(old, now) }
func all(old, now string) save {
	return func(s string) string { return strings.ReplaceAll(s, old, now) }
}
func nothing(s string) string      { return s + "\n" }
func put(text string) save         { return appended(text) }
func both(first, second save) save { return func(s string) string { return second(first(s)) } }

// cutOut takes the sections of those seqs out.
func cutOut(seqs ...int) save {
	return func(s string) string {
		for _, seq := range seqs {
			s = strings.Replace(s, sectionOf(s, seq), "", 1)
		}
		return s
	}
}

// sectionOf returns the section with that seq, up to the next one.
func sectionOf(s string, seq int) string {
	end := strings.Index(s, fmt.Sprintf("<!-- end %d", seq))
	if end < 0 {
		return "no such section"
	}
	start := strings.LastIndex(s[:end], "## ")
	next := strings.Index(s[end:], "\n\n")
	if next < 0 {
		return s[start:]
	}
	return s[start : end+next+2]
}

// stale returns the file as it was before record seq, with more behind it.
func stale(seq int, more string) save {
	return func(s string) string {
		at := strings.Index(s, fmt.Sprintf("\n- seq: %d\n", seq))
		return s[:strings.LastIndex(s[:at], "## ")] + more
	}
}

// copied appends a copy of section seq with another heading and a change in it.
func copied(seq int, heading string, change save) save {
	return func(s string) string {
		text := sectionOf(s, seq)
		_, body, _ := strings.Cut(text, "\n")
		if heading == "" {
			heading, _, _ = strings.Cut(text, "\n")
		}
		return s + "\n" + change(heading+"\n"+body)
	}
}

func asIs(s string) string { return s }

var rows = []row{
	// known seq, known digest
	{name: "only text", saves: []save{put("\nnotes\n"), sub("# Tasks", "# Tasks\n\nMine.")}},
	{name: "CRLF", saves: []save{all("\n", "\r\n")}},
	{name: "blanks", saves: []save{all("\n\n", "  \n\n\n")}},
	{name: "no newline at the end", saves: []save{func(s string) string { return strings.TrimRight(s, "\n") }}},

	// known seq, new digest
	{name: "edited", saves: []save{sub("- priority: 5", "- priority: 9"), nothing}, want: "3 a by=hand edits=1 priority=9\n", said: []string{"Task a: edited by hand: priority"}},
	{name: "a field added and one removed", saves: []save{sub("- label: x\n", "- model: m\n")}, want: "3 a by=hand edits=1 model=m label=\n"},
	{name: "a body", saves: []save{sub("- prompt: first\n", "- prompt: |\n  first\n\n  second\n")}, want: "3 a by=hand edits=1 prompt=first\n\nsecond\n"},
	{name: "taken back", saves: []save{sub("- priority: 5", "- priority: 9"), sub("- priority: 9", "- priority: 5"), sub("- priority: 5", "- priority: 9"), nothing}, want: "3 a by=hand edits=1 priority=9\n4 a by=hand edits=1 priority=5\n5 a by=hand edits=1 priority=9\n"},
	{name: "overridden later", saves: []save{sub("\n- status: queued", "\n- status: canceled"), sub("- label: x", "- label: y")}, want: "3 a by=hand edits=1 ignored=- status: canceled\n4 a by=hand edits=1 label=y\n", said: []string{"this status has no effect: the section in line"}},
	{name: "an unknown status, then a known one", saves: []save{put("\n## Task m\n- status: qeued\n"), sub("qeued", "queued")}, want: "3 m by=hand status=queued\n", said: []string{`unknown status "qeued"; did you mean queued?`}},

	// no seq
	{name: "written by hand", saves: []save{put("## Task m\n- status: queued\n- prompt: hello"), nothing, nothing}, want: "3 m by=hand status=queued prompt=hello\n", said: []string{"Task m: written by hand"}},
	{name: "two equal ones", saves: []save{put("\n## Task a\n- status: queued\n\n## Task a\n- status: queued\n"), nothing}, want: "3 a by=hand status=queued\n4 a by=hand status=queued\n"},
	{name: "a third equal one", saves: []save{put("\n## Task a\n- label: q\n\n## Task a\n- label: q\n"), put("\n## Task a\n- label: q\n")}, want: "3 a by=hand label=q\n4 a by=hand label=q\n5 a by=hand label=q\n"},
	{name: "both of two equal ones edited", saves: []save{put("\n## Task m\n- label: q\n\n## Task m\n- label: q\n"), all("## Task m\n- label: q\n", "## Task m\n- label: r\n"), nothing}, want: "3 m by=hand label=q\n4 m by=hand label=q\n5 m by=hand edits=DIGEST ignored=- label: r\n6 m by=hand edits=DIGEST.2 label=r\n"},
	{name: "written in steps", saves: []save{put("\n## Task m\n- prompt: one\n"), sub("- prompt: one\n", "- prompt: one two\n- label: l\n"), sub("- label: l\n", "- label: l\n- status: queued\n")}, want: "3 m by=hand prompt=one\n4 m by=hand edits=DIGEST prompt=one two label=l\n5 m by=hand edits=DIGEST status=queued\n"},
	{name: "a draft and its start in one save", saves: []save{put("\n## Task m\n- prompt: one\n\n## Task m\n- status: queued\n")}, want: "3 m by=hand prompt=one\n4 m by=hand status=queued\n"},
	{name: "a number of his own", saves: []save{put("\n## Task m\n- seq: 4\n- status: queued\n<!-- end 4 -->\n"), nothing}, want: "5 m by=hand status=queued\n", start: "4 m status=queued\n"},

	{name: "under the name of one that was tidied away", saves: []save{put("## Task fix\n- status: queued\n- prompt: mend it\n"), both(sub("## Task fix\n- status: queued\n- prompt: mend it\n", ""), put("\n## Task fix\n- status: queued\n"))}, want: "3 fix by=hand status=queued prompt=mend it\n4 fix by=hand status=queued\n"},

	// digest adopted before
	{name: "a requeue that is done, saved again", has: cycle, saves: []save{put("\n## Task a\n- status: queued\n"), nothing}, want: "6 a by=hand status=queued\n"},
	{name: "a requeue that is done, moved to the end", has: cycle, saves: []save{put("\n## Task a\n- status: queued\n"), both(sub("\n## Task a\n- status: queued\n", "\n"), put("\n## Task a\n- status: queued\n"))}, want: "6 a by=hand status=queued\n"},

	// the newest seqs missing
	{name: "a stale buffer", saves: []save{stale(2, "")}, said: []string{"1 record was missing"}, quiet: []string{"by hand"}},
	{name: "a stale buffer twice", saves: []save{stale(2, ""), stale(1, "")}, said: []string{"1 record was missing", "2 records were missing"}},
	{name: "a stale buffer with an appended requeue", has: cycle, saves: []save{stale(3, "## Task a\n- status: queued\n"), nothing}, want: "6 a by=hand status=queued\n", said: []string{"3 records were missing"}},
	{name: "a stale buffer with an edit", saves: []save{both(stale(2, ""), sub("\n- status: queued", "\n- status: canceled"))}, want: "3 a by=hand edits=1 status=canceled\n"},
	{name: "a stale buffer from before an edit", saves: []save{sub("- priority: 5", "- priority: 9"), both(stale(3, ""), sub("- priority: 9", "- priority: 5")), nothing}, want: "3 a by=hand edits=1 priority=9\n4 a edits=1 ignored=- priority: 5\n", said: []string{"Task a is as it was before a later edit of it"}},
	{name: "a stale buffer from before an edit, over a save that had everything", live: true, saves: []save{sub("- priority: 5", "- priority: 9"), nothing, both(stale(3, ""), sub("- priority: 9", "- priority: 5"))}, want: "3 a by=hand edits=1 priority=9\n4 a edits=1 ignored=- priority: 5\n", said: []string{"Task a is as it was before a later edit of it"}},
	{name: "a stale buffer from before an edit, and then an edit", saves: []save{sub("- priority: 5", "- priority: 9"), both(stale(3, ""), sub("- priority: 9", "- priority: 5")), sub("- label: x", "- label: y")}, want: "3 a by=hand edits=1 priority=9\n4 a edits=1 ignored=- priority: 5\n5 a by=hand edits=1 label=y\n"},
	{name: "an edited section that is put back", saves: []save{sub("- priority: 5", "- priority: 9"), stale(1, ""), nothing}, want: "3 a by=hand edits=1 priority=9\n4 a edits=1 ignored=- priority: 5\n", said: []string{"3 records were missing"}, quiet: []string{"edited by hand: nothing"}},
	{name: "the newest section taken out", has: cycle, saves: []save{cutOut(5)}, said: []string{"1 record was missing"}},
	{name: "all taken out", has: cycle, saves: []save{func(string) string { return "# Tasks\n" }}, said: []string{"5 records were missing"}},

	// deleted
	{name: "the first section taken out", lost: []uint64{1}, has: cycle[1:], saves: []save{cutOut(1)}, want: "5 deleted tasks=Task b\n"},
	{name: "a finished task taken out", lost: []uint64{1, 3, 4}, has: cycle, saves: []save{cutOut(1, 3, 4), nothing}, want: "6 deleted tasks=Task a\n"},
	{name: "taken out and put back", has: cycle, saves: []save{cutOut(2), put("\n## Task b\n- seq: 2\n- status: queued\n- prompt: second\n<!-- end 2 -->\n")}, want: "6 deleted tasks=Task b\n7 deleted tasks=\n"},
	{name: "taken out and put back in its place", has: cycle, saves: []save{cutOut(2), sub("## Task a\n- seq: 3\n", "## Task b\n- seq: 2\n- status: queued\n- prompt: second\n<!-- end 2 -->\n\n## Task a\n- seq: 3\n")}, want: "6 deleted tasks=Task b\n7 deleted tasks=\n"},
	{name: "taken out and put back with all others", has: cycle, saves: []save{cutOut(2), stale(1, "\na note\n")}, want: "6 deleted tasks=Task b\n7 deleted tasks=\n"},
	{name: "taken out, but for a section by hand", lost: []uint64{2}, has: cycle, saves: []save{both(cutOut(2), put("\n## Task b\n- label: l\n"))}, want: "6 b by=hand label=l\n"},
	{name: "taken out while something is damaged", lost: []uint64{2, 3}, has: cycle, saves: []save{both(cutOut(2), sub("<!-- end 3 -->", ""))}, wrong: []string{"record 3 has no end line"}},
	{name: "taken out while a status is mistyped", lost: []uint64{2}, has: cycle, saves: []save{both(cutOut(2), put("\n## Task m\n- status: qeued\n"))}, want: "6 deleted tasks=Task b\n", wrong: []string{`unknown status "qeued"`}},
	{name: "taken out of a stale buffer", lost: []uint64{2}, has: cycle, saves: []save{both(cutOut(2), stale(5, ""))}, want: "6 deleted tasks=Task b\n", said: []string{"1 record was missing"}},
	{name: "a stale buffer from before the task", has: cycle, saves: []save{stale(2, "")}, said: []string{"4 records were missing"}},
	{name: "the beginning taken out of a buffer from before its end", lost: []uint64{1}, has: cycle, saves: []save{both(stale(3, ""), cutOut(1))}, said: []string{"3 records were missing"}},
	{name: "the task added last, in two saves", live: true, lost: []uint64{5}, has: cycle, saves: []save{put("\nnotes\n"), cutOut(5)}, want: "6 deleted tasks=Task c\n"},
	{name: "the task added last and another, in two saves", live: true, lost: []uint64{2}, has: cycle, saves: []save{put("\nnotes\n"), cutOut(2, 5)}, want: "6 deleted tasks=Task b\n", said: []string{"stint cancel c"}},
	{name: "a stale buffer over a file that was touched", live: true, has: cycle, saves: []save{nothing, cutOut(5)}, said: []string{"1 record was missing"}},
	{name: "a stale buffer over what another person saved", live: true, has: cycle, saves: []save{put("\nnotes\n"), both(cutOut(5), sub("\nnotes\n", ""))}, said: []string{"1 record was missing"}},
	{name: "the task added last, while it runs", live: true, has: append(slices.Clone(cycle), "busy status=running"), saves: []save{put("\nnotes\n"), cutOut(6)}, said: []string{"stint cancel busy"}},
	{name: "a stale buffer over a save that had everything", live: true, has: cycle, saves: []save{nothing, stale(4, "")}, said: []string{"2 records were missing"}},
	{name: "tidied", lost: []uint64{3, 4}, has: cycle, saves: []save{cutOut(3, 4)}},
	{name: "of another ledger", has: cycle, saves: []save{func(string) string {
		return "## Task z\n- seq: 5\n- status: queued\n- prompt: foreign\n<!-- end 5 -->\n"
	}}, want: "6 z by=hand copies=5 prompt=foreign\n", said: []string{"5 records were missing"}},

	// copied
	{name: "copied", has: cycle, saves: []save{copied(1, "## Task m", asIs), nothing, put("\nnotes\n")}, want: "6 m by=hand copies=1 priority=5 label=x prompt=first verifyCommand=make\n", said: []string{"Task m: copied by hand from record 1, as a draft; to run it"}},
	{name: "copied and changed, and changed again", has: cycle, saves: []save{copied(1, "## Task m", sub("first", "other")), sub("other", "another")}, want: "6 m by=hand copies=1 priority=5 label=x prompt=other verifyCommand=make\n", wrong: []string{"this section has the seq of record 1, which belongs to Task a"}},
	{name: "copied, and then without seq", has: cycle, saves: []save{copied(2, "## Task m", asIs), sub("## Task m\n- seq: 2\n- status: queued\n- prompt: second\n<!-- end 2 -->", "## Task m\n- status: queued\n- prompt: second\n")}, want: "6 m by=hand copies=2 prompt=second\n7 m by=hand edits=DIGEST status=queued\n"},
	{name: "copied, and started below", has: cycle, saves: []save{both(copied(1, "## Task m", asIs), put("\n## Task m\n- status: queued\n"))}, want: "6 m by=hand copies=1 priority=5 label=x prompt=first verifyCommand=make\n7 m by=hand status=queued\n"},
	{name: "copied without seq", has: cycle, saves: []save{copied(1, "## Task m", both(sub("- seq: 1\n", ""), sub("<!-- end 1 -->", "")))}, want: "6 m by=hand status=queued priority=5 label=x prompt=first idempotencyKey=k verifyCommand=make\n"},
	{name: "copied under its own id", has: cycle, saves: []save{copied(1, "", asIs), nothing}},
	{name: "copied under its own id, with other bullets", saves: []save{both(sub("- status: queued\n- priority: 5", "* status: queued\n* priority: 5"), copied(1, "", asIs))}},
	{name: "copied twice under its own id and changed", has: cycle, saves: []save{copied(2, "", sub("second", "x")), copied(2, "", sub("second", "y"))}, want: "6 b-copy by=hand copies=2 prompt=x\n", wrong: []string{"record 2, which belongs to Task b"}},
	{name: "the copied one taken out", lost: []uint64{2}, has: cycle, saves: []save{copied(2, "", sub("second", "x")), cutOut(2), nothing}, want: "6 b-copy by=hand copies=2 prompt=x\n"},
	{name: "another id in the heading", has: cycle, saves: []save{sub("## Task b\n", "## Task m\n"), nothing}, want: "6 m by=hand copies=2 prompt=second\n", said: []string{"record 2 of Task b is there under this name only, and is appended again"}},
	{name: "a copied run", has: cycle, saves: []save{copied(3, "## Task m", asIs)}, wrong: []string{"record 3, which belongs to Task a"}},
	{name: "renamed as a whole", has: cycle, saves: []save{all("## Task a\n", "## Task m\n")}, want: "6 m by=hand copies=1 priority=5 label=x prompt=first verifyCommand=make\n", wrong: []string{"record 3, which", "record 4, which"}},
	{name: "an id mistyped, and put right", has: cycle, saves: []save{sub("## Task b\n", "## Task bb\n"), sub("## Task bb\n- seq: 2", "## Task b\n- seq: 2")}, want: "6 bb by=hand copies=2 prompt=second\n"},
	{name: "an id that is another's", has: cycle, saves: []save{sub("## Task b\n", "## Task c\n"), sub("## Task c\n- seq: 2", "## Task b\n- seq: 2")}, said: []string{"record 2, which belongs to Task b"}},
	{name: "all of a ledger twice", has: cycle, saves: []save{func(s string) string { return s + s }}},

	// damaged
	{name: "no end line, and put right", has: cycle, saves: []save{sub("<!-- end 2 -->", "<!-- end"), sub("<!-- end\n", "<!-- end 2 -->\n")}, said: []string{"tasks.md:"}},
	{name: "a kind mistyped, and put right", has: cycle, saves: []save{sub("## Task b\n", "## Tsk b\n"), sub("## Tsk b\n", "## Task b\n")}},
	{name: "a heading that is none, and put right", has: cycle, saves: []save{sub("## Task b\n", "Task b\n"), sub("\nTask b\n", "\n## Task b\n")}},
	{name: "NUL bytes", lost: []uint64{2}, has: cycle, saves: []save{sub("second", "\x00\x00\x00")}, wrong: []string{`\x00`}},

	// a formatter
	{name: "a formatter", has: many, saves: []save{all("__", "**"), nothing}, wrong: []string{"5 tasks' prompts changed in one save (a formatter?); quarantined with all that this save edits: stint edit --accept"}},
	{name: "a formatter and an edit", has: many, saves: []save{both(sub("__a__", "**a**"), both(sub("__b__", "**b**"), both(sub("__c__", "**c**"), both(sub("__d__", "**d**"), sub("label: x", "label: y")))))}, wrong: []string{"4 tasks' prompts"}},
	{name: "three prompts", has: many, saves: []save{both(sub("__a__", "A"), both(sub("__b__", "B"), sub("__c__", "C")))}, want: "6 a by=hand edits=1 prompt=A\n7 b by=hand edits=2 prompt=B\n8 c by=hand edits=3 prompt=C\n"},
	{name: "a formatter taken back", has: many, saves: []save{all("__", "**"), all("**", "__"), sub("__a__", "A")}, want: "6 a by=hand edits=1 prompt=A\n"},
	{name: "a formatter over a stale buffer", has: many, saves: []save{both(stale(5, ""), all("__", "**"))}, said: []string{"1 record was missing"}, wrong: []string{"4 tasks' prompts"}},
}

// digests are names of sections, which the rows do not spell out.
func withoutDigests(s string) string {
	words := strings.Fields(s)
	for _, w := range words {
		if d, ok := strings.CutPrefix(w, "edits="); ok && len(d) > 20 {
			s = strings.ReplaceAll(s, w, "edits=DIGEST")
		}
	}
	return s
}

// TestPromise4YourEditsCount has the rows of the reconcile table, each with what
// must not happen: edits are made while no log is open, and while one is.
func TestPromise4YourEditsCount(t *testing.T) {
	t.Parallel()
	for _, r := range rows {
		for _, live := range []bool{false, true} {
			if r.live && !live {
				continue
			}
			t.Run(fmt.Sprintf("%s/live=%v", r.name, live), func(t *testing.T) {
				t.Parallel()
				r.run(t, live)
			})
		}
	}
}

func (r *row) run(t *testing.T, live bool) {
	w := openWorld(t, live)
	has := r.has
	if has == nil {
		has = usual
	}
	for _, line := range has {
		w.addLine(line)
	}
	w.caughtUp()
	before := w.lines()
	var said strings.Builder
	for _, s := range r.saves {
		if !live {
			w.close()
		}
		w.edit(s)
		if live {
			w.settle(true)
		} else {
			said.WriteString(strings.Join(w.said, "\n"))
			w.open(false)
		}
		w.again()
	}
	got := withoutDigests(strings.TrimPrefix(w.lines(), before))
	want := r.want
	if !live {
		want = cmp.Or(r.start, want)
	}
	if got != want {
		t.Errorf("records:\n%s\nwant:\n%s", got, want)
	}
	r.checkTold(t, w, said.String())
	report, err := w.log.Reconcile(t.Context(), false)
	must(t, err)
	w.reopened()
	w.everythingIsInTasks(r.lost...)
	if report.Quarantined+len(r.lost)+len(r.wrong) == 0 { // else the journal knows more
		w.tasksAreEnough()
	}
}

// tasksAreEnough: a world that is closed has the same records without its journal.
func (w *world) tasksAreEnough() {
	w.t.Helper()
	sorted := func() (lines []string) {
		for line := range strings.Lines(w.lines()) {
			words := strings.Fields(line)
			slices.Sort(words[min(2, len(words)):]) // in the order of an edited section
			lines = append(lines, strings.Join(words, " "))
		}
		return lines
	}
	whole := sorted()
	must(w.t, os.Remove(w.path("journal.md")))
	w.open(false)
	if alone := sorted(); !slices.Equal(alone, whole) {
		w.t.Errorf("tasks.md alone gives\n%s\nand not\n%s", strings.Join(alone, "\n"), strings.Join(whole, "\n"))
	}
	w.close()
}

// TestPromise4EditsWithoutAJournal: edits stay where they were made when the journal is lost,
// also those of what was taken over before.
func TestPromise4EditsWithoutAJournal(t *testing.T) {
	t.Parallel()
	first := sub("- prompt: first", "- prompt: other")
	for name, saves := range map[string][]save{
		"a second line of a key":          {sub("- status: queued\n", "- status: queued\n- status: canceled\n")},
		"sed over all, there and back":    {all("first", "other"), all("other", "first"), all("first", "other")},
		"sed over what was kept":          {sub("- status: queued\n", "- status: queued\n- label: z\n"), all("status: queued", "status: canceled")},
		"a line above that counts":        {sub("- status: queued\n", "- status: canceled\n- status: queued\n")},
		"a line that is stint's":          {sub("- status: running\n", "- status: running\n- updatedAt: never\n")},
		"a prompt like a ledger":          {sub("- prompt: first", "- prompt: |\n  a\n\n  ## Task z\n  - seq: 1\n  b"), sub("  b\n", "  c\n")},
		"a number of his own":             {put("\n## Task m\n- seq: 9\n- status: queued\n- prompt: x\n<!-- end 9 -->\n"), sub("prompt: x", "prompt: y")},
		"a status below what was adopted": {first, sub("- adopts:", "- status: queued\n- adopts:")},
		"what was adopted, copied":        {first, copied(6, "## Task m", sub("- adopts:", "- status: queued\n- priority: 2\n- adopts:"))},
		"what was adopted, edited twice":  {first, sub("- adopts:", "- label: z\n- adopts:"), sub("- label: z\n", "- label: y\n")},
		"a field taken out":               {sub("- status: done\n", ""), nothing},
		"other bullets":                   {sub("- status: queued\n- priority: 5", "- status: canceled\n- priority: 6"), all("\n- ", "\n* "), all("\n  - ", "\n  * ")},
		"other line ends":                 {sub("- status: queued\n- priority: 5", "- status: canceled\n- priority: 6"), all("\n", "\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, false)
			for _, line := range cycle {
				w.addLine(line)
			}
			for _, s := range saves {
				w.reload(s)
			}
			w.close()
			w.tasksAreEnough()
		})
	}
}

// addLine adds a record that stands there as "id key=value …".
func (w *world) addLine(line string) {
	w.t.Helper()
	id, rest, _ := strings.Cut(line, " ")
	var fields []string
	for f := range strings.FieldsSeq(rest) {
		key, value, _ := strings.Cut(f, "=")
		fields = append(fields, key, value)
	}
	w.add(id, fields...)
}

func (w *world) reconcile() {
	w.t.Helper()
	_, err := w.log.Reconcile(w.t.Context(), false)
	must(w.t, err)
}

// again looks at tasks.md once more, when the look before has ended: there must be nothing to do.
func (w *world) again() {
	w.t.Helper()
	report, err := w.log.Reconcile(w.t.Context(), false)
	if err != nil || len(report.Records) > 0 || report.Missing > 0 {
		w.t.Errorf("a second look: %v, %+v", err, report)
	}
}

// checkTold compares what was told and what is wrong.
func (r *row) checkTold(t *testing.T, w *world, said string) {
	t.Helper()
	w.mu.Lock()
	said += strings.Join(w.said, "\n")
	w.mu.Unlock()
	for _, text := range r.said {
		if !strings.Contains(said, text) {
			t.Errorf("never heard %q, but:\n%s", text, said)
		}
	}
	for _, text := range r.quiet {
		if strings.Contains(said, text) {
			t.Errorf("heard %q:\n%s", text, said)
		}
	}
	findings := w.log.Findings()
	if len(findings) != len(r.wrong) {
		t.Fatalf("findings: %v, want %q", findings, r.wrong)
	}
	for i, text := range r.wrong {
		if !strings.Contains(findings[i].Error(), text) {
			t.Errorf("finding %q, want %q", findings[i].Error(), text)
		}
	}
}

// TestPromise4SlowWriter: an editor cuts the file, thinks for a while, and then writes in
// small pieces, while somebody submits or asks for a look or a compaction. Nothing is
// written into its work, and nothing is taken over from a half of it.
func TestPromise4SlowWriter(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(w *world) error{
		"submit":    func(w *world) error { return w.try("b", "status", "queued") },
		"reconcile": func(w *world) error { _, err := w.log.Reconcile(w.t.Context(), false); return err },
		"compact": func(w *world) error {
			dry := (&shelf{world: w}).plan()
			dry.Dry = true
			_, err := w.log.Compact(w.t.Context(), dry)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, true)
			w.add("a", "status", "queued", "prompt", "first")
			w.caughtUp()
			buffer := w.read("tasks.md") + "## Task mine\n- status: queued\n- prompt: rm -rf build/tmp\n"
			f, err := os.OpenFile(w.path("tasks.md"), os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			answered := make(chan error, 1)
			go func() { answered <- meanwhile(w) }()
			time.Sleep(500 * time.Millisecond) // the editor does
			for i := 0; i < len(buffer); i += 7 {
				_, err := f.WriteString(buffer[i:min(i+7, len(buffer))])
				must(t, err)
			}
			must(t, errors.Join(f.Close(), <-answered))
			w.await("written by hand")
			w.settle(true)
			w.again()
			if tasks := w.read("tasks.md"); !strings.HasPrefix(tasks, buffer) || strings.Count(tasks, "- seq: 1\n") != 1 {
				t.Errorf("tasks.md was written to meanwhile:\n%s", tasks)
			}
			if lines := w.lines(); strings.Count(lines, "by=hand") != 1 || !strings.Contains(lines, " mine by=hand status=queued prompt=rm -rf build/tmp\n") {
				t.Errorf("taken over:\n%s", lines)
			}
			w.mu.Lock()
			if said := strings.Join(w.said, "\n"); strings.Contains(said, "2 records were missing") {
				t.Errorf("records were put into the empty file:\n%s", said)
			}
			w.mu.Unlock()
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestPromise4KillBetweenStaleSaveAndRepair: the edits of a stale save are in the
// journal, and the power fails before anything is put back.
func TestPromise4KillBetweenStaleSaveAndRepair(t *testing.T) {
	t.Parallel()
	w := openWorld(t, false)
	w.add("a", "status", "queued", "priority", "5")
	w.add("a", "status", "running")
	w.add("a", "status", "done")
	w.close()
	w.edit(both(stale(2, "## Task a\n- status: queued\n\n"), sub("priority: 5", "priority: 6")))
	saved := w.read("tasks.md")
	w.open(false)
	want := w.lines()
	w.close()
	if !strings.HasSuffix(want, "4 a by=hand edits=1 priority=6\n5 a by=hand status=queued\n") {
		t.Fatalf("taken over:\n%s", want)
	}
	w.write("tasks.md", saved)
	w.open(false)
	w.expect(want)
	w.reopened()
	w.everythingIsInTasks()
}

// TestPromise4SaveFromBeforeACompaction: what was merged or archived is not taken
// for new when an old buffer is saved, nor what was adopted then.
func TestPromise4SaveFromBeforeACompaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("journal.md", ledger.VersionLine+"\n\n"+
		"## Control compaction\n- seq: 6\n- through: 5\n- merged: 1\n<!-- end 6 -->\n\n"+
		"## Task a\n- seq: 7\n- status: queued\n- prompt: first\n<!-- end 7 -->\n\n")
	old := "## Task a\n- seq: 1\n- status: queued\n- prompt: changed\n<!-- end 1 -->\n\n## Task z\n- seq: 2\n- status: done\n<!-- end 2 -->\n\n"
	w.write("tasks.md", old)
	w.open(true)
	w.await("2 sections are from before the compaction or the restore; what is there has no effect")
	w.expect("6 compaction through=5 merged=1\n7 a status=queued prompt=first\n")
	said := len(w.said)
	w.edit(appended("\nnotes\n"))
	w.settle(true)
	w.again()
	if len(w.said) != said {
		t.Errorf("told again: %q", w.said[said:])
	}
	w.edit(appended("\n## Task a\n- label: new\n"))
	w.settle(true)
	w.again()
	w.expect("6 compaction through=5 merged=1\n7 a status=queued prompt=first\n8 a by=hand label=new\n")
	w.reopened()
}

// TestPromise4TwoEditorsOneTask: neither buffer has what the other one saved for
// the same task, and each is saved twice.
func TestPromise4TwoEditorsOneTask(t *testing.T) {
	t.Parallel()
	w := openWorld(t, false)
	w.add("a", "status", "done")
	w.close()
	old := w.read("tasks.md")
	one, other := old+"\n## Task a\n- status: queued\n", old+"\n## Task a\n- label: y\n"
	for _, text := range []string{one, other, one, other} {
		w.edit(func(string) string { return text })
		w.open(false)
		w.close()
	}
	w.expect("1 a status=done\n2 a by=hand status=queued\n3 a by=hand label=y\n")
}

// TestPromise4OldEdits: two editors, neither of whom has in his buffer what the other one saved. An edit that
// another one came after is not taken over again when its buffer is saved a second time, and is noted once.
func TestPromise4OldEdits(t *testing.T) {
	t.Parallel()
	const field = "\n- priority: "
	for _, byHand := range []bool{false, true} {
		w := newWorld(t)
		save := func(text, priority string) string {
			before, after, _ := strings.Cut(text, field)
			w.edit(func(string) string { return before + field + priority + after[1:] })
			w.open(false)
			w.close()
			return w.read("tasks.md")
		}
		last := func(want string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(w.lines()), "\n")
			if got := lines[len(lines)-1]; !strings.HasSuffix(got, want) {
				t.Errorf("by hand %v: the last record is\n%s\nand not … %s", byHand, got, want)
			}
		}
		w.open(false)
		if !byHand {
			w.add("a", "status", "queued", "priority", "5")
		}
		w.close()
		old := w.read("tasks.md")
		if byHand {
			old = save(old+"\n## Task a\n- status: queued"+field+"5\n", "5")
		}
		second := save(old, "8")
		save(second, "4")
		last("priority=4")
		save(old, "8")
		save(old, "8")
		last("ignored=- priority: 8")
		if n := strings.Count(w.lines(), "\n"); n != 4 {
			t.Errorf("by hand %v: there are %d records and not 4:\n%s", byHand, n, w.lines())
		}
	}
}

// TestWhatAnEditTakesAlong: what goes with a field that a person edits, and still
// stands in the section, does not come back with an edit of another line.
func TestWhatAnEditTakesAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opts := w.options(false)
	opts.Begin = func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) {
		return nil, func(r *ledger.Record) []ledger.Pair {
			if _, named := r.Get("agent"); !named {
				return nil
			}
			return []ledger.Pair{{Key: "account"}}
		}
	}
	w.openWith(opts)
	w.add("a", "status", "queued", "agent", "claude", "account", "claude", "priority", "5")
	for _, change := range [][2]string{{"agent: claude", "agent: codex"}, {"priority: 5", "priority: 6"}, {"account: claude", "account: work"}} {
		w.close()
		w.edit(replace("- "+change[0], "- "+change[1]))
		w.fold = nil
		w.openWith(opts)
	}
	w.close()
	w.expect("1 a status=queued agent=claude account=claude priority=5\n" +
		"2 a by=hand edits=1 agent=codex account= ignored=- account: claude\n" +
		"3 a by=hand edits=1 priority=6\n4 a by=hand edits=1 account=work\n")
}

// TestPromise4StepAfterStep: two sections of one save ask for a step each, and the
// second is judged as if the first had been taken. What cannot follow is a finding.
func TestPromise4StepAfterStep(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		w := newWorld(t)
		opts := w.options(live)
		opts.Begin = func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) {
			status := "queued"
			return func(s *ledger.Section) error {
				if status == "canceled" && s.Value("status") == "draft" {
					return errors.New("a task that is canceled cannot be made draft by hand")
				}
				status = s.Value("status")
				return nil
			}, nil
		}
		w.openWith(opts)
		w.add("a", "status", "queued")
		w.caughtUp()
		if !live {
			w.close()
		}
		w.edit(appended("## Task a\n- status: canceled\n\n## Task a\n- status: draft\n- label: late\n"))
		if !live {
			w.openWith(opts)
		}
		w.await("cannot be made draft")
		w.settle(live)
		if f := w.log.Findings(); len(f) != 1 {
			t.Errorf("live=%v: findings %v", live, f)
		}
		w.close()
	}
}

// TestPromise4CutOffSection: after a power cut tasks.md can end within a section
// that a person wrote and that was taken over long ago. That is no edit of it.
func TestPromise4CutOffSection(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const first, section = "\n## Task mine\n- status: queued\n", "- label: |\n  one\n  two\n- prompt: by hand\n"
	w := openWorld(t, false, "a")
	w.reload(func(s string) string { return s + first + section })
	w.add("b", "status", "queued")
	w.close()
	whole, want := w.read("tasks.md"), w.lines()
	at := strings.Index(whole, first)
	for cut := 0; cut < len(first+section); cut += 2 {
		x := newWorld(t)
		for name, text := range map[string]string{"journal.md": w.read("journal.md"), "tasks.md": whole[:at+cut]} {
			long := time.Now().Add(-time.Hour) // nobody is still writing
			must(t, errors.Join(os.WriteFile(x.path(name), []byte(text), 0o600), os.Chtimes(x.path(name), long, long)))
		}
		x.open(false)
		got := strings.TrimPrefix(x.lines(), want)
		if got != "" && !strings.HasPrefix(withoutDigests(got), "4 mine edits=DIGEST ignored=") {
			t.Errorf("cut after %q: a record %s", (first + section)[:cut], got)
		}
		if found := x.log.Findings(); len(found) > 0 {
			t.Errorf("cut after %q: %v", (first + section)[:cut], found)
		}
		x.reopened()
		x.everythingIsInTasks()
		must(t, os.Remove(x.path("journal.md")))
		x.open(false)
		if alone := x.lines(); alone != want+got {
			t.Errorf("cut after %q: tasks.md alone gives\n%s\nand not\n%s", (first + section)[:cut], alone, want+got)
		}
		x.close()
	}
}

// TestRepairOfTheNewestSection: a section that is damaged is there. It is not appended
// again, and what a person makes of it is an edit.
func TestRepairOfTheNewestSection(t *testing.T) {
	for name, broken := range map[string][2]string{
		"prompt":   {"  second", "second"},
		"field":    {"- status: queued", "- status queued"},
		"conflict": {"- status: queued\n", "<<<<<<< mine\n- status: queued\n=======\n>>>>>>> theirs\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := openWorld(t, false)
			w.add("a", "status", "queued")
			w.add("b", "status", "queued", "prompt", "first\nsecond")
			w.caughtUp()
			whole := w.read("tasks.md")
			at := strings.Index(whole, "## Task b")
			w.reload(func(s string) string { return s[:at] + strings.Replace(s[at:], broken[0], broken[1], 1) })
			if n := strings.Count(w.read("tasks.md"), "## Task b"); n != 1 {
				t.Errorf("it stands there %d times", n)
			}
			w.reload(func(string) string { return strings.Replace(whole, "  second", "  better", 1) })
			w.reopened()
			if lines := w.lines(); !strings.Contains(lines, "better") || strings.Contains(lines, "b-copy") {
				t.Errorf("the fold is\n%s", lines)
			}
		})
	}
}
