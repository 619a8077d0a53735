package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"stint/coordinator/task"
	"stint/state/jobs"
)

const token = "123456:" + secret

// values returns fields of a configuration, which has to be whole.
func (h *host) values(id string, paths ...string) string {
	h.Helper()
	root, err := parseConfig([]byte(h.read(config(id))))
	must(h, err)
	var list []string
	for _, path := range paths {
		list = append(list, textOf(field(root, path)))
	}
	return strings.Join(list, " ")
}

// TestSetup follows an instance from its claim to its bot.
func TestSetup(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("shop", g.URL))
	user := `$(touch stint-canary); '"ana`
	if in, err := w.Claim(t.Context(), "shop", user, "77"); err != nil || in.User != user || in.TgUser != "77" || in.Setup != "" {
		t.Fatalf("%+v, %v", in, err)
	}
	_, err := w.Claim(t.Context(), "shop", "bob", "")
	if w.say(err); !errors.Is(err, &task.Error{Code: task.CodeConflict}) || strings.Contains(err.Error(), "ana") {
		t.Errorf("a second user: %v", err)
	}
	if _, err := w.Claim(t.Context(), "shop", user, "77"); err != nil {
		t.Error(err)
	}
	w.look(t.Context())
	if list := w.setup("shop"); len(list) != 1 || list[0].Status != jobs.Succeeded || list[0].Priority != "high" {
		t.Fatalf("%+v", list)
	}
	fields := []string{"agents.defaults.model.primary", "gateway.dmPolicy", "gateway.allowFrom", "port", "channels"}
	if got, want := h.values("shop", fields...), `"new" "allowlist" ["77"] 18789123456789012345 null`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	boot := odd + "/shop/BOOTSTRAP.md"
	if h.read(boot) != bootstrap || h.read("restarts") != "restart -- claw@shop.service\n" {
		t.Errorf("%q, %q", h.read(boot), h.read("restarts"))
	}
	must(t, os.Remove(filepath.Join(h.dir, boot))) // the assistant has read it

	for _, bad := range []string{"none", "wrong"} {
		_, err := w.SetBot(t.Context(), "shop", bad)
		if w.say(err); !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	w.pass(time.Second)
	in, err := w.SetBot(t.Context(), "shop", "bot")
	if must(t, err); in.BotRef != "bot" {
		t.Errorf("%+v", in)
	}
	w.look(t.Context())
	if in, err := w.Instance("shop"); err != nil || in.Setup != jobs.Succeeded || h.values("shop", botField) != `"`+token+`"` || exists(filepath.Join(h.dir, boot)) {
		t.Errorf("%+v, %v, %s", in, err, h.values("shop", botField))
	}
}

func TestClaimRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, Instance{ID: "a", Server: "s", ConfigPath: "/c", Service: "a", Gateway: "http://g"})
	for _, args := range [][3]string{{"b", "ana", ""}, {"a", "", ""}, {"a", " ana", ""}, {"a", "a\nb", ""}, {"a", strings.Repeat("x", 129), ""}, {"a", "ana", "@ana"}, {"a", "ana", "-1"}} {
		if _, err := w.Claim(t.Context(), args[0], args[1], args[2]); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) && !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
			t.Errorf("%q: %v", args, err)
		}
	}
	w.leaving = true
	_, err := w.Claim(t.Context(), "a", "ana", "")
	must(t, err)
	if w.look(t.Context()); len(w.setup("a")) != 0 {
		t.Error("a master that leaves begins something")
	}
	_, wrong := w.SetBot(t.Context(), "b", "bot")
	_, unknown := w.Act(t.Context(), "b", "check", false)
	if !errors.Is(wrong, &task.Error{Code: task.CodeNotFound}) || !errors.Is(unknown, &task.Error{Code: task.CodeNotFound}) {
		t.Error(wrong, unknown)
	}
}

// TestRunSetsUp has a running fleet take up a claim by itself, and end what it has begun.
func TestRunSetsUp(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("shop", g.URL))
	noted := make(chan struct{})
	w.Fleet.jobs = &noting{w.due, noted}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	_, err := w.Claim(t.Context(), "shop", "ana", "")
	must(t, err)
	<-noted
	end()
	<-ended
	if got := h.values("shop", "gateway.dmPolicy", "gateway.allowFrom"); got != `"allowlist" []` {
		t.Error(got)
	}
}

