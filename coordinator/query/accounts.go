package query

import (
	"cmp"
	"maps"
	"slices"

	"stint/coordinator/queue"
	"stint/state"
	"stint/state/fold"
)

// Accounts returns the accounts that are known, in the order of their names: the default
// one of each agent, those that control records name, and those of tasks that run or
// wait. What they log in with is not here, nor anywhere in the ledger. To ask does not
// keep an idle master from ending.
func (q *Query) Accounts() []state.AccountUse {
	list := queue.Read(q.tasks, (*fold.State).Accounts)
	for _, agent := range slices.Sorted(maps.Keys(q.tasks.Config.Agents)) {
		i, known := slices.BinarySearchFunc(list, agent, func(a state.AccountUse, name string) int { return cmp.Compare(a.Name, name) })
		if !known {
			list = slices.Insert(list, i, state.AccountUse{Account: state.Account{Name: agent}})
		}
		list[i].Agent = agent
	}
	return list
}
