//go:build !linux && !darwin

package remote

import (
	"errors"
	"net"
)

// peerOf: where the system does not tell who is at the other end, nobody is served.
func peerOf(*net.UnixConn) (peerID, error) {
	return peerID{}, errors.New("ctxpage: this system does not tell whose process is at the other end of a socket")
}
