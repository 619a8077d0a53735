package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// TestUsageErrors: a command line that is refused at once has exit code 2, says why, and
// names what helps. What a master refuses likewise is in bad_flags.txtar.
func TestUsageErrors(t *testing.T) {
	t.Setenv("STINT_STATE_DIR", filepath.Join(t.TempDir(), "state"))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want, try string }{
		{"frobnicate", `there is no command "stint frobnicate"`, "stint --help"},
		{"shwo", `there is no command "stint shwo"`, "stint show"},
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
		{"task x --after-policy any", "--after names none", ""},
		{"task x --after y --after-policy all", `after-policy "all"`, ""},
		{"task x --agent codex --tool claude", "--agent and --tool exclude each other", ""},
		{"task x --parallel --session y", "--parallel and --session exclude each other", ""},
		{"task x --parallel -c", "--parallel and --continue exclude each other", ""},
		{"task x --at 12:00 --delay 1h", "--at and --delay exclude each other", ""},
		{"task x --at soon", `--at "soon" is not a time`, ""},
		{"task x --delay=-1h", `--delay "-1h" is negative`, ""},
		{"task x --timeout 0s", `timeout "0s"`, ""},
		{"task x --input-file /does/not/exist", "cannot take the input file /does/not/exist: no such file or directory", ""},
		{"task x --input-file /", "cannot take the input file /: is a directory", "give each file of it an --input-file of its own, or let the task work in that directory with -C DIR"},
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

// The help of every command, as users see it.
func TestHelpGolden(t *testing.T) {
	var all bytes.Buffer
	for _, args := range [][]string{
		{},
		{"task"},
		{"ls"},
		{"show"},
		{"logs"},
		{"wait"},
		{"why"},
		{"cancel"},
		{"retry"},
		{"hold"},
		{"release"},
		{"move"},
		{"pause"},
		{"resume"},
		{"send"},
		{"enqueue"},
		{"session"},
		{"session", "queue"},
		{"doctor"},
		{"demo"},
		{"config", "show"},
		{"serve"},
		{"memory"},
		{"memory", "search"},
		{"memory", "add"},
		{"lessons"},
		{"lessons", "ls"},
		{"lessons", "show"},
		{"lessons", "rm"},
		{"verify"},
		{"ui"},
		{"token"},
		{"token", "header"},
		{"token", "rotate"},
		{"sync"},
		{"sync", "once"},
		{"sync", "status"},
		{"sync", "verify"},
		{"sync", "rebuild"},
		{"sync", "migrate"},
	} {
		all.WriteString("$ stint " + strings.Join(append(args, "--help"), " ") + "\n")
		if err := tree(&all, append(args, "--help")...); err != nil {
			t.Fatal(err)
		}
		all.WriteByte('\n')
	}
	golden := filepath.Join("testdata", "help.golden")
	if *updateHelp {
		if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(all.Bytes(), want) {
		t.Errorf("the help has changed; look at it and write it anew with -update-help:\n%s", all.Bytes())
	}
}

// Every command begins its help with an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return // cobra's own
		}
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(a.rootCommand(nil))
}

