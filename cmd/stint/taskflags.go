package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stint/coordinator/admission"
	"stint/coordinator/task"
)

// taskOptions are the options of `stint task` and of the commands that are made
// of it.
type taskOptions struct {
	spec   task.TaskSpec
	detach bool
	dryRun bool
	quiet  bool
	json   bool
	edit   bool
	inside bool // --allow-state-in-workspace
	dir    string
	at     string
	delay  string
	inputs []string // paths of input files
	file   string   // --spec
	prompt string   // --prompt
}

// addFlags adds the options of a new task.
func (o *taskOptions) addFlags(c *cobra.Command) {
	f, s := c.Flags(), &o.spec
	quietFlag(c, &o.quiet)
	f.StringVar(&s.SessionKey, "session", "", "`name` of a session: its tasks run in order, and each resumes the last")
	f.BoolVarP(&s.Continue, "continue", "c", false, "go on with the last session of this directory")
	f.BoolVar(&s.Parallel, "parallel", false, "run beside other tasks of this directory")
	f.StringVar(&s.Resume, "resume", "", "`when` to resume the agent's session: auto, always or never")
	f.StringVar(&s.Agent, "agent", "", "`name` of the agent: "+strings.Join(cliNames, ", ")+" or "+builtIn)
	f.StringVar(&s.Agent, "tool", "", "`name` of the agent: the same as --agent")
	f.StringSliceVar(&s.Fallback, "fallback", nil, "`agents` that take over when this one is rate-limited; none: no other")
	f.StringVar(&s.Account, "account", "", "`name` of the account")
	f.StringVarP(&o.dir, "directory", "C", "", "the agent's working `directory`")
	f.StringVar(&s.AgentSession, "agent-session", "", "`id` of the agent's own session to resume")
	o.addCommonFlags(c)
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be run, with the exact prompt, and run nothing")
	f.StringVar(&o.file, "spec", "", "`file` with tasks as JSON, an object or an array; - for stdin")
	f.StringVar(&o.prompt, "prompt", "", "the `prompt`, as an option")
	for _, name := range []string{"tool", "prompt"} {
		f.Lookup(name).Hidden = true // names of other schedulers
	}
	exclusive(c, "agent", "tool")
	exclusive(c, "dry-run", "quiet")
	exclusive(c, "parallel", "session")
	exclusive(c, "parallel", "continue")
	exclusive(c, "spec", "prompt", "edit")
}

// addCommonFlags adds the options that `stint send` has, too.
func (o *taskOptions) addCommonFlags(c *cobra.Command) {
	f, s := c.Flags(), &o.spec
	f.StringVar(&s.Model, "model", "", "`model`, as the agent's CLI knows it")
	f.StringVar(&s.Timeout, "timeout", "", "longest run: a `duration` such as 30m")
	f.IntVar(&s.Priority, "priority", 0, "a `number` from 1 to 9, 9 first")
	f.StringVar(&o.at, "at", "", "not before this `time`: 15:04, \"2006-01-02 15:04\" or RFC 3339")
	f.StringVar(&o.delay, "delay", "", "not before this `duration` has passed, such as 2h")
	f.StringSliceVar(&s.After, "after", nil, "not before these tasks are done: `ids`, separated by commas")
	f.StringVar(&s.AfterPolicy, "after-policy", "", "`what` --after waits for: done, or any end")
	f.BoolVar(&s.Hold, "hold", false, "not before stint release")
	f.StringArrayVar(&o.inputs, "input-file", nil, "`file` that the agent is given to read; may be repeated")
	f.StringArrayVar(&s.OutputSpec, "output-spec", nil, "`path` of a file to collect from the working directory afterwards; may be repeated")
	f.StringVar(&s.Label, "label", "", "free `text` to filter lists by")
	f.StringVar(&s.TenantID, "tenant", "", "likewise, for `whom` the task is")
	f.StringVar(&s.Queue, "queue", "", "likewise, a queue's `name`")
	f.StringVar(&s.IdempotencyKey, "idempotency-key", "", "`key` under which this task is made once only")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0, "`number` of tries before the task is given up")
	f.StringVar(&s.VerifyCommand, "verify", "", "`command` for the shell that must pass after the run; none: not the configured one")
	f.IntVar(&s.MaxIterations, "max-iterations", 0, "`number` of rounds of agent and verify command, by default max_iterations (3)")
	f.StringVar(&s.VerifyTimeout, "verify-timeout", "", "longest run of the verify command: a `duration` such as 5m, by default verify_timeout (10m)")
	f.StringVar(&s.OnFailure, "on-failure", "", "`prompt`, a template or @FILE, of a task to queue if this one fails; none: not the configured one")
	f.StringVar(&s.OnIssue, "on-issue", "", "likewise, if there are findings about its answer: a `prompt`")
	f.BoolVar(&s.NoWaitLimit, "no-wait-limit", false, "fail (exit 75) instead of waiting for a rate limit to pass")
	f.BoolVar(&o.edit, "edit", false, "write the prompt with $VISUAL or $EDITOR")
	f.BoolVar(&o.inside, "allow-state-in-workspace", false, "run although the agent can write the state directory")
	jsonFlag(c, &o.json)
	exclusive(c, "at", "delay")
}

