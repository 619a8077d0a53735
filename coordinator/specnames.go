package coordinator

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// specNamesFolded is specNames without regard to capitals, as encoding/json reads names.
var specNamesFolded = sync.OnceValue(func() map[string]string {
	folded := map[string]string{}
	for name, field := range specNames() {
		folded[strings.ToLower(name)] = field
	}
	return folded
})

// RenameSpecs gives the JSON of a task, or of a list of tasks, with the names of
// TaskSpec's JSON where it has others that [ParseSpecs] knows. What is no task, or no
// JSON, stays as it is. A field that is given twice, in two spellings, is an *Error that
// names both.
func RenameSpecs(data []byte) ([]byte, error) {
	if !json.Valid(data) { // a decoder that is asked for tokens does not miss the last brace
		return data, nil
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")) {
		return renameSpec(data)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for i := range list {
		var err error
		if list[i], err = renameSpec(list[i]); err != nil {
			return nil, AtTask(err, i, len(list))
		}
	}
	return json.Marshal(list)
}

// renameSpec is RenameSpecs for one task.
func renameSpec(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return data, err
	}
	given := map[string]string{}
	var out bytes.Buffer
	for before := byte('{'); dec.More(); before = ',' {
		name, value, err := nextField(dec, given)
		if err != nil {
			return nil, err
		}
		out.WriteByte(before)
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	if out.Len() == 0 {
		return data, nil
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// nextField reads a field of a task: its name, as JSON has TaskSpec's, and its value.
// given has the fields before it.
func nextField(dec *json.Decoder, given map[string]string) (name []byte, value json.RawMessage, err error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, nil, err
	}
	key, _ := tok.(string)
	if err := dec.Decode(&value); err != nil {
		return nil, nil, err
	}
	field := first(specNamesFolded()[strings.ToLower(key)], key)
	switch before, twice := given[field]; {
	case twice && before == key:
		return nil, nil, wrong(field, "leave one of them out", "%s is given twice", key)
	case twice:
		return nil, nil, wrong(field, "leave one of them out", "%s and %s mean the same", before, key)
	}
	given[field] = key
	name, err = json.Marshal(field)
	return name, value, err
}
