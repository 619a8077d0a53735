package govern

import (
	"cmp"
	"context"
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

	"stint/coordinator/task"
	"stint/memory"
	"stint/memory/care"
	"stint/state"
	"stint/state/jobs"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// A bench is a worker with a room of due jobs and a master that do as little as they can.
type bench struct {
	*testing.T
	*Worker
	dir      string
	file     memory.Governed
	now      time.Time
	list     []jobs.Job
	archived []jobs.Job
	acks     []jobs.Ack
	tasks    map[string]*state.Task // by their keys
	specs    []task.TaskSpec
	uses     map[string]memory.Use
	leaving  bool
	demo     bool   // no agent but that is installed
	busy     bool   // a task is at work in the checkout
	refuse   error  // of the next Submit
	lost     bool   // the next Ack does not arrive
	auto     string // answers what is asked at once

	looked sync.Mutex // a timer alone orders nothing
}

func newBench(t *testing.T, notes string) *bench {
	b := &bench{T: t, dir: t.TempDir(), now: start, tasks: map[string]*state.Task{}, uses: map[string]memory.Use{}}
	b.file = memory.Governed{Path: memory.DefaultLessons, Kind: "experience", Workspace: b.dir, Gate: filepath.Join(b.dir, memory.DefaultGate)}
	b.write(memory.DefaultLessons, notes)
	ids := 0
	b.Worker = &Worker{
		Agent: func() string { return map[bool]string{true: "demo", false: "codex"}[b.demo] },
		Jobs:  b, Tasks: b, Files: []memory.Governed{b.file}, Budget: 20, Queue: "scheduled", Uses: func(_ memory.Governed, id string) memory.Use { return b.uses[id] }, Now: func() time.Time { return b.now },
		NewID: func() string { ids++; return fmt.Sprintf("n%d", ids) }, Alone: b.alone, Log: slog.New(slog.DiscardHandler),
	}
	return b
}

func (b *bench) write(name, text string) {
	b.Helper()
	path := filepath.Join(b.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.dir, name)) // a file that is not there is empty
	return string(text)
}

func (b *bench) Enqueue(_ context.Context, spec jobs.Spec) (jobs.Job, bool, error) {
	if field, err := spec.Check(); err != nil {
		b.Errorf("%s: %v", field, err)
	}
	j := jobs.Job{ID: fmt.Sprintf("job%d", len(b.list)+len(b.archived)+1), Spec: spec, Status: jobs.Queued, CreatedAt: b.now, UpdatedAt: b.now}
	if b.HasKey(j.IdempotencyKey) {
		b.Errorf("a second job %s", j.IdempotencyKey)
	}
	b.list = append(b.list, j)
	return j, true, nil
}

func (b *bench) HasKey(key string) bool {
	return slices.ContainsFunc(slices.Concat(b.list, b.archived), func(j jobs.Job) bool { return j.IdempotencyKey == key })
}

func (b *bench) Where(is func(*jobs.Job) bool) []jobs.Job {
	list := slices.DeleteFunc(slices.Clone(b.list), func(j jobs.Job) bool { return !is(&j) })
	slices.SortStableFunc(list, func(x, y jobs.Job) int { return x.RunAt.Compare(y.RunAt) })
	return list
}

func (b *bench) Pull(_ context.Context, p jobs.Pull) (pulled []jobs.Job, err error) {
	if p.WorkerID != "stint" || len(p.IDs) == 0 || len(p.IDs) > 10 {
		b.Errorf("%+v", p)
	}
	for i := range b.list {
		if j := &b.list[i]; j.Status == jobs.Queued && !j.RunAt.After(b.now) && slices.Contains(p.IDs, j.ID) {
			j.Status, j.UpdatedAt, j.LeaseUntil = jobs.Running, b.now, b.now.Add(5*time.Minute)
			pulled = append(pulled, *j)
		}
	}
	return pulled, nil
}

