package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// tcpUID returns the user who has the client's end of the connection between client and
// server, if somebody has it.
func tcpUID(client, server netip.AddrPort) (uid int, found bool, err error) {
	for range 3 { // the kernel writes a table piece by piece, and may pass over a row if others come or go meanwhile
		text, err := readTables(time.Now())
		for _, mapped := range []bool{false, true} { // a client may use a socket of IPv6 for an address of IPv4
			if uid, found = findRow(text, rowAddr(client, mapped)+" "+rowAddr(server, mapped)); found || err != nil {
				return uid, found && err == nil, err
			}
		}
	}
	return 0, false, nil
}

// tables are the kernel's tables of connections as they were last read, which takes
// milliseconds: all who wait for them share one reading.
var tables struct {
	sync.Mutex           // guards what follows
	begun      time.Time // the last reading
	text       []byte
}

// readTables returns the tables as they were after since.
func readTables(since time.Time) (text []byte, err error) {
	tables.Lock()
	defer tables.Unlock()
	if !tables.begun.After(since) {
		tables.begun, tables.text = time.Now(), nil
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // without IPv6 the latter is missing
			if text, err = os.ReadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("the table of connections: %w", err)
			}
			tables.text = append(tables.text, text...)
		}
	}
	return tables.text, nil
}

// rowAddr writes an address as a table does: in words of the machine's byte order.
func rowAddr(a netip.AddrPort, mapped bool) (text string) {
	raw := a.Addr().As16()
	words := raw[12:] // the address of IPv4
	if mapped || !a.Addr().Unmap().Is4() {
		words = raw[:]
	}
	for word := range slices.Chunk(words, 4) {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", text, a.Port())
}

// findRow returns the user of the row whose two addresses are addrs. A socket that was
// closed has no inode, and seems to be root's: nobody has it.
func findRow(table []byte, addrs string) (uid int, found bool) {
	_, rest, _ := bytes.Cut(table, []byte(": "+addrs+" "))
	row, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(row) // st, queues, timer, retransmissions, uid, timeout, inode
	if len(fields) < 7 || string(fields[6]) == "0" {
		return 0, false
	}
	uid, err := strconv.Atoi(string(fields[4]))
	return uid, err == nil && uid >= 0
}
