package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"stint/coordinator"
	"stint/coordinator/api"
	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/lazy"
	"stint/ledger/tasksfile"
)

func (a *app) editCommand() *cobra.Command {
	var accept, ofJobs bool
	var set []string // KEY=VALUE
	c := command("edit [ID]", "edit the ledger, or one task, with a check and a merge", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		switch {
		case ofJobs && (accept || len(set)+len(args) > 0):
			return usage("stint edit --jobs", "--jobs concerns all of jobs.md; to change a task, leave it out")
		case accept && len(args)+len(set) > 0:
			return usage("stint edit --accept", "--accept concerns the whole ledger")
		case accept:
			t, err := a.reconcile(ctx, true)
			if err != nil {
				return err
			}
			if err := a.print(t, count(t.Adopted, "edit")+" applied"); err != nil {
				return err
			}
			for _, n := range t.Notices {
				a.hint("stint: %s\n", n)
			}
			return a.reportReconciled(t)
		case len(set) > 0 && len(args) == 0:
			return usage("stint edit ID --set KEY=VALUE", "--set changes one task, and none is named")
		case len(set) > 0:
			patch, err := task.PatchOf(set)
			if err != nil {
				return err
			}
			return a.printEnd(fetch[wire.TaskView](ctx, a.callOrOpen, http.MethodPatch, client.TaskPath(args[0], ""), json.RawMessage(patch)))
		case a.json:
			return usage("stint edit --accept --json", "--json is for --accept and --set; an editor is for a person")
		case len(args) == 1:
			return a.editTask(ctx, args[0])
		case ofJobs:
			return a.editLedger(ctx, ledger.JobFiles)
		}
		return a.editLedger(ctx, ledger.TaskFiles)
	}, a.completeIDs())
	c.Flags().BoolVar(&ofJobs, "jobs", false, "edit jobs.md, the due jobs")
	c.Flags().BoolVar(&accept, "accept", false, "apply edits that are quarantined because a formatter seems to have made them")
	c.Flags().StringArrayVar(&set, "set", nil, "change a field of a task that waits, without an editor: `KEY=VALUE`, or KEY= to unset it; may be repeated")
	return a.withJSON(c)
}

// editLedger lets the user edit one of the ledgers.
func (a *app) editLedger(ctx context.Context, files ledger.Files) error {
	dir, err := a.editDir(ctx)
	if err != nil {
		return err
	}
	base, err := tasksfile.ReadCopy(ctx, nil, dir, files)
	if err != nil {
		return err
	}
	before, _, err := statedir.Preview(dir, files, base.Data)
	if err != nil {
		return err
	}
	e, err := a.newEditing(dir, ".md", base.Data)
	if err != nil {
		return err
	}
	e.files, e.base, e.old = files, base, before.Findings
	if files != ledger.TaskFiles {
		e.command += " --jobs"
	}
	return e.run(ctx, e.save)
}

// reconcile lets a master take over tasks.md, or does it where none is to run.
func (a *app) reconcile(ctx context.Context, accept bool) (task.Reconciled, error) {
	a.creates = true
	return fetch[task.Reconciled](ctx, a.callOrOpen, http.MethodPost, "/v1/ledger/reconcile", wire.ReconcileBody{Accept: accept})
}

