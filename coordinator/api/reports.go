package api

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"strings"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/session"
	"stint/state"
)

type (
	usageInput struct {
		By       string    `query:"by" default:"day" pattern:"^(total|(day|agent|model|account|session|task|run)(,(day|agent|model|account|session|task|run)){0,6})$" doc:"One row for each: day, agent, model, account, session, task, run, total, or some of these with commas" example:"account,day"`
		Since    time.Time `query:"since" doc:"Runs that ended then or later" example:"2026-11-01T00:00:00Z"`
		Until    time.Time `query:"until" doc:"Runs that ended before" example:"2026-12-01T00:00:00Z"`
		Location string    `query:"location" default:"UTC" doc:"Whose days are meant: a zone of the IANA database, such as Europe/Berlin" example:"Europe/Berlin"`
	}

	usageBody struct {
		Rows []task.UsageRow `json:"rows" doc:"Days come newest first, all else by tokens, most first"`
	}

	accountInput struct {
		ID   string `path:"id" doc:"Name of the account" example:"codex-work"`
		Body *noBody
	}
)

// maxSearches is how many searches of notes run at the same time: each starts a program.
const maxSearches = 2

func (s *Server) reportRoutes() {
	answers(s, op(http.MethodGet, "/v1/accounts", "list-accounts", "List accounts", "What is known of each account, and which tasks use it. Nothing of its credentials."), func(context.Context, *struct{}) (wire.AccountsBody, error) {
		return wire.AccountsBody{Accounts: notNull(s.rooms.Accounts())}, nil
	})
	answers(s, op(http.MethodGet, "/v1/workers", "list-workers", "List the workers of the shared queue", "Those that are registered, on all machines.", http.StatusConflict), func(ctx context.Context, _ *struct{}) (out wire.WorkersBody, err error) {
		shared, err := s.shared(ctx, true, false)
		if err != nil {
			return out, err
		}
		status, err := shared.Status(ctx)
		return wire.WorkersBody{Workers: notNull(status.Workers)}, err
	})
	setAccount := func(name, summary, about string, enabled bool) {
		answers(s, op(http.MethodPost, "/v1/accounts/{id}/"+name, name+"-account", summary, about), func(ctx context.Context, in *accountInput) (state.AccountUse, error) {
			return s.rooms.SetAccount(ctx, in.ID, enabled, ledger.ByClient)
		})
	}
	setAccount("enable", "Let tasks use an account", "This ends that it is disabled, its hold, and its cool-down.", true)
	setAccount("disable", "Let no task start with an account", "Those that run go on. Those that wait move to another account of the agent, unless they are pinned or go on with a conversation.", false)
	answers(s, op(http.MethodGet, "/v1/usage", "usage", "Add up what runs have used", "Tokens and cost, a row for each value of by. For runs and tasks, and where a bound is no whole quarter of an hour, the whole ledger is read."), lasting(s.usage))
	answers(s, op(http.MethodPost, "/v1/memory/search", "search-memory", "Search the notes of a workspace", "As a task with that prompt would. Nothing is kept.", http.StatusTooManyRequests), lasting(func(ctx context.Context, in *with[task.MemoryQuery]) (task.MemoryResult, error) {
		q := in.Body
		q.FromRun = guard.Run(ctx)
		leave, err := s.searches.enter(ctx)
		if err != nil {
			return task.MemoryResult{}, err
		}
		defer leave()
		return s.rooms.SearchMemory(ctx, q)
	}))
	answers(s, op(http.MethodGet, "/v1/sessions", "list-sessions", "List sessions", "Each conversation that a task can go on with."), func(context.Context, *struct{}) (wire.SessionsBody, error) {
		return wire.SessionsBody{Sessions: notNull(s.rooms.Sessions())}, nil
	})
	answers(s, op(http.MethodGet, "/v1/sessions/{key}", "get-session", "Show a session with its tasks and its transcript", "The transcript comes whole, or page by page from its end: limit and cursor.").alias("/v1/sessions/{key...}"), s.session) // the other path has a key with slashes that were not escaped
}

func (s *Server) usage(ctx context.Context, in *usageInput) (out usageBody, err error) {
	q := task.UsageQuery{By: strings.TrimPrefix(in.By, "total"), Since: in.Since, Until: in.Until}
	q.Location, err = time.LoadLocation(in.Location)
	if err != nil || in.Location == "Local" {
		return out, &task.Error{Code: task.CodeInvalid, Message: "this machine knows no zone " + wire.Clip(in.Location), Hint: "use one such as Europe/Berlin, or UTC", Field: "location"}
	}
	leave, err := s.usages.enter(ctx)
	if err != nil {
		return out, err
	}
	defer leave()
	rows, err := s.rooms.Usage(ctx, q)
	return usageBody{Rows: notNull(rows)}, err
}

type sessionInput struct {
	Key    string `path:"key" doc:"A session: its key or its id" example:"web"`
	Limit  int    `query:"limit" minimum:"0" maximum:"1000" doc:"At most so many messages, the last ones; 0: all. They may be fewer where they are large" example:"100"`
	Cursor string `query:"cursor" doc:"The older of an answer: go on with the messages before it" example:"2s"`
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
	view.Session, page, err = s.rooms.Session(in.Key, int64(before), in.Limit)
	if err != nil {
		return view, err
	}
	view.Queue = s.listAll(s.rooms.Queue(view.Key))
	view.Tasks = s.listAll(s.rooms.List(state.Filter{Session: view.Key}))
	view.Transcript = notNull(page.Messages)
	if page.Begin > 0 {
		view.Older = wire.FormatCursor(uint64(page.Begin))
	}
	return view, nil
}
