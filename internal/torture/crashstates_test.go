//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	refs "github.com/ctxpage/ctxpage/store"
)

// Crash states: a process that writes, checkpoints, compacts, erases and collects is run under strace. Its trace is replayed into
// a file system in memory that knows what was synced, bbolt's file included. At random moments that file system is asked for what
// a power cut might leave: all that was synced, and of the rest a random part of the sectors and of the names. Each such state is
// written to a directory and opened: what was acknowledged by then must be there, what was erased must not, and a check must find
// nothing. The control does not honour the syncs.

var crashStates = flag.Int("crash.states", 60, "states of TestCrashStates")

const (
	crashEnv   = "CTXPAGE_TORTURE_CRASH"
	crashNotes = 70
	crashGone  = 3 // the note that is erased
)

// writeTraced is the process that is traced. It prints what was acknowledged.
func writeTraced(path string) error {
	ctx := context.Background()
	db, err := ctxpage.Open(path, ctxpage.Options{Exclusive: true, AuditSync: true}) // else the log's tail is written through memory
	if err != nil {
		return err
	}
	s := db.Scope("acme")
	for n := range crashNotes {
		_, err := s.Put(ctx, ctxpage.Artefact{ID: noteID(0, n), Text: noteText(0, n)})
		if err == nil {
			_, err = fmt.Println("ack", n)
		}
		switch {
		case err != nil:
		case n == 40:
			_, err = db.Admin().Erase(ctx, ops.Request{Refs: []refs.Ref{{Scope: "acme", ID: noteID(0, crashGone)}}, By: "desk", Reason: "asked"})
			if err == nil {
				_, err = fmt.Println("ack erase")
			}
		case n%20 == 15:
			_, err = db.Admin().Compact(ctx, false, nil)
		case n%6 == 5:
			_, err = db.Admin().Checkpoint(ctx)
		}
		if err != nil {
			return err
		}
	}
	return db.Close()
}

// call is a line of the trace, or the two lines of a call that others ran beside.
type call struct {
	name string
	args []string
	ret  int64
}

// traceOf runs a process under strace and returns its calls. A sync counts when it has returned, everything else when it began:
// so whatever a sync may have missed counts as written behind it only if the sync was over.
func traceOf(t *testing.T, dir, path string) []call {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("crash states need strace: ", err)
	}
	out := filepath.Join(dir, "trace")
	cmd := exec.Command("strace", "-f", "-qq", "-xx", "-s", "99999999", "-o", out, "-e", "signal=none", "-e",
		"trace=openat,close,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdirat", os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	if b, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(b), "ptrace") || strings.Contains(string(b), "PTRACE") {
			t.Skipf("crash states need ptrace: %s", b)
		}
		t.Fatalf("%v: %s", err, b)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls, begun := []call(nil), map[string]int{} // by process, the place of a call under way
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		pid, text, _ := strings.Cut(lines.Text(), " ")
		text = strings.TrimSpace(text)
		if _, rest, ok := strings.Cut(text, " resumed>"); ok {
			at := begun[pid]
			c := &calls[at]
			c.ret = returned(rest)
			if strings.HasSuffix(c.name, "sync") {
				calls = append(calls, *c)
				calls[at].name = "" // it counts here
			}
			continue
		}
		name, rest, ok := strings.Cut(text, "(")
		if !ok {
			continue
		}
		rest, unfinished := strings.CutSuffix(rest, " <unfinished ...>")
		end := strings.LastIndex(rest, ") ")
		if unfinished {
			end, begun[pid] = len(rest), len(calls)
		}
		if end < 0 {
			t.Fatalf("strace wrote a line that nobody knows: %.200s", text)
		}
		c := call{name: name, args: strings.Split(rest[:end], ", ")}
		if !unfinished {
			c.ret = returned(rest[end:])
		}
		calls = append(calls, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls
}

