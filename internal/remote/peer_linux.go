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
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return who, fmt.Errorf("ctxpage: peer: %w", err)
	}
	if failed != nil {
		return who, fmt.Errorf("ctxpage: peer: %w", failed)
	}
	return peerID{int(cred.Uid), int(cred.Pid)}, nil
}
