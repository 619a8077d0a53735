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
)

// A Problem is one finding about an agent, with the command that mends it.
type Problem struct {
	Text  string
	Fix   string // "" if no single command helps
	Fatal bool   // the agent cannot work like that
}

// A known is what is known of the versions of a CLI.
type known struct {
	oldest, newest []int  // that stint was tested with
	breaks         string // what may break with one before it
	install        string // the command for the newest
}

var (
	knownCodex  = known{[]int{0, 160, 0}, []int{0, 169, 0}, "options and events may differ: the sandbox, approvals and resumed sessions", "npm install -g @openai/codex"}
	knownClaude = known{[]int{2, 1, 299}, []int{2, 1, 330}, "it cannot be told that a prompt is only text, so stint turns off all its attachments, the lists of skills and deferred tools too", "npm install -g @anthropic-ai/claude-code"}
	knownGemini = known{[]int{0, 50, 0}, []int{0, 61, 0}, "its events, --skip-trust and resuming by session id may be missing", "npm install -g @google/gemini-cli"}
)

// versionOf reads the version in what a program says of it.
func versionOf(said string) (version []int, ok bool) {
	for word := range strings.FieldsSeq(said) {
		parts := strings.Split(strings.TrimPrefix(word, "v"), ".")
		if len(parts) < 3 {
			continue
		}
		version = nil
		for _, part := range parts[:3] {
			digits, _, _ := strings.Cut(part, "-") // 0.170.0-alpha.1
			version = append(version, atoi(digits))
		}
		if !slices.Contains(version, -1) {
			return version, true
		}
	}
	return nil, false
}

// isOlder reports whether what a program says of its version is one before the oldest
// known. A version that cannot be read is not.
func (k known) isOlder(said string) bool {
	version, ok := versionOf(said)
	return ok && slices.Compare(version, k.oldest) < 0
}

// dotted writes a version.
func dotted(version []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(version), " ", "."), "[]")
}

// examine gives what is wrong with the program of a CLI. Without a path there is
// nothing more to be looked at.
func examine(ctx context.Context, c cli, k known) (path string, found []Problem) {
	path, err := c.find()
	if err != nil {
		return "", []Problem{{Text: err.Error(), Fix: k.install, Fatal: true}}
	}
	v, err := c.version(ctx, path)
	if err != nil {
		return path, []Problem{{Text: err.Error(), Fix: k.install, Fatal: true}}
	}
	switch version, ok := versionOf(v); {
	case k.isOlder(v):
		found = []Problem{{Text: fmt.Sprintf("version %s is older than %s: %s", v, dotted(k.oldest), k.breaks), Fix: k.install}}
	case ok && slices.Compare(version, k.newest) > 0:
		found = []Problem{{Text: fmt.Sprintf("version %s is newer than %s, the newest that stint was tested with: its options and events may differ", v, dotted(k.newest))}}
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
