package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"stint/coordinator"
	"stint/coordinator/api"
	"stint/state"
)

// taskOptions are the options of `stint task`.
type taskOptions struct {
	spec   coordinator.TaskSpec
	detach bool
	quiet  bool
	json   bool
	edit   bool
	inside bool // --allow-state-in-workspace
	dir    string
	at     string
	delay  string
}

const taskExample = `  stint task "Summarise this repository in one line"
  stint task -d --session web "Fix the login test"   # queue it, print its id
  stint task --session web "Now add a test for it"   # resumes the same session
  stint task @review.md                              # or - for stdin
  stint task -- "-v prints nothing: find out why"`

func (a *app) taskCommand() *cobra.Command {
	o := &taskOptions{}
	c := &cobra.Command{
		Use:     "task [OPTIONS] PROMPT",
		Short:   "run a task and print the agent's answer",
		Long:    taskHelp,
		Example: taskExample,
		RunE:    func(c *cobra.Command, args []string) error { return a.runTask(c, o, args) },
	}
	c.Flags().BoolVarP(&o.detach, "detach", "d", false, "queue the task, print its id and go")
	o.addFlags(c)
	a.completeTask(c)
	return c
}

const taskHelp = `Run a task and print the agent's answer, alone, on stdout.

PROMPT is one or more arguments, - for stdin, @FILE for a file (@@ for a prompt
that begins with @), or whatever follows --. Ctrl-C while waiting detaches: the
task goes on.`

// enqueueCommand is `task -d` under the name that schedulers use.
func (a *app) enqueueCommand() *cobra.Command {
	o := &taskOptions{detach: true}
	c := &cobra.Command{
		Use:     "enqueue [OPTIONS] PROMPT",
		Short:   "queue a task and print its id (task -d)",
		Example: `  stint enqueue --session web "Fix the login test"`,
		RunE:    func(c *cobra.Command, args []string) error { return a.runTask(c, o, args) },
	}
	o.addFlags(c)
	a.completeTask(c)
	return c
}

func (o *taskOptions) addFlags(c *cobra.Command) {
	f, s := c.Flags(), &o.spec
	quietFlag(c, &o.quiet)
	f.StringVar(&s.SessionKey, "session", "", "`name` of a session: its tasks run in order, and each resumes the last")
	f.BoolVarP(&s.Continue, "continue", "c", false, "go on with the last session of this directory")
	f.BoolVar(&s.Parallel, "parallel", false, "run beside other tasks of this directory")
	f.StringVar(&s.Resume, "resume", "", "`when` to resume the agent's session: auto, always or never")
	f.StringVar(&s.Agent, "agent", "", "`name` of the agent: codex or demo")
	f.StringVar(&s.Model, "model", "", "`model`, as the agent's CLI knows it")
	f.StringVar(&s.Account, "account", "", "`name` of the account")
	f.StringVarP(&o.dir, "directory", "C", "", "the agent's working `directory`")
	f.StringVar(&s.Timeout, "timeout", "", "longest run: a `duration` such as 30m")
	f.IntVar(&s.Priority, "priority", 0, "a `number` from 1 to 9, 9 first")
	f.StringVar(&s.Label, "label", "", "free `text` to filter lists by")
	f.StringVar(&s.IdempotencyKey, "idempotency-key", "", "`key` under which this task is made once only")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0, "`number` of tries before the task is given up")
	f.StringVar(&o.at, "at", "", "not before this `time`: 15:04, \"2006-01-02 15:04\" or RFC 3339")
	f.StringVar(&o.delay, "delay", "", "not before this `duration` has passed, such as 2h")
	f.StringVar(&s.AgentSession, "agent-session", "", "`id` of the agent's own session to resume")
	f.BoolVar(&s.NoWaitLimit, "no-wait-limit", false, "fail (exit 75) instead of waiting for a rate limit to pass")
	f.BoolVar(&o.edit, "edit", false, "write the prompt with $VISUAL or $EDITOR")
	f.BoolVar(&o.inside, "allow-state-in-workspace", false, "run although the agent can write the state directory")
	jsonFlag(c, &o.json)
	exclusive(c, "at", "delay")
	exclusive(c, "parallel", "session")
	exclusive(c, "parallel", "continue")
}

