package gate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// readProc looks a process up; errGone when there is none of that pid.
func readProc(pid int) (proc, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return proc{}, errGone
	}
	if err != nil {
		return proc{}, err
	}
	return parseStat(pid, data)
}

// parseStat reads /proc/<pid>/stat. The second field is the program's name in
// parentheses, which may itself hold blanks and parentheses: only what follows
// the last one counts. Of the rest the first field is number 3.
func parseStat(pid int, data []byte) (proc, error) {
	end := bytes.LastIndexByte(data, ')')
	f := strings.Fields(string(data[end+1:]))
	if end < 0 || len(f) < 20 {
		return proc{}, fmt.Errorf("/proc/%d/stat cannot be understood", pid)
	}
	ppid, err1 := strconv.Atoi(f[1])
	pgid, err2 := strconv.Atoi(f[2])
	if err := errors.Join(err1, err2); err != nil {
		return proc{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	dead := f[0] == "Z" || f[0] == "X"
	return proc{pid: pid, ppid: ppid, pgid: pgid, start: f[19], dead: dead}, nil
}

// listProcs returns every process that this one can see.
func listProcs() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	all := make([]proc, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		p, err := readProc(pid)
		if err == nil {
			all = append(all, p)
		} else if !errors.Is(err, errGone) {
			return nil, err
		}
	}
	return all, nil
}

// markedProcs returns the living processes whose environment, as it was when
// their program started, holds entry ("KEY=VALUE"). Processes of other users
// cannot be looked into and are passed over.
func markedProcs(entry string) ([]proc, error) {
	all, err := listProcs()
	if err != nil {
		return nil, err
	}
	var found []proc
	for _, p := range alive(all) {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err == nil && bytes.Contains(slices.Concat([]byte{0}, env, []byte{0}), []byte("\x00"+entry+"\x00")) {
			found = append(found, p)
		}
	}
	return found, nil
}

// readMark returns the run that a process is part of by its environment, as it was when its
// program started; "" if it names none.
func readMark(pid int) (run string, err error) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(EnvRunID+"=")); ok {
			run = string(value)
		}
	}
	return run, err
}

// signalProc signals that process and no other: the pid is pinned by a pidfd
// before its start time is compared, so that it cannot be given to another
// process in between. A process that has ended is no error.
func signalProc(p proc, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil { // a kernel before 5.3, or a filter: the check alone must do
		return signalChecked(p, func() error { return syscall.Kill(p.pid, sig) })
	}
	err = signalChecked(p, func() error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	return errors.Join(err, unix.Close(fd))
}

// bootID names the time since the machine was started: pids and start times of
// another boot mean nothing.
func bootID() (string, error) {
	data, err := bootFile()
	return strings.TrimSpace(string(data)), err
}

var bootFile = readOnce("/proc/sys/kernel/random/boot_id")
