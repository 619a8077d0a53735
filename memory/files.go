package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxNotes bounds how many files are searched.
const maxNotes = 10_000

// maxSkipped bounds how many of those that are left out are listed.
const maxSkipped = 20

// maxLooked is how many files are opened before the search; of more, those that have a line that is found.
const maxLooked = 64

// A note is a file that is searched.
type note struct {
	path   string // below the workspace, with slashes
	size   int64  // about
	looked bool   // it is a text that can be read
}

// A candidate is a file that a path names.
type candidate struct {
	name    string
	regular bool // it is known to be a regular file and no link
}

// A finder gathers the files of a search.
type finder struct {
	root    *os.Root // keeps links from leading outside
	notes   []note
	skipped []Skipped
	seen    map[string]bool
}

// findNotes returns the files that the paths name, each once, in their order but for those of megabytes, which are last:
// whatever time they take, the others have been searched before. It also returns what was left out.
func findNotes(ctx context.Context, root *os.Root, paths []string, lessons string) ([]note, []Skipped) {
	f := &finder{root: root, seen: map[string]bool{}}
	for _, p := range paths {
		f.path(ctx, p, slices.Contains(DefaultPaths, p))
	}
	if lessons != "" {
		f.path(ctx, lessons, true)
	}
	slices.SortStableFunc(f.notes, func(a, b note) int { return cmp.Compare(a.size>>20, b.size>>20) })
	return f.notes, f.skipped
}

// IsUnseen reports whether a character breaks a line, drives a terminal or reorders what is shown.
func IsUnseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

func (f *finder) skip(p, format string, args ...any) {
	if len(f.skipped) < maxSkipped {
		f.skipped = append(f.skipped, Skipped{p, fmt.Sprintf(format, args...)})
	}
}

// path takes the files that one path names. One that need not exist is not missed.
func (f *finder) path(ctx context.Context, p string, optional bool) {
	clean := filepath.ToSlash(filepath.Clean(p))
	if !filepath.IsLocal(clean) {
		f.skip(p, "it is not inside the workspace")
		return
	}
	names := f.expand(ctx, clean)
	switch {
	case ctx.Err() != nil:
		f.skip(p, "it takes too long to find its files; name those of the notes")
	case len(names) == 0 && !optional:
		f.skip(p, "there is no such file")
	}
	for _, c := range names {
		if f.seen[c.name] {
			continue
		}
		f.seen[c.name] = true
		if len(f.notes) == maxNotes {
			f.skip(c.name, "there are more than %d files", maxNotes)
			return
		}
		n, err := f.note(c)
		if err != nil {
			f.skip(c.name, "%v", err)
			continue
		}
		f.notes = append(f.notes, n)
	}
}

// note reports whether a file can be searched. Of many regular files the first ones say how large the others are.
func (f *finder) note(c candidate) (note, error) {
	if !utf8.ValidString(c.name) || strings.ContainsFunc(c.name, IsUnseen) {
		return note{}, errors.New("its name has characters that cannot be shown")
	}
	if n := len(f.notes); n >= maxLooked && c.regular {
		return note{path: c.name, size: f.notes[n%maxLooked].size}, nil
	}
	return look(f.root, c.name)
}

// expand returns the names of the files that a pattern names, sorted. A directory stands for the Markdown files below it.
func (f *finder) expand(ctx context.Context, pattern string) []candidate {
	if fi, err := f.root.Stat(pattern); err == nil && fi.IsDir() {
		pattern = path.Join(pattern, "**", "*.md")
	}
	if !strings.ContainsAny(pattern, "*?[") {
		if _, err := f.root.Lstat(pattern); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return []candidate{{name: pattern}}
	}
	parts := slices.CompactFunc(strings.Split(pattern, "/"), func(a, b string) bool { return a == "**" && b == "**" })
	fixed := 0
	for fixed < len(parts)-1 && !strings.ContainsAny(parts[fixed], "*?[") {
		fixed++
	}
	deep := slices.Contains(parts, "**")
	var names []candidate
	top := path.Join(append([]string{"."}, parts[:fixed]...)...)
	_ = fs.WalkDir(rootNames{f.root.FS(), f.root}, top, func(name string, d fs.DirEntry, err error) error { // it returns no error but ours
		switch {
		case len(names) > maxNotes || ctx.Err() != nil:
			return fs.SkipAll
		case err != nil && name == top && !errors.Is(err, fs.ErrNotExist):
			names = append(names, candidate{name: name}) // to report why it cannot be read
			return nil
		case err != nil:
			return nil // what cannot be read has no notes
		case d.IsDir() && (d.Name() == ".git" || name != top && strings.Count(name, "/")+1 >= len(parts) && !deep):
			return fs.SkipDir
		case !d.IsDir() && matches(parts, strings.Split(name, "/")):
			names = append(names, candidate{name, d.Type().IsRegular()})
		}
		return nil
	})
	return names
}

// rootNames are the files of a root. Unlike its own file system it does not ask for what each name of a directory is.
type rootNames struct {
	fs.FS
	root *os.Root
}

func (n rootNames) ReadDir(name string) ([]fs.DirEntry, error) {
	in, err := n.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read from
	fd, err := unix.FcntlInt(in.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer func() { _ = dir.Close() }()
	list, err := dir.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// matches reports whether the parts of a name fit those of a pattern.
func matches(pattern, name []string) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	if pattern[0] == "**" {
		return matches(pattern[1:], name) || len(name) > 0 && matches(pattern, name[1:])
	}
	if len(name) == 0 {
		return false
	}
	ok, err := path.Match(pattern[0], name[0])
	return ok && err == nil && matches(pattern[1:], name[1:])
}

// look reports whether a file can be searched: a text, in the workspace.
func look(root *os.Root, name string) (note, error) {
	f, fi, err := openNote(root, name)
	if err != nil {
		return note{}, err
	}
	defer func() { _ = f.Close() }() // only read from
	head := make([]byte, 8000)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return note{}, fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
	}
	if bytes.IndexByte(head[:n], 0) >= 0 {
		return note{}, errors.New("it is no text: it has NUL bytes")
	}
	return note{name, fi.Size(), true}, nil
}

// openNote opens a file of the workspace to be read, and returns its state then. It does not wait for the other end of a pipe.
func openNote(root *os.Root, name string) (f *os.File, fi fs.FileInfo, err error) {
	f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil { // also of a link that leads nowhere, or out of the workspace
		return nil, nil, fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
	}
	if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close() // only read from
		return nil, nil, errors.New("it is no regular file")
	}
	return f, fi, nil
}
