package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"stint/coordinator/api"
	"stint/state"
)

// maxContent is how large a collected file may be, in bytes, for its content to
// be printed as JSON.
const maxContent = 1 << 20

// A taskWithFiles is a task as `show --json --with-files` prints it.
type taskWithFiles struct {
	*api.TaskView
	Files []collected `json:"files"`
}

// A collected is a file that was collected after a run.
type collected struct {
	state.OutputFile
	File    string  `json:"file,omitempty"`    // absolute path of the copy
	Text    *string `json:"text,omitempty"`    // content that is UTF-8
	Base64  []byte  `json:"base64,omitempty"`  // any other content
	Problem string  `json:"problem,omitempty"` // why there is none
}

// collectedFiles gives the collected files of a task's last run; with content what
// is in them, too.
func collectedFiles(v *api.TaskView, content bool) []collected {
	files := []collected{}
	for _, out := range v.OutputFiles {
		c := collected{OutputFile: out}
		if err := c.find(v.RunDir, content); err != nil {
			c.Problem = err.Error()
		}
		files = append(files, c)
	}
	return files
}

// errGone says that a collected file cannot be given any more.
var errGone = errors.New("the copy is not kept any more")

// find looks for the copy in the directory of the run. A path that a person wrote
// into the ledger must not lead out of there.
func (c *collected) find(runDir string, content bool) error {
	if runDir == "" {
		return errGone
	}
	root, err := os.OpenRoot(filepath.Join(runDir, "files"))
	if err != nil {
		return errGone
	}
	defer func() { _ = root.Close() }() // only read from
	fi, err := root.Lstat(c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errGone
	case err != nil:
		return plainError(err)
	case !fi.Mode().IsRegular():
		return errors.New("the copy is no file")
	}
	c.File = filepath.Join(root.Name(), c.Path)
	switch {
	case !content:
		return nil
	case fi.Size() > maxContent:
		return fmt.Errorf("it has more than %d bytes", maxContent)
	}
	return c.read(root)
}

// read takes in the content of the copy.
func (c *collected) read(root *os.Root) error {
	f, err := root.OpenFile(c.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // whatever has taken its place, do not wait for it
	if err != nil {
		return plainError(err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxContent))
	if err := errors.Join(err, f.Close()); err != nil {
		return plainError(err)
	}
	if utf8.Valid(data) {
		text := string(data)
		c.Text = &text
	} else {
		c.Base64 = data
	}
	return nil
}

// fileTable gives the collected files for people: name, size and path of each.
func fileTable(v *api.TaskView) string {
	files := collectedFiles(v, false)
	if len(files) == 0 {
		return "\ncollected files:\n  none were collected\n"
	}
	text := "\ncollected files:\n"
	for _, c := range files {
		place := c.File
		if c.Problem != "" {
			place = c.Problem
		}
		text += fmt.Sprintf("  %s  %s  %s\n", oneLine(c.Path), count(int(c.Size), "byte"), oneLine(place))
	}
	return text
}
