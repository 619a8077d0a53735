package fold

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stint/ledger"
	"stint/state"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

// TestEveryField: the fold reads every field, and an empty value unsets it.
func TestEveryField(t *testing.T) {
	j := newJournal(t)
	fields := []string{
		"sessionKey: web", "sessionId: s1", "workspace: /w", "tool: codex", "model: m",
		"account: acct", "resume: always", "priority: 7", "order: -3", "label: l", "idempotencyKey: k", "after: a, b\tc", "afterPolicy: any",
		"hold: true", "notBefore: 2026-11-21T13:00:00+01:00", "timeout: 30m", "maxAttempts: 4", "maxLimitWait: 0s",
		"runId: r", "attempt: 1", "retries: 2", "requeues: 5", "limitWaits: 3", "reason: timeout", "error: two\nlines", "exitCode: -1",
		"note: n", "by: ana", "createdAt: " + at(0), "startedAt: " + at(1), "updatedAt: " + at(2*time.Millisecond), "limitSince: " + at(0),
		"inputTokens: 5", "cachedInputTokens: 4", "outputTokens: 3", "reasoningTokens: 2", "costUsd: 0.25",
		"codexSessionId: thread", "claudeSessionId: other", "prompt: \n  \nFix it.\nNow.", "result: answer", "color: blue", "chatSessionId: 7", "verifyCommand: go test",
		"maxIterations: 5", "verifyTimeout: 90s", "iteration: 4", "phase: verify", "verifyExitCode: 2", "verifyTime: 1.5s", "verifyOutput: no\n",
		`findings: [{"kind":"empty","message":"m"}]`, "onFailure: mend", "onIssue: look", "triggeredByTaskId: t0", "trigger: failure",
	}
	j.task("t1", append(fields, "status: queued")...)
	want := state.Task{
		ID: "t1", Status: state.Queued, SessionKey: "web", SessionID: "s1", Workspace: "/w", Agent: "codex", Model: "m", Account: "acct",
		Resume: "always", AgentSession: "thread", Priority: 7, Order: -3, Label: "l", IdempotencyKey: "k", After: []string{"a", "b", "c"},
		AfterPolicy: "any", Hold: true, NotBefore: noon, Timeout: "30m", MaxAttempts: 4, MaxLimitWait: "0s",
		RunID: "r", Attempt: 1, Retries: 2, Requeues: 5, LimitWaits: 3, Iteration: 4, Reason: state.ClassTimeout, Error: "two\nlines", ExitCode: ptr(-1),
		Note: "n", By: "ana", CreatedAt: noon, StartedAt: noon, RunStartedAt: noon, UpdatedAt: noon.Add(2 * time.Millisecond), LimitSince: noon,
		Usage:         state.Usage{InputTokens: 5, CachedInputTokens: 4, OutputTokens: 3, ReasoningTokens: 2, CostUSD: 0.25},
		VerifyCommand: "go test", MaxIterations: 5, VerifyTimeout: "90s", Phase: state.PhaseVerify, VerifyExitCode: ptr(2), VerifyTime: "1.5s",
		TriggeredBy: "t0", Trigger: state.OnFailure, Seq: 1,
	}
	if diff := cmp.Diff(want, j.peek("t1")); diff != "" {
		t.Error(diff)
	}
	want.Title, want.Prompt, want.Result = "Fix it.", "\n  \nFix it.\nNow.", "answer"
	want.VerifyOutput, want.Findings, want.OnFailure, want.OnIssue = "no\n", []state.Issue{{Kind: "empty", Message: "m"}}, "mend", "look"
	want.Extra = map[string]string{"color": "blue", "chatSessionId": "7"}
	if diff := cmp.Diff(want, j.whole("t1")); diff != "" {
		t.Error(diff)
	}
	j.checkRefold()

	for i, f := range fields {
		key, _, _ := strings.Cut(f, ":")
		fields[i] = key + ":"
	}
	j.task("t1", fields...)
	if diff := cmp.Diff(state.Task{ID: "t1", Status: state.Queued, Extra: map[string]string{}, Seq: 2}, j.whole("t1")); diff != "" {
		t.Error(diff)
	}
	if _, ok := j.state.ByIdempotencyKey("k"); ok {
		t.Error("the idempotency key is still known")
	}
	j.checkRefold()
}

