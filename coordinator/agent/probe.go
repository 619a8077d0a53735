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
	"strings"
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

// Questions are how a CLI is asked about itself.
type Questions struct {
	Find    func() (path string, err error)
	Version func(ctx context.Context, path string) (string, error)
	// Login reports whether it has credentials, where from or what is wrong, and the command
	// that helps, if it is not LogIn.
	Login  func(ctx context.Context, path string) (ok bool, detail, fix string)
	LogIn  string
	Home   string  // where it keeps its settings and sessions
	NoHome Problem // if it cannot write there: the reason follows
	HomeIn string  // the variable that names a home which the CLI does not make; "": it makes its home
	Tested Versions
}

// Probe looks whether a CLI is installed and logged in.
func (q *Questions) Probe(ctx context.Context) Probe {
	path, err := q.Find()
	if err != nil {
		return Probe{Found: errors.Is(err, fs.ErrPermission), Detail: err.Error(), Fix: q.Tested.Install}
	}
	p := Probe{Found: true, Path: path}
	if p.Version, err = q.Version(ctx, path); err != nil {
		p.Detail, p.Fix = err.Error(), q.Tested.Install
		return p
	}
	if p.LoggedIn, p.Detail, p.Fix = q.Login(ctx, path); !p.LoggedIn {
		p.Fix = cmp.Or(p.Fix, q.LogIn)
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
