package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/state"
)

type lsOptions struct {
	filter  state.Filter
	status  []string
	tree    bool
	watch   bool
	rows    int  // of --watch: as many fit on the terminal
	archive bool // of the archive, not of the master
	plain   bool // as the master writes it
	printed int  // tasks, as that came
}

const statuses = "draft, queued, running, done, failed, canceled, dead"

// watchEvery is the time between two looks of `stint ls --watch`.
const watchEvery = 2 * time.Second

func (a *app) lsCommand() *cobra.Command {
	o := &lsOptions{}
	c := command("ls [OPTIONS]", "list tasks: those that run, then the newest first", cobra.NoArgs, func(c *cobra.Command, _ []string) error { return a.runLs(c, o) })
	f := c.Flags()
	f.StringSliceVar(&o.status, "status", nil, "only these `statuses`: "+statuses)
	f.StringVar(&o.filter.Session, "session", "", "only tasks of this `session`")
	f.StringVar(&o.filter.Label, "label", "", "only tasks with this `label`")
	f.StringVar(&o.filter.Agent, "agent", "", "only tasks of this `agent`")
	f.StringVar(&o.filter.TenantID, "tenant", "", "only tasks of this `tenant`")
	f.StringVar(&o.filter.Queue, "queue", "", "only tasks of this `queue`")
	f.IntVarP(&o.filter.Limit, "limit", "n", 50, "at most this `number`; 0: all")
	f.BoolVar(&o.archive, "archive", false, "tasks that compaction has moved to the archive, the one that ended last first")
	f.BoolVarP(&o.watch, "watch", "w", false, "show the list again every two seconds, until Ctrl-C")
	f.BoolVar(&o.tree, "tree", false, "show tasks below those that they wait for or that have queued them")
	a.withJSON(a.withIDs(c))
	exclusive(c, "watch", "json", "quiet")
	exclusive(c, "tree", "json", "quiet")
	complete(c, "status", func() []string { return strings.Split(statuses, ", ") })
	complete(c, "session", func() []string { return a.sessionNames(c.Context()) })
	complete(c, "agent", func() []string { return agentNames })
	return a.withShared(c, "list the shared queue instead: [postgres] in the configuration says where it is", "archive", "watch", "tree")
}

