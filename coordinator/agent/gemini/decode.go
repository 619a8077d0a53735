package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

// A decoder reads the events of gemini --output-format stream-json.
//
// When the first request of a turn fails, gemini takes the prompt back out of its history, and a session that was new is gone.
// After a tool was called it keeps both, and so it does when it is killed while the model speaks.
type decoder struct {
	agent.TurnState
	spoke   bool            // the model has begun to answer
	text    strings.Builder // the pieces of the message that is being said
	warning string          // the last error event
	retry   agent.Verdict   // the last error on stderr, after which gemini tries again
	failure string          // message of the result
	uses    map[string]toolUse
}

// maxUses bounds the calls of tools that have no result yet.
const maxUses = 1000

// A toolUse is a call of a tool, in brief.
type toolUse struct{ tool, on string }

// NewDecoder returns the decoder of a turn; see [agent.NewDecoder].
func NewDecoder(turn task.Turn, report func(task.Event)) agent.Decoder {
	return &decoder{TurnState: agent.NewTurnState(turn, report), uses: map[string]toolUse{}}
}

// toolKinds has what gemini's tools do. Others are called by their names.
var toolKinds = map[string]string{
	"run_shell_command": task.LogCommand, "write_file": task.LogEdit, "replace": task.LogEdit,
	"read_file": task.LogRead, "read_many_files": task.LogRead, "web_fetch": task.LogRead, "list_directory": task.LogRead,
	"glob": task.LogSearch, "grep_search": task.LogSearch, "search_file_content": task.LogSearch, "google_web_search": task.LogSearch,
	"write_todos": task.LogPlan,
}

// event has the fields of all events that matter.
type event struct {
	Type      string          `json:"type"`
	SessionID string          `json:"session_id"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
	Message   string          `json:"message"` // of an error event
	Status    string          `json:"status"`
	Error     json.RawMessage `json:"error"`
	Tool      string          `json:"tool_name"`
	ToolID    string          `json:"tool_id"`
	Output    string          `json:"output"`
	Params    agent.ToolUse   `json:"parameters"`
	Stats     struct {
		Total  int64 `json:"total_tokens"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64 `json:"cached"`
	} `json:"stats"`
}

func (d *decoder) Line(b []byte) {
	var e event
	if !d.Read(b, &e, &e.Type) {
		return
	}
	switch e.Type {
	case "init":
		d.NameSession(e.SessionID)
		if d.Resumed {
			d.Resumable()
		}
	case "message":
		if e.Role == "assistant" {
			d.Progressed()
			d.spoke = true
			room := agent.MaxAnswer + 1 - d.text.Len() // one byte more than is kept
			d.text.WriteString(e.Content[:min(room, len(e.Content))])
		}
	case "tool_use", "tool_result":
		d.Progressed()
		d.NotePrompt()
		d.flush()
		d.use(&e)
	case "error":
		d.warning = e.Message
		d.Log(task.LogEvent{Kind: task.LogWarning, Text: e.Message})
	case "result":
		d.result(&e)
	default:
		d.Unknown(e.Type)
	}
}