// promptSource says where the prompt comes from. The caller adds stdin and editor.
func (o *taskOptions) promptSource(c *cobra.Command, args []string) (promptSource, error) {
	p := promptSource{args: args, literal: c.ArgsLenAtDash() >= 0, edit: o.edit}
	if !c.Flags().Changed("prompt") {
		return p, nil
	}
	if len(args) > 0 {
		return p, usage(c.CommandPath()+" --help", "the prompt is given twice: by --prompt, and as %q", clip(args[0], 40))
	}
	p.args = []string{o.prompt}
	return p, nil
}

// completeSpec fills what comes from the options' texts and the configuration,
// and checks all that can be checked without a master.
func (a *app) completeSpec(c *cobra.Command, o *taskOptions, now time.Time) error {
	if err := o.check(c, now); err != nil {
		return err
	}
	return a.place(o, &o.spec)
}

// place fills in a task's directory, agent and id: what neither the options nor its
// spec have named comes from the configuration.
func (a *app) place(o *taskOptions, s *task.TaskSpec) error {
	base, err := a.base()
	if err != nil {
		return err
	}
	if s.Workspace == "" {
		s.Workspace = o.dir
	}
	if s.Workspace, err = workspace(s.Workspace, base.WorkspaceRoot); err != nil {
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
	if err := checkNotEmpty(c); err != nil {
		return err
	}
	if c.Flags().Changed("session") {
		if err := task.CheckSessionKey(s.SessionKey); err != nil {
			return err
		}
	}
	if err := o.checkGiven(c.Flags().Changed, try); err != nil {
		return err
	}
	for option, limit := range map[string]*string{"timeout": &s.Timeout, "verify-timeout": &s.VerifyTimeout} {
		if *limit == "" {
			continue
		}
		d, err := parseDuration(*limit)
		if err != nil || d == 0 {
			return usage(try, "--%s %q is not a duration such as 90s, 30m or 2h", option, *limit)
		}
		*limit = shortDuration(d)
	}
	for option, text := range map[string]*string{"on-failure": &s.OnFailure, "on-issue": &s.OnIssue} {
		if err := readFollowUp(text); err != nil {
			message, hint := explain(err)
			return usage(cmp.Or(hint, try), "--%s: %s", option, message)
		}
	}
	if s.NotBefore, err = notBefore(o, now); err != nil {
		return usage(try, "%v", err)
	}
	s.InputFiles, err = readInputs(o.inputs)
	return err
}

// readFollowUp reads the prompt of a follow-up where it is @FILE, and checks it.
func readFollowUp(text *string) (err error) {
	if *text == "" {
		return nil // it is not given
	}
	if *text, err = textOrFile(*text); err != nil {
		return err
	}
	if *text == "" {
		return errors.New("the file has no text")
	}
	return admission.CheckTemplate(*text)
}

// checkNotEmpty refuses options with an empty text: most likely a script's variable
// is not set, and without its key, say, the task would be made twice. Prompts have a
// message of their own.
func checkNotEmpty(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "prompt" && err == nil {
			err = usage("give it a value, or leave it out", "--%s is empty", f.Name)
		}
	})
	return err
}

// checkGiven checks the options that say something else where they are not given.
// An empty list is most likely a script's variable that is not set.
func (o *taskOptions) checkGiven(given func(string) bool, try string) error {
	switch s := &o.spec; {
	case given("priority") && (s.Priority < 1 || s.Priority > 9):
		return usage(try, "--priority %d is not from 1 to 9", s.Priority)
	case given("max-attempts") && s.MaxAttempts < 1:
		return usage(try, "--max-attempts %d is less than 1", s.MaxAttempts)
	case given("max-iterations") && (s.MaxIterations < 1 || s.MaxIterations > task.MaxIterations):
		return usage(try, "--max-iterations %d is not from 1 to %d", s.MaxIterations, task.MaxIterations)
	case given("resume") && s.Resume != "auto" && s.Resume != "always" && s.Resume != "never":
		return usage(try, "--resume %q is not auto, always or never", s.Resume)
	case given("after") && len(s.After) == 0:
		return usage(try, "--after names no task")
	case given("fallback") && len(s.Fallback) == 0:
		return usage("--fallback none, so that no other agent takes over", "--fallback names no agent")
	case given("after-policy") && s.AfterPolicy != "done" && s.AfterPolicy != "any":
		return usage(try, "--after-policy %q is not done or any", s.AfterPolicy)
	case given("after-policy") && len(s.After) == 0 && o.file == "":
		return usage(try, "--after-policy says how to wait for other tasks, and --after names none")
	}
	return nil
}

// notBefore reads --at and --delay.
func notBefore(o *taskOptions, now time.Time) (time.Time, error) {
	if o.at != "" {
		t, err := parseAt(o.at, now)
		if err != nil {
			return t, fmt.Errorf("--at %w", err)
		}
		return t, nil
	}
	if o.delay == "" {
		return time.Time{}, nil
	}
	d, err := parseDuration(o.delay)
	if err != nil {
		return time.Time{}, fmt.Errorf("--delay %w", err)
	}
	return now.Add(d), nil
}
