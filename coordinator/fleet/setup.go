package fleet

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

const (
	workerID   = "stint"
	lookEvery  = 5 * time.Second // so that an instance is set up within ten
	mostSetups = 16              // at the same time
	setupLimit = 3 * time.Minute // less than the lease of a job
)

// bootstrap is what BOOTSTRAP.md says where nothing else is configured.
//
//go:embed bootstrap.md
var bootstrap string

// Claim makes an instance a user's, and has it set up for him. What a user has claimed, nobody else can claim.
func (f *Fleet) Claim(ctx context.Context, id, user, tgUser string) (task.Instance, error) {
	if _, err := f.instance(id); err != nil {
		return task.Instance{}, err
	}
	switch {
	case strings.TrimSpace(user) != user || !userRule().MatchString(user):
		return task.Instance{}, task.Wrong("user_id", "stint instance claim "+id+" --user NAME", "%q is no id of a user: it is one line of 1 to 128 characters", task.OneSentence(user, 40))
	case !tgUserRule().MatchString(tgUser):
		return task.Instance{}, task.Wrong("tg_user_id", "leave it out, or write the number that Telegram has for the user", "%q is no id of a user of Telegram: it is a number", task.OneSentence(tgUser, 40))
	}
	now, owner := f.opts.Now().UTC().Truncate(time.Millisecond), ""
	err := f.change(ctx, id, func(c *state.Control) {
		if owner = cmp.Or(c.User, user); owner != user || c.User == user && (c.TgUser == tgUser || tgUser == "") {
			return // another's, or claimed so already
		}
		if c.TgUser, c.InitAt = tgUser, now; c.User == "" {
			if !c.ClaimedAt.IsZero() {
				c.BotRef = "" // it is of who had it before
			}
			c.User, c.ClaimedAt = user, now
		}
	})
	if err == nil && owner != user {
		err = task.Conflict("stint instance show "+id, "instance %s is claimed by another user", id)
	}
	return f.changed(id, err)
}

// SetBot names the token of an instance's bot by a reference, and has it written to the instance, if that is claimed.
func (f *Fleet) SetBot(ctx context.Context, id, ref string) (task.Instance, error) {
	if _, err := f.instance(id); err != nil {
		return task.Instance{}, err
	}
	if _, err := f.bot(ref); err != nil {
		return task.Instance{}, task.Wrong("token_ref", "name a file of mode 600 that has the token of @BotFather, or env:NAME", "%v", err)
	}
	now := f.opts.Now().UTC().Truncate(time.Millisecond)
	return f.changed(id, f.change(ctx, id, func(c *state.Control) {
		if c.BotRef = ref; c.User != "" {
			c.InitAt = now
		}
	}))
}

// changed returns an instance after a change that may have an error.
func (f *Fleet) changed(id string, err error) (task.Instance, error) {
	if err != nil {
		return task.Instance{}, err
	}
	task.Wake(f.wake)
	return f.Instance(id)
}

// setupKey is the idempotency key of the job that sets an instance up as was asked at that time.
func setupKey(id string, at time.Time) string {
	return jobs.InitInstance + ":" + id + ":" + state.ExactTime(at)
}

