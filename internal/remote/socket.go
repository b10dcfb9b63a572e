package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// SocketPath returns the path at which the process that has a database locked serves it: path +
// ".sock", links resolved. If that is longer than the system allows, it is a name made of the
// device and inode of the lock file, in $XDG_RUNTIME_DIR or else in /tmp/ctxpage-UID. Then the lock
// file, path + ".lock", must exist; it is never deleted, so its inode stays the same. A directory
// that others can write, or that belongs to another user, is an error.
func SocketPath(path string) (string, error) {
	abs, err := resolved(path)
	if err != nil {
		return "", err
	}
	if name := abs + ".sock"; len(name) <= maxSocketPath {
		return name, nil
	}
	return shortPath(abs)
}

// ShortSocketPath returns the short form of SocketPath, for directories in which no socket can be
// created.
func ShortSocketPath(path string) (string, error) {
	abs, err := resolved(path)
	if err != nil {
		return "", err
	}
	return shortPath(abs)
}

// resolved is the absolute path without links. The file need not be there: then the links of its
// directory are resolved. Two paths to one database must give one name, or a client would look for
// its server under another one.
func resolved(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("ctxpage: socket of %s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil { // the file is not made yet
		abs = filepath.Join(dir, filepath.Base(abs))
	}
	return abs, nil
}

// Listen makes the socket, which this user alone can connect to. Only the process that has the
// database locked may call Listen, so no process serves at a socket that is already there, and
// Listen removes it. Any other file at the path is left alone, and is an error. Connections of
// other users are closed.
func Listen(path string) (net.Listener, error) {
	return listen(path, peerOf)
}

// Connect connects to a socket that Listen made. It does not ask whose process is there.
func Connect(ctx context.Context, path string) (net.Conn, error) { return connect(ctx, path) }

// peerID identifies the process at the other end of a socket.
type peerID struct{ uid, pid int }

// ErrForeign means that the process at the other end of the socket belongs to another user. Nothing
// was sent to it.
var ErrForeign = errors.New("ctxpage: the socket is served by another user")
