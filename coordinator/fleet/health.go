package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

const (
	mostFails  = 3       // failed checks until an instance has failed
	maxGateway = 1 << 20 // bytes of a gateway's answer
	startLimit = 30 * time.Second
	startPace  = time.Second
)

// Instance returns what is known of an instance.
func (f *Fleet) Instance(id string) (task.Instance, error) {
	in, err := f.instance(id)
	if err != nil {
		return task.Instance{}, err
	}
	return f.view(in, f.control(id)), nil
}

// Instances returns what is known of all instances, in the order of the configuration.
func (f *Fleet) Instances() []task.Instance {
	list, controls := []task.Instance{}, f.room.Controls(state.ControlInstance)
	for i := range f.opts.Instances {
		list = append(list, f.view(&f.opts.Instances[i], controls[f.opts.Instances[i].ID]))
	}
	return list
}

func (f *Fleet) view(in *Instance, c state.Control) task.Instance {
	v := task.Instance{
		ID: in.ID, Server: in.Server, Service: in.Service, Gateway: shown(in.Gateway), User: c.User, TgUser: c.TgUser, ClaimedAt: c.ClaimedAt, BotRef: c.BotRef, Health: cmp.Or(c.Health, "unknown"), FailCount: c.FailCount,
	}
	if last, has := f.checks.Load(in.ID); has {
		v.CheckedAt, v.Detail = last.(check).at, last.(check).detail
	}
	if !c.InitAt.IsZero() {
		key := setupKey(in.ID, c.InitAt)
		for _, j := range f.jobs.Where(func(j *jobs.Job) bool { return j.IdempotencyKey == key }) {
			if v.Setup = j.Status; j.Reason() != "" && j.Status != jobs.Succeeded {
				v.Detail = j.Reason()
			}
		}
	}
	return v
}

// shown returns a URL of the configuration without what can be secret in it.
func shown(text string) string {
	u, _ := url.Parse(text) // it was checked
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// checkAll is the job health_check.
func (f *Fleet) checkAll(ctx context.Context) (string, error) {
	list := f.where(func(*Instance, state.Control) bool { return true })
	err := f.each(ctx, list, mostHTTP, f.check)
	return fmt.Sprintf("%d run", len(list)), err
}

// check asks the gateway of an instance how it is, and notes that.
func (f *Fleet) check(ctx context.Context, in *Instance) error {
	body, err := f.probe(ctx, in)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	isActive := false
	if err == nil && f.control(in.ID).Health == state.HealthIdle {
		last, wrong := f.lastDialogue(ctx, in, body)
		isActive = wrong == nil && f.opts.Now().Sub(last) < f.opts.IdleAfter
	}
	return cmp.Or(err, f.note(ctx, in, err, isActive))
}

// note keeps how a check went.
func (f *Fleet) note(ctx context.Context, in *Instance, failed error, isActive bool) error {
	now := check{at: f.opts.Now().UTC()}
	if failed != nil {
		now.detail = task.OneSentence(failed.Error(), 500)
	}
	f.checks.Store(in.ID, now)
	hasFailed := false
	err := f.change(ctx, in.ID, func(c *state.Control) {
		was := c.Health
		step(c, failed != nil, isActive)
		hasFailed = c.Health == state.HealthFailed && was != c.Health
	})
	if err == nil && hasFailed {
		f.opts.Tell("instance-failed", in.ID, fmt.Sprintf("instance %s on %s has failed: stint instance show %[1]s", in.ID, in.Server))
	}
	return err
}

// step is what a check makes of an instance: with the first failure it is unknown, with the third it has failed, and one that
// answers runs, but for one that is idle until it is used again.
func step(c *state.Control, failed, isActive bool) {
	switch {
	case failed:
		if c.FailCount, c.Health = c.FailCount+1, ""; c.FailCount >= mostFails {
			c.Health = state.HealthFailed
		}
	case c.Health == state.HealthIdle && !isActive:
		c.FailCount = 0
	default:
		c.FailCount, c.Health = 0, state.HealthRunning
	}
}

// probe asks a gateway, and returns its answer.
func (f *Fleet) probe(ctx context.Context, in *Instance) ([]byte, error) {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, in.Gateway, http.NoBody) // its URL was checked
	status, body, err := f.do(req)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the gateway answered %d", status)
	}
	return body, err
}