// callOrOpen is call. Where no master runs and none is to be started, it opens the state directory
// itself, under its lock, and answers the request as a master would that starts no task.
func (a *app) callOrOpen(ctx context.Context, request func(*client.Client) error) error {
	err := a.call(ctx, request)
	base, cerr := a.base()
	if cerr != nil || base.AutoStart || exitCode(err) != exitNoMaster {
		return err
	}
	dir, err := a.ownState()
	if err != nil {
		return err
	}
	m := a.offlineMaster(dir, base)
	m.background = true // stint serve does not refuse to start beside it, but waits for its end
	c, err := coordinator.Open(m.coordinatorConfig(ctx))
	if err != nil {
		return err
	}
	room, err := m.dueJobs(c, nil)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	ln, err := guard.Listen(defaultSocket(dir))
	if err != nil {
		return errors.Join(err, room.Close(), c.Close())
	}
	a.opened = true
	instances := m.fleet(c, room, nil)
	server := api.NewServer(roomsOf(c, m.scheduler(c, room, instances, nil), room, instances, base.Governed, nil), api.Options{Redact: base.Redact, RunOf: func(pid int) func() (string, error) { return runOf(dir, pid) }})
	stop := inBackground(ctx, func(ctx context.Context) { err = server.Serve(ctx, ln) })
	asked := request(a.client(defaultSocket(dir)))
	stop()
	return cmp.Or(asked, errors.Join(err, room.Close(), c.Close()))
}

// reportReconciled prints what is wrong in tasks.md, which is an error, as are quarantined edits.
func (a *app) reportReconciled(t task.Reconciled) error {
	if t.Missing > 0 {
		a.hint("stint: tasks.md lacked %s; added again (to delete the newest task, use stint cancel)\n", count(t.Missing, "newest record"))
	}
	a.showFindings(t.Findings)
	if len(t.Findings) == 0 {
		return nil
	}
	file := t.Findings[0].File
	err := &cliError{code: exitFailure, message: fmt.Sprintf("%s has %s; the sections concerned wait", file, count(len(t.Findings), "finding")), try: "stint edit"}
	if file == ledger.JobFiles.Ledger() {
		err.try += " --jobs"
	}
	if t.Quarantined > 0 {
		err.try = "stint edit --accept, if the texts are meant so; else stint edit"
	}
	return err
}

// count returns "1 finding" or "2 findings".
func count(n int, what string) string { return ledger.Plural(n, what, what+"s") }

func (a *app) showFindings(list []task.Finding) {
	for _, f := range list {
		_, _ = fmt.Fprintln(a.stderr, escapeText(f.String())) // nothing is left to do about a broken stderr
	}
}

// An editing is a copy that a person is working on.
type editing struct {
	app  *app
	dir  string // the state directory
	file string // the copy

	files ledger.Files // of which ledger
	old   []task.Finding

	command string // that began it
	undone  int    // saves that another program has undone

	base *tasksfile.Copy // tasks.md as it was when text was made of it; nil where one task is edited
	text []byte          // what the person made of base: the two change together, or somebody's change is undone
}

// newEditing makes a copy with that text.
func (a *app) newEditing(dir, ext string, text []byte) (*editing, error) {
	f, err := os.CreateTemp(dir, "stint-edit-copy-*"+ext) // of mode 0600
	if err != nil {
		return nil, err
	}
	_, err = f.Write(text)
	return &editing{app: a, dir: dir, file: f.Name(), command: "stint edit"}, errors.Join(err, f.Close())
}

// editDir returns the state directory with an up-to-date tasks.md.
func (a *app) editDir(ctx context.Context) (string, error) {
	dir, err := a.ownState()
	if err != nil {
		return "", err
	}
	_, err = a.reconcile(ctx, false)
	return dir, err
}

// run has the person edit the copy until take, which gets the text, has no more to ask.
func (e *editing) run(ctx context.Context, take func(context.Context, []byte) (again bool, err error)) error {
	for {
		before, err := durable.ReadFile(durable.OS, e.file)
		if err != nil {
			return err
		}
		failed := openEditor(e.file, os.Stdout)
		text, err := durable.ReadFile(durable.OS, e.file)
		if err != nil {
			return fmt.Errorf("your copy is gone, and nothing was changed: %w", err)
		}
		if failed == nil && ctx.Err() != nil {
			failed = context.Cause(ctx)
		}
		switch {
		case failed != nil && bytes.Equal(before, text): // all that it has is elsewhere, too
			return errors.Join(editorError("nothing was changed", failed), e.drop())
		case failed != nil:
			return e.kept(failed)
		}
		if again, err := take(ctx, text); !again {
			return err
		}
	}
}

