package agent

import (
	"encoding/json"
	"strings"
	"time"

	"stint/coordinator"
	"stint/state"
)

// A geminiDecoder reads the events of gemini --output-format stream-json.
//
// When the first request of a turn fails, gemini takes the prompt back out of its
// history, and a session that was new is gone. After a tool was called it keeps
// both, and so it does when it is killed while the model speaks.
type geminiDecoder struct {
	heard
	spoke   bool            // the model has begun to answer
	text    strings.Builder // the pieces of the message that is being said
	warning string          // the last error event
	failure string          // message of the result
}

func newGeminiDecoder(turn coordinator.Turn, report func(coordinator.Event)) decoder {
	return &geminiDecoder{heard: heard{report: report, resumed: turn.Session != ""}}
}

// geminiEvent has the fields of all events that matter.
type geminiEvent struct {
	Type      string          `json:"type"`
	SessionID string          `json:"session_id"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
	Message   string          `json:"message"` // of an error event
	Status    string          `json:"status"`
	Error     json.RawMessage `json:"error"`
	Stats     struct {
		Total  int64 `json:"total_tokens"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64 `json:"cached"`
	} `json:"stats"`
}

func (d *geminiDecoder) line(b []byte) {
	var e geminiEvent
	if !d.read(b, &e, &e.Type) {
		return
	}
	switch e.Type {
	case "init":
		d.name(e.SessionID)
		if d.resumed {
			d.settle()
		}
	case "message":
		if e.Role == "assistant" {
			d.spoke = true
			d.piece(e.Content)
		}
	case "tool_use", "tool_result":
		d.hold()
		d.flush()
	case "error":
		d.warning = e.Message
	case "result":
		d.result(&e)
	}
}

// close looks at a stream that was cut off.
func (d *geminiDecoder) close() {
	if d.spoke && d.end == noTerminal {
		d.hold()
	}
}

// piece adds to the message that is being said, up to one byte more than is kept.
func (d *geminiDecoder) piece(text string) {
	room := maxAnswer + 1 - d.text.Len()
	d.text.WriteString(text[:min(room, len(text))])
}

// flush ends a message.
func (d *geminiDecoder) flush() {
	if text := d.text.String(); strings.TrimSpace(text) != "" {
		d.message(text)
	}
	d.text.Reset()
}

func (d *geminiDecoder) result(e *geminiEvent) {
	d.flush()
	in, out := tokens(e.Stats.Input), tokens(e.Stats.Output)
	thoughts := max(tokens(e.Stats.Total)-in-out, 0) // what is neither
	d.usage = state.Usage{
		InputTokens: in, CachedInputTokens: tokens(e.Stats.Cached), OutputTokens: out + thoughts, ReasoningTokens: thoughts,
	}
	if e.Status == "success" {
		d.end = turnCompleted
		d.settle()
		if d.warning != "" {
			d.remarks = append(d.remarks, d.warning)
		}
		return
	}
	d.end, d.failure = turnFailed, geminiMessage(e.Error)
}

// geminiMessage gives the text of an error of gemini: an object with a message.
func geminiMessage(data json.RawMessage) string {
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil || e.Message == "" {
		return string(data)
	}
	return e.Message
}

// keep drops what tools were given and what they gave.
func (d *geminiDecoder) keep(head []byte) bool {
	kind, ok := headValue(head, "type")
	return !ok || kind != "tool_result"
}

func (d *geminiDecoder) complaint(e ended, now time.Time) verdict {
	switch {
	case d.end == turnFailed:
		return geminiVerdict(or(d.failure, "the turn failed without a message"), e.end.Exit, now)
	case d.warning != "":
		return verdict{class: state.ClassExit, msg: d.warning}
	case d.events == 0 && e.end.Exit != 0:
		return geminiSilent(e)
	}
	return verdict{}
}
