package tasksfile

import (
	"io/fs"
	"os"
	"regexp"
)

// ConflictCopies returns the names of the files beside tasks.md that a sync program
// made of a conflict: somebody else's version, which stint does not read. What editors leave
// behind, such as tasks.md~, is none of them.
func ConflictCopies(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // that the directory cannot be read is said elsewhere
	}
	conflict := regexp.MustCompile(`^tasks(` +
		`.*[ (-][Cc]onflict.*|` + // Dropbox, Nextcloud, Seafile: tasks (ana's conflicted copy 2026-11-21).md
		`\.sync-conflict-.*|` + // Syncthing
		` \([0-9]+\)|` + // Google Drive, and browsers
		` [0-9]+` + // iCloud
		`)\.md$`)
	for _, e := range entries {
		if e.Type() == fs.FileMode(0) && conflict.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
