package statedir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
)

// aloneDiffers returns the first task or job that its file alone, got, makes another than the journal does, want,
// and how; "" if there is none. What is in the archive and no more in the journal is passed over.
func aloneDiffers(dir string, files ledger.Files, got, want map[string][]byte) (id, how string, err error) {
	entries, err := archive.Read(nil, dir, files)
	for _, e := range entries {
		if want[e.ID] == nil {
			delete(got, e.ID)
		}
	}
	if err != nil {
		return "", "", err
	}
	what := strings.ToLower(string(files.Kind()))
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(got[id], want[id]) {
			return id, what + " " + id + " " + firstDifference(files.Ledger(), got[id], want[id]), nil
		}
		delete(got, id)
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		return id, what + " " + id + " is not in the journal", nil
	}
	return "", "", nil
}

// firstDifference says what a file alone has of a task or job otherwise than the journal.
func firstDifference(file string, alone, journal []byte) string {
	var a, b map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(alone, &a), json.Unmarshal(journal, &b)); err != nil {
		return "is only in the journal"
	}
	for _, key := range append([]string{"status"}, slices.Sorted(maps.Keys(b))...) { // what matters most first
		if !bytes.Equal(a[key], b[key]) {
			return fmt.Sprintf("has %s %s in the journal, and %s by %s alone", key, b[key], cmp.Or(string(a[key]), "none"), file)
		}
	}
	return "has more in " + file + " alone than in the journal"
}

// texts returns tasks, or jobs as such, as JSON, by id.
func texts(list map[string]state.Task, err error) (map[string][]byte, error) {
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(list))
	for id, t := range list {
		if all[id], err = json.Marshal(t); err != nil {
			return nil, err
		}
	}
	return all, nil
}
