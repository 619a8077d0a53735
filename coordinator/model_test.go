package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// TestPromise4RandomHistories lets clients and two editors with buffers of their own work on one ledger,
// kills the master at random, compacts, and compares what is there with a reference after every step.
// STINT_TEST_MODEL sets the number of histories, STINT_TEST_SEED the first seed, so that each run checks the
// same ones and .ci/deep looks for new ones; a failure prints the seed to repeat.
func TestPromise4RandomHistories(t *testing.T) {
	t.Parallel()
	notShort(t)
	histories, first := number(t, "STINT_TEST_MODEL", 4), number(t, "STINT_TEST_SEED", 1)
	slots := make(chan struct{}, 16) // most of the time is spent waiting for saves to settle
	var done sync.WaitGroup
	for seed := first; seed < first+histories; seed++ {
		done.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(fmt.Sprint(seed), func(t *testing.T) { newHistory(t, uint64(seed)).run() })
		})
	}
	done.Wait()
	t.Logf("model: histories=%d first seed=%d", histories, first)
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	check(t, err)
	return n
}

// reference is the contract of a person's saves in its simplest form: it knows
// the text that is saved and which numbers the journal has, and nothing else.
type reference struct {
	tasks    map[string]*wanted
	archived map[string]bool
	before   map[string]int // hand-written sections that were taken over before the last compaction, by text
	since    map[string]int // and after it
	through  uint64         // the last number that the last compaction took away
}

type wanted struct {
	status   state.Status
	priority string
	hidden   bool // a person has deleted its sections
}

// A sectionText is what the reference reads of a section.
type sectionText struct {
	whole                      string
	id, text, status, priority string // the id of a control has its kind before it; text: its id and status
	ignored                    string // a priority that was seen and had no effect
	seq, edits                 uint64 // edits: the section that was edited, if this tells of an edit
	adoption                   bool   // it tells of what a person did
}

var (
	sectionStart = regexp.MustCompile(`(?m)^## (Task |Control )`)
	sectionField = regexp.MustCompile(`(?m)^- (seq|status|priority|edits|adopts|ignored): (.*)$`)
)

// sectionsOf cuts a ledger into its sections.
func sectionsOf(text string) (list []sectionText) {
	starts := sectionStart.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		id, body, _ := strings.Cut(text[at[1]:end], "\n")
		s := sectionText{id: strings.TrimPrefix(text[at[2]:at[3]], "Task ") + id, whole: text[at[0]:end]}
		for _, m := range sectionField.FindAllStringSubmatch(body, -1) {
			switch m[1] {
			case "seq":
				s.seq, _ = strconv.ParseUint(m[2], 10, 64)
			case "status":
				s.status = m[2]
			case "priority":
				s.priority = m[2]
			case "ignored": // it was seen, and had no effect
				s.ignored = strings.TrimPrefix(m[2], "- priority: ")
			default:
				s.adoption = true
				if m[1] == "edits" {
					s.edits, _ = strconv.ParseUint(m[2], 10, 64) // 0 where it was a hand-written one
				}
			}
		}
		s.text = id + " " + s.status
		list = append(list, s)
	}
	return list
}

// mapSections returns a ledger with each of its sections as f returns it.
func mapSections(text string, f func(s *sectionText) string) string {
	list := sectionsOf(text)
	if len(list) == 0 {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:strings.Index(text, list[0].whole)])
	for i := range list {
		b.WriteString(f(&list[i]))
	}
	return b.String()
}

// saved returns what follows from a save of text, with those sections in the journal.
func (r *reference) saved(text string, journal []sectionText) {
	known := map[uint64]bool{}
	for _, s := range journal {
		known[s.seq] = true
	}
	sections := sectionsOf(text)
	var newest uint64
	inFile := map[string]bool{}
	for _, s := range sections {
		inFile[s.id] = true
		if known[s.seq] {
			newest = max(newest, s.seq)
		}
	}
	r.numbered(sections, journal, newest)
	r.written(sections)
	for _, s := range journal {
		inFile[s.id] = inFile[s.id] || s.seq > newest // these are put back
	}
	for id, task := range r.tasks {
		switch {
		case inFile[id]:
			task.hidden = false
		case newest == 0:
		case task.status.Terminal():
			task.hidden = true
		default:
			task.status = state.Canceled
		}
	}
}

