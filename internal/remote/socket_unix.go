//go:build unix

package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"golang.org/x/sys/unix"
)

// maxSocketPath is how many bytes of a path every system takes for a socket: macOS 103, Linux 107.
const maxSocketPath = 103

// shortPath names the socket by device and inode of the lock file, so that every path that leads to
// the database leads to one socket.
func shortPath(path string) (string, error) {
	st, err := os.Stat(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("ctxpage: socket of %s: %w", path, err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("ctxpage: socket of %s: this system does not tell inodes; use a shorter path", path)
	}
	dir, err := runtimeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, fmt.Sprintf("ctxpage-%x-%x.sock", uint64(sys.Dev), sys.Ino)), nil
}

// nameOverhead is the length of a short name: two numbers of 16 digits and the characters around them.
const nameOverhead = 48

// runtimeDir returns a directory that only this user can use. The variable often names one that is
// not there or that is another user's, as in a cron job or under sudo: then /tmp serves. Clients
// that were started with another value find the socket all the same: the lock file names it.
func runtimeDir() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if filepath.IsAbs(dir) && len(dir)+nameOverhead <= maxSocketPath && private(dir) == nil && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
		return dir, nil
	}
	dir = "/tmp/ctxpage-" + strconv.Itoa(os.Geteuid())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("ctxpage: directory of sockets: %w", err)
	}
	return dir, private(dir)
}

// private refuses a directory that another user owns or can enter. In a directory that others can
// write they could put a socket of their own in the place of this one.
func private(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: directory of sockets: %w", err)
	}
	if !st.IsDir() || st.Mode().Perm()&0o077 != 0 || !system.Owned(st) {
		return store.Invalid("directory of sockets", fmt.Sprintf("%s (%s)", dir, st.Mode()), "a directory of yours with mode 0700")
	}
	return nil
}

// listen is Listen with the way to ask who connects, which tests replace.
func listen(path string, peer func(net.Conn) (peerID, error)) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, store.Invalid("socket", fmt.Sprintf("a path of %d bytes", len(path)), fmt.Sprintf("at most %d: see SocketPath", maxSocketPath))
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("ctxpage: socket: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return nil, store.Invalid("socket", path+", which is "+st.Mode().Type().String(), "no file, or a socket without a server")
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("ctxpage: socket: %w", err)
		}
	}
	var config net.ListenConfig
	config.Control = func(_, _ string, c syscall.RawConn) error { // before the socket has a name
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}
	l, err := config.Listen(background, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: socket: %w", err)
	}
	err = os.Chmod(path, 0o600) // for systems that do not take it from the socket
	made, statErr := os.Lstat(path)
	if err := errors.Join(err, statErr); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("ctxpage: socket: %w", err)
	}
	return &listener{UnixListener: l.(*net.UnixListener), path: path, made: made, peer: peer}, nil
}

// listener accepts connections of this user only. A permission of 0600 is not enough on its own:
// some systems ignore the mode of a socket, and root passes it.
type listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
	peer func(net.Conn) (peerID, error)
	rope rope
}

// Close removes the socket. One that another process has made at the path since then stays: the
// files may have been replaced by another database, which has an owner of its own.
func (l *listener) Close() error {
	l.unwatch()
	if now, err := os.Lstat(l.path); err == nil && !os.SameFile(l.made, now) {
		l.SetUnlinkOnClose(false)
	}
	return l.UnixListener.Close()
}

// Accept closes the connections of others.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if who, err := l.peer(c); err == nil && who.uid == os.Geteuid() {
			return c, nil
		}
		_ = c.Close()
	}
}

// connect connects to a socket.
func connect(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