func (a *app) runLs(c *cobra.Command, o *lsOptions) error {
	if o.filter.Limit < 0 {
		return usage("stint ls --help", "--limit %d is negative; 0 is all", o.filter.Limit)
	}
	if a.shared {
		return a.listShared(c, o)
	}
	for _, s := range o.status {
		st, err := state.ParseStatus(s)
		if err != nil {
			return usage("stint ls --help", "%v; held tasks are queued", err)
		}
		o.filter.Status = append(o.filter.Status, st)
	}
	if !o.watch {
		return a.list(c.Context(), o)
	}
	if !canDraw(a.stdout) {
		return usage("stint history --follow", "--watch needs a terminal, and TERM set to its kind")
	}
	_, _ = io.WriteString(a.stdout, "\x1b[?1049h")                    // the other screen
	defer func() { _, _ = io.WriteString(a.stdout, "\x1b[?1049l") }() // and back
	most := cmp.Or(o.filter.Limit, math.MaxInt)
	for {
		_, rows, _ := term.GetSize(int(os.Stdout.Fd()))
		o.rows = max(1, cmp.Or(rows, 24)-4) // without the heading, the line of the cursor, and two for hints
		o.filter.Limit = min(most, o.rows)
		err := a.list(c.Context(), o)
		if err == nil {
			err = task.Sleep(c.Context(), watchEvery)
		}
		if isDetached(c.Context()) { // that is how one leaves
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// list prints a list of tasks once.
func (a *app) list(ctx context.Context, o *lsOptions) error {
	o.filter.Prompts, o.plain = a.json, !a.ids && !o.tree && !o.watch
	views, err := a.listed(ctx, o)
	found := max(len(views), o.printed)
	if err != nil {
		return err
	}
	if o.watch {
		_, _ = io.WriteString(a.stdout, "\x1b[H\x1b[2J") // only now, so that it does not flicker
	}
	if !o.archive {
		defer a.warnFindings(ctx)
	}
	if !o.archive && !a.ids {
		defer a.warnPaused()
		defer a.warnAccounts(ctx, views)
	}
	switch {
	case a.json:
		return printEach(a.stdout, views)
	case a.ids:
		return printIDs(a.stdout, views)
	case found == 0:
		none := "no tasks; add one with: stint task -d \"PROMPT\""
		if o.archive {
			none = "no such task in the archive; stint clean and stint compact-tasks move tasks there"
		} else if !o.filter.Match(&state.Task{}) {
			none = "no such tasks; all of them: stint ls -n 0"
		}
		a.hint("stint: %s\n", none)
		return nil
	}
	shown := views
	if o.tree {
		shown = familyTree(views)
	} else if !o.archive {
		shown = first(views, isRunning)
	}
	if o.watch { // those that run are in a list whatever its limit is
		shown = shown[:min(len(shown), o.rows)]
	}
	if o.printed == 0 {
		err = a.printTasks(shown)
	}
	if err == nil && o.filter.Limit > 0 && found >= o.filter.Limit && !o.watch { // more, if some that run are older
		a.hint("stint: the newest %d; all of them: stint ls%s -n 0\n", o.filter.Limit, map[bool]string{true: " --archive"}[o.archive])
	}
	return err
}

// listRunning asks a running master for a list of tasks.
func (a *app) listRunning(ctx context.Context, f state.Filter) ([]wire.TaskView, error) {
	return ask(ctx, a.callRunning, func(c *client.Client) ([]wire.TaskView, error) { return c.List(ctx, f) })
}

// listed returns the tasks of a list, newest first, and in any case those that run: of the archive, of a master, or of a state
// directory that no master can use. What is plain the master's answer has printed: it returns one for each account with tasks that wait.
func (a *app) listed(ctx context.Context, o *lsOptions) (views []wire.TaskView, err error) {
	dir, none, err := a.stateMissing()
	if none && err == nil { // a wrong configuration is told all the same
		_, err = a.base()
	}
	if none || err != nil {
		return nil, err
	}
	if o.archive { // for which no master is needed
		tasks, err := statedir.ListArchive(dir, o.filter)
		if len(tasks) > 0 && err != nil { // one bad record is one bad record
			a.hint("stint: %v\n", err)
			err = nil
		}
		return viewsOf(tasks), err
	}
	f := o.filter
	f.Text = !a.json
	out := &runeWriter{w: a.stdout, escape: map[bool]func(string) string{false: escapeJSON, true: same[string]}[f.Text]} // a text was escaped by the master
	err = a.call(ctx, func(cl *client.Client) error {
		if o.plain {
			var waiting []string
			o.printed, waiting, err = cl.ListTo(ctx, f, a.seen(), out)
			views = mapped(waiting, func(name *string) wire.TaskView {
				return wire.TaskView{Task: state.Task{Status: state.Queued, Account: *name}}
			})
			switch {
			case out.wrote && isGone(err): // to begin again would repeat what was printed
				return &cliError{code: exitNoMaster, message: "the master has exited", try: "stint ls"}
			case !errors.Is(err, &task.Error{Code: task.CodeInvalid}) && !errors.Is(err, &task.Error{Code: task.CodeNotFound}): // an unknown zone, an older master
				return err
			}
		}
		f.Text = false
		views, err = cl.List(ctx, f)
		if err != nil || a.json || a.ids || len(views) < f.Limit || len(f.Status) > 0 && !slices.Contains(f.Status, state.Running) {
			return err
		}
		f.Status = []state.Status{state.Running}
		running, err := cl.List(ctx, f)
		known := idsOf(views)
		views = append(views, slices.DeleteFunc(running, func(v wire.TaskView) bool { return slices.Contains(known, v.ID) })...)
		return err
	})
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) { // no master can write there
		var tasks []state.Task
		if tasks, err = statedir.List(ctx, dir, f); err == nil {
			a.hint("stint: %s cannot be written, so no master runs: this is what its journal has\n", dir)
		}
		views = viewsOf(tasks)
	}
	return views, err
}

func isRunning(v wire.TaskView) bool { return v.Status == state.Running }

// first returns a list with those first for which is holds.
func first[T any](list []T, is func(T) bool) []T {
	rest := slices.DeleteFunc(slices.Clone(list), is)
	return append(slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !is(v) }), rest...)
}

// familyTree returns the tasks of a list, each below the one that has queued it or the newest
// one that it waits for, with a mark before its title. Families of which a task runs come first.
func familyTree(views []wire.TaskView) []wire.TaskView {
	place, below := map[string]int{}, map[string][]int{}
	for i := range views {
		place[views[i].ID] = i
	}
	isBelow := make([]bool, len(views))
	for i := range slices.Backward(views) { // oldest first
		for _, id := range append(slices.Clone(views[i].After), views[i].TriggeredBy) {
			if at, listed := place[id]; listed && at > i && !isBelow[i] { // what it depends on is older, or a person's circle
				below[id], isBelow[i] = append(below[id], i), true
			}
		}
	}
	var family func(i, depth int) []wire.TaskView
	family = func(i, depth int) []wire.TaskView {
		v := views[i]
		if depth > 0 {
			v.Title = strings.Repeat("   ", depth-1) + "└─ " + v.Title
		}
		list := []wire.TaskView{v}
		for _, child := range below[v.ID] {
			list = append(list, family(child, depth+1)...)
		}
		return list
	}
	var families [][]wire.TaskView
	for i := range views {
		if !isBelow[i] {
			families = append(families, family(i, 0))
		}
	}
	return slices.Concat(first(families, func(f []wire.TaskView) bool { return slices.ContainsFunc(f, isRunning) })...)
}

