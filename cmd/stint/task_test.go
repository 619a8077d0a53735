package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// tree builds the command tree of a program that writes into the buffer.
func tree(out *bytes.Buffer, args ...string) error {
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: out}
	return a.rootCommand(args).Execute()
}

// TestEmptyBrackets: a text may be [], which is also how an empty list of an option reads.
func TestEmptyBrackets(t *testing.T) {
	var o taskOptions
	c := &cobra.Command{}
	o.addFlags(&app{}, c)
	must(t, c.ParseFlags([]string{"--label", "[]", "--verify=[]"}))
	check(t, o.check(c, time.Now()))
}

// An endedContext has ended without anybody having been woken by it.
type endedContext struct{ context.Context }

func (endedContext) Err() error { return context.Canceled }

// TestInterruptedSpecs: Ctrl-C just when all was read queues nothing either.
func TestInterruptedSpecs(t *testing.T) {
	a := &app{stdin: strings.NewReader(`{"prompt":"x"}`)}
	specs, _, err := a.readSpecs(endedContext{t.Context()}, "-")
	if exitCode(err) != exitInterrupted || specs != nil {
		t.Errorf("%v, %v", specs, err)
	}
}

// TestUsageErrors: a command line that is refused at once has exit code 2, says why, and
// names what helps. What a master refuses in that way is in bad_flags.txtar.
func TestUsageErrors(t *testing.T) {
	t.Setenv("STINT_STATE_DIR", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	empty := filepath.Join(t.TempDir(), "empty")
	put(t, empty, "")
	for _, c := range []struct{ args, want, try string }{
		{"frobnicate", `there is no command "stint frobnicate"`, "stint --help"},
		{"tsk", `there is no command "stint tsk"`, "stint task, or stint fsck"},
		{"ls --all", "unknown flag: --all", "stint ls -n 0"},
		{"ls -a", "unknown shorthand flag", "stint ls -n 0"},
		{"ls --agnet x", "unknown flag: --agnet", "stint ls --agent"},
		{"config set agent=demo", "an argument is missing", "stint config set --help"},
		{"shwo", `there is no command "stint shwo"`, "stint show"},
		{"frobnicate --hard", `there is no command "stint frobnicate"`, "stint --help"},
		{"session sl --hard", `there is no command "stint session sl"`, "stint session ls"},
		{"--hard", "unknown flag: --hard", "stint --help"},
		{"kill 3fa2", `there is no command "stint kill"`, "stint cancel ID"},
		{"session sl", `there is no command "stint session sl"`, "stint session ls"},
		{"show", "an argument is missing: stint show [OPTIONS] ID", "stint show --help"},
		{"show a b", `stint show [OPTIONS] ID: "b" is one argument too many`, "stint show --help"},
		{"serve postgres://u:pw@h/db", `stint serve [OPTIONS]: "postgres://u:xxxxx@h/db" is one argument too many`, "stint serve --help"},
		{"serve postgres://u:p/w@h/db", `"***" is one argument too many`, "stint serve --help"},
		{"sync postgres://u:pw@h/db", `there is no command "stint sync postgres://u:xxxxx@h/db"`, "stint sync --help"},
		{"ls --status bogus", `unknown status "bogus"`, "stint ls --help"},
		{"ls -n -1", "--limit -1 is negative", "stint ls --help"},
		{"wait --timeout x id", "--timeout ", "stint wait --help"},
		{"wait --any --all id", "--any and --all exclude each other", "stint wait --help"},
		{"move x", "does not say where to", ""},
		{"send", "names no session", ""},
		{"send web", "there is no prompt", ""},
		{"enqueue claude", "there is no prompt for claude", ""},
		{"enqueue gpt @p.txt", `there is no agent "gpt"`, ""},
		{"task -x", "unknown shorthand flag", `stint task --help, or for a prompt that begins with a hyphen: stint task -- "PROMPT"`},
		{"task --spec x.json hello", "--spec has the prompts", ""},
		{"task --spec x --edit", "--spec and --edit exclude each other", ""},
		{"task x --priority 0", "--priority cannot be 0", ""},
		{"task x --priority 10", "priority 10", ""},
		{"task x --max-attempts 0", "--max-attempts cannot be 0", ""},
		{"task x --session=", "--session is empty", ""},
		{"task x --after=", "--after is empty", ""},
		{"task x --fallback=", "--fallback is empty", ""},
		{"task x --after y --after-policy all", `after-policy "all"`, ""},
		{"enqueue x --agent codex --tool claude", "--agent and --tool exclude each other", ""},
		{"task x --parallel --session y", "--parallel and --session exclude each other", ""},
		{"task x --parallel -c", "--parallel and --continue exclude each other", ""},
		{"task x --at 12:00 --delay 1h", "--at and --delay exclude each other", ""},
		{"task x --at soon", `--at "soon" is not a time`, ""},
		{"task x --delay=-1h", `--delay "-1h" is negative`, ""},
		{"task x --timeout 0s", `timeout "0s"`, ""},
		{"task x --input-file /does/not/exist", "cannot take the input file /does/not/exist: no such file or directory", ""},
		{"task x --input-file /", "cannot take the input file /: is a directory", "give each file an --input-file of its own; put large ones into the working directory, and name them in the prompt"},
		{"task x --on-failure @" + empty, "--on-failure: the file has no text", ""},
		{"task x --on-issue @" + empty + ".md", "cannot read the prompt: open " + empty + ".md: no such file", ""},
	} {
		err := tree(&bytes.Buffer{}, strings.Fields(c.args)...)
		message, try := "", ""
		if err != nil {
			message, try = explain(err)
		}
		if !strings.Contains(message, c.want) || exitCode(err) != exitUsage || c.try != "" && try != c.try {
			t.Errorf("%s: %q, try %q, exit code %d; want %q, try %q", c.args, message, try, exitCode(err), c.want, c.try)
		}
	}
}

var updateHelp = flag.Bool("update-help", false, "write testdata/help.golden anew")

// TestHelpGolden: the help of every command, as users see it. Each has an example.
func TestHelpGolden(t *testing.T) {
	var all bytes.Buffer
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return // cobra's own
		}
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		args := append(strings.Fields(path), "--help")
		all.WriteString("$ stint " + strings.Join(args, " ") + "\n")
		must(t, tree(&all, args...))
		all.WriteByte('\n')
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look((&app{}).rootCommand(nil))
	for line := range strings.Lines(all.String()) {
		if textWidth(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
	for line := range strings.Lines(commandTexts) {
		if path, ok := strings.CutPrefix(line, "## "); ok && path != "stint help\n" && path != "stint completion\n" && !strings.Contains(all.String(), "$ "+strings.TrimSpace(path)+" --help\n") {
			t.Errorf("help/commands.txt is about a command that there is not: %s", line)
		}
	}
	golden := filepath.Join("testdata", "help.golden")
	if *updateHelp {
		must(t, os.WriteFile(golden, all.Bytes(), 0o644))
	}
	want := get(t, golden)
	if !bytes.Equal(all.Bytes(), want) {
		t.Errorf("the help has changed; look at it and write it anew with -update-help:\n%s", all.Bytes())
	}
}

func TestSilentRunIsMarked(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status state.Status
		silent time.Duration
		want   string
	}{
		{state.Running, 9*time.Minute + 3*time.Second, "running (silent 9m03s)"},
		{state.Running, time.Minute, "running (silent 1m00s)"},
		{state.Running, 59 * time.Second, "running"},
		{state.Done, time.Hour, "done"},
	} {
		v := &wire.TaskView{Task: state.Task{Status: c.status}, LastOutput: now.Add(-c.silent)}
		if got := statusNow(v, now); got != c.want {
			t.Errorf("%s, silent for %s: %q, want %q", c.status, c.silent, got, c.want)
		}
	}
	if got := statusNow(&wire.TaskView{Task: state.Task{Status: state.Running}}, now); got != "running" {
		t.Errorf("of a master that does not know: %q", got)
	}
}

// TestInterruptibly: Ctrl-C ends a command while what it computes goes on.
func TestInterruptibly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun, end := make(chan bool), make(chan bool)
	defer close(end)
	go func() {
		<-begun
		cancel()
	}()
	n, err := interruptibly(ctx, interrupted, func() (int, error) {
		begun <- true
		<-end
		return 1, nil
	})
	if n != 0 || exitCode(err) != exitInterrupted {
		t.Error(n, err)
	}
	if n, err = interruptibly(t.Context(), interrupted, func() (int, error) { return 2, nil }); n != 2 || err != nil {
		t.Error(n, err)
	}
}

