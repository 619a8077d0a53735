package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// strangers are the commands that put another thing at a name, $f.
var strangers = map[string]string{
	"FIFO":          `rm -rf "$f"; mkfifo "$f"`,
	"link":          `rm -rf "$f"; ln -s "$CANARY" "$f"`,
	"dangling link": `rm -rf "$f"; ln -s "$CANARY.nowhere" "$f"`,
	"directory":     `rm -rf "$f"; mkdir "$f"; : >"$f/x"`,
	"unreadable":    `[ -e "$f" ] || : >"$f"; chmod 0 "$f"`,
}

// Names of what stint makes in the directory of a run, and of what else is made for it.
const (
	runNames     = "prompt.md stdin stdout stderr run.json lock answer files memory.json schema.json snapshot gemini-defaults.json git-before git-after git-diff"
	sessionNames = "sessions/*.jsonl sessions/*.lock sessions.json heartbeat.json token starts"
	stateNames   = "master.log lock format" // in the order in which they are met
)

// hangLimit is how long a command may take, and a master to end after SIGTERM.
const hangLimit = 10 * time.Second

const anyExit = -1

// TestStrangersInTheStateDirectory: whatever a run puts at the names below the state
// directory, its task ends, also by a cancel; commands answer; SIGTERM ends the master;
// nothing is written through a link; and the next master looks after what a kill leaves.
func TestStrangersInTheStateDirectory(t *testing.T) {
	for name, put := range strangers {
		t.Run(name, func(t *testing.T) {
			w := newStrangerWorld(t, put, name == "unreadable")
			m := w.serve()
			names := w.loop(`"$RUNS"/*`, runNames) + w.loop(`"$STINT_STATE"`, sessionNames)
			passed := w.submit(w.loop(`"$RUNS"/*`, runNames), "--output-spec", "out.txt")
			w.ended(passed)
			w.look(passed)
			// The turn that a failed command leads to meets what the command has put there.
			ended := w.submit(names + `[ -e again ] || { : >again; exit 1; }`)
			w.ended(ended)
			w.look(ended)

			canceled := w.begin(names + `: >begun; exec sleep 1000`)
			w.answers(exitOK, "cancel", canceled)
			w.look(canceled)

			interrupted := w.begin(names + `[ -e late ] && exit 0; : >begun; exec sleep 1000`)
			w.end(m, syscall.SIGTERM)
			w.put("late")
			m = w.serve()
			w.ended(interrupted)

			killed := w.begin(names + `[ -e later ] && exit 0; : >begun; exec sleep 1000`)
			w.end(m, syscall.SIGKILL)
			w.put("later")
			m = w.serve()
			if name == "unreadable" { // nobody can tell what was in it
				w.waitFor("why", "may still be alive", killed)
			} else {
				w.ended(killed)
			}
			w.look(killed)

			last := w.submit(w.loop(`"$STINT_STATE"`, sessionNames+" "+stateNames))
			w.ended(last)
			w.look(last)
			w.end(m, syscall.SIGTERM)
			for _, file := range strings.Fields(stateNames) {
				if said := w.answers(anyExit, "ls"); !strings.Contains(said, filepath.Join(w.state, file)+" ") {
					t.Errorf("with a %s at %s, ls says:\n%s", name, file, said)
				}
				w.answers(anyExit, "doctor")
				if err := os.RemoveAll(filepath.Join(w.state, file)); err != nil {
					t.Fatal(err)
				}
			}
			m = w.serve()
			w.answers(exitOK, "show", last)
			w.end(m, syscall.SIGTERM)
			if got, err := os.ReadFile(w.canary); string(got) != "unchanged" {
				t.Errorf("the canary has %q, %v", got, err)
			}
			if _, err := os.Lstat(w.canary + ".nowhere"); err == nil {
				t.Error("a file was made behind a link")
			}
		})
	}
}

// A strangerWorld is a state directory of which agents make what they like.
type strangerWorld struct {
	*crashWorld
	put1     string // the command that puts something at $f
	canary   string
	sessions int
	user     *syscall.SysProcAttr // nil: ours
}

func newStrangerWorld(t *testing.T, put string, asOther bool) *strangerWorld {
	w := &strangerWorld{crashWorld: newCrashWorld(t, 1), put1: put}
	w.canary = filepath.Join(filepath.Dir(w.state), "canary")
	w.write(w.canary, "unchanged")
	w.write(filepath.Join(filepath.Dir(w.state), "stint", "config.toml"), "grace = \"1s\"\nmax_retries = 2\nbackoff_base = \"100ms\"\nmax_attempts = 2\n")
	w.env = append(w.env, "STINT_MAX_RETRIES=2")
	if asOther && os.Geteuid() == 0 { // root may read everything
		w.becomeNobody()
	}
	return w
}

