package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/shared"
)

// hosts are network namespaces, each of which is a machine to those within. The first one has the switch that the
// others are plugged into.
type hosts struct {
	t     testing.TB
	names []string
}

// newHosts makes so many, or skips the test.
func newHosts(t testing.TB, n int) *hosts {
	t.Helper()
	needProgram(t, "ip")
	h := &hosts{t: t}
	for i := range n {
		h.names = append(h.names, fmt.Sprintf("stint%d-%d", os.Getpid(), i))
	}
	if out, err := exec.Command("ip", "netns", "add", h.names[0]).CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("no network namespace can be made here: %v: %s", err, out))
	}
	t.Cleanup(func() {
		for _, name := range h.names {
			_ = exec.Command("ip", "netns", "del", name).Run() // a failure may have left it out
		}
	})
	h.ip("-n", h.names[0], "link", "add", "switch", "type", "bridge")
	h.ip("-n", h.names[0], "addr", "add", h.addr(0)+"/24", "dev", "switch")
	h.ip("-n", h.names[0], "link", "set", "switch", "up")
	for i, name := range h.names[1:] {
		port := fmt.Sprint("port", i+1)
		h.ip("netns", "add", name)
		h.ip("-n", h.names[0], "link", "add", port, "type", "veth", "peer", "name", "net", "netns", name)
		h.ip("-n", h.names[0], "link", "set", port, "master", "switch", "up")
		h.ip("-n", name, "addr", "add", h.addr(i+1)+"/24", "dev", "net")
		h.ip("-n", name, "link", "set", "net", "up")
		h.ip("-n", name, "link", "set", "lo", "up")
	}
	return h
}

func (h *hosts) ip(args ...string) {
	h.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (h *hosts) addr(i int) string { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}).String() }

// plug connects a host with the others, or unplugs it.
func (h *hosts) plug(i int, state string) {
	h.t.Helper()
	h.ip("-n", h.names[0], "link", "set", fmt.Sprint("port", i), state)
}

