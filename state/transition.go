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
	return uint8(max(0, slices.Index(Statuses[:], s))) // a task never has a status out of the set
}

// transitions is the one table: who may take a task from the status of the row to that of the column, both in
// the order of Statuses. + is anyone, ! stint alone, * a person's record alone, and - nobody. The same status
// again is a step that changes only other fields. The last row is that of a task's first record; it may carry
// any status, because a journal that was rebuilt from a tidied ledger may begin anywhere.
var transitions = [len(Statuses) + 1]string{
	"++---+-", // draft
	"*+!++++", // queued
	"-+!++++", // running
	"-+-+---", // done
	"-+--+--", // failed
	"-+---+-", // canceled
	"-+----+", // dead
	"++!++++",
}

// CanFollow reports whether a task may go from one status to another: from is "" for a task's first record,
// byHand is true for a record that was adopted from a person's edit.
func CanFollow(from, to Status, byHand bool) bool {
	row := len(Statuses)
	if from != "" {
		row = int(from.Index())
	}
	who := transitions[row][to.Index()]
	return who == '+' || who == '*' && byHand || who == '!' && !byHand
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

// ParseStatus reads a status, without a copy of a known one.
func ParseStatus[T string | []byte](s T) (Status, error) {
	for _, st := range Statuses {
		if string(s) == string(st) {
			return st, nil
		}
	}
	known := strings.Trim(fmt.Sprint(Statuses), "[]")
	return "", fmt.Errorf("unknown status %q; it is one of %s", s, strings.ReplaceAll(known, " ", ", "))
}

// Nearest returns the known word that a word was probably meant to be, or "": at most two
// letters, and about a third of the word, are wrong, or it is the beginning.
func Nearest(word string, known []string) string {
	best, dist := "", 3
	for _, k := range known {
		if d := distance(word, k); d < dist && 3*d <= len(word)+1 {
			best, dist = k, d
		}
	}
	if i := slices.IndexFunc(known, func(k string) bool { return len(word) > 2 && strings.HasPrefix(k, word) }); best == "" && i >= 0 {
		return known[i]
	}
	return best
}

// maxWord bounds the words that distance compares.
const maxWord = 32

// distance is the number of letters to insert, delete, change or swap with their neighbour that makes b of a.
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