// numbered takes over priorities that were changed where they stand. What a person
// could see is what the newest record in his buffer knew; an edit that came after
// that and reads like this one is this very buffer, saved before.
func (r *reference) numbered(sections, journal []sectionText, newest uint64) {
	for _, s := range sections {
		seen, known, twice := "", false, false
		for _, j := range journal {
			switch {
			case j.seq == s.seq:
				seen, known = j.priority, true
			case j.edits == s.seq && j.seq <= newest && j.priority != "":
				seen = j.priority
			case j.edits == s.seq && j.seq <= newest && j.ignored != "":
				seen = j.ignored
			case j.edits == s.seq && j.seq > newest:
				twice = twice || j.priority == s.priority
			}
		}
		if known && !s.adoption && s.priority != "" && s.priority != seen && !twice {
			r.tasks[s.id].priority = s.priority
		}
	}
}

// written takes over sections without a number: the n-th of equal ones once.
func (r *reference) written(sections []sectionText) {
	isNew := r.isNew()
	for i := range sections {
		if s := &sections[i]; isNew(s) {
			r.since[s.text]++
			if r.tasks[s.id] == nil {
				r.tasks[s.id] = &wanted{}
			}
			r.tasks[s.id].status = state.Status(s.status)
		}
	}
}

// isNew returns what reports of one section after the other whether it is hand-written
// and was not taken over before.
func (r *reference) isNew() func(*sectionText) bool {
	since, before := maps.Clone(r.since), maps.Clone(r.before)
	above := true // the present compaction's records are all below
	return func(s *sectionText) bool {
		above = above && s.seq <= r.through
		switch {
		case s.seq > 0:
			return false
		case above && before[s.text] > 0:
			before[s.text]--
			return false
		case since[s.text] > 0:
			since[s.text]--
			return false
		}
		return true
	}
}

// knowsMore reports whether more sections that read like that were taken over than are in the buffer. Whether
// one more of them is new depends on what has become of those, which is another test's matter.
func (r *reference) knowsMore(reads, buffer string) bool {
	n := r.since[reads] + r.before[reads]
	for _, s := range sectionsOf(buffer) {
		if s.seq == 0 && s.text == reads {
			n--
		}
	}
	return n > 0
}

// compacted forgets what a compaction moves out and merges.
func (r *reference) compacted(all bool, through uint64) {
	for text, n := range r.since {
		r.before[text] += n
	}
	r.since, r.through = map[string]int{}, through
	for id, task := range r.tasks {
		if task.hidden || all && task.status.Terminal() {
			r.archived[id] = true
			delete(r.tasks, id)
		}
	}
}

// A history is one run of the test: a master, two editors and the reference.
type history struct {
	*world
	rand  *rand.Rand
	ref   reference
	open  [2]string // what the editors have in their buffers; "" is none
	notes []string  // lines of text that must be in tasks.md
	steps []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 2))}
	h.ref = reference{
		tasks: map[string]*wanted{}, archived: map[string]bool{},
		before: map[string]int{}, since: map[string]int{},
	}
	h.start()
	return h
}

// start opens a master that dispatches nothing.
func (h *history) start() {
	h.t.Helper()
	c, err := coordinator.Open(h.cfg)
	h.must(err)
	h.c = c
}

func (h *history) fatal(what any) {
	h.t.Helper()
	h.t.Fatalf("%v\nafter %s\ntasks.md:\n%s", what, strings.Join(h.steps, "; "), h.file("tasks.md"))
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.fatal(err)
	}
}

func (h *history) file(name string) string { return read(h.t, h.dir, name) }

func (h *history) journal() []sectionText { return sectionsOf(h.file("journal.md")) }

func (h *history) run() {
	for range 25 {
		h.step()
		h.compare()
	}
	var live, refold bytes.Buffer
	h.must(errors.Join(h.c.Dump(&live), coordinator.DumpJournal(h.dir, &refold), h.c.Close()))
	if live.String() != refold.String() {
		h.fatal(fmt.Sprintf("the live state is\n%s\nand the fold of the journal\n%s", live.String(), refold.String()))
	}
}

