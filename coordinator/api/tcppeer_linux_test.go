package api

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// addrPorts gives the two addresses of a client's connection.
func addrPorts(c net.Conn) (client, server netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// TestFindEnd: among 1,000 other connections, and once nobody has it any more.
func TestFindEnd(t *testing.T) {
	lns, err := ListenLoopback("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range lns {
		defer func() { _ = ln.Close() }()
	}
	var conns []net.Conn
	for i := range 1000 {
		c, err := net.Dial("tcp", lns[i%len(lns)].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	inodes, begun := map[uint64]bool{}, time.Now()
	for i := 0; i < len(conns); i += 37 {
		end, found, err := findEnd(addrPorts(conns[i]))
		if err != nil || !found || end.uid != os.Getuid() || inodes[end.inode] {
			t.Fatalf("%d: %v %v %v", i, end, found, err)
		}
		if i%5 == 0 { // where the kernel cannot be asked
			if row, found, err := searchTables(addrPorts(conns[i])); row != end || !found || err != nil {
				t.Fatalf("%d: %v %v %v instead of %v", i, row, found, err, end)
			}
		}
		inodes[end.inode] = true
	}
	t.Logf("find: connections=%d each=%s", len(conns), time.Since(begun)/time.Duration(len(inodes)))
	client, server := addrPorts(conns[0])
	listens := lns[0].Addr().(*net.TCPAddr).AddrPort()
	if end, found, err := findEnd(listens, netip.AddrPortFrom(listens.Addr(), 1)); found || err != nil {
		t.Errorf("what listens there: %v %v", end, err)
	}
	if end, found, err := findEnd(server, netip.AddrPortFrom(client.Addr(), 1)); found || err != nil {
		t.Errorf("what is not there: %v %v", end, err)
	}
	if end, _, err := askKernel(addrPorts(conns[0])); end.inode == 0 || err != nil {
		t.Errorf("the kernel was not asked: %v %v", end, err)
	}
	if err := conns[0].Close(); err != nil {
		t.Fatal(err)
	}
	if end, found, err := findEnd(client, server); found || err != nil {
		t.Errorf("a socket that was closed: %v %v", end, err)
	}
}

// diagError is the answer of a kernel that tells nothing.
func diagError(code unix.Errno) []byte {
	answer := make([]byte, 36)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	binary.NativeEndian.PutUint16(answer[4:], unix.NLMSG_ERROR)
	binary.NativeEndian.PutUint32(answer[16:], -uint32(code))
	return answer
}

// TestKernelThatTellsNothingOfTCP: it says that there is no such socket, and our own user is
// let in all the same.
func TestKernelThatTellsNothingOfTCP(t *testing.T) {
	s := serveTCP(t, twoTasks(t), Options{})
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(netip.AddrPort, netip.AddrPort) (tcpEnd, bool, error) { return parseDiag(diagError(unix.ENOENT)) }
	ends := endFinder{ask: ask, search: searchTables}
	client, server := addrPorts(c)
	if end, found, err := ends.find(client, server); !found || err != nil || end.uid != os.Getuid() {
		t.Errorf("%v %v %v", end, found, err)
	}
	if end, found, err := ends.find(client, netip.AddrPortFrom(server.Addr(), 1)); found || err != nil {
		t.Errorf("what is not there: %v %v", end, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelIsBelieved: once it has told of one connection, that there is no other is no
// cause to read the tables, as long as strangers can make them, or to complain of them.
func TestKernelIsBelieved(t *testing.T) {
	its, known, searched := tcpEnd{uid: 1, inode: 2}, false, 0
	ends := endFinder{
		ask: func(netip.AddrPort, netip.AddrPort) (tcpEnd, bool, error) { return its, known, nil },
		search: func(netip.AddrPort, netip.AddrPort) (tcpEnd, bool, error) {
			searched++
			return tcpEnd{}, false, unix.EACCES
		},
	}
	var client, server netip.AddrPort
	if _, found, err := ends.find(client, server); found || err == nil || searched != 1 {
		t.Errorf("a kernel that may tell nothing: %v %v, searched %d times", found, err, searched)
	}
	known = true
	if end, found, err := ends.find(client, server); end != its || !found || err != nil {
		t.Errorf("one that tells: %v %v %v", end, found, err)
	}
	known = false
	if _, found, err := ends.find(client, server); found || err != nil || searched != 1 {
		t.Errorf("one that has told: %v %v, searched %d times", found, err, searched)
	}
}

// TestMappedClientIsLetIn: a client may use one kind of socket for all addresses, as Java does.
func TestMappedClientIsLetIn(t *testing.T) {
	s := serveTCP(t, twoTasks(t), Options{})
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		missing(t, "there is no IPv6")
	}
	port := netip.MustParseAddrPort(s.addr).Port()
	if err := unix.Connect(fd, &unix.SockaddrInet6{Port: int(port), Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "mapped")
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	answers := talk(t, c.(*net.TCPConn), strings.NewReplacer("HOST", s.addr, "TOKEN", s.token).Replace(withHeader("x: y")))
	if len(answers) != 1 || answers[0].StatusCode != 200 {
		t.Errorf("%v", answers)
	}
}

// FuzzParseRow: what is no row is none.
func FuzzParseRow(f *testing.F) {
	const addrs = "0100007F:9C40 0100007F:1D09"
	f.Add("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: " + addrs + " 01 00000000:00000000 00:00000000 00000000  1000        0 632 1 000000003d4207ce 100 0 0 10 0\n")
	f.Add("   1: " + addrs + " 06 00000000:00000000 03:000015BD 00000000     0        0 0 3 00000000d2587b48")
	f.Add("   1: " + addrs + " 06 \n 1 2 3 4 5 6 7 8")
	f.Add("   1: " + addrs + " 06 0 0 0 -1 0 18446744073709551616")
	f.Fuzz(func(t *testing.T, table string) {
		end, found, err := parseRow([]byte(table), addrs)
		if found && (err != nil || end.uid < 0 || !strings.Contains(table, addrs)) || !found && end != (tcpEnd{}) {
			t.Errorf("%q: %v %v %v", table, end, found, err)
		}
	})
}

// FuzzParseDiag: what is no answer of the kernel's is none.
func FuzzParseDiag(f *testing.F) {
	answer := make([]byte, 16+72)
	answer[17] = 1 // TCP_ESTABLISHED
	binary.NativeEndian.PutUint16(answer[4:], diagByFamily)
	binary.NativeEndian.PutUint32(answer[80:], 42)
	binary.NativeEndian.PutUint32(answer[84:], 7)
	f.Add(answer)
	f.Add(answer[:87])
	f.Add(diagError(unix.ENOENT))
	f.Fuzz(func(t *testing.T, data []byte) {
		end, found, err := parseDiag(data)
		if found && (err != nil || len(data) < len(answer)) || err != nil && end != (tcpEnd{}) {
			t.Errorf("%x: %v %v %v", data, end, found, err)
		}
	})
}
