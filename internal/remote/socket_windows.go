package remote

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/ctxpage/ctxpage/store"
)

// maxSocketPath bounds the path of a socket, in bytes. It is a file's.
const maxSocketPath = 1 << 15

// peerOf returns the process that the file of the socket names, and this user: both ends have proved that they read that file.
func peerOf(c net.Conn) (peerID, error) {
	pid := 0
	if to, is := c.(*loopbackConn); is {
		pid = to.pid
	}
	return peerID{os.Geteuid(), pid}, nil
}

func listen(path string, peer func(net.Conn) (peerID, error)) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, store.Invalid("socket", fmt.Sprintf("a path of %d bytes", len(path)), fmt.Sprintf("at most %d", maxSocketPath))
	}
	return listenLoopback(path, peer)
}

func connect(ctx context.Context, path string) (net.Conn, error) { return connectLoopback(ctx, path) }

// shortPath fails: no path is too long, and the file of a socket takes as little space elsewhere.
func shortPath(path string) (string, error) {
	return "", fmt.Errorf("ctxpage: socket of %s: its file cannot be made; free space on the disk, or use a shorter path", path)
}
