package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"stint/coordinator"
	"stint/coordinator/agent/gate"
	"stint/coordinator/api"
	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/postgres"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// BenchmarkSubmit is 64 clients that submit over the socket to a master with its real
// ledger, by turns with what bounds it: a handler that only decodes and answers, one
// writer that appends a kilobyte and syncs it, and 64 clients that insert into River,
// if STINT_BENCH_RIVER is set. The x- metrics are ratios of medians. The targets:
// 0.7 times the handler, 4 times the writer, 3 times River, and p99 at most 15 ms.
func BenchmarkSubmit(b *testing.B) {
	const each = 100
	w := newSubmitWorld(b)
	master, bare, writer, river := w.master(), w.bare(), w.writer(), startRiver(b)
	r := rounds{}
	var took []time.Duration
	for b.Loop() {
		r.run(b, "bare", 64*each, func() { w.submit64(bare, each) })
		r.run(b, "stint", 64*each, func() { took = append(took, w.submit64(master, each)...) })
		r.add("writer", 1000, stopwatch(func() { writer(1000) }))
		if river != nil {
			r.add("river", 64*each/2, river.insert(64, each/2))
		}
	}
	r.report(b, "stint")
	slices.Sort(took)
	b.ReportMetric(millis(took[len(took)/2]), "p50-ms")
	b.ReportMetric(millis(took[len(took)*99/100]), "p99-ms")
}

// BenchmarkBatch is 10,000 tasks that are taken in together, by the master itself and
// over the socket, by turns with 10,000 jobs for River, if STINT_BENCH_RIVER is set. The
// targets: 100,000 tasks a second in the master, and 1.5 times River. With STINT_BENCH_ONLY=stint
// or socket, for a profile, there is one side.
func BenchmarkBatch(b *testing.B) {
	const tasks = 10_000
	w := newSubmitWorld(b)
	client, river := w.master(), startRiver(b)
	specs := slices.Repeat([]task.TaskSpec{w.spec()}, tasks)
	r := rounds{}
	for b.Loop() {
		only := os.Getenv("STINT_BENCH_ONLY")
		if only != "socket" {
			r.run(b, "stint", tasks, func() { w.must2(w.c.SubmitOnce(context.Background(), "", specs)) })
		}
		if only != "stint" {
			r.run(b, "socket", tasks, func() { w.must2(client.SubmitAll(context.Background(), specs)) })
		}
		if river != nil {
			r.add("river", tasks, river.batch(tasks))
		}
	}
	r.report(b, "stint")
}

// rounds has for each side what it did in a second, in each round.
type rounds map[string][]float64

// add notes that a side did n things in a time.
func (r rounds) add(side string, n int, took time.Duration) {
	r[side] = append(r[side], float64(n)/took.Seconds())
}

// run notes how fast a side of this process does n things, and what processor time each takes in microseconds: the
// collector's and that of the clients too. That depends less on what else the machine does than the rate.
func (r rounds) run(b *testing.B, side string, n int, call func()) {
	var before, after unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &before))
	var mb, ma runtime.MemStats
	runtime.ReadMemStats(&mb)
	took := stopwatch(call)
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &after))
	runtime.ReadMemStats(&ma)
	r.add(side, n, took)
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	r[side+"-cpu-µs"] = append(r[side+"-cpu-µs"], float64(spent.Microseconds())/float64(n))
	r[side+"-sys-µs"] = append(r[side+"-sys-µs"], float64(time.Duration(after.Stime.Nano()-before.Stime.Nano()).Microseconds())/float64(n))
	r[side+"-switches"] = append(r[side+"-switches"], float64(after.Nvcsw-before.Nvcsw)/float64(n))
	r[side+"-allocs"] = append(r[side+"-allocs"], float64(ma.Mallocs-mb.Mallocs)/float64(n))
	r[side+"-bytes"] = append(r[side+"-bytes"], float64(ma.TotalAlloc-mb.TotalAlloc)/float64(n))
}

// stopwatch returns how long a call took.
func stopwatch(call func()) time.Duration {
	begun := time.Now()
	call()
	return time.Since(begun)
}

