// Package api is the way into a master from other processes: an HTTP server over a unix socket and, where it is asked for, on a
// port of this machine (package guard), with a small page (package web). Package client is what the command line uses.
//
// # Runs
//
// Over TCP the token decides, and no request belongs to a run. On the socket a run is known by
// its process (guard.RunOf), and may queue tasks and read ([Server.ServeHTTP]).
//
// # Requests
//
// What programs use is below /v1; /openapi.json there describes it. Package request reads requests into the types of the
// handlers, and validates them, by the tags of their fields. Of the same types and tags, and the arguments of op, a test makes
// the file openapi.json, which is what the server answers: go test ./coordinator/api -run TestDescription -update writes it.
// Beside it there are the page (/ and /ui) and, for who expects them there, /tasks, /health, /ready and /metrics. Bodies are
// JSON. What is not understood is refused (package request). Where a path has {id}, any reference to a task will do: its id, a
// unique piece of it, @last.
//
// # Rooms
//
// [Rooms] are what the handlers use: a [Master], and what looks after its schedules and due jobs.
//
// # Errors
//
// An error is application/problem+json (RFC 9457) with more members: code, a [task.Code]; message, which is detail; hint, the
// next command; and field, what of the request is wrong. The client turns it back into the same [*task.Error].
//
// Every answer says in its header how many findings there are, whether dispatch is paused, the number of the
// newest record, and with which configuration the master was started ([wire.Notice]).
//
// # Pages and pieces
//
// A list of tasks has a limit, by default 100, and says how it goes on: next, and the header Link. The cursor is the number of
// the first record of the page's last task, which compaction keeps (state.KeyFirstSeq): so no task is returned twice and none
// is left out, whatever becomes of them between two pages. A long transcript is read from its end on: older.
//
// A log (package logs) that is not followed, and a collected file, can be asked for in pieces by Range. A log is then what its
// runs have written until now, one behind the other, with a line where something was cut out. Files are sent to be saved, under a
// policy that lets no browser show them.
//
// # Long requests
//
// Wait, logs that follow and events last as long as they need to. They end when the client goes, and when the
// server is stopped: then a wait is answered with the code stopped, and a stream is broken off rather than
// closed, so that nobody takes its end for the end of the task.
//
// # Events
//
// GET /v1/events are Server-Sent Events, or JSON lines for who accepts those. The id of an event is the number of a record of
// the ledger, so any master of that ledger can go on where another one was left: Last-Event-ID, or the query after, names the
// last record that the reader knows of. What has changed since comes first, each task once and as it is now; then what comes.
// Where that cannot be told (too long ago, a number that this ledger has not got to, a compaction, tasks that a person has
// deleted) the event is resync: list anew. The header Stint-Seq of a list's answer is where who has listed goes on.
//
// A reader who takes nothing is cut off, and nobody waits for it.
package api
