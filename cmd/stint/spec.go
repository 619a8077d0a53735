package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/agent/claude"
	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/limits"
)

// maxSpecFile is how large a file of --spec may be, in bytes: what a master takes at once.
const maxSpecFile = 64 << 20

// inSpecs adds to an error which of several tasks it is about.
func inSpecs(err error, i, n int, many bool) error {
	if !many {
		return err
	}
	message, try := explain(err)
	return &cliError{code: exitCode(err), message: fmt.Sprintf("task %d of %d: %s", i+1, n, message), try: try}
}

// readSpecs reads the tasks of a file, or of stdin if it is called -. many: they are a list, perhaps of one.
func (a *app) readSpecs(ctx context.Context, file string) (specs []task.TaskSpec, many bool, err error) {
	name, read := file, func() ([]byte, error) { return readNamed(file, maxSpecFile) }
	if file == "-" {
		name, read = "stdin", func() ([]byte, error) { return readAtMost(a.stdin, maxSpecFile) }
	}
	text, err := interruptibly(ctx, nothingQueued, read)
	if ctx.Err() != nil { // also if all was read just before
		return nil, false, &cliError{code: exitInterrupted, message: nothingQueued}
	}
	if err != nil {
		return nil, false, &cliError{code: exitUsage, message: "cannot read the tasks of " + name, err: plainError(err), try: "stint task --spec FILE, or - for stdin; many tasks in several files"}
	}
	specs, err = task.ParseSpecs(name, text)
	return specs, bytes.HasPrefix(bytes.TrimLeft(text, "\ufeff \t\r\n"), []byte("[")), err
}

// readNamed reads a file that the user has named, of at most so many bytes.
func readNamed(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := readAtMost(f, most)
	if err != nil {
		err = &os.PathError{Op: "read", Path: path, Err: plainError(err)}
	}
	return data, err
}

