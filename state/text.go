package state

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"
)

// ThreadTokens is FormatThread, "" where nothing was counted.
func ThreadTokens(u Usage) string {
	if u == (Usage{}) {
		return ""
	}
	return FormatThread(u)
}

// ExactTime is FormatTime without loss.
func ExactTime(t time.Time) string {
	if t.Nanosecond()%int(time.Millisecond) == 0 {
		return FormatTime(t)
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// FormatWords makes a line of names and values, without those that are empty.
func FormatWords(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, pairs[i]+"="+strconv.Quote(pairs[i+1]))
		}
	}
	return strings.Join(list, " ")
}

// ParseWords is the inverse of words.
func ParseWords(line string) (map[string]string, error) {
	m := map[string]string{}
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		name, rest, ok := strings.Cut(line, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is not name=\"value\"", Cut(line, 40))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		m[name] = strings.Clone(value) // it may be kept, and the line not
		line = rest[len(quoted):]
	}
	return m, nil
}

// ParseLines reads a list that stands in the ledger as a line of words for each thing, which read
// makes of them. what is such a thing, for the error.
func ParseLines[T any](what, text string, read func(words map[string]string) (T, error)) (list []T, err error) {
	for line := range strings.Lines(text) {
		words, err := ParseWords(line)
		var x T
		if err == nil {
			x, err = read(words)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no %s: %w", Cut(strings.TrimSpace(line), 40), what, err)
		}
		list = append(list, x)
	}
	return list, nil
}

// ShortID returns an id as people see it: the last eight digits of a UUID, of which the front is
// the time, which neighbours share. Any other id stays whole.
func ShortID(id string) string {
	if _, ok := ParseUUID(id); ok {
		return id[len(id)-8:]
	}
	return id
}

// Because returns a sentence with a reason behind it, if there is one: the beginning of it, on one line.
func Because(what, reason string) string {
	return strings.TrimSuffix(what+": "+Cut(strings.Join(strings.Fields(reason), " "), 200), ": ")
}

// CameAfter begins the error of a task that failed because another one has.
const CameAfter = "it comes after "

// Cause returns the reason of a failure in a word for people: the error tells it apart from that of the task that comes before.
func Cause(reason Class, why string) string {
	if strings.HasPrefix(why, CameAfter) {
		return "dependency"
	}
	return string(reason)
}

// nibble returns the value of a lower-case hex digit, or 255.
var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// uuidDigits is where the two digits of each byte of a UUID stand.
var uuidDigits = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// ParseUUID reads the one form of a UUID that AppendUUID writes: an id must come back as it was.
func ParseUUID[T string | []byte](b T) (u [16]byte, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, false
	}
	bad := byte(0)
	for i, pos := range uuidDigits {
		hi, lo := nibble[b[pos]], nibble[b[pos+1]]
		bad |= hi | lo
		u[i] = hi<<4 | lo
	}
	return u, bad < 16
}

// AppendUUID appends the text of a UUID to b.
func AppendUUID(b []byte, u [16]byte) []byte {
	const digits = "0123456789abcdef"
	b = append(b, "........-....-....-....-............"...)
	text := b[len(b)-36:]
	for i, pos := range uuidDigits {
		text[pos], text[pos+1] = digits[u[i]>>4], digits[u[i]&15]
	}
	return b
}

// A Pool returns one string for equal bytes that come often, so that most fields of a record need no memory
// of their own. It forgets, and never grows. A nil pool copies.
type Pool struct {
	seed  maphash.Seed
	slots [512]string
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{seed: maphash.MakeSeed()} }

func (p *Pool) get(b []byte) string {
	if p == nil || len(b) == 0 || len(b) > 256 {
		return string(b)
	}
	s := &p.slots[maphash.Bytes(p.seed, b)%uint64(len(p.slots))]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
}

// ShellLine returns a command line for a shell, of a program and its arguments.
func ShellLine(words []string) string {
	line := ""
	for _, word := range words {
		line += " " + ShellQuote(word)
	}
	return strings.TrimPrefix(line, " ")
}

// ShellQuote quotes a word for a shell, if it needs that.
func ShellQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,="
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
