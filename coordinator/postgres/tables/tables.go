// Package tables makes what the tables in PostgreSQL have of a task: its own row, those of its runs, and of its files.
package tables

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"stint/coordinator/redact"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// statuses has those that have another name in the tables. There, leased is the status of a
// task that a worker has taken from the shared queue, and that no ledger has begun.
var statuses = map[state.Status]string{state.Done: "succeeded", state.Dead: "deadletter"}

const runRunning = "running"

// runStatus returns how a run of a task stands: "unknown" if no record says how it ended.
func runStatus(t *state.Task, r *task.TaskRun) string {
	switch {
	case r.RunID == t.RunID && t.Status == state.Running:
		return runRunning
	case r.Reason == state.ClassCanceled:
		return "canceled"
	case r.Reason == state.ClassInterrupted || r.Reason == state.ClassOrphaned:
		return "interrupted"
	case r.Reason != "":
		return "failed"
	case r.EndedAt.IsZero():
		return "unknown"
	}
	return "succeeded"
}

// Tools are the agents that a table may name as the tool of a task.
var Tools = []string{"codex", "claude", "gemini", "demo"}

// A Table is one of those that the mirror is made of.
type Table struct {
	Name    string
	Columns []string // id is the first
	Kept    []string // columns whose value stays when the new one is NULL: the files that it was made of are gone
}

var (
	Tasks = Table{Name: "tasks", Columns: []string{
		"id", "host", "ref", "generation", "tenant_id", "queue", "tool", "agent", "model", "status", "priority", "prompt",
		"input_files", "output_spec", "idempotency_key", "attempt", "max_attempts", "leased_by", "scheduled_at", "next_attempt_at",
		"result", "error_message", "started_at", "finished_at", "created_at", "updated_at",
		"session_key", "workspace", "account", "resume", "agent_session", "label", "after", "held", "reason", "note", "run_id",
		"retries", "limit_waits", "iteration", "verify_command", "verify_exit_code", "verify_ms", "triggered_by", "trigger", "answer",
		"findings", "extra", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_usd",
	}}
	Runs = Table{Name: "task_runs", Columns: []string{
		"id", "task_id", "host", "ref", "number", "attempt", "iteration", "phase", "status", "reason", "started_at", "finished_at",
		"exit_code", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "output_files", "tokens_used", "latency_ms", "agent", "model",
		"account", "run_dir", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_usd",
	}, Kept: []string{"stdout", "stderr", "stdout_bytes", "stderr_bytes"}}
	Files = Table{Name: "task_files", Columns: []string{
		"id", "task_id", "run_id", "host", "path", "is_input", "content", "size_bytes", "storage_url", "sha256",
	}, Kept: []string{"content"}}
	All = []*Table{&Tasks, &Runs, &Files}
)

// Generation is the place of the column in [Tasks] that whoever writes the rows fills in.
var Generation = slices.Index(Tasks.Columns, "generation")

// A Maker makes the rows of one host's tasks.
type Maker struct {
	Host            string // whose rows they are: this machine's name, or what is configured
	InlineThreshold int64  // bytes; of larger files path and hash alone
	OutputLimit     int    // characters of stdout and of stderr of a run
	MaxAttempts     int    // of tasks that do not say

	Redact *redact.Filter // masks secrets in the output of runs; nil: nothing is masked
	RunDir func(runID string) string
}

// A Rows is what the tables have of one task. Each row has the values of its table's columns.
type Rows struct {
	ID     string // in the ledger
	UUID   [16]byte
	HasKey bool
	Task   []any
	Runs   [][]any
	Files  [][]any
	Size   int // bytes of its longest columns
}

