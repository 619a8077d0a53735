package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// sizes are the numbers of tasks of a growth: those of STINT_BENCH_TASKS, or usual.
func sizes(b *testing.B, usual string) (list []int) {
	text := os.Getenv("STINT_BENCH_TASKS")
	if text == "" {
		text = usual
	}
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		must(b, err)
		list = append(list, n)
	}
	return list
}

// A growth has for each quantity its values at growing numbers of tasks.
type growth map[string][][2]float64

func (g growth) add(what string, n int, value float64) {
	g[what] = append(g[what], [2]float64{float64(n), value})
}

// report reports the largest value of each quantity, and the exponent with which it grows: the
// slope of the line through its values, both on logarithmic scales. 1 is in proportion, 0 is flat.
func (g growth) report(b *testing.B) {
	for what, points := range g {
		var n, x, y, xx, xy float64
		for _, p := range points {
			lx, ly := math.Log(p[0]), math.Log(p[1])
			n, x, y, xx, xy = n+1, x+lx, y+ly, xx+lx*lx, xy+lx*ly
		}
		for _, p := range points {
			b.ReportMetric(p[1], fmt.Sprintf("%s/%.0fk", what, p[0]/1000))
		}
		if len(points) > 1 {
			b.ReportMetric((n*xy-x*y)/(n*xx-x*x), what+"-exponent")
		}
	}
	b.ReportMetric(0, "ns/op") // all steps together say nothing
}

// BenchmarkGrowth is a master with 10,000, 100,000 and a million tasks that have ended (STINT_BENCH_TASKS has
// other numbers): how long it takes to start, from the text and after an orderly end, a submit, usage, a hand
// edit and a compaction take, and what disk and memory it needs. The target: no exponent above 1.05.
func BenchmarkGrowth(b *testing.B) {
	g := growth{}
	for range b.N {
		for _, tasks := range sizes(b, "10000,100000,1000000") {
			newGrowthWorld(b, tasks).grow(g)
			debug.FreeOSMemory()
		}
	}
	g.report(b)
}

// A growthWorld is a benchWorld with a ledger of some size.
type growthWorld struct {
	*benchWorld
	tasks int
	life  *life
}

func newGrowthWorld(b *testing.B, tasks int) *growthWorld {
	w := &growthWorld{newBenchWorld(b, "STINT_COMPACT_SIZE=0", "STINT_MAX_QUEUED=1000000"), tasks, nil}
	must(b, os.Mkdir(w.state, 0o700))
	must(b, os.WriteFile(filepath.Join(w.state, "tasks.md"), benchLedger(b, tasks), 0o600))
	return w
}

// start returns how long a start takes until the master answers.
func (w *growthWorld) start() float64 {
	begun := time.Now()
	w.life = w.serve()
	return millis(time.Since(begun))
}

func (w *growthWorld) stop(sig syscall.Signal) { w.end(w.life, sig) }

func (w *growthWorld) grow(g growth) {
	add := func(what string, value float64) { g.add(what, w.tasks, value) }
	w.start() // it writes the journal
	w.must2(w.command("pause").Output())
	w.stop(syscall.SIGKILL)
	add("start-text-ms", w.start())
	w.stop(syscall.SIGTERM)
	add("start-clean-ms", w.start())
	add("rss-MB", w.memory("VmRSS"))
	p50, p99 := w.submits(400)
	add("submit-p50-ms", p50)
	add("submit-p99-ms", p99)
	add("usage-ms", w.usage())
	w.resetPeak()
	before := w.memory("VmRSS")
	add("edit-ms", w.edit())
	add("edit-peak-MB", max(1, w.memory("VmHWM")-before))
	w.stop(syscall.SIGTERM)
	add("start-edited-ms", w.start())
	add("disk-KB", w.disk())
	w.resetPeak()
	before = w.memory("VmRSS")
	took, submits, worst := w.compact()
	add("compact-peak-MB", max(1, w.memory("VmHWM")-before))
	add("disk-compacted-KB", w.disk())
	add("compact-ms", took)
	add("compact-worst-submit-ms", worst)
	alone := time.Duration(0) // the longest of as many without it
	for range submits {
		alone = max(alone, w.submitOne())
	}
	add("compact-worst-alone-ms", millis(alone))
	w.stop(syscall.SIGTERM)
}

// memory returns a line of the master's /proc/PID/status, in megabytes.
func (w *growthWorld) memory(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.life.cmd.Process.Pid))
	must(w.B, err)
	_, rest, _ := strings.Cut(string(text), name+":")
	var kB float64
	w.must2(fmt.Sscan(rest, &kB))
	return kB / 1024
}

