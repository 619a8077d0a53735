package gemini

import (
	"cmp"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
)

// parameters are those of gemini's tools that say what they are used on.
type parameters struct {
	Command string   `json:"command"`
	Path    string   `json:"file_path"`
	Dir     string   `json:"dir_path"`
	Include []string `json:"include"`
	Pattern string   `json:"pattern"`
	Query   string   `json:"query"`
	Prompt  string   `json:"prompt"`
	Content string   `json:"content"`
	Old     string   `json:"old_string"`
	New     string   `json:"new_string"`
	Todos   []struct {
		Description string `json:"description"`
		Status      string `json:"status"`
	} `json:"todos"`
}

// toolKinds has what gemini's tools do. Others are called by their names.
var toolKinds = map[string]string{
	"run_shell_command": task.LogCommand, "write_file": task.LogEdit, "replace": task.LogEdit,
	"read_file": task.LogRead, "read_many_files": task.LogRead, "web_fetch": task.LogRead, "list_directory": task.LogRead,
	"glob": task.LogSearch, "grep_search": task.LogSearch, "search_file_content": task.LogSearch, "google_web_search": task.LogSearch,
	"write_todos": task.LogPlan,
}

// logUse returns for people what tool gemini uses on what.
func logUse(e *event) task.LogEvent {
	p := &e.Params
	l := task.LogEvent{Kind: cmp.Or(toolKinds[e.Tool], task.LogTool)}
	switch l.Kind {
	case task.LogPlan:
		var plan agent.Plan
		for _, t := range p.Todos {
			plan.Add(t.Description, t.Status == "completed")
		}
		l.Text = plan.String()
	case task.LogEdit:
		l.Added, l.Removed = agent.ChangedLines(p.Old, p.New+p.Content)
	case task.LogTool:
		l.Tool = agent.Brief(e.Tool)
	}
	l.Text = cmp.Or(l.Text, p.Command, p.Path, p.Pattern, p.Query, p.Dir, strings.Join(p.Include, " "), p.Prompt)
	return l
}