// Run sets instances up that were claimed, until ctx ends and what was begun has returned.
func (f *Fleet) Run(ctx context.Context) {
	setups := make(chan struct{}, mostSetups)
	defer func() {
		for range mostSetups { // those at work give their places back
			setups <- struct{}{}
		}
	}()
	f.resume(ctx)
	told := ""
	for ctx.Err() == nil {
		err := f.look(ctx, setups)
		if text := fmt.Sprint(err); err != nil && text != told && ctx.Err() == nil {
			told = text
			f.opts.Log.Warn("cannot set instances up, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-time.After(lookEvery):
		}
	}
}

// resume queues again what a master that was killed had begun, since nobody else is at work.
func (f *Fleet) resume(ctx context.Context) {
	var err error
	for _, j := range f.jobs.Where(func(j *jobs.Job) bool { return j.ObjectType == jobs.Instance && j.Status == jobs.Running }) {
		_, failed := f.jobs.Fail(ctx, j.ID, jobs.Fail{WorkerID: j.WorkerID, Error: "its master has ended"})
		err = cmp.Or(err, failed)
	}
	if _, failed := f.jobs.RetryFailed(ctx); err != nil || failed != nil {
		f.opts.Log.Warn("jobs about instances wait longer than they have to", "error", cmp.Or(err, failed))
	}
}

// look enqueues the jobs of what was claimed, and begins those that can begin.
func (f *Fleet) look(ctx context.Context, setups chan struct{}) error {
	if f.room.IsLeaving() {
		return nil // the next master goes on
	}
	now := f.opts.Now()
	for id, c := range f.room.Controls(state.ControlInstance) {
		if _, err := f.instance(id); err != nil || c.InitAt.IsZero() {
			continue
		}
		for _, at := range []time.Time{c.ClaimedAt, c.InitAt} { // what came soon after the claim does not replace it
			if at.IsZero() || f.jobs.HasKey(setupKey(id, at)) {
				continue
			}
			if _, _, err := f.jobs.Enqueue(ctx, jobs.Spec{
				ObjectType: jobs.Instance, ObjectID: id, Action: jobs.InitInstance, RunAt: now, Priority: "high", IdempotencyKey: setupKey(id, at),
			}); err != nil {
				return err
			}
		}
	}
	room := mostSetups - len(setups)
	if room == 0 {
		return nil
	}
	pulled, err := f.jobs.Pull(ctx, jobs.Pull{WorkerID: workerID, Limit: room, Is: func(j *jobs.Job) bool { return j.ObjectType == jobs.Instance }})
	for _, j := range pulled {
		setups <- struct{}{}
		go func() { // Run waits for it
			defer func() { <-setups }()
			bounded, cancel := context.WithTimeout(ctx, setupLimit)
			defer cancel()
			err := f.setUp(bounded, &j)
			if ctx.Err() != nil {
				return // its lease ends, which is an attempt
			}
			if err == nil {
				_, err = f.jobs.Ack(ctx, j.ID, jobs.Ack{WorkerID: workerID})
			} else {
				_, err = f.jobs.Fail(ctx, j.ID, jobs.Fail{WorkerID: workerID, Error: task.OneSentence(err.Error(), 2000)})
			}
			if err != nil {
				f.opts.Log.Warn("the end of a job could not be noted, and it is run again", "job", j.ID, "error", err)
			}
		}()
	}
	return err
}

// setUp does a job: it writes the configuration of an instance and, for a user who has claimed it, BOOTSTRAP.md, and restarts its service.
func (f *Fleet) setUp(ctx context.Context, j *jobs.Job) error {
	in, err := f.instance(j.ObjectID)
	if err != nil {
		return err
	}
	defer f.alone(in.ID)()
	c := f.control(in.ID)
	if _, err := f.compare(ctx, in, &c, true); err != nil {
		return err
	}
	claim := setupKey(in.ID, c.ClaimedAt)
	if len(f.jobs.Where(func(o *jobs.Job) bool { return o.IdempotencyKey == claim && o.Status != jobs.Succeeded })) > 0 { // else not again: the assistant removes that file itself
		if err := f.write(ctx, in.Server, in.BootstrapPath, []byte(cmp.Or(f.opts.Bootstrap, bootstrap)), "any"); err != nil {
			return err
		}
	}
	return f.restart(ctx, in)
}

func (f *Fleet) restart(ctx context.Context, in *Instance) error {
	_, err := f.remote(ctx, in.Server, restart, "", nil, in.Service)
	if err == nil {
		f.stale.Delete(in.ID)
	}
	return err
}

const botField = "channels.telegram.botToken"

// wanted returns what the configuration of an instance has to have, by dotted paths. Without a bot nothing is said of channels.
func (f *Fleet) wanted(in *Instance, c *state.Control) (map[string]any, error) {
	want := map[string]any{}
	if c.User != "" {
		want[in.AccessPath+".dmPolicy"] = "allowlist"
		want[in.AccessPath+".allowFrom"] = strings.Fields(c.TgUser) // nobody, or that user: not who had it before
	}
	maps.Copy(want, in.Desired)
	if c.BotRef == "" {
		maps.DeleteFunc(want, func(path string, _ any) bool { return strings.HasPrefix(path, "channels.") })
		return want, nil
	}
	token, err := f.bot(c.BotRef)
	want[botField] = token
	return want, err
}

// bot returns the token of a bot that a reference names; a person may have written it into the ledger.
func (f *Fleet) bot(ref string) (string, error) {
	token, err := f.opts.Secret(ref)
	if err == nil && !botRule().MatchString(token) {
		err = errors.New("what names the token of the bot names none such as 123456:ABC-DEF")
	}
	return token, err
}

// compare returns in which fields the configuration of an instance differs from what it has to have, each with both values, but
// for secrets. With repair it is corrected.
func (f *Fleet) compare(ctx context.Context, in *Instance, c *state.Control, repair bool) (differs []string, err error) {
	want, err := f.wanted(in, c)
	if err != nil || len(want) == 0 {
		return nil, err
	}
	text, isThere, err := f.read(ctx, in.Server, in.ConfigPath)
	if err != nil {
		return nil, err
	}
	root, was := map[string]any{}, sumOf(text)
	if !isThere {
		if was = "missing"; !repair {
			return nil, fmt.Errorf("%s is missing", in.ConfigPath)
		}
	} else if root, err = parseConfig(text); err != nil {
		return nil, fmt.Errorf("%s is not changed: %w", in.ConfigPath, err)
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		now, wanted := textOf(field(root, path)), textOf(want[path])
		if now == wanted {
			continue
		}
		if task.IsSecret(path, now) || task.IsSecret(path, wanted) || strings.ContainsAny(now+wanted, "{[:") { // what has parts can have some, and tokens of bots have colons
			differs = append(differs, path+" is another one")
		} else {
			differs = append(differs, fmt.Sprintf("%s is %s, not %s", path, now, wanted))
		}
		if err := setField(root, path, want[path]); err != nil {
			return nil, fmt.Errorf("%s: %w", in.ConfigPath, err)
		}
	}
	if len(differs) == 0 || !repair {
		return differs, nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	if out.Len() > maxAnswer {
		return nil, fmt.Errorf("%s would have more than %d bytes", in.ConfigPath, maxAnswer)
	}
	f.stale.Store(in.ID, true)
	return differs, f.write(ctx, in.Server, in.ConfigPath, out.Bytes(), was)
}

// parseConfig reads a configuration, which has to be one object of JSON. Numbers stay as they are written.
func parseConfig(text []byte) (root map[string]any, err error) {
	const deepest = 64 // objects in objects: each level is written with blanks before it
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for tokens, depth := json.NewDecoder(bytes.NewReader(text)), 0; depth <= deepest; {
		token, err := tokens.Token()
		if depth += map[any]int{json.Delim('{'): 1, json.Delim('['): 1, json.Delim('}'): -1, json.Delim(']'): -1}[token]; depth > deepest {
			return nil, fmt.Errorf("it has more than %d objects in objects", deepest)
		}
		if err != nil {
			break
		}
	}
	if err = dec.Decode(&root); err == nil && (root == nil || len(bytes.TrimSpace(text[dec.InputOffset():])) > 0) {
		err = errors.New("it is null, or there is more behind its end")
	}
	if err != nil {
		return nil, fmt.Errorf("it is no object of JSON (comments are not known here): %w", err)
	}
	return root, nil
}

// field returns the value at a dotted path; nil if there is none.
func field(root any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := root.(map[string]any)
		root = m[name]
	}
	return root
}

// setField sets the value at a dotted path, with the objects around it.
func setField(m map[string]any, path string, value any) error {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		if m[name] == nil {
			m[name] = map[string]any{}
		}
		inner, isObject := m[name].(map[string]any)
		if !isObject {
			return fmt.Errorf("%s cannot be set, since %s is no object", path, name)
		}
		m = inner
	}
	m[names[len(names)-1]] = value
	return nil
}

