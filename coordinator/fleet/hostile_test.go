package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/state"
	"stint/state/jobs"
)

// TestHostileAnswers: a server that prints without end, ends as ssh would, or repeats what it was sent does no harm beyond itself.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	list := []Instance{h.instance("a", g.URL), h.instance("b", g.URL), h.instance("c", g.URL), h.instance("d", g.URL)}
	for i, command := range []string{"cat /dev/zero", "exit 255", "echo " + token + " >&2; exit 1", "echo " + start.Format(time.RFC3339)} {
		list[i].ActivityCommand = command
	}
	w := newWorld(t, nil, list...)
	_, err := w.SetBot(t.Context(), "c", "bot")
	must(t, err)
	w.well("health_check", "4 run")
	w.fails("idle_instance_mark", "3 of 4 failed: a: ", "more than 1048576 bytes", "b: server "+h.name+": no word about it (exit status 255)", "c: server "+h.name+": *** (exit status 1)")
}

// TestHostileConfigs are left as they are: what is too deep to be written with blanks before each line, and what is no file.
func TestHostileConfigs(t *testing.T) {
	t.Parallel()
	for _, open := range []string{`{"x":`, `{"x":[`} {
		text := strings.Repeat(open, 65) + "1" + strings.Repeat(map[bool]string{true: "]}", false: "}"}[strings.HasSuffix(open, "[")], 65)
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), "more than 64 objects") {
			t.Error(err)
		}
	}
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("a", g.URL))
	w.opts.Repair = true
	path := filepath.Join(h.dir, config("a"))
	must(t, errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)))
	w.fails("config_sync", "it is a link or no file")
}

// TestReleased: who claims an instance that was another's has nothing of the other's.
func TestReleased(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("a", g.URL))
	claim := func(user, tgUser, want string) {
		t.Helper()
		_, err := w.Claim(t.Context(), "a", user, tgUser)
		must(t, err)
		w.look(t.Context())
		if got := h.values("a", "gateway.allowFrom"); got != want {
			t.Errorf("%s: %s, not %s", user, got, want)
		}
	}
	claim("ana", "111", `["111"]`)
	claim("ana", "", `["111"]`) // which changes nothing
	_, err := w.SetBot(t.Context(), "a", "bot")
	must(t, err)
	must(t, w.change(t.Context(), "a", func(c *state.Control) { c.User = "" }))
	w.pass(time.Second)
	claim("bob", "", `[]`)
	if c := w.control("a"); c.BotRef != "" || c.TgUser != "" {
		t.Errorf("%+v", c)
	}
	must(t, w.change(t.Context(), "a", func(c *state.Control) { c.BotRef = "ka" })) // a secret, and no token of a bot
	w.fails("config_sync", "names none such as")
}

// TestMasterKilled: the next master begins at once what the last one had begun, and does not wait for the end of its lease.
func TestMasterKilled(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("a", g.URL))
	spec := jobs.Spec{ObjectType: jobs.Instance, ObjectID: "a", Action: jobs.InitInstance, RunAt: w.clock()}
	_, _, err := w.due.Enqueue(t.Context(), spec)
	must(t, err)
	_, err = w.due.Pull(t.Context(), jobs.Pull{WorkerID: workerID})
	must(t, err)
	w.resume(t.Context())
	if list := w.due.Where(func(j *jobs.Job) bool { return j.Status == jobs.Queued && j.Attempt == 1 }); len(list) != 1 {
		t.Errorf("%+v", w.due.Where(func(*jobs.Job) bool { return true }))
	}
}
