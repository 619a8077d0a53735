package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/redact"
	"stint/state"
)

// spellings returns a secret in all the ways in which it must not be printed, by their names.
func spellings(name, value string) map[string]string {
	quoted, _ := json.Marshal(value) // a string always can be
	all := map[string]string{name: value, name + " in JSON": strings.Trim(string(quoted), `"`), name + " in a query": url.QueryEscape(value), name + " in a path": url.PathEscape(value)}
	for before := range 3 {
		for kind, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "URL": base64.URLEncoding} {
			all[fmt.Sprintf("%s in base64 %s %d", name, kind, before)] = enc.EncodeToString([]byte("<<"[:before] + value + ">>>"))[(8*before+5)/6 : 8*(before+len(value))/6]
		}
	}
	return all
}

// TestSecretsOf: which values of a variable are secret.
func TestSecretsOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials.json")
	put(t, file, "{}")
	for kv, want := range map[string]string{
		"OPENAI_API_KEY=sk-1": "sk-1", "OPENAI_BASE_URL=https://example.org": "", "ANTHROPIC_BASE_URL=https://u:pass@host": "https://u:pass@host, pass",
		"GOOGLE_APPLICATION_CREDENTIALS=" + file: "", "GEMINI_API_KEY_AUTH_MECHANISM=x-goog-api-key": "", "GEMINI_DEFAULT_AUTH_TYPE=gemini-api-key": "",
		"ANTHROPIC_CUSTOM_HEADERS=X-Api-Key: one\nAuthorization: Bearer two": "Bearer, X-Api-Key: one\nAuthorization: Bearer two, one, two", "PATH=/bin": "", "HTTPS_PROXY=http://u:pass@proxy:1": "http://u:pass@proxy:1, pass",
	} {
		got := secretsOf(kv)
		slices.Sort(got)
		if text := strings.Join(slices.Compact(got), ", "); text != want {
			t.Errorf("%s: %q, want %q", kv, text, want)
		}
	}
}

