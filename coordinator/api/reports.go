package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

type (
	accountsOutput struct {
		Body struct {
			Accounts []state.AccountUse `json:"accounts" doc:"The accounts, by name"`
		}
	}

	usageInput struct {
		By       string `query:"by" default:"day" enum:"day,agent,model,account,session,task,run,total" doc:"One row for each of these" example:"day"`
		Since    string `query:"since" format:"date-time" doc:"Runs that ended then or later" example:"2026-11-01T00:00:00Z"`
		Until    string `query:"until" format:"date-time" doc:"Runs that ended before" example:"2026-12-01T00:00:00Z"`
		Location string `query:"location" default:"UTC" doc:"Whose days are meant: a zone of the IANA database, such as Europe/Berlin" example:"Europe/Berlin"`
	}

	usageOutput struct {
		Body struct {
			Rows []task.UsageRow `json:"rows" doc:"Days come newest first, all else by tokens, most first"`
		}
	}

	searchInput struct{ Body task.MemoryQuery }

	searchOutput struct{ Body task.MemoryResult }
)

// maxSearches is how many searches of notes run at the same time: each starts a program.
const maxSearches = 2

func (s *Server) reportRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/accounts", "list-accounts", "List accounts", "What is known of each account, and which tasks use it. Nothing of its credentials."), s.accounts)
	huma.Register(api, op(http.MethodGet, "/v1/usage", "usage", "Add up what runs have used", "Tokens and cost, a row for each value of by. The whole ledger is read for it."), s.usage)
	huma.Register(api, op(http.MethodPost, "/v1/memory/search", "search-memory", "Search the notes of a workspace", "As a task with that prompt would. Nothing is kept.", http.StatusTooManyRequests), s.search)
}

func (s *Server) accounts(context.Context, *struct{}) (*accountsOutput, error) {
	out := &accountsOutput{}
	out.Body.Accounts = append([]state.AccountUse{}, s.master.Accounts()...)
	return out, nil
}

// query returns what is asked for.
func (in *usageInput) query() (q task.UsageQuery, err error) {
	q.By = in.By
	if in.By == "total" {
		q.By = ""
	}
	if q.Since, err = queryTime("since", in.Since); err != nil {
		return q, err
	}
	if q.Until, err = queryTime("until", in.Until); err != nil {
		return q, err
	}
	if !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return q, &task.Error{Code: task.CodeInvalid, Message: "nothing lies between since and until", Hint: "let since be the earlier one", Field: "until"}
	}
	q.Location, err = time.LoadLocation(in.Location)
	if err != nil || in.Location == "Local" {
		return q, &task.Error{Code: task.CodeInvalid, Message: "this machine knows no zone " + wire.Clip(in.Location), Hint: "use one such as Europe/Berlin, or UTC", Field: "location"}
	}
	return q, nil
}

// queryTime reads the time of a parameter; "" is none.
func queryTime(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, &task.Error{Code: task.CodeInvalid, Message: name + " is no time", Hint: "give one such as 2026-12-01T08:00:00Z", Field: name}
	}
	return t, nil
}

func (s *Server) usage(ctx context.Context, in *usageInput) (*usageOutput, error) {
	q, err := in.query()
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	ctx, release := long(ctx)
	defer release()
	leave, err := s.usages.enter(ctx)
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	defer leave()
	rows, err := s.master.Usage(ctx, q)
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	out := &usageOutput{}
	out.Body.Rows = append([]task.UsageRow{}, rows...)
	return out, nil
}

func (s *Server) search(ctx context.Context, in *searchInput) (*searchOutput, error) {
	q := in.Body
	q.FromRun = fromRun(ctx)
	ctx, release := long(ctx)
	defer release()
	leave, err := s.searches.enter(ctx)
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	defer leave()
	found, err := s.master.SearchMemory(ctx, q)
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	return &searchOutput{Body: found}, nil
}
