package due

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/jobs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var start = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// A world is a room in a directory of its own, with a clock and ids that the test sets.
type world struct {
	*Room
	t    testing.TB
	dir  string
	now  time.Time
	ids  int
	told []string
	log  bytes.Buffer
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir(), now: start}
	w.open()
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.Room, err = Open(w.options(w.dir))
	must(w.t, err)
}

func (w *world) options(dir string) Options {
	return Options{
		Dir: dir, Now: func() time.Time { return w.now }, NewID: func() string { w.ids++; return fmt.Sprintf("job-%03d", w.ids) },
		Tell: func(kind, name, text string) { w.told = append(w.told, kind+" "+name+": "+text) },
		Log:  slog.New(slog.NewTextHandler(&w.log, nil)),
		Hide: strings.NewReplacer("hunter2", "***").Replace,
	}
}

func (w *world) reopen() {
	w.t.Helper()
	must(w.t, w.Close())
	w.open()
}

// crashed calls f with a room on what a kill would leave on the disk.
func (w *world) crashed(f func(*Room)) {
	w.t.Helper()
	dir := w.t.TempDir()
	must(w.t, os.CopyFS(dir, os.DirFS(w.dir)))
	r, err := Open(w.options(dir))
	must(w.t, err)
	f(r)
	must(w.t, r.Close())
}

func (w *world) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	must(w.t, err)
	return string(text)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

// A job says what it waits for, also after a restart, until it is pulled; no attempt is spent.
func TestWait(t *testing.T) {
	w := newWorld(t)
	id := w.enqueue(spec("a", 0)).ID
	w.now = w.now.Add(time.Minute)
	must(t, w.Wait(t.Context(), id, "a person"))
	w.reopen()
	job, err := w.Job(id)
	must(t, err)
	if job.WaitsFor != "a person" || job.Status != jobs.Queued || job.Attempt != 0 || !job.UpdatedAt.Equal(w.now) || !strings.Contains(w.read("jobs.md"), "- waitsFor: a person\n") {
		t.Errorf("%+v", job)
	}
	text := w.read("jobs.md")
	must(t, w.Wait(t.Context(), id, "a person"))
	if w.read("jobs.md") != text {
		t.Error("the same is written again")
	}
	w.pull("w1")
	must(t, w.Wait(t.Context(), id, "nobody"))
	if job, err := w.Job(id); err != nil || job.WaitsFor != "" || job.Status != jobs.Running {
		t.Errorf("%+v, %v", job, err)
	}
}

// spec asks for a job about that object, in so many minutes.
func spec(object string, minutes int) jobs.Spec {
	return jobs.Spec{ObjectType: "memory", ObjectID: object, Action: "verify", RunAt: start.Add(time.Duration(minutes) * time.Minute)}
}

func (w *world) enqueue(s jobs.Spec) jobs.Job {
	w.t.Helper()
	job, _, err := w.Enqueue(w.t.Context(), s)
	must(w.t, err)
	return job
}

func (w *world) pull(worker string) []jobs.Job {
	w.t.Helper()
	list, err := w.Pull(w.t.Context(), jobs.Pull{WorkerID: worker})
	must(w.t, err)
	return list
}

func (w *world) job(id string) jobs.Job {
	w.t.Helper()
	job, err := w.Job(id)
	must(w.t, err)
	return job
}

// refused checks the code and a piece of the sentence of an error.
func refused(t testing.TB, err error, code task.Code, want string) {
	t.Helper()
	if !errors.Is(err, &task.Error{Code: code}) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, not %s: %s", err, code, want)
	}
}

