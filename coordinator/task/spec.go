package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"stint/ledger/lazy"
	"stint/state"
)

// ParseSpecs reads task specs as JSON: one object, or an array of them. name is the file's, for errors. The names are those of
// TaskSpec's JSON, the same with underscores (session_key), or those that other programs use: tool for agent, session for
// sessionKey, tenant for tenantId, output_files for outputSpec, codexSessionId for agentSession, with which the agent is codex
// unless it is named. What is wrong is an *Error with CodeInvalid that begins with "name:line:". Nothing is filled in, and of
// the values only their kinds are checked.
func ParseSpecs(name string, data []byte) ([]TaskSpec, error) {
	r := &specReader{name: name, data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}
	if err := r.checkSyntax(); err != nil {
		return nil, err
	}
	r.dec = json.NewDecoder(bytes.NewReader(r.data))
	if bytes.HasPrefix(bytes.TrimSpace(r.data), []byte("{")) {
		s, err := r.spec()
		return []TaskSpec{s}, err
	}
	var specs []TaskSpec
	err := r.list("a task, or a list of tasks", func() error {
		if len(specs) == MaxBatch { // before more of them are made
			return r.fail(r.dec.InputOffset(), ErrLongList.Hint, "%s", ErrLongList.Message)
		}
		s, err := r.spec()
		specs = append(specs, s)
		return err
	})
	if err == nil && len(specs) == 0 {
		err = r.fail(0, "write for example [{\"prompt\": \"what to do\"}]", "there is no task in it")
	}
	return specs, err
}

// A specReader reads a JSON text, whose syntax was checked, piece by piece: dec does not fail.
type specReader struct {
	name string // of the file, for errors; "": it is none
	data []byte
	dec  *json.Decoder
}

// fail makes an error about what stands at an offset.
func (r *specReader) fail(off int64, hint, format string, args ...any) error {
	if r.name == "" {
		return Invalid(hint, format, args...)
	}
	line := 1 + bytes.Count(r.data[:off], []byte("\n"))
	return Invalid(hint, "%s:%d: %s", r.name, line, fmt.Sprintf(format, args...))
}

func (r *specReader) checkSyntax() error {
	if !utf8.Valid(r.data) {
		off := firstInvalid(string(r.data))
		return r.fail(int64(off), "convert it, for example with: iconv -t UTF-8", "it is not valid UTF-8")
	}
	var all json.RawMessage
	err := json.Unmarshal(r.data, &all)
	var bad *json.SyntaxError
	switch {
	case err == nil && LoneSurrogate(r.data) >= 0:
		return r.fail(int64(LoneSurrogate(r.data)), `escape both halves, as in \ud83d\ude00`, "half of a surrogate pair is no character")
	case err == nil && EmptyKey(r.data) >= 0:
		return r.fail(int64(EmptyKey(r.data)), "give the key a value, or leave it out", "the idempotency key is empty")
	case err == nil:
		return nil
	case len(bytes.TrimSpace(r.data)) == 0:
		return r.fail(0, "write for example {\"prompt\": \"what to do\"}", "it is empty")
	case !errors.As(err, &bad):
		return r.fail(0, "fix it", "it is not JSON: %v", err)
	}
	hint := "fix the JSON there"
	if strings.HasSuffix(bad.Error(), "after top-level value") {
		hint = "write several tasks as a list: [{…}, {…}]"
	}
	return r.fail(min(bad.Offset, int64(len(r.data))), hint, "%v", bad)
}

// list reads an array of what item reads; kind says what is expected in its place.
func (r *specReader) list(kind string, item func() error) error {
	if tok, _ := r.dec.Token(); tok != json.Delim('[') {
		return r.fail(r.dec.InputOffset(), "write it as JSON has it", "here must be %s", kind)
	}
	for r.dec.More() {
		if err := item(); err != nil {
			return err
		}
	}
	_, _ = r.dec.Token()
	return nil
}

// spec reads one task.
func (r *specReader) spec() (s TaskSpec, err error) {
	given, err := r.object("a task such as {\"prompt\": \"what to do\"}", Fields(&s), SpecNames())
	s.NamedBy(given["agentSession"])
	return s, err
}

// object reads an object into what fields point to. names has all names that a field
// may have. given has those that it has, by the fields' own.
func (r *specReader) object(kind string, fields map[string]any, names map[string]string) (given map[string]string, err error) {
	if tok, _ := r.dec.Token(); tok != json.Delim('{') {
		return nil, r.fail(r.dec.InputOffset(), "write it as JSON has it", "here must be %s", kind)
	}
	given = map[string]string{}
	for r.dec.More() {
		tok, _ := r.dec.Token()
		key, _ := tok.(string)
		name, known := names[key]
		for other, field := range names { // as encoding/json reads names, without regard to capitals
			if known {
				break
			}
			if known = strings.EqualFold(other, key); known {
				name = field
			}
		}
		if !known {
			return nil, InField(key, r.fail(r.dec.InputOffset(), "", "%s", unknownText(key, names)))
		}
		if twice := noteGiven(given, name, key); twice != "" {
			return nil, InField(name, r.fail(r.dec.InputOffset(), "leave one of them out", "%s", twice))
		}
		if err := r.value(key, fields[name]); err != nil {
			return nil, InField(name, err)
		}
	}
	_, _ = r.dec.Token()
	return given, nil
}

