package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"stint/coordinator/api/client"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/ledger/lock"
	"stint/state"
)

// TestMain makes the test binary the program too: it is stint when it is called by that name, and when it is
// called through /proc/PID/exe, as a master calls itself for gates and demo agents.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "exe" {
		main()
	}
	if filepath.Base(os.Args[0]) != "stint" {
		_ = os.Setenv("STINT_HTTP", "off")           // masters of tests would take the port from each other
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second under -race
		_ = flag.Set("test.parallel", "8")           // most tests wait for other processes; -parallel still counts
	}
	testscript.Main(allTests{m}, map[string]func(){"stint": main})
}

// allTests are the tests, and at last a line about those that were left out.
type allTests struct{ *testing.M }

func (m allTests) Run() int {
	code := m.M.Run()
	endChromium()
	if run := flag.Lookup("test.run"); code == 0 && run.Value.String() == "" && os.Getenv("CI") != "true" {
		reportLeftOut()
	}
	return code
}

// reportLeftOut writes what this machine lacks for all tests, of any package, and how to run
// them. go test shows nothing of what a test writes that passes, so the line goes to its
// own stderr where there is a /proc to find that in.
func reportLeftOut() {
	var without []string
	has := func(what, variable string, programs ...string) {
		_, set := os.LookupEnv(variable)
		if !set && !slices.ContainsFunc(programs, func(name string) bool { _, err := exec.LookPath(name); return err == nil }) {
			without = append(without, what)
		}
	}
	for _, c := range realCLIs {
		has(c.name, "STINT_TEST_"+strings.ToUpper(c.name), c.name)
	}
	servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	has("PostgreSQL", "", append(servers, "initdb")...)
	has("Chromium", "STINT_TEST_CHROMIUM", chromiumNames...)
	has("strace", "", "strace")
	has("iproute2", "", "ip")
	has("curl", "", "curl")
	has("ripgrep", "", "rg")
	has("nano", "", "nano")
	has("vim", "", "vim")
	has("systemd-analyze", "", "systemd-analyze")
	has("OpenAPI generators", "STINT_TEST_REDOCLY")
	has("formatters of Markdown", "STINT_TEST_PRETTIER")
	if os.Geteuid() != 0 {
		without = append(without, "root")
	}
	if testing.Short() {
		without = append(without, "patience (-short)")
	}
	line := "left out: what needs " + strings.Join(without, ", ") + "; counted tests ran in small numbers. All of them, with what they need: .ci/run\n"
	out, parent := os.Stderr, fmt.Sprint("/proc/", os.Getppid())
	if name, err := os.ReadFile(parent + "/comm"); err == nil && string(name) == "go\n" && !testing.Verbose() {
		if f, err := os.OpenFile(parent+"/fd/2", os.O_WRONLY|os.O_APPEND, 0); err == nil {
			defer func() { _ = f.Close() }() // it is only a word of advice
			out = f
		}
	}
	_, _ = io.WriteString(out, line)
}

// TestScript runs testdata/script: each file documents one thing by showing it.
//
// A script begins in the empty directory $WORK/ws, which is the workspace of its tasks. The state directory
// is $STATE, $EXAMPLES that of the examples; $NONCE is a number that no other script has, by which it knows
// its processes. The agent is the built-in demo, unless the script's name begins with codex_, claude_ or
// gemini_ (or with several, joined by +): then it is the real one, in front of a model server of ours (see
// modelServer). After every script its master is stopped, nothing may be left of its runs, and the ledger
// must give the same tasks as the journal; see endOfScript.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		Setup:              setupScript,
		Cmds:               scriptCommands,
		Condition:          scriptCondition,
		RequireUniqueNames: true,
		Deadline:           time.Now().Add(40 * time.Minute), // of all scripts together: for what hangs
	})
}

