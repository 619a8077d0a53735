package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/task"
	"stint/state"
)

// Bounds of what an outage may cost.
const (
	healedWithin = 30 * time.Second // until the mirror has all of the ledger again
	localWithin  = 2 * time.Second  // a call of the master, at any time, on a machine with much to do
	perWorld     = 50               // outages of one ledger
)

// TestPromise10Outages has a database go wrong at random moments, while tasks are
// submitted, run, retried, edited and canceled all the time: local work notices nothing,
// and soon after each outage the mirror is the ledger's again, row by row, and nothing is in
// it twice. STINT_TEST_OUTAGES sets their number, STINT_TEST_SEED what is random.
func TestPromise10Outages(t *testing.T) {
	t.Parallel()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	n, seed := number(t, "STINT_TEST_OUTAGES", 5), number(t, "STINT_TEST_SEED", 1)
	sum := outageFigures{count: map[string]int{}}
	for begun := 0; begun < n; begun += perWorld {
		t.Run(fmt.Sprint("seed ", seed+begun), func(t *testing.T) {
			w := newOutageWorld(t, uint64(seed+begun), &sum)
			for i := range min(perWorld, n-begun) {
				w.outage(i)
			}
			w.finish()
		})
	}
	t.Logf("outages: n=%d kill=%d reset=%d full=%d empty=%d paused=%d failovers=%d restarts=%d compactions=%d calls=%d slowest=%.2fs tasks=%d worst=%.1fs", n,
		sum.count["kill"], sum.count["reset"], sum.count["full"], sum.count["empty"], sum.count["paused"],
		sum.failovers, sum.restarts, sum.compactions, sum.calls, sum.slowest.Seconds(), sum.tasks, sum.worst.Seconds())
}

// number returns a number of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// outageFigures are what the test says at its end.
type outageFigures struct {
	count                            map[string]int // of outages, by kind
	failovers, restarts, compactions int
	calls, tasks                     int
	slowest                          time.Duration // call of the master
	worst                            time.Duration // time from the end of an outage until the mirror was the ledger's
}

// An outageWorld is a world with load, whose mirror writes through a proxy to one of two servers.
type outageWorld struct {
	*world
	rand    *rand.Rand
	sum     *outageFigures
	servers [2]smallDisk
	now     int // which of them
	proxy   *proxy
	m       *Mirror
	leave   func() // ends m
	kinds   []string

	load load
}

const outageDatabase = "audit"

func newOutageWorld(t *testing.T, seed uint64, sum *outageFigures) *outageWorld {
	t.Helper()
	w := &outageWorld{rand: rand.New(rand.NewPCG(seed, 0)), sum: sum}
	for i := range w.servers {
		w.servers[i] = startOnSmallDisk(t, "autovacuum=on")
		w.servers[i].CreateDatabase(t, outageDatabase)
	}
	w.proxy = newProxy(t, w.servers[0].Server)
	w.world = newWorld(t, w.proxy.URL(outageDatabase))
	w.m, w.leave = w.mirror()
	w.load = load{w: w.world, rand: rand.New(rand.NewPCG(seed, 1))}
	w.load.begin()
	t.Cleanup(w.load.end)
	return w
}

// outage lets something go wrong and mends it, and expects what must be so then.
func (w *outageWorld) outage(i int) {
	w.t.Helper()
	if len(w.kinds) == 0 {
		w.kinds = []string{"kill", "reset", "full", "empty", "paused"}
		w.rand.Shuffle(len(w.kinds), func(i, j int) { w.kinds[i], w.kinds[j] = w.kinds[j], w.kinds[i] })
	}
	kind := w.kinds[0]
	w.kinds = w.kinds[1:]
	w.sum.count[kind]++
	w.idle(300)
	what := map[string]func() string{"kill": w.kill, "reset": w.reset, "full": w.full, "empty": w.empty, "paused": w.pauses}[kind]()
	submitted := w.load.count()
	took, r := w.healed()
	w.sum.worst = max(w.sum.worst, took)
	if w.nothingTwice(submitted); w.t.Failed() {
		w.t.Fatalf("outage %d, %s", i, what)
	}
	w.t.Logf("%d %s: whole after %.2f s; %d tasks, %d in flight", i, what, took.Seconds(), r.Tasks, r.InFlight)
}

