package gemini

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

// judge returns what a decoder and the table make of two outputs and an exit code.
func judge(d agent.Decoder, stdout, stderr string, exit int) agent.Verdict {
	for line := range strings.Lines(stdout) {
		d.Line([]byte(strings.TrimSuffix(line, "\n")))
	}
	for line := range strings.Lines(stderr) {
		d.Aside([]byte(strings.TrimSuffix(line, "\n")))
	}
	d.Close()
	end := hold.EndReport{Exit: max(exit, -1), Signal: max(-exit, 0)}
	return agent.Classify(gate.Result{Started: true, Stderr: []byte(stderr), End: end}, d, testNow)
}

// play returns what a decoder and the table make of some lines and an exit code.
func play(exit int, lines ...string) (*agent.TurnState, agent.Verdict) {
	d := NewDecoder(task.Turn{}, quiet)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}
	v := judge(d, strings.Join(lines, "\n"), "", exit)
	return d.State(), v
}

// The rows of the table that no recording of gemini has.
func TestGeminiClasses(t *testing.T) {
	fail := func(msg string) string {
		text, err := json.Marshal(msg)
		must(t, err)
		return `{"type":"result","status":"error","error":{"type":"unknown","message":` + string(text) + `}}`
	}
	const badKey = `[API Error: {"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`
	good, bare := `{"type":"result","status":"success"}`, `{"type":"result","status":"error"}`
	said := `{"type":"message","role":"assistant","content":"[API Error: fetch failed] 429"}`
	for i, c := range []struct {
		lines []string
		exit  int
		class state.Class
	}{
		{[]string{said, good}, 0, ""},
		{[]string{said, good}, 173, state.ClassExit},
		{[]string{good}, 0, state.ClassOutputMissing},
		{[]string{said}, 0, state.ClassExit},
		{[]string{said, fail("x")}, 0, state.ClassExit},
		{[]string{fail("x")}, 173, state.ClassRateLimited},
		{[]string{fail("x")}, 147, state.ClassExit},
		{[]string{fail("[API Error: You exceeded your current quota, please check your plan and billing details.]")}, 173, state.ClassAuth},
		{[]string{fail("[API Error: You exceeded your current quota, please check your plan and billing details. Please retry in 34.5s.]")}, 173, state.ClassRateLimited},
		{[]string{fail("[API Error: please check your plan and billing details. * Quota exceeded for metric: requests, limit: 250]")}, 173, state.ClassRateLimited},
		{[]string{fail("x")}, 144, state.ClassExit},
		{[]string{fail(badKey)}, 144, state.ClassAuth},
		{[]string{fail(`[API Error: {"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}]`)}, 144, state.ClassContextFull},
		{[]string{fail("x")}, 247, state.ClassNetwork},
		{[]string{fail("x")}, 152, state.ClassNetwork},
		{[]string{fail("x")}, 53, state.ClassExit},
		{[]string{fail("x")}, 41, state.ClassAuth},
		{[]string{fail("[API Error: terminated]")}, 1, state.ClassNetwork},
		{[]string{fail("[API Error: exception TypeError: fetch failed sending request]")}, 1, state.ClassNetwork},
		{[]string{fail(`[API Error: {"error":{"code":429}}]`)}, -1, state.ClassRateLimited},
		{[]string{fail("your prompt says: terminated")}, 1, state.ClassExit},
		{[]string{`{"type":"result","status":"error","error":"only text"}`}, 1, state.ClassExit},
		{[]string{`{"type":"error","message":"Maximum session turns exceeded"}`}, 53, state.ClassExit},
		{[]string{`{"type":"error","message":"Maximum session turns exceeded"}`, bare}, 0, state.ClassExit},
		{[]string{`{"type":"error","severity":"error","message":"Model stream ended without a finish reason."}`, bare}, 0, state.ClassNetwork},
		{[]string{`{"type":"error","severity":"error","message":"The model response was blocked due to safety settings."}`, bare}, 0, state.ClassExit},
		{[]string{bare}, 0, state.ClassExit},
	} {
		if _, v := play(c.exit, c.lines...); v.Class != c.class || v.Msg == "" && v.Class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
	for msg, want := range map[string]time.Duration{
		"[API Error: x\nSuggested retry after 60s.]":  time.Minute,
		"[API Error: Please retry in 34.5s. y]":       34500 * time.Millisecond,
		"[API Error: Please retry in 250ms.]":         250 * time.Millisecond,
		"[API Error: You have exhausted your quota.]": 0,
	} {
		at := failureVerdict(msg, 173, testNow).RetryAt
		if got := at.Sub(testNow); got != want && (want != 0 || !at.IsZero()) {
			t.Errorf("%q: %v", msg, got)
		}
	}
}

// When gemini's history has the prompt of a turn, and its session is one that can be resumed.
func TestGeminiKept(t *testing.T) {
	begin := `{"type":"init","session_id":"` + someUUID + `"}`
	said := `{"type":"message","role":"assistant","content":"hm"}`
	tool := `{"type":"tool_use","tool_name":"x"}`
	fail := `{"type":"result","status":"error","error":{"message":"x"}}`
	for i, c := range []struct {
		lines         []string
		session, kept bool
	}{
		{[]string{begin}, false, false},
		{[]string{begin, fail}, false, false},
		{[]string{begin, said, fail}, false, false},
		{[]string{begin, said}, true, true}, // killed
		{[]string{begin, tool}, true, true},
		{[]string{begin, tool, said, fail}, true, true},
	} {
		if h, _ := play(1, c.lines...); h.PromptInHistory != c.kept || (h.Session != "") != c.session {
			t.Errorf("row %d: session %q, kept %v", i, h.Session, h.PromptInHistory)
		}
	}
}

// Which of gemini's failed tools it was denied.
func TestGeminiDenials(t *testing.T) {
	use := func(tool, params string) string {
		return `{"type":"tool_use","tool_name":"` + tool + `","tool_id":"1","parameters":` + params + `}`
	}
	fail := func(kind, msg string) string {
		return `{"type":"tool_result","tool_id":"1","status":"error","output":"x","error":{"type":"` + kind + `","message":"` + msg + `"}}`
	}
	for _, c := range []struct{ use, result, want string }{
		{use("run_shell_command", `{"command":"ls"}`), fail("tool_not_registered", "Tool not found"), `run_shell_command(ls): gemini is not offered this tool; to allow it: --allow 'Bash(ls *)' (if the key allow covers it), or gemini_approval_mode = "yolo" and allow_dangerous = true`},
		{use("run_shell_command", `{"command":"ls >x"}`), fail("policy_violation", "no"), `run_shell_command(ls >x): no; to allow it: gemini_approval_mode = "yolo" and allow_dangerous = true`},
		{use("write_file", `{"file_path":"x.txt"}`), fail("tool_not_registered", "Tool not found"), `write_file(x.txt): gemini is not offered this tool; to allow it: gemini_approval_mode = "auto_edit"`},
		{use("replace", `{"file_path":"x.txt"}`), fail("policy_violation", "You are in Plan Mode"), `replace(x.txt): You are in Plan Mode; to allow it: gemini_approval_mode = "auto_edit"`},
		{use("write_file", `{"file_path":"/etc/x"}`), fail("invalid_tool_params", "Path not in workspace: Attempted path"), `write_file(/etc/x): Path not in workspace: Attempted path; to allow it: a workspace (-C) that has this path`},
		{use("write_file", `{"file_path":"x"}`), fail("invalid_tool_params", "content is missing"), ""},
		{use("run_shell_comand", `{"command":"ls"}`), fail("tool_not_registered", "Tool not found"), ""}, // the model's own invention
		{use("run_shell_command", `{"command":"ls"}`), `{"type":"tool_result","tool_id":"1","status":"success","output":"policy_violation"}`, ""},
		{use("run_shell_command", `{"command":"ls"}`), fail("shell_execute_error", "exit 1"), ""},
	} {
		h, _ := play(0, c.use, c.result)
		got := ""
		for _, f := range h.Denied {
			got += f.Message
		}
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// However much gemini says and calls, little of it is held.
func TestGeminiIsBounded(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"type":"error","message":"%d%s"}`, i/2, strings.Repeat("w", 1<<20)), `{"type":"result","status":"success"}`)
	}
	for i := range maxUses + 10 {
		lines = append(lines, fmt.Sprintf(`{"type":"tool_use","tool_name":"write_file","tool_id":"%d%s","parameters":{"file_path":"%[2]s"}}`, i, strings.Repeat("x", 10<<10)))
	}
	d := NewDecoder(task.Turn{}, func(task.Event) {}).(*decoder)
	for _, line := range lines {
		d.Line([]byte(line))
	}
	if len(d.Remarks) != 5 || len(d.Remarks[4]) != agent.MaxError || d.Remarks[1] == d.Remarks[0] {
		t.Errorf("%d remarks, the last one has %d bytes", len(d.Remarks), len(d.Remarks[len(d.Remarks)-1]))
	}
	size := 0
	for id, u := range d.uses {
		size += len(id) + len(u.tool) + len(u.on)
	}
	if len(d.uses) != maxUses || size > 300*maxUses {
		t.Errorf("%d calls of tools, %d bytes", len(d.uses), size)
	}
}
