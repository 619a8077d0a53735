package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newQueue returns the queue of an empty database, with accounts such as "codex-main codex 4".
func newQueue(t testing.TB, accounts ...string) *Queue {
	t.Helper()
	url := postgrestest.Shared(t).Database(t)
	db, err := server.Connect(t.Context(), func() (string, error) { return url, nil }, 20)
	must(t, err)
	t.Cleanup(db.Close)
	_, _, err = schema.Migrate(t.Context(), db)
	must(t, err)
	q := New(db.Pool)
	for _, a := range accounts {
		var id, tool string
		var most int
		_, err := fmt.Sscan(a, &id, &tool, &most)
		must(t, err)
		q.exec(t, "INSERT INTO accounts (id, tool, max_concurrency) VALUES ($1, $2, $3)", id, tool, most)
	}
	return q
}

func (q *Queue) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := q.pool.Exec(context.Background(), sql, args...)
	must(t, err)
}

func (q *Queue) add(t testing.TB, specs ...task.TaskSpec) []Task {
	t.Helper()
	list, err := q.Enqueue(t.Context(), specs)
	must(t, err)
	return list
}

func holder(host string) Holder {
	return Holder{uuid.NewSHA1(uuid.NameSpaceOID, []byte(host)), host, time.Minute}
}

func (q *Queue) lease(t testing.TB, h Holder, account string, most int) []Task {
	t.Helper()
	list, err := q.Lease(t.Context(), h, account, most, Filter{})
	must(t, err)
	return list
}

func claims(list []Task) (c []Claim) {
	for _, t := range list {
		c = append(c, Claim{t.ID, t.Attempt})
	}
	return c
}

func prompts(list []Task) string {
	var words []string
	for _, t := range list {
		words = append(words, t.Prompt)
	}
	return strings.Join(words, " ")
}

// TestDocumentsInserts: what documents 000 and 001 insert is leased, with its files.
func TestDocumentsInserts(t *testing.T) {
	q := newQueue(t, "codex-main codex 4")
	q.exec(t, `INSERT INTO tasks (id, tool, model, prompt, input_files, output_files, tenant_id, priority, idempotency_key)
		VALUES ($1, 'codex', NULL, 'one', '[{"name": "a.txt", "content": "hello"}]', '["out.txt"]', 'default', 5, NULL)`, uuid.New())
	q.exec(t, `INSERT INTO tasks (prompt) VALUES ('two')`)
	list := q.lease(t, holder("a"), "codex-main", 9)
	if prompts(list) != "one two" || list[0].OutputSpec[0] != "out.txt" || string(list[0].Files[0].Content) != "hello" || list[1].Tool != "codex" {
		t.Errorf("leased: %+v", list)
	}
	if s := twinOf(&list[0]); s.InputFiles[0] != (state.InputFile{Name: "a.txt", Content: "hello"}) || s.Account != "codex-main" || s.MaxAttempts != 3 {
		t.Errorf("twin: %+v", s)
	}
}

