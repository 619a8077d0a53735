package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

func recoverSoon(t testing.TB, turn task.Turn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Recover(ctx, turn.RunDir, turn.RunID)
}

// A tree is hard to end, and long at work.
const (
	orphan    = starting + "setsid sleep 3600 & echo; sleep 1000"
	stubborn  = "trap '' TERM; " + orphan
	overNotUp = starting + "setsid sleep 3600 & echo over; sleep 1000"
)

// A master that dies at any point of the protocol leaves nothing that a restart
// could not end, and before its record is on disk no agent is ever started.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		job    masterJob
		await  string
		agents int
	}{
		{"before the record", masterJob{Before: true, Script: starting}, "at the point", 0},
		{"before the start", masterJob{After: true, Script: starting}, "at the point", 0},
		{"in the run", masterJob{Script: stubborn}, "it prints", 1},
		{"in the run, without a cgroup", masterJob{NoCgroup: true, Script: stubborn}, "it prints", 1},
		{"after the turn", masterJob{Script: overNotUp}, "it prints", 1},
		{"after the end", masterJob{Script: starting}, "end", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.job.Turn = b.Turn("")
			master, lines := b.startMaster(c.job)
			await(t, lines, c.await)
			must(t, master.Process.Kill())
			must(t, recoverSoon(t, c.job.Turn))
			wantGone(t, c.job.Turn)
			if n := b.starts(c.job.Turn); n != c.agents {
				t.Errorf("%d agents were started", n)
			}
			if _, err := readRecord(c.job.Turn.RunDir); (err == nil) == c.job.Before {
				t.Errorf("the record: %v", err)
			}
		})
	}
}

// Without anybody's help the gate ends its run when the master is killed.
func TestGateEndsWithTheMaster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.Turn("")
	master, lines := b.startMaster(masterJob{Turn: turn, Script: stubborn})
	await(t, lines, "it prints")
	must(t, master.Process.Kill())
	eventually(t, "all of the run gone", func() bool { return len(marked(t, turn.RunID)) == 0 })
	wantGone(t, turn)
}

// Master and gate killed together: the cgroup ends the rest, and where there is none the environment marker
// finds it. A gate that does not answer is ended, after what is below it.
func TestMasterAndGateDie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		without bool
		signal  syscall.Signal
	}{{false, syscall.SIGKILL}, {true, syscall.SIGKILL}, {false, syscall.SIGSTOP}} {
		b := newBench(t)
		turn := b.Turn("")
		master, lines := b.startMaster(masterJob{Turn: turn, NoCgroup: c.without, Script: stubborn})
		await(t, lines, "it prints")
		eventually(t, "the gate, the agent and its orphan", func() bool { return len(marked(t, turn.RunID)) >= 3 })
		rec, err := readRecord(turn.RunDir)
		must(t, err)
		must(t, master.Process.Signal(syscall.SIGSTOP)) // so that it does not clean up
		must(t, syscall.Kill(rec.GatePID, c.signal))
		must(t, master.Process.Kill())
		began := time.Now()
		must(t, recoverSoon(t, turn))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		wantGone(t, turn)
	}
}

// sleeper starts a process that is no part of a run, and ends it with the test.
func (b *bench) sleeper(attr *syscall.SysProcAttr) hold.Proc {
	b.T.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = attr
	must(b.T, cmd.Start())
	b.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := hold.ReadProc(cmd.Process.Pid)
	must(b.T, err)
	return p
}

// fakeRun writes the files of a run whose gate is some other process.
func (b *bench) fakeRun(change func(*runRecord)) (task.Turn, hold.Proc) {
	b.T.Helper()
	turn, p := b.Turn(""), b.sleeper(nil)
	boot, err := hold.BootID()
	must(b.T, err)
	rec := runRecord{RunID: turn.RunID, GatePID: p.PID, GateStart: p.Start, BootID: boot}
	change(&rec)
	data, err := json.Marshal(rec)
	must(b.T, err)
	must(b.T, os.WriteFile(filepath.Join(turn.RunDir, lockName), append(data, '\n'), 0o600))
	return turn, p
}

// wantAlive checks whether a sleeper lives.
func wantAlive(t *testing.T, p hold.Proc, want bool) {
	t.Helper()
	if now, err := hold.ReadProc(p.PID); err != nil || now.Dead == want {
		t.Errorf("process %d: %+v, %v", p.PID, now, err)
	}
}

// A pid that was given out again is a stranger's, and so is one of another boot.
func TestRecoverSparesStrangers(t *testing.T) {
	b := newBench(t)
	for _, change := range []func(*runRecord){
		func(r *runRecord) { r.GateStart += "1" },
		func(r *runRecord) { r.BootID = "another" },
	} {
		turn, p := b.fakeRun(change)
		must(t, os.WriteFile(filepath.Join(turn.RunDir, lockName), fmt.Appendf(nil, "%s%d 1\n", Read(t, turn.RunDir, lockName), p.PID), 0o600))
		must(t, recoverSoon(t, turn))
		wantAlive(t, p, true)
	}
}

