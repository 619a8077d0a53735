package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) showCommand() *cobra.Command {
	var sent, answer, raw, withFiles bool
	var run string
	c := command("show [OPTIONS] ID", "show a task: what was asked, what happened, the answer", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		ctx, ref := c.Context(), args[0]
		if a.shared {
			return a.showShared(c, ref, withFiles)
		}
		switch {
		case sent:
			p, err := fetch[task.SentPrompt](ctx, a.call, http.MethodGet, client.TaskPath(ref, "/prompt?run="+url.QueryEscape(run)), nil)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.stdout, p)
			}
			if err := copySafe(a.stdout, strings.NewReader(p.Prompt)); err != nil {
				return err
			}
			if isTTY(a.stdout) {
				a.hint("\n\n")
			}
			a.hint("%s", escapeText(describeSent(&p)))
			return nil
		case run != "":
			return usage("stint show --prompt --run "+run+" "+ref, "--run chooses a prompt, and --prompt is not given")
		case raw:
			text, err := fetch[[]byte](ctx, a.call, http.MethodGet, client.TaskPath(ref, "/raw"), nil)
			if err != nil {
				return err
			}
			return printText(a.stdout, string(text))
		}
		view, err := a.task(ctx, ref)
		defer a.warnFindings(ctx) // of a task that is not there too: its only section may be one
		if err != nil {
			return err
		}
		switch {
		case answer:
			if view.Status != state.Done && view.Answer() == "" {
				return &cliError{code: exitFailure, message: fmt.Sprintf("task %s has no answer: it is %s", shortID(view.ID), view.Status), try: "stint why " + shortID(view.ID)}
			}
			return a.writeAnswer(a.stdout, &view)
		case a.json && withFiles:
			return printJSON(a.stdout, taskWithFiles{&view, collectedFiles(&view, true)})
		case a.json:
			return printJSON(a.stdout, view)
		case a.ids:
			return printIDs(a.stdout, []wire.TaskView{view})
		default:
			cfg, _ := a.base() // it is known, as is the directory: a master was asked
			dir, _ := a.state()
			sections, err := fetch[[]byte](ctx, a.call, http.MethodGet, client.TaskPath(view.ID, "/raw"), nil)
			if err != nil {
				return err
			}
			d := describe(&view, resumeCommand(cfg, newAccountsFile(dir), &view.Task), byHand(sections), time.Now())
			if withFiles {
				d.text("collected files", cmp.Or(fileList(&view), "none were collected"))
			}
			return printText(a.stdout, d.String())
		}
	}, a.completeIDs())
	f := c.Flags()
	f.BoolVar(&sent, "prompt", false, "print what the agent was sent, byte for byte; on stderr its hash and what was found in the notes")
	f.StringVar(&run, "run", "", "with --prompt: `run` of the agent, by id or number from 1, not the last one")
	f.BoolVar(&answer, "answer", false, "print the answer alone")
	f.BoolVar(&raw, "raw", false, "print the task's sections of the ledger")
	f.BoolVar(&withFiles, "with-files", false, "also the files that were collected: names, sizes, paths; with --json their contents")
	a.withIDs(a.withJSON(c))
	exclusive(c, "prompt", "answer", "raw", "quiet")
	exclusive(c, "json", "answer", "raw", "quiet")
	exclusive(c, "with-files", "prompt", "answer", "raw", "quiet")
	return a.withShared(c, "a task of the shared queue", "quiet", "prompt", "run", "answer", "raw")
}

// A description is made of lines "name: value", without those that say nothing.
type description struct{ strings.Builder }

func (d *description) line(name, value string) {
	if value != "" {
		d.WriteString(pad(name+":", 14) + " " + oneLine(value) + "\n")
	}
}

func (d *description) text(name, value string) {
	if value = strings.TrimRight(value, "\n"); value != "" {
		d.WriteString("\n" + name + ":\n  " + strings.ReplaceAll(value, "\n", "\n  ") + "\n")
	}
}

