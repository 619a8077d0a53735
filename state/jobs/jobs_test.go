package jobs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stint/ledger"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var day = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// A folder folds records as the log does: encoded, numbered, and read back.
type folder struct {
	*State
	seq uint64
}

func newFolder() *folder { return &folder{State: New()} }

func (f *folder) add(t interface{ Fatal(...any) }, r *ledger.Record) error {
	f.seq++
	r.Seq = f.seq
	s, err := ledger.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return f.Apply(s)
}

func newJob(id string, runAt time.Time, priority string) Job {
	return Job{
		ID: id, Status: Queued, CreatedAt: day, UpdatedAt: day,
		Spec: Spec{
			ObjectType: "memory", ObjectID: "m-" + id, Action: "verify", RunAt: runAt, Priority: priority, MaxAttempts: 3, RetryDelaySec: 300,
			IdempotencyKey: "m-" + id + ":verify:" + runAt.Format(time.RFC3339),
		},
	}
}

// TestDueIsTheHeadOfTheSortedQueue: whatever has become of jobs, what is due next comes from the index
// as from a sorted list of all of them, and a compaction changes nothing.
func TestDueIsTheHeadOfTheSortedQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, all := newFolder(), map[string]Job{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := fmt.Sprintf("j%d", rapid.IntRange(0, 15).Draw(t, "id"))
			was, known := all[id]
			at := day.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")) * time.Hour)
			if rapid.IntRange(0, 9).Draw(t, "far") == 0 {
				at = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
			}
			if !known {
				j := newJob(id, at, rapid.SampledFrom(Priorities).Draw(t, "priority"))
				if err := f.add(t, Record(nil, &j)); err != nil {
					t.Fatal(err)
				}
				all[id] = j
				continue
			}
			j := was
			j.RunAt, j.UpdatedAt = at, day.Add(time.Duration(i)*time.Second)
			j.Status = rapid.SampledFrom(Statuses).Draw(t, "status")
			if j.Status == Running {
				j.WorkerID, j.LeaseUntil = "w", day.Add(time.Hour)
			} else {
				j.LeaseUntil = time.Time{}
			}
			if err := f.add(t, Record(&was, &j)); err == nil {
				all[id] = j
			} else if checkStep(was.Status, j.Status, false) == nil {
				t.Fatal(err)
			}
		}
		now, limit := day.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "now"))*time.Hour), rapid.IntRange(1, 20).Draw(t, "limit")
		var want []Job
		for _, j := range all {
			if j.Status == Queued && !j.RunAt.After(now) {
				want = append(want, j)
			}
		}
		slices.SortFunc(want, func(a, b Job) int { return compare(&entry{Job: a}, &entry{Job: b}) })
		m := f.Metrics(now)
		if m.Due != len(want) {
			t.Fatalf("%d are due, of %d", m.Due, len(want))
		}
		want = want[:min(len(want), limit)]
		if diff := cmp.Diff(want, f.Due(Pull{Now: now, Limit: limit})); diff != "" {
			t.Fatalf("due (-want +got):\n%s", diff)
		}
		g := newFolder()
		for _, r := range compact(t, f.State, time.Time{}).records {
			if err := g.add(t, &r); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(f.List(Filter{Newest: true}), g.List(Filter{Newest: true})); diff != "" {
			t.Fatalf("compacted (-want +got):\n%s", diff)
		}
	})
}

// hand returns the section that a person wrote.
func hand(t testing.TB, text string) *ledger.Section {
	t.Helper()
	doc := ledger.Parse([]byte(text))
	if len(doc.Sections) != 1 {
		t.Fatalf("%d sections, %v:\n%s", len(doc.Sections), doc.Findings, text)
	}
	return &doc.Sections[0]
}

const byHand = "## Job mine\n- status: queued\n- objectType: memory\n- objectId: m1\n- action: verify\n- runAt: 2026-12-01T03:00:00+01:00\n"

