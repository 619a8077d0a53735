package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/fold"
)

// Accounts returns the accounts that are known, in the order of their names: the default
// one of each agent, those that control records name, and those of tasks that run or
// wait. What they log in with is not here, nor anywhere in the ledger. To ask does not
// keep an idle master from ending.
func (c *Coordinator) Accounts() []state.AccountUse {
	list := task.Read(c.Store, (*fold.State).Accounts)
	for _, agent := range slices.Sorted(maps.Keys(c.Config.Agents)) {
		i, known := slices.BinarySearchFunc(list, agent, func(a state.AccountUse, name string) int { return cmp.Compare(a.Name, name) })
		if !known {
			list = slices.Insert(list, i, state.AccountUse{Account: state.Account{Name: agent}})
		}
		list[i].Agent = agent
	}
	return list
}
