// Package state is the fold of the journal: what the records say, put together.
//
// A [State] is made empty and fed with every record in order by [State.Apply],
// on replay and live by the same call. Whatever it tells is a function of the
// records that were applied: two states that saw the same records give the same
// [State.Dump]. It starts nothing, writes nothing and reads no clock; the time
// comes in as an argument.
//
// # Tasks
//
// A task has many records; each changes only the fields that it names, and an
// empty value unsets. The status moves along one table ([CanFollow]). A record
// that the table forbids, or with a value that cannot be read, is refused with
// a [*RecordError] and has no effect at all.
//
// A task that has not ended is all in memory, but for its texts (prompt, result,
// unknown keys): one that runs as a whole [Task], one that waits in a few words, at
// most 600 bytes with its session and its place in its lane. What dispatch looks at of
// it is a row of fields; the rest is packed, and strings that many tasks share are kept
// once. A lane or a session that it has to itself comes on top of that. Of a task that
// has ended only a few words are kept, well below 200 bytes, with the offsets of its
// records. Everything else, and the titles of lists, is read back through the [Reader]
// when asked for: by [State.Task], by [State.List] for the rows that it returns, and by
// Apply itself when a record comes for a task that had ended (a retry). That reading is the one I/O of this package, and the Reader
// does it. A Reader must therefore be able to read every record that was applied
// before, also in the middle of a replay; when it cannot, Apply says so and the
// record has no effect.
//
// # What may run
//
// A lane is the serial queue of one session key. In it explicit order comes first,
// then age, which is the order of first appearance. A held task and one whose
// time the user set ahead are passed over. A head that waits for its retry, for
// another task or for its account blocks its lane, but not that of a directory,
// which only keeps tasks apart: there those of other sessions go first. A lane
// never has two running tasks. Among the heads of lanes the higher priority goes first, then age. [State.Ready] gives
// the tasks to start now, [State.Why] says of one why it is not among them,
// [State.NextWake] when time alone may change the answer. What is in use (workers,
// slots of accounts, sessions) is counted from the running tasks and never stored.
//
// A task that comes after others waits until they are done. [State.CheckOrder] says
// beforehand whether tasks would wait for each other for ever, over lanes and after;
// a person's record that would make it so is refused. [State.Doomed] gives those that
// can never run, because a task before them has ended otherwise than done.
//
// # Sessions and controls
//
// Sessions are folded from the task records that name them: [State.CurrentSession] is
// the one that a new task of a lane goes on with. Control records carry what is
// neither a task nor configuration: "Control dispatch" pauses dispatch, "Control
// account:NAME" holds or cools down an account. After a cool-down the account's
// tasks start one at a time until a record takes its limitWaits away.
//
// # Use
//
// A State is not safe for concurrent use, not even for reading: the queries keep
// caches. Its owner, the coordinator, holds one lock around every call.
package state
