package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// TestMirror runs tasks under a mirror and looks at each kind of row.
func TestMirror(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop := w.mirror()
	good := w.submit(task.TaskSpec{
		Prompt: "Write a report", OutputSpec: []string{"report.md"}, InputFiles: []state.InputFile{{Name: "in.txt", Content: "a\x00b"}},
		IdempotencyKey: "key-1", TenantID: "shop", Queue: "night", Label: "reports", Priority: 7, SessionKey: "web",
	})
	bad := w.submit(task.TaskSpec{Prompt: "please fail", Parallel: true})
	w.settled(m)
	for sql, want := range map[string]string{
		"SELECT status || ' ' || tenant_id || ' ' || queue || ' ' || priority || ' ' || tool FROM tasks WHERE id = $1": "succeeded shop night 7 demo",
		"SELECT idempotency_key || ' ' || label || ' ' || session_key || ' ' || host FROM tasks WHERE id = $1":         "key-1 reports web laptop",
		"SELECT answer FROM tasks WHERE id = $1":                                                                       "done: " + good,
		"SELECT result::text FROM tasks WHERE id = $1":                                                                 `{"files": ["report.md"], "exit_code": 0}`,
		"SELECT status || ' ' || tokens_used || ' ' || cost_usd || ' ' || agent FROM task_runs WHERE task_id = $1":     "succeeded 15 0.25 demo",
		"SELECT replace(stdout, id::text, 'RUN') FROM task_runs WHERE task_id = $1":                                    "said\uFFFD by RUN\n",
		"SELECT encode(content, 'escape') || size_bytes FROM task_files WHERE task_id = $1 AND is_input":               `a\000b3`,
		"SELECT encode(content, 'escape') || (run_id IS NOT NULL) FROM task_files WHERE task_id = $1 AND NOT is_input": "a reporttrue",
		"SELECT (started_at <= finished_at AND latency_ms >= 0)::text FROM task_runs WHERE task_id = $1":               "true",
		"SELECT scope || max_concurrent || current_concurrent FROM concurrency_limits WHERE $1::uuid IS NOT NULL":      "account:laptop/demo40",
		"SELECT concat_ws(' ', hostname, group_name, pid, version) FROM worker_registry WHERE $1::uuid IS NOT NULL":    fmt.Sprint("machine ", os.Getpid(), " test"),
	} {
		if got := query[string](t, w, sql, good); got != want {
			t.Errorf("%s:\n%s, not %s", sql, got, want)
		}
	}
	if got := query[string](t, w, "SELECT status || ' ' || reason || ' ' || attempt FROM tasks WHERE id = $1", bad); got != "deadletter network 3" {
		t.Error("the other task is", got)
	}
	if got := query[string](t, w, "SELECT string_agg(status || ' ' || reason || ' ' || exit_code || ' ' || number, ', ' ORDER BY number) FROM task_runs WHERE task_id = $1", bad); got != "failed network 7 1, failed network 7 2, failed network 7 3" {
		t.Error("its runs are", got)
	}
	if r := w.same(); r.Tasks != 2 || r.Runs != 4 || r.Files != 2 {
		t.Errorf("compared %+v", r)
	}
	stop()
	if n := query[int](t, w, "SELECT count(*) FROM worker_registry"); n != 0 {
		t.Error("a mirror that has ended is still registered")
	}
}