func (e *editing) drop() error { return os.Remove(e.file) }

// unchanged ends an editing without a change.
func (e *editing) unchanged() error {
	_, err := fmt.Fprintln(e.app.stdout, "no change")
	return errors.Join(err, e.drop())
}

// kept ends an editing whose copy is still needed.
func (e *editing) kept(why error) error {
	return &cliError{code: exitCode(why), message: fmt.Sprintf("nothing was changed: %v; your copy is %s", why, e.file), try: e.command + ", and put it in from there"}
}

// choose shows findings and asks what is to become of the copy: to be edited again, to be
// discarded, or, if a part of it is good, that part to be saved (false, nil).
func (e *editing) choose(ctx context.Context, fresh []task.Finding, good bool) (again bool, err error) {
	e.app.showFindings(fresh)
	question, letters := "edit again (e), or discard (d)?", "ed"
	if good {
		question, letters = "edit again (e), discard (d), or keep the good part (k)?", "edk"
	}
	switch answer, ok := e.app.ask(ctx, question, letters); {
	case ctx.Err() != nil:
		return false, e.kept(context.Cause(ctx))
	case !ok:
		return false, e.kept(errors.New(count(len(fresh), "finding")))
	case answer == 'd':
		return false, errors.Join(&cliError{code: exitFailure, message: "discarded; nothing was changed"}, e.drop())
	default:
		return answer == 'e', nil
	}
}

// save merges the text with what was written meanwhile, checks it, and puts it in the place of tasks.md.
func (e *editing) save(ctx context.Context, text []byte) (again bool, err error) {
	if e.text = text; bytes.Equal(text, e.base.Data) {
		return false, e.unchanged()
	}
	for {
		if err := e.rebase(ctx); err != nil {
			return false, e.kept(err)
		}
		plan, records, err := statedir.Preview(e.dir, e.files, e.text)
		if err != nil {
			return false, e.kept(err)
		}
		if fresh := freshFindings(plan.Findings, e.old); len(fresh) > 0 {
			if again, err := e.choose(ctx, fresh, true); again || err != nil {
				return again, err
			}
		}
		if doc, base := ledger.Parse(e.text), ledger.Parse(e.base.Data); len(doc.Sections) == 0 && len(base.Sections) > 0 || len(doc.Findings) > len(base.Findings)+len(plan.Findings) {
			return false, e.kept(errors.New("it has no record left, or ends within one; one that is empty deletes nothing"))
		}
		var back []string
		if len(plan.Findings) == 0 { // else nothing counts as deleted
			var gone []string
			gone, back = deleted(e.files.Kind(), e.base.Data, e.text)
			for _, id := range gone {
				plan.Notices = append(plan.Notices, fmt.Sprintf("%s: %s %s: deleted by hand", e.files.Ledger(), e.files.Kind(), id))
			}
		}
		if changed, err := e.put(ctx, e.base, e.text, records, plan); !changed {
			for _, id := range back {
				err = errors.Join(err, e.cancelNewest(ctx, id))
			}
			return false, err
		}
	}
}

// deleted returns the tasks of base, or the jobs, that have no section in text, those apart that are newer
// than all that text has: they come back, as it could be an old buffer.
func deleted(kind ledger.Kind, base, text []byte) (gone, back []string) {
	has, newest := map[string]bool{}, uint64(0)
	for _, s := range ledger.Parse(text).Sections {
		has[s.Name()], newest = true, max(newest, s.Seq)
	}
	for _, s := range slices.Backward(ledger.Parse(base).Sections) { // the newest record decides
		switch id := string(s.ID); {
		case s.Kind != kind || has[s.Name()]:
			continue
		case s.Seq > newest:
			back = append(back, id)
		default:
			gone = append(gone, id)
		}
		has[s.Name()] = true
	}
	return gone, back
}

