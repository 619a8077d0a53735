package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"stint/coordinator/api/client"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
)

// How a finding of doctor stands.
const (
	healthOK   = "ok"
	healthWarn = "warning"
	healthFail = "problem" // something cannot work
)

// A finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Text   string `json:"text"`
	Try    string `json:"try,omitempty"`
}

// failed returns the finding about a check that could not be made.
func failed(check string, err error) finding {
	message, try := explain(err)
	return finding{check, healthFail, message, try}
}

// Bounds of what doctor takes for enough.
const (
	diskLow   = 1 << 30 // bytes
	diskEmpty = 64 << 20

	inodesLow   = 10_000 // a run takes about ten
	inodesEmpty = 100
	filesLow    = 1024
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "doctor",
		Short:   "check everything that stint needs, and say what mends it",
		Example: "  stint doctor\n  stint doctor --json | jq 'select(.status!=\"ok\")'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
			defer cancel()
			return a.printFindings(a.examine(ctx), asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// examine makes all checks that are possible.
func (a *app) examine(ctx context.Context) []finding {
	list := []finding{{"stint", healthOK, versionName(), ""}}
	cfg, err := a.base()
	if err != nil {
		return append(list, failed("configuration", err))
	}
	list = append(list, finding{"configuration", healthOK, cfg.file, ""})
	dir, err := a.state()
	if err != nil {
		return append(list, failed("state directory", err))
	}
	list = append(list, examineState(dir)...)
	list = append(list, a.examineMaster(ctx)...)
	found, seq := a.examineLedger(ctx, dir)
	list = append(list, found...)
	list = append(list, a.examinePostgres(ctx, cfg, dir, seq)...)
	list = append(list, examineAgents(ctx, cfg)...)
	return append(list, examineTool("rg", "memory search falls back to a slower way", "apt install ripgrep, or brew install ripgrep"),
		examineTool("git", "agents often need it", "apt install git, or brew install git"), examineFiles(), examineLimits(cfg))
}

// examineState looks at the state directory, its place and its disk.
func examineState(dir string) []finding {
	var notes strings.Builder
	if err := checkStateDir(dir, &notes); err != nil {
		return []finding{failed("state directory", err)}
	}
	warnPlace(dir, &notes)
	f := finding{"state directory", healthOK, dir, ""}
	if text := strings.TrimSpace(notes.String()); text != "" {
		f.Status, f.Text = healthWarn, oneLine(strings.NewReplacer("stint: ", "", "warning: ", "").Replace(text))
		f.Try = "export STINT_STATE_DIR=~/.local/state/stint"
	}
	return []finding{f, examineDisk(dir)}
}

func examineDisk(dir string) finding {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return finding{"disk", healthWarn, fmt.Sprintf("the space in %s is unknown: %v", dir, err), ""}
	}
	free := fs.Bavail * uint64(fs.Bsize) // the types differ between systems
	f := finding{"disk", healthOK, fmt.Sprintf("%d MiB free", free>>20), ""}
	counted, inodes := fs.Files > 0, uint64(fs.Ffree) // some file systems have as many as there is room for
	if counted {
		f.Text += fmt.Sprintf(", %d of %d inodes", inodes, fs.Files)
	}
	switch {
	case free < diskEmpty || counted && inodes < inodesEmpty:
		f.Status, f.Try = healthFail, "make room in "+dir
	case free < diskLow || counted && inodes < inodesLow:
		f.Status, f.Try = healthWarn, "make room in "+dir
	}
	if counted && inodes < inodesLow {
		f.Try = "remove files on the disk of " + dir + ", each of which takes an inode"
	}
	return f
}

// examineMaster asks a running master about itself. None is no problem: it is
// started when it is needed.
func (a *app) examineMaster(ctx context.Context) []finding {
	var h task.Health
	err := a.callRunning(func(c *client.Client) (err error) { h, err = c.Health(ctx); return err })
	switch {
	case err == nil:
	case isGone(err):
		return []finding{a.examineSocket()}
	default:
		return []finding{failed("master", err)}
	}
	kind := "in the foreground"
	if h.Background {
		kind = "in the background"
	}
	list := []finding{{"master", healthOK, fmt.Sprintf("pid %d, %s, up %s", h.PID, kind, ago(time.Since(h.Start))), ""}}
	if h.Version != versionName() {
		list = append(list, finding{"master", healthWarn, "it has version " + h.Version, fmt.Sprintf("kill %d", h.PID)})
	}
	if n := a.notice(); n != nil && a.isStale(n) {
		list = append(list, finding{"master", healthWarn, "it " + a.staleText(&h), restart(&h)})
	}
	if s := h.Shortage; s != nil {
		text := fmt.Sprintf("since %s: %s; until that is over, one task at a time is tried", localTime(s.Since), oneLine(s.What))
		list = append(list, finding{"dispatch", healthWarn, text, "free what is lacking, and tasks go on by themselves; or, if it is a ulimit, raise that here and " + restart(&h)})
	}
	if h.LastError != "" {
		list = append(list, finding{"master", healthWarn, h.LastError, "see " + filepath.Join(h.StateDir, "master.log")})
	}
	return list
}

// examineSocket looks whether no master runs, as it seems, or one that cannot be reached.
func (a *app) examineSocket() finding {
	none := finding{"master", healthOK, "none is running; commands that need one start it", ""}
	cfg, err := a.base()
	if err != nil {
		return none
	}
	if !cfg.AutoStart {
		none = finding{"master", healthWarn, "none is running, and auto_start is off: tasks wait", "stint serve"}
	}
	dir, err := a.state()
	if err != nil {
		return none
	}
	data, err := durable.ReadFile(durable.OS, cmp.Or(cfg.HeartbeatPath, filepath.Join(dir, "heartbeat.json")))
	var beat struct {
		PID    int       `json:"pid"`
		Socket string    `json:"socket"`
		Time   time.Time `json:"time"`
	}
	if err != nil || json.Unmarshal(data, &beat) != nil || time.Since(beat.Time) > 3*cfg.HeartbeatInterval || syscall.Kill(beat.PID, 0) != nil {
		return none
	}
	return finding{
		"master", healthFail, fmt.Sprintf("the master (pid %d) cannot be reached: another hand has removed or replaced its socket %s, or it hangs", beat.PID, beat.Socket),
		fmt.Sprintf("wait a moment: it makes the socket anew; else kill %d, and the next command starts another one", beat.PID),
	}
}

// examineLedger looks at the ledger as fsck does, and at what stops tasks in it. seq is
// the newest record.
func (a *app) examineLedger(ctx context.Context, dir string) (list []finding, seq uint64) {
	if _, err := os.Stat(dir); err != nil {
		return nil, 0 // there is none yet
	}
	r, err := statedir.Fsck(ctx, dir, a.workspaceRoot(), a.isLive(ctx))
	if err != nil {
		return []finding{failed("ledger", err)}, 0
	}
	for _, f := range r.Faults {
		list = append(list, finding{"ledger", healthWarn, oneLine(f.String()), "stint fsck"})
	}
	if len(list) == 0 {
		list = []finding{{"ledger", healthOK, fmt.Sprintf("%d records, no findings", r.Records), ""}}
	}
	for _, name := range ledger.ConflictCopies(dir) {
		list = append(list, finding{
			"ledger", healthWarn, name + " is a copy that a sync program made of a conflict; what it has is not read",
			"compare it with tasks.md, take over what is missing, and remove it; keep the state directory out of sync folders",
		})
	}
	if r.Paused {
		list = append(list, finding{"dispatch", healthWarn, because("it is paused, no task is started", oneLine(r.PauseWhy)), "stint resume"})
	}
	for _, acc := range r.Accounts {
		f := finding{"account", healthWarn, because(acc.Name+" is on hold", oneLine(acc.Reason)), "mend it, then: stint retry ID of a task that it stopped"}
		switch {
		case acc.IsMissing():
			f.Try = "install it again; its tasks go on by themselves then"
		case !acc.Hold && !acc.CoolUntil.After(time.Now()):
			continue
		case !acc.Hold:
			f.Text = because(fmt.Sprintf("%s cools down until %s", acc.Name, localTime(acc.CoolUntil)), oneLine(acc.Reason))
			f.Try = "wait; if the limit is lifted before, append to tasks.md the lines: ## Control account:" + acc.Name + " and - coolUntil:"
		}
		list = append(list, f)
	}
	return list, r.Seq
}

func examineTool(name, without, install string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{name, healthWarn, "not found; " + without, install}
	}
	return finding{name, healthOK, path, ""}
}

// examineFiles looks at the limit of open files: every run needs some.
func examineFiles() finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return finding{"open files", healthWarn, err.Error(), ""}
	}
	f := finding{"open files", healthOK, fmt.Sprintf("limit %d", limit.Cur), ""}
	if limit.Cur < filesLow {
		f.Status, f.Try = healthWarn, "ulimit -n 4096"
	}
	return f
}

// printFindings prints the list; a problem makes the exit code 1.
func (a *app) printFindings(list []finding, asJSON bool) error {
	var err error
	var rows [][]string
	for _, f := range list {
		if f.Status == healthFail {
			err = &cliError{code: exitFailure} // the list says it
		}
		rows = append(rows, []string{f.Status, f.Check, f.Text})
		if f.Try != "" && f.Status != healthOK {
			rows = append(rows, []string{"", "", "  try: " + f.Try})
		}
	}
	if asJSON {
		return errors.Join(printEach(a.stdout, list), err)
	}
	return errors.Join(writeTable(a.stdout, escapeRows(rows), nil), err)
}
