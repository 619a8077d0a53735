package statedir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/tasksfile"
	"stint/state"
	"stint/state/explain"
	"stint/state/fold"
	"stint/state/jobs"
	"stint/state/lanes"
)

// A Digest is what has become of the tasks of a state directory in a while, and how they are now.
type Digest struct {
	Since      time.Time            `json:"since"`
	Until      time.Time            `json:"until"`
	Ended      map[state.Status]int `json:"ended"`               // in that time, by status
	Failed     []DigestTask         `json:"failed"`              // of these, those that failed or are dead, oldest first
	Findings   []DigestTask         `json:"findings"`            // of these, those with findings
	Held       []DigestTask         `json:"held"`                // wait for a person now
	Accounts   []state.AccountUse   `json:"accounts"`            // on hold, or cooling down, now
	Journal    string               `json:"journal,omitempty"`   // what is wrong with it
	Ledger     []task.Finding       `json:"ledger"`              // what is wrong in tasks.md, or quarantined
	Paused     bool                 `json:"paused"`              // dispatch is, now
	PauseWhy   string               `json:"pauseWhy"`            // the reason that was given
	Running    int                  `json:"running"`             // tasks now
	Queued     int                  `json:"queued"`              // tasks now, without those on hold
	Next       time.Time            `json:"next,omitzero"`       // the first time that one of them waits for; zero: none does
	Master     bool                 `json:"master"`              // one is at work now
	Gaps       []Gap                `json:"gaps"`                // when nothing happened in that time, though there was something to do
	Usage      task.UsageRow        `json:"usage"`               // of the runs that ended in that time; [ReadDigest] leaves it to the caller
	LastRecord time.Time            `json:"lastRecord,omitzero"` // when the newest record was written; zero: there is none
}

// A DigestTask is a task of a [Digest].
type DigestTask struct {
	ID       string        `json:"id"`
	Status   state.Status  `json:"status"`
	Reason   state.Class   `json:"reason,omitempty"`
	Why      string        `json:"why,omitempty"` // its error, why it is on hold, or its findings
	Title    string        `json:"title"`
	Findings []state.Issue `json:"findings,omitempty"`

	at time.Time
}

// A Gap is a time in which nothing happened, for want of a master or the machine, though there was work.
type Gap struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Ready   int       `json:"ready"`   // tasks that could have started
	Running int       `json:"running"` // tasks whose master was killed
}

// minGap is how long nothing is recorded until that is a [Gap].
const minGap = 10 * time.Minute

