package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"stint/coordinator/admission"
	"stint/coordinator/api/guard"
	"stint/coordinator/attempt"
	"stint/coordinator/fleet"
	"stint/coordinator/followup"
	"stint/coordinator/notify"
	"stint/coordinator/postgres"
	"stint/coordinator/queue"
	"stint/coordinator/schedule"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/memory"
	"stint/prompt"
	"stint/state"
	"stint/state/limits"
)

// A Config is every setting, after all layers. The table [keys] describes each.
type Config struct {
	queue.Config // what a coordinator needs as it is configured

	Agent                         string
	AllowDangerous                bool
	LimitCPU                      time.Duration
	LimitFiles, Nice              int
	LimitFileSize, LimitMemory    int64 // bytes
	AutoStart, KeepAwake          bool
	MemoryPaths                   []string
	MaxMemoryHits, MaxMemoryChars int
	HTTP                          string // an address of this machine, or off
	LogLevel, LogFormat           string
	Env, CaptureEnv               []string
	PostgresURL                   string           // of the mirror; may have a password
	PostgresURLFile               string           // a file that has it instead
	Mirror                        postgres.Options // what of them is configured
	WorkerLeaseTTL                time.Duration    // of the shared queue's leases, as are these
	WorkerRenew, WorkerPoll       time.Duration
	WorkerConcurrency             int
	WorkerGroup                   string
	WorkerAccounts                []string
	Notify                        []notify.Block
	Schedules                     []schedule.Schedule
	MaxScheduled                  int
	WorktreeDir                   string
	Protected                     []string          // branches on which nothing lands
	Governed                      []memory.Governed // files of notes that jobs take care of
	AutoVerifyBudget              int
	Fleet                         fleet.Options // what of them is configured
	ConfigSync                    string

	agents map[string]any // the settings of agents by their keys, each of the type of its default; never changed

	file     string // the configuration file; it need not exist
	origins  map[string]origin
	sections []section
	values   map[string]any // of the file
}

// A layer is a place where a value can come from; a higher one wins.
type layer int

const (
	layerDefault layer = iota
	layerFile
	layerWorkspace
	layerEnv
	layerFlag
)

// An origin is where a value came from, and the text of it: that of a document may be a word, or @FILE.
type origin struct {
	text  string
	layer layer
	where string // "default", "config.toml:12", "STINT_MAX_WORKERS", "--max-workers"
}

// A key is one setting. Defaults, environment, file, flags and `config show` come from the table of keys.
type key struct {
	name      string
	def       string
	section   string // of the file, in which it stands without the section's name; "": the top level
	option    string // its long option where that is not its name
	workspace bool   // may stand in a [workspace."/path"] section
	help      string
	kind      kind
	word      string // what its help shows for the value; "": what the kind has
	set       func(c *Config, text string) error
	get       func(c *Config) any      // string, int, bool or []string
	typed     func(text string) error  // what is asked of it besides on a command line
	redact    func(text string) string // makes it fit to be shown; nil: it is
}

// A kind is the type that the file must give a value.
type kind string

const (
	kindText     kind = "a string"
	kindNumber   kind = "a whole number"
	kindBool     kind = "true or false"
	kindDuration kind = `a duration such as "90s" or "10m"`
	kindList     kind = "a list of strings"
	kindSize     kind = `a size such as "64MiB"`
)

