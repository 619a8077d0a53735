package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPromptSources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.md")
	if err := os.WriteFile(file, []byte("from a file\n\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		source promptSource
		want   string
	}{
		{"one argument", promptSource{args: []string{"fix it"}}, "fix it"},
		{"several arguments", promptSource{args: []string{"fix", "it", "now"}}, "fix it now"},
		{"newlines stay", promptSource{args: []string{"a\nb\n"}}, "a\nb\n"},
		{"stdin", promptSource{args: []string{"-"}, stdin: strings.NewReader("from stdin\r\n")}, "from stdin"},
		{"hyphen among others", promptSource{args: []string{"-", "x"}}, "- x"},
		{"file", promptSource{args: []string{"@" + file}}, "from a file\n\nsecond"},
		{"literal at", promptSource{args: []string{"@@home"}}, "@home"},
		{"at among others", promptSource{args: []string{"@a", "b"}}, "@a b"},
		{"after --, hyphen", promptSource{args: []string{"-"}, literal: true}, "-"},
		{"after --, option", promptSource{args: []string{"-v", "fails"}, literal: true}, "-v fails"},
		{"after --, at", promptSource{args: []string{"@x"}, literal: true}, "@x"},
		{"ledger", promptSource{args: []string{"## Task x\n- status: done\n<!-- end 3 -->"}}, "## Task x\n- status: done\n<!-- end 3 -->"},
		{"edit", promptSource{args: []string{"draft"}, edit: true, editor: func(s string) (string, error) { return s + " two\n", nil }}, "draft two"},
	} {
		got, err := c.source.read()
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestBadPrompts(t *testing.T) {
	big := strings.Repeat("a", 1<<20)
	for _, c := range []struct {
		name   string
		source promptSource
		want   string
	}{
		{"none", promptSource{}, "there is no prompt"},
		{"empty", promptSource{args: []string{""}}, "the prompt is empty"},
		{"blank", promptSource{args: []string{" \n\t"}}, "the prompt is empty"},
		{"empty stdin", promptSource{args: []string{"-"}, stdin: strings.NewReader("\n")}, "the prompt is empty"},
		{"too long", promptSource{args: []string{"-"}, stdin: strings.NewReader(big + "b")}, "more than the 1048576 bytes"},
		{"no UTF-8", promptSource{args: []string{"ab\xffc"}}, "not valid UTF-8 at byte 2"},
		{"no such file", promptSource{args: []string{"@/does/not/exist"}}, "cannot read the prompt"},
		{"editor", promptSource{edit: true, editor: func(string) (string, error) { return "", errors.New("boom") }}, "boom"},
	} {
		_, err := c.source.read()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// The limit itself is allowed, and the newline at the end of a file does not count.
	if got, err := (promptSource{args: []string{"-"}, stdin: strings.NewReader(big + "\n")}).read(); err != nil || len(got) != 1<<20 {
		t.Errorf("a prompt of exactly 1 MiB: %d bytes, %v", len(got), err)
	}
}

func TestRunEditor(t *testing.T) {
	script := filepath.Join(t.TempDir(), "ed")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$1\" >> \"$2\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", script+" added")
	got, err := runEditor("draft ")
	if err != nil || got != "draft added\n" {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("VISUAL", "false")
	if _, err := runEditor(""); err == nil {
		t.Error("an editor that fails goes unnoticed")
	}
}
