package gemini

import (
	"testing"

	"stint/coordinator/agent/agenttest"
)

func TestLog(t *testing.T) {
	agenttest.CheckLog(t, NewDecoder, `
{"type":"init","session_id":"`+agenttest.UUID+`","model":"auto"}
{"type":"message","role":"user","content":"do it"}
{"type":"message","role":"assistant","content":"I look ","delta":true}
{"type":"message","role":"assistant","content":"first.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"a","parameters":{"command":"go vet ./...","description":"check"}}
{"type":"tool_result","tool_id":"a","status":"success","output":"fine"}
{"type":"tool_use","tool_name":"replace","tool_id":"b","parameters":{"file_path":"/w/cart.go","old_string":"a\nb","new_string":"a\nc\nd"}}
{"type":"tool_result","tool_id":"b","status":"error","error":{"type":"edit_no_occurrence_found","message":"0 occurrences found"}}
{"type":"tool_use","tool_name":"write_file","tool_id":"c","parameters":{"file_path":"/w/new.go","content":"one\ntwo\n"}}
{"type":"tool_use","tool_name":"glob","tool_id":"d","parameters":{"pattern":"**/*.go"}}
{"type":"tool_use","tool_name":"read_many_files","tool_id":"e","parameters":{"include":["a.go","b.go"]}}
{"type":"tool_use","tool_name":"save_memory","tool_id":"f","parameters":{"fact":"x"}}
{"type":"error","severity":"warning","message":"Loop detected, stopping execution"}
{"type":"message","role":"assistant","content":"Done.","delta":true}
{"type":"result","status":"success","stats":{}}
`, "Attempt 1 failed with status 429. Retrying with backoff...\n", `
I look first.
$ go vet ./...  1s
edit cart.go +2 −1  failed · 1s
  0 occurrences found
warning: Loop detected, stopping execution
edit new.go +2
search **/*.go
read a.go b.go
save_memory
Done.
retry: Attempt 1 failed with status 429. Retrying with backoff...
`)
}