// keys is the table of all settings, in the order in which they are shown.
var keys = slices.Concat([]key{
	pathKey("workspace_root", "directory of tasks without -C; empty: the directory of the call", func(c *Config) *string { return &c.WorkspaceRoot }),
	pathKey("work_dir", "directory below which tasks with --workdir temp have their own; empty: stint/work in $XDG_DATA_HOME", func(c *Config) *string { return &c.WorkDir }),
	boolKey("cleanup", "true", "remove these directories after the end of their tasks", func(c *Config) *bool { return &c.Cleanup }),
	checkedKey("isolation", "in-place", "where a task works that does not say: in-place: in its directory; worktree: in a git worktree of its session, made from what is checked out, or from BASE with worktree=BASE", func(c *Config) *string { return &c.Isolation }, checkIsolation).perWorkspace(),
	pathKey("worktree_dir", "directory below which these worktrees lie; empty: stint/worktrees in $XDG_DATA_HOME", func(c *Config) *string { return &c.WorktreeDir }),
	textKey("worktree_setup", "", "shell command that is run once in each new worktree, such as npm ci", func(c *Config) *string { return &c.WorktreeSetup }).perWorkspace(),
	durationKey("worktree_setup_timeout", "10m", "longest run of that command; 0: no limit", func(c *Config) *time.Duration { return &c.SetupTimeout }).perWorkspace(),
	numberKey("max_worktrees", "50", 0, 10_000, "worktrees at a time; a task that needs another one waits until one is dropped; 0: no limit", func(c *Config) *int { return &c.MaxWorktrees }),
	choiceKey("commit", "always", "whether what a run leaves in a worktree is committed on its branch: always, or never", func(c *Config) *string { return &c.Commit }, "always", queue.CommitNever).perWorkspace(),
	valueKey(kindText, "commit_author", "", "who commits that: NAME <EMAIL>; empty: you, as git knows you", func(c *Config) *worktree.Author { return &c.CommitAuthor }, parseAuthor, func(a worktree.Author) string {
		if a == (worktree.Author{}) {
			return ""
		}
		return a.Name + " <" + a.Email + ">"
	}).perWorkspace(),
	listKey("protected_branches", "", "branches on which stint land lands nothing", func(c *Config) *[]string { return &c.Protected }, func(s string) error { return nil }).perWorkspace(),
	numberKey("max_workers", "4", 1, 256, "runs at the same time", func(c *Config) *int { return &c.MaxWorkers }),
	numberKey("max_scheduled", "2", 1, 256, "tasks of schedules, and jobs of schedules, that run at the same time", func(c *Config) *int { return &c.MaxScheduled }),
	numberKey("max_queued", "100000", 0, 100_000_000, "tasks that may wait; more are refused; 0: no limit", func(c *Config) *int { return &c.MaxQueued }),
	numberKey("max_attempts", "3", 1, 100, "tries of a task", func(c *Config) *int { return &c.MaxAttempts }).perWorkspace(),
	numberKey("max_retries", "5", 0, 1000, "interruptions of a task before it is dead, and edits that may restart it while it runs", func(c *Config) *int { return &c.MaxRetries }),
	numberKey("crash_loop", "5", 0, 1000, "pause dispatch when so many masters die within a minute, each soon after it started a task; 0: never", func(c *Config) *int { return &c.CrashLoop }),
	durationKey("backoff_base", "30s", "wait before the second attempt; doubled before each further one, ±10 % at random", func(c *Config) *time.Duration { return &c.BackoffBase }),
	durationKey("backoff_max", "300s", "longest wait between attempts", func(c *Config) *time.Duration { return &c.BackoffMax }),
	budgetKey("budget_task", "what the runs of one task may spend: 5usd, 200ktok, 90m, or several; empty: any amount", func(c *Config) *string { return &c.BudgetTask }),
	budgetKey("budget_session", "the same for all tasks of a session", func(c *Config) *string { return &c.BudgetSession }),
	budgetKey("budget_day", "the same for all runs of a day", func(c *Config) *string { return &c.BudgetDay }),
	durationKey("max_limit_wait", "24h", "longest wait for a rate limit if the agent names no end", func(c *Config) *time.Duration { return &c.MaxLimitWait }),
	durationKey("timeout", "30m", "longest run; 0: no limit", func(c *Config) *time.Duration { return &c.Timeout }).perWorkspace(),
	durationKey("idle_timeout", "10m", "longest silence of a run; 0: no limit", func(c *Config) *time.Duration { return &c.IdleTimeout }),
	durationKey("startup_timeout", "2m", "longest wait for the first output; 0: no limit", func(c *Config) *time.Duration { return &c.StartupTimeout }),
	durationKey("grace", "5s", "time between SIGTERM and SIGKILL", func(c *Config) *time.Duration { return &c.Grace }),
	durationKey("session_lock_timeout", "10s", "longest wait for a session that is in use", func(c *Config) *time.Duration { return &c.SessionLockTimeout }),
	choiceKey("agent", "", "agent of tasks without --agent; empty: the first of "+strings.Join(cliNames, ", ")+" that is ready, else "+builtIn, func(c *Config) *string { return &c.Agent }, append([]string{""}, agentNames...)...).perWorkspace(),
}, agentKeys(), []key{
	boolKey("allow_dangerous", "false", "permit "+strings.Join(mapped(dangers(), func(d *danger) string { return d.key + " " + d.value }), ", "), func(c *Config) *bool { return &c.AllowDangerous }),
	listKey("fallback", "", "agents that take over, in this order, while a task's own agent is rate-limited", func(c *Config) *[]string { return &c.Fallback }, checkAgent),
	durationKey("limit_cpu", "0s", "processor time of each process of a run; 0: no limit", func(c *Config) *time.Duration { return &c.LimitCPU }),
	numberKey("limit_files", "4096", 0, 1<<30, "open files of each process of a run; 0: no limit", func(c *Config) *int { return &c.LimitFiles }),
	sizeKey("limit_file_size", "0", maxSize, "size of a file that a run writes, and of all that it prints; 0: no limit", func(c *Config) *int64 { return &c.LimitFileSize }),
	sizeKey("limit_memory", "0", maxSize, "address space of each process of a run; Node and Bun need many GiB; 0: no limit", func(c *Config) *int64 { return &c.LimitMemory }),
	numberKey("nice", "5", 0, 19, "niceness of runs, as with nice(1): added to that of the master", func(c *Config) *int { return &c.Nice }),
	boolKey("auto_start", "true", "start a master in the background when there is none", func(c *Config) *bool { return &c.AutoStart }),
	durationKey("idle_exit", "30s", "a background master exits after this time without work", func(c *Config) *time.Duration { return &c.IdleExit }),
	boolKey("keep_awake", "false", "hold the machine awake while a task runs, or may start within 5 minutes", func(c *Config) *bool { return &c.KeepAwake }),
	choiceKey("resume_policy", "auto", "whether a session's tasks resume the agent's session", func(c *Config) *string { return &c.ResumePolicy }, "auto", "always", "never").perWorkspace(),
	choiceKey("resume_missing", "new", "if the agent's session is gone: a new session, or an error", func(c *Config) *string { return &c.ResumeMissing }, "new", "error"),
	documentKey("output_policy", "brief", "how answers are to look: brief (six lines), final (as long as it takes), none, the text", prompt.Policies, checked(admission.CheckPolicy), func(c *Config) *string { return &c.OutputPolicy }).perWorkspace(),
	documentKey("prompt_template", "default", "what stands before the user's message: default, a text with fields such as {{.Memory}} (stint help prompts)", map[string]string{"default": "", "": ""}, prompt.ParseTemplate, func(c *Config) **prompt.Template { return &c.WorkspaceSettings.PromptTemplate }).perWorkspace(),
	listKey("memory_paths", "", "notes of a workspace that are searched for each prompt: files, directories or patterns below it; empty: MEMORY.md and memory/*.md", func(c *Config) *[]string { return &c.MemoryPaths }, checkNotes).perWorkspace(),
	numberKey("max_memory_hits", "8", 0, 1000, "lines of notes that a prompt gets at most; 0: none", func(c *Config) *int { return &c.MaxMemoryHits }).perWorkspace(),
	numberKey("max_memory_chars", "4000", 0, 1000000, "characters of them", func(c *Config) *int { return &c.MaxMemoryChars }).perWorkspace(),
	documentKey("self_eval_prompt", "off", "prompt of the agent that judges each answer: off, default, the text", evaluations, asIs, func(c *Config) *string { return &c.EvalPrompt }).perWorkspace(),
	numberKey("self_eval_max_chars", "2000", 0, 1000000, "characters of the lessons that one judgement leaves; 0: no limit", func(c *Config) *int { return &c.EvalMaxChars }).perWorkspace(),
	checkedKey("self_eval_memory_path", memory.DefaultLessons, "file of the workspace to which lessons are added; empty: none", func(c *Config) *string { return &c.LessonsPath }, checkNote).perWorkspace(),
	numberKey("auto_verify_budget", "20", 0, 100_000, "uncertain entries of governed notes that are verified by themselves, per day and workspace", func(c *Config) *int { return &c.AutoVerifyBudget }),
	choiceKey("checkout", "shared", "shared: tasks of several sessions may run in one git checkout at a time; exclusive: one task at a time", func(c *Config) *string { return &c.Checkout }, "shared", queue.CheckoutExclusive).perWorkspace(),
	textKey("verify_command", "", "shell command that must pass after each run of a task", func(c *Config) *string { return &c.VerifyCommand }).perWorkspace(),
	durationKey("verify_timeout", "10m", "longest run of a verify command; 0: no limit", func(c *Config) *time.Duration { return &c.VerifyTimeout }).perWorkspace(),
	numberKey("max_iterations", "3", 1, task.MaxIterations, "iterations of agent and verify command", func(c *Config) *int { return &c.MaxIterations }).perWorkspace(),
	listKey("allow", "", "what tasks may permit their agents with --allow: rules such as \"Bash(go test *)\"; empty: nothing", func(c *Config) *[]string { return &c.Allow }, checkAllow).perWorkspace(),
	choiceKey("denied", "finding", "what becomes of a task whose agent was denied a tool: finding: it gets a finding; fail: it fails", func(c *Config) *string { return &c.Denied }, "finding", attempt.DeniedFails).perWorkspace(),
	documentKey("trigger_on_failure_prompt", "off", "prompt of the task that is queued when one fails: off, or a template", noFollowUp, checked(followup.Check), func(c *Config) *string { return &c.OnFailure }).perWorkspace(),
	documentKey("trigger_on_issue_prompt", "off", "prompt of the task that is queued when there are findings about an answer: off, or a template", noFollowUp, checked(followup.Check), func(c *Config) *string { return &c.OnIssue }).perWorkspace(),
	valueKey(kindText, "trigger_session_key", "off", "session of follow-ups; off: a new one each time, in the lane of the directory", func(c *Config) *string { return &c.TriggerSession }, parseTrigger, func(s string) string { return cmp.Or(s, "off") }).perWorkspace(),
	numberKey("follow_up_depth", "1", 0, 100, "longest chain of follow-ups; 0: no task queues another", func(c *Config) *int { return &c.FollowUpDepth }),
	numberKey("max_follow_ups", "10", 0, 100000, "how many follow-ups a task may have, and how many tasks its agent may queue", func(c *Config) *int { return &c.MaxFollowUps }),
	sizeKey("compact_size", "64MiB", maxSize, "the master compacts the ledger when journal.md is larger, and its records have doubled; 0: never", func(c *Config) *int64 { return &c.CompactSize }),
	durationKey("compact_older_than", "30d", "compaction archives tasks that ended longer ago", func(c *Config) *time.Duration { return &c.CompactOlderThan }),
	durationKey("retention", "30d", "how long the files of a run and the transcript of a session stay after the task's end; 0: no limit", func(c *Config) *time.Duration { return &c.Retention }),
	sizeKey("retention_size", "5GiB", maxSize, "room for all of them; when there is more, the oldest of ended tasks go; 0: no limit", func(c *Config) *int64 { return &c.RetentionSize }),
	durationKey("heartbeat_interval", "10s", "time between two writes of heartbeat.json", func(c *Config) *time.Duration { return &c.HeartbeatInterval }),
	pathKey("heartbeat_path", "heartbeat file; empty: heartbeat.json in the state directory", func(c *Config) *string { return &c.HeartbeatPath }),
	checkedKey("http", "127.0.0.1:7433", "HTTP address of stint serve, on this machine only, such as localhost:7433; 127.0.0.1, [::1] and localhost each mean both; or off", func(c *Config) *string { return &c.HTTP }, checkHTTP),
	choiceKey("log_level", "info", "what the master logs", func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
	choiceKey("log_format", "text", "how the master logs; by default json in master.log", func(c *Config) *string { return &c.LogFormat }, "text", "json"),
	listKey("capture_env", captureDefault, "variables of your shell, by name or as NAME*, that a task's programs get, but never secrets: default, none, more names", func(c *Config) *[]string { return &c.CaptureEnv }, checkVariable),
	listKey("env", "", "more environment variables that agents get, by name", func(c *Config) *[]string { return &c.Env }, checkVariable),
	postgresURLKey(),
	checkedKey("postgres_url_file", "", "file of mode 600 that holds this URL; it is read for each connection", func(c *Config) *string { return &c.PostgresURLFile }, checkURLFile).in("postgres"),
	numberKey("postgres_pool_size", "10", 1, 1000, "connections to it at most", func(c *Config) *int { return &c.Mirror.PoolSize }).in("postgres"),
	sizeKey("postgres_inline_threshold", "1MiB", maxInline, "size up to which files are copied whole; of larger ones path and hash", func(c *Config) *int64 { return &c.Mirror.InlineThreshold }).in("postgres"),
	numberKey("postgres_stdout_limit", "10000", 0, 10_000_000, "characters of a run's output and of its errors that are copied", func(c *Config) *int { return &c.Mirror.OutputLimit }).in("postgres"),
	checkedKey("postgres_host", "", "host name under which the mirror keeps these tasks; empty: the name of this machine", func(c *Config) *string { return &c.Mirror.Host }, checkHost).in("postgres"),
	durationKey("worker_lease_ttl", "90s", "how long a task of the shared queue stays with a worker that does not renew its lease", func(c *Config) *time.Duration { return &c.WorkerLeaseTTL }).as("lease_ttl").in("worker"),
	durationKey("worker_renew", "30s", "time between two renewals of a worker's leases", func(c *Config) *time.Duration { return &c.WorkerRenew }).as("renew").in("worker"),
	durationKey("worker_poll_interval", "1s", "time between two looks of a worker at the shared queue, where the database tells of nothing", func(c *Config) *time.Duration { return &c.WorkerPoll }).as("poll_interval").in("worker"),
	numberKey("worker_concurrency", "4", 1, 256, "tasks that stint worker start runs at the same time", func(c *Config) *int { return &c.WorkerConcurrency }).as("processes").in("worker"),
	textKey("worker_group", "", "a worker uses the shared queue's accounts of this group; empty: of all", func(c *Config) *string { return &c.WorkerGroup }).as("group").in("worker"),
	listKey("worker_accounts", "auto", "accounts of the shared queue that a worker uses; auto: all that are here too", func(c *Config) *[]string { return &c.WorkerAccounts }, checkAccountID).as("accounts").in("worker"),
	documentKey("fleet_bootstrap", "default", "what BOOTSTRAP.md says to the user who has claimed an instance: default, the text", map[string]string{"default": "", "": ""}, asIs, func(c *Config) *string { return &c.Fleet.Bootstrap }).in("fleet"),
	choiceKey("fleet_config_sync", "report", "what becomes of the configuration of an instance that differs: it is reported, or repaired", func(c *Config) *string { return &c.ConfigSync }, "report", "repair").in("fleet"),
	durationKey("fleet_idle_after", "7d", "an instance is idle after this time without a dialogue", func(c *Config) *time.Duration { return &c.Fleet.IdleAfter }).in("fleet"),
	pathKey("fleet_backup_dir", "directory of the backups of the job db_backup; empty: backups in the state directory", func(c *Config) *string { return &c.Fleet.Backup.Dir }).in("fleet"),
	durationKey("fleet_backup_keep", "7d", "how long a backup is kept", func(c *Config) *time.Duration { return &c.Fleet.Backup.Keep }).in("fleet"),
	checkedKey("litellm_url", "", "URL of the LiteLLM proxy whose virtual keys the instances use; empty: none", func(c *Config) *string { return &c.Fleet.LiteLLM.URL }, func(s string) (string, error) {
		if u, err := url.Parse(s); s != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return "", fmt.Errorf("%q is not a URL such as http://10.0.0.5:4000", s)
		}
		return s, nil
	}).in("litellm"),
	checkedKey("litellm_key_ref", "", "key of an administrator of that proxy: a file of mode 600 that has it, or env:NAME", func(c *Config) *string { return &c.Fleet.LiteLLM.KeyRef }, checkRef).in("litellm"),
	numberKey("litellm_alert_below", "10", 0, 1_000_000, "dollars that a key has left when the job key_balance_alert tells of it", func(c *Config) *int { return &c.Fleet.LiteLLM.AlertBelow }).in("litellm"),
})