func (h *history) step() {
	editor := h.rand.IntN(len(h.open))
	switch n := h.rand.IntN(20); {
	case n < 4:
		h.client()
	case n < 6:
		h.said("load %d", editor)
		h.open[editor] = h.file("tasks.md")
	case n < 11:
		h.edit(editor)
	case n < 16:
		h.save(editor)
	case n < 18:
		h.kill()
	case n < 19:
		h.compact()
	default:
		h.said("restart")
		h.must(h.c.Close())
		h.start()
	}
}

func (h *history) said(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// one returns a task that the reference knows, or "".
func (h *history) one() string {
	ids := slices.Sorted(maps.Keys(h.ref.tasks))
	if len(ids) == 0 {
		return ""
	}
	return ids[h.rand.IntN(len(ids))]
}

// client submits, or cancels or retries a task, and the reference notes the answer.
func (h *history) client() {
	ctx := context.Background()
	id := h.one()
	if id == "" || h.rand.IntN(2) == 0 {
		id = fmt.Sprintf("00000000-0000-7000-8000-%012d", len(h.steps))
		h.said("submit %s", id)
		spec := task.TaskSpec{ID: id, Prompt: "do\n\n## Task " + id + "\n- seq: 1", Priority: 5}
		_, err := h.try(spec)
		h.must(err)
		h.ref.tasks[id] = &wanted{status: state.Queued, priority: "5"}
		return
	}
	task := h.ref.tasks[id]
	var err error
	if task.status.Terminal() {
		h.said("retry %s", id)
		_, err = h.c.Retry(ctx, id, "client")
		task.status, task.hidden = state.Queued, false
	} else {
		h.said("cancel %s", id)
		_, err = h.c.Cancel(ctx, id, "client")
		task.status = state.Canceled
	}
	h.must(err)
}

// edit changes an editor's buffer in one of the ways that a person does.
func (h *history) edit(editor int) {
	text := h.open[editor]
	if text == "" {
		return
	}
	id := h.one()
	switch n := h.rand.IntN(10); {
	case n < 2:
		note := fmt.Sprintf("note %d %d", len(h.steps), h.rand.IntN(1000))
		h.said("%d writes a note", editor)
		text += "\n" + note + "\n"
	case n < 4:
		id = fmt.Sprintf("hand%d", len(h.steps))
		h.said("%d writes %s", editor, id)
		text += "\n## Task " + id + "\n- status: queued\n- prompt: x\n"
	case id == "" || h.ref.archived[id]:
		return
	case n < 6:
		to := map[bool]string{true: "queued", false: "canceled"}[h.ref.tasks[id].status.Terminal()]
		if h.ref.knowsMore(id+" "+to, text) {
			return
		}
		h.said("%d appends %s %s", editor, id, to)
		text = strings.TrimRight(text, "\n") + "\n\n## Task " + id + "\n- status: " + to
	case n < 8:
		h.said("%d changes the priority of %s", editor, id)
		text = withPriority(text, id, strconv.Itoa(1+h.rand.IntN(9)), h.ref.through)
	default:
		h.said("%d deletes %s", editor, id)
		text = without(text, id)
	}
	h.open[editor] = text
}

// withPriority changes the priority in the section of a task that names it, if it is no older than the last
// compaction, and no record below it tells of an edit from before that: such a one has the last word.
func withPriority(text, id, priority string, through uint64) string {
	if slices.ContainsFunc(sectionsOf(text), func(s sectionText) bool {
		return s.id == id && s.seq > through && s.edits > 0 && s.edits <= through && s.priority != ""
	}) {
		return text
	}
	return mapSections(text, func(s *sectionText) string {
		if s.id != id || s.seq <= through || s.adoption {
			return s.whole
		}
		return strings.Replace(s.whole, "\n- priority: "+s.priority+"\n", "\n- priority: "+priority+"\n", 1)
	})
}

func without(text, id string) string {
	return mapSections(text, func(s *sectionText) string {
		if s.id == id {
			return ""
		}
		return s.whole
	})
}

// save writes a buffer to tasks.md, in place or by rename. What the rules would
// refuse is taken out of the buffer first: that is another test's matter.
func (h *history) save(editor int) {
	if h.open[editor] == "" {
		return
	}
	h.open[editor] = h.allowed(h.open[editor])
	text := h.open[editor]
	h.said("%d saves", editor)
	h.reconcile()
	soon := h.rand.IntN(4) == 0
	h.ref.saved(text, h.journal())
	h.write(text, h.rand.IntN(2) == 0)
	if soon {
		time.Sleep(time.Duration(h.rand.IntN(200)) * time.Millisecond) // the moment of the kill
		h.kill()
	}
	h.notes = h.notes[:0]
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "note ") {
			h.notes = append(h.notes, line)
		}
	}
	h.reconcile()
}

