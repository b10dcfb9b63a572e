package owner

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/remote"
)

// Host is a store of files that it serves to other processes. What this process asks of it, it asks
// of the files.
type Host struct {
	*filestore.Store
	lock   *filestore.Lock
	server *remote.Server
	socket net.Listener
	serves sync.WaitGroup
	once   sync.Once
}

// host takes the lock, binds the socket, and opens the files. stop may be nil (Options.Stop).
// Clients that come meanwhile wait.
func host(files filestore.Options, stop func()) (st *Host, err error) {
	lock, err := filestore.TakeLock(files)
	if err != nil {
		return nil, err
	}
	h := &Host{lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.leave())
		}
	}()
	if h.server, err = remote.Prepare(remote.ServerOptions{Now: files.Now, Stop: stop}); err != nil {
		return nil, err
	}
	if h.socket, err = bind(files.Path); err != nil {
		return nil, err
	}
	h.serves.Go(func() { _ = h.server.Serve(h.socket) }) // it ends when the socket is closed, and is asked nothing else
	if err := lock.Serve(h.socket.Addr().String()); err != nil {
		return nil, err
	}
	files.Lock = lock
	if h.Store, err = filestore.Open(files); err != nil {
		return nil, err
	}
	if err := h.server.Offer(context.Background(), h.Store); err != nil {
		return nil, errors.Join(err, h.Store.Close())
	}
	return h, nil
}

// bind makes the socket beside the database. On a full disk it is made where the user's sockets
// are.
func bind(path string) (net.Listener, error) {
	where, err := remote.SocketPath(path)
	if err != nil {
		return nil, err
	}
	l, err := remote.Listen(where)
	if !errors.Is(err, syscall.ENOSPC) {
		return l, err
	}
	if where, err = remote.ShortSocketPath(path); err != nil {
		return nil, err
	}
	return remote.Listen(where)
}

// Close lets clients wait, closes the files, and then lets go of the socket and of the lock:
// whoever takes the lock finds no socket, or makes it anew.
func (h *Host) Close() (err error) {
	h.once.Do(func() {
		if h.server.Drain() > 0 {
			h.lock.Wanted() // one of them is the next owner
		}
		err = errors.Join(h.Store.Close(), h.leave())
	})
	return err
}

// leave gives up what is held around the files.
func (h *Host) leave() (err error) {
	if h.socket != nil {
		_ = h.socket.Close() // removes it
	}
	if h.lock != nil {
		err = h.lock.Release()
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Close()) // clients that do nothing notice now
	}
	h.serves.Wait()
	return err
}
