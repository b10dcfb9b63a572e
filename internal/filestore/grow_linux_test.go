package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// growLimit is the size from which on no file of the child may grow.
const growLimit = 2 << 20

const growEnv = "CTXPAGE_TEST_GROW"

// stopGrowth makes ftruncate to growLimit or more fail in all threads of this process, for good: a full disk as bbolt meets
// it when its file grows, which it does by a call of its own.
func stopGrowth(errno syscall.Errno) error {
	const loadWord, ifEqual, ifNotLess, giveBack = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JGE, unix.BPF_RET
	filter := []unix.SockFilter{
		{Code: loadWord, K: 0}, // the number of the call
		{Code: ifEqual, K: unix.SYS_FTRUNCATE, Jf: 2},
		{Code: loadWord, K: 24}, // the low half of its second argument, on little-endian machines
		{Code: ifNotLess, K: growLimit, Jt: 1},
		{Code: giveBack, K: unix.SECCOMP_RET_ALLOW},
		{Code: giveBack, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}

func growID(n int) string { return fmt.Sprint("a", n) }

func growText(n int) string { return fmt.Sprint(n, " ", strings.Repeat("some words of a text ", 1500)) }

// growChild puts until the file cannot grow any more, and then does what must go all the same.
func growChild(t *testing.T, path string, errno syscall.Errno) {
	s := &script{t: t, f: &fullOnce{FS: wal.OS()}, path: path}
	require.NoError(t, s.open())
	s.texts = map[string]string{}
	if err := stopGrowth(errno); err != nil {
		fmt.Println("not here:", err)
		return
	}
	put := func(id, text string) {
		must(s.st.Commit(ctx, s.batch(id, text)))(t)
		s.texts[id] = text
	}
	var full error
	n := 0
	for ; full == nil && n < 400; n++ {
		put(growID(n), growText(n))
		if n%10 == 9 {
			_, full = s.st.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil)
		}
	}
	require.Error(t, full, "the file grew to its limit and beyond")
	require.ErrorIs(t, full, errno)
	if errno == syscall.ENOSPC || errno == syscall.EDQUOT {
		require.ErrorIs(t, full, store.ErrNoSpace)
		require.ErrorContains(t, full, "free")
	} else {
		require.NotErrorIs(t, full, store.ErrNoSpace, "the control: another error is no full disk")
	}
	require.ErrorContains(t, full, path)
	require.NoError(t, s.holds())
	require.NoError(t, s.st.eng.Failure(), "the handle goes on")
	for i := range n / 2 {
		put(growID(i), "") // deletes
	}
	require.NoError(t, s.holds())
	err := s.st.Close()
	require.True(t, err == nil || errors.Is(err, errno), "%v", err)
	fmt.Println("acknowledged", n)
}

// TestFullAtGrowth: bbolt's file cannot grow. The checkpoint says so as ErrNoSpace, by the file and with what to do; what
// was acknowledged is there, puts and deletes go on in the log, and the next process, which has space, brings all of it into
// the file. The control is an error that is no full disk.
func TestFullAtGrowth(t *testing.T) {
	if at := os.Getenv(growEnv); at != "" {
		errno, path, _ := strings.Cut(at, " ")
		growChild(t, path, map[string]syscall.Errno{"ENOSPC": syscall.ENOSPC, "EDQUOT": syscall.EDQUOT, "EIO": syscall.EIO}[errno])
		return
	}
	for _, errno := range []string{"ENOSPC", "EDQUOT", "EIO"} {
		path := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), errno+".ctx")
		exe := must(os.Executable())(t)
		cmd := exec.Command(exe, "-test.run=^TestFullAtGrowth$", "-test.v")
		cmd.Env = append(os.Environ(), growEnv+"="+errno+" "+path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if bytes.Contains(out, []byte("not here:")) {
			t.Skipf("a process may not filter its own calls here: %s", out)
		}
		n := 0
		_, found, _ := strings.Cut(string(out), "acknowledged ")
		require.NoError(t, errOf(fmt.Sscan(found, &n)), "%s", out)
		s := &script{t: t, f: &fullOnce{FS: wal.OS()}, path: path, texts: map[string]string{}}
		for i := range n {
			if s.texts[growID(i)] = ""; i >= n/2 {
				s.texts[growID(i)] = growText(i)
			}
		}
		require.NoError(t, s.open())
		require.NoError(t, s.holds())
		must(s.st.Maintain(context.Background(), store.Job{Kind: store.JobCheckpoint}, nil))(t)
		require.NoError(t, s.sound())
		require.Greater(t, must(os.Stat(path))(t).Size(), int64(growLimit), "it grew now")
		require.NoError(t, s.st.Close())
	}
}
