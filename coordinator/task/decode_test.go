package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"stint/state/jobs"
)

// FuzzDecode: what is taken is JSON in UTF-8, and means the same to encoding/json if that knows its names.
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
		checkDecode[TaskSpec](t, body, func(data []byte, s *TaskSpec) error {
			_, err := ReadPatch(data, s)
			return err
		})
		checkDecode(t, body, func(data []byte, list *[]TaskSpec) error {
			specs := Specs{}
			err := Decode(data, &specs)
			if *list = specs.List; !specs.IsList {
				return Invalid("", "no list")
			}
			return err
		})
		checkDecode(t, body, func(data []byte, v *jobs.Fail) error { return Decode(data, v) })
		checkDecode(t, body, func(data []byte, v **struct{}) error { return Decode(data, v) })
	})
}

// checkDecode compares with encoding/json what becomes of a body of a type.
func checkDecode[T any](t *testing.T, body []byte, decode func([]byte, *T) error) {
	t.Helper()
	var got, want T
	err := decode(body, &got)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeInvalid || e.Hint == "" && e.Message != "no list" || !utf8.ValidString(e.Error()) {
			t.Errorf("%T %q: %v", got, body, err)
		}
		return
	}
	if !json.Valid(body) || !utf8.Valid(body) {
		t.Errorf("%T: took %q", got, body)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if dec.Decode(&want) == nil {
		if diff := cmp.Diff(want, got, cmp.AllowUnexported()); diff != "" {
			t.Errorf("%T %q (-want +got):\n%s", got, body, diff)
		}
	}
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
		allocs := testing.AllocsPerRun(1, func() {
			if Decode([]byte(body), new(Specs)) == nil {
				t.Errorf("%s was taken", name)
			}
		})
		t.Logf("%s: %v allocations", name, allocs)
		if allocs > 1<<19 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
