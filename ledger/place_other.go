//go:build !linux

package ledger

// RemoteFS returns "": only Linux is asked.
func RemoteFS(string) string { return "" }
