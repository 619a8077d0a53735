package main

import (
	"cmp"
	_ "embed"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stint/coordinator/api/client"
	"stint/coordinator/postgres/dsn"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/state"
)

// An app is one run of the program: its streams and what all commands share. It is
// for one goroutine; others take one of their own ([app.another]).
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	stateOption  string // --state-dir
	configOption string // --config

	settings *Config // without options; see base
	warned   bool    // of a state directory below /tmp
	json     bool    // --json
	ids      bool    // -q: print ids alone
	quiet    bool    // no hints and no progress
	shared   bool    // --shared
	creates  bool    // the state directory, if there is none
	opened   bool    // it opened the state directory itself; see callOrOpen

	told         []string // accounts of which stderr has said what keeps their tasks from starting
	warnedConfig bool     // that the master uses another configuration
	atEnd        func()   // prints what is to stand behind the command's error; nil: nothing

	last   *client.Client // of the master that was asked last
	dialed string         // its socket
}

// commands holds how each command is built, in no order: help sorts them.
var commands = map[string]func(*app) *cobra.Command{
	"serve": (*app).serveCommand, "worker": (*app).workerCommand, "task": (*app).taskCommand, "enqueue": (*app).enqueueCommand,
	"ls": (*app).lsCommand, "show": (*app).showCommand, "files": (*app).filesCommand, "logs": (*app).logsCommand, "wait": (*app).waitCommand,
	"why": (*app).whyCommand, "verify": (*app).verifyCommand, "cancel": cancelCommand, "retry": retryCommand,
	"rm": noRun(rmCommand), "hold": holdCommand, "release": (*app).releaseCommand, "move": (*app).moveCommand,
	"pause": noRun(pauseTasks), "resume": noRun(resumeTasks), "send": (*app).sendCommand,
	"service": (*app).serviceCommand, "session": (*app).sessionCommand, "cron": (*app).cronCommand, "job": (*app).jobCommand, "account": (*app).accountCommand, "tasks": (*app).tasksCommand, "doctor": (*app).doctorCommand,
	"memory": (*app).memoryCommand, "lessons": (*app).lessonsCommand, "instance": (*app).instanceCommand, "server": (*app).serverCommand,
	"edit": noRun((*app).editCommand), "restore": noRun((*app).restoreCommand),
	"compact-tasks": noRun(compactCommand), "clean": noRun(cleanCommand), "fsck": (*app).fsckCommand, "history": (*app).historyCommand,
	"diff": (*app).diffCommand, "undo": noRun((*app).undoCommand), "worktree": (*app).worktreeCommand, "land": noRun((*app).landCommand), "pr": noRun((*app).prCommand), "drop": noRun((*app).dropCommand), "demo": (*app).demoCommand, "digest": (*app).digestCommand, "notify": (*app).notifyCommand, "usage": (*app).usageCommand, "token": (*app).tokenCommand, "ui": noRun((*app).uiCommand), "config": (*app).configCommand, "sync": (*app).syncCommand, "version": (*app).versionCommand,
}

// rootCommand builds the command tree for a command line: the one command that it begins with, or all of them.
// A script that queues a thousand tasks does not want to wait for the others.
func (a *app) rootCommand(args []string) *cobra.Command {
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-v") {
		args = append([]string{"version"}, args[1:]...)
	}
	root := &cobra.Command{
		Use: "stint", Short: "queue tasks for coding agents and keep their answers",
		RunE:          func(c *cobra.Command, _ []string) error { return a.overview(c.Context()) },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.stateOption, "state-dir", "", "state `directory` (or $STINT_STATE_DIR)")
	root.PersistentFlags().StringVar(&a.configOption, "config", "", "configuration `file` (or $STINT_CONFIG)")
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // ours stands in its place; see helpCommand
	root.SetHelpTemplate(helpTemplate)
	columns := cmp.Or(min(80, terminalWidth(a.stdout)), 80)
	cobra.AddTemplateFunc("columns", func() int { return columns })
	if len(args) > 0 && commands[args[0]] != nil {
		root.AddCommand(commands[args[0]](a))
		root.CompletionOptions.DisableDefaultCmd = true
	} else {
		for _, build := range commands {
			root.AddCommand(build(a))
		}
		root.InitDefaultCompletionCmd() // now, so that its text is set too
		root.AddCommand(a.helpCommand(), a.manCommand())
	}
	prepare(root)
	root.SetArgs(args)
	return root
}

