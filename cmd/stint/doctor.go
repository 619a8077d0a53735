package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"stint/coordinator/agent"
	"stint/coordinator/api/wire"
	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/memory"
	"stint/memory/care"
	"stint/state"
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
func failed(check, status string, err error) finding {
	message, try := explain(err)
	return finding{check, status, message, try}
}

// warnIf returns a warning where there is something to warn of.
func warnIf(is bool, check, text, try string) []finding {
	if !is {
		return nil
	}
	return []finding{{check, healthWarn, text, try}}
}

// Bounds of what doctor takes for enough.
const (
	diskLow   = 1 << 30 // bytes
	diskEmpty = 64 << 20
)

func (a *app) doctorCommand() *cobra.Command {
	return a.withJSON(command("doctor", "check everything that stint needs, and print how to fix it", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
		defer cancel()
		return a.printFindings(a.examine(ctx))
	}))
}

func (a *app) examine(ctx context.Context) []finding {
	list := []finding{{"stint", healthOK, versionName(), ""}}
	cfg, err := a.base()
	if err != nil {
		return append(list, failed("configuration", healthFail, err))
	}
	list = append(list, finding{"configuration", healthOK, cfg.file, ""})
	dir, err := a.state()
	if err != nil {
		return append(list, failed("state directory", healthFail, err))
	}
	list = slices.Concat(list, examineState(dir), a.examineMaster(ctx, cfg, dir))
	list = slices.Concat(list, a.examineLedger(ctx, cfg, dir), a.examinePostgres(ctx, cfg, dir))
	looks := lookAtCLIs(ctx, cfg)
	body, _ := a.askAgents(ctx, ownRun() == "") // none: the finding about the master says why
	names := []string{}                         // of those that are logged in neither here nor for the master: for lastLook
	for _, l := range looks {
		isIn := func(v wire.AgentView) bool { return v.Name == l.name && v.LoggedIn }
		if l.probe.Path != "" && !l.probe.LoggedIn && !slices.ContainsFunc(body.Agents, isIn) {
			names = append(names, l.name)
		}
	}
	if _, err := os.Stat(dir); err == nil && ownRun() == "" {
		data, _ := json.Marshal(map[string][]string{"notLoggedIn": names})      // strings alone
		_ = durable.WriteFile(durable.OS, filepath.Join(dir, loginsName), data) // else the task's run says it
	}
	list = slices.Concat(list, examineAgents(cfg, looks), compareAgents(cfg, looks, &body))
	if s, err := serviceOf(serviceFormat); err == nil {
		list = append(list, s.examine(ctx)...)
	}
	list = append(list, a.examineSchedules(ctx, dir, cfg)...)
	list = append(list, a.examineTrees(ctx)...)
	for _, g := range cfg.Governed {
		list = append(list, examineGoverned(g)...)
	}
	if cfg.KeepAwake {
		list = append(list, examineTool(strings.Fields(awakeCommand)[0], "keep_awake has no effect", "install systemd, or stint config set keep_awake false"))
	}
	return append(list, examineTool("rg", "memory search falls back to a slower way", "apt install ripgrep, or brew install ripgrep"),
		examineTool("git", "agents often need it", "apt install git, or brew install git"))
}

// examineSchedules looks whether the schedules can be read, and whether anything fires them.
func (a *app) examineSchedules(ctx context.Context, dir string, cfg *Config) []finding {
	list, err := newSchedulesFile(dir, cfg).read()
	if err == nil && len(list) == 0 {
		return nil
	}
	f := finding{"schedules", healthOK, count(len(list), "schedule"), ""}
	if _, down := a.health(ctx); err == nil && down != nil {
		f.Status, f.Text, f.Try = healthWarn, f.Text+", and nothing fires: no master is running", "stint serve"
	} else if err == nil {
		_, err = fetch[wire.SchedulesBody](ctx, a.callRunning, http.MethodGet, schedulesPath, nil)
	}
	if err != nil {
		f = failed("schedules", healthFail, err)
	}
	return []finding{f}
}

