package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/postgres"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

const syncStatusHelp = `Tell how far the copy is: its last record and the journal's, how many records it is
behind, and for how long the oldest of them has waited; what a running master says of
it, with its last error; and whether the clocks of both machines differ. The exit code
is 1 if the database cannot be used; then what the master knows is printed.`

func (a *app) syncStatusCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "status [OPTIONS]",
		Short:   "tell how far the copy is",
		Long:    syncStatusHelp,
		Example: "  stint sync status\n  stint sync status --json | jq .lagRecords",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.copyStatus(c, asJSON)
		},
	}
	syncFlags(c, &asJSON)
	return c
}

// A copyStatus is what sync status tells. What needs an answer of the database is left
// out where there is none.
type copyStatus struct {
	Target      string             `json:"target"`
	Schema      int                `json:"schema,omitempty"`
	Host        string             `json:"host"`
	StateDir    string             `json:"stateDir"`
	Seq         *uint64            `json:"seq,omitempty"` // all records up to it are in the copy
	JournalSeq  uint64             `json:"journalSeq"`
	LagRecords  *uint64            `json:"lagRecords,omitempty"`
	LagSeconds  *float64           `json:"lagSeconds,omitempty"` // age of the oldest record that the copy lacks
	UpdatedAt   time.Time          `json:"updatedAt,omitzero"`
	RebuiltAt   time.Time          `json:"rebuiltAt,omitzero"`
	Version     string             `json:"version,omitempty"` // of the stint that wrote last
	SkewSeconds float64            `json:"skewSeconds,omitempty"`
	Warning     string             `json:"warning,omitempty"`
	Error       string             `json:"error,omitempty"` // why the database cannot be used
	Master      *task.MirrorStatus `json:"master,omitempty"`
}

func (a *app) copyStatus(c *cobra.Command, asJSON bool) error {
	ctx := c.Context()
	dir, o, failed := a.copyOptions(c)
	if dir == "" {
		return failed
	}
	s := &copyStatus{Host: o.Host, StateDir: dir, Master: a.masterCopy(ctx)}
	if failed != nil && s.Master == nil {
		return failed
	}
	l, err := readLedger(ctx, dir)
	if err != nil {
		return err
	}
	s.JournalSeq = l.Seq()
	switch {
	case failed == nil:
		failed = s.look(ctx, o, l)
	case errors.Is(failed, errNoCopy):
		a.hint("stint: the database is configured for the master alone; this is what it knows\n")
		failed = masterFailure(s.Master)
	}
	if failed != nil {
		s.Error, _ = explain(failed)
	}
	if m := s.Master; m != nil && s.Target == "" && m.Seq > 0 {
		s.Target = m.Target
		s.setLag(ctx, l, m.Seq)
	}
	a.warn(s.Warning)
	return errors.Join(a.printEither(asJSON, s, s.String()), failed)
}

// masterFailure returns why a master cannot use its database, nil if it can.
func masterFailure(m *task.MirrorStatus) error {
	if m.State != task.MirrorFailing {
		return nil
	}
	return &cliError{code: exitFailure, message: m.LastError, try: "stint doctor"}
}

// masterCopy returns what a running master says of the copy; nil if there is none.
func (a *app) masterCopy(ctx context.Context) *task.MirrorStatus {
	var h task.Health
	err := a.callRunning(func(cl *client.Client) (err error) { h, err = cl.Health(ctx); return err })
	if err != nil {
		return nil
	}
	return h.Postgres
}

// look fills in what the database says; its error is why it does not.
func (s *copyStatus) look(ctx context.Context, o postgres.Options, l *statedir.Copy) error {
	p, err := postgres.Look(ctx, o)
	if err := syncError(ctx, err); err != nil {
		return err
	}
	s.Target, s.Schema, s.UpdatedAt, s.RebuiltAt, s.Version = p.Target, p.Schema, p.UpdatedAt, p.RebuiltAt, p.Version
	s.SkewSeconds, s.Warning = p.Skew.Seconds(), p.Warning
	s.setLag(ctx, l, p.Seq)
	return nil
}

// setLag tells how far a copy up to seq is behind the ledger. Where it seems to be ahead,
// the ledger was put back to what it had been, and the copy will be written anew.
func (s *copyStatus) setLag(ctx context.Context, l *statedir.Copy, seq uint64) {
	var lag uint64
	var waited float64
	if seq < l.Seq() {
		lag = l.Seq() - seq
		waited = max(0, time.Since(oldest(ctx, l.Follow(seq))).Seconds())
	}
	s.Seq, s.LagRecords, s.LagSeconds = &seq, &lag, &waited
}

// oldest returns the time of the first record of a follower that has one; now, if none
// has.
func oldest(ctx context.Context, f *ledger.Follower) time.Time {
	defer func() { _ = f.Close() }() // it was only read
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		s, err := f.Next(ctx)
		if err != nil {
			return time.Now()
		}
		if t, err := state.ParseTime(s.Value(state.KeyUpdatedAt)); err == nil && !t.IsZero() {
			return t
		}
	}
}

// String returns the status for people.
func (s *copyStatus) String() string {
	d := &description{}
	d.line("database", s.Target)
	if s.Schema > 0 {
		d.line("schema", fmt.Sprint(s.Schema))
	}
	d.line("host", s.Host)
	d.line("state", s.StateDir)
	if s.Seq != nil {
		d.line("copy", s.reach())
	}
	d.line("journal", fmt.Sprintf("up to record %d", s.JournalSeq))
	if s.LagRecords != nil {
		d.line("behind", behind(*s.LagRecords, *s.LagSeconds))
	}
	d.line("master", s.master())
	if m := s.Master; m != nil {
		if m.LastError != "" {
			d.line("last error", fmt.Sprintf("%s (%s)", m.LastError, localTime(m.ErrorAt)))
		}
		for _, skipped := range m.Skipped {
			d.line("skipped", skipped)
		}
	}
	return d.String()
}

// reach says how far the copy goes.
func (s *copyStatus) reach() string {
	switch {
	case *s.Seq == 0:
		return "none yet"
	case s.UpdatedAt.IsZero():
		return fmt.Sprintf("up to record %d", *s.Seq)
	}
	return fmt.Sprintf("up to record %d, written %s by stint %s", *s.Seq, localTime(s.UpdatedAt), s.Version)
}

// behind says by how much.
func behind(records uint64, seconds float64) string {
	if records == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s, %s", count(int(records), "record"), ago(time.Duration(seconds*float64(time.Second))))
}

// master returns what a running master does about the copy.
func (s *copyStatus) master() string {
	if s.Master == nil {
		return "none that keeps this copy is running"
	}
	return string(s.Master.State)
}
