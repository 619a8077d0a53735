package memory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a search.
const (
	maxLines  = 20_000    // that have a term; then it stops
	maxLine   = 64 << 10  // bytes of a line that are looked at
	maxText   = 400       // bytes of a line that are kept
	maxNames  = 256 << 10 // bytes of file names on one command line
	maxStarts = 8         // how often a term is looked for at the beginning of a word
)

// errFull ends a scan that has found more than enough.
var errFull = errors.New("there are more lines than are looked at")

// A found is a line that has a term.
type found struct {
	note   int // index
	line   int
	off    int64 // in the file
	text   string
	terms  uint64 // bit n is the n-th term
	starts uint64 // those that begin a word
}

// A collector takes the lines of a scan. It belongs to one search.
type collector struct {
	terms []Term
	notes []note
	lines []found
	found []int // lines by term
	full  bool
}

// scan fills c by the first program that works, or reads the files itself, and
// names what it used. Its environment is empty but for the locale.
func (s *Searcher) scan(ctx context.Context, root *os.Root, c *collector) (engine string, err error) {
	common := []string{"-n", "-b", "-i", "-F", "--null", "--text"}
	for _, p := range []struct {
		name, path string
		args       []string
	}{
		{"rg", s.Ripgrep, append([]string{"--no-config", "--no-heading", "--with-filename", "--color=never", "--no-messages"}, common...)},
		{"grep", s.Grep, append([]string{"-H", "-s"}, common...)},
	} {
		if p.path == "" {
			continue
		}
		c.reset()
		err := c.program(ctx, root.Name(), p.path, p.args)
		if err == nil || ctx.Err() != nil {
			return p.name, err
		}
	}
	c.reset()
	return "scan", c.read(ctx, root)
}

func (c *collector) reset() {
	c.lines, c.full, c.found = nil, false, make([]int, len(c.terms))
}

// program runs rg or grep over all notes.
func (c *collector) program(ctx context.Context, dir, path string, args []string) error {
	for _, t := range c.terms {
		args = append(args, "-e", t.Text)
	}
	args = append(args, "--")
	index := map[string]int{}
	for i, n := range c.notes {
		index[n.path] = i
	}
	for from := 0; from < len(c.notes) && !c.full; {
		to, size := from, 0
		names := args[:len(args):len(args)]
		for ; to < len(c.notes) && size < maxNames; to++ {
			names = append(names, c.notes[to].path)
			size += len(c.notes[to].path) + 1
		}
		if err := c.run(ctx, dir, path, names, index); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// run runs rg or grep once.
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
	before := len(c.lines)
	parseErr := c.parse(bufio.NewReaderSize(out, maxLine), index)
	if parseErr != nil {
		stop()
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.Is(parseErr, errFull):
		c.full = true
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
		text, err := readLine(r)
		if err != nil && err != io.EOF {
			return err
		}
		no, rest, _ := bytes.Cut(text, []byte(":"))
		off, rest, ok := bytes.Cut(rest, []byte(":"))
		line, lineErr := strconv.Atoi(string(no))
		offset, offErr := strconv.ParseInt(string(off), 10, 64)
		if !known || !ok || lineErr != nil || offErr != nil {
			return fmt.Errorf("an answer that cannot be read: %.80q", text)
		}
		if !c.add(n, line, offset, rest) {
			return errFull
		}
	}
}

// readLine gives a line without its end. Of a long one the rest is read and left
// out. What it gives is good until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimRight(line, "\r\n"), err
	}
	line = bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
	}
	return line, err
}

// read looks at all notes without another program.
func (c *collector) read(ctx context.Context, root *os.Root) error {
	for i, n := range c.notes {
		f, err := root.Open(n.path)
		if err != nil {
			continue // it went away meanwhile
		}
		err = c.readFile(ctx, i, bufio.NewReaderSize(f, maxLine))
		_ = f.Close() // only read from
		if c.full = errors.Is(err, errFull); c.full {
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
	for no := 1; ; no++ {
		text, size, err := countLine(r)
		if len(text) > 0 && !c.add(n, no, off, text) {
			return errFull
		}
		if err != nil {
			return ctx.Err() // the end, or what cannot be read
		}
		if off += size; no%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// countLine is readLine with how many bytes the line has in the file.
func countLine(r *bufio.Reader) (line []byte, size int64, err error) {
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

// add takes a line if it has a term. It gives false when there is no more room.
func (c *collector) add(n, no int, off int64, text []byte) bool {
	f := found{note: n, line: no, off: off}
	low := strings.ToLower(string(text))
	var places [maxTerms]int
	for i := range c.terms {
		at := strings.Index(low, c.terms[i].Text)
		if at < 0 {
			continue
		}
		f.terms |= 1 << i
		places[i] = at
		if begins(low, c.terms[i].Text, at) {
			f.starts |= 1 << i
		}
	}
	if f.terms == 0 || bytes.IndexByte(text, 0) >= 0 {
		return true
	}
	for i := range c.terms {
		c.found[i] += int(f.terms >> i & 1)
	}
	f.text = strings.TrimSpace(excerpt(text, len(low), f.terms, &places))
	c.lines = append(c.lines, f)
	return len(c.lines) < maxLines
}

// begins reports whether a term stands at the beginning of a word in low, where it
// is at first. Pairs of characters have no words around them.
func begins(low, term string, at int) bool {
	if isDense(term) {
		return true
	}
	for range maxStarts {
		r, _ := utf8.DecodeLastRuneInString(low[:at])
		if at == 0 || !unicode.IsLetter(r) && !unicode.IsDigit(r) || dense(r) {
			return true
		}
		next := strings.Index(low[at+len(term):], term)
		if next < 0 {
			return false
		}
		at += len(term) + next
	}
	return false
}

// excerpt gives the text of a line, of a long one the part with the most terms.
func excerpt(text []byte, low int, terms uint64, places *[maxTerms]int) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(string(text), "\ufffd")
	}
	begin, most := 0, 0
	for i := range maxTerms {
		if terms>>i&1 == 0 || low != len(text) {
			continue
		}
		here := 0
		for j := range maxTerms {
			if d := places[j] - places[i]; terms>>j&1 == 1 && d >= 0 && d < maxText*3/4 {
				here++
			}
		}
		if from := max(0, places[i]-maxText/8); here > most || here == most && from < begin {
			begin, most = from, here
		}
	}
	part := text[begin:min(begin+maxText, len(text))]
	s := strings.TrimSpace(strings.ToValidUTF8(string(part), ""))
	if begin > 0 {
		s = "…" + s
	}
	if begin+maxText < len(text) {
		s += "…"
	}
	return s
}
