package task

import (
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
