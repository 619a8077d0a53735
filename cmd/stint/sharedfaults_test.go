package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/fold"
)

// Settings of the workers, and how many tasks may run at once with each account.
const (
	shopWorkers = 4
	shopTTL     = 6 * time.Second
	shopSettled = 90 * time.Second // that it may take from the last fault until all tasks have ended
)

var shopPermits = map[string]int{"codex": 4, "codex-b": 3}

// shopAgent is the agent of a shop: a codex that keeps a lock of its job, and one of its account's permits, for as long as it
// lives. The kernel takes them back when it has ended, however it did: so whoever cannot have them overlaps with somebody. It
// notes that, when it begins and when it ends.
const shopAgent = `#!/usr/bin/perl
use strict;
use Fcntl ':flock';
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);
$| = 1;
if (!grep { $_ eq 'exec' } @ARGV) { print "codex-cli 0.169.0\n"; exit 0 }
my ($dir, $account, $most) = @ENV{qw(FARM FARM_ACCOUNT FARM_PERMITS)};
my $prompt = do { local $/; <STDIN> };
my ($job, $ms, $deaf) = $prompt =~ /job (\d+) for (\d+) ms( deaf)?/ or exit 9;
$SIG{TERM} = 'IGNORE' if $deaf;
open(my $log, '>>', "$dir/log") or exit 9;
sub note { syswrite($log, sprintf("%.6f %s %d %d %s %s %s\n", clock_gettime(CLOCK_MONOTONIC), $_[0], $$, $job, @ENV{qw(STINT_RUN_ID STINT_TASK_ID)}, $account)) }
sub try_lock { open(my $f, '>>', "$dir/$_[0]") or exit 9; return flock($f, LOCK_EX | LOCK_NB) ? $f : undef }
my $mine = try_lock("job-$job") or note('overlaps');
my $permit;
for my $n (1 .. $most) { last if $permit = try_lock("permit-$account-$n") }
note('exceeds') if !$permit;
note('begins');
print qq({"type":"thread.started","thread_id":"$ENV{STINT_RUN_ID}"}\n{"type":"turn.started"}\n);
my $end = clock_gettime(CLOCK_MONOTONIC) + $ms / 1000;
while ((my $left = $end - clock_gettime(CLOCK_MONOTONIC)) > 0) { sleep($left) }
note('ends');
print qq({"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"job $job by $ENV{STINT_RUN_ID}"}}\n);
print qq({"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}\n);
`

// A shop is a shared queue with workers on state directories of their own, each behind a cable to the database.
type shop struct {
	t       testing.TB
	dir     string // what the agents write to
	own     *cable // of those who are no workers
	workers []*shopWorker
	count   map[string]*atomic.Int64 // of faults, by kind
	jobs    []string                 // ids of the tasks, by job
}

// A shopWorker is one of the workers of a shop.
type shopWorker struct {
	*world
	cable *cable
	life  *life
	rand  *rand.Rand
}

