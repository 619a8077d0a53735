package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// aliases has further names of commands, which the help does not list.
var aliases = map[string][]string{
	"stint account": {"accounts"}, "stint compact-tasks": {"compact"}, "stint ls": {"list"}, "stint show": {"get"},
	"stint tasks retry": {"requeue"}, "stint tasks show": {"get"},
}

// tasksCommand returns the names that other tools and schedulers use.
func (a *app) tasksCommand() *cobra.Command {
	return group(command("tasks", "the same as ls, show, retry and cancel", nil, nil),
		a.lsCommand(), a.showCommand(), retryCommand(a), cancelCommand(a))
}

// enqueueCommand is `task -d` as schedulers use it, which name the agent as the first argument.
func (a *app) enqueueCommand() *cobra.Command {
	o, prompt := &taskOptions{detach: true}, ""
	c := command("enqueue [OPTIONS] [AGENT] PROMPT", "queue a task and print its id (task -d)", nil, func(c *cobra.Command, args []string) error {
		given := c.Flags().Changed
		// What looks like AGENT PROMPT and is not, is refused: it would otherwise be a prompt for any agent.
		switch known := len(args) > 0 && slices.Contains(agentNames, args[0]); {
		case o.spec.Agent != "" || c.ArgsLenAtDash() == 0: // what follows -- is the prompt
		case known && len(args) == 1 && !given("prompt") && !given("edit") && !given("spec"):
			return usage(fmt.Sprintf("stint enqueue %s \"PROMPT\"; if that is the prompt: stint enqueue -- %s", args[0], args[0]), "there is no prompt for %s", args[0])
		case known:
			o.spec.Agent, args = args[0], args[1:]
		case len(args) == 2 && !strings.Contains(args[0], " ") && (strings.Contains(args[1], " ") || strings.HasPrefix(args[1], "@") || args[1] == "-"): // a whole prompt
			return usage("quote the whole prompt if there is none: stint enqueue \"PROMPT\"", "there is no agent %q; known are %s", clip(args[0], 40), strings.Join(agentNames, ", "))
		}
		if given("prompt") {
			if len(args) > 0 {
				return usage(c.CommandPath()+" --help", "the prompt is given twice: by --prompt, and as %q", clip(args[0], 40))
			}
			args = []string{prompt}
		}
		return a.runTask(c, o, args)
	})
	c.Flags().StringVar(&o.spec.Agent, "tool", "", "`name` of the agent: the same as --agent")
	c.Flags().StringVar(&prompt, "prompt", "", "the `prompt`, as an option")
	o.addFlags(a, c)
	complete(c, "tool", func() []string { return agentNames })
	exclusive(c, "agent", "tool")
	exclusive(c, "spec", "prompt", "edit")
	return a.withShared(c, sharedTask, "dry-run")
}
