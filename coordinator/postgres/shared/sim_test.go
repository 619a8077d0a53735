package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// The simulation: a database that follows the rules of [Queue], hosts whose clocks, networks and masters fail, and a look at
// each step of each agent, whether another one works for the same task.

// A model is the shared queue in memory.
type model struct {
	mu    sync.Mutex
	tasks []*row
	max   map[string]int // permits by account

	onFinish func(r *row)
}

type row struct {
	Task
	worker   uuid.UUID
	expires  time.Time
	cancel   bool
	finishes int
	agents   int // that work for it now
}

func (m *model) held(c Claim) *row {
	i, _ := strconv.Atoi(c.ID)
	if r := m.tasks[i]; r.Attempt == c.Attempt && (r.Status == "leased" || r.Status == "running") {
		return r
	}
	return nil
}

func (m *model) live(account string) (n int) {
	for _, r := range m.tasks {
		if r.LeasedBy == account && (r.Status == "leased" || r.Status == "running") {
			n++
		}
	}
	return n
}

func (m *model) Lease(_ context.Context, h Holder, account string, most int, _ Filter) (list []Task, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.max[account] - m.live(account)
	for _, r := range m.tasks {
		if len(list) < min(most, free) && r.Status == "queued" {
			r.Status, r.LeasedBy, r.worker, r.expires = "leased", account, h.Worker, time.Now().Add(h.TTL)
			r.Attempt++
			list = append(list, r.Task)
		}
	}
	return list, nil
}

func (m *model) each(claims []Claim, do func(r *row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		if r := m.held(c); r != nil {
			do(r)
		}
	}
}

func (m *model) Renew(_ context.Context, h Holder, claims []Claim) (kept []Claim, err error) {
	m.each(claims, func(r *row) {
		r.expires = time.Now().Add(h.TTL)
		kept = append(kept, Claim{r.ID, r.Attempt})
	})
	return kept, nil
}

func (m *model) Start(_ context.Context, _ Holder, claims []Claim) error {
	m.each(claims, func(r *row) { r.Status = "running" })
	return nil
}

func (m *model) Finish(_ context.Context, _ Holder, ended []Ended) (done []Claim, err error) {
	for _, e := range ended {
		done = append(done, e.Claim)
		m.each([]Claim{e.Claim}, func(r *row) {
			r.Status, r.finishes = e.Rows.ID, r.finishes+1
			m.onFinish(r)
		})
	}
	return done, nil
}

func (m *model) GiveBack(_ context.Context, _ Holder, e Ended, begun bool, _ string) error {
	m.each([]Claim{e.Claim}, func(r *row) {
		if r.Status = "queued"; !begun {
			r.Retries++
		}
	})
	return nil
}

func (m *model) HeldBy(_ context.Context, h Holder) (map[Claim]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	claims := map[Claim]bool{}
	for _, r := range m.tasks {
		if r.worker == h.Worker && (r.Status == "leased" || r.Status == "running") {
			claims[Claim{r.ID, r.Attempt}] = r.cancel
		}
	}
	return claims, nil
}

func (m *model) Reclaim(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.tasks {
		if (r.Status == "leased" || r.Status == "running") && r.expires.Before(time.Now()) {
			r.Status = "queued"
			if r.Attempt-r.Retries >= r.MaxAttempts {
				r.Status = "deadletter"
			}
		}
	}
	return nil
}

func (m *model) Beat(context.Context, Holder, task.WorkerRow) error               { return nil }
func (m *model) Wait(context.Context, Holder, Claim, time.Duration, string) error { return nil }
func (m *model) Cool(context.Context, string, time.Duration) error                { return nil }

// A host has a worker, whose master and agents are models too.
type host struct {
	*model
	name  string
	id    uuid.UUID
	skew  time.Duration
	drain <-chan struct{} // closed: its masters leave
	t     *testing.T

	mu      sync.Mutex
	random  *rand.Rand
	cut     bool          // the database cannot be reached
	resumed chan struct{} // not nil: the master is stopped, until it is closed
	boot    *boot
}

// A boot is the life of one master.
type boot struct {
	*host
	ctx     context.Context // ends with it
	kill    context.CancelFunc
	worker  *Worker
	mu      sync.Mutex
	twins   map[string]*task.TaskRecord
	stops   map[string]context.CancelFunc
	changes chan *task.Change
	agents  sync.WaitGroup
}

func (h *host) roll(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

func (h *host) upTo(d time.Duration) time.Duration { return time.Duration(h.roll(int(d))) }

func (h *host) now() time.Duration { return time.Duration(time.Now().UnixNano()) + h.skew }

// pause blocks while the master is stopped.
func (h *host) pause() {
	h.mu.Lock()
	c := h.resumed
	h.mu.Unlock()
	if c != nil {
		<-c
	}
}

var errCut = errors.New("the connection was cut")

// over does something by the network: it takes its time, and may be lost on the way there or back.
func over[T any](ctx context.Context, b *boot, do func() (T, error)) (v T, err error) {
	b.pause()
	time.Sleep(b.upTo(100 * time.Millisecond))
	b.host.mu.Lock()
	cut := b.cut
	b.host.mu.Unlock()
	lost := b.roll(100)
	if cut || lost == 0 || b.ctx.Err() != nil {
		<-ctx.Done()
		return v, errCut
	}
	v, err = do()
	time.Sleep(b.upTo(100 * time.Millisecond))
	b.pause()
	if lost == 1 || b.ctx.Err() != nil {
		<-ctx.Done()
		var none T
		return none, errCut
	}
	return v, err
}

func none(f func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, f() }
}

