package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"stint/coordinator"
	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/api"
	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/fleet"
	"stint/coordinator/notify"
	"stint/coordinator/postgres"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/schedule"
	"stint/coordinator/schedule/due"
	"stint/coordinator/schedule/govern"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger/lock"
	"stint/memory"
	"stint/state/jobs"
)

func (a *app) serveCommand() *cobra.Command {
	var background, stop bool
	c := command("serve [OPTIONS]", "run the master in the foreground", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if stop {
			return a.stopMaster(c.Context())
		}
		m := &master{app: a, flags: c.Flags(), background: background}
		return m.serve(context.WithoutCancel(c.Context()))
	})
	c.Flags().BoolVar(&stop, "stop", false, "ask the running master to exit after its runs, and wait for that")
	c.Flags().BoolVar(&background, "background", false, "")
	_ = c.Flags().MarkHidden("background") // it exists
	for i := range keys {
		if keys[i].section == "" || keys[i].section == "postgres" {
			addKeyFlag(c.Flags(), &keys[i])
			exclusive(c, "stop", keys[i].flag())
		}
	}
	return c
}

// stopMaster asks the running master to end after its runs, as a new one would, and waits for that.
func (a *app) stopMaster(ctx context.Context) error {
	dir, none, err := a.stateMissing()
	switch {
	case err != nil:
		return err
	case none:
		a.hint("stint: no master is running in %s\n", dir)
		return nil
	}
	if err := checkStateDir(dir, a.stderr); err != nil { // another user's master is out of sight, which is not to say that there is none
		return err
	}
	for pid, deadline := 0, time.Now().Add(masterWait); ; {
		h, err := a.health(ctx)
		switch {
		case err == nil && pid == 0:
			if _, err = fetch[[]byte](ctx, a.callRunning, http.MethodPost, "/v1/handover", nil); err == nil {
				pid = h.PID
			}
			if err == nil && len(h.Running) > 0 {
				a.hint("stint: the master (pid %d) exits once its runs have ended (%d)\n", pid, len(h.Running))
			}
		case err == nil && pid != h.PID: // another one, which a command has started meanwhile
			return nil
		}
		if err == nil {
			deadline = time.Now().Add(masterWait)
		} else if !isGone(err) {
			return err
		} else if free, busy := lock.Dir(dir); busy == nil { // a master has it before it listens, and after
			if pid == 0 {
				a.hint("stint: no master is running in %s\n", dir)
			}
			return free()
		} else if !errors.Is(busy, lock.ErrLocked) || time.Now().After(deadline) {
			return busy
		}
		if err := task.Sleep(ctx, masterPoll); err != nil {
			return err
		}
	}
}

// addKeyFlag adds the option of a key.
func addKeyFlag(f *pflag.FlagSet, k *key) {
	if k.name == "workspace_root" || k.name == "auto_start" {
		return // for clients
	}
	f.Var(&keyValue{k.def, k}, k.flag(), k.help)
	if k.kind == kindBool {
		f.Lookup(k.flag()).NoOptDefVal = "true"
	}
}

// A keyValue is the text of an option. It is checked with the other layers.
type keyValue struct {
	text string
	key  *key
}

func (v *keyValue) String() string     { return v.text }
func (v *keyValue) Set(s string) error { v.text = s; return nil }

// Type returns what the help shows for the value.
func (v *keyValue) Type() string { return cmp.Or(v.key.word, kindWords[v.key.kind], "value") }

var kindWords = map[kind]string{
	kindNumber: "number", kindDuration: "duration", kindSize: "size", kindList: "list", kindBool: "bool",
}

// A master is one run of `stint serve`.
type master struct {
	app        *app
	flags      *pflag.FlagSet
	background bool

	cfg    *Config
	state  string
	socket string
	log    *slog.Logger
	mirror *postgres.Mirror // nil: no mirror is configured
	shared *shared.Opener   // of the shared queue; nil: no database is configured
	leases bool             // it runs tasks of that
	tools  []string         // of these agents; nil: of any
	only   shared.Filter    // of this tenant and queue
	worker *shared.Worker   // nil: it is none, or has not begun
	uses   *memory.Uses     // of the entries of governed notes

	operations func(table string, since time.Time) ([]any, error) // see operations; set before the mirror runs

	accounts *accountsFile
	ready    *os.File // nil in the foreground

	httpError string // why there is no HTTP interface, as it was logged; "": there is one
}

