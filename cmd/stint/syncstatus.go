package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/postgres"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) syncStatusCommand() *cobra.Command {
	return a.onMirror(&cobra.Command{
		Use: "status", Short: "show how far the mirror is behind",
		Long: `Show the last record of the mirror and of the journal, how many records the mirror is
behind, and how old the oldest of them is; what a running master reports of it, with
its last error; and whether the clocks of both machines differ. If the database cannot
be used, the exit code is 1, and what the master knows is printed.`,
		Example: "  stint sync status\n  stint sync status --json | jq .lagRecords",
	}, a.mirrorStatus)
}

// A mirrorStatus is what sync status tells. What needs an answer of the database is left
// out where there is none.
type mirrorStatus struct {
	Target      string             `json:"target"`
	Schema      int                `json:"schema,omitempty"`
	Host        string             `json:"host"`
	StateDir    string             `json:"stateDir"`
	Seq         *uint64            `json:"seq,omitempty"` // all records up to it are in the mirror
	JournalSeq  uint64             `json:"journalSeq"`
	LagRecords  *uint64            `json:"lagRecords,omitempty"`
	LagSeconds  *float64           `json:"lagSeconds,omitempty"` // age of the oldest record that the mirror lacks
	UpdatedAt   time.Time          `json:"updatedAt,omitzero"`
	RebuiltAt   time.Time          `json:"rebuiltAt,omitzero"`
	Version     string             `json:"version,omitempty"` // of the stint that wrote last
	SkewSeconds float64            `json:"skewSeconds,omitempty"`
	Warning     string             `json:"warning,omitempty"`
	Error       string             `json:"error,omitempty"` // why the database cannot be used
	Master      *task.MirrorStatus `json:"master,omitempty"`
}

func (a *app) mirrorStatus(c *cobra.Command) error {
	ctx := c.Context()
	dir, o, failed := a.mirrorOptions(c)
	if dir == "" {
		return failed
	}
	h, _ := a.health(ctx) // without a master there is no word of it
	s := &mirrorStatus{Host: o.Host, StateDir: dir, Master: h.Postgres}
	if failed != nil && s.Master == nil {
		return failed
	}
	l, err := statedir.ReadSnapshot(ctx, dir, 0)
	if err != nil {
		return syncError(ctx, err)
	}
	s.JournalSeq = l.Seq()
	switch {
	case failed == nil:
		var p postgres.Position
		p, err = postgres.Look(ctx, o)
		if failed = syncError(ctx, err); failed == nil {
			s.Target, s.Schema, s.UpdatedAt, s.RebuiltAt, s.Version = p.Target, p.Schema, p.UpdatedAt, p.RebuiltAt, p.Version
			s.SkewSeconds, s.Warning = p.Skew.Seconds(), p.Warning
			s.setLag(ctx, l, p.Seq)
		}
	case errors.Is(failed, errNoMirror):
		a.hint("stint: the database is configured for the master alone; this is what it knows\n")
		if failed = nil; s.Master.State == task.MirrorFailing {
			failed = &cliError{code: exitFailure, message: s.Master.LastError, try: "stint doctor"}
		}
	}
	if failed != nil {
		s.Error, _ = explain(failed)
	}
	if m := s.Master; m != nil && s.Target == "" && m.Seq > 0 {
		s.Target = m.Target
		s.setLag(ctx, l, m.Seq)
	}
	a.warn(s.Warning)
	return errors.Join(a.print(s, s.String()), failed)
}

// setLag sets how far a mirror up to seq is behind the ledger. Where it seems to be ahead,
// the ledger was put back to what it had been, and the mirror will be written anew.
func (s *mirrorStatus) setLag(ctx context.Context, l *statedir.Snapshot, seq uint64) {
	var lag uint64
	var waited float64
	s.Seq, s.LagRecords, s.LagSeconds = &seq, &lag, &waited
	if seq >= l.Seq() {
		return
	}
	lag = l.Seq() - seq
	f := l.Follow(seq)
	defer func() { _ = f.Close() }() // it was only read
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		r, err := f.Next(ctx)
		if err != nil {
			return
		}
		if t, err := state.ParseTime(r.Value(state.KeyUpdatedAt)); err == nil && !t.IsZero() {
			waited = max(0, time.Since(t).Seconds())
			return
		}
	}
}

