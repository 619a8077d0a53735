package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// Bounds of what is looked at for names that are there twice. No body that is taken has
// an object with as many fields, or names as long, or values as deep.
const (
	maxNames = 100
	maxName  = 256 // bytes, with the quotes and all that escapes a letter
	maxDepth = 10
)

// checkNames reports which field an object of a body has twice, without regard to capitals,
// as encoding/json reads names; nil if none. encoding/json would take the last one, or a
// mixture of both. It also refuses a string with half of a surrogate pair. What is no JSON
// is not its to refuse.
func checkNames(data []byte) error {
	s := nameScan{}
	for i := 0; i < len(data) && len(s.open) < maxDepth; i++ {
		switch c := data[i]; c {
		case '{', '[':
			n := len(s.open)
			s.open = slices.Grow(s.open, 1)[:n+1]
			s.open[n] = level{isList: c == '[', names: s.open[n].names[:0]} // the memory of one that was as deep
		case '}', ']':
			s.open = s.open[:max(0, len(s.open)-1)]
		case ',':
			if n := len(s.open); n > 0 {
				s.open[n-1].index++
			}
		case '"':
			end := i + stringEnd(data[i:])
			if task.LoneSurrogate(data[i:end]) >= 0 {
				return fmt.Errorf(`%s: half of a surrogate pair is no character; escape both halves, as in \ud83d\ude00`, s.path())
			}
			if bytes.HasPrefix(bytes.TrimLeft(data[end:], " \t\r\n"), []byte(":")) {
				if err := s.add(data[i:end]); err != nil {
					return err
				}
			}
			i = end - 1
		}
	}
	return nil
}

// A nameScan knows the names of the objects and lists that are open, from the outside in.
type nameScan struct{ open []level }

type level struct {
	isList bool
	index  int      // of the present value
	names  [][]byte // of an object, up to the present one
}

// add takes the next name of the innermost object.
func (s *nameScan) add(quoted []byte) error {
	if len(s.open) == 0 || len(quoted) > maxName {
		return nil
	}
	in := &s.open[len(s.open)-1]
	if len(in.names) == maxNames {
		return nil
	}
	if in.names == nil {
		in.names = make([][]byte, 0, 8) // more than most have
	}
	name := bytes.Trim(quoted, `"`)
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var text string
		_ = json.Unmarshal(quoted, &text) // what is no string has no name
		name = []byte(text)
	}
	in.names = append(in.names, name)
	for _, before := range in.names[:len(in.names)-1] {
		if bytes.Equal(before, name) {
			return fmt.Errorf("%s: it is there twice", s.path())
		} else if bytes.EqualFold(before, name) {
			return fmt.Errorf("%s: it is there twice, also as %s", s.path(), wire.Clip(string(before)))
		}
	}
	return nil
}

// path returns where the present value is, as the faults of a body have it.
func (s *nameScan) path() string {
	path := "body"
	for _, in := range s.open {
		if in.isList {
			path += fmt.Sprintf("[%d]", in.index)
		} else if n := len(in.names); n > 0 {
			path += "." + wire.Clip(string(in.names[n-1]))
		}
	}
	return path
}

// stringEnd returns the length of the JSON string that data begins with; that of data if its
// end is missing.
func stringEnd(data []byte) int {
	for end := 1; ; {
		quote := bytes.IndexByte(data[end:], '"')
		if quote < 0 {
			return len(data)
		}
		before := bytes.TrimRight(data[:end+quote], `\`)
		if end += quote + 1; (end-1-len(before))%2 == 0 {
			return end
		}
	}
}
