package claude

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/state"
)

// A decoder reads the events of claude -p --output-format stream-json.
type decoder struct {
	agent.TurnState
	keySource string        // where claude has its API key from, as it says
	code      string        // of the last error that claude has reported: rate_limit, ...
	trouble   agent.Verdict // that error
	resetsAt  time.Time     // when the limit ends that has refused a request
	counted   string        // the message whose tokens were counted last
}

// NewDecoder returns the decoder of a turn; see [agent.NewDecoder].
func NewDecoder(turn task.Turn, report func(task.Event)) agent.Decoder {
	return &decoder{TurnState: agent.NewTurnState(turn, report)}
}

// event has the fields of all events that matter.
type event struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	KeySource string `json:"apiKeySource"`

	// api_retry and assistant
	Error       string `json:"error"`
	ErrorStatus int    `json:"error_status"`
	Attempt     int    `json:"attempt"`
	MaxRetries  int    `json:"max_retries"`

	// assistant
	Parent  string `json:"parent_tool_use_id"`
	Message struct {
		ID      string  `json:"id"`
		Usage   usage   `json:"usage"`
		Content []block `json:"content"`
	} `json:"message"`
	APIErrorParams struct {
		Limit limit `json:"rate_limit_info"`
	} `json:"api_error_params"`
	Limit limit `json:"rate_limit_info"` // rate_limit_event

	// result
	IsError    bool            `json:"is_error"`
	APIStatus  int             `json:"api_error_status"`
	Result     string          `json:"result"`
	Structured json.RawMessage `json:"structured_output"` // with a schema: the answer
	Errors     []string        `json:"errors"`
	Reason     string          `json:"terminal_reason"`
	Denials    []struct {
		Tool  string        `json:"tool_name"`
		Input agent.ToolUse `json:"tool_input"`
	} `json:"permission_denials"`
	Usage     usage                 `json:"usage"`
	SinceLast map[string]modelUsage `json:"model_usage_since_last_result"`
	TotalCost float64               `json:"total_cost_usd"`
}

type limit struct {
	Status   string `json:"status"`
	ResetsAt int64  `json:"resetsAt"` // Unix seconds
	Windows  map[string]struct {
		Utilization float64 `json:"utilization"` // 0 to 1
		ResetsAt    int64   `json:"resetsAt"`
	} `json:"unifiedWindows"`
}

// windowMinutes has the lengths of the windows that claude has names for.
var windowMinutes = map[string]int{"five_hour": 5 * 60, "seven_day": 7 * 24 * 60, "seven_day_opus": 7 * 24 * 60, "seven_day_sonnet": 7 * 24 * 60}

func (d *decoder) Line(b []byte) {
	var e event
	if !d.Read(b, &e, &e.Type) {
		return
	}
	d.limit(e.Limit)
	switch e.Type {
	case "system":
		d.system(&e)
	case "assistant":
		d.assistant(&e)
	case "user":
		d.Progressed()
		d.logResults(&e)
	case "stream_event":
		d.Progressed()
	case "result":
		d.result(&e)
	case "rate_limit_event": // its limit was read above, as every event's
	default:
		d.Unknown(e.Type)
	}
}

func (d *decoder) system(e *event) {
	switch e.Subtype {
	case "init":
		d.NameSession(e.SessionID)
		d.keySource = e.KeySource
		if d.Resumed {
			d.Resumable()
		}
	case "thinking_tokens":
		d.Progressed()
	case "api_retry": // a request with the prompt was on its way
		d.NotePrompt()
		d.Retrying = true
		text := "the API's answer was " + cmp.Or(e.Error, "an error")
		if e.ErrorStatus != 0 {
			text += " (" + strconv.Itoa(e.ErrorStatus) + ")"
		}
		d.fail(e.Error, e.ErrorStatus, text)
		if d.trouble.Class == state.ClassNetwork && e.ErrorStatus == 0 {
			text = agent.WaitingForNetwork
		}
		if e.MaxRetries > 0 {
			text += fmt.Sprintf("; try %d of %d", e.Attempt, e.MaxRetries)
		}
		d.Log(task.LogEvent{Kind: task.LogRetry, Text: text})
	}
}

