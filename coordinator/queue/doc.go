// Package queue is the tasks of one state directory, on disk and in memory: a [Store] is
// their ledger and its fold ([store.Store]), with what every room that works on them needs: who
// follows changes, errors that people understand, the lock of the directory, compaction, and what
// a person has edited. It decides nothing about tasks: admission, dispatch and attempt do.
package queue
