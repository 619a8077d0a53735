package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stint/memory/care"
)

// Bounds of a search.
const (
	maxLines  = 4000 // of one pass that have a term; then it stops
	maxPasses = 3    // each without the commonest terms of the one before
	fewLines  = maxLines / 4
	maxLine   = 32 << 10  // bytes of a line that are looked at
	maxText   = 400       // bytes of a line that are kept
	maxNames  = 256 << 10 // bytes of file names on one command line

	bufferSize = maxLine + 1<<10 // with what stands before a line in an answer
)

// DefaultTimeout is how long a search may take that has no limit of its own. A run waits for it.
const DefaultTimeout = 5 * time.Second

// errFull ends a pass that has found more than enough.
var errFull = errors.New("there are more lines than are looked at")

// A found is a line that has a term.
type found struct {
	note   int // index
	line   int
	off    int64 // in the file
	text   string
	terms  uint64 // bit n is the n-th term
	weight float64
}

// A collector takes the lines of a scan. It belongs to one search.
type collector struct {
	terms  []Term
	notes  []note
	lines  []found
	found  []int  // lines by term
	common uint64 // terms that are searched for no more: too many lines have them
	room   int    // lines that this pass still takes
	sorted bool   // rg is to read the notes one after the other

	archived bool // of entries that are archived
}

// scan fills c by rg, or if there is none or it fails, by our own scan, and names what
// has searched. partial says why there may be lines that were not looked at.
func (s *Searcher) scan(ctx context.Context, root *os.Root, c *collector) (name, partial string, err error) {
	failed := true
	if rg, none := exec.LookPath(s.Ripgrep); none == nil && filepath.IsAbs(rg) { // a relative one may be an agent's
		name, c.sorted = "rg", len(c.notes) == 1
		err = c.passes(ctx, func() error { return c.ripgrep(ctx, root.Name(), rg) })
		failed = err != nil && ctx.Err() == nil
	}
	if failed {
		name, c.sorted = "scan", true
		err = c.passes(ctx, func() error { return c.read(ctx, root) })
	}
	order := func(a, b found) int { return cmp.Or(a.note-b.note, a.line-b.line) }
	slices.SortFunc(c.lines, order)
	c.lines = slices.CompactFunc(c.lines, func(a, b found) bool { return order(a, b) == 0 })
	if ctx.Err() != nil { // the time is over: what there is is used
		err = nil
	}
	if c.common != 0 {
		partial = fmt.Sprintf("more than %d lines have one of the terms: of those that have only the commonest of them, not all were looked at", maxLines)
	}
	return name, partial, err
}

// passes reads the notes; when too many lines have a term, again without the
// commonest terms, so that the rare ones are found wherever they stand. Which lines a
// pass has when it stops must not depend on which of rg's threads was faster: then it is made again in order.
func (c *collector) passes(ctx context.Context, scan func() error) error {
	c.lines, c.common, c.found = nil, 0, make([]int, len(c.terms))
	inOrder := c.sorted
	for range maxPasses {
		kept, before := len(c.lines), slices.Clone(c.found)
		for c.sorted = inOrder; ; c.sorted = true {
			c.lines, c.room = c.lines[:kept], maxLines
			clear(c.found)
			if err := scan(); err != nil {
				return err
			}
			if c.room > 0 || c.sorted {
				break
			}
		}
		for i := range before {
			c.found[i] = max(c.found[i], before[i])
		}
		if c.room > 0 || !c.narrow() {
			break
		}
	}
	return nil
}

// narrow leaves the commonest terms out of the next pass; false: there is nothing left to search for.
func (c *collector) narrow() bool {
	total := 0
	var order []int
	for i, n := range c.found {
		if c.common>>i&1 == 0 {
			total += n
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return c.found[b] - c.found[a] })
	for k, i := range order {
		if k > 0 && total <= fewLines {
			return true
		}
		c.common |= 1 << i
		total -= c.found[i]
	}
	return false
}

// ripgrep runs rg over all notes.
func (c *collector) ripgrep(ctx context.Context, dir, path string) error {
	args := []string{"--no-config", "--no-heading", "--with-filename", "--color=never", "--no-messages", "--encoding=none", "-n", "-b", "-i", "-F", "--null", "--text"}
	if c.sorted {
		args = append(args, "--sort=path")
	}
	for i, t := range c.terms {
		if c.common>>i&1 == 0 {
			args = append(args, "-e", t.Text)
		}
	}
	args = append(args, "--")
	index := map[string]int{}
	for i, n := range c.notes {
		index["./"+n.path] = i
	}
	for from := 0; from < len(c.notes) && c.room > 0; {
		to, size := from, 0
		names := args[:len(args):len(args)]
		for ; to < len(c.notes) && size < maxNames; to++ {
			names = append(names, "./"+c.notes[to].path) // "-" by itself is stdin
			size += len(c.notes[to].path) + 3
		}
		if err := c.run(ctx, dir, path, names, index); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// run runs rg once. Its environment is empty but for the locale.
func (c *collector) run(ctx context.Context, dir, path string, args []string, index map[string]int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = dir, []string{"LC_ALL=C.UTF-8"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = out.Close() }) // a child that rg leaves may keep the other end open
	before := len(c.lines)
	parseErr := c.parse(bufio.NewReaderSize(out, bufferSize), index)
	if parseErr != nil {
		stop()
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.Is(parseErr, errFull):
		return nil
	case parseErr != nil:
		return parseErr
	case errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2 && len(c.lines) > before):
		return nil // nothing found, or a file went away meanwhile
	}
	return err
}