// A noting is a room of due jobs that says when a job has ended.
type noting struct {
	Jobs
	noted chan struct{}
}

func (n *noting) Ack(ctx context.Context, id string, a jobs.Ack) (jobs.Job, error) {
	j, err := n.Jobs.Ack(ctx, id, a)
	close(n.noted)
	return j, err
}

// TestClaimAndBotBeforeTheJob: what asks for another setup before the first has a job takes nothing away from that.
func TestClaimAndBotBeforeTheJob(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("shop", g.URL))
	_, err := w.Claim(t.Context(), "shop", "ana", "")
	must(t, err)
	w.pass(time.Second)
	_, err = w.SetBot(t.Context(), "shop", "bot")
	must(t, err)
	w.look(t.Context())
	if h.read(odd+"/shop/BOOTSTRAP.md") != bootstrap || h.values("shop", botField) != `"`+token+`"` {
		t.Error("there is no BOOTSTRAP.md, or no bot")
	}
}

// TestSetupAfterACrash ends a master at each connection of a setup; the next one, which knows the ledgers alone, completes it.
func TestSetupAfterACrash(t *testing.T) {
	t.Parallel()
	for n := range 5 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			h, g := newHost(t), newGateway(t)
			w := newWorld(t, nil, h.instance("shop", g.URL))
			_, err := w.Claim(t.Context(), "shop", "ana", "5")
			must(t, err)
			if n > 0 { // else it ends before there is a job
				ctx, crash := context.WithCancel(t.Context())
				h.see(func(at int) bool {
					if at == n {
						crash()
					}
					return at < n
				})
				w.look(ctx)
				h.see(nil)
				if list := w.setup("shop"); len(list) != 1 || list[0].Status != jobs.Running {
					t.Fatalf("%+v", list)
				}
				w.pass(6 * time.Minute)
				w.reclaimed(func(j jobs.Job) bool { return j.Status == jobs.Failed })
				w.well("pending_task_retry", "queued 1 again")
			}
			w.Fleet = New(w.room, w.due, w.opts)
			w.look(t.Context())
			if list := w.setup("shop"); len(list) != 1 || list[0].Status != jobs.Succeeded || list[0].Attempt != min(n, 1) {
				t.Errorf("%+v", list)
			}
			if h.values("shop", "gateway.allowFrom") != `["5"]` || h.read(odd+"/shop/BOOTSTRAP.md") != bootstrap || !strings.Contains(h.read("restarts"), "claw@shop") {
				t.Error("it is not set up")
			}
		})
	}
}

// TestSetupFails: an attempt that fails is failed, is queued again by pending_task_retry, and with the third it is a dead letter.
func TestSetupFails(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("shop", g.URL))
	_, err := w.Claim(t.Context(), "shop", "ana", "")
	must(t, err)
	h.set("broken")
	for attempt := 1; attempt <= 3; attempt++ {
		w.look(t.Context())
		w.look(t.Context()) // not before it is queued again
		want := map[bool]string{true: jobs.DeadLetter, false: jobs.Failed}[attempt == 3]
		list := w.setup("shop")
		if len(list) != 1 || list[0].Status != want || list[0].Attempt != attempt || !strings.Contains(list[0].Reason(), "Job for claw@shop.service failed") {
			t.Fatalf("%d: %+v", attempt, list)
		}
		if in, _ := w.Instance("shop"); in.Setup != want || !strings.Contains(in.Detail, "claw@shop.service failed") {
			t.Errorf("%+v", in)
		}
		w.well("pending_task_retry", fmt.Sprintf("queued %d again", map[bool]int{false: 1}[attempt == 3]))
	}
	h.unset("broken")
	_, err = w.due.Retry(t.Context(), w.setup("shop")[0].ID)
	must(t, err)
	if w.look(t.Context()); w.setup("shop")[0].Status != jobs.Succeeded {
		t.Errorf("%+v", w.setup("shop"))
	}
}

