package agent

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// An animal is one kind of hostile agent: a script for bash that speaks the test agent's
// events.
type animal struct {
	name   string
	script string
	class  state.Class // what the run comes to; "" is success
	stop   bool        // it must be stopped from outside
	inside bool        // it is told to leave or use its cgroup: nothing of it is found without one
}

// words begin every script. T is a number that is in the command line of all
// processes of the run, also of those that have given up everything else.
const words = `
begin() { echo '{"type":"thread.started","thread_id":"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"}'; echo '{"type":"turn.started"}'; }
say() { echo '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"done"}}'; }
over() { echo '{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1,"reasoning_output_tokens":0}}'; }
win() { begin; say; over; exit 0; }
nap() { exec sleep 1000 $T; }
bare() { exec 0<&- 1>&- 2>&- 3>&-; exec env -i setsid sleep 1000 $T; }
big() { head -c 104857600 /dev/zero | tr '\0' x; }
hide() { for p in 1 2 3; do (setsid bash -c "sleep 1000 $T & sleep 1000 $T" &); done; }
`

// zoo are the kinds. $G is the gate's pid, $RUN the run's directory, $OUT the
// master's own cgroup and $CG the run's.
var zoo = []animal{
	{name: "ignores SIGTERM", script: `trap '' TERM HUP INT; begin; (trap '' TERM; while :; do sleep 1 $T; done) & while :; do sleep 1 $T; done`, stop: true, class: state.ClassTimeout},
	{name: "has more children when told to end", script: `trap 'hide; hide' TERM; begin; while :; do sleep 0.01; done`, stop: true, class: state.ClassTimeout},
	{name: "double fork", script: `(setsid bash -c "sleep 1000 $T & sleep 1000 $T" &); win`},
	{name: "sessions of their own", script: `for i in 1 2 3 4; do setsid sleep 1000 $T & done; win`},
	{name: "clears the environment", script: `env -i setsid sleep 1000 $T & win`},
	{name: "closes all descriptors", script: `(bare) & win`},
	{name: "holds the pipes open", script: `setsid bash -c "while :; do echo x; echo y >&2; sleep 0.01; done; $T" & win`},
	{name: "100 MiB of output", script: `begin; big | fold -w 4096; echo; say; over`},
	{name: "100 MiB on stderr", script: `begin; big >&2; say; over`},
	{name: "one line of 100 MiB", script: `begin; printf '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"'; big; echo '"}}'; say; over`},
	{name: "one line of 100 MiB that is no event", script: `begin; big; echo; say; over`},
	{name: "binary", script: `head -c 1000000 /dev/urandom; echo; begin; head -c 1000000 /dev/urandom >&2; say; head -c 1000 /dev/zero; echo; over`},
	{name: "no answer", script: `begin; over; exit 0`, class: state.ClassOutputMissing},
	{name: "says nothing at all", script: `exec 1>&- 2>&-; nap`, stop: true, class: state.ClassTimeout},
	{name: "hangs after success", script: `hide; begin; say; over; nap`},
	{name: "kills itself", script: `hide; begin; kill -KILL $$`, class: state.ClassStalled},
	{name: "stops itself", script: `begin; hide; kill -STOP $$; win`, stop: true, class: state.ClassTimeout},
	{name: "respawns", script: `watch() { while :; do sleep 0.01 $T & wait; (setsid bash -c "sleep 0.02 $T" &) ; done; }; for i in 1 2 3 4 5; do watch & done; win`},
	{name: "runs away", script: `next() { env -i setsid bash -c "sleep 0.001 $T; $(declare -f next); T=$T; next &" >/dev/null 2>&1; }; next & sleep 0.05; win`},
	{name: "fork storm of another user", script: storm},
	{name: "asks the gate to end", script: `hide; begin; kill -TERM $G; nap`, class: state.ClassStalled},
	{name: "stops the gate", script: `hide; begin; kill -STOP $G; nap`, stop: true, class: state.ClassTimeout},
	{name: "kills the gate", script: `hide; begin; kill -KILL $G; nap`, class: state.ClassInterrupted},
	{name: "kills the gate after success", script: `hide; begin; say; over; kill -KILL $G; nap`},
	{name: "deletes the run's files and kills the gate", script: `hide; begin; rm -f $RUN/run.json $RUN/lock; kill -KILL $G; nap`, class: state.ClassInterrupted},
	{name: "says that it is of another boot and kills the gate", script: `hide; begin; echo '{"bootId":"x"}' >$RUN/run.json; kill -KILL $G; nap`, class: state.ClassInterrupted},
	{name: "leaves its cgroup", script: `echo $$ >$OUT/cgroup.procs || exit 9; (bare) & hide; win`, inside: true},
	{name: "hides in a frozen cgroup", script: `mkdir $CG/a $CG/a/b || exit 9; (echo $BASHPID >$CG/a/b/cgroup.procs; nap) & sleep 0.05; echo 1 >$CG/a/cgroup.freeze; win`, inside: true},
	{name: "kills the gate and gives up everything", script: `begin; (bare) & sleep 0.05; kill -KILL $G; nap`, inside: true, class: state.ClassInterrupted},
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
	t    *testing.T
	b    *bench
	once sync.Mutex // guards the making of turns

	mu        sync.Mutex
	survivors int
}

