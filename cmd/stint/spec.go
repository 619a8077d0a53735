package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"unicode/utf8"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/state"
)

// maxSpecFile is how large a file of --spec may be, in bytes: what a master takes at once.
const maxSpecFile = 64 << 20

// inSpecs says which of several tasks an error is about.
func inSpecs(err error, i, n int, many bool) error {
	if !many {
		return err
	}
	message, try := explain(err)
	return &cliError{code: exitCode(err), message: fmt.Sprintf("task %d of %d: %s", i+1, n, message), try: try}
}

// readSpecs reads the tasks of a file, or of stdin if it is called -. many says
// that it is a list, which may have one task only.
func (a *app) readSpecs(ctx context.Context, file string) (specs []task.TaskSpec, many bool, err error) {
	name, read := file, func() (string, error) { return readWhole(file) }
	if file == "-" {
		name, read = "stdin", func() (string, error) { return readAll(a.stdin) }
	}
	text, err := readInterruptibly(ctx, read)
	if interrupted := (*cliError)(nil); errors.As(err, &interrupted) {
		return nil, false, err
	}
	if err != nil {
		return nil, false, &cliError{code: exitUsage, message: "cannot read the tasks of " + name, err: plainError(err), try: "stint task --spec FILE, or - for stdin"}
	}
	specs, err = task.ParseSpecs(name, []byte(text))
	return specs, bytes.HasPrefix(bytes.TrimLeft([]byte(text), "\ufeff \t\r\n"), []byte("[")), err
}

func readWhole(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	text, err := readAll(f)
	return text, errors.Join(err, f.Close())
}

func readAll(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSpecFile+1))
	if err == nil && len(data) > maxSpecFile {
		err = fmt.Errorf("it has more than %d bytes; give the tasks in several parts", maxSpecFile)
	}
	return string(data), err
}

// fillIn returns a spec what it leaves open and the options name.
func fillIn(spec, options *task.TaskSpec) {
	to, from := reflect.ValueOf(spec).Elem(), reflect.ValueOf(options).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// runMany submits tasks together, and waits for all unless they are detached.
func (a *app) runMany(ctx context.Context, o *taskOptions, specs []task.TaskSpec) error {
	if o.dryRun {
		return a.dryRun(ctx, o, specs, true)
	}
	views, err := a.submitAll(ctx, o, specs)
	if err != nil {
		return err
	}
	a.noteDemos(ctx, o, specs, views)
	a.tellConfig(ctx)
	defer a.tellFindings(ctx)
	switch {
	case o.detach && o.json:
		return printEach(a.stdout, views)
	case o.detach:
		return printIDs(a.stdout, views)
	}
	ids := make([]string, len(views))
	for i, v := range views {
		ids[i] = v.ID
	}
	return a.runWait(ctx, &waitOptions{json: o.json, quiet: o.quiet}, ids)
}

// submitAll is submit for several tasks: all become durable, or none.
func (a *app) submitAll(ctx context.Context, o *taskOptions, specs []task.TaskSpec) (views []wire.TaskView, err error) {
	for i := range specs {
		specs[i].Await, specs[i].FromRun = !o.detach, ownRun()
	}
	err = a.call(ctx, func(c *client.Client) (err error) { views, err = c.SubmitAll(ctx, specs); return err })
	if !a.mayKeep(o, err) {
		return views, err
	}
	err = a.keep(ctx, func(cfg task.Config) error {
		tasks, err := statedir.SubmitAllOffline(ctx, cfg, specs)
		for _, t := range tasks {
			views = append(views, wire.TaskView{Task: t})
		}
		return err
	})
	return views, err
}

// noteDemos is noteDemo for several tasks.
func (a *app) noteDemos(ctx context.Context, o *taskOptions, specs []task.TaskSpec, views []wire.TaskView) {
	for i := range views {
		if views[i].Agent == builtIn && specs[i].Agent == "" {
			o.spec = specs[i]
			a.noteDemo(ctx, o, &views[i])
			return
		}
	}
}

// maxInputs is how much the files that come with a task may have together, in
// bytes. A master refuses more.
const maxInputs = 1 << 20

// readInputs reads the files that a task is to come with. Their names are the
// paths as they were given, or their last parts if these lead out of here.
func readInputs(paths []string) (files []state.InputFile, err error) {
	left := int64(maxInputs)
	for _, path := range paths {
		text, err := readInput(path, left)
		if err != nil {
			try := "put large files into the working directory and name them in the prompt"
			if errors.Is(err, syscall.EISDIR) {
				try = "give each file of it an --input-file of its own, or let the task work in that directory with -C DIR"
			}
			return nil, &cliError{code: exitUsage, message: "cannot take the input file " + path, err: plainError(err), try: try}
		}
		left -= int64(len(text))
		name := filepath.Clean(path)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, state.InputFile{Name: filepath.ToSlash(name), Content: text})
	}
	return files, nil
}

// readInput reads a file of at most so many bytes.
func readInput(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the input files have more than %d bytes together", maxInputs)
	}
	return string(data), err
}

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

// collectedFiles returns the collected files of a task's last run; with content what
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
		return rundir.ErrNotKept
	}
	f, fi, err := rundir.OpenCollected(runDir, c.Path)
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

// fileTable returns the collected files for people: name, size and path of each.
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