// serve runs the master until it is ended. In the background it tells the one who started it how it went.
func (m *master) serve(ctx context.Context) error {
	hold.CloseOnExec(readyFD) // the agents are not to hold anything of ours open
	var st unix.Stat_t        // any other one, under a master that somebody started by hand, is not ours to write to
	if m.background && unix.Fstat(readyFD, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		m.ready = os.NewFile(readyFD, "ready")
	}
	err := m.run(ctx)
	if err != nil {
		message, try := explain(err)
		m.report(ready{Exit: exitCode(err), Message: message, Try: try})
	}
	return err
}

// report writes to the one who started us, once. If nobody waits for it, or does not any more, so be it.
func (m *master) report(r ready) {
	_ = json.NewEncoder(m.ready).Encode(r)
	_ = m.ready.Close()
}

func (m *master) run(ctx context.Context) (err error) {
	if m.cfg, err = m.app.config(m.flags); err != nil {
		return err
	}
	if m.state, err = m.app.state(); err != nil {
		return err
	}
	if err := checkStateDir(m.state, m.app.stderr); err != nil {
		return err
	}
	_ = os.Setenv("STINT_STATE_DIR", m.state) // for commands inside of runs, however it was named here
	if !m.background {
		warnPlace(m.state, m.app.stderr)
	}
	m.socket = defaultSocket(m.state)
	m.log = m.logger()
	if err := gate.FindProgram(); err != nil {
		m.log.Warn("the gates of runs take longer to start", "error", err)
	}
	m.accounts = newAccountsFile(m.state)
	m.accounts.tell = func(err error) { m.log.Warn("a mistake in the accounts", "error", err) }
	if o, on := postgresOptions(m.cfg, m.state, m.log); on {
		o.Figures = func(table string, since time.Time) ([]any, error) { return m.operations(table, since) }
		m.mirror, m.shared = postgres.New(o), shared.NewOpener(o.URL, min(o.PoolSize, 4))
		defer m.shared.Close()
	}
	var leased *shared.Queue
	if m.leases {
		if leased, err = m.openQueue(ctx); err != nil {
			return err
		}
		m.cfg.MaxWorkers = max(m.cfg.MaxWorkers, m.cfg.WorkerConcurrency)
	}
	var opened atomic.Pointer[coordinator.Coordinator]
	ctx, stop := m.signals(ctx, &opened)
	defer stop()
	c, err := m.open(ctx)
	if err != nil {
		return err
	}
	opened.Store(c)
	return errors.Join(m.work(ctx, c, leased), c.Close())
}

// Bounds of how a master ends.
const (
	closeLimit = 10 * time.Second // for all but its runs
	hurryLimit = 3 * time.Second  // for all, after the second signal
)

// signals returns a context that the first signal ends; the second one ends the runs at once. Soon after that, or if all takes
// too long, the program ends whatever hangs; the gates then end the agents, as when it is killed. A worker
// lets its runs end for as long as they take, so it has one signal more.
func (m *master) signals(ctx context.Context, opened *atomic.Pointer[coordinator.Coordinator]) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { // ends with the program
		s := <-signals
		if m.leases && opened.Load() != nil {
			m.log.Info("draining: nothing more begins, and the worker ends after its runs; a second signal gives them a grace time", "signal", s.String())
			_ = opened.Load().Handover(ctx) // it cannot fail
			s = <-signals
		}
		m.log.Info("stopping: runs have a grace time, a second signal ends them at once", "signal", s.String())
		cancel(task.ErrShutdown)
		select {
		case s := <-signals:
			m.log.Warn("ending the runs at once", "signal", s.String())
			if c := opened.Load(); c != nil {
				c.StopNow()
			}
			time.Sleep(hurryLimit)
		case <-time.After(queue.EndLimit(m.cfg.Grace) + closeLimit):
		}
		m.log.Warn("stopped at once: the next master looks after what is left")
		os.Exit(exitInterrupted)
	}()
	return ctx, func() { cancel(nil) }
}

