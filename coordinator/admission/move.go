package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// Move puts a queued task into another place in its lane. The error has CodeConflict if one of the two does not
// wait there, or if it would come before what it has to come after. by is who asks.
func (a *Admission) Move(ctx context.Context, ref string, to task.Place, by string) (state.Task, error) {
	if to.First == (to.Before != "") {
		return state.Task{}, task.Invalid("say either that it is to be the first, or before which task", "it is not clear where the task is to go")
	}
	return a.change(ctx, ref, a.tasks.Exclusive, func(st *fold.State, tx *ledger.Tx, id string) error {
		before := ""
		if to.Before != "" {
			var err error
			if before, err = queue.FindIn(st, to.Before); err != nil {
				return err
			}
		}
		moved, err := moved(st, id, before)
		if err != nil {
			return err
		}
		for _, t := range moved {
			tx.Append(task.RecordOf(t.ID).Add(state.KeyOrder, strconv.FormatInt(t.Order, 10)).Add(state.KeyBy, by).
				Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		}
		return nil
	})
}

// moved returns the tasks whose order must change, with the new one, so that a task comes before another, or
// before all that wait if that is "". Running ones keep their places, to which they may come back.
func moved(st *fold.State, id, before string) ([]state.Task, error) {
	t, err := waiting(st, id)
	if err != nil {
		return nil, err
	}
	if before != "" {
		if before == id {
			return nil, task.Invalid("name another task", "task %s cannot come before itself", id)
		}
		other, err := waiting(st, before)
		if err != nil {
			return nil, err
		}
		if other.Lane() != t.Lane() {
			return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s waits in %s, and task %s in %s", id, t.Lane(), before, other.Lane()), Hint: "stint session queue " + t.Lane()}
		}
	}
	lane := st.Lane(t.Lane())
	was := slices.IndexFunc(lane, func(o state.Task) bool { return o.ID == id })
	lane = slices.Delete(lane, was, was+1)
	at := slices.IndexFunc(lane, func(o state.Task) bool {
		return o.ID == before || before == "" && isQueued(o)
	})
	if at < 0 || was <= at && !slices.ContainsFunc(lane[was:at], isQueued) { // alone, or there already
		return nil, nil
	}
	changed := reorder(slices.Insert(lane, at, t), at)
	var cycle *lanes.CycleError
	if err := st.CheckOrder(changed); errors.As(err, &cycle) {
		return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s cannot be there: %s", id, cycle.Text), Hint: "stint show " + id}
	}
	return changed, nil
}

func isQueued(t state.Task) bool { return t.Status == state.Queued }

// waiting returns a task that is queued.
func waiting(st *fold.State, id string) (state.Task, error) {
	t, _ := st.Peek(id)
	if t.Status != state.Queued {
		return t, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is %s; only queued tasks have a place in a queue", id, t.Status), Hint: "stint show " + id}
	}
	return t, nil
}

const (
	orderStep = 1000    // distance of the orders that are given out, so that there is room between them
	maxOrder  = 1 << 60 // bounds the orders to which others are added: a person can write any
)

// reorder returns the tasks of a lane whose order must change, with it, so that the one at a place comes there.
func reorder(lane []state.Task, at int) []state.Task {
	var left, right int64
	if at > 0 {
		left = lane[at-1].Order
	}
	if at+1 < len(lane) {
		right = lane[at+1].Order
	}
	order := left + (right-left)/2 // with which all others can stay as they are
	switch {
	case right == 0: // the last of those that have an order, or the only one
		order = left + orderStep
	case at == 0:
		order = right - orderStep
	}
	order = cmp.Or(order, 1) // 0 is none
	isAmongAges := at > 0 && left == 0
	isFree := (at == 0 || order > left) && (right == 0 || order < right)
	if isFree && !isAmongAges && max(left, right) <= maxOrder && min(left, right) >= -maxOrder {
		lane[at].Order = order
		return lane[at : at+1]
	}
	last := at
	for i := range lane {
		if lane[i].Order != 0 {
			last = max(last, i)
		}
	}
	var changed []state.Task
	for i := range lane[:last+1] {
		if order := int64(i+1) * orderStep; lane[i].Order != order {
			lane[i].Order = order
			changed = append(changed, lane[i])
		}
	}
	return changed
}
