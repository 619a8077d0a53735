package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stint/coordinator/schedule/due"
	"stint/state"
	"stint/state/jobs"
)

var (
	start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	keys  string // the directory of the keys, of ssh's configuration and of the hosts
	hosts atomic.Int64
)

const sshd = "/usr/sbin/sshd"

// secret is part of each secret of these tests, and nothing that a person may see has it.
const secret = "hunter2"

// TestMain puts an ssh first into PATH that reads a configuration of ours: ssh itself looks for the user's by the passwd.
func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // it is a name
		}
	}
	out, err := exec.Command("sh", "-ec", `case $(getent passwd "$(id -u)") in */nologin|*/false) exit 1 ;; esac # nobody can log in as this user
cd "$(mktemp -d)"; chmod 711 .; mkdir bin hosts
for key in host other user; do ssh-keygen -q -t ed25519 -N "" -f $key; done
printf 'known %s\n' "$(cat host.pub)" >known
printf 'Include %s/hosts/*\n' "$PWD" >config
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>%s/args\nexec %s -F %s/config "$@"\n' "$PWD" "$(command -v ssh)" "$PWD" >bin/ssh; chmod 755 bin/ssh
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd; pwd`).Output()
	if keys = strings.TrimSpace(string(out)); err == nil {
		err = os.Setenv("PATH", keys+"/bin:"+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ssh is not to be had:", err)
		keys = ""
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if keys != "" {
			_ = os.RemoveAll(keys) // what is left there goes with /tmp
		}
		os.Exit(code)
	}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// missing skips a test for want of something, which must not happen in CI.
func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// A host is a server that ssh reaches: an sshd for each connection, with stand-ins for what it must not do here.
type host struct {
	testing.TB
	name, dir string
	ln        net.Listener
	work      sync.WaitGroup

	mu              sync.Mutex
	begun, at, most int              // connections
	on              func(n int) bool // sees the n-th connection; false: it is closed
}

// standIns do what a file beside them says, and else what they are named after.
var standIns = map[string]string{
	"systemctl": `printf '%s\n' "$*" >>"$D/restarts"; if [ -e "$D/broken" ]; then echo "Job for $3 failed because the control process exited with error code." >&2; exit 1; fi`,
	"sudo":      `if [ -e "$D/denied" ]; then echo "sudo: a password is required" >&2; exit 1; fi; printf '%s\n' "$1" >>"$D/sudo-was"; shift; exec "$@"`,
	"id":        `while [ -e "$D/hangs" ]; do sleep 0.1; done; if [ -e "$D/user" ]; then echo 1000; else exec /usr/bin/id "$@"; fi`,
	"cat":       `if [ -e "$D/cut" ] && [ $# = 0 ]; then exec head -c 20; else exec /bin/cat "$@"; fi`,
	"mv":        `if [ -e "$D/killed" ]; then kill -9 $PPID; else exec /bin/mv "$@"; fi`,
	"df":        `if [ ! -e "$D/nodisk" ]; then exec /bin/df "$@"; fi`,
}

func newHost(t testing.TB) *host {
	t.Helper()
	if _, err := os.Stat(sshd); err != nil || keys == "" {
		missing(t, "this user can use no sshd")
	}
	h := &host{TB: t, name: fmt.Sprintf("h%d", hosts.Add(1))}
	h.dir = filepath.Join(keys, h.name)
	for name, script := range standIns {
		h.write("bin/"+name, "#!/bin/sh\nD="+h.dir+"\n"+script+"\n", 0o755)
	}
	h.key("host")
	var err error
	h.ln, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(keys, "hosts", h.name), fmt.Appendf(nil, `Host %s %[1]s-*
HostName 127.0.0.1
Port %d
HostKeyAlias known
IdentityFile %s/user
IdentitiesOnly yes
KexAlgorithms curve25519-sha256
IdentityAgent none
UserKnownHostsFile %[3]s/known
GlobalKnownHostsFile /dev/null
`, h.name, h.ln.Addr().(*net.TCPAddr).Port, keys), 0o600))
	go h.serve()
	t.Cleanup(func() {
		_ = h.ln.Close() // a test may have closed it
		h.work.Wait()
		if home, _ := os.UserHomeDir(); exists(filepath.Join(home, "stint-canary")) {
			t.Error("a shell has read data")
			_ = os.Remove(filepath.Join(home, "stint-canary")) // the next test begins anew
		}
	})
	return h
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// key sets with which key the host proves who it is. With SHLVL bash takes itself for an inner shell, which reads no .bashrc.
func (h *host) key(name string) {
	h.write("sshd_config", fmt.Sprintf(`HostKey %s/%s
AuthorizedKeysFile %[1]s/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
SetEnv PATH=%[3]s/bin:/usr/bin:/bin SHLVL=2
`, keys, name, h.dir), 0o600)
}

