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
	if len(views) == 0 {
		return printText(a.stdout, "no tasks yet\n\nnext:\n  stint task \"Summarise this repository in one line\"\n  stint demo\n  stint doctor\n  stint help\n")
	}
	views = first(views, isRunning)
	if err := a.printTasks(views, time.Now()); err != nil {
		return err
	}
	defer a.warnPaused()
	defer a.warnFindings(ctx)
	next := "show"
	switch top := &views[0]; {
	case isRunning(*top):
		next = "logs -f"
	case top.Waits != "":
		next = "why"
	}
	counts := ""
	if h, err := a.health(ctx); err == nil {
		for _, st := range state.Statuses {
			if n := h.Counts[st]; n > 0 {
				counts += fmt.Sprintf(", %d %s", n, st)
			}
		}
	}
	return printText(a.stdout, fmt.Sprintf("\n%s\n\nnext:\n  stint %s %s\n  stint task \"PROMPT\"\n  stint ls\n  stint help\n", strings.TrimPrefix(counts, ", "), next, shortID(views[0].ID)))
}
