// Package redact masks secret values that are known in what programs print. Each byte of a
// value, in any of its [forms], becomes a star: what is masked stays as long as it was, so
// places in it stay true, and to mask it again changes nothing. It does no I/O of its own.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"stint/ledger/lazy"
)

// MinLength is that of the shortest value that is masked, in bytes: a shorter one is part of ordinary text.
const MinLength = 8

// A Filter masks values. It may be used by several goroutines at once; a nil one masks nothing.
type Filter struct {
	values  func() []string
	first   sync.Once
	mu      sync.Mutex // guards known, and the exchange of current
	known   []string
	current atomic.Pointer[matcher]
}

// New returns a filter of what values returns, which is asked at the first use and by Refresh.
func New(values func() []string) *Filter { return &Filter{values: values} }

// Refresh asks for the values anew. One that was known stays known: what has printed it may be read later.
func (f *Filter) Refresh() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.known)
	for _, v := range f.values() {
		if v = strings.TrimSpace(v); len(v) >= MinLength && !slices.Contains(f.known, v) {
			f.known = append(f.known, v)
		}
	}
	if len(f.known) > before {
		f.current.Store(newMatcher(f.known))
	}
}

// matcher returns that of now; nil if there is no value.
func (f *Filter) matcher() *matcher {
	if f == nil {
		return nil
	}
	f.first.Do(f.Refresh)
	return f.current.Load()
}

// Bytes returns b masked: b itself if it has no value, else a copy.
func (f *Filter) Bytes(b []byte) []byte { return f.matcher().mask(b) }

// String returns s masked.
func (f *Filter) String(s string) string { return string(f.matcher().mask([]byte(s))) }

// ReadAt reads like r.ReadAt, and masks also a value that begins before off or ends behind p.
func (f *Filter) ReadAt(r io.ReaderAt, p []byte, off int64) (n int, err error) {
	m := f.matcher()
	if m == nil {
		return r.ReadAt(p, off)
	}
	before := min(off, int64(m.longest))
	b := make([]byte, before+int64(len(p)+m.longest))
	read, err := r.ReadAt(b, off-before)
	if n = copy(p, m.mask(b[:read])[min(int64(read), before):]); n == len(p) {
		err = nil // of what is behind p
	}
	return n, err
}

// Open returns how many bytes at the end of b a value may begin with whose rest is still to come.
func (f *Filter) Open(b []byte) int {
	m := f.matcher()
	if m == nil {
		return 0
	}
	n := min(len(b), m.longest-1)
	for ; n > 0; n-- {
		end := string(b[len(b)-n:])
		if i, _ := slices.BinarySearch(m.sorted, end+"\x00"); i < len(m.sorted) && strings.HasPrefix(m.sorted[i], end) {
			break
		}
	}
	return n
}

// Writer returns a writer that masks what is written to w.
func (f *Filter) Writer(w io.Writer) *Writer { return &Writer{filter: f, w: w} }

// A Writer masks values in a stream, however it is cut, for one goroutine. It holds back what may begin one.
type Writer struct {
	Found  bool // something was masked
	filter *Filter
	w      io.Writer
	last   []byte // of what came, as far as a value may still go on
	sent   int    // bytes of last that were written
}

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	w.last = append(w.last, p...)
	return len(p), w.send(len(w.last) - w.filter.Open(w.last))
}

// Flush writes what is held back: nothing more comes.
func (w *Writer) Flush() error { return w.send(len(w.last)) }

func (w *Writer) send(end int) error {
	if end = max(end, w.sent); end == w.sent {
		return nil
	}
	out, from := w.filter.Bytes(w.last)[w.sent:end], end
	w.Found = w.Found || !bytes.Equal(out, w.last[w.sent:end])
	_, err := w.w.Write(out)
	if m := w.filter.matcher(); m != nil {
		from = max(0, end-m.longest)
	}
	w.last, w.sent = append(w.last[:0], w.last[from:]...), end-from
	return err
}

// A matcher finds forms. The three bytes at the end of a window of MinLength bytes say how far the
// window may move on; by 0, one of the forms that begin with its bytes may be there.
type matcher struct {
	shift   [1 << 16]uint8
	begins  map[uint64][]string
	sorted  []string
	longest int // bytes of a form
}

func newMatcher(values []string) *matcher {
	m := &matcher{begins: map[uint64][]string{}}
	for i := range m.shift {
		m.shift[i] = MinLength - 2
	}
	for _, v := range values {
		m.sorted = append(m.sorted, forms(v)...)
	}
	slices.Sort(m.sorted)
	m.sorted = slices.Compact(m.sorted)
	for _, form := range m.sorted {
		m.longest = max(m.longest, len(form))
		first := binary.LittleEndian.Uint64([]byte(form))
		m.begins[first] = append(m.begins[first], form)
		for end := 3; end <= MinLength; end++ {
			at := &m.shift[hash([]byte(form[:end]))]
			*at = min(*at, uint8(MinLength-end))
		}
	}
	return m
}

// hash returns that of the last three bytes.
func hash(b []byte) uint16 {
	b = b[len(b)-3:]
	return uint16(b[0])<<10 ^ uint16(b[1])<<5 ^ uint16(b[2])
}

// mask returns b itself if there is nothing in it to mask, else a copy.
func (m *matcher) mask(b []byte) []byte {
	out := b
	for i := 0; m != nil && i+MinLength <= len(b); {
		window := b[i : i+MinLength]
		if n := m.shift[hash(window)]; n > 0 {
			i += int(n)
			continue
		}
		for _, form := range m.begins[binary.LittleEndian.Uint64(window)] {
			if len(form) > len(b)-i || string(b[i:i+len(form)]) != form {
				continue
			}
			if &out[0] == &b[0] {
				out = bytes.Clone(b)
			}
			copy(out[i:], strings.Repeat("*", len(form)))
		}
		i++
	}
	return out
}

// As other encoders than Go's write it.
var (
	jsonWithoutHTML = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")
	uriComponent    = strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")
)

var hexDigits = lazy.Regexp("%[0-9A-F]{2}")

// forms returns a value as it may be printed: as it is, in a string of JSON, percent-encoded, and
// in base64, of which only those characters count that no byte beside the value has a part in.
func forms(value string) []string {
	quoted, _ := json.Marshal(value) // a string always can be
	text, query := string(quoted[1:len(quoted)-1]), url.QueryEscape(value)
	list := []string{value, text, jsonWithoutHTML.Replace(text), strings.ReplaceAll(text, "/", `\/`)}
	for _, percent := range []string{query, strings.ReplaceAll(query, "+", "%20"), uriComponent.Replace(query), url.PathEscape(value)} {
		list = append(list, percent, hexDigits().ReplaceAllStringFunc(percent, strings.ToLower))
	}
	for before := range 3 {
		bytes := append(make([]byte, before), value...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			list = append(list, enc.EncodeToString(bytes)[(8*before+5)/6:8*len(bytes)/6])
		}
	}
	return list
}
