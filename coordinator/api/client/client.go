// Package client calls a master over its unix socket: it is what the command line uses. It
// knows nothing of the server but the paths and the types of package wire.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/google/uuid"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// ErrNoMaster is what a client's calls wrap when nobody listens at the socket.
// Nothing was sent then: the call can be made again once a master runs.
var ErrNoMaster = errors.New("no master is running")

// ErrSilent is what a client's calls wrap when a master listens and does not answer, not even to the question
// whether it is there: it was stopped, or hangs. What was sent may be carried out once it goes on.
var ErrSilent = errors.New("the master does not answer")

// How long a master may take to answer until it is asked whether it is there at all, and how long it may take to answer that.
const (
	askAfter     = 2 * time.Second
	answerWithin = 4 * time.Second
)

// A Client calls the master that listens at a socket. It is safe for concurrent use. A call takes as long as the master needs,
// if that answers other requests meanwhile: see [ErrSilent]; Wait, Events and Logs that follow do not look after that while
// they last. Else the context of a call bounds it, and a call whose context ended returns the context's cause.
//
// Errors of the master are [*task.Error]; one that broke off in the middle of a call has the code stopped.
type Client struct {
	Run string // that the client is part of, as an agent's command is; "": none. It is set before all calls

	socket string
	http   *http.Client
	notice atomic.Pointer[wire.Notice]
}

// Dial returns a client for the master at socket. It does not connect: each call does when it must, so that a
// client outlives its master. To another user than ours and root it sends nothing: see [guard.ErrForeign].
func Dial(socket string) *Client {
	return New(socket, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return guard.Dial(ctx, socket)
	})
}

// New returns a client for a master that dial connects to; socket is what its errors name.
func New(socket string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext:         dial,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second, // let go before the server does, after a minute
		DisableCompression:  true,
	}}}
}

// Close lets go of connections that are kept for later calls. Calls under way go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Submit makes a task durable. Without an id in spec the client chooses one, so that a request that had to be
// sent twice makes one task. The answer is without the prompt.
func (c *Client) Submit(ctx context.Context, spec task.TaskSpec) (wire.TaskView, error) {
	return Fetch[wire.TaskView](ctx, c, http.MethodPost, "/v1/tasks", withIDs(spec)[0])
}

// Task returns a whole task. A ref is an id, any unique piece of it, or @last.
func (c *Client) Task(ctx context.Context, ref string) (wire.TaskView, error) {
	return Fetch[wire.TaskView](ctx, c, http.MethodGet, TaskPath(ref, ""), nil)
}

// Wait returns the task when it has ended, which may take days.
func (c *Client) Wait(ctx context.Context, ref string) (out wire.TaskView, err error) {
	defer c.notice.Store(nil) // it is from when the wait began
	err = c.callLong(ctx, http.MethodGet, TaskPath(ref, "/wait"), nil, &out)
	return out, err
}

// Health returns what the master says about itself.
func (c *Client) Health(ctx context.Context) (task.Health, error) {
	return Fetch[task.Health](ctx, c, http.MethodGet, "/v1/health", nil)
}

// Fetch makes a request whose answer is JSON of a type, or as it is for []byte; in is what is sent, or nil. The error is the master's [*task.Error], or
// says that there is none: see [Client].
func Fetch[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	err = c.call(ctx, method, path, in, &out)
	return out, err
}

// TaskPath returns the path of a task, or of something about it.
func TaskPath(ref, action string) string { return "/v1/tasks/" + url.PathEscape(ref) + action }

// checkPath refuses a path with a reference that names nothing: a path cannot hold it.
func checkPath(path string) error {
	path, _, _ = strings.Cut(path, "?")
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "":
			return task.Invalid("what there is: stint ls", "the reference is empty")
		case ".", "..":
			return &task.Error{Code: task.CodeNotFound, Message: "nothing is called " + part, Hint: "what there is: stint ls"}
		}
	}
	return nil
}

// call makes one request to a master that answers soon, or is busy and says so. The
// answer goes to out: a *[]byte for the body as it is, else by JSON.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, release := c.watch(ctx)
	defer release()
	return c.callLong(ctx, method, path, in, out)
}

