package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"stint/ledger/durable"
)

// The roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// typeMessage is the type of a line that holds a message.
const typeMessage = "message"

// A Message is one line of a transcript.
type Message struct {
	Type      string    `json:"type" enum:"message" doc:"Kind of the line" example:"message"`
	Role      string    `json:"role" enum:"user,assistant" doc:"Who says it" example:"assistant"`
	Text      string    `json:"text" doc:"The message" example:"The test waited for a timer; it now waits for the event."`
	TS        time.Time `json:"ts" doc:"When it was written" example:"2026-11-21T03:15:09.482Z"`
	SessionID string    `json:"sessionId" doc:"Id of the conversation" example:"019ab3f0-70aa-7b52-8f1e-5d0c3b9e4a10"`
	TaskID    string    `json:"taskId,omitempty" doc:"Task that it belongs to" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	RunID     string    `json:"runId,omitempty" doc:"Run that it belongs to" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Error     string    `json:"error,omitempty" doc:"Why there is no answer, or only a part" example:"timeout: the run took longer than 30m"`
}

// A Transcript is what was said in one session, to be appended to. It keeps no
// file open, so an editor may replace the file at any time.
type Transcript struct {
	id, path string
	fs       durable.FS
}

// OpenTranscript returns the transcript of a session and makes its file if there
// is none. dir is the state directory.
func OpenTranscript(dir, sessionID string) (*Transcript, error) {
	if err := checkID(sessionID); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	t := &Transcript{sessionID, TranscriptPath(dir, sessionID), durable.OS}
	if _, err := t.fs.Stat(t.path); err == nil {
		return t, nil
	}
	f, err := t.open()
	if err == nil {
		err = f.Close() // no sync: the name need not outlive the lines
	}
	if err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return t, nil
}

// Append adds a message with one write of one line; Type and SessionID are set
// by it. A line cut short before, by a crash or a full disk, is first closed
// with a line break, so that it cannot spoil this one. Append does not sync:
// the ledger has what must be kept. The caller holds the session's lock or is
// otherwise the only one to append.
func (t *Transcript) Append(m Message) (err error) {
	if m.Role != RoleUser && m.Role != RoleAssistant {
		return fmt.Errorf("transcript: no such role: %q", m.Role)
	}
	m.Type, m.SessionID, m.TS = typeMessage, t.id, m.TS.UTC()
	var line bytes.Buffer
	line.WriteByte('\n')
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // people grep these files
	if err := enc.Encode(&m); err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	f, err := t.open()
	if err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	torn, err := endsTorn(f)
	if err == nil {
		data := line.Bytes()
		if !torn {
			data = data[1:]
		}
		_, err = f.Write(data)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	return nil
}

func (t *Transcript) open() (durable.File, error) {
	return t.fs.OpenFile(t.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, durable.FileMode)
}

// endsTorn reports whether f ends without a line break.
func endsTorn(f durable.File) (bool, error) {
	fi, err := f.Stat()
	if err != nil || fi.Size() == 0 {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], fi.Size()-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

// maxLine bounds a line that is read; longer ones are passed over.
const maxLine = 64 << 20

// parseLine reads a line; ok is false if it is no message.
func parseLine(line []byte) (m Message, ok bool) {
	err := json.Unmarshal(line, &m)
	return m, err == nil && m.Type == typeMessage && (m.Role == RoleUser || m.Role == RoleAssistant)
}
