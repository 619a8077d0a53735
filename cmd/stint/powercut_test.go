package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/statedir"
)

// A disk is a kind of file system whose power is cut.
type disk struct {
	name  string
	size  int64    // of the image; xfs wants 300 MiB
	mkfs  []string // makes it
	mount string   // mount options
}

var disks = []disk{
	{"ext4", 64 << 20, []string{"mkfs.ext4", "-q", "-F"}, "loop"},
	{"ext4-noauto_da_alloc", 64 << 20, []string{"mkfs.ext4", "-q", "-F"}, "loop,noauto_da_alloc,commit=1"},
	{"xfs", 320 << 20, []string{"mkfs.xfs", "-q", "-f"}, "loop"},
}

// perDisk is how many power cuts one file system goes through.
const perDisk = 6

// TestPromise1PowerCuts cuts the power of real file systems while masters, clients, agents and editors write:
// all writers are stopped, the image is copied as it is at that moment, without what the kernel has not
// written yet, and a new master must find everything in the copy that was acknowledged. Then work goes on in
// the copy. STINT_TEST_POWERCUTS sets the number of cuts, over all kinds of file system; STINT_TEST_SEED
// repeats their moments.
func TestPromise1PowerCuts(t *testing.T) {
	t.Parallel()
	cuts := (envInt(t, "STINT_TEST_POWERCUTS", 3) + len(disks) - 1) / len(disks)
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	needLoopDevices(t)
	t.Logf("seed %d, %d cuts of each of %d kinds of file system", seed, cuts, len(disks))
	done, lost, mended, line := 0, 0, 0, ""
	for i, d := range disks {
		needProgram(t, d.mkfs[0])
		here := 0
		for round := 0; here < cuts; round++ {
			if !t.Run(fmt.Sprint(d.name, "/", round), func(t *testing.T) {
				w := newCutWorld(t, d, uint64(seed+1000*i+round))
				defer func() { lost, mended = lost+w.lost, mended+w.mended }()
				for n := 0; n < perDisk && here < cuts && !t.Failed(); n++ {
					w.cut((round+n)%2 == 1)
					here++
				}
			}) {
				t.Fatalf("power cuts: %s after %d of %d, lost=%d seed=%d", d.name, here, cuts, lost, seed)
			}
		}
		done += here
		line += fmt.Sprintf(" %s=%d", d.name, here)
	}
	t.Logf("powercuts: all=%d%s lost=%d mended=%d seed=%d", done, line, lost, mended, seed)
}

// needLoopDevices skips the test where images cannot be mounted.
func needLoopDevices(t *testing.T) {
	t.Helper()
	notShort(t)
	why := ""
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		why = "there are no loop devices"
	} else if !mayMount() {
		why = "mounting is not allowed"
	}
	if why != "" {
		missing(t, "no power was cut: "+why)
	}
}

// A cutWorld is a world whose state directory is on a disk of its own.
type cutWorld struct {
	*world
	disk  disk
	rand  *rand.Rand
	image string // what is mounted
	next  string // where its copy goes
	mnt   string

	mended int // cuts that left NUL bytes in tasks.md
}

func newCutWorld(t *testing.T, d disk, seed uint64) *cutWorld {
	t.Helper()
	base, err := os.MkdirTemp(shm(), "stint-cut-")
	must(t, err)
	w := &cutWorld{disk: d, rand: rand.New(rand.NewPCG(seed, 2)), image: filepath.Join(base, "a"), next: filepath.Join(base, "b"), mnt: filepath.Join(base, "mnt")}
	t.Cleanup(func() {
		check(t, os.RemoveAll(base))
	})
	f, err := os.Create(w.image)
	must(t, err)
	must(t, errors.Join(f.Truncate(d.size), f.Close(), os.Mkdir(w.mnt, 0o700)))
	w.world = newWorld(t, seed, "STINT_STATE_DIR="+filepath.Join(w.mnt, "state"))
	w.command(append(d.mkfs, w.image)...)
	w.mount()
	t.Cleanup(func() { w.unmount() })
	return w
}

// shm returns a directory in memory for the images, if there is one.
func shm() string {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func (w *cutWorld) command(argv ...string) {
	w.t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// mount mounts the image; its loop device goes with the mount.
func (w *cutWorld) mount() {
	w.t.Helper()
	w.command("mount", "-o", w.disk.mount, w.image, w.mnt)
}

// unmount ends the mount, when the last process there is gone; also on failure.
func (w *cutWorld) unmount() {
	w.t.Helper()
	if !w.mounted() {
		return
	}
	var out []byte
	var err error
	if !poll(scriptDeadline, func() bool { out, err = exec.Command("umount", w.mnt).CombinedOutput(); return err == nil }) {
		w.t.Errorf("umount: %v: %s%s", err, out, exec.Command("umount", "-l", w.mnt).Run())
	}
}

func (w *cutWorld) mounted() bool {
	mounts, err := os.ReadFile("/proc/self/mounts")
	return err == nil && strings.Contains(string(mounts), " "+w.mnt+" ")
}

// cut lets all of them write, stops them at a random moment, copies the disk,
// recovers from the copy, and goes on with it.
func (w *cutWorld) cut(editors bool) {
	w.t.Helper()
	l := w.start()
	ctx, stop := l.during()
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { w.submitter(ctx, l, i) })
	}
	if editors {
		writers.Go(func() { w.editor(ctx, l) })
	}
	time.Sleep(time.Duration(w.rand.IntN(400)) * time.Millisecond) // the random moment
	thaw := w.freeze(l)
	w.copy()
	kept := w.acknowledged()
	w.end(l, syscall.SIGKILL)
	thaw()
	stop()
	writers.Wait()
	must(w.t, w.script().noAgents(scriptDeadline))
	w.forget(kept)
	w.unmount()
	w.image, w.next = w.next, w.image
	w.mount()
	w.mend()
	w.audit()
}