// describe returns the view for people. resume continues the agent's session by hand, edits is what was set by hand.
func describe(v *wire.TaskView, resume, edits string, now time.Time) *description {
	d := &description{}
	d.line("task", v.ID)
	d.line("status", statusLine(v, now))
	d.line("why", v.Why)
	d.line("error", v.Error)
	d.line("note", v.Note)
	d.line("session", v.SessionKey)
	d.line("agent", strings.TrimSpace(v.Agent+" "+v.Model))
	d.line("agent session", v.AgentSession)
	d.line("resume with", resume)
	d.line("account", v.Account)
	if v.Budget != "" {
		d.line("budget", v.Budget+"; spent: "+cmp.Or(state.SpentBy(&v.Task).String(), "nothing"))
	}
	d.line("workspace", v.Workspace)
	d.line("isolation", v.Isolation)
	d.line("label", v.Label)
	d.line("priority", state.OrNone(v.Priority))
	d.line("attempt", state.OrNone(v.Attempt))
	d.line("retries", state.OrNone(v.Retries))
	d.line("requeues", state.OrNone(v.Requeues))
	d.line("limit waits", state.OrNone(v.LimitWaits))
	d.line("not before", localTime(v.NotBefore))
	d.line("after", strings.TrimSpace(strings.Join(v.After, " ")+" "+v.AfterPolicy))
	d.line("queued by", v.TriggeredBy)
	d.line("trigger", string(v.Trigger))
	d.line("has queued", strings.Join(v.FollowUps, " "))
	d.line("tenant", v.TenantID)
	d.line("queue", v.Queue)
	d.line("fallback", strings.Join(v.Fallback, " "))
	d.line("allow", strings.Join(v.Allow, ", "))
	d.line("to collect", strings.Join(v.OutputSpec, ", "))
	d.line("verify", v.VerifyCommand)
	d.line("iteration", iterationOf(&v.Task))
	if v.VerifyExitCode != nil {
		d.line("last check", checkEnd(*v.VerifyExitCode)+" after "+v.VerifyTime)
	}
	d.line("created", localTime(v.CreatedAt))
	d.line("started", localTime(v.StartedAt))
	d.line("updated", localTime(v.UpdatedAt))
	d.line("changes", changesLine(v))
	d.line("branch", branchLine(v))
	d.line("tokens", tokens(v.Usage))
	files := v.RunDir
	if files != "" && rundir.Removed(&v.Task, files) != nil {
		files = "none any more: removed, as retention says or by hand"
	}
	d.line("files", files)
	if v.Archived != "" {
		d.line("archived", "archive/"+v.Archived)
	}
	d.line("edited by hand", edits)
	d.line("output policy", clip(v.OutputPolicy, 80))
	d.line("on failure", clip(v.OnFailure, 80))
	d.line("on issue", clip(v.OnIssue, 80))
	d.line("environment", strings.Join(v.Env, " "))
	d.text("changed files", changedFiles(v))
	d.text("iterations", iterationList(v.Iterations))
	d.text("verify output", v.VerifyOutput)
	d.text("findings", strings.Join(mapped(v.Findings, func(f *state.Issue) string { return f.Kind + ": " + oneLine(f.Message) }), "\n"))
	d.text("prompt", v.Prompt)
	d.text("answer", v.Answer())
	return d
}

func statusLine(v *wire.TaskView, now time.Time) string {
	s := statusNow(v, now)
	switch {
	case v.Status == state.Running && !v.RunStartedAt.IsZero():
		s += " for " + ago(now.Sub(v.RunStartedAt))
		if v.LastOutput.Sub(v.RunStartedAt) > time.Millisecond { // else there is none yet
			s += ", last output " + ago(now.Sub(v.LastOutput)) + " ago"
		}
	case v.Status.Terminal() && !v.StartedAt.IsZero() && v.UpdatedAt.After(v.StartedAt):
		s += " after " + task.FormatElapsed(v.UpdatedAt.Sub(v.StartedAt))
	}
	return s
}

func tokens(u state.Usage) string {
	if u == (state.Usage{}) {
		return ""
	}
	s := fmt.Sprintf("%d in (%d cached), %d out", u.InputTokens, u.CachedInputTokens, u.OutputTokens)
	if u.CostUSD > 0 {
		s += ", " + dollars(u.CostUSD)
	}
	return s
}

// describeSent returns which prompt it is, and what was found for it.
func describeSent(p *task.SentPrompt) string {
	which := fmt.Sprintf("%d of %d", p.Number, p.Of)
	if p.Number == 0 {
		which = string(p.Phase)
	}
	text := fmt.Sprintf("stint: run %s of task %s (%s, attempt %d", p.RunID, p.TaskID, which, p.Attempt)
	if p.Iteration > 0 {
		text += fmt.Sprintf(", iteration %d", p.Iteration)
	}
	text += ")\nsha256:        " + p.SHA256 + "\n"
	if p.Memory == nil {
		return text
	}
	return text + describeMemory(p.Memory)
}

// iterationOf returns in which iteration of the loop a task is or has ended: "2 of 3"; "" without a loop.
func iterationOf(t *state.Task) string {
	switch {
	case t.Iteration == 0 || t.VerifyCommand == "":
		return ""
	case t.MaxIterations == 0:
		return fmt.Sprint(t.Iteration)
	}
	return fmt.Sprintf("%d of %d", t.Iteration, t.MaxIterations)
}

