package reconcile

import (
	"cmp"
	"slices"

	"stint/ledger"
)

// maxReworded is in how many records one save may change a guarded key before it
// is quarantined as the work of a formatter.
const maxReworded = 3

// quarantine returns the list without all edits of a save that changes guarded keys of more than
// three records: a formatter has gone over it, and nobody knows what else it has changed.
func (p *planner) quarantine(list []*adoption) []*adoption {
	line, reworded := 0, map[string]bool{}
	for _, a := range list {
		if a.origin != nil && a.guarded {
			line, reworded[a.name] = cmp.Or(line, a.section.Line), true
		}
	}
	if p.Accept || len(reworded) <= maxReworded {
		return list
	}
	p.findingAt(line, "%s changed in one save (a formatter?); quarantined with all that this save edits: stint edit --accept, or undo the change in your editor", ledger.Plural(len(reworded), "task's prompt", "tasks' prompts"))
	return slices.DeleteFunc(list, func(a *adoption) bool {
		if a.origin != nil {
			p.Quarantined++
		}
		return a.origin != nil
	})
}
