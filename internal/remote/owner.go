// Package owner opens a database that several processes of one user share. The first process takes
// the process lock, opens the files and serves them at a socket; the others are its clients. When
// it ends, one of the clients takes its place, and callers see no difference: a store that was a
// client goes on as the owner, with its holds.
//
// The lock decides who owns the files, never the socket. Only the holder of the lock removes the
// socket and makes it. The lock file is never deleted.
package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

// Options describe the files and how they are shared.
type Options struct {
	Files filestore.Options
	// Exclusive keeps the files to this process: nothing is served, and a database that another
	// process has is refused.
	Exclusive bool
	// Answer is how long another process may be silent before it is said not to answer; 0: 2 s.
	Answer time.Duration
	// Stop is called when another process asks this one to end, while it owns the files. nil: that
	// is refused, because the process has other work.
	Stop func()

	network func(path string) string // of a test
	settle  time.Duration            // of a test; 0: settleTime
}

// answerTime is how long nobody may answer, while the lock is held and while it is not.
const answerTime = 2 * time.Second

// graceTime is how long an opener tries in any case: whoever has the lock may be about to let go of
// it.
const graceTime = 100 * time.Millisecond

// Open opens the files, or asks the process that has them. It returns the errors of filestore.Open, and:
// *store.LockedError: another process has the files to itself. *UnavailableError, which
// matches store.ErrLocked: it serves them and does not answer. *SkewError: it speaks another
// protocol. ErrForeign: it is another user's.
func Open(opts Options) (store.Store, error) {
	if opts.Answer == 0 {
		opts.Answer = answerTime
	}
	if opts.settle == 0 {
		opts.settle = settleTime
	}
	if opts.network == nil {
		opts.network = networkOf
	}
	if opts.Exclusive {
		st, err := filestore.Open(opts.Files)
		if err != nil {
			return nil, err // and no Store around a nil pointer
		}
		return st, nil
	}
	path, err := filepath.Abs(opts.Files.Path)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: open: %w", err)
	}
	opts.Files.Path = path
	if fs := opts.network(path); fs != "" {
		return nil, store.Invalid("path", path+", which is on "+fs, "a file system of this machine: locks and sockets of others do not reach here; Options.Exclusive opens it if nobody else does")
	}
	return opts.elect()
}

// elect tries to own the files, then to ask their owner, until one works or there is no hope.
func (o Options) elect() (store.Store, error) {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		st, err := o.own(o.settleAfterKill())
		var locked *store.LockedError
		if err == nil || !errors.As(err, &locked) {
			return st, err
		}
		g, dialErr := o.join(locked)
		if dialErr == nil {
			return g, nil
		}
		waited := time.Since(begun)
		switch {
		case !Gone(dialErr): // it answered, or hangs
			return nil, dialErr
		case waited < o.Files.LockWait || waited < graceTime:
		case locked.Reading || locked.Socket == "" && locked.PID != 0 && !locked.Opening: // it does not serve
			return nil, err
		case waited > o.Answer: // it says that it serves, or will, and does not
			return nil, err
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// own opens the files, and serves them if they are opened for writing. The lock is tried once.
func (o Options) own(settle time.Duration) (store.Store, error) {
	o.Files.LockWait = 0
	if o.Files.ReadOnly {
		st, err := filestore.Open(o.Files)
		if err != nil {
			return nil, err
		}
		return st, nil
	}
	h, err := host(o, settle)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// settleAfterKill is the time for the clients of an owner that was killed: it left its line in the lock file.
func (o Options) settleAfterKill() time.Duration {
	if st, err := os.Stat(o.Files.Path + ".lock"); err != nil || st.Size() == 0 {
		return 0
	}
	return o.settle
}

// join connects to the process that has the lock.
func (o Options) join(locked *store.LockedError) (store.Store, error) {
	g := &guest{opts: o, holds: map[store.Ticket]*held{}, ready: make(chan struct{})}
	g.find(locked)
	opts := ClientOptions{Answer: o.Answer, Now: o.Files.Now, Vacant: g.takeOver, Met: g.met, Socket: g.where}
	c, err := Dial(context.Background(), g.where(), opts)
	if err != nil {
		return nil, named(err, locked)
	}
	g.client = c
	g.is.Store(&role{st: c})
	close(g.ready)
	if o.Files.ReadOnly {
		return sealed{g}, nil
	}
	return g, nil
}

// named says who does not answer: the kernel knows the process, the lock file its program.
func named(err error, locked *store.LockedError) error {
	var un *UnavailableError
	if errors.As(err, &un) && un.PID != 0 && un.PID == locked.PID && un.Program == "" {
		un.Program, un.Since = locked.Program, locked.Since
	}
	return err
}

// Files are the files under a store of this package, if this process has them now.
func Files(st store.Store) (*filestore.Store, bool) {
	switch st := st.(type) {
	case *filestore.Store:
		return st, true
	case *Host:
		return st.Store, true
	case sealed:
		return Files(st.guest)
	case *guest:
		return Files(st.is.Load().st)
	}
	return nil, false
}

// WhenOwner calls then once this process has the files under a store: at once, or when it becomes the owner. then may
// call nothing of the store but Mark.
func WhenOwner(st store.Store, then func()) {
	if s, ok := st.(sealed); ok {
		st = s.guest
	}
	g, ok := st.(*guest)
	if ok {
		g.owned.Store(&then)
	}
	if !ok || g.is.Load().owns() {
		then()
	}
}

// role is the present store of a guest: a client, or the opened files.
type role struct{ st store.Store }

type roles = atomic.Pointer[role]
