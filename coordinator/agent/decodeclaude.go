package agent

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator"
	"stint/state"
)

// A claudeDecoder reads the events of claude -p --output-format stream-json.
type claudeDecoder struct {
	heard
	keySource string    // where claude has its API key from, as it says
	trouble   claudeLog // the last error that claude has reported
	resetsAt  time.Time // when the limit ends that has refused a request
}

// A claudeLog is an error in claude's own terms.
type claudeLog struct {
	status int    // of HTTP; 0 if there was no answer
	code   string // rate_limit, authentication_failed, ...
	text   string
	lost   bool // there is no such session
	full   bool // the session is longer than the model can read
	killed bool // the turn was aborted by a signal
}

func newClaudeDecoder(turn coordinator.Turn, report func(coordinator.Event)) decoder {
	return &claudeDecoder{heard: hear(turn, report)}
}

// claudeEvent has the fields of all events that matter.
type claudeEvent struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	KeySource string `json:"apiKeySource"`
	Version   string `json:"claude_code_version"`

	// api_retry and assistant
	Error       string `json:"error"`
	ErrorStatus int    `json:"error_status"`

	// assistant
	Parent  string `json:"parent_tool_use_id"`
	Message struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"message"`
	APIErrorParams struct {
		Limit claudeLimit `json:"rate_limit_info"`
	} `json:"api_error_params"`
	Limit claudeLimit `json:"rate_limit_info"` // rate_limit_event

	// result
	IsError    bool            `json:"is_error"`
	APIStatus  int             `json:"api_error_status"`
	Result     string          `json:"result"`
	Structured json.RawMessage `json:"structured_output"` // with a schema: the answer
	Errors     []string        `json:"errors"`
	Reason     string          `json:"terminal_reason"`
	Denials    []struct {
		Tool  string `json:"tool_name"`
		Input struct {
			Command string `json:"command"`
			Path    string `json:"file_path"`
			URL     string `json:"url"`
		} `json:"tool_input"`
	} `json:"permission_denials"`
	Usage     claudeUsage                 `json:"usage"`
	SinceLast map[string]claudeModelUsage `json:"model_usage_since_last_result"`
	TotalCost float64                     `json:"total_cost_usd"`
}

type claudeLimit struct {
	Status   string `json:"status"`
	ResetsAt int64  `json:"resetsAt"` // Unix seconds
}

func (d *claudeDecoder) line(b []byte) {
	var e claudeEvent
	if !d.read(b, &e, &e.Type) {
		return
	}
	d.limit(e.Limit)
	switch e.Type {
	case "system":
		d.system(&e)
	case "assistant":
		d.assistant(&e)
	case "user", "stream_event":
		d.getOn()
	case "result":
		d.result(&e)
	case "rate_limit_event":
	default:
		d.odd(e.Type)
	}
}

func (d *claudeDecoder) system(e *claudeEvent) {
	switch e.Subtype {
	case "init":
		d.name(e.SessionID)
		d.keySource = e.KeySource
		if e.Version != "" {
			d.version = "claude " + e.Version
		}
		if d.resumed {
			d.settle()
		}
	case "thinking_tokens":
		d.getOn()
	case "api_retry": // a request with the prompt was on its way
		d.hold()
		d.failing = true
		d.trouble = claudeLog{status: e.ErrorStatus, code: e.Error, text: retryText(e)}
	}
}

func retryText(e *claudeEvent) string {
	text := "the API's answer was " + or(e.Error, "an error")
	if e.ErrorStatus != 0 {
		text += " (" + strconv.Itoa(e.ErrorStatus) + ")"
	}
	return text
}

// assistant takes a message of the model, or of claude itself in its place when
// a request has failed.
func (d *claudeDecoder) assistant(e *claudeEvent) {
	d.hold()
	d.end, d.failing = noTerminal, e.Error != ""
	var text []string
	for _, c := range e.Message.Content {
		if c.Type == "text" {
			text = append(text, c.Text)
		}
		if e.Error == "" && (c.Type == "text" || c.Type == "tool_use") {
			d.act()
		}
	}
	said := strings.Join(text, "\n")
	switch {
	case e.Error != "":
		d.limit(e.APIErrorParams.Limit)
		d.trouble = claudeLog{status: e.APIStatus, code: e.Error, text: said}
	case e.Parent == "": // else it is a sub-agent's
		d.trouble = claudeLog{}
		if strings.TrimSpace(said) != "" {
			d.message(said)
		}
	}
}

func (d *claudeDecoder) limit(l claudeLimit) {
	if l.Status == "rejected" && l.ResetsAt > 0 {
		d.resetsAt = time.Unix(l.ResetsAt, 0)
	}
}

// result takes the end of the turn. Its subtype may be "success" while is_error
// is set.
func (d *claudeDecoder) result(e *claudeEvent) {
	d.count(e)
	if !e.IsError && e.Subtype == "success" {
		d.act()
		d.end = turnCompleted
		switch said := string(e.Structured); {
		case said != "" && said != "null":
			d.message(said)
		case e.Result != d.answer && strings.TrimSpace(e.Result) != "":
			d.message(e.Result)
		}
		d.noteDenied(e)
		return
	}
	d.end = turnFailed
	said := strings.Join(append(e.Errors, e.Result), "; ")
	said = strings.TrimSuffix(said, "; ")
	switch {
	case slices.ContainsFunc(e.Errors, func(s string) bool { return strings.HasPrefix(s, "No conversation found with session ID") }):
		d.trouble = claudeLog{text: said, lost: true}
	case e.Reason == "prompt_too_long" || strings.HasPrefix(e.Result, "Prompt is too long"):
		d.trouble = claudeLog{text: said, full: true}
	case strings.HasPrefix(e.Reason, "aborted"):
		d.trouble = claudeLog{text: "the turn was aborted by a signal", killed: true}
	case e.Reason == "api_error":
		d.trouble = claudeLog{status: e.APIStatus, code: d.trouble.code, text: or(said, d.trouble.text)}
	default:
		d.trouble = claudeLog{text: or(said, e.Subtype)}
	}
}

// noteDenied tells of the tools that claude wanted and was not allowed to use.
func (d *claudeDecoder) noteDenied(e *claudeEvent) {
	for _, den := range e.Denials {
		if den.Tool == "" {
			continue
		}
		allow := `claude_allowed_tools = ["` + den.Tool + `"]`
		if program, _, _ := strings.Cut(den.Input.Command, " "); plainWord().MatchString(program) {
			allow += `, or a rule such as "` + den.Tool + "(" + program + `:*)"`
		}
		d.deny(den.Tool, or(den.Input.Command, or(den.Input.Path, den.Input.URL)), "", allow)
	}
}

var plainWord = lazyRegexp(`^[A-Za-z0-9_.-]+$`)

// claudeUsage is the usage of the model that answers, since the last result.
type claudeUsage struct {
	Input    int64 `json:"input_tokens"`
	Creation int64 `json:"cache_creation_input_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Output   int64 `json:"output_tokens"`
	Details  struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// claudeModelUsage is the usage of one model, sub-agents included.
type claudeModelUsage struct {
	Input    int64   `json:"inputTokens"`
	Creation int64   `json:"cacheCreationInputTokens"`
	Read     int64   `json:"cacheReadInputTokens"`
	Output   int64   `json:"outputTokens"`
	Thinking int64   `json:"thinkingTokens"`
	Cost     float64 `json:"costUSD"`
	Provider string  `json:"provider"`
}

// count adds the usage since the last result: there may be several in a run. The
// whole cost is that of the session, and is taken only by older versions.
func (d *claudeDecoder) count(e *claudeEvent) {
	if len(e.SinceLast) == 0 {
		u := e.Usage
		d.add(claudeModelUsage{Input: u.Input, Creation: u.Creation, Read: u.Read, Output: u.Output, Thinking: u.Details.Thinking})
	}
	for _, u := range e.SinceLast {
		d.add(u)
		if d.priced(u.Provider) {
			d.usage.CostUSD += dollars(u.Cost)
		}
	}
	if e.SinceLast == nil && d.priced("") {
		d.thread.CostUSD = dollars(e.TotalCost)
	}
}

func (d *claudeDecoder) add(u claudeModelUsage) {
	d.usage.InputTokens += tokens(u.Input) + tokens(u.Creation) + tokens(u.Read)
	d.usage.CachedInputTokens += tokens(u.Read)
	d.usage.OutputTokens += tokens(u.Output)
	d.usage.ReasoningTokens += tokens(u.Thinking)
}

// priced reports whether claude's prices are what is paid: they are not where a
// subscription is used, for which claude reckons dollars too.
func (d *claudeDecoder) priced(provider string) bool {
	if provider != "" && provider != "firstParty" {
		return true
	}
	return d.keySource != "" && d.keySource != "none" && d.keySource != "oauth"
}

// keep drops the results of tools.
func (d *claudeDecoder) keep(head []byte) bool {
	kind, ok := headValue(head, "type")
	return !ok || kind != "user"
}

func (d *claudeDecoder) complaint(_ ended, _ time.Time) verdict {
	t := d.trouble
	if t == (claudeLog{}) {
		return verdict{}
	}
	v := verdict{class: t.class(), msg: or(t.text, t.code)}
	if v.class == state.ClassRateLimited {
		v.retryAt = d.resetsAt
	}
	return v
}

func (t claudeLog) class() state.Class {
	switch {
	case t.lost:
		return state.ClassSessionLost
	case t.full:
		return state.ClassContextFull
	case t.killed:
		return state.ClassStalled
	}
	switch t.code {
	case "rate_limit":
		return state.ClassRateLimited
	case "authentication_failed":
		if t.status != 0 {
			return statusClass(t.status) // claude says this of a 403 too
		}
		return state.ClassAuth
	case "billing_error", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error":
		return state.ClassAuth
	case "overloaded", "server_error":
		return state.ClassNetwork
	case "unknown":
		if t.status == 0 { // no answer at all
			return state.ClassNetwork
		}
	}
	return statusClass(t.status)
}