// idle lets the load go on for a while.
func (w *outageWorld) idle(mostMilliseconds int) {
	_ = task.Sleep(w.t.Context(), time.Duration(w.rand.IntN(mostMilliseconds))*time.Millisecond)
}

// meanwhile is a while in which the ledger goes on without its copy; now and then it is
// compacted, or gets another master.
func (w *outageWorld) meanwhile(mostMilliseconds int) (what string) {
	w.t.Helper()
	w.idle(mostMilliseconds)
	switch w.rand.IntN(5) {
	case 0:
		w.sum.compactions++
		w.compact()
		what = ", a compaction"
	case 1:
		w.sum.restarts++
		w.restart()
		what = ", a restart"
	}
	w.idle(mostMilliseconds)
	return what
}

// restart ends the master and its mirror, and begins the next ones.
func (w *outageWorld) restart() {
	w.t.Helper()
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	w.leave()
	w.stop()
	w.start()
	w.m, w.leave = w.mirror()
}

func (w *outageWorld) server() smallDisk { return w.servers[w.now] }

// kill kills the server.
func (w *outageWorld) kill() string {
	w.server().Kill(w.t)
	what := w.meanwhile(1000)
	w.server().Restart(w.t)
	return "kill" + what
}

// reset breaks connections in the middle of what they do, and around commits.
func (w *outageWorld) reset() string {
	what := "reset"
	for range 3 {
		before := w.proxy.Faults()
		switch w.rand.IntN(4) {
		case 0:
			w.proxy.LoseCommit()
			what += ", commit lost"
		case 1:
			w.proxy.LoseAnswerOfCommit()
			what += ", answer of commit lost"
		default:
			n := 1 + w.rand.Int64N(1<<(4+w.rand.IntN(14)))
			w.proxy.ResetAfter(n)
			what += fmt.Sprintf(", after %d bytes", n)
		}
		until(w.t, what, func() bool { return w.proxy.Faults() > before })
	}
	w.proxy.Heal()
	return what
}

// full leaves no room on the server's disk.
func (w *outageWorld) full() string {
	before := w.m.Status().Failures
	w.load.big.Store(true)
	w.server().fill(w.t)
	until(w.t, "the full disk is noticed", func() bool { return w.m.Status().Failures > before })
	w.load.big.Store(false)
	what := w.meanwhile(1000)
	w.server().empty(w.t)
	return "full" + what
}

// empty fails over to a server that has nothing of the mirror; the rebuild may be broken off.
func (w *outageWorld) empty() (what string) {
	w.sum.failovers++
	w.proxy.Cut()
	if w.rand.IntN(2) == 0 {
		what = w.meanwhile(500)
	}
	w.now = 1 - w.now
	w.server().CreateDatabase(w.t, outageDatabase)
	w.proxy.Heal()
	w.proxy.SwitchTo(w.server().Server)
	if w.rand.IntN(2) == 0 {
		before, n := w.proxy.Faults(), 1+w.rand.Int64N(300_000)
		w.proxy.ResetAfter(n)
		until(w.t, "a reset of the rebuild", func() bool { return w.proxy.Faults() > before })
		what += fmt.Sprintf(", a reset after %d bytes", n)
	}
	w.proxy.Heal()
	return "empty" + what
}

