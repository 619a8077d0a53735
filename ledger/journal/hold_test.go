package journal_test

import (
	"strings"
	"testing"

	"stint/ledger/journal"
)

// TestPromise4FormatterIsHeld: what a formatter did is not taken over until a person accepts it, or so little
// of it is left that it looks like a person's work, whether a log was open all the time or not.
func TestPromise4FormatterIsHeld(t *testing.T) {
	t.Parallel()
	w := openWorld(t, true)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.add(id, "prompt", "__"+id+"__")
	}
	w.caughtUp()
	w.edit(all("__", "**"))
	w.await("5 tasks' prompts changed in one save")
	w.settle(true)
	w.again()
	w.edit(replace("**a**", "__a__"))
	w.settle(true)
	w.again()
	w.reopened() // also by the next log
	w.open(true)
	w.expect("1 a prompt=__a__\n2 b prompt=__b__\n3 c prompt=__c__\n4 d prompt=__d__\n5 e prompt=__e__\n")
	if f := w.log.Findings(); len(f) != 1 || !strings.Contains(f[0].Error(), "4 tasks' prompts changed in one save") {
		t.Errorf("findings: %v", f)
	}
	w.edit(replace("**b**", "__b__"))
	w.settle(true)
	w.again()
	w.expect("1 a prompt=__a__\n2 b prompt=__b__\n3 c prompt=__c__\n4 d prompt=__d__\n5 e prompt=__e__\n" +
		"6 c by=hand edits=3 prompt=**c**\n7 d by=hand edits=4 prompt=**d**\n8 e by=hand edits=5 prompt=**e**\n")
	w.reopened()
}

// TestPreview: what would be adopted is returned, and nothing is written.
func TestPreview(t *testing.T) {
	w := openWorld(t, false)
	w.add("a", "status", "queued", "priority", "5")
	w.close()
	tasks, records := w.read("tasks.md"), w.read("journal.md")
	report, err := journal.Preview(w.options(false), []byte(records), []byte(strings.Replace(tasks, "priority: 5", "priority: 6", 1)+"\n## Task b\n- status: qeued\n"))
	if err != nil || len(report.Records) != 1 || report.Records[0].ID != "a" || len(report.Findings) != 1 {
		t.Errorf("%v, %+v", err, report)
	}
	if w.read("tasks.md") != tasks || w.read("journal.md") != records {
		t.Error("something was written")
	}
}

// TestJournalFindingsStay: what is wrong in the journal is not forgotten when tasks.md is looked at.
func TestJournalFindingsStay(t *testing.T) {
	w := openWorld(t, false, "a")
	w.add("b", "status", "queued", "prompt", "a prompt that is damaged below")
	w.add("c", "status", "queued")
	w.close()
	for _, name := range []string{"journal.md", "tasks.md"} {
		w.write(name, strings.Replace(w.read(name), "## Task b", "?? Task b", 1))
	}
	w.open(false)
	defer w.close()
	w.edit(appended("\nnotes\n"))
	w.reconcile()
	if f := w.log.Findings(); len(f) != 2 || f[0].File != "journal.md" || f[1].File != "tasks.md" {
		t.Errorf("findings: %v", f)
	}
}
