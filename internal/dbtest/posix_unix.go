//go:build unix

package dbtest

import (
	"os"
	"os/exec"
	"syscall"
)

// Mkfifo makes a named pipe.
func Mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

// Umask sets the mask of new files, and returns the previous mask.
func Umask(mask int) int { return syscall.Umask(mask) }

// RunAs makes a command run as another user.
func RunAs(cmd *exec.Cmd, uid, gid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// Pause stops a process, which Resume continues.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume continues a process.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
