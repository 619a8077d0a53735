package shared

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/task"
)

// end finishes leases with the sentence that their tasks have failed.
func (q *Queue) end(ctx context.Context, h Holder, claims []Claim) error {
	var list []Ended
	for _, c := range claims {
		list = append(list, Ended{c, nil, "ended by " + strconv.Itoa(c.Attempt)})
	}
	_, err := q.Finish(ctx, h, list)
	return err
}

// TestAtOnce: workers that lease, give back, lose and finish at the same moment never have one task twice, nor more of an account than it
// allows, nor two of a session; and all tasks end.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	tasks := 2000
	if n, _ := strconv.Atoi(os.Getenv("STINT_TEST_ATONCE")); n > 0 {
		tasks = n
	}
	q, ctx := newQueue(t, "one codex 3", "two claude 3"), t.Context()
	var specs []task.TaskSpec
	for i := range tasks {
		s := task.TaskSpec{Prompt: "p", Priority: 1 + i%9, Agent: []string{"codex", "claude", ""}[i%3], MaxAttempts: 1000}
		if i%4 == 0 {
			s.SessionKey = fmt.Sprint("s", i%10)
		}
		specs = append(specs, s)
	}
	q.add(t, specs...)

	working, done := context.WithCancel(ctx)
	var workers, watcher sync.WaitGroup
	watched := 0
	watcher.Go(func() {
		for ; working.Err() == nil; watched++ {
			q.within(t) // one statement has one snapshot
		}
	})
	var mu sync.Mutex
	seen := map[Claim]bool{}
	for n := range 8 {
		h, random := holder(fmt.Sprint("host", n)), rand.New(rand.NewPCG(1, uint64(n)))
		workers.Go(func() {
			for idle := 0; idle < 400 && !t.Failed(); idle++ { // as long as nothing is left, or waits for others
				account := []string{"one", "two"}[random.IntN(2)]
				list, err := q.Lease(ctx, h, account, 1+random.IntN(3), Filter{})
				if err != nil {
					t.Error(err)
				}
				claims := claims(list)
				mu.Lock()
				for _, c := range claims {
					if seen[c] {
						t.Errorf("%v was leased twice", c)
					}
					seen[c] = true
				}
				mu.Unlock()
				if len(claims) > 0 {
					idle = 0
				} else if left, err := q.Stats(ctx); err == nil && len(left.Tasks) == 0 {
					return
				}
				kept, err := q.Renew(ctx, h, claims)
				if err != nil || len(kept) != len(claims) {
					t.Errorf("renewed %d of %d: %v", len(kept), len(claims), err)
				}
				if err := q.Start(ctx, h, claims); err != nil {
					t.Error(err)
				}
				switch random.IntN(10) {
				case 0:
					err = q.giveBack(ctx, h, claims, false, "it may be another's")
				case 1: // the lease ends, and somebody notices
					for _, c := range claims {
						q.exec(t, "UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = $1 AND attempt = $2 AND status = 'running'", c.ID, c.Attempt)
					}
					err = q.Reclaim(ctx)
				default:
					err = q.end(ctx, h, claims)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	done()
	watcher.Wait()
	var ended, attempts int
	must(t, q.pool.QueryRow(ctx, "SELECT count(*), sum(attempt) FROM tasks WHERE status = 'failed' AND error_message = 'ended by ' || attempt").Scan(&ended, &attempts))
	if ended != tasks || attempts != len(seen) || watched == 0 {
		t.Errorf("%d of %d have ended in %d attempts; %d leases were seen, in %d looks", ended, tasks, attempts, len(seen), watched)
	}
	t.Logf("%d leases, %d looks", len(seen), watched)
}

// giveBack gives back leases whose twins have no runs.
func (q *Queue) giveBack(ctx context.Context, h Holder, claims []Claim, begun bool, why string) (err error) {
	for _, c := range claims {
		err = cmp.Or(err, q.GiveBack(ctx, h, Ended{Claim: c}, begun, why))
	}
	return err
}

// within fails if an account has more leases than it allows, or a session more than one.
func (q *Queue) within(t *testing.T) {
	t.Helper()
	rows, _ := q.pool.Query(context.Background(), `SELECT a.id || ' has ' || count(*) FROM accounts a JOIN tasks t ON t.leased_by = a.id AND t.status IN ('leased', 'running') GROUP BY a.id HAVING count(*) > a.max_concurrency
		UNION ALL SELECT 'session ' || session_key || ' has ' || count(*) FROM tasks WHERE host IS NULL AND status IN ('leased', 'running') GROUP BY session_key HAVING session_key IS NOT NULL AND count(*) > 1`)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if len(wrong) > 0 || err != nil {
		t.Errorf("%v %v", wrong, err)
	}
}

// TestStale: who has lost a lease, whether to a newer one or to its end, changes nothing any more.
func TestStale(t *testing.T) {
	q, ctx := newQueue(t, "codex-main codex 3"), t.Context()
	q.add(t, task.TaskSpec{Prompt: "p", MaxAttempts: 100})
	h := holder("a")
	all := func() (text string) {
		must(t, q.pool.QueryRow(ctx, "SELECT string_agg(t::text, ' ') || (SELECT count(*) FROM task_runs) || (SELECT count(*) FROM task_files) FROM tasks t").Scan(&text))
		return text
	}
	stale := claims(q.lease(t, h, "codex-main", 1))
	for name, now := range map[string]func(){
		"queued again": func() { must(t, q.giveBack(ctx, h, stale, false, "why")) },
		"another's":    func() { q.lease(t, holder("b"), "codex-main", 1) },
		"running": func() {
			q.lease(t, h, "codex-main", 1) // its own, newer
			must(t, q.Start(ctx, h, []Claim{{stale[0].ID, stale[0].Attempt + 1}}))
		},
		"ended": func() { must(t, q.end(ctx, h, stale)) },
		"canceled": func() {
			must(t, q.giveBack(ctx, h, stale, false, "why"))
			_, err := q.Cancel(ctx, stale[0].ID)
			must(t, err)
		},
	} {
		q.exec(t, "UPDATE tasks SET status = 'leased', leased_by = 'codex-main', lease_expires_at = now() + interval '1 min'") // as it was leased
		if name == "another's" || name == "running" {
			must(t, q.giveBack(ctx, h, stale, false, "why"))
		}
		now()
		before := all()
		kept, err := q.Renew(ctx, h, stale)
		if must(t, err); len(kept) > 0 {
			t.Errorf("%s: renewed", name)
		}
		must(t, q.Start(ctx, h, stale))
		must(t, q.end(ctx, h, stale))
		must(t, q.giveBack(ctx, h, stale, false, "stale"))
		if after := all(); after != before {
			t.Errorf("%s:\n%s\n%s", name, before, after)
		}
		q.exec(t, "UPDATE tasks SET status = 'queued', attempt = $1, leased_by = NULL, lease_expires_at = NULL", stale[0].Attempt-1)
		stale = claims(q.lease(t, h, "codex-main", 1))
	}
}