// readAtMost reads to the end, which must come within so many bytes.
func readAtMost(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

// runTasks submits tasks, many if they come as a list, and waits for them unless they are detached.
func (a *app) runTasks(c *cobra.Command, o *taskOptions, specs []task.TaskSpec, many bool) error {
	ctx := c.Context()
	if a.shared {
		list, err := fromShared(a, c, func(q *shared.Queue, ctx context.Context) ([]shared.Task, error) { return q.Enqueue(ctx, specs) })
		a.ids = true
		return printTable(a, list, err, "", nil, nil, func(t shared.Task) (string, []string) { return t.ID, nil })
	}
	if o.dryRun {
		return a.dryRun(ctx, specs, many)
	}
	for i := range specs {
		if err := a.checkReady(ctx, o, &specs[i]); err != nil {
			return inSpecs(err, i, len(specs), many)
		}
		if o.detach {
			continue // a warning follows the submit
		}
		if lack := a.lacksSecrets(ctx, cmp.Or(specs[i].Agent, specs[i].DefaultAgent, builtIn), true); lack != nil {
			return inSpecs(lack, i, len(specs), many)
		}
	}
	base, _ := a.base() // it is known: place has it
	dir, _ := a.state() // submit tells what is wrong with it
	journal, err := os.Stat(filepath.Join(dir, ledger.JournalName))
	isFirst := err != nil || journal.Size() < 200 // there is no task yet, but a heading
	views, err := a.submit(ctx, o, specs, many)
	if err != nil {
		return err
	}
	if isFirst && !a.json {
		a.atEnd = func() {
			policy := clip(oneLine(cmp.Or(specs[0].OutputPolicy, base.forWorkspace(specs[0].Workspace).origins["output_policy"].text)), 40)
			a.hint("stint: your first task (output policy %s; see --policy); next: stint show @last, stint ls, stint help\n", escapeText(policy))
		}
	}
	a.noteDemo(specs, views)
	a.warnConfig(ctx)
	agents := slices.Sorted(slices.Values(mapped(views, func(v *wire.TaskView) string { return v.Agent })))
	for _, name := range slices.Compact(agents) {
		if lack := a.lacksSecrets(ctx, name, false); lack != nil {
			a.hint("stint: %s\n  try: %s\n", lack.message, lack.try)
		}
	}
	a.warnOtherPlace(ctx, views)
	defer a.warnFindings(ctx)
	first, ids := &views[0], idsOf(views)
	for i := range views {
		if note := views[i].Note; note != "" && !(o.detach && a.json) {
			a.hint("stint: note: %s\n", escapeText(oneLine(note)))
		}
		if b, _ := limits.ParseBudget(views[i].Budget); b.USD > 0 && views[i].Agent != claude.Kind.Name {
			a.hint("stint: note: %s tells no price: only tokens and time bound what it spends\n", views[i].Agent)
		}
	}
	switch {
	case o.detach && a.json:
		return printEach(a.stdout, views)
	case o.detach:
		return printIDs(a.stdout, views)
	case many:
		return a.runWait(ctx, false, "", ids)
	}
	if first.Hold {
		a.hint("stint: held; it runs after: stint release %s\n", shortID(first.ID))
	}
	if first.NotBefore.After(time.Now()) {
		a.hint("stint: it starts at %s or later\n", localTime(first.NotBefore))
	}
	a.warnPaused()
	a.warnAccounts(ctx, views)
	return a.awaitAnswer(ctx, first)
}

// submit makes tasks durable, all or none: by a master, or without one where none is to be started.
func (a *app) submit(ctx context.Context, o *taskOptions, specs []task.TaskSpec, many bool) (views []wire.TaskView, err error) {
	for i := range specs {
		specs[i].Await, specs[i].FromRun = !o.detach, ownRun()
	}
	a.addEnvironment(specs)
	a.creates = true
	call := a.call
	if o.detach {
		call = a.callOrOpen
	}
	err = call(ctx, func(c *client.Client) (err error) {
		if many {
			views, err = c.SubmitAll(ctx, specs)
			return err
		}
		view, err := c.Submit(ctx, specs[0])
		views = []wire.TaskView{view}
		return err
	})
	if err != nil && isDetached(ctx) { // a request may be on its way
		return nil, &cliError{code: exitInterrupted, message: "interrupted; it may have been queued", try: "stint ls"}
	}
	if err == nil && a.opened {
		dir, _ := a.state() // it is known: the tasks are there
		a.hint("stint: kept in %s; no master is running, and auto_start is off\n  try: stint serve\n", filepath.Join(dir, ledger.TasksName))
	}
	return views, err
}

// viewsOf returns tasks as a master would show them that knows no more of them.
func viewsOf(tasks []state.Task) []wire.TaskView {
	return mapped(tasks, func(t *state.Task) wire.TaskView { return wire.TaskView{Task: *t} })
}

// readInputs reads the files that a task is to come with. Their names are the
// paths as they were given, or their last parts if these lead out of here.
func readInputs(paths []string) (files []state.InputFile, err error) {
	for _, path := range paths {
		text, err := readNamed(path, task.MaxInputFiles)
		if err != nil {
			const try = "give each file an --input-file of its own; put large ones into the working directory, and name them in the prompt"
			return nil, &cliError{code: exitUsage, message: "cannot take the input file " + path, err: plainError(err), try: try}
		}
		name := filepath.Clean(path)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, state.InputFile{Name: filepath.ToSlash(name), Content: string(text)})
	}
	return files, nil
}

// readPrompt returns the prompt of a command line, checked, without newlines at the end of a file, of stdin and of an
// edited text. literal: the arguments are the prompt, whatever they look like.
func (a *app) readPrompt(args []string, literal, edit bool) (text string, err error) {
	text = strings.Join(args, " ")
	switch {
	case edit:
		text, err = runEditor(text)
	case len(args) == 0:
		err = usage(`stint task "PROMPT", stint task @FILE, or stint task - for stdin`, "there is no prompt")
	case literal || len(args) > 1:
	case text == "-":
		text, err = promptOf(readAtMost(a.stdin, maxSpecFile))
	default:
		text, err = textOrFile(text)
	}
	return text, cmp.Or(err, task.CheckPrompt(text))
}

// textOrFile returns a text, or with @FILE that of a file; @@ begins a text with @.
func textOrFile(text string) (string, error) {
	name, isFile := strings.CutPrefix(text, "@")
	if !isFile || strings.HasPrefix(name, "@") {
		return name, nil
	}
	return promptOf(readNamed(name, maxSpecFile))
}

// promptOf returns a prompt that was read, without newlines at its end.
func promptOf(data []byte, err error) (string, error) {
	if err != nil {
		return "", &cliError{code: exitUsage, message: "cannot read the prompt", err: err, try: "stint task @FILE; for a prompt that begins with @: stint task @@...; to give files to the agent: --input-file FILE"}
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// runEditor lets the user write a text with an editor. Its output goes to stderr: stdout is for the answer.
func runEditor(text string) (string, error) {
	dir, err := os.MkdirTemp("", "stint-edit-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
	name := filepath.Join(dir, "prompt.md")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return "", err
	}
	if err := openEditor(name, os.Stderr); err != nil {
		return "", editorError("nothing was queued", err)
	}
	return textOrFile("@" + name)
}
