package coordinator_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// moments are when the master appends to tasks.md, as the editor sees it.
var moments = []string{"before-load", "load-to-save", "during-save", "after-save"}

// An editorCase is one save of one program while the master is at work. Its seed chooses what is edited.
type editorCase struct {
	saver, moment string
	seed          uint64
}

func (c editorCase) String() string { return fmt.Sprintf("%s:%s:%d", c.saver, c.moment, c.seed) }

// TestPromise4EditorsLoseNothing saves tasks.md with real editors and with the ways in which others save,
// while the master submits tasks and ends runs: no acknowledged task is lost, each edit takes effect, none is
// applied twice, and no task runs more often than was asked for.
//
// STINT_TEST_EDITOR_CASES says how many cases, STINT_TEST_SEED where the seeds
// begin, and STINT_TEST_EDITOR=saver:moment:seed repeats one case.
func TestPromise4EditorsLoseNothing(t *testing.T) {
	t.Parallel()
	notShort(t)
	needPrograms(t, "nano", "vim", "sed", "perl", "git", "cp")
	cases := editorCases(t)
	// Not under /tmp: Vim makes no backup there (backupskip), and then it saves in another way.
	cache, err := os.UserCacheDir()
	if err = errors.Join(err, os.MkdirAll(cache, 0o700)); err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp(cache, "stint-editors-")
	check(t, err)
	defer func() { _ = os.RemoveAll(base) }()
	next := make(chan editorCase)
	var workers sync.WaitGroup
	for range min(len(cases), 48) { // they mostly wait
		workers.Go(func() {
			for c := range next {
				t.Run(c.String(), func(t *testing.T) { c.run(t, base) })
			}
		})
	}
	for _, c := range cases {
		next <- c
	}
	close(next)
	workers.Wait()
	if !t.Failed() {
		t.Logf("editors: cases=%d savers=%d lost=0 edits lost=0 run twice=0 seed=%d", len(cases), len(savers), cases[0].seed)
	}
}

func editorCases(t *testing.T) []editorCase {
	t.Helper()
	if one := os.Getenv("STINT_TEST_EDITOR"); one != "" {
		parts := strings.Split(one, ":")
		seed, err := strconv.ParseUint(parts[len(parts)-1], 10, 64)
		if len(parts) != 3 || saverNamed(parts[0]) == nil || err != nil {
			t.Fatalf("STINT_TEST_EDITOR=%q is not saver:moment:seed", one)
		}
		return []editorCase{{parts[0], parts[1], seed}}
	}
	seed := number(t, "STINT_TEST_SEED", 1)
	cases := make([]editorCase, number(t, "STINT_TEST_EDITOR_CASES", 2*len(savers)))
	for i := range cases {
		saver, round := i%len(savers), i/len(savers)
		cases[i] = editorCase{savers[saver].name, moments[(saver+round)%len(moments)], uint64(seed + round/len(moments))}
	}
	return cases
}

// run carries out the case.
func (c editorCase) run(t *testing.T, base string) {
	w := newEditorWorld(t, c, base)
	w.open()
	w.populate()
	w.atMoment(c.moment, "before-load")
	e := saverNamed(c.saver).open(w.file)
	w.check(e.load())
	edits := w.chooseEdits(w.readTasks())
	w.atMoment(c.moment, "load-to-save")
	w.save(e, edits, c.moment == "during-save")
	w.atMoment(c.moment, "after-save")
	w.release()
	w.awaitWants()
	if w.rand.IntN(2) == 0 { // the person saves the same buffer once more
		w.check(e.save(nil, func() {}))
		w.awaitWants()
	}
	w.check(e.quit())
	w.shutDown()
	w.reopensTheSame()
	w.countRuns()
}

// An editorWorld is a world with what must have become of its tasks.
type editorWorld struct {
	*world
	rand *rand.Rand
	file editedFile

	release  func()        // lets the slow tasks end
	released chan struct{} // closed by release

	mu    sync.Mutex // guards what follows
	wants map[string]*want
	slow  map[string]bool // tasks whose agent waits for the gate
	notes []string        // text that was written between the records

	finished, waiting []string // tasks that may be edited; owned by the test
}

