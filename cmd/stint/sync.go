package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
)

const syncHelp = `The copy of the ledger in PostgreSQL, for audit. A master keeps it up to date by
itself (stint serve --postgres URL, or [postgres] in config.toml); these commands
work with and without one. They change the database alone, never the ledger.`

const syncExample = `  createdb cli_worker
  stint sync once --postgres postgres:///cli_worker
  stint sync status
  stint sync verify && echo "the copy is true"`

func (a *app) syncCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "sync",
		Short:   "the copy of the ledger in PostgreSQL: how far it is, compare, write",
		Long:    syncHelp,
		Example: syncExample,
	}
	c.AddCommand(noRun((*app).syncOnceCommand)(a), a.syncStatusCommand(), a.syncVerifyCommand(),
		noRun((*app).syncRebuildCommand)(a), noRun((*app).syncMigrateCommand)(a))
	return c
}

// syncFlags adds the options that all of these commands share: those of serve that
// say where the copy is and what it holds.
func syncFlags(c *cobra.Command, json *bool) {
	jsonFlag(c, json)
	for i := range keys {
		if keys[i].section == "postgres" {
			addKeyFlag(c.Flags(), &keys[i])
		}
	}
}

// copyOptions returns the state directory, and where its copy is. dir is there with the
// error if that is about the database alone.
func (a *app) copyOptions(c *cobra.Command) (dir string, o postgres.Options, err error) {
	cfg, err := a.config(c.Flags())
	if err != nil {
		return "", o, err
	}
	if dir, err = a.state(); err != nil {
		return "", o, err
	}
	o, on := postgresOptions(cfg, dir, slog.New(slog.DiscardHandler)) // what is to be said, these commands say
	if !on {
		return dir, o, errNoCopy
	}
	url, err := o.URL()
	if err == nil {
		err = dsn.Check(url)
	}
	return dir, o, err
}

// errNoCopy is the answer where no database is configured.
var errNoCopy = &cliError{
	code: exitUsage, message: "no database is configured for a copy of the ledger",
	try: "createdb cli_worker, then --postgres postgres:///cli_worker, or url in the [postgres] section of config.toml",
}

// syncError returns what ended one of these commands its exit code: whatever a database or
// a ledger has to say is no mistake of the command line.
func syncError(ctx context.Context, err error) error {
	var e *task.Error
	switch {
	case err == nil:
		return nil
	case isDetached(ctx):
		return errDetached
	case errors.As(err, &e):
		return &cliError{code: exitFailure, message: e.Message, try: e.Hint}
	}
	return err
}

// readLedger returns the state directory's ledger, as a copy has it.
func readLedger(ctx context.Context, dir string) (*statedir.Copy, error) {
	c, err := statedir.ReadCopy(ctx, dir, 0)
	if err != nil {
		return nil, syncError(ctx, err)
	}
	return c, nil
}

// A tally is a ledger that counts what is asked of it, for the progress line. It is for
// any number of goroutines.
type tally struct {
	*statedir.Copy
	tasks *atomic.Int64
}

// Image implements postgres.Source.
func (t tally) Image(id string) (task.Image, error) {
	t.tasks.Add(1)
	return t.Copy.Image(id)
}

// startTally shows how many tasks have been looked at while a command works.
func (a *app) startTally(ctx context.Context, doing string) (tasks *atomic.Int64, stop func()) {
	tasks = new(atomic.Int64)
	begin := time.Now()
	return tasks, a.drawWhile(ctx, func(ctx context.Context) {
		for next := firstProgress; pause(ctx, next) == nil; next = time.Second {
			line := fmt.Sprintf("%s %s · %s", doing, ago(time.Since(begin)), count(int(tasks.Load()), "task"))
			_, _ = fmt.Fprintf(a.stderr, "\r\x1b[K%s", clip(line, lineWidth(a.stderr)))
		}
	})
}

const syncOnceHelp = `Bring the copy up to date with what the ledger has now, and end. An empty database
gets its tables and a whole copy. A master that keeps the copy too is no problem.`

func (a *app) syncOnceCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "once [OPTIONS]",
		Short:   "bring the copy up to date, and end",
		Long:    syncOnceHelp,
		Example: "  stint sync once\n  stint sync once --postgres postgres://db.example/cli_worker",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.writeCopy(c, "copying", updateCopy, asJSON)
		},
	}
	syncFlags(c, &asJSON)
	return c
}