// TestManySetups: sshd refuses connections at random where many are begun at one time.
func TestManySetups(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	var list []Instance
	for i := range mostSetups {
		list = append(list, h.instance(fmt.Sprintf("i%d", i), g.URL))
	}
	w := newWorld(t, nil, list...)
	for _, in := range list {
		_, err := w.Claim(t.Context(), in.ID, "ana", "")
		must(t, err)
	}
	w.look(t.Context())
	if _, most := h.counts(); len(w.due.Where(func(j *jobs.Job) bool { return j.Status == jobs.Succeeded })) != mostSetups || most > 2*mostSSH { // an sshd ends a little after its ssh
		t.Errorf("%d connections at one time", most)
	}
}

// TestConfigSync reports and repairs, and never shows a secret.
func TestConfigSync(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	one, two := h.instance("one", g.URL), h.instance("two", g.URL)
	two.Desired = map[string]any{"agents.defaults.model.primary": "old", "agents": map[string]any{"auth": map[string]any{"pass": "plain-" + secret}}, "list": []any{map[string]any{"pin": secret}}}
	w := newWorld(t, nil, one, two)
	h.write(config("one"), `{"channels": {"telegram": {"botToken": "9:`+secret+`-old"}}, "agents": {"defaults": {"model": {"primary": "old"}}}}`, 0o600)
	_, err := w.SetBot(t.Context(), "one", "bot")
	must(t, err)
	was := h.read(config("one"))
	const first, second = `agents.defaults.model.primary is "old", not "new", channels.telegram.botToken is another one`, "agents.auth.pass is another one, list is another one"
	w.well("config_sync", "2 of 2 differ: one: "+first+"; two: "+second)
	if h.read(config("one")) != was || h.read("restarts") != "" {
		t.Error("a report changes something")
	}
	w.opts.Repair = true
	h.set("broken")
	w.fails("config_sync", "2 of 2 failed", "claw@one.service failed", "2 of 2 differ")
	h.unset("broken")
	w.well("config_sync", "2 of 2 differ: one: repaired: restarted; two: repaired: restarted")
	if got := h.values("two", "agents.defaults.model.primary", "port"); got != `"old" 18789123456789012345` {
		t.Error("what nobody has named is gone: " + got)
	}
	for _, id := range []string{"one", "two"} { // a configuration that was repaired counts once it was read
		if n := strings.Count(h.read("restarts"), id); n != 2 {
			t.Errorf("%s was restarted %d times", id, n)
		}
	}
	if got := h.values("one", "agents.defaults.model.primary", botField); got != `"new" "`+token+`"` {
		t.Error("it is not repaired")
	}
	w.well("config_sync", "0 of 2 differ")
	if detail, err := w.Act(t.Context(), "one", "sync", true); err != nil || detail != "it is as it has to be" {
		t.Error(detail, err)
	}
}

