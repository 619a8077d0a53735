// Package repair checks and repairs one ledger file by itself, as stint fsck does. It reads and
// writes no file: it gets bytes and returns bytes.
//
//   - [CheckFile] returns the findings of the whole file, in the order of its lines.
//   - [Repair] returns a text without findings that has lost nothing: damaged records come
//     from the journal, open blocks are closed, and what is no record is kept as text.
//
// Both know only the grammar. What a value may be says the check that the caller passes.
package repair
