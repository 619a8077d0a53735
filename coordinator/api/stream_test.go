package api

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/logs"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/state"
)

// failingWriter fails.
type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestLogsGiveTheWritersError(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Running, RunID: "r"})
	m.write(t, "r", "stdout", "x")
	s := serve(t, m, Options{})
	full := errors.New("full")
	for _, follow := range []bool{false, true} {
		if err := s.client.Logs(t.Context(), "a", "", "stdout", follow, failingWriter{full}); !errors.Is(err, full) {
			t.Errorf("follow %v: %v", follow, err)
		}
	}
	eventually(t, "no subscriber is left", func() bool { return m.subscribers() == 0 })
}

// safeBuffer is a bytes.Buffer that two goroutines may use.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestFollow goes through the life of a task with two runs, in fake time.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFake(t)
		m.add(state.Task{ID: "a", Status: state.Queued})
		var out safeBuffer
		filter := redact.New(func() []string { return []string{"a secret"} })
		of := logs.Stream{Master: m, Name: "stdout", Redact: filter}
		done := make(chan error, 1)
		go func() { done <- of.Follow(t.Context(), "a", 100*time.Millisecond, &out) }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := out.String(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		start := func(run string) {
			m.set("a", func(t *state.Task) { t.Status, t.RunID = state.Running, run })
		}

		synctest.Wait()
		start("r1")
		expect("")
		m.write(t, "r1", "stdout", "one ")
		time.Sleep(100 * time.Millisecond) // fake time: the next look
		expect("one ")
		m.dropSubscribers()
		synctest.Wait()
		m.write(t, "r1", "stdout", "two ")
		m.set("a", func(t *state.Task) { t.Status = state.Queued })
		expect("one two ")
		m.write(t, "r2", "stdout", "three ")
		start("r2")
		expect("one two three ")
		m.write(t, "r2", "stdout", "a sec")
		time.Sleep(100 * time.Millisecond)
		expect("one two three ")
		m.write(t, "r2", "stdout", "ret, a")
		time.Sleep(100 * time.Millisecond)
		expect("one two three ********, ")
		m.set("a", func(t *state.Task) { t.Status = state.Done })
		expect("one two three ********, a")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := m.subscribers(); n != 0 {
			t.Errorf("%d subscribers left", n)
		}
	})
}

func TestEvents(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	enough := errors.New("enough")
	var got []string
	done := make(chan error, 1)
	go func() {
		done <- s.events(func(c task.Change) error {
			if got = append(got, fmt.Sprint(c.Seq, " ", c.Task.ID)); len(got) == 3 {
				return enough
			}
			return nil
		})
	}()
	eventually(t, "a subscriber", func() bool { return m.subscribers() == 1 })
	for i := range 3 {
		if _, err := s.client.Submit(t.Context(), task.TaskSpec{Prompt: "x", ID: fmt.Sprint("t", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; !errors.Is(err, enough) || strings.Join(got, ",") != "1 t0,2 t1,3 t2" {
		t.Errorf("%v %v", err, got)
	}
	eventually(t, "the subscription ends with the client", func() bool { return m.subscribers() == 0 })
}