func TestRefusedRecordsHaveNoEffect(t *testing.T) {
	tests := []struct{ name, field, key, want string }{
		{"status", "status: qeued", "status", "it is one of draft, queued"},
		{"priority", "priority: 10", "priority", `"10" is not within 1 to 9`},
		{"priority zero", "priority: 0", "priority", `"0" is not within 1 to 9`},
		{"number", "attempt: two", "attempt", `"two" is not a whole number`},
		{"negative", "retries: -1", "retries", `"-1" is not a whole number from 0`},
		{"huge", "maxAttempts: 99999999999", "maxAttempts", "is not a whole number from 0 to 2147483647"},
		{"overflow", "order: 99999999999999999999", "order", "is not a whole number"},
		{"an option for a tree", `changes: {"before":"--output=x","after":"4b825dc642cb6eb9a060e54bf8d69288fbee4904"}`, "changes", "an id that is not 40 to 64"},
		{"a name for a tree", `changes: {"before":"4b825dc642cb6eb9a060e54bf8d69288fbee4904","after":"HEAD"}`, "changes", "an id that is not 40 to 64"},
		{"files below 0", `changes: {"files":-1,"before":"4b825dc642cb6eb9a060e54bf8d69288fbee4904","after":"4b825dc642cb6eb9a060e54bf8d69288fbee4904"}`, "changes", "a count below 0"},
		{"bool", "hold: maybe", "hold", `"maybe" is neither true nor false`},
		{"time", "notBefore: tomorrow", "notBefore", `"tomorrow" is not a time`},
		{"duration", "timeout: 5 minutes", "timeout", "is not a duration"},
		{"negative duration", "maxLimitWait: -5m", "maxLimitWait", "is not a duration"},
		{"resume", "resume: maybe", "resume", `unknown value "maybe"`},
		{"exit code", "exitCode: 99999999999", "exitCode", "is not a whole number from -2147483648"},
		{"cost", "costUsd: NaN", "costUsd", "is not an amount of money"},
		{"tokens", "inputTokens: 1.5", "inputTokens", "is not a whole number"},
		{"iterations", "maxIterations: x", "maxIterations", `"x" is not a whole number`},
		{"too many iterations", "maxIterations: 101", "maxIterations", `"101" is not a whole number from 0 to 100`},
		{"verify timeout", "verifyTimeout: soon", "verifyTimeout", `"soon" is not a duration`},
		{"verify exit code", "verifyExitCode: no", "verifyExitCode", "is not a whole number"},
		{"verify time", "verifyTime: long", "verifyTime", `"long" is not a duration`},
		{"phase", "phase: test", "phase", `unknown value "test"`},
		{"findings", "findings: none", "findings", "no JSON list"},
		{"steps", `steps: run="r" phase="x"`, "steps", "unknown value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			j.task("t1", "status: queued", "label: old", "sessionId: s1", "sessionKey: web")
			err := j.refuse("t1", "label: new", "sessionId: s2", tt.field)
			var re *state.RecordError
			if !errors.As(err, &re) || re.Key != tt.key || re.ID != "t1" || re.Seq != 2 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %#v: %v", re, err)
			}
			if n := len(j.state.Offsets("t1")); n != 1 {
				t.Errorf("the refused record is one of %d of the task", n)
			}
			_ = j.refuse("t2", "label: new", tt.field)
			if _, ok := j.state.Peek("t2"); ok {
				t.Error("a refused first record made a task")
			}
			j.checkRefold()
		})
	}
}

func TestForbiddenStep(t *testing.T) {
	j := newJournal(t)
	j.task("t1", "status: queued")
	for _, tt := range []struct{ id, status, by, want string }{
		{"t1", "status: draft", "by:", "Task t1, record 2: status: a task that is queued cannot become draft"},
		{"t1", "status: running", "by: hand", "Task t1, record 3: status: running cannot be set by hand; set queued, and it runs when its turn comes"},
		{"t2", "status: running", "by: hand", "Task t2, record 4: status: running cannot be set by hand; set queued, and it runs when its turn comes"},
	} {
		err := j.refuse(tt.id, tt.status, tt.by)
		var te *state.TransitionError
		if !errors.As(err, &te) || err.Error() != tt.want {
			t.Errorf("%v", err)
		}
	}
	j.task("t1", "status: done", "by: hand")
	if err := j.refuse("t1", "status: draft", "by: hand"); !strings.Contains(err.Error(), "a task that is done cannot be made draft by hand") {
		t.Error(err)
	}
	j.checkRefold()
}

func TestFirstRecordWithoutStatusIsADraft(t *testing.T) {
	j := newJournal(t)
	j.task("t1", "prompt: p")
	j.task("t2", "status:", "prompt: p")
	for _, id := range []string{"t1", "t2"} {
		if st := j.peek(id).Status; st != state.Draft {
			t.Errorf("%s is %s", id, st)
		}
	}
	j.task("t1", "label: x")
	if ready(j, 9) != "" || !j.state.Idle() {
		t.Error("a draft counts as work")
	}
	j.task("t1", "status: queued", "by: hand")
	if got := ready(j, 9); got != "t1" {
		t.Errorf("ready: %q", got)
	}
	j.checkRefold()
}

