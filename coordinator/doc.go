// Package coordinator runs tasks: it accepts them, decides which may run,
// starts agents for them, and writes every step into the ledger.
//
// One goroutine owns the fold and the files: the log's. Everything that changes
// something (a submit, a cancel, the start or end of a run) is a function that
// runs there, looks at the state and appends records; many that wait at the same
// moment share one write and one fdatasync. What was appended is applied to the
// state by the same code that replays the journal after a restart, and only then
// answered. So the order of events is the order of the records, and nothing is
// ever told that is not on the disk.
//
// Around it are: the dispatcher, which asks the state what is ready whenever
// something changed or a time has come; one goroutine for each run; and the
// heartbeat. All end before [Coordinator.Close] returns.
//
// The tasks themselves are in queue, over the fold of the ledger in store; dispatch decides
// what runs next, attempt runs it, query answers readers. Agents, HTTP and the mirror in
// PostgreSQL (agent, api, postgres) lie in the same folder, but beside them: this package
// gets them as small interfaces and imports none.
package coordinator