// scriptCondition knows [root], [curl]: whether curl and jq are here, [sshd]: whether OpenSSH's server is, and lets this
// user log in, [mount]: whether this process may mount, [fuse]: whether it may do so with bindfs, and [strangers]:
// whether STINT_TEST_STRANGERS asks for all of them.
func scriptCondition(name string) (bool, error) {
	switch name {
	case "strangers":
		return os.Getenv("STINT_TEST_STRANGERS") != "", nil
	case "curl":
		_, curl := exec.LookPath("curl")
		_, jq := exec.LookPath("jq")
		return inCI(name, curl == nil && jq == nil)
	case "sshd":
		err := exec.Command("sh", "-ec", `case $(getent passwd "$(id -u)") in */nologin|*/false) exit 1 ;; esac; test -x /usr/sbin/sshd`).Run()
		return inCI(name, err == nil)
	case "root":
		return inCI(name, os.Geteuid() == 0)
	case "mount":
		return inCI(name, mayMount())
	case "fuse":
		return inCI(name, mayBind())
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// inCI makes a condition that does not hold an error in CI, which skips nothing.
func inCI(name string, holds bool) (bool, error) {
	if !holds && os.Getenv("CI") == "true" {
		return false, fmt.Errorf("CI cannot run what needs [%s]", name)
	}
	return holds, nil
}

// mayMount and mayBind try to mount something, once: a file system, and one by FUSE.
var (
	mayMount = tryMount("mount", "-t", "tmpfs", "none")
	mayBind  = tryMount("bindfs", os.TempDir())
)

func tryMount(argv ...string) func() bool {
	return sync.OnceValue(func() bool {
		dir, err := os.MkdirTemp("", "mount")
		if err != nil {
			return false
		}
		defer func() { _ = os.Remove(dir) }() // in the temporary directory
		return exec.Command(argv[0], append(argv[1:], dir)...).Run() == nil && exec.Command("umount", dir).Run() == nil
	})
}

// A scriptState is what the commands of one script share.
type scriptState struct {
	name  string
	state string       // its state directory
	model *modelServer // of scripts with a real agent
	tests testing.TB

	unlike string // why the ledger is not to be compared with the journal

	postgres *postgrestest.Server // of its own, or nil
}

// scriptStateKey finds it in testscript's values.
type scriptStateKey struct{}

// quickScripts are those that run with -short.
var quickScripts = strings.Fields("bad_flags cancel config_show demo doctor edit_set exit_codes hand_edit_live hold idempotency ls_filters task_basic task_detached version why")

func setupScript(env *testscript.Env) error {
	name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	if testing.Short() && os.Getenv("CI") != "true" && !slices.Contains(quickScripts, name) {
		env.T().Skip("not with -short")
	}
	s := &scriptState{
		name:  name,
		state: filepath.Join(env.WorkDir, "state"),
		tests: env.T().(testing.TB),
	}
	env.Values[scriptStateKey{}] = s
	env.Cd = filepath.Join(env.WorkDir, "ws")
	for _, dir := range []string{"ws", "home", "config/stint"} {
		if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o700); err != nil {
			return err
		}
	}
	examples, err := filepath.Abs(examplesDir)
	if err != nil {
		return err
	}
	clis := scriptCLIs(s.name)
	if err := s.moveState(env, clis); err != nil {
		return err
	}
	run, err := os.MkdirTemp("", "s") // short, as a socket's path must be
	if err != nil {
		return err
	}
	env.Defer(func() {
		endOfScript(s)
		endOtherMasters(s, env.WorkDir)
		if err := os.RemoveAll(run); err != nil {
			s.tests.Error(err)
		}
	})
	for name, value := range map[string]string{
		"HOME":            filepath.Join(env.WorkDir, "home"),
		"XDG_CONFIG_HOME": filepath.Join(env.WorkDir, "config"),
		"XDG_STATE_HOME":  filepath.Join(env.WorkDir, "home/state"),
		"XDG_RUNTIME_DIR": run,
		"STINT_STATE_DIR": s.state,
		"STATE":           s.state,
		"HOMES":           filepath.Join(env.WorkDir, "home/.local/share/stint/homes"), // of accounts
		"EXAMPLES":        examples,
		"CONFIG":          filepath.Join(env.WorkDir, "config/stint/config.toml"),
		"NONCE":           strings.TrimPrefix(filepath.Base(run), "s"),
		"TZ":              "UTC",
		"NO_COLOR":        "1",
		"TERM":            "xterm",
		"STINT_HTTP":      "off", // scripts would take the port from each other
		"GORACE":          os.Getenv("GORACE"),
		"PATH":            withoutCLIs(env.Getenv("PATH")),
		"GOCACHE":         goCache(), // go is not to compile its own packages anew
	} {
		env.Setenv(name, value)
	}
	for _, c := range clis {
		if err := s.setupCLI(env, c); err != nil {
			return err
		}
	}
	return nil
}

// goCache returns the directory of go's own cache.
func goCache() string {
	if dir := os.Getenv("GOCACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // go says so
	}
	return filepath.Join(dir, "go-build")
}

// skipper is what testing.T and testscript.T share.
type skipper interface {
	Fatal(args ...any)
	Skip(args ...any)
}

// missing ends a test for which something is not to be had: it is skipped, but in
// CI, which skips nothing, it fails.
func missing(t skipper, why string) {
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// TestTenTraps runs testdata/traps: in each of its scripts the real codex, claude or gemini does what is most
// likely to bite those who run it, and stint is not bitten. They are scripts like those of [TestScript].
func TestTenTraps(t *testing.T) {
	const dir = "testdata/traps"
	if files, err := filepath.Glob(filepath.Join(dir, "*.txtar")); err != nil || len(files) != 10 {
		t.Fatalf("%d traps, %v; want 10", len(files), err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                dir,
		Setup:              setupScript,
		Cmds:               scriptCommands,
		Condition:          scriptCondition,
		RequireUniqueNames: true,
		Deadline:           time.Now().Add(20 * time.Minute), // for what hangs
	})
}

// endOfScript stops the script's master and checks what must hold after every script.
func endOfScript(s *scriptState) {
	s.tests.Helper()
	live, settled := s.liveState()
	if isAlive(lock.Holder(s.state)) {
		if err := s.end(syscall.SIGTERM, 20*time.Second); err != nil && isAlive(lock.Holder(s.state)) { // it may end by itself
			s.tests.Error(errors.Join(err, s.end(syscall.SIGKILL, 20*time.Second)))
		}
	}
	if err := s.noAgents(10 * time.Second); err != nil {
		s.tests.Error(err)
	}
	if err := s.noRace(); err != nil {
		s.tests.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.state, "journal.md")); err != nil || s.unlike != "" {
		return
	}
	if err := fsckIsClean(s.state); err != nil {
		s.tests.Error(err)
	}
	if settled {
		s.compareWithRefold(live)
	}
}

// endOtherMasters ends the masters of other state directories that a script has used.
func endOtherMasters(s *scriptState, workDir string) {
	s.tests.Helper()
	_ = filepath.WalkDir(workDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "heartbeat.json" || !d.Type().IsRegular() {
			return nil // what cannot be read was closed by the script, and a FIFO has no writer
		}
		other := &scriptState{state: filepath.Dir(path)}
		if other.master().PID == 0 {
			return nil
		}
		if err := other.end(syscall.SIGTERM, 20*time.Second); err != nil {
			s.tests.Error(err)
		}
		return nil
	})
}

