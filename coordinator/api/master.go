package api

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/session"
	"stint/state"
)

type (
	healthOutput struct{ Body task.Health }

	keyInput struct {
		Key    string `path:"key" doc:"A session: its key or its id" example:"web"`
		Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"At most so many messages, the last ones; 0: all. They may be fewer where they are large" example:"100"`
		Cursor string `query:"cursor" doc:"The older of an answer: go on with the messages before it" example:"2s"`
	}

	sessionsOutput struct {
		Body struct {
			Sessions []state.Session `json:"sessions" doc:"The sessions"`
		}
	}

	sessionOutput struct{ Body wire.SessionView }
)

func (s *Server) masterRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/sessions", "list-sessions", "List sessions", "Each conversation that a task can go on with."), s.sessions)
	one := op(http.MethodGet, "/v1/sessions/{key}", "get-session", "Show a session with its tasks and its transcript", "The transcript comes whole, or page by page from its end: limit and cursor.")
	huma.Register(api, one, s.session)
	huma.Register(api, alias(one, "/v1/sessions/{key...}"), s.session) // a key with slashes that were not escaped

	whole := op(http.MethodGet, "/v1/state", "state", "Dump the state of the master as text", "To compare it with what a fold of the journal gives. The format may change.")
	whole.Responses = answers("The state", "text/plain", "task 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 done\n")
	huma.Register(api, whole, s.state)

	over := op(http.MethodPost, "/v1/handover", "handover", "Start nothing more, and exit after the present runs", "The next master goes on with the queue. stint serve asks a master in the background for this.")
	over.DefaultStatus = http.StatusNoContent
	huma.Register(api, over, s.handover)
}

func (s *Server) state(context.Context, *struct{}) (*textOutput, error) {
	var text bytes.Buffer
	if err := s.master.Dump(&text); err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &textOutput{ContentType: "text/plain; charset=utf-8", Body: text.Bytes()}, nil
}

func (s *Server) sessions(context.Context, *struct{}) (*sessionsOutput, error) {
	out := &sessionsOutput{}
	out.Body.Sessions = append([]state.Session{}, s.master.Sessions()...)
	return out, nil
}

func (s *Server) session(_ context.Context, in *keyInput) (*sessionOutput, error) {
	ses, page, err := s.transcript(in)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	view := wire.SessionView{
		Session:    ses,
		Queue:      s.listAll(s.master.Queue(ses.Key)),
		Tasks:      s.listAll(s.master.List(state.Filter{Session: ses.Key})),
		Transcript: append([]session.Message{}, page.Messages...),
	}
	if page.Begin > 0 {
		view.Older = wire.FormatCursor(uint64(page.Begin))
	}
	return &sessionOutput{Body: view}, nil
}

// pageLength is how many messages a page has whose request does not say.
const pageLength = 100

// transcript returns a session, and of its transcript what is asked for.
func (s *Server) transcript(in *keyInput) (state.Session, session.Page, error) {
	before, err := wire.ParseCursor(in.Cursor)
	if err != nil || before > math.MaxInt64 {
		return state.Session{}, session.Page{}, task.BadCursor("it is none")
	}
	if in.Limit == 0 && before == 0 {
		ses, all, err := s.master.Session(in.Key)
		return ses, session.Page{Messages: all}, err
	}
	return s.master.SessionPage(in.Key, int64(before), cmp.Or(in.Limit, pageLength))
}

func (s *Server) handover(ctx context.Context, _ *bareInput) (*struct{}, error) {
	if err := s.master.Handover(ctx); err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &struct{}{}, nil
}