// helpTemplate shows what a command is for, then examples, then the options.
//
//go:embed help/command.tmpl
var helpTemplate string

// commandTexts has what commands say about themselves at length: a part for each, or for several, below their paths.
//
//go:embed help/commands.txt
var commandTexts string

// fillText sets the text and the examples of a command.
func fillText(c *cobra.Command) {
	_, text, ok := strings.Cut(commandTexts, "\n## "+c.CommandPath()+"\n")
	for strings.HasPrefix(text, "## ") { // others say the same
		_, text, _ = strings.Cut(text, "\n")
	}
	if text, _, _ = strings.Cut(text, "\n## "); ok {
		text, c.Example, _ = strings.Cut(text, "Examples:\n")
		c.Long, c.Example = cmp.Or(strings.TrimSpace(text), c.Long), strings.TrimRight(c.Example, "\n")
	}
}

// prepare sets the texts of all commands of the tree, and makes them report our usage errors.
func prepare(c *cobra.Command) {
	fillText(c)
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() { // of an unknown command, no option is known
			if err := knownCommand(cmd, cmd.Flags().Args()); err != nil {
				return err
			}
		}
		try := cmd.CommandPath() + " --help"
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			what := map[string]kind{"int": kindNumber, "bool": kindBool, "duration": kindDuration}[bad.GetFlag().Value.Type()]
			return usage(try, "--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), cmp.Or(what, kindList))
		}
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			try = optionHint(cmd, unknown.GetSpecifiedName(), try)
		}
		if before, ok := beforePrompt[cmd.CommandPath()]; ok {
			try += ", or for a prompt that begins with a hyphen: " + cmd.CommandPath() + before + ` -- "PROMPT"`
		}
		return usage(try, "%v", err)
	})
	c.Aliases = aliases[c.CommandPath()]
	c.Flags().SortFlags = false
	c.DisableFlagsInUseLine = true
	c.SuggestionsMinimumDistance = 2
	if c.HasSubCommands() {
		c.Args = knownCommand
		if c.RunE == nil {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	} else if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				return nil
			}
			try := cmd.CommandPath() + " --help"
			if len(args) == 0 || check(cmd, append(slices.Clone(args), "more")) == nil {
				return usage(try, "an argument is missing: %s", cmd.UseLine())
			}
			return usage(try, "%s: %q is one argument too many", cmd.UseLine(), clip(shown(args[len(args)-1]), 40))
		}
	}
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// shown returns an argument as an error may show it: a database URL in the wrong place can have a password.
func shown(arg string) string {
	if dsn.HasPassword(arg) || strings.HasPrefix(arg, "postgres://") || strings.HasPrefix(arg, "postgresql://") {
		return dsn.Redact(arg)
	}
	return arg
}

// beforePrompt has the commands that take a prompt, with what stands before it.
var beforePrompt = map[string]string{
	"stint task": "", "stint enqueue": "", "stint send": " SESSION", "stint memory search": "", "stint memory add": "",
}

// otherNames has what other programs call what our commands do, a line for each.
//
//go:embed help/names.txt
var otherNames string

// otherName returns what to use for such a name of a command or an option; "" if none is known.
func otherName(command, name string) string {
	_, rest, _ := strings.Cut(otherNames, "\n"+strings.TrimPrefix(command+" "+name, "stint ")+" = ")
	try, _, _ := strings.Cut(rest, "\n")
	return try
}

// optionHint returns the hint for an unknown option: what its table has, or the nearest option, or other.
func optionHint(cmd *cobra.Command, name, other string) string {
	dashes := "--"[min(1, max(0, 2-len(name))):] // one before a letter
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := state.Nearest(name, names); near != "" {
		other = cmd.CommandPath() + " --" + near
	}
	return cmp.Or(otherName(cmd.CommandPath(), dashes+name), other)
}