// TestConfigFaults: whatever goes wrong, a configuration is the old one or the new one, with its mode, and nothing is left beside it.
func TestConfigFaults(t *testing.T) {
	t.Parallel()
	change := func(text string) func(*host) {
		return func(h *host) { h.write(config("a"), text, 0o640) }
	}
	for name, c := range map[string]struct {
		do   func(h *host)
		want string // part of the error
	}{
		"well":      {func(*host) {}, ""},
		"truncated": {change(`{"agents": {"defaults"`), "open claw.json is not changed: it is no object of JSON"},
		"null":      {change(`null`), "it is no object of JSON"},
		"list":      {change(`[]`), "it is no object of JSON"},
		"two":       {change(`{} {}`), "there is more behind its end"},
		"empty":     {change(``), "it is no object of JSON"},
		"scalar":    {change(`{"agents": 1}`), "agents is no object"},
		"down":      {func(h *host) { _ = h.ln.Close() }, "cannot be reached: "},
		"cut off":   {func(h *host) { h.see(func(n int) bool { return n != 2 }) }, "cannot be reached: "},
		"other key": {func(h *host) { h.key("other") }, "cannot be reached: "},
		"lost":      {func(h *host) { h.set("cut") }, "was cut off on its way, and is as it was"},
		"between": {func(h *host) {
			h.see(func(n int) bool {
				if n == 2 {
					h.write(config("a"), `{"by": "hand"}`, 0o640)
				}
				return true
			})
		}, "has changed meanwhile, and is as it is"},
		"link": {func(h *host) {
			path := filepath.Join(h.dir, config("a"))
			must(h, errors.Join(os.Rename(path, path+".real"), os.Symlink("open claw.json.real", path)))
		}, "is a link"},
		"dangling": {func(h *host) {
			path := filepath.Join(h.dir, config("a"))
			must(h, errors.Join(os.Remove(path), os.Symlink("/nowhere", path)))
		}, "is a link"},
		"denied":        {func(h *host) { h.set("user"); h.set("denied") }, "sudo: a password is required"},
		"no restart":    {func(h *host) { h.set("broken") }, "Job for claw@a.service failed"},
		"killed":        {func(h *host) { h.set("killed") }, "server h"},
		"made anew":     {func(h *host) { must(h, os.Remove(filepath.Join(h.dir, config("a")))) }, ""},
		"no directory":  {func(h *host) { must(h, os.RemoveAll(filepath.Join(h.dir, odd))) }, "server h"},
		"as other user": {func(h *host) { h.set("user") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, g := newHost(t), newGateway(t)
			w := newWorld(t, nil, h.instance("a", g.URL))
			w.opts.Repair = true
			path := filepath.Join(h.dir, config("a"))
			c.do(h)
			before, _ := os.Lstat(path)
			was := h.read(config("a"))
			if name == "between" {
				was = `{"by": "hand"}`
			}
			if c.want == "" {
				w.well("config_sync", `1 of 1 differ: a: repaired: agents.defaults.model.primary is `+map[bool]string{true: "null", false: `"old"`}[name == "made anew"]+`, not "new"`)
			} else {
				w.fails("config_sync", "1 of 1 failed: a: ", c.want)
			}
			now := h.read(config("a"))
			if isWhole := json.Valid([]byte(now)) && strings.Contains(now, `"primary": "new"`); now != was && !isWhole {
				t.Errorf("%q, which was %q", now, was)
			}
			if isDone := strings.Contains(now, "new"); isDone != (c.want == "" || name == "denied" || name == "no restart") {
				t.Errorf("%q", now)
			}
			if after, err := os.Lstat(path); before != nil && (err != nil || after.Mode() != before.Mode()) {
				t.Errorf("%v, %v", after, err)
			} else if name == "made anew" && after.Mode() != 0o600 {
				t.Error(after.Mode())
			}
			entries, _ := os.ReadDir(filepath.Dir(path))
			if most := map[string]int{"killed": 2, "link": 2, "no directory": 0}; len(entries) != most[name] && (most[name] != 0 || len(entries) > 1) {
				t.Errorf("left behind: %v", entries)
			}
			if name == "as other user" && h.read("sudo-was")+h.read("restarts") != "-n\nrestart -- claw@a.service\n" {
				t.Error(h.read("sudo-was"), h.read("restarts"))
			}
		})
	}
}

// root skips a test that only root can make.
func root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "this needs root")
	}
}

