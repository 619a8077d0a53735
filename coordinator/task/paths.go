package task

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// IsBelow reports whether path is dir or lies in it, links resolved.
func IsBelow(path, dir string) bool {
	return IsWithin(WithoutLinks(path), WithoutLinks(dir))
}

// IsWithin is IsBelow of paths as they are written.
func IsWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// WithoutLinks resolves the links of a path, as far as it is there. "" is no path.
func WithoutLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil && path != "" {
		return real
	}
	return path
}

// SafePath returns the PATH of an environment without the directories in which runs can write, nor any in a checkout
// of the home's: what is called by it belongs to the system.
func SafePath(env []string, root string) string {
	env = append(slices.Clone(env), "HOME=")
	dirs := slices.DeleteFunc(filepath.SplitList(LookupEnv(env, "PATH")), func(dir string) bool { return IsWritable(dir, env, root) })
	return cmp.Or(strings.Join(dirs, ":"), "/usr/bin:/bin")
}

// IsWritable reports whether runs can write to a program or a directory of PATH: where it is relative, in root, in
// the active virtual environment or in a checkout, or a link there leads to it. The home, what is hidden in it, such
// as nvm, and Homebrew may be checkouts in which no tasks run.
func IsWritable(path string, env []string, root string) bool {
	home := WithoutLinks(LookupEnv(env, "HOME"))
	for _, path := range []string{path, WithoutLinks(path)} {
		if !filepath.IsAbs(path) {
			return true
		}
		for _, dir := range []string{root, LookupEnv(env, "VIRTUAL_ENV")} {
			if dir != "" && (IsWithin(path, dir) || IsWithin(path, WithoutLinks(dir))) {
				return true
			}
		}
		if top := WithoutLinks(CheckoutAbove(path)); IsCheckout(top) && top != home && !strings.HasPrefix(top, home+"/.") && top != "/opt/homebrew" {
			return true
		}
	}
	return false
}

// RepositoryRoot is CheckoutAbove of a path that may have links.
func RepositoryRoot(dir string) string { return CheckoutAbove(WithoutLinks(dir)) }

// CheckoutAbove returns the directory above (or at) dir that is the top of a
// checkout, else dir: two tasks in one checkout are in one lane.
func CheckoutAbove(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if IsCheckout(at) {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// IsCheckout reports whether dir holds a .git of git's: a file, or a directory with a HEAD. Sandboxes leave empty ones behind.
func IsCheckout(dir string) bool {
	git := filepath.Join(dir, ".git")
	fi, err := os.Stat(git)
	if err != nil || !fi.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(git, "HEAD"))
	return err == nil
}
