package api

import (
	"bytes"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator"
	"stint/session"
	"stint/state"
)

type (
	healthOutput struct{ Body coordinator.Health }

	keyInput struct {
		Key string `path:"key" doc:"A session: its key or its id"`
	}

	sessionsOutput struct {
		Body struct {
			Sessions []state.Session `json:"sessions"`
		}
	}

	sessionOutput struct{ Body SessionView }
)

func (s *Server) masterRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/sessions", "list-sessions", "List sessions"), s.sessions)
	one := op(http.MethodGet, "/v1/sessions/{key}", "get-session", "Show a session with its tasks and its transcript")
	huma.Register(api, one, s.session)
	huma.Register(api, alias(one, "/v1/sessions/{key...}"), s.session) // a key with slashes that were not escaped

	whole := op(http.MethodGet, "/v1/state", "state", "The whole state as text, to compare with the fold of the journal")
	whole.Responses = answers("The state", "text/plain")
	huma.Register(api, whole, s.state)

	over := op(http.MethodPost, "/v1/handover", "handover", "Start nothing more and end after the runs at work")
	over.DefaultStatus = http.StatusNoContent
	huma.Register(api, over, s.handover)
}

func (s *Server) state(context.Context, *struct{}) (*textOutput, error) {
	var text bytes.Buffer
	if err := s.master.Dump(&text); err != nil {
		return nil, asProblem(err)
	}
	return &textOutput{ContentType: "text/plain; charset=utf-8", Body: text.Bytes()}, nil
}

func (s *Server) sessions(context.Context, *struct{}) (*sessionsOutput, error) {
	out := &sessionsOutput{}
	out.Body.Sessions = append([]state.Session{}, s.master.Sessions()...)
	return out, nil
}

func (s *Server) session(_ context.Context, in *keyInput) (*sessionOutput, error) {
	ses, transcript, err := s.master.Session(in.Key)
	if err != nil {
		return nil, asProblem(err)
	}
	return &sessionOutput{Body: SessionView{
		Session:    ses,
		Queue:      s.queue(ses.Key),
		Tasks:      append([]state.Task{}, s.master.List(state.Filter{Session: ses.Key})...),
		Transcript: append([]session.Message{}, transcript...),
	}}, nil
}

func (s *Server) handover(ctx context.Context, _ *struct{}) (*struct{}, error) {
	if err := s.master.Handover(ctx); err != nil {
		return nil, asProblem(err)
	}
	return &struct{}{}, nil
}
