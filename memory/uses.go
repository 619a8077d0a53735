package memory

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"stint/ledger/durable"
)

// maxUses bounds how many entries are counted; of more, the counts begin anew.
const maxUses = 10_000

// A Use is how often prompts have had an entry, or were about what it says in the archive, and when the last one was.
type Use struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
}

// Uses counts them by the files and ids of the entries, in a file: when that is lost, it begins anew.
// Its methods may be called by any goroutine.
type Uses struct {
	path string
	mu   sync.Mutex
	of   map[string]Use
}

// OpenUses returns the counts that a file of the state directory has.
func OpenUses(path string) *Uses {
	u := &Uses{path: path}
	data, err := durable.ReadFile(durable.OS, path)
	if err != nil || json.Unmarshal(data, &u.of) != nil || u.of == nil {
		u.of = map[string]Use{}
	}
	return u
}

// Count counts the entries of the hits that a prompt has from a workspace, and writes the file.
func (u *Uses) Count(workspace string, hits []Hit, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	counted := false
	for _, h := range hits {
		if h.Entry != "" {
			key := filepath.Join(workspace, strings.TrimPrefix(h.Path, Archive+"/")) + "#" + h.Entry
			u.of[key], counted = Use{u.of[key].Count + 1, now.UTC()}, true
		}
	}
	if !counted {
		return nil
	}
	if len(u.of) > maxUses {
		clear(u.of)
	}
	data, _ := json.Marshal(u.of) // numbers, and times that were JSON or are of now
	return durable.PutFile(u.path, data)
}

// Of returns how often the entry of a file with that id was used.
func (u *Uses) Of(g Governed, id string) Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[filepath.Join(g.Workspace, g.Path)+"#"+id]
}
