package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

// ears gives the decoder of a CLI by its name.
func ears(tool string, turn coordinator.Turn, report func(coordinator.Event)) decoder {
	switch tool {
	case "claude":
		return newClaudeDecoder(turn, report)
	case "gemini":
		return newGeminiDecoder(turn, report)
	}
	return newCodexDecoder(turn, report)
}

// recorded plays a recorded run of a real CLI through decoder and table.
func recorded(t testing.TB, tool, name string) (*heard, verdict, ended) {
	t.Helper()
	base := filepath.Join("testdata", tool, name)
	stdout, err := os.ReadFile(base + ".jsonl")
	must(t, err)
	stderr, err := os.ReadFile(base + ".stderr")
	must(t, err)
	data, err := os.ReadFile(base + ".exit")
	must(t, err)
	var exit struct {
		Exit   *int
		Signal string
	}
	must(t, json.Unmarshal(data, &exit))
	e := ended{started: true, stderr: stderr, end: endReport{Exit: -1}}
	if exit.Exit != nil {
		e.end.Exit = *exit.Exit
	}
	if exit.Signal == "SIGTERM" {
		e.end.Signal = 15
	}
	turn := coordinator.Turn{}
	if strings.HasPrefix(name, "resume") {
		turn.Session = someUUID
	}
	st := newStream(ears(tool, turn, quiet), quiet)
	st.feed(stdout)
	st.aside(stderr)
	st.end()
	return st.decoder.said(), classify(e, st.decoder, testNow), e
}

func TestRecordedStreams(t *testing.T) {
	const first, busy = "01a1fbfd-004f-7b52-a66b-d51066fa7872", "already has an active writer"
	const first2, first3 = "f0a5b986-2e18-498c-ae86-b8e09348037f", "a9a364ae-6666-44a9-b213-2f4b055b391c"
	limited, auth, network := state.ClassRateLimited, state.ClassAuth, state.ClassNetwork
	type row struct {
		name    string
		class   state.Class
		session string // "" when none can be resumed; "*" for any
		answer  string // part of it
		msg     string // part of it
		input   int64  // tokens of the run, or of the thread with codex
		kept    bool
	}
	for tool, rows := range map[string][]row{
		"codex": {
			{"first_turn", "", first, `ECHO #1 last="hello alpha"`, "", 110, true},
			{"resume_second_turn", "", first, `all=[hello alpha ;; hello beta]`, "", 230, true},
			{"resume_unknown_name", "", "*", "ECHO #1", "", 110, true},
			{"reasoning", "", "*", "ECHO #1", "", 110, true},
			{"tool_write_patch", "", "*", "TOOL DONE", "", 220, true},
			{"tool_fail", "", "*", "TOOL DONE", "", 220, true},
			{"tool_default_sandbox", "", "*", "TOOL DONE", "", 220, true},
			{"denied_git", "", "*", "TOOL DONE", "", 220, true},
			{"denied_network", "", "*", "TOOL DONE", "", 220, true},
			{"denied_patch", "", "*", "TOOL DONE", "", 220, true},
			{"denied_userns", "", "*", "TOOL DONE", "", 220, true},
			{"err_trunc_once", "", "*", "ECHO #1", "", 110, true},
			{"err_401", auth, "*", "", "401 Unauthorized", 0, true},
			{"err_429_always", limited, "*", "", "429", 0, true},
			{"err_429_usage_limit", limited, "*", "", "usage limit", 0, true},
			{"err_500", network, "*", "", "high demand", 0, true},
			{"err_trunc_noretry", network, "*", "", "stream disconnected", 0, true},
			{"err_stream_failed_ctx", state.ClassContextFull, "*", "", "context window", 0, true},
			{"kill_TERM_streaming", state.ClassStalled, "*", "", "terminated", 0, false},
			{"conc_B", state.ClassSessionBusy, "", "", busy, 0, false},
			{"resume_unknown", state.ClassSessionLost, "", "", "no rollout found", 0, false},
		},
		"claude": {
			{"first_turn", "", first2, `ECHO #1 last="hello alpha"`, "", 153, true},
			{"resume_second_turn", "", first2, `all=[hello alpha ;; hello beta]`, "", 163, true},
			{"tool_write", "", "*", "TOOL DONE", "", 306, true},
			{"perm_acceptedits_bash", "", "*", "TOOL DONE", "", 306, true},
			{"err_429_twice_then_ok", "", "*", "ECHO #1", "", 153, true},
			{"err_429_3retries", limited, "*", "", "Request rejected (429)", 0, true},
			{"err_401", auth, "*", "", "Failed to authenticate", 0, true},
			{"err_500_3retries", network, "*", "", "500", 0, true},
			{"err_context_full", state.ClassContextFull, "*", "", "Prompt is too long", 0, true},
			{"err_nokey", auth, "*", "", "Not logged in", 0, true},
			{"max_turns", state.ClassExit, "*", "", "maximum number of turns", 153, true},
			{"kill_INT_streaming", state.ClassStalled, "*", "ECHO", "aborted", 153, true},
			{"kill_TERM_streaming", state.ClassStalled, "", "", "terminated", 0, false},
			{"resume_unknown", state.ClassSessionLost, "", "", "No conversation found", 0, false},
			{"session_id_reuse", state.ClassExit, "", "", "already in use", 0, false},
		},
		"gemini": {
			{"first_turn", "", first3, `ECHO #1 last="hello alpha"`, "", 220, false},
			{"resume_id_second_turn", "", first3, `all=[hello alpha ;; hello beta]`, "", 120, false},
			{"tool_write_yolo_y", "", "*", "TOOL DONE", "", 220, true},
			{"denied_shell", "", "*", "TOOL DONE", "", 220, true},
			{"perm_default_write", "", "*", "NO TOOL", "", 110, false},
			{"kill_TERM_streaming", "", "*", "ECHO #1", "", 110, false}, // it does not listen to it
			{"bigout", state.ClassOutputMissing, "*", "", "Loop detected", 0, false},
			{"err_401", auth, "", "", "UNAUTHENTICATED", 0, false},
			{"err_429_day_quota", limited, "", "", "daily quota", 0, false},
			{"err_429_max1", limited, "", "", "fake 429", 0, false},
			{"err_500_max1", network, "", "", "INTERNAL", 0, false},
			{"err_trunc_once", network, "", "", "terminated", 0, false},
			{"err_empty", network, "", "", "The model returned an empty response", 440, false},
			{"nokey", auth, "", "", "GEMINI_API_KEY", 0, false},
			{"first_try_untrusted", state.ClassExit, "", "", "not running in a trusted directory", 0, false},
			{"resume_unknown", state.ClassSessionLost, "", "", "Invalid session identifier", 0, false},
		},
	} {
		for _, c := range rows {
			h, v, _ := recorded(t, tool, c.name)
			input := h.usage.InputTokens + h.thread.InputTokens
			if v.class != c.class || !strings.Contains(v.msg, c.msg) || !strings.Contains(h.answer, c.answer) || input != c.input || h.kept != c.kept {
				t.Errorf("%s %s: %+v, answer %q, usage %+v, thread %+v, kept %v", tool, c.name, v, h.answer, h.usage, h.thread, h.kept)
			}
			if c.session == "*" && !isUUID(h.session) || c.session != "*" && h.session != c.session {
				t.Errorf("%s %s: session %q", tool, c.name, h.session)
			}
			if h.bad != 0 {
				t.Errorf("%s %s: %d lines were not understood", tool, c.name, h.bad)
			}
		}
		names, err := filepath.Glob("testdata/" + tool + "/*.jsonl")
		if err != nil || len(names) != len(rows) {
			t.Errorf("%s: %d recorded streams, %v: name each in the table", tool, len(names), err)
		}
	}
}