// ReadDigest reads what has become of tasks from since to now, and returns the fold of the journal with it. It
// takes no lock. root is the configuration's workspace_root, isUp: a master is at work.
func ReadDigest(ctx context.Context, dir, root string, since, now time.Time, isUp bool) (*Digest, *fold.State, error) {
	d := &Digest{
		Since: since, Until: now, Ended: map[state.Status]int{}, Master: isUp, Failed: []DigestTask{}, Findings: []DigestTask{}, Held: []DigestTask{},
		Gaps: []Gap{}, Accounts: []state.AccountUse{}, Ledger: []task.Finding{},
	}
	snap, tasksErr := tasksfile.ReadSnapshot(ctx, durable.OS, dir, ledger.TaskFiles) // before the journal, which then has all that it has
	data, entries, err := queue.ReadJournal(ctx, dir, ledger.TaskFiles)
	if err != nil {
		return nil, nil, err
	}
	b := newBook(ledger.TaskFiles, queue.BytesReader(data), entries)
	st := b.tasks
	found := ledger.CheckJournal(data, func(s *ledger.Section) bool {
		if at, err := state.ParseTime(s.Value(state.KeyUpdatedAt)); err == nil && at.After(d.LastRecord) && !at.After(now) {
			// What a compaction has merged is older than its own record, which comes first.
			d.silence(st, root, at, s.Value(state.KeyReason) == string(state.ClassInterrupted))
			d.LastRecord = at
		}
		_ = st.Apply(s) // what the fold refuses has no effect
		return ctx.Err() == nil
	})
	isDamaged := slices.ContainsFunc(found, func(f *ledger.SyntaxError) bool { return f.Torn == 0 }) ||
		slices.ContainsFunc(ledger.Parse(snap.Data).Sections, func(s ledger.Section) bool { return s.Seq > st.Seq() })
	if isDamaged {
		d.Journal = "journal.md is damaged or missing: what only tasks.md has is not in this digest; the next master takes it from there; to check: stint fsck"
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if !isUp {
		d.silence(st, root, now, true)
	}
	for _, id := range st.IDs(0, math.MaxInt32) {
		if err := d.add(st, dir, id); err != nil {
			return nil, nil, err
		}
	}
	for _, list := range [][]DigestTask{d.Failed, d.Findings, d.Held} {
		slices.SortStableFunc(list, func(a, b DigestTask) int { return a.at.Compare(b.at) })
	}
	d.Paused, d.PauseWhy = st.Paused()
	for _, a := range st.Accounts() {
		if a.Closed, a.Why = explain.Account(&a.Account, state.AccountRule{}, now); a.Why != "" {
			d.Accounts = append(d.Accounts, a)
		}
	}
	switch {
	case isDamaged, data == nil && errors.Is(tasksErr, fs.ErrNotExist): // nothing was ever queued here
		return d, st, nil
	case tasksErr != nil:
		d.Ledger = append(d.Ledger, task.Finding{File: ledger.TasksName, Message: tasksErr.Error()})
		return d, st, nil
	}
	r, _, err := b.preview(dir, data, snap.Data)
	d.Ledger = append(r.Findings, queue.Homeless(st, root)...) // one of them has the quarantined edits
	return d, st, err
}

// silence notes that nothing was recorded since the last record until to, if there was
// something to do and no master did it. wasCut reports whether it cut off what ran.
func (d *Digest) silence(st *fold.State, root string, to time.Time, wasCut bool) {
	from := d.LastRecord
	if from.Before(d.Since) {
		from = d.Since
	}
	if d.LastRecord.IsZero() || to.Sub(from) < minGap {
		return
	}
	g := Gap{From: from, To: to, Running: len(st.Running())}
	if g.Running > 0 && !wasCut { // a long run
		return
	}
	g.Ready = len(st.Ready(to.Add(-minGap/2), lanes.Limits{MaxWorkers: math.MaxInt32, WorkspaceRoot: root}))
	if g.Ready+g.Running > 0 {
		d.Gaps = append(d.Gaps, g)
	}
}

// add adds a task.
func (d *Digest) add(st *fold.State, dir, id string) error {
	t, _ := st.Peek(id)
	switch {
	case t.Status.Terminal() && (t.UpdatedAt.Before(d.Since) || !t.UpdatedAt.Before(d.Until)), t.Status == state.Draft:
		return nil
	case t.Status == state.Running:
		d.Running++
		return nil
	case t.Status == state.Queued && !t.Hold:
		d.Queued++
		if t.NotBefore.After(d.Until) && (d.Next.IsZero() || t.NotBefore.Before(d.Next)) {
			d.Next = t.NotBefore
		}
		return nil
	}
	whole, _, err := st.Task(id)
	if e, isArchived := st.Archived(id); isArchived {
		whole, _, err = queue.ReadArchived(dir, e)
	}
	if err != nil {
		return err
	}
	one := DigestTask{ID: id, Status: t.Status, Reason: whole.Reason, Why: cmp.Or(whole.Error, string(whole.Reason)), Title: state.TitleOf(whole.Prompt), at: t.UpdatedAt}
	if t.Hold && !t.Status.Terminal() {
		one.Why = cmp.Or(whole.Note, string(whole.Reason))
		d.Held = append(d.Held, one)
		return nil
	}
	d.Ended[t.Status]++
	if t.Status == state.Failed || t.Status == state.Dead {
		d.Failed = append(d.Failed, one)
	}
	if len(whole.Findings) > 0 {
		one.Findings, one.Why = whole.Findings, strings.ReplaceAll(task.FindingsText(whole.Findings), "\n", "; ")
		d.Findings = append(d.Findings, one)
	}
	return nil
}

// ReadJobs returns the due jobs of a state directory. It changes nothing and takes no lock.
func ReadJobs(dir string) (*jobs.State, error) {
	b, _, err := readBook(dir, ledger.JobFiles)
	return b.jobs, err
}
