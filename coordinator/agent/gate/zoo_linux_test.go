package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// An animal is one kind of hostile agent: a script for bash.
type animal struct {
	name   string
	script string
	how    string // the run ends; "" is well
	stop   bool   // it must be stopped from outside
	inside bool   // it is told to leave or use its cgroup: nothing of it is found without one
}

// words begin every script. T is a number that is in the command line of all
// processes of the run, also of those that have given up everything else.
const words = `
over() { echo over; }
win() { over; exit 0; }
nap() { exec sleep 1000 $T; }
bare() { exec 0<&- 1>&- 2>&- 3>&-; exec env -i setsid sleep 1000 $T; }
big() { head -c 104857600 /dev/zero | tr '\0' x; }
hide() { for p in 1 2 3; do (setsid bash -c "sleep 1000 $T & sleep 1000 $T" &); done; }
`

// zoo are the kinds. $G is the gate's pid, $RUN the run's directory, $OUT the
// master's own cgroup and $CG the run's.
var zoo = []animal{
	{name: "ignores SIGTERM", script: `trap '' TERM HUP INT; (trap '' TERM; while :; do sleep 1 $T; done) & while :; do sleep 1 $T; done`, stop: true, how: "timeout"},
	{name: "has more children when told to end", script: `trap 'hide; hide' TERM; while :; do sleep 0.01; done`, stop: true, how: "timeout"},
	{name: "double fork", script: `(setsid bash -c "sleep 1000 $T & sleep 1000 $T" &); win`},
	{name: "sessions of their own", script: `for i in 1 2 3 4; do setsid sleep 1000 $T & done; win`},
	{name: "clears the environment", script: `env -i setsid sleep 1000 $T & win`},
	{name: "closes all descriptors", script: `(bare) & win`},
	{name: "holds the pipes open", script: `setsid bash -c "while :; do echo x; echo y >&2; sleep 0.01; done; $T" & win`},
	{name: "100 MiB of output", script: `big | fold -w 4096; echo; over`},
	{name: "100 MiB on stderr", script: `big >&2; over`},
	{name: "one line of 100 MiB", script: `big; echo; over`},
	{name: "binary", script: `head -c 1000000 /dev/urandom; echo; head -c 1000000 /dev/urandom >&2; head -c 1000 /dev/zero; echo; over`},
	{name: "says nothing at all", script: `exec 1>&- 2>&-; nap`, stop: true, how: "timeout"},
	{name: "hangs after success", script: `hide; over; nap`},
	{name: "kills itself", script: `hide; kill -KILL $$`, how: "signal"},
	{name: "stops itself", script: `hide; kill -STOP $$; win`, stop: true, how: "timeout"},
	{name: "nohup", script: `nohup sleep 1000 $T >/dev/null 2>&1 & win`},
	{name: "stopped in a session of its own", script: `setsid bash -c "kill -STOP \$\$; $T" & sleep 0.1; win`},
	{name: "many", script: `for i in $(seq 40); do setsid sleep 1000 $T & done; win`},
	{name: "tells the gate to end, and does not", script: `trap '' TERM; setsid sleep 1000 $T & kill -TERM $G; sleep 1000 $T`, how: "signal"},
	{name: "respawns", script: `watch() { while :; do sleep 0.01 $T & wait; (setsid bash -c "sleep 0.02 $T" &) ; done; }; for i in 1 2 3 4 5; do watch & done; win`},
	{name: "runs away", script: `next() { env -i setsid bash -c "sleep 0.001 $T; $(declare -f next); T=$T; next &" >/dev/null 2>&1; }; next & sleep 0.05; win`},
	{name: "fork storm of another user", script: storm},
	{name: "asks the gate to end", script: `hide; kill -TERM $G; nap`, how: "signal"},
	{name: "stops the gate", script: `hide; kill -STOP $G; nap`, stop: true, how: "timeout"},
	{name: "kills the gate", script: `hide; kill -KILL $G; nap`, how: "lost"},
	{name: "kills the gate after success", script: `hide; over; kill -KILL $G; nap`},
	{name: "deletes the run's files and kills the gate", script: `hide; rm -f $RUN/lock; kill -KILL $G; nap`, how: "lost"},
	{name: "says that it is of another boot and kills the gate", script: `hide; echo '{"bootId":"x"}' >$RUN/lock; kill -KILL $G; nap`, how: "lost"},
	{name: "leaves its cgroup", script: `echo $$ >$OUT/cgroup.procs || exit 9; (bare) & hide; win`, inside: true},
	{name: "hides in a frozen cgroup", script: `mkdir $CG/a $CG/a/b || exit 9; (echo $BASHPID >$CG/a/b/cgroup.procs; nap) & sleep 0.05; echo 1 >$CG/a/cgroup.freeze; win`, inside: true},
	{name: "kills the gate and gives up everything", script: `(bare) & sleep 0.05; kill -KILL $G; nap`, inside: true, how: "lost"},
}

// storm forks as fast as it can. The limit of processes is one of its user, whom
// nobody else is; root has none, and who is not root cannot change the user.
const storm = `
f() { f & f & wait; }
fast="ulimit -u 120; T=$T; $(declare -f f); f"
if [ $(id -u) = 0 ]; then setsid setpriv --reuid $((100000 + $$)) --clear-groups bash -c "$fast" 2>/dev/null &
else g() { [ $1 = 0 ] && nap; g $(($1 - 1)) & g $(($1 - 1)); }; g 6 & fi
sleep 0.2; win`