// resetPeak makes VmHWM count from now on.
func (w *growthWorld) resetPeak() {
	must(w.B, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.life.cmd.Process.Pid), []byte("5"), 0))
}

// disk returns how many kilobytes the state directory takes.
func (w *growthWorld) disk() (kB float64) {
	must(w.B, filepath.WalkDir(w.state, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			kB += float64(fi.Sys().(*syscall.Stat_t).Blocks) / 2
		}
		return err
	}))
	return kB
}

// submits returns the median and the 99th percentile of so many submits, one after the other.
func (w *growthWorld) submits(n int) (p50, p99 float64) {
	var took []time.Duration
	for range n {
		took = append(took, w.submitOne())
	}
	slices.Sort(took)
	return millis(took[n/2]), millis(took[n*99/100])
}

func (w *growthWorld) submitOne() time.Duration {
	begun := time.Now()
	_, err := w.client.Submit(context.Background(), task.TaskSpec{Prompt: "Fix the flaky login test.", Workspace: w.work, Agent: "demo", Parallel: true})
	must(w.B, err)
	return time.Since(begun)
}

// usage returns the median of what stint usage takes, as a process.
func (w *growthWorld) usage() float64 {
	var took []time.Duration
	for range 5 {
		begun := time.Now()
		w.must2(w.command("usage").Output())
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return millis(took[2])
}

// edit returns how long a label that was written into the middle of the ledger takes until the master knows it.
func (w *growthWorld) edit() float64 {
	path, id := filepath.Join(w.state, "tasks.md"), benchID(w.tasks/2)
	text, err := os.ReadFile(path)
	must(w.B, err)
	line := []byte("- sessionKey: ")
	at := bytes.Index(text, []byte("## Task "+id))
	at += bytes.Index(text[at:], line)
	text = slices.Concat(text[:at], []byte("- label: byhand\n"), text[at:])
	must(w.B, os.WriteFile(path+"~", text, 0o600))
	begun := time.Now()
	must(w.B, os.Rename(path+"~", path))
	if !poll(scriptDeadline, func() bool {
		view, err := w.client.Task(context.Background(), id)
		must(w.B, err)
		return view.Label == "byhand"
	}) {
		w.Fatal("the edit is not found")
	}
	return millis(time.Since(begun))
}

// compact returns how long a compaction takes, how many submits there were meanwhile, and the longest of them.
func (w *growthWorld) compact() (took float64, submits int, worst float64) {
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				worst = max(worst, millis(w.submitOne()))
				submits++
			}
		}
	})
	begun := time.Now()
	_, err := client.Fetch[wire.Compacted](context.Background(), w.client, "POST", "/v1/ledger/compact", wire.CompactBody{OlderThan: "1m"})
	took = millis(time.Since(begun))
	close(ended)
	all.Wait()
	must(w.B, err)
	return took, submits, worst
}

// BenchmarkWaiting is a master beside 10,000, 100,000 and 400,000 tasks that wait: a submit, and
// what the master does when it runs tasks of the demo agent that need nothing.
func BenchmarkWaiting(b *testing.B) {
	g := growth{}
	for range b.N {
		for _, tasks := range sizes(b, "10000,100000,400000") {
			w := newGrowthWorld(b, 1)
			w.env = append(w.env, "STINT_MAX_WORKERS=8", "STINT_MAX_QUEUED="+strconv.Itoa(tasks+10_000))
			w.start()
			w.must2(w.command("pause").Output())
			for left := tasks; left > 0; left -= 10_000 {
				w.must2(w.client.SubmitAll(context.Background(), slices.Repeat([]task.TaskSpec{
					{Prompt: "Fix the flaky login test.", Workspace: w.work, Agent: "demo", Parallel: true},
				}, min(left, 10_000))))
			}
			p50, p99 := w.submits(200)
			g.add("submit-p50-ms", tasks, p50)
			g.add("submit-p99-ms", tasks, p99)
			g.add("ms-a-run", tasks, w.runTime(200))
			g.add("rss-MB", tasks, w.memory("VmRSS"))
		}
	}
	g.report(b)
}

// runTime returns the milliseconds between two ends of runs, over n of them.
func (w *growthWorld) runTime(n int) float64 {
	ended := func() int {
		h, err := w.client.Health(context.Background())
		must(w.B, err)
		return h.Counts[state.Done]
	}
	w.must2(w.command("resume").Output())
	defer func() { w.must2(w.command("pause").Output()) }()
	first, begun := ended(), time.Now()
	if !poll(scriptDeadline, func() bool { return ended() >= first+n }) {
		w.Fatal("the tasks do not run")
	}
	return millis(time.Since(begun)) / float64(ended()-first)
}
