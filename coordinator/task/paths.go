package task

import (
	"os"
	"path/filepath"
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

// IsCheckout reports whether dir holds a .git of git's: a file, or a directory
// with a HEAD. Sandboxes leave empty ones behind.
func IsCheckout(dir string) bool {
	git := filepath.Join(dir, ".git")
	fi, err := os.Stat(git)
	if err != nil || !fi.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(git, "HEAD"))
	return err == nil
}