func (b *bench) job(id string) *jobs.Job {
	b.Helper()
	i := slices.IndexFunc(b.list, func(j jobs.Job) bool { return j.ID == id })
	if i < 0 {
		b.Fatalf("there is no job %s in %+v", id, b.list)
	}
	return &b.list[i]
}

func (b *bench) Ack(_ context.Context, id string, a jobs.Ack) (jobs.Job, error) {
	if b.lost {
		b.lost = false
		return jobs.Job{}, errors.New("lost")
	}
	if field, err := a.Check(); err != nil || !a.NoNext || a.WorkerID != "stint" {
		b.Errorf("%s: %v: %+v", field, err, a)
	}
	j := b.job(id)
	if j.Status != jobs.Running {
		b.Errorf("%s is %s", id, j.Status)
	}
	j.Status, j.UpdatedAt, j.NextActionAt = jobs.Succeeded, b.now, a.NextActionAt
	b.acks = append(b.acks, a)
	return *j, nil
}

func (b *bench) Fail(_ context.Context, id string, f jobs.Fail) (jobs.Job, error) {
	j := b.job(id)
	j.LastError = &f.Error
	b.back(j, b.now.Add(5*time.Minute))
	return *j, nil
}

func (b *bench) Wait(_ context.Context, id, why string) error {
	b.job(id).WaitsFor, b.job(id).UpdatedAt = why, b.now
	return nil
}

// back ends an attempt of a job that is running.
func (b *bench) back(j *jobs.Job, at time.Time) {
	j.Attempt, j.Status, j.RunAt, j.UpdatedAt = j.Attempt+1, jobs.Queued, at, b.now
	if j.Attempt == 3 {
		j.Status = jobs.DeadLetter
	}
}

func (b *bench) Submit(_ context.Context, spec task.TaskSpec) (state.Task, error) {
	if b.refuse != nil {
		return state.Task{}, b.refuse
	}
	if b.tasks[spec.IdempotencyKey] != nil {
		b.Errorf("asked twice: %s", spec.IdempotencyKey)
	}
	t := &state.Task{ID: fmt.Sprintf("t%d", len(b.tasks)+1), Status: state.Queued}
	if b.auto != "" {
		t.Status, t.Result, t.UpdatedAt = state.Done, b.auto, b.now
	}
	b.tasks[spec.IdempotencyKey], b.specs = t, append(b.specs, spec)
	return *t, nil
}

func (b *bench) Fired(key string) (state.Task, bool) {
	if t := b.tasks[key]; t != nil {
		return *t, true
	}
	return state.Task{}, false
}

func (b *bench) alone(workspace string, do func()) bool {
	if workspace == b.dir && b.busy {
		return false
	}
	do()
	return true
}

// IsLeaving is what a look asks first: it comes after what a test has looked at.
func (b *bench) IsLeaving() bool {
	b.looked.Lock()
	defer b.looked.Unlock()
	return b.leaving
}

// answer ends the tasks that go on.
func (b *bench) answer(status state.Status, text string) {
	b.now = b.now.Add(time.Minute)
	for _, t := range b.tasks {
		if !t.Status.Terminal() {
			t.Status, t.Result, t.UpdatedAt = status, text, b.now
		}
	}
}

// pass is one look.
func (b *bench) pass() { b.now = b.now.Add(5 * time.Second); b.look(b.Context()) }