// do makes a request, and returns the status and the body of its answer. Errors do not name the URL, which may have a secret.
func (f *Fleet) do(req *http.Request) (status int, body []byte, err error) {
	resp, err := f.client.Do(req)
	if wrapped, is := errors.AsType[*url.Error](err); is {
		err = wrapped.Err
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s does not answer: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxGateway+1))
	if err == nil && len(body) > maxGateway {
		err = fmt.Errorf("%s has answered more than %d bytes", req.URL.Host, maxGateway)
	}
	return resp.StatusCode, body, err
}

// lastDialogue returns when an instance was used last, by the gateway's answer or the command; zero if it never was.
func (f *Fleet) lastDialogue(ctx context.Context, in *Instance, body []byte) (time.Time, error) {
	var text string
	if in.ActivityCommand != "" {
		out, err := f.remote(ctx, in.Server, "IFS= read -r command; exec sh -c \"$command\"", "", nil, in.ActivityCommand)
		if err != nil {
			return time.Time{}, err
		}
		text = strings.TrimSpace(string(out))
	} else {
		root, err := parseConfig(body)
		if err != nil {
			return time.Time{}, fmt.Errorf("the gateway's answer: %w", err)
		}
		switch v := field(root, in.ActivityField).(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
	}
	if text == "" {
		return time.Time{}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n > 1e11 { // of milliseconds
			return time.UnixMilli(n), nil
		}
		return time.Unix(n, 0), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is no time of its last dialogue: write RFC 3339, or the seconds or milliseconds since 1970", task.OneSentence(text, 40))
	}
	return at, nil
}

// markIdle is the job idle_instance_mark.
func (f *Fleet) markIdle(ctx context.Context) (string, error) {
	list := f.where(func(in *Instance, c state.Control) bool {
		return c.Health == state.HealthRunning && in.ActivityField+in.ActivityCommand != ""
	})
	marked := make(chan string, len(list))
	err := f.each(ctx, list, mostSSH, func(ctx context.Context, in *Instance) error {
		var body []byte
		var err error
		if in.ActivityField != "" {
			body, err = f.probe(ctx, in)
		}
		if err != nil {
			return err
		}
		last, err := f.lastDialogue(ctx, in, body)
		if claimed := f.control(in.ID).ClaimedAt; claimed.After(last) {
			last = claimed
		}
		if err != nil || last.IsZero() || f.opts.Now().Sub(last) < f.opts.IdleAfter {
			return err
		}
		marked <- in.ID
		return f.change(ctx, in.ID, func(c *state.Control) {
			if c.Health == state.HealthRunning {
				c.Health = state.HealthIdle
			}
		})
	})
	return fmt.Sprintf("marked %d of %d idle", len(marked), len(list)), err
}

// recoverAll is the job auto_recovery.
func (f *Fleet) recoverAll(ctx context.Context) (string, error) {
	list := f.where(func(_ *Instance, c state.Control) bool { return c.FailCount >= mostFails })
	err := f.each(ctx, list, mostSSH, f.revive)
	return fmt.Sprintf("restarted %d", len(list)), err
}

// revive restarts an instance, and notes when it answers again.
func (f *Fleet) revive(ctx context.Context, in *Instance) error {
	defer f.alone(in.ID)()
	if err := f.restart(ctx, in); err != nil {
		return err
	}
	for deadline := f.opts.Now().Add(startLimit); ; {
		_, err := f.probe(ctx, in)
		if err == nil {
			return f.note(ctx, in, nil, false)
		}
		if f.opts.Now().After(deadline) || task.Sleep(ctx, startPace) != nil {
			return fmt.Errorf("it was restarted, and %w", err)
		}
	}
}

// Act does one thing with an instance now, as jobs do it with all: check asks how it is, sync compares its configuration, and
// corrects it with repair, and recover restarts it. It says in one sentence what came of it.
func (f *Fleet) Act(ctx context.Context, id, act string, repair bool) (detail string, err error) {
	in, err := f.instance(id)
	if err != nil {
		return "", err
	}
	switch act {
	case "check":
		detail, err = "it answers", f.check(ctx, in)
	case "sync":
		detail, err = f.sync(ctx, in, repair)
	default:
		detail, err = "it was restarted, and answers", f.revive(ctx, in)
	}
	if err != nil {
		return "", task.Conflict("stint instance show "+id, "instance %s: %s", id, task.OneSentence(err.Error(), 1000))
	}
	return cmp.Or(detail, "it is as it has to be"), nil
}
