package shared

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/state"
)

// An Ended is a lease whose task has ended.
type Ended struct {
	Claim
	Rows    *tables.Rows // of its twin; nil: nothing of it was run
	Refused string       // why its master did not take it
}

// outcome are the columns of a task's row that say how it ended; all others are its producer's, or the lease's.
var outcome = []string{
	"status", "agent", "result", "error_message", "reason", "note", "run_id", "agent_session", "limit_waits", "iteration", "verify_exit_code", "verify_ms", "answer",
	"findings", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_usd",
}

// insertRuns and insertOutputs hang rows on the tasks that are done.
var insertRuns, insertOutputs = insertFor(&tables.Runs, "runs"), insertFor(&tables.Files, "files")

func insertFor(t *tables.Table, name string) string {
	return fmt.Sprintf("INSERT INTO task_%[1]s (%[2]s) SELECT %[3]s FROM json_populate_recordset(NULL::task_%[1]s, @%[1]s) g JOIN done ON done.id = g.task_id ON CONFLICT (id) DO NOTHING",
		name, strings.Join(t.Columns, ", "), given(t.Columns))
}

// given returns columns as insertFor and finishSQL find them.
func given(columns []string) string { return "g." + strings.Join(columns, ", g.") }

// finishSQL writes each task that is still held, and with it, or not at all, its runs and the files that were collected. The note of its lease stays.
var finishSQL = fmt.Sprintf(`WITH done AS (
		UPDATE tasks t SET (%s) = ROW(%s),
			leased_by = NULL, lease_expires_at = NULL, next_attempt_at = NULL, updated_at = now(), finished_at = now()
		FROM json_populate_recordset(NULL::tasks, @tasks) g
		WHERE t.host IS NULL AND t.id = g.id AND t.attempt = g.attempt AND t.worker_id = @worker AND t.status IN ('leased', 'running') RETURNING t.id
	), gone AS (
		DELETE FROM task_files f USING done WHERE f.task_id = done.id AND NOT f.is_input
	), ran AS (%s) %s`,
	strings.Join(outcome, ", "), strings.Replace(given(outcome), " g.note,", " nullif(concat_ws('; ', t.note, g.note), ''),", 1), insertRuns, insertOutputs)

// Finish writes how tasks have ended, each if its lease is still the newest, and returns the claims of those that need no other
// try, whatever became of the others. What the database does not take of a result is left out: its runs and files, or all of it.
func (q *Queue) Finish(ctx context.Context, h Holder, ended []Ended) (done []Claim, err error) {
	ended = slices.DeleteFunc(slices.Clone(ended), func(e Ended) bool { // a stale one must not hang its runs on the end of the newest
		isStale := slices.ContainsFunc(ended, func(o Ended) bool { return o.ID == e.ID && o.Attempt > e.Attempt })
		if isStale {
			done = append(done, e.Claim)
		}
		return isStale
	})
	if len(ended) == 0 {
		return done, nil
	}
	err = each(ended, func(ended []Ended) error {
		args, err := rowsOf(ended)
		if err != nil {
			return err
		}
		args["worker"] = h.Worker
		err = q.briefly(ctx, finishSQL, args)
		if e := ended[0]; len(ended) == 1 && e.Rows != nil && server.IsRefusal(err) {
			less := Ended{Claim: e.Claim, Refused: "its result could not be stored: " + err.Error()}
			if len(e.Rows.Runs) > 0 || len(e.Rows.Files) > 0 {
				less.Rows = &tables.Rows{Task: e.Rows.Task}
			}
			list, err := q.Finish(ctx, h, []Ended{less})
			done = append(done, list...)
			return err
		}
		for _, e := range ended {
			if err == nil {
				done = append(done, e.Claim)
			}
		}
		return err
	})
	return done, err
}

// rowsOf returns the rows of tasks that have ended, and of their runs and files, as JSON has them.
func rowsOf(ended []Ended) (pgx.NamedArgs, error) {
	all, isInput := map[string][]map[string]any{"tasks": {}, "runs": {}, "files": {}}, slices.Index(tables.Files.Columns, "is_input")
	for _, e := range ended {
		row := map[string]any{
			"status": "failed", "reason": state.ClassExit, "error_message": tables.Storable(e.Refused), "findings": []string{},
			"limit_waits": 0, "iteration": 0, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0, "cost_usd": 0,
		}
		if e.Rows != nil {
			row = record(&tables.Tasks, e.Rows.Task, e.ID, outcome)
			for _, r := range e.Rows.Runs {
				all["runs"] = append(all["runs"], record(&tables.Runs, r, e.ID, tables.Runs.Columns))
			}
			for _, f := range e.Rows.Files {
				if f[isInput] != true {
					all["files"] = append(all["files"], record(&tables.Files, f, e.ID, tables.Files.Columns))
				}
			}
		}
		row["id"], row["attempt"] = e.ID, e.Attempt
		all["tasks"] = append(all["tasks"], row)
	}
	args := pgx.NamedArgs{}
	for name, rows := range all {
		text, err := json.Marshal(rows)
		if err != nil {
			return nil, err
		}
		args[name] = text
	}
	return args, nil
}

// record returns what a row has in some columns, as JSON has it, for a shared task.
func record(t *tables.Table, row []any, taskID string, columns []string) map[string]any {
	m := map[string]any{}
	for i, column := range t.Columns {
		v, isBytes := row[i].([]byte)
		id, isID := row[i].([16]byte)
		switch {
		case !slices.Contains(columns, column) || row[i] == nil || isBytes && v == nil: // what is left out is NULL
		case column == "task_id":
			m[column] = taskID
		case isID:
			m[column] = uuid.UUID(id)
		case column == "content":
			m[column] = `\x` + hex.EncodeToString(v)
		case isBytes:
			m[column] = json.RawMessage(v)
		default:
			m[column] = row[i]
		}
	}
	return m
}
