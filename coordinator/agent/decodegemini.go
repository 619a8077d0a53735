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
	retry   string          // the last error on stderr, after which gemini tries again
	failure string          // message of the result
	uses    map[string]geminiUse
}

// A geminiUse is a call of a tool.
type geminiUse struct{ tool, on string }

func newGeminiDecoder(turn coordinator.Turn, report func(coordinator.Event)) decoder {
	return &geminiDecoder{heard: hear(turn, report), uses: map[string]geminiUse{}}
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
	Tool      string          `json:"tool_name"`
	ToolID    string          `json:"tool_id"`
	Params    struct {
		Command string `json:"command"`
		Path    string `json:"file_path"`
	} `json:"parameters"`
	Stats struct {
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
			d.getOn()
			d.spoke = true
			d.piece(e.Content)
		}
	case "tool_use", "tool_result":
		d.getOn()
		d.hold()
		d.flush()
		d.use(&e)
	case "error":
		d.warning = e.Message
	case "result":
		d.result(&e)
	default:
		d.odd(e.Type)
	}
}

// use remembers a call of a tool until its result, and tells of one that was denied. A
// tool that is not offered is denied if gemini has it in another mode.
func (d *geminiDecoder) use(e *geminiEvent) {
	if e.Type == "tool_use" {
		d.uses[e.ToolID] = geminiUse{e.Tool, or(e.Params.Command, e.Params.Path)}
		return
	}
	var failed struct{ Type, Message string }
	_ = json.Unmarshal(e.Error, &failed) // there is none where it went well
	u := d.uses[e.ToolID]
	delete(d.uses, e.ToolID)
	allow := map[string]string{
		"run_shell_command": `gemini_approval_mode = "yolo" and allow_dangerous = true`,
		"write_file":        `gemini_approval_mode = "auto_edit"`, "replace": `gemini_approval_mode = "auto_edit"`,
	}[u.tool]
	switch {
	case allow == "":
	case failed.Type == "tool_not_registered":
		d.deny(u.tool, u.on, "gemini is not offered this tool", allow)
	case failed.Type == "policy_violation":
		d.deny(u.tool, u.on, failed.Message, allow)
	case strings.HasPrefix(failed.Message, "Path not in workspace"):
		d.deny(u.tool, u.on, failed.Message, "a workspace (-C) that has this path")
	}
}

// aside takes a line of stderr, where alone gemini tells that it tries a request again.
func (d *geminiDecoder) aside(b []byte) {
	if geminiRetry().Match(b) {
		d.failing, d.retry = true, cutText(strings.TrimSpace(string(b)), maxError)
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
	case d.end == turnFailed && d.failure == "" && d.warning != "":
		return geminiUnfinished(geminiVerdict(d.warning, e.end.Exit, now))
	case d.end == turnFailed:
		return geminiVerdict(or(d.failure, "the turn failed without a message"), e.end.Exit, now)
	case d.failing:
		return geminiRetryVerdict(d.retry, now)
	case d.warning != "":
		return verdict{class: state.ClassExit, msg: d.warning}
	case d.events == 0 && e.end.Exit != 0:
		return geminiSilent(e)
	}
	return verdict{}
}
