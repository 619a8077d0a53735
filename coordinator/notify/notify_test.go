package notify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"stint/coordinator/task"
	"stint/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A room is a master in memory.
type room struct {
	mu       sync.Mutex
	tasks    []state.Task
	changes  []*task.Change
	subs     map[chan *task.Change]bool
	accounts []state.AccountUse
	health   task.Health
}

func (r *room) Health() task.Health { r.mu.Lock(); defer r.mu.Unlock(); return r.health }

func (r *room) Seq() uint64 { r.mu.Lock(); defer r.mu.Unlock(); return uint64(len(r.changes)) }

func (r *room) SubscribeAfter(after uint64, buffer int) ([]*task.Change, <-chan *task.Change, func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan *task.Change, buffer)
	r.subs[ch] = true
	return slices.Clone(r.changes[after:]), ch, func() { r.mu.Lock(); delete(r.subs, ch); r.mu.Unlock() }
}

func (r *room) List(f state.Filter) (list []state.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if f.Match(&t) {
			list = append(list, t)
		}
	}
	return list
}

func (r *room) Task(_ context.Context, id string) (state.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.tasks, func(t state.Task) bool { return t.ID == id }); i >= 0 {
		return r.tasks[i], nil
	}
	return state.Task{}, errors.New("no such task")
}

func (r *room) Accounts() []state.AccountUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.accounts)
}

// set changes a task, or makes one, and publishes that. Who lags is cut off.
func (r *room) set(t state.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.UpdatedAt = time.Now()
	r.put(t)
	r.publish(&task.Change{Task: t})
}

func (r *room) put(t state.Task) {
	r.tasks = append(slices.DeleteFunc(r.tasks, func(old state.Task) bool { return old.ID == t.ID }), t)
}

func (r *room) publish(c *task.Change) {
	c.Seq = uint64(len(r.changes) + 1)
	r.changes = append(r.changes, c)
	for ch := range r.subs {
		select {
		case ch <- c:
		default:
			delete(r.subs, ch)
			close(ch)
		}
	}
}

// A world is a notifier at work, with one destination, in fake time.
type world struct {
	*room
	t   *testing.T
	end func()

	notifier *Notifier

	hold chan struct{} // a delivery waits for it to be closed, if it is there
	fail int           // so many tries from now on fail

	begin time.Time
	tries int
	got   []string // when, in seconds, and what
}

func inWorld(t *testing.T, b Block, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{room: &room{subs: map[chan *task.Change]bool{}}, t: t, begin: time.Now()}
		w.tasks = []state.Task{{ID: "old", Status: state.Done}, {ID: "waits", Status: state.Queued}}
		if b.On == nil {
			b.On = Kinds
		}
		n := New(w, nil, nil, nil, slog.New(slog.DiscardHandler))
		n.destinations = []*Destination{{Block: &b, wake: make(chan struct{}, 1), send: func(ctx context.Context, e *Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.tries++; w.fail > 0 {
				w.fail--
				return errors.New("not now")
			}
			if hold := w.hold; hold != nil {
				w.mu.Unlock()
				select {
				case <-hold:
				case <-ctx.Done():
				}
				w.mu.Lock()
			}
			w.got = append(w.got, time.Since(w.begin).Truncate(time.Second).String()+" "+e.Line())
			return ctx.Err()
		}}}
		w.notifier = n
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.Run(ctx) })
		w.end = sync.OnceFunc(func() { cancel(); running.Wait() })
		defer w.end()
		synctest.Wait()
		test(w)
	})
}

// expect waits for a time and checks all that was delivered so far.
func (w *world) expect(after time.Duration, want ...string) {
	w.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.got, want) {
		w.t.Errorf("delivered:\n%s\nwant:\n%s", strings.Join(w.got, "\n"), strings.Join(want, "\n"))
	}
}

// run runs a task to its end, for a while.
func (w *world) run(t state.Task, took time.Duration) {
	end := t
	t.Status, t.Reason = state.Running, ""
	w.set(t)
	end.StartedAt = time.Now()
	time.Sleep(took)
	w.set(end)
}

