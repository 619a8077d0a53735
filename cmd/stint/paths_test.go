package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateDir(t *testing.T) {
	t.Setenv("HOME", "/home/ana")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("STINT_STATE_DIR", "")
	check := func(option, want string) {
		t.Helper()
		if got, err := stateDir(option); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	check("", "/home/ana/.local/state/stint")
	t.Setenv("XDG_STATE_HOME", "relative is ignored")
	check("", "/home/ana/.local/state/stint")
	t.Setenv("XDG_STATE_HOME", "/xdg")
	check("", "/xdg/stint")
	t.Setenv("STINT_STATE_DIR", "/env/")
	check("", "/env")
	check("/option", "/option")
	wd, err := os.Getwd()
	must(t, err)
	check("rel", filepath.Join(wd, "rel"))
}

func TestSocketPaths(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", "/tmp")
	t.Setenv("XDG_RUNTIME_DIR", "")
	state := filepath.Join(tmp, strings.Repeat("long", 40))
	socket := defaultSocket(state)
	if len(socket) > 100 || !strings.HasPrefix(socket, "/tmp/stint-") {
		t.Errorf("socket %s", socket)
	}
	if socket == defaultSocket(state+"2") {
		t.Error("two state directories share a socket")
	}
	link := filepath.Join(tmp, "link")
	must(t, os.Symlink(tmp, link))
	if defaultSocket(filepath.Join(link, "s")) != defaultSocket(filepath.Join(tmp, "s")) {
		t.Error("two names of one state directory have two sockets")
	}
	run, err := os.MkdirTemp("/tmp", "r") // short enough for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	if got := defaultSocket(state); filepath.Dir(got) != filepath.Join(run, "stint") {
		t.Errorf("socket %s is not in %s", got, run)
	}
	must(t, os.Chmod(run, 0o777))
	if got := defaultSocket(state); strings.HasPrefix(got, run) {
		t.Errorf("socket %s is in a directory that others can write", got)
	}
}

func TestFindSocket(t *testing.T) {
	dir := t.TempDir()
	beat := filepath.Join(dir, "heartbeat.json")
	for _, c := range []struct{ text, want string }{
		{`{"socket":"/run/x.sock"}`, "/run/x.sock"},
		{`{"socket":"relative"}`, defaultSocket(dir)},
		{`{"socket":`, defaultSocket(dir)},
		{``, defaultSocket(dir)},
	} {
		put(t, beat, c.text)
		a := &app{stateOption: dir, settings: &Config{}}
		if got, err := a.sockets(); err != nil || got[0] != c.want {
			t.Errorf("%s: %s, want %s; %v", c.text, got, c.want, err)
		}
	}
}

func TestCheckStateDir(t *testing.T) {
	tmp := t.TempDir()
	mkdir := func(name string, mode os.FileMode, files ...string) string {
		dir := filepath.Join(tmp, name)
		must(t, os.Mkdir(dir, 0o700))
		for _, f := range files {
			put(t, filepath.Join(dir, f), "")
		}
		must(t, os.Chmod(dir, mode))
		return dir
	}
	file := filepath.Join(tmp, "file")
	put(t, file, "")
	for _, c := range []struct {
		name, dir, refused, note string
	}{
		{name: "missing", dir: filepath.Join(tmp, "a", "b")},
		{name: "ours", dir: mkdir("ours", 0o700, "anything")},
		{name: "open and empty", dir: mkdir("empty", 0o755), note: "it is 0700 now"},
		{name: "open, with a ledger", dir: mkdir("ledger", 0o750, "tasks.md"), note: "it is 0700 now"},
		{name: "open, someone's home", dir: mkdir("home", 0o755, "letter.txt"), refused: "is open to others (mode 0755) and holds other files"},
		{name: "a file", dir: file, refused: "is a file"},
		{name: "below a file", dir: filepath.Join(file, "x"), refused: "the state directory"},
	} {
		var warn bytes.Buffer
		err := checkStateDir(c.dir, &warn)
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		}
		if c.note == "" != (warn.Len() == 0) || !strings.Contains(warn.String(), c.note) {
			t.Errorf("%s says %q, want %q", c.name, warn.String(), c.note)
		}
		if fi, serr := os.Stat(c.dir); err == nil && (serr != nil || fi.Mode().Perm() != 0o700) {
			t.Errorf("%s: mode %v, %v", c.name, fi.Mode(), serr)
		}
	}
}

// TestLedgerOfOthers: a ledger that another user could put into an open directory is
// refused. bad_statedir.txtar has a directory of another user.
func TestLedgerOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "only root can make another user's file")
	}
	open := t.TempDir()
	left := filepath.Join(open, "tasks.md")
	must(t, errors.Join(os.WriteFile(left, nil, 0o600), os.Chown(left, 12345, -1), os.Chmod(open, 0o777)))
	if err := checkStateDir(open, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "holds other files") {
		t.Errorf("a ledger of another user: %v", err)
	}
}

func TestCheckOutside(t *testing.T) {
	tmp := t.TempDir()
	work := filepath.Join(tmp, "work")
	link := filepath.Join(tmp, "link")
	must(t, os.Mkdir(work, 0o700))
	must(t, os.Symlink(work, link))
	for _, c := range []struct {
		state, workspace string
		refused          bool
	}{
		{filepath.Join(tmp, "state"), work, false},
		{filepath.Join(work, "state"), work, true},
		{work, work, true},
		{filepath.Join(link, "not yet", "there"), work, true},
		{filepath.Join(work, "state"), link, true},
		{tmp, work, false},
		{work + "2", work, false},
		{filepath.Join(work, "..state"), work, true},
	} {
		if err := checkOutside(c.state, c.workspace); (err != nil) != c.refused {
			t.Errorf("state %s, workspace %s: %v", c.state, c.workspace, err)
		}
	}
}
