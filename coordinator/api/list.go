package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// A listFilter says which tasks a list has.
type listFilter struct {
	state.Filter
	Cursor string `query:"cursor" doc:"The next of an answer: the list goes on after its last task" example:"2s"`
}

func (f *listFilter) filter() (state.Filter, error) {
	var err error
	f.Before, err = wire.ParseCursor(f.Cursor)
	return f.Filter, err
}

type listInput struct {
	Accept string `header:"Accept" hidden:"true"` // application/jsonl: one task a line
	listFilter
	sharedInput
	Prompts bool `query:"prompts" doc:"Also the prompts, which are read from the ledger" example:"true"`
}

type tableInput struct {
	listFilter
	wire.Look
}

// list writes the rows one by one: there may be many, and most of them have been encoded before.
func (s *Server) list(ctx context.Context, in *listInput) (*streamOutput, error) {
	f, err := in.filter()
	shared, wrong := s.shared(ctx, in.Shared, false)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	f.Prompts = in.Prompts
	var rows [][]byte
	var next uint64
	if shared == nil {
		rows, next, err = s.page(f)
	} else {
		var tasks []state.Task
		tasks, err = shared.List(ctx, f)
		for _, t := range tasks {
			rows = append(rows, bytes.TrimSuffix(wire.MustJSON(s.view(t)), []byte("\n"))) // what the ledger says of waiting is not about it
		}
	}
	if err != nil {
		return nil, err
	}
	row := func(i int) []byte { return rows[i] }
	return &streamOutput{Body: func(w http.ResponseWriter, r *http.Request) {
		end := "]}\n"
		if next > 0 {
			f.Before = next
			w.Header().Set("Link", "<"+wire.ListPath(f)+`>; rel="next"`)
			end = `],"next":"` + wire.FormatCursor(next) + "\"}\n"
		}
		if acceptsLines(in.Accept) {
			w.Header().Set("Content-Type", wire.JSONLines)
			w.Header().Set(wire.ListHeader, strconv.Itoa(len(rows)))
			writeRows(w, http.StatusOK, len(rows), row, "", "\n", "\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeRows(w, http.StatusOK, len(rows), row, `{"tasks":[`, ",", end)
	}}, nil
}

func (s *Server) table(_ context.Context, in *tableInput) (*streamOutput, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	f.Text = true
	look := in.Look
	zone, err := time.LoadLocation(look.Zone)
	if err != nil {
		return nil, &task.Error{Code: task.CodeInvalid, Message: "this machine knows no zone " + wire.Clip(look.Zone), Hint: "use one such as Europe/Berlin, or UTC", Field: "location"}
	}
	look.Now = s.opts.Now().In(zone)
	encode := func(t *state.Task) ([]byte, error) { return s.opts.Line(s.listed(*t), look), nil }
	rows, err := s.rooms.Rows(f, encode)
	if err != nil {
		return nil, err
	}
	lines := make([]byte, 0, 128*len(rows))
	head := []string{strconv.Itoa(len(rows))}
	for _, row := range rows {
		if t := row.Task; t != nil {
			if row.Encoded, _ = encode(t); t.Status == state.Queued && !slices.Contains(head[1:], t.AccountName()) {
				head = append(head, t.AccountName())
			}
		}
		lines = append(append(lines, row.Encoded...), '\n')
	}
	return &streamOutput{Body: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", textPlain)
		w.Header().Set(wire.ListHeader, strings.Join(head, " "))
		if len(rows) > 0 {
			_ = s.opts.Table(w, lines, look) // the client may be gone
		}
	}}, nil
}

// writeRows writes n rows with something before, between and after them. The client may be gone, which is no fault of the answer.
func writeRows(rw http.ResponseWriter, status int, n int, row func(i int) []byte, before, between, after string) {
	rw.WriteHeader(status)
	w := bufio.NewWriterSize(rw, 64<<10)
	defer func() { _ = w.Flush() }()
	_, _ = io.WriteString(w, before)
	for i := range n {
		if i > 0 {
			_, _ = io.WriteString(w, between)
		}
		_, _ = w.Write(row(i))
	}
	if n > 0 || before != "" {
		_, _ = io.WriteString(w, after)
	}
}

// page returns the tasks of a list in JSON, and where the next page begins; 0 if there
// is none. To know that, it asks for one task more than are wanted.
func (s *Server) page(f state.Filter) (rows [][]byte, next uint64, err error) {
	most := f.Limit
	if most > 0 {
		f.Limit++
	}
	list, err := s.rooms.Rows(f, s.row)
	if err != nil {
		return nil, 0, err
	}
	if most > 0 && len(list) > most {
		list = list[:most]
		next = list[most-1].First
	}
	for _, row := range list {
		if row.Task != nil {
			row.Encoded, _ = s.row(row.Task)
		}
		rows = append(rows, row.Encoded)
	}
	return rows, next, nil
}

// row returns a task of a list in JSON. It has no errors.
func (s *Server) row(t *state.Task) ([]byte, error) {
	return bytes.Clone(bytes.TrimSuffix(wire.MustJSON(s.listed(*t)), []byte("\n"))), nil // which is kept
}

// listed shows one task of a list, and why it is not running.
func (s *Server) listed(t state.Task) wire.TaskView {
	v := s.view(t)
	if !t.Status.Terminal() {
		v.Waits, v.Why = s.rooms.Waits(t.ID)
	}
	return v
}

// view shows a task as its fields and its last run are.
func (s *Server) view(t state.Task) wire.TaskView {
	v := wire.TaskView{Task: t}
	if rundir.IsRunID(t.RunID) {
		v.RunDir = s.rooms.RunDir(t.RunID)
	}
	if t.Status == state.Running {
		v.LastOutput, v.Event, v.Settling = s.rooms.Live(t.ID)
	}
	return v
}

// detail shows one task with everything there is to say.
func (s *Server) detail(t state.Task) wire.TaskView {
	v := s.listed(t)
	v.Iterations, v.BeganAt = state.Iterations(t.Steps), t.StartedAt
	if turns := rundir.TurnsOf(&t); v.RunDir != "" && len(turns) > 0 {
		v.Env = rundir.ReadFirst(s.rooms.RunDir(turns[len(turns)-1].RunID)).Env
	}
	return v
}

// shown returns a task with everything there is to say.
func (s *Server) shown(ctx context.Context, ref string) (wire.TaskView, error) {
	t, err := s.rooms.Task(ctx, ref)
	if err != nil {
		return wire.TaskView{}, err
	}
	return s.detail(t), nil
}

func (s *Server) listAll(tasks []state.Task) []wire.TaskView {
	views := make([]wire.TaskView, len(tasks))
	for i, t := range tasks {
		views[i] = s.listed(t)
	}
	return views
}