// TestPullIsInOrder: by run_at, then priority; nothing early, and each job once.
func TestPullIsInOrder(t *testing.T) {
	w := newWorld(t)
	late, low, high := spec("late", 2), spec("low", 1), spec("high", 1)
	low.Priority, high.Priority = "low", "high"
	for _, s := range []jobs.Spec{late, low, high, spec("middle", 1), spec("tomorrow", 24*60)} {
		w.enqueue(s)
	}
	w.now = start.Add(3 * time.Minute)
	var got []string
	for _, j := range w.pull("w1") {
		got = append(got, j.ObjectID)
		if j.Status != jobs.Running || j.WorkerID != "w1" || !j.LeaseUntil.Equal(w.now.Add(5*time.Minute)) {
			t.Errorf("%+v", j)
		}
	}
	if !slices.Equal(got, []string{"high", "middle", "low", "late"}) {
		t.Errorf("pulled %q", got)
	}
	if again := w.pull("w2"); len(again) > 0 {
		t.Errorf("pulled twice: %+v", again)
	}
}

// TestConcurrentPulls: no job is handed out twice.
func TestConcurrentPulls(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.enqueue(spec(fmt.Sprint(i), 0))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	owner := map[string]string{}
	for n := range 8 {
		wg.Go(func() {
			for {
				list, err := w.Pull(context.Background(), jobs.Pull{WorkerID: fmt.Sprint("w", n), Limit: 3})
				if err != nil || len(list) == 0 {
					must(t, err)
					return
				}
				mu.Lock()
				for _, j := range list {
					if owner[j.ID] != "" {
						t.Errorf("job %s went to %s and to %s", j.ID, owner[j.ID], j.WorkerID)
					}
					owner[j.ID] = j.WorkerID
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(owner) != 60 {
		t.Errorf("%d jobs were pulled", len(owner))
	}
}

// TestCrashAfterEachStep: what was acknowledged is there, and what is leased is not pulled by another.
func TestCrashAfterEachStep(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	for i, step := range []func(){
		func() { w.enqueue(spec("a", 0)) },
		func() { w.enqueue(spec("b", 0)) },
		func() { w.pull("w1") },
		func() {
			_, err := w.Ack(ctx, "job-001", jobs.Ack{WorkerID: "w1", NextActionAt: start.Add(time.Hour), AuditEventID: "aud_1"})
			must(t, err)
		},
		func() {
			_, err := w.Fail(ctx, "job-002", jobs.Fail{WorkerID: "w1", Error: "timeout"})
			must(t, err)
		},
		func() { w.now = start.Add(time.Hour); w.pull("w1") },
	} {
		step()
		w.crashed(func(r *Room) {
			if diff := cmp.Diff(w.List(jobs.Filter{}), r.List(jobs.Filter{})); diff != "" {
				t.Errorf("behind step %d (-was +is):\n%s", i, diff)
			}
			list, err := r.Pull(ctx, jobs.Pull{WorkerID: "w2"})
			must(t, err)
			for _, j := range list {
				if w.job(j.ID).Status == jobs.Running {
					t.Errorf("behind step %d, %s was pulled twice", i, j.ID)
				}
			}
		})
	}
}

// TestHidesSecrets: what a worker reports is written without the secrets that are known.
func TestHidesSecrets(t *testing.T) {
	w := newWorld(t)
	a, b := w.enqueue(spec("a", 0)), w.enqueue(spec("b", 0))
	w.pull("w1")
	job, err := w.Fail(t.Context(), a.ID, jobs.Fail{Error: "401 for hunter2"})
	must(t, err)
	_, err = w.Ack(t.Context(), b.ID, jobs.Ack{Before: "hunter2", After: "hunter2", Evidence: "by hunter2"})
	must(t, err)
	if all := w.read("jobs.md") + w.read("audit.jsonl"); job.Reason() != "401 for ***" || strings.Contains(all, "hunter2") || !strings.Contains(all, `"evidence":"by ***"`) {
		t.Errorf("%q\n%s", job.Reason(), all)
	}
}

// TestLeaseThatEnds returns the job, which has spent an attempt, and its worker may not end it any more.
func TestLeaseThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.Now = time.Now
		s := spec("a", 0)
		s.RunAt, s.MaxAttempts = time.Now(), 2
		id := w.enqueue(s).ID
		w.pull("w1")
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		time.Sleep(2 * time.Second)
		wg.Go(func() { w.Run(ctx) })
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(5*time.Minute - 3*time.Second)
		if j := w.job(id); j.Status != jobs.Running {
			t.Errorf("too early: %+v", j)
		}
		wait(time.Second)
		_, err := w.Ack(ctx, id, jobs.Ack{WorkerID: "w1"})
		refused(t, err, task.CodeConflict, "the lease of job "+id+" ended at 2000-01-01T00:05:00.000Z")
		wait(lookEvery)
		if j := w.job(id); j.Status != jobs.Queued || j.Attempt != 1 || !j.RunAt.Equal(s.RunAt) || !strings.Contains(j.Reason(), "worker w1") {
			t.Errorf("%+v", j)
		}
		w.pull("w2")
		_, err = w.Ack(ctx, id, jobs.Ack{WorkerID: "w1"})
		refused(t, err, task.CodeConflict, "is not yours: w2 has it until")
		wait(6 * time.Minute)
		if j := w.job(id); j.Status != jobs.DeadLetter || j.Attempt != 2 {
			t.Errorf("%+v", j)
		}
		stop()
		wg.Wait()
		if len(w.told) != 1 {
			t.Errorf("told %q", w.told)
		}
	})
}

// TestFailWaitsFromNow: an overdue job does not fire at once again, and its key keeps the first instant.
func TestFailWaitsFromNow(t *testing.T) {
	w := newWorld(t)
	was := w.enqueue(spec("a", 0))
	w.now = start.Add(24 * time.Hour)
	w.pull("w1")
	job, err := w.Fail(t.Context(), was.ID, jobs.Fail{Error: "no answer"})
	must(t, err)
	if job.Status != jobs.Queued || job.Attempt != 1 || !job.RunAt.Equal(w.now.Add(5*time.Minute)) || job.IdempotencyKey != was.IdempotencyKey || job.Reason() != "no answer" {
		t.Errorf("%+v", job)
	}
	ten := 10
	for _, other := range []jobs.Fail{{Error: "again"}, {Error: "no answer", WorkerID: "w2"}, {Error: "no answer", RetryDelaySec: &ten}} {
		_, err = w.Fail(t.Context(), was.ID, other)
		refused(t, err, task.CodeConflict, "is not running, it is queued")
	}
	w.now = job.RunAt
	w.pull("w1")
	job, err = w.Fail(t.Context(), was.ID, jobs.Fail{Error: "no answer", RetryDelaySec: &ten})
	must(t, err)
	if !job.RunAt.Equal(w.now.Add(10 * time.Second)) {
		t.Errorf("%+v", job)
	}
}

// TestFailTwice: the same request again has the same answer, and spends no attempt.
func TestFailTwice(t *testing.T) {
	w := newWorld(t)
	s := spec("a", 0)
	s.MaxAttempts = 2
	id := w.enqueue(s).ID
	for _, status := range []string{jobs.Queued, jobs.DeadLetter} {
		w.pull("w1")
		_, err := w.Fail(t.Context(), id, jobs.Fail{Error: "no answer", WorkerID: "w1"})
		must(t, err)
		first := w.job(id) // its line of audit.jsonl may be written by now
		w.now = w.now.Add(time.Second)
		again, err := w.Fail(t.Context(), id, jobs.Fail{Error: "no answer", WorkerID: "w1"})
		must(t, err)
		if diff := cmp.Diff(first, again); diff != "" || again.Status != status {
			t.Errorf("%+v\n%s", again, diff)
		}
		w.now = again.RunAt
	}
	must(t, w.bury(t.Context()))
	if len(w.told) != 1 || len(w.auditLines()) != 1 {
		t.Errorf("told %q", w.told)
	}
}

// auditLines returns audit.jsonl.
func (w *world) auditLines() (lines []map[string]any) {
	w.t.Helper()
	for line := range strings.Lines(w.read("audit.jsonl")) {
		m := map[string]any{}
		must(w.t, json.Unmarshal([]byte(line), &m))
		lines = append(lines, m)
	}
	return lines
}

// TestDeadLetter is told of once, has its line of audit.jsonl, and is queued again by retry.
func TestDeadLetter(t *testing.T) {
	w := newWorld(t)
	s := spec("a", 0)
	s.MaxAttempts = 1
	id := w.enqueue(s).ID
	w.pull("w1")
	if job, err := w.Fail(t.Context(), id, jobs.Fail{Error: "no such entry"}); err != nil || job.Status != jobs.DeadLetter || job.Attempt != 1 {
		t.Fatalf("%+v, %v", job, err)
	}
	w.reopen()
	must(t, w.bury(t.Context()))
	if want := "job-dead-letter " + id + ": job job-001 (verify of a) has used up its 1 attempt: stint job show " + id; len(w.told) != 1 || w.told[0] != want {
		t.Errorf("told %q", w.told)
	}
	if lines := w.auditLines(); len(lines) != 1 || lines[0]["last_error"] != "no such entry" || lines[0]["id"] != w.job(id).AuditEventID {
		t.Errorf("%v", lines)
	}
	w.now = start.Add(time.Hour)
	job, err := w.Retry(t.Context(), id)
	must(t, err)
	if diff := cmp.Diff(job, w.job(id)); diff != "" || job.Status != jobs.Queued || job.Attempt != 0 || !job.RunAt.Equal(w.now) {
		t.Errorf("%+v\n%s", job, diff)
	}
	_, err = w.Retry(t.Context(), id)
	refused(t, err, task.CodeConflict, "only a dead letter")
}

// TestAck keeps next_action_at and queues the next job with it; the same request again has the same
// answer, and audit.jsonl has what was before and is now, with the evidence.
func TestAck(t *testing.T) {
	w := newWorld(t)
	id := w.enqueue(spec("a", 0)).ID
	ack := jobs.Ack{WorkerID: "w1", AuditEventID: "aud_789", NextActionAt: start.Add(time.Hour), Before: "confidence=0.8", After: "confidence=0.9", Evidence: "go.mod"}
	_, err := w.Ack(t.Context(), id, ack)
	refused(t, err, task.CodeConflict, "is not running, it is queued")
	w.pull("w1")
	first, err := w.Ack(t.Context(), id, ack)
	must(t, err)
	again, err := w.Ack(t.Context(), id, ack)
	must(t, err)
	if diff := cmp.Diff(first, again); diff != "" || first.Status != jobs.Succeeded || !first.NextActionAt.Equal(ack.NextActionAt) {
		t.Errorf("%+v\n%s", first, diff)
	}
	list := w.List(jobs.Filter{Status: jobs.Queued})
	if len(list) != 1 || list[0].IdempotencyKey != "a:verify:2026-12-01T01:00:00Z" || !list[0].RunAt.Equal(ack.NextActionAt) {
		t.Errorf("%+v", list)
	}
	lines := w.auditLines()
	if line := lines[0]; line["before"] != ack.Before || line["after"] != ack.After || line["evidence"] != ack.Evidence || line["audit_event_id"] != "aud_789" || line["job_id"] != id || line["object_id"] != "a" || line["action"] != "verify" {
		t.Errorf("%v", line)
	}
	if len(lines) != 1 || lines[0]["id"] != id+"@2026-12-01T00:00:00.000Z" {
		t.Errorf("%v", lines)
	}
	ack.AuditEventID = "aud_790"
	_, err = w.Ack(t.Context(), id, ack)
	refused(t, err, task.CodeConflict, "is not running, it is succeeded")
	_, err = w.Ack(t.Context(), "nothing", ack)
	refused(t, err, task.CodeNotFound, `there is no job "nothing"`)
	w.now = ack.NextActionAt
	w.pull("w1")
	ack.NextActionAt = start
	_, err = w.Ack(t.Context(), list[0].ID, ack)
	refused(t, err, task.CodeInvalid, "2026-12-01T00:00:00.000Z is past")
	if job, err := w.Ack(t.Context(), list[0].ID, jobs.Ack{NextActionAt: start, NoNext: true}); err != nil || !job.NextActionAt.Equal(start) {
		t.Errorf("a time that is past, for which nothing is queued: %+v, %v", job, err)
	}
	ack.NextActionAt = start.AddDate(9000, 0, 0)
	_, err = w.Ack(t.Context(), list[0].ID, ack)
	refused(t, err, task.CodeInvalid, "next_action_at: write a time")
}

// TestNextOfEnded: the next job is queued also where a job that has ended has its key, or the same one.
func TestNextOfEnded(t *testing.T) {
	w := newWorld(t)
	w.enqueue(spec("a", 60))
	w.now = start.Add(time.Hour)
	for n := range 2 {
		list := w.pull("w1")
		_, err := w.Ack(t.Context(), list[0].ID, jobs.Ack{WorkerID: "w1", NextActionAt: start.Add(time.Hour)})
		must(t, err)
		if list = w.List(jobs.Filter{Status: jobs.Queued}); len(list) != 1 || list[0].IdempotencyKey != "a:verify:2026-12-01T01:00:00Z:"+state.ExactTime(w.now) {
			t.Fatalf("%d: %+v", n, list)
		}
		w.now = w.now.Add(time.Second)
	}
}

// TestAcksAtOnce: equal requests at the same time have one line of audit.jsonl, and the same answer.
func TestAcksAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 10 {
		id := w.enqueue(spec(fmt.Sprint(i), 0)).ID
		w.pull("w1")
		for range 4 {
			all.Go(func() {
				if job, err := w.Ack(t.Context(), id, jobs.Ack{WorkerID: "w1"}); err != nil || job.Status != jobs.Succeeded {
					t.Errorf("%+v, %v", job, err)
				}
			})
		}
		all.Wait()
	}
	if lines := w.auditLines(); len(lines) != 10 {
		t.Errorf("%d lines", len(lines))
	}
}

// TestAckWithoutAuditLine: an end whose line cannot be written is not kept, and the worker can ask again.
func TestAckWithoutAuditLine(t *testing.T) {
	w := newWorld(t)
	id := w.enqueue(spec("a", 0)).ID
	w.pull("w1")
	audit := filepath.Join(w.dir, "audit.jsonl")
	must(t, os.Mkdir(audit, 0o700))
	if _, err := w.Ack(t.Context(), id, jobs.Ack{WorkerID: "w1"}); err == nil || !strings.Contains(err.Error(), "audit.jsonl") || w.job(id).Status != jobs.Running {
		t.Errorf("%v: %+v", err, w.job(id))
	}
	must(t, os.Remove(audit))
	if _, err := w.Ack(t.Context(), id, jobs.Ack{WorkerID: "w1"}); err != nil || len(w.auditLines()) != 1 {
		t.Errorf("%v: %v", err, w.auditLines())
	}
}

// TestDeadLetterWithoutAuditLine: the failure is kept all the same, and told of once the line can be written.
func TestDeadLetterWithoutAuditLine(t *testing.T) {
	w := newWorld(t)
	s := spec("a", 0)
	s.MaxAttempts = 1
	id := w.enqueue(s).ID
	w.pull("w1")
	audit := filepath.Join(w.dir, "audit.jsonl")
	must(t, os.Mkdir(audit, 0o700))
	if job, err := w.Fail(t.Context(), id, jobs.Fail{Error: "no"}); err != nil || job.Status != jobs.DeadLetter || len(w.told) > 0 {
		t.Errorf("%+v, %v, told %q", job, err, w.told)
	}
	must(t, os.Remove(audit))
	must(t, w.bury(t.Context()))
	if len(w.told) != 1 || len(w.auditLines()) != 1 {
		t.Errorf("told %q", w.told)
	}
}

// TestKeyReuse: the same job is not queued twice, and another one under its key is a conflict; both
// also when the first has long been archived.
func TestKeyReuse(t *testing.T) {
	w := newWorld(t)
	first := w.enqueue(spec("a", 0))
	check := func(when string) {
		t.Helper()
		job, isNew, err := w.Enqueue(t.Context(), spec("a", 0))
		if err != nil || isNew || job.ID != first.ID {
			t.Errorf("%s: %+v, %v, %v", when, job, isNew, err)
		}
		other := spec("b", 1)
		other.IdempotencyKey = first.IdempotencyKey
		_, _, err = w.Enqueue(t.Context(), other)
		refused(t, err, task.CodeConflict, "job job-001 has the idempotency key a:verify:2026-12-01T00:00:00Z and asks for something else")
	}
	check("queued")
	w.pull("w1")
	check("running")
	_, err := w.Ack(t.Context(), first.ID, jobs.Ack{})
	must(t, err)
	w.now = start.AddDate(0, 0, 2)
	check("succeeded")
	r, err := w.Compact(t.Context(), 0, false, 0)
	if err != nil || r.Archived != 1 || r.Archive != "jobs-2026-12.md" {
		t.Errorf("%+v, %v", r, err)
	}
	check("archived")
	w.reopen()
	check("archived, and read again")
	if n := len(w.List(jobs.Filter{})); n != 0 {
		t.Errorf("%d jobs are listed", n)
	}
}

// TestCompactKeeps dead letters, and what ended within a day, whatever it is told.
func TestCompactKeeps(t *testing.T) {
	w := newWorld(t)
	for _, object := range []string{"dead", "done"} {
		s := spec(object, 0)
		s.MaxAttempts = 1
		w.enqueue(s)
	}
	list := w.pull("w1")
	_, err := w.Fail(t.Context(), list[0].ID, jobs.Fail{Error: "no"})
	must(t, err)
	_, err = w.Ack(t.Context(), list[1].ID, jobs.Ack{})
	must(t, err)
	for days, want := range []int{2, 2, 1} {
		w.now = start.AddDate(0, 0, days)
		_, err := w.Compact(t.Context(), 0, false, 0)
		if n := len(w.List(jobs.Filter{})); err != nil || n != want {
			t.Errorf("after %d days: %d jobs, %v", days, n, err)
		}
	}
}

// TestArchivedFailure comes back with retry.
func TestArchivedFailure(t *testing.T) {
	w := newWorld(t)
	id := w.enqueue(spec("a", 0)).ID
	must(t, w.Close()) // what was acknowledged comes into jobs.md only then for certain
	w.write("jobs.md", w.read("jobs.md")+"\n## Job "+id+"\n- status: failed\n")
	w.open()
	w.now = start.AddDate(0, 0, 2)
	r, err := w.Compact(t.Context(), 0, false, 0)
	if err != nil || r.Archived != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	job, err := w.Retry(t.Context(), id)
	must(t, err)
	w.reopen()
	if diff := cmp.Diff(job, w.job(id)); diff != "" || len(w.pull("w1")) != 1 {
		t.Errorf("(-was +is):\n%s", diff)
	}
}

// TestClocks: a time of the past is refused at enqueue, and one that is ahead of ours by over a minute at pull.
func TestClocks(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.Enqueue(t.Context(), spec("a", -1))
	refused(t, err, task.CodeInvalid, "2026-11-30T23:59:00.000Z is past, it is 2026-12-01T00:00:00.000Z now")
	w.enqueue(spec("a", 1))
	for ahead, want := range map[time.Duration]int{time.Minute + time.Second: -1, time.Minute: 1} {
		list, err := w.Pull(t.Context(), jobs.Pull{WorkerID: "w1", Now: start.Add(ahead)})
		if want < 0 {
			refused(t, err, task.CodeInvalid, "one of them is wrong")
		} else if err != nil || len(list) != want {
			t.Errorf("%s ahead: %v, %v", ahead, list, err)
		}
	}
	w.now = start.AddDate(1, 0, 0) // our own clock is wrong, and is put right
	w.enqueue(jobs.Spec{ObjectType: "memory", ObjectID: "b", Action: "verify", RunAt: w.now})
	w.pull("w1")
	w.now = start
	must(t, w.reclaim(t.Context()))
	if left := w.List(jobs.Filter{Status: jobs.Running}); len(left) != 1 || left[0].ObjectID != "a" {
		t.Errorf("a lease of a year: %+v", left)
	}
	_, err = w.Pull(t.Context(), jobs.Pull{})
	refused(t, err, task.CodeInvalid, "worker_id: it is missing")
	_, err = w.Pull(t.Context(), jobs.Pull{WorkerID: "w", Limit: 1001})
	refused(t, err, task.CodeInvalid, "limit: 1001 is not from 1 to 1000")
}

// TestHandEdits: what a person writes into jobs.md is taken over, a wrong enum is a finding with its
// line that stops nothing else, and a job whose section is deleted has failed.
func TestHandEdits(t *testing.T) {
	w := newWorld(t)
	gone, kept := w.enqueue(spec("gone", 0)), w.enqueue(spec("kept", 0))
	must(t, w.Close())
	text := w.read("jobs.md")
	head, rest, _ := strings.Cut(text, "## Job "+gone.ID)
	rest = rest[strings.Index(rest, "## Job "+kept.ID):]
	own := "## Job mine\n- status: queued\n- objectType: experience\n- objectId: mine\n- action: decay\n- runAt: 2026-12-01T00:00:00Z\n"
	w.write("jobs.md", head+strings.Replace(rest, "priority: medium", "priority: high", 1)+"\n"+own+"\n"+strings.NewReplacer("mine", "wrong", "decay", "dekay").Replace(own))
	w.open()
	if j := w.job(kept.ID); j.Priority != "high" {
		t.Errorf("%+v", j)
	}
	if j := w.job("mine"); j.MaxAttempts != 3 || !j.CreatedAt.Equal(start) {
		t.Errorf("%+v", j)
	}
	if j := w.job(gone.ID); j.Status != jobs.Failed || j.Reason() != "its section was deleted by hand" {
		t.Errorf("%+v", j)
	}
	found := w.Findings()
	if len(found) != 1 || !strings.HasPrefix(found[0].Error(), "jobs.md:") || !strings.HasSuffix(found[0].Error(), `unknown word "dekay"; it is one of verify, revalidate, decay, archive, reinstate-check, init_instance`) {
		t.Fatalf("%v", found)
	}
	if line := strings.Split(w.read("jobs.md"), "\n")[found[0].Line-1]; line != "- action: dekay" {
		t.Errorf("the finding is about %q", line)
	}
	if n := len(w.pull("w1")); n != 2 {
		t.Errorf("pulled %d", n)
	}
}

// TestRebuiltFromJobsAlone: jobs.md in an empty directory recovers every job.
func TestRebuiltFromJobsAlone(t *testing.T) {
	w := newWorld(t)
	w.enqueue(spec("a", 0))
	w.enqueue(spec("b", 0))
	w.pull("w1")
	_, err := w.Fail(t.Context(), "job-001", jobs.Fail{Error: "two\nlines "})
	must(t, err)
	w.enqueue(spec("c", 5))
	must(t, w.Close())
	was, text := w.List(jobs.Filter{}), w.read("jobs.md")
	w.dir = t.TempDir()
	w.write("jobs.md", text)
	w.open()
	if diff := cmp.Diff(was, w.List(jobs.Filter{})); diff != "" {
		t.Errorf("(-was +is):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "journal.md")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is the journal of tasks: %v", err)
	}
}

// TestNextToTasks: the two ledgers of a directory share no file, in the archive neither.
func TestNextToTasks(t *testing.T) {
	w := newWorld(t)
	w.write("tasks.md", ledger.Preamble)
	id := w.enqueue(spec("a", 0)).ID
	w.pull("w1")
	_, err := w.Ack(t.Context(), id, jobs.Ack{})
	must(t, err)
	w.now = start.AddDate(0, 0, 2)
	_, err = w.Compact(t.Context(), 0, false, 0)
	must(t, err)
	var names []string
	must(t, filepath.WalkDir(w.dir, func(path string, e os.DirEntry, err error) error {
		if !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, w.dir+"/"))
		}
		return err
	}))
	want := []string{"archive/jobs-2026-12.md", "archive/jobs.index", "audit.jsonl", "format", "jobs.journal.md", "jobs.md", "tasks.md"}
	if !slices.Equal(names, want) || w.read("tasks.md") != ledger.Preamble {
		t.Errorf("%q", names)
	}
}