// examineGoverned looks whether jobs can take care of a file of notes and of each entry in it.
func examineGoverned(g memory.Governed) []finding {
	const check, try = "governed notes", "stint help memory"
	path := filepath.Join(g.Workspace, g.Path)
	f, err := g.Read()
	if err != nil {
		return []finding{{check, healthFail, fmt.Sprintf("%s cannot be used: %v", path, err), try}}
	}
	ids := 0
	entries := f.Adopt(func() string { ids++; return "new" + strconv.Itoa(ids) }, time.Now()).Entries() // as a worker has them
	list := []finding{{check, healthOK, path + ": " + ledger.Plural(len(entries), "entry", "entries"), ""}}
	if len(f[0]) == 0 { // a wrong name looks like this
		list = []finding{{check, healthWarn, path + " does not exist or is empty: it has no entries to look after", "stint config edit"}}
	}
	for _, e := range entries {
		list = append(list, warnIf(e.Wrong != "", check, fmt.Sprintf("%s:%d: the entry is left alone: %s", path, e.Line, e.Wrong), try)...)
	}
	if i := slices.IndexFunc(entries, func(e care.Entry) bool { return e.ID+e.Wrong == "" }); i >= 0 {
		list = append(list, finding{check, healthWarn, fmt.Sprintf("%s:%d: this entry and those below it that have no id are left alone: the file is full", path, entries[i].Line), "take out what is of no use any more"})
	}
	if closed := g.Open(); closed != nil && slices.ContainsFunc(entries, func(e care.Entry) bool { return e.Risk == care.High }) {
		list = append(list, finding{check, healthWarn, path + ": jobs wait: " + closed.Error(), try})
	}
	return list
}

// afterReboot says that nothing starts a master after a reboot; "" if the service does.
func afterReboot() string {
	if s, err := serviceOf(serviceFormat); err == nil {
		if isThere, err := s.installed(); isThere && err == nil {
			return ""
		}
	}
	return "after a reboot nothing fires until a command starts a master"
}

// examineState looks at the state directory, its place and its disk.
func examineState(dir string) []finding {
	var notes strings.Builder
	if err := checkStateDir(dir, &notes); err != nil {
		return []finding{failed("state directory", healthFail, err)}
	}
	warnPlace(dir, &notes)
	f := finding{"state directory", healthOK, dir, ""}
	if text := strings.TrimSpace(notes.String()); text != "" {
		f.Status, f.Text = healthWarn, oneLine(strings.NewReplacer("stint: ", "", "warning: ", "").Replace(text))
		f.Try = "export STINT_STATE_DIR=~/.local/state/stint"
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return []finding{f, {"disk", healthWarn, fmt.Sprintf("the space in %s is unknown: %v", dir, err), ""}}
	}
	free := fs.Bavail * uint64(fs.Bsize) // the types differ between systems
	disk := finding{"disk", healthOK, fmt.Sprintf("%d MiB free", free>>20), ""}
	switch {
	case free < diskEmpty:
		disk.Status, disk.Try = healthFail, "make room in "+dir
	case free < diskLow:
		disk.Status, disk.Try = healthWarn, "make room in "+dir
	}
	return []finding{f, disk}
}

// examineMaster asks a running master about itself. None is no problem: it is started when it is needed.
func (a *app) examineMaster(ctx context.Context, cfg *Config, dir string) []finding {
	h, err := a.health(ctx)
	switch {
	case err == nil:
	case isGone(err): // or so it seems
		beat, err := readBeat(dir, cfg.HeartbeatPath)
		if err == nil && time.Since(beat.Time) <= 3*cfg.HeartbeatInterval && syscall.Kill(beat.PID, 0) == nil {
			text := fmt.Sprintf("the master (pid %d) cannot be reached: another hand has removed or replaced its socket %s, or it hangs", beat.PID, beat.Socket)
			return []finding{{"master", healthFail, text, fmt.Sprintf("wait a moment: it makes the socket anew; else kill %d, and the next command starts another one", beat.PID)}}
		}
		if !cfg.AutoStart {
			return []finding{{"master", healthWarn, "none is running, and auto_start is off: tasks wait", "stint serve"}}
		}
		return []finding{{"master", healthOK, "none is running; commands that need one start it", ""}}
	default:
		return []finding{failed("master", healthFail, err)}
	}
	kind := map[bool]string{true: "in the background", false: "in the foreground"}[h.Background]
	n, lacks := a.notice(), cmp.Or(h.Shortage, &task.Shortage{})
	return slices.Concat(
		[]finding{{"master", healthOK, fmt.Sprintf("pid %d, %s, up %s", h.PID, kind, ago(time.Since(h.Start))), ""}},
		warnIf(h.Version != versionName(), "master", "it has version "+h.Version, restart(h.Background)),
		warnIf(n != nil && a.isStale(n), "master", "it "+a.staleText(&h), restart(h.Background)),
		warnIf(h.Shortage != nil, "dispatch", fmt.Sprintf("since %s: %s; until that is over, one task at a time is tried", localTime(lacks.Since), oneLine(lacks.What)),
			"free what is lacking, and tasks continue by themselves; or, if it is a ulimit, raise that here and "+restart(h.Background)),
		warnIf(h.LastError != "", "master", h.LastError, "see "+filepath.Join(h.StateDir, "master.log")),
	)
}

