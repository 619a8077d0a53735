//go:build !linux

package ledger

// RemoteFS gives "": only Linux is asked.
func RemoteFS(string) string { return "" }