func (b *bench) wantJobs(want ...string) {
	b.Helper()
	b.looked.Lock()
	defer b.looked.Unlock()
	var got []string
	for _, j := range b.list {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %d", j.ObjectID[len(b.dir)+1+len(memory.DefaultLessons):], j.Action, j.Status, j.Attempt)))
	}
	if !slices.Equal(got, want) {
		b.Fatalf("jobs:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (b *bench) wantFile(name, want string) {
	b.Helper()
	if got := b.read(name); got != want {
		b.Fatalf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

const (
	past    = " next=2026-11-28T11:00:00Z -->\n"
	lessons = "# Lessons\n- Deploys need the vault. <!-- stint id=a status=uncertain confidence=0.70 risk=low" + past
	archive = memory.Archive + "/" + memory.DefaultLessons
)

// An entry that fails is archived, and is back when it holds again. Each is written in the file and in the audit.
func TestArchivesAndReinstates(t *testing.T) {
	b := newBench(t, lessons)
	b.pass()
	b.wantJobs("#a verify queued 0") // an agent works, and nobody has a lease
	if len(b.specs) != 1 || b.specs[0].Workspace != b.dir || b.specs[0].Priority != 2 || !strings.HasPrefix(b.specs[0].Prompt, task.NoteQuestion) || b.specs[0].VerifyCommand != task.NoVerify || !strings.HasSuffix(b.specs[0].Prompt, "\n> Deploys need the vault.\n") {
		t.Fatalf("%+v", b.specs)
	}
	b.pass()
	b.answer(state.Done, "It is gone:\n```json\n{\"verdict\":\"fails\",\"text\":\"\",\"evidence\":\"No file names a vault.\"}\n```")
	b.pass()
	b.wantJobs("#a verify succeeded 0")
	b.wantFile(memory.DefaultLessons, "# Lessons\n")
	b.wantFile(archive, "- Deploys need the vault. <!-- stint id=a status=archived confidence=0.40 risk=low next=2026-12-28T12:01:15Z job=job1 -->\n")
	if a := b.acks[0]; a.Evidence != "No file names a vault. (task t1)" || !strings.Contains(a.Before, `"status":"uncertain","confidence":0.7`) || !strings.Contains(a.After, `"status":"archived"`) || !a.NextActionAt.Equal(b.now.AddDate(0, 0, 30)) {
		t.Errorf("%+v", a)
	}
	b.pass()
	b.wantJobs("#a verify succeeded 0")
	for _, days := range []int{30, 300} { // no prompt is about it
		b.now = b.now.AddDate(0, 0, days)
		b.pass()
		b.wantJobs("#a verify succeeded 0")
	}
	b.uses["a"] = memory.Use{Count: 1, Last: b.now.AddDate(0, 0, -29)}
	b.pass()
	b.answer(state.Done, `{"verdict":"holds","text":"","evidence":"vault.sh"}`)
	b.pass()
	b.wantJobs("#a verify succeeded 0", "#a reinstate-check succeeded 0")
	if got := b.read(memory.DefaultLessons); !strings.Contains(got, "vault. <!-- stint id=a status=active confidence=0.60 ") || b.read(archive) != "" {
		t.Error(got)
	}
}

// What is to be done with each entry that is due; the others, and those that never are, are left alone.
func TestActions(t *testing.T) {
	b := newBench(t, "- one\n"+
		"- two <!-- stint id=b status=active confidence=1.00 risk=low next=2026-11-28T12:30:00Z -->\n"+
		"- three <!-- stint id=c status=ontic_unknowable confidence=0.50 risk=low tries=3 -->\n"+
		"- four <!-- stint id=d status=active confidence=1.00 risk=low"+past+
		"- five <!-- stint id=e status=active confidence=1.00 risk=low"+past+
		"- six <!-- stint id=f status=active confidence=0.10 risk=low"+past+
		"- seven <!-- stint id=g status=new"+past+
		"- eight <!-- stint id=h status=ontic_unknowable confidence=0.50 risk=high next=2026-11-28T11:00:00Z tries=2 -->\n")
	b.uses["d"] = memory.Use{Count: 2, Last: start.AddDate(0, 0, -29)}
	b.uses["i"] = b.uses["d"]
	b.uses["e"] = memory.Use{Count: 1, Last: start.AddDate(0, 0, -31)}
	b.write(archive, "- nine <!-- stint id=i status=archived confidence=0.50 risk=low"+past)
	b.pass()
	b.wantJobs("#d revalidate queued 0", "#e decay succeeded 0", "#f archive succeeded 0", "#h decay queued 0", "#i reinstate-check queued 0")
	if got := b.read(memory.DefaultLessons); !strings.HasPrefix(got, "- one <!-- stint id=n2 status=active confidence=1.00 risk=low next=2026-12-28T12:00:05Z -->\n- two <!--") ||
		!strings.Contains(got, "- five <!-- stint id=e status=active confidence=0.90 risk=low next=2026-12-28T12:00:05Z job=job2 -->") || strings.Contains(got, "six") {
		t.Error(got)
	}
	if a := b.acks; len(a) != 2 || a[0].Evidence != "1 prompts had it, the last one at 2026-10-28T12:00:00Z" || a[1].Evidence != "no prompt had it" {
		t.Errorf("%+v", a)
	}
	b.answer(state.Done, `{"verdict":"revised","text":"4 and\nmore","evidence":"x"}`)
	b.pass()
	if got := b.read(memory.DefaultLessons); !strings.Contains(got, "- 4 and <!-- stint id=d status=active ") || !strings.Contains(got, " -->\n  more\n- five") {
		t.Error(got)
	}
}

// The same time written again is another job.
func TestDueAgain(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, "uncertain", "active", 1))
	for range 2 {
		b.pass()
		text := b.read(memory.DefaultLessons)
		b.write(memory.DefaultLessons, strings.Replace(text, " next=2026-12-28", " next=2020-12-28", 1))
		b.now = b.now.Truncate(time.Minute) // so that both times are the same
	}
	b.pass()
	b.wantJobs("#a decay succeeded 0", "#a decay succeeded 0", "#a decay succeeded 0")
	b.write(memory.DefaultLessons, "")
	if _, _, err := b.Enqueue(t.Context(), jobs.Spec{ObjectType: "memory", ObjectID: b.file.ObjectID("a"), Action: "archive", RunAt: b.now}); err != nil {
		t.Fatal(err)
	}
	b.pass()
	b.wantJobs("#a decay succeeded 0", "#a decay succeeded 0", "#a decay succeeded 0", "#a archive succeeded 0")
}

// Where no agent is installed, nobody is asked, and no attempt is spent.
func TestNoAgent(t *testing.T) {
	b := newBench(t, lessons)
	b.demo = true
	b.pass()
	b.pass()
	if why := b.job("job1").WaitsFor; len(b.specs) > 0 || why != "no agent is installed and logged in: stint doctor" {
		t.Fatalf("%+v: %s", b.specs, why)
	}
	b.demo, b.now = false, b.now.Add(time.Minute)
	b.pass()
	if why := b.job("job1").WaitsFor; len(b.specs) != 1 || why != "" {
		t.Fatalf("%+v: %s", b.specs, why)
	}
}

// Entries of high risk wait until the gate is open; nobody is asked before.
func TestGate(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, "risk=low", "risk=high", 1))
	b.pass()
	b.write(memory.DefaultGate, "state: closed\n")
	b.pass()
	b.wantJobs("#a verify queued 0")
	if why := b.job("job1").WaitsFor; len(b.specs) > 0 || !strings.HasPrefix(why, "the gate is closed for entries of high risk: ") || !strings.HasSuffix(why, "/gate.md needs the line state: open, and no other state") {
		t.Fatalf("%+v: %s", b.specs, why)
	}
	changed := b.job("job1").UpdatedAt
	b.pass()
	if b.job("job1").UpdatedAt != changed {
		t.Error("the same is noted again")
	}
	b.write(memory.DefaultGate, "state: open\n")
	b.pass()
	if why := b.job("job1").WaitsFor; why != "" {
		t.Error(why)
	}
	b.write(memory.DefaultGate, "state: closed\n") // while the agent works
	b.answer(state.Done, `{"verdict":"holds"}`)
	b.pass()
	b.wantJobs("#a verify queued 0")
	b.write(memory.DefaultGate, "state: open\n")
	b.pass()
	b.wantJobs("#a verify succeeded 0")
}

