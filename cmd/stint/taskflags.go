package main

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stint/coordinator/admission"
	"stint/coordinator/task"
	"stint/state"
)

// taskOptions are the options of `stint task` and of the commands that are made of it.
type taskOptions struct {
	spec   task.TaskSpec
	detach bool
	dryRun bool
	edit   bool
	inside bool // --allow-state-in-workspace
	dir    string
	at     string
	delay  string
	inputs []string // paths of input files
	file   string   // --spec
	base   string   // --worktree
}

// headBase is the base of a worktree that is made from what is checked out.
const headBase = "HEAD"

// addFlags adds the options of a new task.
func (o *taskOptions) addFlags(a *app, c *cobra.Command) {
	f, s := c.Flags(), &o.spec
	a.withIDs(c)
	f.StringVar(&s.SessionKey, "session", "", "`name` of a session: its tasks run in order, and each resumes the last")
	f.BoolVarP(&s.Continue, "continue", "c", false, "continue the last session of this directory")
	f.BoolVar(&s.Parallel, "parallel", false, "run beside other tasks of this directory")
	f.StringVar(&s.Resume, "resume", "", "`when` to resume the agent's session: auto, always or never")
	f.StringVar(&s.Agent, "agent", "", "`name` of the agent: "+strings.Join(cliNames, ", ")+" or "+builtIn)
	f.StringSliceVar(&s.Fallback, "fallback", nil, "`agents` that take over when this one is rate-limited; none: no other")
	f.StringVar(&s.Account, "account", "", "`name` of the account")
	f.StringVarP(&o.dir, "directory", "C", "", "the agent's working `directory`")
	f.StringVar(&s.Isolation, "workdir", "", "`where` the agent works: in-place, worktree, or temp: an empty directory of its own, removed after the end")
	f.StringVar(&o.base, "worktree", "", "work in a git worktree of the session, or of the task if it has none, made from --worktree=`BASE`, with the =, or what is checked out (stint help worktrees)")
	f.Lookup("worktree").NoOptDefVal = headBase
	f.StringVar(&s.AgentSession, "agent-session", "", "`id` of the agent's own session to resume")
	o.addCommonFlags(a, c)
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be run, with the exact prompt, and run nothing")
	f.StringVar(&o.file, "spec", "", "`file` with tasks as JSON, an object or an array; - for stdin")
	exclusive(c, "dry-run", "quiet")
	exclusive(c, "parallel", "session")
	exclusive(c, "workdir", "worktree")
	exclusive(c, "parallel", "continue")
	exclusive(c, "spec", "edit")
	a.completeTask(c)
}

// addCommonFlags adds the options that `stint send` has, too.
func (o *taskOptions) addCommonFlags(a *app, c *cobra.Command) {
	f, s := c.Flags(), &o.spec
	f.StringVar(&s.Model, "model", "", "`model`, as the agent's CLI knows it")
	f.StringVar(&s.Timeout, "timeout", "", "longest run: a `duration` such as 30m")
	f.IntVar(&s.Priority, "priority", 0, "which session or directory goes first: a `number` from 1 to 9, 9 first; within one, see stint move")
	f.StringVar(&o.at, "at", "", "not before this `time`: 15:04 (the next one), \"tomorrow 9:00\", \"2006-01-02 15:04\" or RFC 3339; what has passed is refused")
	f.StringVar(&o.delay, "delay", "", "not before this `duration` has passed, such as 2h")
	f.StringSliceVar(&s.After, "after", nil, "not before these tasks are done: `ids`, separated by commas")
	f.StringVar(&s.AfterPolicy, "after-policy", "", "`what` --after waits for: done, or any end")
	f.BoolVar(&s.Hold, "hold", false, "not before stint release")
	f.StringArrayVar(&o.inputs, "input-file", nil, "`file` that the agent is given to read; may be repeated")
	f.StringArrayVar(&s.OutputSpec, "output-spec", nil, "`path` of a file to collect from the working directory afterwards; may be repeated")
	f.StringArrayVar(&s.Allow, "allow", nil, "`rule` that permits the agent more, such as 'Bash(go test *)'; allow of the configuration must cover it (default: nothing); may be repeated")
	f.StringVar(&s.Label, "label", "", "free `text` to filter lists by")
	f.BoolVar(&s.Notify, "notify", false, "notify you how it ends, through every [[notify]] of the configuration")
	f.StringVar(&s.TenantID, "tenant", "", "`name` of whom the task is for, to filter lists by")
	f.StringVar(&s.Queue, "queue", "", "`name` of a queue: lists can be filtered by it, and [queue.NAME] bounds how many of its tasks run")
	f.StringVar(&s.IdempotencyKey, "idempotency-key", "", "`key` under which this task is made once only")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0, "`number` of tries before the task is given up")
	f.StringVar(&s.VerifyCommand, "verify", "", "`command` for the shell that must pass after the run; none: not the configured one")
	f.IntVar(&s.MaxIterations, "max-iterations", 0, "`number` of iterations of agent and verify command, by default max_iterations (3)")
	f.StringVar(&s.VerifyTimeout, "verify-timeout", "", "longest run of the verify command: a `duration` such as 5m, by default verify_timeout (10m)")
	f.StringVar(&s.OnFailure, "on-failure", "", "`prompt`, a template or @FILE, of a task to queue if this one fails; none: not the configured one")
	f.StringVar(&s.OnIssue, "on-issue", "", "`prompt`, a template or @FILE, of a task to queue if there are findings about the answer")
	f.StringVar(&s.OutputPolicy, "policy", "", "`how` the answer is to look: brief (at most six lines), final (as long as it takes), none, or @FILE; by default output_policy (brief)")
	f.StringVar(&s.Budget, "budget", "", "`amount` that its runs may spend in all: 5usd, 200ktok, 90m, or several")
	f.BoolVar(&s.Spare, "spare", false, "run only on quota that would otherwise lapse")
	f.BoolVar(&s.NoWaitLimit, "no-wait-limit", false, "fail (exit 75) instead of waiting for a rate limit to pass")
	f.BoolVar(&o.edit, "edit", false, "write the prompt with $VISUAL or $EDITOR")
	f.BoolVar(&o.inside, "allow-state-in-workspace", false, "run although the agent can write the state directory")
	a.withJSON(c)
	exclusive(c, "at", "delay")
}

