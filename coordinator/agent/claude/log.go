package claude

import (
	"encoding/json"
	"strconv"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
)

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