// newShop returns a shop whose workers have not begun.
func newShop(t testing.TB, server *postgrestest.Server, database string, seed uint64) *shop {
	t.Helper()
	needProgram(t, "perl")
	f := &shop{t: t, dir: t.TempDir(), own: newCable(t, server), count: map[string]*atomic.Int64{}}
	for _, kind := range []string{"kill", "stop", "reset", "hang", "drain", "crash", "failover"} {
		f.count[kind] = &atomic.Int64{}
	}
	agent := put(t, filepath.Join(f.dir, "codex"), shopAgent)
	must(t, os.Chmod(agent, 0o700))
	var accounts strings.Builder
	for id, most := range shopPermits {
		fmt.Fprintf(&accounts, "[account.%s]\ntool = \"codex\"\nmax = 8\nenv = {FARM = %q, FARM_ACCOUNT = %q, FARM_PERMITS = \"%d\"}\n", id, f.dir, id, most)
	}
	for i := range shopWorkers {
		cable := newCable(t, server)
		w := newWorld(t, seed+uint64(i), "XDG_DATA_HOME="+t.TempDir(), "STINT_CODEX_BIN="+agent,
			"STINT_POSTGRES_URL="+cable.url(database), fmt.Sprint("STINT_POSTGRES_HOST=shop-", i))
		w.write("state/accounts.toml", accounts.String())
		f.workers = append(f.workers, &shopWorker{world: w, cable: cable, rand: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	f.do(func(q *shared.Queue) error {
		for id, most := range shopPermits {
			if err := q.AddAccount(t.Context(), shared.Account{ID: id, Tool: "codex", Max: most, Enabled: true}); err != nil {
				return err
			}
		}
		return nil
	}, database)
	return f
}

// do does something with the queue, which must succeed.
func (f *shop) do(do func(q *shared.Queue) error, database string) {
	f.t.Helper()
	opener := shared.NewOpener(func() (string, error) { return f.own.url(database), nil }, 1)
	defer opener.Close()
	must(f.t, opener.Do(f.t.Context(), do))
}

// begin starts the worker, again and again while the database cannot be reached, as a service manager would.
func (w *shopWorker) begin(ttl time.Duration) {
	w.t.Helper()
	for {
		w.life = w.launch([]string{
			w.self, "worker", "start", "--lease-ttl", ttl.String(), "--renew", (ttl / 6).String(), "--grace", "1s", "--poll-interval", "500ms", "--processes", "4", "--max-workers", "4",
		})
		if w.ready(w.life) {
			return
		}
		_ = task.Sleep(w.t.Context(), 300*time.Millisecond)
	}
}

// A cable carries connections to a server, until it is cut or hangs.
type cable struct {
	listener *net.TCPListener
	all      sync.WaitGroup

	mu    sync.Mutex
	moved sync.Cond // hangs has changed
	to    string    // the server's socket
	isCut bool
	hangs bool
	open  map[net.Conn]bool
}

func newCable(t testing.TB, to *postgrestest.Server) *cable {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	c := &cable{listener: listener, open: map[net.Conn]bool{}}
	c.moved.L = &c.mu
	c.plug(to)
	c.all.Go(c.serve)
	t.Cleanup(func() {
		_ = listener.Close() // nobody else has it
		c.set(true, false)
		c.all.Wait()
	})
	return c
}

func (c *cable) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&connect_timeout=3", c.listener.Addr(), database)
}

// plug leads it to another server. What is open is reset.
func (c *cable) plug(to *postgrestest.Server) {
	c.mu.Lock()
	c.to = filepath.Join(to.Dir, ".s.PGSQL.5432")
	c.reset()
	c.mu.Unlock()
}

// set cuts it, lets it hang, or repairs it.
func (c *cable) set(isCut, hangs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut, c.hangs = isCut, hangs
	if isCut {
		c.reset()
	}
	c.moved.Broadcast()
}

func (c *cable) reset() {
	for conn := range c.open {
		_ = conn.Close() // the other end finds out
	}
}

func (c *cable) serve() {
	for {
		client, err := c.listener.AcceptTCP()
		if err != nil {
			return
		}
		_ = client.SetLinger(0) // so a close is a reset
		c.mu.Lock()
		server, err := net.Dial("unix", c.to)
		if err == nil && !c.isCut {
			c.open[client], c.open[server] = true, true
			c.all.Go(func() { c.carry(client, server) })
			c.all.Go(func() { c.carry(server, client) })
		} else {
			_ = client.Close() // that is what it is to see
			if err == nil {
				_ = server.Close() // it was not used
			}
		}
		c.mu.Unlock()
	}
}

func (c *cable) carry(from, to net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		c.mu.Lock()
		for c.hangs {
			c.moved.Wait()
		}
		c.mu.Unlock()
		if _, writing := to.Write(buffer[:n]); err != nil || writing != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = from.Close(), to.Close() // one of them is closed
	delete(c.open, from)
	delete(c.open, to)
}

// A shopRow is what is expected of a shared task's row.
type shopRow struct {
	id, status, answer, run, host, why string
	attempt, retries, runs, others     int
}

const shopRows = `SELECT id::text, status, coalesce(answer, ''), coalesce(run_id::text, ''), coalesce(worker_host, ''), concat_ws('; ', error_message, note), attempt, retries,
	(SELECT count(*) FROM task_runs r WHERE r.task_id = t.id AND r.id::text = t.run_id), (SELECT count(*) FROM task_runs r WHERE r.task_id = t.id AND r.id::text <> t.run_id AND r.status = 'succeeded') FROM tasks t WHERE host IS NULL`

// shopQuery reads rows through the shop's own cable.
func shopQuery[T any](f *shop, database, sql string, scan pgx.RowToFunc[T]) ([]T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, f.own.url(database))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // only read from
	rows, _ := conn.Query(ctx, sql)        // CollectRows returns the error
	return pgx.CollectRows(rows, scan)
}

// watch counts the leases of each account in the database until ctx ends.
func (f *shop) watch(ctx context.Context, database string) (looks int) {
	type leases struct {
		account string
		n       int
	}
	for ; ctx.Err() == nil; _ = task.Sleep(ctx, 200*time.Millisecond) {
		list, err := shopQuery(f, database, "SELECT leased_by, count(*)::int FROM tasks WHERE host IS NULL AND status IN ('leased', 'running') GROUP BY 1", func(row pgx.CollectableRow) (l leases, err error) {
			return l, row.Scan(&l.account, &l.n)
		})
		if err == nil {
			looks++
		}
		for _, l := range list {
			if l.n > shopPermits[l.account] {
				f.t.Errorf("%d tasks are leased for %s, which has %d permits", l.n, l.account, shopPermits[l.account])
			}
		}
	}
	return looks
}

// add queues jobs, again and again until that is certain: a task with a known id is not queued twice.
func (f *shop) add(opener *shared.Opener, prompts ...string) {
	f.t.Helper()
	specs := make([]task.TaskSpec, len(prompts))
	for i, prompt := range prompts {
		specs[i] = task.TaskSpec{ID: uuid.Must(uuid.NewV7()).String(), Agent: "codex", Prompt: fmt.Sprintf("job %d %s", len(f.jobs), prompt), MaxAttempts: 50}
		if len(f.jobs)%5 == 0 {
			specs[i].Account = "codex-b"
		}
		f.jobs = append(f.jobs, specs[i].ID)
	}
	var err error
	if !poll(shopSettled, func() bool {
		ctx, cancel := context.WithTimeout(f.t.Context(), 3*time.Second)
		defer cancel()
		err = opener.Do(ctx, func(q *shared.Queue) error { _, err := q.Enqueue(ctx, specs); return err })
		return err == nil
	}) {
		f.t.Errorf("nothing can be queued: %v", err)
	}
}

// settled waits until all jobs have ended, and returns their rows.
func (f *shop) settled(database string, limit time.Duration) []shopRow {
	f.t.Helper()
	const open = " WHERE host IS NULL AND status IN ('queued', 'leased', 'running')"
	for deadline := time.Now().Add(limit); ; _ = task.Sleep(f.t.Context(), 200*time.Millisecond) {
		left, err := shopQuery(f, database, "SELECT id::text || ' ' || status || ' ' || coalesce(worker_host, '') || ' ' || attempt FROM tasks"+open+" LIMIT 5", pgx.RowTo[string])
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for i, w := range f.workers {
				f.t.Logf("worker %d says:\n%s", i, w.life.said())
			}
			f.t.Fatalf("not all tasks have ended after %v: %v, %q", limit, err, left)
		}
	}
	rows, err := shopQuery(f, database, shopRows, func(row pgx.CollectableRow) (r shopRow, err error) {
		return r, row.Scan(&r.id, &r.status, &r.answer, &r.run, &r.host, &r.why, &r.attempt, &r.retries, &r.runs, &r.others)
	})
	must(f.t, err)
	return rows
}