func (h *host) serve() {
	for {
		c, err := h.ln.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.begun, h.at = h.begun+1, h.at+1
		h.most = max(h.most, h.at)
		n, on := h.begun, h.on
		h.mu.Unlock()
		h.work.Go(func() {
			defer func() { h.mu.Lock(); h.at--; h.mu.Unlock() }()
			file, err := c.(*net.TCPConn).File()
			defer func() { _ = errors.Join(file.Close(), err) }() // ssh says what it has seen
			if isServed := on == nil || on(n); c.Close() != nil || err != nil || !isServed {
				return
			}
			cmd := exec.Command(sshd, "-i", "-f", h.dir+"/sshd_config", "-E", h.dir+"/sshd.log")
			cmd.Stdin, cmd.Stdout = file, file
			_ = cmd.Run() // it ends as the session does
		})
	}
}

// see sets what sees connections, of which the next one is the first.
func (h *host) see(on func(n int) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.on = 0, on
}

// counts returns how many connections there were, and how many at one time.
func (h *host) counts() (begun, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun, h.most
}

func (h *host) write(name, text string, mode os.FileMode) {
	h.Helper()
	path := filepath.Join(h.dir, name)
	must(h, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)))
}

// set makes one of the files that stand-ins look for, and unset removes it.
func (h *host) set(name string)   { h.Helper(); h.write(name, "", 0o644) }
func (h *host) unset(name string) { h.Helper(); must(h, os.Remove(filepath.Join(h.dir, name))) }

// read returns what a file has; "" if there is none.
func (h *host) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(text)
}

// odd is a directory that a shell would make much of.
const odd = `it's a "test" $(touch stint-canary);`

// config is where the configuration of an instance is on its host.
func config(id string) string { return odd + "/" + id + "/open claw.json" }

// instance returns an instance on the host that is to have a model, and writes its configuration.
func (h *host) instance(id, gateway string) Instance {
	h.Helper()
	h.write(config(id), `{"agents": {"defaults": {"model": {"primary": "old"}}}, "port": 18789123456789012345}`, 0o640)
	return Instance{
		ID: id, Server: h.name, ConfigPath: filepath.Join(h.dir, config(id)), Service: "claw@" + id + ".service", Gateway: gateway,
		Desired: map[string]any{"agents.defaults.model.primary": "new"}, KeyRef: "key of " + id,
	}
}

// A gateway is an HTTP server whose answers can be changed.
type gateway struct {
	*httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
}

func newGateway(t testing.TB) *gateway {
	g := &gateway{}
	g.says(200, `{"ok": true}`)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*g.answer.Load())(w, r) }))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) set(answer http.HandlerFunc) { g.answer.Store(&answer) }

func (g *gateway) says(status int, text string) {
	g.set(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // the client sees what is missing
	})
}

// A room keeps control records as a master does, each as its record has it.
type room struct {
	sync.Mutex
	list    map[string]state.Control
	leaving bool
}

func (r *room) Controls(prefix string) map[string]state.Control {
	r.Lock()
	defer r.Unlock()
	list := map[string]state.Control{}
	for name, c := range r.list {
		if name, is := strings.CutPrefix(name, prefix); is {
			list[name] = c
		}
	}
	return list
}

func (r *room) ChangeControl(ctx context.Context, prefix, name string, change func(*state.Control)) error {
	r.Lock()
	defer r.Unlock()
	c := r.list[prefix+name]
	change(&c)
	r.list[prefix+name] = c
	return ctx.Err()
}

func (r *room) IsLeaving() bool { return r.leaving }

// A world is a fleet with hosts, a clock and a room of due jobs.
type world struct {
	testing.TB
	*Fleet
	*room
	due *due.Room
	dir string

	all  sync.Mutex
	now  time.Time
	told []string
	seen bytes.Buffer // all that a person may see
}