// parseAuthor reads who commits.
func parseAuthor(s string) (a worktree.Author, err error) {
	if s == "" {
		return a, nil
	}
	at, err := mail.ParseAddress(s)
	if err != nil || at.Name == "" {
		return a, fmt.Errorf("%q is not a name with an address, such as stint <stint@localhost>", s)
	}
	return worktree.Author{Name: at.Name, Email: at.Address}, nil
}

// checkIsolation checks where tasks are to work.
func checkIsolation(s string) (string, error) {
	if _, ok := state.WorktreeBase(s); !ok && s != state.IsolationInPlace {
		return "", fmt.Errorf("%q is none of in-place, worktree and worktree=BASE", s)
	}
	return s, nil
}

// checkRef returns a reference to a secret: an absolute path, or env: and the name of a variable.
func checkRef(ref string) (string, error) {
	name, isVariable := strings.CutPrefix(ref, "env:")
	if ref != "" && !filepath.IsAbs(ref) && !(isVariable && variableName().MatchString(name)) {
		return "", fmt.Errorf("this is neither the absolute path of a file nor env:NAME; a secret itself does not stand here") // it may be one
	}
	return ref, nil
}

// readRef returns the secret that a reference names, from the environment of this process or a file that nobody else can read.
func readRef(ref string) (string, error) {
	if _, err := checkRef(ref); err != nil { // one from a request or the ledger was not checked
		return "", err
	}
	if name, isVariable := strings.CutPrefix(ref, "env:"); isVariable {
		if v := os.Getenv(name); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("the master has no variable %s in its environment", name)
	}
	text, err := readSecret(ref)
	return strings.TrimSpace(text), err
}