func (a *app) runTask(c *cobra.Command, o *taskOptions, args []string) error {
	a.quiet = o.quiet
	if err := a.completeSpec(c, o, time.Now()); err != nil {
		return err
	}
	prompt := promptSource{args: args, literal: c.ArgsLenAtDash() >= 0, edit: o.edit, stdin: a.stdin, editor: runEditor}
	var err error
	if o.spec.Prompt, err = readInterruptibly(c.Context(), prompt.read); err != nil {
		return err
	}
	view, err := a.submit(c.Context(), o)
	if err != nil {
		return err
	}
	a.noteDemo(c.Context(), o, &view)
	defer a.tellFindings(c.Context())
	if o.detach {
		return a.printQueued(o, &view)
	}
	return a.awaitAnswer(c.Context(), o, view.ID)
}

// readInterruptibly lets Ctrl-C end a command that waits for its prompt on stdin.
// The reader ends with the program.
func readInterruptibly(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return "", &cliError{code: exitInterrupted, message: "interrupted; nothing was queued"}
	}
}

// completeSpec fills what comes from the options' texts and the configuration,
// and checks all that can be checked without a master.
func (a *app) completeSpec(c *cobra.Command, o *taskOptions, now time.Time) error {
	base, err := a.base()
	if err != nil {
		return err
	}
	s := &o.spec
	if s.Workspace, err = workspace(o.dir, base.WorkspaceRoot); err != nil {
		return err
	}
	dir, err := a.state()
	if err != nil {
		return err
	}
	if !o.inside {
		if err := checkOutside(dir, s.Workspace); err != nil {
			return err
		}
	}
	if s.Agent == "" {
		s.Agent = base.forWorkspace(s.Workspace).Agent
	}
	s.AllowStateInWorkspace = o.inside
	if err := checkOptions(c, o, now); err != nil {
		return err
	}
	id, err := uuid.NewV7() // ours, so that a request that is sent twice makes one task
	s.ID = id.String()
	return err
}

// checkOptions checks the options and reads those that are times.
func checkOptions(c *cobra.Command, o *taskOptions, now time.Time) (err error) {
	s := &o.spec
	try := c.CommandPath() + " --help"
	given := c.Flags().Changed
	if given("session") {
		if err := coordinator.CheckSessionKey(s.SessionKey); err != nil {
			return err
		}
	}
	switch {
	case given("priority") && (s.Priority < 1 || s.Priority > 9):
		return usage(try, "--priority %d is not from 1 to 9", s.Priority)
	case given("max-attempts") && s.MaxAttempts < 1:
		return usage(try, "--max-attempts %d is less than 1", s.MaxAttempts)
	case given("resume") && s.Resume != "auto" && s.Resume != "always" && s.Resume != "never":
		return usage(try, "--resume %q is not auto, always or never", s.Resume)
	}
	if s.Timeout != "" {
		d, err := parseDuration(s.Timeout)
		if err != nil || d == 0 {
			return usage(try, "--timeout %q is not a duration such as 90s, 30m or 2h", s.Timeout)
		}
		s.Timeout = shortDuration(d)
	}
	s.NotBefore, err = notBefore(o, now)
	if err != nil {
		return usage(try, "%v", err)
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

// workspace gives the absolute path of the agent's directory, without links: two
// names of one directory are one lane.
func workspace(option, root string) (string, error) {
	dir := option
	if dir == "" {
		dir = root
	}
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", usage("stint task -C DIRECTORY ...", "cannot use the directory %q: %v", dir, plainError(err))
	}
	fi, err := os.Stat(abs)
	if err != nil || !fi.IsDir() {
		return "", usage("stint task -C DIRECTORY ...", "%q is not a directory", dir)
	}
	return abs, nil
}

// plainError gives the reason without the path and the name of the system call.
func plainError(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// submit makes the task durable: by a master, or without one where none is to be
// started and the task need not run now.
func (a *app) submit(ctx context.Context, o *taskOptions) (view api.TaskView, err error) {
	err = a.call(ctx, func(c *api.Client) (err error) { view, err = c.Submit(ctx, o.spec); return err })
	base, cerr := a.base()
	if cerr != nil || base.AutoStart || !o.detach || exitCode(err) != exitNoMaster {
		return view, err
	}
	dir, err := a.state()
	if err != nil {
		return view, err
	}
	if err := checkStateDir(dir, a.stderr); err != nil {
		return view, err
	}
	view.Task, err = a.submitOffline(ctx, dir, base, o.spec)
	if err == nil {
		a.hint("stint: kept in %s; no master is running, and auto_start is off\n  try: stint serve\n", filepath.Join(dir, "tasks.md"))
	}
	return view, err
}

// hint says something on stderr that is not an error, unless -q.
func (a *app) hint(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.stderr, format, args...) // nothing is left to do about a broken stderr
	}
}

