package rundir

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/redact"
	"stint/ledger/durable"
)

func openOutputs(t *testing.T, paths ...string) *Outputs {
	t.Helper()
	o, err := OpenOutputs(paths, nil, false)
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	return o
}

// TestOutputsAreWhatAReaderGets: any piece of some files is that piece of what a reader
// of one after the other gets.
func TestOutputsAreWhatAReaderGets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(6, 4))
	for range 100 {
		var paths []string
		want := ""
		for range rnd.IntN(4) {
			text := strings.Repeat("0123456789abcde\n", rnd.IntN(600))
			paths, want = append(paths, newFile(t, text).Name()), want+text
		}
		o := openOutputs(t, paths...)
		if o.Size() != int64(len(want)) {
			t.Fatalf("%d bytes, want %d", o.Size(), len(want))
		}
		for range 20 {
			off, b := rnd.IntN(len(want)+10), make([]byte, rnd.IntN(20000))
			n, err := o.ReadAt(b, int64(off))
			rest := want[min(off, len(want)):]
			if n != min(len(rest), len(b)) || string(b[:n]) != rest[:n] || (err == io.EOF) != (n < len(b)) || err != nil && err != io.EOF {
				t.Fatalf("%d bytes at %d of %d: %d bytes, %v", len(b), off, len(want), n, err)
			}
		}
	}
}

// TestOutputsStayAsTheyWere: what is written later is no part of them, and what is removed later is an error.
func TestOutputsStayAsTheyWere(t *testing.T) {
	f := newFile(t, strings.Repeat("x", 8192))
	before := openOutputs(t, f.Name())
	_, err := f.WriteAt([]byte("more"), 8192)
	must(t, err)
	if n, err := before.ReadAt(make([]byte, 10000), 0); n != 8192 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
	later := openOutputs(t, f.Name())
	if later.Size() != 8196 || later.Begin() != before.Begin() {
		t.Errorf("%d bytes behind %s, before %s", later.Size(), later.Begin(), before.Begin())
	}
	must(t, f.Truncate(0))
	if n, err := later.ReadAt(make([]byte, 100), 4000); n != 0 || !errors.Is(err, errCut) {
		t.Errorf("of an emptied file: %d bytes, %v", n, err)
	}
	if two := openOutputs(t, f.Name(), newFile(t, "").Name()); two.Begin() == openOutputs(t, f.Name()).Begin() {
		t.Error("another run changes what they begin with")
	}
}

// TestOutputsBeginAnew: another file under the name, and other bytes in the same one, are
// told from one that has only grown.
func TestOutputsBeginAnew(t *testing.T) {
	text := strings.Repeat("0123456789abcde\n", 1024)
	for name, change := range map[string]func(f *os.File) error{
		"replaced by a longer one of the same beginning": func(f *os.File) error {
			return durable.ReplaceFile(durable.OS, f.Name(), []byte(text+text))
		},
		"emptied, and written anew": func(f *os.File) error {
			err := f.Truncate(0)
			_, werr := f.WriteAt([]byte(strings.ToUpper(text)+text), 0)
			return errors.Join(err, werr)
		},
		"overwritten in place": func(f *os.File) error {
			_, err := f.WriteAt([]byte(strings.Repeat("[not kept]\n", 2000)), 0)
			return err
		},
		"emptied, and shorter than before": func(f *os.File) error { return f.Truncate(100) },
	} {
		f := newFile(t, text)
		before := openOutputs(t, f.Name()).Begin()
		must(t, change(f))
		if openOutputs(t, f.Name()).Begin() == before {
			t.Errorf("%s: they are said to begin as before", name)
		}
	}
}

// TestShortOutputsGrow: what begins with the same bytes changes its name seldom.
func TestShortOutputsGrow(t *testing.T) {
	f := newFile(t, "")
	names := map[string]bool{openOutputs(t, f.Name()).Begin(): true}
	for range 600 {
		_, err := f.WriteString("0123456789")
		must(t, err)
		o, err := OpenOutputs([]string{f.Name()}, nil, false)
		must(t, err)
		names[o.Begin()] = true
		must(t, o.Close())
	}
	if len(names) != 5 { // of 0, 1, 16, 256 and 4096 bytes
		t.Errorf("%d names", len(names))
	}
}

func TestOutputsOfWhatIsNoFile(t *testing.T) {
	good := newFile(t, "x").Name()
	for _, path := range []string{filepath.Dir(good), good + ".gone"} {
		if o, err := OpenOutputs([]string{good, path}, nil, false); err == nil || o != nil {
			t.Errorf("%s was opened", path)
		}
	}
}

// TestOutputsAreMasked: what a reader gets has no secret, also of one that began in a piece before, and while
// the file grows no beginning of one. It stays the same log.
func TestOutputsAreMasked(t *testing.T) {
	filter := redact.New(func() []string { return []string{"a secret"} })
	f := newFile(t, "a secret, and a secr")
	for _, c := range []struct {
		grows bool
		want  string
	}{{true, "********, and "}, {false, "********, and a secr"}} {
		o, err := OpenOutputs([]string{f.Name()}, filter, c.grows)
		must(t, err)
		b := make([]byte, 6)
		n, rerr := o.ReadAt(b, 2)
		if all, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size())); string(all) != c.want || string(b[:n]) != c.want[2:8] || errors.Join(err, rerr) != nil {
			t.Errorf("grows %v: %q and %q, %v, want %q", c.grows, all, b[:n], err, c.want)
		}
		must(t, o.Close())
	}
	before, err := OpenOutputs([]string{f.Name()}, filter, true)
	must(t, err)
	_, err = f.WriteString("et!")
	must(t, err)
	after, err := OpenOutputs([]string{f.Name()}, filter, true)
	must(t, err)
	all, err := io.ReadAll(io.NewSectionReader(after, before.Size(), 99))
	if string(all) != "********!" || err != nil {
		t.Errorf("went on with %q, %v", all, err)
	}
	must(t, errors.Join(before.Close(), after.Close()))
}