// A shopNote is a line of an agent.
type shopNote struct {
	at                 float64
	event              string
	pid, job           int
	run, twin, account string
}

func (f *shop) notes() (notes []shopNote) {
	f.t.Helper()
	for line := range strings.Lines(string(get(f.t, filepath.Join(f.dir, "log")))) {
		var n shopNote
		_, err := fmt.Sscan(line, &n.at, &n.event, &n.pid, &n.job, &n.run, &n.twin, &n.account)
		must(f.t, err)
		notes = append(notes, n)
	}
	return notes
}

// end lets the workers drain, and checks what is left of them. It returns their ledgers.
func (f *shop) end() (ledgers []*fold.State) {
	f.t.Helper()
	for i, w := range f.workers {
		s := w.script()
		var live []byte
		if !poll(scriptDeadline, func() (settled bool) { live, settled = s.liveState(); return settled }) {
			f.t.Errorf("worker %d has twins that have not ended", i)
		}
		w.world.end(w.life, syscall.SIGTERM)
		if !w.life.cmd.ProcessState.Success() {
			f.t.Errorf("worker %d ended with %v:\n%s", i, w.life.cmd.ProcessState, w.life.said())
		}
		check(f.t, fsckIsClean(w.state))
		s.compareWithRefold(live)
		check(f.t, s.noAgents(scriptDeadline))
		if left := w.survivors(); len(left) > 0 {
			f.t.Errorf("these processes are left: %v", left)
		}
		st, err := queue.FoldDir(context.Background(), w.state)
		must(f.t, err)
		ledgers = append(ledgers, st)
	}
	return ledgers
}

