package shared

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// rules are the shared queue told plainly. Its clock moves by hand, in steps of ten seconds; leases and waits last a number of
// seconds that is none of these, so that what the database takes for a statement changes nothing.
type rules struct {
	now      int
	tasks    map[string]*told
	accounts map[string]*account
	beats    map[string]int // by name of the worker
}

type told struct {
	id, status, tool, account, tenant, queue, session, by, host, worker, note string
	priority, attempt, retries, most, created, started                        int
	due, next, expires                                                        int // 0: none
	cancel                                                                    bool
}

type account struct {
	tool      string
	most      int
	isEnabled bool
	cool      int
}

const (
	leaseTime = 35
	silence   = 3 * leaseTime
)

// workers by name, and their hosts.
var hostOf = map[string]string{"first": "a", "second": "a", "third": "b"}

func (t *told) isHeld() bool { return t.status == "leased" || t.status == "running" }

// isBefore is the order in a session.
func (t *told) isBefore(o *told) bool {
	return t.created < o.created || t.created == o.created && t.id < o.id
}

func (r *rules) home(of *told) string {
	var last *told
	for _, t := range r.tasks {
		if of.session != "" && t.session == of.session && t.tenant == of.tenant && t.host != "" && (last == nil || t.started > last.started) {
			last = t
		}
	}
	if last == nil {
		return ""
	}
	return last.host
}

func (r *rules) mayRun(t *told, host string) bool {
	if t.session == "" {
		return true
	}
	for _, o := range r.tasks {
		if o.session == t.session && o.tenant == t.tenant && (o.isHeld() || o.status == "queued" && o.due <= r.now && o.isBefore(t)) {
			return false
		}
	}
	home, has := r.home(t), r.accounts["one"] // which all workers have
	if !has.isEnabled || t.tool != "" && t.tool != has.tool || t.account != "" && t.account != "one" {
		return true
	}
	for worker, beat := range r.beats {
		if hostOf[worker] == home && home != host && beat > r.now-silence {
			return false
		}
	}
	return true
}

func (r *rules) running(id string) (n int) {
	for _, t := range r.tasks {
		if t.by == id && t.isHeld() {
			n++
		}
	}
	return n
}

// lease returns the tasks that are leased, in their order.
func (r *rules) lease(worker, id string, most int, f Filter, step int) (list []*told) {
	a, host := r.accounts[id], hostOf[worker]
	if !a.isEnabled || a.cool > r.now {
		return nil
	}
	for _, t := range r.tasks {
		if t.status == "queued" && t.due <= r.now && t.next <= r.now && (t.tool == "" || t.tool == a.tool) && (t.account == "" || t.account == id) &&
			(f.TenantID == "" || t.tenant == f.TenantID) && (f.Queue == "" || t.queue == f.Queue) && r.mayRun(t, host) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(x, y *told) int {
		switch {
		case x.priority != y.priority:
			return y.priority - x.priority
		case x.isBefore(y):
			return -1
		}
		return 1
	})
	list = list[:min(len(list), max(0, min(most, a.most-r.running(id))))]
	for _, t := range list {
		t.note = ""
		if home := r.home(t); home != "" && home != host {
			t.note = "the conversation of session " + t.session + " is on " + home + ", which has no worker for it any more; a new one was begun"
		}
	}
	for _, t := range list {
		t.status, t.by, t.tool, t.worker, t.host, t.expires, t.next, t.started = "leased", id, a.tool, worker, host, r.now+leaseTime, 0, step
		t.attempt++
	}
	return list
}

// reclaim ends leases that are over.
func (r *rules) reclaim() {
	for _, t := range r.tasks {
		if !t.isHeld() || t.expires >= r.now {
			continue
		}
		switch t.ends("queued"); {
		case t.cancel:
			t.status = "canceled"
		case t.attempt-t.retries >= t.most:
			t.status = "deadletter"
		}
	}
}

func (t *told) ends(status string) { t.status, t.by, t.expires = status, "", 0 }

// row is how the test compares tasks: times as what is left of them.
func (t *told) row(now int) string {
	left := func(at int) string {
		if at == 0 {
			return "-"
		}
		return fmt.Sprint(int(math.Ceil(float64(at-now) / 5)))
	}
	return fmt.Sprintf("%s %s tool=%s by=%s host=%s attempt=%d retries=%d cancel=%t expires=%s due=%s next=%s ended=%t note=%q", t.id, t.status, t.tool, t.by, t.host, t.attempt, t.retries, t.cancel,
		left(t.expires), left(t.due), left(t.next), t.status != "queued" && !t.isHeld(), t.note)
}

