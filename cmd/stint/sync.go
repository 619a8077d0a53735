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
	"stint/state"
)

const syncHelp = `Work with the mirror of the ledger in PostgreSQL, which is for audit. A master keeps it
up to date by itself (stint serve --postgres URL, or [postgres] in config.toml). These
commands work with and without a master. They change the database, never the ledger.`

func (a *app) syncCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "sync",
		Short: "compare or update the mirror of the ledger in PostgreSQL",
		Long:  syncHelp,
		Example: `  createdb cli_worker
  stint sync once --postgres postgres:///cli_worker
  stint sync status
  stint sync verify && echo "the mirror is complete"`,
	}, noRun((*app).syncOnceCommand)(a), a.syncStatusCommand(), a.syncVerifyCommand(),
		noRun((*app).syncRebuildCommand)(a), noRun((*app).syncMigrateCommand)(a))
}

// onMirror completes one of these commands: it gets the options of serve that say where the
// mirror is and what it holds, and does run.
func (a *app) onMirror(c *cobra.Command, run func(c *cobra.Command) error) *cobra.Command {
	c.Use += " [OPTIONS]"
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return run(c) }
	a.withJSON(c)
	for i := range keys {
		if keys[i].section == "postgres" {
			addKeyFlag(c.Flags(), &keys[i])
		}
	}
	return c
}

// mirrorOptions returns the state directory, and where its mirror is. dir is there with the
// error if that is about the database alone.
func (a *app) mirrorOptions(c *cobra.Command) (dir string, o postgres.Options, err error) {
	cfg, err := a.config(c.Flags())
	if err != nil {
		return "", o, err
	}
	if dir, err = a.state(); err != nil {
		return "", o, err
	}
	o, on := postgresOptions(cfg, dir, slog.New(slog.DiscardHandler)) // what is to be said, these commands say
	if !on {
		return dir, o, errNoMirror
	}
	url, err := o.URL()
	if err == nil {
		err = dsn.Check(url)
	}
	return dir, o, err
}

// errNoMirror is the answer where no database is configured.
var errNoMirror = &cliError{
	code: exitUsage, message: "no database is configured for a mirror of the ledger",
	try: "createdb cli_worker, then --postgres postgres:///cli_worker, or url in the [postgres] section of config.toml",
}

// syncError sets the exit code of what ended one of these commands: whatever a database or a
// ledger has to say is no mistake of the command line.
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

// A counter is a ledger that counts what is asked of it, for the progress line. It is for
// any number of goroutines.
type counter struct {
	*statedir.Snapshot
	accounts *accountsFile
	tasks    *atomic.Int64
}

// TaskRecord implements postgres.Source.
func (t counter) TaskRecord(id string) (task.TaskRecord, error) {
	t.tasks.Add(1)
	return t.Snapshot.TaskRecord(id)
}

// Accounts implements postgres.Source.
func (t counter) Accounts() []state.AccountUse {
	return state.WithConfigured(t.Snapshot.Accounts(), t.accounts.configs())
}

// startCounter shows how many tasks have been looked at while a command works.
func (a *app) startCounter(ctx context.Context, doing string) (tasks *atomic.Int64, stop func()) {
	tasks = new(atomic.Int64)
	begin := time.Now()
	return tasks, a.drawWhile(ctx, func(ctx context.Context) {
		for next := firstProgress; pause(ctx, next) == nil; next = time.Second {
			line := fmt.Sprintf("%s %s · %s", doing, ago(time.Since(begin)), count(int(tasks.Load()), "task"))
			_, _ = fmt.Fprintf(a.stderr, "\r\x1b[K%s", clip(line, lineWidth(a.stderr)))
		}
	})
}

