package agent

import (
	"cmp"
	"context"
	"encoding/json"
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

// A Probe is what can be known of an agent without spending a token.
type Probe struct {
	Found    bool   // the program is there, if only where runs may have written it: then without a path
	Path     string // what would be executed
	Version  string // as the program says it
	LoggedIn bool   // it has credentials; whether they are good shows only in use
	Detail   string // where the credentials come from, or what is wrong
	Fix      string // the command that helps; "" if nothing is wrong
}

// A CLI is the program of an agent: how it is asked about itself, and what a person types to use it.
type CLI struct {
	Find    func() (path string, err error)
	Version func(ctx context.Context, path string) (string, error)
	// Login reports whether it has credentials, where from or what is wrong, and the command that helps, if it is not LogIn.
	Login  func(ctx context.Context, path string) (ok bool, detail, fix string)
	LogIn  string  // "": there is nothing to log in to
	Resume string  // goes on with the session whose id follows; "": there is no such command
	Home   string  // where it keeps its settings and sessions
	NoHome Problem // if it cannot write there: the reason follows
	HomeIn string  // the variable that names a home which the CLI does not make; "": it makes its home
	Tested Versions
	More   func(ctx context.Context, path string) []Problem // what else is wrong; nil: nothing
}

// Probe reports whether the CLI is installed and logged in, without spending a token.
// It may start the CLI some times; ctx bounds it.
func (c *CLI) Probe(ctx context.Context) Probe {
	path, err := c.Find()
	if err != nil {
		return Probe{Found: errors.Is(err, fs.ErrPermission), Detail: err.Error(), Fix: c.Tested.Install}
	}
	p := Probe{Found: true, Path: path}
	if p.Version, err = c.Version(ctx, path); err != nil {
		p.Detail, p.Fix = err.Error(), c.Tested.Install
		return p
	}
	if p.LoggedIn, p.Detail, p.Fix = c.Login(ctx, path); !p.LoggedIn {
		p.Fix = cmp.Or(p.Fix, c.LogIn)
	}
	return p
}

// Version asks a program for its version.
func (r *Runner) Version(ctx context.Context, path string) (string, error) {
	out, err := r.Output(ctx, path, "--version")
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return LastLine(out), nil
}

// PackageVersion returns the version of the npm package that a program's file belongs
// to, "" if it belongs to none whose name ends so.
func PackageVersion(file, name string) string {
	dir := filepath.Dir(file)
	for _, dir := range []string{dir, filepath.Dir(dir)} {
		var pkg struct{ Name, Version string }
		data, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err == nil && json.Unmarshal(data, &pkg) == nil && strings.HasSuffix(pkg.Name, name) {
			return pkg.Version
		}
	}
	return ""
}

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

// versionOf reads the version in what a program says of it; nil if it cannot be read.
func versionOf(said string) []int {
	for word := range strings.FieldsSeq(said) {
		var v [3]int
		if n, _ := fmt.Sscanf(strings.TrimPrefix(word, "v"), "%d.%d.%d", &v[0], &v[1], &v[2]); n == 3 { // also 0.170.0-alpha.1
			return v[:]
		}
	}
	return nil
}

// IsOlder reports whether what a program says of its version is one before the oldest
// tested. A version that cannot be read is not.
func (k Versions) IsOlder(said string) bool {
	v := versionOf(said)
	return v != nil && slices.Compare(v, versionOf(k.Oldest)) < 0
}

// IsNewer reports the same of one after the newest tested.
func (k Versions) IsNewer(said string) bool {
	return slices.Compare(versionOf(said), versionOf(k.Newest)) > 0
}

// Examine looks closer at what [CLI.Probe] has found, for a person who asks: at its version, its home, and what else it needs.
// It returns only what is wrong; ctx bounds it.
func (c *CLI) Examine(ctx context.Context, p Probe) (found []Problem) {
	switch {
	case p.Version == "": // as the probe says
		return nil
	case c.Tested.IsOlder(p.Version):
		found = []Problem{{Text: fmt.Sprintf("version %s is older than %s: %s", p.Version, c.Tested.Oldest, c.Tested.Breaks), Fix: c.Tested.Install}}
	case c.Tested.IsNewer(p.Version):
		found = []Problem{{Text: fmt.Sprintf("version %s is newer than %s, the newest that stint was tested with: its options and events may differ", p.Version, c.Tested.Newest)}}
	}
	home := Problem{Fatal: c.NoHome.Fatal}
	_, missing := os.Stat(c.Home)
	if c.HomeIn != "" && filepath.IsAbs(c.Home) && errors.Is(missing, fs.ErrNotExist) {
		home.Text, home.Fix = c.HomeIn+" names a directory that does not exist: "+c.Home, "mkdir -p "+state.ShellQuote(c.Home)
	} else if err := writable(c.Home); err != nil {
		home.Text, home.Fix = fmt.Sprintf("%s: %v", c.NoHome.Text, err), "chmod u+rwx "+state.ShellQuote(c.Home)
	}
	if home.Text != "" {
		found = append(found, home)
	}
	if c.More != nil && (home.Text == "" || !home.Fatal) { // without a home the rest cannot be tried
		found = append(found, c.More(ctx, p.Path)...)
	}
	return found
}

// writable reports why a program could not write in its directory. One that does not exist yet must be one that can be made.
func writable(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is no absolute path: is HOME set?", dir)
	}
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".stint-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// RootOwned reports whether nobody but root can change what lies in a directory, or will lie there once it is made.
func RootOwned(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		fi, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !fi.IsDir() { // such as a link
			return false
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 || fi.Mode().Perm()&0o022 != 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