// rows returns what the tables have of a task.
func (m *Maker) Of(im *task.TaskRecord) (*Rows, error) {
	t := &im.Task
	id, ref := ID(t.ID, m.Host)
	out := &Rows{ID: t.ID, UUID: id, HasKey: im.HoldsKey && t.IdempotencyKey != "", Size: len(t.Prompt) + len(t.Result) + 1024}
	files := m.inputs(out, t)
	outputs, err := m.outputs(out, t)
	if err != nil {
		return nil, err
	}
	for i := range im.Runs {
		if err := m.run(out, t, &im.Runs[i], i+1, outputs); err != nil {
			return nil, err
		}
	}
	var key, tool, leasedBy, next any
	if out.HasKey {
		key = OrNull(string(t.IdempotencyKey)) // as the ledger has it: it is unique
	}
	if slices.Contains(Tools, t.Agent) {
		if tool = t.Agent; t.Status == state.Running {
			leasedBy = AccountID(m.Host, t.AccountName())
		}
	}
	// A section that a person wrote may have no times, and each row must have these.
	created, updated := cmp.Or(t.CreatedAt, t.UpdatedAt), cmp.Or(t.UpdatedAt, t.CreatedAt)
	scheduled := created
	if t.Attempt > 0 || t.Retries > 0 || t.LimitWaits > 0 {
		if t.Status == state.Queued {
			next = TimeOrNull(t.NotBefore)
		}
	} else if !t.NotBefore.IsZero() {
		scheduled = t.NotBefore
	}
	findings := make([]state.Issue, len(t.Findings))
	for i, f := range t.Findings {
		findings[i] = state.Issue{Kind: Storable(f.Kind), Message: Storable(f.Message)}
	}
	out.Task = []any{
		id, m.Host, ref, int64(0), Storable(cmp.Or(t.TenantID, "default")), Storable(cmp.Or(t.Queue, "default")), tool, OrNull(t.Agent), OrNull(t.Model),
		cmp.Or(statuses[t.Status], string(t.Status)), int32(cmp.Or(t.Priority, 5)), OrNull(t.Prompt),
		JSON(files), JSON(texts(t.OutputSpec)), key, int32(t.Attempt), int32(cmp.Or(max(t.MaxAttempts, 0), m.MaxAttempts)), leasedBy,
		scheduled, next,
		resultOf(t), OrNull(t.Error), TimeOrNull(t.StartedAt), finishedAt(im), created, updated,
		OrNull(t.SessionKey), OrNull(t.Workspace), OrNull(t.AccountName()), OrNull(t.Resume), OrNull(t.AgentSession), OrNull(t.Label),
		JSON(texts(t.After)), t.Hold, OrNull(string(t.Reason)), OrNull(t.Note), OrNull(t.RunID),
		int32(t.Retries), int32(t.LimitWaits), int32(t.Iteration), OrNull(t.VerifyCommand), t.VerifyExitCode, millis(t.VerifyTime),
		OrNull(t.TriggeredBy), OrNull(string(t.Trigger)), OrNull(t.Result),
		JSON(findings), JSON(extraOf(t)), t.Usage.InputTokens, t.Usage.CachedInputTokens, t.Usage.OutputTokens,
		t.Usage.ReasoningTokens, t.Usage.CostUSD,
	}
	return out, nil
}

// AccountID returns the key of a host's account.
func AccountID(host, name string) string { return Storable(host + "/" + name) }

// finishedAt returns when a task has ended: with its last run, or by its last record.
func finishedAt(im *task.TaskRecord) any {
	t, last := &im.Task, len(im.Runs)-1
	switch {
	case !t.Status.Terminal():
		return nil
	case t.Status != state.Canceled && last >= 0 && !im.Runs[last].EndedAt.IsZero():
		return im.Runs[last].EndedAt
	}
	return TimeOrNull(t.UpdatedAt)
}

// resultOf returns what came of a task that has ended, NULL before.
func resultOf(t *state.Task) any {
	if !t.Status.Terminal() {
		return nil
	}
	paths := []string{}
	for _, f := range t.OutputFiles {
		paths = append(paths, Storable(f.Path))
	}
	return JSON(struct {
		Files    []string `json:"files"`
		ExitCode *int     `json:"exit_code"`
	}{paths, t.ExitCode})
}

// millis returns a Go duration in milliseconds, NULL for what is none.
func millis(duration string) any {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return nil
	}
	return d.Milliseconds()
}