// pauses lets nothing answer for a while, which may be longer than anybody waits, or for
// ever on the connections that there are.
func (w *outageWorld) pauses() string {
	switch w.rand.IntN(4) {
	case 0:
		w.proxy.Lose()
		return "paused, connections are lost" + w.meanwhile(1000)
	case 1:
		w.proxy.Hang()
		defer w.proxy.Heal()
		return "paused, the network" + w.meanwhile(1000)
	case 2:
		w.server().Signal(w.t, "STOP")
		defer w.server().Signal(w.t, "CONT")
		_ = task.Sleep(w.t.Context(), writeTimeout+time.Second)
		return "paused, for long" + w.meanwhile(1000)
	default:
		w.server().Signal(w.t, "STOP")
		defer w.server().Signal(w.t, "CONT")
		return "paused" + w.meanwhile(1000)
	}
}

// healed waits until the mirror is the ledger's of now, or of later.
func (w *outageWorld) healed() (took time.Duration, r Report) {
	w.t.Helper()
	begun, seq := time.Now(), w.c.Seq()
	for r.Seq < seq {
		if took = time.Since(begun); took > healedWithin {
			w.t.Fatalf("the mirror goes to %d, not to %d, after %s: %+v", r.Seq, seq, took, w.m.Status())
		}
		if _ = task.Sleep(w.t.Context(), 10*time.Millisecond); w.m.Status().Seq < seq {
			continue
		}
		var err error
		if r, err = Verify(w.t.Context(), w.o, w.read); err != nil && codeOf(err) != task.CodeConflict { // a rebuild
			w.t.Fatal(err)
		}
	}
	for _, d := range r.Differences[:min(20, len(r.Differences))] {
		w.t.Error(d.Text)
	}
	return time.Since(begun), r
}

func codeOf(err error) task.Code {
	var e *task.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// nothingTwice expects that each task that was submitted is one row with its key, and
// each run and file too, of this copy; and that there are as many as were submitted when
// the mirror was waited for, or a few more by now.
func (w *outageWorld) nothingTwice(submitted int) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server().URL(outageDatabase))
	must(w.t, err)
	defer func() { _ = conn.Close(context.Background()) }() // only read from
	for what, sql := range map[string]string{
		"tasks":                     "SELECT count(*) - count(DISTINCT prompt) FROM tasks",
		"tasks without their key":   "SELECT count(*) - count(DISTINCT idempotency_key) FROM tasks",
		"runs":                      "SELECT count(*) - count(DISTINCT (task_id, number)) FROM task_runs",
		"files":                     "SELECT count(*) - count(DISTINCT (task_id, run_id, is_input, path)) FROM task_files",
		"mirrors":                   "SELECT count(*) - 1 FROM mirrors",
		"rows of older generations": "SELECT count(*) FROM tasks t JOIN mirrors m USING (host) WHERE t.generation <> m.generation",
		"rows of nobody":            "SELECT count(*) FROM tasks WHERE host IS DISTINCT FROM 'laptop'",
	} {
		var n int
		if err := conn.QueryRow(w.t.Context(), sql).Scan(&n); err != nil || n != 0 {
			w.t.Errorf("%s: %d too many, %v", what, n, err)
		}
	}
	var n int
	err = conn.QueryRow(w.t.Context(), "SELECT count(*) FROM tasks").Scan(&n)
	if now := w.load.count(); err != nil || n < submitted || n > now {
		w.t.Errorf("the mirror has %d tasks; %d were submitted, and are %d by now: %v", n, submitted, now, err)
	}
}

// finish ends the load and looks at all of it.
func (w *outageWorld) finish() {
	w.t.Helper()
	w.load.end()
	until(w.t, "nothing runs", func() bool { n := w.c.Health().Counts; return n[state.Running] == 0 })
	all := 0
	for ids := w.c.TaskIDs(0, 1000); len(ids) > 0; ids = w.c.TaskIDs(all, 1000) {
		all += len(ids)
	}
	_, r := w.healed()
	for r.InFlight > 0 { // one that was retried has begun only now
		_, r = w.healed()
	}
	w.nothingTwice(w.load.submitted)
	if r.Tasks != all {
		w.t.Errorf("%d tasks of %d were compared", r.Tasks, all)
	}
	if w.load.submitted == 0 || all != w.load.submitted {
		w.t.Errorf("%d tasks are known, %d were submitted", all, w.load.submitted)
	}
	if said := w.m.Status().Skipped; len(said) > 0 {
		w.t.Errorf("not copied: %q", said)
	}
	w.sum.calls += w.load.calls
	w.sum.slowest = max(w.sum.slowest, w.load.slowest)
	w.sum.tasks += all
}