// No more than the budget of entries that are uncertain are verified in a day, also after a restart.
func TestBudget(t *testing.T) {
	var notes strings.Builder
	for i := range 5 {
		fmt.Fprintf(&notes, "- note %d <!-- stint id=u%d status=uncertain confidence=0.50 risk=low%s", i, i, past)
	}
	b := newBench(t, notes.String())
	b.Budget = 2
	for range 3 {
		b.pass()
		b.answer(state.Done, `{"verdict":"holds"}`)
	}
	midnight := start.Add(12 * time.Hour)
	b.wantJobs("#u0 verify succeeded 0", "#u1 verify succeeded 0", "#u2 verify queued 0", "#u3 verify queued 0")
	for _, j := range b.list[2:] {
		if !j.RunAt.Equal(midnight) || j.WaitsFor != "auto_verify_budget: 2 verify jobs per day (UTC) and workspace are used up" {
			t.Errorf("%+v", j)
		}
	}
	b.now = midnight
	b.pass()
	b.pass()
	b.wantJobs("#u0 verify succeeded 0", "#u1 verify succeeded 0", "#u2 verify queued 0", "#u3 verify queued 0", "#u4 verify queued 0")
	if j := b.list[4]; len(b.specs) != 4 || b.list[3].WaitsFor != "" || !j.RunAt.Equal(midnight.AddDate(0, 0, 1)) {
		t.Errorf("%d tasks, %+v", len(b.specs), j)
	}
	b.now = start.Add(-48 * time.Hour) // the clock was wrong, and is put right
	b.write(memory.DefaultLessons, strings.ReplaceAll(notes.String(), "2026-11-28", "2026-11-20"))
	b.pass()
	if len(b.list) != 5+2+2 { // of that day, and of the next one
		t.Errorf("%d jobs by a clock that was put right", len(b.list))
	}
}

