package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/schedule"
	"stint/coordinator/task"
)

func (a *app) cronCommand() *cobra.Command {
	return group(command("cron", "schedules: tasks and jobs at set times", nil, nil),
		a.noRun(a.cronAddCommand()), a.cronLsCommand(), a.cronShowCommand(), a.cronNextCommand(), a.cronRunsCommand(),
		a.cronAct("run", "fire a schedule now, besides its other firings"),
		a.cronAct("pause", "let a schedule fire no more until it is resumed"),
		a.cronAct("resume", "let a schedule fire again, from now on"),
		a.noRun(a.cronRmCommand()))
}

func (a *app) cronAddCommand() *cobra.Command {
	o, s := &taskOptions{}, &schedule.Schedule{}
	c := command("add NAME --cron EXPRESSION [OPTIONS] PROMPT", "add a schedule", cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		s.Name = args[0]
		if err := a.cronSpec(c, o, s, args[1:]); err != nil {
			return err
		}
		file, err := a.schedulesFile(true)
		if err != nil {
			return err
		}
		if err := changeText(c.Context(), file.path, func(text []byte) ([]byte, error) {
			if _, err := file.parse(text); err != nil {
				return nil, usage("correct it there first", "%s", file.located(err))
			}
			text = bytes.TrimLeft(slices.Concat(bytes.TrimRight(text, "\n"), []byte("\n\n"+scheduleBlock(s))), "\n")
			if _, err := file.parse(text); err != nil { // its line is in no file yet
				_, what, _ := strings.Cut(err.Error(), ": ")
				return nil, usage("stint cron add --help", "%s", what)
			}
			return text, nil
		}); err != nil {
			return err
		}
		return a.cronAdded(c.Context(), s.Name)
	})
	f := c.Flags()
	f.StringVar(&s.Cron, "cron", "", "`expression` that says when")
	f.StringVar(&s.Zone, "zone", "", "time `zone` of the expression, such as Europe/Berlin; by default this machine's")
	f.StringVar(&s.Job, "job", "", "`name` of a job, in place of a prompt: "+strings.Join(jobNames, ", "))
	f.StringVar(&s.Overlap, "overlap", "", "`what` becomes of a firing while the one before goes on: skip (default), queue or parallel")
	f.StringVar(&s.Missed, "missed", "", "`which` missed firings run later: once (default: the last one), skip (none) or all")
	f.IntVar(&s.Most, "missed-max", 0, "`number` of missed firings that run with --missed all, by default 10")
	f.StringVar(&s.Jitter, "jitter", "", "each firing is late by a part of this `duration`")
	complete(c, "job", func() []string { return jobNames })
	o.addFlags(a, c)
	for _, name := range []string{"at", "delay", "after", "after-policy", "idempotency-key", "spec", "dry-run", "input-file"} { // of one task, and not of each firing
		c.Flags().Lookup(name).Hidden = true
	}
	return c
}

// cronSpec fills in the task of a new schedule.
func (a *app) cronSpec(c *cobra.Command, o *taskOptions, s *schedule.Schedule, args []string) (err error) {
	given := func(name *string) bool { return c.Flags().Changed(*name) }
	if name := find([]string{"at", "delay", "after", "idempotency-key", "spec", "dry-run", "input-file"}, given); name != nil {
		return usage("stint cron add --help", "--%s means nothing for a schedule: each firing is a new task", *name)
	}
	if err := o.check(c, time.Now()); err != nil {
		return err
	}
	const try = `stint cron add NAME --cron "0 3 * * *" "PROMPT"`
	switch {
	case s.Cron == "":
		return usage(try, "--cron is missing: it says when the schedule fires")
	case s.Most != 0 && s.Missed != "all":
		return usage("--missed all", "--missed-max means nothing without --missed all")
	case s.Job == "" && len(args) == 0 && !o.edit:
		return usage(try+", @FILE, or - for stdin", "there is no prompt")
	}
	if s.Job != "" {
		if len(args) > 0 {
			return usage("stint cron add --help", "a schedule has a job or a prompt, and not both")
		}
		s.Spec = o.spec
		return nil
	}
	if err = a.place(o, &o.spec); err != nil {
		return err
	}
	o.spec.Prompt, err = interruptibly(c.Context(), "interrupted; nothing was added", func() (string, error) { return a.readPrompt(args, c.ArgsLenAtDash() >= 0, o.edit) })
	s.Spec = o.spec
	s.Spec.ID, s.Spec.DefaultAgent = "", ""
	return err
}

// scheduleBlock writes a schedule as a [[schedule]] block.
func scheduleBlock(s *schedule.Schedule) string {
	text := "[[schedule]]\n"
	add := func(name string, field any) {
		if v := reflect.ValueOf(field).Elem(); !v.IsZero() {
			text += name + " = " + tomlText(v.Interface()) + "\n"
		}
	}
	names, fields := blockFields(s)
	for _, name := range names {
		add(name, fields[name])
	}
	spec := task.Fields(&s.Spec)
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		add(task.WithUnderscores(name), spec[name])
	}
	return text
}

