//go:build !linux

package durable

// RemoteFS returns "": only Linux is asked.
func RemoteFS(string) string { return "" }