// However often a file says that an entry is due, an agent is asked once a day whether it holds.
func TestRevalidatesOnceADay(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, "uncertain", "active", 1))
	b.auto = `{"verdict":"holds"}`
	for range 5 {
		b.uses["a"] = memory.Use{Count: 1, Last: b.now}
		b.pass()
		b.pass()
		b.write(memory.DefaultLessons, strings.Replace(b.read(memory.DefaultLessons), " next=2026-12-28", " next=2020-12-28", 1))
		b.now = b.now.Add(2 * time.Hour)
	}
	if len(b.list) != 1 || len(b.specs) != 1 {
		t.Errorf("%d jobs, %d tasks", len(b.list), len(b.specs))
	}
	b.now = b.now.Add(12 * time.Hour)
	b.pass()
	if len(b.list) != 2 {
		t.Errorf("%d jobs on the next day", len(b.list))
	}
}

// At most 10 agents are asked at the same time, and only as many jobs are pulled at once.
func TestTenAtOnce(t *testing.T) {
	var notes strings.Builder
	for i := range 25 {
		fmt.Fprintf(&notes, "- note %d <!-- stint id=u%d status=archived confidence=0.50 risk=low%s", i, i, past)
	}
	b := newBench(t, notes.String())
	b.Budget = 25
	for i := range 25 {
		b.uses[fmt.Sprint("u", i)] = memory.Use{Count: 1, Last: start}
	}
	for i, want := range []int{10, 10, 20, 20, 25} {
		if b.pass(); len(b.specs) != want {
			t.Fatalf("after pass %d %d were asked, want %d", i+1, len(b.specs), want)
		}
		if i%2 == 1 {
			b.answer(state.Done, `{"verdict":"fails"}`)
		}
	}
}

// An attempt whose task has failed, or has answered nothing of use, fails, and the next one asks anew; a dead
// letter that is tried again, too.
func TestAsksAnew(t *testing.T) {
	b := newBench(t, lessons)
	for i, a := range []struct {
		status state.Status
		text   string
		want   string
	}{{state.Failed, "", "is failed"}, {state.Done, "I cannot", `answered no JSON of the schema: "I cannot"`}, {state.Done, `{"verdict":"revised","text":" "}`, "no JSON"}} {
		b.pass()
		b.pass()
		b.answer(a.status, a.text)
		b.pass()
		if j := b.job("job1"); j.Attempt != i+1 || j.LastError == nil || !strings.Contains(*j.LastError, a.want) || len(b.specs) != i+1 {
			t.Fatalf("%d tasks, %+v: %s", len(b.specs), *j, *cmp.Or(j.LastError, new(string)))
		}
		b.pass()
		b.now = b.now.Add(5 * time.Minute)
	}
	b.pass()
	b.wantJobs("#a verify dead_letter 3")
	b.wantFile(memory.DefaultLessons, lessons)
	j := b.job("job1")
	j.Status, j.Attempt, j.RunAt, j.UpdatedAt = jobs.Queued, 0, b.now, b.now
	b.pass()
	b.answer(state.Done, `{"verdict":"holds"}`)
	b.pass()
	b.wantJobs("#a verify succeeded 0")
	if len(b.specs) != 4 {
		t.Errorf("%d tasks", len(b.specs))
	}
}