// cronAdded lets a master know of a new schedule, and says when it fires, or that nothing will.
func (a *app) cronAdded(ctx context.Context, name string) error {
	list, err := a.schedules(ctx)
	if err != nil {
		return err
	}
	if a.opened {
		a.hint("stint: nothing fires: no master is running, and auto_start is off\n  try: stint serve\n")
	}
	s := find(list, func(s *task.Schedule) bool { return s.Name == name })
	if s != nil && s.Paused { // as one of that name was, which was removed just now
		if *s, err = a.actOnSchedule(ctx, name, "resume"); err != nil {
			return err
		}
	}
	if s != nil && len(s.Next) > 0 {
		a.hint("stint: it fires at %s first\n", localTime(s.Next[0]))
	}
	if why := afterReboot(); why != "" && !a.opened {
		a.hint("stint: %s\n  try: stint service install\n", why)
	}
	switch {
	case a.json && s != nil:
		return printJSON(a.stdout, s)
	case a.ids:
		return printText(a.stdout, name)
	}
	return printText(a.stdout, "added "+name)
}

// schedules asks the master for the schedules; it notices then what has changed in them. What is wrong there
// goes to stderr: it does not concern the others.
func (a *app) schedules(ctx context.Context) ([]task.Schedule, error) {
	a.creates = true
	out, err := fetch[wire.SchedulesBody](ctx, a.callOrOpen, http.MethodGet, schedulesPath, nil)
	if out.Finding != "" {
		a.hint("stint: %s\n", escapeText(oneLine(out.Finding)))
	}
	a.warnConfig(ctx) // a new [[schedule]] may stand there
	return out.Schedules, err
}

// schedulesFile returns schedules.toml, of a state directory that is made if need be.
func (a *app) schedulesFile(make bool) (*stateFile[schedule.Schedule], error) {
	cfg, err := a.base()
	dir, wrong := a.state()
	if make && cmp.Or(err, wrong) == nil {
		dir, err = a.ownState()
	}
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	return newSchedulesFile(dir, cfg), nil
}

func (a *app) cronRmCommand() *cobra.Command {
	return command("rm NAME", "remove a schedule; tasks that it has queued stay", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		file, s, err := a.findSchedule(args[0])
		if err != nil {
			return err
		}
		if !strings.HasPrefix(s.Origin, schedulesName+":") {
			return usage("stint config edit", "schedule %s stands in the configuration, at %s; remove it there", s.Name, s.Origin)
		}
		if err := changeText(c.Context(), file.path, func(text []byte) ([]byte, error) {
			before, _ := file.parse(text) // a mistake elsewhere stays as it is
			at := slices.IndexFunc(before, func(old schedule.Schedule) bool { return old.Name == s.Name })
			if at < 0 {
				return text, nil // another command has removed it
			}
			_, line, _ := strings.Cut(before[at].Origin, ":")
			n, _ := strconv.Atoi(line)
			rest := withoutSection(text, n-1)
			after, _ := file.parse(rest)
			if !slices.EqualFunc(after, slices.Delete(before, at, at+1), func(a, b schedule.Schedule) bool { return a.Name == b.Name }) {
				return nil, usage("edit "+file.path, "schedule %s cannot be taken out of the file as it is written", s.Name)
			}
			return rest, nil
		}); err != nil {
			return err
		}
		_, _ = fetch[wire.SchedulesBody](c.Context(), a.callRunning, http.MethodGet, schedulesPath, nil) // without a master nothing fires
		return printText(a.stdout, "removed "+s.Name)
	})
}

// findSchedule returns the schedule of that name, and the file in which it may stand.
func (a *app) findSchedule(name string) (file *stateFile[schedule.Schedule], s schedule.Schedule, err error) {
	if file, err = a.schedulesFile(false); err != nil {
		return nil, s, err
	}
	list, err := file.read()
	if i := slices.IndexFunc(list, func(s schedule.Schedule) bool { return s.Name == name }); i >= 0 { // a mistake elsewhere does not concern it
		return file, list[i], nil
	}
	return nil, s, cmp.Or[error](err, &cliError{code: exitNotFound, message: "there is no schedule " + clip(name, 40), try: "stint cron ls"})
}

// actOnSchedule fires a schedule, pauses or resumes it.
func (a *app) actOnSchedule(ctx context.Context, name, act string) (task.Schedule, error) {
	at := time.Now() // call may repeat the request, which is one firing then
	return fetch[task.Schedule](ctx, a.call, http.MethodPost, schedulePath(name)+"/"+act, wire.MomentBody{At: at})
}

// schedulesPath is where a master has its schedules.
const schedulesPath = "/v1/schedules"

func schedulePath(name string) string { return schedulesPath + "/" + url.PathEscape(name) }

func (a *app) cronAct(name, short string) *cobra.Command {
	return a.noRun(command(name+" NAME", short, cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		s, err := a.actOnSchedule(c.Context(), args[0], name)
		if err == nil {
			a.hint("stint: %s; how its firings went: stint cron runs %s\n", scheduleText(&s), s.Name)
		}
		return err
	}))
}

