// Package session keeps what belongs to conversations with agents: which
// session is the current one of a session key, what was said in it, and the
// lock that lets one run at a time use it.
//
// Everything lies in the state directory, which is the dir of all functions here:
//
//	sessions.json         the current sessions          [Store]
//	sessions/<id>.jsonl   what was said in a session    [Transcript]
//	sessions/<id>.lock    held while a run uses it      [Lock]
//
// None of it is the truth about tasks; that is the ledger. sessions.json is a
// cache of the fold, and transcripts are there to be read by people.
package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"stint/ledger/durable"
)

// checkID returns an error unless id can name a session: ids become file names.
func checkID(id string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if id == "" || len(id) > 64 || strings.Trim(id, allowed) != "" {
		return fmt.Errorf("session id %.80q is not 1 to 64 letters, digits and hyphens", id)
	}
	return nil
}

// TranscriptPath names the transcript of a session. id must be valid.
func TranscriptPath(dir, id string) string { return filepath.Join(dir, "sessions", id+".jsonl") }

// makeDir makes the directory of transcripts and locks, in a state directory that is there.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return durable.MkdirAll(durable.OS, filepath.Join(dir, "sessions"))
}
