package remote

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel for the user and process at the other end.
func peerOf(c net.Conn) (who peerID, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return who, fmt.Errorf("ctxpage: peer: %w", err)
	}
	var cred *unix.Xucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if failed == nil {
			who.pid, _ = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
		}
	}); err != nil {
		return who, fmt.Errorf("ctxpage: peer: %w", err)
	}
	if failed != nil {
		return who, fmt.Errorf("ctxpage: peer: %w", failed)
	}
	who.uid = int(cred.Uid)
	return who, nil
}