// TestSecretsOfALogin: a key may look like a number, or stand in an object.
func TestSecretsOfALogin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"48151623420815162342": "48151623420815162342", `{"api_key":"sk-1","n":12}`: "sk-1", "sk-2\n": "sk-2"} {
		file := filepath.Join(t.TempDir(), "login")
		put(t, file, text)
		must(t, os.Chmod(file, 0o600))
		if got := (&account{AccountConfig: state.AccountConfig{CredRef: file}}).secrets(); !slices.Contains(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestLogIsMasked: nothing that is logged has a secret, in both formats.
func TestLogIsMasked(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var said bytes.Buffer
		cfg := &Config{LogFormat: format, LogLevel: "info"}
		cfg.Redact = redact.New(func() []string { return []string{`quote"back\slash`} })
		m := &master{app: &app{stderr: &said}, cfg: cfg}
		m.logger().Warn("it failed", "error", `with quote"back\slash`)
		if !strings.Contains(said.String(), "with *****") || strings.Contains(said.String(), "slash") {
			t.Errorf("%s: %s", format, &said)
		}
	}
}

// talker is a codex that prints all that stands in the files beside it, in pieces.
const talker = `#!/bin/bash
cd "$(dirname "$0")"
case "$1" in --version) echo codex-cli 0.169.0; exit;; login) echo Logged in; exit;; exec) ;; *) exit;; esac
prompt=$(cat)
head -c 777 said; head -c 99 said >&2; sleep 0.2
tail -c +778 said; tail -c +100 said >&2
cp said "$WORKSPACE/out.txt"
case "$prompt" in
*asks*) %s task -q -d --parallel "$(cat said)" >/dev/null;;
*fails*) cat events-of-a-failure; exit 1;;
*hangs*) sleep 300;;
esac
cat events
`

// TestPromise11NoSecretOfAnAgent: what an agent was given as a secret, or has read of stint's, is in no file of the state
// directory, no log, and in nothing that a command or the API answers, however the agent
// prints it. What the user has typed stays.
func TestPromise11NoSecretOfAnAgent(t *testing.T) {
	t.Parallel()
	// A password of its own: it is typed here, and tests beside this one look for theirs on all command lines.
	secrets := map[string]string{"OPENAI_API_KEY": "sk-proj-OpenAI0123456789abcdefgh", "password": "c4n4ryThatIsTyped"}
	for i, value := range []string{"exactly8", `quote"back\slash`, "p/ss+w=rd?&<>#%", "space and:colon@home", "pässwörd✓key", "line one\nline two", "(js)!'unreserved~._-"} {
		secrets[fmt.Sprintf("CANARY_%d_KEY", i)] = value
	}
	for i := range 10 {
		secrets[fmt.Sprintf("CANARY_1%d_TOKEN", i)] = fmt.Sprintf("sk-ant-api03-%d%s", i, strings.Repeat(string(rune('a'+i))+"Zq7", 20))
	}
	const typed = "typed-by-the-user-himself"
	settings := []string{"STINT_POSTGRES_URL=postgres://ana:" + url.QueryEscape(secrets["password"]) + "@127.0.0.1:1/audit", "CANARY_TYPED_KEY=" + typed, "STINT_AGENT=codex", "STINT_MAX_ATTEMPTS=1", "STINT_LOG_LEVEL=debug"}
	for name, value := range secrets {
		if name != "password" {
			settings = append(settings, name+"="+value)
		}
	}
	outside := t.TempDir()
	settings = append(settings, "WORKSPACE=")
	w := newWorld(t, 1, settings...)
	w.env = append(w.env, "WORKSPACE="+w.work)
	w.write("stint/config.toml", fmt.Sprintf("env = [\"CANARY_*\", \"WORKSPACE\"]\ncodex_bin = %q\n", filepath.Join(outside, "codex")))
	w.run("token", "rotate")
	secrets["token"] = strings.TrimSpace(string(get(t, filepath.Join(w.state, "token"))))
	if len(secrets) != 20 {
		t.Fatal(len(secrets))
	}

	hidden, said := map[string]string{}, typed+"\n"
	for name, value := range secrets {
		for name, text := range spellings(name, value) {
			hidden[name] = text
			said += "<" + text + ">\n"
		}
	}
	quoted, _ := json.Marshal(said) // a string always can be
	events := `{"type":"thread.started","thread_id":"01a1fbfd-004f-7b52-a66b-d51066fa7872"}` + "\n" + `{"type":"turn.started"}` + "\n"
	for _, item := range []string{`"agent_message","text":%s`, `"reasoning","text":%s`, `"command_execution","command":%[1]s,"aggregated_output":%[1]s,"exit_code":0,"status":"completed"`, `"agent_message","text":%s`} {
		events += `{"type":"item.completed","item":{"id":"item_0","type":` + fmt.Sprintf(item, quoted) + "}}\n"
	}
	for name, text := range map[string]string{
		"said": said, "codex": fmt.Sprintf(talker, w.self), "events": events + `{"type":"turn.completed","usage":{"input_tokens":11,"output_tokens":7}}` + "\n",
		"events-of-a-failure": events + `{"type":"turn.failed","error":{"message":` + string(quoted) + "}}\n",
	} {
		put(t, filepath.Join(outside, name), text)
	}
	must(t, os.Chmod(filepath.Join(outside, "codex"), 0o700))

	l := w.serve()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.socket) }}}
	ask := func(path string) string {
		resp, err := client.Get("http://localhost" + path)
		must(t, err)
		defer func() { _ = resp.Body.Close() }() // it was only read
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		return fmt.Sprint(resp.Header) + string(body)
	}
	ctx, stop := context.WithTimeout(t.Context(), scriptDeadline)
	var stream bytes.Buffer
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = client.Do(req); err == nil {
				_, _ = io.Copy(&stream, resp.Body) // until it is stopped
				err = resp.Body.Close()
			}
		}
		check(t, err)
	}()
	printed := map[string]string{}
	stint := func(args ...string) string { // which may fail
		cmd := w.command(args...)
		out, _ := cmd.CombinedOutput()
		printed[strings.Join(args, " ")] = string(out)
		return string(out)
	}
	ids := map[string]string{}
	for name, args := range map[string][]string{
		"done": {"--output-spec", "out.txt", "say " + typed}, "failed": {"it fails"}, "verified": {"--verify", "cat " + filepath.Join(outside, "said") + "; false", "--max-iterations", "2", "well"}, "asks": {"asks"},
	} {
		ids[name] = w.run("task", slices.Concat([]string{"-q", "-d", "--session", name}, args)...)
		stint("logs", "-f", "--raw", ids[name])
		stint("wait", ids[name])
	}
	hangs := w.run("task", "-d", "--session", "hangs", "it hangs")
	if !poll(scriptDeadline, func() bool { return strings.Contains(ask("/v1/tasks/"+hangs+"/logs?stream=stdout"), "****") }) {
		t.Error("the agent that hangs prints nothing")
	}
	for _, id := range append([]string{hangs}, ids["done"], ids["failed"], ids["verified"], ids["asks"]) {
		for _, args := range []string{"show", "show --json", "show --answer", "show --with-files --json", "show --prompt", "logs", "logs --json", "logs --raw", "logs --stderr", "why", "history"} {
			stint(append(strings.Fields(args), id)...)
		}
		for _, path := range []string{"", "/logs?stream=stdout", "/logs?stream=stderr", "/logs?stream=events", "/logs?stream=stdout&tail=3", "/files/out.txt"} {
			printed["GET "+path+" "+id] = ask("/v1/tasks/" + id + path)
		}
	}
	for _, args := range []string{"ls", "ls --json --all", "session ls --json", "session show done", "doctor --json", "config show --origin", "digest", "usage --json", "findings", "token"} {
		stint(strings.Fields(args)...)
	}
	for _, path := range []string{"/v1/tasks", "/health", "/metrics", "/v1/sessions", "/v1/agents?probe=true", "/", "/v1/usage"} {
		printed["GET "+path] = ask(path)
	}
	w.end(l, syscall.SIGKILL) // with a run at work: the next master rewrites what it left
	l = w.serve()
	w.run("cancel", hangs)
	w.run("compact-tasks", "--older-than", "0s")
	stop()
	<-streamed
	printed["events"] = stream.String()
	w.end(l, syscall.SIGTERM)
	must(t, os.Remove(filepath.Join(w.work, "out.txt"))) // it is the agent's

	answered := 0
	for command, text := range printed {
		answered += len(text)
		for name, secret := range hidden {
			if strings.Contains(text, secret) {
				t.Errorf("stint %s prints the %s: %q", command, name, secret)
			}
		}
	}
	delete(hidden, "token in JSON") // it is itself
	for name, value := range hidden {
		if name != "token" && value == secrets["token"] {
			delete(hidden, name)
		}
	}
	files := w.searchFiles(hidden)
	view := printed["show --json "+ids["done"]]
	if !strings.Contains(view, `"prompt":"say `+typed) || strings.Contains(printed["show --answer "+ids["done"]], typed) || !strings.Contains(view, "<****") || !strings.Contains(printed["show --with-files --json "+ids["done"]], `"text":"******`) {
		t.Errorf("what was typed, what was answered, what was collected: %.3000s", view)
	}
	if !t.Failed() {
		t.Logf("canaries: secrets=%d spellings=%d answers=%d bytes=%d files=%d hits=0", len(secrets), len(hidden), len(printed), answered, files)
	}
}