// noteGiven notes by which name a field is given. It returns what is wrong if it was given before.
func noteGiven(given map[string]string, field, key string) (twice string) {
	before, isGiven := given[field]
	switch given[field] = key; {
	case isGiven && before == key:
		return key + " is given twice"
	case isGiven:
		return before + " and " + key + " mean the same"
	}
	return ""
}

func unknownText(key string, names map[string]string) string {
	known := slices.Sorted(maps.Keys(names))
	if near := state.Nearest(key, known); near != "" {
		return fmt.Sprintf("unknown field %q; did you mean %s?", key, near)
	}
	own := slices.Compact(slices.Sorted(maps.Values(names)))
	return fmt.Sprintf("unknown field %q; known are %s", key, strings.Join(own, ", "))
}

// value reads the value of a field. null is as good as none.
func (r *specReader) value(key string, dst any) error {
	if files, ok := dst.(*[]state.InputFile); ok {
		return r.inputFiles(files)
	}
	raw := nextValue(r.dec)
	reflect.ValueOf(dst).Elem().SetZero()
	kind, err := "", error(nil)
	switch dst := dst.(type) {
	case *time.Time:
		kind, err = "a time such as \"2026-11-21T03:12:45Z\"", readTime(raw, dst)
	case *string:
		kind, err = "a text in quotes", json.Unmarshal(raw, dst)
	case *int:
		kind, err = "a whole number", json.Unmarshal(raw, dst)
	case *bool:
		kind, err = "true or false", json.Unmarshal(raw, dst)
	case *[]string:
		kind, err = "a list of texts such as [\"a\", \"b\"]", json.Unmarshal(raw, dst)
	default:
		err = fmt.Errorf("%s cannot be read", key)
	}
	if err != nil {
		short := state.Cut(strings.Join(strings.Fields(string(raw)), " "), 40)
		return r.fail(r.dec.InputOffset()-int64(len(raw)), "write it so", "%s must be %s, not %s", key, kind, short)
	}
	return nil
}

func readTime(raw []byte, t *time.Time) (err error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	*t, err = state.ParseTime(s)
	return err
}

// inputFiles reads the list of files that come with a task.
func (r *specReader) inputFiles(files *[]state.InputFile) error {
	if rest := bytes.TrimLeft(r.data[r.dec.InputOffset():], ": \t\r\n"); bytes.HasPrefix(rest, []byte("null")) {
		_, _ = r.dec.Token()
		return nil
	}
	names := map[string]string{"name": "name", "content": "content"}
	return r.list("a list such as [{\"name\": \"notes.txt\", \"content\": \"…\"}]", func() error {
		var f state.InputFile
		_, err := r.object("a file such as {\"name\": \"notes.txt\", \"content\": \"…\"}", map[string]any{"name": &f.Name, "content": &f.Content}, names)
		*files = append(*files, f)
		return err
	})
}

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

// NamedBy is told by which of its names agentSession was given: one of codex's makes that the agent if there is none.
func (s *TaskSpec) NamedBy(name string) {
	if (name == "codexSessionId" || name == "codex_session_id") && s.AgentSession != "" {
		s.Agent = cmp.Or(s.Agent, "codex")
	}
}

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

func nextValue(dec *json.Decoder) (value json.RawMessage) {
	_ = dec.Decode(&value)
	return value
}

// LoneSurrogate returns the place of the first escape in JSON text that is half of a surrogate pair, such as
// \ud800; -1 if there is none. It is no Unicode, and encoding/json reads it as U+FFFD.
func LoneSurrogate(data []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(data[i:], '\\')
		if n < 0 {
			return -1
		}
		i += n
		switch first := escapedRune(data[i:]); {
		case !utf16.IsSurrogate(first):
			i += min(2, len(data)-i)
		case utf16.DecodeRune(first, escapedRune(data[i+6:])) == utf8.RuneError:
			return i
		default:
			i += 12
		}
	}
}

// escapedRune returns what the escape \uXXXX that data begins with stands for; 0 if it begins with none.
func escapedRune(data []byte) rune {
	if len(data) < 6 || !bytes.HasPrefix(data, []byte(`\u`)) {
		return 0
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// emptyKey finds an idempotency key that is given and empty in the JSON of a task, where
// names count without regard to capitals. In a string of JSON the quotes would be escaped.
var emptyKey = lazy.Regexp(`(?i)"idempotency_?key"\s*:\s*""`)

// EmptyKey returns the place of an idempotency key that is given and empty; -1 if there is
// none. Most likely a script's variable is not set, and the task would be made twice.
func EmptyKey(data []byte) int {
	if at := emptyKey().FindIndex(data); at != nil {
		return at[0]
	}
	return -1
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
