// Package notify tells a person what has happened: by a command, on the desktop, by a webhook
// or by ntfy. A [Notifier] follows the changes of tasks, as any reader does; it never holds up a
// run or the ledger. Each destination has a goroutine of its own, which sends one message in ten
// seconds at most: what happens meanwhile is summed up in the next one.
//
// A message is sent at most once by a master. What waits when the master ends is sent within a
// few seconds or dropped, and what a killed master had not sent yet is not sent by the next one.
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// The kinds of events.
const (
	Done           = "done"
	Failed         = "failed"
	Dead           = "dead"
	NeedsAttention = "needs-attention"
	QueueEmpty     = "queue-empty"
	AccountLimited = "account-limited"
	AccountBack    = "account-back"
)

// Kinds are all kinds of events; those that a channel without a list of its own is sent come first.
var Kinds = []string{Done, Failed, Dead, NeedsAttention, QueueEmpty, AccountLimited, AccountBack}

// Usual returns the kinds that a channel without a list of its own is sent.
func Usual() []string { return slices.Clone(Kinds[:4]) }

// An Event is what a message is about. Its JSON is what a command reads and a webhook gets.
type Event struct {
	Event    string         `json:"event"` // one of Kinds, or summary
	Time     time.Time      `json:"time"`
	Text     string         `json:"text"` // one sentence, without a prompt and without an agent's words
	Task     string         `json:"task,omitempty"`
	Reason   string         `json:"reason,omitempty"` // a [state.Class]
	Session  string         `json:"session,omitempty"`
	Label    string         `json:"label,omitempty"`
	Agent    string         `json:"agent,omitempty"`
	Priority int            `json:"priority,omitempty"`
	Duration string         `json:"duration,omitempty"` // of the last attempt
	Account  string         `json:"account,omitempty"`
	Until    time.Time      `json:"until,omitzero"`   // of account-limited
	Title    string         `json:"title,omitempty"`  // first line of the prompt; for a channel with Prompt alone
	Error    string         `json:"error,omitempty"`  // the same
	Counts   map[string]int `json:"counts,omitempty"` // of a summary: events by their kinds

	took   time.Duration
	always bool // whatever a channel filters
}

// A Channel is a block [[notify]] of the configuration: where messages go, and which.
type Channel struct {
	Command  string // for sh -c
	Desktop  bool
	Webhook  string // a URL
	Ntfy     string // a URL
	Terminal string // bell or osc9: of a command that waits for the task

	On          []string // of Kinds
	Session     string   // "": any
	Label       string
	Priority    int // at least
	MinDuration time.Duration
	Prompt      bool // messages may have the first line of the prompt, and the error
}

// Check returns what is wrong with a channel as a whole; nil if nothing is.
func (c *Channel) Check() error {
	if !c.Desktop && c.Command+c.Webhook+c.Ntfy+c.Terminal == "" {
		return fmt.Errorf("a [[notify]] block needs one of command, desktop, webhook, ntfy and terminal")
	}
	return nil
}

// CheckURL returns a URL as it was, or an error, which never has the URL.
func CheckURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("this is not a URL such as https://ntfy.sh/my-topic")
	}
	return text, nil
}

// Redact returns a URL without what may be a secret in it.
func Redact(text string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host + "/***"
}

// Wants reports whether an event is sent to a channel.
func (c *Channel) Wants(e *Event) bool {
	if e.Task == "" {
		return slices.Contains(c.On, e.Event)
	}
	return e.always || slices.Contains(c.On, e.Event) && (c.Session == "" || c.Session == e.Session) && (c.Label == "" || c.Label == e.Label) &&
		e.Priority >= c.Priority && (e.Event == NeedsAttention || e.took >= c.MinDuration)
}

