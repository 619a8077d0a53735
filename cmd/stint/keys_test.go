package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestPromise1IdempotencyKeys: 64 clients send the same keys, each in an order of its own, half of them over
// the socket and half over TCP, and send each again until it is answered, while the master is killed with
// SIGKILL and started again. For one key in ten, half of the clients send another body. In the end each key
// has one task; whoever sent that task's body was told its id, one of them at most that it was new; whoever
// sent the other body was told that it conflicts. The live state is the fold of the journal, and fsck finds
// nothing. STINT_TEST_KEYS sets the number of keys, STINT_TEST_SEED repeats a run.
func TestPromise1IdempotencyKeys(t *testing.T) {
	t.Parallel()
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	keys := envInt(t, "STINT_TEST_KEYS", 10)
	t.Logf("seed %d, %d keys", seed, keys)
	w := newKeyWorld(t, uint64(seed), keys)
	l := w.begin()
	var clients sync.WaitGroup
	defer clients.Wait() // after a failure, too
	for i := range w.clients {
		clients.Go(func() { w.sendAll(&w.clients[i]) })
	}
	kills := w.moments(max(3, keys/25))
	for _, moment := range kills {
		poll(time.Hour, func() bool { return w.answered.Load() >= moment || t.Failed() })
		w.end(l, syscall.SIGKILL)
		l = w.serve()
	}
	clients.Wait()
	tasks, unheard := w.compare(t.Context())
	w.finish(t.Context(), l)
	t.Logf("keys: clients=%d keys=%d requests=%d kills=%d answers=%d unheard=%d tasks=%d seed=%d",
		len(w.clients), keys, w.requests.Load(), len(kills), w.answered.Load(), unheard, tasks, seed)
	if w.requests.Load() == w.answered.Load() {
		t.Error("no kill has cut off a request")
	}
}

// A keyWorld is a world whose clients send idempotency keys.
type keyWorld struct {
	*world
	address string // of the HTTP interface
	token   string
	clients [64]keyClient

	requests, answered atomic.Int64
}

// A keyClient is one client and what it was told about each key.
type keyClient struct {
	tcp, rival bool  // how it calls; it has a body of its own for the contested keys
	order      []int // of the keys
	told       []keyAnswer
}

// A keyAnswer is an answer about a key; status 0 is none yet.
type keyAnswer struct {
	status int
	id     string
}

func newKeyWorld(t *testing.T, seed uint64, keys int) *keyWorld {
	t.Helper()
	address := freeAddress(t)
	w := &keyWorld{world: newWorld(t, seed, "STINT_HTTP="+address), address: address}
	for i := range w.clients {
		w.clients[i] = keyClient{tcp: i%2 == 1, rival: i%4 >= 2, order: w.rand.Perm(keys), told: make([]keyAnswer, keys)}
	}
	return w
}

// begin starts the first master.
func (w *keyWorld) begin() *life {
	w.t.Helper()
	l := w.serve()
	token := get(w.t, tokenFile(w.state))
	w.token = strings.TrimSpace(string(token))
	return l
}

// moments returns the numbers of answers at which the master is killed.
func (w *keyWorld) moments(n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = w.rand.Int64N(int64(len(w.clients) * len(w.clients[0].order) * 9 / 10))
	}
	slices.Sort(list)
	return list
}

// sendAll has a client send all keys, each until it is answered.
func (w *keyWorld) sendAll(c *keyClient) {
	transport := &http.Transport{}
	if !c.tcp {
		transport = dialSocket(w.socket)
	}
	defer transport.CloseIdleConnections()
	for _, key := range c.order {
		for c.told[key].status == 0 {
			if w.t.Failed() {
				return
			}
			w.requests.Add(1)
			var err error
			if c.told[key], err = w.send(transport, c, key); err != nil { // there is no master just now
				poll(scriptDeadline, func() bool { _, err := w.client.Health(w.t.Context()); return err == nil || w.t.Failed() })
			}
		}
		w.answered.Add(1)
	}
}