// printQueued prints the id of a task that is not waited for.
func (a *app) printQueued(o *taskOptions, view *api.TaskView) error {
	if o.json {
		return printJSON(a.stdout, view)
	}
	_, err := fmt.Fprintln(a.stdout, view.ID)
	return err
}

// awaitAnswer waits for the end of a task, prints the answer and gives its exit
// code. Ctrl-C lets the task go on.
func (a *app) awaitAnswer(ctx context.Context, o *taskOptions, id string) error {
	stop := a.startProgress(ctx, id)
	view, err := a.wait(ctx, id)
	stop()
	if isDetached(ctx) {
		return detached(id)
	}
	if err != nil {
		return err
	}
	if view.Note != "" {
		a.hint("stint: note: %s\n", view.Note)
	}
	if err := a.printAnswer(o, &view); err != nil {
		return err
	}
	return taskEnd(&view)
}

// isDetached reports that Ctrl-C ended the wait.
func isDetached(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errDetached) }

// detached is the end of a wait by Ctrl-C.
func detached(id string) error {
	return &cliError{
		code: exitInterrupted, message: "detached; the task goes on",
		try: "stint wait " + id + " && stint show --answer " + id,
	}
}

// printAnswer prints what the options ask for about a task that has ended.
func (a *app) printAnswer(o *taskOptions, view *api.TaskView) error {
	switch {
	case o.json:
		return printJSON(a.stdout, view)
	case o.quiet:
		_, err := fmt.Fprintln(a.stdout, view.ID)
		return err
	case view.Status != state.Done:
		return nil // an answer of a task that failed is for `stint show`
	default:
		return a.writeAnswer(a.stdout, view)
	}
}

// writeAnswer prints the whole answer. The ledger may hold it cut; the run's
// directory has it whole as long as it is kept.
func (a *app) writeAnswer(w io.Writer, view *api.TaskView) error {
	text := view.Result
	if view.RunDir != "" {
		if data, err := os.ReadFile(filepath.Join(view.RunDir, "answer")); err == nil {
			text = string(data)
		}
	}
	return printText(w, text)
}

// ending says how a task ended badly.
var ending = map[state.Status]string{
	state.Failed: "failed", state.Canceled: "was canceled", state.Dead: "is dead",
}

// taskEnd gives the error of a task that did not end well: nil, or the exit code
// with what and why.
func taskEnd(view *api.TaskView) error {
	code := taskCode(&view.Task)
	if code == exitOK {
		return nil
	}
	message := fmt.Sprintf("task %s %s", shortID(view.ID), ending[view.Status])
	if view.Reason != "" && string(view.Reason) != string(view.Status) {
		message += " (" + string(view.Reason) + ")"
	}
	if view.Error != "" && view.Error != string(view.Reason) {
		message += ": " + view.Error
	}
	return &cliError{code: code, message: message, try: nextStep(view, code)}
}

// nextStep gives the command that helps after a task has ended badly.
func nextStep(view *api.TaskView, code int) string {
	id := shortID(view.ID)
	switch {
	case view.Reason == state.ClassAgentMissing:
		return "stint doctor"
	case code == exitAgent && view.Agent == "codex":
		return "codex login, then stint retry " + id
	case code == exitCanceled, code == exitRateLimited:
		return "stint retry " + id
	default:
		return "stint logs " + id + ", or stint retry " + id
	}
}