// EventOf returns the event that a task's present status is; nil if it is none.
func EventOf(t *state.Task) *Event {
	e := &Event{
		Event: string(t.Status), Time: t.UpdatedAt, Task: t.ID, Label: t.Label, Agent: t.Agent, Priority: t.Priority, always: t.Notify,
		Title: t.Title, Error: t.Error,
	}
	if e.Priority == 0 {
		e.Priority = 5
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
	id := t.ID[max(0, len(t.ID)-8):]
	switch {
	case t.Status == state.Done:
		e.Text = "task " + id + " is done"
	case t.Status == state.Failed:
		e.Text = "task " + id + " failed"
	case t.Status == state.Dead:
		e.Text = "task " + id + " is dead"
	case t.Status == state.Queued && t.Hold:
		e.Event, e.Text = NeedsAttention, "task "+id+" is held and waits for you: stint show "+id
	default:
		return nil
	}
	if e.Reason != "" && t.Status != state.Done {
		e.Text += " (" + e.Reason + ")"
	}
	if e.Duration != "" {
		e.Text += " after " + e.Duration
	}
	if e.Session != "" {
		e.Text += ", session " + e.Session
	}
	return e
}

// A Room is what a notifier asks the master.
type Room interface {
	Seq() uint64
	SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func())
	List(f state.Filter) []state.Task
	Task(ctx context.Context, ref string) (state.Task, error)
	Accounts() []state.AccountUse
}

// Options are what a [Notifier] is given.
type Options struct {
	Channels []Channel
	Sender   Sender
	Log      *slog.Logger
	Now      func() time.Time
}

// A Notifier sends messages about the tasks of one master.
type Notifier struct {
	opts  Options
	room  Room
	sinks []*sink

	seq      uint64          // up to which changes are known
	live     map[string]live // tasks that have not ended
	waiting  int             // of these, those that run or will
	accounts map[string]state.Account
}

// live is what was last known of a task that has not ended.
type live struct{ held, waits bool }

// New returns a notifier of what happens from now on. It starts nothing: see [Notifier.Run].
func New(room Room, o Options) *Notifier {
	n := &Notifier{opts: o, room: room, seq: room.Seq(), accounts: map[string]state.Account{}}
	for i := range o.Channels {
		for _, d := range o.Channels[i].Destinations() {
			n.sinks = append(n.sinks, &sink{channel: &o.Channels[i], to: d, wake: make(chan struct{}, 1), opts: &n.opts})
		}
	}
	n.list()
	for _, a := range room.Accounts() {
		n.accounts[a.Name] = a.Account
	}
	return n
}

// Bounds of a notifier.
const (
	gap       = 10 * time.Second       // between two messages to one destination
	drainTime = 5 * time.Second        // for what waits when the master ends
	settle    = 200 * time.Millisecond // between a change and a look at the accounts: records come in batches
	lag       = 1024                   // changes that may wait for us
)

// Run follows the changes, and returns once ctx has ended and what waits was sent, or that has
// taken 5 s.
func (n *Notifier) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	following, end := context.WithCancel(sending)
	defer end()
	var sinks sync.WaitGroup
	for _, s := range n.sinks {
		sinks.Go(func() { s.run(following, sending) })
	}
	for ctx.Err() == nil {
		n.follow(ctx)
	}
	end()
	last := time.AfterFunc(drainTime, cancel)
	defer last.Stop()
	sinks.Wait()
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
	var look <-chan time.Time
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return
			}
			n.changed(c)
			if look == nil {
				look = time.After(settle)
			}
		case <-look:
			look = nil
			n.lookAtAccounts()
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

// note remembers a task as it is now, and returns what it was.
func (n *Notifier) note(t *state.Task) (before, now live, wasLive bool) {
	before, wasLive = n.live[t.ID]
	if before.waits {
		n.waiting--
	}
	if t.Status.Terminal() {
		delete(n.live, t.ID)
		return before, now, wasLive
	}
	now = live{held: t.Hold, waits: !t.Hold && t.Status != state.Draft}
	if n.live[t.ID] = now; now.waits {
		n.waiting++
	}
	return before, now, wasLive
}

