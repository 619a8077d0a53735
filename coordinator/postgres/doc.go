// Package postgres keeps a mirror of a ledger in PostgreSQL, for audit: who asked what,
// what came of it, what it cost. Local work never waits for the mirror, and needs none.
//
// # How it follows
//
// A [Mirror] follows the journal as a replica follows a log. Its cursor, the number of a record, stands in the database (table
// mirrors) and is moved in the same transaction that writes the rows, with its old value as the condition: what was committed
// though nobody heard of it, comes twice, or comes from a second writer changes nothing. The journal says which tasks have
// changed; what is written is each of them as it is now, whole, once for all of its records in a batch. So a batch may be made
// of any part of the journal, and made again.
//
// The mirror is rebuilt, from all tasks of the fold and of the archive, where the cursor is no place in this
// ledger: in an empty database (the first one, or one failed over to), after a compaction that it had not
// seen, after a restore; where what rows depend on beside the ledger has changed; and when a person asks for
// it. While a mirror runs, a compaction waits for its follower, and loses it nothing. The rows of a rebuild
// have a generation of their own; at its end the tasks of older ones are removed.
//
// # What is copied
//
// Tasks; their runs, with head and tail of what they printed; their small files; and accounts by name, with hold and cool-down:
// of an account never a secret's value. What an agent prints is copied as it is. Text that PostgreSQL cannot hold (NUL, invalid
// UTF-8) has U+FFFD in its place. The statuses of the ledger have other names there, see `stint help postgres`.
//
// # What goes wrong
//
// A session (session.go) is the time from a connect to the first failure; a mirror makes
// one after the other. One task that the database does not take, or that cannot be read
// here, is told and passed over; anything else is tried again, for as long as it takes.
package postgres
