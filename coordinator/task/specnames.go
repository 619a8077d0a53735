package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// specNamesFolded is specNames without regard to capitals, as encoding/json reads names.
var specNamesFolded = sync.OnceValue(func() map[string]string {
	folded := map[string]string{}
	for name, field := range specNames() {
		folded[foldName(name)] = field
	}
	return folded
})

// foldName makes the same of all names that encoding/json takes for one another, as
// [strings.EqualFold] does; not so strings.ToLower, which leaves ſ and takes İ for i.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// RenameSpecs returns the JSON of a task, or of a list of tasks, with the names of
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
	list, err := values(data)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(list))
	for i := range list {
		if out[i], err = renameSpec(list[i]); err != nil {
			return nil, AtTask(err, i, len(list))
		}
	}
	return slices.Concat([]byte("["), bytes.Join(out, []byte(",")), []byte("]")), nil
}

// values returns the values of a list. A longer one than is taken is not read to its end:
// it would take many times its memory.
func values(data []byte) (list []json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	_, err = dec.Token()
	for err == nil && dec.More() {
		if len(list) == MaxBatch {
			return nil, ErrLongList
		}
		list = append(list, nil)
		err = dec.Decode(&list[len(list)-1])
	}
	return list, err
}

// renameSpec is RenameSpecs for one task.
func renameSpec(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) { // no object
		return data, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	given, isCodex := map[string]string{}, false
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
		isCodex = isCodex || string(name) == `"agentSession"` && isCodexSession(given["agentSession"]) && string(value) != "null"
	}
	if isCodex && given["agent"] == "" {
		out.WriteString(`,"agent":"codex"`)
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
	field := cmp.Or(specNamesFolded()[foldName(key)], key)
	switch before, twice := given[field]; {
	case twice && before == key:
		return nil, nil, Wrong(field, "leave one of them out", "%s is given twice", key)
	case twice:
		return nil, nil, Wrong(field, "leave one of them out", "%s and %s mean the same", before, key)
	}
	given[field] = key
	name, err = json.Marshal(field)
	return name, value, err
}