// logger logs to stderr, in the background to master.log. Nothing there holds a prompt, an answer or a secret.
func (m *master) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(m.cfg.LogLevel)) // the table of keys has checked it
	options := &slog.HandlerOptions{Level: level}
	out := m.cfg.Redact.Writer(m.app.stderr) // a handler writes whole lines, one after the other
	if m.cfg.LogFormat == "json" || m.background && m.cfg.isDefault("log_format") {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// open opens the coordinator. A master in the background that holds the lock makes room; another one stays.
func (m *master) open(ctx context.Context) (c *coordinator.Coordinator, err error) {
	config := m.coordinatorConfig(ctx)
	open := func() (*coordinator.Coordinator, error) { return coordinator.Open(config) }
	err = m.claim(ctx, func() (err error) { // a master that is interrupted meanwhile ends as if killed
		c, err = interruptibly(ctx, "interrupted while the ledger was read", open)
		return err
	})
	return c, err
}

// claim does what needs the lock, once that is free: a master in the background is asked to end after its runs.
func (m *master) claim(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(masterWait)
	for asked := 0; ; { // the pid of the master that was asked last: a client may start another one meanwhile
		err := do()
		if exitCode(err) != exitBusy || m.background {
			return err
		}
		holder, herr := m.app.health(ctx)
		switch {
		case herr == nil && !holder.Background:
			return &cliError{
				code: exitBusy, message: fmt.Sprintf("another master is running (pid %d)", holder.PID),
				try: "stint ls, or end that one with: stint serve --stop",
			}
		case errors.Is(herr, client.ErrSilent):
			return herr
		case herr == nil && asked != holder.PID:
			asked = holder.PID
			if _, err := fetch[[]byte](ctx, m.app.callRunning, http.MethodPost, "/v1/handover", nil); err != nil {
				m.log.Warn("the master in the background was asked to make room and refused", "pid", asked, "error", err)
				break
			}
			m.app.hint("stint: taking over from the master in the background (pid %d), once its runs have ended (%d)\n", asked, len(holder.Running))
		case herr != nil && asked == 0 && time.Now().After(deadline):
			return err // somebody holds the lock who is no master
		}
		if task.Sleep(ctx, lockPoll) != nil {
			return &cliError{code: exitInterrupted}
		}
	}
}

// coordinatorConfig adds to the configuration what is made from it.
func (m *master) coordinatorConfig(ctx context.Context) queue.Config {
	cfg := m.cfg
	adapters, clis := agents(cfg, m.state), newReadiness(ctx, cfg, m.accounts)
	config := cfg.Config
	config.StateDir, config.Socket, config.Background = m.state, m.socket, m.background
	if data, err := xdg("XDG_DATA_HOME", ".local/share"); config.WorkDir == "" && err == nil {
		config.WorkDir = task.WithoutLinks(filepath.Join(data, "stint", "work"))
	}
	config.WorkDir = strings.TrimSuffix(config.WorkDir, "/")
	config.Trees.State = filepath.Join(m.state, worktreesName)
	config.Git = runGit
	config.Version, config.Log = versionName(), m.log
	config.Agents, config.DefaultAgent = adapters, clis.defaultAgent
	config.AgentReady, config.AgentFound = clis.ready, clis.found
	config.Accounts, config.AccountEnv, config.Danger = m.accounts.configs, m.accounts.environment, m.accounts.danger(cfg, inContainer)
	config.HasKey = func(name string) bool { return missingSecrets(cfg, &wire.AgentView{Name: name}) != nil }
	config.CannotAllow = func(name string, rule task.Rule) string {
		if kind := findKind(name); kind != nil && kind.CannotAllow != nil {
			return kind.CannotAllow(rule)
		}
		return ""
	}
	config.FindSession = findSession
	config.LeaseOf = func(id string) *task.Lease {
		if m.worker == nil {
			return nil
		}
		return m.worker.LeaseOf(id)
	}
	config.Recover = func(ctx context.Context, runDir, runID string) error {
		if err := gate.Recover(ctx, runDir, runID); err != nil {
			return err
		}
		gate.Redact(runDir, cfg.Redact)
		return nil
	}
	config.QueueMax = map[string]int{schedule.Queue: cfg.MaxScheduled}
	maps.Copy(config.QueueMax, cfg.QueueMax)
	config.Workspace = workspaceSettings(cfg)
	config.Exclusive = slices.ContainsFunc(cfg.sections, func(s section) bool { return s.config.Checkout == queue.CheckoutExclusive })
	config.Memory = func(ctx context.Context, workspace, prompt string) (memory.Result, error) {
		if strings.HasPrefix(prompt, task.NoteQuestion) {
			return memory.Result{}, nil
		}
		return searchAll(ctx, cfg, notesDir(ctx, cfg, &config.Trees, workspace), prompt)
	}
	m.uses = memory.OpenUses(filepath.Join(m.state, "memory_uses.json"))
	config.Injected = func(dir string, hits []memory.Hit) error {
		if _, origin, ok := config.Trees.Origin(dir); ok {
			dir = origin
		}
		return m.uses.Count(dir, hits, time.Now())
	}
	config.Shell = agent.Shell{Runner: agentRunner(cfg, os.Environ(), "")}
	if !m.background {
		config.IdleExit = 0
	}
	if m.mirror != nil {
		config.Mirror = m.mirror.Status
	}
	return config
}

// workspaceSettings returns what is configured for a directory. A model of the whole
// configuration is the adapter's, so that a task names none. It is asked several times for each task of a list.
func workspaceSettings(cfg *Config) func(string) queue.WorkspaceSettings {
	return func(dir string) queue.WorkspaceSettings {
		c := cfg.forWorkspace(dir)
		set := c.WorkspaceSettings
		if c == cfg {
			return set
		}
		set.Models = map[string]string{}
		for _, name := range cliNames {
			if key := name + "_model"; c.origins[key].layer == layerWorkspace {
				set.Models[name], _ = c.agents[key].(string)
			}
		}
		return set
	}
}

// scheduler returns what fires the schedules of a master.
func (m *master) scheduler(c *coordinator.Coordinator, room *due.Room, instances *fleet.Fleet, tell func(kind, name, text string)) *schedule.Runner {
	cfg := m.cfg
	jobs := map[string]schedule.Job{
		"clean": func(ctx context.Context) (string, error) {
			r, err := c.Prune(ctx, cmp.Or(cfg.Retention, math.MaxInt64), false)
			return fmt.Sprintf("removed %s, %d KiB", count(len(r.Removed), "place"), r.Bytes>>10), err
		},
		"compact-tasks": func(ctx context.Context) (string, error) {
			r, err := ledgers{c, room}.Compact(ctx, cfg.CompactOlderThan, wire.CompactBody{})
			return fmt.Sprintf("moved %s to the archive; the journal has %d KiB", count(r.Archived, "task"), r.After>>10), err
		},
		"fsck": func(ctx context.Context) (string, error) {
			r, err := statedir.Fsck(ctx, m.state, cfg.WorkspaceRoot, func() bool { return true })
			if err == nil && len(r.Faults) > 0 {
				err = fmt.Errorf("%s: stint fsck", count(len(r.Faults), "finding"))
			}
			return "no findings", err
		},
	}
	for name, do := range instances.Jobs() {
		jobs[name] = do
	}
	return schedule.New(c, schedule.Options{
		List: newSchedulesFile(m.state, cfg).read, Jobs: jobs, Max: cfg.MaxScheduled, Path: filepath.Join(m.state, "job_runs.jsonl"),
		Keep: cfg.Retention, Tell: tell, Now: time.Now, Log: m.log,
	})
}

// fleet returns what looks after the instances of a master.
func (m *master) fleet(c *coordinator.Coordinator, room *due.Room, tell func(kind, name, text string)) *fleet.Fleet {
	o := m.cfg.Fleet
	o.Dir, o.Repair, o.Keep, o.Secret, o.Tell, o.Now, o.Log = m.state, m.cfg.ConfigSync == "repair", m.cfg.Retention, readRef, tell, time.Now, m.log
	o.Backup.Dir = cmp.Or(o.Backup.Dir, filepath.Join(m.state, "backups"))
	o.Backup.Verify = func(ctx context.Context, dir string) error {
		r, err := statedir.Fsck(ctx, dir, m.cfg.WorkspaceRoot, func() bool { return false })
		if err != nil {
			return err
		}
		if fault := find(r.Faults, func(x *statedir.Fault) bool { // what a person has written is as it is
			return slices.Contains([]string{statedir.KindFile, statedir.KindJournal, statedir.KindArchive}, x.Kind)
		}); fault != nil {
			return fmt.Errorf("it was restored damaged: %s", fault.Finding)
		}
		return nil
	}
	if p, on := postgresOptions(m.cfg, m.state, m.log); on {
		o.Backup.Database = func(other string) (string, []string, error) {
			text, err := p.URL()
			if err != nil {
				return "", nil, err
			}
			url, env, err := dsn.ForPrograms(text, other)
			return url, append(os.Environ(), env...), err
		}
	}
	return fleet.New(c, room, o)
}

// operations returns what the mirror copies that is in no record: the rows of a table from a time on.
func operations(instances *fleet.Fleet, schedules *schedule.Runner, room *due.Room) func(string, time.Time) ([]any, error) {
	return func(table string, since time.Time) (rows []any, err error) {
		switch table {
		case "task_queue":
			for _, j := range room.Where(func(j *jobs.Job) bool { return !j.UpdatedAt.Before(since) }) {
				rows = append(rows, wire.QueueRowOf(&j, instances.Instance))
			}
			return rows, nil
		case "job_runs":
			list, err := schedules.RunsSince(since)
			return mapped(list, func(r *task.JobRun) any { return wire.AdminRunOf(r) }), err
		case "server_metrics":
			list, err := instances.MetricsSince(since)
			return mapped(list, func(m *task.ServerMetric) any { return m }), err
		}
		list, err := instances.Usage("", since.UTC().AddDate(0, 0, -1).Format(time.DateOnly)) // what changes is of today or yesterday
		return mapped(list, func(u *task.UsageDay) any { return u }), err
	}
}

// dueJobs opens the due jobs of a master, whose findings are its own, too: nobody has asked for them yet.
func (m *master) dueJobs(c *coordinator.Coordinator, tell func(kind, name, text string)) (*due.Room, error) {
	room, err := due.Open(due.Options{
		Dir: m.state, Watch: tell != nil, Keep: m.cfg.CompactOlderThan, Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
		Tell: tell, Log: m.log, Hide: m.cfg.Redact.String,
	})
	c.Config.Beside = func() []task.Finding { return queue.FindingsOf(room.Findings()) }
	return room, err
}

// othersJobs are the due jobs as the API has them: other workers are not handed those of governed notes,
// since what they acknowledge stands in no file, nor those about instances; and a job about a note has the type of its file.
type othersJobs struct {
	*due.Room
	governed []memory.Governed
}

// Pull implements [api.Jobs].
func (o *othersJobs) Pull(ctx context.Context, p jobs.Pull) ([]jobs.Job, error) {
	p.Is = func(j *jobs.Job) bool {
		return j.ObjectType != jobs.Instance && !slices.ContainsFunc(o.governed, func(g memory.Governed) bool { return strings.HasPrefix(j.ObjectID, g.ObjectID("")) })
	}
	return o.Room.Pull(ctx, p)
}

// Enqueue implements [api.Jobs].
func (o *othersJobs) Enqueue(ctx context.Context, s jobs.Spec) (jobs.Job, bool, error) {
	if s.ObjectType == jobs.Instance {
		return jobs.Job{}, false, task.Wrong("object_type", "stint instance claim ID --user USER", "jobs about instances are made when an instance is claimed")
	}
	is := func(g *memory.Governed) bool {
		return strings.HasPrefix(s.ObjectID, g.ObjectID("")) && s.ObjectType != g.Kind
	}
	if g := find(o.governed, is); g != nil {
		return jobs.Job{}, false, task.Wrong("object_type", "stint job add "+g.Kind+" OBJECT ACTION --at TIME", "object_type is %s, and the notes of %s are governed as %s", s.ObjectType, g.Path, g.Kind)
	}
	return o.Room.Enqueue(ctx, s)
}

// stayForJobs keeps a master from being idle while jobs are at work, or due soon and wait for nothing else, until ctx ends.
func stayForJobs(ctx context.Context, c *coordinator.Coordinator, room *due.Room) {
	const pace, ahead = 5 * time.Second, time.Hour
	for ctx.Err() == nil {
		stay := func() {}
		room.View(func(st *jobs.State) {
			due := st.Due(jobs.Pull{Now: time.Now().Add(ahead), Limit: 1, Is: func(j *jobs.Job) bool { return j.WaitsFor == "" }})
			if len(due)+len(st.List(jobs.Filter{Status: jobs.Running, Limit: 1})) > 0 {
				stay = c.Call()
			}
		})
		_ = task.Sleep(ctx, pace)
		stay()
	}
}

// ledgers are those of a master: what is said of that of tasks, or done with it, concerns jobs.md too.
type ledgers struct {
	*coordinator.Coordinator
	room *due.Room
}

// Reconcile implements [api.Master].
func (l ledgers) Reconcile(ctx context.Context, accept bool) (t task.Reconciled, err error) {
	if t, err = l.Coordinator.Reconcile(ctx, accept); err != nil {
		return t, err
	}
	report, err := l.room.Reconcile(ctx, accept)
	jobs := queue.ReconciledOf(report)
	t.Notices, t.Findings = append(t.Notices, jobs.Notices...), l.Findings()
	t.Adopted, t.Missing, t.Quarantined = t.Adopted+jobs.Adopted, t.Missing+jobs.Missing, t.Quarantined+jobs.Quarantined
	return t, err
}

// Compact implements [api.Master].
func (l ledgers) Compact(ctx context.Context, olderThan time.Duration, b wire.CompactBody) (r wire.Compacted, err error) {
	r.CompactReport, err = l.Coordinator.Compact(ctx, olderThan, b.DryRun, b.KeepFailed)
	if err != nil || b.KeepJobs {
		return r, err
	}
	jobs, err := l.room.Compact(ctx, olderThan, b.DryRun, 0)
	if jobs.Archive != "" {
		r.Jobs = &jobs
	}
	return r, err
}

// roomsOf returns a coordinator, and what fires its schedules, keeps its due jobs and looks after instances, as what the API needs of them.
func roomsOf(c *coordinator.Coordinator, schedules *schedule.Runner, room *due.Room, instances *fleet.Fleet, governed []memory.Governed, tasks *shared.Opener) api.Rooms {
	rooms := api.Rooms{Master: ledgers{c, room}, Schedules: schedules, Jobs: &othersJobs{room, governed}, Fleet: instances}
	if tasks != nil { // else it would be a Shared that is no nil
		rooms.Shared = tasks
	}
	return rooms
}

// runOf returns the function that looks for the run of a state directory that a process is part of.
func runOf(stateDir string, pid int) func() (string, error) {
	return gate.RunOf(pid, func(run string) bool {
		_, err := os.Lstat(rundir.Dir(stateDir, run))
		return rundir.IsRunID(run) && err == nil
	})
}

// work listens, dispatches, and returns when both have ended.
func (m *master) work(ctx context.Context, c *coordinator.Coordinator, leased *shared.Queue) (err error) {
	wake := make(chan struct{}, 1)
	if leased != nil {
		if m.worker, err = m.newWorker(c, leased, wake); err != nil {
			return err
		}
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var notifier *notify.Notifier
	if len(m.cfg.Notify) > 0 {
		notifier = notify.New(c, m.cfg.Notify, os.Environ(), readSecret, m.log)
	}
	tell := func(kind, name, text string) {
		m.log.Warn(text)
		if notifier != nil {
			notifier.Tell(&notify.Event{Event: kind, Time: time.Now().UTC(), Text: text, Label: name})
		}
	}
	room, err := m.dueJobs(c, tell)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, room.Close()) }()
	instances := m.fleet(c, room, tell)
	schedules := m.scheduler(c, room, instances, tell)
	ln, err := guard.Listen(m.socket)
	if err != nil {
		return err
	}
	var server *api.Server
	listen := func(addr string, unused time.Duration) (address string, answer func(context.Context) error, err error) {
		token, err := guard.OpenToken(tokenFile(m.state)) // it is made if it is missing
		if err != nil {
			return "", nil, err
		}
		m.cfg.Redact.Refresh()
		lns, err := guard.ListenLoopback(addr)
		if err != nil {
			return "", nil, err
		}
		return lns[0].Addr().String(), server.Loopback(lns, token, unused), nil
	}
	noteHTTP := func(address string, err error) {
		c.ServesHTTP(address, err)
		m.noteHTTP(err)
	}
	openHTTP := func() (answer func(context.Context) error) {
		address, answer, err := listen(m.cfg.HTTP, 0)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("someone else listens at %s, and it is tried again until it is free; if that is not you: stint token rotate", m.cfg.HTTP)
		}
		noteHTTP(address, err)
		return answer
	}
	var ports sync.WaitGroup // what is served over TCP
	openPage := func() error {
		if m.cfg.HTTP == httpOff {
			o := m.cfg.origins["http"]
			return task.Conflict("set http anew there, then: stint serve --stop", "http is off (%s), so no port is opened for the page", o.where)
		}
		addr := anyPort
		if m.background {
			addr = m.cfg.HTTP
		}
		address, answer, err := listen(addr, pageUnused)
		if errors.Is(err, syscall.EADDRINUSE) {
			address, answer, err = listen(anyPort, pageUnused)
		}
		if err != nil {
			return task.Conflict("stint doctor", "the page needs a port of this machine, and none can be opened: %v", err)
		}
		m.log.Info("a port is open for the page, until an hour after it was used last", "http", address)
		end := c.Call() // an idle master stays for it
		ports.Go(func() {
			defer end()
			if !m.wantsHTTP() {
				c.ServesHTTP(address, nil)
				defer c.ServesHTTP("", nil)
			}
			if err := answer(serving); err != nil {
				m.log.Warn("the port of the page has failed", "error", err)
			}
		})
		return nil
	}
	server = api.NewServer(roomsOf(c, schedules, room, instances, m.cfg.Governed, m.shared), api.Options{Version: versionName(), Log: m.log, Redact: m.cfg.Redact, Config: strings.Join(append([]string{m.cfg.digest()}, m.cfg.masterSettings()...), " "), RunOf: func(pid int) func() (string, error) { return runOf(m.state, pid) }, Agents: agentNames, Topics: topics(), LookAtAgents: lookAtAgents(m.cfg), OpenPage: openPage, Line: taskLine, Table: writeTasks})
	if m.wantsHTTP() {
		answer := openHTTP()
		ports.Go(func() { serveHTTP(serving, answer, openHTTP, func(err error) { noteHTTP("", err) }) })
	}
	served := make(chan error, 1)
	go func() { // its end is waited for below
		served <- server.Serve(serving, ln)
		stop()
	}()
	m.log.Info("master is ready", "pid", os.Getpid(), "stateDir", m.state, "socket", m.socket, "http", cmp.Or(c.Health().HTTP, httpOff))
	m.report(ready{Socket: m.socket})

	// A master that nobody can call has to end; one that ends goes on answering until its runs have ended.
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	release := context.AfterFunc(serving, func() { cancel(task.ErrShutdown) })
	defer release()
	following, endFollowers := context.WithCancel(context.Background())
	defer endFollowers()
	var followers sync.WaitGroup
	followers.Go(func() { giveMemoryBack(following) })
	if m.operations = operations(instances, schedules, room); m.mirror != nil {
		followers.Go(func() { m.mirror.Run(following, c) })
	}
	if notifier != nil {
		followers.Go(func() { notifier.Run(following) })
	}
	if m.worker != nil {
		followers.Go(func() { m.worker.Run(following) })
		followers.Go(func() { m.shared.Listen(following, m.cfg.WorkerPoll, wake) })
	}
	followers.Go(func() { schedules.Run(following) })
	followers.Go(func() { room.Run(following) })
	followers.Go(func() { instances.Run(following) })
	worker := &govern.Worker{
		Jobs: room, Tasks: c, Files: m.cfg.Governed, Budget: m.cfg.AutoVerifyBudget, Queue: schedule.Queue, Uses: m.uses.Of, Now: time.Now,
		NewID: func() string { return uuid.NewString()[:8] }, Agent: func() string { return c.Config.DefaultAgent(nil) }, Alone: c.Attempts.Alone, Log: m.log,
	}
	followers.Go(func() { worker.Run(following) })
	followers.Go(func() { stayForJobs(following, c, room) })
	if m.cfg.KeepAwake {
		followers.Go(func() {
			keepAwake(following, awakePace, func() bool { return c.IsBusy(awakeAhead) || schedules.DueBefore(time.Now().Add(awakeAhead)) }, m.log)
		})
	}
	err = c.Run(running)
	endFollowers()
	followers.Wait()
	stop()
	err = errors.Join(err, <-served)
	ports.Wait() // nobody can ask for one any more
	if err == nil {
		m.log.Info("master has ended")
	}
	return err
}