// audit ends the workers and expects of each job: it is one row, with the result of its newest lease and of no other, which an
// agent gave that came to its end; and of the agents, that no two had one job or one permit at the same time.
func (f *shop) audit(rows []shopRow) (notes []shopNote) {
	f.t.Helper()
	ledgers := f.end()
	notes = f.notes()
	ended := map[string]int{}          // jobs, by run
	tried := map[int]map[string]bool{} // twins whose agent has begun, by job
	for _, n := range notes {
		switch n.event {
		case "overlaps", "exceeds":
			f.t.Errorf("an agent of job %d (%s) %s another one: %+v", n.job, f.jobs[n.job], n.event, n)
		case "ends":
			ended[n.run] = n.job
		case "begins":
			if tried[n.job] == nil {
				tried[n.job] = map[string]bool{}
			}
			tried[n.job][n.twin] = true
		}
	}
	if len(rows) != len(f.jobs) {
		f.t.Errorf("there are %d rows of %d jobs", len(rows), len(f.jobs))
	}
	var faulty []string
	for _, r := range rows {
		job := slices.Index(f.jobs, r.id)
		wrong := ""
		var twin state.Task
		var err error
		for i, st := range ledgers {
			if id, ok := st.ByIdempotencyKey(fmt.Sprintf("shared:%s:%d", r.id, r.attempt)); ok {
				if twin.ID != "" || r.host != fmt.Sprint("shop-", i) {
					wrong += fmt.Sprintf(", worker %d has a twin of its newest lease", i)
				}
				twin, _, err = st.Task(id)
				must(f.t, err)
			}
		}
		at, hasEnded := ended[twin.RunID]
		switch {
		case r.status != "succeeded":
			wrong += ", it should have succeeded"
		case twin.Status != state.Done || twin.RunID != r.run:
			wrong += fmt.Sprintf(", its twin is %s with the run %s", twin.Status, twin.RunID)
		case r.answer != fmt.Sprintf("job %d by %s", job, r.run) || !hasEnded || at != job:
			wrong += ", which is not what its agent said"
		case r.runs != 1 || r.others > 0: // those of leases that were given back have failed
			wrong += ", its run is not there, or another lease has a result, too"
		case r.attempt-r.retries < len(tried[job]):
			wrong += fmt.Sprintf(", its agent has begun under %d leases", len(tried[job]))
		}
		if wrong != "" {
			faulty = append(faulty, fmt.Sprintf("job %d: %+v%s", job, r, wrong))
		}
	}
	if len(faulty) > 0 {
		f.t.Errorf("%d jobs did not end as they should:\n%s", len(faulty), strings.Join(faulty[:min(10, len(faulty))], "\n"))
	}
	return notes
}

// TestSharedOnce: four workers run all jobs of a queue, each once, and no more at the same time than their accounts allow.
// STINT_TEST_SHARED_TASKS sets their number.
func TestSharedOnce(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	database := server.NewDatabase(t)
	f := newShop(t, server, database, 1)
	opener := shared.NewOpener(func() (string, error) { return f.own.url(database), nil }, 1)
	defer opener.Close()
	n := envInt(t, "STINT_TEST_SHARED_TASKS", 200)
	prompts := slices.Repeat([]string{"for 0 ms"}, n)
	for batch := range slices.Chunk(prompts, 500) {
		f.add(opener, batch...)
	}
	begun := time.Now()
	f.together(func(w *shopWorker) { w.begin(time.Minute) })
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	looks := 0
	watching.Go(func() { looks = f.watch(ctx, database) })
	rows := f.settled(database, shopSettled+time.Duration(n)*200*time.Millisecond)
	took := time.Since(begun)
	cancel()
	watching.Wait()
	notes := f.audit(rows)
	counts := map[int]int{}
	for _, note := range notes {
		if note.event == "begins" {
			counts[note.job]++
		}
	}
	for job, id := range f.jobs {
		if counts[job] != 1 {
			t.Errorf("job %d (%s) was run %d times", job, id, counts[job])
		}
	}
	by := map[string]int{}
	for _, r := range rows {
		if by[r.host]++; r.attempt != 1 {
			t.Errorf("it was leased again: %+v", r)
		}
	}
	t.Logf("shared: tasks=%d seconds=%.1f looks=%d workers=%v", n, took.Seconds(), looks, by)
}

