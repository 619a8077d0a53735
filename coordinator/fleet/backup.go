package fleet

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// Backup is where backups go, and how they are made.
type Backup struct {
	Dir    string                                      // has a directory for each
	Keep   time.Duration                               // for how long
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

// notBackedUp are the names in a state directory that a backup leaves out: secrets, what a master makes anew, and the
// directories of runs, whose answers and ends the ledger has.
var notBackedUp = []string{"token", "bots", "lock", "heartbeat.json", "runs", "master.log", "master.log.1"}

// backUp is the job db_backup. A backup counts once it was restored, and until then has no name of its own.
func (f *Fleet) backUp(ctx context.Context) (detail string, err error) {
	b, now := &f.opts.Backup, f.opts.Now().UTC()
	partial, dir := filepath.Join(b.Dir, partialName), filepath.Join(b.Dir, now.Format(backupTime))
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, durable.DirMode)); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(partial)) }() // what was not whole, or what it was restored to
	whole := filepath.Join(partial, "whole")
	if err := os.Mkdir(whole, durable.DirMode); err != nil {
		return "", err
	}
	if b.Database != nil {
		if err := b.dump(ctx, filepath.Join(whole, dumpName)); err != nil {
			return "", fmt.Errorf("the database was not backed up: %w", err)
		}
	}
	archive, restored := filepath.Join(whole, stateName), filepath.Join(partial, "restored")
	err = pack(ctx, f.opts.Dir, b.Dir, archive)
	if err == nil {
		err = unpack(archive, restored)
	}
	if err == nil {
		err = b.Verify(ctx, restored)
	}
	if err != nil {
		return "", fmt.Errorf("the state directory was not backed up: %w", err)
	}
	if err := os.Rename(whole, dir); err != nil {
		return "", err
	}
	if err := durable.OS.SyncDir(b.Dir); err != nil {
		return "", err
	}
	fi, err := os.Stat(filepath.Join(dir, stateName))
	if err != nil {
		return "", err
	}
	detail = fmt.Sprintf("%s, verified by restoring: state of %d KiB", dir, fi.Size()>>10)
	if b.Database != nil {
		detail += ", and the database"
	}
	return detail, f.dropOld(now)
}

// dropOld removes backups that are older than those that are kept.
func (f *Fleet) dropOld(now time.Time) (err error) {
	entries, err := os.ReadDir(f.opts.Backup.Dir)
	for _, e := range entries {
		if at, wrong := time.Parse(backupTime, e.Name()); wrong == nil && now.Sub(at) >= f.opts.Backup.Keep {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.opts.Backup.Dir, e.Name())))
		}
	}
	return err
}

// dump writes a dump of the database, and restores it into another one, which it removes.
func (b *Backup) dump(ctx context.Context, file string) (err error) {
	other := fmt.Sprintf("stint_restore_%d", os.Getpid())
	from, env, err := b.Database("")
	to, _, wrong := b.Database(other)
	if err = cmp.Or(err, wrong); err != nil {
		return err
	}
	if err := run(ctx, env, "pg_dump", "--format=custom", "--file="+file, "--dbname="+from); err != nil {
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

// run runs one of PostgreSQL's programs.
func run(ctx context.Context, env []string, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	complaint := &bounded{most: maxAnswer}
	cmd.Env, cmd.Stderr, cmd.WaitDelay = env, complaint, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %s (%w)", program, cmp.Or(task.OneSentence(complaint.String(), maxComplain), "no word about it"), err)
	}
	return nil
}

// pack writes the state directory as a compressed archive, without where backups lie. tasks.md comes before the journal, which
// is its superset then, as after a crash.
func pack(ctx context.Context, state, backups, file string) (err error) {
	out, err := durable.Open(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, first := range []string{"tasks.md", "jobs.md"} {
		if err := packOne(archive, filepath.Join(state, first), first); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	err = filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(state, path) // it is below it
		isLeftOut := path == backups || slices.Contains(notBackedUp, rel) || strings.HasSuffix(rel, ".lock")
		switch {
		case errors.Is(err, fs.ErrNotExist) || rel == "." || rel == "tasks.md" || rel == "jobs.md": // gone meanwhile, or there already
			return nil
		case err != nil || ctx.Err() != nil:
			return cmp.Or(err, ctx.Err())
		case d.IsDir() && isLeftOut:
			return fs.SkipDir
		case d.IsDir():
			return archive.WriteHeader(&tar.Header{Name: filepath.ToSlash(rel) + "/", Mode: int64(durable.DirMode)})
		case isLeftOut || !d.Type().IsRegular() || durable.IsTemp(d.Name()):
			return nil
		}
		if err := packOne(archive, path, rel); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	return errors.Join(err, archive.Close(), zipped.Close(), out.Sync())
}

// packOne adds a file to an archive.
func packOne(archive *tar.Writer, path, rel string) error {
	in, err := durable.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	head, err := tar.FileInfoHeader(fi, "")
	if err != nil {
		return err
	}
	head.Name = filepath.ToSlash(rel)
	if err := archive.WriteHeader(head); err != nil {
		return err
	}
	_, err = io.CopyN(archive, in, fi.Size()) // what is appended meanwhile is of the next backup
	return err
}

// unpack restores an archive of pack into a new directory.
func unpack(file, dir string) (err error) {
	in, err := durable.Open(file, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	if err := os.Mkdir(dir, durable.DirMode); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(zipped); ; {
		head, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil && strings.HasSuffix(head.Name, "/") {
			err = root.MkdirAll(head.Name, durable.DirMode)
		} else if err == nil {
			var out *os.File
			if out, err = root.OpenFile(head.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode); err == nil {
				_, err = io.Copy(out, archive)
				err = errors.Join(err, out.Close())
			}
		}
		if err != nil {
			return err
		}
	}
}
