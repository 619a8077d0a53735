// Package reconcile finds what a person changed in tasks.md.
//
// [Compare] takes a parsed tasks.md and the bytes of the journal and returns a [Plan]: the
// records that take edits over ("by: hand"), the records that a stale buffer has dropped, the
// tasks whose sections a person has deleted, and what cannot be taken over. It reads no file and
// writes none; package journal applies the plan.
//
// Each section is matched with a record of the journal by its seq, or by the digest under which
// it was adopted before (history.go). What differs from what was last seen becomes an adoption
// (adopt.go). A save that changes the prompts of many tasks at once is quarantined (quarantine.go).
package reconcile