// TestEnqueue: a spec comes back as it was, once for each key.
func TestEnqueue(t *testing.T) {
	q := newQueue(t, "codex-main codex 4")
	spec := task.TaskSpec{
		Prompt: "do it", Agent: "codex", Model: "m", Account: "codex-main", SessionKey: "web", Label: "l", Priority: 7, IdempotencyKey: "k", MaxAttempts: 2, Timeout: "5m",
		VerifyCommand: "true", MaxIterations: 2, TenantID: "ana", Queue: "nightly", OutputSpec: []string{"o"}, InputFiles: []state.InputFile{{Name: "in", Content: "x\ny"}}, Isolation: "temp",
	}
	first := q.add(t, spec)[0]
	if again := q.add(t, spec)[0]; again.ID != first.ID {
		t.Errorf("queued twice: %s and %s", first.ID, again.ID)
	}
	other := spec
	other.InputFiles = []state.InputFile{{Name: "in", Content: "x\nz"}}
	if _, err := q.Enqueue(t.Context(), []task.TaskSpec{{Prompt: "not alone"}, other}); err == nil || !strings.Contains(err.Error(), "same key") {
		t.Errorf("the same key with another file: %v", err)
	}
	list, err := q.List(t.Context(), state.Filter{}, "")
	must(t, err)
	if len(list) != 1 {
		t.Errorf("there are %d tasks: a part of a refused list was queued", len(list))
	}
	leased := q.lease(t, holder("a"), "codex-main", 9)[0]
	s := twinOf(&leased)
	if !strings.HasPrefix(s.SessionKey, "shared-") || s.SessionKey == "shared-"+spec.SessionKey {
		t.Errorf("the twin is in session %s", s.SessionKey)
	}
	s.IdempotencyKey, s.OnFailure, s.OnIssue, s.SessionKey = spec.IdempotencyKey, "", "", spec.SessionKey
	if got, want := fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", spec); got != want {
		t.Errorf("twin\n%s, want\n%s", got, want)
	}
	for field, wrong := range map[string]task.TaskSpec{
		"workspace": {Prompt: "p", Workspace: "/x"}, "onFailure": {Prompt: "p", OnFailure: "x"}, "agent": {Prompt: "p", Agent: "vi"},
		"inputFiles": {Prompt: "p", InputFiles: []state.InputFile{{Name: "big", Content: strings.Repeat("x", 2<<20)}}},
	} {
		if _, err := q.Enqueue(t.Context(), []task.TaskSpec{wrong}); err == nil {
			t.Errorf("%s was taken", field)
		}
	}
}

