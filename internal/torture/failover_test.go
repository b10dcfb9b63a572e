//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// Eight processes work on one database, and whichever owns its files is killed again and again. What they say of their
// operations is one history:
//
//	call     a line before the operation, with the clock that all processes share (CLOCK_MONOTONIC)
//	answer   a line after it
//	neither  the process was killed between the two, or nobody answered it: the operation may take effect at any later
//	         moment, or never
//
// A killed process is replaced by one that does what was left of its operations.
var (
	histories = flag.Int("failover.histories", 2, "histories of TestLinearizableAcrossFailOver")
	each      = flag.Int("failover.ops", 3000, "operations of each")
	killEach  = flag.Duration("failover.every", 150*time.Millisecond, "how long an owner lives")
)

const (
	agents   = 8
	agentEnv = "CTXPAGE_TORTURE_AGENT" // path, agent, seed, operations, first value, serve stale reads
)

// line is what an agent says about one operation.
type line struct {
	N       int // of the agent
	In      []int
	At      int64 // call or answer, nanoseconds
	Out     []int
	Said    uint64
	Gone    bool
	Skipped bool   // it had no effect
	Err     string `json:",omitempty"`
}

func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// actAsAgent does operations until they are done.
func actAsAgent(args string) error {
	f := strings.Split(args, "\n")
	var n [5]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(f[i+1]); err != nil {
			return err
		}
	}
	db, err := ctxpage.Open(f[0], ctxpage.Options{})
	for begun := time.Now(); errors.Is(err, store.ErrLocked) && time.Since(begun) < time.Minute; { // the machine is busy
		db, err = ctxpage.Open(f[0], ctxpage.Options{})
	}
	if err != nil {
		return err
	}
	defer db.Close()
	var st system = database{db.Scope("acme", ctxpage.WithActor("agent"))}
	if n[4] == 1 {
		st = &stale{system: st, last: map[int]int{}}
	}
	rnd, value := rand.New(rand.NewPCG(uint64(n[1]), uint64(n[0]))), n[3]
	say := json.NewEncoder(os.Stdout)
	for i := range n[2] {
		in := randomInput(rnd, func() int { value++; return value })
		l := line{N: i, In: []int{int(in.op), in.a, in.b, in.x, in.y}, At: now()}
		if err := say.Encode(l); err != nil {
			return err
		}
		out, applied, err := st.do(context.Background(), in)
		l = line{N: i, At: now(), Out: append([]int{out.x, out.y}, out.shown[:]...), Said: out.said, Gone: out.gone, Skipped: !applied}
		switch {
		case errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, store.ErrLocked): // nobody answered for 2 s: the machine is busy
			continue
		case err != nil:
			l.Err = err.Error()
		}
		if err := say.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// agentProcess is a process and the operations it told of.
type agentProcess struct {
	*exec.Cmd
	done chan struct{} // its output has ended
	ops  []porcupine.Operation
	errs []string
	left int
	all  *atomic.Int64 // answers of all processes
}

// values is the space of one process for values of its own.
const values = 1 << 20

func startAgent(t *testing.T, path string, id int, seed uint64, ops int, staleReads bool, all *atomic.Int64) *agentProcess {
	t.Helper()
	a := &agentProcess{Cmd: exec.Command(os.Args[0]), done: make(chan struct{}), left: ops, all: all}
	a.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d\n%d\n%d\n%d", agentEnv, path, id, seed, ops, (id+1)*values, map[bool]int{true: 1}[staleReads]))
	a.Stderr = os.Stderr
	out, err := a.StdoutPipe()
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Process.Kill(); _ = a.Wait() })
	go a.listen(out, id)
	return a
}

// listen makes operations of lines. One without an answer never returned.
func (a *agentProcess) listen(out io.Reader, id int) {
	defer close(a.done)
	in := bufio.NewScanner(out)
	var open *porcupine.Operation
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil { // the last line of a killed process
			break
		}
		if l.In != nil {
			a.unheard(open)
			open = &porcupine.Operation{ClientId: id, Call: l.At, Input: input{opKind(l.In[0]), l.In[1], l.In[2], l.In[3], l.In[4]}}
			continue
		}
		a.left--
		a.all.Add(1)
		if l.Err != "" {
			a.errs = append(a.errs, fmt.Sprintf("%+v: %s", open.Input, l.Err))
		}
		if !l.Skipped {
			open.Output, open.Return = output{x: l.Out[0], y: l.Out[1], shown: [registers]int(l.Out[2:]), said: l.Said, gone: l.Gone}, l.At
			a.ops = append(a.ops, *open)
		}
		open = nil
	}
	a.unheard(open)
}

