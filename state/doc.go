// Package state is the vocabulary of tasks: what a task is, which status can follow which, under which keys
// its fields stand in the ledger, and what one record makes of it ([Folded.Apply]).
//
// A task has many records; each changes only the fields that it names, and an empty value unsets. The status
// moves along one table ([CanFollow]). A record that the table forbids, or with a value that cannot be read,
// is refused with a [*RecordError] and has no effect at all.
//
// Package state/limits, below it, reads budgets and hours. Four packages stand on it:
//   - state/table keeps tasks in little memory.
//   - state/lanes holds the tasks that have not ended: their order, and which of them
//     may run.
//   - state/explain says in words why the others may not.
//   - state/fold folds all records of a journal into one State.
//
// None of them does I/O, starts anything or reads a clock: the time comes in as an argument.
package state
