package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/redact"
	"stint/coordinator/task"
)

// changedBy are the columns by which rows of operations are known to have changed.
var changedBy = map[string]string{"task_queue": "updated_at", "job_runs": "ran_at", "server_metrics": "sampled_at", "usage_daily": "updated_at"}

// figures are rows of operations, as a master has them: by table, the key, and then the row.
type figures struct {
	sync.Mutex
	rows  map[string]map[string]map[string]any
	wrong map[string]error
}

// since implements Options.Figures.
func (f *figures) since(table string, since time.Time) (rows []any, err error) {
	f.Lock()
	defer f.Unlock()
	for _, row := range f.rows[table] {
		if !row[changedBy[table]].(time.Time).Before(since) {
			rows = append(rows, row)
		}
	}
	return rows, f.wrong[table]
}

// set sets a row. pairs are names and values.
func (f *figures) set(table, key string, pairs ...any) {
	f.Lock()
	defer f.Unlock()
	row := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		row[pairs[i].(string)] = pairs[i+1]
	}
	if f.rows == nil {
		f.rows = map[string]map[string]map[string]any{}
	}
	if f.rows[table] == nil {
		f.rows[table] = map[string]map[string]any{}
	}
	f.rows[table][key] = row
}

func (f *figures) drop(table, key string) { f.Lock(); defer f.Unlock(); delete(f.rows[table], key) }

func (f *figures) fail(table string, err error) {
	f.Lock()
	defer f.Unlock()
	f.wrong = map[string]error{table: err}
}

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// fill sets a row of each table.
func (f *figures) fill() {
	f.set("task_queue", "q1", "id", "q1", "type", "init_instance", "payload", map[string]string{"instance_id": "shop", "user_id": "ana", "tg_user_id": "123"}, "status", "pending", "attempts", 0, "error", nil, "created_at", noon, "updated_at", noon)
	f.run("health_check", noon, "2 run")
	f.set("server_metrics", "s1", "server_id", "s1", "cpu_pct", 12.5, "mem_used_mb", 2048, "mem_total_mb", 8192, "disk_used_gb", 20.5, "disk_total_gb", 80, "load_1m", 0.42, "sampled_at", noon)
	f.day("2026-11-29", 42, noon)
}

func (f *figures) run(name string, at time.Time, detail string) {
	f.set("job_runs", name+at.String(), "job_name", name, "status", "ok", "duration_ms", 420, "detail", detail, "ran_at", at)
}

func (f *figures) day(date string, requests int, at time.Time) {
	f.set("usage_daily", date, "instance_id", "shop", "date", date, "requests", requests, "tokens", 5_000_000_000, "cost_usd", 1.25, "updated_at", at)
}

// newFigures returns a world with figures, for a mirror that does not run.
func newFigures(t *testing.T, s *postgrestest.Server) (*world, *figures) {
	w, f := newWorld(t, s.Database(t)), &figures{}
	w.o.Figures = f.since
	f.fill()
	return w, f
}

// opened returns a session of a host, as a mirror has one.
func (w *world) opened(host string) *session {
	w.t.Helper()
	o := w.o
	o.Host = host
	s, err := New(o).open(w.t.Context())
	must(w.t, err)
	w.t.Cleanup(s.db.Close)
	return s
}

// puts has a session write figures, which has to go well.
func (w *world) puts(s *session) {
	w.t.Helper()
	if wrong := s.putFigures(w.t.Context()); wrong != "" {
		w.t.Error(wrong)
	}
}

// figures returns the rows of a table with their columns of document 004, without the number that the database gives.
func (w *world) figures(table string) string {
	w.t.Helper()
	return query[string](w.t, w, "SELECT coalesce(string_agg(concat_ws('|', "+map[string]string{
		"task_queue":     "host, id, type, payload::text, status, attempts, error, created_at, updated_at",
		"job_runs":       "host, job_name, status, duration_ms, detail, ran_at",
		"server_metrics": "host, server_id, cpu_pct, mem_used_mb, mem_total_mb, disk_used_gb, disk_total_gb, load_1m, sampled_at",
		"usage_daily":    "host, instance_id, date, requests, tokens, cost_usd, updated_at",
	}[table]+"), E'\n' ORDER BY host, "+changedBy[table]+"), '') FROM "+table)
}

