// Package notify sends messages about what has ended or waits for a person: by a command, on the
// desktop, by a webhook, by ntfy or by Telegram. A [Notifier] follows the changes of tasks, as any reader does;
// it never holds up a run or the ledger. Each destination has a goroutine of its own, which sends
// one message in ten seconds at most: what happens meanwhile is summed up in the next one.
//
// A master sends a message at most once. What waits when the master ends is sent within a few
// seconds or dropped, and what a killed master had not sent yet is not sent by the next one.
package notify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/lazy"
	"stint/state"
)

// The kinds of events.
const (
	Done           = "done"
	Failed         = "failed"
	Dead           = "dead"
	NeedsAttention = "needs-attention"
	ScheduleMissed = "schedule-missed" // a schedule did not fire at its time
	ScheduleFailed = "schedule-failed"
	JobDeadLetter  = "job-dead-letter" // a due job has used its attempts up
	InstanceFailed = "instance-failed" // an instance does not answer, or cannot be set up
	KeyBalance     = "key-balance"     // the key of an instance is nearly used up
	QueueEmpty     = "queue-empty"
	AccountLimited = "account-limited"
	AccountBack    = "account-back"
)

// Kinds are all kinds of events; those of a block without a list of its own come first.
var Kinds = []string{Done, Failed, Dead, NeedsAttention, ScheduleMissed, ScheduleFailed, JobDeadLetter, InstanceFailed, KeyBalance, QueueEmpty, AccountLimited, AccountBack}

// Usual returns the kinds of a block without a list of its own.
func Usual() []string { return slices.Clone(Kinds[:9]) }

// An Event is what a message is about. Commands and webhooks receive it as JSON.
type Event struct {
	Event    string         `json:"event"` // one of Kinds, or summary
	Time     time.Time      `json:"time"`
	Text     string         `json:"text"` // one sentence, without a prompt and without an agent's words
	Test     bool           `json:"test,omitempty"`
	Task     string         `json:"task,omitempty"`
	Reason   string         `json:"reason,omitempty"` // a [state.Class]
	Session  string         `json:"session,omitempty"`
	Label    string         `json:"label,omitempty"`
	Agent    string         `json:"agent,omitempty"`
	Priority int            `json:"priority,omitempty"`
	Duration string         `json:"duration,omitempty"` // of the last attempt
	Findings int            `json:"findings,omitempty"` // of a task that is done
	Account  string         `json:"account,omitempty"`
	Until    time.Time      `json:"until,omitzero"`   // of account-limited
	Title    string         `json:"title,omitempty"`  // first line of the prompt; for a block with Prompt alone
	Error    string         `json:"error,omitempty"`  // the same
	Counts   map[string]int `json:"counts,omitempty"` // of a summary: events by their kinds
	Tasks    []string       `json:"tasks,omitempty"`  // of a summary: ids, the first maxTasks

	took   time.Duration
	always bool // whatever a block filters
}

// A Block is a [[notify]] block of the configuration: where messages go, and which.
type Block struct {
	Command  string `toml:"command"` // for sh -c
	Desktop  bool   `toml:"desktop"`
	Webhook  string `toml:"webhook"`  // a URL
	Ntfy     string `toml:"ntfy"`     // a URL
	Terminal string `toml:"terminal"` // bell or osc9: of a command that waits for the task

	Telegram          string `toml:"telegram"`            // id of a chat, or @channel
	TelegramTokenEnv  string `toml:"telegram_token_env"`  // variable that has the bot's token
	TelegramTokenFile string `toml:"telegram_token_file"` // or a file that has it
	TelegramURL       string `toml:"telegram_url"`        // "": that of Telegram

	On          []string `toml:"on"`      // of Kinds; nil: the usual ones
	Session     string   `toml:"session"` // "": any
	Label       string   `toml:"label"`
	Priority    int      `toml:"priority"` // at least
	MinDuration string   `toml:"min_duration"`
	Prompt      bool     `toml:"prompt"` // messages may have the first line of the prompt, and the error
}

