package api

import (
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

// Sessions reads sessions, by key or by id.
type Sessions interface {
	Sessions() []state.Session
	// Session returns a session and the last n messages of its transcript, or of those before a
	// place; 0: all of them.
	Session(ref string, before int64, n int) (state.Session, session.Page, error)
}

type sessionInput struct {
	Key    string `path:"key" doc:"A session: its key or its id" example:"web"`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"At most so many messages, the last ones; 0: all. They may be fewer where they are large" example:"100"`
	Cursor string `query:"cursor" doc:"The older of an answer: go on with the messages before it" example:"2s"`
}

func (s *Server) sessionRoutes(api huma.API) {
	answers(api, op(http.MethodGet, "/v1/sessions", "list-sessions", "List sessions", "Each conversation that a task can go on with."), func(context.Context, *struct{}) (wire.SessionsBody, error) {
		return wire.SessionsBody{Sessions: notNull(s.rooms.Sessions.Sessions())}, nil
	})
	one := op(http.MethodGet, "/v1/sessions/{key}", "get-session", "Show a session with its tasks and its transcript", "The transcript comes whole, or page by page from its end: limit and cursor.")
	answers(api, one, s.session)
	answers(api, alias(one, "/v1/sessions/{key...}"), s.session) // a key with slashes that were not escaped
}

// pageLength is how many messages a page has whose request does not say.
const pageLength = 100

func (s *Server) session(_ context.Context, in *sessionInput) (view wire.SessionView, err error) {
	before, err := wire.ParseCursor(in.Cursor)
	if err != nil || before > math.MaxInt64 {
		return view, task.BadCursor("it is none")
	}
	if before > 0 {
		in.Limit = cmp.Or(in.Limit, pageLength)
	}
	var page session.Page
	view.Session, page, err = s.rooms.Sessions.Session(in.Key, int64(before), in.Limit)
	if err != nil {
		return view, err
	}
	view.Queue = s.listAll(s.rooms.Tasks.Queue(view.Key))
	view.Tasks = s.listAll(s.rooms.Tasks.List(state.Filter{Session: view.Key}))
	view.Transcript = notNull(page.Messages)
	if page.Begin > 0 {
		view.Older = wire.FormatCursor(uint64(page.Begin))
	}
	return view, nil
}
