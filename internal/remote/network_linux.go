package remote

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// networks are file systems whose files other machines change, by their numbers in the kernel.
var networks = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", unix.AFS_SUPER_MAGIC: "AFS", 0x6b414653: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x564c: "NCP",
}

// networkOf names the file system of a path if it is one of a network; "": it is not, or cannot be
// told.
func networkOf(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &st) != nil {
		return ""
	}
	if name := networks[int64(uint32(st.Type))]; name != "" {
		return name + ", a network file system"
	}
	return ""
}
