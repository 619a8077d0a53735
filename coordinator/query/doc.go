// Package query is the read side of a master: lists and single tasks, why one waits, its runs,
// prompts and files, sessions, usage, metrics, a search of the notes, and a preview of what a
// submit would do. It changes nothing. What it asks of the runs at work, the dispatcher answers
// ([Live]).
package query
