package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stint/coordinator/task"
)

// twiceByTokens is checkNames by another way: it reports whether an object of the next
// value has a name twice, and whether all is within the bounds of what is looked at.
func twiceByTokens(dec *json.Decoder, depth int) (twice, within bool) {
	tok, _ := dec.Token()
	within = true
	if tok != json.Delim('{') && tok != json.Delim('[') {
		return false, true
	}
	within = depth+1 < maxDepth
	var names []string
	for dec.More() {
		if tok == json.Delim('{') {
			name, _ := dec.Token()
			for _, n := range names {
				twice = twice || strings.EqualFold(n, name.(string))
			}
			names = append(names, name.(string))
			quoted, _ := json.Marshal(name)
			within = within && len(quoted) <= maxName/6 // as long may be what is sent
		}
		t, w := twiceByTokens(dec, depth+1)
		twice, within = twice || t, within && w
	}
	_, _ = dec.Token()
	return twice, within && len(names) <= maxNames
}

// FuzzCheckNames compares with what a decoder of JSON sees, which puts U+FFFD in place of
// half of a surrogate pair.
func FuzzCheckNames(f *testing.F) {
	for _, body := range []string{
		"", `{}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `{"a":"a","b":"a"}`, `{"a":"{\"b\":1,\"b\":2}"}`, `{"a\\":1,"a\\":2}`, `{"a\"":1,"a":2}`,
		`{"\u0061":1,"a":2}`, `{"ſ":1,"s":2}`, `{"K":1,"k":2}`, `{"a" : 1 , "a" : 2}`, `[[[[[[[[[[{"a":1,"a":2}]]]]]]]]]]`, `["a","a"]`, `{"":1,"":2}`, `{"\ud800":1,"\ufffd":2}`, `{"\ud800":0}`, `["\\ud800"]`,
		`{"a":"b\\","b":1,"a":2}`, `{"a":[1,2,{"b":{"c":[],"c":1}}]}`, `{"a":"`, `{"a`, `}]`, `"`, `"\`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkNames(body)
		if err != nil && !strings.HasPrefix(err.Error(), "body") {
			t.Errorf("%q: %v", body, err)
		}
		if !json.Valid(body) {
			return
		}
		if twice, within := twiceByTokens(json.NewDecoder(bytes.NewReader(body)), 0); within && (twice || task.LoneSurrogate(body) >= 0) != (err != nil) {
			t.Errorf("%q: %v", body, err)
		}
	})
}

// TestNamesOfMany: neither very many names, nor long ones, nor very deep values take long, or memory.
func TestNamesOfMany(t *testing.T) {
	var deep, many, long bytes.Buffer
	for range 1 << 20 {
		deep.WriteString(`{"a":`)
	}
	for i := range 1 << 18 {
		fmt.Fprintf(&many, `"%x":0,`, i)
	}
	for i := range maxNames {
		fmt.Fprintf(&long, `"%s%x":0,`, strings.Repeat("\\u0061", 1<<12), i)
	}
	for name, body := range map[string]string{"deep": deep.String(), "many": "{" + many.String() + `"":0}`, "long": "{" + long.String() + `"":0}`} {
		var err error
		if allocs := testing.AllocsPerRun(1, func() { err = checkNames([]byte(body)) }); allocs > 300 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, allocs, err)
		}
	}
	prompt := []byte(`{"prompt":"` + strings.Repeat(`\"x`, 1<<20) + `","prompt":1}`)
	if err := checkNames(prompt); err == nil {
		t.Error("behind a long text, a name that is there twice is not seen")
	}
}