// contested reports whether the rivals send another body for a key.
func contested(key int) bool { return key%10 == 0 }

// bodyOf returns what a client sends for a key: no task of it runs.
func (w *keyWorld) bodyOf(c *keyClient, key int) task.TaskSpec {
	spec := task.TaskSpec{Prompt: fmt.Sprint("task ", key), Workspace: w.work, SessionKey: "keys", Hold: true}
	if c.rival && contested(key) {
		spec.Prompt += ", and more"
	}
	return spec
}

// send makes one request. The error says that no master answered it.
func (w *keyWorld) send(transport http.RoundTripper, c *keyClient, key int) (keyAnswer, error) {
	body, err := json.Marshal(w.bodyOf(c, key))
	if err != nil {
		return keyAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), scriptDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.address+"/v1/tasks", strings.NewReader(string(body)))
	if err != nil {
		return keyAnswer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf(`"key-%d"`, key))
	if c.tcp {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return keyAnswer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var view struct {
		ID     string `json:"task_id"`
		Detail string `json:"detail"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&view); err != nil {
		return keyAnswer{}, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusConflict:
		return keyAnswer{resp.StatusCode, view.ID}, nil
	case http.StatusServiceUnavailable:
	default:
		w.t.Errorf("key %d was answered with %s: %s", key, resp.Status, view.Detail)
	}
	return keyAnswer{}, fmt.Errorf("%s: %s", resp.Status, view.Detail)
}

// compare looks whether each key has one task, and everyone was told what is so. It
// gives the number of tasks, and of keys of whose first request nobody heard.
func (w *keyWorld) compare(ctx context.Context) (tasks, unheard int) {
	w.t.Helper()
	list, err := w.client.List(ctx, state.Filter{})
	must(w.t, err)
	byKey := map[string][]string{}
	for i := range list {
		byKey[list[i].IdempotencyKey.Given()] = append(byKey[list[i].IdempotencyKey.Given()], list[i].ID)
	}
	for key := range w.clients[0].told {
		ids := byKey[fmt.Sprint("key-", key)]
		if len(ids) != 1 {
			w.lose("key %d has %d tasks", key, len(ids))
			continue
		}
		if !w.compareKey(ctx, key, ids[0]) {
			unheard++
		}
	}
	if len(list) != len(w.clients[0].told) {
		w.lose("%d tasks are there for %d keys", len(list), len(w.clients[0].told))
	}
	return len(list), unheard
}

// compareKey looks at what everyone was told about a key, whose task has that id. It
// reports whether anyone was told that the task is new.
func (w *keyWorld) compareKey(ctx context.Context, key int, id string) (heard bool) {
	w.t.Helper()
	task, err := w.client.Task(ctx, id)
	must(w.t, err)
	for i := range w.clients {
		c := &w.clients[i]
		told, same := c.told[key], w.bodyOf(c, key).Prompt == task.Prompt
		isNew := told.status == http.StatusCreated
		switch {
		case same != (told.status != http.StatusConflict):
			w.lose("key %d: client %d was told %d, and its body is that of the task: %v", key, i, told.status, same)
		case same && told.id != id:
			w.lose("key %d: client %d was told of task %s, which is %s", key, i, told.id, id)
		case isNew && heard:
			w.lose("key %d: client %d was not the first that was told of a new task", key, i)
		}
		heard = heard || isNew
	}
	return heard
}

// finish ends the last master and looks at what it has left.
func (w *keyWorld) finish(ctx context.Context, l *life) {
	w.t.Helper()
	live, err := masterState(ctx, w.socket)
	must(w.t, err)
	w.end(l, syscall.SIGTERM)
	s := w.script()
	s.compareWithRefold(live)
	check(w.t, fsckIsClean(w.state))
}

// freeAddress returns an address of this machine where nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, ln.Close())
	return ln.Addr().String()
}
