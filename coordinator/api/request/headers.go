package request

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/task"
)

// A Key is part of the input of an operation whose requests may have an idempotency key. It
// takes the header by itself, where it can be told from one that is empty or there twice. "": there is none.
type Key string

// KeyHeader is the header with the idempotency key of a request.
const KeyHeader = "Idempotency-Key"

// Resolve implements [Resolver].
func (k *Key) Resolve(r *http.Request) error {
	values := r.Header[KeyHeader]
	if len(values) == 0 {
		return nil
	}
	key := strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) && task.IsPrintable(key) { // a string of structured fields (RFC 8941)
		key, _ = strconv.Unquote(key) // "": it is none
	}
	if len(values) > 1 || task.CheckKey(key) != nil {
		return task.Wrong(KeyHeader, "send for example "+KeyHeader+`: "8e03978e-40d5-43dd-bc93-6894a57f9324", or leave the key out`, "%s has to be there once, with 1 to 256 printable characters, which may stand in quotes", KeyHeader)
	}
	*k = Key(key)
	return nil
}

// A Match is part of the input of an operation that takes an If-Match. Its field describes
// the header, which Resolve takes by itself, as a [Key] does.
type Match struct {
	IfMatch string   `header:"If-Match" doc:"ETag of the task as it was last seen: a task that has changed since is not edited (412)" example:"\"1043\""`
	Seqs    []uint64 // the numbers that it permits; none if it permits any, or is not there
}

// Resolve implements [Resolver]. An ETag that is none of ours permits nothing. An empty
// header, of a client that has lost its ETag, is refused.
func (m *Match) Resolve(r *http.Request) error {
	const name = "If-Match"
	lines := r.Header[name]
	var tags []string
	for tag := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if tag = strings.Trim(tag, " \t"); tag != "" { // empty members do not count (RFC 9110, 5.6.1)
			tags = append(tags, tag)
		}
	}
	switch {
	case len(lines) == 0 || slices.Equal(tags, []string{"*"}):
		return nil
	case len(tags) == 0:
		return task.Wrong(name, "send the ETag of the task as you last saw it, or leave the header out", "the header %s is empty", name)
	}
	for _, tag := range tags {
		seq, err := strconv.ParseUint(strings.Trim(tag, `"`), 10, 64)
		if err != nil || ETag(seq) != tag {
			seq = 0 // no record has that number
		}
		m.Seqs = append(m.Seqs, seq)
	}
	return nil
}

// ETag returns the ETag of a task by the number of its last record, "" if that is not known.
func ETag(seq uint64) string {
	if seq == 0 {
		return ""
	}
	return `"` + strconv.FormatUint(seq, 10) + `"`
}
