package codex

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

// A decoder reads the events of codex exec --json.
type decoder struct {
	agent.TurnState
	sandbox string // of the run
	inTurn  bool   // turn.started was seen
	trouble string // the message of the last error, or of turn.failed, which is behind it
}

// NewDecoder returns the decoder of a turn; see [agent.NewDecoder].
func NewDecoder(turn task.Turn, report func(task.Event)) agent.Decoder {
	return &decoder{TurnState: agent.NewTurnState(turn, report)}
}

// event has the fields of all events that matter.
type event struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Item     struct {
		ID      string     `json:"id"`
		Type    string     `json:"type"`
		Text    string     `json:"text"`
		Status  string     `json:"status"`
		Command string     `json:"command"`
		Output  string     `json:"aggregated_output"`
		Exit    *int       `json:"exit_code"`
		Query   string     `json:"query"` // of a web search
		Server  string     `json:"server"`
		Tool    string     `json:"tool"`
		Message string     `json:"message"` // a warning
		Todos   agent.Plan `json:"items"`
		Changes []struct {
			Path string `json:"path"`
		} `json:"changes"`
	} `json:"item"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage Usage `json:"usage"`
}

// A Usage is an amount of tokens in codex's words.
type Usage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_output_tokens"`
}

// Add adds another amount.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Cached += v.Cached
	u.Output += v.Output
	u.Reasoning += v.Reasoning
}

func (d *decoder) Line(b []byte) {
	var e event
	if !d.Read(b, &e, &e.Type) {
		return
	}
	switch e.Type {
	case "thread.started":
		d.NameSession(e.ThreadID)
	case "turn.started":
		d.Progressed()
		d.Resumable()
		d.inTurn, d.End, d.trouble = true, agent.NoTerminal, ""
	case "item.started", "item.updated", "item.completed":
		d.item(&e)
	case "error":
		d.complain(e.Message)
	case "turn.completed":
		d.Acted()
		d.End = agent.TurnCompleted
		// The figures are those of the whole thread.
		d.Thread = state.Usage{
			InputTokens: agent.Tokens(e.Usage.Input), CachedInputTokens: agent.Tokens(e.Usage.Cached),
			OutputTokens: agent.Tokens(e.Usage.Output), ReasoningTokens: agent.Tokens(e.Usage.Reasoning),
		}
	case "turn.failed":
		d.End, d.trouble = agent.TurnFailed, cmp.Or(e.Error.Message, d.trouble)
		d.Log(task.LogEvent{Kind: task.LogWarning, Text: d.trouble})
		d.PromptInHistory = d.PromptInHistory || d.inTurn
	default:
		d.Unknown(e.Type)
	}
}

// item takes a piece of the turn. An item of type "error" is a warning, and what
// a tool printed is looked at only to tell what the sandbox has denied.
func (d *decoder) item(e *event) {
	if e.Type != "item.updated" || e.Item.Type == "todo_list" {
		d.log(e)
	}
	if e.Item.Type == "error" {
		return
	}
	if e.Item.Type != "reasoning" {
		d.Acted()
	}
	d.Progressed()
	d.Resumable()
	d.PromptInHistory = d.PromptInHistory || d.inTurn
	if e.Item.Type == "agent_message" && e.Type == "item.completed" {
		d.Message(e.Item.Text)
	}
	if e.Item.Status == "failed" || e.Item.Status == "declined" {
		d.noteDenied(e)
	}
}

// log reports an item for people.
func (d *decoder) log(e *event) {
	it, completed := &e.Item, e.Type == "item.completed"
	l := task.LogEvent{Failed: it.Status == "failed" || it.Status == "declined"}
	switch it.Type {
	case "agent_message": // reported as the message that it is
		return
	case "reasoning":
		if completed {
			d.Log(task.LogEvent{Kind: task.LogReasoning, Text: it.Text})
		}
		return
	case "error":
		d.Log(task.LogEvent{Kind: task.LogWarning, Text: it.Message})
		return
	case "todo_list":
		d.Log(task.LogEvent{Kind: task.LogPlan, Text: it.Todos.String()})
		return
	case "command_execution":
		l.Kind, l.Text, l.Output, l.ExitCode = task.LogCommand, typedCommand(it.Command), it.Output, it.Exit
	case "file_change":
		l.Kind = task.LogEdit
		for _, c := range it.Changes {
			l.Text = strings.TrimSpace(l.Text + " " + c.Path)
		}
	case "web_search":
		l.Kind, l.Text = task.LogSearch, it.Query
	default:
		l.Kind, l.Tool, l.Text = task.LogTool, it.Type, strings.TrimSpace(it.Server+" "+it.Tool)
	}
	d.LogTool(it.ID, completed, l)
}

