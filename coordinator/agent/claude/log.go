package claude

import (
	"cmp"
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
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`

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

// log reports for people what a message has beside its text.
func (d *decoder) log(b *block) {
	switch {
	case b.Type == "thinking" && strings.TrimSpace(b.Thinking) != "":
		d.Log(task.LogEvent{Kind: task.LogReasoning, Text: b.Thinking})
	case b.Type == "tool_use":
		d.logUse(b)
	}
}

type replacement struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
}

// logUse reports that claude uses a tool.
func (d *decoder) logUse(b *block) {
	var in struct {
		replacement
		Command  string        `json:"command"`
		Path     string        `json:"file_path"`
		Notebook string        `json:"notebook_path"`
		URL      string        `json:"url"`
		Pattern  string        `json:"pattern"`
		Query    string        `json:"query"`
		About    string        `json:"description"`
		Content  string        `json:"content"`
		Source   string        `json:"new_source"`
		Edits    []replacement `json:"edits"`
		Todos    []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"todos"`
	}
	_ = json.Unmarshal(b.Input, &in) // what is of another type is left out
	e := task.LogEvent{Kind: cmp.Or(toolKinds[b.Name], task.LogTool)}
	switch e.Kind {
	case task.LogPlan:
		var plan agent.Plan
		for _, t := range in.Todos {
			plan.Add(t.Content, t.Status == "completed")
		}
		e.Text = plan.String()
	case task.LogEdit:
		for _, r := range append(in.Edits, in.replacement, replacement{New: in.Content + in.Source}) {
			added, removed := agent.ChangedLines(r.Old, r.New)
			e.Added, e.Removed = e.Added+added, e.Removed+removed
		}
	case task.LogTool:
		e.Tool = agent.Brief(b.Name)
	}
	e.Text = cmp.Or(e.Text, in.Command, in.Path, in.Notebook, in.URL, in.Pattern, in.Query, in.About)
	d.LogTool(b.ID, false, e)
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
