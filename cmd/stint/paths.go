package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// xdg returns a directory of the XDG specification: the variable if that is an absolute path, else home/fallback.
func xdg(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usage("export HOME=/home/you", "cannot find your directories: %v", err)
	}
	return filepath.Join(home, fallback), nil
}

// expandHome replaces a leading ~/ by the home directory.
func expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, rest), err
}

// stateDir returns the absolute path of the state directory: the option, else
// $STINT_STATE_DIR, else $XDG_STATE_HOME/stint, else ~/.local/state/stint.
func stateDir(option string) (string, error) {
	if option == "" {
		option = os.Getenv("STINT_STATE_DIR")
		if option != "" && !filepath.IsAbs(option) { // it would be another one in each directory
			return "", usage("export STINT_STATE_DIR=/absolute/path", "STINT_STATE_DIR is %q, which is not an absolute path", option)
		}
	}
	if option == "" {
		base, err := xdg("XDG_STATE_HOME", ".local/state")
		return filepath.Join(base, "stint"), err
	}
	return filepath.Abs(option)
}

// configFile returns the path of config.toml and whether the user named it.
func configFile(option string) (path string, named bool, err error) {
	if option = cmp.Or(option, os.Getenv("STINT_CONFIG")); option != "" {
		path, err = filepath.Abs(option)
		return path, true, err
	}
	base, err := xdg("XDG_CONFIG_HOME", ".config")
	return filepath.Join(base, "stint", "config.toml"), false, err
}

// defaultSocket returns the socket of a state directory. It lies elsewhere: its path has only about 100 bytes.
func defaultSocket(state string) string {
	sum := sha256.Sum256([]byte(task.WithoutLinks(state)))
	name := hex.EncodeToString(sum[:8]) + ".sock"
	run := os.Getenv("XDG_RUNTIME_DIR")
	fi, err := os.Lstat(run)
	if err == nil && filepath.IsAbs(run) && len(run) < 70 && fi.IsDir() && ownedByUs(fi) && fi.Mode().Perm()&0o022 == 0 {
		return filepath.Join(run, "stint", name)
	}
	return filepath.Join(os.TempDir(), "stint-"+strconv.Itoa(os.Geteuid()), name)
}

// ownedByUs reports whether a file is the user's own.
func ownedByUs(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// readBeat returns what heartbeat.json says, or the file that is configured in its place.
func readBeat(state, heartbeat string) (beat struct {
	PID    int
	Socket string
	Time   time.Time
}, err error,
) {
	data, err := durable.ReadFile(durable.OS, cmp.Or(heartbeat, filepath.Join(state, "heartbeat.json")))
	if err == nil {
		err = json.Unmarshal(data, &beat)
	}
	return beat, err
}

// checkStateDir makes the state directory if it is missing, and refuses one that cannot be trusted or written.
func checkStateDir(dir string, warn io.Writer) error {
	try := "stint --state-dir ANOTHER ..., or export STINT_STATE_DIR=ANOTHER"
	fi, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := durable.MkdirAll(durable.OS, dir); err != nil {
			return &cliError{code: exitFailure, message: "cannot make the state directory", err: err, try: try}
		}
		return nil
	}
	switch {
	case err != nil:
		return &cliError{code: exitFailure, message: "cannot use the state directory", err: err, try: try}
	case !fi.IsDir():
		return usage(try, "the state directory %s is a file", dir)
	case !ownedByUs(fi):
		return usage(try, "the state directory %s belongs to another user, who could change your tasks", dir)
	}
	if mode := fi.Mode().Perm(); mode&0o077 != 0 {
		if !isStateDir(dir) {
			return usage("chmod 700 "+dir, "the state directory %s is open to others (mode %04o) and holds other files", dir, mode)
		}
		if err := os.Chmod(dir, durable.DirMode); err != nil {
			return &cliError{code: exitFailure, message: "cannot close the state directory to others", err: err, try: "chmod 700 " + dir}
		}
		_, _ = fmt.Fprintf(warn, "stint: the state directory %s was open to others (mode %04o); it is 0700 now\n", dir, mode)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &cliError{code: exitFailure, message: "cannot write to the state directory " + dir, err: err, try: try}
	}
	return nil
}

// isStateDir reports an empty directory, or one with a ledger and nothing of another user's, who might have it open still.
func isStateDir(dir string) bool {
	entries, err := os.ReadDir(dir)
	ledger := len(entries) == 0
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && !ownedByUs(fi) {
			return false
		}
		ledger = ledger || slices.Contains([]string{"tasks.md", "journal.md", "format"}, e.Name())
	}
	return err == nil && ledger
}

// warnPlace warns of a state directory where sandboxed agents can write, or where locks may not hold.
func warnPlace(dir string, warn io.Writer) {
	for _, tmp := range []string{"/tmp", os.TempDir()} {
		if task.IsBelow(dir, tmp) {
			_, _ = fmt.Fprintf(warn, "stint: warning: the state directory %s is below %s, which codex's sandbox may write\n", dir, tmp)
			break
		}
	}
	if name := durable.RemoteFS(dir); name != "" {
		_, _ = fmt.Fprintf(warn, "stint: warning: the state directory %s is on a file system of the kind %s, where locks and fsync may not hold: two masters may start, and a crash may lose tasks\n", dir, name)
	}
}

// checkOutside refuses a workspace that holds the state directory: its agent could write tasks of its own.
func checkOutside(state, workspace string) error {
	if !task.IsBelow(state, workspace) {
		return nil
	}
	return usage("stint task -C ANOTHER ..., or --allow-state-in-workspace",
		"the state directory %s lies inside the workspace %s, where the agent could write tasks of its own", state, workspace)
}