// usualSchedules returns the schedules of package fleet's jobs that nobody has configured otherwise.
func (c *Config) usualSchedules() (list []schedule.Schedule) {
	if len(c.Fleet.Servers) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(fleet.Usual)) {
		isKnown := slices.ContainsFunc(c.Schedules, func(s schedule.Schedule) bool { return s.Name == name || s.Job == name })
		if isKnown || c.Fleet.LiteLLM.URL == "" && (name == "token_usage_sync" || name == "key_balance_alert") {
			continue
		}
		s := schedule.Schedule{Name: name, Cron: fleet.Usual[name], Job: name, Origin: "default"}
		_, _ = s.Check(jobNames) // nothing is wrong with ours
		list = append(list, s)
	}
	return list
}

// perWorkspace lets the key stand in a workspace section.
func (k key) perWorkspace() key {
	k.workspace = true
	return k
}

func (k key) env() string { return "STINT_" + strings.ToUpper(k.name) }

func (k key) flag() string { return strings.ReplaceAll(cmp.Or(k.option, k.name), "_", "-") }

// as gives the key an option of another name.
func (k key) as(option string) key {
	k.option = option
	return k
}

// in has the key stand in a section of the file.
func (k key) in(section string) key {
	k.section = section
	return k
}

// short returns the key's name as it stands in its section.
func (k key) short() string { return strings.TrimPrefix(k.name, k.section+"_") }