// wants compares what a table has.
func (w *world) wants(table, want string) {
	w.t.Helper()
	if got := w.figures(table); got != want {
		w.t.Errorf("%s has\n%s\nnot\n%s", table, got, want)
	}
}

// versions tells of each version of each row of a host, and of locks of it.
func (w *world) versions(host string) string {
	var list []string
	for _, table := range slices.Sorted(maps.Keys(changedBy)) {
		list = append(list, query[string](w.t, w, "SELECT coalesce(string_agg(concat_ws(' ', tableoid, ctid, xmin, xmax), ',' ORDER BY "+changedBy[table]+"), '') FROM "+table+" WHERE host = $1", host))
	}
	return strings.Join(list, "\n")
}

const (
	wantQueue   = `laptop|q1|init_instance|{"user_id": "ana", "tg_user_id": "123", "instance_id": "shop"}|pending|0|2026-11-29 12:00:00+00|2026-11-29 12:00:00+00`
	wantRun     = "laptop|health_check|ok|420|2 run|2026-11-29 12:00:00+00"
	wantMetrics = "laptop|s1|12.5|2048|8192|20.5|80|0.42|2026-11-29 12:00:00+00"
	wantUsage   = "laptop|shop|2026-11-29|42|5000000000|1.250000|2026-11-29 12:00:00+00"
)

// TestFigures: the rows appear, change in their place, and are there once through restarts of either side.
func TestFigures(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w, f := newFigures(t, server)
	s := w.opened("laptop")
	all := func() {
		t.Helper()
		w.wants("task_queue", wantQueue)
		w.wants("job_runs", wantRun)
		w.wants("server_metrics", wantMetrics)
		w.wants("usage_daily", wantUsage)
	}
	w.puts(s)
	all()
	const numbers = "SELECT string_agg(concat(sequencename, ' ', last_value), ',' ORDER BY sequencename) FROM pg_sequences"
	before := w.versions("laptop") + query[string](t, w, numbers)
	for range 3 {
		w.puts(s)
	}
	if after := w.versions("laptop") + query[string](t, w, numbers); after != before {
		t.Errorf("nothing has changed, and something was written:\n%s\nnot\n%s", after, before)
	}

	f.set("task_queue", "q1", "id", "q1", "type", "init_instance", "payload", nil, "status", "failed", "attempts", 3, "error", "server s1 cannot be reached", "created_at", noon, "updated_at", noon.Add(time.Second))
	f.day("2026-11-29", 43, noon.Add(time.Second))
	w.puts(s)
	w.wants("task_queue", "laptop|q1|init_instance|failed|3|server s1 cannot be reached|2026-11-29 12:00:00+00|2026-11-29 12:00:01+00")
	w.wants("usage_daily", strings.NewReplacer("|42|", "|43|", "12:00:00", "12:00:01").Replace(wantUsage))
	w.wants("job_runs", wantRun)

	server.Restart(t)
	if wrong := s.putFigures(t.Context()); wrong == "" {
		t.Error("a session outlives its server")
	}
	f.fill()
	f.day("2026-11-30", 1, noon.Add(2*time.Second))
	s = w.opened("laptop")
	w.puts(s)
	w.wants("job_runs", wantRun)
	if n := query[int](t, w, "SELECT count(*) FROM usage_daily"); n != 2 {
		t.Errorf("%d days", n)
	}
	w.rebuild()
	f.drop("usage_daily", "2026-11-30")
	w.exec("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	w.puts(w.opened("laptop"))
	all()
}

// TestFiguresOfTwoHosts are apart, though they have the same keys, and the one is behind the other.
func TestFiguresOfTwoHosts(t *testing.T) {
	t.Parallel()
	w, f := newFigures(t, postgrestest.Shared(t))
	f.run("fsck", noon.Add(time.Hour), "no findings")
	w.puts(w.opened("laptop"))
	before := w.versions("laptop")
	f.drop("job_runs", "fsck"+noon.Add(time.Hour).String())
	f.day("2026-11-29", 7, noon.Add(time.Minute))
	desk := w.opened("desk")
	w.puts(desk)
	w.wants("usage_daily", "desk|shop|2026-11-29|7|5000000000|1.250000|2026-11-29 12:01:00+00\n"+wantUsage)
	w.wants("job_runs", strings.Replace(wantRun, "laptop", "desk", 1)+"\n"+wantRun+"\nlaptop|fsck|ok|420|no findings|2026-11-29 13:00:00+00")
	if after := w.versions("laptop"); after != before {
		t.Errorf("rows of the other host were touched:\n%s\nnot\n%s", after, before)
	}
}

// TestFiguresOddText: what PostgreSQL cannot hold is replaced, and what is secret is masked.
func TestFiguresOddText(t *testing.T) {
	t.Parallel()
	w, f := newFigures(t, postgrestest.Shared(t))
	w.o.Redact = redact.New(func() []string { return []string{`hunter2"\<&>`, "line\nbreak"} })
	f.drop("job_runs", "health_check"+noon.String())
	for i, c := range [][2]string{
		{"a\x00b", "a\uFFFDb"},
		{"\xff\xfe odd \xed\xa0\x80", "\uFFFD\uFFFD odd \uFFFD\uFFFD\uFFFD"},
		{"'; DROP TABLE job_runs; -- \u202e 😀 \u2028", "'; DROP TABLE job_runs; -- \u202e 😀 \u2028"},
		{`the key is hunter2"\<&> or line` + "\nbreak.", "the key is " + strings.Repeat("*", 29) + " or " + strings.Repeat("*", 11) + "."},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20)},
	} {
		at := noon.Add(time.Duration(i) * time.Second)
		f.run("fsck", at, c[0])
		s := w.opened("laptop")
		w.puts(s)
		got := query[string](t, w, "SELECT detail FROM job_runs WHERE ran_at = $1", at)
		if got != c[1] {
			t.Errorf("%.100q is %.100q, not %.100q", c[0], got, c[1])
		}
	}
}

