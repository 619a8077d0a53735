package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
)

func (a *app) fsckCommand() *cobra.Command {
	var repair bool
	var output string
	c := command("fsck [OPTIONS] [FILE]", "check the ledger and print what is wrong as file:line: message", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		switch {
		case repair != (output != ""):
			return usage("stint fsck --repair --output NEW", "--repair and --output need each other: the file itself is never changed")
		case repair:
			return a.repair(c.Context(), output, args)
		case len(args) == 1:
			return a.fsckFile(c.Context(), args[0])
		}
		ctx := c.Context()
		dir, none, err := a.stateMissing()
		switch {
		case err != nil:
			return err
		case none:
			return noState(dir)
		}
		r, err := interruptibly(ctx, interrupted, func() (*statedir.FsckReport, error) {
			return statedir.Fsck(ctx, dir, a.workspaceRoot(), a.isLive(ctx))
		})
		if err != nil {
			return err
		}
		if !a.json {
			for _, n := range r.Notes {
				a.hint("stint: note: %s\n", n)
			}
		}
		return a.printFaults(r.Faults, fmt.Sprintf("%s in %s", count(r.Records, "record"), dir))
	})
	a.withJSON(c)
	c.Flags().BoolVar(&repair, "repair", false, "write a ledger without findings to --output")
	c.Flags().StringVar(&output, "output", "", "the `file` that --repair makes; it must not exist")
	exclusive(c, "json", "repair")
	return c
}

// workspaceRoot returns the configuration's, "" if there is none to be read.
func (a *app) workspaceRoot() string {
	if cfg, err := a.base(); err == nil {
		return cfg.WorkspaceRoot
	}
	return ""
}

// isLive reports whether a master answers.
func (a *app) isLive(ctx context.Context) func() bool {
	return func() bool { _, err := a.health(ctx); return err == nil }
}

const interrupted = "interrupted; nothing was changed"

// fsckFile checks one file by itself.
func (a *app) fsckFile(ctx context.Context, path string) error {
	var faults []statedir.Fault
	var doc *ledger.Document
	data, err := interruptibly(ctx, interrupted, func() ([]byte, error) {
		data, err := readFile(path)
		faults = mapped(statedir.CheckLedger(path, data), func(f *task.Finding) statedir.Fault { return statedir.Fault{Finding: *f, Kind: statedir.KindSection} })
		doc = ledger.Parse(data)
		return data, err
	})
	if err != nil {
		return err
	}
	if len(faults)+len(doc.Sections)+doc.Version == 0 && len(bytes.TrimSpace(data)) > 0 {
		none := task.Finding{File: path, Message: fmt.Sprintf("this is no ledger: it has neither the line %s nor a section such as \"## Task <id>\"", ledger.VersionLine)}
		faults = append(faults, statedir.Fault{Finding: none, Kind: statedir.KindFile})
	}
	return a.printFaults(faults, fmt.Sprintf("%s in %s", count(len(doc.Sections), "section"), path))
}

// readFile reads a ledger file that the user named.
func readFile(path string) ([]byte, error) {
	data, err := journal.ReadLedger(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage("stint fsck --help", "there is no file %s", path)
	case err != nil:
		return nil, &cliError{code: exitFailure, message: "cannot read the ledger", err: err}
	}
	return data, nil
}

// printFaults prints the findings and how many there are, or what was looked at if there are none.
func (a *app) printFaults(faults []statedir.Fault, what string) error {
	for _, f := range faults {
		if err := a.print(f, f.String()); err != nil {
			return err
		}
	}
	if len(faults) == 0 {
		a.hint("stint: %s, no findings\n", what)
		return nil
	}
	a.hint("stint: %s\n", count(len(faults), "finding"))
	return &cliError{code: exitFailure} // the list says it
}

// repair writes a repaired copy of a ledger file to the new file output.
func (a *app) repair(ctx context.Context, output string, args []string) error {
	dir, err := a.state()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ledger.TasksName)
	if len(args) == 1 {
		path = args[0]
	}
	var data []byte
	var done []task.Finding
	repaired, err := interruptibly(ctx, interrupted, func() (repaired []byte, err error) {
		if data, err = readFile(path); err != nil {
			return nil, err
		}
		if v := ledger.Parse(data).Version; v > ledger.FormatVersion {
			return nil, &cliError{code: exitFailure, message: fmt.Sprintf("%s has format %d, this stint knows formats up to %d", path, v, ledger.FormatVersion), try: "use the newer stint that wrote it"}
		}
		repaired, done = statedir.RepairLedger(path, data, journalOf(path))
		return repaired, nil
	})
	if err != nil {
		return err
	}
	if _, err := os.Lstat(output); err == nil {
		return usage("name a file that does not exist yet", "%s is there already; a repair overwrites nothing", output)
	}
	if err := durable.WriteFile(durable.OS, output, repaired); err != nil {
		return &cliError{code: exitFailure, message: "cannot write " + output, err: err, try: "name another file with --output"}
	}
	for _, f := range done {
		if err := printText(a.stdout, f.String()); err != nil {
			return err
		}
	}
	a.hint("stint: %s; the whole ledger is in %s\n", count(len(done), "repair"), output)
	if !bytes.Equal(data, repaired) {
		a.hint("stint: look at it, then: stint restore %s\n", output)
	}
	return nil
}

// journalOf returns the journal beside a ledger file; nil if there is none, or it cannot be read: then nothing can be taken from it.
func journalOf(path string) []byte {
	for _, files := range []ledger.Files{ledger.TaskFiles, ledger.JobFiles} {
		if filepath.Base(path) == files.Ledger() {
			data, _ := durable.ReadFile(durable.OS, filepath.Join(filepath.Dir(path), files.Journal()))
			return data
		}
	}
	return nil
}