// TestMirrorBesideSharedQueue: what belongs to the shared queue is nothing to a mirror, whether it is written, made anew or compared;
// and masters of which nothing is heard are forgotten, but no workers.
func TestMirrorBesideSharedQueue(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop := w.mirror()
	id := w.submit(task.TaskSpec{Prompt: "p"})
	w.settled(m)
	const rows = `SELECT md5(string_agg(r, '' ORDER BY r)) FROM (SELECT t::text r FROM tasks t WHERE host IS NULL UNION ALL SELECT r::text FROM task_runs r JOIN tasks t ON t.id = task_id WHERE t.host IS NULL
		UNION ALL SELECT f::text FROM task_files f JOIN tasks t ON t.id = task_id WHERE t.host IS NULL UNION ALL SELECT a::text FROM accounts a WHERE host IS NULL UNION ALL SELECT w::text FROM worker_registry w WHERE group_name IS NOT NULL) x`
	w.exec(`INSERT INTO accounts (id, tool, max_concurrency) VALUES ('codex-main', 'codex', 1);
		INSERT INTO tasks (id, prompt, status, leased_by, generation) SELECT gen_random_uuid(), 'shared', s, CASE s WHEN 'leased' THEN 'codex-main' END, 1 FROM unnest('{queued,leased,succeeded}'::text[]) s;
		INSERT INTO task_runs (task_id, host, attempt, status) SELECT id, 'laptop', 1, 'succeeded' FROM tasks WHERE host IS NULL;
		INSERT INTO task_files (task_id, host, path, is_input) SELECT id, 'laptop', 'x', FALSE FROM tasks WHERE host IS NULL;
		INSERT INTO worker_registry (worker_id, group_name, hostname, pid, last_heartbeat) SELECT gen_random_uuid(), g, 'laptop', 1, now() - interval '1 day' FROM unnest('{codex-main,NULL}'::text[]) g;
		INSERT INTO worker_registry (worker_id, hostname, pid, last_heartbeat) VALUES (gen_random_uuid(), 'other', 1, now() - interval '260 s')`)
	before := query[string](t, w, rows)
	until(t, "masters that are silent are forgotten", func() bool {
		return query[string](t, w, "SELECT string_agg(hostname, ' ' ORDER BY hostname) FROM worker_registry WHERE group_name IS NULL") == "machine other"
	})
	if worker := query[string](t, w, "SELECT worker_id::text FROM mirrors"); worker != w.o.Worker.String() {
		t.Errorf("the mirror is kept by %s", worker)
	}
	stop()
	w.rebuild()
	w.ended(task.TaskSpec{Prompt: "another"})
	m, stop = w.mirror()
	w.settled(m)
	stop()
	if r := w.same(); r.Tasks != 2 || r.Runs != 2 {
		t.Errorf("compared %+v", r)
	}
	w.compact()
	w.rebuild()
	if after := query[string](t, w, rows); after != before {
		t.Error("rows of the shared queue were touched")
	}
	if n := query[int](t, w, "SELECT count(*) FROM tasks WHERE host = 'laptop' AND id = $1", id); n != 1 {
		t.Error("the own rows are not there")
	}
}

// TestMirrorCatchesUp lets the ledger go on without a mirror: what is missing is written
// from where the mirror was, and nothing else.
func TestMirrorCatchesUp(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop := w.mirror()
	for range 20 {
		w.submit(task.TaskSpec{Prompt: "before", Parallel: true})
	}
	w.settled(m)
	stop()
	w.ended(task.TaskSpec{Prompt: "meanwhile"})
	m, stop = w.mirror()
	w.settled(m)
	w.same()
	if g := query[int](t, w, "SELECT generation FROM mirrors"); g != 1 {
		t.Error("the mirror was rebuilt, generation", g)
	}
	if rows := m.Status().Rows; rows > 4 {
		t.Errorf("%d rows were written for one task", rows)
	}
	stop()
	m, _ = w.mirror()
	until(t, "the next mirror knows that the mirror is whole", func() bool {
		st := m.Status()
		return st.State == task.MirrorFollowing && st.Seq == w.c.Seq() && st.LagRecords == 0 && st.LagSeconds == 0
	})
}

// TestRebuild takes from the mirror what a mirror cannot follow from.
func TestRebuild(t *testing.T) {
	t.Parallel()
	lose := func(w *world) { w.exec("DROP SCHEMA public CASCADE; CREATE SCHEMA public") }
	for name, damage := range map[string]func(w *world){
		"lost while it followed":      lose,
		"lost while it was away":      lose,
		"an old backup":               func(w *world) { w.exec("UPDATE mirrors SET seq = 2; DELETE FROM tasks") },
		"compacted while it was away": (*world).compact,
		"other settings":              func(w *world) { w.o.OutputLimit = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, postgrestest.Shared(t).Database(t))
			m, stop := w.mirror()
			for i := range 10 {
				w.submit(task.TaskSpec{Prompt: fmt.Sprint("task ", i), Parallel: true, IdempotencyKey: fmt.Sprint("k", i)})
			}
			w.settled(m)
			before := m.Status().Rows
			if name == "lost while it followed" {
				damage(w)
			} else {
				stop()
				damage(w)
				w.submit(task.TaskSpec{Prompt: "later"})
				m, _ = w.mirror()
				before = 0
			}
			until(t, "a rebuild", func() bool {
				return m.Status().State == task.MirrorFollowing && m.Status().Rows >= before+20
			})
			w.settled(m)
			w.same()
		})
	}
}