func newWorld(t testing.TB, change func(*Options), list ...Instance) *world {
	t.Helper()
	w := &world{TB: t, dir: t.TempDir(), now: start, room: &room{list: map[string]state.Control{}}}
	ids := atomic.Int64{}
	var err error
	w.due, err = due.Open(due.Options{Dir: w.dir, Now: w.clock, NewID: func() string { return fmt.Sprintf("job-%03d", ids.Add(1)) }, Log: slog.New(slog.NewTextHandler(w, nil))})
	must(t, err)
	o := Options{
		Dir: w.dir, IdleAfter: 7 * 24 * time.Hour, LiteLLM: LiteLLM{KeyRef: "admin", AlertBelow: 10}, Now: w.clock, Log: slog.New(slog.NewTextHandler(w, nil)),
		Secret: func(ref string) (string, error) {
			switch ref {
			case "none":
				return "", os.ErrNotExist
			case "bot":
				return token, nil
			}
			return "sk-" + secret + "-" + ref, nil
		},
		Tell: func(kind, name, text string) {
			w.all.Lock()
			defer w.all.Unlock()
			w.told = append(w.told, kind+" "+name+": "+text)
		},
	}
	for _, in := range list {
		if s := (Server{ID: in.Server}); !slices.ContainsFunc(o.Servers, func(s Server) bool { return s.ID == in.Server }) {
			_, err := s.Check(o.Servers)
			must(t, err)
			o.Servers = append(o.Servers, s)
		}
		_, err := in.Check(o.Servers, o.Instances)
		must(t, err)
		o.Instances = append(o.Instances, in)
	}
	if change != nil {
		change(&o)
	}
	w.Fleet = New(w.room, w.due, o)
	t.Cleanup(func() {
		must(t, w.due.Close())
		for _, name := range []string{"jobs.md", "audit.jsonl", usageName, metricsName} {
			text, _ := os.ReadFile(filepath.Join(w.dir, name)) // one that is not there shows nothing
			w.say(string(text))
		}
		w.say(strings.Join(w.told, "\n"), w.Controls(""), w.Instances())
		args, _ := os.ReadFile(filepath.Join(keys, "args")) // of ssh, which others on this machine can see
		if w.say(string(args)); strings.Contains(string(args), "stint-canary") {
			t.Error("a command for a server has data")
		}
		if i := strings.Index(w.seen.String(), secret); i >= 0 {
			t.Errorf("a secret is shown: %s", w.seen.String()[max(0, i-200):])
		}
		w.client.CloseIdleConnections()
	})
	return w
}

// Write makes the world the place of its logs.
func (w *world) Write(p []byte) (int, error) {
	w.all.Lock()
	defer w.all.Unlock()
	return w.seen.Write(p)
}

func (w *world) say(what ...any) { _, _ = fmt.Fprintln(w, what...) }

func (w *world) clock() time.Time {
	w.all.Lock()
	defer w.all.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.all.Lock()
	defer w.all.Unlock()
	w.now = w.now.Add(d)
}

// job runs a job of schedules.
func (w *world) job(name string) (string, error) {
	w.Helper()
	detail, err := w.Jobs()[name](w.Context())
	w.say(detail, err)
	return detail, err
}

// well runs a job that has to succeed with a detail.
func (w *world) well(name, want string) {
	w.Helper()
	if detail, err := w.job(name); err != nil || detail != want {
		w.Errorf("%s: %q, %v, not %q", name, detail, err, want)
	}
}

// fails runs a job that has to fail, with all these words in the error.
func (w *world) fails(name string, words ...string) {
	w.Helper()
	detail, err := w.job(name)
	if err == nil {
		w.Errorf("%s: %s", name, detail)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.Errorf("%s: %v, without %q", name, err, word)
		}
	}
}

// is compares what an instance is.
func (w *world) is(id, health string, fails int) {
	w.Helper()
	if in, err := w.Instance(id); err != nil || in.Health != health || in.FailCount != fails {
		w.Errorf("%s is %s after %d failures, not %s after %d (%v)", id, in.Health, in.FailCount, health, fails, err)
	}
}

// look lets a fleet begin what there is, and waits for it.
func (w *world) look(ctx context.Context) {
	w.Helper()
	setups := make(chan struct{}, mostSetups)
	if err := w.Fleet.look(ctx, setups); err != nil && ctx.Err() == nil {
		w.Error(err)
	}
	for range mostSetups {
		setups <- struct{}{}
	}
}

// setup returns the jobs about an instance.
func (w *world) setup(id string) []jobs.Job {
	return w.due.Where(func(j *jobs.Job) bool { return j.ObjectID == id })
}

// reclaimed runs the room of due jobs until it has changed a job.
func (w *world) reclaimed(is func(jobs.Job) bool) {
	w.Helper()
	ctx, end := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() { w.due.Run(ctx); close(ended) }()
	for deadline := time.Now().Add(time.Minute); len(w.due.Where(func(j *jobs.Job) bool { return is(*j) })) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			w.Fatal("nothing was taken back")
		}
	}
	end()
	<-ended
}
