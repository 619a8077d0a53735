// Package lanes holds the tasks that have not ended, and decides what may run. It reads no
// records: [fold] feeds it with what they have made of each task ([Queues.Set]).
//
// Of a task that waits, what dispatch looks at is a row of fields, and the rest is packed ([table.Body]): at most
// 600 bytes with its session and its place in its lane. A lane or a session of its own comes on top of that.
//
// # What may run
//
// A lane is the serial queue of one session key. In it explicit order comes first, then age, which is the order of first
// appearance. A held task and one whose time the user set ahead are passed over. A head that waits for its retry, for another
// task or for its account blocks its lane, but not that of a directory, which only keeps tasks apart: there those of other
// sessions go first. A lane never has two running tasks. Among the heads of lanes the higher priority goes first, then age.
// [Queues.Ready] returns the tasks to start now, [Queues.NextWake] when time alone may change the answer. Why a task is not
// among them is put into words by [explain], from what [Queues.Before], [Queues.Occupant] and their like return. What is in use
// (workers, slots of accounts, sessions) is counted from the running tasks and never stored.
//
// A task that comes after others waits until they are done. [Queues.CheckOrder] reports beforehand whether
// tasks would wait for each other for ever, over lanes and after. [Queues.BlockedByDependency] returns those
// that can never run, because a task before them has ended otherwise than done.
//
// # Sessions and controls
//
// Sessions are folded from the task records that name them: [Queues.CurrentSession] is the one that a new
// task of a lane goes on with. Control records carry what is neither a task nor configuration: "Control
// dispatch" pauses dispatch, "Control account:NAME" holds or cools down an account. After a cool-down the
// account's tasks start one at a time until a record takes its limitWaits away.
//
// [explain]: stint/state/explain [fold]: stint/state/fold
package lanes
