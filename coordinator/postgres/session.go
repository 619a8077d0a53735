package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// A session is a time in which a mirror can be written: from a connect to the first failure. One
// goroutine uses it; but for o and src, which readRecords has beside it.
type session struct {
	writer
	mirror   *Mirror                      // is told how it goes
	accounts []state.AccountUse           // as they were written last
	figures  map[string][sha256.Size]byte // the sums of the rows of operations that were written last, by table
	skew     string                       // what is to be said of the clocks
}

// session opens a session, reads what is to be copied, and calls do. That is read when the place of the mirror is known: read
// before, it could lack what the mirror has already.
func (m *Mirror) session(ctx context.Context, read func() (Source, error), do func(*session) error) error {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var unread error // which has its own words
	err := m.o.connected(opening, func(db *server.Database) error {
		s := &session{writer: writer{o: &m.o, db: db}, mirror: m, figures: map[string][sha256.Size]byte{}}
		if err := s.open(opening); err != nil {
			return err
		}
		if s.src, unread = read(); unread != nil {
			return nil
		}
		return do(s)
	})
	return cmp.Or(err, unread)
}

// open makes the schema in an empty database, and takes the mirror's row.
func (s *session) open(ctx context.Context) error {
	err := schema.Ensure(ctx, s.db)
	if err == nil {
		err = s.claim(ctx)
	}
	if err != nil {
		return err
	}
	d, err := server.ClockSkew(ctx, s.db.Pool, s.o.Now)
	if err == nil && s.mirror.lasts {
		err = s.register(ctx)
	}
	s.skew = server.SkewWarning(d, s.db.Target)
	s.mirror.connected(s.db.Target, s.skew)
	return err
}

// rebuilderGone is how long nothing was heard of who rebuilds a mirror until another one begins anew.
const rebuilderGone = 15 * time.Second

// claim takes the mirror's row, and reads how far the mirror goes.
func (s *session) claim(ctx context.Context) error {
	_, err := s.db.Exec(ctx, "INSERT INTO mirrors (host, state_dir, settings, version) VALUES ($1, $2, $3, $4) ON CONFLICT (host) DO NOTHING",
		s.o.Host, tables.Storable(s.o.StateDir), s.o.settings(), s.o.Version)
	if err != nil {
		return err
	}
	p, err := s.o.readPosition(ctx, s.db, s.db.Target)
	if err != nil {
		return err
	}
	if p.Seq == 0 && p.worker != nil && *p.worker != [16]byte(s.o.Worker) && p.age < rebuilderGone {
		return errBusy // who rebuilds it is not to be disturbed
	}
	s.at = place{seq: p.Seq, digest: p.digest, generation: p.Generation}
	if p.settings != s.o.settings() || s.o.Anew {
		s.at.digest = nil // rows are to be made anew
	}
	return nil
}

// register notes for the other hosts that this process is at work, and forgets masters of which nothing was heard for three leases.
func (s *session) register(ctx context.Context) error {
	var q pgx.Batch
	worker := [16]byte(s.o.Worker)
	q.Queue("DELETE FROM worker_registry WHERE group_name IS NULL AND worker_id <> $1 AND last_heartbeat < now() - interval '270 s'", worker)
	q.Queue(`INSERT INTO worker_registry (worker_id, hostname, pid, state_dir, version) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (worker_id) DO UPDATE SET last_heartbeat = now()`, worker, tables.Storable(s.o.Hostname), int32(s.o.PID), tables.Storable(s.o.StateDir), s.o.Version)
	q.Queue("UPDATE mirrors SET worker_id = $2 WHERE host = $1 AND seq > 0 AND worker_id IS DISTINCT FROM $2", s.o.Host, worker)
	return s.db.SendBatch(ctx, &q).Close()
}