// Check returns what is wrong with a block, and with which key ("": the whole), without a URL, which may be secret.
func (b *Block) Check() (key string, err error) {
	if b.On == nil {
		b.On = Usual()
	}
	for _, kind := range b.On {
		if !slices.Contains(Kinds, kind) {
			return "on", fmt.Errorf("%q is not one of %s", kind, strings.Join(Kinds, ", "))
		}
	}
	for key, text := range map[string]string{"webhook": b.Webhook, "ntfy": b.Ntfy, "telegram_url": b.TelegramURL} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			return key, fmt.Errorf("this is not a URL such as https://ntfy.sh/my-topic")
		}
	}
	switch took, err := time.ParseDuration(cmp.Or(b.MinDuration, "0")); {
	case !slices.Contains([]string{"", "bell", "osc9"}, b.Terminal):
		return "terminal", fmt.Errorf("%q is not one of bell, osc9", b.Terminal)
	case b.Priority < 0 || b.Priority > 9:
		return "priority", fmt.Errorf("%d is not a whole number from 1 to 9", b.Priority)
	case err != nil || took < 0:
		return "min_duration", fmt.Errorf("%q is not a duration such as 90s, 10m or 2h", b.MinDuration)
	case b.Telegram != "" && !chat().MatchString(b.Telegram):
		return "telegram", fmt.Errorf("%q is not the id of a chat such as 123456789, -1001234567890 or @channel", b.Telegram)
	case b.Telegram != "" && (b.TelegramTokenEnv == "") == (b.TelegramTokenFile == ""):
		return "telegram", fmt.Errorf("the bot's token is missing or named twice; write telegram_token_env = \"VARIABLE\" or telegram_token_file = \"/path\"")
	case !b.Desktop && b.Command+b.Webhook+b.Ntfy+b.Telegram+b.Terminal == "":
		return "", fmt.Errorf("a [[notify]] block needs one of command, desktop, webhook, ntfy, telegram and terminal")
	}
	return "", nil
}

// What Telegram calls a chat or a public channel, and how the token of a bot looks.
var (
	chat     = lazy.Regexp(`^(-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64})$`)
	botToken = lazy.Regexp(`^[0-9]+:[A-Za-z0-9_-]+$`)
)

// Token returns the token of the block's bot, which is a secret; "" if the block names none. env
// has its variable, and read reads its file. The error has nothing of it.
func (b *Block) Token(env []string, read func(path string) (string, error)) (token string, err error) {
	from := b.TelegramTokenEnv + b.TelegramTokenFile // one of them is empty
	if token = task.LookupEnv(env, from); b.TelegramTokenFile != "" {
		token, err = read(from)
	}
	if token = strings.TrimSpace(token); err == nil && from != "" && !botToken().MatchString(token) {
		return "", fmt.Errorf("%s has no token of a bot such as 123456:ABC-DEF; in this environment it may be missing", from)
	}
	return token, err
}

// redactURL returns a URL without what may be a secret in it.
func redactURL(text string) string {
	u, _ := url.Parse(text) // Check has seen it
	return u.Scheme + "://" + u.Host + "/***"
}

// Kind returns the kind as which a block is sent an event; "" if it is not. A task that is done
// with findings needs attention; for a block that does not ask for that, it is done.
func (b *Block) Kind(e *Event) string {
	kind := e.Event
	if e.Findings > 0 && !slices.Contains(b.On, kind) {
		kind = Done
	}
	least, _ := time.ParseDuration(b.MinDuration) // Check has seen it
	isFor := e.Task == "" || (b.Session == "" || b.Session == e.Session) && (b.Label == "" || b.Label == e.Label) &&
		e.Priority >= b.Priority && (kind == NeedsAttention || e.took >= least)
	if e.always || isFor && slices.Contains(b.On, kind) {
		return kind
	}
	return ""
}

// EventOf returns the event that a task's present status is; nil if it is none.
func EventOf(t *state.Task) *Event {
	e := &Event{
		Event: string(t.Status), Time: t.UpdatedAt, Task: t.ID, Label: t.Label, Agent: t.Agent, Priority: cmp.Or(t.Priority, 5), always: t.Notify,
		Title: t.Title, Error: t.Error,
	}
	if task.IsNamedLane(t.SessionKey) {
		e.Session = t.SessionKey
	}
	if !t.StartedAt.IsZero() && t.Status.Terminal() {
		e.took = t.UpdatedAt.Sub(t.StartedAt)
	}
	if e.took >= time.Second {
		e.Duration = e.took.Round(time.Second).String()
	}
	if t.Reason.Known() { // a person may have written anything
		e.Reason = string(t.Reason)
	}
	id := state.ShortID(t.ID)
	words, show := map[state.Status]string{state.Done: "is done", state.Failed: "failed", state.Dead: "is dead"}[t.Status], ""
	switch {
	case t.Status == state.Done && len(t.Findings) > 0:
		e.Event, e.Findings = NeedsAttention, len(t.Findings)
		words, show = "is done, with "+ledger.Plural(e.Findings, "finding", "findings"), ": stint show "+id
	case t.Status == state.Done && strings.HasPrefix(t.Title, task.NoteQuestion):
		return nil // nobody has asked for it, and there may be one for each note
	case t.Status == state.Queued && t.Hold:
		e.Event = NeedsAttention
		words, show = "is on hold and waits for you", ": stint show "+id
	case words == "":
		return nil
	}
	e.Text = "task " + id + " " + words
	if e.Reason != "" && t.Status != state.Done {
		e.Text += " (" + e.Reason + ")"
	}
	if e.Duration != "" {
		e.Text += " after " + e.Duration
	}
	if e.Session != "" {
		e.Text += ", session " + e.Session
	}
	e.Text += show
	return e
}

