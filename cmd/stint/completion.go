package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/state"
)

// completionTime bounds what a press of the tab key may take.
const completionTime = time.Second

// completeIDs offers the newest tasks with these statuses, or all. It asks a running master only.
func (a *app) completeIDs(statuses ...state.Status) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) (out []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		views, err := a.listRunning(ctx, state.Filter{Limit: 50, Status: statuses})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i, short := range shortIDs(idsOf(views)) {
			out = append(out, short+"\t"+string(views[i].Status)+" "+escapeText(views[i].Title))
		}
		return append(out, "@last\tthe newest task"), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// sessionNames returns the keys of the sessions of a running master, each once.
func (a *app) sessionNames(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	out, _ := fetch[wire.SessionsBody](ctx, a.callRunning, http.MethodGet, "/v1/sessions", nil) // without an answer there is nothing to offer
	names := slices.Sorted(slices.Values(mapped(out.Sessions, func(s *state.Session) string { return s.Key })))
	return slices.Compact(names) // of several agents
}

// completeTask offers values for the options of a new task.
func (a *app) completeTask(c *cobra.Command) {
	complete(c, "session", func() []string {
		return slices.DeleteFunc(a.sessionNames(c.Context()), func(key string) bool { return strings.Contains(key, ":") }) // lanes without a name
	})
	complete(c, "agent", func() []string { return agentNames })
	complete(c, "fallback", func() []string { return agentNames })
	completeBy(c, "after", a.completeIDs())
}

// completeSessions offers the sessions for the first argument.
func (a *app) completeSessions(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // a file for @FILE, say
	}
	return a.sessionNames(c.Context()), cobra.ShellCompDirectiveNoFileComp
}

// complete registers the values of an option.
func complete(c *cobra.Command, flag string, values func() []string) {
	completeBy(c, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

func completeBy(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the option does not exist: a mistake of ours
	}
}
