package task

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/state"
)

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