// inFile returns the key's name as the file has it, such as max_workers or postgres.url.
func (k key) inFile() string { return strings.TrimPrefix(k.section+"."+k.short(), ".") }

// put sets a key from one layer and remembers the origin. A value from a lower
// layer than the present one is checked and not taken.
func (c *Config) put(k *key, o origin) error {
	if have, ok := c.origins[k.name]; ok && have.layer > o.layer {
		scratch := *c
		return k.set(&scratch, o.text)
	}
	if err := k.set(c, o.text); err != nil {
		return err
	}
	c.origins[k.name] = o
	return nil
}

func (c *Config) isDefault(name string) bool { return c.origins[name].layer == layerDefault }

// findKey returns the key of that name, nil if there is none.
func findKey(name string) *key { return find(keys, func(k *key) bool { return k.name == name }) }

// keyInFile returns the key that the file has under that name, nil if there is none.
func keyInFile(name string) *key { return find(keys, func(k *key) bool { return k.inFile() == name }) }

// nearestKey returns the key that name was probably meant to be; "" if there is none.
func nearestKey(name string) string {
	known := mapped(keys, func(k *key) string { return k.inFile() })
	return cmp.Or(state.Nearest(name, known), state.Nearest(task.WithUnderscores(name), known))
}

// readList reads a list: as TOML has it, or with commas between its members. check is asked about each of these.
func readList(s string, check func(member string) error) ([]string, error) {
	list, members := strings.Split(s, ","), []string{}
	if strings.HasPrefix(s, "[") {
		var v struct{ V []string }
		if _, err := toml.Decode("V = "+s, &v); err != nil {
			return nil, fmt.Errorf(`%q is no list such as ["a", "b"]`, s)
		}
		list = v.V
	}
	for _, member := range list {
		if member = strings.TrimSpace(member); member == "" {
			continue
		}
		if err := check(member); err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	return members, nil
}

func checkAccountID(s string) error {
	if !accountID().MatchString(s) {
		return fmt.Errorf("%q cannot be the id of an account: use letters, digits, dashes and underscores", s)
	}
	return nil
}

func checkVariable(s string) error {
	if strings.ContainsAny(s, "= \x00\n") {
		return fmt.Errorf("%q is not the name of an environment variable; values are taken from the master's environment", s)
	}
	return nil
}

func checkAgent(s string) error {
	if !slices.Contains(agentNames, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(agentNames, ", "))
	}
	return nil
}

