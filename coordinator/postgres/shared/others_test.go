package shared

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
)

type echo struct{}

func (echo) Run(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	report(task.Event{Session: "s", Bytes: 1})
	return task.Outcome{Result: "done"}
}

// work lets a worker with a master of its own run until the function that it returns is called.
func (q *Queue) work(t *testing.T) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	var w *Worker
	c, err := coordinator.Open(queue.Config{
		LeaseOf:  func(id string) *task.Lease { return w.LeaseOf(id) },
		StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"), Agents: map[string]task.Agent{"codex": echo{}}, DefaultAgent: func([]string) string { return "codex" },
		WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 3, Timeout: time.Minute, ResumePolicy: "auto"},
		MaxWorkers:        4, MaxRetries: 5, BackoffBase: time.Millisecond, BackoffMax: 2 * time.Millisecond, MaxLimitWait: time.Hour,
		Grace: time.Second, SessionLockTimeout: time.Second, HeartbeatInterval: time.Hour, ResumeMissing: "new", WorkspaceRoot: dir,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended, worked := make(chan error, 1), make(chan struct{})
	maker := tables.Maker{Host: "a", InlineThreshold: 1 << 20, OutputLimit: 100, MaxAttempts: 3, RunDir: func(id string) string { return filepath.Join(dir, id) }}
	w = NewWorker(Options{
		Holder: Holder{uuid.New(), "a", time.Minute}, Renew: 2 * time.Second, Poll: 50 * time.Millisecond, Processes: 4, Margin: time.Second, Rows: maker.Of, Now: hold.Uptime,
		Accounts: func(context.Context) ([]string, error) { return []string{"codex"}, nil }, SessionDir: func(string) (string, error) { return t.TempDir(), nil }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, q, c, nil)
	go func() { ended <- c.Run(ctx) }()
	go func() {
		defer close(worked)
		w.Run(context.Background())
	}()
	return func() {
		must(t, c.Handover(ctx))
		<-worked
		cancel()
		must(t, <-ended)
		must(t, c.Close())
	}
}

// othersRows are rows that other programs have written, what becomes of them, and a part of what is said of it.
var othersRows = []struct{ name, columns, values, want, says string }{
	{"documents", "tool, model, prompt, input_files, output_files, tenant_id, priority, idempotency_key", `'codex', NULL, 'p', '[{"name": "a", "content": "x"}]', '["a"]', 'default', 5, 'k'`, "succeeded", ""},
	{"a prompt alone", "prompt", `'p'`, "succeeded", ""},
	{"nothing", "tool", `NULL`, "failed", "the prompt is empty"},
	{"an empty prompt", "prompt", `''`, "failed", "the prompt is empty"},
	{"a huge prompt", "prompt", `repeat('x', 5000000)`, "failed", "the prompt has more than"},
	{"output_files that are no list", "prompt, output_files", `'p', '{"a": 1}'`, "failed", "output_spec is no list"},
	{"output_files of numbers", "prompt, output_files", `'p', '[1, 2]'`, "failed", "output_spec is no list"},
	{"output_files that are a text", "prompt, output_files", `'p', '"a"'`, "failed", "output_spec is no list"},
	{"output_files of null", "prompt, output_files", `'p', 'null'`, "succeeded", ""},
	{"an output file elsewhere", "prompt, output_spec", `'p', '["../../etc/passwd"]'`, "failed", "output file"},
	{"input_files that are no list", "prompt, input_files", `'p', '{"name": "a"}'`, "failed", "input_files is no list"},
	{"input_files of texts", "prompt, input_files", `'p', '["a"]'`, "failed", "input_files is no list"},
	{"an input file without a name", "prompt, input_files", `'p', '[{"content": "a"}]'`, "failed", "input file"},
	{"an input file of a number", "prompt, input_files", `'p', '[{"name": "a", "content": 7}]'`, "failed", "input_files is no list"},
	{"a huge input file", "prompt, input_files", `'p', jsonb_build_array(jsonb_build_object('name', 'a', 'content', repeat('x', 5000000)))`, "failed", "input files have more than"},
	{"extra that is a text", "prompt, extra", `'p', '"x"'`, "failed", "extra has a value"},
	{"extra with a number", "prompt, extra", `'p', '{"timeout": 5}'`, "failed", "extra has a value"},
	{"extra that means nothing", "prompt, extra", `'p', '{"timeout": "soon"}'`, "failed", "soon"},
	{"extra of others", "prompt, extra", `'p', '{"team": "x"}'`, "succeeded", ""},
	{"no attempts", "prompt, max_attempts", `'p', -2147483648`, "succeeded", ""},
	{"many attempts", "prompt, max_attempts", `'p', 2147483647`, "", ""},
	{"attempts before", "prompt, attempt", `'p', 2147483647`, "succeeded", ""},
	{"negative attempts", "prompt, attempt, retries", `'p', -2147483648, 2147483647`, "", ""},
	{"a label of two lines", "prompt, label", `'p', E'a\nb'`, "failed", "label"},
	{"a long session key", "prompt, session_key", `'p', repeat('x', 100000)`, "succeeded", ""},
	{"a long verify command", "prompt, verify_command", `'p', repeat('x', 100000)`, "failed", "verify command"},
	{"a model that is an option", "prompt, model", `'p', '--yolo'`, "failed", "model"},
	{"long ago", "prompt, scheduled_at", `'p', '-infinity'`, "succeeded", ""},
	{"before Christ", "prompt, scheduled_at, created_at", `'p', '4000-01-01 BC', '-infinity'`, "succeeded", ""},
	{"created in the far future", "prompt, created_at", `'p', 'infinity'`, "succeeded", ""},
	{"never", "prompt, scheduled_at", `'p', 'infinity'`, "queued", ""},
	{"later", "prompt, next_attempt_at", `'p', '290000-01-01'`, "queued", ""},
	{"of an account that is not there", "prompt, account", `'p', 'nobody'`, "failed", "no account nobody"},
	{"running without a lease", "prompt, status", `'p', 'running'`, "succeeded", ""},
	{"running without an end", "prompt, status, lease_expires_at", `'p', 'running', 'infinity'`, "succeeded", ""},
	{"leased long ago", "prompt, status, lease_expires_at, leased_by, attempt, retries", `'p', 'leased', '-infinity', 'codex', -2147483648, 2147483647`, "", ""},
	{"leased from the future", "prompt, status, lease_expires_at", `'p', 'leased', now() + interval '1 hour'`, "succeeded", ""},
	{"held", "prompt, held", `'p', TRUE`, "queued", ""},
	{"with a workspace", "prompt, workspace", `'p', '/tmp'`, "failed", "neither a workspace"},
	{"an input file without content", "prompt, input_files", `'p', '[{"name": "a"}]'`, "failed", "has no content"},
	{"a draft", "prompt, status", `'p', 'draft'`, "draft", ""},
}

// refusedRows are those that the database itself does not take.
var refusedRows = map[string]string{
	"a priority out of range": `INSERT INTO tasks (prompt, priority) VALUES ('p', 10)`,
	"a tool of others":        `INSERT INTO tasks (prompt, tool) VALUES ('p', 'vi')`,
	"a status of others":      `INSERT INTO tasks (prompt, status) VALUES ('p', 'done')`,
	"no status":               `INSERT INTO tasks (prompt, status) VALUES ('p', NULL)`,
	"files of NULL":           `INSERT INTO tasks (prompt, input_files) VALUES ('p', NULL)`,
	"a huge value":            `INSERT INTO tasks (prompt, extra) VALUES ('p', jsonb_build_object('x', repeat('x', 9000000)))`,
	"a long session key":      `INSERT INTO tasks (prompt, session_key) SELECT 'p', string_agg(md5(n::text), '') FROM generate_series(1, 3200) n`,
}

// TestRowsOfOthers: a row that another program has written runs, or is set aside with a sentence, and all others go on.
func TestRowsOfOthers(t *testing.T) {
	q, ctx := newQueue(t, "codex codex 4"), t.Context()
	ids := map[string]string{}
	for _, f := range othersRows {
		id := uuid.NewString()
		ids[f.name] = id
		q.exec(t, "INSERT INTO tasks (id, "+f.columns+") VALUES ('"+id+"', "+f.values+")")
	}
	for name, sql := range refusedRows {
		if _, err := q.pool.Exec(ctx, sql); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if s, err := q.Stats(ctx); err != nil || s.Tasks["queued"] == 0 || s.Oldest <= 0 {
		t.Errorf("stats of rows that wait: %+v, %v", s, err)
	}
	stop := q.work(t)
	defer stop()
	open := func() (names []string) {
		for _, f := range othersRows {
			got, err := q.Get(ctx, ids[f.name], false)
			must(t, err)
			isEnded := slices.Contains([]string{"succeeded", "failed", "deadletter", "canceled"}, got.Status)
			if f.want != got.Status && !(f.want == "" && isEnded) {
				names = append(names, f.name+": "+got.Status+" "+got.Error)
			}
		}
		return names
	}
	for end := time.Now().Add(60 * time.Second); len(open()) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	for _, name := range open() {
		t.Errorf("%s", name)
	}
	list, err := q.List(ctx, state.Filter{}, "")
	if err != nil || len(list) != len(othersRows) {
		t.Errorf("a list of %d: %v", len(list), err)
	}
	for _, f := range othersRows {
		got, err := q.Get(ctx, ids[f.name], true)
		must(t, err)
		if f.want == "failed" && (!strings.Contains(got.Error, f.says) || got.FinishedAt.IsZero() || got.LeasedBy != "") || f.want == "succeeded" && got.Answer != "done" {
			t.Errorf("%s: %+v", f.name, got)
		}
	}
	if _, err := q.Stats(ctx); err != nil {
		t.Error(err)
	}
}
