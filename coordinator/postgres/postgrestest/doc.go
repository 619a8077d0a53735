// Package postgrestest starts for tests a real PostgreSQL of their own, and the means to let
// it go wrong: it is killed, paused, its disk fills up, connections break. Only tests
// import it.
//
// A server lies in a temporary directory and listens at a Unix socket there. A small
// process waits for the test binary to end, however it does, and then kills the server
// and removes its files: nothing is left behind by a panic or a timeout either.
package postgrestest
