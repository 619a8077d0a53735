// Package journal is the log of a state directory: the only writer of journal.md, and the one
// that appends to tasks.md.
//
// [Open] replays journal.md into a fold and takes over what people changed in tasks.md
// meanwhile. After that one goroutine owns the journal: it takes all updates that wait
// ([Log.Update], [Log.Exclusive]), makes one write and one fdatasync for them, folds their
// records, answers, and appends the same bytes to tasks.md. Beside it, [Log.Reconcile] and the
// watch compare tasks.md with the journal (package reconcile) and apply the plan on that goroutine.
// [Log.Compact] writes both files anew and moves what has ended into archive/. A [follow.Follower] reads
// the journal by seq, also that of another process.
//
// What another hand does to journal.md is undone before anything more is acknowledged, and
// kept aside.
package journal
