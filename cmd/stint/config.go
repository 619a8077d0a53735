package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/notify"
	"stint/coordinator/queue"
	"stint/coordinator/schedule"
	"stint/coordinator/task"
	"stint/memory"
	"stint/prompt"
	"stint/state"
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
	PostgresURL                   string // of the mirror; may have a password
	PostgresURLFile               string // a file that has it instead
	PostgresPoolSize              int
	PostgresInline                int64 // bytes
	PostgresOutput                int   // characters
	PostgresHost                  string
	Notify                        []notify.Block
	Schedules                     []schedule.Schedule
	MaxScheduled                  int

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
	typed     func(text string) error  // what is asked of it besides on a command line; nil: nothing
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
	kindPaths    kind = "a list of paths" // which may have commas where they come from the file
	kindSize     kind = `a size such as "64MiB"`
)

// keys is the table of all settings, in the order in which they are shown.
var keys = slices.Concat([]key{
	pathKey("workspace_root", "directory of tasks without -C; empty: the directory of the call", func(c *Config) *string { return &c.WorkspaceRoot }),
	pathKey("work_dir", "directory below which tasks with --workdir temp have their own; empty: stint/work in $XDG_DATA_HOME", func(c *Config) *string { return &c.WorkDir }),
	boolKey("cleanup", "true", "remove these directories after the end of their tasks", func(c *Config) *bool { return &c.Cleanup }),
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
	boolKey("allow_dangerous", "false", "permit "+strings.Join(dangerous(), ", "), func(c *Config) *bool { return &c.AllowDangerous }),
	listKey("fallback", "", "agents that take over, in this order, while a task's own agent is rate-limited", func(c *Config) *[]string { return &c.Fallback }, splitAgents),
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
	valueKey(kindPaths, "memory_paths", "", "notes of a workspace that are searched for each prompt: files, directories or patterns below it; empty: MEMORY.md and memory/*.md", func(c *Config) *[]string { return &c.MemoryPaths }, splitPaths, same).perWorkspace(),
	numberKey("max_memory_hits", "8", 0, 1000, "lines of notes that a prompt gets at most; 0: none", func(c *Config) *int { return &c.MaxMemoryHits }).perWorkspace(),
	numberKey("max_memory_chars", "4000", 0, 1000000, "characters of them", func(c *Config) *int { return &c.MaxMemoryChars }).perWorkspace(),
	documentKey("self_eval_prompt", "off", "prompt of the agent that judges each answer: off, default, the text", evaluations, asIs, func(c *Config) *string { return &c.EvalPrompt }).perWorkspace(),
	numberKey("self_eval_max_chars", "2000", 0, 1000000, "characters of the lessons that one judgement leaves; 0: no limit", func(c *Config) *int { return &c.EvalMaxChars }).perWorkspace(),
	checkedKey("self_eval_memory_path", memory.DefaultLessons, "file of the workspace to which lessons are added; empty: none", func(c *Config) *string { return &c.LessonsPath }, checkNote).perWorkspace(),
	choiceKey("checkout", "shared", "shared: tasks of several sessions may run in one git checkout at a time; exclusive: one task at a time", func(c *Config) *string { return &c.Checkout }, "shared", queue.CheckoutExclusive).perWorkspace(),
	textKey("verify_command", "", "shell command that must pass after each run of a task", func(c *Config) *string { return &c.VerifyCommand }).perWorkspace(),
	durationKey("verify_timeout", "10m", "longest run of a verify command; 0: no limit", func(c *Config) *time.Duration { return &c.VerifyTimeout }).perWorkspace(),
	numberKey("max_iterations", "3", 1, task.MaxIterations, "iterations of agent and verify command", func(c *Config) *int { return &c.MaxIterations }).perWorkspace(),
	listKey("allow", "", "what tasks may permit their agents with --allow: rules such as \"Bash(go test *)\"; empty: nothing", func(c *Config) *[]string { return &c.Allow }, splitAllow).perWorkspace(),
	choiceKey("denied", "finding", "what becomes of a task whose agent was denied a tool: finding: it gets a finding; fail: it fails", func(c *Config) *string { return &c.Denied }, "finding", attempt.DeniedFails).perWorkspace(),
	documentKey("trigger_on_failure_prompt", "off", "prompt of the task that is queued when one fails: off, or a template", noFollowUp, checked(admission.CheckTemplate), func(c *Config) *string { return &c.OnFailure }).perWorkspace(),
	documentKey("trigger_on_issue_prompt", "off", "prompt of the task that is queued when there are findings about an answer: off, or a template", noFollowUp, checked(admission.CheckTemplate), func(c *Config) *string { return &c.OnIssue }).perWorkspace(),
	valueKey(kindText, "trigger_session_key", "off", "session of follow-ups; off: a new one each time, in the lane of the directory", func(c *Config) *string { return &c.TriggerSession }, parseTrigger, func(s string) string { return cmp.Or(s, "off") }).perWorkspace(),
	numberKey("follow_up_depth", "1", 0, 100, "longest chain of follow-ups; 0: no task queues another", func(c *Config) *int { return &c.FollowUpDepth }),
	numberKey("max_follow_ups", "10", 0, 100000, "how many follow-ups a task may have, and how many tasks its agent may queue", func(c *Config) *int { return &c.MaxFollowUps }),
	sizeKey("compact_size", "64MiB", maxSize, "the master compacts the ledger when journal.md is larger, if half of it can go; 0: never", func(c *Config) *int64 { return &c.CompactSize }),
	durationKey("compact_older_than", "30d", "compaction archives tasks that ended longer ago", func(c *Config) *time.Duration { return &c.CompactOlderThan }),
	durationKey("retention", "30d", "how long the files of a run and the transcript of a session stay after the task's end; 0: no limit", func(c *Config) *time.Duration { return &c.Retention }),
	sizeKey("retention_size", "5GiB", maxSize, "room for all of them; when there is more, the oldest of ended tasks go; 0: no limit", func(c *Config) *int64 { return &c.RetentionSize }),
	durationKey("heartbeat_interval", "10s", "time between two writes of heartbeat.json", func(c *Config) *time.Duration { return &c.HeartbeatInterval }),
	pathKey("heartbeat_path", "heartbeat file; empty: heartbeat.json in the state directory", func(c *Config) *string { return &c.HeartbeatPath }),
	checkedKey("http", "127.0.0.1:7433", "HTTP address of stint serve, on this machine only, such as localhost:7433; 127.0.0.1, [::1] and localhost each mean both; or off", func(c *Config) *string { return &c.HTTP }, checkHTTP),
	choiceKey("log_level", "info", "what the master logs", func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
	choiceKey("log_format", "text", "how the master logs; by default json in master.log", func(c *Config) *string { return &c.LogFormat }, "text", "json"),
	listKey("capture_env", captureDefault, "variables of your shell, by name or as NAME*, that a task's programs get, but never secrets: default, none, more names", func(c *Config) *[]string { return &c.CaptureEnv }, splitNames),
	listKey("env", "", "more environment variables that agents get, by name", func(c *Config) *[]string { return &c.Env }, splitNames),
	postgresURLKey(),
	urlFileKey("postgres_url_file", "file of mode 600 that holds this URL; it is read for each connection", func(c *Config) *string { return &c.PostgresURLFile }).in("postgres"),
	numberKey("postgres_pool_size", "10", 1, 1000, "connections to it at most", func(c *Config) *int { return &c.PostgresPoolSize }).in("postgres"),
	sizeKey("postgres_inline_threshold", "1MiB", maxInline, "size up to which files are copied whole; of larger ones path and hash", func(c *Config) *int64 { return &c.PostgresInline }).in("postgres"),
	numberKey("postgres_stdout_limit", "10000", 0, 10_000_000, "characters of a run's output and of its errors that are copied", func(c *Config) *int { return &c.PostgresOutput }).in("postgres"),
	checkedKey("postgres_host", "", "host name under which the mirror keeps these tasks; empty: the name of this machine", func(c *Config) *string { return &c.PostgresHost }, checkHost).in("postgres"),
})

// perWorkspace lets the key stand in a workspace section.
func (k key) perWorkspace() key {
	k.workspace = true
	return k
}

func (k key) env() string { return "STINT_" + strings.ToUpper(k.name) }

func (k key) flag() string { return strings.ReplaceAll(cmp.Or(k.option, k.name), "_", "-") }

// in has the key stand in a section of the file.
func (k key) in(section string) key {
	k.section = section
	return k
}

// inFile returns the key's name as the file has it, such as max_workers or postgres.url.
func (k key) inFile() string {
	if k.section == "" {
		return k.name
	}
	return k.section + "." + strings.TrimPrefix(k.name, k.section+"_")
}

// put sets a key from one layer and remembers the origin. A value from a lower
// layer than the present one is checked and not taken.
func (c *Config) put(k *key, text string, o origin) error {
	if have, ok := c.origins[k.name]; ok && have.layer > o.layer {
		scratch := *c
		return k.set(&scratch, text)
	}
	if err := k.set(c, text); err != nil {
		return err
	}
	o.text = text
	c.origins[k.name] = o
	return nil
}

func (c *Config) isDefault(name string) bool { return c.origins[name].layer == layerDefault }

// findKey returns the key of that name, nil if there is none.
func findKey(name string) *key {
	if i := slices.IndexFunc(keys, func(k key) bool { return k.name == name }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// nearestKey returns the key that name was probably meant to be, in the same section; "" if there is none.
func nearestKey(name string) string {
	section, _ := cutSection(name)
	bare := func(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s)) }
	if i := slices.IndexFunc(keys, func(k key) bool { return bare(k.inFile()) == bare(name) }); i >= 0 {
		return keys[i].inFile() // maxWorkers
	}
	var known []string
	for _, k := range keys {
		for _, full := range []string{k.inFile(), k.section} {
			if in, short := cutSection(full); in == section && short != "" {
				known = append(known, full)
			}
		}
	}
	return state.Nearest(name, known)
}

func cutSection(name string) (section, short string) {
	if section, short, ok := strings.Cut(name, "."); ok {
		return section, short
	}
	return "", name
}