// A port that was opened for the page, because nobody else had opened one, is closed when
// the page was not used for pageUnused. It is the configured one if that is free.
const (
	pageUnused = time.Hour
	anyPort    = "127.0.0.1:0"
)

// wantsHTTP reports whether to serve HTTP over TCP. A master in the background does that for the page alone.
func (m *master) wantsHTTP() bool { return !m.background && m.cfg.HTTP != httpOff }

// httpAgain is the time between two tries to open an HTTP interface.
const httpAgain = 5 * time.Second

// serveHTTP calls answer until ctx ends. Where there is none, or it fails, which failed is
// told, it tries to open another one. Commands do not need it.
func serveHTTP(ctx context.Context, answer func(context.Context) error, open func() func(context.Context) error, failed func(error)) {
	for ; ; answer = open() {
		if answer != nil {
			err := answer(ctx)
			if err == nil {
				return // ctx has ended
			}
			failed(err)
		}
		if task.Sleep(ctx, httpAgain) != nil {
			return
		}
	}
}

// noteHTTP logs why the HTTP interface is not open, once, and that it is again.
func (m *master) noteHTTP(err error) {
	switch {
	case err != nil && err.Error() != m.httpError:
		m.httpError = err.Error()
		m.log.Warn("no HTTP interface: " + m.httpError)
	case err == nil && m.httpError != "":
		m.httpError = ""
		m.log.Info("the HTTP interface is open", "http", m.cfg.HTTP)
	}
}