// TestBurst: a message is sent at once; what comes within the next ten seconds is one, however
// much it is, also where it is more than may wait for us.
func TestBurst(t *testing.T) {
	inWorld(t, Block{}, func(w *world) {
		w.run(state.Task{ID: "a", Status: state.Done}, 3*time.Second)
		w.expect(time.Second, "3s task a is done after 3s")
		for i := range 2 * lag {
			w.set(state.Task{ID: "b", Status: state.Running})
			w.set(state.Task{ID: "b", Status: []state.Status{state.Done, state.Failed}[i%2]})
		}
		w.expect(20*time.Second, "3s task a is done after 3s", "13s 2048 events: 1024 done, 1024 failed (b); more: stint digest")
	})
}

// TestWhatIsAnEvent: the end of a task is one, once, whatever its later records say; a hold that
// nobody asked for is; the end of the last task that waits is.
func TestWhatIsAnEvent(t *testing.T) {
	inWorld(t, Block{}, func(w *world) {
		want := []string{}
		next := func(text string, changes ...state.Task) {
			t.Helper()
			for _, c := range changes {
				w.set(c)
			}
			if text != "" {
				want = append(want, text)
			}
			w.expect(time.Minute, want...)
		}
		next("", state.Task{ID: "old", Status: state.Done, Note: "edited"}, state.Task{ID: "a", Status: state.Queued}, state.Task{ID: "a", Status: state.Canceled, By: "client"})
		next("1m0s task a failed (verify), session web", state.Task{ID: "a", Status: state.Queued}, state.Task{ID: "a", SessionKey: "web", Status: state.Failed, Reason: state.ClassVerify})
		next("", state.Task{ID: "a", Status: state.Failed, Note: "edited"})
		next("", state.Task{ID: "a", Status: state.Queued, Hold: true, By: "client"}, state.Task{ID: "b", Status: state.Queued, Hold: true, By: "hand"})
		next("4m0s task c is on hold and waits for you: stint show c", state.Task{ID: "c", Status: state.Queued, Hold: true, By: "agent"}, state.Task{ID: "c", Status: state.Queued, Hold: true, By: "agent"})
		next("5m5s no task is queued or running any more", state.Task{ID: "waits", Status: state.Canceled})
		next("6m0s task c is dead", state.Task{ID: "c", Status: state.Queued}, state.Task{ID: "waits", Status: state.Queued}, state.Task{ID: "c", Status: state.Dead, Reason: "made up\x1b[m"})
	})
}

// TestFilters: what a block is sent; a task with notify, whatever the block filters.
func TestFilters(t *testing.T) {
	base := state.Task{ID: "t", Status: state.Failed, SessionKey: "web", Label: "nightly", Priority: 7, StartedAt: time.Unix(0, 0), UpdatedAt: time.Unix(60, 0)}
	for name, c := range map[string]struct {
		block Block
		want  bool
	}{
		"all":               {Block{}, true},
		"another event":     {Block{On: []string{Done}}, false},
		"session":           {Block{Session: "web"}, true},
		"another session":   {Block{Session: "api"}, false},
		"another label":     {Block{Label: "x"}, false},
		"priority":          {Block{Priority: 7}, true},
		"higher priority":   {Block{Priority: 8}, false},
		"duration":          {Block{MinDuration: "1m"}, true},
		"a longer duration": {Block{MinDuration: "1h"}, false},
	} {
		if c.block.On == nil {
			c.block.On = Usual()
		}
		if got := c.block.Kind(EventOf(&base)) != ""; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		asked := base
		asked.Notify = true
		if c.block.Kind(EventOf(&asked)) == "" {
			t.Errorf("%s: not wanted, though the task asks for it", name)
		}
	}
	base.Title = "a\x1b]0;b\a"
	if line := EventOf(&base).Line(); strings.ContainsAny(line, "\x1b\a") {
		t.Errorf("%q", line)
	}
	if b := (Block{On: []string{QueueEmpty}, Session: "web", MinDuration: "1h"}); b.Kind(&Event{Event: QueueEmpty}) == "" {
		t.Error("what is no task's is not filtered by a session")
	}
}

func TestAccounts(t *testing.T) {
	inWorld(t, Block{}, func(w *world) {
		want := []string{}
		next := func(a state.Account, text string) {
			t.Helper()
			w.mu.Lock()
			w.accounts = []state.AccountUse{{Account: a}}
			w.mu.Unlock()
			w.set(state.Task{ID: "waits", Status: state.Queued})
			if text != "" {
				want = append(want, text)
			}
			w.expect(time.Minute, want...)
		}
		until := time.Date(2000, 1, 1, 21, 15, 0, 0, time.Local)
		next(state.Account{Name: "codex", LimitWaits: 1, CoolUntil: until}, "5s account codex is rate-limited until 21:15")
		next(state.Account{Name: "codex", LimitWaits: 2, CoolUntil: until.Add(time.Hour)}, "")
		next(state.Account{Name: "codex"}, "2m5s account codex is available again")
		next(state.Account{Name: "codex", Hold: true}, "3m5s account codex is on hold: stint doctor")
	})
}