// TestHandWrittenJobs: what a person writes is taken with defaults, or refused with a sentence that
// names the field.
func TestHandWrittenJobs(t *testing.T) {
	f := newFolder()
	running := newJob("busy", day, "high")
	must(t, f.add(t, Record(nil, &running)))
	now := running
	now.Status, now.WorkerID, now.LeaseUntil = Running, "w", day.Add(time.Hour)
	must(t, f.add(t, Record(&running, &now)))
	f.Archive(ledger.ArchiveEntry{ID: "old", Status: Succeeded, Key: "m9:verify:2026-12-01T00:00:00Z"})
	for _, c := range []struct{ text, want string }{
		{byHand, ""},
		{"## Job busy\n- status: queued\n", ""},
		{"## Job busy\n- priority: low\n- note of mine: x\n", ""},
		{strings.Replace(byHand, "queued", "quued", 1), `status: unknown word "quued"; it is one of queued, running, succeeded, failed, dead_letter`},
		{strings.Replace(byHand, "verify", "verfy", 1), `action: unknown word "verfy"; it is one of verify, revalidate, decay, archive, reinstate-check, init_instance`},
		{strings.Replace(byHand, "memory", "person", 1), `objectType: unknown word "person"; it is one of memory, experience, cognition`},
		{strings.Replace(byHand, "- status: queued\n", "", 1), "a job without a status has no effect; add - status: queued"},
		{strings.Replace(byHand, "- objectId: m1\n", "", 1), "object_id: it is missing"},
		{strings.Replace(byHand, "queued", "running", 1), "running cannot be set by hand"},
		{strings.Replace(byHand, "objectId", "object_id", 1), "unknown key; did you mean objectId?"},
		{strings.Replace(byHand, "2026-12-01T03:00:00+01:00", "tomorrow", 1), `runAt: "tomorrow" is not a time`},
		{strings.Replace(byHand, "runAt", "attempt: many\n- runAt", 1), `attempt: "many" is no whole number`},
		{strings.Replace(byHand, "m1", "m-busy", 1) + "- idempotencyKey: m-busy:verify:2026-12-01T00:00:00Z\n", "job busy has the idempotency key"},
		{strings.Replace(byHand, "m1", "m9", 1) + "- idempotencyKey: m9:verify:2026-12-01T00:00:00Z\n", "job old has the idempotency key"},
		{strings.Replace(byHand, "mine", "old", 1), "that job was archived"},
		{"## Task x\n- status: queued\n", "a Task has no meaning here; write ## Job ID"},
	} {
		err := f.NewSave().Check(hand(t, c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%v, not %q", c.text, err, c.want)
		}
	}
	save := f.NewSave()
	must(t, save.Check(hand(t, byHand)))
	if err := save.Check(hand(t, strings.Replace(byHand, "mine", "twin", 1))); err == nil {
		t.Error("two jobs of one save have one key")
	}
}

// TestHandWrittenJobHasDefaults: what a person leaves out is as at enqueue.
func TestHandWrittenJobHasDefaults(t *testing.T) {
	s := hand(t, byHand)
	j, err := after(nil, s, New().ByKey)
	must(t, err)
	at := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	want := Job{
		ID: "mine", Status: Queued,
		Spec: Spec{
			ObjectType: "memory", ObjectID: "m1", Action: "verify", RunAt: at, Priority: "medium", MaxAttempts: 3, RetryDelaySec: 300,
			IdempotencyKey: "m1:verify:2026-12-01T02:00:00Z",
		},
	}
	if diff := cmp.Diff(want, j); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type kept struct {
	records []ledger.Record
	out     []ledger.Moved
}

func compact(t interface {
	Fatal(...any)
	Helper()
}, s *State, before time.Time,
) (all kept) {
	t.Helper()
	keep, err := s.Compact(before, func(m ledger.Moved) error {
		all.out = append(all.out, m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, merge := range keep {
		r, err := merge()
		if err != nil {
			t.Fatal(err)
		}
		all.records = append(all.records, r)
	}
	return all
}

// TestCompactKeepsAPersonsOwnKeys, and moves out what ended before, whose key stays known.
func TestCompactKeepsAPersonsOwnKeys(t *testing.T) {
	f := newFolder()
	a, b := newJob("a", day, "low"), newJob("b", day, "low")
	must(t, f.add(t, Record(nil, &a).Add("ticket", "T-1")))
	must(t, f.add(t, Record(nil, &b)))
	done := b
	done.Status = Succeeded
	must(t, f.add(t, Record(&b, &done)))
	keep := compact(t, f.State, day.Add(time.Hour))
	if len(keep.records) != 1 || len(keep.out) != 1 {
		t.Fatalf("%+v", keep)
	}
	if v, _ := keep.records[0].Get("ticket"); v != "T-1" || keep.out[0].Entry.Key != b.IdempotencyKey {
		t.Errorf("%+v", keep)
	}
}

// TestSpecsThatAreRefused: each with the field and a sentence.
func TestSpecsThatAreRefused(t *testing.T) {
	good := Spec{ObjectType: "cognition", ObjectID: "cg_123", Action: "revalidate", RunAt: day}
	for _, c := range []struct {
		change func(*Spec)
		field  string
	}{
		{func(*Spec) {}, ""},
		{func(s *Spec) { s.ObjectType = "thing" }, "object_type"},
		{func(s *Spec) { s.Action = "Verify" }, "action"},
		{func(s *Spec) { s.Priority = "urgent" }, "priority"},
		{func(s *Spec) { s.ObjectID = "" }, "object_id"},
		{func(s *Spec) { s.ObjectID = "a\nb" }, "object_id"},
		{func(s *Spec) { s.ObjectID = strings.Repeat("x", 1<<20) }, "object_id"},
		{func(s *Spec) { s.RunAt = time.Time{} }, "run_at"},
		{func(s *Spec) { s.MaxAttempts = -1 }, "max_attempts"},
		{func(s *Spec) { s.RetryDelaySec = -1 }, "retry_delay_sec"},
		{func(s *Spec) { s.IdempotencyKey = " x" }, "idempotency_key"},
	} {
		s := good
		c.change(&s)
		field, err := s.Check()
		if (err != nil) != (c.field != "") || err != nil && field != c.field {
			t.Errorf("%s: %s, %v", c.field, field, err)
		}
	}
	if _, err := good.Check(); err != nil || good.IdempotencyKey != "cg_123:revalidate:2026-12-01T00:00:00Z" || good.Priority != "medium" || good.MaxAttempts != 3 || good.RetryDelaySec != 300 {
		t.Errorf("%+v, %v", good, err)
	}
	if err := CheckTime(good.RunAt, day.Add(11*time.Second)); err == nil || CheckTime(good.RunAt, day.Add(9*time.Second)) != nil {
		t.Errorf("past: %v", err)
	}
}

// TestMetrics: as document 003 has them.
func TestMetrics(t *testing.T) {
	f := newFolder()
	for i, status := range []string{Queued, Queued, Running, Succeeded, Succeeded, Succeeded, DeadLetter} {
		j := newJob(fmt.Sprint(i), day.Add(time.Duration(i)*time.Hour), "medium")
		if j.Status = status; status == DeadLetter {
			j.Attempt = 3
		}
		if status == Running {
			j.WorkerID, j.LeaseUntil = "w", day
			was := j
			was.Status = Queued
			must(t, f.add(t, Record(nil, &was)))
			must(t, f.add(t, Record(&was, &j)))
			continue
		}
		must(t, f.add(t, Record(nil, &j)))
	}
	waits := newJob("waits", day.Add(-time.Hour), "medium") // for a person: no worker is late
	waits.WaitsFor = "the gate"
	must(t, f.add(t, Record(nil, &waits)))
	m := f.Metrics(day.Add(30 * time.Minute))
	want := Metrics{Due: 1, LagSeconds: 1800, SuccessRate: 0.75, RetryRate: 0.2, DeadLetters: 1}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzApply: no record makes a job that cannot be written and read back as it is.
func FuzzApply(f *testing.F) {
	f.Add(byHand, "- status: queued\n")
	f.Add(byHand+"- attempt: 2\n- lastError: |\n  two\n  lines\n", "- status: succeeded\n- nextActionAt: 2026-12-08T00:00:00Z\n")
	f.Add(strings.Replace(byHand, "medium", "high", 1)+"- retryDelaySec: 0\n- createdAt: 2026-11-28T09:00:00.123456Z\n", "- maxAttempts:\n")
	f.Add(byHand+"- workerId: w\n- auditEventId: a\n", "- status: dead_letter\n- lastError:\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		doc := ledger.Parse([]byte(first + "\n## Job mine\n" + second))
		s := New()
		for i := range doc.Sections {
			_ = s.Apply(&doc.Sections[i]) // some have no effect
		}
		keep := compact(t, s, time.Time{})
		again := newFolder()
		for _, r := range keep.records {
			if err := again.add(t, &r); err != nil {
				t.Fatalf("%v:\n%s", err, first+second)
			}
		}
		if diff := cmp.Diff(s.List(Filter{}), again.List(Filter{})); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

// TestDueOfIDs: what is asked for by its id costs nothing for the other jobs that are due.
func TestDueOfIDs(t *testing.T) {
	f := newFolder()
	for i := range 2000 {
		j := newJob(fmt.Sprintf("j%04d", i), day.Add(time.Duration(i/1999)*time.Hour), "low")
		must(t, f.add(t, Record(nil, &j)))
	}
	for want, p := range map[string]Pull{
		"j1998 j0003": {Limit: 3, IDs: []string{"none", "j1998", "j1999", "j0003"}},
		"j0007":       {Limit: 1, IDs: []string{"j0007", "j0003"}},
		"":            {Limit: 1, IDs: []string{}},
		"j0004 j0014": {Limit: 2, Is: func(j *Job) bool { return strings.HasSuffix(j.ID, "4") }},
	} {
		p.Now = day
		var got []string
		for _, j := range f.Due(p) {
			got = append(got, j.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %q", p, got)
		}
	}
	if n := testing.AllocsPerRun(10, func() { f.Due(Pull{Now: day, Limit: 10, IDs: []string{"none"}}) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
