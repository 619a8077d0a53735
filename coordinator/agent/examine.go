package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Problem is one finding about an agent, with the command that mends it.
type Problem struct {
	Text  string
	Fix   string // "" if no single command helps
	Fatal bool   // the agent cannot work like that
}

// An oldest is the oldest version of a CLI that is known, and what may break
// with one before it.
type oldest struct {
	major, minor int
	breaks       string
	install      string // the command for the newest
}

var (
	oldestCodex  = oldest{0, 160, "options and events may differ: the sandbox, approvals and resumed sessions", "npm install -g @openai/codex"}
	oldestClaude = oldest{2, 1, "events, token counts and the settings that allow tools may differ", "npm install -g @anthropic-ai/claude-code"}
	oldestGemini = oldest{0, 50, "its events, --skip-trust and resuming by session id may be missing", "npm install -g @google/gemini-cli"}
)

// before reports whether what a program says of its version is an older one. A
// version that cannot be read is not.
func (o oldest) before(said string) bool {
	for word := range strings.FieldsSeq(said) {
		parts := strings.Split(strings.TrimPrefix(word, "v"), ".")
		if len(parts) < 3 {
			continue
		}
		major, err := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		if err != nil || err2 != nil {
			continue
		}
		return major < o.major || major == o.major && minor < o.minor
	}
	return false
}

// examine gives what is wrong with the program of a CLI. Without a path there is
// nothing more to be looked at.
func examine(ctx context.Context, c cli, o oldest) (path string, found []Problem) {
	path, err := c.find()
	if err != nil {
		return "", []Problem{{Text: err.Error(), Fix: o.install, Fatal: true}}
	}
	v, err := c.version(ctx, path)
	if err != nil {
		return path, []Problem{{Text: err.Error(), Fix: o.install, Fatal: true}}
	}
	if o.before(v) {
		found = []Problem{{Text: fmt.Sprintf("version %s is older than %d.%d: %s", v, o.major, o.minor, o.breaks), Fix: o.install}}
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