// A want is what a task must be in the end.
type want struct {
	status   state.Status
	prompt   string
	session  string // "": any
	priority int
	runs     int
	hands    int  // records that were taken over from edits
	deleted  bool // its sections: it is gone from the lists
}

func newEditorWorld(t *testing.T, c editorCase, base string) *editorWorld {
	t.Helper()
	w := &editorWorld{
		world: newWorld(t), rand: rand.New(rand.NewPCG(c.seed, 7)),
		wants: map[string]*want{}, slow: map[string]bool{}, released: make(chan struct{}),
	}
	home, err := os.MkdirTemp(base, c.saver+"-")
	w.check(err)
	w.dir = filepath.Join(home, "state")
	w.cfg.StateDir = w.dir
	w.file = editedFile{path: filepath.Join(w.dir, ledger.TasksName), aside: filepath.Join(home, "aside")}
	w.check(os.Mkdir(w.file.aside, 0o700))
	w.release = sync.OnceFunc(func() { close(w.released) })
	w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		w.mu.Lock()
		slow := w.slow[turn.TaskID]
		w.mu.Unlock()
		if slow {
			select {
			case <-w.released:
			case <-ctx.Done():
				return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
			}
		}
		return task.Outcome{Result: "answer\n\n- one\n"}
	}
	return w
}

func (w *editorWorld) check(err error) {
	w.t.Helper()
	fatal(w.t, err)
}

func (w *editorWorld) readTasks() string { return read(w.t, w.file.path) }

// prompts are what the tasks ask for; the number keeps them apart.
var prompts = []string{
	"task %d",
	"task %d:\n\n  * one\n  * two\n\n## Task forged\n- status: done\n<!-- end 1 -->",
	"task %d, __init__.py\n```go\nfunc main() {\n\tx()\n}\n```",
	"task %d ends with blanks  \n\n",
}

// enqueue submits a task and notes what must become of it. A task that is to
// wait is due in a year, a slow one ends when it is released.
func (w *editorWorld) enqueue(number int, waits, slow bool) (string, error) {
	spec := task.TaskSpec{
		ID: uuid.Must(uuid.NewV7()).String(), Parallel: true,
		Prompt: fmt.Sprintf(prompts[number%len(prompts)], number),
	}
	goal := &want{status: state.Done, prompt: spec.Prompt, runs: 1}
	if waits {
		spec.NotBefore = time.Now().AddDate(1, 0, 0)
		goal.status, goal.runs = state.Queued, 0
	}
	w.mu.Lock()
	w.slow[spec.ID] = slow
	w.mu.Unlock()
	if _, err := w.try(spec); err != nil {
		return "", err
	}
	w.want(spec.ID, goal) // acknowledged
	return spec.ID, nil
}

// populate submits tasks of each kind, and waits until tasks.md has them.
func (w *editorWorld) populate() {
	w.t.Helper()
	add := func(n int, waits, slow bool) string {
		id, err := w.enqueue(n, waits, slow)
		w.check(err)
		return id
	}
	n := w.rand.IntN(len(prompts))
	for range 3 + w.rand.IntN(3) {
		n++
		w.finished = append(w.finished, add(n, false, false))
	}
	if w.rand.IntN(8) == 0 { // a file of more than a few blocks
		long := strings.Repeat("a line of a long prompt\n", 3000+w.rand.IntN(3000)) + "end"
		id := uuid.Must(uuid.NewV7()).String()
		w.submit(task.TaskSpec{ID: id, Parallel: true, Prompt: long})
		w.wants[id] = &want{status: state.Done, prompt: long, runs: 1}
		w.wait(id)
	}
	for _, id := range w.finished {
		w.wait(id)
	}
	for range 3 {
		n++
		w.waiting = append(w.waiting, add(n, true, false))
	}
	add(n+1, false, true)
	w.await("tasks.md has all records", w.inTasks)
}

