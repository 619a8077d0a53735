// Package redact masks secret values that are known in what programs print. Each byte of a
// value, in any of its [forms], becomes a star: what is masked stays as long as it was, so
// places in it stay true, and to mask it again changes nothing. It does no I/O of its own.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MinLength is the length in bytes of the shortest value that is masked: a shorter one is
// part of ordinary text.
const MinLength = 8

// A Filter masks values. It may be used by several goroutines at once; a nil one masks nothing.
type Filter struct {
	values  func() []string
	first   sync.Once
	mu      sync.Mutex // guards known, and the exchange of current
	known   []string
	current atomic.Pointer[matcher]
}

// New returns a filter of what values returns, which is asked when the filter is first used and by
// Refresh.
func New(values func() []string) *Filter { return &Filter{values: values} }

// Refresh asks for the values anew. One that was known once stays known: what has printed it
// may be read later.
func (f *Filter) Refresh() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := slices.Clone(f.known)
	for _, v := range f.values() {
		if v = strings.TrimSpace(v); len(v) >= MinLength && !slices.Contains(known, v) {
			known = append(known, v)
		}
	}
	if len(known) != len(f.known) {
		f.known = known
		f.current.Store(newMatcher(known))
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
func (f *Filter) String(s string) string {
	m := f.matcher()
	if m == nil || len(s) < MinLength {
		return s
	}
	return string(m.mask([]byte(s)))
}

// ReadAt reads like r.ReadAt, and masks also a value that begins before off or ends behind p,
// as far as r has it.
func (f *Filter) ReadAt(r io.ReaderAt, p []byte, off int64) (n int, err error) {
	m := f.matcher()
	if m == nil {
		return r.ReadAt(p, off)
	}
	before := min(off, int64(m.longest))
	b := make([]byte, before+int64(len(p)+m.longest))
	read, err := r.ReadAt(b, off-before)
	n = copy(p, m.mask(b[:read])[min(int64(read), before):])
	if n == len(p) {
		err = nil // of what is behind p
	}
	return n, err
}

// Open returns the number of bytes at the end of b that a value may begin with, of which the
// rest is still to come.
func (f *Filter) Open(b []byte) int { return f.matcher().open(b) }

// Writer returns a writer that masks what is written to w.
func (f *Filter) Writer(w io.Writer) *Writer { return &Writer{filter: f, w: w} }

// A Writer masks values in a stream, however it is cut. It holds back what a value may begin with.
// It belongs to one goroutine.
type Writer struct {
	Found  bool // something was masked
	filter *Filter
	w      io.Writer
	held   []byte // as it came
	masked []byte // the same, as far as it is known to be part of a value
}

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	m := w.filter.matcher()
	if m == nil && len(w.held) == 0 {
		return w.w.Write(p)
	}
	raw := p
	if len(w.held) > 0 {
		raw = slices.Concat(w.held, p)
	}
	out := m.mask(raw)
	if !bytes.Equal(w.held, w.masked) {
		out = slices.Clone(out)
		for i := range w.masked {
			if w.masked[i] != w.held[i] {
				out[i] = mark
			}
		}
	}
	n := len(raw) - m.open(raw)
	w.Found = w.Found || !bytes.Equal(out[:n], raw[:n])
	w.held, w.masked = bytes.Clone(raw[n:]), bytes.Clone(out[n:])
	if _, err := w.w.Write(out[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what is held back: nothing more comes.
func (w *Writer) Flush() error {
	if len(w.masked) == 0 {
		return nil
	}
	w.Found = w.Found || !bytes.Equal(w.held, w.masked)
	_, err := w.w.Write(w.masked)
	w.held, w.masked = nil, nil
	return err
}

const mark = '*'

// A matcher finds forms. The three bytes at the end of a window of MinLength bytes say how far the
// window may move on: by 0 where they are the end of the beginning of a form, which then is one
// of those with these first bytes.
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
			at := &m.shift[hash(form[end-3], form[end-2], form[end-1])]
			*at = min(*at, uint8(MinLength-end))
		}
	}
	return m
}

func hash(a, b, c byte) uint16 { return uint16(a)<<10 ^ uint16(b)<<5 ^ uint16(c) }

// mask returns b itself if there is nothing in it to mask, else a copy.
func (m *matcher) mask(b []byte) []byte {
	if m == nil {
		return b
	}
	out := b
	for i := 0; i+MinLength <= len(b); {
		if n := m.shift[hash(b[i+MinLength-3], b[i+MinLength-2], b[i+MinLength-1])]; n > 0 {
			i += int(n)
			continue
		}
		for _, form := range m.begins[binary.LittleEndian.Uint64(b[i:])] {
			if len(form) > len(b)-i || string(b[i:i+len(form)]) != form {
				continue
			}
			if &out[0] == &b[0] {
				out = bytes.Clone(b)
			}
			for k := range len(form) {
				out[i+k] = mark
			}
		}
		i++
	}
	return out
}

func (m *matcher) open(b []byte) int {
	if m == nil {
		return 0
	}
	for n := min(len(b), m.longest-1); n > 0; n-- {
		end := string(b[len(b)-n:])
		i, _ := slices.BinarySearch(m.sorted, end)
		for ; i < len(m.sorted) && strings.HasPrefix(m.sorted[i], end); i++ {
			if len(m.sorted[i]) > n {
				return n
			}
		}
	}
	return 0
}

// forms returns a value as it may be printed: as it is, in a string of JSON, percent-encoded, and
// in base64, of which only those characters count that no byte beside the value has a part in.
func forms(value string) []string {
	list := []string{value}
	for _, html := range []bool{true, false} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		_ = enc.Encode(value) // a string always can be
		list = append(list, b.String()[1:b.Len()-2])
	}
	for _, plain := range []string{"-_.~", "-_.!~*'()", "-_.~$&+=:@"} { // of RFC 3986, of JavaScript, and of a path
		upper := percent(value, plain, "%%%02X")
		for _, s := range []string{upper, percent(value, plain, "%%%02x")} {
			list = append(list, s, strings.ReplaceAll(s, "%20", "+"))
		}
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), value...))
			bits := 8 * (before + len(value))
			list = append(list, text[(8*before+5)/6:bits/6])
		}
	}
	return list
}

// FileValues returns the values in a file with credentials: each string in it that is long enough
// if it is JSON, else its text.
func FileValues(data []byte) (values []string) {
	var all any
	if json.Unmarshal(data, &all) != nil {
		return []string{string(data)}
	}
	for next := []any{all}; len(next) > 0; {
		one := next[0]
		next = next[1:]
		switch v := one.(type) {
		case string:
			values = append(values, v)
		case []any:
			next = append(next, v...)
		case map[string]any:
			next = slices.AppendSeq(next, maps.Values(v))
		}
	}
	return values
}

// percent returns a value in which all bytes but ASCII letters, digits and plain ones have that format.
func percent(value, plain, format string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, format, c)
		}
	}
	return b.String()
}
