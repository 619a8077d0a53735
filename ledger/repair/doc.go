// Package repair checks and repairs a ledger file by itself, as stint fsck does: [CheckFile]
// returns the findings, [Repair] a text without them that has lost nothing.
package repair
