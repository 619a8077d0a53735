package gate

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"stint/coordinator/task"
)

// BenchmarkDispatch is a whole run of /bin/true (files, lock, gate, record, agent, and the proof that nothing
// is left) beside a bare fork, exec and wait of it, by turns. The gate is stint-gate, or this program, which is
// as large as a test is. The targets: with 1 worker at most 4 ms more, with 8 at least 0.2 of the bare runs a second.
func BenchmarkDispatch(b *testing.B) {
	program := filepath.Join(b.TempDir(), "stint-gate")
	build := exec.Command("go", "build", "-o", program, "stint/cmd/stint-gate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, own := range []bool{true, false} {
		for _, workers := range []int{1, 8} {
			name := map[bool]string{true: "stint-gate", false: "self"}[own] + "/workers=" + strconv.Itoa(workers)
			b.Run(name, func(b *testing.B) {
				bench := newBench(b)
				bench.Poll = 0
				if own {
					bench.Self = []string{program, "gate"}
				}
				prompt, runs := bench.Turn("").Prompt, 0
				var bare, held []float64 // milliseconds a run, of one batch each
				for b.Loop() {
					bare = append(bare, batch(b, workers, func(int) error { return exec.Command("/bin/true").Run() }))
					runs++
					at := func(i int) string { return filepath.Join(bench.Dir, strconv.Itoa(runs)+"-"+strconv.Itoa(i)) }
					for i := range 8 * workers {
						must(b, os.Mkdir(at(i), 0o700))
					}
					held = append(held, batch(b, workers, func(i int) error {
						turn := task.Turn{RunID: filepath.Base(at(i)), RunDir: at(i), Prompt: prompt, Workspace: bench.Dir}
						return bench.Supervise(b.Context(), Spec{Turn: turn, Argv: []string{"/bin/true"}}, &ears{}).Err
					}))
				}
				slices.Sort(bare)
				slices.Sort(held)
				limit, ours := bare[len(bare)/2], held[len(held)/2]
				b.ReportMetric(0, "ns/op") // both together say nothing
				b.ReportMetric(ours-limit, "more-ms")
				b.ReportMetric(limit/ours, "x-forkexec")
				b.ReportMetric(1000/ours, "runs/s")
			})
		}
	}
}

// batch runs one thing eight times for each worker and returns how many milliseconds that took for each run.
func batch(b *testing.B, workers int, once func(i int) error) float64 {
	var all sync.WaitGroup
	errs := make([]error, workers)
	begun := time.Now()
	for w := range workers {
		all.Go(func() {
			for i := range 8 {
				if err := once(8*w + i); err != nil {
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	for _, err := range errs {
		must(b, err)
	}
	return float64(took.Microseconds()) / 1000 / float64(8*workers)
}