// TestIDTwice: a new id that is that of another job, also of an archived one, changes nothing.
func TestIDTwice(t *testing.T) {
	w := newWorld(t)
	w.enqueue(spec("a", 0))
	w.pull("w1")
	for range 2 {
		was := w.job("job-001")
		w.ids = 0
		if _, _, err := w.Enqueue(t.Context(), spec("b", 1)); err == nil || !strings.Contains(err.Error(), "the new id job-001 is that of another job") {
			t.Error(err)
		}
		if diff := cmp.Diff(was, w.job("job-001")); diff != "" {
			t.Error(diff)
		}
		if was.Status == jobs.Running {
			_, err := w.Ack(t.Context(), "job-001", jobs.Ack{})
			must(t, err)
			w.now = start.AddDate(0, 0, 2)
			_, err = w.Compact(t.Context(), 0, false, 0)
			must(t, err)
			w.now = start
		}
	}
	if w.enqueue(spec("b", 1)).ID != "job-002" {
		t.Error("the key of a job that was refused is taken")
	}
}

// TestReferences: a unique piece of an id is enough.
func TestReferences(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.enqueue(spec(fmt.Sprint(i), i))
	}
	if j := w.job("012"); j.ObjectID != "11" {
		t.Errorf("%+v", j)
	}
	_, err := w.Job("job")
	refused(t, err, task.CodeAmbiguous, `"job" fits several jobs: `)
	_, err = w.Job("")
	refused(t, err, task.CodeNotFound, "there is no job")
}

