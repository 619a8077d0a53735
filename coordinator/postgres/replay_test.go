package postgres

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// TestPromise10CommitUnknown has a connection break while a COMMIT is on its way, or its
// answer. The mirror cannot know which, asks how far the mirror goes, and goes on there.
func TestPromise10CommitUnknown(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*proxy){
		"commit lost": (*proxy).LoseCommit, "answer lost": (*proxy).LoseAnswerOfCommit,
	} {
		t.Run(name, func(t *testing.T) {
			s := postgrestest.Shared(t)
			p := newProxy(t, s)
			w := newWorld(t, p.URL(s.NewDatabase(t)))
			hit := func(do func()) {
				before := p.Faults()
				lose(p)
				do()
				until(t, "a lost commit", func() bool { return p.Faults() > before })
			}
			var m *Mirror
			hit(func() { m, _ = w.mirror() }) // the schema, to begin with
			hit(func() {})                    // the rebuild
			for range 4 {
				hit(func() { w.submit(task.TaskSpec{Prompt: "please fail", OutputSpec: []string{"report.md"}}) })
				w.settled(m)
			}
			if r := w.same(); r.Tasks != 4 || r.Runs != 12 {
				t.Errorf("compared %+v", r)
			}
			for table, want := range map[string]int{"tasks": 4, "task_runs": 12} {
				if n := query[int](t, w, "SELECT count(*) FROM "+table); n != want {
					t.Errorf("%s has %d rows, not %d", table, n, want)
				}
			}
		})
	}
}

// TestLostConnections has a network forget the connections: nobody ever says that they
// are gone. The mirror waits for its write as long as it waits for any, and no longer.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	s := postgrestest.Shared(t)
	p := newProxy(t, s)
	w := newWorld(t, p.URL(s.NewDatabase(t)))
	m, _ := w.mirror()
	w.submit(task.TaskSpec{Prompt: "before"})
	w.settled(m)
	p.Lose()
	begun := time.Now()
	w.submit(task.TaskSpec{Prompt: "meanwhile"})
	w.settled(m)
	if took := time.Since(begun); took > writeTimeout+5*time.Second {
		t.Errorf("the mirror went on after %s", took)
	}
	w.same()
}

// TestReplayedBatch applies batches twice and in a wrong order: by who does not know that
// they are there already, none has any effect; by who does, no row is written again.
func TestReplayedBatch(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	m, stop := w.mirror()
	for i := range 10 {
		w.submit(task.TaskSpec{Prompt: fmt.Sprint("task ", i), OutputSpec: []string{"report.md"}, IdempotencyKey: fmt.Sprint("k", i)})
	}
	w.settled(m)
	stop()
	late, again := w.begun(), w.begun() // two that know only what is there now
	id := w.submit(task.TaskSpec{Prompt: "later", IdempotencyKey: "k10"})
	first := w.batchUpTo(late, w.c.Seq())
	m, stop = w.mirror()
	w.settled(m)
	_, err := w.c.Retry(t.Context(), id, "client")
	must(t, err)
	w.settled(m)
	stop()
	there := w.allRows()
	for what, s := range map[string]*session{"an older batch": late, "the same one once more": again} {
		if err := s.put(t.Context(), first); !errors.Is(err, errMoved) {
			t.Errorf("%s: %v", what, err)
		}
		w.unchanged(what, there)
	}
	knows := w.begun()
	same := w.batchUpTo(again, w.c.Seq())
	for i := range 3 {
		same.to.generation = knows.at.generation
		must(t, knows.put(t.Context(), same))
		w.unchanged(fmt.Sprint("a replay, ", i), there)
	}
	w.same()
}

// begun returns a session at the place where the mirror is now.
func (w *world) begun() *session {
	w.t.Helper()
	m := New(w.o)
	m.lasts = true
	s, err := m.open(w.t.Context())
	must(w.t, err)
	w.t.Cleanup(s.db.Close)
	s.src = w.c
	return s
}

// batchUpTo returns one batch of all records from a session's place up to seq, which comes.
func (w *world) batchUpTo(s *session, seq uint64) *batch {
	w.t.Helper()
	records, done := make(chan record), make(chan error, 1)
	go func() { done <- s.readRecords(w.t.Context(), s.at.seq, seq, records) }()
	whole, known := &batch{}, map[string]bool{}
	for r := range records {
		ids, b, err := s.changes(w.t.Context(), r, records)
		must(w.t, err)
		for _, id := range ids {
			if !known[id] {
				rows, err := s.read(w.t.Context(), id)
				must(w.t, err)
				whole.tasks = append(whole.tasks, rows)
			}
			known[id] = true
		}
		whole.to = b.to
	}
	must(w.t, <-done)
	return whole
}

// allRows returns all rows of tasks, runs and files, with the transactions that wrote them.
func (w *world) allRows() (rows []string) {
	w.t.Helper()
	w.session(func(c *pgx.Conn) {
		for _, table := range []string{"tasks", "task_runs", "task_files"} {
			found, err := c.Query(w.t.Context(), fmt.Sprintf("SELECT t.xmin || ' ' || t::text FROM %s t ORDER BY id", table))
			must(w.t, err)
			some, err := pgx.CollectRows(found, pgx.RowTo[string])
			must(w.t, err)
			rows = append(rows, some...)
		}
	})
	return rows
}

// unchanged expects that no row was written since.
func (w *world) unchanged(what string, before []string) {
	w.t.Helper()
	now := w.allRows()
	if slices.Equal(now, before) && len(now) > 20 {
		return
	}
	w.t.Errorf("%s: %d rows were there, %d are", what, len(before), len(now))
	for i := range min(len(now), len(before)) {
		if now[i] != before[i] {
			w.t.Errorf("was %.200s\nis  %.200s", before[i], now[i])
		}
	}
}

// A compactingSource compacts its ledger when the first page of all tasks was given.
type compactingSource struct {
	*coordinator.Coordinator
	compact func()
}

// TaskIDs implements Source.
func (s *compactingSource) TaskIDs(done, n int) []string {
	ids := s.Coordinator.TaskIDs(done, n)
	if len(ids) > 0 {
		s.compact()
	}
	return ids
}

// TestCompactionDuringRebuild moves tasks into the archive while all are written: then
// other places count, and none may be left out.
func TestCompactionDuringRebuild(t *testing.T) {
	w := newWorld(t, postgrestest.Shared(t).Database(t))
	held := make([]task.TaskSpec, maxTasks)
	for i := range held {
		held[i] = task.TaskSpec{Prompt: "waits", Workspace: w.work, Hold: true, Parallel: true}
	}
	_, err := w.c.SubmitOnce(t.Context(), "", held)
	must(t, err)
	for range 20 {
		w.ended(task.TaskSpec{Prompt: "ends", Parallel: true})
	}
	src := &compactingSource{w.c, sync.OnceFunc(w.compact)}
	m, _ := w.mirrorOf(src)
	until(t, "the rebuild", func() bool { return m.Status().State == task.MirrorFollowing })
	w.ended(task.TaskSpec{Prompt: "later", Parallel: true}) // what runs is not compared
	until(t, "the mirror has all", func() bool { return m.Status().Seq == w.c.Seq() })
	if r := w.same(); r.Tasks != maxTasks+21 {
		t.Errorf("compared %+v", r)
	}
}
