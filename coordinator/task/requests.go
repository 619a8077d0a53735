package task

import "stint/memory"

// A Place is where in its lane a task is to wait. Exactly one field is set.
type Place struct {
	First  bool   `json:"first,omitempty" doc:"Before all others that wait in its lane" example:"true"`
	Before string `json:"before,omitempty" doc:"Before this task of its lane" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
}

// A CheckResult is how the verify command of a task ended when it was run by itself.
type CheckResult struct {
	TaskID   string `json:"taskId" doc:"Id of the task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	RunID    string `json:"runId" doc:"Id of this run of the command" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	RunDir   string `json:"runDir" doc:"Absolute path of the directory whose file stdout has the output" example:"/home/ana/.local/state/stint/checks/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Cut      bool   `json:"cut,omitempty" doc:"The file stdout does not have all of it" example:"false"`
	Command  string `json:"verifyCommand" doc:"The command" example:"go test ./..."`
	Passed   bool   `json:"passed" doc:"The command exited with 0" example:"false"`
	ExitCode int    `json:"exitCode" doc:"Its exit code; -1: it did not end by itself" example:"1"`
	Duration string `json:"duration" doc:"How long it took: a Go duration" example:"8.2s"`
	Output   string `json:"output" doc:"Head and tail of what it printed" example:"--- FAIL: TestLogin"`
	Error    string `json:"error,omitempty" doc:"Why it did not end by itself" example:"it took longer than 10m"`
}

// A MemoryQuery asks what a task with that prompt would get from the notes of a workspace.
type MemoryQuery struct {
	Workspace string `json:"workspace" doc:"Absolute path of a directory" example:"/home/ana/shop"`
	Prompt    string `json:"prompt" doc:"What is searched for: the prompt of a task" example:"Rotate the deploy key"`
	FromRun   string `json:"-"` // the run that the client is part of, "" if none: it is the server's finding
}

// MemoryResult is what a search of notes has found, and why.
type MemoryResult = memory.Result

// ErrFromRun is what a run gets that asks for more than to queue tasks and to read.
var ErrFromRun = &Error{
	Code: CodeForbidden, Message: "a run may queue tasks and read, not change them",
	Hint: "leave it to the user, who can do it outside of the run",
}
