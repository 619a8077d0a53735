package rundir

import (
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/redact"
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
	if later.Size() != 8196 {
		t.Errorf("%d bytes", later.Size())
	}
	must(t, f.Truncate(0))
	if n, err := later.ReadAt(make([]byte, 100), 4000); n != 0 || !errors.Is(err, errCut) {
		t.Errorf("of an emptied file: %d bytes, %v", n, err)
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
