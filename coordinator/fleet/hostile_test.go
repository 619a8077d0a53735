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

// TestHostileLiteLLM: figures that cannot be are not kept, and keep nobody else's from being; nor is what was not asked for.
func TestHostileLiteLLM(t *testing.T) {
	t.Parallel()
	w, l := newKeys(t)
	w.well("token_usage_sync", "read 2 instances, 4 days have changed")
	was, err := os.ReadFile(filepath.Join(w.dir, usageName))
	must(t, err)
	day := func(date, metrics string) string {
		return `{"date": "` + date + `", "metrics": {` + metrics + `}}`
	}
	const much = `"spend": 1, "total_tokens": 1, "api_requests": 1`
	var many []string
	for i := range 5000 {
		many = append(many, day(start.AddDate(0, 0, -i-2).Format(time.DateOnly), much))
	}
	for _, days := range []string{
		day("9999-12-31", much), day("0000-01-01", much), day("2026-11-27", much), day("2026-11-29T00:00:00Z", much), strings.Join(many, ","),
		day("2026-11-29", `"spend": 1e308`), day("2026-11-29", `"spend": 10000`), day("2026-11-29", `"spend": 9999.9999999`), day("2026-11-29", `"spend": -0.01`),
		day("2026-11-29", `"total_tokens": -1`), day("2026-11-29", `"api_requests": -1`), day("2026-11-29", `"api_requests": 2147483648`),
		day("2026-11-29", `"spend": NaN`), day("2026-11-29", `"spend": 1e999`), day("2026-11-29", `"total_tokens": 9223372036854775808`), day("2026-11-29", `"api_requests": 1e30`), day("2026-11-29", `"api_requests": null`) + "]",
		strings.Repeat(" ", 10<<20),
	} {
		l.change(func() { l.answer = `{"results": [` + days + `]}` })
		if _, err := w.job("token_usage_sync"); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.100s: %.500v", days, err)
		}
		if now, err := os.ReadFile(filepath.Join(w.dir, usageName)); err != nil || string(now) != string(was) {
			t.Errorf("%.100s: %v: %.1000s", days, err, now)
		}
	}
	l.change(func() {
		l.answer = `{"results": [` + day("2026-11-29", `"spend": 9999.999999, "total_tokens": 9223372036854775807, "api_requests": 2147483647`) + `]}`
	})
	w.well("token_usage_sync", "read 2 instances, 2 days have changed")
	for _, info := range []string{`"spend": 1e308, "max_budget": 1e308`, `"spend": -1e308, "max_budget": 1e308`, `"spend": 0, "max_budget": 10`} {
		l.change(func() { l.answer = `{"info": {` + info + `}}` })
		w.well("key_balance_alert", "read 2 keys")
	}
	if len(w.told) > 2 || len(strings.Join(w.told, "")) > 200 {
		t.Errorf("%q", w.told)
	}
}

// TestHostileSamples: of a server that lies about itself nothing is kept.
func TestHostileSamples(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	w := newWorld(t, func(o *Options) { o.Servers = []Server{{h.name, h.name}} })
	for _, bad := range []string{"x NaN 1", "x -1 1", "x 1e15 1", "x 1"} {
		h.write("bin/df", "#!/bin/sh\necho '"+bad+"'\n", 0o755)
		w.fails("server_metrics", h.name+": ")
	}
	if list, err := w.Metrics(h.name, 10); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