func (f *shop) together(do func(w *shopWorker)) {
	var all sync.WaitGroup
	for _, w := range f.workers {
		all.Go(func() { do(w) })
	}
	all.Wait()
}

// TestSharedLostRun: a lease was an attempt if its agent had begun when its worker was killed, though no agent is left of it
// when the worker is back.
func TestSharedLostRun(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	database := server.NewDatabase(t)
	f := newShop(t, server, database, 1)
	opener := shared.NewOpener(func() (string, error) { return f.own.url(database), nil }, 1)
	defer opener.Close()
	f.workers = f.workers[:1]
	w, log := f.workers[0], filepath.Join(f.dir, "log")
	w.begin(time.Minute)
	f.add(opener, "for 2000 ms")
	if !poll(scriptDeadline, func() bool { text, _ := os.ReadFile(log); return strings.Contains(string(text), "begins") }) {
		t.Fatal("no agent begins")
	}
	w.world.end(w.life, syscall.SIGKILL)
	l := w.serve() // no worker, so it ends the twin
	if !w.settle(t.Context(), l) {
		t.Fatalf("the twin does not end:\n%s", l.said())
	}
	w.world.end(l, syscall.SIGTERM)
	w.begin(time.Minute)
	rows := f.settled(database, shopSettled)
	f.audit(rows)
	if r := rows[0]; r.attempt != 2 || r.retries != 0 {
		t.Errorf("after a lost run: %+v", r)
	}
}

// TestSharedFaults lets things go wrong at random while four workers run jobs: workers are killed, stopped for two leases and
// drained, lose their connections or get no answer any more, the database crashes and fails over to its standby. All jobs end,
// each with the result of its newest lease; no two agents have one job at the same time, and no more work than an
// account allows. STINT_TEST_SHARED_FAULTS sets for how many seconds, STINT_TEST_SEED what is random.
func TestSharedFaults(t *testing.T) {
	t.Parallel()
	notShort(t)
	const database = "shop"
	seconds, seed := envInt(t, "STINT_TEST_SHARED_FAULTS", 20), uint64(envInt(t, "STINT_TEST_SEED", 1))
	pair := newPair(t, database)
	f := newShop(t, pair.primary, database, seed)
	pair.replicate()
	f.together(func(w *shopWorker) { w.begin(shopTTL) })

	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	watched, endWatch := context.WithCancel(t.Context())
	defer endWatch()
	var all, watching sync.WaitGroup
	for i, w := range f.workers {
		all.Go(func() { f.plague(ctx, w, i) })
	}
	all.Go(func() { f.crash(ctx, pair, rand.New(rand.NewPCG(seed, 100))) })
	all.Go(func() { f.produce(ctx, database, rand.New(rand.NewPCG(seed, 101))) })
	looks := 0
	watching.Go(func() { looks = f.watch(watched, database) })
	all.Wait()
	healed := time.Now()
	rows := f.settled(database, shopSettled)
	took := time.Since(healed)
	endWatch()
	watching.Wait()
	notes := f.audit(rows)
	leases, begun, ended := 0, 0, 0 // an agent that ended, and whose result no task has, was stale
	for _, r := range rows {
		leases += r.attempt
	}
	for _, n := range notes {
		switch n.event {
		case "begins":
			begun++
		case "ends":
			ended++
		}
	}
	count := func(kind string) int64 { return f.count[kind].Load() }
	for kind := range f.count {
		if looks == 0 || seconds >= 40 && count(kind) == 0 {
			t.Errorf("the leases were counted %d times; %s: %d", looks, kind, count(kind))
		}
	}
	t.Logf("faults: seconds=%d seed=%d tasks=%d leases=%d begun=%d stale=%d kill=%d stop=%d reset=%d hang=%d drain=%d crash=%d failover=%d settled=%.1fs", seconds, seed, len(rows), leases, begun, ended-len(rows),
		count("kill"), count("stop"), count("reset"), count("hang"), count("drain"), count("crash"), count("failover"), took.Seconds())
}