// textOf returns a value as JSON. Those of TOML and JSON that mean the same have the same.
func textOf(v any) string {
	text, _ := json.Marshal(v) // it was read as one of the two
	return string(text)
}

// sync compares the configuration of an instance with what it has to have, and says how it differs; "": not at all. With
// repair it is corrected, and the service restarted.
func (f *Fleet) sync(ctx context.Context, in *Instance, repair bool) (string, error) {
	defer f.alone(in.ID)()
	c := f.control(in.ID)
	differs, err := f.compare(ctx, in, &c, repair)
	text := strings.Join(differs, ", ")
	if _, isStale := f.stale.Load(in.ID); isStale && err == nil && repair { // or it was repaired before, and the restart failed
		text, err = "repaired: "+cmp.Or(text, "restarted"), f.restart(ctx, in)
	}
	return text, err
}

// syncAll is the job config_sync.
func (f *Fleet) syncAll(ctx context.Context) (string, error) {
	list := f.where(func(*Instance, state.Control) bool { return true })
	var mu sync.Mutex // guards texts
	var texts []string
	err := f.each(ctx, list, mostSSH, func(ctx context.Context, in *Instance) error {
		text, err := f.sync(ctx, in, f.opts.Repair)
		if text != "" {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, in.ID+": "+text)
		}
		return err
	})
	slices.Sort(texts)
	detail := strings.TrimSuffix(fmt.Sprintf("%d of %d differ: %s", len(texts), len(list), strings.Join(texts, "; ")), ": ")
	if err != nil {
		err = fmt.Errorf("%s; %w", detail, err)
	}
	return detail, err
}