// TestLargeSpecFile: of a file that is too large not all is read.
func TestLargeSpecFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.json")
	must(t, errors.Join(os.WriteFile(path, []byte("["), 0o600), os.Truncate(path, 1<<40)))
	if _, err := readNamed(path, maxSpecFile); err == nil || !strings.Contains(err.Error(), "it has more than 67108864 bytes") {
		t.Error(err)
	}
}

// TestDurations: what is read is written shortly, and how long ago something was roughly.
func TestDurations(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		show string
		ago  string
	}{
		{"90s", 90 * time.Second, "1m30s", "1m30s"},
		{"1h30m", 90 * time.Minute, "1h30m", "1h30m"},
		{"3h5m0s", 3*time.Hour + 5*time.Minute, "3h5m", "3h05m"},
		{"1h0m1s", time.Hour + time.Second, "1h0m1s", "1h00m"},
		{"10s", 10 * time.Second, "10s", "10s"},
		{"3d", 72 * time.Hour, "72h", "3d0h"},
		{"0", 0, "0s", "0s"},
	} {
		if got, err := parseDuration(c.text); err != nil || got != c.want || task.FormatLimit(got) != c.show || ago(got) != c.ago {
			t.Errorf("%s: %s, %v, shown as %s and %s; want %s, %s, %s", c.text, got, err, task.FormatLimit(got), ago(got), c.want, c.show, c.ago)
		}
	}
	for _, bad := range []string{"", "x", "10", "-1s", "d", "1.5d", "-1d", "99999999d"} {
		if d, err := parseDuration(bad); err == nil {
			t.Errorf("%q is taken for %s", bad, d)
		}
	}
}