func (w *strangerWorld) write(path, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// becomeNobody lets another user than root have the world.
func (w *strangerWorld) becomeNobody() {
	w.t.Helper()
	const nobody = 65534
	base, run := filepath.Dir(w.state), filepath.Dir(w.sockets)
	self := filepath.Join(base, "stint.test") // where it may be executed
	from, err := os.Open(w.self)
	if err != nil {
		w.t.Fatal(err)
	}
	to, err := os.OpenFile(self, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		w.t.Fatal(err)
	}
	_, _ = from.Close(), to.Close()
	w.self, w.user = self, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := os.Chmod(filepath.Dir(base), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if out, err := exec.Command("chown", "-R", fmt.Sprint(nobody), base, run).CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

// loop gives the command that puts a stranger at each of the names in each directory.
func (w *strangerWorld) loop(dirs, names string) string {
	return fmt.Sprintf("CANARY='%s' RUNS='%s/runs' STINT_STATE='%s'\nfor d in %s; do for n in %s; do case $n in *\\**) continue; esac; f=$d/$n; %s; done; done\n",
		w.canary, w.state, w.state, dirs, w.globs(names), w.put1)
}

// globs lets the shell look for the names with a star in the state directory.
func (w *strangerWorld) globs(names string) string {
	var list []string
	for _, name := range strings.Fields(names) {
		if strings.Contains(name, "*") {
			name = "$(cd \"$STINT_STATE\" && echo " + name + ")"
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

// command makes one of stint's, as the user of the world.
func (w *strangerWorld) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.self, args...)
	cmd.Args[0], cmd.Env, cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = "stint", w.env, w.work, w.user, time.Second
	return cmd
}

// session gives the key of a session of its own for each task: a task that is held keeps
// those behind it from running.
func (w *strangerWorld) session() string {
	w.sessions++
	return fmt.Sprint("s", w.sessions)
}

// submit queues a task with a verify command.
func (w *strangerWorld) submit(verify string, args ...string) (id string) {
	w.t.Helper()
	var stderr bytes.Buffer
	cmd := w.command(w.t.Context(), append([]string{"task", "-d", "--verify", verify, "--session", w.session(), "demo:say=" + strings.Repeat("well ", 100)}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// begin is submit that returns when the command is at work.
func (w *strangerWorld) begin(verify string) (id string) {
	w.t.Helper()
	begun := filepath.Join(w.work, "begun")
	_ = os.Remove(begun) // of the task before
	id = w.submit(verify)
	if !poll(scriptDeadline, func() bool { _, err := os.Stat(begun); return err == nil }) {
		w.t.Fatalf("the command of task %s does not begin:\n%s", id, w.answers(anyExit, "show", id))
	}
	return id
}

func (w *strangerWorld) put(name string) { w.write(filepath.Join(w.work, name), "") }

// answers carries out a command, which must end soon, and gives all that it prints. Unless
// it is anyExit, it must end with that exit code.
func (w *strangerWorld) answers(code int, args ...string) string {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), hangLimit)
	defer stop()
	cmd := w.command(ctx, args...)
	out, _ := cmd.CombinedOutput() // the exit code says it
	switch got := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		w.t.Fatalf("stint %s hangs\n%s", strings.Join(args, " "), out)
	case code != anyExit && got != code:
		w.t.Errorf("stint %s: exit code %d\n%s", strings.Join(args, " "), got, out)
	}
	return string(out)
}

// ended waits for the end of a task, however that is.
func (w *strangerWorld) ended(id string) {
	w.t.Helper()
	if said := w.answers(anyExit, "wait", "--timeout", "9s", id); strings.Contains(said, "running") {
		w.t.Fatalf("task %s does not end: %s\n%s", id, said, w.answers(anyExit, "show", id))
	}
}

// waitFor waits until a command says something.
func (w *strangerWorld) waitFor(name, text string, args ...string) {
	w.t.Helper()
	var said string
	if !poll(scriptDeadline, func() bool {
		said = w.answers(anyExit, append([]string{name}, args...)...)
		return strings.Contains(said, text)
	}) {
		w.t.Errorf("stint %s does not say %q:\n%s", name, text, said)
	}
}

// look reads all there is to be read of a task.
func (w *strangerWorld) look(id string) {
	w.t.Helper()
	for _, args := range [][]string{
		{"show", id},
		{"show", "--answer", id},
		{"show", "--with-files", id},
		{"show", "--prompt", id},
		{"logs", id},
		{"logs", "--stderr", id},
		{"why", id},
		{"session", "ls"},
		{"session", "show", fmt.Sprint("s", w.sessions)},
		{"ls"},
		{"doctor"},
	} {
		w.answers(anyExit, args...)
	}
}

// serve starts a master and waits until it answers.
func (w *strangerWorld) serve() *life {
	w.t.Helper()
	l := &life{cmd: w.command(context.Background(), "serve"), gone: make(chan struct{})}
	l.cmd.Stderr = &l.stderr
	if err := l.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // how it ended is in ProcessState
		close(l.gone)
	}()
	w.t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // for one that a failure leaves
		<-l.gone
	})
	if !poll(scriptDeadline, func() bool {
		cmd := w.command(w.t.Context(), "ls")
		cmd.Env = append(cmd.Env, "STINT_AUTO_START=false")
		return cmd.Run() == nil || !l.alive()
	}) || !l.alive() {
		w.t.Fatalf("no master\n%s", l.stderr.String())
	}
	return l
}

// end ends a master by a signal.
func (w *strangerWorld) end(l *life, sig syscall.Signal) {
	w.t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-l.gone:
	case <-time.After(hangLimit):
		w.t.Fatalf("%v does not end the master\n%s", sig, l.stderr.String())
	}
}

// TestSecondSignal: it ends the master although a run does not end, and the next master
// looks after that.
func TestSecondSignal(t *testing.T) {
	w := newStrangerWorld(t, "", false)
	w.write(filepath.Join(filepath.Dir(w.state), "stint", "config.toml"), "grace = \"10m\"\n")
	m := w.serve()
	id := w.begin(`[ -e late ] && exit 0; trap '' TERM; : >begun; while :; do sleep 1; done`)
	if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil { // another signal: two equal ones may become one
		t.Fatal(err)
	}
	w.end(m, syscall.SIGTERM)
	if code := m.cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	w.put("late")
	m = w.serve()
	w.ended(id)
	w.end(m, syscall.SIGTERM)
}
