package task

import (
	"bytes"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// LoneSurrogate returns the place of the first escape in JSON text that is one half of a
// surrogate pair without the other, such as \ud800; -1 if there is none. No Unicode text
// has such a thing, and encoding/json reads it as U+FFFD.
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

// escapedRune returns what the escape \uXXXX that data begins with stands for; 0 if it
// begins with none.
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
var emptyKey = regexp.MustCompile(`(?i)"idempotency_?key"\s*:\s*""`)

// EmptyKey returns the place of an idempotency key that is given and empty; -1 if there is
// none. Most likely a script's variable is not set, and the task would be made twice.
func EmptyKey(data []byte) int {
	if at := emptyKey.FindIndex(data); at != nil {
		return at[0]
	}
	return -1
}
