package remote

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
)

// Host is a store of files that it serves to other processes. What this process asks of it, it asks
// of the files.
type Host struct {
	*filestore.Store
	lock   *filestore.Lock
	server *Server
	socket net.Listener
	once   sync.Once
	settle time.Time // gc waits until then, for clients of an owner before that have holds
}

// settleTime is how long clients have to take their holds again after their owner ended, before the next one drops versions.
// They notice the end at once, and connect within some ten milliseconds on an idle machine.
const settleTime = time.Second

// Maintain: see store.Store.
func (h *Host) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	if wait := time.Until(h.settle); job.Kind == store.JobGC && wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return store.JobReport{}, ctx.Err()
		}
	}
	return h.Store.Maintain(ctx, job, p)
}

// host takes the lock, binds the socket, and opens the files. Clients that come meanwhile wait. Those of an owner before have
// the time settle to come.
func host(o Options, settle time.Duration) (st *Host, err error) {
	files := o.Files
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
	if h.server, err = Prepare(ServerOptions{Now: files.Now, Stop: o.Stop}); err != nil {
		return nil, err
	}
	if h.socket, err = bind(files.Path); err != nil {
		return nil, err
	}
	h.server.door.attend(h.socket) // until the socket is closed
	if err := lock.Serve(h.socket.Addr().String()); err != nil {
		return nil, err
	}
	files.Lock = lock
	if h.Store, err = filestore.Open(files); err != nil {
		return nil, err
	}
	h.settle = time.Now().Add(settle)
	if err := h.server.Offer(context.Background(), h); err != nil {
		return nil, errors.Join(err, h.Store.Close())
	}
	return h, nil
}

// bind makes the socket beside the database. On a full disk it is made where the user's sockets
// are.
func bind(path string) (net.Listener, error) {
	where, err := SocketPath(path)
	if err != nil {
		return nil, err
	}
	l, err := Listen(where)
	if !system.NoSpace(err) {
		return l, err
	}
	if where, err = ShortSocketPath(path); err != nil {
		return nil, err
	}
	return Listen(where)
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

// leave releases what is held around the files.
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
	return err
}
