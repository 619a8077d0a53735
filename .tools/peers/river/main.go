// River inserts jobs into a PostgreSQL of its own and says how long that took. It is
// what the benchmarks of rows 3 and 4 compare stint with, by turns in one run:
//
//	STINT_BENCH_RIVER=1 go test -run '^$' -bench '^(BenchmarkSubmit|BenchmarkBatch)$' -benchtime 10x ./cmd/stint
//
// PostgreSQL is found in PATH or /usr/lib/postgresql, and keeps its defaults: fsync and
// synchronous_commit are on. Its data lies in the temporary directory, as stint's does.
// It does not run as root: then it runs as the user postgres, which must exist.
//
// Each line of the standard input is an order, and is answered with a line that has the
// nanoseconds it took: "insert CLIENTS EACH" lets so many clients insert one job after
// the other; "many SIZE TIMES" and "fast SIZE TIMES" insert batches of a size, by
// InsertMany and InsertManyFast. At the end of the input all of it is removed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	server, err := startPostgres()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	pool, client, err := connect(ctx, server)
	if err != nil {
		return err
	}
	defer pool.Close()
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		begun := time.Now()
		if err := obey(ctx, client, orders.Text()); err != nil {
			return err
		}
		fmt.Println(time.Since(begun).Nanoseconds())
	}
	return nil
}

// obey carries out one order.
func obey(ctx context.Context, client *river.Client[pgx.Tx], order string) error {
	var what string
	var n, times int
	if _, err := fmt.Sscan(order, &what, &n, &times); err != nil {
		return fmt.Errorf("order %q: %w", order, err)
	}
	switch what {
	case "insert":
		return insert(ctx, client, n, times)
	case "many":
		return repeat(times, func() error { _, err := client.InsertMany(ctx, jobs(n)); return err })
	case "fast":
		return repeat(times, func() error { _, err := client.InsertManyFast(ctx, jobs(n)); return err })
	}
	return fmt.Errorf("order %q is unknown", order)
}

// A job carries what the benchmarks' tasks do.
type job struct {
	Prompt    string `json:"prompt"`
	Workspace string `json:"workspace"`
	Session   string `json:"sessionKey"`
	Label     string `json:"label"`
}

// Kind names the jobs.
func (job) Kind() string { return "task" }

func newJob() job {
	return job{"Fix the flaky login test.\n\nKeep the diff small.", "/home/ana/shop", "web", "bench"}
}

func jobs(n int) []river.InsertManyParams {
	list := make([]river.InsertManyParams, n)
	for i := range list {
		list[i].Args = newJob()
	}
	return list
}

func insert(ctx context.Context, client *river.Client[pgx.Tx], clients, each int) error {
	failed := make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			failed[i] = repeat(each, func() error { _, err := client.Insert(ctx, newJob(), nil); return err })
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func repeat(times int, do func() error) error {
	for range times {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// poolSize is the number of connections with which 64 clients insert fastest here, of
// 8, 16, 32 and 64.
const poolSize = 32

// connect returns a client that only inserts.
func connect(ctx context.Context, server *postgres) (*pgxpool.Pool, *river.Client[pgx.Tx], error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("host=%s user=postgres dbname=postgres pool_max_conns=%d", server.dir, poolSize))
	if err != nil {
		return nil, nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("river's tables: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	return pool, client, err
}

// A postgres is a server that listens at a socket in its directory.
type postgres struct {
	bin, dir string
	as       *syscall.Credential // nil: our own user
}

// startPostgres makes a database in a temporary directory and starts its server.
func startPostgres() (*postgres, error) {
	p := &postgres{}
	if err := p.find(); err != nil {
		return nil, err
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "river"); err != nil {
		return nil, err
	}
	if p.as != nil {
		err = os.Chown(p.dir, int(p.as.Uid), int(p.as.Gid))
	}
	if err == nil {
		err = p.call("initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "--no-sync")
	}
	if err == nil {
		err = p.call("pg_ctl", "-D", p.data(), "-w", "-l", filepath.Join(p.dir, "log"), "-o", "-c listen_addresses= -k "+p.dir, "start")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

// find looks for the programs, and for a user who may run them.
func (p *postgres) find() error {
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		programs = append(programs, path)
	}
	if len(programs) == 0 {
		return errors.New("there is no initdb of PostgreSQL in PATH or /usr/lib/postgresql")
	}
	p.bin = filepath.Dir(programs[len(programs)-1])
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return err
}

// call runs one of the programs, which must succeed.
func (p *postgres) call(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: p.as}
	// A file: the server inherits what it is given here, and a pipe would have no end.
	log, err := os.OpenFile(filepath.Join(p.dir, "calls"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it is for people
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name()) // it may be gone
		return fmt.Errorf("%s: %w\n%s", name, err, text)
	}
	return nil
}

// stop ends the server and removes its files.
func (p *postgres) stop() error {
	return errors.Join(p.call("pg_ctl", "-D", p.data(), "-w", "-m", "fast", "stop"), os.RemoveAll(p.dir))
}
