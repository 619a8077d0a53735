package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator"
	"stint/state"
)

// realCodex gives the installed codex with a model server of ours.
func realCodex(t *testing.T, b *bench) *Codex {
	t.Helper()
	bin, err := exec.LookPath("codex")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("codex is not installed")
		}
		t.Skip("codex is not installed")
	}
	server := httptest.NewServer(http.HandlerFunc(answerModel))
	t.Cleanup(server.Close)
	home, err := os.MkdirTemp("testdata", "home-") // codex dislikes a home below the temp directory
	must(t, err)
	home, err = filepath.Abs(home)
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(home)) })
	config := fmt.Sprintf(`model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = %q
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
`, server.URL+"/v1")
	must(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600))
	env := append(b.demo.Env, "HOME="+home, "CODEX_HOME="+home, "FAKE_KEY=x")
	return &Codex{Bin: bin, Runner: Runner{Env: env}}
}

// answerModel speaks as much of the Responses API as codex needs: it answers
// with all that the user has said so far, or with the error that is asked for.
func answerModel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req struct {
		Input []struct {
			Role    string
			Content []struct{ Text string }
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var said []string
	for _, in := range req.Input {
		for _, c := range in.Content {
			if _, msg, ok := strings.Cut(c.Text, "## User message\n"); ok && in.Role == "user" {
				said = append(said, strings.TrimSpace(msg))
			}
		}
	}
	last := said[len(said)-1]
	var code int
	if n, _ := fmt.Sscanf(last, "fail %d", &code); n == 1 {
		http.Error(w, `{"error":{"message":"as you wish"}}`, code)
		return
	}
	if last == "hang" {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	item := map[string]any{"type": "message", "role": "assistant", "id": "m", "content": []any{map[string]any{"type": "output_text", "text": strings.Join(said, " ;; ")}}}
	usage := map[string]any{"input_tokens": 110, "output_tokens": 21, "total_tokens": 131, "input_tokens_details": map[string]int{"cached_tokens": 40}, "output_tokens_details": map[string]int{"reasoning_tokens": 5}}
	for _, e := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": "r"}},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": map[string]any{"id": "r", "usage": usage}},
	} {
		data, err := json.Marshal(e)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], data); err != nil {
			return
		}
	}
}

func TestRealCodex(t *testing.T) {
	b := newBench(t)
	c := realCodex(t, b)
	run := func(session, prompt string) (coordinator.Outcome, coordinator.Turn) {
		turn := b.turn(prompt)
		turn.Session = session
		out := c.Run(t.Context(), turn, func(coordinator.Event) {})
		wantGone(t, turn)
		return out, turn
	}
	if p := c.Probe(t.Context()); !p.Found || !p.LoggedIn || !strings.HasPrefix(p.Version, "codex-cli ") {
		t.Errorf("probe: %+v", p)
	}
	first, turn := run("", "hello alpha")
	if first.Class != "" || first.Result != "hello alpha" || first.Usage.InputTokens != 110 || !isUUID(first.Session) {
		t.Fatalf("first turn: %+v\n%s", first, readAll(turn))
	}
	second, turn := run(first.Session, "hello beta")
	if second.Class != "" || second.Result != "hello alpha ;; hello beta" || second.Session != first.Session || second.Note != "" {
		t.Errorf("second turn: %+v\n%s", second, readAll(turn))
	}
	for prompt, class := range map[string]state.Class{"fail 401": state.ClassAuth, "fail 429": state.ClassRateLimited, "fail 500": state.ClassNetwork, "fail 400": state.ClassExit} {
		if out, turn := run("", prompt); out.Class != class || out.ExitCode != 1 {
			t.Errorf("%s: %+v\n%s", prompt, out, readAll(turn))
		}
	}
	if out, _ := run("00000000-0000-7000-8000-000000000000", "x"); out.Class != state.ClassSessionLost {
		t.Errorf("unknown session: %+v", out)
	}
	c.Sandbox = "no-such-mode"
	if out, _ := run("", "x"); out.Class != state.ClassExit || out.ExitCode != 2 {
		t.Errorf("bad flag: %+v", out)
	}
}

func TestRealCodexCanceled(t *testing.T) {
	b := newBench(t)
	c := realCodex(t, b)
	turn := b.turn("hang")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := c.Run(ctx, turn, func(e coordinator.Event) {
		if e.Session != "" {
			cancel(coordinator.ErrCanceled)
		}
	})
	if out.Class != state.ClassCanceled || out.Session == "" || c.FindSession(turn.RunDir) != out.Session {
		t.Errorf("outcome: %+v\n%s", out, readAll(turn))
	}
	wantGone(t, turn)
}

func readAll(turn coordinator.Turn) string {
	var all strings.Builder
	for _, name := range []string{stdoutName, stderrName} {
		data, err := os.ReadFile(filepath.Join(turn.RunDir, name))
		fmt.Fprintf(&all, "%s (%v):\n%s\n", name, err, data)
	}
	return all.String()
}
