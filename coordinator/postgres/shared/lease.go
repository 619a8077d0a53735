package shared

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator/postgres/server"
	"stint/coordinator/task"
)

// A Holder is who leases: a worker, and for how long.
type Holder struct {
	Worker uuid.UUID
	Host   string        // has the conversations of sessions that it ran
	TTL    time.Duration // how long a lease lasts
}

// A Filter says which tasks a worker leases; "" is any.
type Filter struct{ TenantID, Queue string }

// taken gives an account the tasks that it may have, by the rules of the lease query.
//
//go:embed lease.sql
var taken string

var leaseSQL = taken + "SELECT " + columns + " FROM taken t ORDER BY t.priority DESC, t.created_at, t.id"

// Lease takes at most so many tasks for an account. They are the caller's for h.TTL from before the call on, and then
// for as long as it renews them.
func (q *Queue) Lease(ctx context.Context, h Holder, account string, most int, f Filter) (list []Task, err error) {
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")                                                                                                     // as the count of leases is to see what was committed last
	b.Queue("SELECT set_config('jit', 'off', TRUE), set_config('plan_cache_mode', 'force_generic_plan', TRUE), set_config('lock_timeout', '2s', TRUE)") // the first two take longer than the query
	b.Queue("SELECT pg_advisory_xact_lock(hashtextextended('stint account ' || $1, 0))", account)                                                       // a row's lock would be written to the disk, though nothing waits
	b.Queue(leaseSQL, pgx.NamedArgs{"account": account, "most": most, "worker": h.Worker, "host": h.Host, "ttl": h.TTL, "tenant": f.TenantID, "queue": f.Queue}).Query(func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	b.Queue("COMMIT")
	if err := q.pool.SendBatch(ctx, &b).Close(); hasCode(err, "23505") { // another worker has the session just now
		return nil, nil
	} else if err != nil || len(list) == 0 {
		return nil, err
	}
	err = q.readFiles(ctx, list, true, false)
	for i := range list {
		if slices.ContainsFunc(list[i].Files, func(f File) bool { return f.IsInput && f.Content == nil }) {
			list[i].wrong = cmp.Or(list[i].wrong, task.Wrong("inputFiles", "put large files where the workers can read them, and name the place in the prompt", "an input file has no content, or more than 1 MiB"))
		}
	}
	return list, err
}

// A Claim names a lease: a task, and the attempt that the lease began.
type Claim struct {
	ID      string
	Attempt int
}

// held are the rows of claims that are still the newest. The database's clock does not matter: until somebody reclaims
// a lease that is over it can be renewed.
const held = `t.host IS NULL AND t.worker_id = @worker AND t.status IN ('leased', 'running') AND (t.id, t.attempt) IN (SELECT * FROM unnest(@ids::uuid[], @attempts::int[]))`

const (
	renewSQL  = `UPDATE tasks t SET lease_expires_at = now() + @ttl::interval WHERE ` + held + ` RETURNING t.id::text, t.attempt`
	heldBySQL = "SELECT id::text, attempt, cancel_requested FROM tasks WHERE host IS NULL AND status IN ('leased', 'running') AND worker_id = $1"

	// endLease queues tasks again whose leases end, or makes dead letters of those that have no attempt left. @free leases were no attempt.
	endLease = `UPDATE tasks t SET leased_by = NULL, lease_expires_at = NULL, retries = least(t.retries, 2147483646) + @free, updated_at = now(),
		status = CASE WHEN t.cancel_requested THEN 'canceled' WHEN t.attempt::bigint - t.retries - @free >= t.max_attempts THEN 'deadletter' ELSE 'queued' END,
		finished_at = CASE WHEN t.cancel_requested OR t.attempt::bigint - t.retries - @free >= t.max_attempts THEN now() END, `

	reclaimSQL = endLease + `reason = CASE WHEN t.cancel_requested THEN 'canceled' ELSE 'orphaned' END, error_message = 'the worker on ' || coalesce(t.worker_host, 'an unknown host') || ' did not renew its lease in time'
		WHERE t.id IN (SELECT id FROM tasks WHERE host IS NULL AND status IN ('leased', 'running') AND (nullif(lease_expires_at, 'infinity') < now()) IS NOT FALSE LIMIT 1000 FOR UPDATE SKIP LOCKED)`
)

func argsOf(claims []Claim, args pgx.NamedArgs) pgx.NamedArgs {
	ids, attempts := make([]string, len(claims)), make([]int32, len(claims))
	for i, c := range claims {
		ids[i], attempts[i] = c.ID, int32(c.Attempt)
	}
	args["ids"], args["attempts"] = ids, attempts
	return args
}

// Renew prolongs leases that are still held to h.TTL from now on, and returns them. It leaves out one whose row somebody else has locked.
func (q *Queue) Renew(ctx context.Context, h Holder, claims []Claim) (kept []Claim, err error) {
	err = each(claims, func(claims []Claim) error {
		return q.briefly(ctx, renewSQL, argsOf(claims, pgx.NamedArgs{"worker": h.Worker, "ttl": h.TTL}), func(rows pgx.Rows) error {
			list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Claim])
			kept = append(kept, list...)
			return err
		})
	})
	if hasCode(err, locked) {
		err = nil
	}
	return kept, err
}

