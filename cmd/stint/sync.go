package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

func (a *app) syncCommand() *cobra.Command {
	rebuild := func(ctx context.Context, dir string, o postgres.Options) error {
		o.Anew = true
		return a.writeMirror(ctx, dir, o)
	}
	verify := a.onMirror("verify", "compare the mirror with the ledger", func(ctx context.Context, dir string, o postgres.Options) error {
		r, err := postgres.Verify(ctx, o, func(upTo uint64) (postgres.VerifySource, error) { return readMirrored(ctx, dir, upTo) })
		if err != nil {
			return err
		}
		if len(r.Differences) > 0 {
			err = &cliError{code: exitFailure} // the list says it
		}
		return cmp.Or(a.printDifferences(&r), err)
	})
	return group(command("sync", "compare or update the mirror of the ledger in PostgreSQL", nil, nil),
		a.noRun(a.onMirror("once", "bring the mirror up to date, and exit", a.writeMirror)),
		a.onMirror("status", "show how far the mirror is behind", a.mirrorStatus), verify,
		a.noRun(a.onMirror("rebuild", "write the whole mirror again", rebuild)),
		a.noRun(a.onMirror("migrate", "upgrade the database's tables to the schema of this stint", a.migrateMirror)))
}

// onMirror returns one of these commands: it has the options of serve that say where the mirror is and
// what it holds, and does run, whose exit code is the same for all.
func (a *app) onMirror(use, short string, run func(ctx context.Context, dir string, o postgres.Options) error) *cobra.Command {
	c := a.withJSON(command(use+" [OPTIONS]", short, cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		cfg, err := a.config(c.Flags())
		dir, wrong := a.state()
		if err = cmp.Or(err, wrong); err != nil {
			return err
		}
		o, on := postgresOptions(cfg, dir, slog.New(slog.DiscardHandler)) // what is to be said, these commands say
		if !on {
			return usage("createdb cli_worker, then --postgres postgres:///cli_worker, or url in the [postgres] section of config.toml", "no database is configured for a mirror of the ledger")
		}
		url, err := o.URL()
		if err == nil {
			_, err = dsn.Parse(url)
		}
		if err != nil {
			return err
		}
		return syncError(c.Context(), run(c.Context(), dir, o))
	}))
	for i := range keys {
		if keys[i].section == "postgres" {
			addKeyFlag(c.Flags(), &keys[i])
		}
	}
	return c
}

// syncError sets the exit code of what ended one of these commands: whatever a database or a
// ledger has to say is no mistake of the command line.
func syncError(ctx context.Context, err error) error {
	var e *task.Error
	switch {
	case err == nil:
		return nil
	case isDetached(ctx):
		return errDetached
	case errors.As(err, &e):
		return &cliError{code: exitFailure, message: e.Message, try: e.Hint}
	}
	return err
}

// A mirrored is what the mirror of a state directory is made of.
type mirrored struct {
	*statedir.Snapshot
	accounts *accountsFile
}

// Accounts implements postgres.Source.
func (m mirrored) Accounts() []state.AccountUse {
	return state.WithConfigured(m.Snapshot.Accounts(), m.accounts.configs())
}

// readMirrored reads a state directory up to a record; 0: all of it.
func readMirrored(ctx context.Context, dir string, upTo uint64) (mirrored, error) {
	l, err := statedir.ReadSnapshot(ctx, dir, upTo)
	return mirrored{l, newAccountsFile(dir)}, err
}

// writeMirror brings the mirror up to date, or writes it anew, and says how much that was.
func (a *app) writeMirror(ctx context.Context, dir string, o postgres.Options) (err error) {
	begin := time.Now()
	if _, err := os.Stat(filepath.Join(dir, ledger.JournalName)); err != nil {
		if _, err := statedir.ReadSnapshot(ctx, dir, 0); err != nil {
			return err // before anything is made in the database
		}
	}
	var before postgres.Position
	if !o.Anew {
		if before, err = postgres.Look(ctx, o); err != nil {
			return err
		}
	}
	var w struct {
		postgres.Position
		Records uint64  `json:"records"` // that the mirror did not have
		Seconds float64 `json:"seconds"`
	}
	w.Position, err = postgres.Once(ctx, o, func() (postgres.Source, error) { return readMirrored(ctx, dir, 0) })
	if err != nil {
		return err
	}
	if w.Records = w.Seq; w.Generation == before.Generation { // else it was written anew
		w.Records -= before.Seq
	}
	w.Seconds = time.Since(begin).Seconds()
	a.warn(append(w.Skipped, w.Warning)...)
	return a.print(w, fmt.Sprintf("%s, %s in %.1f s; %s has all up to record %d",
		count(int(w.Records), "record"), count(int(w.Rows), "row"), w.Seconds, w.Target, w.Seq))
}

// warn prints what a person should look at though the command did its work.
func (a *app) warn(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.hint("stint: warning: %s\n", escapeText(oneLine(text)))
		}
	}
}

// migrateMirror upgrades the database's tables.
func (a *app) migrateMirror(ctx context.Context, _ string, o postgres.Options) (err error) {
	var m struct {
		From int `json:"from"` // 0: there were no tables
		To   int `json:"to"`
	}
	if m.From, m.To, err = postgres.Migrate(ctx, o); err != nil {
		return err
	}
	text := fmt.Sprintf("schema %d -> %d", m.From, m.To)
	if m.From == m.To {
		text = fmt.Sprintf("schema %d, nothing to do", m.To)
	}
	return a.print(m, text)
}

