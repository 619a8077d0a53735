package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var errInjected = errors.New("injected")

// A faultFS records every operation on the file system below it and lets the
// failAt-th one fail (counted from 1; 0: none).
type faultFS struct {
	FS
	root   string // left out of the names in ops
	failAt int
	failed string // the operation that failed
	ops    []string
}

// randomPart is what differs between the temporary names of one file.
var randomPart = regexp.MustCompile(`\.stint-[0-9a-f]{16}`)

// do makes a call, unless it is the one that fails.
func (f *faultFS) do(call func() error, op string, names ...string) error {
	for i, n := range names {
		names[i] = randomPart.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(n, f.root), "/"), "")
	}
	op = strings.TrimSpace(op + " " + strings.Join(names, " "))
	f.ops = append(f.ops, op)
	if len(f.ops) == f.failAt {
		f.failed = op
		return fmt.Errorf("%s: %w", op, errInjected)
	}
	return call()
}

func nothing() error { return nil }

func (f *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := f.do(nothing, "open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFS) Rename(oldname, newname string) error {
	return f.do(func() error { return f.FS.Rename(oldname, newname) }, "rename", oldname, newname)
}

func (f *faultFS) Exchange(a, b string) error {
	return f.do(func() error { return f.FS.Exchange(a, b) }, "exchange", a, b)
}

func (f *faultFS) Remove(name string) error {
	return f.do(func() error { return f.FS.Remove(name) }, "remove", name)
}

func (f *faultFS) Mkdir(name string, perm fs.FileMode) error {
	return f.do(func() error { return f.FS.Mkdir(name, perm) }, "mkdir", name)
}

func (f *faultFS) SyncDir(name string) error {
	return f.do(func() error { return f.FS.SyncDir(name) }, "syncdir", name)
}

type faultFile struct {
	File
	fs *faultFS
}

// Write fails as a full disk does: with a part of the bytes written.
func (f *faultFile) Write(p []byte) (int, error) {
	if err := f.fs.do(nothing, "write"); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		return n, errors.Join(err, werr)
	}
	return f.File.Write(p)
}

func (f *faultFile) Sync() error { return f.fs.do(f.File.Sync, "sync") }

// Close fails as close(2) does: the descriptor is gone all the same.
func (f *faultFile) Close() error {
	return errors.Join(f.fs.do(nothing, "close"), f.File.Close())
}

// Whichever operation fails, WriteFile says so and a reader sees the whole old content, except when only the
// directory could not be synced: then the new content stands there, whole, but may be gone after a power cut.
func TestWriteFileFaults(t *testing.T) {
	for _, old := range []string{"", "old content"} {
		ops := []string{"open a.tmp", "write", "sync", "close", "rename a.tmp a", "syncdir"} // so a reader always sees a whole file
		for n := 1; n <= len(ops)+1; n++ {
			dir := t.TempDir()
			name := filepath.Join(dir, "a")
			if old != "" {
				writeOld(t, name, old)
			}
			fsys := &faultFS{FS: OS, root: dir, failAt: n}
			err := WriteFile(fsys, name, []byte("new"))
			if n > len(ops) {
				if diff := cmp.Diff(ops, fsys.ops); err != nil || diff != "" {
					t.Fatalf("without a fault: %v, operations (-want +got):\n%s", err, diff)
				}
				continue
			}
			if !errors.Is(err, errInjected) {
				t.Errorf("%s fails: WriteFile gives %v", fsys.failed, err)
			}
			want := old
			if fsys.failed == "syncdir" {
				want = "new"
			}
			if got := content(t, name); got != want {
				t.Errorf("%s fails: the file has %q, want %q", fsys.failed, got, want)
			}
			if got := temps(t, dir); len(got) > 0 {
				t.Errorf("%s fails: %q is left behind", fsys.failed, got)
			}
			// What a fault left behind does not disturb the next write.
			if err := WriteFile(OS, name, []byte("newer")); err != nil || content(t, name) != "newer" {
				t.Errorf("%s failed: next write %v", fsys.failed, err)
			}
		}
	}
}

func writeOld(t *testing.T, name, data string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(data), 0o600))
}

// temps returns the temporary files in a directory.
func temps(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	must(t, err)
	return names
}

// content returns what is in a file, "" if there is none.
func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// When even Remove fails, the error is that of the write. The half file left behind is
// removed once it is old.
func TestWriteFileRemoveFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	writeOld(t, name, "old")
	fsys := &keepFS{faultFS{FS: OS, root: dir, failAt: 2}}
	err := WriteFile(fsys, name, []byte("much longer new content"))
	if !errors.Is(err, errInjected) || errors.Is(err, errKept) {
		t.Errorf("got %v, want the write's error", err)
	}
	if content(t, name) != "old" || len(temps(t, dir)) != 1 {
		t.Errorf("file %q, temporary files %q", content(t, name), temps(t, dir))
	}
	if err := WriteFile(OS, name, []byte("new")); err != nil || content(t, name) != "new" {
		t.Errorf("next write: %v, file %q", err, content(t, name))
	}
	if err := RemoveTemps(dir, time.Now().Add(time.Second)); err != nil || len(temps(t, dir)) > 0 {
		t.Errorf("%v, left: %q", err, temps(t, dir))
	}
}

