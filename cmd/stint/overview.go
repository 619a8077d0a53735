package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stint/state"
)

// overviewTasks is how many tasks stint without a command shows.
const overviewTasks = 5

// overview prints how things stand, and three commands that fit.
func (a *app) overview(ctx context.Context) error {
	views, err := a.listed(ctx, &lsOptions{filter: state.Filter{Limit: overviewTasks}})
	if err != nil {
		return err
	}
	next := []string{`stint task "Summarise this repository in one line"`, "stint demo", "stint doctor"}
	text := "no tasks yet\n"
	if len(views) > 0 {
		views = first(views, isRunning)
		if err := a.printTasks(views, time.Now()); err != nil {
			return err
		}
		text = ""
		top := &views[0]
		next[0], next[1], next[2] = "stint show "+shortID(top.ID), `stint task "PROMPT"`, "stint ls"
		switch {
		case isRunning(*top):
			next[0] = "stint logs -f " + shortID(top.ID)
		case top.Waits != "":
			next[0] = "stint why " + shortID(top.ID)
		}
		if h, err := a.health(ctx); err == nil {
			for _, st := range state.Statuses {
				if n := h.Counts[st]; n > 0 {
					text += fmt.Sprintf(", %d %s", n, st)
				}
			}
			text = "\n" + strings.TrimPrefix(text, ", ") + "\n"
		}
		defer a.tellPaused()
		defer a.tellFindings(ctx)
	}
	return printText(a.stdout, text+"\nnext:\n  "+strings.Join(next, "\n  ")+"\n  stint help\n")
}