// beat notes that we live, and what has changed of the accounts, and looks whether the mirror is still where we left it: the
// database may have been replaced while there was nothing to write.
func (s *session) beat(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.register(bounded); err != nil {
		return err
	}
	p, err := s.o.readPosition(bounded, s.db, s.db.Target)
	if err == nil && (p.Seq != s.at.seq || p.Generation != s.at.generation) {
		err = errMoved
	}
	alike := func(a, b state.AccountUse) bool { return reflect.DeepEqual(a.AccountConfig, b.AccountConfig) }
	if list := s.src.Accounts(); err == nil && !slices.EqualFunc(list, s.accounts, alike) { // what no record tells of
		err = s.put(ctx, &batch{accounts: list})
	}
	if err == nil && s.o.Figures != nil {
		s.mirror.connected(s.db.Target, cmp.Or(s.putFigures(ctx), s.skew))
	}
	return err
}

// putFigures brings the tables of operations up to date. Their rows have no records in the journal: they are those that the
// source has from shortly before the newest row on, as values whose JSON has the names of the columns. It returns what is
// wrong with a table; to the others, and to tasks, that is nothing.
func (s *session) putFigures(ctx context.Context) (warning string) {
	for _, t := range []struct{ name, changed, key, columns string }{
		{"task_queue", "updated_at", "id", "id, type, payload, status, attempts, error, created_at, updated_at"},
		{"job_runs", "ran_at", "ran_at, job_name", "job_name, status, duration_ms, detail, ran_at"},
		{"server_metrics", "sampled_at", "sampled_at, server_id", "server_id, cpu_pct, mem_used_mb, mem_total_mb, disk_used_gb, disk_total_gb, load_1m, sampled_at"},
		{"usage_daily", "updated_at", "instance_id, date", "instance_id, date, requests, tokens, cost_usd, updated_at"},
	} {
		var newest time.Time // what a clock that was wrong has dated later than now does not hide what comes
		var rows []any
		look, cancel := context.WithTimeout(ctx, writeTimeout)
		err := s.db.QueryRow(look, "SELECT coalesce(max("+t.changed+"), '1970-01-01') FROM "+t.name+" WHERE host = $1 AND "+t.changed+" <= now()", s.o.Host).Scan(&newest)
		cancel()
		if err == nil {
			rows, err = s.o.Figures(t.name, newest.Add(-time.Minute)) // a row may come after newer ones
		}
		text, wrong := json.Marshal(rows)
		safe := strings.ReplaceAll(s.o.Redact.String(string(text)), `\u0000`, `\ufffd`) // jsonb has no NUL
		sum := sha256.Sum256([]byte(safe))
		if err = cmp.Or(err, wrong); err == nil && len(rows) > 0 && sum != s.figures[t.name] { // the same again would lock them
			named := "excluded." + strings.ReplaceAll(t.columns, ", ", ", excluded.")
			within, cancel := context.WithTimeout(ctx, writeTimeout+time.Duration(10*len(safe)/slowest)*time.Second) // the first time it is all there is
			_, err = s.db.Exec(within, "INSERT INTO "+t.name+" AS old (host, "+t.columns+") SELECT DISTINCT ON ("+t.key+") $1, "+t.columns+" FROM jsonb_populate_recordset(NULL::"+t.name+", $2::text::jsonb)"+
				" ON CONFLICT (host, "+t.key+") DO UPDATE SET ("+t.columns+") = ROW ("+named+") WHERE (old."+strings.ReplaceAll(t.columns, ", ", ", old.")+") IS DISTINCT FROM ("+named+")",
				s.o.Host, safe)
			cancel()
		}
		if err == nil {
			s.figures[t.name] = sum
		} else if !errors.Is(err, context.Canceled) {
			warning = cmp.Or(warning, "table "+t.name+" is not as it has to be: "+server.Explain(err, s.db.Target).Error())
		}
	}
	return warning
}

// digestAt returns the digest of the journal's record of that number, which is not higher than the newest; nil if there is
// none. It begins with the first record: a follower that begins amid merged records is not told of them.
func digestAt(ctx context.Context, src Source, seq uint64) ([]byte, error) {
	if seq == 0 {
		return nil, nil // an empty journal has no first record either
	}
	f := src.Follow(0)
	defer func() { _ = f.Close() }() // only read from
	for {
		sec, err := f.Next(ctx)
		switch {
		case err != nil:
			return nil, err
		case sec.Seq == seq:
			return digestOf(sec), nil
		case sec.Seq > seq:
			return nil, nil
		}
	}
}