// extraOf returns the fields of a task that have no column, by their names in the ledger.
func extraOf(t *state.Task) map[string]string {
	// nothing for 0
	number := func(n int64) string { return strings.TrimPrefix(strconv.FormatInt(n, 10), "0") }
	all := map[string]string{
		state.KeyIsolation: t.Isolation, state.KeyTimeout: t.Timeout, state.KeyMaxLimitWait: t.MaxLimitWait, state.KeyVerifyTimeout: t.VerifyTimeout,
		state.KeyAfterPolicy: t.AfterPolicy, state.KeyOnFailure: t.OnFailure, state.KeyOnIssue: t.OnIssue, state.KeyOutputPolicy: t.OutputPolicy,
		state.KeyAllow: strings.Join(t.Allow, "\n"), state.KeySessionID: t.SessionID,
		state.KeyOrder: number(t.Order), state.KeyMaxIterations: number(int64(t.MaxIterations)), state.KeyRequeues: number(int64(t.Requeues)),
	}
	maps.Copy(all, t.Extra)
	m := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key] != "" {
			m[Storable(key)] = Storable(all[key])
		}
	}
	return m
}

// A fileEntry is what a JSON column says of a file.
type fileEntry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// inputs adds the files that came with a task, and returns what its row says of them.
func (m *Maker) inputs(out *Rows, t *state.Task) []fileEntry {
	list := []fileEntry{}
	for _, f := range t.InputFiles {
		sum := sha256.Sum256([]byte(f.Content))
		e := fileEntry{Storable(f.Name), int64(len(f.Content)), hex.EncodeToString(sum[:])}
		var content []byte
		if e.Size <= m.InlineThreshold {
			content = []byte(f.Content)
		}
		m.file(out, t, "", f.Name, true, e, content)
		list = append(list, e)
	}
	return list
}

// outputs adds the files that were collected after the last run of a task, and returns what that run's row says of them.
func (m *Maker) outputs(out *Rows, t *state.Task) (list []fileEntry, err error) {
	for _, f := range t.OutputFiles {
		content, err := m.collected(t.RunID, f)
		if err != nil {
			return nil, err
		}
		e := fileEntry{Storable(f.Path), f.Size, f.SHA256}
		m.file(out, t, t.RunID, f.Path, false, e, content)
		list = append(list, e)
	}
	return list, nil
}

// collected returns the content of a small file that was collected after a run; nil if it
// is large, gone, or not what was collected any more.
func (m *Maker) collected(runID string, f state.OutputFile) ([]byte, error) {
	if f.Size > m.InlineThreshold || !rundir.IsRunID(runID) {
		return nil, nil
	}
	file, _, err := rundir.OpenCollected(m.RunDir(runID), f.Path)
	if err != nil {
		return nil, nil // what stands in its place is nobody's file
	}
	defer func() { _ = file.Close() }() // only read from
	content, err := io.ReadAll(io.LimitReader(file, f.Size+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); int64(len(content)) != f.Size || f.SHA256 != "" && hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, nil
	}
	return content, nil
}

// maxInline is about how many bytes the rows of a task may have in all; of more files path and hash alone.
const maxInline = 8 << 20

// file adds the row of a file. runID is "" of one that came with the task, content nil (NULL) of a large one.
func (m *Maker) file(out *Rows, t *state.Task, runID, path string, input bool, e fileEntry, content []byte) {
	id, _ := ID("file", m.Host, t.ID, runID, path, strconv.FormatBool(input))
	var run, where any
	if rundir.IsRunID(t.RunID) && (e.Size > m.InlineThreshold || out.Size+len(content) > maxInline) {
		content = nil
		where = (&url.URL{Scheme: "file", Host: m.Host, Path: filepath.Join(m.RunDir(t.RunID), "files", path)}).String()
	}
	if rundir.IsRunID(runID) {
		run, _ = ID(runID, m.Host, t.ID)
	}
	if slices.ContainsFunc(out.Files, func(row []any) bool { return row[0] == id }) {
		return // a person has named it twice
	}
	out.Size += len(content)
	out.Files = append(out.Files, []any{id, out.UUID, run, m.Host, e.Name, input, content, e.Size, where, OrNull(e.SHA256)})
}