// report returns the medians, and how many times as fast as another each side is that one.
func (r rounds) report(b *testing.B, one string) {
	median := map[string]float64{}
	for side, rates := range r {
		slices.Sort(rates)
		median[side] = rates[len(rates)/2]
	}
	for side, rate := range median {
		if strings.Contains(side, "-") {
			b.ReportMetric(rate, side)
			continue
		}
		b.ReportMetric(rate, side+"/s")
		if side != one {
			b.ReportMetric(median[one]/rate, "x-"+side)
		}
	}
	b.ReportMetric(0, "ns/op") // all sides together say nothing
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// A submitWorld is a benchWorld whose master is in this process, as are the others that it is compared with.
type submitWorld struct {
	*benchWorld
	c *coordinator.Coordinator
}

func newSubmitWorld(b *testing.B) *submitWorld {
	debug.SetGCPercent(400) // as a master does
	return &submitWorld{benchWorld: newBenchWorld(b)}
}

// spec is the task that is submitted.
func (w *submitWorld) spec() task.TaskSpec {
	return task.TaskSpec{Prompt: "Fix the flaky login test.\n\nKeep the diff small.", Workspace: w.work, SessionKey: "web", Label: "bench"}
}

// endless is an agent that works until it is ended.
type endless struct{}

func (endless) Run(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
	<-ctx.Done()
	return task.Outcome{Class: state.ClassInterrupted}
}

// master starts a master, whose agent never ends, and gives a client for it.
func (w *submitWorld) master() *client.Client {
	var err error
	w.c, err = coordinator.Open(queue.Config{
		StateDir: w.state, Agents: map[string]task.Agent{"codex": endless{}}, DefaultAgent: func([]string) string { return "codex" },
		WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 3},
		MaxWorkers:        4, MaxRetries: 5, HeartbeatInterval: 10 * time.Second, Grace: time.Millisecond,
		BackoffBase: time.Minute, BackoffMax: time.Minute, SessionLockTimeout: time.Second,
	})
	must(w.B, err)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { check(w.B, w.c.Run(ctx)) })
	socket := w.listen("m")
	all.Go(func() {
		check(w.B, api.NewServer(roomsOf(w.c, nil, nil, nil, nil, nil), api.Options{RunOf: func(pid int) func() (string, error) { return gate.RunOf(pid, func(string) bool { return false }) }}).Serve(ctx, socket))
	})
	w.Cleanup(func() {
		stop()
		all.Wait()
		check(w.B, w.c.Close())
	})
	return w.dial(socket)
}

// bare starts a server that decodes and answers, and gives a client for it.
func (w *submitWorld) bare() *client.Client {
	socket := w.listen("b")
	srv := &http.Server{Handler: http.HandlerFunc(decodeAndAnswer), ReadHeaderTimeout: time.Minute}
	var all sync.WaitGroup
	all.Go(func() {
		if err := srv.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			check(w.B, err)
		}
	})
	w.Cleanup(func() {
		check(w.B, srv.Close())
		all.Wait()
	})
	return w.dial(socket)
}

func decodeAndAnswer(rw http.ResponseWriter, r *http.Request) {
	var spec task.TaskSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	t := state.Task{ID: spec.ID, Status: state.Queued, Workspace: spec.Workspace, SessionKey: spec.SessionKey, Label: spec.Label, CreatedAt: time.Now()}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(rw).Encode(wire.TaskView{Task: t}) // the client sees what is missing
}

func (w *submitWorld) listen(name string) net.Listener {
	dir, err := os.MkdirTemp("", "s") // short, as a socket's path must be
	must(w.B, err)
	w.Cleanup(func() { check(w.B, os.RemoveAll(dir)) })
	socket, err := guard.Listen(filepath.Join(dir, name))
	must(w.B, err)
	return socket
}

func (w *submitWorld) dial(socket net.Listener) *client.Client {
	client := client.Dial(socket.Addr().String())
	w.Cleanup(client.Close)
	return client
}

// submit64 has 64 clients submit, and gives how long each submit took.
func (w *submitWorld) submit64(client *client.Client, each int) []time.Duration {
	took := make([]time.Duration, 64*each)
	var all sync.WaitGroup
	for own := range slices.Chunk(took, each) {
		all.Go(func() {
			for i := range own {
				begun := time.Now()
				_, err := client.Submit(context.Background(), w.spec())
				check(w.B, err)
				own[i] = time.Since(begun)
			}
		})
	}
	all.Wait()
	return took
}

// writer returns a loop that appends a kilobyte and syncs it, as often as it is told.
func (w *submitWorld) writer() func(n int) {
	f, err := durable.OS.OpenFile(filepath.Join(w.dir, "bare"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(w.B, err)
	w.Cleanup(func() { check(w.B, f.Close()) })
	line := bytes.Repeat([]byte("x"), 1<<10)
	return func(n int) {
		for range n {
			w.must2(f.Write(line))
			must(w.B, f.Datasync())
		}
	}
}

// A river is the program in .tools/peers that inserts into River.
type river struct {
	*testing.B
	orders  io.WriteCloser
	answers *bufio.Scanner
}

// startRiver returns nil if STINT_BENCH_RIVER is not set.
func startRiver(b *testing.B) *river {
	if os.Getenv("STINT_BENCH_RIVER") == "" {
		return nil
	}
	return startRiverAt(b, realServer(b).Database(b))
}

// realServer starts a server with the settings of a real one, which those of tests are not.
func realServer(b *testing.B) *postgrestest.Server {
	return postgrestest.Start(b, "fsync=on", "shared_buffers=128MB", "autovacuum=on")
}

// startRiverAt returns a river in an empty database.
func startRiverAt(b *testing.B, url string) *river {
	program := filepath.Join(b.TempDir(), "river")
	if out, err := exec.Command("go", "build", "-C", "../../.tools/peers", "-o", program, "./river").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, url)
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	must(b, err)
	answers, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		check(b, errors.Join(orders.Close(), cmd.Wait()))
	})
	return &river{b, orders, bufio.NewScanner(answers)}
}