func TestLastOfTwoEqualKeysCounts(t *testing.T) {
	j := newJournal(t)
	j.task("t1", "status: done", "status: queued", "label: a", "label: b")
	if got := j.peek("t1"); got.Status != state.Queued || got.Label != "b" {
		t.Errorf("%+v", got)
	}
}

func TestAgentSessionFollowsTheAgent(t *testing.T) {
	j := newJournal(t)
	j.task("t1", "status: queued", "agent: codex", "codexSessionId: c")
	j.task("t1", "claudeSessionId: l")
	steps := []struct{ field, want string }{
		{"note: x", "c"},
		{"agent: claude", "l"},
		{"agent: gemini", ""},
		{"geminiSessionId: g", "g"},
		{"tool: demo", ""},
		{"demoSessionId: d", "d"},
		{"agent: codex", "c"},
		{"codexSessionId:", ""},
		{"agent: unheard", ""},
		{"unheardSessionId: u", "u"},
	}
	for _, s := range steps {
		j.task("t1", s.field)
		if got := j.whole("t1"); got.AgentSession != s.want || len(got.Extra) > 0 {
			t.Errorf("after %q: %q, want %q; %v", s.field, got.AgentSession, s.want, got.Extra)
		}
	}
	j.checkRefold()
}

func TestEndedTaskIsThawed(t *testing.T) {
	j := newJournal(t)
	id := uuid(1)
	j.task(id, "status: queued", "sessionKey: web", "agent: codex", "label: l", "prompt: Fix it", "idempotencyKey: k", "maxAttempts: 2")
	j.task(id, "status: running", "attempt: 1", "codexSessionId: c", "runId: r1")
	j.task(id, "status: failed", "reason: timeout", "updatedAt: "+at(0))
	want := state.Task{ID: id, Status: state.Failed, SessionKey: "web", Agent: "codex", Label: "l", UpdatedAt: noon}
	if diff := cmp.Diff(want, j.peek(id)); diff != "" {
		t.Error(diff)
	}
	j.task(id, "note: seen", "by: hand") // a record that leaves it ended
	if got := j.whole(id); got.Note != "seen" || got.Status != state.Failed || j.state.Counts()[state.Failed] != 1 {
		t.Errorf("%+v", got)
	}
	j.task(id, "status: queued", "by: ana")
	got := j.peek(id)
	if got.Status != state.Queued || got.AgentSession != "c" || got.Attempt != 1 || got.MaxAttempts != 2 || got.Reason != state.ClassTimeout || got.Note != "seen" {
		t.Errorf("%+v", got)
	}
	if got, ok := j.state.ByIdempotencyKey("k"); !ok || got != id {
		t.Error("the idempotency key is lost")
	}
	if got := ready(j, 1); got != id {
		t.Errorf("ready: %q", got)
	}
	if got := len(j.state.Offsets(id)); got != 5 {
		t.Errorf("%d records", got)
	}
	j.checkRefold()
}

func TestRecordOfEndedTaskThatCannotBeRead(t *testing.T) {
	j := newJournal(t)
	j.task("t1", "status: done")
	j.broken = true
	if err := j.refuse("t1", "status: queued"); !strings.Contains(err.Error(), "read task t1: no record at offset 0") {
		t.Error(err)
	}
	if _, ok, err := j.state.Task("t1"); !ok || err == nil {
		t.Errorf("Task: %v, %v", ok, err)
	}
	if _, err := j.state.List(state.Filter{}); err == nil {
		t.Error("List did not say that it could not read")
	}
	j.task("t2", "status: queued", "prompt: p")
	if _, err := j.state.List(state.Filter{Limit: 1}); err == nil {
		t.Error("List did not say that it could not read a title")
	}
	j.broken = false
	j.sections[0] = j.sections[2] // the journal is another one
	if _, _, err := j.state.Task("t1"); err == nil || err.Error() != "read task t1: at offset 0 stands Task t2" {
		t.Error(err)
	}
}

