package state

import (
	"fmt"
	"slices"
	"strings"
)

// Statuses holds the closed set, in the order of a task's life.
var Statuses = [...]Status{Draft, Queued, Running, Done, Failed, Canceled, Dead}

// Index returns the place of s in Statuses.
func (s Status) Index() uint8 {
	for i, v := range Statuses {
		if v == s {
			return uint8(i)
		}
	}
	return 0 // a task never has a status out of the set
}

// who says by whom a step may be taken.
type who uint8

const (
	nobody  who = iota
	machine     // by stint alone
	person      // by hand alone
	anyone
)

// transitions is the one table: who may take a task from the status of the row to
// the status of the column. Saying the same status again is a step that changes
// only other fields. The row "" is a task's first record; it may carry any status,
// because a journal that was rebuilt from a tidied ledger may begin anywhere.
var transitions = map[Status]map[Status]who{
	"":       {Draft: anyone, Queued: anyone, Running: machine, Done: anyone, Failed: anyone, Canceled: anyone, Dead: anyone},
	Draft:    {Draft: anyone, Queued: anyone, Canceled: anyone},
	Queued:   {Draft: person, Queued: anyone, Running: machine, Done: anyone, Failed: anyone, Canceled: anyone, Dead: anyone},
	Running:  {Queued: anyone, Running: machine, Done: anyone, Failed: anyone, Canceled: anyone, Dead: anyone},
	Done:     {Queued: anyone, Done: anyone},
	Failed:   {Queued: anyone, Failed: anyone},
	Canceled: {Queued: anyone, Canceled: anyone},
	Dead:     {Queued: anyone, Dead: anyone},
}

// grid is the table by index, for speed: the last row is the first record's.
var grid = func() (g [len(Statuses) + 1][len(Statuses)]who) {
	for from, row := range transitions {
		for to, w := range row {
			g[gridRow(from)][to.Index()] = w
		}
	}
	return g
}()

func gridRow(from Status) int {
	if from == "" {
		return len(Statuses)
	}
	return int(from.Index())
}

// CanFollow reports whether a task may go from one status to another: from is ""
// for a task's first record, byHand is true for a record that was adopted from
// a person's edit.
func CanFollow(from, to Status, byHand bool) bool {
	switch grid[gridRow(from)][to.Index()] {
	case anyone:
		return true
	case person:
		return byHand
	case machine:
		return !byHand
	default:
		return false
	}
}

// A TransitionError says that a record asks for a step that the table forbids.
type TransitionError struct {
	From, To Status // From is "" for a task's first record
	ByHand   bool
}

// Error returns the sentence.
func (e *TransitionError) Error() string {
	switch {
	case e.ByHand && e.To == Running:
		return "running cannot be set by hand; set queued, and it runs when its turn comes"
	case e.ByHand:
		return fmt.Sprintf("a task that is %s cannot be made %s by hand", e.From, e.To)
	default:
		return fmt.Sprintf("a task that is %s cannot become %s", e.From, e.To)
	}
}

// otherNames maps what people and other programs write to what they mean.
var otherNames = map[string]Status{
	"todo": Queued, "pending": Queued, "ready": Queued, "waiting": Queued, "leased": Running,
	"started": Running, "active": Running, "success": Done, "succeeded": Done, "complete": Done, "completed": Done,
	"finished": Done, "error": Failed, "stopped": Canceled, "deadletter": Dead, "dead-letter": Dead,
}

// ParseStatus reads a status. The error of an unknown one names the nearest.
func ParseStatus(s string) (Status, error) {
	if st := Status(s); slices.Contains(Statuses[:], st) {
		return st, nil
	}
	if near := nearest(strings.ToLower(s)); near != "" {
		return "", fmt.Errorf("unknown status %q; did you mean %s?", s, near)
	}
	return "", fmt.Errorf("unknown status %q; it is one of draft, queued, running, done, failed, canceled, dead", s)
}

// parseStatus is ParseStatus without a copy of a known status. Nothing at all is
// a draft.
func parseStatus(b []byte) (Status, error) {
	for _, st := range Statuses {
		if string(b) == string(st) {
			return st, nil
		}
	}
	if len(b) == 0 {
		return Draft, nil
	}
	return ParseStatus(string(b))
}

// nearest returns the status that s was probably meant to be, or "".
func nearest(s string) Status {
	if st, ok := otherNames[s]; ok {
		return st
	}
	known := make([]string, len(Statuses))
	for i, st := range Statuses {
		known[i] = string(st)
	}
	return Status(Nearest(s, known))
}

// Nearest returns the known word that a word was probably meant to be, or "": at most two
// letters and half of the word are wrong.
func Nearest(word string, known []string) string {
	best, dist := "", 3
	for _, k := range known {
		if d := distance(word, k); d < dist && 2*d <= len(word) {
			best, dist = k, d
		}
	}
	return best
}

// maxWord bounds the words that distance compares.
const maxWord = 32

// distance is the number of letters to insert, delete, change or swap with their
// neighbour that makes b of a.
func distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return max(len(a), len(b))
	}
	var d [maxWord + 1][maxWord + 1]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					d[i][j] = min(d[i][j], 1+d[i-2][j-2])
				}
			}
		}
	}
	return d[len(a)][len(b)]
}
