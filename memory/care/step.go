package care

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// An Action is what a job does with an entry.
type Action string

// The actions of jobs.
const (
	Verify     Action = "verify"
	Revalidate Action = "revalidate"
	Decay      Action = "decay"
	Archive    Action = "archive"
	Reinstate  Action = "reinstate-check"
)

// A Verdict is what was found out about an entry.
type Verdict string

// The verdicts. For decay, an entry holds if it was used. Archive needs none: "".
const (
	Holds     Verdict = "holds"
	Revised   Verdict = "revised" // it holds with the text of the change
	Fails     Verdict = "fails"
	CannotSay Verdict = "unknowable"
)

// A Change is what a job leads to.
type Change struct {
	Action  Action
	Verdict Verdict
	Text    string    // the new one if Verdict is Revised, else ""
	Job     string    // its id: a change of one job is made once
	Now     time.Time // the next time is counted from it
}

const (
	// MaxTries is how often in a row nobody can say whether an entry holds. Then no job asks again.
	MaxTries = 3
	// DecayEvery is the time without a use after which an entry decays.
	DecayEvery      = 30 * 24 * time.Hour
	leastConfidence = 0.1 // lower it does not fall
)

var (
	present = []Status{Active, Uncertain, Unknowable}
	asking  = []Action{Verify, Revalidate}
)

// A step is a row of the table of transitions.
type step struct {
	actions []Action
	verdict Verdict
	from    []Status
	to      Status  // "": as it is
	add     float64 // to the confidence
	least   float64 // of it, afterwards
	days    int     // until it is due again; 0: as it was
}

var steps = []step{
	{asking, Holds, []Status{Active}, Active, 0.2, 0, 30},
	{asking, Holds, []Status{Uncertain, Unknowable}, Active, 0.2, 0.5, 7},
	{asking, Revised, present, Active, 0, 0.5, 7},
	{asking, Fails, []Status{Active, Unknowable}, Uncertain, -0.3, 0, 1},
	{asking, Fails, []Status{Uncertain}, Archived, 0, 0, 30},
	{asking, CannotSay, present, Unknowable, -0.1, 0, 30},
	{[]Action{Decay}, Holds, present, "", 0, 0, 0},
	{[]Action{Decay}, Fails, present, "", -0.1, 0, 0},
	{[]Action{Archive}, "", present, Archived, 0, 0, 30},
	{[]Action{Reinstate}, Holds, []Status{Archived}, Active, 0, 0.5, 7},
	{[]Action{Reinstate}, Revised, []Status{Archived}, Active, 0, 0.5, 7},
	{[]Action{Reinstate}, Fails, []Status{Archived}, Archived, 0, 0, 90},
	{[]Action{Reinstate}, CannotSay, []Status{Archived}, Archived, 0, 0, 90},
}

// ErrStep is the error for an action or a verdict that leads nowhere from the entry's status.
var ErrStep = errors.New("the entry has no such step")

// May returns an error that wraps ErrStep if no verdict on an action can change the entry: then no
// agent needs to be asked.
func (s State) May(a Action) error {
	if s.Tries >= MaxTries && a != Decay && a != Archive {
		return fmt.Errorf("%w: %d times nobody could say whether %s holds; take tries= out of its comment to ask again", ErrStep, s.Tries, s.ID)
	}
	if !slices.ContainsFunc(steps, func(t step) bool { return slices.Contains(t.actions, a) && slices.Contains(t.from, s.Status) }) {
		return fmt.Errorf("%w: %s of %s, which is %s", ErrStep, a, s.ID, s.Status)
	}
	return nil
}

// after returns the state that a change leads to.
func (s State) after(c Change) (State, error) {
	if err := s.May(c.Action); err != nil {
		return s, err
	}
	i := slices.IndexFunc(steps, func(t step) bool {
		return slices.Contains(t.actions, c.Action) && slices.Contains(t.from, s.Status) && t.verdict == c.Verdict
	})
	if i < 0 || (c.Verdict == Revised) != (c.Text != "") {
		return s, fmt.Errorf("%w: %s of %s with the verdict %q and %d bytes of text", ErrStep, c.Action, s.ID, c.Verdict, len(c.Text))
	}
	t := steps[i]
	if t.add < 0 {
		t.least = min(s.Confidence, leastConfidence) // a person may have written less
	}
	s.Confidence = math.Round(100*min(1, max(t.least, s.Confidence+t.add))) / 100
	if s.Job = c.Job; t.to != "" {
		s.Status = t.to
	}
	if t.days > 0 {
		s.Next = c.Now.UTC().Truncate(time.Second).AddDate(0, 0, t.days)
	}
	if c.Verdict == CannotSay {
		if s.Tries++; s.Tries == MaxTries {
			s.Next = time.Time{}
		}
	} else if c.Action != Decay {
		s.Tries = 0
	}
	return s, nil
}
