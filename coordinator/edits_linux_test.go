package coordinator_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stint/ledger"
	"stint/state"
)

// A lineEdit puts lines in the place of others: from line at on (counted from 1)
// cut lines go and add comes.
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
		c.requeueBelow, c.requeueInPlace, c.cancelInPlace, c.cancelBelow, c.newPrompt, c.newPriority, c.newSession,
		c.addTask, c.addDraft, c.deleteTask, c.writeNote, func() {},
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

func (c *chooser) requeueBelow() {
	id, want := c.take(&c.finished)
	c.edit(behind, 0, "", "## Task "+id, "- status: queued")
	want.runs, want.hands = 2, 1
}

func (c *chooser) requeueInPlace() {
	id, want := c.take(&c.finished)
	_, line := c.lastWith(id, state.KeyStatus)
	c.edit(line, 1, "- status: queued")
	want.runs, want.hands = 2, 1
}

func (c *chooser) cancelInPlace() {
	id, want := c.take(&c.waiting)
	_, line := c.lastWith(id, state.KeyStatus)
	c.edit(line, 1, "- status: canceled")
	want.status, want.hands = state.Canceled, 1
}

func (c *chooser) cancelBelow() {
	id, want := c.take(&c.waiting)
	c.edit(behind, 0, "", "## Task "+id, "- status: canceled")
	want.status, want.hands = state.Canceled, 1
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
	at := c.between()
	c.edit(at, 0, "## Task by-hand", "- status: queued", "- prompt: |", "  do", "  this", "")
	c.want("by-hand", &want{status: state.Done, prompt: "do\nthis", runs: 1, hands: 1})
}

func (c *chooser) addDraft() {
	at := c.between()
	c.edit(at, 0, "## Task draft", "- prompt: not yet", "")
	c.want("draft", &want{status: state.Draft, prompt: "not yet", hands: 1})
}

func (c *chooser) want(id string, want *want) {
	c.mu.Lock()
	c.wants[id] = want
	c.mu.Unlock()
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
