package memory

import (
	"bytes"
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
	"time"
)

// maxNotes bounds how many files are searched.
const maxNotes = 10_000

// A note is a file that is searched.
type note struct {
	path string // below the workspace, with slashes
	size int64
	mod  time.Time
}

// findNotes gives the files that the paths name, each once, in their order, and
// what was left out. root keeps links from leading outside.
func findNotes(root *os.Root, paths []string) (notes []note, skipped []Skipped) {
	seen := map[string]bool{}
	skip := func(p string, format string, args ...any) {
		skipped = append(skipped, Skipped{p, fmt.Sprintf(format, args...)})
	}
	for _, p := range paths {
		clean := filepath.ToSlash(filepath.Clean(p))
		if !filepath.IsLocal(clean) {
			skip(p, "it is not inside the workspace")
			continue
		}
		names := expand(root, clean)
		if len(names) == 0 && !slices.Contains(DefaultPaths, p) {
			skip(p, "there is no such file")
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			switch n, err := look(root, name); {
			case err != nil:
				skip(name, "%v", err)
			case len(notes) == maxNotes:
				skip(name, "there are more than %d files", maxNotes)
				return notes, skipped
			default:
				notes = append(notes, n)
			}
		}
	}
	return notes, skipped
}

// expand gives the names of the files that a pattern names, sorted. A directory
// stands for the Markdown files below it.
func expand(root *os.Root, pattern string) []string {
	if fi, err := root.Stat(pattern); err == nil && fi.IsDir() {
		pattern = path.Join(pattern, "**", "*.md")
	}
	if !strings.ContainsAny(pattern, "*?[") {
		if _, err := root.Lstat(pattern); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return []string{pattern}
	}
	parts := strings.Split(pattern, "/")
	fixed := 0
	for fixed < len(parts)-1 && !strings.ContainsAny(parts[fixed], "*?[") {
		fixed++
	}
	var names []string
	top := path.Join(append([]string{"."}, parts[:fixed]...)...)
	_ = fs.WalkDir(root.FS(), top, func(name string, d fs.DirEntry, err error) error { // what cannot be read has no notes
		switch {
		case err != nil:
			return nil
		case d.IsDir() && (d.Name() == ".git" || depth(name) >= len(parts) && !strings.Contains(pattern, "**")):
			return fs.SkipDir
		case !d.IsDir() && matches(parts, strings.Split(name, "/")):
			names = append(names, name)
		}
		if len(names) > maxNotes {
			return fs.SkipAll
		}
		return nil
	})
	return names
}

func depth(name string) int {
	if name == "." {
		return 0
	}
	return 1 + strings.Count(name, "/")
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

// look says whether a file can be searched: a text, in the workspace.
func look(root *os.Root, name string) (note, error) {
	fi, err := root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return note{}, errors.New("it is a link that leads to nothing")
	case err != nil && strings.Contains(err.Error(), "escapes"):
		return note{}, errors.New("it is a link that leads out of the workspace")
	case err != nil:
		return note{}, fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
	case !fi.Mode().IsRegular():
		return note{}, errors.New("it is no regular file")
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return note{}, fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
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
	return note{name, fi.Size(), fi.ModTime()}, nil
}