// use remembers a call of a tool until its result, and tells of one that was denied. A
// tool that is not offered is denied if gemini has it in another mode.
func (d *decoder) use(e *event) {
	id := agent.Brief(e.ToolID)
	if e.Type == "tool_use" {
		d.LogUse(id, e.Tool, toolKinds[e.Tool], &e.Params)
		if len(d.uses) < maxUses {
			d.uses[id] = toolUse{agent.Brief(e.Tool), agent.Brief(cmp.Or(e.Params.Command, e.Params.Path))}
		}
		return
	}
	var failed struct{ Type, Message string }
	_ = json.Unmarshal(e.Error, &failed) // there is none where it went well
	d.LogTool(id, true, task.LogEvent{Output: cmp.Or(failed.Message, e.Output), Failed: e.Status == "error"})
	u := d.uses[id]
	delete(d.uses, id)
	shell := `gemini_approval_mode = "yolo" and allow_dangerous = true`
	if !strings.ContainsAny(u.on, notPlain+`"\`) { // else no rule permits it
		shell = agent.AllowOption(agent.RuleFor("Bash", u.on)) + ", or " + shell
	}
	allow := map[string]string{
		"run_shell_command": shell,
		"write_file":        `gemini_approval_mode = "auto_edit"`, "replace": `gemini_approval_mode = "auto_edit"`,
	}[u.tool]
	switch {
	case allow == "":
	case failed.Type == "tool_not_registered":
		d.Deny(u.tool, u.on, "gemini is not offered this tool", allow)
	case failed.Type == "policy_violation":
		d.Deny(u.tool, u.on, failed.Message, allow)
	case strings.HasPrefix(failed.Message, "Path not in workspace"):
		d.Deny(u.tool, u.on, failed.Message, "a workspace (-C) that has this path")
	}
}

// Aside takes a line of stderr, where alone gemini tells that it tries a request again.
func (d *decoder) Aside(b []byte) {
	if m := retryLine().FindSubmatch(b); m != nil {
		text := agent.CutText(strings.TrimSpace(string(b)), agent.MaxError)
		d.Retrying, d.retry = true, agent.Verdict{Class: state.ClassNetwork, Msg: text}
		if status, err := strconv.Atoi(string(m[1])); err == nil {
			d.retry.Class = agent.StatusClass(status)
		} else { // there was no answer
			text = agent.WaitingForNetwork
		}
		d.Log(task.LogEvent{Kind: task.LogRetry, Text: text})
	}
}

// Close looks at a stream that was cut off.
func (d *decoder) Close() {
	if d.spoke && d.End == agent.NoTerminal {
		d.NotePrompt()
	}
}

func (d *decoder) flush() {
	if text := d.text.String(); strings.TrimSpace(text) != "" {
		d.Message(text)
	}
	d.text.Reset()
}

func (d *decoder) result(e *event) {
	d.flush()
	in, out := agent.Tokens(e.Stats.Input), agent.Tokens(e.Stats.Output)
	thoughts := max(agent.Tokens(e.Stats.Total)-in-out, 0) // what is neither
	d.Usage = state.Usage{
		InputTokens: in, CachedInputTokens: agent.Tokens(e.Stats.Cached), OutputTokens: out + thoughts, ReasoningTokens: thoughts,
	}
	if e.Status == "success" {
		d.End = agent.TurnCompleted
		d.Resumable()
		if d.warning != "" {
			d.Remark(d.warning)
		}
		return
	}
	var failed struct{ Message string }
	_ = json.Unmarshal(e.Error, &failed) // not of an error that is no object
	d.End, d.failure = agent.TurnFailed, cmp.Or(failed.Message, string(e.Error))
	d.Log(task.LogEvent{Kind: task.LogWarning, Text: d.failure})
}

// Keep cuts what tools were given and what they gave.
func (d *decoder) Keep(head []byte) bool {
	return !bytes.HasPrefix(head, []byte(`{"type":"tool_result"`))
}

func (d *decoder) Complaint(exit int, stderr []byte, now time.Time) agent.Verdict {
	switch {
	case d.End == agent.TurnFailed && d.failure == "" && d.warning != "":
		// The result has no error: the model's response was empty, cut off or malformed. Unless a policy or a bound of gemini was
		// the reason, another try may do better.
		v := failureVerdict(d.warning, exit, now)
		if v.Class == state.ClassExit && !strings.HasPrefix(v.Msg, "The model response was blocked") && !strings.HasPrefix(v.Msg, "Maximum session turns") {
			v.Class = state.ClassNetwork
		}
		return v
	case d.End == agent.TurnFailed:
		return failureVerdict(cmp.Or(d.failure, "the turn failed without a message"), exit, now)
	case d.Retrying:
		v := d.retry
		if v.Class == state.ClassRateLimited {
			v.RetryAt = retryAt(v.Msg, now)
		}
		return v
	case d.warning != "":
		return agent.Verdict{Class: state.ClassExit, Msg: d.warning}
	case d.Events == 0 && exit != 0:
		return silentVerdict(exit, stderr)
	}
	return agent.Verdict{}
}

// Exit codes of gemini that are not the end of an HTTP status.
const (
	noAuth   = 41
	badInput = 42
)

// failureVerdict returns the class of an error that gemini has reported at the end of a turn. Its exit code
// is the status of the request that failed, as much of it as an exit code holds: 429 is 173.
func failureVerdict(msg string, exit int, now time.Time) agent.Verdict {
	v := agent.Verdict{Class: state.ClassExit, Msg: msg}
	code, badKey := apiError(msg)
	switch {
	case badKey:
		v.Class = state.ClassAuth // with the status 400
	case code == 400 && strings.Contains(msg, "exceeds the maximum number of tokens allowed"):
		v.Class = state.ClassContextFull
	case exit > 128:
		v.Class = agent.StatusClass(exit + 256)
	case exit == noAuth:
		v.Class = state.ClassAuth
	case code != 0: // it was ended before it could exit
		v.Class = agent.StatusClass(code)
	case cutOff().MatchString(msg):
		v.Class = state.ClassNetwork
	}
	if v.Class == state.ClassRateLimited {
		v.RetryAt = retryAt(msg, now)
		// Google adds the advice about billing to its ordinary limits too.
		if v.RetryAt.IsZero() && strings.Contains(msg, "check your plan and billing") && !strings.Contains(msg, "Quota exceeded for metric") {
			v.Class = state.ClassAuth
		}
	}
	return v
}

// apiError returns the status of the API's own error, which gemini quotes where it does not
// know better, and whether the API key is not valid: [API Error: {"error":{"code":401,...}}].
func apiError(msg string) (code int, badKey bool) {
	body, ok := strings.CutPrefix(msg, "[API Error: ")
	var e struct {
		Error struct {
			Code    int
			Details []struct{ Reason string }
		}
	}
	if !ok || !strings.HasPrefix(body, "{") || json.NewDecoder(strings.NewReader(body)).Decode(&e) != nil {
		return 0, false
	}
	for _, d := range e.Error.Details {
		badKey = badKey || d.Reason == "API_KEY_INVALID"
	}
	return e.Error.Code, badKey
}

// cutOff is how gemini says that it lost the connection or never had one.
var cutOff = lazy.Regexp(`^\[API Error: (?:terminated|(?:exception TypeError: )?fetch failed)`)

var waitText = lazy.Regexp(`(?:Suggested retry after|Please retry in) ([0-9.]+)(ms|s)\b`)

// retryAt reads when gemini suggests to try again; the zero time says that it does not.
func retryAt(msg string, now time.Time) time.Time {
	m := waitText().FindStringSubmatch(msg)
	if m == nil {
		return time.Time{}
	}
	wait, _ := time.ParseDuration(m[1] + m[2]) // without it there is no wait
	return agent.After(now, wait)
}

var retryLine = lazy.Regexp(`^Attempt \d+ failed(?: with (?:status )?(\d{3})\b)?`)

// startWords begins what gemini says on stderr at each start.
var startWords = lazy.Regexp(`^(?:Warning:|Security Warning:|\[STARTUP\]|YOLO mode is enabled)`)

// silentVerdict is for a gemini that ended with an error and without any event: then it says why on stderr.
func silentVerdict(exit int, stderr []byte) agent.Verdict {
	said := "" // its first line
	for l := range strings.Lines(agent.StripTerminalCodes(strings.ToValidUTF8(string(stderr), "\uFFFD"))) {
		l = strings.TrimSpace(l)
		if exit == badInput && strings.HasPrefix(l, "Error resuming session:") {
			return agent.Verdict{Class: state.ClassSessionLost, Msg: l}
		}
		if !startWords().MatchString(l) {
			said = cmp.Or(said, l)
		}
	}
	switch {
	case exit == noAuth:
		return agent.Verdict{Class: state.ClassAuth, Msg: cmp.Or(said, "gemini is not logged in")}
	case agent.NotExecuted(exit): // there is no node
		return agent.Verdict{}
	}
	return agent.Verdict{Class: state.ClassExit, Msg: said}
}