// What the recordings say besides.
func TestRecordedDetails(t *testing.T) {
	if _, v, _ := recorded(t, "codex", "err_429_usage_limit"); !v.retryAt.Equal(time.Date(2026, 11, 21, 3, 47, 0, 0, time.UTC)) {
		t.Errorf("try again at %v", v.retryAt)
	}
	if h, _, _ := recorded(t, "codex", "resume_second_turn"); h.usage != (state.Usage{}) ||
		h.thread != (state.Usage{InputTokens: 230, CachedInputTokens: 80, OutputTokens: 43, ReasoningTokens: 10}) {
		t.Errorf("codex: %+v, %+v", h.usage, h.thread)
	}
	want := state.Usage{InputTokens: 153, CachedInputTokens: 40, OutputTokens: 22, CostUSD: 0.0009029999999999999}
	if h, _, _ := recorded(t, "claude", "first_turn"); h.usage != want || h.thread != (state.Usage{}) {
		t.Errorf("claude: %+v, %+v", h.usage, h.thread)
	}
	want = state.Usage{InputTokens: 220, CachedInputTokens: 80, OutputTokens: 53, ReasoningTokens: 10}
	if h, _, _ := recorded(t, "gemini", "first_turn"); h.usage != want || h.thread != (state.Usage{}) {
		t.Errorf("gemini: %+v, %+v", h.usage, h.thread)
	}
}

// What an agent was denied is told with the tool, what it was for, and the setting that
// allows it; what failed for other reasons is not.
func TestRecordedDenials(t *testing.T) {
	for _, c := range []struct{ tool, name, want string }{
		{"codex", "denied_git", `shell "git -c user.email=a@b -c user.name=x commit --allow-empty -qm y" was denied: Read-only file system; to allow it: codex_sandbox = "danger-full-access" and allow_dangerous = true`},
		{"codex", "denied_network", `shell "curl -sS https://example.com/" was denied: Could not resolve host; to allow it: network_access = true below [sandbox_workspace_write] in codex's config.toml`},
		{"codex", "denied_patch", `apply_patch was denied: writing outside of the project; to allow it: codex_sandbox = "danger-full-access" and allow_dangerous = true`},
		{"codex", "denied_userns", `shell "echo hi" was denied: its sandbox cannot be set up: bwrap: Creating new namespace failed: nesting depth or /proc/sys/user…; to allow it: see stint doctor`},
		{"codex", "tool_fail", ""},
		{"codex", "tool_write_patch", ""},
		{"claude", "perm_acceptedits_bash", `Bash "python3 -c 'print(1)'" was denied; to allow it: claude_allowed_tools = ["Bash"], or a rule such as "Bash(python3:*)"`},
		{"claude", "tool_write", ""},
		{"gemini", "denied_shell", `run_shell_command "echo hi" was denied: gemini is not offered this tool; to allow it: gemini_approval_mode = "yolo" and allow_dangerous = true`},
		{"gemini", "tool_write_yolo_y", ""},
	} {
		h, _, _ := recorded(t, c.tool, c.name)
		got := ""
		for _, f := range h.denied {
			got += f.Kind + ": " + f.Message
		}
		if c.want != "" {
			c.want = "denied: " + c.want
		}
		if got != c.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", c.tool, c.name, got, c.want)
		}
	}
}
