package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state/jobs"
)

func (a *app) jobCommand() *cobra.Command {
	return group(command("job", "due jobs: what is to be done with objects of memory, and when", nil, nil),
		a.noRun(a.jobAddCommand()), a.jobLsCommand(), a.jobShowCommand(), a.noRun(a.jobPullCommand()),
		a.jobAckCommand(), a.jobFailCommand(), a.jobAct("retry", "ID", "queue a dead letter again, with all its attempts",
			func(*cobra.Command, []string) (any, error) { return nil, nil }))
}

func (a *app) jobAddCommand() *cobra.Command {
	var s jobs.Spec
	at, delay := "", time.Duration(0)
	c := command("add TYPE OBJECT ACTION --at TIME [OPTIONS]", "add a due job, and print its id", cobra.ExactArgs(3), func(c *cobra.Command, args []string) (err error) {
		s.ObjectType, s.ObjectID, s.Action, s.RetryDelaySec = args[0], args[1], args[2], int(delay/time.Second)
		if c.Flags().Changed("retry-delay") && s.RetryDelaySec == 0 {
			return usage("--retry-delay 1s", "--retry-delay: the least is 1s")
		}
		if s.RunAt, err = laterTime("at", at); err != nil {
			return err
		}
		a.creates, a.ids = true, true
		return a.onJob(c, http.MethodPost, jobsPath, s)
	})
	f := c.Flags()
	f.StringVar(&at, "at", "", "`time` from when on it can be pulled: 15:04 (the next one), \"tomorrow 9:00\", RFC 3339, or from now: 2h")
	f.StringVar(&s.Priority, "priority", "", "`which` of the jobs of one time is pulled first: high, medium (default) or low")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0, "`number` of attempts that may fail, by default 3")
	f.DurationVar(&delay, "retry-delay", 0, "`duration` from a failure until it can be pulled again, by default 5m")
	f.StringVar(&s.IdempotencyKey, "idempotency-key", "", "`key` that no second job has, by default OBJECT:ACTION:TIME")
	complete(c, "priority", func() []string { return jobs.Priorities })
	return a.withJSON(c)
}

// laterTime reads the value of an option: a time, or a duration from now on.
func laterTime(option, text string) (time.Time, error) {
	now := time.Now()
	if text == "" {
		return now, usage("--"+option+" 2h, or --"+option+` "tomorrow 9:00"`, "--%s is missing: it says when", option)
	}
	if d, err := parseDuration(text); err == nil {
		return now.Add(d), nil
	}
	at, err := parseAt(text, now)
	if err != nil {
		return at, usage("--"+option+" 2h", "--%s: %s", option, strings.Replace(err.Error(), "--delay 2h", "2h", 1))
	}
	return at, nil
}

// jobsPath is where a master has due jobs.
const jobsPath = "/v1/scheduler/jobs"

// onJob makes a request, and prints the job that it returns.
func (a *app) onJob(c *cobra.Command, method, path string, in any) error {
	job, err := fetch[jobs.Job](c.Context(), a.callOrOpen, method, path, in)
	if err != nil {
		return err
	}
	text := job.ID
	if !a.ids {
		text += " " + jobStatus(&job)
	}
	return a.print(job, text)
}

// jobStatus returns the status of a job and what is special about it.
func jobStatus(j *jobs.Job) string {
	text := j.Status
	if j.Status == jobs.Running {
		text += " until " + localTime(j.LeaseUntil)
	}
	if j.Attempt > 0 {
		text += fmt.Sprintf(" (%d of %d failed)", j.Attempt, j.MaxAttempts)
	}
	return text
}

// maxReason is how many bytes lists have of why a job failed, which can be 64 KiB: stint job show has all.
const maxReason = 300

// listJobs makes a request, and prints the jobs that it returns: as JSON, ids or a table.
func (a *app) listJobs(c *cobra.Command, none, method, path string, in any) error {
	out, err := fetch[wire.JobsBody](c.Context(), a.callOrOpen, method, path, in)
	if err != nil {
		return err
	}
	defer a.warnFindings(c.Context())
	head := []string{"JOB", "OBJECT", "ACTION", "DUE", "PRIORITY", "STATUS", "WHY"}
	return printTable(a, out.Jobs, nil, none, head, []string{"WHY", "PRIORITY", "OBJECT"}, func(j jobs.Job) (string, []string) {
		return j.ID, []string{shortID(j.ID), j.ObjectID, j.Action, localTime(j.RunAt), j.Priority, jobStatus(&j), oneLine(task.OneSentence(cmp.Or(j.WaitsFor, j.Reason()), maxReason))}
	})
}