// list looks at all tasks that have not ended.
func (n *Notifier) list() {
	n.live, n.waiting = map[string]live{}, 0
	for _, t := range n.room.List(state.Filter{Status: []state.Status{state.Draft, state.Queued, state.Running}}) {
		n.note(&t)
	}
}

// resync sends the ends of which no change tells.
func (n *Notifier) resync() {
	before, waiting := n.live, n.waiting
	n.list()
	for id := range before {
		if _, isLive := n.live[id]; isLive {
			continue
		}
		t, err := n.room.Task(context.Background(), id) // one that was removed is no event
		if e := EventOf(&t); err == nil && e != nil {
			n.send(e)
		}
	}
	n.emptied(waiting > 0)
}

// emptied sends that the queue is empty, if it was not before.
func (n *Notifier) emptied(wasWaiting bool) {
	if wasWaiting && n.waiting == 0 {
		n.send(&Event{Event: QueueEmpty, Time: n.opts.Now(), Text: "no task is queued or running any more"})
	}
}

// changed sends what a change of a task means.
func (n *Notifier) changed(c *task.Change) {
	n.seq = c.Seq
	if c.Resync {
		n.resync()
		return
	}
	before, now, wasLive := n.note(&c.Task)
	isAsked := now.held && !before.held && c.Task.By != ledger.ByClient && c.Task.By != ledger.ByHand // by nobody who knows
	if wasLive && c.Task.Status.Terminal() || isAsked {
		if whole, err := n.room.Task(context.Background(), c.Task.ID); err != nil {
			n.opts.Log.Warn("a notification was not sent", "task", c.Task.ID, "error", err)
		} else {
			if whole.Status != c.Task.Status { // it has gone on meanwhile
				whole = c.Task
			}
			if e := EventOf(&whole); e != nil {
				n.send(e)
			}
		}
	}
	n.emptied(before.waits)
}

// lookAtAccounts sends what has become of the accounts.
func (n *Notifier) lookAtAccounts() {
	now := n.opts.Now()
	for _, a := range n.room.Accounts() {
		was := n.accounts[a.Name]
		n.accounts[a.Name] = a.Account
		e := &Event{Time: now, Account: a.Name, Agent: a.Agent}
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
		n.send(e)
	}
}

// send hands an event to who wants it. It never waits.
func (n *Notifier) send(e *Event) {
	for _, s := range n.sinks {
		if s.channel.Wants(e) {
			s.add(*e)
		}
	}
}

// A sink is one destination with what waits for it.
type sink struct {
	channel *Channel
	to      Destination
	opts    *Options
	wake    chan struct{}

	mu    sync.Mutex // guards what follows
	first Event
	count map[string]int // events by kind, with the first
}

func (s *sink) add(e Event) {
	s.mu.Lock()
	if s.count == nil {
		s.first, s.count = e, map[string]int{}
	}
	s.count[e.Event]++
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns what waits as one event; nil if nothing does.
func (s *sink) take() *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, count := s.first, s.count
	s.count = nil
	var parts []string
	total := 0
	for _, kind := range Kinds {
		if n := count[kind]; n > 0 {
			parts, total = append(parts, fmt.Sprintf("%d %s", n, kind)), total+n
		}
	}
	switch {
	case total == 0:
		return nil
	case total > 1:
		e = Event{Event: "summary", Time: s.opts.Now(), Counts: count, Text: fmt.Sprintf("%d events: %s; what and why: stint digest", total, strings.Join(parts, ", "))}
	}
	return &e
}

// run sends what comes until ctx has ended and nothing waits, or sending has.
func (s *sink) run(ctx, sending context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		e := s.take()
		switch {
		case e == nil && ctx.Err() != nil:
			return
		case e == nil: // it was sent with the one before
			continue
		}
		if err := s.opts.Sender.Deliver(sending, s.channel, s.to, e); err != nil {
			s.opts.Log.Warn("a notification could not be delivered", "to", s.to.Name, "event", e.Event, "error", err)
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
		}
	}
}
