package agent

import (
	"cmp"
	"fmt"
	"strings"

	"stint/coordinator/task"
)

// A ToolUse is what an agent calls a tool with, by the names that the tools of all CLIs have
// for it. What a tool calls otherwise is not shown.
type ToolUse struct {
	replacement
	Command     string        `json:"command"`
	Path        string        `json:"file_path"`
	Notebook    string        `json:"notebook_path"`
	Dir         string        `json:"dir_path"`
	Include     []string      `json:"include"`
	URL         string        `json:"url"`
	Pattern     string        `json:"pattern"`
	Query       string        `json:"query"`
	Description string        `json:"description"`
	Prompt      string        `json:"prompt"`
	Content     string        `json:"content"`
	Source      string        `json:"new_source"`
	Edits       []replacement `json:"edits"`
	Todos       Plan          `json:"todos"`
}

type replacement struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
}

// LogUse reports that the agent uses a tool, which is of a kind of [task.LogEvent]; "" is any
// other tool.
func (h *TurnState) LogUse(id, tool, kind string, u *ToolUse) {
	e := task.LogEvent{Kind: kind}
	switch kind {
	case "":
		e.Kind, e.Tool = task.LogTool, Brief(tool)
	case task.LogPlan:
		e.Text = u.Todos.String()
	case task.LogEdit:
		for _, r := range append(u.Edits, u.replacement, replacement{New: u.Content + u.Source}) {
			added, removed := changedLines(r.Old, r.New)
			e.Added, e.Removed = e.Added+added, e.Removed+removed
		}
	}
	e.Text = cmp.Or(e.Text, u.Command, u.Path, u.Notebook, u.URL, u.Pattern, u.Query, u.Dir, strings.Join(u.Include, " "), u.Description, u.Prompt)
	h.LogTool(id, false, e)
}

// A Plan is an agent's list of steps, by the names that all CLIs have for their fields.
type Plan []struct {
	Content     string `json:"content"`
	Description string `json:"description"`
	Text        string `json:"text"`
	Status      string `json:"status"`
	Completed   bool   `json:"completed"`
}

// String returns how far it is, and what comes next.
func (p Plan) String() string {
	done, next := 0, ""
	for _, s := range p {
		if s.Completed || s.Status == "completed" {
			done++
		} else if next == "" {
			next = "; next: " + Brief(s.Content+s.Description+s.Text)
		}
	}
	return fmt.Sprintf("%d of %d done%s", done, len(p), next)
}

// changedLines returns how many lines are added and removed where one text takes the place
// of another.
func changedLines(before, after string) (added, removed int) {
	split := func(s string) []string {
		if s = strings.TrimSuffix(s, "\n"); s == "" {
			return nil
		}
		return strings.Split(s, "\n")
	}
	a, b := split(before), split(after)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(b), len(a)
}
