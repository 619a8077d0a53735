package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"stint/coordinator/task"
)

// The target: at 1 worker at most 5 ms a run over BenchmarkForkExec, at 8 workers
// at least 250 runs a second.

// BenchmarkForkExec is the limit: a bare fork, exec and wait of /bin/true.
func BenchmarkForkExec(b *testing.B) {
	eachWorkers(b, func(*testing.B) func() error {
		return func() error { return exec.Command("/bin/true").Run() }
	})
}

// BenchmarkDispatch is a whole run of /bin/true: files, lock, gate, run.json,
// agent, and the proof that nothing is left.
func BenchmarkDispatch(b *testing.B) {
	eachWorkers(b, func(b *testing.B) func() error {
		bench := newBench(b)
		bench.agent.Poll = defaultPoll
		ids := make(chan string, b.N)
		for i := range b.N {
			id := strconv.Itoa(i)
			must(b, os.MkdirAll(filepath.Join(bench.dir, id), 0o700))
			ids <- id
		}
		prompt := filepath.Join(bench.dir, "prompt.md")
		must(b, os.WriteFile(prompt, []byte("hello"), 0o600))
		return func() error {
			id := <-ids
			turn := task.Turn{RunID: id, RunDir: filepath.Join(bench.dir, id), Prompt: prompt, Workspace: bench.dir}
			s := Spec{Turn: turn, Argv: []string{"/bin/true"}, Env: bench.agent.AgentEnv(turn)}
			e := bench.agent.supervise(b.Context(), s, newStream(testEars(), quiet))
			return e.err
		}
	})
}

func eachWorkers(b *testing.B, begin func(*testing.B) func() error) {
	for _, workers := range []int{1, 8} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			once := begin(b)
			work := make(chan struct{})
			errs := make(chan error, workers)
			for range workers {
				go func() {
					var err error
					for range work {
						if e := once(); e != nil {
							err = e
						}
					}
					errs <- err
				}()
			}
			b.ResetTimer()
			start := time.Now()
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			for range workers {
				must(b, <-errs)
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "runs/s")
		})
	}
}
