package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

// Bounds of what is held of one message of an agent, and of what is told of an error. The whole stream stays in the run's stdout.
const (
	MaxAnswer = 8 << 20
	MaxError  = 4 << 10
)

// A Decoder reads the events of one CLI, one a line. It does no I/O. Lines that are no event are counted and
// passed over, and so is what it does not know: new versions bring new events.
type Decoder interface {
	// Line takes one line of the stream; b is reused.
	Line(b []byte)
	// Keep reports, by its first part, whether the texts of a very long line matter as a whole.
	Keep(head []byte) bool
	// Aside takes one line of stderr; b is reused.
	Aside(b []byte)
	// Close is called behind the last line.
	Close()
	// State returns what was said so far; it stays the decoder's own.
	State() *TurnState
	// Complaint returns what the CLI itself reports as wrong, by its events, its exit
	// code and its stderr. Without a sentence there is nothing.
	Complaint(exit int, stderr []byte, now time.Time) Verdict
}

// A NewDecoder makes the decoder of a turn. report is called with what the agent says.
type NewDecoder = func(turn task.Turn, report func(task.Event)) Decoder

// A Terminal event says that the agent's turn is over.
type Terminal int

const (
	NoTerminal Terminal = iota
	TurnCompleted
	TurnFailed
)

// A TurnState is what an agent has told of its turn, whatever CLI it is.
type TurnState struct {
	report  func(task.Event)
	Resumed bool   // the turn goes on with an older session
	parent  string // the session that the turn forks; "": it forks none
	active  bool   // the agent has said something or used a tool

	named           string // the session, as the agent has called it
	Session         string // the same, once it is known that it can be resumed
	Answer          string // the last message
	cut             bool   // a message was longer than MaxAnswer
	Usage           state.Usage
	soFar           state.Usage // of requests that ended, where the agent reports that meanwhile
	Thread          state.Usage
	Quota           []state.Window // of its account, where the agent tells it
	End             Terminal
	PromptInHistory bool     // the session's history surely has the prompt
	Retrying        bool     // the last thing that the agent has reported is an error, and it tries again
	Offline         bool     // that error is that there is no network
	Remarks         []string // what the user should know although the turn went well
	Denied          []state.Issue
	NotKnown        []string // types of events that nobody here knows
	Events          int
	Bad             int // lines that are no event
}

// State, Close and Aside are those of a decoder that needs no others.
func (h *TurnState) State() *TurnState { return h }
func (h *TurnState) Close()            {}
func (h *TurnState) Aside([]byte)      {}

// Read decodes one line into e, whose type of event is kind, and counts it. It reports whether it was an event.
func (h *TurnState) Read(b []byte, e any, kind *string) bool {
	if len(b) == 0 {
		return false
	}
	err := json.Unmarshal(b, e)
	var mistyped *json.UnmarshalTypeError // the other fields were read all the same
	if err != nil && !errors.As(err, &mistyped) || *kind == "" {
		h.Bad++
		return false
	}
	h.Events++
	return true
}

// NameSession notes what the agent calls its session: the first name, because those of sub-agents may follow,
// and only a UUID, because it becomes an argument of a command.
func (h *TurnState) NameSession(id string) {
	if h.named == "" && IsUUID(id) {
		h.named = id
	}
}

// NewTurnState returns what a decoder begins with.
func NewTurnState(turn task.Turn, report func(task.Event)) TurnState {
	h := TurnState{report: report, Resumed: turn.Session != ""}
	if turn.Fork {
		h.parent = turn.Session
	}
	return h
}

// forked reports whether the agent's session is a fork of the turn's.
func (h *TurnState) forked() bool { return h.parent != "" && !strings.EqualFold(h.named, h.parent) }

// Resumable is called when the session can be resumed from now on: a CLI that is killed right after it has named a new session
// has not saved it yet. A fork in which nothing has happened is of no use: the next try forks the same session again.
func (h *TurnState) Resumable() {
	if h.Session != "" || h.named == "" || h.forked() && !h.active {
		return
	}
	h.Session = h.named
	h.report(task.Event{Session: h.Session, Forked: h.forked()})
}

// Acted notes that the agent has said something or used a tool.
func (h *TurnState) Acted() {
	h.active = true
	h.Progressed()
	h.Resumable()
}

// Progressed notes that the agent's last request was answered.
func (h *TurnState) Progressed() { h.Retrying, h.Offline = false, false }

// NotePrompt notes that the session's history has the prompt, so that there is a session.
func (h *TurnState) NotePrompt() {
	h.Resumable()
	h.PromptInHistory = true
}

// Message notes a message of the agent; the last one is its answer.
func (h *TurnState) Message(text string) {
	if len(text) > MaxAnswer {
		text, h.cut = CutText(text, MaxAnswer), true
	}
	h.Answer = text
	h.report(task.Event{Text: text, Log: h.bounded(task.LogEvent{Kind: task.LogMessage, Text: text})})
}

// Log reports what the agent does, for people.
func (h *TurnState) Log(e task.LogEvent) { h.report(task.Event{Log: h.bounded(e)}) }

// LogTool reports that the agent uses a tool, or, with the same id, that the tool has ended.
func (h *TurnState) LogTool(id string, completed bool, e task.LogEvent) {
	e.ID, e.State = id, task.LogStarted
	if completed {
		e.State = task.LogCompleted
	}
	h.Log(e)
}

func (h *TurnState) bounded(e task.LogEvent) *task.LogEvent {
	e.Tokens = h.soFar.InputTokens + h.soFar.OutputTokens
	e.Bound()
	return &e
}

