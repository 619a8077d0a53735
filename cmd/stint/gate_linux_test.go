package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stint-gate holds the runs where it lies beside stint, was there when the master started and is of its build;
// else stint itself does. What is put there later, or is another build's, is never a gate.
func TestGateBesideStint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	bin := filepath.Join(w.dir, "built")
	build := exec.Command("go", "build", "-o", bin+"/", ".", "../stint-gate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.self = filepath.Join(bin, "stint")
	path := filepath.Join(bin, "stint-gate")
	plant := func() { // what it gets as a gate would tell it who asks for what
		must(t, os.Rename(path, path+".good"))
		must(t, os.WriteFile(path, []byte("#!/bin/sh\n[ $1 = gate ] && : >"+filepath.Join(w.dir, "planted")+"\necho stint-gate 0123\n"), 0o700))
	}
	for _, c := range []struct {
		name          string
		before, after func() // the master's start
		gate          string // whose program it is; the link of one that was moved tells where to
		said          bool   // the master has said something about it
	}{
		{"of the same build", func() {}, func() {}, "stint-gate", false},
		{"planted later", func() {}, plant, "stint-gate.good", false},
		{"of another build", func() {}, func() {}, "stint", true},
		{"none", func() { must(t, os.Remove(path)) }, func() {}, "stint", false},
	} {
		c.before()
		l := w.serve()
		c.after()
		id := w.run("task", "-d", "--parallel", "demo:sleep=300")
		gate := ""
		if !poll(scriptDeadline, func() bool { gate = w.gateOf(id); return gate != "" }) {
			t.Fatalf("%s: no gate\n%s", c.name, l.said())
		}
		if gate != filepath.Join(bin, c.gate) {
			t.Errorf("%s: the gate is %s", c.name, gate)
		}
		if said := strings.Contains(l.said(), "of another build"); said != c.said {
			t.Errorf("%s: the master says\n%s", c.name, l.said())
		}
		w.run("cancel", id)
		w.end(l, syscall.SIGTERM)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "planted")); err == nil {
		t.Error("the program that was planted was a gate")
	}
	w.run("task", "demo:say=hello") // with a master in the background
}

// gateOf returns the program of the gate of a task that runs; "" if there is none yet.
func (w *world) gateOf(id string) string {
	records, err := fs.Glob(os.DirFS(w.state), "runs/*/lock")
	must(w.t, err)
	for _, name := range records {
		var rec struct {
			TaskID  string
			GatePID int
		}
		text, err := os.ReadFile(filepath.Join(w.state, name))
		if err == nil && json.NewDecoder(bytes.NewReader(text)).Decode(&rec) == nil && strings.HasSuffix(rec.TaskID, id) {
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", rec.GatePID)) // it may not live yet
			return exe
		}
	}
	return ""
}