// unheard notes an operation whose answer did not come; nil: there is none. One that only asked says nothing.
func (a *agentProcess) unheard(open *porcupine.Operation) {
	if open == nil {
		return
	}
	a.left--
	if k := open.Input.(input).op; k != opGet && k != opShow && k != opSaid && k != opHeld {
		open.Output, open.Return = output{unknown: true}, math.MaxInt64
		a.ops = append(a.ops, *open)
	}
}

// ownerOf is the process that serves a database; 0: none does at the moment.
func ownerOf(path string) int {
	is, err := remote.GetStatus(context.Background(), path+".sock", remote.ClientOptions{})
	if err != nil || is.State != "" {
		return 0
	}
	return is.PID
}

// failOver runs agents until all operations are done, and kills owners meanwhile. It gives the history and how many it killed.
func failOver(t *testing.T, seed uint64, staleReads bool) (history []porcupine.Operation, kills int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	next := 0
	var answers atomic.Int64
	begin := func(ops int) *agentProcess {
		next++
		return startAgent(t, path, next, seed, ops, staleReads, &answers)
	}
	var live []*agentProcess
	for range agents {
		live = append(live, begin(*each/agents))
	}
	reap := func(i int, killed bool) { // its output has ended
		a := live[i]
		live = slices.Delete(live, i, i+1)
		if err := a.Wait(); err != nil && !killed {
			t.Errorf("an agent ended: %v", err)
		}
		for _, e := range a.errs {
			t.Error(e)
		}
		history = append(history, a.ops...)
		if killed && a.left > 0 {
			live = append(live, begin(a.left))
		}
	}
	heard := int64(0)
	for last := time.Now(); len(live) > 0; time.Sleep(5 * time.Millisecond) {
		if i := slices.IndexFunc(live, func(a *agentProcess) bool {
			select {
			case <-a.done:
				return true
			default:
				return false
			}
		}); i >= 0 {
			reap(i, false)
			continue
		}
		if time.Since(last) < *killEach || answers.Load() < heard+agents { // on a busy machine owners would die before they answer
			continue
		}
		pid := ownerOf(path)
		if i := slices.IndexFunc(live, func(a *agentProcess) bool { return a.Process.Pid == pid }); i >= 0 {
			_ = live[i].Process.Kill()
			<-live[i].done
			reap(i, true)
			last, kills, heard = time.Now(), kills+1, answers.Load()
		}
	}
	return history, kills
}

func judgeFailOver(t *testing.T, seed uint64, staleReads bool) porcupine.CheckResult {
	t.Helper()
	h, kills := failOver(t, seed, staleReads)
	begun := time.Now()
	result := porcupine.CheckOperationsTimeout(model, h, time.Minute)
	unheard := 0
	for _, op := range h {
		if op.Return == math.MaxInt64 {
			unheard++
		}
	}
	t.Logf("seed %d: %d operations, %d owners killed, %d operations whose answer nobody heard: %v after %v", seed, len(h), kills, unheard, result, time.Since(begun).Round(time.Millisecond))
	if kills == 0 {
		t.Error("no owner was killed")
	}
	return result
}

// TestLinearizableAcrossFailOver: whoever owns the files is killed, and what the others see is still one database.
func TestLinearizableAcrossFailOver(t *testing.T) {
	results := map[porcupine.CheckResult]int{}
	for seed := range uint64(*histories) {
		got := judgeFailOver(t, seed, false)
		if results[got]++; got == porcupine.Illegal {
			t.Fatalf("the history of seed %d is not linearizable", seed)
		}
	}
	if results[porcupine.Ok] == 0 {
		t.Fatalf("no history was judged in time: %v", results)
	}
}

// The control: agents that read a register once and go on to give that answer are found out.
func TestLinearizableAcrossFailOverControl(t *testing.T) {
	if got := judgeFailOver(t, 1, true); got != porcupine.Illegal {
		t.Fatalf("stale reads were taken for linearizable: %v", got)
	}
}