// mend does what a person can do when a power cut has left NUL bytes in tasks.md,
// where neither we nor an editor had synced yet what was written: stint fsck
// --repair, which has the journal's records for those that are damaged. ext4 has such a tail after one cut in three, because the sync of the
// journal makes the length of the other file durable, too. Until then all tasks must be there as well.
func (w *cutWorld) mend() {
	w.t.Helper()
	path := filepath.Join(w.state, "tasks.md")
	text, err := os.ReadFile(path)
	if err != nil || bytes.IndexByte(text, 0) < 0 {
		return
	}
	w.recover()
	if text, err = os.ReadFile(path); err != nil {
		w.t.Fatal(err)
	}
	journal := get(w.t, filepath.Join(w.state, "journal.md"))
	text, _ = statedir.RepairLedger(path, text, journal)
	must(w.t, os.WriteFile(path, text, 0o600))
	w.mended++
}

// submitter submits tasks until the master's end.
func (w *cutWorld) submitter(ctx context.Context, l *life, n int) {
	if !w.connect(ctx) {
		return
	}
	for i := 0; ctx.Err() == nil && i < 8; i++ {
		w.ask(ctx, fmt.Sprint("s", n), fmt.Sprintf("demo:sleep=%dms", 5*i))
	}
}

// connect waits until a master answers.
func (w *cutWorld) connect(ctx context.Context) bool {
	answers := false
	poll(scriptDeadline, func() bool {
		_, err := w.client.Health(ctx)
		answers = err == nil
		return answers || ctx.Err() != nil
	})
	return answers
}

// editor saves tasks.md, by a new file and in place, without any sync, and
// compacts it now and then. What it adds is kept once the master shows it.
func (w *cutWorld) editor(ctx context.Context, l *life) {
	if !w.connect(ctx) {
		return
	}
	path := filepath.Join(w.state, "tasks.md")
	for i := 0; ctx.Err() == nil; i++ {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		id, section := w.byHand()
		text = append(text, section...)
		switch i % 3 {
		case 0:
			err = errors.Join(os.WriteFile(path+"~", text, 0o600), os.Rename(path+"~", path))
		case 1:
			err = os.WriteFile(path, text, 0o600)
		case 2:
			err = appendTo(path, section)
			w.compact(ctx)
		}
		if err == nil && w.awaitTask(ctx, id, func(*wire.TaskView) bool { return true }) {
			w.keep(id)
		}
	}
}

// freeze stops the master and all that its runs have started, and waits until the master has stopped: threads
// that are inside a system call end that first. (A gate may not stop, if it waits for a process that was
// stopped while it was being made.) thaw lets what is left of the runs go on.
func (w *cutWorld) freeze(l *life) (thaw func()) {
	w.t.Helper()
	pids := []int{l.cmd.Process.Pid}
	signal := func(pids []int, sig syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	signal(pids, syscall.SIGSTOP)
	for _, line := range w.script().agents() {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			w.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	thaw = sync.OnceFunc(func() { signal(pids[1:], syscall.SIGCONT) }) // once: a pid may be another's later
	w.t.Cleanup(thaw)
	signal(pids, syscall.SIGSTOP)
	if !poll(scriptDeadline, func() bool { return allStopped(pids[0]) }) {
		w.t.Fatal("the master does not stop")
	}
	return thaw
}

// allStopped reports whether no thread of a process is on a processor or in a call.
func allStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // none: it has ended
	for _, stat := range threads {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // that thread has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if rest != "" && !strings.ContainsAny(rest[:1], "TtZX") {
			return false
		}
	}
	return true
}

// copy copies the image as it was at one moment: the kernel itself may write
// while it is copied, and then the copy is made again.
func (w *cutWorld) copy() {
	w.t.Helper()
	for range 50 {
		w.command("cp", "--sparse=always", w.image, w.next)
		if exec.Command("cmp", "-s", w.image, w.next).Run() == nil {
			return
		}
	}
	w.t.Fatal("the disk does not come to rest")
}

// acknowledged returns what clients were told before the power was cut: the master
// has been stopped, so nothing is told any more.
func (w *cutWorld) acknowledged() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := map[string]bool{}
	for id, wish := range w.wishes {
		kept[id] = wish.acked
	}
	return kept
}

// forget takes back what was acknowledged after the power was cut: nobody was
// told that in the world of the copy.
func (w *cutWorld) forget(kept map[string]bool) {
	for id, wish := range w.wishes {
		wish.acked = kept[id]
	}
}