func (b *boot) Lease(ctx context.Context, h Holder, account string, most int, f Filter) ([]Task, error) {
	return over(ctx, b, func() ([]Task, error) { return b.model.Lease(ctx, h, account, most, f) })
}

func (b *boot) Renew(ctx context.Context, h Holder, claims []Claim) ([]Claim, error) {
	return over(ctx, b, func() ([]Claim, error) { return b.model.Renew(ctx, h, claims) })
}

func (b *boot) Start(ctx context.Context, h Holder, claims []Claim) error {
	_, err := over(ctx, b, none(func() error { return b.model.Start(ctx, h, claims) }))
	return err
}

func (b *boot) Finish(ctx context.Context, h Holder, ended []Ended) ([]Claim, error) {
	return over(ctx, b, func() ([]Claim, error) { return b.model.Finish(ctx, h, ended) })
}

func (b *boot) GiveBack(ctx context.Context, h Holder, e Ended, begun bool, why string) error {
	_, err := over(ctx, b, none(func() error { return b.model.GiveBack(ctx, h, e, begun, why) }))
	return err
}

func (b *boot) HeldBy(ctx context.Context, h Holder) (map[Claim]bool, error) {
	return over(ctx, b, func() (map[Claim]bool, error) { return b.model.HeldBy(ctx, h) })
}

func (b *boot) Reclaim(ctx context.Context) error {
	_, err := over(ctx, b, none(func() error { return b.model.Reclaim(ctx) }))
	return err
}

// Submit implements Master: the agent begins soon, unless its lease has ended.
func (b *boot) Submit(_ context.Context, s task.TaskSpec) (state.Task, error) {
	b.pause()
	t := state.Task{ID: s.ID, Status: state.Queued, IdempotencyKey: state.GivenKey(s.IdempotencyKey)}
	ctx, stop := context.WithCancel(b.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.twins[s.ID], b.stops[s.ID] = &task.TaskRecord{Task: t}, stop
	b.agents.Go(func() { b.run(ctx, s.ID, s.SharedID) })
	return t, nil
}

// is notes a status of a twin, and tells the worker.
func (b *boot) is(id string, status state.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.twins[id].Task
	if t.Status.Terminal() || b.ctx.Err() != nil {
		return
	}
	if t.Status = status; status == state.Running {
		t.RunID = "run"
	}
	b.changes <- &task.Change{Task: *t}
}

// run is the agent of a twin under its gate, which knows when the lease ends, also while its master is stopped.
func (b *boot) run(ctx context.Context, id, shared string) {
	time.Sleep(b.upTo(time.Second))
	var lease *task.Lease
	over := func() bool {
		until, _ := lease.Until()
		return ctx.Err() != nil || until <= b.now()
	}
	i, _ := strconv.Atoi(shared)
	r := b.tasks[i]
	for done := false; !done; {
		if lease = b.worker.LeaseOf(id); lease == nil || over() { // as it begins
			b.is(id, state.Canceled)
			return
		}
		if done = b.turn(id, shared, r, over); !done {
			b.is(id, state.Queued) // it was interrupted, or failed, and is tried again
			time.Sleep(b.upTo(20 * time.Second))
			b.pause()
		}
	}
	b.is(id, state.Done)
}

// turn is a run of an agent. It reports whether it has ended well.
func (b *boot) turn(id, shared string, r *row, over func() bool) bool {
	b.is(id, state.Running)
	b.model.mu.Lock()
	if r.agents++; r.agents > 1 {
		b.t.Errorf("two agents work for task %s: on %s in attempt %d", shared, b.name, r.Attempt)
	}
	b.model.mu.Unlock()
	step := 1 + b.upTo(time.Second)
	for range 1 + b.roll(60) {
		if time.Sleep(step); over() {
			break
		}
	}
	killed := over()
	b.model.mu.Lock()
	r.agents--
	b.model.mu.Unlock()
	b.pause()
	return !killed && b.roll(3) > 0
}

// Cancel implements Master.
func (b *boot) Cancel(_ context.Context, id, _ string) (state.Task, error) {
	b.pause()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stops[id]()
	return b.twins[id].Task, nil
}

// TaskRecord implements Master.
func (b *boot) TaskRecord(id string) (task.TaskRecord, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.twins[id]; t != nil {
		return *t, nil
	}
	return task.TaskRecord{}, &task.Error{Code: task.CodeNotFound}
}

// TwinOf implements Master: the ledger of an earlier boot is kept.
func (b *boot) TwinOf(key string) (state.Task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.twins {
		if string(t.Task.IdempotencyKey) == key {
			return t.Task, true
		}
	}
	return state.Task{}, false
}

// Subscribe implements Master.
func (b *boot) Subscribe(int) (<-chan *task.Change, func()) { return b.changes, func() {} }

// Room implements Master.
func (b *boot) Room(string) (int, time.Time) { return 4, time.Time{} }

// IsLeaving implements Master.
func (b *boot) IsLeaving() bool {
	select {
	case <-b.drain:
		return true
	default:
		return false
	}
}

// start begins a master with the ledger of the one before, whose open twins are canceled.
func (h *host) start(ttl time.Duration) (ended chan struct{}) {
	b := &boot{host: h, twins: map[string]*task.TaskRecord{}, stops: map[string]context.CancelFunc{}, changes: make(chan *task.Change, 1<<16)}
	if h.boot != nil {
		b.twins = h.boot.twins
		for _, t := range b.twins {
			if !t.Task.Status.Terminal() {
				t.Task.Status = state.Canceled
			}
		}
	}
	b.ctx, b.kill = context.WithCancel(context.Background())
	b.worker = NewWorker(Options{
		Holder: Holder{h.id, h.name, ttl}, Renew: ttl / 3, Poll: time.Second, Processes: 3, Rows: func(r *task.TaskRecord) (*tables.Rows, error) { return &tables.Rows{ID: string(r.Task.Status)}, nil }, Margin: ttl / 6, Now: h.now, Log: slog.New(slog.DiscardHandler),
		Accounts: func(context.Context) ([]string, error) { return []string{"one", "two"}, nil },
	}, b, b, nil)
	h.boot, ended = b, make(chan struct{})
	go func() {
		defer close(ended)
		b.worker.Run(b.ctx)
		b.agents.Wait()
	}()
	return ended
}

// TestSimulation: whatever fails, a task has one agent at a time and one end, and no account more leases than it may have.
func TestSimulation(t *testing.T) {
	hosts, tasks, seeds := 10, 300, 5
	if n, _ := strconv.Atoi(os.Getenv("STINT_TEST_SIMULATION")); n > 0 {
		hosts, tasks, seeds = 50, 20_000, n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, uint64(seed), hosts, tasks) })
		})
	}
}

