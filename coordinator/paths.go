package coordinator

import (
	"path/filepath"
	"strings"

	"stint/coordinator/task"
)

// isBelow reports whether path is dir or lies in it, links resolved.
func isBelow(path, dir string) bool { return isWithin(task.WithoutLinks(path), task.WithoutLinks(dir)) }

// isWithin is isBelow of paths as they are written.
func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
