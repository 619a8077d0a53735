package checkout

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stint/state"
)

// A Shell runs a command of sh in the workspace with that stdin, and returns what it prints on stdout.
type Shell func(command, stdin string) (string, error)

// An OverlapError lists the changes that cannot be reversed, as their files have changed since.
type OverlapError struct {
	Files []string // a path and what is wrong with it each
}

// Error returns the list on one line.
func (e *OverlapError) Error() string { return strings.Join(e.Files, "; ") }

// A file is what a tree of git has at a path; without a mode, nothing.
type file struct{ mode, id string }

func (f file) isText() bool { return f.mode == "100644" || f.mode == "100755" }

// A change is what an attempt did at a path, and what is there now.
type change struct {
	before, after, now file
	wrong              string // why it cannot be reversed
}

// stage is the script that writes the new files into s: files that come back into 3, merged files into 2. It
// prints overlaps/PATH for each file that cannot be merged, same/PATH for each that the merge leaves as it is, and
// ignored/PATH for each that git ignores now, or will by the files that come back.
//
//go:embed stage.sh
var stage string

// displaced prints which of the files in the directory was differ from the private index.
const displaced = `export GIT_INDEX_FILE="$d/index" GIT_WORK_TREE="$s/was"
{ git update-index -q --refresh || :; } >/dev/null; git diff-files -z --name-only --diff-filter=d`

// Undo reverses what has changed from the tree before to the tree after onto the files as they are now, and returns the paths
// of the files that it has changed, and those that stay as they are, with the reason each: their content was not kept, or they
// would be deleted and are ignored by git. A file that has changed since is merged. If that is not possible for all files, no
// file is changed, and the error is an [OverlapError]. A file that somebody saves meanwhile counts as one. ready may still
// refuse, after the files were compared. What git ignores or does not track is never overwritten, and links are not followed. A
// file keeps its permissions, but for the execute bits where the attempt has changed them. The user's index stays as it is.
func (p *Place) Undo(run Shell, before, after string, ready func() error) (undone, left []string, err error) {
	if left, _ := fs.Glob(os.DirFS(p.Root), ".stint-undo-*"); left != nil {
		return nil, nil, fmt.Errorf("an undo is at work here, or broke off; if none is, the files of before it are in %s/was: move back those that you miss, and remove %[1]s", filepath.Join(p.Root, left[0]))
	}
	diff := func(options, to string) string {
		return "git diff " + diffOptions + "-z --no-renames " + options + " --end-of-options " + state.ShellQuote(after) + " " + to + " -- ."
	}
	was, now, large := state.ShellQuote(before), `"$t"`, "--name-only --text -G '^"+notKept+"[0-9]+ bytes, changed at [0-9]+$'"
	out, err := run(p.command(after, `printf '%s\0' "$p" && `+diff("--raw --no-abbrev", was)+` && printf 'now/\0' && `+
		diff("--raw --no-abbrev", now)+` && printf 'large/\0' && `+diff(large, was)+` && `+diff(large, now)), "")
	if err != nil {
		return nil, nil, err
	}
	workspace, out, _ := strings.Cut(out, "\x00")
	list, left := readChanges(out)
	var entries strings.Builder
	for path, c := range list {
		add := func(n int, f file) {
			if f.mode != "" {
				fmt.Fprintf(&entries, "%s %s %d\t%s\x00", f.mode, f.id, n, path)
			}
		}
		switch {
		case c.before.mode == "160000" || c.after.mode == "160000":
			c.wrong = "it is a submodule"
		case c.now == c.before:
			delete(list, path)
			continue
		default:
			c.wrong = p.inTheWay(list, path, c.now)
		}
		add(0, file{"0", strings.Repeat("0", len(before))})
		add(3, c.before)
		if c.now == c.after {
			continue
		}
		if !c.before.isText() || !c.after.isText() || !c.now.isText() {
			c.wrong = cmp.Or(c.wrong, "it has changed since")
		}
		merged := c.now
		if c.now.mode == c.after.mode {
			merged.mode = c.before.mode
		}
		add(1, c.after)
		add(2, merged)
	}
	if err = overlaps(list); err != nil || len(list) == 0 {
		return nil, left, err
	}
	if err = ready(); err != nil {
		return nil, nil, err
	}
	staged, err := os.MkdirTemp(p.Root, ".stint-undo-")
	if err != nil {
		return nil, nil, err
	}
	begin := prelude(p.Root) + "d=" + state.ShellQuote(p.Dir) + " s=" + state.ShellQuote(staged) + "\n"
	out, err = run(begin+stage, entries.String())
	for field := range strings.SplitSeq(out, "\x00") {
		what, path, _ := strings.Cut(field, "/")
		switch c := list[path]; {
		case c == nil:
		case what == "overlaps":
			c.wrong = "it has changed since, in the same lines"
		case what == "ignored" && c.before.mode == "":
			left = append(left, path+": git ignores it")
			delete(list, path)
		case what == "same" && (c.now.mode == c.before.mode || c.now.mode != c.after.mode):
			delete(list, path)
		}
	}
	undone = slices.Sorted(maps.Keys(list))
	if err = cmp.Or(err, overlaps(list)); err == nil {
		err = p.write(list, undone, filepath.Base(staged), workspace, func() error {
			out, err := run(begin+displaced, "")
			for path := range strings.SplitSeq(out, "\x00") {
				if c := list[path]; c != nil {
					c.wrong = "it is changing now"
				}
			}
			return cmp.Or(err, overlaps(list))
		})
	}
	switch {
	case errors.Is(err, errNotBack):
		return nil, nil, errors.New(err.Error()) // whatever else it is: something was changed
	case err != nil:
		return nil, nil, fmt.Errorf("nothing was undone: %w", errors.Join(err, os.RemoveAll(staged)))
	}
	return undone, left, os.RemoveAll(staged)
}