// TestAttention: what waits for a person is sent once; a task that is done with findings is done
// for a block that asks for no more.
func TestAttention(t *testing.T) {
	inWorld(t, Block{On: []string{NeedsAttention}}, func(w *world) {
		want := []string{}
		next := func(h task.Health, text string) {
			t.Helper()
			w.mu.Lock()
			w.health = h
			w.mu.Unlock()
			if text != "" {
				want = append(want, text)
			}
			w.expect(time.Minute, want...)
		}
		h := task.Health{Findings: []string{"tasks.md:3: 4 tasks' prompts changed in one save"}}
		next(h, "5s the ledger has 1 finding: stint fsck")
		h.Findings[0] = "tasks.md:4: 4 tasks' prompts changed in one save"
		next(h, "")
		h.Paused, h.PauseWhy = true, "lunch"
		next(h, "")
		h.PauseWhy = "safe mode: 5 masters died within a minute"
		next(h, "3m5s safe mode: 5 masters died within a minute; to start tasks again: stint resume")
		h.Shortage = &task.Shortage{What: "no space is left"}
		next(h, "4m5s tasks wait: no space is left")
		h.Status = task.HealthFailing
		next(h, "5m5s the disk of the state directory is full or has failed, and no task is accepted: stint doctor")
		w.run(state.Task{ID: "a", Status: state.Done, Findings: []state.Issue{{Kind: "denied"}}}, 0)
		next(h, "6m0s task a is done, with 1 finding: stint show a")
	})
	if e := EventOf(&state.Task{ID: "a", Status: state.Done, Title: task.NoteQuestion + "Look"}); e != nil {
		t.Errorf("a question about a note is done: %+v", e)
	}
	e := EventOf(&state.Task{ID: "prüfung-größe", Status: state.Done, Findings: make([]state.Issue, 2)})
	if !strings.HasSuffix(e.Text, ": stint show prüfung-größe") { // an id that is no UUID is whole
		t.Errorf("%q", e.Text)
	}
	if kind := (&Block{On: []string{Done}}).Kind(e); kind != Done || e.Event != NeedsAttention {
		t.Errorf("it is %q, and %q for a block of what is done", e.Event, kind)
	}
}

// TestSummary: several events as one name their tasks.
func TestSummary(t *testing.T) {
	var events []Event
	for _, id := range strings.Split("a b c d e f a", " ") {
		events = append(events, Event{Event: Done, Task: id})
	}
	sum := summary(append(events, Event{Event: QueueEmpty}))
	if want := "8 events: 7 done, 1 queue-empty (a, b, c, d, e, …); more: stint digest"; sum.Text != want || !slices.Equal(sum.Tasks, []string{"a", "b", "c", "d", "e", "f"}) {
		t.Errorf("%q, %q", sum.Text, sum.Tasks)
	}
}

