package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
)

func recoverSoon(t testing.TB, turn task.Turn) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	return Recover(ctx, turn.RunDir, turn.RunID)
}

// agentsOf returns how often the test agent was started for a run.
func (b *bench) agentsOf(turn task.Turn) int {
	n := 0
	for _, e := range b.log() {
		if e.Run == turn.RunID && e.Event == "start" {
			n++
		}
	}
	return n
}

// A master that dies at any point of the protocol leaves nothing that a restart
// could not end, and before run.json is on disk no agent is ever started.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		job    masterJob
		prompt string
		await  string
		agents int
	}{
		{"before run.json", masterJob{Before: true}, "hello", "at the point", 0},
		{"before the start", masterJob{After: true}, "hello", "at the point", 0},
		{"in the run", masterJob{}, "do:orphan do:ignore-term do:hang", "session", 1},
		{"in the run, without a cgroup", masterJob{NoCgroup: true}, "do:orphan do:ignore-term do:hang", "session", 1},
		{"after the turn", masterJob{}, "do:orphan do:hang-after", "session", 1},
		{"after the end", masterJob{}, "hello", "end", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.job.Turn = b.turn(c.prompt)
			master, lines := b.startMaster(c.job)
			await(t, lines, c.await)
			must(t, master.Process.Kill())
			must(t, recoverSoon(t, c.job.Turn))
			wantGone(t, c.job.Turn)
			if n := b.agentsOf(c.job.Turn); n != c.agents {
				t.Errorf("%d agents were started", n)
			}
			_, err := os.Stat(filepath.Join(c.job.Turn.RunDir, recordName))
			if (err == nil) == c.job.Before {
				t.Errorf("run.json: %v", err)
			}
		})
	}
}

// Without anybody's help the gate ends its run when the master is killed.
func TestGateEndsWithTheMaster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.turn("do:orphan do:ignore-term do:hang")
	master, lines := b.startMaster(masterJob{Turn: turn})
	await(t, lines, "session")
	must(t, master.Process.Kill())
	eventually(t, "all of the run gone", func() bool { return len(lives(t, turn.RunID)) == 0 })
	wantGone(t, turn)
}

// Master and gate killed together: the cgroup ends the rest, and where there is
// none the environment marker finds it.
func TestMasterAndGateDie(t *testing.T) {
	for _, without := range []bool{false, true} {
		b := newBench(t)
		turn := b.turn("do:orphan do:ignore-term do:hang")
		master, lines := b.startMaster(masterJob{Turn: turn, NoCgroup: without})
		session := strings.TrimPrefix(await(t, lines, "session"), "session ")
		eventually(t, "the gate, the agent and its orphan", func() bool { return len(lives(t, turn.RunID)) == 3 })
		rec, err := readRecord(turn.RunDir)
		must(t, err)
		must(t, master.Process.Signal(syscall.SIGSTOP)) // so that it does not clean up
		must(t, syscall.Kill(rec.GatePID, syscall.SIGKILL))
		must(t, master.Process.Kill())
		must(t, recoverSoon(t, turn))
		wantGone(t, turn)
		if got, _ := FindSession(turn.RunDir, newTestDecoder); got != session {
			t.Errorf("FindSession gives %q, not %q", got, session)
		}
	}
}

// A gate that does not answer is ended, after what is below it.
func TestGateHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.turn("do:orphan do:hang")
	master, lines := b.startMaster(masterJob{Turn: turn})
	await(t, lines, "session")
	rec, err := readRecord(turn.RunDir)
	must(t, err)
	must(t, syscall.Kill(rec.GatePID, syscall.SIGSTOP))
	must(t, master.Process.Kill())
	began := time.Now()
	must(t, recoverSoon(t, turn))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	wantGone(t, turn)
}

// fakeRun writes the files of a run whose gate is some other process.
func (b *bench) fakeRun(change func(*runRecord)) (task.Turn, *exec.Cmd) {
	b.t.Helper()
	turn := b.turn("")
	cmd := exec.Command("/bin/sleep", "1000")
	must(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := readProc(cmd.Process.Pid)
	must(b.t, err)
	boot, err := bootID()
	must(b.t, err)
	rec := runRecord{RunID: turn.RunID, GatePID: p.pid, GateStart: p.start, BootID: boot}
	change(&rec)
	data, err := json.Marshal(rec)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(turn.RunDir, recordName), data, 0o600))
	return turn, cmd
}

func wantAlive(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if p, err := readProc(cmd.Process.Pid); err != nil || p.dead {
		t.Errorf("a stranger was killed: %+v, %v", p, err)
	}
}