// TestPermits: no more leases than an account allows, however many ask at the same time.
func TestPermits(t *testing.T) {
	q := newQueue(t, "codex-main codex 3")
	q.exec(t, "ALTER DATABASE "+q.pool.Config().ConnConfig.Database+" SET default_transaction_isolation = 'repeatable read'") // somebody may have liked that
	q.pool.Reset()
	q.add(t, slices.Repeat([]task.TaskSpec{{Prompt: "p"}}, 20)...)
	var all sync.WaitGroup
	var mu sync.Mutex
	var got []Task
	for range 8 {
		all.Go(func() {
			list, err := q.Lease(t.Context(), holder("a"), "codex-main", 2, Filter{})
			mu.Lock()
			defer mu.Unlock()
			if got = append(got, list...); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(got) != 3 {
		t.Errorf("%d leases of 3", len(got))
	}
}

// TestFence: only the newest lease of a task may write.
func TestFence(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 3"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "p", MaxAttempts: 2})
	a, b := holder("a"), holder("b")
	old := claims(q.lease(t, a, "codex-main", 1))
	q.exec(t, "UPDATE tasks SET lease_expires_at = now() - interval '1 s'")
	must(t, q.Reclaim(ctx))
	now := claims(q.lease(t, b, "codex-main", 1))
	kept, err := q.Renew(ctx, a, append(old, now...))
	if must(t, err); len(kept) > 0 {
		t.Errorf("another worker renewed: %v", kept)
	}
	kept, err = q.Renew(ctx, b, append(old, now...))
	must(t, err)
	if !slices.Equal(kept, now) {
		t.Errorf("renewed: %v", kept)
	}
	must(t, q.giveBack(ctx, holder("a"), old, false, "stale"))
	must(t, q.Start(ctx, holder("a"), old))
	if got, err := q.Get(ctx, now[0].ID, false); got.Status != "leased" || got.Attempt != 2 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	q.exec(t, "UPDATE tasks SET lease_expires_at = now() - interval '1 s'")
	must(t, q.Reclaim(ctx))
	if got, _ := q.Get(ctx, now[0].ID, false); got.Status != "deadletter" || got.Error == "" {
		t.Errorf("after its last attempt: %+v", got)
	}
	if got, err := q.Requeue(ctx, now[0].ID[:13]); got.Status != "queued" || err != nil {
		t.Errorf("requeued: %+v, %v", got, err)
	}
}

// TestSessions: one at a time, in order, and with the host that has the conversation while it lives.
func TestSessions(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 9"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "1", SessionKey: "web"}, task.TaskSpec{Prompt: "2", SessionKey: "web"}, task.TaskSpec{Prompt: "other"})
	a, b := holder("a"), holder("b")
	q.exec(t, "INSERT INTO worker_registry (worker_id, group_name, hostname, pid) VALUES ($1, 'codex-main', 'a', 1)", a.Worker)
	list := q.lease(t, a, "codex-main", 9)
	if prompts(list) != "1 other" {
		t.Fatalf("leased %q", prompts(list))
	}
	q.exec(t, "UPDATE tasks SET status = 'succeeded' WHERE id = $1", list[0].ID)
	if got := q.lease(t, b, "codex-main", 9); len(got) > 0 {
		t.Errorf("leased on another host: %q", prompts(got))
	}
	q.exec(t, "UPDATE worker_registry SET last_heartbeat = now() - interval '10 min'")
	if got := prompts(q.lease(t, b, "codex-main", 9)); got != "2" {
		t.Errorf("after its host has gone: %q", got)
	}
	if _, err := q.pool.Exec(ctx, "UPDATE tasks SET status = 'running' WHERE id = $1", list[0].ID); err == nil {
		t.Error("two of one session run")
	}
}

// TestSessionMoves: a session whose host has no worker any more begins a new conversation elsewhere, and the task says so to its end.
func TestSessionMoves(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 9"), t.Context()
	q.add(t, slices.Repeat([]task.TaskSpec{{Prompt: "p", SessionKey: "web"}}, 4)...)
	note := func(id string) (note string) {
		must(t, q.pool.QueryRow(ctx, "SELECT coalesce(note, '') FROM tasks WHERE id = $1", id).Scan(&note))
		return note
	}
	const moved = "the conversation of session web is on a, which has no worker for it any more; a new one was begun"
	maker := tables.Maker{Host: "a", MaxAttempts: 3, RunDir: func(string) string { return "" }}
	for i, step := range []struct {
		h                  Holder
		given, twins, ends string
		silent, leasing    bool
	}{
		{holder("a"), "", "", "", false, true},
		{holder("b"), "", "", "", false, false},
		{holder("b"), moved, "twin's", moved + "; twin's", true, true},
		{holder("b"), "", "twin's", "twin's", true, true},
		{holder("c"), "", "", "", false, false},
		{holder("a"), strings.Replace(moved, "on a", "on b", 1), "", strings.Replace(moved, "on a", "on b", 1), true, true},
	} {
		if i == 0 {
			must(t, q.Beat(ctx, step.h, task.WorkerRow{Accounts: "codex-main"}))
		}
		if step.silent {
			q.exec(t, "UPDATE worker_registry SET last_heartbeat = now() - 3 * interval '1 min'")
		}
		list := q.lease(t, step.h, "codex-main", 9)
		if (len(list) > 0) != step.leasing {
			t.Fatalf("step %d: leased %+v", i, list)
		} else if len(list) == 0 {
			continue
		}
		if i > 0 { // which forgets those that are silent
			must(t, q.Beat(ctx, step.h, task.WorkerRow{Accounts: "codex-main"}))
		}
		if got := note(list[0].ID); got != step.given {
			t.Errorf("step %d: the note is %q", i, got)
		}
		rows, err := maker.Of(&task.TaskRecord{Task: state.Task{ID: newID(), Status: state.Done, Agent: "codex", Prompt: "p", Note: step.twins, CreatedAt: time.Now(), UpdatedAt: time.Now()}})
		must(t, err)
		_, err = q.Finish(ctx, step.h, []Ended{{Claim{list[0].ID, list[0].Attempt}, rows, ""}})
		must(t, err)
		if got := note(list[0].ID); got != step.ends {
			t.Errorf("step %d: at its end the note is %q", i, got)
		}
	}
	workers, err := q.Workers(ctx)
	must(t, err)
	if len(workers) != 1 || workers[0].Host != "a" {
		t.Errorf("workers: %+v", workers)
	}
}

// TestOnlyItsClock: what a producer or a worker takes for the time is nothing to the queue.
func TestOnlyItsClock(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 9"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "zero"}, task.TaskSpec{Prompt: "past", NotBefore: time.Now().Add(-time.Hour)}, task.TaskSpec{Prompt: "future", NotBefore: time.Now().Add(time.Hour)})
	var wrong int
	must(t, q.pool.QueryRow(ctx, "SELECT count(*) FROM tasks WHERE abs(extract(epoch FROM created_at - scheduled_at)) > 60 AND prompt <> 'future' OR abs(extract(epoch FROM now() - created_at)) > 60").Scan(&wrong))
	if list := q.lease(t, holder("a"), "codex-main", 9); prompts(list) != "zero past" || wrong > 0 {
		t.Errorf("leased %q, and %d rows have a producer's time", prompts(list), wrong)
	}
	q.exec(t, "UPDATE tasks SET scheduled_at = now() WHERE prompt = 'future'") // an hour later
	if got := prompts(q.lease(t, holder("a"), "codex-main", 9)); got != "future" {
		t.Errorf("after an hour: %q", got)
	}
	must(t, q.Cool(ctx, "codex-main", time.Hour))
	list, err := q.Accounts(ctx)
	must(t, err)
	var until time.Time
	must(t, q.pool.QueryRow(ctx, "SELECT now() + interval '1 hour'").Scan(&until))
	if d := until.Sub(list[0].CoolUntil); d < 0 || d > time.Minute || list[0].Running != 3 {
		t.Errorf("%+v", list)
	}
}

// TestOpener: an empty database gets the schema, and one of a newer stint is refused in a sentence.
func TestOpener(t *testing.T) {
	url := postgrestest.Shared(t).Database(t)
	open := func() (n int, err error) {
		o := NewOpener(func() (string, error) { return url, nil }, 4)
		defer o.Close()
		err = o.Do(t.Context(), func(q *Queue) error {
			list, err := q.Accounts(t.Context())
			n = len(list)
			return err
		})
		return n, err
	}
	if n, err := open(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	db, err := server.Connect(t.Context(), func() (string, error) { return url, nil }, 1)
	must(t, err)
	defer db.Close()
	_, err = db.Pool.Exec(t.Context(), "INSERT INTO schema_migrations (version, name) SELECT max(version) + 1, 'what comes' FROM schema_migrations")
	must(t, err)
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "install a newer stint") {
		t.Errorf("a schema from the future: %v", err)
	}
	_, err = db.Pool.Exec(t.Context(), "DELETE FROM schema_migrations WHERE version >= 4")
	must(t, err)
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "stint sync migrate") {
		t.Errorf("a schema from the past: %v", err)
	}
}

// TestLeaseUsesIndex: what has ended, and what a mirror has, costs the queries of workers nothing, whatever the database knows of the tables.
func TestLeaseUsesIndex(t *testing.T) {
	ended, queued := 20_000, 200
	if n, _ := strconv.Atoi(os.Getenv("STINT_TEST_ROWS")); n > 0 { // 1,000,000
		ended, queued = n, n/100
	}
	q := newQueue(t, "codex-main codex 1000")
	q.exec(t, `INSERT INTO tasks (tool, prompt, status, priority, created_at) SELECT 'codex', 'p', 'succeeded', 1 + n % 9, now() - n * interval '1 s' FROM generate_series(1, $1) n`, ended)
	q.exec(t, `INSERT INTO tasks (tool, prompt, status, host) SELECT 'codex', 'p', 'queued', 'laptop' FROM generate_series(1, $1) n`, ended/10)
	// A session with a long past, and a long queue, comes first.
	q.exec(t, `INSERT INTO tasks (tool, prompt, priority, session_key, status, worker_host) SELECT 'codex', 'p', 9, 'long', CASE WHEN n % 2 = 0 THEN 'queued' ELSE 'succeeded' END, 'a' FROM generate_series(1, $1) n`, queued/2)
	q.exec(t, `INSERT INTO tasks (tool, prompt, priority, session_key) SELECT 'codex', 'p', 1 + n % 9, CASE WHEN n % 10 = 0 THEN 's' || n / 100 END FROM generate_series(1, $1) n`, queued)
	h := holder("a")
	args := argsOf([]Claim{{newID(), 1}}, pgx.NamedArgs{"account": "codex-main", "most": 4, "worker": h.Worker, "host": h.Host, "ttl": "1 min", "tenant": "", "queue": "", "free": 0})
	for _, rows := range []string{"tasks", "runs", "files"} {
		args[rows] = json.RawMessage("[]")
	}
	for i, known := range []string{"nothing", "all"} {
		if i > 0 {
			q.exec(t, "ANALYZE tasks")
		}
		for name, sql := range map[string]string{"lease": leaseSQL, "renew": renewSQL, "reclaim": reclaimSQL, "held by": heldBySQL, "finish": finishSQL, "stats": statsSQL} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} { // the second is how a connection may plan what it did often
				plan := q.plan(t, mode, sql, args)
				if strings.Contains(plan, "Seq Scan on tasks") || name == "lease" && !strings.Contains(plan, "Index Scan using idx_tasks_fetch") {
					t.Errorf("%s, when the planner knows %s, by %s:\n%s", name, known, mode, plan)
				}
			}
		}
	}
	var took []time.Duration
	for range 30 {
		begun := time.Now()
		if list := q.lease(t, h, "codex-main", 4); len(list) == 0 {
			t.Fatal("nothing was leased")
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("%d rows have ended and %d wait: a lease takes %s in the median, and %s at most", ended, queued, took[15], took[29])
}

// plan returns how a statement is run.
func (q *Queue) plan(t *testing.T, mode, sql string, named pgx.NamedArgs) (plan string) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), q.pool, func(tx pgx.Tx) error {
		execute := "EXPLAIN EXECUTE it"
		if strings.Contains(sql, "@") {
			numbered, values, err := named.RewriteQuery(t.Context(), tx.Conn(), sql, nil)
			must(t, err)
			var texts []string
			for _, v := range values {
				text, isJSON := v.(json.RawMessage)
				if !isJSON {
					text = []byte(strings.NewReplacer("[", "{", "]", "}").Replace(fmt.Sprint(v)))
				}
				texts = append(texts, "'"+string(text)+"'")
			}
			sql, execute = numbered, execute+"("+strings.Join(texts, ", ")+")"
		} else if strings.Contains(sql, "$1") {
			execute += "('" + newID() + "')"
		}
		for _, s := range []string{"SET LOCAL plan_cache_mode = " + mode, "PREPARE it AS " + sql} {
			_, err := tx.Exec(t.Context(), s)
			must(t, err)
		}
		rows, _ := tx.Query(t.Context(), execute)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		must(t, err)
		_, err = tx.Exec(t.Context(), "DEALLOCATE it")
		return err
	}))
	return plan
}