// watch ends a call as soon as the master turns out to be silent.
func (c *Client) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(askAfter, func() {
		for err := c.ask(ctx); ; err = c.ask(ctx) {
			if err != nil {
				cancel(err)
			}
			if task.Sleep(ctx, askAfter) != nil {
				return
			}
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// ask asks the master whether it is there: for *, which its HTTP server answers by itself, whatever the rest of it is busy with.
func (c *Client) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("%w at %s", ErrSilent, c.socket))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, "http://stint", nil)
	if err != nil {
		return err
	}
	req.URL.Opaque = "*"
	req.Close = true // the master may have no descriptor for another caller
	resp, err := c.http.Do(req)
	if err == nil {
		return resp.Body.Close()
	}
	if errors.Is(context.Cause(ctx), ErrSilent) {
		return context.Cause(ctx)
	}
	return nil // it has gone, which the call itself sees
}

// callLong is call for a request that may last.
func (c *Client) callLong(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.do(ctx, method, path, in, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body := &noteError{r: resp.Body}
	switch out := out.(type) {
	case *[]byte:
		*out, err = io.ReadAll(body)
	case *[]wire.TaskView:
		err = readTasks(bufio.NewReaderSize(body, 64<<10), out)
	default:
		err = json.NewDecoder(body).Decode(out)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, body) // else the connection is not used again
	}
	switch {
	case err == nil:
		return nil
	case body.err != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return c.explainNoAnswer(ctx, err)
	default: // as of a master of another version: to ask again does not help
		return fmt.Errorf("answer of the master to %s %s: %w", method, path, err)
	}
}

// readTasks appends the tasks of a list to views as they come: the master still writes the last ones then.
func readTasks(r io.Reader, views *[]wire.TaskView) error {
	dec := json.NewDecoder(r)
	for _, want := range []json.Token{json.Delim('{'), "tasks", json.Delim('[')} {
		if got, err := dec.Token(); err != nil || got != want {
			return cmp.Or(err, fmt.Errorf("that is no list of tasks: it has %v, and not %v", got, want))
		}
	}
	for dec.More() {
		*views = append(*views, wire.TaskView{})
		if err := dec.Decode(&(*views)[len(*views)-1]); err != nil {
			return err
		}
	}
	_, err := dec.Token() // the end of the list
	return err
}

// shortWait is how long a request is made again that the machine lacks something for.
const shortWait = time.Minute

// do makes a request and returns an answer that is not an error. accept is the kind of answer, where there are several. What
// was answered for want of something has done nothing: it is asked again when the master says so.
func (c *Client) do(ctx context.Context, method, path string, in any, accept string) (*http.Response, error) {
	for begun := time.Now(); ; {
		req, err := c.request(ctx, method, path, in)
		if err != nil {
			return nil, err
		}
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, c.explainNoAnswer(ctx, err)
		}
		c.notice.Store(wire.ReadNotice(resp.Header))
		if resp.StatusCode < 300 {
			return resp, nil
		}
		err = readError(resp)
		if !errors.Is(err, &task.Error{Code: task.CodeShortage}) || time.Since(begun) > shortWait {
			return nil, err
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 if there is none
		if err := task.Sleep(ctx, time.Duration(max(1, seconds))*time.Second); err != nil {
			return nil, err
		}
	}
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = jsonv2.Marshal(in, jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.AllowInvalidUTF8(false), jsonv1.ReportErrorsWithLegacySemantics(false)); err != nil {
			return nil, task.Invalid("convert what is not UTF-8 first, for example with iconv -t UTF-8", "this cannot be sent to the master: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
		}
		most, hint := wire.MaxBody, "put the text into a file and name it in the prompt"
		if _, ok := in.([]task.TaskSpec); ok {
			most, hint = wire.MaxList, "submit it in several parts"
		}
		if size := len(body); size > most { // the master would not read it
			return nil, task.Invalid(hint, "the request has %d bytes, and the master takes %d", size, most)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://stint"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to the master: %w", err)
	}
	if c.Run != "" {
		req.Header.Set(wire.RunHeader, c.Run)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
		// All that we send may be sent twice (a spec has its id). This header lets
		// the transport do so when a kept connection turns out to be closed.
		req.Header["Idempotency-Key"] = nil
	}
	return req, nil
}

func (c *Client) explainNoAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && slices.ContainsFunc([]error{syscall.ENOENT, syscall.ECONNREFUSED, syscall.ENOTDIR}, func(none error) bool { return errors.Is(err, none) }) {
		return fmt.Errorf("%w at %s: %w", ErrNoMaster, c.socket, op.Err)
	}
	if uerr, ok := errors.AsType[*url.Error](err); ok {
		err = uerr.Err // without the URL, which names no real host
	}
	if errors.Is(err, guard.ErrForeign) {
		return err
	}
	return &task.Error{
		Code:    task.CodeStopped,
		Message: fmt.Sprintf("the master at %s broke off the connection: %v", c.socket, err),
		Hint:    "see what became of it: stint ls",
	}
}