// A mirrorStatus is what sync status tells. What needs an answer of the database may be left out.
type mirrorStatus struct {
	postgres.Position
	Seq         *uint64            `json:"seq,omitempty"` // all records up to it are in the mirror
	JournalSeq  uint64             `json:"journalSeq"`
	LagRecords  *uint64            `json:"lagRecords,omitempty"`
	LagSeconds  *float64           `json:"lagSeconds,omitempty"` // age of the oldest record that the mirror lacks
	SkewSeconds float64            `json:"skewSeconds,omitempty"`
	Error       string             `json:"error,omitempty"` // why the database cannot be used
	Master      *task.MirrorStatus `json:"master,omitempty"`
}

func (a *app) mirrorStatus(ctx context.Context, dir string, o postgres.Options) error {
	l, err := statedir.ReadSnapshot(ctx, dir, 0)
	if err != nil {
		return err
	}
	h, _ := a.health(ctx) // without a master there is no word of it
	s := &mirrorStatus{Position: postgres.Position{Host: o.Host}, JournalSeq: l.Seq(), Master: h.Postgres}
	p, err := postgres.Look(ctx, o)
	if err = syncError(ctx, err); err == nil {
		s.Position, s.SkewSeconds = p, p.Skew.Seconds()
		s.setLag(ctx, l, p.Seq)
	} else {
		s.Error, _ = explain(err)
		if m := s.Master; m != nil && m.Seq > 0 { // what it knows
			s.Target = m.Target
			s.setLag(ctx, l, m.Seq)
		}
	}
	s.StateDir = dir
	a.warn(s.Warning)
	return errors.Join(a.print(s, s.String()), err)
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
	d.line("schema", state.OrNone(s.Schema))
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
	d.line("warning", m.Warning)
	for _, skipped := range m.Skipped {
		d.line("skipped", skipped)
	}
	return d.String()
}

// printDifferences prints the differences that were kept, and the summary.
func (a *app) printDifferences(r *postgres.Report) error {
	sum := struct {
		*postgres.Report
		Differences int `json:"differences"`
		InFlight    int `json:"inFlight"`
	}{r, len(r.Differences) + r.More, r.InFlight}
	for _, d := range r.Differences {
		if err := a.print(d, oneLine(d.Text)); err != nil {
			return err
		}
	}
	if r.More > 0 && !a.json {
		if err := printText(a.stdout, fmt.Sprintf("and %d more", r.More)); err != nil {
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

const (
	maxInline = 256 << 20 // bytes of a file that is copied whole
	maxHost   = 255       // bytes of a machine's name
)

// postgresURLKey is the URL of the database that has the mirror. What is wrong with it
// stops no local work, so it is an error on a command line alone.
func postgresURLKey() key {
	k := textKey("postgres_url", "", "mirror the ledger to this PostgreSQL database, such as postgres://db.example/stint; empty: no mirror", func(c *Config) *string { return &c.PostgresURL }).in("postgres")
	k.set = func(c *Config, s string) error { c.PostgresURL = strings.TrimSpace(s); return nil }
	k.option, k.word = "postgres", "URL"
	k.typed = func(text string) error { // refuses one that is broken, or has a password for everybody to read
		if text == "" {
			return nil
		}
		if dsn.HasPassword(text) {
			return usage("url_file below [postgres] in config.toml, STINT_POSTGRES_URL, or ~/.pgpass",
				"--postgres: a password on the command line can be read by everybody on this machine")
		}
		if _, err := dsn.Parse(text); err != nil {
			message, try := explain(err)
			return usage(cmp.Or(try, "stint serve --help"), "--postgres: %s", message)
		}
		return nil
	}
	k.redact = dsn.Redact
	return k
}

// checkURLFile returns the path of a file that has a URL. What is no path may be that URL, so no error shows it.
func checkURLFile(s string) (string, error) {
	if s != "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "~/") {
		return "", errors.New("it is not the absolute path of a file")
	}
	return checkPath(s)
}

// checkHost returns the name of a machine, or "".
func checkHost(s string) (string, error) {
	if len(s) > maxHost || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return "", fmt.Errorf("it is no name of a machine: at most %d bytes that can be printed", maxHost)
	}
	return s, nil
}

// readURLFile reads a file that has a URL, and nobody but its owner may read it.
func readURLFile(path string) (string, error) {
	text, err := readSecret(path)
	if text = strings.TrimSpace(text); err == nil && (text == "" || strings.ContainsAny(text, "\r\n")) {
		err = task.Invalid("write the URL of the database alone into it", "%s does not have one line with a URL", path)
	}
	if err == nil {
		return text, nil
	}
	message, hint := explain(err)
	return "", task.Invalid(cmp.Or(hint, "write the URL of the database into it, then: chmod 600 "+path), "postgres.url_file: %s", message)
}

// postgresOptions returns where the mirror of a state directory is and what it holds; on: there is to be one.
func postgresOptions(cfg *Config, state string, log *slog.Logger) (o postgres.Options, on bool) {
	if cfg.PostgresURL == "" && cfg.PostgresURLFile == "" {
		return o, false
	}
	o = cfg.Mirror
	o.URL = func() (string, error) { return cfg.PostgresURL, nil }
	if cfg.PostgresURL == "" {
		o.URL = func() (string, error) { return readURLFile(cfg.PostgresURLFile) } // each time
	}
	name, _ := os.Hostname() // a machine without a name is localhost
	o.Hostname = cmp.Or(name, "localhost")
	o.Host, o.MaxAttempts, o.Redact = cmp.Or(o.Host, o.Hostname), cfg.MaxAttempts, cfg.Redact
	o.StateDir, o.MaxConcurrency, o.Log = state, cfg.MaxWorkers, log
	o.Version, o.Worker, o.PID = versionName(), uuid.New(), os.Getpid()
	return o, true
}