func (a *app) cronLsCommand() *cobra.Command {
	return a.withJSON(a.withIDs(command("ls [OPTIONS]", "list schedules", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		list, err := a.schedules(c.Context())
		return printTable(a, list, err, "no schedules; add one with: stint cron add", []string{"SCHEDULE", "CRON", "NEXT", "LAST", "WHAT"}, []string{"WHAT", "LAST"}, func(s task.Schedule) (string, []string) {
			next, last := scheduleTimes(&s)
			return s.Name, []string{s.Name, strings.TrimSpace(s.Cron + " " + s.Zone), next, last, cmp.Or(s.Title, "job "+s.Job)}
		})
	})))
}

// scheduleTimes returns when a schedule fires next, and how it went last.
func scheduleTimes(s *task.Schedule) (next, last string) {
	next = "paused"
	if !s.Paused && len(s.Next) > 0 {
		next = localTime(s.Next[0])
	}
	if s.Last != nil {
		last = s.Last.Outcome + " " + localTime(s.Last.Scheduled)
	}
	if len(s.Open) > 0 {
		last = "running"
	}
	return next, last
}

// scheduleText says the same in words.
func scheduleText(s *task.Schedule) string {
	next, last := scheduleTimes(s)
	return strings.TrimSuffix("next: "+next+", last: "+last, ", last: ")
}

func (a *app) cronShowCommand() *cobra.Command {
	return a.withJSON(command("show [OPTIONS] NAME", "show a schedule", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		_, found, err := a.findSchedule(args[0])
		if err != nil {
			return err
		}
		list, err := a.schedules(c.Context())
		s := find(list, func(s *task.Schedule) bool { return s.Name == args[0] })
		switch {
		case err != nil:
			return err
		case s == nil:
			return &cliError{code: exitNotFound, message: "the master does not know this schedule: it stands in the configuration since", try: "stint serve --stop"}
		}
		d := &description{}
		d.line("schedule", s.Name)
		d.line("cron", strings.TrimSpace(s.Cron+" "+s.Zone))
		d.line("job", s.Job)
		d.line("overlap", s.Overlap)
		d.line("missed", s.Missed+map[bool]string{true: fmt.Sprintf(", %d at most", s.Most)}[s.Missed == "all"])
		d.line("jitter", s.Jitter)
		d.line("configured", s.Origin)
		d.line("state", map[bool]string{true: "paused: stint cron resume " + s.Name, false: "active"}[s.Paused])
		for _, at := range s.Next {
			d.line("next", localTime(at))
		}
		for _, at := range s.Open {
			d.line("running", "since the firing of "+localTime(at))
		}
		if s.Last != nil {
			d.line("last", strings.TrimSuffix(localTime(s.Last.Scheduled)+" "+outcomeText(s.Last)+": "+s.Last.Detail, ": "))
		}
		if s.Job == "" {
			_, text, _ := strings.Cut(scheduleBlock(&schedule.Schedule{Spec: found.Spec}), "\n")
			d.WriteString("\n" + escapeText(text))
		}
		return a.print(s, d.String())
	}))
}

// outcomeText returns how a firing went, and for how many it stands.
func outcomeText(r *task.JobRun) string {
	text := strings.TrimSuffix(r.Outcome+" ("+r.Reason+")", " ()")
	if r.Count > 1 {
		text += fmt.Sprintf(" ×%d", r.Count)
	}
	return text
}

func (a *app) cronRunsCommand() *cobra.Command {
	most := 0
	c := a.withJSON(command("runs [OPTIONS] NAME", "list how the firings of a schedule went, the newest first", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		out, err := fetch[wire.JobRunsBody](c.Context(), a.call, http.MethodGet, schedulePath(args[0])+"/runs?limit="+strconv.Itoa(most), nil)
		return printTable(a, out.Runs, err, "no firing has ended yet", []string{"SCHEDULED", "OUTCOME", "TOOK", "TASK", "DETAIL"}, []string{"DETAIL"}, func(r task.JobRun) (string, []string) {
			took := time.Duration(r.Duration * float64(time.Second)).Round(100 * time.Millisecond).String()
			return r.Task, []string{localTime(r.Scheduled), outcomeText(&r), took, shortID(r.Task), r.Detail}
		})
	}))
	c.Flags().IntVarP(&most, "limit", "n", 100, "`number` of firings at most")
	return c
}

func (a *app) cronNextCommand() *cobra.Command {
	n := 0
	c := command("next [OPTIONS] NAME", "print when a schedule fires next", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if n < 1 || n > 1000 {
			return usage("stint cron next --help", "--count is %d; it has to be from 1 to 1000", n)
		}
		_, s, err := a.findSchedule(args[0])
		if err != nil {
			return err
		}
		return printText(a.stdout, strings.Join(mapped(s.Next(time.Now(), n), func(at *time.Time) string { return at.Format(time.RFC3339) }), "\n"))
	})
	c.Flags().IntVar(&n, "count", 1, "`number` of instants, up to 1000")
	return c
}