func digestOf(sec *ledger.Section) []byte {
	sum := sha256.Sum256(sec.Raw)
	return sum[:]
}

// run brings the mirror up to date, and keeps it so until ctx ends or something fails. A
// session that is to end when the mirror has all that was there at first has an end.
func (s *session) run(ctx context.Context, end uint64) error {
	isPlace := s.at.seq > 0 && s.at.digest != nil && s.at.seq <= s.src.Seq()
	if isPlace { // of this ledger, if the record of that number is there, and is the same
		digest, err := digestAt(ctx, s.src, s.at.seq)
		if err != nil {
			return err
		}
		isPlace = bytes.Equal(digest, s.at.digest)
	}
	if !isPlace {
		if err := s.rebuild(ctx); err != nil {
			return err
		}
	} else if err := s.put(ctx, &batch{accounts: s.src.Accounts()}); err != nil {
		return err
	}
	for s.at.seq < end {
		err := s.follow(ctx, end)
		if errors.Is(err, errRestored) {
			err = s.rebuild(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forever is the end of a session that has none.
const forever = ^uint64(0)

// rebuild writes all tasks, and removes the rows of those that the ledger no longer has.
func (s *session) rebuild(ctx context.Context) error {
	s.mirror.is(task.MirrorRebuilding)
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	next := place{} // until the end of the rebuild the mirror has no place in the journal
	err := s.db.QueryRow(bounded, `UPDATE mirrors SET generation = generation + 1, seq = 0, digest = NULL, state_dir = $2, worker_id = $3, updated_at = now()
		WHERE host = $1 RETURNING generation`, s.o.Host, tables.Storable(s.o.StateDir), [16]byte(s.o.Worker)).Scan(&next.generation)
	s.at = next
	if errors.Is(err, pgx.ErrNoRows) {
		return errMoved
	} else if err != nil {
		return err
	}
	seq := s.src.Seq()
	digest, err := digestAt(ctx, s.src, seq)
	if err != nil {
		return err
	}
	if err := s.put(ctx, &batch{accounts: s.src.Accounts()}); err != nil {
		return err
	}
	done := 0
	for ids := s.src.TaskIDs(done, maxTasks); len(ids) > 0; ids = s.src.TaskIDs(done, maxTasks) {
		if err := s.putTasks(ctx, ids, &batch{}); err != nil {
			return err
		}
		done += len(ids)
	}
	// Tasks may have changed places in a compaction meanwhile, and been passed over.
	if now, err := digestAt(ctx, s.src, seq); err != nil {
		return err
	} else if seq > 0 && (now == nil || !bytes.Equal(now, digest)) {
		return errCompacted
	}
	return s.put(ctx, &batch{to: &place{seq: seq, digest: digest, generation: s.at.generation}, sweep: true})
}

// put writes one batch. One that takes too long gets more time the next time.
func (s *session) put(ctx context.Context, b *batch) error {
	begun := time.Now()
	if !b.since.IsZero() {
		s.mirror.pending(b.since)
	}
	err := s.putAll(ctx, b)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s.mirror.patience = min(2*s.mirror.patience, mostPatience)
	case err == nil && time.Since(begun) < writeTimeout/2:
		s.mirror.patience = 1
	}
	if err == nil {
		s.mirror.wrote(b, s.at.seq)
		if b.accounts != nil {
			s.accounts = b.accounts
		}
	}
	return err
}

// mostPatience bounds how many times the usual time a batch gets.
const mostPatience = 32

func (s *session) putAll(ctx context.Context, b *batch) error {
	if b.sweep {
		if err := s.sweep(ctx); err != nil {
			return err
		}
	}
	err := s.write(ctx, b, s.mirror.patience)
	if !server.IsRefusal(err) {
		return err
	}
	for _, t := range b.tasks { // one by one, without those that the database does not take; the cursor moves on all the same
		if err := s.write(ctx, &batch{tasks: []*tables.Rows{t}}, s.mirror.patience); server.IsRefusal(err) {
			s.mirror.skipped(t.ID, server.Explain(err, s.db.Target))
		} else if err != nil {
			return err
		}
	}
	return s.write(ctx, &batch{to: b.to, sweep: b.sweep, accounts: b.accounts}, s.mirror.patience)
}