// TestInstants: times to come and times that have passed, in the local zone.
func TestInstants(t *testing.T) {
	zone := time.FixedZone("test", 2*3600)
	now := time.Date(2026, 11, 21, 12, 30, 0, 0, zone)
	at := func(text string) (time.Time, error) { return parseAt(text, now) }
	since := func(text string) (time.Time, error) { return parsePast(text, now, 0, 0) }
	until := func(text string) (time.Time, error) { return parsePast(text, now, 1, 0) }
	for _, c := range []struct {
		read       func(string) (time.Time, error)
		text, want string // "": refused
	}{
		{at, "2026-12-01T10:00:00Z", "2026-12-01T10:00:00Z"},
		{at, "2026-12-01 10:00", "2026-12-01T10:00:00+02:00"},
		{at, "13:00", "2026-11-21T13:00:00+02:00"},
		{at, "12:30", "2026-11-22T12:30:00+02:00"},
		{at, "tomorrow 9:00", "2026-11-22T09:00:00+02:00"},
		{at, "today 09:00", "2026-11-21T09:00:00+02:00"},
		{at, "yesterday 9:00", ""},
		{at, "soon", ""},
		{at, "25:00", ""},
		{since, "12:00", "2026-11-21T12:00:00+02:00"},
		{since, "18:00", "2026-11-20T18:00:00+02:00"},
		{since, "today 9:00", "2026-11-21T09:00:00+02:00"},
		{since, "7d", "2026-11-14T12:30:00+02:00"},
		{since, "2026-11-01", "2026-11-01T00:00:00+02:00"},
		{until, "2026-11-30", "2026-12-01T00:00:00+02:00"},
		{until, "2026-11-20 08:30", "2026-11-20T08:30:00+02:00"},
		{since, "08:30", "2026-11-21T08:30:00+02:00"},
		{since, "18:00", "2026-11-20T18:00:00+02:00"},
		{since, "-7d", ""},
		{since, "2026-02-30", ""},
	} {
		got, err := c.read(c.text)
		if (err != nil) != (c.want == "") || err == nil && got.Format(time.RFC3339) != c.want {
			t.Errorf("%q: %s, %v, want %s", c.text, got, err, c.want)
		}
	}
}

// put writes a file and returns its path.
func put(t testing.TB, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// get reads a file.
func get(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

// must ends the test if there is an error, and check fails it.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
