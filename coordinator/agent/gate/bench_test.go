package gate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"stint/coordinator/task"
)

// The target: at 1 worker at most 5 ms a run over BenchmarkForkExec, at 8 workers at least 250 runs a second.

// BenchmarkForkExec is the limit: a bare fork, exec and wait of /bin/true.
func BenchmarkForkExec(b *testing.B) {
	eachWorkers(b, func(*testing.B) func(string) error {
		return func(string) error { return exec.Command("/bin/true").Run() }
	})
}

// BenchmarkDispatch is a whole run of /bin/true: files, lock, gate, run.json,
// agent, and the proof that nothing is left.
func BenchmarkDispatch(b *testing.B) {
	eachWorkers(b, func(b *testing.B) func(string) error {
		bench := newBench(b)
		bench.Poll = 0
		turn := bench.Turn("")
		for i := range b.N {
			must(b, os.Mkdir(filepath.Join(bench.Dir, strconv.Itoa(i)), 0o700))
		}
		return func(id string) error {
			turn := task.Turn{RunID: id, RunDir: filepath.Join(bench.Dir, id), Prompt: turn.Prompt, Workspace: bench.Dir}
			return bench.Supervise(b.Context(), Spec{Turn: turn, Argv: []string{"/bin/true"}}, &ears{}).Err
		}
	})
}

// eachWorkers measures what begin returns, which gets the number of each call.
func eachWorkers(b *testing.B, begin func(*testing.B) func(id string) error) {
	for _, workers := range []int{1, 8} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			once := begin(b)
			work := make(chan string)
			errs := make(chan error, workers)
			for range workers {
				go func() {
					var err error
					for id := range work {
						if e := once(id); e != nil {
							err = e
						}
					}
					errs <- err
				}()
			}
			b.ResetTimer()
			start := time.Now()
			for i := range b.N {
				work <- strconv.Itoa(i)
			}
			close(work)
			for range workers {
				must(b, <-errs)
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "runs/s")
		})
	}
}
