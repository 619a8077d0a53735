package care

import (
	"errors"
	"fmt"
	"math"
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

// The verdicts. Archive has none: "". Nor has decay if the entry was used, else it fails.
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
	DecayEvery = 30 * 24 * time.Hour
	// Least is where confidence ends, unless a person has written less.
	Least = 0.1
)

// steps says where an action with a verdict leads from a status.
var steps = func() map[Action]map[Verdict]map[Status]Status {
	same := map[Status]Status{Active: Active, Uncertain: Uncertain, Unknowable: Unknowable}
	back, stay := map[Status]Status{Archived: Active}, map[Status]Status{Archived: Archived}
	asked := map[Verdict]map[Status]Status{
		Holds:     {Active: Active, Uncertain: Active, Unknowable: Active},
		Revised:   {Active: Active, Uncertain: Active, Unknowable: Active},
		Fails:     {Active: Uncertain, Uncertain: Archived, Unknowable: Uncertain},
		CannotSay: {Active: Unknowable, Uncertain: Unknowable, Unknowable: Unknowable},
	}
	return map[Action]map[Verdict]map[Status]Status{
		Verify: asked, Revalidate: asked,
		Decay:     {"": same, Fails: same},
		Archive:   {"": {Active: Archived, Uncertain: Archived, Unknowable: Archived}},
		Reinstate: {Holds: back, Revised: back, Fails: stay, CannotSay: stay},
	}
}()

var (
	added = map[Verdict]float64{Holds: 0.2, Fails: -0.3, CannotSay: -0.1}          // to the confidence; of decay a third
	days  = map[Status]int{Active: 30, Uncertain: 1, Unknowable: 30, Archived: 30} // until it is due again
)

// ErrStep is the error for an action or a verdict that leads nowhere from the entry's status.
var ErrStep = errors.New("the entry has no such step")

// May returns an error that wraps ErrStep if no verdict on an action can change the entry: then no agent needs to be asked.
func (s State) May(a Action) error {
	if s.Tries >= MaxTries && a != Decay && a != Archive {
		return fmt.Errorf("%w: %d times nobody could say whether %s holds; take tries= out of its comment to ask again", ErrStep, s.Tries, s.ID)
	}
	for _, leads := range steps[a] {
		if leads[s.Status] != "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s of %s, which is %s", ErrStep, a, s.ID, s.Status)
}

// after returns the state that a change leads to. Confidence ends at Least and at 1.
func (s State) after(c Change) (State, error) {
	if err := s.May(c.Action); err != nil {
		return s, err
	}
	to, add, least := steps[c.Action][c.Verdict][s.Status], added[c.Verdict], min(s.Confidence, Least)
	switch {
	case to == "" || (c.Verdict == Revised) != (c.Text != ""):
		return s, fmt.Errorf("%w: %s of %s with the verdict %q and %d bytes of text", ErrStep, c.Action, s.ID, c.Verdict, len(c.Text))
	case c.Action == Decay:
		add /= 3
	case c.Verdict != CannotSay:
		s.Tries = 0
	default:
		s.Tries++
	}
	if s.Next = c.Now.UTC().Truncate(time.Second).AddDate(0, 0, days[to]); s.Tries >= MaxTries {
		s.Next = time.Time{}
	}
	if to == Active && c.Action != Decay {
		least = 0.5
	}
	s.Status, s.Job, s.Confidence = to, c.Job, math.Round(100*min(1, max(least, s.Confidence+add)))/100
	return s, nil
}
