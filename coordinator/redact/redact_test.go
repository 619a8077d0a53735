package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// canaries are values with whatever an encoding has to escape.
var canaries = []string{
	"sk-ant-api03-4f9Q8zR1", "exactly8", `quote"back\slash`, "p/ss+w=rd?&<>#%", "space and:colon@home", "pässwörd✓key", "line one\nline two",
	"sk-ant-api03-another", "tab\tand\x01control", "(js)!*'unreserved~._-",
}

func filterOf(values ...string) *Filter { return New(func() []string { return values }) }

// spellings returns a value in all the ways in which it must not be printed.
func spellings(value string) map[string]string {
	text := func(v any, err error) string { return strings.Trim(fmt.Sprintf("%s", v), `"`) }
	quoted, err := json.Marshal(value)
	all := map[string]string{
		"as it is": value, "JSON": text(quoted, err), "query": url.QueryEscape(value), "path": url.PathEscape(value),
		"component": strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(url.QueryEscape(value)),
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
	all["JSON without HTML"] = plain.String()[1 : plain.Len()-2]
	all["JSON with solidus"] = strings.ReplaceAll(all["JSON"], "/", `\/`)
	all["lower-case query"] = regexp.MustCompile("%..").ReplaceAllStringFunc(all["query"], strings.ToLower)
	for before := range 3 {
		for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "URL": base64.URLEncoding} {
			encoded := enc.EncodeToString([]byte("<<"[:min(before, 2)] + value + ">>>"))
			all[fmt.Sprintf("base64 %s %d", name, before)] = encoded[(8*before+5)/6 : 8*(before+len(value))/6]
		}
	}
	return all
}

