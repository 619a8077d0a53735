package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// maxChain bounds the tasks that a chain shows above one, and those beside and below these.
const maxChain = 50

// A chain is the drawing of tasks that have queued one another.
type chain struct {
	strings.Builder
	task func(id string) (wire.TaskView, error)
	this string                   // id of the task that it is drawn for
	root string                   // and of the first one
	path map[string]wire.TaskView // the tasks from there to this one
	left int                      // how many others may still be drawn
}

// drawChain draws the tasks that led to a task by queueing one another, the task, and
// all that these have queued; "" of one that stands alone. task returns one of them.
func drawChain(v *wire.TaskView, task func(id string) (wire.TaskView, error)) (string, error) {
	if v.TriggeredBy == "" && len(v.FollowUps) == 0 {
		return "", nil
	}
	c := &chain{task: task, this: v.ID, path: map[string]wire.TaskView{v.ID: *v}, left: maxChain}
	root := *v
	for root.TriggeredBy != "" && len(c.path) <= maxChain {
		if _, isCircle := c.path[root.TriggeredBy]; isCircle { // which a person wrote
			break
		}
		parent, err := task(root.TriggeredBy)
		if err != nil {
			return "", err
		}
		if !slices.Contains(parent.FollowUps, root.ID) { // there is no such task
			parent.FollowUps = append(parent.FollowUps, root.ID)
		}
		c.path[parent.ID] = parent
		root = parent
	}
	if root.TriggeredBy != "" {
		c.WriteString("…\n")
	}
	c.root = root.ID
	err := c.draw(&root, 0)
	return c.String(), err
}

func (c *chain) draw(v *wire.TaskView, level int) error {
	mark := ""
	if level > 0 {
		mark = strings.Repeat("  ", level-1) + "└ "
	}
	words := []string{shortID(v.ID), statusText(v)}
	if v.Trigger != "" {
		words = append(words, "["+string(v.Trigger)+"]")
	}
	words = append(words, oneLine(v.Title))
	if v.ID == c.this {
		words = append(words, "(this task)")
	}
	c.WriteString(mark + strings.Join(words, "  ") + "\n")
	more := 0
	for _, id := range v.FollowUps {
		child, isOnPath := c.path[id]
		switch {
		case id == c.root: // of a circle
			continue
		case !isOnPath && c.left == 0:
			more++
			continue
		case !isOnPath:
			c.left--
			var err error
			if child, err = c.task(id); err != nil {
				return err
			}
		}
		if err := c.draw(&child, level+1); err != nil {
			return err
		}
	}
	if more > 0 {
		fmt.Fprintf(&c.Builder, "%s… and %d more\n", strings.Repeat("  ", level+1), more)
	}
	return nil
}

// chainTask returns a task of a chain. A person may have written an id that means no task.
func (a *app) chainTask(ctx context.Context, id string) (v wire.TaskView, err error) {
	v, err = a.task(ctx, id)
	var wrong *task.Error
	if errors.As(err, &wrong) && slices.Contains([]task.Code{task.CodeNotFound, task.CodeAmbiguous, task.CodeInvalid}, wrong.Code) || err == nil && v.ID != id {
		return wire.TaskView{Task: state.Task{ID: oneLine(id), Title: "(there is no such task)"}}, nil
	}
	return v, err
}
