package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stint/coordinator"
	"stint/coordinator/api"
	"stint/state"
)

// maxChain bounds the tasks that a chain shows above and below one.
const maxChain = 20

// chain draws the tasks that led to a task by queueing one another, the task, and
// those that it has queued; "" of one that stands alone.
func (a *app) chain(ctx context.Context, v *api.TaskView) (string, error) {
	if v.TriggeredBy == "" && len(v.FollowUps) == 0 {
		return "", nil
	}
	path := []api.TaskView{*v}
	for path[0].TriggeredBy != "" && len(path) <= maxChain && !slices.ContainsFunc(path[1:], func(t api.TaskView) bool { return t.ID == path[0].ID }) {
		parent, err := a.chainTask(ctx, path[0].TriggeredBy)
		if err != nil {
			return "", err
		}
		path = append([]api.TaskView{parent}, path...)
	}
	var b strings.Builder
	if path[0].TriggeredBy != "" { // there are more, or it is a circle, which a person wrote
		b.WriteString("…\n")
	}
	for level := range path {
		chainLine(&b, level, &path[level], level == len(path)-1)
	}
	for i, id := range v.FollowUps {
		if i == maxChain {
			fmt.Fprintf(&b, "%s… and %d more\n", strings.Repeat("  ", len(path)), len(v.FollowUps)-i)
			break
		}
		child, err := a.chainTask(ctx, id)
		if err != nil {
			return "", err
		}
		chainLine(&b, len(path), &child, false)
	}
	return b.String(), nil
}

// chainTask gives a task of a chain. A person may have written the id of none, or what
// would mean a task elsewhere.
func (a *app) chainTask(ctx context.Context, id string) (v api.TaskView, err error) {
	err = a.call(ctx, func(c *api.Client) (err error) { v, err = c.Task(ctx, id); return err })
	var wrong *coordinator.Error
	if errors.As(err, &wrong) && slices.Contains([]coordinator.Code{coordinator.CodeNotFound, coordinator.CodeAmbiguous, coordinator.CodeInvalid}, wrong.Code) || err == nil && v.ID != id {
		return api.TaskView{Task: state.Task{ID: oneLine(id), Title: "(there is no such task)"}}, nil
	}
	return v, err
}

// chainLine writes the line of one task.
func chainLine(b *strings.Builder, level int, v *api.TaskView, isThis bool) {
	mark := ""
	if level > 0 {
		mark = strings.Repeat("  ", level-1) + "└ "
	}
	words := []string{shortID(v.ID), statusText(v)}
	if v.Trigger != "" {
		words = append(words, "["+string(v.Trigger)+"]")
	}
	words = append(words, oneLine(v.Title))
	if isThis {
		words = append(words, "(this task)")
	}
	b.WriteString(mark + strings.Join(words, "  ") + "\n")
}