// TestForms: no spelling of a value is left, whatever stands around it, and nothing else is masked.
func TestForms(t *testing.T) {
	f := filterOf(canaries...)
	for _, value := range canaries {
		for name, text := range spellings(value) {
			for _, around := range []string{"%s", "key=%s\n", `{"k":"%s"}`} {
				before, after, _ := strings.Cut(around, "%s")
				want := before + strings.Repeat("*", len(text)) + after
				if got := f.String(before + text + after); got != want {
					t.Errorf("%s of %q: %q, want %q", name, value, got, want)
				}
			}
			if got := f.String(text[1:]); got == strings.Repeat("*", len(text)-1) && len(text) > MinLength {
				t.Errorf("%s of %q: its end alone is masked", name, value)
			}
		}
	}
	for _, text := range []string{"", "short", "sk-ant-api03-4f9Q8zR", "exactly 8", strings.Repeat("ordinary text ", 100)} {
		if got := f.String(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// TestOverlap: every byte of each value that is found is masked, also where two share some.
func TestOverlap(t *testing.T) {
	f := filterOf("abcdefgh12", "h12345678", "aaaaaaaa")
	for text, want := range map[string]string{
		"<abcdefgh12345678>": "<****************>", "<abcdefgh12x>": "<**********x>", "<aaaaaaaaaa>": "<**********>", "<aaaaaaa>": "<aaaaaaa>",
	} {
		for _, cut := range cuts(text) {
			if got := streamed(t, f, cut...); got != want {
				t.Errorf("%q in %q: %q, want %q", text, cut, got, want)
			}
		}
	}
}

// cuts returns a text whole, byte by byte, and cut once at each place.
func cuts(text string) [][]string {
	all := [][]string{{text}, strings.Split(text, "")}
	for i := range text {
		all = append(all, []string{text[:i], text[i:]})
	}
	return all
}

func streamed(t *testing.T, f *Filter, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := f.Writer(&out)
	for _, p := range pieces {
		if n, err := io.WriteString(w, p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(pieces, ""); w.Found != (all != out.String()) {
		t.Errorf("%q: found is %v", all, w.Found)
	}
	return out.String()
}

// TestWriterHoldsBackLittle: what cannot be part of a value goes on at once.
func TestWriterHoldsBackLittle(t *testing.T) {
	var out bytes.Buffer
	w := filterOf(canaries...).Writer(&out)
	for _, step := range [][2]string{{"a line\n", "a line\n"}, {"key: sk-ant-", "key: "}, {"x\n", "sk-ant-x\n"}, {"exactly", ""}, {"8", "********"}} {
		out.Reset()
		if _, err := io.WriteString(w, step[0]); err != nil || out.String() != step[1] {
			t.Errorf("%q writes %q, %v, want %q", step[0], out.String(), err, step[1])
		}
	}
	bad := filterOf(canaries...).Writer(fullWriter{})
	if _, err := io.WriteString(bad, "no value\n"); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestReadAt: each piece is that piece of the whole, masked, and the errors are the reader's.
func TestReadAt(t *testing.T) {
	f := filterOf(canaries...)
	text := ""
	for _, value := range canaries {
		for _, s := range spellings(value) {
			text += s + " and\n"
		}
	}
	want := f.String(text)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		off, p := rnd.IntN(len(text)+9), make([]byte, rnd.IntN(100))
		n, err := f.ReadAt(strings.NewReader(text), p, int64(off))
		rest := want[min(off, len(want)):]
		if n != min(len(p), len(rest)) || string(p[:n]) != rest[:n] || (n < len(p)) != errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %q, %v, want %q", len(p), off, p[:n], err, rest[:n])
		}
	}
	broken := readerAt{iotest.ErrReader(io.ErrNoProgress)}
	if _, err := f.ReadAt(broken, make([]byte, 5), 0); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type readerAt struct{ io.Reader }

func (r readerAt) ReadAt(p []byte, _ int64) (int, error) { return r.Read(p) }

// TestValuesChange: a value counts from Refresh on, short ones never, and one that was known stays known.
func TestValuesChange(t *testing.T) {
	values := []string{"first-value", "  padded-value\n", "seven77"}
	f := New(func() []string { return values })
	const text = "first-value padded-value seven77 second-value"
	if got, want := f.String(text), "*********** ************ seven77 second-value"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	values = []string{"second-value"}
	f.Refresh()
	if got, want := f.String(text), "*********** ************ seven77 ************"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNoFilter: nil masks nothing and changes nothing.
func TestNoFilter(t *testing.T) {
	var f *Filter
	f.Refresh()
	p := make([]byte, 8)
	n, err := f.ReadAt(strings.NewReader("exactly8"), p, 0)
	if got := streamed(t, f, "exact", "ly8"); got+f.String("x")+string(f.Bytes([]byte("y"))) != "exactly8xy" || string(p[:n]) != "exactly8" || err != nil || f.Open(p) != 0 {
		t.Error(got, n, err)
	}
}

// FuzzStream: however a text with values is cut, the stream, its pieces and the whole are masked alike, and
// no spelling of a value is left.
func FuzzStream(f *testing.F) {
	f.Add("key=", "\n", uint64(1))
	f.Add("sk-ant-api03-", "sk-ant-", uint64(2))
	f.Add("exactly", "8", uint64(3))
	filter := filterOf(canaries...)
	var all []string
	for _, value := range canaries {
		for _, s := range spellings(value) {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	f.Fuzz(func(t *testing.T, before, after string, seed uint64) {
		if strings.Contains(before+after, "*") {
			return // a star may be one of a value's own
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		text := before
		for range 1 + rnd.IntN(4) {
			text += all[rnd.IntN(len(all))] + after
		}
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + rnd.IntN(min(len(rest), 40))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		got := streamed(t, filter, pieces...)
		if whole := filter.String(text); got != whole || len(got) != len(text) {
			t.Errorf("%q in %q: %q, whole %q", text, pieces, got, whole)
		}
		p := make([]byte, rnd.IntN(len(text)+1))
		off := rnd.IntN(len(text) - len(p) + 1)
		if n, err := filter.ReadAt(strings.NewReader(text), p, int64(off)); n != len(p) || err != nil || string(p) != got[off:off+n] {
			t.Errorf("%q at %d: %q, %v, want %q", text, off, p, err, got[off:off+n])
		}
		for _, s := range all {
			if strings.Contains(got, s) {
				t.Errorf("%q: %q has %q", text, got, s)
			}
		}
	})
}

// BenchmarkWriter: a large stream beside a copy of it that masks nothing.
func BenchmarkWriter(b *testing.B) {
	var values []string
	for i := range 50 {
		values = append(values, fmt.Sprintf("sk-ant-api03-%02d-%s", i, strings.Repeat("Zq7"+string(rune('a'+i%26)), 24)))
	}
	var text []byte
	for i := 0; len(text) < 8<<20; i++ {
		text = fmt.Appendf(text, `{"type":"item.completed","item":{"id":"item_%d","type":"command_execution","command":"go test ./...","aggregated_output":"ok  \tstint/state\t0.%d4s"}}`+"\n", i, i)
	}
	for name, f := range map[string]*Filter{"none": nil, "50 values": filterOf(values...)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w := f.Writer(io.Discard)
				for p := range slices.Chunk(text, 64<<10) {
					_, _ = w.Write(p)
				}
			}
		})
	}
	b.Run("ReadAt", func(b *testing.B) {
		f, p := filterOf(values...), make([]byte, 32<<10)
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			for off := 0; off < len(text); off += len(p) {
				_, _ = f.ReadAt(bytes.NewReader(text), p, int64(off))
			}
		}
	})
}
