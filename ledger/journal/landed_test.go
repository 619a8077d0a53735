package journal_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// openOnce opens a log that watches tasks.md in a file system that makes a call once,
// before or behind a write to it.
func openOnce(t *testing.T, op, name string) (w *shelf, fs *onceFS) {
	t.Helper()
	w, fs = newShelf(t), newOnceFS(op, name)
	w.fs = fs
	w.open(true)
	return w, fs
}

// TestPromise4RecordLandsBehindAnOldBuffer: an editor saves an old buffer in the
// very moment in which a record is appended. The record stands behind the buffer
// then, and those before it are gone: nobody has deleted them. They are put back below
// it, and tasks.md alone gives all in the order in which they were made.
func TestPromise4RecordLandsBehindAnOldBuffer(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "write", "tasks.md")
	w.add("a", "status", "queued")
	w.caughtUp()
	buffer := w.read("tasks.md") + "## Task mine\n- status: queued\n"
	w.add("b", "status", "queued")
	w.caughtUp()
	fs.next(func() error { return os.WriteFile(w.path("tasks.md"), []byte(buffer), 0o600) }) // in place
	w.add("c", "status", "queued")
	w.await("mine: written by hand")
	w.settle(true)
	w.everythingIsInTasks()
	w.expect("1 a status=queued\n2 b status=queued\n3 c status=queued\n4 mine by=hand status=queued\n")
	w.reopened()
	w.tasksAreEnough()
}

// TestPromise4RecordLandsBehindNoLineBreak: an editor that writes no line break at the
// end saves in the very moment in which a record is appended. The record's heading
// begins a line all the same, and the edits of that save take effect.
func TestPromise4RecordLandsBehindNoLineBreak(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "write", "tasks.md")
	w.add("a", "status", "queued")
	w.caughtUp()
	head, _, _ := strings.Cut(w.read("tasks.md"), "## Task a\n")
	w.add("b", "status", "queued")
	w.caughtUp()
	_, b, _ := strings.Cut(w.read("tasks.md"), "## Task b\n")
	fs.next(func() error {
		saved := head + "## Task b\n" + strings.Replace(strings.TrimRight(b, "\n"), "queued", "draft", 1)
		return os.WriteFile(w.path("tasks.md"), []byte(saved), 0o600) // in place
	})
	w.add("c", "status", "queued")
	w.await("Task b: edited by hand: status")
	if !strings.Contains(w.read("tasks.md"), "<!-- end 2 -->\n## Task c\n") {
		t.Errorf("tasks.md: %s", w.read("tasks.md"))
	}
	w.settle(true)
	w.expect("1 a status=queued\n2 b status=queued\n3 c status=queued\n4 b by=hand edits=2 status=draft\n5 deleted tasks=Task a\n")
	w.reopened()
}

// TestPromise4SaveOfWhatHasJustLanded: an editor has loaded the record that is being
// appended, and saves before stint has looked again. What it deleted is deleted: a line
// break at the end of both texts is not the rest of ours.
func TestPromise4SaveOfWhatHasJustLanded(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "wrote", "tasks.md")
	w.add("a", "status", "queued")
	w.add("b", "status", "queued")
	w.caughtUp()
	fs.next(func() error {
		head, rest, _ := strings.Cut(w.read("tasks.md"), "## Task a\n")
		_, rest, _ = strings.Cut(rest, "## Task b\n")
		saved := head + "## Task b\n" + rest + "\n## Task mine\n- status: queued\n"
		return os.WriteFile(w.path("tasks.md"), []byte(saved), 0o600) // in place
	})
	w.add("c", "status", "queued")
	w.await("mine: written by hand")
	w.settle(true)
	w.expect("1 a status=queued\n2 b status=queued\n3 c status=queued\n4 mine by=hand status=queued\n5 deleted tasks=Task a\n")
	w.reopened()
}

// TestPromise4FailedAppendCutsNoText: the disk is full when a record is appended, and an
// editor has saved a longer text in that very moment. Nothing of it is cut off.
func TestPromise4FailedAppendCutsNoText(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "write", "tasks.md")
	w.add("a", "status", "queued")
	w.caughtUp()
	saved := w.read("tasks.md") + "\nA note.\n\n## Task mine\n- status: queued\n"
	fs.next(func() error {
		return errors.Join(os.WriteFile(w.path("tasks.md"), []byte(saved), 0o600), syscall.ENOSPC)
	})
	w.add("b", "status", "queued")
	w.await("mine: written by hand")
	w.settle(true)
	if tasks := w.read("tasks.md"); !strings.HasPrefix(tasks, saved) {
		t.Errorf("tasks.md has lost some of what was saved:\n%s", tasks)
	}
	w.everythingIsInTasks()
	w.reopened()
}
