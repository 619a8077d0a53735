// Package task has the words that the coordinator and its adapters share: what a client
// asks for ([TaskSpec], [Patch]), what an agent is told and answers ([Turn], [Outcome]),
// what a master reports ([Health], [Metrics], [TaskRun]), its configuration ([Config]), and
// the one error type that people and programs both understand ([Error]).
//
// It holds types, their JSON and the checks that need nothing but the value itself. What
// depends on other tasks or on the file system is checked by the rooms above. An HTTP server, a
// database mirror or an agent is written against this package and what lies below it, never
// against the coordinator.
package task