// on starts processes on a host: those that do starts from the goroutine that it is called in.
func (h *hosts) on(i int, do func()) {
	h.t.Helper()
	runtime.LockOSThread() // and for good, if it cannot go back
	own, err := os.Open("/proc/thread-self/ns/net")
	must(h.t, err)
	defer func() { _ = own.Close() }() // only read from
	there, err := os.Open(filepath.Join("/run/netns", h.names[i]))
	must(h.t, err)
	defer func() { _ = there.Close() }()
	must(h.t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	do()
	must(h.t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
	runtime.UnlockOSThread()
}

// TestPartition: of three hosts, one of them with the database, one is cut off while it runs shared tasks. Its agent
// ends before the database would give the task to another host, which runs it then. What the first one has to say about
// such a task afterwards is not taken, and it goes on with other tasks.
func TestPartition(t *testing.T) {
	t.Parallel()
	notShort(t)
	h := newHosts(t, 3)
	access, err := os.CreateTemp("", "stint-hba") // where the user postgres may read it
	must(t, err)
	t.Cleanup(func() { check(t, os.Remove(access.Name())) })
	_, err = access.WriteString("local all all trust\nhost all all 10.77.0.0/24 trust\n")
	must(t, errors.Join(err, access.Chmod(0o644), access.Close()))
	var server *postgrestest.Server
	h.on(0, func() { server = postgrestest.Start(t, "listen_addresses="+h.addr(0), "hba_file="+access.Name()) })
	database := server.NewDatabase(t)
	url := server.URL(database) // by a socket, from any host
	opener := shared.NewOpener(func() (string, error) { return url, nil }, 1)
	must(t, opener.Do(t.Context(), func(q *shared.Queue) error {
		return errors.Join(q.AddAccount(t.Context(), shared.Account{ID: "demo", Tool: "demo", Max: 4}), q.AddAccount(t.Context(), shared.Account{ID: "demo-1", Tool: "demo", Max: 4}))
	}))
	opener.Close()
	await := func(want, text string, args ...string) {
		t.Helper()
		got := ""
		if !poll(scriptDeadline, func() bool { got, err = askPostgres(url, text, args); return got == want+"\n" }) {
			t.Fatalf("%s has %s, %v; want %s", text, got, err, want)
		}
	}
	add := func(prompt, account string) string {
		t.Helper()
		id, err := askPostgres(url, "INSERT INTO tasks (prompt, account) VALUES ($1, nullif($2, '')) RETURNING id", []string{prompt, account})
		must(t, err)
		return strings.TrimSpace(id)
	}
	const row = "SELECT status, answer, worker_host, attempt FROM tasks WHERE id = $1"

	one, oneLife := h.worker(1, database)
	hangs, late := add("demo:ignore-term demo:hang", ""), add("demo:sleep=4 demo:say=late", "")
	await("running", "SELECT status FROM tasks WHERE id = $1", hangs)
	await("running", "SELECT status FROM tasks WHERE id = $1", late)
	h.plug(1, "down")
	two, twoLife := h.worker(2, database)
	_, err = askPostgres(url, "UPDATE tasks SET prompt = CASE WHEN id = $1 THEN 'demo:say=of the second' ELSE 'demo:hang' END", []string{hangs})
	must(t, err)
	if !poll(scriptDeadline, func() bool { return len(one.survivors()) == 0 }) {
		t.Fatal("the agents on the host that is cut off do not end")
	}
	ended := time.Now()
	for _, id := range []string{hangs, late} {
		left, err := askPostgres(url, "SELECT status, worker_host, attempt, lease_expires_at > clock_timestamp(), lease_expires_at - clock_timestamp() FROM tasks WHERE id = $1", []string{id})
		if !strings.HasPrefix(left, "running|host-1|1|t|") || err != nil {
			t.Errorf("when its agent has ended, a task is %s, %v", left, err)
		}
		t.Logf("partition: left=%s", left[max(0, strings.LastIndexByte(left, '|')+1):])
	}
	await("succeeded|of the second|host-2|2", row, hangs)
	await("running||host-2|2", row, late)
	for _, r := range demoRuns(t, two.state) {
		if time.Unix(0, r.Time).Before(ended) {
			t.Errorf("the second host began %s before the agents of the first one had ended", r.Task)
		}
	}

	h.plug(1, "up")
	await("succeeded|back|host-1|1", row, add("demo:say=back", "demo-1")) // what it says of others it says before, or with it
	await("succeeded|of the second|host-2|2", row, hangs)
	await("running||host-2|2", row, late)
	await("host-2", "SELECT string_agg(DISTINCT host, ' ') FROM task_runs WHERE task_id = $1", hangs)
	await("0", "SELECT count(*) FROM task_runs WHERE task_id = $1", late)
	_, err = askPostgres(url, "UPDATE tasks SET cancel_requested = TRUE WHERE id = $1", []string{late})
	must(t, err)
	await("canceled||host-2|2", row, late)
	one.end(oneLife, syscall.SIGTERM)
	two.end(twoLife, syscall.SIGTERM)
	for _, w := range []*world{one, two} {
		must(t, fsckIsClean(w.state))
		w.expectNoOverlap()
	}
	if t.Failed() {
		t.Logf("the first worker said\n%s\nthe second one\n%s", oneLife.said(), twoLife.said())
	}
}

// worker starts a worker on a host.
func (h *hosts) worker(i int, database string) (w *world, l *life) {
	h.t.Helper()
	w = newWorld(
		h.t, uint64(i), fmt.Sprint("STINT_POSTGRES_HOST=host-", i), "XDG_DATA_HOME="+h.t.TempDir(),
		"STINT_POSTGRES_URL=postgres://postgres@"+h.addr(0)+"/"+database+"?sslmode=disable&connect_timeout=3",
	)
	w.write("state/accounts.toml", fmt.Sprintf("[account.demo]\ntool = \"demo\"\nmax = 4\n\n[account.demo-%d]\ntool = \"demo\"\n", i))
	h.on(i, func() {
		l = w.launch([]string{w.self, "worker", "start", "--lease-ttl", "8s", "--renew", "2s", "--grace", "1s", "--poll-interval", "200ms"})
	})
	if !w.ready(l) {
		h.t.Fatalf("the worker does not start:\n%s", l.said())
	}
	return w, l
}

// demoRuns returns what the demo agent has noted.
func demoRuns(t testing.TB, state string) (runs []demoRun) {
	t.Helper()
	for line := range bytes.Lines(get(t, filepath.Join(state, "demo", "log.jsonl"))) {
		var r demoRun
		must(t, json.Unmarshal(line, &r))
		runs = append(runs, r)
	}
	return runs
}
