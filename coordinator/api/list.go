package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/task"
	"stint/state"
)

type (
	listInput struct {
		Accept  string         `header:"Accept" hidden:"true"` // application/jsonl: one task a line
		Status  []state.Status `query:"status" doc:"Any of these, separated by commas, in one parameter or several" example:"[\"queued\",\"running\"]"`
		Session string         `query:"session" doc:"Tasks of this session" example:"web"`
		Label   string         `query:"label" doc:"Tasks with this label" example:"nightly"`
		Tenant  string         `query:"tenant" doc:"Tasks of this tenant" example:"ana"`
		Queue   string         `query:"queue" doc:"Tasks of this queue" example:"nightly"`
		Agent   string         `query:"agent" doc:"Tasks of this agent" example:"codex"`
		Limit   int            `query:"limit" minimum:"0" default:"100" doc:"At most so many; 0: all" example:"100"`
		Cursor  string         `query:"cursor" doc:"The next of an answer: the list goes on after its last task" example:"2s"`
	}

	listBody struct {
		Tasks []TaskView `json:"tasks" doc:"The tasks: of a list newest first, of a submit in the order in which they were sent"`
		Next  string     `json:"next,omitempty" doc:"Cursor for the next page; left out on the last one" example:"2s"`
	}
)

const jsonLines = "application/jsonl"

func (s *Server) listRoute(api huma.API) {
	list := op(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first, page by page", "100 tasks unless limit says otherwise; next and the header Link lead to the next page. With Accept: application/jsonl each line is a task. Prompts and results are left out.")
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[listBody](), true, "")
	list.Responses = map[string]*huma.Response{"200": {
		Description: "The tasks",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
		Headers: map[string]*huma.Param{
			"Link":    {Description: `The next page, as rel="next"; left out on the last one`, Schema: &huma.Schema{Type: huma.TypeString}},
			seqHeader: {Description: "Number of the newest record: events go on from there. Every answer has it", Schema: &huma.Schema{Type: huma.TypeInteger}},
		},
	}}
	huma.Register(api, list, s.list)
}

// Resolve adds the statuses of further parameters of that name, of which huma reads the first.
func (in *listInput) Resolve(ctx huma.Context) (errs []error) {
	u := ctx.URL()
	all := u.Query()["status"]
	for name := range strings.SplitSeq(strings.Join(all[min(1, len(all)):], ","), ",") {
		status, err := state.ParseStatus(name)
		switch {
		case name == "": // as huma has it
		case err != nil:
			errs = append(errs, &huma.ErrorDetail{Location: "query.status", Message: err.Error()})
		default:
			in.Status = append(in.Status, status)
		}
	}
	return errs
}

func (in *listInput) filter() (state.Filter, error) {
	f := state.Filter{
		Status: in.Status, Session: in.Session, Label: in.Label, TenantID: in.Tenant, Queue: in.Queue, Agent: in.Agent, Limit: in.Limit,
	}
	var err error
	f.Before, err = parseCursor(in.Cursor)
	return f, err
}

// cursorBase is the base in which a cursor is written: it is short, and does not
// look like a number that a client could reckon with.
const cursorBase = 36

// formatCursor gives the cursor of a place in a list, which is not 0: of tasks it is a
// [state.Row.First], of messages a [session.Page.Begin].
func formatCursor(place uint64) string { return strconv.FormatUint(place, cursorBase) }

// parseCursor is the inverse of formatCursor; "" is 0.
func parseCursor(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	place, err := strconv.ParseUint(s, cursorBase, 64)
	if err != nil || place == 0 || formatCursor(place) != s {
		return 0, task.BadCursor("it is none")
	}
	return place, nil
}

// list writes the rows one by one: there may be many, and most of them have been
// encoded before.
func (s *Server) list(_ context.Context, in *listInput) (*huma.StreamResponse, error) {
	f, err := in.filter()
	if err != nil {
		return nil, asProblem(err)
	}
	rows, next, err := s.page(f)
	if err != nil {
		return nil, asProblem(err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		end := "]}\n"
		if next > 0 {
			f.Before = next
			hctx.SetHeader("Link", "<"+listPath(f)+`>; rel="next"`)
			end = `],"next":"` + formatCursor(next) + "\"}\n"
		}
		if acceptsLines(in.Accept) {
			hctx.SetHeader("Content-Type", jsonLines)
			writeRows(hctx, rows, "", "\n", "\n")
			return
		}
		hctx.SetHeader("Content-Type", "application/json")
		writeRows(hctx, rows, `{"tasks":[`, ",", end)
	}}, nil
}

// writeRows writes rows with something before, between and after them. The client
// may be gone, which is no fault of the answer.
func writeRows(hctx huma.Context, rows [][]byte, before, between, after string) {
	hctx.SetStatus(http.StatusOK)
	w := bufio.NewWriterSize(hctx.BodyWriter(), 64<<10)
	defer func() { _ = w.Flush() }()
	_, _ = io.WriteString(w, before)
	for i, row := range rows {
		if i > 0 {
			_, _ = io.WriteString(w, between)
		}
		_, _ = w.Write(row)
	}
	if len(rows) > 0 || before != "" {
		_, _ = io.WriteString(w, after)
	}
}

// page gives the tasks of a list in JSON, and where the next page begins; 0 if there
// is none. To know that, it asks for one task more than are wanted.
func (s *Server) page(f state.Filter) (rows [][]byte, next uint64, err error) {
	most := f.Limit
	if most > 0 {
		f.Limit++
	}
	list, err := s.master.Rows(f, s.row)
	if err != nil {
		return nil, 0, err
	}
	if most > 0 && len(list) > most {
		list = list[:most]
		next = list[most-1].First
	}
	rows = make([][]byte, len(list))
	for i := range list {
		rows[i] = list[i].Encoded
		if t := list[i].Task; t != nil {
			if rows[i], err = s.row(t); err != nil {
				return nil, 0, err
			}
		}
	}
	return rows, next, nil
}

// row gives one task of a list in JSON.
func (s *Server) row(t *state.Task) ([]byte, error) {
	var buf bytes.Buffer
	err := writeJSON(&buf, s.listed(*t))
	return bytes.Clone(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))), err
}

// List gives the tasks that f lets through, newest first, without their texts.
func (c *Client) List(ctx context.Context, f state.Filter) ([]TaskView, error) {
	var out listBody
	err := c.call(ctx, http.MethodGet, listPath(f), nil, &out)
	return out.Tasks, err
}

// ListJSON writes to w what List gives, in JSON, one task a line. An error of w is
// given as it is.
func (c *Client) ListJSON(ctx context.Context, f state.Filter, w io.Writer) error {
	ctx, release := c.watch(ctx)
	defer release()
	resp, err := c.do(ctx, http.MethodGet, listPath(f), nil, jsonLines)
	if err != nil {
		return err
	}
	return c.copyBody(ctx, w, resp)
}

func listPath(f state.Filter) string {
	q := url.Values{"limit": {strconv.Itoa(f.Limit)}}
	if len(f.Status) > 0 {
		names := make([]string, len(f.Status))
		for i, s := range f.Status {
			names[i] = string(s)
		}
		q.Set("status", strings.Join(names, ","))
	}
	for name, value := range map[string]string{
		"session": f.Session, "label": f.Label, "tenant": f.TenantID, "queue": f.Queue, "agent": f.Agent,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Before != 0 {
		q.Set("cursor", formatCursor(f.Before))
	}
	return "/v1/tasks?" + q.Encode()
}