// An agent writes through what it has of the lock, and names a stranger as itself.
func TestAgentNamesAStranger(t *testing.T) {
	b := newBench(t)
	p := b.sleeper(&syscall.SysProcAttr{Setpgid: true})
	turn := b.Turn("")
	r, _ := b.run(turn, fmt.Sprintf("echo %d %s >&3", p.PID, p.Start))
	must(t, recoverSoon(t, turn))
	wantAlive(t, p, true)
	_, mark, _ := strings.Cut(Read(t, turn.RunDir, lockName), "\n")
	if pid, _, _ := strings.Cut(mark, " "); r.End.Exit != 1 || atoi(pid) <= 0 || atoi(pid) == p.PID {
		t.Errorf("ended: %+v; the lock has %q", r, mark)
	}
}

// What holds the lock and cannot be identified is not guessed at.
func TestRecoverHeldLock(t *testing.T) {
	b := newBench(t)
	turn, _ := b.fakeRun(func(r *runRecord) { r.GatePID, r.GateStart = 1<<30, "1" })
	lock, _, err := takeLock(filepath.Join(turn.RunDir, lockName))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Recover(ctx, turn.RunDir, turn.RunID); err == nil || !strings.Contains(err.Error(), "cannot be identified") {
		t.Errorf("Recover gives %v", err)
	}
	must(t, lock.Close())
	must(t, recoverSoon(t, turn))
}

// A run that was never started is dead, and so is one whose record has not all of its bytes, because the power was
// cut before they were on the disk: as where it was removed, nothing is found by the run's mark.
func TestRecoverWithoutARecord(t *testing.T) {
	b := newBench(t)
	turn := b.Turn("")
	must(t, recoverSoon(t, turn))
	for _, lost := range []string{"", "\x00\x00\x00", "{", "{\"runId\":\"\x00\x00"} {
		for _, name := range []string{lockName, recordName} {
			must(t, os.WriteFile(filepath.Join(turn.RunDir, name), []byte(lost), 0o600))
			must(t, recoverSoon(t, turn))
		}
	}
	turn.RunDir = filepath.Join(b.Dir, "no such run")
	must(t, recoverSoon(t, turn))
}

// TestRecoverOfAnEarlierVersion: what a gate and its master of any version leave on disk is
// understood: these are the names and the forms that they have used.
func TestRecoverOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	boot, err := hold.BootID()
	must(t, err)
	for _, names := range [][]string{{"run.json", "lock"}, {"lock", "lock"}} {
		gate, agent, turn := b.sleeper(nil), b.sleeper(&syscall.SysProcAttr{Setpgid: true}), b.Turn("")
		lines := []string{
			fmt.Sprintf("{\"runId\":%q,\"gatePid\":%d,\"gateStart\":%q,\"bootId\":%q,\"more\":1}\n", turn.RunID, gate.PID, gate.Start, boot),
			fmt.Sprintf("%d %s\n", agent.PID, agent.Start),
		}
		for i, name := range names {
			f, err := os.OpenFile(filepath.Join(turn.RunDir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			must(t, err)
			_, err = f.WriteString(lines[i])
			must(t, errors.Join(err, f.Close()))
		}
		must(t, recoverSoon(t, turn))
		wantAlive(t, gate, false)
		wantAlive(t, agent, false)
	}
}

// TestOneAtATimeGate: a task never has two agents, not even after kill -9 of the master at any moment. After
// each kill the next master recovers and starts the task again at once: a process of the run before, at that
// moment, would be the second agent.
func TestOneAtATimeGate(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	b := newBench(t)
	const rounds, each = 25, 5 // in each 5th round the agent is at work for sure
	rng := rand.New(rand.NewPCG(1, 2))
	var before task.Turn
	var slowest time.Duration
	for i := range rounds {
		text := orphan
		if i%10 == 0 {
			text = stubborn // takes the whole grace
		}
		turn := b.Turn("")
		master, _ := b.startMaster(masterJob{Turn: turn, NoCgroup: i%2 == 1, Script: text})
		if i%each == 0 {
			eventually(t, "an agent at work", func() bool { return b.starts(turn) > 0 })
		}
		pause := time.NewTimer(time.Duration(rng.IntN(30)) * time.Millisecond)
		<-pause.C
		must(t, master.Process.Kill())
		began := time.Now()
		must(t, recoverSoon(t, turn))
		slowest = max(slowest, time.Since(began))
		if left := marked(t, turn.RunID); len(left) > 0 {
			t.Fatalf("proved dead, and alive: %v", left)
		}
		if _, err := os.Stat(string(hold.PlanCgroup(turn.RunID))); err == nil {
			t.Fatal("proved dead, and its cgroup is there")
		}
		before = turn
	}
	wantGone(t, before)
	seen := b.started()
	slices.Sort(seen)
	if once := slices.Compact(slices.Clone(seen)); len(once) < len(seen) {
		t.Errorf("a run had two agents: %q", seen)
	}
	t.Logf("%d of %d masters got as far as an agent; slowest recovery %v", len(seen), rounds, slowest)
	if slowest > 10*time.Second {
		t.Error("a recovery takes too long")
	}
	if len(seen) < rounds/each {
		t.Errorf("only %d masters had an agent when they were killed", len(seen))
	}
}

// TestNobodyIsOfNoRun: a run without an id has no processes; above all not all those that have no mark.
func TestNobodyIsOfNoRun(t *testing.T) {
	if _, below, err := (&runRecord{}).living(); len(below) > 0 || err != nil {
		t.Errorf("%v, %v", below, err)
	}
}
