package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
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