// An agent that cannot be told of a schema, as gemini, says more than the object, or says it in its own way.
func TestReadsVerdicts(t *testing.T) {
	const schema = `{"type":"object","properties":{"verdict":{"type":"string"}}}`
	for _, c := range [][2]string{
		{`{"verdict":"holds","text":"","evidence":"a"}`, "holds||a"},
		{"I looked at `{}`.\n\n```json\n{\n  \"verdict\": \"fails\",\n  \"evidence\": \"a {b} c\"\n}\n```\n\nThat is all {so far}.", "fails||a {b} c"},
		{"First {\"verdict\":\"holds\"}, but no: {\"evidence\":\"{\\\"verdict\\\":\\\"holds\\\"}\",\"verdict\":\"unknowable\"} by " + schema, `unknowable||{"verdict":"holds"}`},
		{`{"verdict":"revised","text":"one\n- two","evidence":""}`, "revised|one\n- two|"},
		{"{\"answer\":{\"verdict\":\"holds\",\"evidence\":\"a\"}}", "holds||a"},
		{"```\n{\"verdict\":\"Holds\"}\n```", "holds||"},
		{schema, ""},
		{"It holds.", ""},
	} {
		text, want := c[0], c[1]
		p := &plan{}
		err := p.read(&state.Task{ID: "t1", Status: state.Done, Result: text})
		if got := fmt.Sprintf("%s|%s|%s", p.change.Verdict, p.change.Text, strings.TrimSpace(strings.TrimSuffix(p.evidence, "(task t1)"))); got != want && err == nil || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// A crash at any point asks nobody twice and changes nothing twice.
func TestCrash(t *testing.T) {
	for _, answer := range []string{`{"verdict":"fails"}`, `{"verdict":"revised","text":"Deploys need the key."}`} {
		b := newBench(t, lessons)
		b.pass()
		b.answer(state.Done, answer)
		// The job was pulled, and no more.
		j := b.job("job1")
		b.back(j, b.now)
		b.lost = true
		b.pass() // it was applied, and that was not noted
		after := b.read(memory.DefaultLessons) + b.read(archive)
		if j.Status != jobs.Running || b.lost || !strings.Contains(after, "job=job1 ") {
			t.Fatalf("%+v\n%s", *j, after)
		}
		b.pass()
		b.back(j, b.now)
		b.pass()
		b.wantJobs("#a verify succeeded 2")
		if again := b.read(memory.DefaultLessons) + b.read(archive); again != after || len(b.specs) != 1 {
			t.Errorf("%d tasks, %s", len(b.specs), again)
		}
	}
}

// An end that is noted only once the entry is due again is noted, and its care goes on.
func TestCrashForLong(t *testing.T) {
	b := newBench(t, lessons)
	b.lost, b.auto = true, `{"verdict":"holds"}`
	b.pass()
	b.pass()
	b.now = b.now.AddDate(0, 0, 40)
	b.back(b.job("job1"), b.now)
	b.pass()
	b.wantJobs("#a verify succeeded 1")
	b.pass()
	b.wantJobs("#a verify succeeded 1", "#a decay succeeded 0")
}

// A verdict on a text that somebody has changed meanwhile is of no use, and a deleted entry has none.
func TestChangedMeanwhile(t *testing.T) {
	b := newBench(t, lessons)
	b.pass()
	b.write(memory.DefaultLessons, strings.Replace(lessons, "vault", "key", 1))
	b.answer(state.Done, `{"verdict":"fails"}`)
	b.pass()
	b.wantJobs("#a verify queued 0")
	if len(b.specs) != 2 || !strings.Contains(b.specs[1].Prompt, "need the key") {
		t.Fatalf("%+v", b.specs)
	}
	b.write(memory.DefaultLessons, "# Lessons\n")
	b.pass()
	b.wantJobs("#a verify succeeded 0")
	if a := b.acks[0]; a.Evidence != care.ErrGone.Error() {
		t.Errorf("%+v", a)
	}
}

// TestBeingSaved: what an editor is writing is left alone until that is done.
func TestBeingSaved(t *testing.T) {
	b := newBench(t, "- A note.\n- Half of ")
	saved := b.now.Add(4 * time.Second)
	if err := os.Chtimes(filepath.Join(b.dir, memory.DefaultLessons), saved, saved); err != nil {
		t.Fatal(err)
	}
	b.pass()
	b.wantFile(memory.DefaultLessons, "- A note.\n- Half of ")
	b.pass()
	if text := b.read(memory.DefaultLessons); !strings.HasPrefix(text, "- A note. <!-- stint id=n3 ") {
		t.Error(text)
	}
}

// A file that was put back, as git does, is looked after again, once a day.
func TestPutBack(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, "uncertain", "active", 1))
	before := b.read(memory.DefaultLessons)
	for range 3 {
		b.pass()
		b.write(memory.DefaultLessons, before)
	}
	b.wantJobs("#a decay succeeded 0", "#a decay succeeded 0")
	b.now = b.now.AddDate(0, 0, 1)
	b.pass()
	b.wantJobs("#a decay succeeded 0", "#a decay succeeded 0", "#a decay succeeded 0")
	b.archived, b.list = b.list, nil
	for range 3 {
		b.now = b.now.AddDate(0, 0, 1)
		b.write(memory.DefaultLessons, before)
		b.pass()
	}
	b.wantJobs("#a decay succeeded 0", "#a decay succeeded 0", "#a decay succeeded 0")
}