// cancelNewest ends a task that a person has deleted, and whose section is back. One that has ended, or a job, is there again.
func (e *editing) cancelNewest(ctx context.Context, id string) error {
	what, err := "job "+id, error(&task.Error{Code: task.CodeConflict})
	if e.files == ledger.TaskFiles {
		what, err = "task "+id+" has ended, and", e.app.callOrOpen(ctx, func(c *client.Client) error { _, err := c.Act(ctx, id, "cancel"); return err })
	}
	if errors.Is(err, &task.Error{Code: task.CodeConflict}) {
		return &cliError{code: exitFailure, message: what + " its section is there again: it is among the newest, and the save could be an old buffer", try: "delete it when there is a newer record below it"}
	}
	if err == nil {
		_, err = fmt.Fprintf(e.app.stdout, "%s %s: canceled; its section was among the newest and is there again\n", ledger.KindTask, id)
	}
	return err
}

// saveTries is how often a save is made that another program undoes.
const saveTries = 4

// put puts text in the place of base, and has it reconciled. changed: another program was faster.
func (e *editing) put(ctx context.Context, base *tasksfile.Copy, text []byte, records []ledger.Record, plan task.Reconciled) (changed bool, err error) {
	err = base.Replace(text)
	if errors.Is(err, tasksfile.ErrChanged) {
		return true, nil
	}
	if err != nil {
		return false, e.kept(err)
	}
	t, err := e.app.reconcile(ctx, false)
	_, left, wrong := statedir.Preview(e.dir, e.files, text)
	adopts := func(r *ledger.Record) [2]string {
		digest, _ := r.Get(ledger.KeyAdopts)
		return [2]string{r.ID, digest}
	}
	asked := mapped(records, adopts)
	// Somebody may have saved an older buffer over records of this save, in the same moment.
	if err == nil && wrong == nil && slices.ContainsFunc(left, func(r ledger.Record) bool { return slices.Contains(asked, adopts(&r)) }) {
		if e.undone++; e.undone == saveTries {
			return false, e.kept(errors.New("another program saves an older " + e.files.Ledger() + " over it each time"))
		}
		return true, nil
	}
	if e.base == nil { // what is wrong elsewhere in tasks.md is not about this task
		t.Findings = freshFindings(t.Findings, e.old)
	}
	t.Findings = slices.DeleteFunc(t.Findings, func(f task.Finding) bool { return f.File != e.files.Ledger() })
	return false, errors.Join(e.drop(), e.taken(t, err, plan))
}

// rebase merges the text into tasks.md as it is now, the new base. After an error all is as it was.
func (e *editing) rebase(ctx context.Context) error {
	now, err := tasksfile.ReadCopy(ctx, nil, e.dir, e.files)
	if err != nil {
		return err
	}
	merged, err := mergeLedgers(e.base.Data, e.text, now.Data)
	if err == nil && !bytes.Equal(merged, e.text) {
		err = durable.PutFile(e.file, merged)
	}
	if err == nil {
		e.base, e.text = now, merged
	}
	return err
}

// ask puts a question on the terminal and reads the answer: the first letter of a
// line, one of letters. It returns false if there is no terminal, or no answer.
func (a *app) ask(ctx context.Context, question, letters string) (byte, bool) {
	if !isTTY(a.stdin) {
		return 0, false
	}
	for {
		_, _ = fmt.Fprintf(a.stderr, "%s ", question) // nothing is left to do about a broken stderr
		// A terminal gives a line at a time: what follows may be for an editor.
		line, err := interruptibly(ctx, interrupted, func() (string, error) { return bufio.NewReader(a.stdin).ReadString('\n') })
		if err != nil {
			return 0, false
		}
		if line = strings.ToLower(strings.TrimSpace(line)); len(line) > 0 && strings.IndexByte(letters, line[0]) >= 0 {
			return line[0], true
		}
	}
}