// A Room is what a notifier asks the master.
type Room interface {
	Seq() uint64
	SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func())
	List(f state.Filter) []state.Task
	Task(ctx context.Context, ref string) (state.Task, error)
	Accounts() []state.AccountUse
	Health() task.Health
}

// A Notifier sends messages about the tasks of one master.
type Notifier struct {
	room         Room
	log          *slog.Logger
	destinations []*Destination

	seq      uint64          // up to which changes are known
	live     map[string]live // tasks that have not ended
	isEmpty  bool            // none of them runs or will, and that was sent
	health   task.Health     // at the last poll
	accounts map[string]state.Account
}

// live is what was last known of a task that has not ended.
type live struct{ held, waits bool }

// New returns a notifier of what happens from now on. It starts nothing: see [Notifier.Run]. env
// is the environment of commands, read what reads a file with a secret.
func New(room Room, blocks []Block, env []string, read func(path string) (string, error), log *slog.Logger) *Notifier {
	n := &Notifier{room: room, log: log, seq: room.Seq(), isEmpty: true, health: room.Health(), accounts: map[string]state.Account{}}
	for i := range blocks {
		n.destinations = append(n.destinations, blocks[i].Destinations(env, read)...)
	}
	n.list()
	for _, a := range room.Accounts() {
		n.accounts[a.Name] = a.Account
	}
	return n
}

// Bounds of a notifier.
const (
	gap       = 10 * time.Second // between two messages to one destination
	drainTime = 5 * time.Second  // for what waits when the master ends
	interval  = 5 * time.Second  // between two polls of what no change of a task shows
	lag       = 1024             // changes that may wait for us
	tries     = 3                // of a message
	maxTasks  = 100              // ids in a summary
)

// Run follows the changes, and returns once ctx has ended and what waits was sent, or that has taken 5 s.
func (n *Notifier) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var all sync.WaitGroup
	ended := make(chan struct{}) // nothing more comes
	for _, d := range n.destinations {
		all.Go(func() { d.run(ctx, sending, ended, n.log) })
	}
	for ctx.Err() == nil {
		n.follow(ctx)
	}
	n.poll()
	close(ended)
	defer time.AfterFunc(drainTime, cancel).Stop()
	all.Wait()
}

// follow follows the changes until ctx ends, or we were too slow for them.
func (n *Notifier) follow(ctx context.Context) {
	missed, changes, cancel := n.room.SubscribeAfter(n.seq, lag)
	defer cancel()
	for _, c := range missed {
		n.changed(c)
	}
	if changes == nil {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return
			}
			n.changed(c)
		case <-tick.C:
			n.poll()
		case <-ctx.Done():
			for len(changes) > 0 {
				if c, ok := <-changes; ok {
					n.changed(c)
				}
			}
			return
		}
	}
}

// list notes all tasks that have not ended.
func (n *Notifier) list() {
	n.live = map[string]live{}
	for _, t := range n.room.List(state.Filter{Status: []state.Status{state.Draft, state.Queued, state.Running}}) {
		n.note(&t)
	}
}

// note notes a task that has not ended.
func (n *Notifier) note(t *state.Task) {
	l := live{held: t.Hold, waits: !t.Hold && t.Status != state.Draft}
	n.live[t.ID], n.isEmpty = l, n.isEmpty && !l.waits
}

