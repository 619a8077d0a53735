package codex

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"stint/ledger/durable"
	"stint/state"
)

// quotaTail is how much of the end of a thread's file is looked at: a line with an answer may be long.
const quotaTail = 1 << 20

// quota returns how much of its account's windows is used, as the file of a thread in codex's home has it
// last: `codex exec --json` does not tell it. nil if it is not there.
func (c *Agent) quota(thread string) []state.Window {
	if _, err := uuid.Parse(thread); err != nil {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(escapeGlob(c.home()), "sessions", "*", "*", "*", "rollout-*-"+thread+".jsonl")) // the pattern is well formed
	if len(found) == 0 {
		return nil
	}
	f, err := durable.Open(found[len(found)-1], os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read from
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil
	} else if fi.Size() > quotaTail {
		_, _ = f.Seek(-quotaTail, io.SeekEnd) // else it begins at its beginning
	}
	data, _ := io.ReadAll(io.LimitReader(f, quotaTail)) // what could be read
	for data = bytes.TrimSpace(data); len(data) > 0; {
		i := bytes.LastIndexByte(data, '\n')
		if list := windowsOf(data[i+1:]); list != nil {
			return list
		}
		data = data[:max(i, 0)]
	}
	return nil
}

// windowsOf returns the windows that a line of a thread's file tells of.
func windowsOf(line []byte) (list []state.Window) {
	if !bytes.Contains(line, []byte(`"rate_limits"`)) {
		return nil
	}
	type window struct {
		Used     float64 `json:"used_percent"`
		Minutes  int     `json:"window_minutes"`
		ResetsAt int64   `json:"resets_at"` // Unix seconds
	}
	var e struct {
		Timestamp time.Time `json:"timestamp"` // which may be long past: a turn may end before it is told anything
		Payload   struct {
			Limits struct {
				Primary   *window `json:"primary"`
				Secondary *window `json:"secondary"`
			} `json:"rate_limits"`
		} `json:"payload"`
	}
	if json.Unmarshal(line, &e) != nil {
		return nil
	}
	for name, w := range map[string]*window{"primary": e.Payload.Limits.Primary, "secondary": e.Payload.Limits.Secondary} {
		if w != nil && w.ResetsAt > 0 {
			list = state.MergeQuota(list, []state.Window{{Name: name, Used: w.Used, Minutes: max(w.Minutes, 0), ResetsAt: time.Unix(w.ResetsAt, 0), At: e.Timestamp}})
		}
	}
	return list
}
