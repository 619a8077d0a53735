package durable

import "golang.org/x/sys/unix"

// remote names the file systems on which locks and fsync may not hold, by their magic numbers, see statfs(2).
var remote = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xfe534d42: "SMB", 0xff534d42: "CIFS", 0x65735546: "FUSE", 0x01021997: "9p",
	0x5346414f: "AFS", 0x6b414653: "AFS", 0x00c36400: "Ceph", 0x73757245: "Coda", 0x0bd00bd0: "Lustre",
	0x47504653: "GPFS", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x786f4256: "VirtualBox", 0xbacbacbc: "VMware",
}

// RemoteFS returns the name of the network or FUSE file system that dir lies on; ""
// if it lies on none, or where that is not known.
func RemoteFS(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	return remote[uint32(st.Type)] // the types differ between machines
}