const syncRebuildHelp = `Write the whole copy anew, whatever the database has of this ledger. Rows of other
hosts are left alone. The copy of another state directory that has the name of this
host is replaced: that is for one that was moved. To be cut off does no harm, say it
again.`

func (a *app) syncRebuildCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "rebuild [OPTIONS]",
		Short:   "write the whole copy anew",
		Long:    syncRebuildHelp,
		Example: "  stint sync rebuild && stint sync verify",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.writeCopy(c, "rebuilding", rebuildCopy, asJSON)
		},
	}
	syncFlags(c, &asJSON)
	return c
}

// A writtenCopy is what sync once and sync rebuild print as JSON.
type writtenCopy struct {
	postgres.Position
	Records uint64  `json:"records"` // that the copy did not have
	Seconds float64 `json:"seconds"`
}

// A copyWriter writes to the database, and tells how many records the copy has more then.
type copyWriter func(context.Context, postgres.Options, func() (postgres.Source, error)) (p postgres.Position, records uint64, err error)

// updateCopy writes what the copy does not have.
func updateCopy(ctx context.Context, o postgres.Options, read func() (postgres.Source, error)) (p postgres.Position, records uint64, err error) {
	before, err := postgres.Look(ctx, o)
	if err != nil {
		return before, 0, err
	}
	if p, err = postgres.Once(ctx, o, read); err != nil {
		return p, 0, err
	}
	if p.Generation != before.Generation { // it was written anew
		return p, p.Seq, nil
	}
	return p, p.Seq - before.Seq, nil
}

// rebuildCopy writes all of it.
func rebuildCopy(ctx context.Context, o postgres.Options, read func() (postgres.Source, error)) (postgres.Position, uint64, error) {
	p, err := postgres.Rebuild(ctx, o, read)
	return p, p.Seq, err
}

// writeCopy writes to the database and says how much that was.
func (a *app) writeCopy(c *cobra.Command, doing string, write copyWriter, asJSON bool) error {
	ctx, begin := c.Context(), time.Now()
	dir, o, err := a.copyOptions(c)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, ledger.JournalName)); err != nil {
		if _, err := readLedger(ctx, dir); err != nil {
			return err // before anything is made in the database
		}
	}
	tasks, stop := a.startTally(ctx, doing)
	w := writtenCopy{}
	w.Position, w.Records, err = write(ctx, o, func() (postgres.Source, error) {
		l, err := statedir.ReadCopy(ctx, dir, 0)
		return tally{l, tasks}, err
	})
	stop()
	if err := syncError(ctx, err); err != nil {
		return err
	}
	w.Seconds = time.Since(begin).Seconds()
	a.warn(append(w.Skipped, w.Warning)...)
	return a.printEither(asJSON, w, w.String())
}

// String returns the line for people.
func (w *writtenCopy) String() string {
	return fmt.Sprintf("%s, %s in %.1f s; %s has all up to record %d",
		count(int(w.Records), "record"), count(int(w.Rows), "row"), w.Seconds, w.Target, w.Seq)
}

// warn tells of what a person should look at though the command did its work.
func (a *app) warn(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.hint("stint: warning: %s\n", escapeText(oneLine(text)))
		}
	}
}

const syncMigrateHelp = `Bring the database's tables to the schema of this stint, forward only. The other
commands, and a master, do this by themselves in an empty database alone; tables of
an older schema they leave as they are, and say so.`

func (a *app) syncMigrateCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "migrate [OPTIONS]",
		Short:   "bring the database's tables to the schema of this stint",
		Long:    syncMigrateHelp,
		Example: "  stint sync migrate",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, o, err := a.copyOptions(c)
			if err != nil {
				return err
			}
			var m migratedCopy
			m.From, m.To, err = postgres.Migrate(c.Context(), o)
			if err := syncError(c.Context(), err); err != nil {
				return err
			}
			text := fmt.Sprintf("schema %d -> %d", m.From, m.To)
			if m.From == m.To {
				text = fmt.Sprintf("schema %d, nothing to do", m.To)
			}
			return a.printEither(asJSON, m, text)
		},
	}
	syncFlags(c, &asJSON)
	return c
}

// migratedCopy is what sync migrate prints as JSON.
type migratedCopy struct {
	From int `json:"from"` // 0: there were no tables
	To   int `json:"to"`
}