func returned(rest string) int64 {
	_, rest, _ = strings.Cut(rest, "= ")
	n, _ := strconv.ParseInt(strings.Fields(rest + " -1")[0], 10, 64)
	return n
}

// unquoted reads a string of the trace.
func unquoted(arg string) []byte {
	b, _ := hex.DecodeString(strings.ReplaceAll(strings.Trim(arg, `"`), `\x`, ""))
	return b
}

// replay is a file system that follows a trace.
type replay struct {
	*dbtest.FS
	base    string
	noSync  bool // the control
	names   map[string]string
	offsets map[string]int64
	acked   []string
}

func newReplay(base string, noSync bool) *replay {
	r := &replay{FS: dbtest.NewFS(), base: base, noSync: noSync, names: map[string]string{}, offsets: map[string]int64{}}
	_ = r.MkdirAll(base, 0o700)
	for dir := base; dir != "/"; dir = filepath.Dir(dir) {
		_ = r.FS.SyncDir(dir)
		_ = r.FS.SyncDir(filepath.Dir(dir))
	}
	return r
}

// files are open files by their descriptor: a file may lose its name and be written to all the same.
type files map[string]interface {
	WriteAt([]byte, int64) (int, error)
	Truncate(int64) error
	Sync() error
}

// do follows one call. It reports whether the call changed anything.
func (r *replay) do(c call, open files) (bool, error) {
	if c.ret < 0 || c.name == "" {
		return false, nil
	}
	fd := c.args[0]
	switch c.name {
	case "openat":
		return r.opened(c, open)
	case "close":
		delete(open, fd)
		delete(r.names, fd)
		return false, nil
	case "write", "pwrite64":
		if line, ok := strings.CutPrefix(string(unquoted(c.args[1])), "ack "); fd == "1" && ok {
			r.acked = append(r.acked, strings.TrimSpace(line))
			return false, nil
		}
		f, b := open[fd], unquoted(c.args[1])
		if f == nil {
			return false, nil
		}
		b = b[:min(int64(len(b)), c.ret)]
		at := r.offsets[fd]
		if c.name == "pwrite64" {
			at, _ = strconv.ParseInt(c.args[3], 10, 64)
		} else {
			r.offsets[fd] = at + int64(len(b))
		}
		_, err := f.WriteAt(b, at)
		return true, err
	case "ftruncate":
		n, err := strconv.ParseInt(c.args[1], 10, 64)
		if f := open[fd]; f != nil && err == nil {
			err = f.Truncate(n)
		}
		return true, err
	case "fsync", "fdatasync":
		return true, r.synced(fd, open)
	}
	return r.renamed(c)
}

func (r *replay) opened(c call, open files) (bool, error) {
	name, fd := string(unquoted(c.args[1])), strconv.FormatInt(c.ret, 10)
	if !strings.HasPrefix(name, r.base) {
		return false, nil
	}
	r.names[fd], r.offsets[fd] = name, 0
	delete(open, fd)
	if st, err := r.Stat(name); err == nil && st.IsDir() {
		return false, nil
	}
	flag := os.O_RDWR
	for text, is := range map[string]int{"O_CREAT": os.O_CREATE, "O_TRUNC": os.O_TRUNC} {
		if strings.Contains(c.args[2], text) {
			flag |= is
		}
	}
	f, err := r.OpenFile(name, flag, 0o600)
	if err == nil {
		open[fd] = f
	}
	return flag != os.O_RDWR, err
}

func (r *replay) synced(fd string, open files) error {
	switch f := open[fd]; {
	case r.noSync:
		return nil
	case f != nil:
		return f.Sync()
	case r.names[fd] != "":
		return r.SyncDir(r.names[fd])
	}
	return nil
}

// renamed follows a call that changes names.
func (r *replay) renamed(c call) (bool, error) {
	var names []string
	for _, a := range c.args {
		if strings.HasPrefix(a, `"`) {
			names = append(names, string(unquoted(a)))
		}
	}
	if len(names) == 0 || !strings.HasPrefix(names[0], r.base) {
		return false, nil
	}
	switch c.name {
	case "mkdirat":
		return true, r.MkdirAll(names[0], 0o700)
	case "unlink", "unlinkat":
		return true, r.Remove(names[0])
	}
	return true, r.Rename(names[0], names[1])
}