// TestMirrorSeesCompaction compacts under a mirror, which goes on from there without a rebuild.
func TestMirrorSeesCompaction(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop := w.mirror()
	for range 10 {
		w.submit(task.TaskSpec{Prompt: "before", Parallel: true})
	}
	w.settled(m)
	w.compact()
	until(t, "the mirror has all after a compaction", func() bool { return m.Status().LagRecords == 0 })
	w.submit(task.TaskSpec{Prompt: "after"})
	w.settled(m)
	stop()
	m, _ = w.mirror()
	w.submit(task.TaskSpec{Prompt: "and after that"})
	w.settled(m)
	if r := w.same(); r.Tasks != 12 {
		t.Errorf("%d tasks were compared", r.Tasks)
	}
	if g := query[int](t, w, "SELECT generation FROM mirrors"); g != 1 {
		t.Error("the mirror was rebuilt, generation", g)
	}
}

// TestTwoWriters has a mirror and others that bring the mirror up to date or rebuild it.
func TestTwoWriters(t *testing.T) {
	w, m, _, _ := followed(t, task.TaskSpec{Prompt: "the first"})
	for i := range 12 {
		w.submit(task.TaskSpec{Prompt: "one of many", Parallel: true})
		end := w.c.Seq()
		o := optionsFor(mustURL(w.o), "laptop", w.dir)
		o.Anew = i%3 == 2
		generation := query[int64](t, w, "SELECT generation FROM mirrors")
		p, err := Once(t.Context(), o, w.readAll)
		must(t, err)
		if p.Seq < end {
			t.Errorf("the mirror goes to %d, not %d", p.Seq, end)
		}
		if !o.Anew && p.Generation != generation {
			t.Error("what a mirror had moved on was rebuilt, generation", p.Generation)
		}
	}
	w.settled(m)
	w.same()
}

func mustURL(o Options) string {
	url, err := o.URL()
	if err != nil {
		panic(err)
	}
	return url
}

// TestHosts has two ledgers in one database; and one that poses as another.
func TestHosts(t *testing.T) {
	url := postgrestest.Shared(t).Database(t)
	a, b := newWorld(t, url), newWorld(t, url)
	b.o.Host = "desktop"
	ma, _ := a.mirror()
	mb, stop := b.mirror()
	for i := range 5 {
		key := fmt.Sprint("night-", i)
		a.submit(task.TaskSpec{Prompt: "a", Parallel: true, IdempotencyKey: key})
		b.submit(task.TaskSpec{Prompt: "b", Parallel: true, IdempotencyKey: key})
	}
	a.settled(ma)
	b.settled(mb)
	a.same()
	b.same()
	stop()
	b.o.Host = "laptop"
	mb, stop = b.mirror()
	until(t, "a refusal", func() bool { return mb.Status().LastError != "" })
	if said := mb.Status().LastError; !strings.Contains(said, a.dir) || !strings.Contains(said, "another state directory") {
		t.Error("it says", said)
	}
	stop()
	a.same()
	b.rebuild() // now it is b's
	b.same()
}