// readError turns an answer that is an error back into the master's error.
func readError(resp *http.Response) error {
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	_ = resp.Body.Close() // it was only read
	var p wire.Problem
	if err != nil || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		p = *wire.NewProblem(resp.StatusCode, "the master answered "+resp.Status, "")
	}
	return &task.Error{Code: p.Code, Message: p.Detail, Hint: p.Hint, Field: p.Field}
}

// Logs copies to w what the runs of a task's last attempt wrote, or one of all runs: its id, a unique piece
// of it, or the number of one of the agent's. A stream is "events", "stdout" or "stderr". With
// follow it goes on, over later runs too, until the task has ended. An error of w is returned as it is.
func (c *Client) Logs(ctx context.Context, ref, run, stream string, follow bool, w io.Writer) error {
	if follow {
		if err := c.ask(ctx); err != nil {
			return err
		}
	} else {
		var release func()
		ctx, release = c.watch(ctx)
		defer release()
	}
	q := url.Values{"stream": {stream}, "run": {run}, "follow": {strconv.FormatBool(follow)}}
	_, err := c.copyTo(ctx, w, TaskPath(ref, "/logs?"+q.Encode()), "")
	return err
}

// copyTo copies an answer as it comes, and returns its header. An error of w is returned as it is.
func (c *Client) copyTo(ctx context.Context, w io.Writer, path, accept string) (http.Header, error) {
	resp, err := c.do(ctx, http.MethodGet, path, nil, accept)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body := &noteError{r: resp.Body}
	if _, err = io.Copy(w, body); body.err != nil {
		return nil, c.explainNoAnswer(ctx, body.err)
	}
	return resp.Header, err
}

// A noteError remembers the error of its reader, to tell it from that of who reads.
type noteError struct {
	r   io.Reader
	err error
}

func (n *noteError) Read(p []byte) (k int, err error) {
	if k, err = n.r.Read(p); !errors.Is(err, io.EOF) {
		n.err = err
	}
	return k, err
}

// Notice returns what the last answer said about the master; nil if it said nothing, or is too old to count, as after a Wait.
func (c *Client) Notice() *wire.Notice { return c.notice.Load() }

// withIDs returns specs, each with an id.
func withIDs(specs ...task.TaskSpec) []task.TaskSpec {
	sent := append([]task.TaskSpec{}, specs...)
	for i := range sent {
		if sent[i].ID == "" {
			sent[i].ID = uuid.Must(uuid.NewV7()).String()
		}
	}
	return sent
}

// List returns the tasks that f lets through, newest first, without their texts.
func (c *Client) List(ctx context.Context, f state.Filter) ([]wire.TaskView, error) {
	return Fetch[[]wire.TaskView](ctx, c, http.MethodGet, wire.ListPath(f), nil)
}

// ListTo writes to w what List returns: in JSON, one task a line, or, with f.Text, a table. It returns how many tasks these are,
// and in a table the accounts of those that are queued. An error of w is returned as it is.
func (c *Client) ListTo(ctx context.Context, f state.Filter, look wire.Look, w io.Writer) (count int, waiting []string, err error) {
	ctx, release := c.watch(ctx)
	defer release()
	path := wire.ListPath(f)
	if f.Text {
		path += "&" + url.Values{"width": {strconv.Itoa(look.Width)}, "colour": {strconv.FormatBool(look.Colour)}, "location": {look.Zone}}.Encode()
	}
	header, err := c.copyTo(ctx, w, path, wire.JSONLines)
	number, accounts, _ := strings.Cut(header.Get(wire.ListHeader), " ")
	count, _ = strconv.Atoi(number) // as the master wrote it; an older one does not
	return count, strings.Fields(accounts), err
}

// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong. Specs without an id get
// one from the client. The answers are in the order of specs and without the prompts.
func (c *Client) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]wire.TaskView, error) {
	views := make([]wire.TaskView, 0, len(specs))
	err := c.call(ctx, http.MethodPost, "/v1/tasks", withIDs(specs...), &views)
	return views, err
}

// Act does one thing to a task: act is cancel, hold, release, remove or retry.
func (c *Client) Act(ctx context.Context, ref, act string) (wire.TaskView, error) {
	return Fetch[wire.TaskView](ctx, c, http.MethodPost, TaskPath(ref, "/"+act), nil)
}
