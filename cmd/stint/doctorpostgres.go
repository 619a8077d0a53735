package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
)

// lookTime bounds how long doctor waits for the database of the copy.
const lookTime = 5 * time.Second

// examinePostgres looks at the copy in PostgreSQL, if one is configured. seq is the newest
// record of the journal. Nothing that is wrong with the copy is a problem: local work
// goes on.
func (a *app) examinePostgres(ctx context.Context, cfg *Config, dir string, seq uint64) []finding {
	o, on := postgresOptions(cfg, dir, nil)
	if !on {
		return nil
	}
	found, failure := lookAtCopy(ctx, o, seq)
	list := append(examineURL(cfg), found...)
	var h task.Health
	if a.callRunning(func(c *client.Client) (err error) { h, err = c.Health(ctx); return err }) != nil {
		return list // the finding about the master says why
	}
	return append(list, examineMirror(&h, failure)...)
}

// lookAtCopy looks into the database. failure says why it could not, "" if it could.
func lookAtCopy(ctx context.Context, o postgres.Options, seq uint64) (list []finding, failure string) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	p, err := postgres.Look(ctx, o)
	if err != nil {
		message, try := explain(err)
		return []finding{{"postgres", healthWarn, message, try}}, err.Error()
	}
	list = append(list, finding{"postgres", healthOK, describeCopy(&p, seq), ""})
	if p.Warning != "" {
		list = append(list, finding{"postgres", healthWarn, p.Warning, ""})
	}
	return list, ""
}

// examineURL looks whether others can read a password in the configuration.
func examineURL(cfg *Config) []finding {
	fi, err := os.Stat(cfg.file)
	if cfg.origins["postgres_url"].layer != layerFile || !dsn.HasPassword(cfg.PostgresURL) || err != nil || fi.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return []finding{{
		"postgres", healthWarn, fmt.Sprintf("%s has the password of the database, and can be read by others (mode %04o)", cfg.file, fi.Mode().Perm()),
		"chmod 600 " + cfg.file,
	}}
}

// describeCopy says where the copy is and how far.
func describeCopy(p *postgres.Position, seq uint64) string {
	if p.Schema == 0 {
		return p.Target + ", without tables yet; a master makes them"
	}
	text := fmt.Sprintf("%s, schema %d", p.Target, p.Schema)
	switch {
	case p.StateDir == "":
		return text + ", nothing of this ledger is copied yet; a master does that"
	case p.Seq > seq:
		return text + fmt.Sprintf(", it has record %d, and the journal ends with %d; the next master writes the copy anew", p.Seq, seq)
	case p.Seq < seq:
		return text + fmt.Sprintf(", %d records behind; a master copies them, or: stint sync once", seq-p.Seq)
	}
	return text + ", complete"
}

// examineMirror looks at what a running master says of the copy. What we have met ourselves
// is not told again.
func examineMirror(h *task.Health, ours string) (list []finding) {
	restart := fmt.Sprintf("kill %d, once its tasks have ended; the next command starts another one", h.PID)
	m := h.Postgres
	switch {
	case m == nil:
		return []finding{{"postgres", healthWarn, fmt.Sprintf("the master (pid %d) makes no copy: it was started with another configuration", h.PID), restart}}
	case m.State == task.MirrorFailing && m.LastError != ours:
		list = append(list, finding{"postgres", healthWarn, fmt.Sprintf("the master (pid %d) cannot use the database: %s", h.PID, oneLine(m.LastError)), restart})
	case m.State != task.MirrorFailing && m.LastError != "":
		list = append(list, finding{"postgres", healthOK, "the master's last failure, " + ago(time.Since(m.ErrorAt)) + " ago: " + oneLine(m.LastError), ""})
	}
	if len(m.Skipped) > 0 {
		list = append(list, finding{"postgres", healthWarn, "the database did not take " + oneLine(strings.Join(m.Skipped, "; ")), ""})
	}
	return list
}
