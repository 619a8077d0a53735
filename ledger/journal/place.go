package journal

import (
	"os"
	"path/filepath"
	"syscall"

	"stint/ledger"
	"stint/ledger/durable"
)

// ReadJournal reads the journal of a state directory. The error wraps fs.ErrNotExist if
// there is none.
func ReadJournal(dir string) ([]byte, error) {
	return durable.ReadFile(durable.OS, filepath.Join(dir, ledger.JournalName))
}

// ReadLedger reads any other ledger file that a person may name, also by a link. It does
// not wait for a pipe. The error wraps fs.ErrNotExist if there is no such file.
func ReadLedger(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return durable.ReadBounded(f, path)
}
