package dbtest

import (
	"errors"
	"os"
	"os/exec"
)

// Tests that call one of these skip on Windows before (NeedsPosix).

func Mkfifo(string) error             { return errors.ErrUnsupported }
func Umask(int) int                   { return 0 }
func RunAs(*exec.Cmd, uint32, uint32) {}
func Pause(*os.Process) error         { return errors.ErrUnsupported }
func Resume(*os.Process) error        { return errors.ErrUnsupported }