// checkNotes looks at a path of notes, or a pattern of paths, which must lie below the workspace.
func checkNotes(p string) error {
	if !filepath.IsLocal(p) {
		return fmt.Errorf("%q does not lie below the workspace; write for example docs/*.md", p)
	}
	if _, err := path.Match(p, ""); err != nil {
		return fmt.Errorf("%q is no pattern: a [ is not closed", p)
	}
	return nil
}

// checkRule looks at a permission rule of a CLI, such as "Edit" or "Bash(git log:*)".
func checkRule(s string) error {
	if strings.Contains(s, "(") != strings.HasSuffix(s, ")") {
		return fmt.Errorf(`the parentheses of %q do not match; write a rule as "Bash(go test *)", and a list with a comma in a rule as ["Bash(a, b)"]`, s)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%q has a control character", s)
	}
	return nil
}

func checkAllow(s string) error {
	_, err := task.ParseRule(s)
	return cmp.Or(checkRule(s), err)
}

// agentKeys returns the keys of the settings of agents, whose values stand in Config.agents.
func agentKeys() (list []key) {
	for _, kind := range agentKinds {
		for _, s := range kind.Settings {
			name := kind.Name + "_" + s.Name
			var k key
			switch def := s.Default.(type) {
			case bool:
				k = boolKey(name, strconv.FormatBool(def), s.Help, func(c *Config) *bool { return &c.AutoStart })
			case int:
				k = numberKey(name, strconv.Itoa(def), 0, s.Most, s.Help, func(c *Config) *int { return &c.MaxWorkers })
			case []string:
				k = listKey(name, "", s.Help, func(c *Config) *[]string { return &c.Env }, checkRule)
			case string:
				k = textKey(name, def, s.Help, func(c *Config) *string { return &c.Agent })
				if len(s.Choices) > 0 {
					k = choiceKey(name, def, s.Help, func(c *Config) *string { return &c.Agent }, s.Choices...)
				}
			}
			set, get := k.set, k.get
			k.workspace = s.Workspace
			k.set = func(c *Config, text string) error {
				var scratch Config // it only takes the value for a moment
				if err := set(&scratch, text); err != nil {
					return err
				}
				values := map[string]any{} // c may be a copy of a Config that is in use
				maps.Copy(values, c.agents)
				values[name] = get(&scratch)
				c.agents = values
				return nil
			}
			k.get = func(c *Config) any { return c.agents[name] }
			list = append(list, k)
		}
	}
	return list
}