// disk mounts a file system of 64 KiB.
func disk(t testing.TB, dir string) {
	t.Helper()
	root(t)
	must(t, os.MkdirAll(dir, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0755,size=64k", "none", dir).CombinedOutput(); err != nil {
		missing(t, fmt.Sprintf("a small disk is not to be had: %v: %s", err, out))
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
}

func TestConfigOnFullDisk(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	disk(t, filepath.Join(h.dir, odd))
	w := newWorld(t, nil, h.instance("a", g.URL))
	w.opts.Repair = true
	was := `{"much": "` + strings.Repeat("x", 30<<10) + `"}`
	h.write(config("a"), was, 0o600)
	h.write(odd+"/ballast", strings.Repeat("x", 20<<10), 0o600)
	w.fails("config_sync", "No space left on device")
	entries, _ := os.ReadDir(filepath.Join(h.dir, odd, "a"))
	if h.read(config("a")) != was || len(entries) != 1 || h.read("restarts") != "" {
		t.Errorf("%d bytes, %v", len(h.read(config("a"))), entries)
	}
	h.unset(odd + "/ballast")
	w.well("config_sync", `1 of 1 differ: a: repaired: agents.defaults.model.primary is null, not "new"`)
}

// TestOwner: in the directory of another user, root writes as that user, who could send root elsewhere with a link.
func TestOwner(t *testing.T) {
	t.Parallel()
	root(t)
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("a", g.URL))
	w.opts.Repair = true
	dir := filepath.Join(h.dir, odd, "a")
	h.write("elsewhere", `{"mine": true}`, 0o600)
	const nobody, other = 65534, 4242
	must(t, errors.Join(os.Chown(dir, nobody, other), os.Chown(dir+"/open claw.json", nobody, other), os.Chmod(dir, 0o700)))
	_, err := w.Claim(t.Context(), "a", "ana", "")
	must(t, err)
	w.look(t.Context())
	for _, name := range []string{"open claw.json", "BOOTSTRAP.md"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Sys().(*syscall.Stat_t).Uid != nobody || fi.Sys().(*syscall.Stat_t).Gid != other {
			t.Errorf("%s: %+v, %v", name, fi, err)
		}
	}
	must(t, errors.Join(os.Remove(dir+"/open claw.json"), os.Symlink(h.dir+"/elsewhere", dir+"/open claw.json")))
	w.fails("config_sync", "is a link") // not even read
	must(t, errors.Join(os.Rename(dir, dir+"2"), os.Symlink(h.dir, dir), os.Lchown(dir, nobody, other)))
	h.write("open claw.json", "{}", 0o600)
	w.fails("config_sync", "is a link, or lies behind one")
	above := filepath.Join(h.dir, odd)
	h.write("victim/a/open claw.json", "{}", 0o644)
	must(t, errors.Join(os.Rename(above, above+"2"), os.Symlink(h.dir+"/victim", above), os.Lchown(above, nobody, other)))
	w.fails("config_sync", "is a link, or lies behind one")
	if h.read("victim/a/open claw.json") != "{}" || h.read("elsewhere") != `{"mine": true}` || h.read("open claw.json") != "{}" {
		t.Error("root has written where a user sent it")
	}
}

// TestOneHostHangs: the others are done while it does, and one that cannot be reached is not tried for each of its instances.
func TestOneHostHangs(t *testing.T) {
	t.Parallel()
	h, hangs, down, g := newHost(t), newHost(t), newHost(t), newGateway(t)
	var list []Instance
	for i := range 12 {
		list = append(list, hangs.instance(fmt.Sprintf("hung%d", i), g.URL), down.instance(fmt.Sprintf("down%d", i), g.URL))
	}
	w := newWorld(t, nil, append(list, h.instance("a", g.URL), h.instance("b", g.URL))...)
	w.opts.Repair = true
	ctx, cancel := context.WithCancel(t.Context())
	hangs.set("hangs")
	down.see(func(int) bool { return false })
	ended := make(chan error)
	go func() { _, err := w.Jobs()["config_sync"](ctx); ended <- err }()
	for deadline := time.Now().Add(sshTimeout / 2); strings.Count(h.read("restarts"), "restart") < 2 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	cancel()
	err := <-ended
	hangs.unset("hangs")
	tried, _ := down.counts()
	begun, _ := hangs.counts()
	if w.say(err); err == nil || !strings.Contains(err.Error(), "down7: open claw.json: server "+down.name+" cannot be reached: ") || tried > mostSSH || begun > mostSSH {
		t.Errorf("%v, %d and %d connections", err, tried, begun)
	}
	if h.values("a", "agents.defaults.model.primary")+h.values("b", "agents.defaults.model.primary") != `"new""new"` {
		t.Error("the others wait for it")
	}
	w.Fleet = New(w.room, w.due, w.opts) // the next round is as any other
	w.fails("config_sync", "12 of 26 failed: down0: ")
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"a": {"b": [1, {"c": null}]}}`, `{"a":1}{"b":2}`, `{"a": "` + "\xff" + `"}`, `{"a"`, "// no\n{}", strings.Repeat("[", 20000)} {
		f.Add([]byte(seed), "a.b")
	}
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		root, err := parseConfig(text)
		if err != nil || !utf8.ValidString(path) { // it comes from TOML
			return
		}
		if setField(root, path, "x") == nil && field(root, path) != "x" {
			t.Errorf("%q of %q is %v", path, text, field(root, path))
		}
		again, err := parseConfig([]byte(textOf(root)))
		if err != nil || textOf(again) != textOf(root) {
			t.Errorf("%v: %s", err, textOf(root))
		}
	})
}