// place fills in a task's directory, agent and id, where neither options nor spec name them.
func (a *app) place(o *taskOptions, s *task.TaskSpec) error {
	s.Workspace = cmp.Or(s.Workspace, o.dir)
	if a.shared { // nothing of this machine counts
		return admission.CheckFields(s)
	}
	if s.Shared {
		return usage("stint enqueue --shared --spec FILE", "the spec is of a task for the shared queue")
	}
	base, err := a.base()
	if err != nil {
		return err
	}
	if s.Notify && len(base.Notify) == 0 {
		return usage("stint help configuration", "--notify needs a [[notify]] block in %s, and there is none", base.file)
	}
	if s.Isolation != state.IsolationTemp || s.Workspace != "" {
		s.Workspace, err = workspace(s.Workspace, base.WorkspaceRoot)
	}
	if err != nil {
		return err
	}
	if s.AllowStateInWorkspace = s.AllowStateInWorkspace || o.inside; !s.AllowStateInWorkspace {
		state, err := a.state()
		if err == nil {
			err = checkOutside(state, s.Workspace)
		}
		if err != nil {
			return err
		}
	}
	s.DefaultAgent = base.forWorkspace(s.Workspace).Agent
	if s.ID == "" {
		id, err := uuid.NewV7() // ours, so that a request that is sent twice makes one task
		s.ID = id.String()
		return err
	}
	return nil
}

// check checks the options, and reads those that are times or files.
func (o *taskOptions) check(c *cobra.Command, now time.Time) (err error) {
	s := &o.spec
	try := c.CommandPath() + " --help"
	// An option without a value is most likely a script's variable that is not set; and
	// without its key, say, the task would be made twice. Prompts have a message of their own.
	c.Flags().Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case err != nil || f.Name == "prompt":
		case value == "" || value == "[]" && f.Value.Type() != "string": // [] is a list without members
			err = usage("give it a value, or leave it out", "--%s is empty", f.Name)
		case value == "0" && f.Value.Type() == "int":
			err = usage("give it another value, or leave it out", "--%s cannot be 0", f.Name)
		}
	})
	if err != nil {
		return err
	}
	if o.base == headBase {
		s.Isolation = state.IsolationWorktree
	} else if o.base != "" {
		s.Isolation = state.IsolationWorktree + "=" + o.base
	}
	for _, limit := range []*string{&s.Timeout, &s.VerifyTimeout} {
		if d, err := parseDuration(*limit); err == nil {
			*limit = task.FormatLimit(d)
		}
	}
	for option, text := range map[string]*string{"on-failure": &s.OnFailure, "on-issue": &s.OnIssue, "policy": &s.OutputPolicy} {
		given := *text
		if *text, err = textOrFile(given); err == nil && *text == "" && given != "" {
			err = errors.New("the file has no text")
		}
		if err != nil {
			message, hint := explain(err)
			return usage(cmp.Or(hint, try), "--%s: %s", option, message)
		}
	}
	if o.at != "" {
		if s.NotBefore, err = parseAt(o.at, now); err != nil {
			return usage(try, "--at %v", err)
		}
	}
	if o.delay != "" {
		d, err := parseDuration(o.delay)
		if err != nil {
			return usage(try, "--delay %v", err)
		}
		s.NotBefore = now.Add(d)
	}
	if s.InputFiles, err = readInputs(o.inputs); err != nil {
		return err
	}
	return admission.CheckFields(s)
}