// TestFinish: the runs, the usage and the files of a twin hang on the shared row, once, and those of a lease before do not.
func TestFinish(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 3"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "p", InputFiles: []state.InputFile{{Name: "in", Content: "x"}}, OutputSpec: []string{"out"}})
	leased := q.lease(t, holder("a"), "codex-main", 1)[0]
	run := newID()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "files"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "files", "out"), []byte("\x00result"), 0o600))
	exit := 0
	twin := &task.TaskRecord{
		Task: state.Task{
			ID: newID(), Status: state.Done, Agent: "codex", Account: "codex-main", Prompt: "p", RunID: run, Result: "said", ExitCode: &exit, CreatedAt: time.Now(), UpdatedAt: time.Now(),
			Usage: state.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 0.25}, OutputFiles: []state.OutputFile{{Path: "out", Size: 7}}, InputFiles: []state.InputFile{{Name: "in", Content: "x"}},
		},
		Runs: []task.TaskRun{{RunID: run, Attempt: 1, Agent: "codex", StartedAt: time.Now(), EndedAt: time.Now(), ExitCode: &exit}},
	}
	maker := tables.Maker{Host: "a", InlineThreshold: 1 << 20, OutputLimit: 100, MaxAttempts: 3, RunDir: func(string) string { return dir }}
	rows, err := maker.Of(twin)
	must(t, err)
	stale := Ended{Claim{leased.ID, leased.Attempt - 1}, rows, ""}
	_, err = q.Finish(ctx, holder("a"), []Ended{stale})
	must(t, err)
	if got, _ := q.Get(ctx, leased.ID, true); got.Status != "leased" || len(got.Files) != 1 {
		t.Fatalf("a stale result was taken: %+v", got)
	}
	for range 2 {
		_, err = q.Finish(ctx, holder("a"), []Ended{{Claim{leased.ID, leased.Attempt}, rows, ""}})
		must(t, err)
	}
	got, err := q.Get(ctx, leased.ID, true)
	must(t, err)
	if got.Status != "succeeded" || got.Answer != "said" || len(got.Files) != 2 || string(got.Files[1].Content) != "\x00result" || got.Prompt != "p" || got.LeasedBy != "" || got.FinishedAt.IsZero() {
		t.Errorf("finished: %+v", got)
	}
	var runs int
	var tokens int64
	must(t, q.pool.QueryRow(ctx, "SELECT count(*), sum(tokens_used) FROM task_runs WHERE task_id = $1 AND host = 'a'", leased.ID).Scan(&runs, &tokens))
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	q.add(t, task.TaskSpec{Prompt: "good"}, task.TaskSpec{Prompt: "too large"})
	two := q.lease(t, holder("a"), "codex-main", 2)
	var three []Ended
	for i, l := range two {
		twin.Task.ID, twin.Task.RunID = newID(), newID()
		twin.Runs[0].RunID = twin.Task.RunID
		rows, err := maker.Of(twin)
		must(t, err)
		rows.Task[slices.Index(tables.Tasks.Columns, "limit_waits")] = i * (1 << 40)
		three = append(three, Ended{Claim{l.ID, l.Attempt}, rows, ""})
	}
	_, err = q.Finish(ctx, holder("a"), append([]Ended{three[1], stale}, three[0]))
	must(t, err)
	for i, want := range []string{"succeeded said ", "failed  its result could not be stored: "} {
		if got, _ := q.Get(ctx, two[i].ID, false); !strings.HasPrefix(got.Status+" "+got.Answer+" "+got.Error, want) {
			t.Errorf("beside another: %+v, want %s", got, want)
		}
	}
	q.add(t, task.TaskSpec{Prompt: "wrong"})
	wrong := q.lease(t, holder("a"), "codex-main", 1)[0]
	_, err = q.Finish(ctx, holder("a"), []Ended{{Claim{wrong.ID, wrong.Attempt}, nil, "the prompt is no good"}})
	must(t, err)
	if got, _ := q.Get(ctx, wrong.ID, false); got.Status != "failed" || got.Error != "the prompt is no good" {
		t.Errorf("refused: %+v", got)
	}
}