// Aside takes a line of stderr, where alone codex tells of patches that it has refused.
func (d *decoder) Aside(b []byte) {
	if _, why, ok := strings.Cut(string(b), " ERROR codex_core::tools::router: error=patch rejected: "); ok {
		why, _, _ = strings.Cut(why, ";")
		d.Deny("apply_patch", "", why, d.allowWrites())
	}
}

// complain takes an error. The request that met it had the prompt.
func (d *decoder) complain(msg string) {
	d.Retrying, d.PromptInHistory = true, d.PromptInHistory || d.inTurn
	d.trouble = cmp.Or(msg, d.trouble)
	if !strings.HasPrefix(msg, "Reconnecting...") {
		return
	}
	if d.Offline = strings.HasPrefix(msg, "Reconnecting... waiting for network"); d.Offline {
		msg = agent.WaitingForNetwork
	}
	d.Log(task.LogEvent{Kind: task.LogRetry, Text: msg})
}

// Keep cuts the texts of items that are known not to be an answer: a command that prints 50 MB is one line of 50 MB.
func (d *decoder) Keep(head []byte) bool {
	m := itemKind().FindSubmatch(head)
	return m == nil || string(m[1]) == "agent_message"
}

var itemKind = lazy.Regexp(`^\{"type":"item\.[a-z]+","item":\{"id":"[^"]*","type":"([a-z_]+)"`)

// Complaint is the last error that codex reported; without any event it says why on stderr.
func (d *decoder) Complaint(_ int, stderr []byte, now time.Time) agent.Verdict {
	said := d.trouble
	if last, own := agent.LastError(stderr); said == "" && own && d.Events == 0 {
		said = last
	}
	if said == "" {
		return agent.Verdict{}
	}
	v := agent.Verdict{Class: classOf(said), Msg: said}
	if v.Class == state.ClassRateLimited {
		v.RetryAt = retryAt(said, now)
	}
	return v
}

var (
	deniedSetup = lazy.Regexp(`^(bwrap: .*)\n?$`)              // alone: the command has printed nothing
	shellCall   = lazy.Regexp(`(?s)^\S+ -l?c (['"])(.*)['"]$`) // as codex shows its commands
)

// noteDenied adds a finding for a command or a change that codex itself says it has not let
// through. What a command printed is no sign of that: "Operation not permitted" may be of its tests.
func (d *decoder) noteDenied(e *event) {
	if d.sandbox == "danger-full-access" {
		return
	}
	setup := deniedSetup().FindStringSubmatch(e.Item.Output)
	switch command := typedCommand(e.Item.Command); {
	case e.Item.Type == "file_change":
		paths := make([]string, len(e.Item.Changes))
		for i, c := range e.Item.Changes {
			paths[i] = c.Path
		}
		d.Deny("apply_patch", strings.Join(paths, " "), "", d.allowWrites())
	case e.Item.Type != "command_execution":
	case setup != nil:
		d.Deny("shell", command, "its sandbox cannot be set up: "+setup[1], "see stint doctor")
	case e.Item.Status == "declined":
		d.Deny("shell", command, "", d.allowWrites())
	}
}

// typedCommand returns a command without the shell that codex runs it with.
func typedCommand(command string) string {
	if m := shellCall().FindStringSubmatch(command); m != nil {
		return m[2]
	}
	return command
}

// allowWrites names the setting that lets codex write where it was not allowed to.
func (d *decoder) allowWrites() string {
	switch d.sandbox {
	case "read-only":
		return `codex_sandbox = "workspace-write"`
	case "inherit":
		return "sandbox_mode in codex's config.toml"
	}
	return `codex_sandbox = "danger-full-access" and allow_dangerous = true`
}

// httpStatus finds the status in codex's "unexpected status 401 Unauthorized" and "exceeded retry limit, last
// status: 429 Too Many Requests". What follows it may be the text of a stranger's server.
var httpStatus = lazy.Regexp(`^(?:Reconnecting\.\.\. \d+/\d+ \()?(?:unexpected status|exceeded retry limit, last status:) (\d{3})\b`)

