package api

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"sync"
	"time"

	"stint/coordinator"
)

// traffic counts the requests to a server.
type traffic struct {
	mu sync.Mutex
	trafficCounts
}

type trafficCounts struct {
	routes  map[route]routeCounts
	refused map[string]uint64 // requests that did not come as far as a route, by cause
	streams map[string]int    // that are open, by what they show
	cutOff  uint64            // readers of streams that were too slow
}

// A route is a pattern of the server's as a listener's requests have reached it: no path
// that a client made up.
type route struct{ listener, pattern string }

// routeCounts count the requests of a route.
type routeCounts struct {
	statuses [6]uint64 // by their first digit
	seconds  coordinator.Histogram
}

// requestBounds are the buckets of a request's time, in seconds.
var requestBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}

func newTraffic() *traffic {
	return &traffic{trafficCounts: trafficCounts{routes: map[route]routeCounts{}, refused: map[string]uint64{}, streams: map[string]int{}}}
}

// counts gives a copy of what was counted.
func (t *traffic) counts() trafficCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.trafficCounts
	n.routes, n.refused, n.streams = maps.Clone(n.routes), maps.Clone(n.refused), maps.Clone(n.streams)
	for r, c := range n.routes {
		c.seconds = c.seconds.Clone()
		n.routes[r] = c
	}
	return n
}

// add counts a request that was answered; r is the one that the routes were given.
func (t *traffic) add(r *http.Request, status int, took time.Duration) {
	at := route{"unix", r.Pattern}
	if overTCP(r.Context()) {
		at.listener = "tcp"
	}
	if at.pattern == "" || at.pattern == "/" {
		at.pattern = "none"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.routes[at]
	if !ok {
		c.seconds = coordinator.NewHistogram(requestBounds)
	}
	c.statuses[min(status/100, 5)]++
	c.seconds.Observe(took.Seconds())
	t.routes[at] = c
}

// refusals are the causes for which a request over TCP is refused before it comes as far
// as a route, by the status of the answer.
var refusals = map[int]string{
	http.StatusMisdirectedRequest:    "host",
	http.StatusForbidden:             "origin",
	http.StatusUnauthorized:          "token",
	http.StatusRequestEntityTooLarge: "size",
	http.StatusTooManyRequests:       "streams",
}

// refuse counts a request that was refused.
func (t *traffic) refuse(status int) {
	cause, known := refusals[status]
	if !known {
		cause = coordinator.Other
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[cause]++
}

// open counts a stream that is open until what it gives is called.
func (t *traffic) open(what string) (end func()) {
	add := func(n int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.streams[what] += n
	}
	add(1)
	return func() { add(-1) }
}

// cut counts a reader of a stream that was too slow.
func (t *traffic) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cutOff++
}

// isTooSlow reports whether a write to a client failed because it took nothing in time.
func isTooSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// An answer is a ResponseWriter that knows its status.
type answer struct {
	http.ResponseWriter
	status int // 0: nothing was sent
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status < http.StatusOK { // what came before was about what is still to come
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController what it controls.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
