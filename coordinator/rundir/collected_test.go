package rundir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBadCollectedPaths: whatever stands in the ledger, and whatever an agent has put into the directory of
// its run, nothing but a file of that directory is opened, and nothing is waited for.
func TestBadCollectedPaths(t *testing.T) {
	p := newPlace(t)
	run := p.run
	p.work = filepath.Join(run, FilesName)
	paths := append(p.hostile(), badPaths(p.work, p.outside)...)
	if len(paths) < 120 {
		t.Errorf("%d paths, want 120", len(paths))
	}
	begun := time.Now()
	for _, path := range paths {
		if f, _, err := OpenCollected(run, path); err == nil {
			t.Errorf("%.60q was opened", path)
			p.must(f.Close())
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	f, fi, err := OpenCollected(run, "results.txt")
	p.must(err)
	text, err := io.ReadAll(f)
	if p.must(err, f.Close()); string(text) != "fine" || fi.Size() != 4 {
		t.Errorf("%q, %d bytes", text, fi.Size())
	}
}

// TestCollectedDirectoryIsReplaced: the directory itself may be another thing.
func TestCollectedDirectoryIsReplaced(t *testing.T) {
	for what, put := range map[string]func(path, outside string) error{
		"link":          func(path, outside string) error { return os.Symlink(outside, path) },
		"link to run":   func(path, _ string) error { return os.Symlink(".", path) },
		"link to other": func(path, _ string) error { return os.Symlink("../other/files", path) },
		"pipe":          func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"file":          func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
		"nothing":       func(string, string) error { return nil },
	} {
		p := newPlace(t)
		run := p.run
		files := filepath.Join(run, FilesName)
		elsewhere := filepath.Join(filepath.Dir(p.run), "link")
		p.must(put(elsewhere, p.outside))
		if f, _, err := OpenCollected(elsewhere, "secret"); err == nil {
			t.Errorf("%s in the place of a run: a file was opened", what)
			p.must(f.Close())
		}
		other := filepath.Join(filepath.Join(filepath.Dir(p.run), "other"), FilesName)
		p.must(os.Remove(files), put(files, p.outside), os.MkdirAll(other, 0o700))
		for _, name := range []string{"secret", "run.json"} {
			p.must(os.WriteFile(filepath.Join(run, name), []byte(secret), 0o600), os.WriteFile(filepath.Join(other, name), []byte(secret), 0o600))
			if f, _, err := OpenCollected(run, name); err == nil {
				t.Errorf("%s: %s was opened", what, name)
				p.must(f.Close())
			}
		}
	}
}

// TestCollectedSwappedWhileRead: something that exchanges a file for a link, again and
// again, never makes us open what lies outside.
func TestCollectedSwappedWhileRead(t *testing.T) {
	p := newPlace(t)
	run := p.run
	p.work = filepath.Join(run, FilesName)
	p.write("file", "mine")
	p.must(os.Symlink(filepath.Join(p.outside, "secret"), p.in("link")), syscall.Mkfifo(p.in("pipe"), 0o600), os.Link(filepath.Join(p.outside, "secret"), p.in("hard")))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, name := range []string{"file", "link", "pipe", "hard"} {
				_ = errors.Join(os.Rename(p.in(name), p.in("f")), os.Rename(p.in("f"), p.in(name)))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	opened := 0
	for range 10_000 {
		f, _, err := OpenCollected(run, "f")
		if err != nil {
			continue
		}
		opened++
		text, err := io.ReadAll(f)
		if p.must(err, f.Close()); strings.Contains(string(text), secret) {
			t.Fatalf("read %q", text)
		}
	}
	close(stop)
	<-ended
	if opened == 0 {
		t.Error("the file itself was never there: nothing was tried")
	}
}