// Count adds what one request of the agent has used, which its end reports anew.
func (h *TurnState) Count(u state.Usage) { h.soFar = h.soFar.Plus(u) }

// Used returns what the turn has used: what its end reports, or, where it was cut off, its requests.
func (h *TurnState) Used() state.Usage {
	if h.Usage == (state.Usage{}) && h.Thread == (state.Usage{}) {
		return h.soFar
	}
	return h.Usage
}

// WaitingForNetwork is what an agent reports that cannot reach its provider and tries again.
const WaitingForNetwork = "waiting for the network"

// Unknown notes the type of an event that is not known.
func (h *TurnState) Unknown(kind string) {
	h.NotKnown = addNew(h.NotKnown, Brief(kind))
}

// Remark notes what the user should know although the turn went well.
func (h *TurnState) Remark(text string) {
	h.Remarks = addNew(h.Remarks, CutText(text, MaxError))
}

// addNew adds what is not in the list yet, up to five: more of them say no more.
func addNew[T comparable](list []T, one T) []T {
	if len(list) < 5 && !slices.Contains(list, one) {
		list = append(list, one)
	}
	return list
}

// Deny notes that the agent was not allowed to use a tool: on what, why, and what allows
// it. Nothing that the model says comes into it but what it gave the tool.
func (h *TurnState) Deny(tool, what, why, allow string) {
	msg := Brief(tool)
	if what != "" {
		msg += "(" + Brief(what) + ")"
	}
	if why != "" {
		msg += ": " + Brief(why)
	}
	h.Denied = addNew(h.Denied, state.Issue{Kind: "denied", Message: msg + "; to allow it: " + allow})
}

// AllowOption returns how a task permits a rule.
func AllowOption(rule string) string {
	return "--allow '" + rule + "' (if the key allow covers it)"
}

var commandName = lazy.Regexp(`^([A-Za-z0-9_./+-]+(?: [a-z][a-z-]*)?)(?: |$)`)

// RuleFor returns the rule that permits what an agent wanted of a tool: of a shell the program,
// with its subcommand, and any arguments.
func RuleFor(tool, command string) string {
	if m := commandName().FindStringSubmatch(Brief(command)); tool == "Bash" && m != nil {
		return tool + "(" + m[1] + " *)"
	}
	return tool
}

// Brief returns the beginning of a text on one line.
func Brief(text string) string {
	return state.Cut(strings.Join(strings.Fields(strings.ToValidUTF8(CutText(text, MaxError), "\uFFFD")), " "), 100)
}

// CutText returns the first n bytes of a text, without half a character.
func CutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:n], ""))
}

// Tokens bounds a count that an agent reports, so that no sum can overflow.
func Tokens(n int64) int64 { return min(max(n, 0), 1e15) }

// Dollars bounds a cost that an agent reports, so that no sum can overflow.
func Dollars(sum float64) float64 { return min(max(sum, 0), 1e9) }

// IsUUID accepts the 36 characters of a UUID and nothing else: no braces, no "urn:uuid:".
func IsUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// A ToolUse is what an agent calls a tool with, by the names that the tools of all CLIs have
// for it. What a tool calls otherwise is not shown.
type ToolUse struct {
	replacement
	Command     string        `json:"command"`
	Path        string        `json:"file_path"`
	Notebook    string        `json:"notebook_path"`
	Dir         string        `json:"dir_path"`
	Include     []string      `json:"include"`
	URL         string        `json:"url"`
	Pattern     string        `json:"pattern"`
	Query       string        `json:"query"`
	Description string        `json:"description"`
	Prompt      string        `json:"prompt"`
	Content     string        `json:"content"`
	Source      string        `json:"new_source"`
	Edits       []replacement `json:"edits"`
	Todos       Plan          `json:"todos"`
}

type replacement struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
}

// LogUse reports that the agent uses a tool, which is of a kind of [task.LogEvent]; "" is any other tool.
func (h *TurnState) LogUse(id, tool, kind string, u *ToolUse) {
	e := task.LogEvent{Kind: kind}
	switch kind {
	case "":
		e.Kind, e.Tool = task.LogTool, Brief(tool)
	case task.LogPlan:
		e.Text = u.Todos.String()
	case task.LogEdit:
		for _, r := range append(u.Edits, u.replacement, replacement{New: u.Content + u.Source}) {
			added, removed := changedLines(r.Old, r.New)
			e.Added, e.Removed = e.Added+added, e.Removed+removed
		}
	}
	e.Text = cmp.Or(e.Text, u.Command, u.Path, u.Notebook, u.URL, u.Pattern, u.Query, u.Dir, strings.Join(u.Include, " "), u.Description, u.Prompt)
	h.LogTool(id, false, e)
}

// A Plan is an agent's list of steps, by the names that all CLIs have for their fields.
type Plan []struct {
	Content     string `json:"content"`
	Description string `json:"description"`
	Text        string `json:"text"`
	Status      string `json:"status"`
	Completed   bool   `json:"completed"`
}

// String returns how far it is, and what comes next.
func (p Plan) String() string {
	done, next := 0, ""
	for _, s := range p {
		if s.Completed || s.Status == "completed" {
			done++
		} else if next == "" {
			next = "; next: " + Brief(s.Content+s.Description+s.Text)
		}
	}
	return fmt.Sprintf("%d of %d done%s", done, len(p), next)
}

// changedLines returns how many lines are added and removed where one text takes the place of another.
func changedLines(before, after string) (added, removed int) {
	split := func(s string) []string {
		if s = strings.TrimSuffix(s, "\n"); s == "" {
			return nil
		}
		return strings.Split(s, "\n")
	}
	a, b := split(before), split(after)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(b), len(a)
}