// readChanges reads two outputs of git diff -z --raw --no-abbrev, one from the tree after to the one before
// and one to the present one, and the paths of files whose content was not kept, which it returns apart.
func readChanges(output string) (list map[string]*change, left []string) {
	list, part := map[string]*change{}, ""
	fields := strings.Split(output, "\x00")
	for i := 0; i < len(fields)-1; i++ {
		head, isRaw := strings.CutPrefix(fields[i], ":")
		words := strings.Fields(head)
		switch {
		case part == "large/":
			if c := list[fields[i]]; c != nil && c.now != c.before {
				left = append(left, fields[i]+": it is too large, its content was not kept")
				delete(list, fields[i])
			}
		case !isRaw:
			part = fields[i]
		case len(words) != 5:
			return list, left
		default:
			i++
			from, to := file{words[0], words[2]}, file{words[1], words[3]}
			for _, f := range []*file{&from, &to} {
				if f.mode == "000000" {
					*f = file{}
				}
			}
			if c := list[fields[i]]; part == "" {
				list[fields[i]] = &change{before: to, after: from, now: from}
			} else if c != nil {
				c.now = to
			}
		}
	}
	return list, left
}

// overlaps returns an [OverlapError] if not all changes can be reversed.
func overlaps(list map[string]*change) error {
	var files []string
	for path, c := range list {
		if c.wrong != "" {
			files = append(files, path+": "+c.wrong)
		}
	}
	if slices.Sort(files); files != nil {
		return &OverlapError{files}
	}
	return nil
}

// inTheWay returns what, besides files that go away, is at a path or above it that no snapshot has.
func (p *Place) inTheWay(list map[string]*change, path string, now file) (why string) {
	goes := func(at string) bool { c := list[at]; return c != nil && c.before.mode == "" }
	for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
		if fi, err := os.Lstat(filepath.Join(p.Root, at)); err == nil && !fi.IsDir() {
			if goes(at) {
				return ""
			}
			return at + " is no directory now"
		}
	}
	if now.mode != "" {
		return ""
	}
	_ = filepath.WalkDir(filepath.Join(p.Root, path), func(name string, d fs.DirEntry, err error) error {
		at, _ := filepath.Rel(p.Root, name)
		if d != nil && (err != nil || !d.IsDir() && !goes(at)) {
			why = "something is there that git ignores"
		}
		return err
	})
	return why
}

// takePermissions gives a file those of another one. Whoever may read it may execute it, if its owner may.
func takePermissions(root *os.Root, file, other string) error {
	now, err := root.Lstat(file)
	was, errWas := root.Lstat(other)
	if err = cmp.Or(err, errWas); err != nil {
		return err
	}
	mode := was.Mode().Perm() &^ 0o111
	if now.Mode()&0o100 != 0 {
		mode |= mode >> 2 & 0o111
	}
	return root.Chmod(file, mode)
}

// errNotBack is part of the error of a write that left files where they do not belong.
var errNotBack = errors.New("could not be moved back to")

// write moves what is there to the directory was beside the staged files, and these to their places.
// In between, check looks at what is in was. If it breaks off, it moves all of them back.
func (p *Place) write(list map[string]*change, paths []string, staged, workspace string, check func() error) error {
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		return err
	}
	is := func(path string) bool { _, err := root.Lstat(path); return err == nil }
	var done [][2]string
	move := func(from, to string) {
		if err == nil {
			err = root.MkdirAll(filepath.Dir(to), 0o777)
		}
		if err == nil {
			err = root.Rename(from, to)
		}
		if err == nil {
			done = append(done, [2]string{from, to})
		}
	}
	prune := func(path, keep string) { // removes the directories above that are empty, but those above keep
		for at := filepath.Dir(path); at != "." && !strings.HasPrefix(keep, at+"/"); at = filepath.Dir(at) {
			if fi, err := root.Lstat(at); err != nil || !fi.IsDir() || root.Remove(at) != nil {
				return
			}
		}
	}
	for _, path := range paths {
		if fi, gone := root.Lstat(path); gone == nil && fi.IsDir() && list[path].now.mode != "" {
			err = cmp.Or(err, errors.New("something new is at "+path))
		} else if list[path].now.mode != "" {
			move(path, staged+"/was/"+path)
		}
	}
	if err == nil && len(done) > 0 {
		err = check()
	}
	for _, path := range paths {
		for i := 0; is(path) && i < len(paths); i++ { // a directory that has lost its files
			if strings.HasPrefix(paths[i], path+"/") {
				prune(paths[i], path)
			}
		}
		if is(path) {
			err = cmp.Or(err, errors.New("something new is at "+path))
		}
		c, from := list[path], staged+"/2/"+path
		if c.before.mode == "" {
			continue
		}
		if c.now == c.after {
			from = staged + "/3/" + path
		}
		if c.now.isText() && c.before.isText() && err == nil {
			err = takePermissions(root, from, staged+"/was/"+path)
		}
		move(from, path)
	}
	if err != nil {
		for _, m := range slices.Backward(done) {
			back := root.MkdirAll(filepath.Dir(m[0]), 0o777)
			if fi, gone := root.Lstat(m[0]); gone == nil && (!fi.IsDir() || root.Remove(m[0]) != nil) {
				back = fs.ErrExist // somebody has saved it anew
			}
			if back == nil {
				back = root.Rename(m[1], m[0])
			}
			if back != nil {
				err = errors.Join(err, fmt.Errorf("%s %w %s: %w", m[1], errNotBack, m[0], back))
			}
		}
	}
	for _, path := range paths {
		prune(path, workspace)
	}
	return errors.Join(err, root.Close())
}