func (a *app) jobLsCommand() *cobra.Command {
	var f jobs.Filter
	c := a.withJSON(a.withIDs(command("ls [OPTIONS]", "list due jobs, the first ones first; ended ones last", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		const try = "no such jobs; add one with: stint job add TYPE OBJECT ACTION --at TIME"
		if _, none, err := a.stateMissing(); none || err != nil {
			a.hint("stint: %s\n", try)
			return err
		}
		if f.Status != "" && !slices.Contains(jobs.Statuses, f.Status) {
			return usage("stint job ls --help", "--status: there is no %q; there are %s", f.Status, strings.Join(jobs.Statuses, ", "))
		}
		q := url.Values{"status": {f.Status}, "object_id": {f.ObjectID}, "newest": {strconv.FormatBool(f.Newest)}, "limit": {strconv.Itoa(f.Limit)}}
		return a.listJobs(c, try, http.MethodGet, jobsPath+"?"+q.Encode(), nil)
	})))
	c.Flags().StringVar(&f.Status, "status", "", "those of this `status`: "+strings.Join(jobs.Statuses, ", "))
	c.Flags().StringVar(&f.ObjectID, "object", "", "those about the object with this `id`")
	c.Flags().BoolVar(&f.Newest, "newest", false, "the ones that were added last come first")
	c.Flags().IntVarP(&f.Limit, "limit", "n", jobs.DefaultLimit, "`number` of jobs at most")
	complete(c, "status", func() []string { return jobs.Statuses })
	return c
}

func (a *app) jobShowCommand() *cobra.Command {
	return a.withJSON(command("show [OPTIONS] ID", "show a due job", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		j, err := fetch[jobs.Job](c.Context(), a.callOrOpen, http.MethodGet, jobsPath+"/"+url.PathEscape(args[0]), nil)
		if err != nil {
			return err
		}
		d := &description{}
		d.line("job", j.ID)
		d.line("object", j.ObjectType+" "+j.ObjectID)
		d.line("action", j.Action)
		d.line("status", jobStatus(&j))
		d.line("waits for", j.WaitsFor)
		d.line("due", localTime(j.RunAt))
		d.line("priority", j.Priority)
		d.line("retry delay", (time.Duration(j.RetryDelaySec) * time.Second).String())
		d.line("key", j.IdempotencyKey)
		d.line("worker", j.WorkerID)
		d.line("next action", localTime(j.NextActionAt))
		d.line("audit event", j.AuditEventID)
		d.line("created", localTime(j.CreatedAt))
		d.line("changed", localTime(j.UpdatedAt))
		d.text("last error", j.Reason())
		return a.print(j, d.String())
	}))
}

func (a *app) jobPullCommand() *cobra.Command {
	var p jobs.Pull
	c := a.withJSON(a.withIDs(command("pull --worker NAME [OPTIONS]", "take jobs that are due, for 5 minutes", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		if p.WorkerID == "" {
			return usage("stint job pull --worker worker-1", "--worker is missing: it names who the jobs are handed to")
		}
		return a.listJobs(c, "no job is due", http.MethodPost, jobsPath+"/pull", p)
	})))
	c.Flags().StringVar(&p.WorkerID, "worker", "", "`name` of the worker")
	c.Flags().IntVarP(&p.Limit, "limit", "n", jobs.DefaultLimit, fmt.Sprintf("`number` of jobs at most, up to %d", jobs.MaxLimit))
	return c
}

// jobAct returns a command that asks for something to be done with a job; body returns what is sent.
func (a *app) jobAct(act, args, short string, body func(c *cobra.Command, args []string) (any, error)) *cobra.Command {
	n := len(strings.Fields(args))
	return a.noRun(a.withJSON(a.withIDs(command(act+" [OPTIONS] "+args, short, cobra.ExactArgs(n), func(c *cobra.Command, args []string) error {
		v, err := body(c, args)
		if err != nil {
			return err
		}
		return a.onJob(c, http.MethodPost, jobsPath+"/"+url.PathEscape(args[0])+"/"+act, v)
	}))))
}

func (a *app) jobAckCommand() *cobra.Command {
	var k jobs.Ack
	next := ""
	c := a.jobAct("ack", "ID", "acknowledge a pulled job: it has been done", func(*cobra.Command, []string) (_ any, err error) {
		if next != "" {
			k.NextActionAt, err = laterTime("next", next)
		}
		return k, err
	})
	f := c.Flags()
	f.StringVar(&k.WorkerID, "worker", "", "`name` of the worker; another one's job is refused")
	f.StringVar(&next, "next", "", "`time` at which the same is to be done again, or a duration from now")
	f.StringVar(&k.AuditEventID, "audit-event", "", "`id` of an audit event of yours")
	f.StringVar(&k.Before, "before", "", "`text`: the object as it was")
	f.StringVar(&k.After, "after", "", "`text`: the object as it is now")
	f.StringVar(&k.Evidence, "evidence", "", "`text`: why")
	return c
}

func (a *app) jobFailCommand() *cobra.Command {
	var f jobs.Fail
	var delay time.Duration
	c := a.jobAct("fail", "ID ERROR", "report that an attempt at a pulled job failed", func(c *cobra.Command, args []string) (any, error) {
		f.Error = args[1]
		if seconds := int(delay / time.Second); c.Flags().Changed("retry-delay") {
			f.RetryDelaySec = &seconds
		}
		return f, nil
	})
	c.Flags().StringVar(&f.WorkerID, "worker", "", "`name` of the worker; another one's job is refused")
	c.Flags().DurationVar(&delay, "retry-delay", 0, "`duration` until it can be pulled again, in place of the job's own")
	return c
}
