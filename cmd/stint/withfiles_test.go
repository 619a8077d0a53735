package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/api/wire"
	"stint/state"
)

// A collected file is read only where it lies in the directory of its run,
// whatever a person has written into the ledger or an agent has left there.
func TestPromise6CollectedFilesStayInTheirDirectory(t *testing.T) {
	run := t.TempDir()
	files := filepath.Join(run, "files")
	for name, text := range map[string]string{"secret": "s", "files/sub/a.txt": "hello", "files/empty": "", "files/bin": "\xff\x00", "files/big": strings.Repeat("x", maxContent+1)} {
		path := filepath.Join(run, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(files, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(files, "up")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(files, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"sub/a.txt": "text hello", "empty": "text ", "bin": "base64 \xff\x00",
		"big": "problem it has more than", "gone": "problem the copy is not kept any more", "sub": "problem the copy is a directory",
		"link": "problem the copy is or lies behind a symbolic link", "pipe": "problem the copy is no regular file",
		"../secret": "problem ", "up/secret": "problem ", filepath.Join(run, "secret"): "problem ", "": "problem ", "/dev/null": "problem ",
	} {
		v := &wire.TaskView{RunDir: run, Task: state.Task{OutputFiles: []state.OutputFile{{Path: path}}}}
		c := collectedFiles(v, true)[0]
		got := "problem " + c.Problem
		switch {
		case c.Problem == "" && c.Text != nil:
			got = "text " + *c.Text
		case c.Problem == "":
			got = "base64 " + string(c.Base64)
		case c.Text != nil || c.Base64 != nil:
			t.Errorf("%q: content beside the problem %q", path, c.Problem)
		}
		if !strings.HasPrefix(got, want) || want == "problem " && got == want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	v := &wire.TaskView{Task: state.Task{OutputFiles: []state.OutputFile{{Path: "a", Size: 3}}}}
	if text := fileTable(v); !strings.Contains(text, "a  3 bytes  the copy is not kept any more") {
		t.Errorf("of a task without a run: %q", text)
	}
	var out bytes.Buffer
	if err := printJSON(&out, taskWithFiles{v, collectedFiles(v, true)}); err != nil || !strings.Contains(out.String(), `"files":[{"path":"a","size":3,"problem":`) {
		t.Errorf("%s %v", &out, err)
	}
}