// produce queues jobs until ctx ends: most are shorter than a lease, some longer, and some agents do not heed SIGTERM.
func (f *shop) produce(ctx context.Context, database string, random *rand.Rand) {
	opener := shared.NewOpener(func() (string, error) { return f.own.url(database), nil }, 1)
	defer opener.Close()
	for ; ctx.Err() == nil; _ = task.Sleep(ctx, time.Duration(random.IntN(1000))*time.Millisecond) {
		var now task.SharedStatus
		asking, cancel := context.WithTimeout(ctx, time.Second)
		err := opener.Do(asking, func(q *shared.Queue) (err error) { now, err = q.Stats(asking); return err })
		if cancel(); err == nil && now.Tasks["queued"] > 4*shopWorkers {
			continue // else there is much to do at the end
		}
		ms := random.IntN(int(shopTTL.Milliseconds()) / 2)
		if random.IntN(8) == 0 {
			ms *= 4
		}
		prompt := fmt.Sprintf("for %d ms", ms)
		if random.IntN(4) == 0 {
			prompt += " deaf"
		}
		f.add(opener, prompt)
	}
}

// plague does one thing after the other to a worker until ctx ends. Then the worker is well.
func (f *shop) plague(ctx context.Context, w *shopWorker, i int) {
	random := func(most time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(most))) }
	kinds := []string{"kill", "stop", "reset", "hang", "drain"}
	for n := i; ; n++ { // so that the workers begin with different ones
		if task.Sleep(ctx, random(4*time.Second)) != nil {
			return
		}
		kind := kinds[n%len(kinds)]
		f.count[kind].Add(1)
		f.t.Logf("worker %d: %s", i, kind)
		switch kind {
		case "kill":
			w.world.end(w.life, syscall.SIGKILL)
			_ = task.Sleep(ctx, random(shopTTL+4*time.Second))
			w.begin(shopTTL)
		case "stop":
			check(f.t, w.life.cmd.Process.Signal(syscall.SIGSTOP))
			pause := 2 * shopTTL
			if w.rand.IntN(2) == 0 { // then others are at work when it reports what has ended meanwhile
				pause = shopTTL + random(shopTTL)
			}
			_ = task.Sleep(f.t.Context(), pause)
			check(f.t, w.life.cmd.Process.Signal(syscall.SIGCONT))
		case "reset", "hang":
			w.cable.set(kind == "reset", kind == "hang")
			_ = task.Sleep(f.t.Context(), random(shopTTL+4*time.Second))
			w.cable.set(false, false)
		case "drain":
			w.world.end(w.life, syscall.SIGTERM)
			w.begin(shopTTL)
		}
	}
}

// crash kills the database now and then; it starts again, or its standby takes its place.
func (f *shop) crash(ctx context.Context, p *pair, random *rand.Rand) {
	for n := 0; ; n++ {
		if task.Sleep(ctx, time.Duration(3000+random.IntN(7000))*time.Millisecond) != nil {
			return
		}
		kind := []string{"crash", "failover"}[n%2]
		f.count[kind].Add(1)
		f.t.Logf("database: %s", kind)
		p.primary.Kill(f.t)
		_ = task.Sleep(f.t.Context(), time.Duration(random.IntN(4000))*time.Millisecond)
		if kind == "crash" {
			p.primary.Restart(f.t)
			continue
		}
		p.promote()
		for _, w := range f.workers {
			w.cable.plug(p.primary)
		}
		f.own.plug(p.primary)
		p.replicate()
	}
}

// A pair is a database with a standby that has all that was committed.
type pair struct {
	t                testing.TB
	primary, standby *postgrestest.Server
}

func newPair(t testing.TB, database string) *pair {
	t.Helper()
	p := &pair{t: t, primary: postgrestest.Start(t, "max_wal_senders=4", "wal_retrieve_retry_interval=200ms", "max_connections=200")}
	p.primary.CreateDatabase(t, database)
	return p
}

// replicate gives the primary a standby, without which nothing is committed from then on.
func (p *pair) replicate() {
	p.t.Helper()
	p.standby = p.primary.Standby(p.t)
	p.exec(p.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	conn, err := pgx.Connect(p.t.Context(), p.primary.URL("postgres"))
	must(p.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(p.t.Context())) }() // only read from
	if !poll(scriptDeadline, func() bool {
		n := 0
		err = conn.QueryRow(p.t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err != nil || n > 0
	}) || err != nil {
		p.t.Fatalf("the standby does not follow: %v", err)
	}
}

// promote makes the standby the primary. There is no standby then.
func (p *pair) promote() {
	p.t.Helper()
	p.exec(p.standby, "SELECT pg_promote()", "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	p.primary, p.standby = p.standby, nil
}

func (p *pair) exec(s *postgrestest.Server, statements ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	for _, sql := range statements {
		if err == nil {
			_, err = conn.Exec(ctx, sql)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	must(p.t, conn.Close(ctx))
}
