// Package dispatch decides who runs next. Its [Dispatcher] asks the fold what is ready whenever
// something has changed or a time has come, and appends `running` before anything is spawned. It
// hands tasks of a rate-limited account to their fallback agents, ends those that can never run,
// puts back what was running when the last master ended, and stops starting anything where
// masters die one after the other.
//
// The runs at work are a list with a lock of its own; nobody holds that and the fold's.
package dispatch