// examineLedger looks at the ledger as fsck does, and at what stops tasks in it.
func (a *app) examineLedger(ctx context.Context, cfg *Config, dir string) (list []finding) {
	r, err := statedir.Fsck(ctx, dir, a.workspaceRoot(), a.isLive(ctx))
	if err != nil {
		return []finding{failed("ledger", healthFail, err)}
	}
	for _, f := range r.Faults {
		list = append(list, finding{"ledger", healthWarn, oneLine(f.String()), "stint fsck"})
	}
	if len(list) == 0 {
		list = []finding{{"ledger", healthOK, count(r.Records, "record") + ", no findings", ""}}
	}
	list = append(list, warnIf(r.Paused, "dispatch", state.Because("it is paused, no task is started", r.PauseWhy), "stint resume")...)
	file := newAccountsFile(dir)
	if _, err := file.read(); err != nil {
		list = append(list, failed("account", healthFail, err))
	}
	for _, acc := range file.configs() {
		if _, err := file.danger(cfg, inContainer)(acc.ID); err != nil {
			list = append(list, finding{"account", healthWarn, err.Error(), "stint help security"})
		}
	}
	for _, acc := range r.Accounts {
		try := "fix it, then: stint account enable " + acc.Name
		if acc.IsMissing() {
			try = "install it again; its tasks then start by themselves"
		}
		list = append(list, warnIf(acc.Hold, "account", state.Because(acc.Name+" is on hold", acc.Reason), try)...)
	}
	return list
}

func examineTool(name, without, install string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{name, healthWarn, "not found; " + without, install}
	}
	return finding{name, healthOK, path, ""}
}

// printFindings prints the list; a problem makes the exit code 1.
func (a *app) printFindings(list []finding) error {
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
	if a.json {
		return errors.Join(printEach(a.stdout, list), err)
	}
	return errors.Join(writeTable(a.stdout, escapeRows(rows), nil), err)
}

type look struct {
	name     string
	probe    agent.Probe
	problems []agent.Problem
}

// lookAtCLIs asks the CLIs about themselves, as this shell has them.
func lookAtCLIs(ctx context.Context, cfg *Config) []look {
	looks := make([]look, len(cliNames))
	var wg sync.WaitGroup
	for i, name := range cliNames { // at once: each is started several times
		wg.Go(func() {
			c := adapterOf(cfg, name, "")
			looks[i] = look{name: name, probe: c.CLI().Probe(ctx)}
			looks[i].problems = c.CLI().Examine(ctx, looks[i].probe)
		})
	}
	wg.Wait()
	return looks
}

// loginsName is the file of the state directory with the agents that doctor found not logged in.
const loginsName = "doctor.json"