// BenchmarkPull compares pulling 100 of 100,000 due jobs with pulling 100 of 1,000, in one run.
func BenchmarkPull(b *testing.B) {
	var few, many time.Duration
	rooms := [2]*world{roomOf(b, 1000), roomOf(b, 100_000)}
	for b.Loop() {
		for i, sum := range []*time.Duration{&few, &many} {
			w := rooms[i]
			begun := time.Now()
			if list := w.pull("w"); len(list) != 100 {
				b.Fatalf("pulled %d", len(list))
			}
			*sum += time.Since(begun)
			w.now = w.now.Add(6 * time.Minute) // the lease ends, and they return
			must(b, w.reclaim(b.Context()))
		}
	}
	b.ReportMetric(float64(few.Microseconds())/float64(b.N), "µs/1k")
	b.ReportMetric(float64(many.Microseconds())/float64(b.N), "µs/100k")
	b.ReportMetric(float64(many)/float64(few), "ratio")
}

// roomOf returns a room with n due jobs.
func roomOf(b *testing.B, n int) *world {
	w := newWorld(b)
	must(b, w.Close())
	text := []byte(ledger.JobFiles.Preamble())
	for i := range n {
		s := spec(fmt.Sprint(i), i%1000)
		s.MaxAttempts = 1000
		_, err := s.Check()
		must(b, err)
		j := jobs.Job{ID: fmt.Sprintf("j%06d", i*7919%n), Spec: s, Status: jobs.Queued, CreatedAt: start, UpdatedAt: start}
		r := jobs.Record(nil, &j)
		r.Seq = uint64(i + 1)
		text, err = ledger.AppendRecord(text, r)
		must(b, err)
	}
	must(b, os.Remove(filepath.Join(w.dir, "jobs.journal.md")))
	w.write("jobs.md", string(text))
	w.now = start.Add(24 * time.Hour)
	w.open()
	return w
}
