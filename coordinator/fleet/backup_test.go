package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/schedule/due"
	"stint/state/jobs"
)

// names returns the names in a directory.
func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// newBackups returns a world whose state directory is backed up, with a job and files that are secret or made anew.
func newBackups(t testing.TB, dir string) *world {
	w := newWorld(t, func(o *Options) {
		o.Backup = Backup{Dir: dir, Keep: 7 * 24 * time.Hour, Verify: func(ctx context.Context, dir string) error { // as a master reads it
			room, err := due.Open(due.Options{Dir: dir, Now: func() time.Time { return start }, NewID: func() string { return "" }})
			if err == nil && len(room.Where(func(*jobs.Job) bool { return true })) != 1 {
				err = errors.New("there is no job")
			}
			return errors.Join(err, room.Close())
		}}
	}, Instance{ID: "a", Server: "s", ConfigPath: "/c", Service: "a", Gateway: "http://g"})
	if dir == "" {
		w.opts.Backup.Dir = filepath.Join(w.dir, "backups")
	}
	_, _, err := w.due.Enqueue(t.Context(), jobs.Spec{ObjectType: "memory", ObjectID: "m", Action: "verify", RunAt: start})
	must(t, err)
	for name, text := range map[string]string{"token": secret, "runs/r/prompt.md": secret, "sessions/s.jsonl": "{}\n", "archive/index": "", "tasks.md": "# Tasks\n"} {
		path := filepath.Join(w.dir, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(w.dir, "link")))
	return w
}

func TestBackup(t *testing.T) {
	t.Parallel()
	w := newBackups(t, "")
	dir := w.opts.Backup.Dir
	w.well("db_backup", fmt.Sprintf("%s/2026-11-29T120000Z, verified by restoring", dir))
	archive := filepath.Join(dir, "2026-11-29T120000Z", stateName)
	out, err := exec.Command("tar", "-tzf", archive).Output()
	must(t, err)
	list := strings.Fields(string(out))
	slices.Sort(list)
	if want := []string{"./archive/", "./archive/index", "./format", "./jobs.journal.md", "./jobs.md", "./sessions/", "./sessions/s.jsonl", "./tasks.md"}; !slices.Equal(list, want) {
		t.Errorf("%q, not %q", list, want)
	}
	if fi, err := os.Stat(archive); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600)) // what is no backup stays
	w.pass(7*24*time.Hour - time.Second)
	_, err = w.job("db_backup")
	must(t, err)
	w.pass(time.Second)
	_, err = w.job("db_backup")
	must(t, err)
	if got, want := names(t, dir), []string{"2026-12-06T115959Z", "2026-12-06T120000Z", "notes"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	for _, bad := range []string{w.dir, filepath.Join(w.dir, "sessions", "b")} {
		w.opts.Backup.Dir = bad
		w.fails("db_backup", "a backup would have those before it")
	}
	w.opts.Backup.Dir = dir
	w.fails("db_backup", "file exists") // never in place of another
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// TestBackupPlaces: no way of writing the place of backups lets one have those before it, none is removed as it is made, and
// two at one time are two.
func TestBackupPlaces(t *testing.T) {
	t.Parallel()
	w := newBackups(t, "")
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(w.dir, link))
	w.opts.Backup.Keep = 0
	for _, dir := range []string{"/backups/", "/sessions/../backups", "/./backups", "//backups"} {
		for _, root := range []string{w.dir, link} {
			w.opts.Backup.Dir = root + dir
			w.pass(time.Second)
			w.well("db_backup", filepath.Join(root, "backups", w.clock().Format(backupTime))+", verified by restoring")
		}
	}
	list := names(t, filepath.Join(w.dir, "backups"))
	for _, name := range list {
		out, err := exec.Command("tar", "-tzf", filepath.Join(w.dir, "backups", name, stateName)).Output()
		if must(t, err); strings.Contains(string(out), "backups") || !strings.Contains(string(out), "jobs.md") {
			t.Errorf("%s has %s", name, out)
		}
	}
	if len(list) != 8 {
		t.Errorf("%q", list)
	}
	for _, bad := range []string{link, link + "/", link + "/sessions/b", w.dir + "/."} {
		w.opts.Backup.Dir = bad
		w.fails("db_backup", "a backup would have those before it")
	}
	for bad, want := range map[string]string{w.dir + "/format": "not a directory", "/proc/none": "/proc/none: no such file or directory"} {
		w.opts.Backup.Dir = bad
		w.fails("db_backup", want)
	}

	w.opts.Backup.Dir = filepath.Join(w.dir, "backups")
	w.pass(time.Second)
	verify := w.opts.Backup.Verify
	w.opts.Backup.Verify = func(ctx context.Context, dir string) error {
		w.pass(time.Second)
		time.Sleep(10 * time.Millisecond) // the other one could spoil it
		return verify(ctx, dir)
	}
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			if _, err := w.job("db_backup"); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if list := names(t, w.opts.Backup.Dir); len(list) != 12 {
		t.Errorf("%q", list)
	}
}

