package serve

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
)

// suffix sets this socket apart from the socket of the store, whose owner may be another process.
const suffix = ".api"

// SocketPath returns the path at which Listen serves a database: path + ".api.sock", links
// resolved. If that is longer than the system allows, it is a short name in the user's runtime
// directory (remote.SocketPath); then path + ".api.lock" must exist.
func SocketPath(path string) (string, error) { return remote.SocketPath(path + suffix) }

// Listen makes the socket of a database, for this user alone. One process at a time serves JSON for
// a database. The lock file path + ".api.lock" names it, and a second process gets a
// *store.LockedError. The process need not own the files of the database: Listen also works in a
// client. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	lock, err := filestore.TakeLock(filestore.Options{Path: path + suffix})
	if err != nil {
		return nil, fmt.Errorf("JSON socket: %w", err)
	}
	where, err := SocketPath(path)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	l, err := remote.Listen(where)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	if err := lock.Serve(where); err != nil {
		return nil, errors.Join(err, l.Close(), lock.Release())
	}
	return &listener{Listener: l, lock: lock}, nil
}

// listener lets go of the lock with the socket.
//
//	lock taken ─▶ socket made ─▶ lock file names the socket ─▶ serving ─▶ socket removed ─▶ lock released
//
// The system releases the lock of a process that crashes. The next holder of the lock removes a stale socket.
type listener struct {
	net.Listener
	lock *filestore.Lock
	once sync.Once
}

// Close removes the socket, then releases the lock.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() { err = errors.Join(l.Listener.Close(), l.lock.Release()) })
	return err
}
