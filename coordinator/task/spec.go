// Package task has the words that the coordinator and its adapters share: what a client asks for ([TaskSpec], [Patch]), what an
// agent is told and answers ([Turn], [Outcome]), what a master reports ([Health], [Metrics], [TaskRun]), its configuration
// ([Config]), and the one error type that people and programs both understand ([Error]).
//
// It holds types, their JSON and the checks that need nothing but the value itself. What depends on other
// tasks or on the file system is checked by the rooms above. An HTTP server, a database mirror or an agent is
// written against this package and what lies below it, never against the coordinator.
package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/state"
)

// A TaskSpec is what a client asks for. The names of its JSON are the keys of the ledger. The client sets
// every field; a zero field leaves the choice to the master's configuration. Submit checks all of them. What
// a field means is said in its tag, from which the API's description has it.
type TaskSpec struct {
	ID             string    `json:"id,omitempty" doc:"UUIDv7 chosen by the client, so that a resend is harmless; left out: the master chooses" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Prompt         string    `json:"prompt" doc:"UTF-8, not empty, at most 1 MiB" example:"Fix the flaky login test."`
	Agent          string    `json:"agent,omitempty" doc:"Name of an adapter; left out: that of the session, else defaultAgent, else the master's default agent" example:"codex"`
	DefaultAgent   string    `json:"defaultAgent,omitempty" doc:"Agent of a task that names none and goes on with no session, whose agent it would have" example:"codex"`
	Model          string    `json:"model,omitempty" doc:"As the agent's CLI knows it; left out: the CLI's own choice" example:"gpt-5.5"`
	Account        string    `json:"account,omitempty" doc:"Account of that agent, and no other; left out: one that has room" example:"codex-main"`
	Workspace      string    `json:"workspace,omitempty" doc:"Absolute path: the agent's working directory; left out: the master's workspace_root, where one is configured" example:"/home/ana/shop"`
	Isolation      string    `json:"isolation,omitempty" doc:"worktree, or worktree= and a branch, tag or commit to make it from: the agent works in a git worktree of the session, or of the task if it names none; temp: in an empty directory of the task's own, which has the input files under their names; in-place: in the workspace; left out: as configured" example:"worktree"`
	SessionKey     string    `json:"sessionKey,omitempty" doc:"Tasks with the same key share one conversation and run one after another; left out: the lane of the workspace" example:"web"`
	Label          string    `json:"label,omitempty" doc:"Free text to filter lists by" example:"nightly"`
	Continue       bool      `json:"continue,omitempty" doc:"Binds the task to the last session of its lane, at submit" example:"false"`
	Parallel       bool      `json:"parallel,omitempty" doc:"The task has a lane of its own, and is in no session" example:"false"`
	Resume         string    `json:"resume,omitempty" enum:"auto,always,never" doc:"Whether the agent resumes its conversation; left out: the master's resume_policy" example:"auto"`
	AgentSession   string    `json:"agentSession,omitempty" doc:"Native session id to resume, as the agent's CLI gave it" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`
	Timeout        string    `json:"timeout,omitempty" doc:"Longest run: a Go duration such as 30m; left out: the master's" example:"30m"`
	Priority       int       `json:"priority,omitempty" doc:"1 to 9, 9 first; 0 counts as 5" example:"5"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty" doc:"1 to 256 printable characters. If a task has this key already, that task is the answer" example:"deps-2026-11-21"`
	MaxAttempts    int       `json:"maxAttempts,omitempty" doc:"Counted tries; left out: the master's max_attempts" example:"3"`
	NotBefore      time.Time `json:"notBefore,omitzero" doc:"Not run before this instant" example:"2026-11-21T03:15:09.482Z"`
	NoWaitLimit    bool      `json:"noWaitLimit,omitempty" doc:"Fail instead of waiting for a rate limit to pass" example:"false"`
	Budget         string    `json:"budget,omitempty" doc:"What its runs may spend in all: USD, tokens or time; left out: as configured" example:"5usd 90m"`
	Spare          bool      `json:"spare,omitempty" doc:"Run only on quota of its account that would otherwise lapse" example:"false"`
	After          []string  `json:"after,omitempty" doc:"Tasks that must be done first: ids, unique pieces of them, @last, or ids of the same batch" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	AfterPolicy    string    `json:"afterPolicy,omitempty" enum:"any,done" doc:"any: it is enough that they have ended; done, or left out: they must be done" example:"done"`
	Hold           bool      `json:"hold,omitempty" doc:"The task is queued, but not run before it is released" example:"false"`
	Notify         bool      `json:"notify,omitempty" doc:"Tell the user how the task ends, whatever [[notify]] of the configuration filters" example:"true"`
	TenantID       string    `json:"tenantId,omitempty" doc:"Free text to filter lists by" example:"ana"`
	Queue          string    `json:"queue,omitempty" doc:"Another free text to filter lists by" example:"nightly"`
	Fallback       []string  `json:"fallback,omitempty" doc:"Agents that may take over when this one is rate-limited; the word none: none" example:"claude"`
	Allow          []string  `json:"allow,omitempty" doc:"What the agent may use besides: rules as claude has them, each within what the master's allow permits" example:"Bash(go test *)"`

	VerifyCommand string `json:"verifyCommand,omitempty" doc:"For sh -c in the workspace: must pass after each run of the agent" example:"go test ./..."`
	MaxIterations int    `json:"maxIterations,omitempty" doc:"Most iterations of agent and verify command; left out: the master's max_iterations" example:"3"`
	VerifyTimeout string `json:"verifyTimeout,omitempty" doc:"Longest run of the verify command: a Go duration; left out: the master's" example:"5m"`
	OnFailure     string `json:"onFailure,omitempty" doc:"Prompt of the task to queue when this one fails: a template" example:"Say why task {{.ID}} failed: {{.Error}}"`
	OnIssue       string `json:"onIssue,omitempty" doc:"Prompt of the task to queue when the answer of this one has findings: a template" example:"Look at the findings of {{.ID}}."`
	OutputPolicy  string `json:"outputPolicy,omitempty" doc:"How the answer is to look: brief (at most six lines), final (as long as it takes), none, or a text of at most 64 KiB; left out: the master's output_policy" example:"final"`

	InputFiles []state.InputFile `json:"inputFiles,omitempty" doc:"Small files that the agent can read"`
	OutputSpec []string          `json:"outputSpec,omitempty" doc:"Files of the workspace to collect after the run: relative paths" example:"report.md"`

	// AllowStateInWorkspace takes the task although the agent can write the state directory.
	AllowStateInWorkspace bool `json:"allowStateInWorkspace,omitempty" doc:"Take the task although its agent can write the state directory" example:"false"`

	// Await: the client waits for the task's end; a run may do so only for a parallel task without After.
	Await bool `json:"await,omitempty" doc:"The client waits for the task's end" example:"false"`
	// FromRun is the run that the client is part of, as the server has found; "": none.
	FromRun     string   `json:"-"`
	Shared      bool     `json:"shared,omitempty" doc:"Queue it in the configured database, for the workers of all machines, and not in the ledger of this one; of a list all tasks or none" example:"false"`
	SharedID    string   `json:"-"` // the shared task whose twin it is, as a worker has it; "": none
	Environment []string `json:"environment,omitempty" doc:"Environment of the user's call, KEY=VALUE, that the task's programs get in place of the master's, without secrets and at most 16 KiB beside PATH; left out: in a list that of its first task, else the master's. Ignored over TCP and from a run" example:"PATH=/usr/bin:/bin"`
}

// MaxBatch is how many tasks SubmitOnce takes at once.
const MaxBatch = 100_000

// ErrLongList refuses a list of more than [MaxBatch] tasks.
var ErrLongList = &Error{
	Code: CodeInvalid, Message: fmt.Sprintf("more than %d tasks are too many at once", MaxBatch), Hint: "give them in several parts",
}

// ParseSpecs reads task specs as JSON: one object, or an array of them. name is the file's, for errors. The names are those of
// TaskSpec's JSON, the same with underscores (session_key), or those that other programs use: tool for agent, session for
// sessionKey, tenant for tenantId, output_files for outputSpec, codexSessionId for agentSession, with which the agent is codex
// unless it is named. What is wrong is an *Error with CodeInvalid that begins with "name:line:". Nothing is filled in, and of
// the values only their kinds are checked.
func ParseSpecs(name string, data []byte) ([]TaskSpec, error) {
	var specs Specs
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if f := decode(data, &specs); f != nil {
		return specs.List, f.in(name, data)
	}
	if specs.IsList && len(specs.List) == 0 {
		return specs.List, Invalid("write for example [{\"prompt\": \"what to do\"}]", "%s:1: there is no task in it", name)
	}
	return specs.List, nil
}

// Fields returns pointers to the fields of a spec that a client may set, by their names in JSON.
func Fields(s *TaskSpec) map[string]any {
	fields, v := map[string]any{}, reflect.ValueOf(s).Elem()
	for _, f := range specFields() {
		fields[f.name] = v.Field(f.index).Addr().Interface()
	}
	return fields
}

// A specField is a field of a spec: its name in JSON, and its place in the struct.
type specField struct {
	name  string
	index int
}

// specFields has the fields of a spec by each [plainName] that they may have.
var specFields = sync.OnceValue(func() map[string]specField {
	fields, t := map[string]specField{}, reflect.TypeFor[TaskSpec]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
			fields[plainName(name)] = specField{name, i}
		}
	}
	for name, field := range map[string]string{
		"codexsessionid": "agentsession", "tool": "agent", "verify": "verifycommand", "session": "sessionkey", "tenant": "tenantid", "outputfiles": "outputspec", "scheduledat": "notbefore",
	} {
		fields[name] = fields[field]
	}
	return fields
})

var notCounted = strings.NewReplacer("_", "", "-", "")

// plainName returns a name without what does not count, as the decoder has it: capitals, underscores and hyphens.
func plainName(name string) string { return strings.ToLower(notCounted.Replace(name)) }

// WithUnderscores turns sessionKey into session_key.
func WithUnderscores(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// LastObject returns the last JSON object in an answer that has a text or a list under one of the keys;
// nil if there is none. It may stand between fences or in a text.
func LastObject(text string, keys ...string) map[string]json.RawMessage {
	const mostTries, mostText = 500, 512 << 10
	text = text[max(0, len(text)-mostText):]
	for tries, end := 0, len(text); tries < mostTries; tries++ {
		if end = strings.LastIndexByte(text[:end], '{'); end < 0 {
			break
		}
		var raw map[string]json.RawMessage
		isSaid := func(key string) bool { return len(raw[key]) > 0 && (raw[key][0] == '[' || raw[key][0] == '"') }
		if json.NewDecoder(strings.NewReader(text[end:])).Decode(&raw) == nil && slices.ContainsFunc(keys, isSaid) {
			return raw
		}
	}
	return nil
}

// A Patch says what to change of a task that waits.
type Patch struct {
	Fields []byte   // a JSON merge patch (RFC 7396) of a TaskSpec: what it names is changed, null unsets, and of a text ""
	Seqs   []uint64 // the number of the task's last record must be one of these; none: it may be any
}

// EditableFields are the fields of a TaskSpec that an edit can change, by their keys in the ledger.
var EditableFields = [...]string{
	state.KeySessionKey, state.KeyAgent, state.KeyAccount, state.KeyModel, state.KeyWorkspace, state.KeyResume, state.KeyLabel, state.KeyPriority,
	state.KeyAfter, state.KeyAfterPolicy, state.KeyNotBefore, state.KeyTimeout, state.KeyMaxAttempts, state.KeyBudget, state.KeyHold, state.KeySpare,
	state.KeyVerifyCommand, state.KeyMaxIterations, state.KeyVerifyTimeout, state.KeyOnFailure, state.KeyOnIssue, state.KeyOutputPolicy,
	state.KeyTenantID, state.KeyQueue, state.KeyFallback, state.KeyAllow, state.KeyOutputSpec, state.KeyPrompt,
}

// ReadPatch puts a merge patch into a spec, and returns the name by which it calls each of its fields.
func ReadPatch(data []byte, s *TaskSpec) (given map[string]string, err error) {
	r := &specReader{spec: s, isPatch: true}
	err = Decode(data, r)
	return r.given, err
}

// FieldText returns a field as the ledger has it; "": it is unset.
func FieldText(s *TaskSpec, field string) string {
	switch v := Fields(s)[field].(type) {
	case *string:
		if field == state.KeyAfterPolicy {
			return strings.TrimPrefix(*v, state.AfterDone)
		}
		return *v
	case *int:
		return state.OrNone(*v)
	case *bool:
		return state.Flag(*v)
	case *time.Time:
		return state.FormatTime(*v)
	case *[]string:
		if field == state.KeyOutputSpec || field == state.KeyAllow {
			return strings.Join(*v, "\n")
		}
		return strings.Join(*v, " ")
	}
	return ""
}

// PatchOf makes the Fields of a [Patch] of settings such as priority=9. A list is
// written with commas; nothing behind the = unsets the field.
func PatchOf(settings []string) ([]byte, error) {
	fields, patch := Fields(&TaskSpec{}), map[string]any{}
	for _, setting := range settings {
		key, value, ok := strings.Cut(setting, "=")
		field := specFields()[plainName(key)].name
		_, twice := patch[field]
		switch {
		case !ok:
			return nil, Invalid("write for example priority=9", "%q sets nothing", setting)
		case !utf8.ValidString(setting):
			return nil, Wrong(field, "convert it, for example with: iconv -t UTF-8", "what %s is set to is not valid UTF-8", field)
		case field == "":
			field = key // ReadPatch says what is known
		case twice:
			return nil, Wrong(field, "leave one of them out", "%s is given twice", field)
		case value == "":
			patch[field] = nil
			continue
		}
		patch[field] = value
		switch fields[field].(type) {
		case *[]string:
			list := strings.Split(value, ",")
			for i := range list {
				list[i] = strings.TrimSpace(list[i])
			}
			patch[field] = list
		case *int, *bool:
			if json.Valid([]byte(value)) {
				patch[field] = json.RawMessage(value)
			}
		}
	}
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = ReadPatch(data, &TaskSpec{}) // says which name is unknown, and which value is of another kind
	}
	return data, err
}