// run adds the row of a run, the number-th of its task. outputs are those of the last one.
func (m *Maker) run(out *Rows, t *state.Task, r *task.TaskRun, number int, outputs []fileEntry) error {
	id, ref := ID(r.RunID, m.Host, t.ID)
	var files, took any
	if r.RunID == t.RunID && outputs != nil {
		files = JSON(outputs)
	}
	if took = millis(r.Took); took == nil && !r.StartedAt.IsZero() && !r.EndedAt.IsZero() {
		took = max(0, r.EndedAt.Sub(r.StartedAt).Milliseconds())
	}
	row := []any{
		id, out.UUID, m.Host, ref, int32(number), int32(r.Attempt), int32(r.Iteration), OrNull(string(r.Phase)), runStatus(t, r),
		OrNull(string(r.Reason)), TimeOrNull(r.StartedAt), TimeOrNull(r.EndedAt),
		r.ExitCode, nil, nil, nil, nil, files, r.Usage.InputTokens + r.Usage.OutputTokens, took, OrNull(r.Agent), OrNull(r.Model),
		OrNull(r.Account), OrNull(r.RunDir), r.Usage.InputTokens, r.Usage.CachedInputTokens, r.Usage.OutputTokens, r.Usage.ReasoningTokens,
		r.Usage.CostUSD,
	}
	if row[8] != runRunning && r.Kept {
		for i, name := range []string{"stdout", "stderr"} {
			said, size, err := m.output(r.RunDir, name)
			if err != nil {
				return err
			}
			row[13+i], row[15+i] = said, size
			out.Size += m.OutputLimit
		}
	}
	out.Runs = append(out.Runs, row)
	return nil
}

// output returns what a run's row has of an output, and its whole length in bytes; NULL if there is none any more.
func (m *Maker) output(runDir, name string) (said, size any, err error) {
	f, err := rundir.OpenOutputs([]string{filepath.Join(runDir, name)}, m.Redact, false)
	if err != nil {
		return nil, nil, nil // gone, or no file any more
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if said, err = excerpt(f, f.Size(), m.OutputLimit); err != nil {
		return nil, nil, err
	}
	return said, f.Size(), nil
}

// Storable returns s as PostgreSQL can hold it: what is no UTF-8, and NUL, becomes U+FFFD.
func Storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// OrNull is Storable, or NULL for "".
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return Storable(s)
}

func TimeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// JSON returns a value for a column of JSON. Strings in it have been through Storable.
func JSON(v any) []byte {
	b, _ := json.Marshal(v) // no value that we make has one that JSON cannot hold
	return b
}

// texts is Storable for each of a list, which is never null.
func texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Storable(s)
	}
	return out
}

// names is the name space of the UUIDs that rows get whose ids in the ledger are none.
var names = uuid.MustParse("5f3b3c56-0d5e-5b0a-9f5e-9f6d3a1b7c11")

// ID returns the UUID of a row, and what the ledger calls it if that is another one.
// Parts tell rows of one id apart: the host whose ledger it is, and the task.
func ID(id string, parts ...string) (row [16]byte, ref any) {
	if u, err := uuid.Parse(id); err == nil && u.String() == id {
		return u, nil
	}
	return uuid.NewSHA1(names, fmt.Appendf(nil, "%q %q", id, parts)), Storable(id)
}

// excerpt returns at most limit characters of what r holds, which has size bytes: of more
// than that the head and the tail, and between them how much was left out.
func excerpt(r io.ReaderAt, size int64, limit int) (string, error) {
	most := 4 * int64(limit) // bytes of so many characters
	text, err := readText(r, 0, min(size, most))
	head := []rune(text)
	if err != nil || size <= most && len(head) <= limit {
		return text, err
	}
	mark := fmt.Sprintf("\n[… of %d bytes, the middle is left out …]\n", size)
	room := limit - utf8.RuneCountInString(mark)
	if room < 2 {
		return string(head[:min(limit, len(head))]), nil
	}
	text, err = readText(r, max(0, size-most), size)
	tail := []rune(text)
	return string(head[:min(room/2, len(head))]) + mark + string(tail[max(0, len(tail)-room+room/2):]), err
}

// readText reads the bytes from one offset to another, as text.
func readText(r io.ReaderAt, from, to int64) (string, error) {
	b := make([]byte, to-from)
	n, err := r.ReadAt(b, from)
	if err == io.EOF {
		err = nil // it was cut meanwhile
	}
	return Storable(string(b[:n])), err
}
