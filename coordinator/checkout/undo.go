package checkout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A Shell runs a command of sh in the workspace, with that text on stdin, and returns what it
// prints on stdout.
type Shell func(command, stdin string) (string, error)

// An OverlapError says which changes cannot be reversed, as their files have changed since.
type OverlapError struct {
	Files []string // a path and what is wrong with it each
}

// Error returns the list on one line.
func (e *OverlapError) Error() string { return strings.Join(e.Files, "; ") }

// A file is what a tree of git has at a path; without a mode, nothing.
type file struct{ mode, id string }

func (f file) isText() bool { return f.mode == "100644" || f.mode == "100755" }

// A change is what becomes of a path from one tree to another.
type change struct{ from, to file }

// Undo reverses what has changed from the tree before to the tree after onto the files as they are
// now, and returns the paths of the files that it has changed. A file that has changed since is
// merged, as git merges. If that is not possible for all files, no file is changed, and the error
// is an [OverlapError]. What git ignores or does not track is never overwritten, and links are not
// followed. The user's index stays as it is.
func (p *Place) Undo(run Shell, before, after string) (undone []string, err error) {
	raw := "git diff " + diffOptions + "-z --raw --no-abbrev --no-renames --end-of-options "
	out, err := run(p.command(`{ git update-index -q --refresh || :; } >/dev/null && printf '%s\0' "$t" &&
`+raw+Quote(after)+" "+Quote(before)+` -- . && printf 'since\0' && `+raw+Quote(after)+` "$t" -- .`), "")
	if err != nil {
		return nil, err
	}
	now, rest, _ := strings.Cut(out, "\x00")
	u := &undo{place: p, run: run, blobs: map[string]string{}, result: map[string]file{}}
	u.wanted, rest = parseRaw(rest)
	u.since, _ = parseRaw(rest)
	if err := u.read(); err != nil {
		return nil, err
	}
	for path, c := range u.wanted {
		if err := u.decide(path, c); err != nil {
			return nil, err
		}
	}
	if len(u.overlaps) > 0 {
		slices.Sort(u.overlaps)
		return nil, &OverlapError{u.overlaps}
	}
	return u.apply(now)
}

// parseRaw reads the output of git diff -z --raw --no-abbrev --no-renames, by path. rest is what
// follows the field behind it.
func parseRaw(output string) (list map[string]change, rest string) {
	list = map[string]change{}
	for output != "" {
		head, after, _ := strings.Cut(output, "\x00")
		words := strings.Fields(strings.TrimPrefix(head, ":"))
		if len(words) != 5 {
			return list, after
		}
		c := change{file{words[0], words[2]}, file{words[1], words[3]}}
		for _, f := range []*file{&c.from, &c.to} {
			if f.mode == "000000" {
				*f = file{}
			}
		}
		head, output, _ = strings.Cut(after, "\x00")
		list[head] = c
	}
	return list, ""
}

type undo struct {
	place         *Place
	run           Shell
	wanted, since map[string]change // from the tree after: to the one before, to the present one
	blobs         map[string]string
	result        map[string]file // what is to be at each path that changes
	overlaps      []string
}

// git runs git, with the private index of that name.
func (u *undo) git(index, command, stdin string) (string, error) {
	return u.run(prelude(u.place.Root)+"d="+Quote(u.place.Dir)+"; set_config core.excludesFile \"$d/excludes\"; export GIT_INDEX_FILE=\"$d/"+index+"\"\n"+command, stdin)
}

// read reads the content of the files concerned.
func (u *undo) read() error {
	var ids strings.Builder
	for path, c := range u.wanted {
		for _, f := range []file{c.from, c.to, u.since[path].to} {
			if f.isText() {
				ids.WriteString(f.id + "\n")
			}
		}
	}
	out, err := u.git("index", "git cat-file --batch", ids.String())
	for err == nil && out != "" {
		head, rest, _ := strings.Cut(out, "\n")
		var id string
		var size int
		if _, err := fmt.Sscanf(head, "%s blob %d", &id, &size); err != nil || len(rest) <= size {
			return fmt.Errorf("git does not have the file any more: %s", head)
		}
		u.blobs[id], out = rest[:size], rest[size+1:]
	}
	return err
}

