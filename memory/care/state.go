// Package care knows what an entry of a governed memory file is, its state, and how jobs change
// it. It works on texts, does no I/O and reads no clock.
//
// An entry is a list item at the left edge, outside code and comments, with the lines that are
// indented below it. All else, and an entry that no job changes, stays as it is, byte for byte.
package care

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stint/ledger/lazy"
)

// A Status is how far an entry can be relied on.
type Status string

// The statuses of entries.
const (
	Active     Status = "active"
	Uncertain  Status = "uncertain"        // it was found not to hold, once
	Archived   Status = "archived"         // it stands in the archive, and no prompt has it
	Unknowable Status = "ontic_unknowable" // nobody can say whether it holds
)

// High is the risk of the entries that jobs change only while the gate is open.
const High = "high"

// A State is what stands behind the first line of an entry.
type State struct {
	ID         string    `json:"id"`
	Status     Status    `json:"status"`
	Confidence float64   `json:"confidence"`      // 0 to 1
	Risk       string    `json:"risk"`            // low, medium or high
	Next       time.Time `json:"next,omitzero"`   // when it is due again; zero: never
	Tries      int       `json:"tries,omitempty"` // how often in a row nobody could say whether it holds
	Job        string    `json:"job,omitempty"`   // the last job that changed it
}

var (
	comment = lazy.Regexp(`[ \t]*<!-- stint ([a-z]+=[^<>]*)-->`)
	fields  = lazy.Regexp(`^(?:id=([\w-]{1,32}) *)?(?:status=(active|uncertain|archived|ontic_unknowable) *)?(?:confidence=(0|0\.\d+|1|1\.0+) *)?` +
		`(?:risk=(low|medium|high) *)?(?:next=(\S+) *)?(?:tries=(\d) *)?(?:job=(\S+) *)?$`)
	errComment = errors.New("its comment is not id=… status=active|uncertain|archived|ontic_unknowable confidence=0…1 risk=low|medium|high next=2026-11-28T15:04:05Z, in this order")
)

// Cut returns a line without the state that stands in it, and the state; without one, that of a
// new entry, which has no id. The error says what is wrong with the state.
func Cut(line string) (text string, s State, err error) {
	s = State{Status: Active, Confidence: 1, Risk: "low"}
	if !strings.Contains(line, "<!-- stint ") {
		return line, s, nil
	}
	found := comment().FindStringSubmatch(line)
	if found == nil {
		return line, s, nil
	}
	line = comment().ReplaceAllString(line, "")
	f := fields().FindStringSubmatch(found[1])
	if f != nil && f[5] != "" {
		s.Next, err = time.Parse(time.RFC3339, f[5])
	}
	if f == nil || err != nil {
		s.Status = Uncertain
		return line, s, errComment
	}
	s.ID, s.Job, s.Status, s.Risk = f[1], f[7], cmp.Or(Status(f[2]), s.Status), cmp.Or(f[4], s.Risk)
	s.Tries, _ = strconv.Atoi(cmp.Or(f[6], "0"))
	s.Confidence, _ = strconv.ParseFloat(cmp.Or(f[3], "1"), 64) // digits
	return line, s, nil
}

// comment returns what stands behind the first line of an entry.
func (s State) comment() string {
	text := fmt.Sprintf("<!-- stint id=%s status=%s confidence=%.2f risk=%s", s.ID, s.Status, s.Confidence, s.Risk)
	if !s.Next.IsZero() {
		text += " next=" + s.Next.UTC().Format(time.RFC3339)
	}
	if s.Tries > 0 {
		text += " tries=" + strconv.Itoa(s.Tries)
	}
	if s.Job != "" {
		text += " job=" + s.Job
	}
	return text + " -->"
}

// Weight is what the rank of an entry is multiplied by, 0 to 1; 0: no prompt has it.
func (s State) Weight() float64 {
	return s.Confidence * map[Status]float64{Active: 1, Uncertain: 0.5, Unknowable: 0.5}[s.Status]
}

// At returns the state that holds for a line: its own, or if it is indented, that of the entry
// above it. before is what stands before the line, or the end of that.
func At(before, line []byte) State {
	for len(line) > 0 && len(before) > 0 && bytes.IndexByte([]byte(" \t\r\n"), line[0]) >= 0 {
		i := bytes.LastIndexByte(before[:len(before)-1], '\n') + 1
		before, line = before[:i], before[i:]
	}
	_, s, _ := Cut(string(line)) // what is wrong is not for a search
	return s
}

var (
	gate   = lazy.Regexp(`(?mi)^\x{feff}?[-* \t]*state:[ \t]*(.*?)[ \t\r]*$`)
	unsaid = lazy.Regexp("(?s)<!--.*?(-->|$)|```.*?(```|$)") // comments, and code
)

// Gate reports whether the text of a gate.md lets jobs change entries of high risk: it has the line
// "state: open", and none with another state.
func Gate(text []byte) (open bool) {
	for _, f := range gate().FindAllSubmatch(unsaid().ReplaceAll(text, nil), -1) {
		if open = strings.EqualFold(string(f[1]), "open"); !open {
			break
		}
	}
	return open
}
