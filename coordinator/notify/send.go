package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// A Destination is one place that a block names, with the events that wait to be sent there.
type Destination struct {
	Name  string // without a secret
	Block *Block
	send  func(ctx context.Context, e *Event) error
	wake  chan struct{} // has a value if events wait

	mu     sync.Mutex
	events []Event
}

// Destinations returns where the messages of a block go, but for its terminal. env is the
// environment of commands, read what reads a file with a secret.
func (b *Block) Destinations(env []string, read func(path string) (string, error)) (list []*Destination) {
	add := func(isSet bool, name string, send func(ctx context.Context, e *Event) error) {
		if isSet {
			list = append(list, &Destination{Name: name, Block: b, send: send, wake: make(chan struct{}, 1)})
		}
	}
	add(b.Command != "", "command", func(ctx context.Context, e *Event) error { return run(ctx, env, e, "/bin/sh", "-c", b.Command) })
	add(b.Desktop, "desktop", func(ctx context.Context, e *Event) error {
		// The message is an argument, which other users of the machine can read; none of it becomes a script or markup.
		notifier := []string{"notify-send", "--app-name=stint", "--", "stint: " + e.Event, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(e.Line())}
		if runtime.GOOS == "darwin" {
			notifier = []string{"osascript", "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run", "stint: " + e.Event, e.Line()}
		}
		return run(ctx, append(slices.Clone(env), "PATH="+task.SafePath(env, "")), e, "/bin/sh", append([]string{"-c", `exec "$@"`, "sh"}, notifier...)...)
	})
	add(b.Webhook != "", "webhook "+redactURL(b.Webhook), func(ctx context.Context, e *Event) error {
		body, _ := json.Marshal(e) // it has nothing that JSON cannot hold
		return post(ctx, b.Webhook, body, jsonBody)
	})
	add(b.Ntfy != "", "ntfy "+redactURL(b.Ntfy), func(ctx context.Context, e *Event) error {
		priority := "default"
		if e.Event != Done && slices.Contains(Usual(), e.Event) {
			priority = "high"
		}
		return post(ctx, b.Ntfy, []byte(e.Line()), http.Header{"Title": {"stint: " + e.Event}, "Priority": {priority}})
	})
	add(b.Telegram != "", "telegram "+b.Telegram, func(ctx context.Context, e *Event) error {
		token, err := b.Token(env, read) // each time: it may have been replaced
		if err != nil {
			return err
		}
		body, _ := json.Marshal(map[string]string{"chat_id": b.Telegram, "text": state.Cut(e.Line(), 2048)}) // it takes 4096 units of UTF-16, of which a rune has two at most
		return post(ctx, strings.TrimSuffix(cmp.Or(b.TelegramURL, "https://api.telegram.org"), "/")+"/bot"+token+"/sendMessage", body, jsonBody)
	})
	return list
}

var jsonBody = http.Header{"Content-Type": {"application/json"}}

// run sends what comes until ended is closed or sending has ended; once ctx has ended, without a gap.
func (d *Destination) run(ctx, sending context.Context, ended <-chan struct{}, log *slog.Logger) {
	for isLast := false; !isLast; {
		select {
		case <-d.wake:
		case <-ended:
			isLast = true
		}
		d.mu.Lock()
		events := d.events
		d.events = nil
		d.mu.Unlock()
		if len(events) == 0 {
			continue
		}
		e := summary(events)
		if err := d.Deliver(sending, e, tries); err != nil {
			log.Warn("a notification could not be delivered", "to", d.Name, "event", e.Event, "error", err)
		}
		_ = task.Sleep(ctx, gap)
	}
}

// tryTime is how long one try to deliver a message may take.
const tryTime = 10 * time.Second

// Deliver sends an event, in so many tries at most, until ctx ends. The error has no secret.
func (d *Destination) Deliver(ctx context.Context, e Event, tries int) error {
	if !d.Block.Prompt {
		e.Title, e.Error = "", ""
	}
	for wait := time.Second; ; wait *= 5 {
		try, cancel := context.WithTimeout(ctx, tryTime)
		err := d.send(try, &e)
		cancel()
		answer := new(answerError)
		if tries--; err == nil || tries == 0 || errors.As(err, &answer) && answer.isRefusal {
			return err
		}
		if task.Sleep(ctx, max(wait, answer.after)) != nil {
			return err
		}
	}
}

// Line returns the sentence and, where the event has it, the title, as text that is safe to show.
func (e *Event) Line() string {
	if e.Title == "" {
		return task.EscapeText(e.Text)
	}
	return task.EscapeText(e.Text + ": " + e.Title)
}

// An answerError is an answer that is not what was asked for.
type answerError struct {
	status    string
	isRefusal bool          // another try would get it as well
	after     time.Duration // when to try again, if it says so
}

func (e *answerError) Error() string { return "the answer is " + e.status }

const mostWait = 15 * time.Minute // whatever a server says

// retryAfter returns when a server wants to be asked again: by its header, or, as Telegram says it, its body.
func retryAfter(resp *http.Response, body []byte) time.Duration {
	var said struct {
		Parameters struct {
			After int `json:"retry_after"`
		} `json:"parameters"`
	}
	_ = json.Unmarshal(body, &said) // it may be anything
	after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(min(max(after, said.Parameters.After, 0), int(mostWait.Seconds()))) * time.Second
}

// client follows no redirects.
var client = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func post(ctx context.Context, to string, body []byte, h http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL cannot be used")
	}
	req.Header = h
	resp, err := client.Do(req)
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		return wrapped.Err // without the URL
	}
	if err != nil {
		return err
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // also so that the connection can be used again
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
		return &answerError{status: resp.Status, isRefusal: true}
	}
	return &answerError{status: resp.Status, after: retryAfter(resp, answer)}
}

// A tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-1<<10):]
	return len(p), nil
}

// run runs a program that reads the event as JSON, and finds short texts in its environment. It and what it
// has started in its process group are ended with ctx. The error has the last line of its stderr.
func run(ctx context.Context, env []string, e *Event, program string, args ...string) error {
	data, _ := json.Marshal(e) // it has nothing that JSON cannot hold
	var stderr tail
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(append(data, '\n')), &stderr
	cmd.Env = append(cmd.Env, env...)
	for name, value := range map[string]string{
		"STINT_EVENT": e.Event, "STINT_TEXT": e.Line(), "STINT_TASK_ID": e.Task, "STINT_REASON": e.Reason, "STINT_SESSION": e.Session,
		"STINT_LABEL": e.Label, "STINT_AGENT": e.Agent, "STINT_PRIORITY": strconv.Itoa(e.Priority), "STINT_DURATION": e.Duration, "STINT_ACCOUNT": e.Account,
	} {
		cmd.Env = append(cmd.Env, name+"="+task.EscapeText(value))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it left a program behind that has its stderr
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %s", tryTime)
	}
	lines := strings.Split(strings.TrimSpace(string(stderr)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return err
}