// decide finds out what is to be at a path.
func (u *undo) decide(path string, c change) error {
	present := c.from
	if s, changed := u.since[path]; changed {
		present = s.to
	}
	wrong := func(why string) error {
		u.overlaps = append(u.overlaps, path+": "+why)
		return nil
	}
	for _, f := range []file{c.from, c.to} {
		switch {
		case strings.HasPrefix(u.blobs[f.id], notKept):
			return wrong("it is over 10 MiB, and its content was not kept")
		case f.mode == "160000":
			return wrong("it is a submodule")
		}
	}
	if present == c.to {
		return nil
	}
	if why := u.inTheWay(path, present); why != "" {
		return wrong(why)
	}
	if present == c.from {
		u.result[path] = c.to
		return nil
	}
	if !present.isText() || !c.from.isText() || !c.to.isText() {
		return wrong("it has changed since")
	}
	for name, f := range map[string]file{"ours": present, "base": c.from, "theirs": c.to} {
		if err := os.WriteFile(filepath.Join(u.place.Dir, name), []byte(u.blobs[f.id]), 0o600); err != nil {
			return err
		}
	}
	id, err := u.git("index", `git merge-file -p "$d/ours" "$d/base" "$d/theirs" >"$d/merged" && git hash-object -w --no-filters "$d/merged"`, "")
	if err != nil {
		return wrong("it has changed since, in the same lines")
	}
	merged := file{c.to.mode, strings.TrimSpace(id)}
	if present.mode != c.from.mode {
		merged.mode = present.mode
	}
	if merged != present { // else it was reversed before
		u.result[path] = merged
	}
	return nil
}

// inTheWay returns why nothing can be written at a path: something is there, or above it, that
// no snapshot has. What goes away itself is in nobody's way.
func (u *undo) inTheWay(path string, present file) (why string) {
	goes := func(at string) bool { c, ok := u.wanted[at]; return ok && c.to.mode == "" }
	for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
		if fi, err := os.Lstat(filepath.Join(u.place.Root, at)); err == nil && !fi.IsDir() {
			if goes(at) {
				return ""
			}
			return at + " is no directory now"
		}
	}
	if present.mode != "" {
		return ""
	}
	_ = filepath.WalkDir(filepath.Join(u.place.Root, path), func(name string, d fs.DirEntry, err error) error { // of no path there is nothing
		at, _ := filepath.Rel(u.place.Root, name)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && (err != nil || !d.IsDir() && !goes(at)) {
			why = "something is there that git ignores"
		}
		return err
	})
	return why
}

// apply changes the files. Where that breaks off it takes back what it has done.
func (u *undo) apply(now string) (undone []string, err error) {
	var entries strings.Builder
	for path, f := range u.result {
		undone = append(undone, path)
		if f.mode == "" {
			f = file{"0", strings.Repeat("0", len(now))}
		}
		entries.WriteString(f.mode + " " + f.id + " 0\t" + path + "\x00")
	}
	slices.Sort(undone)
	if len(undone) == 0 {
		return nil, nil
	}
	tree, err := u.git("result", `cp -p "$d/index" "$d/result" && git update-index -z --index-info && git write-tree --missing-ok`, entries.String())
	if err != nil {
		return nil, err
	}
	_, err = u.git("index", "git read-tree -m -u --no-recurse-submodules "+Quote(now)+" "+Quote(strings.TrimSpace(tree)), "")
	if err != nil {
		return nil, errors.Join(err, u.restore(undone))
	}
	return undone, nil
}

// restore brings back those of the files that have been changed to what was to be there.
func (u *undo) restore(paths []string) error {
	out, err := u.git("result", "{ git update-index -q --refresh || :; } >/dev/null && git diff-files -z --name-only", "")
	if err != nil {
		return err
	}
	untouched := strings.Split(out, "\x00")
	root, err := os.OpenRoot(u.place.Root)
	if err != nil {
		return err
	}
	var list strings.Builder
	var problems []error
	for _, path := range paths {
		_, err := root.Lstat(path)
		gone := err != nil
		present := u.wanted[path].from
		if s, changed := u.since[path]; changed {
			present = s.to
		}
		switch isWritten := u.result[path].mode != "" && !slices.Contains(untouched, path); {
		case present.mode != "" && (gone || isWritten):
			list.WriteString(path + "\x00")
		case present.mode == "" && isWritten:
			problems = append(problems, root.Remove(path))
		}
	}
	_, err = u.git("index", "cd "+Quote(u.place.Root)+" && git checkout-index -f -z --stdin", list.String())
	return errors.Join(append(problems, err, root.Close())...)
}
