package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// walk calls see with each object of a JSON document and where it stands.
func walk(at string, v any, see func(at string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		see(at, v)
		for name, value := range v {
			walk(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), value, see)
		}
	case []any:
		for i, value := range v {
			walk(fmt.Sprint(at, "/", i), value, see)
		}
	}
}

// TestDescriptionIsWhole: each operation, parameter, field and tag is described and has an
// example that fits it, and nothing is described in a way that generators cannot use.
func TestDescriptionIsWhole(t *testing.T) {
	text := ask(newServer(newFake(t), Options{}), "GET", "/v1/openapi.json", "", "").Body.Bytes()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	schemas := jsonschema.NewCompiler()
	must(t, schemas.AddResource("mem:///openapi.json", doc))
	lookup := func(pointer string) map[string]any {
		v := doc
		for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
			v = v.(map[string]any)[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
		}
		return v.(map[string]any)
	}
	fits := func(at string, value any) {
		schema, err := schemas.Compile("mem:///openapi.json" + at)
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: the example does not fit: %v", at, err)
		}
	}
	operations, fields := 0, 0
	walk("#", doc, func(at string, o map[string]any) {
		parts := strings.Split(at, "/")
		parent := parts[max(0, len(parts)-2)]
		isExample := slices.Contains(parts, "examples") || slices.Contains(parts, "example")
		described := func(what string) {
			if about, _ := o["description"].(string); about == "" {
				t.Errorf("%s: %s without a description", at, what)
			}
		}
		switch {
		case isExample:
			if o["status"] == "draft" && o["result"] != nil {
				t.Errorf("%s: a draft has an answer: the examples of its properties were passed over", at)
			}
			return
		case o["operationId"] != nil:
			operations++
			described("an operation")
			if tags, _ := o["tags"].([]any); len(tags) != 1 {
				t.Errorf("%s: tags %v", at, o["tags"])
			}
		case parent == "parameters":
			described("a parameter")
			if o["schema"].(map[string]any)["examples"] == nil {
				t.Errorf("%s: %v without an example", at, o["name"])
			}
		case parent == "properties":
			fields++
			described("a field")
			items, _ := o["items"].(map[string]any)
			if o["examples"] == nil && o["$ref"] == nil && items["$ref"] == nil {
				t.Errorf("%s: a field without an example", at)
			}
		case parent == "tags" || parent == "responses" && o["$ref"] == nil:
			described("a part")
		case parent == "content":
			if o["example"] == nil {
				t.Errorf("%s: a body without an example", at)
			} else {
				fits(at+"/schema", o["example"])
			}
		}
		if list, _ := o["examples"].([]any); len(list) > 0 {
			fits(at, list[0])
		}
		if o["oneOf"] != nil || o["anyOf"] != nil {
			t.Errorf("%s: a choice that no generator can tell apart", at)
		}
		if kinds, many := o["type"].([]any); many && !strings.HasPrefix(at, "#/components/schemas/TaskPatch/") && !strings.HasSuffix(at, "/Job/properties/last_error") && !strings.HasSuffix(at, "/QueueRow/properties/error") {
			t.Errorf("%s: %v", at, kinds)
		}
	})
	if operations < 35 || fields < 200 {
		t.Errorf("only %d operations and %d fields were seen", operations, fields)
	}
	for name, want := range map[string]any{"Status": state.Statuses[:], "Class": state.Classes[:], "Code": slices.Sorted(maps.Keys(wire.Statuses))} {
		got, _ := json.Marshal(lookup("#/components/schemas/" + name)["enum"])
		if want, _ := json.Marshal(want); string(got) != string(want) {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for status, codes := range map[string][]task.Code{"Conflict": {"ambiguous", "conflict"}, "PreconditionFailed": {"changed"}, "MisdirectedRequest": {"forbidden"}, "TooManyRequests": {"too-many"}} {
		if about := lookup("#/components/responses/" + status)["description"].(string); !strings.HasSuffix(about, fmt.Sprintf("Codes: `%s`.", strings.Join(strings.Fields(strings.Trim(fmt.Sprint(codes), "[]")), "`, `"))) {
			t.Errorf("%s: %s", status, about)
		}
	}
}
