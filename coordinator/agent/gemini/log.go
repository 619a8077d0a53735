package gemini

import "stint/coordinator/task"

// toolKinds has what gemini's tools do. Others are called by their names.
var toolKinds = map[string]string{
	"run_shell_command": task.LogCommand, "write_file": task.LogEdit, "replace": task.LogEdit,
	"read_file": task.LogRead, "read_many_files": task.LogRead, "web_fetch": task.LogRead, "list_directory": task.LogRead,
	"glob": task.LogSearch, "grep_search": task.LogSearch, "search_file_content": task.LogSearch, "google_web_search": task.LogSearch,
	"write_todos": task.LogPlan,
}
