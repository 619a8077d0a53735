package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
