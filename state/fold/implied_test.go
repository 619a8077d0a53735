package fold

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
)

func TestImpliedChanges(t *testing.T) {
	pairs := func(list ...string) (fields []ledger.Pair) {
		for i := 0; i < len(list); i += 2 {
			fields = append(fields, ledger.Pair{Key: list[i], Value: list[i+1]})
		}
		return fields
	}
	const web = "a: status=queued; sessionKey=web; sessionId=s1; agent=codex; account=codex"
	tests := []struct {
		name   string
		task   []string
		edit   []ledger.Pair
		leaves []ledger.Pair
	}{
		{"nothing moved", []string{web}, pairs("prompt", "p", "sessionKey", "web", "agent", "codex"), nil},
		{"another session", []string{web}, pairs("sessionKey", "api"), pairs("sessionId", "")},
		{"another session, named", []string{web}, pairs("sessionKey", "api", "sessionId", "s2"), nil},
		{"another agent", []string{web}, pairs("agent", "claude"), pairs("sessionId", "", "account", "")},
		{"another agent by its other name", []string{web}, pairs("tool", "claude"), pairs("sessionId", "", "account", "")},
		{"another agent and its account", []string{web}, pairs("agent", "claude", "account", "claude"), pairs("pinned", "true", "sessionId", "")},
		{"another account", []string{web, "a: runId=r; codexSessionId=n"}, pairs("account", "codex-2"), pairs("pinned", "true", "sessionId", "", "codexSessionId", "")},
		{"any account", []string{web, "a: pinned=true"}, pairs("account", ""), pairs("pinned", "", "sessionId", "")},
		{"what the user has named goes along", []string{web, "a: codexSessionId=n1"}, pairs("sessionKey", "api"), pairs("sessionId", "")},
		{"what a run has learned does not", []string{web, "a: status=running; runId=r; codexSessionId=n1", "a: status=failed"}, pairs("sessionKey", "api"), pairs("sessionId", "", "codexSessionId", "")},
		{"unless it is named", []string{web, "a: status=running; runId=r; codexSessionId=n1", "a: status=failed"}, pairs("sessionKey", "api", "codexSessionId", "n1"), pairs("sessionId", "")},
		{"queued again, it has not failed", []string{web, "a: status=failed; reason=verify; error=no; iteration=3"}, pairs("status", "queued"), pairs("iteration", "", "reason", "", "error", "")},
		{"while it runs", []string{web, "a: status=running; runId=r"}, pairs("sessionKey", "api"), nil},
		{"queued again while it runs", []string{web, "a: status=running; runId=r; phase=verify; iteration=2; retries=1; requeues=1"}, pairs("status", "queued"), pairs("phase", "", "iteration", "")},
		{"queued again after its end", []string{web, "a: status=failed; iteration=2"}, pairs("status", "queued"), pairs("iteration", "")},
		{"queued again, it was never taken out", []string{web, "a: status=dead; requeues=6"}, pairs("status", "queued"), pairs("requeues", "")},
		{"queued as it was", []string{web, "a: phase=verify; iteration=2"}, pairs("status", "queued"), nil},
		{"queued again while it runs, elsewhere", []string{web, "a: status=running; runId=r"}, pairs("status", "queued", "agent", "claude"), pairs("sessionId", "", "account", "")},
		{"another command", []string{web, "a: verifyCommand=a; verifyExitCode=1; verifyTime=1s; verifyOutput=x"}, pairs("verifyCommand", "b"), pairs("verifyExitCode", "", "verifyTime", "", "verifyOutput", "")},
		{"another command while it runs", []string{web, "a: verifyCommand=a; verifyExitCode=1; status=running; runId=r"}, pairs("verifyCommand", "b", "verifyTime", "2s"), pairs("verifyExitCode", "", "verifyOutput", "")},
		{"the same command", []string{web, "a: verifyCommand=a; verifyExitCode=1"}, pairs("verifyCommand", "a"), nil},
		{"an agent's task in another session", []string{web, "a: intake=open"}, pairs("sessionKey", "api"), pairs("intake", "", "sessionId", "")},
		{"an agent's task in another session while it runs", []string{web, "a: intake=open; status=running; runId=r"}, pairs("sessionKey", "api"), pairs("intake", "")},
		{"an agent's task in another conversation of its session", []string{web, "a: intake=open"}, pairs("sessionId", "s2"), pairs("intake", "")},
		{"an agent's task in a session of the agent", []string{web, "a: intake=open; codexSessionId=n1"}, pairs("codexSessionId", "n2"), pairs("intake", "")},
		{"an agent's task for another agent", []string{web, "a: intake=open"}, pairs("agent", "claude"), pairs("intake", "", "sessionId", "", "account", "")},
		{"an agent's task where it was", []string{web, "a: intake=open; codexSessionId=n1"}, pairs("sessionKey", "web", "sessionId", "s1", "codexSessionId", "n1", "claudeSessionId", "", "agent", "codex", "prompt", "p"), nil},
		{"running, as a typed word, ran before", []string{web, "a: status=running; runId=r; startedAt=2026-01-05T10:00:00Z", "a: status=queued; reason=network"}, pairs("status", "running"), nil},
		{"running, as a copied record, ran before", []string{web, "a: status=running; runId=r; startedAt=2026-01-05T10:00:00Z", "a: status=queued; reason=orphaned; hold=true"}, pairs("status", "running", "runId", "r"), nil},
		{"running, as a copied record of another task", nil, pairs("status", "running", "runId", "r", "startedAt", "2026-01-05T10:00:00Z"), nil},
		{"running, of another master", nil, pairs("status", "running", "runId", "r"), pairs("status", "queued", "reason", "interrupted", "retries", "1", "attempt", "0")},
		{"a new task", nil, pairs("status", "queued", "sessionKey", "api"), nil},
		{"a new task in sessions of agents", nil, pairs("chatSessionId", "7", "claudeSessionId", "n", "codexSessionId", "n"), pairs("agent", "codex")},
		{"a new task in a session of its agent", nil, pairs("agent", "claude", "codexSessionId", "n"), nil},
		{"a new task with a key of a person's own", nil, pairs("chatSessionId", "7"), nil},
	}
	for _, tt := range tests {
		j := newJournal(t)
		records(j, tt.task...)
		got := j.state.ImpliedChanges(&ledger.Record{Kind: ledger.KindTask, ID: "a", Fields: tt.edit})
		if diff := cmp.Diff(tt.leaves, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
