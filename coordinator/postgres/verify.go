package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// A Difference is something that the mirror does not say as the ledger does.
type Difference struct {
	Table  string `json:"table"`
	ID     string `json:"id"`               // of the row: as the ledger has it
	Column string `json:"column,omitempty"` // "": the whole row
	Here   string `json:"here,omitempty"`   // what the ledger says, as JSON, cut
	There  string `json:"there,omitempty"`  // what the mirror says
	Text   string `json:"text"`             // one line for people
}

// A Report is what a comparison has found.
type Report struct {
	Seq         uint64       `json:"seq"` // the mirror was compared with the ledger as it was then
	Tasks       int          `json:"tasks"`
	Runs        int          `json:"runs"`
	Files       int          `json:"files"`
	Differences []Difference `json:"differences"`
	More        int          `json:"-"`        // differences beyond those
	InFlight    int          `json:"inFlight"` // tasks that were changed later, and were not compared
}

// mostDifferences bounds a report.
const mostDifferences = 10_000

// A VerifySource is a state directory as it was at a record.
type VerifySource interface {
	Source
	// ChangedLater reports whether the journal has a later record of a task, or of "account:" and an account's name.
	ChangedLater(id string) bool
}

// A comparison compares one snapshot of the database with the ledger as it was then.
type comparison struct {
	writer
	tx     pgx.Tx
	ledger VerifySource
	report Report
	here   map[[16]byte]bool // rows that table tasks must have
}

// Verify compares the mirror with the ledger as it was at the mirror's cursor, row by row and column by
// column; read returns it as it was. Both may go on meanwhile: nothing is locked and nothing changed. What
// the ledger no longer has, because files of a run were deleted, is not compared. Errors are *task.Error.
func Verify(ctx context.Context, o Options, read func(upTo uint64) (VerifySource, error)) (r Report, err error) {
	err = o.connected(ctx, func(db *server.Database) error {
		if err := schema.Check(ctx, db); errors.Is(err, schema.ErrNone) {
			return notYet(db.Target, "has no tables of stint yet")
		} else if err != nil {
			return err
		}
		return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
			r, err = verify(ctx, &o, tx, db.Target, read)
			return err
		})
	})
	return r, err
}

func verify(ctx context.Context, o *Options, tx pgx.Tx, t server.Target, read func(uint64) (VerifySource, error)) (Report, error) {
	p, err := o.readPosition(ctx, tx, t)
	if err != nil {
		return Report{}, err
	}
	if p.RebuiltAt.IsZero() { // or there is none
		return Report{}, notYet(t, "has no whole mirror under the name %s yet", o.Host)
	}
	src, err := read(p.Seq)
	if err != nil {
		return Report{}, err
	}
	isSame := p.Seq == src.Seq() // ledger
	switch {
	case p.Seq == 0 && !isSame:
		return Report{}, notYet(t, "is being rebuilt")
	case isSame:
		digest, err := digestAt(ctx, src, p.Seq)
		if err != nil {
			return Report{}, err
		}
		isSame = p.Seq == 0 || bytes.Equal(digest, p.digest)
	}
	if !isSame {
		return Report{}, notYet(t, "has a mirror of the ledger as it was before a compaction or a restore (record %d), which is rebuilt at the next sync", p.Seq)
	}
	c := &comparison{
		writer: writer{o: o, src: src, at: place{generation: p.Generation}},
		tx:     tx, ledger: src, report: Report{Seq: p.Seq, Differences: []Difference{}}, here: map[[16]byte]bool{},
	}
	err = c.run(ctx)
	return c.report, err
}

func notYet(t server.Target, format string, args ...any) error {
	return task.Conflict("stint sync once", "%v "+format, slices.Concat([]any{t}, args)...)
}

func (c *comparison) run(ctx context.Context) error {
	for _, t := range tables.All {
		if _, err := c.tx.Exec(ctx, create(t)); err != nil {
			return err
		}
	}
	done := 0
	for ids := c.src.TaskIDs(done, maxTasks); len(ids) > 0; ids = c.src.TaskIDs(done, maxTasks) {
		if err := c.page(ctx, ids); err != nil {
			return err
		}
		done += len(ids)
	}
	if err := c.surplus(ctx); err != nil {
		return err
	}
	return c.accounts(ctx)
}

