package http1

import (
	"errors"
	"syscall"
)

// alive tells whether a connection that nobody uses can be used: its server has not closed it, and said nothing. It does
// not block.
func (on *conn) alive() bool {
	s, ok := on.Conn.(syscall.Conn)
	if !ok || on.r.Buffered() > 0 {
		return on.r.Buffered() == 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // a byte that came is no answer to anything: the connection is not used then
		alive = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && alive
}
