// Package api is the way into a master from other processes: an HTTP server over
// a unix socket, and the client that the command line uses.
//
// # Who may call
//
// The socket has mode 0600 in a directory of mode 0700, and a connection from
// another user than ours or root is closed before a byte of it is read ([Listen]).
//
// # Requests
//
// Everything is below /v1; /openapi.json there describes it. Bodies are JSON.
// What is not understood is refused: an unknown property or query parameter, another
// content type, text that is not UTF-8. Where a path has {id}, any reference
// to a task will do: its id, a unique piece of it, @last.
//
// # Errors
//
// An error is application/problem+json (RFC 9457) with two members more: code, a
// [coordinator.Code], and hint, the next command. The client turns it back into
// the same [*coordinator.Error].
//
// Every answer says in its header how many findings there are and whether dispatch is
// paused ([Notice]).
//
// # A master that does not answer
//
// A client that waits for longer than a request should take asks whether the master
// is there: OPTIONS *, which its HTTP server answers by itself. See [ErrSilent].
//
// # Long requests
//
// Wait, logs that follow and events last as long as they need to. They end when
// the client goes, and when the server is stopped: then a wait is answered with
// the code stopped, and a stream is broken off rather than closed, so that nobody
// takes its end for the end of the task.
package api
