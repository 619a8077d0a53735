package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// spec parses the options of `stint task` as far as a master is not needed.
func spec(t *testing.T, args ...string) (*taskOptions, error) {
	t.Helper()
	t.Setenv("STINT_STATE_DIR", filepath.Join(t.TempDir(), "state"))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	o := &taskOptions{}
	c := &cobra.Command{Use: "task", RunE: func(c *cobra.Command, _ []string) error {
		return a.completeSpec(c, o, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	}, SilenceErrors: true, SilenceUsage: true}
	o.addFlags(c)
	prepare(c)
	c.SetArgs(args)
	return o, c.Execute()
}

func TestTaskOptions(t *testing.T) {
	dir := t.TempDir()
	o, err := spec(t, "--session", "web", "-C", dir, "--timeout", "2h", "--priority", "9", "--delay", "90m", "--agent", "demo", "--no-wait-limit")
	if err != nil {
		t.Fatal(err)
	}
	s := o.spec
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.SessionKey != "web" || s.Workspace != real || s.Timeout != "2h" || s.Priority != 9 || s.Agent != "demo" || !s.NoWaitLimit || len(s.ID) != 36 {
		t.Errorf("%+v", s)
	}
	if want := time.Date(2026, 11, 21, 13, 30, 0, 0, time.UTC); !s.NotBefore.Equal(want) {
		t.Errorf("not before %s, want %s", s.NotBefore, want)
	}
}

// TestInputDirectory: a directory is told from a file that is too large.
func TestInputDirectory(t *testing.T) {
	_, err := spec(t, "--input-file", t.TempDir())
	if message, try := explain(err); !strings.HasSuffix(message, "is a directory") || !strings.Contains(try, "each file of it") {
		t.Errorf("%s; try %s", message, try)
	}
}

func TestBadTaskOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--session", "a/b"}, `"a/b" cannot be the name of a session`},
		{[]string{"--session", "a\nb"}, "cannot be the name of a session"},
		{[]string{"--session", ""}, "--session is empty"},
		{[]string{"--session", "dir:/x"}, "reserved"},
		{[]string{"--session", "task:1"}, "reserved"},
		{[]string{"--session", strings.Repeat("a", 65)}, "cannot be the name of a session"},
		{[]string{"--session", "x", "--priority", "0"}, "--priority 0 is not from 1 to 9"},
		{[]string{"--priority", "10"}, "--priority 10 is not from 1 to 9"},
		{[]string{"--priority", "high"}, "invalid argument"},
		{[]string{"--max-attempts", "0"}, "--max-attempts 0 is less than 1"},
		{[]string{"--after", ""}, "--after names no task"},
		{[]string{"--fallback", ""}, "--fallback names no agent"},
		{[]string{"--after-policy", "any"}, "--after names none"},
		{[]string{"--after", "x", "--after-policy", "all"}, `--after-policy "all" is not done or any`},
		{[]string{"--agent", "codex", "--tool", "claude"}, "--agent and --tool exclude each other"},
		{[]string{"--spec", "x", "--edit"}, "--spec and --edit exclude each other"},
		{[]string{"--input-file", "/does/not/exist"}, "cannot take the input file /does/not/exist: no such file or directory"},
		{[]string{"--resume", "maybe"}, "--resume \"maybe\" is not auto, always or never"},
		{[]string{"--timeout", "soon"}, "--timeout \"soon\" is not a duration"},
		{[]string{"--timeout", "0s"}, "--timeout \"0s\" is not a duration"},
		{[]string{"--at", "soon"}, "--at \"soon\" is not a time"},
		{[]string{"--delay", "-1h"}, `--delay "-1h" is negative`},
		{[]string{"--at", "12:00", "--delay", "1h"}, "--at and --delay exclude each other"},
		{[]string{"--parallel", "--session", "x"}, "--parallel and --session exclude each other"},
		{[]string{"--parallel", "-c"}, "--parallel and --continue exclude each other"},
		{[]string{"-C", "/does/not/exist"}, `cannot use the directory "/does/not/exist": no such file or directory`},
		{[]string{"-C", file}, "is not a directory"},
		{[]string{"-C", ""}, ""},
		{[]string{"--frob"}, "unknown flag: --frob"},
		{[]string{"--on-failure", "@" + file}, "--on-failure: the file has no text"},
		{[]string{"--on-issue", "@" + file + ".md"}, "--on-issue: cannot read the prompt: open " + file + ".md: no such file"},
		{[]string{"--on-issue", "@/"}, "--on-issue: cannot read the prompt from /: read /: is a directory"},
		{[]string{"-v is broken"}, "unknown shorthand flag"},
	} {
		_, err := spec(t, c.args...)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: exit code %d, want %d", c.args, exitCode(err), exitUsage)
		}
	}
}