// printEach prints JSON lines.
func printEach[T any](w io.Writer, list []T) error {
	for _, v := range list {
		if err := printJSON(w, v); err != nil {
			return err
		}
	}
	return nil
}

// printTable prints a list, unless asking for it failed: as JSON, the ids alone, or a table below its head. row returns the id of an
// item, and its cells; none is told of an empty list; the columns optional are left out on a narrow terminal.
func printTable[T any](a *app, list []T, err error, none string, head, optional []string, row func(T) (id string, cells []string)) error {
	switch {
	case err != nil:
		return err
	case a.json:
		return printEach(a.stdout, list)
	}
	ids, rows := "", [][]string{head}
	for _, item := range list {
		id, cells := row(item)
		ids, rows = ids+id+"\n", append(rows, cells)
	}
	switch {
	case len(list) == 0 && !a.ids:
		a.hint("stint: %s\n", escapeText(none))
		return nil
	case len(list) == 0:
		return nil
	case a.ids:
		return printText(a.stdout, ids)
	}
	fit(escapeRows(rows), terminalWidth(a.stdout), optional...)
	return writeTable(a.stdout, rows, nil)
}

// mapped returns what f makes of each item of a list.
func mapped[T, U any](list []T, f func(*T) U) []U {
	made := make([]U, len(list))
	for i := range list {
		made[i] = f(&list[i])
	}
	return made
}

// find returns the first item of a list for which is holds; nil if there is none.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func idsOf(views []wire.TaskView) []string {
	return mapped(views, func(v *wire.TaskView) string { return v.ID })
}

func printIDs(w io.Writer, views []wire.TaskView) error {
	_, err := io.WriteString(w, strings.Join(append(idsOf(views), ""), "\n")) // each with a line end
	return err
}

func (a *app) seen() wire.Look {
	return wire.Look{Now: time.Now(), Zone: zoneName(), Width: terminalWidth(a.stdout), Colour: isColoured(a.stdout)}
}

// printTasks prints the table for people.
func (a *app) printTasks(views []wire.TaskView) error {
	var lines []byte
	look := a.seen()
	for _, v := range views {
		lines = append(append(lines, taskLine(v, look)...), '\n')
	}
	return writeTasks(a.stdout, lines, look)
}

// taskLine returns the cells of a task, each safe to show, with tabs between them. Its age is still the instant in which it was
// made, and behind the last cell stands its status alone.
func taskLine(v wire.TaskView, look wire.Look) []byte {
	mark, made, status := "", "-", statusNow(&v, look.Now)
	if v.TriggeredBy != "" && !strings.Contains(v.Title, "└─ ") {
		mark = "↳ " // another task has queued it
	}
	if v.Waits != "" && look.Width > 0 && look.Width < 80 {
		status = clip(v.Waits, max(8, look.Width-26))
	}
	if !v.CreatedAt.IsZero() { // one that was written by hand knows that only once it has run
		made = strconv.FormatInt(v.CreatedAt.UnixMicro(), 10)
	}
	cells := []string{v.ID, status, runTime(&v, look.Now), made, clip(laneName(v.SessionKey), 20), v.Agent, v.Changes.String(), mark + v.Title, string(v.Status)}
	return []byte(strings.Join(escapeRows([][]string{cells})[0], "\t"))
}

// writeTasks writes the table of such lines. On a narrow terminal it leaves out columns.
func writeTasks(w io.Writer, lines []byte, look wire.Look) error {
	count := bytes.Count(lines, []byte("\n"))
	rows := append(make([][]string, 0, count+1), []string{"ID", "STATUS", "TIME", "AGE", "SESSION", "AGENT", "CHANGES", "PROMPT"})
	cells, ids, colours, hasChanged := make([]string, 0, count*9), make([]string, 0, count), make([]string, 1, count+1), false
	for line := range strings.Lines(string(lines)) {
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\t") {
			cells = append(cells, cell)
		}
		row := cells[len(cells)-9:]
		if made, err := strconv.ParseInt(row[3], 10, 64); err == nil {
			row[3] = ago(look.Now.Sub(time.UnixMicro(made)))
		}
		hasChanged = hasChanged || row[6] != ""
		ids, colours, rows = append(ids, row[0]), append(colours, sgr[state.Status(row[8])]), append(rows, row[:8])
	}
	for i, short := range shortIDs(ids) {
		rows[i+1][0] = short
	}
	if !hasChanged {
		drop(rows, "CHANGES")
	}
	if !look.Colour {
		colours = nil
	}
	fit(rows, look.Width, "AGE", "AGENT", "CHANGES", "SESSION", "TIME")
	return writeTable(w, rows, colours)
}

