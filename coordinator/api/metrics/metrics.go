// Package metrics writes what a master counts as text for Prometheus, in its exposition format 0.0.4.
// Counters start at 0 with the master, and no label has text that a user can choose without bound. Names,
// labels and help texts are pinned by testdata/metrics.txt: dashboards depend on them.
package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

// Text returns m, the figures of due jobs and those of this process, in the format that [ContentType] names.
func Text(m *task.Metrics, due *jobs.Metrics) []byte {
	e := &exposition{}
	e.family("stint_build_info", gauge, "The version of stint, as a label.")
	e.sample("stint_build_info", 1, "version", m.Version, "goversion", runtime.Version())
	e.queue(m)
	e.ends(m)

	e.one("stint_journal_size_bytes", gauge, "Size of journal.md.", float64(m.JournalSize))
	e.one("stint_ledger_findings", gauge, "What is wrong in the ledger: see stint fsck.", float64(m.Findings))
	e.one("stint_journal_failures_total", counter, "Writes to the journal of which nothing was kept.", float64(m.Failures))
	e.histogram("stint_journal_append_seconds", "How long a change waits until it is durable.", &m.Append)
	e.histogram("stint_journal_sync_seconds", "How long an fdatasync of the journal takes.", &m.Sync)
	e.histogram("stint_journal_records_per_sync", "Records that share an fdatasync.", &m.Commits)

	if mirror := m.Mirror; mirror != nil {
		e.one("stint_postgres_up", gauge, "1 while the mirror in PostgreSQL is written, 0 while its database cannot be used.", truth[mirror.State == task.MirrorFollowing || mirror.State == task.MirrorRebuilding])
		e.one("stint_postgres_lag_records", gauge, "Records of the journal that are not in the mirror.", float64(mirror.LagRecords))
		e.one("stint_postgres_lag_seconds", gauge, "How long the oldest of them has waited.", mirror.LagSeconds)
		e.one("stint_postgres_rows_total", counter, "Rows written to the mirror.", float64(mirror.Rows))
		e.one("stint_postgres_failures_total", counter, "Batches and connections of the mirror that failed.", float64(mirror.Failures))
	}

	if shared := m.Shared; shared != nil {
		e.one("stint_shared_up", gauge, "1 while the database of the shared queue answers in time, 0 while it does not, and nothing is known of the queue.", truth[shared.IsUp])
		if shared.IsUp {
			e.family("stint_shared_tasks", gauge, "Tasks in the shared queue, on all hosts, that have not ended, by status.")
			for _, status := range []string{"queued", "leased", "running"} {
				e.sample("stint_shared_tasks", float64(shared.Tasks[status]), "status", status)
			}
			e.one("stint_shared_oldest_seconds", gauge, "How long the task in the shared queue has been due that waits longest.", max(0, shared.Oldest.Seconds()))
			e.one("stint_shared_workers", gauge, "Workers that are registered in the shared queue.", float64(len(shared.Workers)))
		}
	}

	// The help texts have the names that document 003 has for the figures of due jobs.
	e.one("stint_jobs_due_count", gauge, "Due jobs that nobody has pulled yet (jobs_due_count).", float64(due.Due))
	e.one("stint_jobs_lag_seconds", gauge, "For how long the first of them has been due (jobs_lag_seconds).", due.LagSeconds)
	e.one("stint_job_success_rate", gauge, "Part of the jobs that ended which succeeded; 1 if none has ended (job_success_rate).", due.SuccessRate)
	e.one("stint_job_retry_rate", gauge, "Part of the jobs that were tried of which an attempt failed or was lost (job_retry_rate).", due.RetryRate)
	e.one("stint_dead_letter_count", gauge, "Jobs that have used their attempts up (dead_letter_count).", float64(due.DeadLetters))
	e.process(m.Start)
	return e.text
}

// queue adds what waits and runs, and what stands in its way.
func (e *exposition) queue(m *task.Metrics) {
	e.family("stint_tasks", gauge, "Tasks by status, without archived ones. The queue's depth is that of queued.")
	for _, status := range state.Statuses[:] {
		e.sample("stint_tasks", float64(m.Tasks[status]), "status", string(status))
	}
	e.one("stint_tasks_held", gauge, "Queued tasks that wait until somebody releases them.", float64(m.Held))
	e.one("stint_oldest_queued_age_seconds", gauge, "How long the task waits for its turn that waits longest. Held tasks do not, nor those before their time.", m.OldestWait.Seconds())
	e.one("stint_runs", gauge, "Tasks that run.", float64(m.Tasks[state.Running]))
	e.one("stint_max_workers", gauge, "Tasks that may run at the same time.", float64(m.MaxWorkers))
	e.one("stint_max_queued", gauge, "Tasks that may wait. 0: no bound.", float64(m.MaxQueued))
	e.one("stint_dispatch_paused", gauge, "1 while no tasks are started.", truth[m.Paused])
	e.family("stint_account_held", gauge, "1 while an account is on hold: somebody must fix it before its tasks start.")
	for _, a := range m.Accounts {
		e.sample("stint_account_held", truth[a.Held], "account", a.Name)
	}
	e.family("stint_account_cooling", gauge, "1 while an account waits for a rate limit to pass.")
	for _, a := range m.Accounts {
		e.sample("stint_account_cooling", truth[a.Cooling], "account", a.Name)
	}
}

