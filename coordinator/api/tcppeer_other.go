//go:build !linux

package api

import (
	"net/netip"
	"os"
)

// findEnd cannot ask the system here: the token is what keeps others out.
func findEnd(_, _ netip.AddrPort) (end tcpEnd, found bool, err error) {
	return tcpEnd{uid: os.Getuid()}, true, nil
}