// TestRefusedTask has a task that no index can hold: it is told, and all others are copied.
func TestRefusedTask(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	r, long := rand.New(rand.NewPCG(1, 2)), make([]byte, 12_000)
	for i := range long {
		long[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(36)]
	}
	text := fmt.Sprintf("\n## Task big\n- status: queued\n- tenantId: %s\n- workspace: %s\n- prompt: by hand\n", long, w.work)
	byHand(t, w, text)
	small := w.submit(task.TaskSpec{Prompt: "small"})
	until(t, "the hand-written task", func() bool { _, err := w.c.Task(t.Context(), "big"); return err == nil })
	m, _ := w.mirror()
	w.settled(m)
	if got := query[string](t, w, "SELECT status FROM tasks WHERE id = $1", small); got != "succeeded" {
		t.Error("the other task is", got)
	}
	if said := m.Status().Skipped; len(said) == 0 || !strings.Contains(said[0], "task big: ") {
		t.Errorf("it says %q", said)
	}
	if r := w.verify(); len(r.Differences) == 0 || r.Differences[0].ID != "big" {
		t.Errorf("verify says %+v", r.Differences)
	}
}

// byHand writes into tasks.md as a person does.
func byHand(t *testing.T, w *world, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(w.dir, "tasks.md"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// TestVerifyFindsWhatDiffers changes single things in the mirror.
func TestVerifyFindsWhatDiffers(t *testing.T) {
	w, id := copied(t, task.TaskSpec{Prompt: "one", OutputSpec: []string{"report.md"}})
	for sql, want := range map[string]string{
		"UPDATE tasks SET status = 'queued'":  "tasks " + id + ` status: here "succeeded", there "queued"`,
		"UPDATE tasks SET prompt = NULL":      "tasks " + id + ` prompt: here "one", there null`,
		"UPDATE tasks SET host = 'other'":     "tasks " + id + ` host: here "laptop", there "other"`,
		"DELETE FROM tasks":                   "tasks " + id + ": the row is missing in the mirror",
		"DELETE FROM task_files":              ": the row is missing in the mirror",
		"UPDATE task_files SET content = 'x'": "content: here ",
		"UPDATE task_runs SET exit_code = 3":  "exit_code: here 0, there 3",
		"UPDATE task_runs SET stdout = NULL":  "stdout: here ",
		"INSERT INTO task_runs (task_id, attempt, status) SELECT id, 1, 'failed' FROM tasks": "the row is in the mirror and not in the ledger",
		"INSERT INTO tasks (host, generation) VALUES ('laptop', 1)":                          "the row is in the mirror and not in the ledger",
	} {
		w.exec(sql)
		r := w.verify()
		if !strings.Contains(fmt.Sprint(r.Differences), want) {
			t.Errorf("%s: verify says %v", sql, r.Differences)
		}
		w.rebuild()
		if r := w.verify(); len(r.Differences) > 0 {
			t.Errorf("%s: after a rebuild: %v", sql, r.Differences)
		}
	}
}

// TestFilesGone keeps in the mirror what a run has written after its directory was removed.
func TestFilesGone(t *testing.T) {
	w, _ := copied(t, task.TaskSpec{Prompt: "one", OutputSpec: []string{"report.md"}})
	must(t, os.RemoveAll(filepath.Join(w.dir, "runs")))
	w.same()
	w.rebuild()
	w.same()
	if n := query[int](t, w, "SELECT count(*) FROM task_runs r JOIN task_files f ON f.run_id = r.id WHERE r.stdout LIKE 'said%' AND f.content = 'a report'"); n != 1 {
		t.Error("what the run had written is gone from the mirror")
	}
}

// TestKeyMoves has an idempotency key go from one task to another, the wrong way round:
// who gets it is written before who had it gives it up.
func TestKeyMoves(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	had, gets := w.submit(task.TaskSpec{Prompt: "had", IdempotencyKey: "k"}), w.submit(task.TaskSpec{Prompt: "gets"})
	m, stop := w.mirror()
	w.settled(m)
	stop()
	s := w.begun()
	im, err := w.c.TaskRecord(gets)
	must(t, err)
	im.Task.IdempotencyKey, im.HoldsKey = "k", true
	rows, err := s.rows(&im)
	must(t, err)
	must(t, s.write(t.Context(), &batch{tasks: []*tables.Rows{rows}}, 1))
	if got := query[string](t, w, "SELECT string_agg(id::text, ' ') FROM tasks WHERE idempotency_key = 'k'"); got != gets {
		t.Errorf("the key is of %s, not of %s, and was of %s", got, gets, had)
	}
}

// TestHandOver ends a mirror right behind a task: the mirror has it.
func TestHandOver(t *testing.T) {
	w, m, stop, _ := followed(t, task.TaskSpec{Prompt: "first"})
	w.exec("ALTER TABLE tasks RENAME TO away") // so that it cannot be written before the end
	failures := m.Status().Failures
	w.submit(task.TaskSpec{Prompt: "last"})
	until(t, "a failure", func() bool { return m.Status().Failures > failures })
	w.exec("ALTER TABLE away RENAME TO tasks")
	until(t, "the mirror follows again", func() bool { return m.Status().State == task.MirrorFollowing })
	w.submit(task.TaskSpec{Prompt: "right before the end"})
	stop()
	if n := query[int](t, w, "SELECT count(*) FROM tasks WHERE prompt = 'right before the end'"); n != 1 {
		t.Error("what came last is not in the mirror")
	}
}

// TestNotify listens to changes, as a dashboard does.
func TestNotify(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	w.session(func(c *pgx.Conn) {
		do(t, c, "LISTEN stint")
		w.submit(task.TaskSpec{Prompt: "one"})
		w.mirror()
		var got struct {
			Host  string
			Seq   uint64
			Count int
		}
		for got.Count != 1 { // that of the accounts comes first
			n, err := c.WaitForNotification(t.Context())
			if err == nil {
				err = json.Unmarshal([]byte(n.Payload), &got)
			}
			if err != nil || got.Host != "laptop" {
				t.Fatalf("%+v: %v", n, err)
			}
		}
	})
}

// TestClocksDiffer has a machine whose clock is an hour behind the database's: a sentence
// says so, and the mirror goes on.
func TestClocksDiffer(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	w.o.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	m, _ := w.mirror()
	w.submit(task.TaskSpec{Prompt: "one"})
	w.settled(m)
	w.same()
	if said := m.Status().Warning; !strings.Contains(said, "clock") || !strings.Contains(said, "1h0m") {
		t.Errorf("it says %q", said)
	}
	if p, err := Look(t.Context(), w.o); err != nil || p.Warning == "" || p.Skew < 59*time.Minute {
		t.Errorf("%+v, %v", p, err)
	}
}

// A lagging source has folded all records but the newest until it is let go, as a master
// has for a moment when its follower has them already.
type lagging struct {
	Source
	asked chan struct{} // somebody has asked how far it is
	let   chan struct{}
}

// Seq implements Source.
func (l *lagging) Seq() uint64 {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	select {
	case <-l.let:
		return l.Source.Seq()
	default:
		return l.Source.Seq() - 1
	}
}

// TaskRecord implements Source. It returns none of a record that is not folded yet.
func (l *lagging) TaskRecord(id string) (task.TaskRecord, error) {
	select {
	case <-l.let:
		return l.Source.TaskRecord(id)
	default:
		return task.TaskRecord{}, &task.Error{Code: task.CodeNotFound}
	}
}

// TestRecordBeforeItIsFolded has a follower get a record that the fold does not have yet:
// the mirror waits for it.
func TestRecordBeforeItIsFolded(t *testing.T) {
	w, _ := copied(t, task.TaskSpec{Prompt: "before"})
	s := w.begun()
	src := &lagging{Source: w.c, asked: make(chan struct{}, 1), let: make(chan struct{})}
	s.src = src
	if err := w.c.Pause(t.Context(), "", "client"); err != nil { // the task is the newest record then
		t.Fatal(err)
	}
	w.submit(task.TaskSpec{Prompt: "new"})
	end := w.c.Seq()
	done := make(chan error, 1)
	go func() { done <- s.follow(t.Context(), end) }()
	<-src.asked
	select {
	case err := <-done:
		t.Fatalf("the mirror goes on without the record: %v", err)
	case <-src.asked: // again
	}
	close(src.let)
	must(t, <-done)
	if n := query[int](t, w, "SELECT count(*) FROM tasks"); n != 2 {
		t.Errorf("%d tasks are in the mirror", n)
	}
}

// TestLag takes the database away: the mirror is behind since the first record that it
// lacks, and no longer when it is back.
func TestLag(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	w := newWorld(t, s.Database(t))
	m, _ := w.mirror()
	w.submit(task.TaskSpec{Prompt: "one"})
	w.settled(m)
	s.Kill(t)
	until(t, "a failure", func() bool { return m.Status().State == task.MirrorFailing })
	if st := m.Status(); st.LagRecords != 0 || st.LagSeconds != 0 {
		t.Errorf("nothing is missing, and it says %+v", st)
	}
	w.submit(task.TaskSpec{Prompt: "two"})
	begun := time.Now()
	until(t, "a lag", func() bool { st := m.Status(); return st.LagRecords > 0 && st.LagSeconds > 0 })
	s.Restart(t)
	w.settled(m)
	if st := m.Status(); st.LagSeconds != 0 || time.Since(begun) < 0 {
		t.Errorf("it is whole, and says %+v", st)
	}
}

// A broken source cannot read one task.
type broken struct {
	Source
	id string
}

// TaskRecord implements Source.
func (b *broken) TaskRecord(id string) (task.TaskRecord, error) {
	if id == b.id {
		return task.TaskRecord{}, fmt.Errorf("read task %s: input/output error", id)
	}
	return b.Source.TaskRecord(id)
}

// TestUnreadableTask has a task that cannot be read here: it is told, and all others are copied.
func TestUnreadableTask(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	bad, good := w.submit(task.TaskSpec{Prompt: "one"}), w.submit(task.TaskSpec{Prompt: "two"})
	m, _ := w.mirrorOf(&broken{w.c, bad})
	w.settled(m)
	if got := query[string](t, w, "SELECT string_agg(id::text, ' ') FROM tasks"); got != good {
		t.Errorf("the mirror has %s, not %s", got, good)
	}
	if said := fmt.Sprint(m.Status().Skipped); !strings.Contains(said, bad) || !strings.Contains(said, "input/output error") || strings.Contains(said, "server's log") {
		t.Error("it says", said)
	}
}

// TestRivals has two machines with the same name and the same directory: both say so.
func TestRivals(t *testing.T) {
	t.Parallel()
	url := postgrestest.Shared(t).Database(t)
	a, b := newWorld(t, url), newWorld(t, url)
	a.o.StateDir, b.o.StateDir = "/home/ana/.local/state/stint", "/home/ana/.local/state/stint"
	a.submit(task.TaskSpec{Prompt: "a"})
	b.submit(task.TaskSpec{Prompt: "b"})
	ma, _ := a.mirror()
	mb, _ := b.mirror()
	until(t, "one of them says it", func() bool {
		a.submit(task.TaskSpec{Prompt: "a", Hold: true}) // what is written finds out
		b.submit(task.TaskSpec{Prompt: "b", Hold: true})
		return strings.Contains(ma.Status().LastError+mb.Status().LastError, "another process writes the mirror under the name laptop")
	})
}

// TestSlowBatchGetsMoreTime has a batch wait for a table until its time is over: it gets
// more the next time, and the usual one again when it was quick.
func TestSlowBatchGetsMoreTime(t *testing.T) {
	t.Parallel()
	w, id := copied(t, task.TaskSpec{Prompt: "one"})
	s := w.begun()
	rows, err := s.read(t.Context(), id)
	must(t, err)
	rows.Size = -int(writeTimeout/time.Second)*slowest + slowest/2 // half a second is left
	w.session(func(c *pgx.Conn) {
		do(t, c, "BEGIN; LOCK TABLE task_runs")
		if err := s.put(t.Context(), &batch{tasks: []*tables.Rows{rows}}); !errors.Is(err, context.DeadlineExceeded) || s.mirror.patience != 2 {
			t.Errorf("%v, patience %d", err, s.mirror.patience)
		}
		do(t, c, "ROLLBACK")
	})
	rows.Size = 0
	if err := s.put(t.Context(), &batch{tasks: []*tables.Rows{rows}}); err != nil || s.mirror.patience != 1 {
		t.Errorf("%v, patience %d", err, s.mirror.patience)
	}
}
