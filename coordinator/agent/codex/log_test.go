package codex

import (
	"testing"

	"stint/coordinator/agent/agenttest"
)

func TestLog(t *testing.T) {
	agenttest.CheckLog(t, NewDecoder, `
{"type":"thread.started","thread_id":"`+someUUID+`"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata not found."}}
{"type":"item.completed","item":{"id":"item_1","type":"reasoning","text":"**Looking\n\naround**"}}
{"type":"item.started","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc 'go test ./...'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc 'go test ./...'","aggregated_output":"1\n2\n3\n4\nFAIL\tshop\nFAIL\n","exit_code":1,"status":"failed"}}
{"type":"item.started","item":{"id":"item_3","type":"todo_list","items":[{"text":"read","completed":false},{"text":"fix","completed":false}]}}
{"type":"item.updated","item":{"id":"item_3","type":"todo_list","items":[{"text":"read","completed":true},{"text":"fix","completed":false}]}}
{"type":"error","message":"Reconnecting... 1/5 (stream disconnected before completion)"}
{"type":"error","message":"Reconnecting... waiting for network (x)"}
{"type":"item.started","item":{"id":"item_4","type":"file_change","changes":[{"path":"/w/a.go","kind":"add"},{"path":"/w/b.go","kind":"update"}],"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_4","type":"file_change","changes":[{"path":"/w/a.go","kind":"add"},{"path":"/w/b.go","kind":"update"}],"status":"failed"}}
{"type":"item.completed","item":{"id":"item_5","type":"web_search","query":"go errors.Join"}}
{"type":"item.started","item":{"id":"item_6","type":"mcp_tool_call","server":"docs","tool":"find","status":"in_progress"}}
{"type":"item.updated","item":{"id":"item_6","type":"mcp_tool_call","server":"docs","tool":"find","status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_7","type":"agent_message","text":"Two tests fail.\nBoth in shop."}}
{"type":"turn.failed","error":{"message":"We’re currently experiencing high demand"}}
`, "", `
warning: Model metadata not found.
… **Looking around**
$ go test ./...  exit 1 · 1s
  2
  3
  4
  FAIL	shop
  FAIL
plan: 0 of 2 done; next: read
plan: 1 of 2 done; next: fix
retry: Reconnecting... 1/5 (stream disconnected before completion)
retry: waiting for the network
edit a.go b.go  failed · 1s
search go errors.Join
mcp_tool_call docs find
Two tests fail.
Both in shop.
warning: We’re currently experiencing high demand
`)
}