// String returns the status for people.
func (s *mirrorStatus) String() string {
	d := &description{}
	d.line("database", s.Target)
	d.line("schema", orNone(s.Schema))
	d.line("host", s.Host)
	d.line("state", s.StateDir)
	switch {
	case s.Seq == nil:
	case *s.Seq == 0:
		d.line("mirror", "none yet")
	case s.UpdatedAt.IsZero():
		d.line("mirror", fmt.Sprintf("up to record %d", *s.Seq))
	default:
		d.line("mirror", fmt.Sprintf("up to record %d, written %s by stint %s", *s.Seq, localTime(s.UpdatedAt), s.Version))
	}
	d.line("journal", fmt.Sprintf("up to record %d", s.JournalSeq))
	switch {
	case s.LagRecords == nil:
	case *s.LagRecords == 0:
		d.line("behind", "nothing")
	default:
		d.line("behind", fmt.Sprintf("%s, %s", count(int(*s.LagRecords), "record"), ago(time.Duration(*s.LagSeconds*float64(time.Second)))))
	}
	m := s.Master
	if m == nil {
		d.line("master", "none that keeps this mirror is running")
		return d.String()
	}
	d.line("master", string(m.State))
	if m.LastError != "" {
		d.line("last error", fmt.Sprintf("%s (%s)", m.LastError, localTime(m.ErrorAt)))
	}
	for _, skipped := range m.Skipped {
		d.line("skipped", skipped)
	}
	return d.String()
}

// shownDifferences is how many differences are listed without --all.
const shownDifferences = 100

func (a *app) syncVerifyCommand() *cobra.Command {
	var all bool
	c := a.onMirror(&cobra.Command{
		Use: "verify", Short: "compare the mirror with the ledger",
		Long: `Compare the mirror with the ledger up to the mirror's last record. Each difference is a
line, followed by a summary. A master may be running: tasks that it changes meanwhile
are counted and not compared. The exit code is 0 if there is no difference, else 1. To
fix differences: stint sync rebuild.`,
		Example: "  stint sync verify\n  stint sync verify --all --json | jq -r 'select(.id) | .id' | sort -u",
	}, func(c *cobra.Command) error {
		ctx := c.Context()
		dir, o, err := a.mirrorOptions(c)
		if err != nil {
			return err
		}
		tasks, stop := a.startCounter(ctx, "comparing")
		r, err := postgres.Verify(ctx, o, func(upTo uint64) (postgres.VerifySource, error) {
			l, err := statedir.ReadSnapshot(ctx, dir, upTo)
			return counter{l, newAccountsFile(dir), tasks}, err
		})
		stop()
		if err := syncError(ctx, err); err != nil {
			return err
		}
		if err := a.printDifferences(&r, all); err != nil {
			return err
		}
		if len(r.Differences)+r.More > 0 {
			return &cliError{code: exitFailure} // the list says it
		}
		return nil
	})
	c.Flags().BoolVar(&all, "all", false, fmt.Sprintf("list all differences, not only the first %d", shownDifferences))
	return c
}

// A mirrorSummary is the last line of sync verify --json.
type mirrorSummary struct {
	Seq         uint64 `json:"seq"` // that far both were compared
	Tasks       int    `json:"tasks"`
	Runs        int    `json:"runs"`
	Files       int    `json:"files"`
	Differences int    `json:"differences"`
	InFlight    int    `json:"inFlight"` // tasks that were changed meanwhile and not compared
}

// printDifferences prints the differences that are to be shown, and the summary.
func (a *app) printDifferences(r *postgres.Report, all bool) error {
	shown := r.Differences
	if !all {
		shown = shown[:min(len(shown), shownDifferences)]
	}
	sum := mirrorSummary{r.Seq, r.Tasks, r.Runs, r.Files, len(r.Differences) + r.More, r.InFlight}
	for _, d := range shown {
		if err := a.print(d, oneLine(d.Text)); err != nil {
			return err
		}
	}
	if more := sum.Differences - len(shown); more > 0 && !a.json {
		text := fmt.Sprintf("and %d more", more)
		if !all {
			text += "; with --all they are listed"
		}
		if err := printText(a.stdout, text); err != nil {
			return err
		}
	}
	what := "no difference"
	if sum.Differences > 0 {
		what = count(sum.Differences, "difference")
	}
	text := fmt.Sprintf("%s in %s, %s and %s, up to record %d", what, count(sum.Tasks, "task"), count(sum.Runs, "run"), count(sum.Files, "file"), sum.Seq)
	if sum.InFlight > 0 {
		text += fmt.Sprintf("; %s changed meanwhile, not compared", count(sum.InFlight, "task"))
	}
	return a.print(sum, text)
}

// print prints what a program, or a person, is to see.
func (a *app) print(v any, text string) error {
	if a.json {
		return printJSON(a.stdout, v)
	}
	return printText(a.stdout, text)
}