// A pid that was given out again is a stranger's.
func TestRecoverSparesStrangers(t *testing.T) {
	b := newBench(t)
	turn, cmd := b.fakeRun(func(r *runRecord) { r.GateStart += "1" })
	mark := strconv.Itoa(cmd.Process.Pid) + " 1\n"
	must(t, os.WriteFile(filepath.Join(turn.RunDir, lockName), []byte(mark), 0o600))
	must(t, recoverSoon(t, turn))
	wantAlive(t, cmd)
}

// An agent writes through what it has of the lock, and names a stranger as itself.
func TestAgentNamesAStranger(t *testing.T) {
	b := newBench(t)
	stranger := exec.Command("/bin/sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, stranger.Start())
	defer func() { _, _ = stranger.Process.Kill(), stranger.Wait() }()
	p, err := readProc(stranger.Process.Pid)
	must(t, err)
	turn := b.turn("")
	e := b.shell(t.Context(), turn, fmt.Sprintf("echo %d %s >&3", p.pid, p.start))
	must(t, recoverSoon(t, turn))
	wantAlive(t, stranger)
	mark, err := os.ReadFile(filepath.Join(turn.RunDir, lockName))
	must(t, err)
	if pid, _, _ := strings.Cut(string(mark), " "); e.end.Exit != 1 || atoi(pid) <= 0 || atoi(pid) == p.pid {
		t.Errorf("ended: %+v; the lock has %q", e, mark)
	}
}

func TestRecoverOtherBoot(t *testing.T) {
	b := newBench(t)
	turn, cmd := b.fakeRun(func(r *runRecord) { r.BootID = "another" })
	must(t, recoverSoon(t, turn))
	wantAlive(t, cmd)
}

// What holds the lock and cannot be identified is not guessed at.
func TestRecoverHeldLock(t *testing.T) {
	b := newBench(t)
	turn, _ := b.fakeRun(func(r *runRecord) { r.GatePID, r.GateStart = 1<<30, "1" })
	lock, err := takeLock(filepath.Join(turn.RunDir, lockName))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Recover(ctx, turn.RunDir, turn.RunID); err == nil || !strings.Contains(err.Error(), "cannot be identified") {
		t.Errorf("Recover gives %v", err)
	}
	must(t, lock.Close())
	must(t, recoverSoon(t, turn))
}

func TestRecoverDamagedRecord(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	must(t, os.WriteFile(filepath.Join(turn.RunDir, recordName), []byte("{"), 0o600))
	if err := recoverSoon(t, turn); err == nil || !strings.Contains(err.Error(), recordName) {
		t.Errorf("Recover gives %v", err)
	}
}

func TestRecoverNeverStarted(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	must(t, recoverSoon(t, turn))
	turn.RunDir = filepath.Join(b.dir, "no such run")
	must(t, recoverSoon(t, turn))
}

// TestOneAtATimeGate: a task never has two agents, not even after kill -9 of the
// master at any moment. After each kill the next master recovers and starts the
// task again at once: a process of the run before, at that moment, would be the
// second agent.
func TestOneAtATimeGate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const rounds, each = 25, 5 // in each 5th round the agent is at work for sure
	rng := rand.New(rand.NewPCG(1, 2))
	var before task.Turn
	var slowest time.Duration
	for i := range rounds {
		prompt := "do:orphan do:hang"
		if i%10 == 0 {
			prompt = "do:ignore-term " + prompt // takes the whole grace
		}
		turn := b.turn(prompt)
		master, _ := b.startMaster(masterJob{Turn: turn, NoCgroup: i%2 == 1})
		if i%each == 0 {
			eventually(t, "an agent at work", func() bool { return b.agentsOf(turn) > 0 })
		}
		pause := time.NewTimer(time.Duration(rng.IntN(30)) * time.Millisecond)
		<-pause.C
		must(t, master.Process.Kill())
		began := time.Now()
		must(t, recoverSoon(t, turn))
		slowest = max(slowest, time.Since(began))
		if left := lives(t, turn.RunID); len(left) > 0 {
			t.Fatalf("proved dead, and alive: %v", left)
		}
		if _, err := os.Stat(string(planCgroup(turn.RunID))); err == nil {
			t.Fatal("proved dead, and its cgroup is there")
		}
		before = turn
	}
	wantGone(t, before)
	seen := map[string]bool{}
	for _, e := range b.log() {
		if e.Event == "start" && seen[e.Run] {
			t.Errorf("run %s had two agents", e.Run)
		}
		seen[e.Run] = true
	}
	t.Logf("%d of %d masters got as far as an agent; slowest recovery %v", len(seen), rounds, slowest)
	if slowest > 5*time.Second {
		t.Error("a recovery takes too long")
	}
	if len(seen) < rounds/each {
		t.Errorf("only %d masters had an agent when they were killed", len(seen))
	}
}