// save writes what a file system has to a directory.
func save(f *dbtest.FS, base, to string) error {
	for _, dir := range []string{"", "agent.ctx-wal", "agent.ctx-manifest"} {
		names, err := f.ReadDir(filepath.Join(base, dir))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, dir), 0o700); err != nil {
			return err
		}
		for _, name := range names {
			b, err := f.ReadFile(filepath.Join(base, dir, name))
			if err != nil {
				continue // a directory
			}
			if err := os.WriteFile(filepath.Join(to, dir, name), b, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge opens a state and looks for what was acknowledged.
func judge(dir string, acked []string) error {
	ctx := context.Background()
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{Exclusive: true})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s, gone := db.Scope("acme"), slices.Contains(acked, "erase")
	for _, a := range acked {
		n, err := strconv.Atoi(a)
		if err != nil || n == crashGone {
			continue
		}
		v, err := s.Get(ctx, noteID(0, n))
		if err == nil && v.Text != noteText(0, n) {
			err = fmt.Errorf("it is %q", v.Text)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("note %d: %w", n, err), db.Close())
		}
	}
	if _, err := s.Get(ctx, noteID(0, crashGone)); gone && !errors.Is(err, store.ErrNotFound) {
		return errors.Join(fmt.Errorf("the erased note is there: %w", err), db.Close())
	}
	problems, err := db.Admin().Check(ctx, nil)
	if len(problems) > 0 {
		err = fmt.Errorf("check: %+v", problems)
	}
	return errors.Join(err, db.Close())
}

// crashes follows a trace to each of n random moments and judges a state of each.
func crashes(t *testing.T, base string, calls []call, n int, noSync bool) (bad []error) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	moments := map[int]uint64{}
	for range n {
		moments[rng.IntN(len(calls))] = rng.Uint64()
	}
	r, open := newReplay(base, noSync), files{}
	for i, c := range calls {
		if _, err := r.do(c, open); err != nil {
			t.Fatalf("call %d, %s(%.80s): %v", i, c.name, strings.Join(c.args, ", "), err)
		}
		seed, cut := moments[i]
		if !cut {
			continue
		}
		to := t.TempDir()
		if err := save(r.CrashClone(seed, int(seed%5)*25), base, to); err != nil {
			t.Fatal(err)
		}
		if err := judge(to, r.acked); err != nil {
			bad = append(bad, fmt.Errorf("call %d of %d, seed %d, %d acknowledged: %w", i, len(calls), seed, len(r.acked), err))
		}
		_ = os.RemoveAll(to)
	}
	if got := len(r.acked); got != crashNotes+1 {
		t.Fatalf("%d acknowledgements are in the trace, expected %d", got, crashNotes+1)
	}
	for _, name := range []string{"agent.ctx", "agent.ctx-manifest/mark"} { // the trace has everything that was written
		want, err := os.ReadFile(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadFile(filepath.Join(base, name)); err != nil || string(got) != string(want) {
			t.Fatalf("%s is not what the process left: %d bytes, expected %d: %v", name, len(got), len(want), err)
		}
	}
	return bad
}

func TestCrashStates(t *testing.T) {
	base := t.TempDir()
	calls := traceOf(t, t.TempDir(), filepath.Join(base, "agent.ctx"))
	for _, err := range crashes(t, base, calls, *crashStates, false) {
		t.Error(err)
	}
	bad := crashes(t, base, calls, 12, true)
	if len(bad) < 6 {
		t.Errorf("control: without syncs only %d of 12 states are bad", len(bad))
	}
	t.Logf("%d states of %d calls; control: %d of 12 bad", *crashStates, len(calls), len(bad))
}
