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

// drawChain draws the tasks that led to a task by queueing one another, the task, and
// all that these have queued; "" of one that stands alone. task returns one of them.
func drawChain(v *wire.TaskView, task func(id string) (wire.TaskView, error)) (string, error) {
	if v.TriggeredBy == "" && len(v.FollowUps) == 0 {
		return "", nil
	}
	root, path := *v, map[string]wire.TaskView{v.ID: *v} // the tasks from the first one to this one
	for root.TriggeredBy != "" && len(path) <= maxChain {
		if _, isCircle := path[root.TriggeredBy]; isCircle { // which a person wrote
			break
		}
		parent, err := task(root.TriggeredBy)
		if err != nil {
			return "", err
		}
		if !slices.Contains(parent.FollowUps, root.ID) { // there is no such task
			parent.FollowUps = append(parent.FollowUps, root.ID)
		}
		path[parent.ID], root = parent, parent
	}
	var b strings.Builder
	if root.TriggeredBy != "" {
		b.WriteString("…\n")
	}
	left := maxChain // how many others may still be drawn
	var draw func(t *wire.TaskView, indent string) error
	draw = func(t *wire.TaskView, indent string) error {
		words := []string{shortID(t.ID), statusText(t), oneLine(t.Title)}
		if t.Trigger != "" {
			words = slices.Insert(words, 2, "["+string(t.Trigger)+"]")
		}
		if t.ID == v.ID {
			words = append(words, "(this task)")
		}
		b.WriteString(strings.Join(words, "  ") + "\n")
		more := 0
		for _, id := range t.FollowUps {
			child, isOnPath := path[id]
			switch {
			case id == root.ID: // of a circle
				continue
			case !isOnPath && left == 0:
				more++
				continue
			case !isOnPath:
				left--
				var err error
				if child, err = task(id); err != nil {
					return err
				}
			}
			b.WriteString(indent + "└ ")
			if err := draw(&child, indent+"  "); err != nil {
				return err
			}
		}
		if more > 0 {
			fmt.Fprintf(&b, "%s  … and %d more\n", indent, more)
		}
		return nil
	}
	err := draw(&root, "")
	return b.String(), err
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
