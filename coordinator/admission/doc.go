// Package admission decides about what is asked for, and appends it to the ledger: submit,
// edit, move, hold, release, cancel, retry and pause of a client, the follow-ups that a task
// queues at its end, and what the agent within a run may ask for.
//
// What depends on the value alone is checked by package task, what asks the file system is
// checked before the ledger's goroutine is asked, and what depends on other tasks is decided
// there, on the fold, in the same change that appends the records. So a batch is accepted
// whole or not at all, and two that ask for one thing at once get one answer.
package admission
