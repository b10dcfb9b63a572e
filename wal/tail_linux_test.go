package wal_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Records go through the window, are read back by calls, and go on in the next segment.
func TestWindow(t *testing.T) {
	dir := t.TempDir()
	l, _, err := wal.Open(ctx, dir, wal.Options{SegmentBytes: 64 << 10}, nil)
	require.NoError(t, err)
	var want []string
	for i := range 3000 {
		body := fmt.Sprintf("leaf %d %s", i, strings.Repeat("x", i%200))
		want = append(want, body)
		seq := must(l.Enqueue(wal.KindAudit, false, []byte(body)))(t)
		require.NoError(t, l.Write())
		require.True(t, l.Window() || i%500 == 0, "record %d", i)
		if i%500 == 499 {
			require.NoError(t, l.Sync(context.Background(), seq, nil))
		}
	}
	require.Equal(t, want, scanned(t, dir))
	require.NoError(t, l.Close(wal.KindMark, nil))
	require.Equal(t, want, scanned(t, dir)[:len(want)])
}

func scanned(t *testing.T, dir string) (bodies []string) {
	must(wal.Scan(ctx, dir, nil, func(r wal.Record) error {
		bodies = append(bodies, string(r.Body))
		return nil
	}))(t)
	return bodies
}

// A file that somebody shortened has no bytes under the window. The copy faults, the same bytes are
// written by a call, and nothing that was acknowledged is missing.
func TestWindowFaults(t *testing.T) {
	dir := t.TempDir()
	l, _, err := wal.Open(ctx, dir, wal.Options{}, nil)
	require.NoError(t, err)
	write := func(body string) {
		must(l.Enqueue(wal.KindAudit, false, []byte(body)))(t)
		require.NoError(t, l.Write())
	}
	write("before")
	require.True(t, l.Window())
	segs := must(filepath.Glob(filepath.Join(dir, "*.wal")))(t)
	require.Len(t, segs, 1)
	was := must(os.Stat(segs[0]))(t)
	require.NoError(t, os.Truncate(segs[0], l.Size()))
	big := strings.Repeat("a page and more ", 1000)
	write(big)
	require.False(t, l.Window())
	write("after")
	require.NoError(t, l.Sync(context.Background(), l.Last(), nil))
	require.NoError(t, l.Abandon())
	require.NoError(t, os.Truncate(segs[0], was.Size())) // otherwise the cut itself is damage
	require.Equal(t, []string{"before", big, "after"}, scanned(t, dir))
}

// The copy makes a fault of the window an error. The control: without that, it ends the process.
func TestCopyOrFault(t *testing.T) {
	if dir := os.Getenv("WAL_FAULT"); dir != "" {
		copy(hole(t, dir), "x")
		return
	}
	require.ErrorContains(t, wal.CopyOrFault(hole(t, t.TempDir()), []byte("x")), "write to the window")
	require.NoError(t, wal.CopyOrFault(make([]byte, 1), []byte("x")))

	control := exec.Command(os.Args[0], "-test.run=^TestCopyOrFault$")
	control.Env = append(os.Environ(), "WAL_FAULT="+t.TempDir()) // which the parent removes
	out, err := control.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "SIGBUS")
}

// hole returns memory over the missing bytes of a file.
func hole(t *testing.T, dir string) []byte {
	f := must(os.Create(filepath.Join(dir, "short")))(t)
	defer f.Close()
	mem := must(unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

// A process that is killed loses nothing that Write returned for. The control loses what it did not
// write.
func TestWindowKilled(t *testing.T) {
	if dir := os.Getenv("WAL_KILL"); dir != "" {
		l, _, err := wal.Open(ctx, dir, wal.Options{}, nil)
		require.NoError(t, err)
		for {
			seq := must(l.Enqueue(wal.KindAudit, false, []byte(strings.Repeat("leaf ", 50))))(t)
			if os.Getenv("WAL_CONTROL") == "" {
				require.NoError(t, l.Write())
			}
			fmt.Println(seq)
		}
	}
	for _, control := range []string{"", "1"} {
		dir := t.TempDir()
		said := killedAfter(t, dir, control, 5000)
		_, rec, err := wal.Open(ctx, dir, wal.Options{}, nil)
		require.NoError(t, err)
		require.Equal(t, control == "", rec.Last >= said, "said %d, found %d", said, rec.Last)
	}
}

// killedAfter runs a writer that tells each record it has written, kills it, and returns the last
// one that it told.
func killedAfter(t *testing.T, dir, control string, records uint64) (said uint64) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestWindowKilled$")
	cmd.Env = append(os.Environ(), "WAL_KILL="+dir, "WAL_CONTROL="+control)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			break // the line that the kill cut
		}
		if said = n; n == records {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait())
	require.GreaterOrEqual(t, said, records)
	return said
}
