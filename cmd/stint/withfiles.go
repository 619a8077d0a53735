package main

import (
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"stint/coordinator"
	"stint/coordinator/api/wire"
	"stint/state"
)

// maxContent is how large a collected file may be, in bytes, for its content to
// be printed as JSON.
const maxContent = 1 << 20

// A taskWithFiles is a task as `show --json --with-files` prints it.
type taskWithFiles struct {
	*wire.TaskView
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
func collectedFiles(v *wire.TaskView, content bool) []collected {
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

// find looks for the copy in the directory of the run.
func (c *collected) find(runDir string, content bool) error {
	if runDir == "" {
		return coordinator.ErrNotKept
	}
	f, fi, err := coordinator.OpenCollected(runDir, c.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	c.File = filepath.Join(runDir, "files", c.Path)
	switch {
	case !content:
		return nil
	case fi.Size() > maxContent:
		return fmt.Errorf("it has more than %d bytes", maxContent)
	}
	return c.read(f)
}

// read takes in the content of the copy.
func (c *collected) read(f io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(f, maxContent))
	if err != nil {
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
func fileTable(v *wire.TaskView) string {
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