// atMoment makes the master append to tasks.md if the moment is now.
func (w *editorWorld) atMoment(moment, now string) {
	w.t.Helper()
	if moment == now {
		w.check(w.work())
	}
}

// work makes the master append what it appends in its daily work: a task that
// waits, a task that runs and ends, and the end of a run that was begun before.
func (w *editorWorld) work() error {
	if _, err := w.enqueue(100, true, false); err != nil {
		return err
	}
	id, err := w.enqueue(101, false, false)
	if err != nil {
		return err
	}
	w.release()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = w.c.Wait(ctx, id)
	return err
}

// save makes the editor save its edits; with busy the master is at work meanwhile.
func (w *editorWorld) save(e editor, edits []lineEdit, busy bool) {
	w.t.Helper()
	mid := func() {}
	var master sync.WaitGroup
	saved, failed := make(chan struct{}), error(nil)
	if busy {
		mid = func() { // no longer than a save may take
			_, err := w.enqueue(102, false, false)
			w.check(err)
		}
		master.Go(func() {
			for i := 0; i < 20 && failed == nil; i++ {
				failed = w.work()
				select {
				case <-saved:
					return
				default:
				}
			}
		})
	}
	err := e.save(edits, mid)
	close(saved)
	master.Wait()
	w.check(err)
	w.check(failed)
}

// patience is how long something may take on a machine that is busy.
const patience = 2 * time.Minute

// await polls until is gives "", and fails with what it gave last.
func (w *editorWorld) await(what string, is func() string) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		missing := is()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("never: %s: %s\ntasks.md:\n%s\njournal.md:\n%s", what, missing, w.tail("tasks.md"), w.tail("journal.md"))
		}
	}
}

func (w *editorWorld) tail(name string) string {
	text := read(w.t, w.dir, name)
	return text[max(0, len(text)-8000):]
}

// awaitWants waits until each task is what it must be and tasks.md has every record again that the save has
// dropped. Where a record landed behind the last line, that is told, and the person mends it.
func (w *editorWorld) awaitWants() {
	w.t.Helper()
	w.await("all edits have taken effect", func() string {
		missing := w.unfulfilled()
		if text := w.readTasks(); missing != "" && len(w.c.Findings()) > 0 && glued.MatchString(text) {
			w.t.Log("a record landed behind a line without an end, which gets one now")
			w.check(byRename(w.file, glued.ReplaceAllString(text, "$1\n$2"), func() {}))
		}
		return missing
	})
	w.await("tasks.md has all records", w.inTasks)
}

// unfulfilled names a task that is not what it must be; "" if there is none.
func (w *editorWorld) unfulfilled() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[string]bool{}
	for _, t := range w.c.List(state.Filter{}) {
		listed[t.ID] = true
		if w.wants[t.ID] == nil {
			return "nobody submitted task " + t.ID
		}
	}
	runs := w.runs()
	for id, want := range w.wants {
		t, err := w.c.Task(context.Background(), id)
		switch {
		case err != nil:
			return err.Error()
		case t.Status != want.status || t.Prompt != want.prompt || t.Priority != want.priority ||
			want.session != "" && t.SessionKey != want.session:
			return fmt.Sprintf("task %s is %s, session %s, priority %d, prompt %.60q; want %+v", id, t.Status, t.SessionKey, t.Priority, t.Prompt, *want)
		case runs[id] < want.runs:
			return fmt.Sprintf("task %s: %d runs, want %d", id, runs[id], want.runs)
		case listed[id] == want.deleted:
			return fmt.Sprintf("task %s: listed: %v, its sections were deleted: %v", id, listed[id], want.deleted)
		}
	}
	return ""
}

// runs returns how often each task was run.
func (w *editorWorld) runs() map[string]int {
	w.agent.mu.Lock()
	defer w.agent.mu.Unlock()
	runs := map[string]int{}
	for _, turn := range w.agent.turns {
		runs[turn.TaskID]++
	}
	return runs
}

