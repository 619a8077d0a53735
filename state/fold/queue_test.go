package fold

import (
	"strings"
	"testing"

	"stint/state"
)

func TestQueue(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; sessionKey=x; prompt=first",
		"b: status=queued; sessionKey=x; hold=true; prompt=second",
		"c: status=queued; sessionKey=y",
		"d: status=queued; sessionKey=x; order=-5; prompt=third",
		"e: status=queued; sessionKey=x; order=2",
		"f: sessionKey=x", "g: status=queued; sessionKey=x",
		"a: status=running", "c: status=running",
	)
	queue, err := j.state.Queue("x")
	if got := strings.Join(taskIDs(queue), " "); got != "d e b g" || err != nil {
		t.Errorf("queue %q, %v", got, err)
	}
	if queue[0].Title != "third" || queue[2].Title != "second" || !queue[2].Hold {
		t.Errorf("%+v", queue)
	}
	if got := strings.Join(taskIDs(j.state.Lane("x")), " "); got != "d e a b g" {
		t.Errorf("lane %q", got)
	}
	if queue, err := j.state.Queue("y"); len(queue) != 0 || err != nil {
		t.Errorf("%v, %v", queue, err)
	}
	if queue, err := j.state.Queue("unheard"); len(queue) != 0 || err != nil || len(j.state.Lane("unheard")) != 0 {
		t.Errorf("%v, %v", queue, err)
	}
	j.state = j.refold() // no title is known
	j.broken = true
	if _, err := j.state.Queue("x"); err == nil {
		t.Error("titles came from nowhere")
	}
}

func TestNativeOwner(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=x; sessionId=s1; agent=codex; codexSessionId=n1",
		"b: status=queued; sessionKey=x; sessionId=s2; agent=claude", "b: status=running; claudeSessionId=n2", "b: status=done",
		"c: status=queued; sessionKey=y; sessionId=s3; agent=codex; codexSessionId=n4", "c: status=failed; reason=session-lost")
	for native, want := range map[string]string{"n1": "codex", "n2": "claude", "n3": "", "n4": "", "": ""} {
		if got, _, ok := j.state.NativeOwner(native); got != want || ok != (want != "") {
			t.Errorf("%q belongs to %q, %v", native, got, ok)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"codex", "claude", "gemini", "tool", "idempotencyKey"}
	for word, want := range map[string]string{"codx": "codex", "cluade": "claude", "idempotncyKey": "idempotencyKey", "x": "", "ab": "", "gpt": "", "foo": "", "tol": "tool", "toll": "tool", strings.Repeat("c", 40): ""} {
		if got := state.Nearest(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

// TestCopied: a copy by hand gets what the task is to do, and nothing of its runs.
func TestCopied(t *testing.T) {
	for _, key := range []string{"prompt", "agent", "after", "afterPolicy", "tenantId", "queue", "fallback", "inputFiles", "outputSpec"} {
		if !state.Copied(key) {
			t.Errorf("%s is not copied", key)
		}
	}
	for _, key := range []string{"outputFiles", "promptKept", "threadTokens", "runId", "result", "idempotencyKey", "order", "hold", "inputTokens"} {
		if state.Copied(key) {
			t.Errorf("%s is copied", key)
		}
	}
}