// TestFiguresOutOfOrder: rows are missed neither where they come a moment after newer ones, nor where a clock was wrong, nor
// where two have one key.
func TestFiguresOutOfOrder(t *testing.T) {
	t.Parallel()
	w, f := newFigures(t, postgrestest.Shared(t))
	s := w.opened("laptop")
	has := func(name string) {
		t.Helper()
		w.puts(s)
		if n := query[int](t, w, "SELECT count(*) FROM job_runs WHERE job_name = $1", name); n != 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	has("health_check")
	f.run("late", noon.Add(-10*time.Second), "it ended before, and was noted after")
	has("late")
	f.run("future", time.Now().Add(9*365*24*time.Hour), "when the clock was wrong")
	has("future")
	f.run("present", time.Now().Add(-time.Minute), "when it was right again")
	has("present")
	now := time.Now().Truncate(time.Millisecond)
	f.run("fast", now, "one")
	f.run("fast", now.Add(100*time.Microsecond), "another in the same millisecond")
	has("fast")
}

// TestFiguresFail: a table that cannot be written, or figures that cannot be read, are said, and stop neither the other tables nor
// the mirror of tasks.
func TestFiguresFail(t *testing.T) {
	t.Parallel()
	w, f := newFigures(t, postgrestest.Shared(t))
	f.fail("task_queue", fmt.Errorf("jobs.md: %w", fs.ErrPermission))
	f.set("usage_daily", "huge", "instance_id", "huge", "date", "2026-11-29", "requests", 1<<40, "tokens", 1, "cost_usd", 1, "updated_at", noon)
	s := w.opened("laptop")
	if said := s.putFigures(t.Context()); !strings.HasPrefix(said, "table task_queue is not as it has to be: ") || !strings.Contains(said, "jobs.md: permission denied") {
		t.Error(said)
	}
	w.wants("job_runs", wantRun)
	w.wants("server_metrics", wantMetrics)
	f.fail("", errors.New("none"))

	m, stop := w.mirror()
	until(t, "it is said", func() bool {
		return strings.Contains(m.Status().Warning, "table usage_daily is not as it has to be: ") && strings.Contains(m.Status().Warning, "out of range")
	})
	w.wants("task_queue", wantQueue)
	for range 3 {
		w.submit(task.TaskSpec{Prompt: "p"})
		w.settled(m)
	}
	if st := m.Status(); st.State != task.MirrorFollowing || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
	f.drop("usage_daily", "huge")
	until(t, "it is well again", func() bool { return m.Status().Warning == "" })
	w.wants("usage_daily", wantUsage)
	stop()
	if m.Status().Warning != "" {
		t.Error(m.Status().Warning)
	}
	w.same()
}
