package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"stint/coordinator/api/logs"
	"stint/coordinator/task"
)

type logsInput struct {
	Ref
	Stream string `query:"stream" default:"stdout" enum:"events,stdout,stderr" doc:"Which output: what happened, one event a line in JSON, the same for all agents; or what the run wrote to stdout or stderr, as it is" example:"stdout"`
	Follow bool   `query:"follow" doc:"Go on until the task has ended, over all its runs from those of the present attempt on" example:"false"`
	Run    string `query:"run" doc:"Only that run of the task: its id, a unique piece of it, or the number from 1 of one of its agent" example:"1"`
	Range  string `header:"Range" doc:"Of bytes of what there is now, such as bytes=0-999, or bytes=-1000 for the last ones. Not with follow" example:"bytes=-1000"`
}

// newStream returns what to write a stream to; its header is sent with the first write.
func newStream(w http.ResponseWriter, contentType string) *streamWriter {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	return &streamWriter{w: w, rc: http.NewResponseController(w)}
}

// A streamWriter sends what it is given without delay.
type streamWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s *streamWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.rc.Flush()
	}
	return n, err
}

func (s *Server) logs(ctx context.Context, in *logsInput) (*streamOutput, error) {
	t, err := s.rooms.Task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	of := logs.Stream{Master: s.rooms, Name: in.Stream}
	if in.Stream != "events" { // stint wrote those, without secrets but those that its user has typed
		of.Redact = s.opts.Redact
	}
	content, err := of.Open(&t, in.Run)
	if in.Follow && !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
		if err == nil {
			_ = content.Close() // it was only looked at
		}
		done, err := s.beginWait(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		return &streamOutput{Body: func(w http.ResponseWriter, r *http.Request) {
			defer done()
			ctx, release := long(r.Context())
			defer release()
			out := newStream(w, textPlain)
			_ = out.rc.Flush() // the header goes at once; an error shows again with the first write
			if of.Follow(ctx, t.ID, s.opts.Poll, out) != nil {
				panic(http.ErrAbortHandler) // the client is to see that the log is not whole
			}
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	return &streamOutput{Body: func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = content.Close() }() // it was only read
		w.Header().Set("Content-Type", textPlain)
		http.ServeContent(&rangeWriter{ResponseWriter: w}, r, "", time.Time{}, io.NewSectionReader(content, 0, content.Size()))
	}}, nil
}

const textPlain = "text/plain; charset=utf-8"
