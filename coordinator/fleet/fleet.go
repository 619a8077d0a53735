// Package fleet looks after instances: assistants that run as services on other machines.
//
// A [Server] is a machine that ssh reaches, and an [Instance] a service there, with a configuration file and a gateway that
// answers over HTTP. A [Fleet] sets an instance up when a user has claimed it, and its [Fleet.Jobs] are what schedules run:
// checks, repairs, figures and backups. Who has claimed an instance and how it is stands in its control record, and that it is
// to be set up is a due job; so both survive a crash, and recover from the ledgers. All that is done on a server is done by
// the system's ssh, with commands that are constant: data are sent as input, and no shell reads them. What is done twice has
// the same effect as once.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
	"stint/state/jobs"
)

// A Server is a [[server]] block of the configuration.
type Server struct {
	ID  string `toml:"id"`
	SSH string `toml:"ssh"` // a destination for ssh(1), whose configuration, agent and known_hosts count; "": the id
}

// An Instance is an [[instance]] block of the configuration.
type Instance struct {
	ID              string         `toml:"id"`
	Server          string         `toml:"server"`
	ConfigPath      string         `toml:"config_path"`      // absolute, on the server
	Service         string         `toml:"service"`          // of systemd
	Gateway         string         `toml:"gateway"`          // a URL; an answer with a status of 200 to 299 means that it runs
	Desired         map[string]any `toml:"desired"`          // what its configuration has to have, by dotted paths or in tables
	AccessPath      string         `toml:"access_path"`      // where that has dmPolicy and allowFrom; "": gateway
	BootstrapPath   string         `toml:"bootstrap_path"`   // absolute, on the server; "": BOOTSTRAP.md beside the configuration
	ActivityField   string         `toml:"activity_field"`   // dotted path in the gateway's answer: time of the last dialogue
	ActivityCommand string         `toml:"activity_command"` // for the server's shell, which prints that time, in place of the field
	KeyRef          string         `toml:"litellm_key_ref"`  // its virtual key: a file, or env:NAME
}

