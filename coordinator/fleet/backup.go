package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// Backup is where backups go, and how they are made.
type Backup struct {
	Dir    string                                      // has a directory for each
	Keep   time.Duration                               // for how long; 0: for ever
	Verify func(ctx context.Context, dir string) error // reads a state directory as a master would
	// Database returns the URL of the database, or of another one beside it, without a password, and the environment that
	// completes it, for PostgreSQL's programs; nil: there is none.
	Database func(other string) (url string, env []string, err error)
}

const (
	backupTime  = "2006-01-02T150405Z" // the name of a backup
	partialName = ".partial"           // of one that is not whole or not verified yet
	stateName   = "state.tar.gz"
	dumpName    = "database.dump" // in the format of pg_restore
)

// notBackedUp are the names in a state directory that a backup leaves out: a secret, what a master makes anew, and the
// directories of runs, whose answers and ends the ledger has.
var notBackedUp = []string{"token", "lock", "heartbeat.json", "runs", "master.log", "master.log.1"}

// backUp is the job db_backup. A backup counts once it was restored, and until then has no name of its own.
func (f *Fleet) backUp(ctx context.Context) (detail string, err error) {
	defer f.alone("db_backup")() // two schedules may have it
	b, now := &f.opts.Backup, f.opts.Now().UTC()
	partial, dir := filepath.Join(b.Dir, partialName), filepath.Join(b.Dir, now.Format(backupTime))
	whole, restored := filepath.Join(partial, "whole"), filepath.Join(partial, "restored")
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(whole, durable.DirMode), os.MkdirAll(restored, durable.DirMode)); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(partial)) }() // what was not whole, or what it was restored to
	state, err := filepath.EvalSymlinks(f.opts.Dir)
	place, wrong := filepath.EvalSymlinks(b.Dir)
	if err = cmp.Or(err, wrong); err != nil {
		return "", err
	}
	inside, err := filepath.Rel(state, place)
	if err == nil && filepath.IsLocal(inside) && (inside == "." || filepath.Dir(inside) != ".") {
		return "", fmt.Errorf("a backup would have those before it: let fleet.backup_dir be outside %s, or directly below it", f.opts.Dir)
	}
	if b.Database != nil {
		if err := b.dump(ctx, filepath.Join(whole, dumpName)); err != nil {
			return "", fmt.Errorf("the database was not backed up: %w", err)
		}
	}
	if err = f.pack(ctx, filepath.Join(whole, stateName), restored, inside); err == nil {
		err = b.Verify(ctx, restored)
	}
	if err != nil {
		return "", fmt.Errorf("the state directory was not backed up: %w", err)
	}
	err = durable.OS.SyncDir(whole)
	if err == nil {
		err = os.Rename(whole, dir)
	}
	if err = cmp.Or(err, durable.OS.SyncDir(b.Dir)); err != nil {
		return "", err
	}
	return dir + ", verified by restoring", f.dropOld(now)
}

// dropOld removes backups that are older than those that are kept.
func (f *Fleet) dropOld(now time.Time) (err error) {
	entries, err := os.ReadDir(f.opts.Backup.Dir)
	for _, e := range entries {
		if at, wrong := time.Parse(backupTime, e.Name()); wrong == nil && f.opts.Backup.Keep > 0 && now.Sub(at) >= f.opts.Backup.Keep {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.opts.Backup.Dir, e.Name())))
		}
	}
	return err
}

// dump writes a dump of the database, and restores it into another one, which it removes.
func (b *Backup) dump(ctx context.Context, file string) (err error) {
	machine, _ := os.Hostname()
	other := "stint_restore_" + sumOf([]byte(machine + b.Dir))[:16] // what a crash has left there is of no other machine
	from, env, err := b.Database("")
	to, _, wrong := b.Database(other)
	if err = cmp.Or(err, wrong); err != nil {
		return err
	}
	if err := keep(file, func() error { return run(ctx, env, "pg_dump", "--format=custom", "--file="+file, "--dbname="+from) }); err != nil {
		return err
	}
	sql := func(ctx context.Context, statement string) error {
		return run(ctx, env, "psql", "--quiet", "--no-psqlrc", "--command="+statement, "--dbname="+from)
	}
	drop := "DROP DATABASE IF EXISTS " + other
	if err := cmp.Or(sql(ctx, drop), sql(ctx, "CREATE DATABASE "+other+" TEMPLATE template0")); err != nil {
		return fmt.Errorf("it is verified in another database, which cannot be made: %w", err)
	}
	defer func() { err = errors.Join(err, sql(context.WithoutCancel(ctx), drop)) }()
	return run(ctx, env, "pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", "--dbname="+to, file)
}

// keep makes a file that nobody else may read, and what write has a program write to it durable.
func keep(file string, write func() error) error {
	out, err := durable.Open(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode)
	if err != nil {
		return err
	}
	return errors.Join(write(), out.Sync(), out.Close())
}

// run runs one of PostgreSQL's programs.
func run(ctx context.Context, env []string, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	complaint := &bounded{}
	cmd.Env, cmd.Stderr, cmd.WaitDelay = env, complaint, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %s (%w)", program, cmp.Or(task.OneSentence(complaint.buf.String(), maxComplain), "no word about it"), err)
	}
	return nil
}

// pack writes the state directory, but for what is named without, as an archive of tar(1), and restores it into an empty
// directory. tasks.md comes first: the journal is its superset then, as after a crash.
func (f *Fleet) pack(ctx context.Context, file, restored, without string) error {
	entries, err := os.ReadDir(f.opts.Dir)
	if err != nil {
		return err
	}
	args := []string{"-czf", file, "-C", f.opts.Dir, "./tasks.md", "./jobs.md"}
	for _, e := range entries {
		isLeftOut := slices.Contains(notBackedUp, e.Name()) || durable.IsTemp(e.Name()) || e.Name() == without
		if name := "./" + e.Name(); !isLeftOut && !slices.Contains(args, name) && (e.IsDir() || e.Type().IsRegular()) {
			args = append(args, name)
		}
	}
	err = keep(file, func() error {
		err := run(ctx, nil, "tar", args...)
		if exit, _ := errors.AsType[*exec.ExitError](err); exit != nil && exit.ExitCode() == 1 {
			err = nil // a file grew meanwhile: what was appended is of the next backup
		}
		return err
	})
	if err == nil {
		err = run(ctx, nil, "tar", "-xzf", file, "-C", restored)
	}
	return err
}