func TestPromptSources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.md")
	if err := os.WriteFile(file, []byte("from a file\n\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		source promptSource
		want   string
	}{
		{"one argument", promptSource{args: []string{"fix it"}}, "fix it"},
		{"several arguments", promptSource{args: []string{"fix", "it", "now"}}, "fix it now"},
		{"newlines stay", promptSource{args: []string{"a\nb\n"}}, "a\nb\n"},
		{"stdin", promptSource{args: []string{"-"}, stdin: strings.NewReader("from stdin\r\n")}, "from stdin"},
		{"hyphen among others", promptSource{args: []string{"-", "x"}}, "- x"},
		{"file", promptSource{args: []string{"@" + file}}, "from a file\n\nsecond"},
		{"literal at", promptSource{args: []string{"@@home"}}, "@home"},
		{"at among others", promptSource{args: []string{"@a", "b"}}, "@a b"},
		{"after --, hyphen", promptSource{args: []string{"-"}, literal: true}, "-"},
		{"after --, option", promptSource{args: []string{"-v", "fails"}, literal: true}, "-v fails"},
		{"after --, at", promptSource{args: []string{"@x"}, literal: true}, "@x"},
		{"ledger", promptSource{args: []string{"## Task x\n- status: done\n<!-- end 3 -->"}}, "## Task x\n- status: done\n<!-- end 3 -->"},
		{"edit", promptSource{args: []string{"draft"}, edit: true, editor: func(s string) (string, error) { return s + " two\n", nil }}, "draft two"},
	} {
		got, err := c.source.read()
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestBadPrompts(t *testing.T) {
	big := strings.Repeat("a", 1<<20)
	for _, c := range []struct {
		name   string
		source promptSource
		want   string
	}{
		{"none", promptSource{}, "there is no prompt"},
		{"empty", promptSource{args: []string{""}}, "the prompt is empty"},
		{"blank", promptSource{args: []string{" \n\t"}}, "the prompt is empty"},
		{"empty stdin", promptSource{args: []string{"-"}, stdin: strings.NewReader("\n")}, "the prompt is empty"},
		{"too long", promptSource{args: []string{"-"}, stdin: strings.NewReader(big + "b")}, "more than the 1048576 bytes"},
		{"no UTF-8", promptSource{args: []string{"ab\xffc"}}, "not valid UTF-8 at byte 2"},
		{"no such file", promptSource{args: []string{"@/does/not/exist"}}, "cannot read the prompt"},
		{"editor", promptSource{edit: true, editor: func(string) (string, error) { return "", errors.New("boom") }}, "boom"},
	} {
		_, err := c.source.read()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// The limit itself is allowed, and the newline at the end of a file does not count.
	if got, err := (promptSource{args: []string{"-"}, stdin: strings.NewReader(big + "\n")}).read(); err != nil || len(got) != 1<<20 {
		t.Errorf("a prompt of exactly 1 MiB: %d bytes, %v", len(got), err)
	}
}

func TestRunEditor(t *testing.T) {
	script := filepath.Join(t.TempDir(), "ed")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$1\" >> \"$2\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", script+" added")
	got, err := runEditor("draft ")
	if err != nil || got != "draft added\n" {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("VISUAL", "false")
	if _, err := runEditor(""); err == nil {
		t.Error("an editor that fails goes unnoticed")
	}
}

func TestReadInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("sub", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"sub/a": 3, "half": task.MaxInputFiles / 2, "whole": task.MaxInputFiles, "more": task.MaxInputFiles + 1} {
		if err := os.WriteFile(name, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths []string
		names string // "" if they are refused
		why   string
	}{
		{[]string{"sub/a", "./half"}, "sub/a half", ""},
		{[]string{filepath.Join(dir, "sub/a"), "../" + filepath.Base(dir) + "/half"}, "a half", ""},
		{[]string{"whole"}, "whole", ""},
		{[]string{"more"}, "", "more than 1048576 bytes"},
		{[]string{"none"}, "", "no such file"},
		{[]string{"sub"}, "", "is a directory"},
	} {
		files, err := readInputs(c.paths)
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.names || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %q, %v; want %q, %q", c.paths, got, err, c.names, c.why)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: exit code %d", c.paths, exitCode(err))
		}
	}
}

func TestTakeAgent(t *testing.T) {
	for _, c := range []struct {
		args  []string
		agent string
		left  []string
	}{
		{[]string{"claude", "fix it"}, "claude", []string{"fix it"}},
		{[]string{"--model", "m", "codex", "fix", "it"}, "codex", []string{"fix", "it"}},
		{[]string{"gemini", "--", "--help"}, "gemini", []string{"--help"}},
		{[]string{"--prompt", "x", "demo"}, "demo", nil},
		{[]string{"claude", "--edit"}, "claude", nil},
		{[]string{"claude", "--spec", "x.json"}, "claude", nil},
		{[]string{"--", "claude"}, "", []string{"claude"}},
		{[]string{"--", "claude", "is", "slow"}, "", []string{"claude", "is", "slow"}},
		{[]string{"--agent", "demo", "claude", "is", "slow"}, "demo", []string{"claude", "is", "slow"}},
		{[]string{"--tool", "demo", "claude", "is", "slow"}, "demo", []string{"claude", "is", "slow"}},
		{[]string{"fix", "claude"}, "", []string{"fix", "claude"}},
	} {
		var left []string
		o := &taskOptions{}
		cmd := &cobra.Command{Use: "enqueue", RunE: func(cmd *cobra.Command, args []string) (err error) {
			left, err = o.takeAgent(cmd, args)
			return err
		}}
		o.addFlags(cmd)
		cmd.SetArgs(c.args)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if o.spec.Agent != c.agent || !slices.Equal(left, c.left) {
			t.Errorf("%q: agent %q and %q, want %q and %q", c.args, o.spec.Agent, left, c.agent, c.left)
		}
	}
}

func TestFillIn(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := task.TaskSpec{Prompt: "x", Priority: 9, After: []string{"a"}}
	fillIn(&s, &task.TaskSpec{Priority: 3, Label: "red", After: []string{"b"}, OutputSpec: []string{"c"}, NotBefore: at, Hold: true})
	if s.Prompt != "x" || s.Priority != 9 || s.Label != "red" || s.After[0] != "a" || s.OutputSpec[0] != "c" || !s.NotBefore.Equal(at) || !s.Hold {
		t.Errorf("%+v", s)
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

// TestOpenGrace: a master that is opening its ledger goes on for a moment, and no longer.
func TestOpenGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		late := lateBy(ctx, openGrace)
		cancel(errDetached)
		signaled := time.Now()
		<-late.Done()
		if waited := time.Since(signaled); waited != openGrace || !errors.Is(context.Cause(late), errDetached) {
			t.Error(waited, context.Cause(late))
		}
	})
}

