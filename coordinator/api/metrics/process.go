package metrics

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// process adds what is known of the process that began then, by the names that
// Prometheus' own libraries use. What a system does not tell is left out.
func (e *exposition) process(start time.Time) {
	e.one("process_start_time_seconds", gauge, "When the master began, as Unix time.", float64(start.UnixMilli())/1e3)
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
		e.one("process_cpu_seconds_total", counter, "CPU time of the master, without its agents.", cpu.Seconds())
	}
	var virtual, resident float64 // pages
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if _, err := fmt.Sscan(string(text), &virtual, &resident); err == nil {
			page := float64(os.Getpagesize())
			e.one("process_virtual_memory_bytes", gauge, "Virtual memory of the master.", virtual*page)
			e.one("process_resident_memory_bytes", gauge, "Memory of the master.", resident*page)
		}
	}
	if open, err := os.ReadDir("/dev/fd"); err == nil {
		e.one("process_open_fds", gauge, "Files that the master has open.", float64(len(open)-1)) // one was to read that
	}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		e.one("process_max_fds", gauge, "Files that the master may have open.", float64(files.Cur))
	}
	e.family("go_info", gauge, "The version of Go that the master was built with.")
	e.sample("go_info", 1, "version", runtime.Version())
	e.one("go_goroutines", gauge, "Goroutines.", float64(runtime.NumGoroutine()))
	// What the runtime tells of its memory without stopping the program.
	families := []struct{ source, name, kind, help string }{
		{"/memory/classes/heap/objects:bytes", "go_memstats_heap_alloc_bytes", gauge, "Memory of objects on the heap."},
		{"/memory/classes/total:bytes", "go_memstats_sys_bytes", gauge, "Memory that the runtime has from the system."},
		{"/gc/heap/allocs:bytes", "go_memstats_alloc_bytes_total", counter, "Memory that was allocated on the heap, freed or not."},
		{"/gc/cycles/total:gc-cycles", "go_gc_cycles_total", counter, "Garbage collections."},
	}
	samples := make([]metrics.Sample, len(families))
	for i, f := range families {
		samples[i].Name = f.source
	}
	metrics.Read(samples)
	for i, f := range families {
		if v := samples[i].Value; v.Kind() == metrics.KindUint64 {
			e.one(f.name, f.kind, f.help, float64(v.Uint64()))
		}
	}
}