// What ids, destinations and names of services are.
var (
	idRule      = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	sshRule     = lazy.Regexp(`^[A-Za-z0-9_][A-Za-z0-9_.@:%/\[\]-]{0,255}$`)
	serviceRule = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9:_.\\@-]{0,255}$`)
	userRule    = lazy.Regexp(`^[^\x00-\x1f\x7f]{1,128}$`)
	tgUserRule  = lazy.Regexp(`^[0-9]{0,20}$`)
	botRule     = lazy.Regexp(`^[0-9]+:[A-Za-z0-9_-]+$`)
)

// Check returns what is wrong with a server, and with which key. known are the servers before it.
func (s *Server) Check(known []Server) (key string, err error) {
	s.SSH = cmp.Or(s.SSH, s.ID)
	switch {
	case !idRule().MatchString(s.ID):
		return "id", fmt.Errorf("%q cannot be the id of a server: use letters, digits, dots, dashes and underscores", s.ID)
	case slices.ContainsFunc(known, func(o Server) bool { return o.ID == s.ID }):
		return "id", fmt.Errorf("there is a server %s already; give this one another id", s.ID)
	case !sshRule().MatchString(s.SSH):
		return "ssh", fmt.Errorf("%q is no destination for ssh, such as root@host or an alias of ~/.ssh/config", s.SSH)
	}
	return "", nil
}

// Check returns what is wrong with an instance, and with which key. servers are those that there are.
func (in *Instance) Check(servers []Server, known []Instance) (key string, err error) {
	in.AccessPath, in.Desired = cmp.Or(in.AccessPath, "gateway"), flat(in.Desired)
	if in.BootstrapPath == "" && in.ConfigPath != "" {
		in.BootstrapPath = path.Join(path.Dir(in.ConfigPath), "BOOTSTRAP.md")
	}
	switch {
	case !idRule().MatchString(in.ID):
		return "id", fmt.Errorf("%q cannot be the id of an instance: use letters, digits, dots, dashes and underscores", in.ID)
	case slices.ContainsFunc(known, func(o Instance) bool { return o.ID == in.ID }):
		return "id", fmt.Errorf("there is an instance %s already; give this one another id", in.ID)
	case !slices.ContainsFunc(servers, func(s Server) bool { return s.ID == in.Server }):
		return "server", fmt.Errorf("%q is no server; add a [[server]] block with this id, or name one that there is", in.Server)
	case !serviceRule().MatchString(in.Service):
		return "service", fmt.Errorf("%q is no name of a systemd service", in.Service)
	case in.ActivityField != "" && in.ActivityCommand != "":
		return "activity_command", errors.New("name either the field or the command, and not both")
	case slices.ContainsFunc(known, func(o Instance) bool { return o.Server == in.Server && o.ConfigPath == in.ConfigPath }):
		return "config_path", fmt.Errorf("another instance on %s has this configuration already", in.Server)
	case slices.ContainsFunc(slices.Collect(maps.Keys(in.Desired)), func(path string) bool { return slices.Contains(strings.Split(path, "."), "") }):
		return "desired", errors.New("a name is empty; write it as { \"agents.defaults.model.primary\" = \"…\" }")
	case strings.ContainsAny(in.ActivityCommand, "\x00\r\n"):
		return "activity_command", errors.New("it has to be one line")
	}
	if u, err := url.Parse(in.Gateway); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "gateway", fmt.Errorf("%q is not a URL such as http://10.0.0.5:18789/health", in.Gateway)
	}
	for i, file := range []string{in.ConfigPath, in.BootstrapPath} { // the second can follow from the first
		if !path.IsAbs(file) || path.Clean(file) != file || strings.ContainsAny(file, "\x00\r\n") {
			return []string{"config_path", "bootstrap_path"}[i], fmt.Errorf("%q is not an absolute path without .. and without a line break", file)
		}
	}
	if in.BootstrapPath == in.ConfigPath {
		return "bootstrap_path", errors.New("it is that of the configuration, which it would replace")
	}
	return "", nil
}

// flat puts the values of nested tables at their dotted paths, so that what else an object has stays in it.
func flat(m map[string]any) map[string]any {
	list := map[string]any{}
	for name, v := range m {
		inner, isTable := v.(map[string]any)
		if !isTable {
			list[name] = v
		}
		for path, v := range flat(inner) {
			list[name+"."+path] = v
		}
	}
	return list
}

// Options are what a [Fleet] is made from. Texts of the configuration have been checked.
type Options struct {
	Servers   []Server
	Instances []Instance
	Dir       string        // the state directory
	Bootstrap string        // what BOOTSTRAP.md says; "": a text of ours
	Repair    bool          // config_sync repairs what differs
	IdleAfter time.Duration // without a dialogue
	LiteLLM   LiteLLM
	Backup    Backup
	Keep      time.Duration                    // how long server_metrics.jsonl keeps its lines; 0: for ever
	Secret    func(ref string) (string, error) // reads what a reference names
	Tell      func(kind, name, text string)    // is sent what a person should know: instance-failed, key-balance
	Now       func() time.Time
	Log       *slog.Logger
}

// A Room is what a Fleet asks the master.
type Room interface {
	// Controls returns the control records with a prefix by their names.
	Controls(prefix string) map[string]state.Control
	// ChangeControl changes the control record with that prefix and name.
	ChangeControl(ctx context.Context, prefix, name string, change func(*state.Control)) error
	// IsLeaving reports whether the master starts nothing more.
	IsLeaving() bool
}

// Jobs is what a Fleet asks the room of due jobs.
type Jobs interface {
	Enqueue(ctx context.Context, spec jobs.Spec) (job jobs.Job, isNew bool, err error)
	// HasKey reports whether a job has an idempotency key, also one in the archive.
	HasKey(key string) bool
	Where(is func(*jobs.Job) bool) []jobs.Job
	Pull(ctx context.Context, p jobs.Pull) ([]jobs.Job, error)
	Ack(ctx context.Context, id string, a jobs.Ack) (jobs.Job, error)
	Fail(ctx context.Context, id string, f jobs.Fail) (jobs.Job, error)
	// RetryFailed queues the jobs about instances again that have failed and have attempts left.
	RetryFailed(ctx context.Context) (n int, err error)
}

// A Fleet looks after the configured instances. Its methods may be called by any goroutine.
type Fleet struct {
	opts   Options
	room   Room
	jobs   Jobs
	client *http.Client
	wake   chan struct{}
	all    chan struct{}            // bounds what is at work at one time
	ssh    map[string]chan struct{} // bounds the connections to each server

	files  sync.Mutex // held while a file of the state directory is changed
	forgot time.Time  // when old samples were removed last

	// What is known of instances, by their ids.
	checks sync.Map // a [check]: how the last one went
	locks  sync.Map // a *sync.Mutex, held while one is changed
	stale  sync.Map // those whose configuration was written since they were restarted
}

// A check is how a check of an instance went.
type check struct {
	at     time.Time
	detail string // "": well
}

// Bounds of what is done at one time, so that neither a server nor this machine has too much to do.
const (
	mostAll     = 64 // on all servers
	mostHTTP    = 16 // requests to the instances of one server
	mostSSH     = 4  // connections to one server: sshd refuses some beyond ten
	httpTimeout = 5 * time.Second
)

// New returns a fleet. It does nothing by itself before [Fleet.Run].
func New(room Room, due Jobs, opts Options) *Fleet {
	f := &Fleet{
		opts: opts, room: room, jobs: due, client: &http.Client{Timeout: httpTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		wake: make(chan struct{}, 1), all: make(chan struct{}, mostAll), ssh: map[string]chan struct{}{},
	}
	for _, s := range opts.Servers {
		f.ssh[s.ID] = make(chan struct{}, mostSSH)
	}
	return f
}

// Usual are the jobs of package fleet that schedules can run, with the times at which they do where nothing else is configured.
var Usual = map[string]string{
	"health_check": "*/5 * * * *", "token_usage_sync": "*/15 * * * *", "server_metrics": "*/5 * * * *", "config_sync": "*/30 * * * *",
	"auto_recovery": "*/10 * * * *", "key_balance_alert": "0 * * * *", "idle_instance_mark": "0 3 * * *", "db_backup": "0 4 * * *",
	"pending_task_retry": "* * * * *",
}

// Jobs returns what schedules run, by name. Each says in one sentence what it has done.
func (f *Fleet) Jobs() map[string]func(context.Context) (string, error) {
	return map[string]func(context.Context) (string, error){
		"health_check": f.checkAll, "token_usage_sync": f.syncUsage, "server_metrics": f.sampleAll, "config_sync": f.syncAll,
		"auto_recovery": f.recoverAll, "key_balance_alert": f.checkBalances, "idle_instance_mark": f.markIdle, "db_backup": f.backUp,
		"pending_task_retry": func(ctx context.Context) (string, error) {
			n, err := f.jobs.RetryFailed(ctx)
			task.Wake(f.wake)
			return fmt.Sprintf("queued %d again", n), err
		},
	}
}

// instance returns the configured instance with that id.
func (f *Fleet) instance(id string) (*Instance, error) {
	if i := slices.IndexFunc(f.opts.Instances, func(in Instance) bool { return in.ID == id }); i >= 0 {
		return &f.opts.Instances[i], nil
	}
	return nil, &task.Error{Code: task.CodeNotFound, Message: "there is no instance " + task.OneSentence(id, 64) + " in the configuration", Hint: "stint instance ls; if it was added since the master began: stint serve --stop"}
}

// control returns the control record of an instance.
func (f *Fleet) control(id string) state.Control { return f.room.Controls(state.ControlInstance)[id] }

// change changes the control record of an instance.
func (f *Fleet) change(ctx context.Context, id string, change func(*state.Control)) error {
	return f.room.ChangeControl(ctx, state.ControlInstance, id, change)
}

// alone waits until nobody else changes an instance, and returns what ends that.
func (f *Fleet) alone(id string) (end func()) {
	lock, _ := f.locks.LoadOrStore(id, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// where returns the instances whose control records are so.
func (f *Fleet) where(is func(*Instance, state.Control) bool) (list []*Instance) {
	controls := f.room.Controls(state.ControlInstance)
	for i := range f.opts.Instances {
		if in := &f.opts.Instances[i]; is(in, controls[in.ID]) {
			list = append(list, in)
		}
	}
	return list
}

// each does something for each instance of a list, most at a time on one server, and returns in one sentence what went wrong. A
// server that cannot be reached is not tried again for the others of the list.
func (f *Fleet) each(ctx context.Context, list []*Instance, most int, do func(context.Context, *Instance) error) error {
	var work sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	slots, down := map[string]chan struct{}{}, map[string]error{}
	for _, in := range list {
		if slots[in.Server] == nil {
			slots[in.Server] = make(chan struct{}, most)
		}
		slot := slots[in.Server]
		work.Go(func() {
			slot <- struct{}{}
			f.all <- struct{}{}
			defer func() { <-f.all; <-slot }()
			mu.Lock()
			err := cmp.Or(down[in.Server], ctx.Err())
			mu.Unlock()
			if err == nil {
				err = do(ctx, in)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, in.ID+": "+err.Error())
				if _, is := errors.AsType[*unreachableError](err); is {
					down[in.Server] = err
				}
			}
		})
	}
	work.Wait()
	if len(failed) == 0 {
		return nil
	}
	slices.Sort(failed)
	return fmt.Errorf("%d of %d failed: %s", len(failed), len(list), strings.Join(failed, "; "))
}
