// Package table keeps a few words of every task, also of those that have ended, well
// below 200 bytes each, so that a million of them fit in memory: id, status, the time of
// the newest record, session key and what lists are filtered by. Strings that many tasks
// share are kept once; ids are 16 bytes where they are UUIDs.
package table