func simulate(t *testing.T, seed uint64, hosts, tasks int) {
	random := rand.New(rand.NewPCG(seed, 1))
	open := tasks
	m := &model{max: map[string]int{"one": hosts, "two": hosts / 2}}
	m.onFinish = func(r *row) {
		if open--; r.finishes > 1 {
			t.Errorf("task %s has ended twice", r.ID)
		}
	}
	for i := range tasks {
		m.tasks = append(m.tasks, &row{Task: Task{ID: fmt.Sprint(i), Status: "queued", MaxAttempts: 1000}})
	}
	const ttl = 30 * time.Second
	drain := make(chan struct{})
	var all sync.WaitGroup
	for i := range hosts {
		h := &host{model: m, name: fmt.Sprint("host", i), id: uuid.New(), random: rand.New(rand.NewPCG(seed, uint64(i))), skew: time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour, drain: drain, t: t}
		all.Go(func() { h.live(ttl) })
	}
	for range 100_000 {
		time.Sleep(time.Second)
		m.mu.Lock()
		for account, most := range m.max {
			if n := m.live(account); n > most {
				t.Errorf("account %s has %d leases of %d", account, n, most)
			}
		}
		left := slices.ContainsFunc(m.tasks, func(r *row) bool { return slices.Contains([]string{"queued", "leased", "running"}, r.Status) })
		m.mu.Unlock()
		if !left {
			break
		}
	}
	close(drain)
	all.Wait()
	count := map[string]int{}
	for _, r := range m.tasks {
		count[r.Status]++
	}
	if count["done"] != tasks {
		t.Errorf("seed %d: %v", seed, count)
	}
	t.Log(cmp.Or(fmt.Sprint(count), ""))
}

// live lets the master of a host come and go, until it is drained.
func (h *host) live(ttl time.Duration) {
	for {
		ended := h.start(ttl)
		for alive := true; alive; {
			select {
			case <-ended:
				return
			case <-time.After(h.upTo(4 * ttl)):
			}
			switch h.roll(4) {
			case 0: // kill -9
				h.boot.kill()
				<-ended
				alive = false
				time.Sleep(h.upTo(2 * ttl))
			case 1: // SIGSTOP for up to two leases
				c := make(chan struct{})
				h.mu.Lock()
				h.resumed = c
				h.mu.Unlock()
				time.Sleep(h.upTo(2 * ttl))
				h.mu.Lock()
				h.resumed = nil
				h.mu.Unlock()
				close(c)
			case 2: // the network is cut
				h.mu.Lock()
				h.cut = true
				h.mu.Unlock()
				time.Sleep(h.upTo(2 * ttl))
				h.mu.Lock()
				h.cut = false
				h.mu.Unlock()
			}
		}
	}
}