const rowsSQL = `SELECT id || ' ' || status || ' tool=' || coalesce(tool, '') || ' by=' || coalesce(leased_by, '') || ' host=' || coalesce(worker_host, '') || ' attempt=' || attempt || ' retries=' || retries
	|| ' cancel=' || cancel_requested || ' expires=' || coalesce(ceil(extract(epoch FROM lease_expires_at - now()) / 5)::int::text, '-') || ' due=' || ceil(extract(epoch FROM scheduled_at - now()) / 5)::int
	|| ' next=' || coalesce(ceil(extract(epoch FROM next_attempt_at - now()) / 5)::int::text, '-') || ' ended=' || (finished_at IS NOT NULL) || ' note="' || coalesce(note, '') || '"'
	FROM tasks ORDER BY id::text`

// TestAlike: the statements do what the rules say, whatever comes in whatever order. STINT_TEST_ALIKE is the number of histories.
func TestAlike(t *testing.T) {
	histories := "60"
	if s := os.Getenv("STINT_TEST_ALIKE"); s != "" {
		histories = s
	}
	must(t, flag.Set("rapid.checks", histories))
	q, ctx, tt := newQueue(t), context.Background(), t
	maker := tables.Maker{Host: "a", MaxAttempts: 3, RunDir: func(string) string { return "" }}
	ids := map[string]uuid.UUID{"first": uuid.New(), "second": uuid.New(), "third": uuid.New()}
	rapid.Check(t, func(rt *rapid.T) {
		q.exec(t, "TRUNCATE tasks, worker_registry, accounts CASCADE")
		q.exec(t, "INSERT INTO accounts (id, tool, max_concurrency) VALUES ('one', 'codex', 2), ('two', 'codex', 1), ('three', 'claude', 3)")
		r := &rules{now: 1000, tasks: map[string]*told{}, beats: map[string]int{}, accounts: map[string]*account{"one": {"codex", 2, true, 0}, "two": {"codex", 1, true, 0}, "three": {"claude", 3, true, 0}}}
		step := 0
		var leases []Claim // all that ever were
		ok := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		choose := func(rt *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(rt, "of") }
		workerOf := func(rt *rapid.T) (string, Holder) {
			name := choose(rt, "first", "second", "third")
			return name, Holder{ids[name], hostOf[name], leaseTime * time.Second}
		}
		some := func(rt *rapid.T) (h Holder, list []Claim, held []*told) {
			name, h := workerOf(rt)
			if len(leases) > 0 {
				list = rapid.SliceOfNDistinct(rapid.SampledFrom(leases), 0, 4, rapid.ID[Claim]).Draw(rt, "claims")
			}
			for _, c := range list {
				if t := r.tasks[c.ID]; t.isHeld() && t.attempt == c.Attempt && t.worker == name {
					held = append(held, t)
				}
			}
			return h, list, held
		}
		one := func(rt *rapid.T) *told {
			if len(r.tasks) == 0 {
				return &told{id: newID(), status: "unknown"}
			}
			return r.tasks[rapid.SampledFrom(slices.Sorted(maps.Keys(r.tasks))).Draw(rt, "task")]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": func(rt *rapid.T) {
				var specs []task.TaskSpec
				for range rapid.IntRange(1, 3).Draw(rt, "n") {
					s := task.TaskSpec{
						Prompt: "p", Agent: choose(rt, "", "codex", "claude"), SessionKey: choose(rt, "", "", "s", "t"), Account: choose(rt, "", "", "", "one"), TenantID: choose(rt, "x", "y"),
						Queue: choose(rt, "v", "w"), Priority: rapid.IntRange(4, 6).Draw(rt, "priority"), MaxAttempts: rapid.IntRange(1, 2).Draw(rt, "most"),
					}
					if s.Account != "" { // of another agent it is refused
						s.Agent = ""
					}
					if rapid.IntRange(0, 4).Draw(rt, "later") == 0 {
						s.NotBefore = time.Now().Add(25 * time.Second)
					}
					specs = append(specs, s)
				}
				list, err := q.Enqueue(ctx, specs)
				ok(err)
				for i, s := range specs {
					due := r.now
					if !s.NotBefore.IsZero() {
						due += 25
					}
					r.tasks[list[i].ID] = &told{
						id: list[i].ID, status: "queued", tool: s.Agent, account: s.Account, tenant: s.TenantID, queue: s.Queue, session: s.SessionKey, priority: s.Priority, most: s.MaxAttempts,
						created: step, due: due,
					}
				}
			},
			"lease": func(rt *rapid.T) {
				name, h := workerOf(rt)
				id, most := choose(rt, "one", "two", "three"), rapid.IntRange(1, 3).Draw(rt, "most")
				f := Filter{choose(rt, "", "", "", "x"), choose(rt, "", "", "", "w")}
				list, err := q.Lease(ctx, h, id, most, f)
				ok(err)
				want := r.lease(name, id, most, f, step)
				if len(list) != len(want) {
					rt.Fatalf("%s leased %d for %s, not %d", name, len(list), id, len(want))
				}
				for i, t := range list {
					if t.ID != want[i].id || t.Attempt != want[i].attempt || t.LeasedBy != id || t.Tool != want[i].tool {
						rt.Fatalf("leased %+v, not %+v", t, want[i])
					}
					leases = append(leases, Claim{t.ID, t.Attempt})
				}
			},
			"renew": func(rt *rapid.T) {
				h, list, held := some(rt)
				kept, err := q.Renew(ctx, h, list)
				ok(err)
				for _, t := range held {
					if t.expires = r.now + leaseTime; !slices.Contains(kept, Claim{t.id, t.attempt}) {
						rt.Fatalf("%v was not renewed", t)
					}
				}
				if len(kept) != len(held) {
					rt.Fatalf("renewed %v of %v", kept, held)
				}
			},
			"start": func(rt *rapid.T) {
				h, list, held := some(rt)
				ok(q.Start(ctx, h, list))
				for _, t := range held {
					t.status = "running"
				}
			},
			"give back": func(rt *rapid.T) {
				h, list, held := some(rt)
				begun := rapid.Bool().Draw(rt, "begun")
				ok(q.giveBack(ctx, h, list, begun, "why"))
				for _, t := range held {
					if !begun {
						t.retries++
					}
					switch t.ends("queued"); {
					case t.cancel:
						t.status = "canceled"
					case t.attempt-t.retries >= t.most:
						t.status = "deadletter"
					}
					t.note, t.host = "why", "" // nothing of it has run
				}
			},
			"finish": func(rt *rapid.T) {
				h, list, held := some(rt)
				status, note := choose(rt, "", "done", "failed", "dead", "canceled"), choose(rt, "", "twin's")
				var ended []Ended
				for _, c := range list {
					e := Ended{Claim: c, Refused: "no good"}
					if status != "" {
						rows, err := maker.Of(&task.TaskRecord{Task: state.Task{ID: newID(), Status: state.Status(status), Agent: "codex", Prompt: "other", Note: note, CreatedAt: time.Now(), UpdatedAt: time.Now()}})
						ok(err)
						e = Ended{Claim: c, Rows: rows}
					}
					ended = append(ended, e)
				}
				done, err := q.Finish(ctx, h, ended)
				if ok(err); len(done) != len(ended) {
					rt.Fatalf("%v of %v are done", done, ended)
				}
				for _, t := range held {
					t.ends(map[string]string{"": "failed", "done": "succeeded", "failed": "failed", "dead": "deadletter", "canceled": "canceled"}[status])
					if note != "" && status != "" {
						t.note = strings.TrimPrefix(t.note+"; "+note, "; ")
					}
					t.next = 0
				}
			},
			"reclaim": func(*rapid.T) {
				ok(q.Reclaim(ctx))
				r.reclaim()
			},
			"time": func(rt *rapid.T) {
				d := 10 * rapid.IntRange(1, 5).Draw(rt, "tens")
				r.now += d
				q.exec(t, `UPDATE tasks SET lease_expires_at = lease_expires_at - $1 * interval '1 s', scheduled_at = scheduled_at - $1 * interval '1 s', next_attempt_at = next_attempt_at - $1 * interval '1 s',
					created_at = created_at - $1 * interval '1 s', started_at = started_at - $1 * interval '1 s'`, d)
				q.exec(t, "UPDATE accounts SET cool_until = cool_until - $1 * interval '1 s'", d)
				q.exec(t, "UPDATE worker_registry SET last_heartbeat = last_heartbeat - $1 * interval '1 s'", d)
			},
			"wait": func(rt *rapid.T) { // as another program may let one wait
				if t := one(rt); t.status == "queued" {
					t.next = r.now + 25
					q.exec(tt, "UPDATE tasks SET next_attempt_at = now() + interval '25 s' WHERE id = $1", t.id)
				}
			},
			"cancel": func(rt *rapid.T) {
				t := one(rt)
				_, err := q.Cancel(ctx, t.id)
				r.reclaim()
				if isOpen := t.isHeld() || t.status == "queued"; isOpen != (err == nil) {
					rt.Fatalf("canceled one that is %s: %v", t.status, err)
				}
				if t.status == "queued" {
					t.status = "canceled"
				} else if t.isHeld() {
					t.cancel = true
				}
			},
			"requeue": func(rt *rapid.T) {
				t := one(rt)
				_, err := q.Requeue(ctx, t.id)
				r.reclaim()
				if isOpen := t.isHeld() || t.status == "queued" || t.status == "unknown"; isOpen != (err != nil) {
					rt.Fatalf("requeued one that is %s: %v", t.status, err)
				} else if !isOpen {
					t.status, t.retries, t.cancel, t.next, t.note = "queued", t.attempt, false, 0, ""
				}
			},
			"account": func(rt *rapid.T) {
				id, most, enabled := choose(rt, "one", "two", "three"), rapid.IntRange(1, 3).Draw(rt, "most"), rapid.IntRange(0, 3).Draw(rt, "enabled") > 0
				given := &enabled
				if rapid.Bool().Draw(rt, "limits only") {
					given = nil
				}
				ok(q.SetAccount(ctx, id, given, most))
				a := r.accounts[id]
				if most > 0 {
					a.most = most
				}
				if given != nil {
					if a.isEnabled = enabled; enabled {
						a.cool = 0
					}
				}
			},
			"cool": func(rt *rapid.T) {
				id, wait := choose(rt, "one", "two", "three"), rapid.SampledFrom([]int{0, 25}).Draw(rt, "wait")
				ok(q.Cool(ctx, id, time.Duration(wait)*time.Second))
				if r.accounts[id].cool = 0; wait > 0 {
					r.accounts[id].cool = r.now + wait
				}
			},
			"beat": func(rt *rapid.T) {
				name, h := workerOf(rt)
				ok(q.Beat(ctx, h, task.WorkerRow{Accounts: "one"}))
				r.beats[name] = r.now
				maps.DeleteFunc(r.beats, func(_ string, beat int) bool { return beat < r.now-silence })
			},
			"leave": func(rt *rapid.T) {
				name, h := workerOf(rt)
				q.exec(t, "DELETE FROM worker_registry WHERE worker_id = $1", h.Worker)
				delete(r.beats, name)
			},
			"": func(rt *rapid.T) {
				step++
				var want []string
				for _, id := range slices.Sorted(maps.Keys(r.tasks)) {
					want = append(want, r.tasks[id].row(r.now))
				}
				rows, _ := q.pool.Query(ctx, rowsSQL)
				got, err := pgx.CollectRows(rows, pgx.RowTo[string])
				ok(err)
				if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
					rt.Fatalf("there is\n%s\nand should be\n%s", g, w)
				}
				accounts, err := q.Accounts(ctx)
				ok(err)
				for _, a := range accounts {
					if w := r.accounts[a.ID]; a.Max != w.most || a.Enabled != w.isEnabled || a.Running != r.running(a.ID) || a.CoolUntil.IsZero() != (w.cool == 0) {
						rt.Fatalf("account %+v should be %+v with %d", a, w, r.running(a.ID))
					}
				}
				for name, h := range ids {
					claims, err := q.HeldBy(ctx, Holder{Worker: h})
					ok(err)
					n := 0
					for _, t := range r.tasks {
						if t.worker == name && t.isHeld() {
							canceled, has := claims[Claim{t.id, t.attempt}]
							if n++; !has || canceled != t.cancel {
								rt.Fatalf("%s does not find its lease of %s", name, t.id)
							}
						}
					}
					if n != len(claims) {
						rt.Fatalf("%s finds %d leases, not %d", name, len(claims), n)
					}
				}
			},
		})
	})
}
