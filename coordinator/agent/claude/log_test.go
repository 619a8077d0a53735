package claude

import (
	"fmt"
	"testing"

	"stint/coordinator/agent/agenttest"
)

func TestLog(t *testing.T) {
	use := func(id, tool, input string) string {
		return fmt.Sprintf(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":%q,"name":%q,"input":%s}],"usage":{"input_tokens":10,"output_tokens":1}}}`+"\n", id, tool, input)
	}
	result := func(id, content string, failed bool) string {
		return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":%s}]}}`+"\n", id, failed, content)
	}
	agenttest.CheckLog(t, NewDecoder, `{"type":"system","subtype":"init","session_id":"`+agenttest.UUID+`"}
{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"error_status":429,"error":"rate_limit"}
{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error":"unknown"}
{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"Let me\nsee."},{"type":"text","text":"I look first."}]}}
`+use("t1", "Bash", `{"command":"go test ./...\necho $?","description":"test"}`)+result("t1", `"Exit code 1\nFAIL"`, true)+
		use("t2", "Edit", `{"file_path":"/w/cart.go","old_string":"a\nb\nc","new_string":"a\nx\ny\nz\nc"}`)+result("t2", `[{"type":"text","text":"updated"}]`, false)+
		use("t3", "Write", `{"file_path":"/w/new.go","content":"one\ntwo\n"}`)+result("t3", `"Permission to use Write was denied"`, true)+
		use("t4", "Read", `{"file_path":"/w/cart.go","limit":"many"}`)+
		use("t5", "Grep", `{"pattern":"func Total","path":"/w"}`)+
		use("t6", "TodoWrite", `{"todos":[{"content":"read","status":"completed"},{"content":"fix","status":"pending"}]}`)+
		use("t7", "mcp__docs__find", `{"query":"cart"}`)+
		use("t8", "Task", `[1]`)+
		`{"type":"user","message":{"role":"user","content":"a string"}}
{"type":"result","subtype":"error_max_turns","is_error":true}
`, "", `
retry: the API's answer was rate_limit (429); try 2 of 10
retry: waiting for the network; try 1 of 10
… Let me see.
I look first.
$ go test ./... echo $?  exit 1 · 1s
  FAIL
edit cart.go +3 −1  1s
edit new.go +2  failed · 1s
  Permission to use Write was denied
warning: error_max_turns
read cart.go
search func Total
plan: 1 of 2 done; next: fix
mcp__docs__find cart
Task
`)
}