// waitBriefly has a transaction wait but a moment for what somebody has locked, such as a person in psql.
const waitBriefly = "SELECT set_config('lock_timeout', '500ms', TRUE)"

// briefly runs a statement that waits but a moment for a row that somebody has locked.
func (q *Queue) briefly(ctx context.Context, sql string, args pgx.NamedArgs, read ...func(pgx.Rows) error) error {
	var b pgx.Batch
	b.Queue(waitBriefly)
	query := b.Queue(sql, args)
	for _, f := range read {
		query.Query(f)
	}
	return q.pool.SendBatch(ctx, &b).Close()
}

// each does something with all of a list at once, or if that cannot be done for one of them, with each alone.
func each[T any](list []T, do func([]T) error) error {
	err := do(list)
	if len(list) > 1 && (hasCode(err, locked) || server.IsRefusal(err)) {
		err = nil
		for i := range list {
			err = cmp.Or(err, do(list[i:i+1]))
		}
	}
	return err
}

const locked = "55P03" // a row, by somebody else

// hasCode reports whether an error is the database's, with that SQLSTATE.
func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

// Start notes that the agents of leases have begun.
func (q *Queue) Start(ctx context.Context, h Holder, claims []Claim) error {
	return each(claims, func(claims []Claim) error {
		var b pgx.Batch
		b.Queue(waitBriefly)
		b.Queue("SELECT set_config('synchronous_commit', 'off', TRUE)") // if a crash of the server forgets it, the lease is there all the same
		b.Queue(`UPDATE tasks t SET status = 'running', next_attempt_at = NULL, error_message = NULL, updated_at = now() WHERE `+held, argsOf(claims, pgx.NamedArgs{"worker": h.Worker}))
		return q.pool.SendBatch(ctx, &b).Close()
	})
}

// Wait notes why a task waits for its next try under its lease, and for how long.
func (q *Queue) Wait(ctx context.Context, h Holder, c Claim, wait time.Duration, why string) error {
	return q.briefly(ctx, "UPDATE tasks t SET next_attempt_at = now() + greatest(@wait::interval, '0'), error_message = @why, updated_at = now() WHERE "+held,
		argsOf([]Claim{c}, pgx.NamedArgs{"worker": h.Worker, "wait": wait, "why": why}))
}

// GiveBack ends a lease whose task is to be queued again at once, and keeps its runs. By no fault of its own, if nothing of it had begun: that is no attempt.
func (q *Queue) GiveBack(ctx context.Context, h Holder, e Ended, begun bool, why string) error {
	args, err := rowsOf([]Ended{e})
	if err != nil {
		return err
	}
	args["worker"], args["why"], args["free"], args["ran"] = h.Worker, why, 1, e.Rows != nil // else no conversation was begun here
	if begun {
		args["free"] = 0
	}
	err = q.briefly(ctx, `WITH done AS (`+endLease+`worker_host = CASE WHEN @ran THEN t.worker_host END, note = @why, reason = CASE WHEN t.cancel_requested THEN 'canceled' WHEN @free = 0 THEN 'orphaned' END,
		error_message = CASE WHEN @free = 0 AND NOT t.cancel_requested THEN @why END WHERE `+held+` RETURNING t.id) `+insertRuns, argsOf([]Claim{e.Claim}, args))
	if e.Rows != nil && server.IsRefusal(err) {
		return q.GiveBack(ctx, h, Ended{Claim: e.Claim}, begun, why)
	}
	return err
}

// HeldBy returns the leases that a worker has, and which of these are to be canceled.
func (q *Queue) HeldBy(ctx context.Context, h Holder) (map[Claim]bool, error) {
	rows, _ := q.pool.Query(ctx, heldBySQL, h.Worker) // ForEachRow returns the error
	claims := map[Claim]bool{}
	var c Claim
	var canceled bool
	_, err := pgx.ForEachRow(rows, []any{&c.ID, &c.Attempt, &canceled}, func() error {
		claims[c] = canceled
		return nil
	})
	return claims, err
}

// Reclaim ends the leases that are over by the database's clock, or have no end, whoever had them. Their tasks are queued again, or
// dead letters where no attempt is left.
func (q *Queue) Reclaim(ctx context.Context) error {
	_, err := q.pool.Exec(ctx, reclaimSQL, pgx.NamedArgs{"free": 0})
	return err
}