// ends adds what has become of tasks and their runs, and what these have used.
func (e *exposition) ends(m *task.Metrics) {
	e.one("stint_tasks_added_total", counter, "Tasks that came in.", float64(m.Added))
	e.family("stint_task_outcomes_total", counter, "Tasks that ended, by status and class of the failure.")
	for _, end := range slices.SortedFunc(maps.Keys(m.Outcomes), func(a, b task.Ending) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Reason, b.Reason))
	}) {
		e.sample("stint_task_outcomes_total", float64(m.Outcomes[end]), "status", string(end.Status), "reason", cmp.Or(end.Reason, "none"))
	}
	e.family("stint_task_retries_total", counter, "Runs after which a task was queued again: attempt, the run failed; interrupted, by us; session, the agent's session was lost.")
	for _, kind := range []task.Retry{task.RetryAttempt, task.RetryInterrupted, task.RetrySession} {
		e.sample("stint_task_retries_total", float64(m.Retries[kind]), "kind", string(kind))
	}
	e.family("stint_rate_limits_total", counter, "Runs that met a rate limit.")
	for _, name := range slices.Sorted(maps.Keys(m.RateLimits)) {
		e.sample("stint_rate_limits_total", float64(m.RateLimits[name]), "account", name)
	}
	spenders := slices.SortedFunc(maps.Keys(m.Usage), func(a, b task.Spender) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Model, b.Model))
	})
	e.family("stint_tokens_total", counter, "Tokens of runs that have ended. Those of input include cached_input, those of output include reasoning.")
	for _, who := range spenders {
		u := m.Usage[who]
		for _, v := range []struct {
			kind   string
			tokens int64
		}{{"input", u.InputTokens}, {"cached_input", u.CachedInputTokens}, {"output", u.OutputTokens}, {"reasoning", u.ReasoningTokens}} {
			e.sample("stint_tokens_total", float64(v.tokens), "agent", who.Agent, "model", cmp.Or(who.Model, "default"), "kind", v.kind)
		}
	}
	e.family("stint_cost_usd_total", counter, "What the agents' CLIs say that these runs have cost, in US dollars.")
	for _, who := range spenders {
		e.sample("stint_cost_usd_total", m.Usage[who].CostUSD, "agent", who.Agent, "model", cmp.Or(who.Model, "default"))
	}
}

// An exposition is metrics as text in the format of Prometheus, version 0.0.4.
type exposition struct{ text []byte }

// ContentType is the content type of that format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// The kinds of metrics.
const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

// labelEscapes are those of the format for values of labels. Help texts, which are all above, need none.
var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// family begins the metrics of a name. All of them follow it.
func (e *exposition) family(name, kind, help string) {
	e.text = fmt.Appendf(e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample adds a value; labels are names and values in turn.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.text = append(e.text, name...)
	for i := 0; i < len(labels); i += 2 {
		e.text = append(e.text, "{,"[min(i, 1)])
		e.text = append(append(append(append(e.text, labels[i]...), `="`...), labelEscapes.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))...), '"')
	}
	if len(labels) > 0 {
		e.text = append(e.text, '}')
	}
	e.text = append(strconv.AppendFloat(append(e.text, ' '), value, 'f', -1, 64), '\n') // without exponent, for those who read it
}

func (e *exposition) one(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, value)
}

// histogram adds a family of a histogram's values.
func (e *exposition) histogram(name, help string, h *task.Histogram) {
	e.family(name, histogram, help)
	total := uint64(0)
	for i, n := range h.Counts {
		total += n
		bound := "+Inf"
		if i < len(h.Bounds) {
			bound = strconv.FormatFloat(h.Bounds[i], 'g', -1, 64)
		}
		e.sample(name+"_bucket", float64(total), "le", bound)
	}
	e.sample(name+"_sum", h.Sum)
	e.sample(name+"_count", float64(total))
}

// truth has the values of what is so or not.
var truth = map[bool]float64{true: 1}

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
	var memory runtime.MemStats // package runtime/metrics would cost each process a table, and this some microseconds now
	runtime.ReadMemStats(&memory)
	e.one("go_memstats_heap_alloc_bytes", gauge, "Memory of objects on the heap.", float64(memory.HeapAlloc))
	e.one("go_memstats_sys_bytes", gauge, "Memory that the runtime has from the system.", float64(memory.Sys))
	e.one("go_memstats_alloc_bytes_total", counter, "Memory that was allocated on the heap, freed or not.", float64(memory.TotalAlloc))
	e.one("go_gc_cycles_total", counter, "Garbage collections.", float64(memory.NumGC))
}