// assistant takes a message of the model, or of claude itself in its place when a request has failed.
func (d *decoder) assistant(e *event) {
	d.NotePrompt()
	d.End, d.Retrying = agent.NoTerminal, e.Error != ""
	if u := e.Message.Usage; e.Message.ID != d.counted { // which each part of a message repeats
		d.counted = agent.Brief(e.Message.ID)
		d.Count(u.tokens())
	}
	var text []string
	for _, c := range e.Message.Content {
		switch c.Type {
		case "text":
			text = append(text, c.Text)
		case "thinking":
			if strings.TrimSpace(c.Thinking) != "" {
				d.Log(task.LogEvent{Kind: task.LogReasoning, Text: c.Thinking})
			}
		case "tool_use":
			d.LogUse(c.ID, c.Name, toolKinds[c.Name], &c.Input)
		}
		if e.Error == "" && (c.Type == "text" || c.Type == "tool_use") {
			d.Acted()
		}
	}
	said := strings.Join(text, "\n")
	switch {
	case e.Error != "":
		d.limit(e.APIErrorParams.Limit)
		d.fail(e.Error, e.APIStatus, said)
	case e.Parent == "": // else it is a sub-agent's
		d.code, d.trouble = "", agent.Verdict{}
		if strings.TrimSpace(said) != "" {
			d.Message(said)
		}
	}
}

func (d *decoder) limit(l limit) {
	for _, name := range slices.Sorted(maps.Keys(l.Windows)) {
		w := l.Windows[name]
		d.Quota = state.MergeQuota(d.Quota, []state.Window{{Name: name, Used: 100 * w.Utilization, Minutes: windowMinutes[name], ResetsAt: time.Unix(w.ResetsAt, 0)}})
	}
	if l.Status == "rejected" && l.ResetsAt > 0 {
		d.resetsAt = time.Unix(l.ResetsAt, 0)
	}
}

// result takes the end of the turn. Its subtype may be "success" while is_error is set.
func (d *decoder) result(e *event) {
	d.count(e)
	if !e.IsError && e.Subtype == "success" {
		d.Acted()
		d.End = agent.TurnCompleted
		switch said := string(e.Structured); {
		case said != "" && said != "null":
			d.Message(said)
		case e.Result != d.Answer && strings.TrimSpace(e.Result) != "":
			d.Message(e.Result)
		}
		d.noteDenied(e)
		return
	}
	d.End = agent.TurnFailed
	defer func() { d.Log(task.LogEvent{Kind: task.LogWarning, Text: d.trouble.Msg}) }()
	code := d.code
	d.code = "" // of an earlier error
	said := strings.Join(append(e.Errors, e.Result), "; ")
	said = strings.TrimSuffix(said, "; ")
	switch {
	case slices.ContainsFunc(e.Errors, func(s string) bool { return strings.HasPrefix(s, "No conversation found with session ID") }):
		d.trouble = agent.Verdict{Class: state.ClassSessionLost, Msg: said}
	case e.Subtype == "error_max_budget_usd":
		d.trouble = agent.Verdict{Class: state.ClassBudget, Msg: "claude has spent what it may"}
	case e.Reason == "prompt_too_long" || strings.HasPrefix(e.Result, "Prompt is too long"):
		d.trouble = agent.Verdict{Class: state.ClassContextFull, Msg: said}
	case strings.HasPrefix(e.Reason, "aborted"):
		d.trouble = agent.Verdict{Class: state.ClassStalled, Msg: "the turn was aborted by a signal"}
	case e.Reason == "api_error":
		d.fail(code, e.APIStatus, cmp.Or(said, d.trouble.Msg))
	default:
		d.trouble = agent.Verdict{Class: state.ClassExit, Msg: cmp.Or(said, e.Subtype)}
	}
}

// noteDenied adds findings for the tools that claude wanted and was not allowed to use.
func (d *decoder) noteDenied(e *event) {
	for _, den := range e.Denials {
		if den.Tool == "" {
			continue
		}
		tool := agent.Brief(den.Tool)
		rule := agent.RuleFor(tool, den.Input.Command)
		allow := agent.AllowOption(rule) + `, or claude_allowed_tools = ["` + rule + `"]`
		d.Deny(tool, cmp.Or(den.Input.Command, cmp.Or(den.Input.Path, den.Input.URL)), "", allow)
	}
}