// RemoveTemps removes our temporary files that are old, and nothing else.
func TestRemoveTemps(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	old := TempName(filepath.Join(dir, "token"))
	kept := []string{TempName(filepath.Join(dir, "token")), filepath.Join(dir, "tasks.md.tmp"), filepath.Join(dir, ".tasks.md.stint-1"), TempName(filepath.Join(dir, "d"))}
	for _, name := range append(kept[:3:3], old) {
		writeOld(t, name, "x")
	}
	must(t, os.Mkdir(kept[3], DirMode))
	for _, name := range append(kept[1:], old) {
		must(t, os.Chtimes(name, now, now.Add(-2*time.Hour)))
	}
	if err := RemoveTemps(dir, now.Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, filepath.Join(dir, e.Name()))
	}
	slices.Sort(kept)
	if diff := cmp.Diff(kept, left); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

var errKept = errors.New("cannot remove")

type keepFS struct{ faultFS }

func (*keepFS) Remove(string) error { return errKept }

func TestWriteFileContentAndMode(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	name := filepath.Join(t.TempDir(), "a")
	for _, data := range [][]byte{bytes.Repeat([]byte("x\x00\r\n"), 1<<18), []byte("short"), nil} {
		must(t, WriteFile(OS, name, data))
		got, err := ReadFile(OS, name)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("wrote %d bytes, read %d, %v", len(data), len(got), err)
		}
		if fi, err := os.Stat(name); err != nil || fi.Mode() != FileMode {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := t.TempDir()
	fsys := &faultFS{FS: OS, root: dir}
	must(t, MkdirAll(fsys, filepath.Join(dir, "a", "b", "c")))
	want := []string{"mkdir a", "syncdir", "mkdir a/b", "syncdir a", "mkdir a/b/c", "syncdir a/b"}
	if diff := cmp.Diff(want, fsys.ops); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	for _, name := range []string{"a", "a/b", "a/b/c"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != DirMode|fs.ModeDir {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	for n := range want { // whichever fails: that is said, and the next call goes on
		dir := t.TempDir()
		name, fsys := filepath.Join(dir, "a", "b", "c"), &faultFS{FS: OS, root: dir, failAt: n + 1}
		if err := MkdirAll(fsys, name); !errors.Is(err, errInjected) {
			t.Errorf("%s fails: %v", fsys.failed, err)
		}
		if err := MkdirAll(OS, name); err != nil {
			t.Errorf("%s failed: second call: %v", fsys.failed, err)
		}
	}
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o755))
	fsys.ops = nil
	if err := MkdirAll(fsys, filepath.Join(dir, "a")); err != nil || fsys.ops != nil {
		t.Errorf("a directory that exists: %v after %v", err, fsys.ops)
	}
	if fi, err := os.Stat(filepath.Join(dir, "a")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("what exists was changed: %v, %v", fi.Mode(), err)
	}
}

func TestMkdirAllErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeOld(t, file, "x")
	for _, name := range []string{file, filepath.Join(file, "below"), filepath.Join(file, "far", "below")} {
		if err := MkdirAll(OS, name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	racer := &raceFS{OS}
	if err := MkdirAll(racer, filepath.Join(dir, "x", "y")); err != nil {
		t.Errorf("somebody else makes the same directories: %v", err)
	}
}

// raceFS is a file system in which somebody else is always a little faster.
type raceFS struct{ FS }

func (r *raceFS) Mkdir(name string, perm fs.FileMode) error {
	return errors.Join(r.FS.Mkdir(name, perm), r.FS.Mkdir(name, perm))
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadFile(OS, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadFile(OS, dir); err == nil {
		t.Error("a directory was read")
	}
	name := filepath.Join(dir, "a")
	writeOld(t, name, "x")
	fsys := &faultFS{FS: OS, root: dir, failAt: 2}
	if _, err := ReadFile(fsys, name); !errors.Is(err, errInjected) || !slices.Equal(fsys.ops, []string{"open a", "close"}) {
		t.Errorf("close fails: %v after %v", err, fsys.ops)
	}
}

// TestOSFile: what is synced can be read, and what cannot be synced is said.
func TestOSFile(t *testing.T) {
	dir := t.TempDir()
	f, err := OS.OpenFile(filepath.Join(dir, "a"), os.O_RDWR|os.O_CREATE, FileMode)
	must(t, err)
	_, err = f.Write([]byte("0123456789"))
	if err = errors.Join(err, f.Datasync(), f.Truncate(4), f.Sync(), OS.SyncDir(dir), f.Close()); err != nil || content(t, filepath.Join(dir, "a")) != "0123" {
		t.Errorf("%v, content %q", err, content(t, filepath.Join(dir, "a")))
	}
	if err := f.Datasync(); err == nil {
		t.Error("a closed file was synced")
	}
	if err := OS.SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SyncDir of nothing: %v", err)
	}
}

// TestExchange: the same with one call and without one.
func TestExchange(t *testing.T) {
	t.Parallel()
	for name, exchange := range map[string]func(a, b string) error{"exchange": OS.Exchange, "link": exchangeByLink} {
		dir := t.TempDir()
		a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
		writeOld(t, a, "one")
		writeOld(t, b, "two")
		if err := exchange(a, b); err != nil || content(t, a) != "two" || content(t, b) != "one" {
			t.Errorf("%s: %v; then %q and %q", name, err, content(t, a), content(t, b))
		}
		must(t, os.Mkdir(c, DirMode))
		if err := exchange(a, c); err != nil || content(t, c) != "two" {
			t.Errorf("%s: with a directory: %v, %q", name, err, content(t, c))
		}
		for _, names := range [][2]string{{c, filepath.Join(dir, "none")}, {filepath.Join(dir, "none"), c}} {
			if err := exchange(names[0], names[1]); !errors.Is(err, fs.ErrNotExist) || content(t, c) != "two" {
				t.Errorf("%s: with a name that is not there: %v, %q", name, err, content(t, c))
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
			t.Errorf("%s: there are %v, %v", name, entries, err)
		}
	}
}