// tokenFile is where the token of the HTTP interface lies.
func tokenFile(state string) string { return filepath.Join(state, "token") }

// offlineMaster is a master that only opens the state directory for a moment, where none is to run.
func (a *app) offlineMaster(dir string, cfg *Config) *master {
	return &master{app: a, cfg: cfg, state: dir, accounts: newAccountsFile(dir), log: slog.New(&hints{slog.DiscardHandler, a})}
}

// hints shows a person at the terminal what an offlineMaster has to say, such as which edits it took over.
type hints struct {
	slog.Handler
	app *app
}

// Enabled implements slog.Handler.
func (*hints) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h *hints) Handle(_ context.Context, r slog.Record) error {
	h.app.hint("stint: %s\n", r.Message)
	return nil
}

// giveBackEvery is how often a master looks whether it may have memory to give back.
const giveBackEvery = 10 * time.Second

// giveMemoryBack returns memory that is no longer in use to the system, until ctx ends, where more than a few MB, or
// a quarter of what there is, were allocated since it did. To start, to compact, to take a large save over, or to
// list all tasks takes many times the size of the ledger, and the runtime itself keeps that for minutes. Where the
// environment does not say otherwise, up to 64 MB of garbage may lie around meanwhile, or as much as is in use.
func giveMemoryBack(ctx context.Context) {
	percent := 100 // as the runtime begins
	for before := uint64(0); ctx.Err() == nil; _ = task.Sleep(ctx, giveBackEvery) {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.TotalAlloc-before > 4<<20+m.HeapAlloc/4 {
			debug.FreeOSMemory()
			if before = m.TotalAlloc; os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" {
				runtime.ReadMemStats(&m)
				now := int(min(400, max(100, 100*64<<20/m.HeapAlloc)))
				if was := debug.SetGCPercent(now); was != percent {
					now = percent
					debug.SetGCPercent(was) // a compaction is at work, and sets it back
				}
				percent = now
			}
		}
	}
}
