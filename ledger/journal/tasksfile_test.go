package journal_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
)

// badFiles are things that can stand where tasks.md should, and what is said of them.
var badFiles = []struct {
	name, says string
	make       func(path string) error
}{
	{"directory", "is a directory", func(p string) error { return os.Mkdir(p, 0o700) }},
	{"FIFO", "is a FIFO", func(p string) error { return syscall.Mkfifo(p, 0o600) }},
	{"socket", "is not a regular file", func(p string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p})
		if err == nil {
			l.SetUnlinkOnClose(false)
			err = l.Close()
		}
		return err
	}},
	{"symbolic link", "is a symbolic link", func(p string) error {
		return errors.Join(os.WriteFile(p+".real", []byte("# Tasks\n"), 0o600), os.Symlink(p+".real", p))
	}},
	{"dangling link", "is a symbolic link", func(p string) error { return os.Symlink(p+".nowhere", p) }},
	{"10 GB", "has 10737418240 bytes", func(p string) error {
		return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 10<<30))
	}},
	{"newer format", "use the newer stint that wrote it", func(p string) error {
		return os.WriteFile(p, []byte("<!-- stint ledger 2 -->\n"), 0o600)
	}},
}

// TestBadTasksFileAtStart: a sentence that says what is wrong and what to do, and nothing changes.
func TestBadTasksFileAtStart(t *testing.T) {
	t.Parallel()
	for _, bad := range badFiles {
		t.Run(bad.name, func(t *testing.T) {
			w := openWorld(t, false, "a")
			w.close()
			must(t, errors.Join(os.Remove(w.path("tasks.md")), bad.make(w.path("tasks.md"))))
			records := w.read("journal.md")
			_, err := journal.Open(w.options(false))
			if err == nil || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), "tasks.md") {
				t.Fatalf("error %v, want %q", err, bad.says)
			}
			if fe := (*durable.BadFileError)(nil); errors.As(err, &fe) && !strings.Contains(err.Error(), "move it away") {
				t.Errorf("error %v does not say what to do", err)
			}
			if w.read("journal.md") != records {
				t.Error("the journal was changed")
			}
			must(t, os.Remove(w.path("tasks.md")))
			w.open(false)
			w.expect("1 a status=queued\n")
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestBadTasksFileLive: it is said once, records are taken in all the same, and
// when the file is good again it gets them.
func TestBadTasksFileLive(t *testing.T) {
	for _, bad := range badFiles {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, true, "a")
			must(t, errors.Join(os.Rename(w.path("tasks.md"), w.path("aside")), bad.make(w.path("tasks.md"))))
			w.await(bad.says)
			if list := w.log.Findings(); len(list) != 1 || !strings.Contains(list[0].Msg, bad.says) {
				t.Errorf("findings %v", list)
			}
			w.add("b", "status", "queued")
			if !w.log.Behind() {
				t.Error("the log takes the file for a good one")
			}
			must(t, errors.Join(os.RemoveAll(w.path("tasks.md")), os.Rename(w.path("aside"), w.path("tasks.md"))))
			w.settle(true)
			w.again()
			w.until("no findings", func() bool { return len(w.log.Findings()) == 0 }) // who has caught up says so next
			w.mu.Lock()
			if n := strings.Count(strings.Join(w.said, "\n"), "was not taken over"); n != 1 {
				t.Errorf("told %d times:\n%s", n, strings.Join(w.said, "\n"))
			}
			w.mu.Unlock()
			w.expect("1 a status=queued\n2 b status=queued\n")
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestTasksFileOfAnother: a file that another user can change is not the person's.
func TestTasksFileOfAnother(t *testing.T) {
	w := openWorld(t, false, "a")
	w.close()
	w.fs = &opsFS{durable.OS, func(_, name string) error {
		if filepath.Base(name) != ledger.TasksName {
			return nil
		}
		return &durable.BadFileError{Path: name, What: "belongs to user 12, not to you", Hint: "make it yours with chown, or move it away", File: true}
	}}
	if _, err := journal.Open(w.options(false)); err == nil || !strings.Contains(err.Error(), "not to you; make it yours with chown, or move it away") {
		t.Errorf("a file of another user: %v", err)
	}
}

// TestFullDiskIsToldOnce: an edit that cannot be written down waits for room.
func TestFullDiskIsToldOnce(t *testing.T) {
	w := newWorld(t)
	full := newFailingFS()
	w.fs = full
	w.open(true)
	w.add("a", "status", "queued", "priority", "5")
	w.caughtUp()
	full.full.Store(true)
	w.edit(replace("- priority: 5", "- priority: 6"))
	w.await("was not taken over: no space left")
	full.full.Store(false)
	w.settle(true)
	w.until("the edit counts", func() bool { return strings.Contains(w.lines(), "priority=6") })
	w.again()
	w.expect("1 a status=queued priority=5\n2 a by=hand edits=1 priority=6\n")
	w.reopened()
}

// TestNothingIsAppendedToAnothersText: when another hand has changed the file in any way, a record waits
// until that has been taken over. An editor may be about to write the rest.
func TestNothingIsAppendedToAnothersText(t *testing.T) {
	for name, save := range map[string]func(path, text string) error{
		"another file": func(path, text string) error {
			return errors.Join(os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path))
		},
		"another size": func(path, text string) error { return os.WriteFile(path, []byte(text[:len(text)/2]), 0o600) },
		"another time": func(path, text string) error {
			past := time.Now().Add(-time.Hour)
			return errors.Join(os.WriteFile(path, []byte(strings.ToUpper(text)), 0o600), os.Chtimes(path, past, past))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openWorld(t, false, "a")
			must(t, save(w.path("tasks.md"), w.read("tasks.md")))
			saved := w.read("tasks.md")
			w.add("b", "status", "queued")
			if !w.log.Behind() {
				t.Error("the log thinks that it knows the file")
			}
			w.close()
			if got := w.read("tasks.md"); got != saved {
				t.Errorf("tasks.md is\n%s\nand was saved as\n%s", got, saved)
			}
		})
	}
}