// examineAgents says what the look at the CLIs has shown. Only those that the user has chosen
// must be there: one is enough, and without any the demo agent answers.
func examineAgents(cfg *Config, looks []look) (list []finding) {
	chosen := append([]string{cfg.Agent}, cfg.Fallback...)
	for _, s := range cfg.sections {
		chosen = append(chosen, s.config.Agent)
	}
	found := slices.ContainsFunc(looks, func(l look) bool { return l.probe.Found })
	first := slices.IndexFunc(looks, func(l look) bool { return l.probe.Found && l.probe.LoggedIn })
	demo := !found
	for i, l := range looks {
		needed := slices.Contains(chosen, l.name) || cfg.Agent == "" && i == first // tasks that name no agent get the first
		demo = demo && !needed
		if bin := l.name + "_bin"; l.probe.Path == "" && !cfg.isDefault(bin) {
			l.probe.Fix = "correct " + bin + " in the configuration, or leave it out"
		} else if !l.probe.Found && !needed {
			if found {
				list = append(list, finding{l.name, healthOK, "not installed, and not needed; to get it: " + l.probe.Fix, ""})
			}
			continue
		}
		list = append(list, l.findings(needed)...)
	}
	if demo {
		first, none := agentKinds[0], "neither "+strings.Join(cliNames, " nor ")+" is installed"
		list = append(list, finding{"agents", healthWarn, none + ": only the built-in demo agent can work", first.Tested.Install + " && " + loginCommand(first.Name)})
	}
	return list
}

// findings returns what is to be said about one CLI. What stops it is a problem only if it is needed.
func (l *look) findings(needed bool) []finding {
	p, bad := l.probe, map[bool]string{true: healthFail, false: healthWarn}[needed]
	f := finding{l.name, healthOK, oneLine(p.Detail), p.Fix}
	if p.Found {
		parts := slices.DeleteFunc([]string{p.Version, oneLine(p.Detail), p.Path}, func(s string) bool { return s == "" })
		f.Text = strings.Join(parts, ", ")
	}
	if !p.Found || !p.LoggedIn {
		f.Status = bad
	}
	list := []finding{f}
	for _, problem := range l.problems {
		f := finding{l.name, healthWarn, oneLine(problem.Text), problem.Fix}
		if problem.Fatal {
			f.Status = bad
		}
		list = append(list, f)
	}
	return list
}

// examinePostgres looks at the Postgres mirror, if one is configured. Nothing that is wrong with the mirror is a
// problem: local work goes on.
func (a *app) examinePostgres(ctx context.Context, cfg *Config, dir string) (list []finding) {
	o, on := postgresOptions(cfg, dir, nil)
	if !on {
		return nil
	}
	fi, err := os.Stat(cfg.file)
	if cfg.origins["postgres_url"].layer == layerFile && dsn.HasPassword(cfg.PostgresURL) && err == nil && fi.Mode().Perm()&0o077 != 0 {
		text := fmt.Sprintf("%s has the password of the database, and can be read by others (mode %04o)", cfg.file, fi.Mode().Perm())
		list = append(list, finding{"postgres", healthWarn, text, "chmod 600 " + cfg.file})
	}
	look, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, failure := postgres.Look(look, o)
	ours := ""
	if failure != nil {
		list, ours = append(list, failed("postgres", healthWarn, failure)), failure.Error()
	} else {
		list = append(list, finding{"postgres", healthOK, p.Target + " answers; how far the mirror is behind: stint sync status", ""})
	}
	list = append(list, warnIf(p.Warning != "", "postgres", p.Warning, "")...)
	if h, err := a.health(ctx); err == nil { // else the finding about the master says why
		list = append(list, examineMirror(&h, ours, p.Warning)...)
	}
	return list
}

// examineMirror looks at what a master says of the mirror, apart from what we have met ourselves.
func examineMirror(h *task.Health, ours, warned string) []finding {
	m := h.Postgres
	if m == nil {
		return []finding{{"postgres", healthWarn, fmt.Sprintf("the master (pid %d) keeps no mirror: it was started with another configuration", h.PID), restart(h.Background)}}
	}
	return slices.Concat(
		warnIf(m.State == task.MirrorFailing && m.LastError != ours, "postgres", fmt.Sprintf("the master (pid %d) cannot use the database: %s", h.PID, oneLine(m.LastError)), restart(h.Background)),
		warnIf(m.Warning != "" && m.Warning != warned, "postgres", m.Warning, ""),
		warnIf(len(m.Skipped) > 0, "postgres", "the database did not take "+oneLine(strings.Join(m.Skipped, "; ")), ""),
	)
}
