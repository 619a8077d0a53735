// Package memory searches a workspace's notes for what fits a task, and keeps the
// lessons that earlier tasks have left there.
//
// The notes are Markdown files that people and agents keep beside the code:
// MEMORY.md and memory/*.md. A find is one line of one of them. It is somebody's
// text, so whoever shows it to an agent shows it as quoted data.
//
// A search has three steps, each in a file of its own:
//
//	query.go   the task's prompt becomes at most 64 terms: identifiers and paths
//	           whole and in parts, words without their endings, pairs of
//	           characters where a script has no blanks, no stop words
//	scan.go    ripgrep, else grep, else our own scan gives the lines that have one
//	           of the terms. Terms are passed with -F -e: none is a pattern or an
//	           option. A pass that finds too many lines stops, and the next one
//	           leaves the commonest terms out
//	rank.go    lines with rare terms, near each other or below a heading that has
//	           them, come first; then newer lessons
//
// files.go says which files are notes; lessons.go adds lines to them. A lesson is a
// dated bullet, told apart by a hash of what it says.
//
// Nothing outside the workspace is given, whatever the paths or links in it say: files
// are opened below an os.Root, and each line that another program has found is read
// again there. A search has a time limit; a run does not wait for it any longer.
// [Result] tells what was left out, and why.
package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"
)

// DefaultPaths are the notes of a workspace that is not configured.
var DefaultPaths = []string{"MEMORY.md", "memory/*.md"}

// A Hit is one line of a note that fits a task.
type Hit struct {
	Path  string   `json:"path"` // of the note, below the workspace, with slashes
	Line  int      `json:"line"` // counted from 1
	Text  string   `json:"text"` // the line without its line break; of a long one the part with the terms
	Hash  string   `json:"hash"` // of Text: the first 16 digits of its SHA-256, in hex
	Score float64  `json:"score"`
	Terms []string `json:"terms"` // those that the line has, or its heading, or a line close by
}

// String gives the hit as "path:line text". What Path and Text contain is not
// changed, so the string has line breaks if they have.
func (h Hit) String() string {
	return h.Path + ":" + strconv.Itoa(h.Line) + " " + h.Text
}

// A Searcher searches notes. It holds no state: several goroutines may use it.
type Searcher struct {
	Paths    []string // below the workspace: files, directories, or patterns with * ? [] and ** for any directories
	Lessons  string   // a note that is searched too if it exists; "": none
	MaxHits  int
	MaxChars int           // of all hits as they are shown, with their line breaks
	Ripgrep  string        // path of rg; "": there is none
	Grep     string        // path of grep; "": there is none
	Now      time.Time     // what newer is measured by
	Timeout  time.Duration // then a search goes on with what it has; 0: DefaultTimeout
}

// A Result is what a search found, and why.
type Result struct {
	Hits    []Hit     `json:"hits"` // best first
	Terms   []Term    `json:"terms"`
	Skipped []Skipped `json:"skipped,omitempty"`
	Notes   int       `json:"notes"`             // how many files were searched
	Engine  string    `json:"engine,omitempty"`  // rg, grep or scan; "" if there was nothing to search
	Partial string    `json:"partial,omitempty"` // why there may be lines that were not looked at
}

// A Term is something that is searched for.
type Term struct {
	Text   string  `json:"text"`   // in lower case
	Lines  int     `json:"lines"`  // how many lines have it, of those that were looked at
	Weight float64 `json:"weight"` // how much it counts: a rare one more, an identifier more than a word; 0 if no line has it

	kind float64 // how much it counts however rare it is
}

// A Skipped is a path that was not searched.
type Skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Search gives the lines of a workspace's notes that fit a prompt. What stands in
// the way of one note is in Skipped; an error is one of the search itself.
func (s *Searcher) Search(ctx context.Context, workspace, text string) (Result, error) {
	var r Result
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return r, fmt.Errorf("search the notes: %w", err)
	}
	defer func() { _ = root.Close() }() // only read from
	r.Hits, r.Terms = []Hit{}, termsOf(text)
	var notes []note
	notes, r.Skipped = findNotes(ctx, root, s.Paths, s.Lessons)
	if len(notes) == 0 || len(r.Terms) == 0 || s.MaxHits <= 0 {
		return r, ctx.Err()
	}
	r.Notes = len(notes)
	c := &collector{terms: r.Terms, notes: notes}
	if r.Engine, r.Partial, err = s.scan(ctx, root, c); err != nil {
		return r, fmt.Errorf("search the notes: %w", err)
	}
	rk := &ranking{collector: c, root: root, now: s.Now}
	r.Hits = s.fit(rk.best(s.MaxHits * 2))
	r.Skipped = append(r.Skipped, rk.skipped...)
	return r, nil
}

// fit takes hits as long as there is room for them, each text once.
func (s *Searcher) fit(hits []Hit) []Hit {
	kept, room, seen := []Hit{}, s.MaxChars, map[string]bool{}
	for _, h := range hits {
		size := utf8.RuneCountInString(h.String()) + 1
		key := sameText(h.Text)
		if len(kept) == s.MaxHits || size > room || seen[key] {
			continue
		}
		seen[key] = true
		room -= size
		kept = append(kept, h)
	}
	return kept
}

// HashFile gives the SHA-256 of a note, in hex.
func HashFile(workspace, name string) (string, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // only read from
	f, err := openNote(root, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // only read from
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashOf gives the hash of a hit's text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
