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

	"stint/state"
)

type (
	listInput struct {
		Accept  string   `header:"Accept" doc:"application/jsonl: one task a line"`
		Status  []string `query:"status" enum:"draft,queued,running,done,failed,canceled,dead" doc:"Any of these, separated by commas"`
		Session string   `query:"session" doc:"Session key"`
		Label   string   `query:"label"`
		Tenant  string   `query:"tenant" doc:"Tenant id"`
		Queue   string   `query:"queue"`
		Agent   string   `query:"agent"`
		Limit   int      `query:"limit" minimum:"0" doc:"At most so many; 0: all"`
	}

	listBody struct {
		Tasks []TaskView `json:"tasks"`
	}
)

const jsonLines = "application/jsonl"

func (s *Server) listRoute(api huma.API) {
	list := op(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first")
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[listBody](), true, "")
	list.Responses = map[string]*huma.Response{"200": {Description: "The tasks", Content: map[string]*huma.MediaType{
		"application/json": {Schema: schema}, jsonLines: {},
	}}}
	huma.Register(api, list, s.list)
}

func (in *listInput) filter() state.Filter {
	f := state.Filter{
		Session: in.Session, Label: in.Label, TenantID: in.Tenant, Queue: in.Queue, Agent: in.Agent, Limit: in.Limit,
	}
	for _, status := range in.Status {
		f.Status = append(f.Status, state.Status(status))
	}
	return f
}

// list writes the rows one by one: there may be many, and most of them have been
// encoded before.
func (s *Server) list(_ context.Context, in *listInput) (*huma.StreamResponse, error) {
	rows, err := s.rows(in.filter())
	if err != nil {
		return nil, asProblem(err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		if in.Accept == jsonLines {
			hctx.SetHeader("Content-Type", jsonLines)
			writeRows(hctx, rows, "", "\n", "\n")
			return
		}
		hctx.SetHeader("Content-Type", "application/json")
		writeRows(hctx, rows, `{"tasks":[`, ",", "]}\n")
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

// rows gives the tasks of a list in JSON.
func (s *Server) rows(f state.Filter) ([][]byte, error) {
	list, err := s.master.Rows(f, s.row)
	if err != nil {
		return nil, err
	}
	rows := make([][]byte, len(list))
	for i := range list {
		rows[i] = list[i].Encoded
		if t := list[i].Task; t != nil {
			if rows[i], err = s.row(t); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

// row gives one task of a list in JSON.
func (s *Server) row(t *state.Task) ([]byte, error) {
	var buf bytes.Buffer
	err := writeJSON(&buf, s.view(*t))
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
	q := url.Values{}
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
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if len(q) == 0 {
		return "/v1/tasks"
	}
	return "/v1/tasks?" + q.Encode()
}
