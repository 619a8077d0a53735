package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"stint/coordinator"
)

// findEnd gives the end of the connection between client and server that client has; found
// is false if no process has it.
func findEnd(client, server netip.AddrPort) (end tcpEnd, found bool, err error) {
	return ends.find(client, server)
}

var ends = endFinder{ask: askKernel, search: searchTables}

// An endFinder finds the ends of connections.
type endFinder struct {
	ask    func(client, server netip.AddrPort) (tcpEnd, bool, error) // the kernel for one
	search func(client, server netip.AddrPort) (tcpEnd, bool, error) // all that there are
	tells  atomic.Bool                                               // ask has found one
}

// find is findEnd. A kernel that tells nothing of TCP answers as if there were no such
// socket: until it has told of one, its tables alone know that there is none.
func (f *endFinder) find(client, server netip.AddrPort) (end tcpEnd, found bool, err error) {
	end, found, err = f.ask(client, server)
	if found {
		f.tells.Store(true)
	} else if err != nil || !f.tells.Load() {
		end, found, err = f.search(client, server)
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

// holders gives the processes that have the end of c that is not ours; none if all that
// have it may not be looked into, as sshd. Who has gone meanwhile is an error: nobody can
// tell what it was part of.
func (c *tcpConn) holders() ([]int, error) {
	pids, err := socketHolders(c.end.inode)
	if len(pids) > 0 || err != nil {
		return pids, err
	}
	client, server := c.addrs()
	if end, found, err := findEnd(client, server); err != nil || !found || end != c.end {
		return nil, errors.Join(errors.New("the process that asks has closed its connection"), err)
	}
	return nil, nil
}

// socketHolders gives the processes that have a socket open, of those that may be looked
// into. The error says that the machine lacks what it takes to look.
func socketHolders(inode uint64) (pids []int, err error) {
	link := fmt.Sprintf("socket:[%d]", inode)
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue // not a process
		}
		open, err := hasOpen(filepath.Join("/proc", dir.Name(), "fd"), link)
		if coordinator.ShortageOf(err) != 0 {
			return nil, err
		}
		if open {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasOpen reports whether one of the files in dir, those that a process has open, is the
// one that link names. A process may end meanwhile.
func hasOpen(dir, link string) (bool, error) {
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = d.Close() }() // it was only read
	names, err := d.Readdirnames(-1)
	return slices.ContainsFunc(names, func(name string) bool {
		target, err := os.Readlink(filepath.Join(dir, name))
		return err == nil && target == link
	}), err
}
