package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"stint/state/jobs"
)

// strictly decodes with encoding/json, for which properties must be known.
func strictly(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if len(bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return errors.New("something follows")
	}
	return nil
}

// twice reports whether an object of the next value has a name twice, as encoding/json reads names.
func twice(dec *json.Decoder) (is bool) {
	tok, _ := dec.Token()
	if tok != json.Delim('{') && tok != json.Delim('[') {
		return false
	}
	var names []string
	for dec.More() {
		if tok == json.Delim('{') {
			name, _ := dec.Token()
			for _, n := range names {
				is = is || strings.EqualFold(n, name.(string))
			}
			names = append(names, name.(string))
		}
		is = twice(dec) || is
	}
	_, _ = dec.Token()
	return is
}

// checkDecode compares with encoding/json what becomes of a body of a type.
func checkDecode[T any](t *testing.T, body []byte) {
	var got, want T
	d := decode(body, SchemaOf(reflect.TypeFor[T]()), reflect.ValueOf(&got).Elem())
	refused := strictly(body, &want)
	odd := refused == nil && (twice(json.NewDecoder(bytes.NewReader(body))) || loneSurrogate(body) >= 0 || strayNull(body) && reflect.TypeFor[T]().Kind() != reflect.Pointer)
	if err := d.err(); (err != nil) != (refused != nil || odd) {
		t.Errorf("%T %q: %v, and encoding/json says %v %v", got, body, err, refused, odd)
	} else if notJSON := err != nil && strings.Contains(err.Error(), NotJSON); notJSON == json.Valid(body) && err != nil {
		t.Errorf("%T %q: %v", got, body, err)
	} else if err != nil && !notJSON && len(d.faults) == 0 {
		t.Errorf("%T %q: %v names no fault", got, body, err)
	} else if diff := cmp.Diff(want, got, cmp.AllowUnexported()); err == nil && diff != "" {
		t.Errorf("%T %q (-want +got):\n%s", got, body, diff)
	}
}

// strayNull reports whether there is a null that is no property's value.
func strayNull(body []byte) bool {
	var all any
	_ = json.Unmarshal(body, &all) // it was read already
	var isStray func(v any) bool
	isStray = func(v any) bool {
		switch v := v.(type) {
		case nil:
			return true
		case []any:
			return slices.ContainsFunc(v, isStray)
		case map[string]any:
			return slices.ContainsFunc(slices.Collect(maps.Values(v)), func(v any) bool { return v != nil && isStray(v) })
		}
		return false
	}
	return isStray(all)
}

// FuzzDecode: what is taken, and what becomes of it, is as with encoding/json, but that names count once, and null stands for
// a property alone.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		"", "null", "{}", "[]", `{"a":1}`, `{"prompt":"a","prompt":"b"}`, `{"prompt":"a","PROMPT":"b"}`, `{"Prompt":"a"}`, `{"prompt":null,"hold":null,"after":null,"priority":null,"notBefore":null}`, `{"prompt":"\ud800"}`, `{"\ud800":0}`, `{"prompt":"\ufffd\uFFFD�\\ufffd"}`, `{"prompt":"\\ufffd\ud800"}`, `{"prompt":"\\\ud800\\\\ufffd"}`,
		`{"prompt":"\ud83d\ude00 \u0041\n\t\"\\\/\b\f\r"}`, `{"prompt":"\x"}`, `{"prompt":"a`, `{"prompt":"a\`, `{"prompt":"a\"`, `{"prompt":"a` + "\n" + `"}`, `{"prom\u0070t":"x"}`, `{"K":1,"k":2}`, `{"ſpare":true}`,
		`{"priority":1}`, `{"priority":-0}`, `{"priority":01}`, `{"priority":+1}`, `{"priority":1.0}`, `{"priority":1.5}`, `{"priority":1e3}`, `{"priority":1e99}`, `{"priority":-}`, `{"priority":9223372036854775807}`, `{"priority":9223372036854775808}`, `{"priority":1_0}`,
		`{"hold":true,"spare":false}`, `{"hold":tru}`, `{"hold":"true"}`, `{"hold":truex}`, `{"hold":nul}`, `{"after":["a","b"]}`, `{"after":[]}`, `{"after":["a",null]}`, `{"after":["a",]}`, `{"after":[,"a"]}`, `{"after":["a" "b"]}`, `{"after":"a"}`, `{"after":[[["a"]]]}`,
		`{"notBefore":"2026-11-21T03:15:09.482Z"}`, `{"notBefore":"tomorrow"}`, `{"notBefore":"2026-11-21T03:15:09,5Z"}`, `{"inputFiles":[{"name":"a","content":"b"},{"name":"c","content":"d","name":"e"}]}`, `{"inputFiles":[{"nam":1}]}`, `{"inputFiles":[null,{}]}`,
		" {\t\"prompt\" :\r\n\"x\" , \"hold\" : true } \n", `{"prompt":"x"}x`, `{"prompt":"x"} {}`, `{"prompt":"x",}`, `{,"prompt":"x"}`, `{"prompt" "x"}`, `{"prompt":}`, `{prompt:"x"}`, `{"prompt":"x"`, `{"x":[{"y":"]"},{}],"prompt":1}`, `{"x":"a\"`, `{"x":nul}`,
		`[{"prompt":"a"},{"prompt":"b","hold":true},null]`, `[{"prompt":"a"}`, `[1]`, `["x",{}]`, "\x00", "{\"prompt\":\"a\"}\x00", "{\x00", `{"error":"x","retry_delay_sec":null}`, `{"error":"x","retry_delay_sec":5}`, `{"retry_delay_sec":"5","worker_id":"x"}`, `{"-":1}`, `{"":1}`,
		`{"prompt":"` + strings.Repeat(`\n`, 3000) + `"}`, strings.Repeat(`{"x":`, 20_000) + "1" + strings.Repeat("}", 20_000),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !utf8.Valid(body) {
			return // which is refused before
		}
		checkDecode[TaskSpec](t, body)
		checkDecode[[]TaskSpec](t, body)
		checkDecode[jobs.Fail](t, body)
		checkDecode[*struct{}](t, body)
	})
}

// TestDecodeIsLinear: neither very many names, nor long ones, nor very deep values take long, or memory.
func TestDecodeIsLinear(t *testing.T) {
	var deep, many, long bytes.Buffer
	for range 1 << 20 {
		deep.WriteString(`{"a":`)
	}
	for i := range 1 << 18 {
		fmt.Fprintf(&many, `"%x":0,`, i)
	}
	for i := range 100 {
		fmt.Fprintf(&long, `"%s%x":0,`, strings.Repeat("\\u0061", 1<<12), i)
	}
	for name, body := range map[string]string{"deep": deep.String(), "many": "{" + many.String() + `"":0}`, "long": "{" + long.String() + `"":0}`} {
		s := SchemaOf(reflect.TypeFor[TaskSpec]())
		allocs := testing.AllocsPerRun(1, func() {
			d := decode([]byte(body), s, reflect.ValueOf(new(TaskSpec)).Elem())
			if d.err() == nil {
				t.Errorf("%s was taken", name)
			}
		})
		t.Logf("%s: %v allocations", name, allocs)
		if allocs > 1<<19 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// loneSurrogate returns the place of the first escape in JSON text that is half of a surrogate pair, such as
// \ud800; -1 if there is none. It is no Unicode, and encoding/json reads it as U+FFFD.
func loneSurrogate(data []byte) int {
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
