package postgres

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// storable returns s as PostgreSQL can hold it: what is no UTF-8, and NUL, becomes U+FFFD.
func storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// orNull is storable, or NULL for "".
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return storable(s)
}

// timeOrNull returns a time, or NULL for the zero one.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// jsonOf returns a value for a column of JSON. Strings in it have been through storable.
func jsonOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null") // no value that we make has one that JSON cannot hold
	}
	return b
}

// texts is storable for each of a list, which is never null.
func texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = storable(s)
	}
	return out
}

// names is the name space of the UUIDs that rows get whose ids in the ledger are none.
var names = uuid.MustParse("5f3b3c56-0d5e-5b0a-9f5e-9f6d3a1b7c11")

// rowID returns the UUID of a row, and what the ledger calls it if that is another one.
// Parts tell rows of one id apart: the host whose ledger it is, and the task.
func rowID(id string, parts ...string) (row [16]byte, ref any) {
	if u, err := uuid.Parse(id); err == nil && u.String() == id {
		return u, nil
	}
	return uuid.NewSHA1(names, fmt.Appendf(nil, "%q %q", id, parts)), storable(id)
}

// excerpt returns at most limit characters of what r holds, which has size bytes: of more
// than that the head and the tail, and between them how much was left out.
func excerpt(r io.ReaderAt, size int64, limit int) (string, error) {
	most := 4 * int64(limit) // bytes of so many characters
	if size <= most {
		s, err := readText(r, 0, size)
		if n := utf8.RuneCountInString(s); err != nil || n <= limit {
			return s, err
		}
	}
	mark := fmt.Sprintf("\n[… of %d bytes, the middle is left out …]\n", size)
	room := limit - utf8.RuneCountInString(mark)
	if room < 2 {
		s, err := readText(r, 0, min(size, most))
		return firstRunes(s, limit), err
	}
	head, err := readText(r, 0, min(size, most))
	if err != nil {
		return "", err
	}
	tail, err := readText(r, max(0, size-most), size)
	return firstRunes(head, room/2) + mark + lastRunes(tail, room-room/2), err
}

// readText reads the bytes from one offset to another, as text.
func readText(r io.ReaderAt, from, to int64) (string, error) {
	b := make([]byte, to-from)
	n, err := r.ReadAt(b, from)
	if err == io.EOF {
		err = nil // it was cut meanwhile
	}
	return storable(string(b[:n])), err
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

func lastRunes(s string, n int) string {
	i := len(s)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		i -= size
	}
	return s[i:]
}