// TestBackupFails leaves nothing that looks like a backup, and the older ones.
func TestBackupFails(t *testing.T) {
	t.Parallel()
	small := filepath.Join(t.TempDir(), "small")
	disk(t, small)
	w := newBackups(t, small)
	_, err := w.job("db_backup")
	must(t, err)
	noise := make([]byte, 100<<10)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		noise[i] = byte(x)
	}
	w.pass(30 * 24 * time.Hour)
	must(t, os.WriteFile(filepath.Join(w.dir, "much"), noise, 0o600))
	w.fails("db_backup", "the state directory was not backed up: ", "No space left on device")
	must(t, os.Remove(filepath.Join(w.dir, "much")))
	verify := w.opts.Backup.Verify
	w.opts.Backup.Verify = func(context.Context, string) error { return errors.New("damaged") }
	w.fails("db_backup", "the state directory was not backed up: damaged")
	w.opts.Backup.Verify = verify
	if got, want := names(t, small), []string{"2026-11-29T120000Z"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	_, err = w.job("db_backup")
	if must(t, err); len(names(t, small)) != 1 {
		t.Errorf("%q", names(t, small))
	}
}

// TestBackupOfADatabase dumps a real database, and restores it twice: the job itself, and this test.
func TestBackupOfADatabase(t *testing.T) {
	t.Parallel()
	s := postgrestest.Shared(t)
	name := s.NewDatabase(t)
	sql := func(database, statement string) string {
		t.Helper()
		out, err := exec.Command("psql", "-XAtq", "-c", statement, s.URL(database)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", statement, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	sql(name, "CREATE TABLE tasks (id int PRIMARY KEY, prompt text); INSERT INTO tasks SELECT n, 'it''s '||n FROM generate_series(1, 1000) n")
	w := newBackups(t, "")
	w.opts.Backup.Database = func(other string) (string, []string, error) {
		return dsn.ForPrograms(strings.Replace(s.URL(name), "postgres@", "postgres:"+secret+"@", 1), other)
	}
	dir := filepath.Join(w.opts.Backup.Dir, "2026-11-29T120000Z")
	w.well("db_backup", dir+", verified by restoring")
	restored := s.NewDatabase(t)
	out, err := exec.Command("pg_restore", "--exit-on-error", "--dbname="+s.URL(restored), filepath.Join(dir, dumpName)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if fi, err := os.Stat(filepath.Join(dir, dumpName)); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	const sum = "SELECT count(*), md5(string_agg(id||prompt, ',' ORDER BY id)) FROM tasks"
	if was, now := sql(name, sum), sql(restored, sum); was != now || !strings.HasPrefix(now, "1000|") {
		t.Errorf("%s, not %s", now, was)
	}
	const left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'stint_restore%'"
	if n := sql(name, left); n != "0" {
		t.Errorf("%s databases are left", n)
	}

	w.pass(time.Hour)
	database := w.opts.Backup.Database
	w.opts.Backup.Database = func(other string) (string, []string, error) { // restored to where such a table is already
		if other != "" {
			other = restored
		}
		return database(other)
	}
	w.fails("db_backup", "the database was not backed up: pg_restore: ", "already exists")
	w.opts.Backup.Database = func(string) (string, []string, error) { return s.URL("none"), nil, nil }
	w.fails("db_backup", "the database was not backed up: pg_dump: ", `database "none" does not exist`)
	w.opts.Backup.Database = func(string) (string, []string, error) { return "", nil, errors.New("it has no URL") }
	w.fails("db_backup", "it has no URL")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.opts.Backup.Database = database
	if _, err := w.Jobs()["db_backup"](ctx); err == nil {
		t.Error("a backup that was interrupted counts")
	}
	if got := names(t, w.opts.Backup.Dir); !slices.Equal(got, []string{"2026-11-29T120000Z"}) || sql(name, left) != "0" {
		t.Errorf("%q", got)
	}

	w.opts.Backup.Database = func(other string) (string, []string, error) {
		if other != "" && sql(name, "SELECT count(*) FROM pg_database WHERE datname = '"+other+"'") == "0" {
			sql(name, "CREATE DATABASE "+other) // as a crash leaves it
		}
		return database(other)
	}
	w.well("db_backup", filepath.Join(w.opts.Backup.Dir, "2026-11-29T130000Z")+", verified by restoring")
	if sql(name, left) != "0" {
		t.Error("what a crash has left is still there")
	}
}
