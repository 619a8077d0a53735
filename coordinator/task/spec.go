package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"stint/state"
)

// ParseSpecs reads task specs as JSON: one object, or an array of them. name is the file's, for errors. The names are those of
// TaskSpec's JSON, the same with underscores (session_key), or those that other programs use: tool for agent, session for
// sessionKey, tenant for tenantId, output_files for outputSpec, codexSessionId for agentSession, with which the agent is codex
// unless it is named. What is wrong is an *Error with CodeInvalid that begins with "name:line:". Nothing is filled in, and of
// the values only their kinds are checked.
func ParseSpecs(name string, data []byte) ([]TaskSpec, error) {
	specs, isList, d := decodeSpecs(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if err := d.inFile(name); err != nil {
		return specs, err
	}
	if isList && len(specs) == 0 {
		return specs, Invalid("write for example [{\"prompt\": \"what to do\"}]", "%s:1: there is no task in it", name)
	}
	return specs, nil
}

// DecodeSpecs reads task specs as the body of a request: one, or a list.
func DecodeSpecs(data []byte) (specs []TaskSpec, isList bool, err error) {
	specs, isList, d := decodeSpecs(data)
	return specs, isList, d.err()
}

func decodeSpecs(data []byte) (specs []TaskSpec, isList bool, d decoder) {
	if isList = bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")); isList {
		return specs, true, decode(data, specsSchema(), reflect.ValueOf(&specs).Elem())
	}
	specs = make([]TaskSpec, 1)
	return specs, false, decode(data, specsSchema().items, reflect.ValueOf(&specs[0]).Elem())
}

// specsSchema returns the schema of a list of specs.
var specsSchema = sync.OnceValue(func() *Schema {
	s := SchemaOf(reflect.TypeFor[[]TaskSpec]())
	one := s.items
	for name, field := range SpecNames() {
		one.byName[name] = one.byName[field]
	}
	one.want = `a task such as {"prompt": "what to do"}`
	files := one.fields[one.byName["inputFiles"]]
	files.want, files.items.want = `a list such as [{"name": "notes.txt", "content": "…"}]`, `a file such as {"name": "notes.txt", "content": "…"}`
	one.fields[one.byName["idempotencyKey"]].isKey = true
	session := one.byName["agentSession"]
	one.done = func(v reflect.Value, given []string) { // one of codex's names makes that the agent if there is none
		if s := v.Addr().Interface().(*TaskSpec); strings.HasPrefix(given[session], "codex") && s.AgentSession != "" {
			s.Agent = cmp.Or(s.Agent, "codex")
		}
	}
	return s
})

// Fields returns pointers to the fields of a spec that a client may set, by their names in JSON.
func Fields(s *TaskSpec) map[string]any {
	fields, v := map[string]any{}, reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); name != "-" {
			fields[name] = v.Field(i).Addr().Interface()
		}
	}
	return fields
}

// SpecNames returns every name that a field of a spec may have, with the field's own. It is not to be changed.
var SpecNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{
		"codexSessionId": "agentSession", "codex_session_id": "agentSession", "tool": "agent", "verify": "verifyCommand", "session": "sessionKey", "tenant": "tenantId", "output_files": "outputSpec", "outputFiles": "outputSpec", "scheduled_at": "notBefore",
	}
	for name := range Fields(&TaskSpec{}) {
		names[name], names[WithUnderscores(name)] = name, name
	}
	return names
})

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

// EditableFields returns the fields of a TaskSpec that an edit can change, by their keys in the ledger.
func EditableFields() []string { return slices.Clone(editable[:]) }

var editable = [...]string{
	state.KeySessionKey, state.KeyAgent, state.KeyAccount, state.KeyModel, state.KeyWorkspace, state.KeyResume, state.KeyLabel, state.KeyPriority,
	state.KeyAfter, state.KeyAfterPolicy, state.KeyNotBefore, state.KeyTimeout, state.KeyMaxAttempts, state.KeyBudget, state.KeyHold, state.KeySpare,
	state.KeyVerifyCommand, state.KeyMaxIterations, state.KeyVerifyTimeout, state.KeyOnFailure, state.KeyOnIssue, state.KeyOutputPolicy,
	state.KeyTenantID, state.KeyQueue, state.KeyFallback, state.KeyAllow, state.KeyOutputSpec, state.KeyPrompt,
}

// PatchSchema returns the schema of a merge patch, whose fields may be spelled as those of a task.
var PatchSchema = sync.OnceValue(func() *Schema {
	s := *specsSchema().items
	s.want, s.done, s.byName = `what is to be changed, such as {"priority": 9}`, nil, maps.Clone(s.byName)
	maps.DeleteFunc(s.byName, func(_ string, i int) bool { return !slices.Contains(editable[:], s.fields[i].name) })
	return &s
})

// ReadPatch puts a patch into a spec, and returns the name by which it calls each of its fields.
func ReadPatch(data []byte, s *TaskSpec) (given map[string]string, err error) {
	given = map[string]string{}
	schema := *PatchSchema()
	schema.done = func(_ reflect.Value, names []string) {
		for i, f := range schema.fields {
			if names[i] != "" {
				given[f.name] = names[i]
			}
		}
	}
	d := decode(data, &schema, reflect.ValueOf(s).Elem())
	return given, d.inFile("")
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
	schema, patch := PatchSchema(), map[string]any{}
	for _, setting := range settings {
		key, value, ok := strings.Cut(setting, "=")
		i, known := schema.byName[key]
		field := schema.fields[i]
		_, twice := patch[field.name]
		switch {
		case !ok:
			return nil, Invalid("write for example priority=9", "%q sets nothing", setting)
		case !known:
			return nil, Wrong(key, "", "%s", schema.unknown(key))
		case twice:
			return nil, Wrong(field.name, "leave one of them out", "%s is given twice", field.name)
		case value == "":
			patch[field.name] = nil
		case field.items != nil:
			list := strings.Split(value, ",")
			for i := range list {
				list[i] = strings.TrimSpace(list[i])
			}
			patch[field.name] = list
		case json.Valid([]byte(value)) && field.want != wants[reflect.String] && !field.isTime:
			patch[field.name] = json.RawMessage(value)
		default:
			patch[field.name] = value
		}
	}
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = ReadPatch(data, &TaskSpec{}) // says which value is of another kind
	}
	return data, err
}