// knownCommand refuses an unknown subcommand and names the one that was meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasParent() && strings.Contains(strings.TrimSpace(args[0]), " ") {
		return usage("stint task "+state.ShellQuote(args[0]), "%q is not a command; a prompt stands after stint task", clip(shown(args[0]), 40))
	}
	try := cmd.CommandPath() + " --help"
	if other := otherName(cmd.CommandPath(), args[0]); other != "" {
		try = other
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		near = first(near, func(name string) bool { return name == state.Nearest(args[0], near) })
		try = cmd.CommandPath() + " " + strings.Join(near[:min(2, len(near))], ", or "+cmd.CommandPath()+" ")
	}
	return usage(try, "there is no command %q", cmd.CommandPath()+" "+shown(args[0]))
}

// exclusive refuses a command line with more than one of these options.
func exclusive(c *cobra.Command, names ...string) {
	before := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		given := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !cmd.Flags().Changed(name) })
		if len(given) > 1 {
			return usage(cmd.CommandPath()+" --help", "--%s exclude each other", strings.Join(given, " and --"))
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// config loads the configuration; flags are the options of the command.
func (a *app) config(flags *pflag.FlagSet) (*Config, error) {
	file, named, err := configFile(a.configOption)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for i := range keys {
		if f := flags.Lookup(keys[i].flag()); f != nil && f.Changed {
			given[keys[i].name] = f.Value.String()
		}
	}
	c, err := loadConfig(configSource{file: file, required: named, lookup: os.LookupEnv, flags: given})
	if err == nil {
		dir, _ := a.state() // without one there is no token
		c.Redact = redact.New(secrets(c, dir))
	}
	return c, err
}

// base returns the configuration, read once, without the options of a command, which only serve has.
func (a *app) base() (c *Config, err error) {
	if a.settings != nil {
		return a.settings, nil
	}
	a.settings, err = a.config(&pflag.FlagSet{})
	return a.settings, err
}

// state returns the state directory.
func (a *app) state() (string, error) { return stateDir(a.stateOption) }

// ownState returns the state directory, which must be there and be ours.
func (a *app) ownState() (string, error) {
	state, err := a.state()
	if err == nil {
		err = checkStateDir(state, a.stderr)
	}
	return state, err
}

// withJSON adds --json to a command, withIDs -q; they are the same everywhere.
func (a *app) withJSON(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON; lists print one object a line")
	return c
}

func (a *app) withIDs(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.ids, "quiet", "q", false, "print ids only")
	return c
}

// ownRun returns the run that this command is part of; "" for none. A master looks by itself, too.
func ownRun() string { return os.Getenv("STINT_RUN_ID") }

// stateMissing returns the state directory, and whether it does not exist yet: then lists are empty. One
// that was named, and is not there, is an error.
func (a *app) stateMissing() (dir string, none bool, err error) {
	if dir, err = a.state(); err != nil {
		return "", false, err
	}
	_, err = os.Stat(dir)
	if none = errors.Is(err, fs.ErrNotExist); none && a.stateOption != "" && !a.creates {
		return dir, none, noState(dir)
	}
	return dir, none, nil
}

// noState is the error of a command that needs a state directory, and creates none.
func noState(dir string) error {
	return &cliError{code: exitNotFound, message: "there is no state directory at " + dir, try: `stint task "PROMPT", which creates it`}
}

// command returns a command that does something, with the values that complete offers for its arguments.
func command(use, short string, args cobra.PositionalArgs, do func(*cobra.Command, []string) error, complete ...cobra.CompletionFunc) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args, RunE: do}
	for _, f := range complete {
		c.ValidArgsFunction = f
	}
	return c
}

// group returns a command that has others below it.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.AddCommand(below...)
	return c
}

// refuseRun returns an error if this command is part of a run.
func (a *app) refuseRun() error {
	run := ownRun()
	if dir, err := a.state(); run == "" && err == nil {
		run, _ = runOf(dir, os.Getpid())() // whatever its environment says; where nobody can tell, the master decides
	}
	if run != "" {
		return task.ErrFromRun
	}
	return nil
}

// noRun makes a command one that no run may use: it changes the state directory also where no master looks.
func (a *app) noRun(c *cobra.Command) *cobra.Command {
	do := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.refuseRun(); err != nil {
			return err
		}
		return do(c, args)
	}
	return c
}

func noRun(build func(*app) *cobra.Command) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command { return a.noRun(build(a)) }
}