// allowed drops the sections that ask for a step which the task's status forbids.
func (h *history) allowed(text string) string {
	isNew, asked := h.ref.isNew(), map[string]bool{}
	return mapSections(text, func(s *sectionText) string {
		if !isNew(s) {
			return s.whole
		}
		now := state.Status("")
		if t := h.ref.tasks[s.id]; t != nil {
			now = t.status
		}
		refuse := h.ref.archived[s.id] || asked[s.id] || !state.CanFollow(now, state.Status(s.status), true)
		if asked[s.id] = true; refuse {
			return ""
		}
		return s.whole
	})
}

func (h *history) write(text string, inPlace bool) {
	path := filepath.Join(h.dir, ledger.TasksName)
	var err error
	if inPlace {
		err = os.WriteFile(path, []byte(text), 0o600)
	} else {
		err = errors.Join(os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path))
	}
	h.must(err)
}

// reconcile lets what was acknowledged come to tasks.md and what was saved into the
// state, so that both sides talk of the same moment.
func (h *history) reconcile() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := h.c.Reconcile(ctx, false)
	h.must(err)
}

// kill goes on with a copy of the files as they are at this moment, which is what kill -9 leaves.
func (h *history) kill() {
	h.said("kill")
	dir := filepath.Join(h.t.TempDir(), "state")
	h.must(copyState(h.dir, dir))
	h.must(h.c.Close())
	h.dir, h.cfg.StateDir = dir, dir
	h.start()
}

// copyState copies tasks.md first: it never has what the journal has not.
func copyState(from, to string) error {
	if err := errors.Join(os.MkdirAll(to, 0o700), copyFile(filepath.Join(from, ledger.TasksName), filepath.Join(to, ledger.TasksName))); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path) // path is below from
		target := filepath.Join(to, rel)
		switch {
		case err != nil || rel == ledger.TasksName || strings.Contains(rel, ".tmp"):
			return nil // it is just going away, or done already
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		default:
			return copyFile(path, target)
		}
	})
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(to, data, 0o600))
}

func (h *history) compact() {
	all := h.rand.IntN(3) == 0
	h.said("compact all=%v", all)
	h.reconcile()
	older := 1000 * time.Hour
	if all {
		older = 0
	}
	var through uint64
	for _, m := range regexp.MustCompile(`(?m)^<!-- end (\d+)`).FindAllStringSubmatch(h.file("journal.md"), -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64) // digits
		through = max(through, n)
	}
	r, err := h.c.Compact(context.Background(), older, false, false)
	h.must(err)
	if r.Archive != "" { // else there was nothing to do
		h.ref.compacted(all, through)
	}
}

// compare expects the reference's tasks, and every note where it was written.
func (h *history) compare() {
	h.t.Helper()
	h.reconcile()
	got := map[string]string{}
	for _, t := range h.c.List(state.Filter{}) {
		priority := ""
		if t.Priority > 0 {
			priority = strconv.Itoa(t.Priority)
		}
		got[t.ID] = string(t.Status) + " " + priority
	}
	want := map[string]string{}
	for id, t := range h.ref.tasks {
		if !t.hidden {
			want[id] = string(t.status) + " " + t.priority
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.fatal(fmt.Sprintf("there are\n%v\nand not\n%v", got, want))
	}
	text := h.file("tasks.md")
	for _, note := range h.notes {
		if !strings.Contains(text, note) {
			h.fatal("lost: " + note)
		}
	}
}
