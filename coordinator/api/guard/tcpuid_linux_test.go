package guard

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTCPUID: the user of a connection is found, also of a client who uses one kind of
// socket for all addresses, as Java does; and not once it is closed.
func TestTCPUID(t *testing.T) {
	lns, err := ListenLoopback("localhost:0")
	must(t, err)
	for _, ln := range lns {
		defer func() { _ = ln.Close() }()
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		client, server := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
		if uid, found, err := tcpUID(client, server); uid != os.Getuid() || !found || err != nil {
			t.Errorf("%s: %d %v %v", client, uid, found, err)
		}
		if _, found, err := tcpUID(client, netip.AddrPortFrom(server.Addr(), 1)); found || err != nil {
			t.Errorf("what is not there: %v %v", found, err)
		}
		must(t, c.Close())
		if _, found, err := tcpUID(client, server); found || err != nil {
			t.Errorf("a socket that was closed: %v %v", found, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		missing(t, "there is no IPv6")
	}
	defer func() { _ = unix.Close(fd) }()
	server := lns[0].Addr().(*net.TCPAddr).AddrPort()
	must(t, unix.Connect(fd, &unix.SockaddrInet6{Port: int(server.Port()), Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}))
	own, err := unix.Getsockname(fd)
	must(t, err)
	client := netip.AddrPortFrom(server.Addr(), uint16(own.(*unix.SockaddrInet6).Port))
	if uid, found, err := tcpUID(client, server); uid != os.Getuid() || !found || err != nil {
		t.Errorf("a mapped client: %d %v %v", uid, found, err)
	}
}

// TestFindRow: what is no row is none, and who has closed is not root.
func TestFindRow(t *testing.T) {
	const addrs = "0100007F:9C40 0100007F:1D09"
	for _, tt := range []struct {
		rest  string
		uid   int
		found bool
	}{
		{" 01 00000000:00000000 00:00000000 00000000  1000        0 632 1 000000003d4207ce 100 0 0 10 0\n", 1000, true},
		{" 06 00000000:00000000 03:000015BD 00000000     0        0 0 3 00000000d2587b48", 0, false},
		{" 06 \n 1 2 3 4 5 6 7 8", 0, false},
		{" 06 0 0 0 -1 0 18446744073709551616", 0, false},
		{"5 01 0 0 0 1000 0 632", 0, false},
	} {
		uid, found := findRow([]byte("  sl  local_address rem_address\n   0: "+addrs+tt.rest), addrs)
		if found != tt.found || found && uid != tt.uid {
			t.Errorf("%q: %d %v", tt.rest, uid, found)
		}
	}
}
