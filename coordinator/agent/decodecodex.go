package agent

import (
	"strings"
	"time"

	"stint/coordinator"
	"stint/state"
)

// A codexDecoder reads the events of codex exec --json.
type codexDecoder struct {
	heard
	sandbox   string // of the run; "" is workspace-write
	inTurn    bool   // turn.started was seen
	failure   string // message of turn.failed
	lastError string // last top-level error that is not transient
	transient string // last "Reconnecting..."
}

func newCodexDecoder(turn coordinator.Turn, report func(coordinator.Event)) decoder {
	return &codexDecoder{heard: hear(turn, report)}
}

// codexEvent has the fields of all events that matter.
type codexEvent struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Item     struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Status  string `json:"status"`
		Command string `json:"command"`
		Output  string `json:"aggregated_output"`
		Changes []struct {
			Path string `json:"path"`
		} `json:"changes"`
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

func (d *codexDecoder) line(b []byte) {
	var e codexEvent
	if !d.read(b, &e, &e.Type) {
		return
	}
	switch e.Type {
	case "thread.started":
		d.name(e.ThreadID)
	case "turn.started":
		d.getOn()
		d.settle()
		d.inTurn, d.end, d.failure, d.lastError, d.transient = true, noTerminal, "", "", ""
	case "item.started", "item.updated", "item.completed":
		d.item(&e)
	case "error":
		d.complain(e.Message)
	case "turn.completed":
		d.act()
		d.end = turnCompleted
		// The figures are those of the whole thread.
		d.thread = state.Usage{
			InputTokens: tokens(e.Usage.Input), CachedInputTokens: tokens(e.Usage.Cached),
			OutputTokens: tokens(e.Usage.Output), ReasoningTokens: tokens(e.Usage.Reasoning),
		}
	case "turn.failed":
		d.end, d.failure = turnFailed, e.Error.Message
		d.kept = d.kept || d.inTurn
	default:
		d.odd(e.Type)
	}
}

// item takes a piece of the turn. An item of type "error" is a warning, and what
// a tool printed is looked at only to tell what the sandbox has denied.
func (d *codexDecoder) item(e *codexEvent) {
	if e.Item.Type == "error" {
		return
	}
	if e.Item.Type != "reasoning" {
		d.act()
	}
	d.getOn()
	d.settle()
	d.kept = d.kept || d.inTurn
	if e.Item.Type == "agent_message" && e.Type == "item.completed" {
		d.message(e.Item.Text)
	}
	if e.Item.Status == "failed" || e.Item.Status == "declined" {
		d.noteDenied(e)
	}
}

// aside takes a line of stderr, where alone codex tells of patches that it has refused.
func (d *codexDecoder) aside(b []byte) {
	if _, why, ok := strings.Cut(string(b), " ERROR codex_core::tools::router: error=patch rejected: "); ok {
		why, _, _ = strings.Cut(why, ";")
		d.deny("apply_patch", "", why, d.allowWrites())
	}
}

// complain takes an error. The request that met it had the prompt.
func (d *codexDecoder) complain(msg string) {
	d.failing, d.kept = true, d.kept || d.inTurn
	if !strings.HasPrefix(msg, "Reconnecting...") {
		d.lastError = msg
		return
	}
	d.lastError, d.transient = "", msg
	d.offline = strings.HasPrefix(msg, "Reconnecting... waiting for network")
}

// keep drops items that are known not to be an answer: a command that prints
// 50 MB is one line of 50 MB.
func (d *codexDecoder) keep(head []byte) bool {
	kind, ok := headValue(head, "item", "type")
	return !ok || kind == "agent_message"
}

// complaint is the last error that codex reported; without any event it says why
// on stderr.
func (d *codexDecoder) complaint(e ended, now time.Time) verdict {
	for _, msg := range []string{d.failure, d.lastError, d.transient} {
		if msg != "" {
			return codexVerdict(msg, now)
		}
	}
	if said, own := lastError(e.stderr); own && d.events == 0 {
		return codexVerdict(said, now)
	}
	return verdict{}
}