// TestWait: a task that waits for its next try says why, and until when, for as long as it does.
func TestWait(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 3"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "p"})
	c := claims(q.lease(t, holder("a"), "codex-main", 1))
	must(t, q.Start(ctx, holder("a"), c))
	must(t, q.Wait(ctx, holder("b"), c[0], time.Hour, "another's"))
	for _, want := range []string{"exit status 1", ""} {
		if want == "" {
			must(t, q.Start(ctx, holder("a"), c))
		} else {
			must(t, q.Wait(ctx, holder("a"), c[0], time.Minute, want))
		}
		got, err := q.Get(ctx, c[0].ID, false)
		if must(t, err); got.Error != want || got.Status != "running" || got.NextAttemptAt.After(time.Now()) != (want != "") {
			t.Errorf("%q: %+v", want, got)
		}
	}
}

// TestOthersID: an id that a machine's own task has, or a key and an id of two tasks, are refused with a sentence.
func TestOthersID(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 3"), t.Context()
	own, one := newID(), newID()
	q.exec(t, "INSERT INTO tasks (id, host, prompt) VALUES ($1, 'laptop', 'p')", own)
	q.add(t, task.TaskSpec{Prompt: "p", ID: one}, task.TaskSpec{Prompt: "p", IdempotencyKey: "k"})
	for _, spec := range []task.TaskSpec{{Prompt: "p", ID: own}, {Prompt: "p", ID: one, IdempotencyKey: "k"}} {
		if _, err := q.Enqueue(ctx, []task.TaskSpec{spec}); !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// TestLockedRow: a row that somebody has locked, and left so, holds up neither the leases of other tasks nor their results.
func TestLockedRow(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 9"), t.Context()
	q.add(t, slices.Repeat([]task.TaskSpec{{Prompt: "p"}}, 3)...)
	h := holder("a")
	list := claims(q.lease(t, h, "codex-main", 9))
	tx, err := q.pool.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, "SELECT FROM tasks WHERE id = $1 FOR UPDATE", list[1].ID)
	must(t, err)
	kept, err := q.Renew(ctx, h, list)
	if must(t, err); !slices.Equal(kept, []Claim{list[0], list[2]}) {
		t.Errorf("renewed %v of %v", kept, list)
	}
	if err := q.end(ctx, h, list); !hasCode(err, locked) {
		t.Errorf("the end of a locked one: %v", err)
	}
	failed := func() (n int) {
		must(t, q.pool.QueryRow(ctx, "SELECT count(*) FROM tasks WHERE status = 'failed'").Scan(&n))
		return n
	}
	if n := failed(); n != 2 {
		t.Errorf("%d have ended beside it", n)
	}
	must(t, tx.Rollback(ctx))
	must(t, q.end(ctx, h, list))
	if n := failed(); n != 3 {
		t.Errorf("%d have ended", n)
	}
}

// TestRunsOfGivenBack: what a lease has run is there after it was given back, and of a stale one nothing.
func TestRunsOfGivenBack(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 9"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "p", MaxAttempts: 9})
	maker := tables.Maker{Host: "a", MaxAttempts: 3, RunDir: func(string) string { return t.TempDir() }}
	for i := range 3 {
		h := holder("a")
		c := claims(q.lease(t, h, "codex-main", 1))[0]
		twin := state.Task{ID: newID(), Status: state.Canceled, Agent: "codex", Prompt: "p", CreatedAt: time.Now(), UpdatedAt: time.Now()}
		rows, err := maker.Of(&task.TaskRecord{Task: twin, Runs: []task.TaskRun{{RunID: newID(), Agent: "codex", Attempt: 1, StartedAt: time.Now(), EndedAt: time.Now()}}})
		must(t, err)
		must(t, q.GiveBack(ctx, h, Ended{Claim{c.ID, c.Attempt + 1}, rows, ""}, true, "not its own"))
		must(t, q.GiveBack(ctx, h, Ended{c, rows, ""}, true, "why"))
		var n int
		must(t, q.pool.QueryRow(ctx, "SELECT count(*) FROM task_runs r JOIN tasks t ON t.id = r.task_id WHERE t.status = 'queued'").Scan(&n))
		if n != i+1 {
			t.Errorf("%d runs after %d leases", n, i+1)
		}
	}
}

// TestProducer: who may only queue tasks, as the manual says, can do that, and nothing else.
func TestProducer(t *testing.T) {
	url, ctx := postgrestest.Shared(t).Database(t), t.Context()
	owner := NewOpener(func() (string, error) { return url, nil }, 2)
	t.Cleanup(owner.Close)
	must(t, owner.Do(ctx, func(q *Queue) error {
		q.exec(t, "INSERT INTO accounts (id, tool, max_concurrency) VALUES ('codex-main', 'codex', 1)")
		q.exec(t, "DROP ROLE IF EXISTS stint_test_producer")
		q.exec(t, "CREATE ROLE stint_test_producer")
		q.exec(t, "GRANT SELECT, INSERT ON tasks TO stint_test_producer")
		t.Cleanup(func() { q.exec(t, "DROP OWNED BY stint_test_producer; DROP ROLE stint_test_producer") })
		must(t, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL ROLE stint_test_producer")
			must(t, err)
			_, err = tx.Exec(ctx, `INSERT INTO tasks (prompt, input_files, output_files) VALUES ('p', '[{"name": "a", "content": "b"}]', '["c"]')`)
			return err
		}))
		q.exec(t, "GRANT SELECT, INSERT ON task_files TO stint_test_producer; GRANT SELECT ON accounts, schema_migrations TO stint_test_producer")
		return nil
	}))
	producer := NewOpener(func() (string, error) { return url + "&options=-c%20role%3Dstint_test_producer", nil }, 1)
	t.Cleanup(producer.Close)
	queued, err := producer.Submit(ctx, task.TaskSpec{Prompt: "p", Account: "codex-main", Shared: true, InputFiles: []state.InputFile{{Name: "a", Content: "b"}}})
	must(t, err)
	if err := producer.Do(ctx, func(q *Queue) error { _, err := q.Cancel(ctx, queued.ID); return err }); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("it may cancel: %v", err)
	}
}
