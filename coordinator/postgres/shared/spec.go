package shared

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// extras are the fields of a spec that a row has in its column extra.
func extras(s *task.TaskSpec) map[string]*string {
	return map[string]*string{
		state.KeyTimeout: &s.Timeout, state.KeyVerifyTimeout: &s.VerifyTimeout, state.KeyBudget: &s.Budget, state.KeyOutputPolicy: &s.OutputPolicy, state.KeyResume: &s.Resume,
	}
}

const defaultText = "default" // tenant and queue of a row that names none

// taskOf returns the row of a spec. The error names a field that no row has.
func taskOf(s *task.TaskSpec) (t Task, err error) {
	key := s.IdempotencyKey
	s.IdempotencyKey = state.GivenKey(key).Given() // which is checked; that of a part of a list has more
	if err := cmp.Or(task.CheckPrompt(s.Prompt), task.CheckLimits(s), task.CheckInputFiles(s), task.CheckOutputSpec(s)); err != nil {
		return t, err
	}
	s.IdempotencyKey = key
	t = Task{
		ID: cmp.Or(s.ID, newID()), Status: "queued", Tool: s.Agent, Model: s.Model, Account: s.Account, TenantID: cmp.Or(s.TenantID, defaultText), Queue: cmp.Or(s.Queue, defaultText),
		SessionKey: s.SessionKey, Label: s.Label, Priority: cmp.Or(s.Priority, 5), Prompt: s.Prompt, OutputSpec: s.OutputSpec, VerifyCommand: s.VerifyCommand,
		Extra: map[string]string{}, IdempotencyKey: s.IdempotencyKey, MaxAttempts: cmp.Or(s.MaxAttempts, 3), ScheduledAt: s.NotBefore,
	}
	for _, f := range s.InputFiles {
		sum := sha256.Sum256([]byte(f.Content))
		t.Files = append(t.Files, File{Path: f.Name, IsInput: true, Size: int64(len(f.Content)), SHA256: hex.EncodeToString(sum[:]), Content: []byte(f.Content)})
	}
	for key, value := range extras(s) {
		if *value != "" {
			t.Extra[key] = *value
		}
	}
	if s.MaxIterations > 0 {
		t.Extra[state.KeyMaxIterations] = strconv.Itoa(s.MaxIterations)
	}
	switch field := lost(s, &t); {
	case uuid.Validate(t.ID) != nil || len(t.ID) != 36:
		return t, task.Wrong("id", "leave it out, or write one as uuidgen gives it", "the id %q is no UUID", t.ID)
	case field != "":
		return t, task.Wrong(field, "leave it out, or queue the task on one machine: stint task", "a shared task has no %s: any machine may run it", field)
	case t.Tool != "" && !slices.Contains(tables.Tools, t.Tool):
		return t, task.Wrong("agent", "name one of them, or none", "the shared queue has the agents %s, and not %q", strings.Join(tables.Tools, ", "), t.Tool)
	}
	return t, nil
}

// lost returns the first field of a spec that the row does not give back as it is; "" if it does so for all.
func lost(s *task.TaskSpec, t *Task) string {
	back := specOf(t)
	given, there := reflect.ValueOf(s).Elem(), reflect.ValueOf(&back).Elem()
	for i := range given.NumField() {
		v := given.Field(i)
		if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 || reflect.DeepEqual(v.Interface(), there.Field(i).Interface()) {
			continue
		}
		name, _, _ := strings.Cut(given.Type().Field(i).Tag.Get("json"), ",")
		if !slices.Contains([]string{"-", "id", "defaultAgent", "environment", "await", "shared"}, name) {
			return name
		}
	}
	return ""
}

// specOf returns what a worker submits to its own ledger for a shared task. Whatever is wrong with it is found there.
func specOf(t *Task) task.TaskSpec {
	s := task.TaskSpec{
		Agent: t.Tool, Model: t.Model, Account: t.Account, SessionKey: t.SessionKey, Label: t.Label, Priority: t.Priority, Prompt: t.Prompt,
		OutputSpec: t.OutputSpec, VerifyCommand: t.VerifyCommand, TenantID: t.TenantID, Queue: t.Queue, MaxAttempts: t.MaxAttempts, IdempotencyKey: t.IdempotencyKey,
		Isolation: state.IsolationTemp, NotBefore: t.ScheduledAt,
	}
	for key, value := range extras(&s) {
		*value = t.Extra[key]
	}
	s.MaxIterations, _ = strconv.Atoi(t.Extra[state.KeyMaxIterations]) // 0: as configured
	for _, f := range t.Files {
		if f.IsInput {
			s.InputFiles = append(s.InputFiles, state.InputFile{Name: f.Path, Content: string(f.Content)})
		}
	}
	return s
}

// twinOf is specOf for the lease that a worker has.
func twinOf(t *Task) task.TaskSpec {
	s := specOf(t)
	s.Account, s.NotBefore = t.LeasedBy, time.Time{} // it is due, by the database's clock
	s.OnFailure, s.OnIssue = "none", "none"          // a follow-up would be this machine's alone
	s.IdempotencyKey = twinKey(t.ID, t.Attempt)
	if s.SessionKey != "" { // a name that no session of this machine has, whoever chose the key
		s.SessionKey = "shared-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.TenantID+"\x00"+t.SessionKey)).String()
	}
	s.MaxAttempts = max(1, t.MaxAttempts-max(0, t.Attempt-t.Retries-1))
	return s
}

// twinKey is the idempotency key of a lease's twin: a lease has one, however often it is submitted.
func twinKey(id string, attempt int) string { return fmt.Sprintf("shared:%s:%d", id, attempt) }

// newID returns a UUIDv7, as the ledger has them.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// sameBody reports whether a given task asks for the same as one that is there, at whatever time. Files are compared by their hashes.
func sameBody(given, there *Task) bool {
	body := func(t *Task) string {
		s := specOf(t)
		if given.Tool == "" { // a lease has set it
			s.Agent = ""
		}
		s.InputFiles, s.NotBefore = nil, time.Time{}
		text, _ := json.Marshal(s) // texts and numbers
		for _, f := range t.Files {
			text = fmt.Appendf(text, "\n%q %d %s", f.Path, f.Size, f.SHA256)
		}
		return string(text)
	}
	return body(given) == body(there)
}