// changed sends what a change of a task means: its end, or a hold that nobody asked for.
func (n *Notifier) changed(c *task.Change) {
	n.seq = c.Seq
	if c.Resync { // no change shows what has ended
		before := n.live
		n.list()
		for id := range before {
			if _, isLive := n.live[id]; !isLive {
				n.sendTask(id, nil) // one that was removed is no event
			}
		}
		return
	}
	t := &c.Task
	before, wasLive := n.live[t.ID]
	if t.Status.Terminal() {
		delete(n.live, t.ID)
		if wasLive {
			n.sendTask(t.ID, t)
		}
		return
	}
	n.note(t)
	if t.Hold && !before.held && t.By != ledger.ByClient && t.By != ledger.ByHand {
		n.sendTask(t.ID, t)
	}
}

// sendTask sends the event that a task is now; t is the task without its error, or nil.
func (n *Notifier) sendTask(id string, t *state.Task) {
	whole, err := n.room.Task(context.Background(), id)
	if t != nil && (err != nil || whole.Status != t.Status) { // it is already further
		whole = *t
	}
	if e := EventOf(&whole); e != nil {
		n.Tell(e)
	}
}

// poll sends what has become of the master, its queue and its accounts since the last time.
func (n *Notifier) poll() {
	const safeMode = "safe mode: " // how the reason begins for which a master itself pauses dispatch
	h, was := n.room.Health(), n.health
	n.health = h
	attention := func(isNew bool, text string) {
		if isNew {
			n.Tell(&Event{Event: NeedsAttention, Time: time.Now().UTC(), Text: text})
		}
	}
	attention(len(h.Findings) > len(was.Findings), "the ledger has "+ledger.Plural(len(h.Findings), "finding", "findings")+": stint fsck")
	attention(strings.HasPrefix(h.PauseWhy, safeMode) && h.PauseWhy != was.PauseWhy, h.PauseWhy+"; to start tasks again: stint resume")
	attention(h.Status == task.HealthFailing && was.Status != h.Status, "the disk of the state directory is full or has failed, and no task is accepted: stint doctor")
	if h.Shortage != nil {
		attention(was.Shortage == nil, "tasks wait: "+h.Shortage.What)
	}
	if waits := func(l live) bool { return l.waits }; !n.isEmpty && !slices.ContainsFunc(slices.Collect(maps.Values(n.live)), waits) {
		n.isEmpty = true
		n.Tell(&Event{Event: QueueEmpty, Time: time.Now().UTC(), Text: "no task is queued or running any more"})
	}
	for _, a := range n.room.Accounts() {
		was := n.accounts[a.Name]
		n.accounts[a.Name] = a.Account
		e := &Event{Time: time.Now().UTC(), Account: a.Name, Agent: a.Agent}
		switch {
		case a.Hold && !was.Hold:
			e.Event, e.Text = NeedsAttention, "account "+a.Name+" is on hold: stint doctor"
		case a.LimitWaits > 0 && was.LimitWaits == 0:
			e.Event, e.Until = AccountLimited, a.CoolUntil
			e.Text = "account " + a.Name + " is rate-limited until " + a.CoolUntil.Local().Format("15:04")
		case a.LimitWaits == 0 && was.LimitWaits > 0:
			e.Event, e.Text = AccountBack, "account "+a.Name+" is available again"
		default:
			continue
		}
		n.Tell(e)
	}
}

// Tell hands an event to all who want it: one of the kinds that no task is, or one of our own. It
// never waits, and any goroutine may call it. After the end of Run nothing is sent.
func (n *Notifier) Tell(e *Event) {
	for _, d := range n.destinations {
		if kind := d.Block.Kind(e); kind != "" {
			sent := *e
			sent.Event = kind
			d.mu.Lock()
			d.events = append(d.events, sent)
			d.mu.Unlock()
			task.Wake(d.wake)
		}
	}
}

// summary returns several events as one.
func summary(events []Event) Event {
	if len(events) == 1 {
		return events[0]
	}
	sum := Event{Event: "summary", Time: time.Now().UTC(), Counts: map[string]int{}}
	var kinds, ids []string
	for _, e := range events {
		sum.Counts[e.Event]++
		if e.Task != "" && len(sum.Tasks) < maxTasks && !slices.Contains(sum.Tasks, e.Task) {
			sum.Tasks, ids = append(sum.Tasks, e.Task), append(ids, state.ShortID(e.Task))
		}
	}
	for _, kind := range Kinds {
		if n := sum.Counts[kind]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
		}
	}
	sum.Text = fmt.Sprintf("%d events: %s", len(events), strings.Join(kinds, ", "))
	if len(ids) > 5 {
		ids = append(ids[:5], "…")
	}
	if len(ids) > 0 {
		sum.Text += " (" + strings.Join(ids, ", ") + ")"
	}
	sum.Text += "; more: stint digest"
	return sum
}