// TestLargeSpecFile: of a file that is too large not all is read.
func TestLargeSpecFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.json")
	if err := errors.Join(os.WriteFile(path, []byte("["), 0o600), os.Truncate(path, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if _, err := readNamed(path, maxSpecFile); err == nil || !strings.Contains(err.Error(), "it has more than 67108864 bytes") {
		t.Error(err)
	}
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{"90s", 90 * time.Second},
		{"1h30m", 90 * time.Minute},
		{"3d", 72 * time.Hour},
		{"0", 0},
	} {
		if got, err := parseDuration(c.text); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "x", "10", "-1s", "d", "1.5d", "-1d", "99999999d"} {
		if d, err := parseDuration(bad); err == nil {
			t.Errorf("%q is taken for %s", bad, d)
		}
	}
}

func TestShortDuration(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{30 * time.Minute, "30m"},
		{24 * time.Hour, "24h"},
		{90 * time.Minute, "1h30m"},
		{5 * time.Second, "5s"},
		{0, "0s"},
		{time.Hour + time.Second, "1h0m1s"},
		{10 * time.Minute, "10m"},
		{10 * time.Second, "10s"},
	} {
		if got := shortDuration(c.d); got != c.want {
			t.Errorf("%v: %s, want %s", c.d, got, c.want)
		}
		if d, err := time.ParseDuration(shortDuration(c.d)); err != nil || d != c.d {
			t.Errorf("%v does not come back: %v, %v", c.d, d, err)
		}
	}
}

func TestParseAt(t *testing.T) {
	zone := time.FixedZone("test", 2*3600)
	now := time.Date(2026, 11, 21, 12, 30, 0, 0, zone)
	for _, c := range []struct {
		text string
		want time.Time
	}{
		{"2026-12-01T10:00:00Z", time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)},
		{"2026-12-01 10:00", time.Date(2026, 12, 1, 10, 0, 0, 0, zone)},
		{"2026-12-01T10:00", time.Date(2026, 12, 1, 10, 0, 0, 0, zone)},
		{"13:00", time.Date(2026, 11, 21, 13, 0, 0, 0, zone)},
		{"12:30", time.Date(2026, 11, 22, 12, 30, 0, 0, zone)},
		{"00:05", time.Date(2026, 11, 22, 0, 5, 0, 0, zone)},
	} {
		if got, err := parseAt(c.text, now); err != nil || !got.Equal(c.want) {
			t.Errorf("%s: %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "soon", "25:00", "2026-13-01 10:00", "12"} {
		if got, err := parseAt(bad, now); err == nil {
			t.Errorf("%q is taken for %s", bad, got)
		}
	}
}

func TestAgo(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {4 * time.Second, "4s"}, {134 * time.Second, "2m14s"}, {3*time.Hour + 5*time.Minute, "3h05m"}, {52 * time.Hour, "2d4h"},
	} {
		if got := ago(c.d); got != c.want {
			t.Errorf("%s: %s, want %s", c.d, got, c.want)
		}
	}
}
