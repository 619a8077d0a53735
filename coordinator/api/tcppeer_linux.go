package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
)

// findEnd gives the end of the connection between client and server that client has; found
// is false if no process has it.
func findEnd(client, server netip.AddrPort) (end tcpEnd, found bool, err error) {
	end, found, err = askKernel(client, server)
	if err != nil {
		end, found, err = searchTables(client, server)
	}
	return end, found && end.inode != 0, err // one that was closed has no inode, and may seem to be root's
}

// searchTables is findEnd where the kernel cannot be asked for one connection: as slow as
// there are many.
func searchTables(client, server netip.AddrPort) (end tcpEnd, found bool, err error) {
	for _, mapped := range []bool{false, true} { // a client's socket may be one of IPv6, whatever it connects to
		if end, found, err = findRow(client, server, mapped); found || err != nil {
			return end, found, err
		}
	}
	return tcpEnd{}, false, nil
}

// findRow looks in the kernel's table for IPv4, or as mapped in that for IPv6.
func findRow(client, server netip.AddrPort, mapped bool) (end tcpEnd, found bool, err error) {
	name := "/proc/net/tcp"
	if mapped = mapped || !client.Addr().Unmap().Is4(); mapped {
		name = "/proc/net/tcp6"
	}
	table, err := os.ReadFile(name)
	if mapped && os.IsNotExist(err) {
		return tcpEnd{}, false, nil // a machine without IPv6
	}
	if err != nil {
		return tcpEnd{}, false, fmt.Errorf("the table of connections: %w", err)
	}
	return parseRow(table, rowAddr(client, mapped)+" "+rowAddr(server, mapped))
}

// rowAddr writes an address as the kernel's tables do: words in the order of the
// machine's bytes, of an address as it is on the wire.
func rowAddr(a netip.AddrPort, mapped bool) string {
	addr := a.Addr().Unmap()
	raw := addr.AsSlice()
	if mapped {
		wide := addr.As16()
		raw = wide[:]
	}
	text := ""
	for word := raw; len(word) > 0; word = word[4:] {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", text, a.Port())
}

// parseRow gives the end in the row whose two addresses are addrs.
func parseRow(table []byte, addrs string) (end tcpEnd, found bool, err error) {
	_, rest, found := bytes.Cut(table, []byte(": "+addrs+" "))
	if !found {
		return tcpEnd{}, false, nil
	}
	row, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(row) // st, queues, timer, retransmissions, uid, timeout, inode
	if len(fields) < 7 {
		return tcpEnd{}, false, fmt.Errorf("a row of the table of connections has only %d fields", len(fields))
	}
	uid, err := strconv.ParseUint(string(fields[4]), 10, 32)
	if err != nil {
		return tcpEnd{}, false, fmt.Errorf("the user of a connection: %w", err)
	}
	inode, err := strconv.ParseUint(string(fields[6]), 10, 64)
	if err != nil {
		return tcpEnd{}, false, fmt.Errorf("the socket of a connection: %w", err)
	}
	return tcpEnd{uid: int(uid), inode: inode}, true, nil
}
