// Package memory searches a workspace's notes for what fits a task, and keeps the lessons that earlier tasks have left there.
//
// The notes are Markdown files that people and agents keep beside the code: MEMORY.md and memory/*.md. A find
// is one line of one of them. It is somebody's text, so whoever shows it to an agent shows it as quoted data.
//
// A search has three steps, each in a file of its own:
//
//	query.go   the task's prompt becomes at most 64 terms: identifiers and paths
//	           whole and in parts, words without their endings, pairs of
//	           characters where a script has no blanks, no stop words
//	scan.go    ripgrep, else our own scan, returns the lines that have one of the
//	           terms. Terms are passed with -F -e: none is a pattern or an option.
//	           A pass that finds too many lines stops, and the next one leaves the
//	           commonest terms out
//	rank.go    lines with rare terms, or below a heading that has them, come
//	           first; then newer lessons
//
// files.go says which files are notes; lessons.go adds lines to them. A lesson is a
// dated bullet, told apart by a hash of what it says. governed.go changes the entries of the
// files that a user lists, as package care has it; uses.go counts how often prompts had them.
//
// Nothing outside the workspace is returned, whatever the paths or links in it say: files are opened below an
// os.Root, and each line that another program has found is read again there. A search has a time limit; a run
// does not wait for it any longer. [Result] has what was left out, and why.
package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultPaths are the notes of a workspace that is not configured.
var DefaultPaths = []string{"MEMORY.md", "memory/*.md"}

// A Hit is one line of a note that fits a task.
type Hit struct {
	Path  string   `json:"path" doc:"Path of the note below the workspace" example:"MEMORY.md"`
	Line  int      `json:"line" doc:"Line number, from 1" example:"12"`
	Text  string   `json:"text" doc:"The line; of a long one the part that fits" example:"Rotate the deploy key with make key."`
	Hash  string   `json:"hash" doc:"First 16 digits of the SHA-256 of the text, in hex" example:"2cf24dba5fb0a30e"`
	Score float64  `json:"score" doc:"How well it fits: more is better" example:"3.2"`
	Terms []string `json:"terms" doc:"Terms that the line or a heading above it has" example:"rotate,deploy,key"`
	Entry string   `json:"entry,omitempty" doc:"Id of the line's entry; left out: it has none" example:"7f3a9c12"`
}

// String returns the hit as "path:line text". Those of a search are one line each.
func (h Hit) String() string {
	return h.Path + ":" + strconv.Itoa(h.Line) + " " + h.Text
}

// A Searcher searches notes. It holds no state: several goroutines may use it.
type Searcher struct {
	Paths    []string // below the workspace: files, directories, or patterns with * ? [] and ** for any directories
	Lessons  string   // a note that is searched too if it exists; "": none
	Archived bool     // only the archive is searched; else it is left out, with the entries that are archived
	MaxHits  int
	MaxChars int           // of all hits as they stand in a prompt
	Ripgrep  string        // name or path of rg; "": there is none
	Now      time.Time     // what newer is measured by
	Timeout  time.Duration // then a search ends with what it has; 0: DefaultTimeout
}

// A Result is what a search found, and why.
type Result struct {
	Hits     []Hit     `json:"hits" doc:"The lines that fit, best first"`
	Terms    []Term    `json:"terms" doc:"What was searched for"`
	Archived []Hit     `json:"archived,omitempty" doc:"What fits in the archive, which no agent gets"`
	Skipped  []Skipped `json:"skipped,omitempty" doc:"What was not searched"`
	Notes    int       `json:"notes" doc:"Number of files that were searched" example:"3"`
	Engine   string    `json:"engine,omitempty" doc:"What searched: rg or scan; left out: there was nothing to search" example:"rg"`
	Partial  string    `json:"partial,omitempty" doc:"Why some lines may not have been looked at" example:"it took longer than 2s"`
}

// A Term is something that is searched for.
type Term struct {
	Text   string  `json:"text" doc:"The term, in lower case" example:"deploy"`
	Lines  int     `json:"lines" doc:"Number of lines that have it" example:"4"`
	Weight float64 `json:"weight" doc:"How much it counts: a rare one more, an identifier more than a word" example:"1.7"`

	kind float64 // how much it counts however rare it is
}

// A Skipped is a path that was not searched.
type Skipped struct {
	Path string `json:"path" doc:"Path below the workspace" example:"memory/old.md"`
	Why  string `json:"why" doc:"Why it was not searched" example:"it is larger than 1 MiB"`
}

// openRoot opens a workspace, and does not wait where a FIFO has taken its place.
func openRoot(workspace string) (*os.Root, error) { return os.OpenRoot(workspace + "/") }

// Search returns the lines of a workspace's notes that fit a prompt. What stands in
// the way of one note is in Skipped; an error is one of the search itself.
func (s *Searcher) Search(ctx context.Context, workspace, text string) (Result, error) {
	var r Result
	root, err := openRoot(workspace)
	if err != nil {
		return r, fmt.Errorf("search the notes: %w", err)
	}
	defer func() { _ = root.Close() }() // only read from
	limit := cmp.Or(s.Timeout, DefaultTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r.Hits, r.Terms = []Hit{}, append([]Term{}, termsOf(text)...) // a list in JSON, also an empty one
	if s.MaxHits <= 0 {
		return r, nil
	}
	c := &collector{terms: r.Terms, archived: s.Archived}
	c.notes, r.Skipped = s.find(limited, root, limit/2)
	if len(c.notes) == 0 || len(r.Terms) == 0 {
		return r, ctx.Err()
	}
	r.Notes = len(c.notes)
	if r.Engine, r.Partial, err = s.scan(limited, root, c); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return r, fmt.Errorf("search the notes: %w", err)
	}
	rk, kept, room := &ranking{collector: c, root: root, now: s.Now}, []Hit{}, s.MaxChars
	for _, h := range rk.best(s.MaxHits * 2) {
		if size := utf8.RuneCountInString("> " + h.String() + "\n"); len(kept) < s.MaxHits && size <= room {
			room -= size
			kept = append(kept, h)
		}
	}
	r.Hits = kept
	r.Skipped = append(r.Skipped, rk.skipped...)
	if limited.Err() != nil {
		late := fmt.Sprintf("it took longer than %v", limit)
		r.Partial = strings.TrimPrefix(r.Partial+"; "+late, "; ")
	}
	return r, nil
}

// find returns the notes. It leaves time to search those that it has found.
func (s *Searcher) find(ctx context.Context, root *os.Root, limit time.Duration) ([]note, []Skipped) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	paths, lessons := s.Paths, s.Lessons
	if s.Archived {
		paths, lessons = []string{Archive}, ""
	}
	notes, skipped := findNotes(ctx, root, paths, lessons)
	return slices.DeleteFunc(notes, func(n note) bool { return strings.HasPrefix(n.path, Archive+"/") != s.Archived }), skipped
}

// hashOf returns the hash of a hit's text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