// A danger is a setting with which an agent can do anything that the user can do.
type danger struct{ key, value, instead string }

func dangers() (list []danger) {
	for _, kind := range agentKinds {
		for _, s := range kind.Settings {
			if s.Danger != "" {
				list = append(list, danger{kind.Name + "_" + s.Name, s.Danger, s.Instead})
			}
		}
	}
	return list
}

// check returns what is wrong with settings that belong together.
func (c *Config) check() error {
	if c.BackoffBase > c.BackoffMax {
		return fmt.Errorf("backoff_base (%s) is longer than backoff_max (%s)", task.FormatLimit(c.BackoffBase), task.FormatLimit(c.BackoffMax))
	}
	if c.Fleet.LiteLLM.URL != "" && c.Fleet.LiteLLM.KeyRef == "" {
		return fmt.Errorf("%s: litellm.url needs litellm.key_ref, the key of an administrator, beside it", c.origins["litellm_url"].where)
	}
	if c.HeartbeatInterval <= 0 {
		return fmt.Errorf("heartbeat_interval must be longer than 0")
	}
	if c.PostgresURL != "" && c.PostgresURLFile != "" {
		return fmt.Errorf("%s: %s and %s (%s) exclude each other", c.origins["postgres_url"].where,
			findKey("postgres_url").inFile(), findKey("postgres_url_file").inFile(), c.origins["postgres_url_file"].where)
	}
	if d := find(dangers(), func(d *danger) bool { return c.agents[d.key] == d.value }); d != nil && !c.AllowDangerous {
		return fmt.Errorf("%s: %s is %s, with which the agent can do whatever you can; use %s, or permit it with allow_dangerous = true",
			c.origins[d.key].where, d.key, d.value, d.instead)
	}
	return nil
}

// maxDocument is the largest file that a setting may name, in bytes.
const maxDocument = 64 << 10

