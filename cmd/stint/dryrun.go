package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// dryRun prints what would be run for tasks, and starts no master. many says that they came as a list.
func (a *app) dryRun(ctx context.Context, specs []task.TaskSpec, many bool) error {
	if base, err := a.base(); err == nil {
		base.AutoStart = false // a master goes on with what is queued
	}
	a.addEnvironment(specs)
	a.creates = true
	out, err := fetch[wire.PreviewBody](ctx, a.callOrOpen, http.MethodPost, "/v1/tasks/preview", specs)
	if err != nil {
		return err
	}
	list := out.Previews
	a.noteDemo(specs, mapped(list, func(p *task.TaskPreview) wire.TaskView { return wire.TaskView{Task: p.Task} }))
	a.warnPaused()
	a.warnConfig(ctx)
	if a.json {
		err = printEach(a.stdout, list)
	} else {
		err = printText(a.stdout, strings.Join(mapped(list, describePreview), "\n\n"))
	}
	for i, p := range list { // the end of the first one that could not be run
		if p.Reason != "" && err == nil {
			end := &cliError{code: taskCode(&state.Task{Status: state.Failed, Reason: p.Reason}), message: fmt.Sprintf("the task could not be run (%s): %s", p.Reason, p.Error)}
			if p.Reason == state.ClassAgentMissing {
				end.try = "stint doctor"
			}
			err = inSpecs(end, i, len(list), many)
		}
	}
	return err
}

// describePreview returns a preview for people, with the exact prompt at the end.
func describePreview(p *task.TaskPreview) string {
	t := &p.Task
	if p.Known {
		return fmt.Sprintf("nothing would be queued: task %s has this id or idempotency key; it is %s\n", t.ID, t.Status)
	}
	d := &description{}
	d.line("agent", strings.TrimSpace(t.Agent+" "+t.Model))
	d.line("account", t.Account)
	d.line("workspace", t.Workspace)
	session := map[string]string{task.SessionResume: "resumes " + p.Resumes, task.SessionLater: "continues that of the tasks before it"}
	d.line("session", cmp.Or(session[p.Session], "begins a new one"))
	lane := t.SessionKey
	if p.Ahead > 0 {
		lane += ", behind " + count(p.Ahead, "task")
	}
	d.line("lane", lane)
	d.line("not before", localTime(t.NotBefore))
	d.line("timeout", p.Timeout)
	if p.MaxIterations > 0 {
		each := map[bool]string{true: " at most, " + p.VerifyTimeout + " each time"}[p.VerifyTimeout != ""]
		d.line("verify", fmt.Sprintf("%s (%s%s)", t.VerifyCommand, count(p.MaxIterations, "iteration"), each))
	}
	d.line("command", state.ShellLine(p.Argv))
	d.line("environment", strings.Join(p.Env, " "))
	if p.Memory != nil {
		d.text("memory", describeMemory(p.Memory))
	}
	return d.String() + "\nprompt:\n" + p.Prompt
}
