package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
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

// Append adds a message to the transcript of its session with one write of one line; Type is set by it. It does not sync: the
// ledger has what must be kept. The caller holds the session's lock or is otherwise the only one to append.
func Append(fsys durable.FS, dir string, m Message) error {
	if err := checkID(m.SessionID); err != nil {
		return err
	}
	if m.Role != RoleUser && m.Role != RoleAssistant {
		return fmt.Errorf("transcript: no such role: %q", m.Role)
	}
	m.Type, m.TS = typeMessage, m.TS.UTC()
	err := makeDir(dir)
	if err == nil {
		err = durable.AppendLine(fsys, TranscriptPath(dir, m.SessionID), &m, false)
	}
	if err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	return nil
}

// maxLine bounds a line that is read; longer ones are passed over.
const maxLine = 64 << 20

// parseLine reads a line; ok is false if it is no message.
func parseLine(line []byte) (m Message, ok bool) {
	err := json.Unmarshal(line, &m)
	return m, err == nil && m.Type == typeMessage && (m.Role == RoleUser || m.Role == RoleAssistant)
}

// A Page is a piece of a transcript.
type Page struct {
	Messages []Message // in their order
	Begin    int64     // where the first of them stands in the file, for ReadPage to go on before it; 0: nothing is before it
}

// ErrNoPlace means that a transcript cannot be read from a place on: no line begins
// there. It is the place of another transcript, or the file was changed.
var ErrNoPlace = errors.New("there is no such place in the transcript")

// maxPage bounds a page of several messages, in bytes of the file.
const maxPage = 8 << 20

// ReadPage returns the last n messages of a transcript, or with before the last n of those that stand before that place, a
// Page.Begin. They may be fewer where they are large; with 0 it is all of them. It reads no more of the file than it must.
// Lines that are no message are passed over: cut off, damaged, of another type, or longer than 64 MiB.
func ReadPage(path string, before int64, n int) (p Page, err error) {
	err = durable.With(durable.OS, path, os.O_RDONLY, func(f durable.File, fi fs.FileInfo) (err error) {
		last := []byte("\n") // of the line before
		if before == 0 {
			before = fi.Size()
		} else if _, err := f.ReadAt(last, before-1); err != nil || last[0] != '\n' {
			return ErrNoPlace
		}
		p, err = readPage(&durable.Backward{R: f, Begin: before, Limit: maxLine}, n)
		return err
	})
	if err != nil {
		return Page{}, fmt.Errorf("transcript: %w", err)
	}
	return p, nil
}

func readPage(b *durable.Backward, n int) (p Page, err error) {
	end := b.Begin
	for n == 0 || len(p.Messages) < n && (len(p.Messages) == 0 || end-p.Begin < maxPage) {
		line, begin, err := b.Line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return p, err
		}
		p.Begin = begin
		if m, ok := parseLine(line); ok {
			p.Messages = append(p.Messages, m)
		}
	}
	slices.Reverse(p.Messages)
	return p, nil
}