// A keeper runs the animals and counts what it finds wrong.
type keeper struct {
	*bench
	mu        sync.Mutex
	survivors int
}

// TestPromise8Zoo lets hostile agents run, each kind in turn, with a cgroup and without, four at a time, and
// looks right after each run for what is left of it. STINT_TEST_ZOO sets the number of runs.
func TestPromise8Zoo(t *testing.T) {
	kinds := animals(t)
	runs := len(kinds)
	if s := os.Getenv("STINT_TEST_ZOO"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		runs = n
	}
	k := &keeper{bench: newBench(t)}
	k.HangGrace = 50 * time.Millisecond
	k.visit(-1, &animal{name: "none", script: "win"}) // so that what is made once is there
	before := resident(t)
	work := make(chan int)
	var keepers sync.WaitGroup
	for range 4 {
		keepers.Go(func() {
			for i := range work {
				k.visit(i, &kinds[i%len(kinds)])
			}
		})
	}
	for i := range runs {
		work <- i
	}
	close(work)
	keepers.Wait()
	growth := max(resident(t)-before, 0) / runs
	zombies := k.zombies()
	t.Logf("zoo: runs=%d kinds=%d survivors=%d zombies=%d growth=%dKiB", runs, min(runs, len(kinds)), k.survivors, zombies, growth)
	if k.survivors > 0 || zombies > 0 || growth > 1<<10 {
		t.Error("something is left behind")
	}
}

// animals returns the kinds that can be kept here: without cgroups, which CI must
// have, not those that are told to leave or use theirs.
func animals(t *testing.T) []animal {
	if canCgroup(t) {
		return zoo
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no cgroup can be made here")
	}
	return slices.DeleteFunc(slices.Clone(zoo), func(a animal) bool { return a.inside })
}

// visit carries out run i and compares what it comes to.
func (k *keeper) visit(i int, a *animal) {
	k.mu.Lock()
	turn := k.Turn("")
	k.mu.Unlock()
	turn.Limits.Grace = 200 * time.Millisecond
	v := k.Supervisor
	v.NoCgroup = (i+i/len(zoo))%2 == 1 && !a.inside
	cg := hold.PlanCgroup(turn.RunID)
	token := fmt.Sprintf("0.0000%d%09d", os.Getpid(), i+1)
	ctx, stop := context.WithCancelCause(k.T.Context())
	defer stop(nil)
	if a.stop {
		time.AfterFunc(300*time.Millisecond, func() { stop(task.ErrTimeout) })
	}
	e := &ears{}
	r := v.Supervise(ctx, script(turn, fmt.Sprintf("T=%s; G=$PPID; RUN=%s; OUT=%s; CG=%s; %s%s", token, turn.RunDir, hold.OwnCgroup(), cg, words, a.script)), e)
	left := k.left(turn, token, cg)
	how := ""
	switch {
	case e.Finished(): // well, whatever comes then
	case errors.Is(r.Cause, task.ErrTimeout):
		how = "timeout"
	case r.Lost:
		how = "lost"
	case r.End.Signal != 0:
		how = "signal"
	default:
		how = "in some other way"
	}
	if how != a.how {
		k.T.Errorf("%s (no cgroup: %v) has ended %q: %+v", a.name, v.NoCgroup, how, r)
	}
	if left != "" {
		k.T.Errorf("%s (no cgroup: %v) leaves: %s", a.name, v.NoCgroup, left)
	}
	must(k.T, os.RemoveAll(turn.RunDir))
}

// left returns what is alive of a run: by its mark in the environment, by the number
// in the command line, or by its cgroup; and counts it.
func (k *keeper) left(turn task.Turn, token string, cg hold.Cgroup) string {
	var found []string
	for _, pid := range marked(k.T, turn.RunID) {
		found = append(found, pid+" has the mark")
	}
	all, err := hold.ListProcs()
	must(k.T, err)
	for _, p := range hold.Alive(all) {
		if cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)); err == nil && strings.Contains(string(cmd), token) {
			found = append(found, fmt.Sprintf("%d is %q", p.PID, cmd))
		}
	}
	if _, err := os.Stat(string(cg)); cg != "" && err == nil {
		found = append(found, "the cgroup is there")
	}
	k.mu.Lock()
	k.survivors += len(found)
	k.mu.Unlock()
	return strings.Join(found, "; ")
}

// zombies counts the children of this process that nobody has reaped.
func (k *keeper) zombies() (n int) {
	all, err := hold.ListProcs()
	must(k.T, err)
	for _, p := range hold.Descendants(all, os.Getpid()) {
		if p.Dead {
			n++
		}
	}
	return n
}

// needCgroup skips a test where no cgroup can be made; CI must be able to.
func needCgroup(t testing.TB) {
	t.Helper()
	if !canCgroup(t) {
		Missing(t, "no cgroup can be made here")
	}
}

// canCgroup reports whether cgroups can be made here.
func canCgroup(t testing.TB) bool {
	t.Helper()
	cg := hold.PlanCgroup(fmt.Sprintf("try-%d-%d", os.Getpid(), time.Now().UnixNano()))
	dir, err := cg.Make()
	if err != nil {
		return false
	}
	must(t, dir.Close())
	must(t, cg.Remove())
	return true
}

// resident returns the memory of this process in KiB.
func resident(t testing.TB) int {
	t.Helper()
	runtime.GC()
	data, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	must(t, err)
	return pages * os.Getpagesize() >> 10
}