// TestPromise8Zoo lets hostile agents run, each kind in turn, with a cgroup and
// without, four at a time, and looks right after each run for what is left of it.
// STINT_TEST_ZOO sets the number of runs.
func TestPromise8Zoo(t *testing.T) {
	kinds := animals(t)
	runs := len(kinds)
	if s := os.Getenv("STINT_TEST_ZOO"); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		runs = n
	}
	k := newKeeper(t)
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

// TestPromise8EightBigOutputs: eight agents that write 100 MiB each at the same
// time do not make the master big.
func TestPromise8EightBigOutputs(t *testing.T) {
	var big []*animal
	for i := range zoo {
		if strings.Contains(zoo[i].name, "100 MiB") {
			big = append(big, &zoo[i])
		}
	}
	const atOnce = 8
	k := newKeeper(t)
	before := fromSystem()
	var runs sync.WaitGroup
	for i := range atOnce {
		runs.Go(func() { k.visit(i, big[i%len(big)]) })
	}
	runs.Wait()
	growth := (fromSystem() - before) / atOnce
	t.Logf("outputs: agents=%d mib=100 survivors=%d growth=%dKiB", atOnce, k.survivors, growth)
	if growth > 10<<10 { // a tenth of what each writes: the race detector multiplies what little there is
		t.Error("the master grows with what its agents write")
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

// newKeeper makes a keeper who has done one visit, so that what is made once is
// there.
func newKeeper(t *testing.T) *keeper {
	k := &keeper{t: t, b: newBench(t)}
	k.b.agent.HangGrace = 50 * time.Millisecond
	k.visit(-1, &animal{name: "none", script: "win"})
	return k
}

// visit carries out run i and compares what it comes to.
func (k *keeper) visit(i int, a *animal) {
	k.t.Helper()
	turn := k.turn()
	agent := *k.b.agent
	agent.NoCgroup = (i+i/len(zoo))%2 == 1 && !a.inside
	cg := planCgroup(turn.RunID)
	token := fmt.Sprintf("0.0000%d%09d", os.Getpid(), i+1)
	script := fmt.Sprintf("T=%s; G=$PPID; RUN=%s; OUT=%s; CG=%s; %s%s", token, turn.RunDir, ownCgroup(), cg, words, a.script)
	agent.Program = []string{"/bin/bash", "-c", script, "bash"}
	ctx, stop := context.WithCancelCause(k.t.Context())
	defer stop(nil)
	if a.stop {
		time.AfterFunc(300*time.Millisecond, func() { stop(task.ErrTimeout) })
	}
	out := agent.Run(ctx, turn, func(task.Event) {})
	left := k.left(turn, token, cg)
	if out.Class != a.class || (out.Class == "") != (out.Result == "done") {
		k.t.Errorf("%s (no cgroup: %v): %+v", a.name, agent.NoCgroup, out)
	}
	if left != "" {
		k.t.Errorf("%s (no cgroup: %v) leaves: %s", a.name, agent.NoCgroup, left)
	}
	must(k.t, os.RemoveAll(turn.RunDir))
}

func (k *keeper) turn() task.Turn {
	k.once.Lock()
	defer k.once.Unlock()
	turn := k.b.turn("")
	turn.Limits.Grace = 200 * time.Millisecond
	return turn
}

// left returns what is alive of a run: by its mark in the environment, by the number
// in the command line, or by its cgroup; and counts it.
func (k *keeper) left(turn task.Turn, token string, cg cgroup) string {
	var found []string
	for _, p := range lives(k.t, turn.RunID) {
		found = append(found, fmt.Sprintf("%d has the mark", p.pid))
	}
	for pid, cmd := range orphans(k.t) {
		if strings.Contains(cmd, token) {
			found = append(found, fmt.Sprintf("%d is %q", pid, cmd))
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
	all, err := listProcs()
	must(k.t, err)
	for _, p := range descendants(all, os.Getpid()) {
		if p.dead {
			n++
		}
	}
	return n
}

// canCgroup reports whether cgroups can be made here.
func canCgroup(t testing.TB) bool {
	t.Helper()
	cg := planCgroup(fmt.Sprintf("try-%d-%d", os.Getpid(), time.Now().UnixNano()))
	dir, err := cg.make()
	if err != nil {
		return false
	}
	must(t, dir.Close())
	must(t, cg.remove())
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

// fromSystem returns in KiB the most that this program has had of the system, but
// for the race detector's own part.
func fromSystem() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.Sys >> 10)
}
