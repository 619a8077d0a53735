package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/task"
)

// A Destination is one of the places that a channel names. Its name has no secret.
type Destination struct {
	Name string
	send func(s *Sender, ctx context.Context, e *Event) error
}

// Destinations returns where the messages of a channel go, but for its terminal.
func (c *Channel) Destinations() (list []Destination) {
	if c.Command != "" {
		list = append(list, Destination{"command", func(s *Sender, ctx context.Context, e *Event) error { return s.run(ctx, e, "/bin/sh", "-c", c.Command) }})
	}
	if c.Desktop {
		list = append(list, Destination{"desktop", (*Sender).desktop})
	}
	if c.Webhook != "" {
		list = append(list, Destination{"webhook " + Redact(c.Webhook), func(s *Sender, ctx context.Context, e *Event) error {
			body, err := json.Marshal(e)
			if err != nil {
				return err
			}
			return s.post(ctx, c.Webhook, body, http.Header{"Content-Type": {"application/json"}})
		}})
	}
	if c.Ntfy != "" {
		list = append(list, Destination{"ntfy " + Redact(c.Ntfy), func(s *Sender, ctx context.Context, e *Event) error {
			priority := "default"
			if e.Event == Failed || e.Event == Dead || e.Event == NeedsAttention {
				priority = "high"
			}
			return s.post(ctx, c.Ntfy, []byte(e.Line()), http.Header{"Title": {"stint: " + e.Event}, "Priority": {priority}})
		}})
	}
	return list
}

// A Sender delivers messages. Its Client must follow no redirects.
type Sender struct {
	Client *http.Client
	Env    []string      // of commands
	Retry  time.Duration // before the second try, and five times that before the third; 0: one try
}

// tryTime is how long one try to deliver a message may take.
const tryTime = 10 * time.Second

// Deliver sends an event, in three tries at most, until ctx ends. The error has no secret.
func (s *Sender) Deliver(ctx context.Context, c *Channel, to Destination, e *Event) error {
	sent := *e
	if !c.Prompt {
		sent.Title, sent.Error = "", ""
	}
	for wait := s.Retry; ; wait *= 5 {
		try, cancel := context.WithTimeout(ctx, tryTime)
		err := to.send(s, try, &sent)
		cancel()
		var final *refusedError
		if err == nil || errors.As(err, &final) || wait == 0 || wait > 5*s.Retry {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// Line returns the sentence, and the first line of the prompt where the event has it, as text
// that is safe to show.
func (e *Event) Line() string {
	if e.Title == "" {
		return task.EscapeText(e.Text)
	}
	return task.EscapeText(e.Text + ": " + e.Title)
}

// A refusedError says that another try would be refused as well.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "the answer is " + e.status }

func (s *Sender) post(ctx context.Context, to string, body []byte, h http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL cannot be used")
	}
	req.Header = h
	resp, err := s.Client.Do(req)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err // without the URL
	}
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
		return &refusedError{resp.Status}
	}
	return fmt.Errorf("the answer is %s", resp.Status)
}

// desktop shows a message with the program of the system. It is an argument there, which
// other users of the machine can read; none of it becomes a script or markup.
func (s *Sender) desktop(ctx context.Context, e *Event) error {
	title, text := "stint: "+e.Event, e.Line()
	if runtime.GOOS == "darwin" {
		return s.run(ctx, e, "osascript", "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run", title, text)
	}
	return s.run(ctx, e, "notify-send", "--app-name=stint", "--", title, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text))
}

// run runs a program that reads the event as JSON, and finds short texts in its environment. It
// and what it has started in its process group are ended with ctx.
func (s *Sender) run(ctx context.Context, e *Event, program string, args ...string) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = bytes.NewReader(append(data, '\n'))
	cmd.Env = append(cmd.Env, s.Env...)
	for name, value := range map[string]string{
		"STINT_EVENT": e.Event, "STINT_TEXT": e.Line(), "STINT_TASK_ID": e.Task, "STINT_REASON": e.Reason, "STINT_SESSION": e.Session,
		"STINT_LABEL": e.Label, "STINT_AGENT": e.Agent, "STINT_PRIORITY": strconv.Itoa(e.Priority), "STINT_DURATION": e.Duration, "STINT_ACCOUNT": e.Account,
	} {
		cmd.Env = append(cmd.Env, name+"="+task.EscapeText(value))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err = cmd.Run(); ctx.Err() != nil {
		return fmt.Errorf("it took longer than %s", tryTime)
	}
	return err
}
