package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Probe is what can be known of an agent without spending a token.
type Probe struct {
	Found    bool   // the program is there
	Path     string // what would be executed
	Version  string // as the program says it
	LoggedIn bool   // it has credentials; whether they are good shows only in use
	Detail   string // where the credentials come from, or what is wrong
	Fix      string // the command that helps; "" if nothing is wrong
}

// A cli is one that can be asked about itself.
type cli interface {
	find() (string, error)
	version(ctx context.Context, path string) (string, error)
	login(ctx context.Context, path string) (ok bool, detail, fix string)
}

// probe looks whether a CLI is installed and logged in.
func probe(ctx context.Context, c cli, install string) Probe {
	path, err := c.find()
	if err != nil {
		return Probe{Detail: err.Error(), Fix: install}
	}
	p := Probe{Found: true, Path: path}
	if p.Version, err = c.version(ctx, path); err != nil {
		p.Detail, p.Fix = err.Error(), install
		return p
	}
	if p.LoggedIn, p.Detail, p.Fix = c.login(ctx, path); p.LoggedIn {
		p.Fix = ""
	}
	return p
}

// version asks a program for its version.
func (r *Runner) version(ctx context.Context, path string) (string, error) {
	out, err := r.output(ctx, path, "--version")
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return lastLine(out), nil
}

// packageVersion returns the version of the npm package that a program's file belongs
// to, "" if it belongs to none whose name ends so.
func packageVersion(file, name string) string {
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
