// Package fold is the fold of the journal: what the records say, put together.
//
// A [State] is made empty and fed with every record in order by [State.Apply], on replay and live by the same
// call. Whatever it returns is a function of the records that were applied: two states that saw the same
// records write the same [State.Dump]. What may run is decided by the [lanes.Queues] in it.
//
// A task that has not ended is all in memory, but for its texts (prompt, result, unknown keys). Of one that has ended only a
// few words are kept ([table.Tasks]), with the offsets of its records. Everything else, and the titles of lists, is read back
// through the [Reader] when asked for: by [State.Task], by [State.List] for the rows that it returns, and by Apply itself when
// a record comes for a task that had ended (a retry). That reading is the one I/O of this package, and the Reader does it. A
// Reader must therefore be able to read every record that was applied before, also in the middle of a replay; when it cannot,
// Apply says so and the record has no effect.
//
// [Save] checks what people wrote in the ledger before it is accepted.
//
// A State is not safe for concurrent use, not even for reading: the queries keep
// caches. Its owner, coordinator/store, holds one lock around every call.
package fold
