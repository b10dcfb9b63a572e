package remote

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// bell waits for connections at many listeners with one goroutine and one descriptor, so that a process with a thousand idle
// databases has no goroutine for each. Both exist while there is a listener.
//
// A listener is watched for one event at a time: after it, whoever accepts asks again (wait). The event is one of level, so a
// connection that came in between is reported at once.
//
// mu guards all fields, and those of the listeners' ropes. It comes after acceptor.mu and is not held while a function of a
// rope is called.
type bell struct {
	mu    sync.Mutex
	epoll *os.File // nil: nobody is watched
	fd    int      // its number
	next  int32
	ropes map[int32]func()
}

var theBell = bell{ropes: map[int32]func(){}}

// rope is a listener's place at the bell.
type rope struct {
	number int32 // 0: it has none yet
	cut    bool  // the listener is closed, or about to be
}

// wait calls ring once, soon after somebody connects, from a goroutine that ring must not hold up. false: it cannot, or
// the listener is closed.
func (l *listener) wait(ring func()) (ok bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ok = theBell.add(int(fd), &l.rope, ring) })
	return err == nil && ok
}

// unwatch makes wait return false from now on. Call it before the listener is closed.
func (l *listener) unwatch() {
	raw, err := l.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { theBell.drop(int(fd), &l.rope) })
}

func (b *bell) add(fd int, r *rope, ring func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.cut || b.epoll == nil && !b.start() {
		return false
	}
	op := unix.EPOLL_CTL_MOD
	if r.number == 0 {
		op = unix.EPOLL_CTL_ADD
		b.next++
		r.number = b.next
	}
	b.ropes[r.number] = ring
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: r.number}
	if unix.EpollCtl(b.fd, op, fd, &event) != nil {
		b.forget(r)
		return false
	}
	return true
}

func (b *bell) drop(fd int, r *rope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.cut = true
	if r.number != 0 && b.epoll != nil {
		_ = unix.EpollCtl(b.fd, unix.EPOLL_CTL_DEL, fd, nil)
		b.forget(r)
	}
}

// forget takes a listener off the list. The last one takes the goroutine with it. mu is held.
func (b *bell) forget(r *rope) {
	delete(b.ropes, r.number)
	r.number = 0
	if len(b.ropes) == 0 {
		_ = b.epoll.Close()
		b.epoll = nil
	}
}

// start makes the descriptor and the goroutine. The goroutine waits like one that reads from a socket and takes no thread,
// since the runtime watches the descriptor. mu is held.
func (b *bell) start() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile hands only such a descriptor to the runtime
		_ = unix.Close(fd)
		return false
	}
	f := os.NewFile(uintptr(fd), "epoll")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return false
	}
	b.epoll, b.fd = f, fd
	go b.listen(raw)
	return true
}

// listen calls the functions of listeners until the descriptor is closed.
func (b *bell) listen(raw syscall.RawConn) {
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events[:], 0) // an interrupted one is tried again at the next event
			return n > 0
		})
		if err != nil {
			return
		}
		var rung []func()
		b.mu.Lock()
		for _, e := range events[:n] {
			if ring := b.ropes[e.Fd]; ring != nil {
				rung = append(rung, ring)
			}
		}
		b.mu.Unlock()
		for _, ring := range rung {
			ring()
		}
	}
}