// insert has clients insert one job after the other.
func (r *river) insert(clients, each int) time.Duration {
	return r.ask(fmt.Sprint("insert ", clients, " ", each))
}

// batch inserts jobs in that of River's ways that is the fastest this time.
func (r *river) batch(jobs int) time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, way := range []string{"many", "fast"} {
		for _, size := range []int{1000, jobs} {
			best = min(best, r.ask(fmt.Sprint(way, " ", size, " ", jobs/size)))
		}
	}
	return best
}

// ask has an order carried out, and gives how long that took.
func (r *river) ask(order string) time.Duration { return r.askAll(order)[0] }

// askAll gives all times that an order is answered with.
func (r *river) askAll(order string) (took []time.Duration) {
	if _, err := fmt.Fprintln(r.orders, order); err != nil || !r.answers.Scan() {
		r.Fatalf("%s: %v, %v", order, err, r.answers.Err())
	}
	for _, word := range strings.Fields(r.answers.Text()) {
		n, err := strconv.ParseInt(word, 10, 64)
		must(r.B, err)
		took = append(took, time.Duration(n))
	}
	return took
}

// BenchmarkMirrorLag is the load of BenchmarkSubmit on a master whose ledger is copied
// into PostgreSQL: how far the copy is behind meanwhile, asked each 5 ms. The target: 1 s.
// The server is on the same machine, and takes its share of it.
func BenchmarkMirrorLag(b *testing.B) {
	const each = 200
	w := newSubmitWorld(b)
	url := postgrestest.Start(b).Database(b)
	client := w.master()
	m := postgres.New(postgres.Options{
		Maker: tables.Maker{Host: "bench", InlineThreshold: 1 << 20, OutputLimit: 10_000, MaxAttempts: 3},
		URL:   func() (string, error) { return url, nil }, StateDir: w.state, PoolSize: 10, MaxConcurrency: 4, Worker: uuid.New(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { m.Run(ctx, w.c) })
	w.submit64(client, 1)
	caughtUp := func() bool { st := m.Status(); return st.Seq > 0 && st.LagRecords == 0 }
	if !poll(time.Minute, caughtUp) {
		b.Fatal("the copy does not catch up within a minute")
	}
	var lags []float64
	all.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			lags = append(lags, m.Status().LagSeconds)
		}
	})
	r := rounds{}
	for b.Loop() {
		r.add("stint", 64*each, stopwatch(func() { w.submit64(client, each) }))
	}
	begun := time.Now()
	if !poll(time.Minute, caughtUp) {
		b.Fatal("the copy does not catch up within a minute")
	}
	behind := time.Since(begun)
	stop()
	all.Wait()
	r.report(b, "stint")
	slices.Sort(lags)
	b.ReportMetric(lags[len(lags)/2], "lag-p50-s")
	b.ReportMetric(lags[len(lags)*99/100], "lag-p99-s")
	b.ReportMetric(lags[len(lags)-1], "lag-max-s")
	b.ReportMetric(behind.Seconds(), "behind-s")
}

// BenchmarkSubmitBeside is 64 clients that submit to the master itself, beside many tasks that wait in one session, in
// sessions of ten, or each for itself: the time of a submit does not grow with their number.
func BenchmarkSubmitBeside(b *testing.B) {
	const clients, each = 64, 20
	for kind, session := range map[string]func(i int) string{"one": func(int) string { return "web" }, "tens": func(i int) string { return fmt.Sprint("s", i/10) }, "own": nil} {
		for _, waiting := range []int{10_000, 100_000, 400_000} {
			b.Run(fmt.Sprintf("%s/waiting=%d", kind, waiting), func(b *testing.B) {
				w := newSubmitWorld(b)
				must(b, os.MkdirAll(filepath.Join(w.work, ".git"), 0o700)) // a checkout, as most are
				must(b, os.WriteFile(filepath.Join(w.work, ".git", "HEAD"), nil, 0o600))
				w.master()
				i := 0
				next := func() task.TaskSpec {
					s := w.spec()
					if s.SessionKey, s.Parallel = "", session == nil; session != nil {
						s.SessionKey = session(i)
					}
					i++
					return s
				}
				for range waiting / 10_000 {
					specs := make([]task.TaskSpec, 10_000)
					for i := range specs {
						specs[i] = next()
					}
					w.must2(w.c.SubmitOnce(context.Background(), "", specs))
				}
				var took []time.Duration
				for b.Loop() {
					specs, mine := make([]task.TaskSpec, clients*each), make([]time.Duration, clients*each)
					for i := range specs {
						specs[i] = next()
					}
					var all sync.WaitGroup
					for c := range clients {
						all.Go(func() {
							for i := c * each; i < (c+1)*each; i++ {
								mine[i] = stopwatch(func() { w.must2(w.c.Submit(context.Background(), specs[i])) })
							}
						})
					}
					all.Wait()
					took = append(took, mine...)
				}
				slices.Sort(took)
				b.ReportMetric(millis(took[len(took)/2]), "p50-ms")
				b.ReportMetric(millis(took[len(took)*99/100]), "p99-ms")
			})
		}
	}
}
