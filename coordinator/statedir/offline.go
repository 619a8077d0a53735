package statedir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/repair"
	"stint/state/fold"
)

// aloneDiffers returns the first task that tasks.md alone makes another than the journal does, and
// how; "" if there is none. What is in the archive and no more in the journal is passed over.
func aloneDiffers(dir string, st *fold.State, tasks []byte) (id, how string, err error) {
	entries, err := archive.Read(nil, dir, ledger.TaskFiles)
	if err != nil {
		return "", "", err
	}
	archived := map[string]bool{}
	for _, e := range entries {
		if _, ok := st.Peek(e.ID); !ok {
			archived[e.ID] = true
		}
	}
	want, err := texts(st)
	if err != nil {
		return "", "", err
	}
	alone := newAlone()
	repair.CheckFile(ledger.TasksName, tasks, alone.check) // nothing in it is refused, or that was a finding
	got, err := texts(alone.state)
	if err != nil {
		return "", "", err
	}
	maps.DeleteFunc(got, func(id string, _ []byte) bool { return archived[id] })
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(got[id], want[id]) {
			return id, firstDifference(id, got[id], want[id]), nil
		}
		delete(got, id)
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		return id, fmt.Sprintf("task %s is not in the journal", id), nil
	}
	return "", "", nil
}

// firstDifference says what tasks.md alone has of a task otherwise than the journal.
func firstDifference(id string, alone, journal []byte) string {
	var a, b map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(alone, &a), json.Unmarshal(journal, &b)); err != nil {
		return fmt.Sprintf("task %s is only in the journal", id)
	}
	for _, key := range append([]string{"status"}, slices.Sorted(maps.Keys(b))...) { // what matters most first
		if !bytes.Equal(a[key], b[key]) {
			return fmt.Sprintf("task %s has %s %s in the journal, and %s by tasks.md alone", id, key, b[key], cmp.Or(string(a[key]), "none"))
		}
	}
	return fmt.Sprintf("task %s has more in tasks.md alone than in the journal", id)
}

// texts returns the tasks of a state as JSON, by id.
func texts(st *fold.State) (map[string][]byte, error) {
	tasks, err := tasksOf(st)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(tasks))
	for id, t := range tasks {
		if all[id], err = json.Marshal(t); err != nil {
			return nil, err
		}
	}
	return all, nil
}