// taken prints what a save has brought about: what it was to bring about, and what came of taking it over.
func (e *editing) taken(t task.Reconciled, err error, plan task.Reconciled) error {
	if err != nil {
		return fmt.Errorf("%s is saved, and the next master takes it over: %w", e.files.Ledger(), err)
	}
	notices := t.Notices
	for _, n := range plan.Notices {
		if !slices.Contains(notices, n) { // the master has seen the save before we could tell it
			notices = append(notices, n)
		}
	}
	if len(notices) == 0 {
		notices = []string{"saved; no " + strings.ToLower(string(e.files.Kind())) + " is changed by it"}
	}
	if _, err := fmt.Fprintln(e.app.stdout, escapeText(strings.Join(notices, "\n"))); err != nil {
		return err
	}
	return e.app.reportReconciled(t)
}

// lineNumber is what an edit above changes in the message of a finding.
var lineNumber = lazy.Regexp(`line [0-9]+`)

// freshFindings returns findings without those that were there before, on whichever line.
func freshFindings(now, before []task.Finding) (fresh []task.Finding) {
	known := map[string]int{}
	name := func(f task.Finding) string { return lineNumber().ReplaceAllLiteralString(f.Message, "line") }
	for _, f := range before {
		known[name(f)]++
	}
	for _, f := range now {
		if known[name(f)]--; known[name(f)] < 0 {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// defaultEditor is the shell's word for the editor where neither $VISUAL nor $EDITOR is set.
const defaultEditor = "$(command -v sensible-editor || command -v nano || echo vi)"

// openEditor lets the user edit a file. The editor's own output goes to stdout.
func openEditor(file string, stdout *os.File) error {
	// A piece of shell: it may have options, as in "code --wait".
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), defaultEditor)
	cmd := exec.Command("/bin/sh", "-c", "trap : INT; "+editor+` "$1"`, "sh", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, os.Stderr
	// The editor decides what Ctrl-C means: vim goes on. It may be pressed before Start returns, so nobody
	// reads it from here on.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	signal.Stop(interrupts)
	err := cmd.Start()
	if err == nil {
		// What comes now never reaches us, so none of it is left when the editor ends. The editor would have
		// inherited that before.
		signal.Ignore(os.Interrupt, syscall.SIGQUIT)
		err = cmd.Wait()
		signal.Reset(syscall.SIGQUIT)
	}
	signal.Notify(interrupts, os.Interrupt)
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitInterrupted {
		return errDetached
	}
	return fmt.Errorf("the editor %q failed: %w", editor, err)
}

// interrupts has each Ctrl-C that is for a command itself.
var interrupts = make(chan os.Signal, 1)

// editorError says what did not happen because an editor failed.
func editorError(message string, failed error) error {
	err := &cliError{code: exitCode(failed), message: message, err: failed}
	if err.code == exitFailure {
		err.try = "export EDITOR=..."
	}
	return err
}

// mergeLedgers returns what a person made of base together with what tasks.md has become meanwhile: what was only
// appended there, as a master does it, comes after the person's text. Nobody else's change is merged.
func mergeLedgers(base, edited, current []byte) ([]byte, error) {
	if bytes.Equal(current, base) || bytes.Equal(current, edited) {
		return edited, nil
	}
	if added, ok := bytes.CutPrefix(current, base); ok && (added[0] == '\n' || len(endLine(base)) == len(base)) {
		return putBelow(edited, added), nil
	}
	return nil, errors.New("somebody else has edited the file meanwhile, or a compaction has written it anew")
}

// putBelow returns text with what another person wrote below it. Words do not follow
// directly: they would be read as a part of the value above them.
func putBelow(text, added []byte) []byte {
	text = endLine(text)
	if len(text) > 0 && len(added) > 0 && !bytes.ContainsAny(added[:1], "\n\t -") && !bytes.HasSuffix(text, []byte("\n\n")) {
		text = append(text, '\n')
	}
	return append(text, added...)
}

// endLine returns a copy of text that ends with a newline, unless it is empty.
func endLine(text []byte) []byte {
	text = bytes.Clone(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}
