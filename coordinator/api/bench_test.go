package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

// nullMaster takes every task and keeps none.
type nullMaster struct{ *fakeMaster }

func (nullMaster) Submit(_ context.Context, spec coordinator.TaskSpec) (state.Task, error) {
	return queued(&spec), nil
}

func queued(spec *coordinator.TaskSpec) state.Task {
	return state.Task{ID: spec.ID, Status: state.Queued, Workspace: spec.Workspace, SessionKey: spec.SessionKey, CreatedAt: time.Now()}
}

// bare decodes and answers, and that is all.
func bare(w http.ResponseWriter, r *http.Request) {
	var spec coordinator.TaskSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(TaskView{Task: queued(&spec)}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// BenchmarkSubmit has 64 clients submit over the socket, to the server with a
// master that does nothing and to a bare handler beside it.
func BenchmarkSubmit(b *testing.B) {
	b.Run("server", func(b *testing.B) {
		s := serve(b, nullMaster{newFake(b)}, Options{})
		submit64(b, s.socket)
	})
	b.Run("bare", func(b *testing.B) {
		ln, err := Listen(filepath.Join(socketDir(b), "s"))
		if err != nil {
			b.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(bare), ReadHeaderTimeout: headerTimeout}
		done := make(chan error, 1)
		go func() { done <- srv.Serve(ln) }()
		submit64(b, ln.Addr().String())
		if err := srv.Close(); err != nil {
			b.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			b.Error(err)
		}
	})
}

func submit64(b *testing.B, socket string) {
	const clients = 64
	c := Dial(socket)
	defer c.Close()
	spec := coordinator.TaskSpec{Prompt: "Fix the flaky login test.\n\nKeep the diff small.\n", Workspace: "/home/ana/shop", SessionKey: "web", Label: "bench"}
	var mu sync.Mutex
	var took []time.Duration
	b.SetParallelism(clients / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var own []time.Duration
		for pb.Next() {
			begun := time.Now()
			if _, err := c.Submit(context.Background(), spec); err != nil {
				b.Error(err)
				return
			}
			own = append(own, time.Since(begun))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
	})
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