func (a *app) syncOnceCommand() *cobra.Command {
	return a.onMirror(&cobra.Command{
		Use: "once", Short: "bring the mirror up to date, and exit",
		Long: `Bring the mirror up to date with the ledger, and exit. In an empty database the tables
are created first. A master may keep the same mirror meanwhile.`,
		Example: "  stint sync once\n  stint sync once --postgres postgres://db.example/cli_worker",
	}, func(c *cobra.Command) error {
		return a.writeMirror(c, "copying", func(ctx context.Context, o postgres.Options, read func() (postgres.Source, error)) (p postgres.Position, records uint64, err error) {
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
		})
	})
}

func (a *app) syncRebuildCommand() *cobra.Command {
	return a.onMirror(&cobra.Command{
		Use: "rebuild", Short: "write the whole mirror again",
		Long: `Write the whole mirror of this ledger again. Rows of other hosts are left alone. A
mirror of another state directory under the same host name is replaced, as is needed
after the directory was moved. You can interrupt it and run it again.`,
		Example: "  stint sync rebuild && stint sync verify",
	}, func(c *cobra.Command) error {
		return a.writeMirror(c, "rebuilding", func(ctx context.Context, o postgres.Options, read func() (postgres.Source, error)) (postgres.Position, uint64, error) {
			p, err := postgres.Rebuild(ctx, o, read)
			return p, p.Seq, err
		})
	})
}

// A writtenMirror is what sync once and sync rebuild print as JSON.
type writtenMirror struct {
	postgres.Position
	Records uint64  `json:"records"` // that the mirror did not have
	Seconds float64 `json:"seconds"`
}

// A mirrorWriter writes to the database, and returns how many records the mirror has more then.
type mirrorWriter func(context.Context, postgres.Options, func() (postgres.Source, error)) (p postgres.Position, records uint64, err error)

// writeMirror writes to the database and says how much that was.
func (a *app) writeMirror(c *cobra.Command, doing string, write mirrorWriter) error {
	ctx, begin := c.Context(), time.Now()
	dir, o, err := a.mirrorOptions(c)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, ledger.JournalName)); err != nil {
		if _, err := statedir.ReadSnapshot(ctx, dir, 0); err != nil {
			return syncError(ctx, err) // before anything is made in the database
		}
	}
	tasks, stop := a.startCounter(ctx, doing)
	w := writtenMirror{}
	w.Position, w.Records, err = write(ctx, o, func() (postgres.Source, error) {
		l, err := statedir.ReadSnapshot(ctx, dir, 0)
		return counter{l, newAccountsFile(dir), tasks}, err
	})
	stop()
	if err := syncError(ctx, err); err != nil {
		return err
	}
	w.Seconds = time.Since(begin).Seconds()
	a.warn(append(w.Skipped, w.Warning)...)
	return a.print(w, fmt.Sprintf("%s, %s in %.1f s; %s has all up to record %d",
		count(int(w.Records), "record"), count(int(w.Rows), "row"), w.Seconds, w.Target, w.Seq))
}

// warn prints what a person should look at though the command did its work.
func (a *app) warn(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.hint("stint: warning: %s\n", escapeText(oneLine(text)))
		}
	}
}

func (a *app) syncMigrateCommand() *cobra.Command {
	return a.onMirror(&cobra.Command{
		Use: "migrate", Short: "upgrade the database's tables to the schema of this stint",
		Long: `Upgrade the database's tables to the schema of this stint. Other commands, and a master,
create tables in an empty database only; if they find an older schema they change
nothing and tell you.`,
		Example: "  stint sync migrate",
	}, func(c *cobra.Command) error {
		_, o, err := a.mirrorOptions(c)
		if err != nil {
			return err
		}
		var m struct {
			From int `json:"from"` // 0: there were no tables
			To   int `json:"to"`
		}
		m.From, m.To, err = postgres.Migrate(c.Context(), o)
		if err := syncError(c.Context(), err); err != nil {
			return err
		}
		text := fmt.Sprintf("schema %d -> %d", m.From, m.To)
		if m.From == m.To {
			text = fmt.Sprintf("schema %d, nothing to do", m.To)
		}
		return a.print(m, text)
	})
}