// A job that a person has ended, as by deleting its section, is not made again before the next day.
func TestAfterEndByHand(t *testing.T) {
	b := newBench(t, lessons)
	b.pass()
	j := b.job("job1")
	j.Status, j.UpdatedAt = jobs.Failed, b.now
	b.pass()
	b.wantJobs("#a verify failed 0")
	b.now = b.now.AddDate(0, 0, 1)
	b.pass()
	b.wantJobs("#a verify failed 0", "#a verify queued 0")
}

// A dead letter does not end the care of its entry: there is another job the next day, and one a day.
func TestAfterDeadLetter(t *testing.T) {
	b := newBench(t, lessons)
	b.refuse = &task.Error{Code: task.CodeInvalid, Message: "there is no agent"}
	for range 40 {
		b.pass()
		b.now = b.now.Add(5 * time.Minute)
	}
	b.wantJobs("#a verify dead_letter 3")
	for range 2 {
		b.now = b.now.AddDate(0, 0, 1).Truncate(24 * time.Hour)
		for range 10 {
			b.pass()
			b.now = b.now.Add(5 * time.Minute)
		}
	}
	b.wantJobs("#a verify dead_letter 3", "#a verify dead_letter 3", "#a verify dead_letter 3")
	b.now, b.refuse, b.auto = b.now.AddDate(0, 0, 1), nil, `{"verdict":"holds"}`
	b.pass()
	b.pass()
	b.wantJobs("#a verify dead_letter 3", "#a verify dead_letter 3", "#a verify dead_letter 3", "#a verify succeeded 0")
}

