package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A diagID names a connection, as struct inet_diag_sockid of linux/inet_diag.h does. Ports
// and addresses are as on the wire.
type diagID struct {
	client, server [2]byte // ports
	from, to       [16]byte
	_              uint32 // the interface: any
	cookie         [2]uint32
}

// A diagRequest asks the kernel for a socket (struct nlmsghdr, and inet_diag_req_v2).
type diagRequest struct {
	head             unix.NlMsghdr
	family, protocol uint8
	_, _             uint8
	states           uint32
	id               diagID
}

// A diagAnswer is what it says of it (struct nlmsghdr, and inet_diag_msg).
type diagAnswer struct {
	head                  unix.NlMsghdr
	family, state         uint8
	_, _                  uint8
	id                    diagID
	_, _, _, owner, inode uint32
}

const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	stateListen  = 10 // TCP_LISTEN
)

// askKernel gives the end of the connection between client and server that client has, as
// the kernel knows it, however many connections there are. Not every kernel can be asked.
func askKernel(client, server netip.AddrPort) (end tcpEnd, found bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return tcpEnd{}, false, fmt.Errorf("sockets of the kernel: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written that could be lost
	request := diagFor(client, server)
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&request)), unsafe.Sizeof(request)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return tcpEnd{}, false, fmt.Errorf("asking the kernel for a socket: %w", err)
	}
	var answer [1024]byte
	n, _, err := unix.Recvfrom(fd, answer[:], unix.MSG_DONTWAIT) // it is there as soon as the request is sent
	if err != nil {
		return tcpEnd{}, false, fmt.Errorf("the kernel's answer: %w", err)
	}
	return parseDiag(answer[:n])
}

// diagFor asks for the socket of client. That of a client who uses a socket of IPv6 for
// addresses of IPv4 is found by these too.
func diagFor(client, server netip.AddrPort) diagRequest {
	r := diagRequest{family: unix.AF_INET, protocol: unix.IPPROTO_TCP, states: ^uint32(0)}
	r.head = unix.NlMsghdr{Len: uint32(unsafe.Sizeof(r)), Type: diagByFamily, Flags: unix.NLM_F_REQUEST, Seq: 1}
	if !client.Addr().Unmap().Is4() {
		r.family = unix.AF_INET6
	}
	binary.BigEndian.PutUint16(r.id.client[:], client.Port())
	binary.BigEndian.PutUint16(r.id.server[:], server.Port())
	copy(r.id.from[:], client.Addr().Unmap().AsSlice())
	copy(r.id.to[:], server.Addr().Unmap().AsSlice())
	r.id.cookie = [2]uint32{^uint32(0), ^uint32(0)} // any
	return r
}

// errNoDiag says that the kernel's answer is none that is known here.
var errNoDiag = errors.New("the kernel's answer about a socket is not understood")

// parseDiag reads the kernel's answer. Where no socket has the connection, it may name one
// that listens at the client's port. That there is none may also mean that this kernel was
// built without what tells of TCP.
func parseDiag(data []byte) (end tcpEnd, found bool, err error) {
	var a diagAnswer
	kind, refused := binary.NativeEndian.Uint16, binary.NativeEndian.Uint32
	switch {
	case len(data) >= unix.NLMSG_HDRLEN+4 && kind(data[4:]) == unix.NLMSG_ERROR:
		if code := unix.Errno(-int32(refused(data[unix.NLMSG_HDRLEN:]))); code != unix.ENOENT {
			return tcpEnd{}, false, fmt.Errorf("the kernel tells nothing about a socket: %w", code)
		}
		return tcpEnd{}, false, nil
	case len(data) < int(unsafe.Sizeof(a)) || kind(data[4:]) != diagByFamily:
		return tcpEnd{}, false, errNoDiag
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a)), data)
	return tcpEnd{uid: int(a.owner), inode: uint64(a.inode)}, a.state != stateListen, nil
}