func TestStateInsideTheWorkspace(t *testing.T) {
	work := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, inside := range []bool{false, true} {
		a := &app{stderr: &bytes.Buffer{}, stateOption: filepath.Join(work, "state")}
		o := &taskOptions{dir: work, inside: inside}
		c := &cobra.Command{}
		if err := a.completeSpec(c, o, time.Now()); (err == nil) != inside {
			t.Errorf("allowed %v: %v", inside, err)
		}
	}
}

// tree builds the command tree of a program that writes into the buffer.
func tree(out *bytes.Buffer, args ...string) error {
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: out}
	return a.rootCommand(args).Execute()
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
		try  string
	}{
		{[]string{"frobnicate"}, `there is no command "stint frobnicate"`, "stint --help"},
		{[]string{"shwo"}, `there is no command "stint shwo"`, "stint show"},
		{[]string{"session", "sl"}, `there is no command "stint session sl"`, "stint session ls"},
		{[]string{"show"}, "an argument is missing: stint show [OPTIONS] ID", "stint show --help"},
		{[]string{"show", "a", "b"}, `stint show [OPTIONS] ID: "b" is one argument too many`, "stint show --help"},
		{[]string{"ls", "x"}, `stint ls [OPTIONS]: "x" is one argument too many`, "stint ls --help"},
		{[]string{"serve", "postgres://u:pw@h/db"}, `stint serve [OPTIONS]: "postgres://u:xxxxx@h/db" is one argument too many`, "stint serve --help"},
		{[]string{"sync", "once", "host=h password=pw"}, `"***" is one argument too many`, "stint sync once --help"},
		{[]string{"serve", "postgres://u:p/w@h/db"}, `"***" is one argument too many`, "stint serve --help"},
		{[]string{"sync", "postgres://u:pw@h/db"}, `there is no command "stint sync postgres://u:xxxxx@h/db"`, "stint sync --help"},
		{[]string{"ls", "--status", "bogus"}, `unknown status "bogus"`, "stint ls --help"},
		{[]string{"ls", "-n", "-1"}, "--limit -1 is negative", "stint ls --help"},
		{[]string{"wait", "--timeout", "x", "id"}, "--timeout ", "stint wait --help"},
		{[]string{"wait", "--any", "--all", "id"}, "--any and --all exclude each other", "stint wait --help"},
		{[]string{"--frob"}, "unknown flag: --frob", "stint --help"},
		{[]string{"task", "-x"}, "unknown shorthand flag", `stint task --help, or for a prompt that begins with a hyphen: stint task -- "PROMPT"`},
	} {
		err := tree(&bytes.Buffer{}, c.args...)
		message, try := "", ""
		if err != nil {
			message, try = explain(err)
		}
		if !strings.Contains(message, c.want) || exitCode(err) != exitUsage || c.try != "" && try != c.try {
			t.Errorf("%q: %q, try %q, exit code %d; want %q, try %q", c.args, message, try, exitCode(err), c.want, c.try)
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
