package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadWorkDirs: a work_dir that is not ours alone is refused with a sentence, before anything is made.
func TestBadWorkDirs(t *testing.T) {
	p := newPlace(t)
	top := filepath.Dir(p.work)
	in := func(path string) string { return filepath.Join(top, path) }
	p.must(os.Symlink(p.work, in("link")), os.Symlink("nowhere", in("dangling")), os.WriteFile(in("file"), nil, 0o600))
	p.must(os.Mkdir(in("open"), 0o700), os.Chmod(in("open"), 0o777), os.Mkdir(in("other"), 0o700))
	cases := map[string]string{
		"relative": "no absolute path", "": "no absolute path", p.work + "/": "shortest form", p.work + "/../work": "shortest form",
		in("state"): "must lie apart", in("state/new/deep"): "must lie apart", top: "must lie apart",
		in("link"): "symbolic link; name the directory itself: " + p.work, in("link/new"): "symbolic link; name the directory itself: " + p.work + "/new", in("dangling"): "cannot be used",
		in("file"): "cannot be", in("file/new"): "cannot be used", in("open"): "others can write to it (mode 0777)",
	}
	if os.Geteuid() == 0 { // only then can a directory be given away
		p.must(os.Chown(in("other"), 1, 1))
		cases[in("other")] = "belongs to another user"
	}
	for dir, want := range cases {
		root, err := OpenWork(dir, in("state"))
		if err == nil {
			p.must(root.Close())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
	}
	for _, path := range []string{"state/new", "work/new", "nowhere"} {
		if _, err := os.Lstat(in(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made: %v", path, err)
		}
	}
	root, err := OpenWork(in("new/deep/work"), in("state"))
	p.must(err)
	fi, err := root.Stat(".")
	p.must(err, root.Close())
	if fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", fi.Mode())
	}
}

// TestRemoveTree: what an agent has left is removed, directories that nobody may write to as well,
// and no link is followed, also if it is put in the place of a directory meanwhile.
func TestRemoveTree(t *testing.T) {
	p := newTemp(t)
	root, err := openRoot(filepath.Dir(p.work))
	p.must(err)
	defer func() { p.must(root.Close()) }()
	p.write("pkg/mod/file", "x")
	p.must(os.Symlink(p.outside, p.in("pkg/out")), os.Chmod(p.in("pkg/mod"), 0o500), os.Chmod(p.in("pkg"), 0))
	p.must(RemoveTree(root, "id"))
	p.wantOutside()

	for range 200 {
		p.write("d/e/secret", "mine")
		p.must(os.Symlink(p.outside, p.in("link")))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 20 {
				_ = errors.Join(os.Rename(p.in("d"), p.in("d2")), os.Rename(p.in("link"), p.in("d")), os.Rename(p.in("d"), p.in("link")), os.Rename(p.in("d2"), p.in("d")))
			}
		}()
		_ = RemoveTree(root, "id") // which may find what is new
		<-ended
		p.wantOutside()
		p.must(RemoveTree(root, "id"))
	}
}