// documentKey is a text, a word that stands for one, or @FILE, which is read at once.
func documentKey[T any](name, def, help string, words map[string]string, parse func(text string) (T, error), field func(*Config) *T) key {
	k := valueKey(kindText, name, def, help+", or @FILE", field, func(value string) (v T, err error) {
		path, isFile := strings.CutPrefix(value, "@")
		text, isWord := words[value]
		if isFile {
			text, err = readDocument(path)
		} else if !isWord {
			text = value
		}
		if err != nil {
			return v, err
		}
		if v, err = parse(text); err != nil && isFile {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return v, err
	}, same)
	k.get = func(c *Config) any { return c.origins[name].text }
	return k
}

// checked returns a parser that takes a text as it is if it passes a check.
func checked(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

func asIs(text string) (string, error) { return text, nil }

func readDocument(path string) (string, error) {
	path, err := expandHome(path)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is not an absolute path; write @/path/of/the/file", path)
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	data, err := readNamed(path, maxDocument)
	if err != nil {
		return "", err
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", fmt.Errorf("%s is no text in UTF-8", path)
	}
	return string(data), nil
}

// noFollowUp are the words for no follow-up.
var noFollowUp = map[string]string{"off": "", "none": "", "": ""}

// parseTrigger reads the name of a session, or a word for none.
func parseTrigger(s string) (string, error) {
	if _, isNone := noFollowUp[s]; isNone {
		return "", nil
	}
	return s, task.CheckSessionKey(s)
}

var evaluations = map[string]string{"off": "", "none": "", "": "", "default": attempt.DefaultEvaluation}

// valueKey is a setting whose text parse checks and reads, and show writes.
func valueKey[T, S any](kind kind, name, def, help string, field func(*Config) *T, parse func(string) (T, error), show func(T) S) key {
	return key{
		name: name, def: def, help: help, kind: kind,
		set: func(c *Config, s string) error {
			v, err := parse(s)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		get:   func(c *Config) any { return show(*field(c)) },
		typed: func(string) error { return nil },
	}
}

func same[T any](v T) T { return v }

// checkedKey is a text that check returns as it is to be, or refuses.
func checkedKey(name, def, help string, field func(*Config) *string, check func(string) (string, error)) key {
	return valueKey(kindText, name, def, help, field, check, same)
}

func textKey(name, def, help string, field func(*Config) *string) key {
	return checkedKey(name, def, help, field, asIs)
}

// pathKey is a text that must be an absolute path or empty; ~/ is the home.
func pathKey(name, help string, field func(*Config) *string) key {
	return checkedKey(name, "", help, field, checkPath)
}

func checkPath(s string) (string, error) {
	s, err := expandHome(s)
	if err == nil && s != "" && !filepath.IsAbs(s) {
		err = fmt.Errorf("%q is not an absolute path", s)
	}
	return s, err
}

// checkNote returns the path of a note below a workspace, or "".
func checkNote(s string) (string, error) {
	switch clean := filepath.Clean(s); {
	case s == "":
		return "", nil
	case !filepath.IsLocal(s) || strings.HasPrefix(s, "~") || clean == "." || strings.HasSuffix(s, "/") || slices.Contains(strings.Split(clean, "/"), ".git"):
		return "", fmt.Errorf("%q is not the path of a note below the workspace; write one such as %s", s, memory.DefaultLessons)
	default:
		return clean, nil
	}
}

const httpOff = "off"

// checkHTTP returns an address of this machine alone, or off.
func checkHTTP(s string) (string, error) {
	if s == httpOff {
		return s, nil
	}
	return s, guard.CheckLoopback(s)
}

func choiceKey(name, def, help string, field func(*Config) *string, choices ...string) key {
	return checkedKey(name, def, help, field, func(s string) (string, error) {
		if slices.Contains(choices, s) {
			return s, nil
		}
		named := slices.DeleteFunc(slices.Clone(choices), func(s string) bool { return s == "" })
		return "", fmt.Errorf("%q is not one of %s", s, strings.Join(named, ", "))
	})
}

func numberKey(name, def string, low, high int, help string, field func(*Config) *int) key {
	return valueKey(kindNumber, name, def, help, field, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, low, high)
		}
		return n, nil
	}, same)
}

func durationKey(name, def, help string, field func(*Config) *time.Duration) key {
	return valueKey(kindDuration, name, def, help, field, parseDuration, task.FormatLimit)
}

// budgetKey is what may be spent; without it any amount.
func budgetKey(name, help string, field func(*Config) *string) key {
	return checkedKey(name, "", help, field, checked(func(s string) error { _, err := limits.ParseBudget(s); return err }))
}

// sizeKey is a number of bytes, with a unit such as in 64MiB or without.
func sizeKey(name, def string, most int64, help string, field func(*Config) *int64) key {
	return valueKey(kindSize, name, def, help, field, func(s string) (int64, error) {
		number, unit := s, int64(1)
		for _, u := range sizeUnits {
			if n, ok := strings.CutSuffix(s, u.name); ok {
				number, unit = strings.TrimSpace(n), u.bytes
				break
			}
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > most/unit {
			return 0, fmt.Errorf("%q is not a size such as 64MiB, from 0 to %s", s, shortSize(most))
		}
		return n * unit, nil
	}, shortSize)
}

const maxSize = 1 << 50

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// shortSize returns a size with the largest unit that loses nothing.
func shortSize(n int64) string {
	for _, u := range sizeUnits {
		if n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

func boolKey(name, def, help string, field func(*Config) *bool) key {
	return valueKey(kindBool, name, def, help, field, func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("%q is not true or false", s)
		}
		return b, nil
	}, same)
}

// listKey is a list of texts, each of which check looks at.
func listKey(name, def, help string, field func(*Config) *[]string, check func(string) error) key {
	return valueKey(kindList, name, def, help, field, func(s string) ([]string, error) { return readList(s, check) }, same)
}
