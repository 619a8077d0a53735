package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"stint/state"
)

// A Problem is one finding about an agent, with the command that fixes it.
type Problem struct {
	Text  string
	Fix   string // "" if no single command helps
	Fatal bool   // the agent cannot work like that
}

// Versions are those of a CLI with which stint was tested.
type Versions struct {
	Oldest, Newest string
	Breaks         string // what may break with an older one
	Install        string // the command for the newest
}

// versionOf reads the version in what a program says of it.
func versionOf(said string) (version []int, ok bool) {
	for word := range strings.FieldsSeq(said) {
		var v [3]int
		if n, _ := fmt.Sscanf(strings.TrimPrefix(word, "v"), "%d.%d.%d", &v[0], &v[1], &v[2]); n == 3 { // also 0.170.0-alpha.1
			return v[:], true
		}
	}
	return nil, false
}

// compareVersions compares what two programs say of their versions; those that cannot be read
// are equal to any.
func compareVersions(said, other string) int {
	a, ok1 := versionOf(said)
	b, ok2 := versionOf(other)
	if !ok1 || !ok2 {
		return 0
	}
	return slices.Compare(a, b)
}

// IsOlder reports whether what a program says of its version is one before the oldest
// tested. A version that cannot be read is not.
func (k Versions) IsOlder(said string) bool { return compareVersions(said, k.Oldest) < 0 }

// IsNewer reports the same of one after the newest tested.
func (k Versions) IsNewer(said string) bool { return compareVersions(said, k.Newest) > 0 }

// Examine looks at the program of a CLI, its version, and its home. Without a path there is
// nothing more to be looked at.
func (q *Questions) Examine(ctx context.Context) (path string, found []Problem) {
	path, err := q.Find()
	v := ""
	if err == nil {
		v, err = q.Version(ctx, path)
	}
	if err != nil {
		return "", []Problem{{Text: err.Error(), Fix: q.Tested.Install, Fatal: true}}
	}
	switch {
	case q.Tested.IsOlder(v):
		found = []Problem{{Text: fmt.Sprintf("version %s is older than %s: %s", v, q.Tested.Oldest, q.Tested.Breaks), Fix: q.Tested.Install}}
	case q.Tested.IsNewer(v):
		found = []Problem{{Text: fmt.Sprintf("version %s is newer than %s, the newest that stint was tested with: its options and events may differ", v, q.Tested.Newest)}}
	}
	_, missing := os.Stat(q.Home)
	if q.HomeIn != "" && filepath.IsAbs(q.Home) && errors.Is(missing, fs.ErrNotExist) {
		found = append(found, Problem{
			Text: q.HomeIn + " names a directory that does not exist: " + q.Home, Fix: "mkdir -p " + state.ShellQuote(q.Home), Fatal: q.NoHome.Fatal,
		})
	} else if err := writable(q.Home); err != nil {
		found = append(found, Problem{
			Text: fmt.Sprintf("%s: %v", q.NoHome.Text, err), Fix: "chmod u+rwx " + state.ShellQuote(q.Home), Fatal: q.NoHome.Fatal,
		})
	}
	return path, found
}

// writable reports why a program could not write in its directory. One that does
// not exist yet must be one that can be made.
func writable(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is no absolute path: is HOME set?", dir)
	}
	for {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".stint-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// RootOwned reports whether nobody but root can change what lies in a directory, or will lie
// there once it is made.
func RootOwned(dir string) bool {
	exists := func() bool { _, err := os.Lstat(dir); return !errors.Is(err, fs.ErrNotExist) }
	for !exists() && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != filepath.Clean(dir) {
		return false
	}
	for {
		fi, err := os.Stat(dir)
		if err != nil {
			return false
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 || fi.Mode().Perm()&0o022 != 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