// runTime returns how long a task has been running, or has run in its last attempt.
func runTime(v *wire.TaskView, now time.Time) string {
	switch {
	case v.Status == state.Running && !v.RunStartedAt.IsZero():
		return ago(now.Sub(v.RunStartedAt))
	case v.Status.Terminal() && !v.StartedAt.IsZero():
		return ago(v.UpdatedAt.Sub(v.StartedAt))
	}
	return ""
}

// statusText returns the status, and what is special about it.
func statusText(v *wire.TaskView) string {
	switch {
	case v.Hold && !v.Status.Terminal():
		return string(v.Status) + " (held)"
	case v.Status == state.Running && phaseOf(&v.Task) != "":
		return string(v.Status) + " (" + phaseOf(&v.Task) + ")"
	case v.Status == state.Failed && v.Reason != "":
		return string(v.Status) + " (" + state.Cause(v.Reason, v.Error) + ")"
	default:
		return string(v.Status)
	}
}

// silentAfter is how long an agent writes nothing until its task is marked.
const silentAfter = time.Minute

// statusNow is statusText, with what the task waits for, or that its agent is silent.
func statusNow(v *wire.TaskView, now time.Time) string {
	if v.Waits != "" {
		return string(v.Status) + " (" + v.Waits + ")"
	}
	silent := now.Sub(v.LastOutput)
	if v.Status != state.Running || v.Phase == state.PhaseVerify || v.LastOutput.IsZero() || silent < silentAfter {
		return statusText(v)
	}
	return string(v.Status) + " (silent " + ago(silent) + ")"
}

// laneName returns the name of a session, and "-" for a lane of a directory or of one task.
func laneName(key string) string {
	if strings.ContainsRune(key, ':') {
		return "-"
	}
	return key
}

// widthsOf returns how many columns of a terminal the cells of rows take, without the last ones.
func widthsOf(rows [][]string) []int {
	if len(rows) == 0 {
		return nil
	}
	widths := make([]int, len(rows[0])-1)
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], textWidth(row[i]))
		}
	}
	return widths
}

// widthBefore returns how many columns of a terminal stand before the last cells of rows.
func widthBefore(rows [][]string) (used int) {
	for _, n := range widthsOf(rows) {
		used += n + 2
	}
	return used
}

// drop removes a column.
func drop(rows [][]string, name string) {
	if col := slices.Index(rows[0], name); col >= 0 {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], col, col+1)
		}
	}
}

// fit drops columns, and then cuts the last cells, so that rows fit into a terminal of that width; 0: any.
func fit(rows [][]string, width int, optional ...string) {
	if width == 0 {
		return
	}
	for _, name := range optional {
		if width-widthBefore(rows) < 20 {
			drop(rows, name)
		}
	}
	room, last := max(10, width-widthBefore(rows)), len(rows[0])-1
	for _, row := range rows {
		row[last] = clip(row[last], room)
	}
}

// escapeRows makes every cell safe to show, one line each.
func escapeRows(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			if strings.ContainsFunc(row[i], func(r rune) bool { return r < ' ' || r > '~' }) { // as few do
				row[i] = escapeText(strings.ReplaceAll(oneLine(row[i]), "\t", " "))
			}
		}
	}
	return rows
}

// overviewTasks is how many tasks stint without a command shows.
const overviewTasks = 5

// overview prints how things stand, and three commands that fit.
func (a *app) overview(ctx context.Context) error {
	views, err := a.listed(ctx, &lsOptions{filter: state.Filter{Limit: overviewTasks}})
	if err != nil {
		return err
	}
	if len(views) == 0 {
		return printText(a.stdout, "no tasks yet\n\nnext:\n  stint task \"Summarise this repository in one line\"\n  stint demo\n  stint doctor\n  stint help\n")
	}
	views = first(views, isRunning)
	if err := a.printTasks(views); err != nil {
		return err
	}
	defer a.warnPaused()
	defer a.warnFindings(ctx)
	next := "show"
	switch top := &views[0]; {
	case isRunning(*top):
		next = "logs -f"
	case top.Waits != "":
		next = "why"
	}
	counts := ""
	if h, err := a.health(ctx); err == nil {
		for _, st := range state.Statuses {
			if n := h.Counts[st]; n > 0 {
				counts += fmt.Sprintf(", %d %s", n, st)
			}
		}
	}
	return printText(a.stdout, fmt.Sprintf("\n%s\n\nnext:\n  stint %s %s\n  stint task \"PROMPT\"\n  stint ls\n  stint help\n", strings.TrimPrefix(counts, ", "), next, shortID(views[0].ID)))
}
