// Package system holds what differs between operating systems and what more than one package needs: how a file is opened, locks of
// files and processes, and what their errors mean.
//
// Windows differs in four ways that callers must know. An open file cannot be replaced, nor can a mapped one be cut. Permission bits mean
// nothing: the folder of the user's profile protects what is in it. Names in a directory need no sync. Nobody is asked for the user
// of a socket's other end; see internal/remote.
package system

import (
	"errors"
	"slices"
	"syscall"
)

// ErrBusy means that another open file has the lock.
var ErrBusy = errors.New("another process has the lock")

// ErrNoSpace is an error by which this system reports a full disk.
var ErrNoSpace error = noSpace[0]

// NoSpace reports whether an error means a full disk, or a quota.
func NoSpace(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains(noSpace, e) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Passing reports whether an error of the system may be gone at the next try.
func Passing(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e) && (slices.Contains(passing, e) || slices.Contains(passingHere, e))
}

var passing = []syscall.Errno{
	syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.ESTALE,
}
