package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator"
	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
)

// maxSpecFile is how large a file of --spec may be, in bytes: what a master takes at once.
const maxSpecFile = 64 << 20

// runSpecs carries out `stint task --spec FILE`: one task as if it had been given
// by options, or many.
func (a *app) runSpecs(c *cobra.Command, o *taskOptions, args []string) error {
	if len(args) > 0 {
		return usage(c.CommandPath()+" --help", "--spec has the prompts; %q is one too many", clip(args[0], 40))
	}
	if err := o.check(c, time.Now()); err != nil {
		return err
	}
	specs, many, err := a.readSpecs(c.Context(), o.file)
	if err != nil {
		return err
	}
	for i := range specs {
		fillIn(&specs[i], &o.spec)
		if err := a.place(o, &specs[i]); err != nil {
			return inSpecs(err, i, len(specs), many)
		}
	}
	if !many {
		o.spec = specs[0]
		return a.runOne(c.Context(), o)
	}
	return a.runMany(c.Context(), o, specs)
}

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
func (a *app) readSpecs(ctx context.Context, file string) (specs []coordinator.TaskSpec, many bool, err error) {
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
	specs, err = coordinator.ParseSpecs(name, []byte(text))
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

// fillIn gives a spec what it leaves open and the options name.
func fillIn(spec, options *coordinator.TaskSpec) {
	to, from := reflect.ValueOf(spec).Elem(), reflect.ValueOf(options).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// runMany submits tasks together, and waits for all unless they are detached.
func (a *app) runMany(ctx context.Context, o *taskOptions, specs []coordinator.TaskSpec) error {
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
func (a *app) submitAll(ctx context.Context, o *taskOptions, specs []coordinator.TaskSpec) (views []wire.TaskView, err error) {
	for i := range specs {
		specs[i].Await, specs[i].FromRun = !o.detach, ownRun()
	}
	err = a.call(ctx, func(c *client.Client) (err error) { views, err = c.SubmitAll(ctx, specs); return err })
	if !a.mayKeep(o, err) {
		return views, err
	}
	err = a.keep(ctx, func(cfg coordinator.Config) error {
		tasks, err := coordinator.SubmitAllOffline(ctx, cfg, specs)
		for _, t := range tasks {
			views = append(views, wire.TaskView{Task: t})
		}
		return err
	})
	return views, err
}

// noteDemos is noteDemo for several tasks.
func (a *app) noteDemos(ctx context.Context, o *taskOptions, specs []coordinator.TaskSpec, views []wire.TaskView) {
	for i := range views {
		if views[i].Agent == builtIn && specs[i].Agent == "" {
			o.spec = specs[i]
			a.noteDemo(ctx, o, &views[i])
			return
		}
	}
}