// While a task is at work in the checkout nothing is written; agents are asked.
func TestTaskAtWork(t *testing.T) {
	b := newBench(t, lessons+"- new\n"+strings.Replace(lessons[10:], "id=a status=uncertain", "id=b status=active", 1))
	before := b.read(memory.DefaultLessons)
	b.busy, b.auto = true, `{"verdict":"holds"}`
	for range 3 {
		b.pass()
	}
	b.wantFile(memory.DefaultLessons, before)
	b.wantJobs("#a verify queued 0", "#b decay queued 0")
	b.busy = false
	b.pass()
	b.wantJobs("#a verify succeeded 0", "#b decay succeeded 0")
	if text := b.read(memory.DefaultLessons); len(b.specs) != 1 || !strings.Contains(text, "- new <!-- stint id=n") {
		t.Errorf("%d were asked\n%s", len(b.specs), text)
	}
}

// While an attempt is to be tried again, no other job is queued for the entry.
func TestOneJobAtATime(t *testing.T) {
	b := newBench(t, lessons)
	b.pass()
	b.answer(state.Failed, "")
	b.pass()
	b.write(memory.DefaultLessons, strings.Replace(lessons, "11:00", "10:00", 1))
	b.pass()
	b.wantJobs("#a verify queued 1")
}

// A verdict counts for a day, and only until another job has changed the entry.
func TestStaleVerdict(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, "risk=low", "risk=high", 1))
	b.write(memory.DefaultGate, "state: open\n")
	b.pass()
	b.write(memory.DefaultGate, "state: closed\n")
	b.answer(state.Done, `{"verdict":"fails"}`)
	b.now = b.now.AddDate(0, 0, 2)
	b.pass()
	b.write(memory.DefaultGate, "state: open\n")
	b.pass()
	b.wantJobs("#a verify queued 0")
	b.write(memory.DefaultLessons, strings.Replace(b.read(memory.DefaultLessons), " -->", " job=other -->", 1))
	b.answer(state.Done, `{"verdict":"fails"}`)
	b.pass()
	b.wantJobs("#a verify queued 0")
	if len(b.specs) != 3 {
		t.Errorf("%d were asked", len(b.specs))
	}
}

// Jobs about other objects, and those that a person queues for an entry.
func TestOtherJobs(t *testing.T) {
	b := newBench(t, strings.Replace(lessons, past, " next=2027-01-01T00:00:00Z -->\n", 1))
	for _, object := range []string{"cg_123", b.dir + ":MEMORY.md#a", b.file.ObjectID("a"), b.file.ObjectID("a")} {
		spec := jobs.Spec{ObjectType: "memory", ObjectID: object, Action: "archive", RunAt: b.now, IdempotencyKey: fmt.Sprint(len(b.list))}
		if _, _, err := b.Enqueue(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	b.leaving = true
	b.pass()
	if b.job("job3").Status != jobs.Queued {
		t.Error("a master that leaves does something")
	}
	b.leaving = false
	b.pass()
	for i, want := range []string{jobs.Queued, jobs.Queued, jobs.Succeeded, jobs.Queued} {
		if j := b.list[i]; j.Status != want || (i == 3) != (j.LastError != nil) {
			t.Errorf("%+v", j)
		}
	}
}

// A refusal that passes keeps the job waiting; another one fails the attempt.
func TestRefused(t *testing.T) {
	b := newBench(t, lessons)
	for _, b.refuse = range []error{&task.Error{Code: task.CodeFull, Message: "full"}, errors.New("broken")} {
		b.pass()
		b.wantJobs("#a verify queued 0")
	}
	b.refuse = &task.Error{Code: task.CodeInvalid, Message: "there is no agent"}
	b.pass()
	b.wantJobs("#a verify queued 1")
	if why := *b.job("job1").LastError; why != "no agent could be asked: there is no agent" {
		t.Error(why)
	}
}

// Run looks at once and every five seconds, and ends with its context.
func TestRun(t *testing.T) {
	b := newBench(t, lessons)
	b.auto = `{"verdict":"holds"}`
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Worker.Run(ctx); close(done) }()
		synctest.Wait()
		b.wantJobs("#a verify queued 0")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.wantJobs("#a verify succeeded 0")
		cancel()
		<-done
	})
}
