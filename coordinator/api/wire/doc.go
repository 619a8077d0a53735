// Package wire has what the server and its client send each other: views of tasks and
// sessions, bodies of requests, errors ([Problem]), the headers of a [Notice], cursors and
// sizes. Types of the coordinator that travel as they are, such as a TaskSpec, are in
// coordinator/task.
package wire