func TestOtherKindsArePassedOver(t *testing.T) {
	j := newJournal(t)
	if err := j.append(ledger.KindJob, "j1", "status: nonsense"); err != nil || length(j.state) != 0 {
		t.Errorf("%v, %d tasks", err, length(j.state))
	}
	if err := j.append(ledger.KindControl, "weather", "paused: nonsense"); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		kind   ledger.Kind
		fields []string
		want   string
	}{
		{ledger.KindTask, []string{"status: queued", "anything: goes", "priority: 9", "resume: never", "timeout: 1h"}, ""},
		{ledger.KindTask, []string{"prompt: p"}, ""},
		{ledger.KindTask, []string{"afterPolicy: done"}, ""},
		{ledger.KindTask, []string{"afterPolicy:"}, ""},
		{ledger.KindTask, []string{"afterPolicy: some"}, "is neither done nor any"},
		{ledger.KindTask, []string{"status: done", "by: hand"}, ""},
		{ledger.KindTask, []string{"status: running", "by: hand"}, "running cannot be set by hand"},
		{ledger.KindTask, []string{"status: running"}, "running cannot be set by hand"},
		{ledger.KindTask, []string{"Status: queued", "by: hand"}, "Status: unknown key; did you mean status?"},
		{ledger.KindTask, []string{"sessionkey: web", "by: hand"}, "did you mean sessionKey?"},
		{ledger.KindTask, []string{"sesionKey: web", "by: hand"}, "did you mean sessionKey?"},
		{ledger.KindTask, []string{"verifyComand: false", "by: hand"}, "did you mean verifyCommand?"},
		{ledger.KindTask, []string{"session: web", "by: hand"}, "did you mean sessionKey?"},
		{ledger.KindTask, []string{"owner: ana", "by: hand"}, ""},
		{ledger.KindTask, []string{"Colour: red", "by: hand"}, ""},
		{ledger.KindTask, []string{"Status: queued"}, ""}, // not a person's
		{ledger.KindControl, []string{"Paused: true", "by: hand"}, "did you mean paused?"},
		{ledger.KindControl, []string{"paused: true", "reason: lunch"}, ""},
		{ledger.KindControl, []string{"paused: on"}, "is neither true nor false"},
		{ledger.KindControl, []string{"coolUntil: later"}, "is not a time"},
		{ledger.KindJob, []string{"status: whatever"}, ""},
		{ledger.KindControl, []string{"paused: true", "by: hand"}, "there is no control x"},
		{ledger.KindJob, []string{"status: queued", "by: hand"}, "a Job has no meaning here"},
	}
	for _, tt := range tests {
		err := Check(encode(t, tt.kind, "x", 0, tt.fields...))
		if re := new(state.RecordError); errors.As(err, &re) && re.FieldKey() != "" && !strings.HasPrefix(tt.fields[0], re.FieldKey()+":") {
			t.Errorf("%q: the error is of %q", tt.fields, re.FieldKey())
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.fields, err, tt.want)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, in := range []string{"2026-11-21T03:12:45.123Z", "2026-11-21T04:12:45.123+01:00", "2026-11-21T03:12:45.123000Z"} {
		got, err := state.ParseTime(in)
		if err != nil || state.FormatTime(got) != "2026-11-21T03:12:45.123Z" || got.Location() != time.UTC {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"2026-11-21", "2026-13-01T00:00:00.000Z", "2026-02-30T00:00:00.000Z", "2026-11-21T24:00:00.000Z", "x", "2026-1a-21T03:12:45.123Z"} {
		if got, err := state.ParseTime(in); err == nil {
			t.Errorf("%s: %v", in, got)
		}
	}
	if got, err := state.ParseTime(""); !got.IsZero() || err != nil || state.FormatTime(got) != "" {
		t.Error("the zero time is not empty")
	}
	if got := state.FormatTime(time.UnixMilli(1795730000000 * 1000)); got != "9999-12-31T23:59:59.999Z" {
		t.Errorf("a time in the year 58874 is %s", got)
	}
	// The short way and the library agree, on every day of four centuries.
	for day := time.Date(1999, 12, 31, 23, 59, 58, 7e6, time.UTC); day.Year() < 2401; day = day.AddDate(0, 0, 1) {
		got, err := state.ParseTime(state.FormatTime(day))
		if err != nil || got != day {
			t.Fatalf("%v: %v, %v", day, got, err)
		}
	}
}

func TestTitle(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		" \n\t\n":                  "",
		"\n  Fix\x1b[31m it\t! \n": "Fix [31m it !",
		strings.Repeat("é", 80):    strings.Repeat("é", 80),
		strings.Repeat("é", 81):    strings.Repeat("é", 79) + "…",
	} {
		if got := state.TitleOf(in); got != want {
			t.Errorf("TitleOf(%q) = %q", in, got)
		}
	}
}

func TestUUIDsComeBackAsTheyWere(t *testing.T) {
	for _, id := range []string{
		"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11", "019AB3F0-6F1E-7C3A-9A51-3F0E8F6B2C11", "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c1g",
		"019ab3f06f1e-7c3a-9a51-3f0e8f6b2c11-", "----------------------------------:.", "deploy", "a", strings.Repeat("x", 128),
	} {
		j := newJournal(t)
		j.task(id, "status: queued", "sessionKey: task:"+id)
		j.task(id, "status: canceled")
		if got := found(j.state, id); got != id || length(j.state) != 1 {
			t.Errorf("%s: %s, %d tasks", id, got, length(j.state))
		}
		if got := j.peek(id); got.ID != id || got.SessionKey != "task:"+id {
			t.Errorf("%s: %+v", id, got)
		}
	}
}