// TestTries: a message is tried three times at most, and what is refused once.
func TestTries(t *testing.T) {
	for fail, want := range map[int][]string{2: {"6s task a is done"}, 3: {}} {
		inWorld(t, Block{}, func(w *world) {
			w.fail = fail
			w.run(state.Task{ID: "a", Status: state.Done}, 0)
			w.expect(time.Minute, want...)
			if w.tries != 3 {
				t.Errorf("%d tries", w.tries)
			}
		})
	}
	tries := 0
	refused := Destination{Block: &Block{}, send: func(context.Context, *Event) error { tries++; return &answerError{status: "404", isRefusal: true} }}
	if err := refused.Deliver(t.Context(), Event{}, 3); err == nil || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// TestResync: what has ended is sent, also where no change shows it, as after a restore.
func TestResync(t *testing.T) {
	for kind, want := range map[string]string{Done: "0s task a is done", QueueEmpty: "5s no task is queued or running any more"} {
		inWorld(t, Block{On: []string{kind}}, func(w *world) {
			w.set(state.Task{ID: "a", Status: state.Running})
			synctest.Wait()
			w.mu.Lock()
			w.put(state.Task{ID: "a", Status: state.Done})
			w.put(state.Task{ID: "waits", Status: state.Canceled})
			w.publish(&task.Change{Resync: true})
			w.mu.Unlock()
			w.expect(interval, want)
		})
	}
}

// TestEnd: what waits is sent when the master ends, without the gap; and a destination that
// does not answer holds up neither the changes nor the end for long.
func TestEnd(t *testing.T) {
	inWorld(t, Block{}, func(w *world) {
		w.run(state.Task{ID: "a", Status: state.Done}, 0)
		w.expect(time.Second, "0s task a is done")
		w.run(state.Task{ID: "b", Status: state.Done}, 0)
		w.end()
		w.expect(0, "0s task a is done", "1s task b is done")
	})
	inWorld(t, Block{}, func(w *world) {
		w.hold = make(chan struct{})
		for range 100 {
			w.run(state.Task{ID: "a", Status: state.Done}, 0)
		}
		begin := time.Now()
		w.end()
		if took := time.Since(begin); took > drainTime {
			t.Errorf("the end took %s", took)
		}
	})
}

// TestTelegram: what a bot is asked to send; its token is in no error. How long a server asks us to
// wait is honoured, within a bound.
func TestTelegram(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.URL.Path+" "+string(body))
		if len(got) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":429,"parameters":{"retry_after":7}}`)
		}
	}))
	b := Block{Telegram: "42", TelegramTokenEnv: "BOT", TelegramURL: server.URL + "/"}
	to := b.Destinations([]string{"BOT=1:secret"}, nil)[0]
	var busy *answerError
	if err := to.Deliver(t.Context(), Event{Text: "<b>*_"}, 1); !errors.As(err, &busy) || busy.after != 7*time.Second {
		t.Errorf("too many requests: %v", err)
	}
	for _, text := range []string{strings.Repeat("😀", 2048), strings.Repeat("😀", 2049)} {
		if err := to.Deliver(t.Context(), Event{Text: text}, 1); err != nil {
			t.Error(err)
		}
	}
	server.Close()
	for i, want := range []string{"<b>*_", strings.Repeat("😀", 2048), strings.Repeat("😀", 2047) + "…"} {
		body, _ := json.Marshal(map[string]string{"chat_id": "42", "text": want})
		if want := "/bot1:secret/sendMessage " + string(body); got[i] != want {
			t.Errorf("%.80q, want %.80q", got[i], want)
		}
	}
	read := func(string) (string, error) { return "2:secret/../x", nil }
	for _, to := range []*Destination{
		to, (&Block{Telegram: "42", TelegramTokenFile: "f"}).Destinations(nil, read)[0],
		(&Block{Telegram: "42", TelegramTokenEnv: "BOT", TelegramURL: "http://a b"}).Destinations([]string{"BOT=1:secret"}, nil)[0],
	} {
		if err := to.Deliver(t.Context(), Event{}, 1); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
	for header, want := range map[string]time.Duration{"": 0, "30": 30 * time.Second, "-1": 0, "x": 0, "999999999999": mostWait} {
		if after := retryAfter(&http.Response{Header: http.Header{"Retry-After": {header}}}, nil); after != want {
			t.Errorf("%q: %s", header, after)
		}
	}
	for asked, want := range map[time.Duration]time.Duration{0: time.Second, 40 * time.Second: 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			begin, answers := time.Now(), []error{&answerError{status: "429", after: asked}, nil}
			to := Destination{Block: &Block{}, send: func(context.Context, *Event) error { err := answers[0]; answers = answers[1:]; return err }}
			if err := to.Deliver(t.Context(), Event{}, tries); err != nil || time.Since(begin) != want {
				t.Errorf("asked for %s: %v after %s", asked, err, time.Since(begin))
			}
		})
	}
}

// TestTell: another room's event is sent as any other, and after the end it is dropped.
func TestTell(t *testing.T) {
	inWorld(t, Block{On: Usual(), Session: "web"}, func(w *world) {
		w.notifier.Tell(&Event{Event: ScheduleMissed, Text: "nightly was missed"})
		w.expect(time.Second, "0s nightly was missed")
		w.end()
		w.notifier.Tell(&Event{Event: JobDeadLetter, Text: "late"})
		w.expect(time.Minute, "0s nightly was missed")
	})
}