// A load calls a master all the time. None of its calls may fail or take long.
type load struct {
	w    *world
	rand *rand.Rand
	big  atomic.Bool // prompts are long
	end  func()
	mu   sync.Mutex // held while the master is called

	ids              []string
	submitted, calls int
	slowest          time.Duration
}

// begin calls until end is called.
func (l *load) begin() {
	ctx, cancel := context.WithCancel(l.w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil && !l.w.t.Failed() {
			l.call()
			_ = task.Sleep(ctx, time.Duration(l.rand.IntN(30))*time.Millisecond)
		}
	}()
	l.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
}

// count returns how many tasks have been submitted.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.submitted
}

// call does one thing of those that people do.
func (l *load) call() {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := "submit"
	if len(l.ids) > 10 && l.rand.IntN(2) == 0 {
		kind = []string{"retry", "cancel", "edit", "hold", "release"}[l.rand.IntN(5)]
	}
	begun := time.Now()
	err := l.do(kind)
	took := time.Since(begun)
	l.calls++
	l.slowest = max(l.slowest, took)
	if took > localWithin {
		l.w.t.Errorf("%s took %s", kind, took)
	}
	if err != nil && (kind == "submit" || codeOf(err) != task.CodeConflict) {
		l.w.t.Errorf("%s: %v", kind, err)
	}
}

// do does it. Tasks that were submitted lately are touched more often.
func (l *load) do(kind string) (err error) {
	if kind == "submit" {
		return l.submit()
	}
	ctx, id := context.Background(), l.ids[len(l.ids)-1-l.rand.IntN(min(len(l.ids), 10<<l.rand.IntN(8)))]
	switch c := l.w.c; kind {
	case "retry":
		_, err = c.Retry(ctx, id, "client")
	case "cancel":
		_, err = c.Cancel(ctx, id, "client")
	case "edit":
		fields := fmt.Sprintf(`{"label": "label-%d", "priority": %d}`, l.rand.IntN(100), 1+l.rand.IntN(9))
		_, err = c.Edit(ctx, id, task.Patch{Fields: []byte(fields)}, "client")
	case "hold":
		_, err = c.Hold(ctx, id, "client")
	case "release":
		_, err = c.Release(ctx, id, "client")
	}
	return err
}

// submit submits a task of some kind, with a prompt that no other has; one of ten is submitted a second time.
func (l *load) submit() error {
	spec := task.TaskSpec{
		Prompt:    fmt.Sprintf("%s, %d", []string{"say hello \x01 ☃", "please fail", "take your time", "say hello"}[l.rand.IntN(4)], l.submitted),
		Workspace: l.w.work, Parallel: l.rand.IntN(4) > 0, Hold: l.rand.IntN(8) == 0,
	}
	if l.rand.IntN(3) == 0 {
		spec.OutputSpec = []string{"report.md"}
		spec.InputFiles = []state.InputFile{{Name: "in.txt", Content: "a\x00b"}}
	}
	if l.big.Load() {
		spec.Prompt += l.noise(100_000)
	}
	spec.IdempotencyKey = fmt.Sprint("key-", len(l.ids))
	for range 1 + l.rand.IntN(10)/9 {
		task, err := l.w.c.Submit(context.Background(), spec)
		if err != nil {
			return err
		}
		if len(l.ids) == 0 || l.ids[len(l.ids)-1] != task.ID {
			l.ids = append(l.ids, task.ID)
			l.submitted++
		}
	}
	return nil
}

// noise returns text that cannot be compressed much.
func (l *load) noise(n int) string {
	var text strings.Builder
	for text.Len() < n {
		fmt.Fprintf(&text, " %016x", l.rand.Uint64())
	}
	return text.String()
}