// phrases maps what codex says about itself to a class; the first match counts.
var phrases = []struct {
	class state.Class
	texts []string
}{
	{state.ClassSessionBusy, []string{"already has an active writer"}},
	{state.ClassSessionLost, []string{
		"no rollout found", "missing source rollout", // of a thread that was forked from it
		"failed to read session metadata", "does not start with session metadata", "is empty (code ", "did not contain valid utf-8",
	}},
	{state.ClassContextFull, []string{"context window"}},
	{state.ClassRateLimited, []string{"usage limit"}},
	{state.ClassAuth, []string{"check your plan"}},
	{state.ClassRateLimited, []string{"rate limit"}}, // which a payment would raise
	{state.ClassAuth, []string{"billing"}},
	{state.ClassRateLimited, []string{"quota exceeded", "too many requests"}},
	{state.ClassAuth, []string{"missing environment variable", "not logged in", "codex login", "log out and sign in", "sign in again", "unauthorized"}},
	{state.ClassNetwork, []string{"high demand", "at capacity"}},
	{state.ClassExit, []string{"content_filter"}}, // codex says so in a message about a cut stream
	{state.ClassNetwork, []string{
		"stream disconnected", "reconnecting...", "error sending request", "network error", "connection failed", "connection refused",
		"timed out", "timeout waiting",
	}},
}

// classOf returns the class of an error that codex itself reported.
func classOf(msg string) state.Class {
	if m := httpStatus().FindStringSubmatch(msg); m != nil {
		status, _ := strconv.Atoi(m[1]) // three digits
		return agent.StatusClass(status)
	}
	low := strings.ToLower(msg)
	if strings.HasPrefix(low, "{") {
		// The raw body of a refused request: not codex's words. One of a provider's errors is not put into any.
		var e struct{ Error struct{ Code string } }
		if json.Unmarshal([]byte(msg), &e) == nil && e.Error.Code == "context_length_exceeded" {
			return state.ClassContextFull
		}
		return state.ClassExit
	}
	for _, p := range phrases {
		if slices.ContainsFunc(p.texts, func(text string) bool { return strings.Contains(low, text) }) {
			return p.class
		}
	}
	return state.ClassExit
}

var (
	againAt = lazy.Regexp(`(?i)try again at (?:([a-z]{3} \d{1,2})(?:st|nd|rd|th)?(, \d{4} ))?(\d{1,2}:\d{2} [ap]m)`)
	againIn = lazy.Regexp(`(?i)try again in ((?:\d+(?:\.\d+)?(?:ms|[hms]))+\b|\d+ s)`) // 6m0s, 1.9s, 20 seconds
)

// retryAt reads when codex says that one may try again: "at 3:47 AM" (today, in the zone of now),
// "at Nov 25th, 2026 3:47 AM", "in 6m0s". The zero time says that it does not say.
func retryAt(msg string, now time.Time) time.Time {
	if m := againAt().FindStringSubmatch(msg); m != nil {
		return clockTime(m[1]+m[2], strings.ToUpper(m[3]), now)
	}
	m := againIn().FindStringSubmatch(msg)
	if m == nil {
		return time.Time{}
	}
	wait, _ := time.ParseDuration(strings.ToLower(strings.ReplaceAll(m[1], " ", ""))) // without it there is no wait
	return agent.After(now, wait)
}

// clockTime returns that time of a day, or, without one, when the clock shows it next; the zero time if there is none.
func clockTime(day, clock string, now time.Time) time.Time {
	if day != "" {
		at, _ := time.ParseInLocation("Jan 2, 2006 3:04 PM", day+clock, now.Location()) // else it is the zero time
		return at
	}
	c, err := time.Parse("3:04 PM", clock)
	if err != nil {
		return time.Time{}
	}
	at := time.Date(now.Year(), now.Month(), now.Day(), c.Hour(), c.Minute(), 0, 0, now.Location())
	if at.Before(now.Add(-time.Minute)) { // tomorrow; a few seconds ago means now
		at = time.Date(now.Year(), now.Month(), now.Day()+1, c.Hour(), c.Minute(), 0, 0, now.Location())
	}
	return at
}