func (c *comparison) page(ctx context.Context, ids []string) error {
	b := &batch{}
	for _, id := range ids {
		im, err := c.src.TaskRecord(id)
		if im.Task.SharedID != "" { // the shared task has its rows
			continue
		}
		uuid, _ := tables.ID(id, c.o.Host)
		c.here[uuid] = true
		if c.ledger.ChangedLater(id) {
			c.report.InFlight++
			continue
		}
		var rows *tables.Rows
		if err == nil {
			rows, err = c.rows(&im)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			c.note(Difference{Table: tables.Tasks.Name, ID: id, Text: "it cannot be read here: " + err.Error()})
			continue
		}
		b.tasks = append(b.tasks, rows)
		c.report.Tasks++
		c.report.Runs += len(rows.Runs)
		c.report.Files += len(rows.Files)
	}
	if _, err := c.tx.Exec(ctx, "TRUNCATE copy_tasks, copy_task_runs, copy_task_files"); err != nil {
		return err
	}
	if err := c.fill(ctx, c.tx, b); err != nil {
		return err
	}
	for _, t := range tables.All {
		rows, _ := c.tx.Query(ctx, difference(t)) // ForEachRow returns the error
		var id string
		var here, there map[string]json.RawMessage
		_, err := pgx.ForEachRow(rows, []any{&id, &here, &there}, func() error {
			c.differ(t, id, here, there)
			here, there = nil, nil
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// difference is the statement that selects the rows of a page in which the two sides differ, with their ids as the ledger has them.
func difference(t *tables.Table) string {
	of := "task_id"
	if t.Name == tables.Tasks.Name {
		of = "id"
	}
	return fmt.Sprintf(`SELECT coalesce(to_jsonb(h)->>'ref', to_jsonb(c)->>'ref', h.id::text, c.id::text), to_jsonb(h), to_jsonb(c) FROM %[1]s h
		FULL JOIN (SELECT %[2]s FROM %[3]s WHERE %[4]s IN (SELECT id FROM copy_tasks)) c ON c.id = h.id
		WHERE (%[5]s) IS DISTINCT FROM (%[6]s)`,
		staging(t), strings.Join(t.Columns, ", "), t.Name, of, values(t, "h", "c"), values(t, "c", ""))
}

// differ notes how a row differs; nil is a side that does not have it.
func (c *comparison) differ(t *tables.Table, id string, here, there map[string]json.RawMessage) {
	switch {
	case here == nil:
		c.note(Difference{Table: t.Name, ID: id, Text: "the row is in the mirror and not in the ledger"})
	case there == nil:
		c.note(Difference{Table: t.Name, ID: id, Text: "the row is missing in the mirror"})
	default:
		for _, col := range t.Columns {
			if h := here[col]; string(h) != "null" || !slices.Contains(t.Kept, col) {
				c.value(t.Name, id, col, h, there[col])
			}
		}
	}
}

func (c *comparison) note(d Difference) {
	if len(c.report.Differences) == mostDifferences {
		c.report.More++
		return
	}
	at := d.Table + " " + d.ID
	if d.Column != "" {
		at += " " + d.Column
	}
	d.Text = at + ": " + d.Text
	c.report.Differences = append(c.report.Differences, d)
}

// surplus finds the tasks of this host that the ledger does not have. One that came later may be in the mirror already.
func (c *comparison) surplus(ctx context.Context) error {
	rows, _ := c.tx.Query(ctx, "SELECT id, coalesce(ref, id::text) FROM tasks WHERE host = $1 AND generation IS NOT NULL", c.o.Host) // ForEachRow returns the error
	var id [16]byte
	var name string
	_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		if !c.here[id] && !c.ledger.ChangedLater(name) {
			c.note(Difference{Table: tables.Tasks.Name, ID: name, Text: "the row is in the mirror and not in the ledger"})
		}
		return nil
	})
	return err
}

// accounts compares what the mirror says of the accounts of this host. One that no task
// has used has no row, and one that the ledger does not name is free.
func (c *comparison) accounts(ctx context.Context) error {
	known := map[string]state.AccountUse{}
	for _, a := range c.src.Accounts() {
		known[tables.AccountID(c.o.Host, a.Name)] = a
	}
	const sql = "SELECT id, enabled, held, reason, cool_until AT TIME ZONE 'UTC' FROM accounts WHERE host = $1 ORDER BY id"
	rows, _ := c.tx.Query(ctx, sql, c.o.Host) // ForEachRow returns the error
	var id string
	var there [4]any
	_, err := pgx.ForEachRow(rows, []any{&id, &there[0], &there[1], &there[2], &there[3]}, func() error {
		name := strings.TrimPrefix(id, tables.AccountID(c.o.Host, ""))
		if c.ledger.ChangedLater(state.ControlAccount + name) {
			return nil
		}
		a := known[id]
		until := tables.TimeOrNull(a.CoolUntil.UTC().Truncate(time.Microsecond)) // as the database holds it
		for i, here := range []any{!a.Disabled, a.Hold, tables.OrNull(a.Reason), until} {
			c.value("accounts", name, []string{"enabled", "held", "reason", "cool_until"}[i], tables.JSON(here), tables.JSON(there[i]))
		}
		return nil
	})
	return err
}

func (c *comparison) value(table, id, column string, here, there json.RawMessage) {
	if bytes.Equal(here, there) {
		return
	}
	d := Difference{Table: table, ID: id, Column: column, Here: state.Cut(string(here), 60), There: state.Cut(string(there), 60)}
	d.Text = fmt.Sprintf("here %s, there %s", d.Here, d.There)
	c.note(d)
}
