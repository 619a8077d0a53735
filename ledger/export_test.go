package ledger

// For tests of packages above.
var (
	AddLedgers    = addLedgers
	LedgerOfBytes = ledgerOfBytes
	RecordsOf     = recordsOf
)