// usage is the usage of the model that answers, since the last result.
type usage struct {
	Input    int64 `json:"input_tokens"`
	Creation int64 `json:"cache_creation_input_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Output   int64 `json:"output_tokens"`
	Details  struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// modelUsage is the usage of one model, sub-agents included.
type modelUsage struct {
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
func (d *decoder) count(e *event) {
	if len(e.SinceLast) == 0 {
		d.Usage = d.Usage.Plus(e.Usage.tokens())
	}
	for _, u := range e.SinceLast {
		d.Usage = d.Usage.Plus(u.tokens())
		if d.priced(u.Provider) {
			d.Usage.CostUSD += agent.Dollars(u.Cost)
		}
	}
	if e.SinceLast == nil && d.priced("") {
		d.Thread.CostUSD = agent.Dollars(e.TotalCost)
	}
}

func (u usage) tokens() state.Usage {
	return modelUsage{Input: u.Input, Creation: u.Creation, Read: u.Read, Output: u.Output, Thinking: u.Details.Thinking}.tokens()
}

func (u modelUsage) tokens() state.Usage {
	return state.Usage{
		InputTokens: agent.Tokens(u.Input) + agent.Tokens(u.Creation) + agent.Tokens(u.Read), CachedInputTokens: agent.Tokens(u.Read),
		OutputTokens: agent.Tokens(u.Output), ReasoningTokens: agent.Tokens(u.Thinking),
	}
}

// priced reports whether claude's prices are what is paid: they are not where a
// subscription is used, for which claude reckons dollars too.
func (d *decoder) priced(provider string) bool {
	if provider != "" && provider != "firstParty" {
		return true
	}
	return d.keySource != "" && d.keySource != "none" && d.keySource != "oauth"
}

// Keep cuts the results of tools.
func (d *decoder) Keep(head []byte) bool {
	return !bytes.HasPrefix(head, []byte(`{"type":"user"`))
}

// fail notes an error in claude's own terms; the status is that of HTTP, 0 without an answer.
func (d *decoder) fail(code string, status int, text string) {
	d.code, d.trouble = code, agent.Verdict{Class: classOf(code, status), Msg: cmp.Or(text, code)}
}

// Complaint implements [agent.Decoder]: what was wrong, and until when a rate limit holds.
func (d *decoder) Complaint(int, []byte, time.Time) agent.Verdict {
	v := d.trouble
	if v.Class == state.ClassRateLimited {
		v.RetryAt = d.resetsAt
	}
	return v
}

func classOf(code string, status int) state.Class {
	switch code {
	case "rate_limit":
		return state.ClassRateLimited
	case "authentication_failed":
		if status == 0 { // claude says this of a 403 too
			return state.ClassAuth
		}
	case "billing_error", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error":
		return state.ClassAuth
	case "overloaded", "server_error":
		return state.ClassNetwork
	case "unknown":
		if status == 0 { // no answer at all
			return state.ClassNetwork
		}
	}
	return agent.StatusClass(status)
}

// A block is a part of a message.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Thinking string `json:"thinking"`

	// tool_use
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Input agent.ToolUse `json:"input"`

	// tool_result
	UseID   string          `json:"tool_use_id"`
	IsError bool            `json:"is_error"`
	Content json.RawMessage `json:"content"` // a text, or a list of texts
}

// toolKinds has what claude's tools do. Others are called by their names.
var toolKinds = map[string]string{
	"Bash": task.LogCommand, "Edit": task.LogEdit, "MultiEdit": task.LogEdit, "Write": task.LogEdit, "NotebookEdit": task.LogEdit,
	"Read": task.LogRead, "WebFetch": task.LogRead, "Grep": task.LogSearch, "Glob": task.LogSearch, "WebSearch": task.LogSearch,
	"TodoWrite": task.LogPlan,
}

// logResults reports how tools have ended.
func (d *decoder) logResults(e *event) {
	for _, b := range e.Message.Content {
		if b.Type != "tool_result" {
			continue
		}
		text := textOf(b.Content)
		ended := task.LogEvent{Output: text, Failed: b.IsError}
		if code, rest, _ := strings.Cut(strings.TrimPrefix(text, "Exit code "), "\n"); b.IsError && code != text {
			if n, err := strconv.Atoi(code); err == nil {
				ended.ExitCode, ended.Output = &n, rest
			}
		}
		d.LogTool(b.UseID, true, ended)
	}
}

// textOf returns what a tool has answered: a text, or a list of texts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []block
	_ = json.Unmarshal(content, &parts) // else there is no text
	for _, p := range parts {
		text += p.Text
	}
	return text
}