// fsckIsClean checks a state directory as `stint fsck` does, when no master is at work: it has
// no faults, and tasks.md has all that the journal has.
func fsckIsClean(dir string) error {
	r, err := statedir.Fsck(context.Background(), dir, "/w", func() bool { return false })
	if err != nil {
		return fmt.Errorf("fsck: %w", err)
	}
	for _, f := range r.Faults {
		err = errors.Join(err, fmt.Errorf("fsck: %s (%s)", f, f.Kind))
	}
	for _, note := range r.Notes {
		if strings.Contains(note, "are missing; a master") {
			err = errors.Join(err, errors.New("fsck: "+note))
		}
	}
	return err
}

// liveState asks the running master for its whole state. settled says that all tasks have ended: only then
// nothing changes between this question and the master's end.
func (s *scriptState) liveState() (live []byte, settled bool) {
	h := s.master()
	if h.PID == 0 || h.Socket == "" {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := client.Dial(h.Socket)
	defer client.Close()
	tasks, err := client.List(ctx, state.Filter{})
	if err != nil {
		return nil, false // it is just ending
	}
	for _, v := range tasks {
		if !v.Status.Terminal() && v.Status != state.Draft {
			return nil, false
		}
	}
	live, err = masterState(ctx, h.Socket)
	return live, err == nil
}

// compareWithRefold compares the master's state with the fold of the journal from its beginning.
func (s *scriptState) compareWithRefold(live []byte) {
	var fold bytes.Buffer
	st, err := queue.FoldDir(context.Background(), s.state)
	if err == nil {
		err = st.Dump(&fold)
	}
	if err != nil {
		s.tests.Errorf("refold: %v", err)
	} else if !bytes.Equal(live, fold.Bytes()) {
		s.tests.Errorf("the live state was\n%s\nand the fold of the journal is\n%s", live, fold.Bytes())
	}
}

// noAgents waits until no process carries the mark of one of this script's runs.
func (s *scriptState) noAgents(limit time.Duration) error {
	var left []string
	if poll(limit, func() bool { left = s.agents(); return len(left) == 0 }) {
		return nil
	}
	return fmt.Errorf("processes of runs are left: %s", strings.Join(left, "; "))
}

// agents returns the processes with the environment of a run of this script.
func (s *scriptState) agents() (found []string) {
	runs, _ := filepath.Glob(filepath.Join(s.state, "runs", "*")) // the pattern is good
	envs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, env := range envs {
		text, err := os.ReadFile(env)
		if err != nil {
			continue // it has just ended
		}
		for _, run := range runs {
			if bytes.Contains(text, []byte("STINT_RUN_ID="+filepath.Base(run)+"\x00")) {
				line, _ := os.ReadFile(filepath.Join(filepath.Dir(env), "cmdline"))
				found = append(found, filepath.Base(filepath.Dir(env))+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return found
}

// noRace looks for what the race detector found in a master in the background.
func (s *scriptState) noRace() error {
	log, err := os.ReadFile(filepath.Join(s.state, "master.log"))
	if err != nil {
		return nil // there was none
	}
	if i := bytes.Index(log, []byte("WARNING: DATA RACE")); i >= 0 {
		return fmt.Errorf("a data race in the master:\n%s", log[i:])
	}
	if i := bytes.Index(log, []byte("\ngoroutine ")); i >= 0 {
		return fmt.Errorf("the master crashed:\n%s", log)
	}
	return nil
}