// phaseOf returns what a running task does, if that is more than an agent's first turn: "verify 2/3".
func phaseOf(t *state.Task) string {
	iteration := strings.ReplaceAll(iterationOf(t), " of ", "/")
	switch {
	case t.Phase == state.PhaseVerify:
		return strings.TrimSpace("verify " + iteration)
	case t.Phase != "":
		return string(t.Phase)
	case t.Iteration > 1 && iteration != "":
		return "iteration " + iteration
	}
	return ""
}

func checkEnd(code int) string {
	switch {
	case code == 0:
		return "passed"
	case code < 0:
		return "did not end by itself"
	}
	return fmt.Sprintf("exit code %d", code)
}

// iterationList has a line for each iteration whose verify command has ended. Each attempt counts from 1.
func iterationList(list []state.Iteration) string {
	return strings.Join(mapped(list, func(r *state.Iteration) string {
		iteration := fmt.Sprint(r.Iteration)
		if r.Attempt > 1 {
			iteration = fmt.Sprintf("attempt %d, iteration %d", r.Attempt, r.Iteration)
		}
		return fmt.Sprintf("%s  %s after %s, run %s", iteration, checkEnd(r.ExitCode), r.Duration, r.RunID)
	}), "\n")
}

// maxContent is how many bytes a collected file may have for its content to be printed as JSON.
const maxContent = 1 << 20

// A taskWithFiles is a task as `show --json --with-files` prints it.
type taskWithFiles struct {
	*wire.TaskView
	Files []collected `json:"files"`
}

// A collected is a file that was collected after a run.
type collected struct {
	state.OutputFile
	File    string  `json:"file,omitempty"`    // absolute path of the copy
	Text    *string `json:"text,omitempty"`    // content that is UTF-8
	Base64  []byte  `json:"base64,omitempty"`  // any other content
	Problem string  `json:"problem,omitempty"` // why there is none
}

// collectedFiles returns the collected files of a task's last run, and with content what is in them.
func collectedFiles(v *wire.TaskView, content bool) []collected {
	return mapped(v.OutputFiles, func(out *state.OutputFile) collected {
		c := collected{OutputFile: *out}
		if err := c.find(v.RunDir, content); err != nil {
			c.Problem = err.Error()
		}
		return c
	})
}

// find looks for the copy in the directory of the run, and reads it.
func (c *collected) find(runDir string, content bool) error {
	if runDir == "" {
		return rundir.ErrNotKept
	}
	f, _, err := rundir.OpenCollected(runDir, c.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	c.File = filepath.Join(runDir, "files", c.Path)
	if !content {
		return nil
	}
	data, err := readAtMost(f, maxContent)
	if err != nil {
		return plainError(err)
	}
	if c.Base64 = data; utf8.Valid(data) {
		c.Base64, c.Text = nil, new(string(data))
	}
	return nil
}

// fileList has a line for each collected file.
func fileList(v *wire.TaskView) (text string) {
	for _, c := range collectedFiles(v, false) {
		text += fmt.Sprintf("%s  %s  %s\n", oneLine(c.Path), count(int(c.Size), "byte"), oneLine(cmp.Or(c.Problem, c.File)))
	}
	return text
}

func (a *app) filesCommand() *cobra.Command {
	return a.withShared(a.withJSON(command("files [OPTIONS] ID [PATH]", "list the files that were collected after a task, or print one", cobra.RangeArgs(1, 2), func(c *cobra.Command, args []string) error {
		if a.shared {
			return a.showShared(c, args[0], len(args) > 1, args[1:]...)
		}
		view, err := a.task(c.Context(), args[0])
		switch files := collectedFiles(&view, false); {
		case err != nil:
			return err
		case len(args) == 2 && a.json:
			return usage("stint files --json ID", "--json is for the list; a file is printed as it is")
		case len(args) == 2: // byte for byte where stdout is no terminal
			f, _, err := rundir.OpenCollected(view.RunDir, args[1])
			if err != nil || !slices.ContainsFunc(view.OutputFiles, func(f state.OutputFile) bool { return f.Path == args[1] }) {
				return &cliError{code: exitNotFound, message: fmt.Sprintf("task %s has no collected file %q", shortID(view.ID), args[1]), try: "stint files " + shortID(view.ID)}
			}
			defer func() { _ = f.Close() }() // only read from
			return copySafe(a.stdout, f)
		case a.json:
			return printEach(a.stdout, files)
		case len(files) == 0:
			a.hint("stint: task %s has no collected files\n", shortID(view.ID))
			return nil
		}
		return printText(a.stdout, fileList(&view))
	}, a.completeIDs())), "a task of the shared queue")
}
