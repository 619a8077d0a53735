package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stint/coordinator"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/state"
)

// A world is a master with an agent of ours, and the options of a mirror of its ledger.
type world struct {
	t    *testing.T
	dir  string // of the state
	work string // workspace of its tasks
	c    *coordinator.Coordinator
	o    Options
	stop func() // ends the master, if it runs
}

// open returns a session as a mirror has one.
func (m *Mirror) open(ctx context.Context) (*session, error) {
	db, err := server.Connect(ctx, m.o.URL, m.o.PoolSize)
	if err != nil {
		return nil, err
	}
	s := &session{writer: writer{o: &m.o, db: db}, mirror: m, figures: map[string][sha256.Size]byte{}}
	return s, s.open(ctx)
}

// newWorld starts a master whose copy is in an empty database.
func newWorld(t *testing.T, url string) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "state"), work: t.TempDir()}
	w.o = optionsFor(url, "laptop", w.dir)
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

func optionsFor(url, host, dir string) Options {
	return Options{
		Maker: tables.Maker{Host: host, InlineThreshold: 1 << 20, OutputLimit: 10_000, MaxAttempts: 3},
		URL:   func() (string, error) { return url, nil }, Hostname: "machine", StateDir: dir, PoolSize: 4, MaxConcurrency: 4, Version: "test", Worker: uuid.New(), PID: os.Getpid(),
	}
}

// start opens the state directory and runs a master in it.
func (w *world) start() {
	w.t.Helper()
	c, err := coordinator.Open(queue.Config{
		StateDir: w.dir, Agents: map[string]task.Agent{"demo": agent{}}, DefaultAgent: func([]string) string { return "demo" },
		WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 3, Timeout: time.Minute, ResumePolicy: "auto"},
		MaxWorkers:        4, MaxRetries: 5, BackoffBase: time.Millisecond, BackoffMax: 2 * time.Millisecond, MaxLimitWait: time.Hour,
		Grace: time.Second, SessionLockTimeout: time.Second, HeartbeatInterval: time.Hour,
		ResumeMissing: "new", WorkspaceRoot: w.work,
	})
	must(w.t, err)
	w.c = c
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		must(w.t, <-ended)
		must(w.t, c.Close())
	})
}

// agent does what the prompt says: "please fail", "take your time", or anything else.
type agent struct{}

// Run implements task.Agent.
func (agent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	report(task.Event{Session: "s-" + turn.TaskID, Bytes: 1})
	prompt, err := os.ReadFile(turn.Prompt)
	if err == nil {
		err = os.WriteFile(filepath.Join(turn.RunDir, "stdout"), []byte("said\x00 by "+turn.RunID+"\n"), 0o600)
	}
	if err == nil {
		err = writeWhole(filepath.Join(turn.Workspace, "report.md"), turn.RunID)
	}
	switch {
	case err != nil:
		return task.Outcome{Class: state.ClassExit, Error: err.Error(), ExitCode: 1}
	case strings.Contains(string(prompt), "take your time"):
		_ = task.Sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return task.Outcome{Class: state.ClassCanceled, ExitCode: -1}
		}
	case strings.Contains(string(prompt), "please fail"):
		return task.Outcome{Class: state.ClassNetwork, Error: "the provider was not reached", ExitCode: 7}
	}
	return task.Outcome{Result: "done: " + turn.TaskID, Usage: state.Usage{InputTokens: 10, OutputTokens: 5, CostUSD: 0.25}}
}

// writeWhole writes a report that is never seen half written: tasks share a workspace.
func writeWhole(path, runID string) error {
	half := path + "." + runID
	if err := os.WriteFile(half, []byte("a report"), 0o600); err != nil {
		return err
	}
	return os.Rename(half, path)
}

// must ends the test where something fails.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// followed is a world with a task, and a mirror whose copy has all of it.
func followed(t *testing.T, spec task.TaskSpec) (w *world, m *Mirror, stop func(), id string) {
	t.Helper()
	w = newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop = w.mirror()
	id = w.submit(spec)
	w.settled(m)
	return w, m, stop, id
}

// copied is such a world when its mirror has ended.
func copied(t *testing.T, spec task.TaskSpec) (w *world, id string) {
	t.Helper()
	w, _, stop, id := followed(t, spec)
	stop()
	return w, id
}

// compact archives all that has ended.
func (w *world) compact() {
	w.t.Helper()
	_, err := w.c.Compact(w.t.Context(), 0, false, false)
	must(w.t, err)
}

// rebuild makes the mirror anew.
func (w *world) rebuild() {
	w.t.Helper()
	o := w.o
	o.Anew = true
	_, err := Once(w.t.Context(), o, w.readAll)
	must(w.t, err)
}

// submit enqueues a task and returns its id.
func (w *world) submit(spec task.TaskSpec) string {
	w.t.Helper()
	if spec.Workspace == "" {
		spec.Workspace = w.work
	}
	t, err := w.c.Submit(w.t.Context(), spec)
	must(w.t, err)
	return t.ID
}

// ended submits a task and waits for its end.
func (w *world) ended(spec task.TaskSpec) {
	w.t.Helper()
	_, err := w.c.Wait(w.t.Context(), w.submit(spec))
	must(w.t, err)
}

// mirror runs a mirror of the world's ledger until the function that it returns is called.
func (w *world) mirror() (m *Mirror, stop func()) { return w.mirrorOf(w.c) }

func (w *world) mirrorOf(src Source) (m *Mirror, stop func()) {
	m = New(w.o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx, src)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	w.t.Cleanup(stop)
	return m, stop
}

// until waits for something that must come true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// settled waits until nothing runs or waits, and the mirror has all of it.
func (w *world) settled(m *Mirror) {
	w.t.Helper()
	until(w.t, "all tasks end", func() bool {
		n := w.c.Health().Counts
		return n[state.Queued] == 0 && n[state.Running] == 0
	})
	w.t.Helper()
	until(w.t, fmt.Sprint("the mirror is whole: ", m.Status().LastError), func() bool { return m.Status().Seq == w.c.Seq() })
}

// verify compares the mirror with the ledger.
func (w *world) verify() Report {
	w.t.Helper()
	r, err := Verify(w.t.Context(), w.o, w.read)
	must(w.t, err)
	return r
}

func (w *world) read(upTo uint64) (VerifySource, error) {
	return statedir.ReadSnapshot(w.t.Context(), w.dir, upTo)
}

// readAll returns the ledger as it is now.
func (w *world) readAll() (Source, error) { return w.read(0) }

// same fails the test where the mirror differs.
func (w *world) same() Report {
	w.t.Helper()
	r := w.verify()
	for _, d := range r.Differences[:min(20, len(r.Differences))] {
		w.t.Error(d.Text)
	}
	if r.Tasks+r.InFlight == 0 {
		w.t.Error("nothing was compared")
	}
	return r
}

// query returns the one value of a query.
func query[T any](t *testing.T, w *world, sql string, args ...any) (v T) {
	t.Helper()
	w.session(func(c *pgx.Conn) {
		must(t, c.QueryRow(t.Context(), sql, args...).Scan(&v))
	})
	return v
}

// exec changes something in the database.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.session(func(c *pgx.Conn) {
		_, err := c.Exec(w.t.Context(), sql, args...)
		must(w.t, err)
	})
}

// do runs statements.
func do(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) session(do func(*pgx.Conn)) {
	w.t.Helper()
	url, _ := w.o.URL()
	c, err := pgx.Connect(w.t.Context(), url)
	must(w.t, err)
	defer func() { _ = c.Close(context.Background()) }()
	do(c)
}