// parse reads lines of the form path NUL line:offset:text.
func (c *collector) parse(r *bufio.Reader, index map[string]int) error {
	for {
		name, err := r.ReadSlice(0)
		if err == io.EOF && len(bytes.TrimSpace(name)) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("an answer that cannot be read: %w", err)
		}
		n, known := index[string(bytes.TrimSuffix(name, []byte{0}))]
		text, _, err := readLine(r)
		if err != nil && err != io.EOF {
			return err
		}
		no, rest, _ := bytes.Cut(text, []byte(":"))
		off, rest, ok := bytes.Cut(rest, []byte(":"))
		line, lineErr := strconv.Atoi(string(no))
		offset, offErr := strconv.ParseInt(string(off), 10, 64)
		if !known || !ok || lineErr != nil || offErr != nil || line < 1 || offset < 0 {
			return fmt.Errorf("an answer that cannot be read: %.80q", text)
		}
		if !c.add(n, line, offset, rest) {
			return errFull
		}
	}
}

// read looks at all notes without another program.
func (c *collector) read(ctx context.Context, root *os.Root) error {
	for i, n := range c.notes {
		f, _, err := openNote(root, n.path)
		if err != nil {
			continue // it went away meanwhile
		}
		err = c.readFile(ctx, i, bufio.NewReaderSize(f, bufferSize))
		_ = f.Close() // only read from
		if errors.Is(err, errFull) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *collector) readFile(ctx context.Context, n int, r *bufio.Reader) error {
	var off int64
	for no := 1; ctx.Err() == nil; no++ {
		text, size, err := readLine(r)
		if len(text) > 0 && !c.add(n, no, off, text) {
			return errFull
		}
		if err != nil {
			return nil // the end, or what cannot be read
		}
		off += size
	}
	return ctx.Err()
}

// readLine returns a line without its end, and how many bytes it has with it. Of a
// long one the rest is read and left out. The line is good until the next read.
func readLine(r *bufio.Reader) (line []byte, size int64, err error) {
	line, err = r.ReadSlice('\n')
	size = int64(len(line))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimRight(line, "\r\n"), size, err
	}
	line = bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = r.ReadSlice('\n')
		size += int64(len(more))
	}
	return line, size, err
}

// add takes a line if it has a term. It returns false when there is no more room.
func (c *collector) add(n, no int, off int64, text []byte) bool {
	f := c.match(text)
	if f.terms&^c.common == 0 {
		return true
	}
	for rest := f.terms; rest != 0; rest &= rest - 1 {
		c.found[bits.TrailingZeros64(rest)]++
	}
	f.note, f.line, f.off = n, no, off
	c.lines = append(c.lines, f)
	c.room--
	return c.room > 0
}

// match returns what a line has of the terms.
func (c *collector) match(text []byte) (f found) {
	text = text[:min(len(text), maxLine)]
	f.weight = 1
	if bytes.Contains(text, []byte("<!-- stint ")) {
		line, state, _ := care.Cut(string(text)) // what is wrong with a state is not for a search
		if text = []byte(line); !c.archived {
			f.weight = state.Weight()
		}
	}
	low := strings.ToLower(string(text))
	place := 0 // of the term that counts most
	for i := range c.terms {
		at := strings.Index(low, c.terms[i].Text)
		if at < 0 {
			continue
		}
		if f.terms == 0 {
			place = at
		}
		f.terms |= 1 << i
	}
	if f.terms == 0 || bytes.IndexByte(text, 0) >= 0 {
		return found{}
	}
	f.text = strings.TrimSpace(strings.TrimPrefix(excerpt(text, low[:place]), "\ufeff"))
	return f
}

// excerpt returns the text of a line, of a long one the part around what stands behind before, which is in
// lower case: there letters may have other lengths, but are as many.
func excerpt(text []byte, before string) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(string(text), "\ufffd")
	}
	begin := max(0, utf8.RuneCountInString(before)-maxText/8)
	s := strings.TrimSpace(string([]rune(string(text))[begin:]))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	if begin > 0 {
		s = "…" + s
	}
	return s
}
