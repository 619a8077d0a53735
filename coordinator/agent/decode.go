package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"stint/state"
)

// maxAnswer bounds what is held of one message of an agent. The whole stream
// stays in the run's stdout.
const maxAnswer = 8 << 20

// A terminal event says that the agent's turn is over.
type terminal string

const (
	noTerminal    terminal = ""
	turnCompleted terminal = "turn.completed"
	turnFailed    terminal = "turn.failed"
)

// A decoder reads the events of codex exec --json, one a line, and keeps what a
// run comes to. It does no I/O. Lines that are no event are counted and passed
// over, and so is what it does not know: new versions bring new events.
type decoder struct {
	onSession func(id string)
	onMessage func(text string)

	session   string // the first thread.started
	answer    string // the last agent_message
	cut       bool   // a message was longer than maxAnswer
	usage     state.Usage
	end       terminal
	failure   string // message of turn.failed
	lastError string // last top-level error that is not transient
	transient string // last "Reconnecting..."
	events    int
	bad       int // lines that are no event
}

// event has the fields of all events that matter.
type event struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Item     struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"item"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		Input     int64 `json:"input_tokens"`
		Cached    int64 `json:"cached_input_tokens"`
		Output    int64 `json:"output_tokens"`
		Reasoning int64 `json:"reasoning_output_tokens"`
	} `json:"usage"`
}

// line takes one line of the stream.
func (d *decoder) line(b []byte) {
	if len(b) == 0 {
		return
	}
	var e event
	err := json.Unmarshal(b, &e)
	var mistyped *json.UnmarshalTypeError // the other fields were read all the same
	if err != nil && !errors.As(err, &mistyped) || e.Type == "" {
		d.bad++
		return
	}
	d.events++
	d.take(&e)
}

func (d *decoder) take(e *event) {
	switch e.Type {
	case "thread.started":
		d.begin(e.ThreadID)
	case "turn.started":
		d.end, d.failure, d.lastError, d.transient = noTerminal, "", "", ""
	case "item.completed":
		// An item of type "error" is a warning. What a tool printed is not looked at.
		if e.Item.Type == "agent_message" {
			d.message(e.Item.Text)
		}
	case "error":
		if strings.HasPrefix(e.Message, "Reconnecting...") {
			d.transient = e.Message
		} else {
			d.lastError = e.Message
		}
	case string(turnCompleted):
		d.end = turnCompleted
		d.usage = state.Usage{
			InputTokens: max(e.Usage.Input, 0), CachedInputTokens: max(e.Usage.Cached, 0),
			OutputTokens: max(e.Usage.Output, 0), ReasoningTokens: max(e.Usage.Reasoning, 0),
		}
	case string(turnFailed):
		d.end, d.failure = turnFailed, e.Error.Message
	}
}

// begin notes the session: the first one, because threads of sub-agents may
// follow, and only if it is a UUID, because it becomes an argument of a command.
func (d *decoder) begin(id string) {
	if d.session != "" || !isUUID(id) {
		return
	}
	d.session = id
	if d.onSession != nil {
		d.onSession(id)
	}
}

func (d *decoder) message(text string) {
	if len(text) > maxAnswer {
		n := maxAnswer
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text, d.cut = strings.Clone(text[:n]), true
	}
	d.answer = text
	if d.onMessage != nil {
		d.onMessage(text)
	}
}

// answered reports whether there is a final answer.
func (d *decoder) answered() bool { return strings.TrimSpace(d.answer) != "" }

// complaint is the error that codex itself reported last, "" if none.
func (d *decoder) complaint() string {
	for _, msg := range []string{d.failure, d.lastError, d.transient} {
		if msg != "" {
			return msg
		}
	}
	return ""
}

// isUUID accepts the 36 characters of a UUID and nothing else: no braces, no
// "urn:uuid:".
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}