// inTasks names a record of the journal that is not in tasks.md, or a note; "" if all are.
func (w *editorWorld) inTasks() string {
	text := w.readTasks()
	have := map[uint64]bool{}
	for _, s := range ledger.Parse([]byte(text)).Sections {
		have[s.Seq] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.journal() {
		if want := w.wants[string(s.ID)]; !have[s.Seq] && (want == nil || !want.deleted) {
			return fmt.Sprintf("record %d of %s %s is not there", s.Seq, s.Kind, s.ID)
		}
	}
	for _, note := range w.notes {
		if !strings.Contains(text, note) {
			return fmt.Sprintf("the text %q is not there", note)
		}
	}
	return ""
}

func (w *editorWorld) journal() []ledger.Section {
	return ledger.Parse([]byte(read(w.t, w.dir, ledger.JournalName))).Sections
}

// glued is where a record landed behind a text that was saved in that very moment
// without a newline at its end. Nothing is lost, but the line is a finding.
var glued = regexp.MustCompile(`([^\n])(## Task [^\n]*\n- seq: )`)

// shutDown closes the world. Only where the unlikely has happened it does not
// expect tasks.md to be without findings.
func (w *editorWorld) shutDown() {
	w.t.Helper()
	if !glued.MatchString(w.readTasks()) {
		w.close()
		return
	}
	w.t.Log("a record landed behind a line without an end")
	w.check(w.quit())
}

// reopensTheSame expects that the next master finds nothing more to take over.
func (w *editorWorld) reopensTheSame() {
	w.t.Helper()
	before := w.tail("journal.md")
	var c *coordinator.Coordinator
	w.await("the lock is free", func() string { // an editor that is being started has it until its exec
		var err error
		if c, err = coordinator.Open(w.cfg); err != nil {
			return err.Error()
		}
		return ""
	})
	w.check(c.Close())
	if after := w.tail("journal.md"); after != before {
		w.t.Errorf("the next master has appended to the journal; it ended with\n%s\nand now ends with\n%s", before, after)
	}
}

// countRuns expects that each task ran as often as was asked for, and that each edit was taken over once.
func (w *editorWorld) countRuns() {
	w.t.Helper()
	runs, hands := w.runs(), map[string]int{}
	for _, s := range w.journal() {
		if s.Kind == ledger.KindTask && s.Value(ledger.KeyBy) == ledger.ByHand {
			hands[string(s.ID)]++
		}
	}
	for id, want := range w.wants {
		if runs[id] != want.runs || hands[id] != want.hands {
			w.t.Errorf("task %s: %d runs, want %d; %d edits, want %d\n%s", id, runs[id], want.runs, hands[id], want.hands, w.tail("journal.md"))
		}
	}
	if w.agent.twice {
		w.t.Error("a task had two runs at once")
	}
}

// A lineEdit puts lines in the place of others: from line at on (counted from 1) cut lines go and add comes.
type lineEdit struct {
	at, cut int
	add     []string
}

// behind is the line behind the last one.
const behind = 1 << 30

// applyEdits returns the text with the edits, which are made from the last line to
// the first. The last line ends with a newline then.
func applyEdits(text string, edits []lineEdit) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, e := range edits {
		from := min(e.at-1, len(lines))
		lines = slices.Replace(lines, from, from+e.cut, e.add...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// chooser picks edits of one state of tasks.md, and notes what they ask for.
type chooser struct {
	*editorWorld
	sections []ledger.Section
	edits    []lineEdit
}

// chooseEdits returns edits of different tasks, from the last line to the first.
func (w *editorWorld) chooseEdits(text string) []lineEdit {
	c := chooser{editorWorld: w, sections: ledger.Parse([]byte(text)).Sections}
	kinds := []func(){
		func() { c.newStatus(&c.finished, state.Queued, true) }, func() { c.newStatus(&c.finished, state.Queued, false) },
		func() { c.newStatus(&c.waiting, state.Canceled, true) }, func() { c.newStatus(&c.waiting, state.Canceled, false) },
		c.newPrompt, c.newPriority, c.newSession, c.addTask, c.addDraft, c.deleteTask, c.writeNote, func() {},
	}
	for _, i := range w.rand.Perm(len(kinds))[:1+w.rand.IntN(3)] {
		kinds[i]()
	}
	slices.SortStableFunc(c.edits, func(a, b lineEdit) int { return cmp.Or(b.at-a.at, b.cut-a.cut) })
	return c.edits
}

func (c *chooser) edit(at, cut int, add ...string) {
	c.edits = append(c.edits, lineEdit{at, cut, add})
}

// take picks one of the tasks, which no other edit gets then.
func (c *chooser) take(from *[]string) (id string, want *want) {
	i := c.rand.IntN(len(*from))
	id = (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	c.mu.Lock()
	defer c.mu.Unlock()
	return id, c.wants[id]
}

// lastWith returns the last section of a task that names a key, and the line of it.
func (c *chooser) lastWith(id, key string) (*ledger.Section, int) {
	for i := range slices.Backward(c.sections) {
		s := &c.sections[i]
		if f := s.Get(key); string(s.ID) == id && f != nil {
			return s, s.LineOf(f)
		}
	}
	panic("task " + id + " has no " + key)
}

func (c *chooser) newStatus(of *[]string, to state.Status, below bool) {
	id, want := c.take(of)
	line := "- status: " + string(to)
	if below {
		c.edit(behind, 0, "", "## Task "+id, line)
	} else {
		_, at := c.lastWith(id, state.KeyStatus)
		c.edit(at, 1, line)
	}
	if want.hands = 1; to == state.Queued {
		want.runs = 2
	} else {
		want.status = to
	}
}

func (c *chooser) newPrompt() {
	id, want := c.take(&c.waiting)
	s, line := c.lastWith(id, state.KeyPrompt) // the last field of its section
	cut := s.Line + strings.Count(string(s.Raw), "\n") - 1 - line
	if want.prompt = "do something else"; c.rand.IntN(2) == 0 {
		want.prompt = "do\n\n  something\n\nelse"
		c.edit(line, cut, "- prompt: |", "  do", "", "    something", "", "  else")
	} else {
		c.edit(line, cut, "- prompt: do something else")
	}
	want.hands = 1
}

func (c *chooser) newPriority() {
	id, want := c.take(&c.waiting)
	_, line := c.lastWith(id, state.KeyStatus)
	c.edit(line+1, 0, "- priority: 8")
	want.priority, want.hands = 8, 1
}

func (c *chooser) newSession() {
	id, want := c.take(&c.waiting)
	_, line := c.lastWith(id, state.KeySessionKey)
	c.edit(line, 1, "- sessionKey: by_hand")
	want.session, want.hands = "by_hand", 1
}

// between returns a line between two records that no other edit touches, or the end.
func (c *chooser) between() int {
	if len(c.waiting) == 0 || c.rand.IntN(2) == 0 {
		return behind
	}
	s, _ := c.lastWith(c.waiting[0], state.KeyPrompt)
	return s.Line + strings.Count(string(s.Raw), "\n") + 1
}

func (c *chooser) addTask() {
	c.edit(c.between(), 0, "## Task by-hand", "- status: queued", "- prompt: |", "  do", "  this", "")
	c.want("by-hand", &want{status: state.Done, prompt: "do\nthis", runs: 1, hands: 1})
}

func (c *chooser) addDraft() {
	c.edit(c.between(), 0, "## Task draft", "- prompt: not yet", "")
	c.want("draft", &want{status: state.Draft, prompt: "not yet", hands: 1})
}

func (w *editorWorld) want(id string, want *want) {
	w.mu.Lock()
	w.wants[id] = want
	w.mu.Unlock()
}

// deleteTask takes all sections of a finished task out.
func (c *chooser) deleteTask() {
	id, want := c.take(&c.finished)
	for i := range c.sections {
		if s := &c.sections[i]; string(s.ID) == id {
			c.edit(s.Line, strings.Count(string(s.Raw), "\n")+1)
		}
	}
	want.deleted = true
}

func (c *chooser) writeNote() {
	note := fmt.Sprintf("A note of mine, number %d.", c.rand.IntN(1000))
	c.edit(c.between(), 0, note, "")
	c.notes = append(c.notes, note)
}
