package pgstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Processes of their own work on one database while they are killed, stopped and cut off, and the server is stopped as by a power
// cut. What they saw is judged by porcupine: there must be one order of all operations, each between its call and its answer.

// job is what a process of the test does.
type job struct {
	DSN, Name string
	Process   int
	Stale     bool // a control: reads do not refresh
	Credulous bool // a control: see Options
	StopAt    int  // it stops itself when it is about to write its group of that number; 0: never
	Hold      int  // each time it is about to write so many groups more, it tells so and waits for holdFor; 0: never
}

// holdFor is long enough for a test to do something while a process has the lock, and shorter than the server waits.
const holdFor = 700 * time.Millisecond

// event is the call of an operation, or its answer, or that a process has the lock.
type event struct {
	Process, Op int
	At          int64   // unix ns: the processes share a clock
	Call        *call   `json:",omitempty"`
	Answer      *answer `json:",omitempty"`
	Holds       bool    `json:",omitempty"` // it has the lock and waits; see job.Hold
}

// call is a read, or a write that expects a value.
type call struct {
	Key      string
	Write    bool
	Old, New string
}

type answer struct {
	Value   string // of a read
	Done    bool   // of a write: it was made; else it met another value
	Unknown bool   // it may be either
}

const jobEnv = "PGSTORE_TEST_JOB"

// work is such a process. It ends when its input does.
func work(env string) {
	var j job
	if err := json.Unmarshal([]byte(env), &j); err != nil {
		panic(err)
	}
	w := &worker{job: j, out: json.NewEncoder(os.Stdout)}
	var groups atomic.Int64
	o := Options{Name: j.Name, credulous: j.Credulous, NoNotify: j.Stale, hook: func(step string) error {
		if step != "write" {
			return nil
		}
		n := int(groups.Add(1))
		if n == j.StopAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Second) // the signal may reach another thread first; this one must not write meanwhile
		}
		if j.Hold > 0 && n%j.Hold == 0 {
			w.hold()
		}
		return nil
	}}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	st, err := Open(context.Background(), j.DSN, o)
	for tries := 1; err != nil; st, err = Open(context.Background(), j.DSN, o) { // a fault of the test met it
		if tries++; tries%300 == 0 {
			fmt.Fprintf(os.Stderr, "worker %d: open: %v\n", j.Process, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.st = st
	go func() {
		<-st.dead
		fmt.Fprintf(os.Stderr, "worker %d: %v\n", j.Process, st.whyDead())
	}()
	for g := range 3 {
		go w.loop(g)
	}
	select {}
}

type worker struct {
	job job
	st  *Store
	mu  sync.Mutex
	out *json.Encoder
	n   int
}

func (w *worker) tell(op int, c *call, a *answer) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c != nil {
		w.n++
		op = w.n
	}
	w.encode(event{Process: w.job.Process, Op: op, Call: c, Answer: a})
	return op
}

func (w *worker) encode(e event) {
	e.At = time.Now().UnixNano()
	if err := w.out.Encode(e); err != nil {
		os.Exit(0)
	}
}

func (w *worker) hold() {
	w.mu.Lock()
	w.encode(event{Process: w.job.Process, Holds: true})
	w.mu.Unlock()
	time.Sleep(holdFor)
}

const keys = 6

func (w *worker) loop(g int) {
	r := rand.New(rand.NewPCG(uint64(w.job.Process), uint64(g)))
	for n := 0; ; n++ {
		key := fmt.Sprint("key ", r.IntN(keys))
		if r.IntN(2) == 0 {
			op := w.tell(0, &call{Key: key}, nil)
			v, _, err := w.read(key)
			w.tell(op, nil, &answer{Value: v, Unknown: err != nil})
		} else {
			w.write(key, fmt.Sprintf("%d-%d-%d", w.job.Process, g, n))
		}
		time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
	}
}

// read returns the value of a key and the LSN that wrote it.
func (w *worker) read(key string) (string, uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !w.job.Stale {
		if _, err := w.st.Refresh(ctx, 0); err != nil {
			return "", 0, err
		}
	}
	at, err := w.st.Resolve(ctx, acme, store.Ref{ID: key})
	if errors.Is(err, store.ErrNotFound) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	got, err := w.st.Load(ctx, acme, at.Pages, store.WantText)
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		return "", 0, err
	}
	return got[0].Text, at.LSN, nil
}

func (w *worker) write(key, value string) {
	old, lsn, err := w.read(key)
	if err != nil {
		return
	}
	b, err := factBatch(w.st, key, value)
	if err != nil {
		return
	}
	b.Expect = []store.Precondition{{Ref: store.Ref{Scope: "acme", ID: key}, LSN: lsn}}
	op := w.tell(0, &call{Key: key, Write: true, Old: old, New: value}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = w.st.Commit(ctx, b)
	w.tell(op, nil, &answer{Done: err == nil, Unknown: err != nil && !errors.Is(err, store.ErrConflict)})
}

// fleet is the processes of one run.
type fleet struct {
	t    *testing.T
	job  job
	mu   sync.Mutex
	next int
	seen []event
	all  sync.WaitGroup

	through []string // the program, with arguments, that starts the processes; nil: none
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// spawn starts a process, and takes what it tells.
func (f *fleet) spawn() *process {
	f.mu.Lock()
	f.next++
	j := f.job
	j.Process = f.next
	f.mu.Unlock()
	env, err := json.Marshal(j)
	require.NoError(f.t, err)
	line := append(slices.Clone(f.through), os.Args[0])
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(env))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	f.all.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			var e event
			if json.Unmarshal(s.Bytes(), &e) != nil {
				continue // the last line of a process that was killed
			}
			f.mu.Lock()
			f.seen = append(f.seen, e)
			f.mu.Unlock()
		}
		_ = cmd.Wait()
	})
	return &process{cmd, in}
}

// history is what all processes saw. What was not answered, or not for certain, may have happened at any time after its call, or
// never.
func (f *fleet) history() (ops []porcupine.Operation, unknown int) {
	answers := map[[2]int]event{}
	last := int64(0)
	for _, e := range f.seen {
		last = max(last, e.At)
		if e.Answer != nil {
			answers[[2]int{e.Process, e.Op}] = e
		}
	}
	client := 0
	for _, e := range f.seen {
		if e.Call == nil {
			continue
		}
		a, is := answers[[2]int{e.Process, e.Op}]
		op := porcupine.Operation{ClientId: client, Input: *e.Call, Call: e.At, Return: a.At}
		client++
		switch {
		case is && !a.Answer.Unknown:
			op.Output = *a.Answer
		case !e.Call.Write:
			continue // a read that failed says nothing
		default:
			unknown++
			op.Output, op.Return = answer{Unknown: true}, last+int64(time.Hour)
		}
		ops = append(ops, op)
	}
	return ops, unknown
}

// register is one key: a read gives its value, a write is made if it has the old value.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, keys)
		for _, op := range history {
			var n int
			_, _ = fmt.Sscanf(op.Input.(call).Key, "key %d", &n)
			parts[n] = append(parts[n], op)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		is, c, a := state.(string), input.(call), output.(answer)
		switch {
		case !c.Write:
			return a.Value == is, is
		case a.Unknown && is == c.Old:
			return true, c.New
		case a.Unknown:
			return true, is
		case a.Done:
			return is == c.Old, c.New
		}
		return is != c.Old, is
	},
}

// fleetRun has processes at work while faults strikes, and judges what they saw.
func fleetRun(t *testing.T, j job, processes int, faults func(f *fleet, ps []*process)) (porcupine.CheckResult, int) {
	f := &fleet{t: t, job: j}
	var ps []*process
	for range processes {
		ps = append(ps, f.spawn())
	}
	time.Sleep(500 * time.Millisecond)
	faults(f, ps)
	for _, p := range ps {
		_ = p.in.Close()
	}
	f.all.Wait()
	ops, unknown := f.history()
	t.Logf("%d operations, %d of unknown outcome", len(ops), unknown)
	result, _ := porcupine.CheckOperationsVerbose(register, ops, 30*time.Second)
	return result, len(ops)
}

// TestProcesses: four processes, killed, stopped for longer than the server waits, their connections ended, and the server stopped
// once as by a power cut: all of it is one order.
func TestProcesses(t *testing.T) {
	srv := ownServer(t)
	_, err := Open(t.Context(), srv.dsn("postgres"), Options{MustExist: true})
	require.ErrorIs(t, err, store.ErrNotExist)
	r := rand.New(rand.NewPCG(1, 2))
	result, n := fleetRun(t, job{DSN: srv.dsn("postgres"), Name: "main"}, 4, func(f *fleet, ps []*process) {
		for round := range 12 {
			at := r.IntN(len(ps))
			switch {
			case round == 6:
				require.NoError(t, srv.stop(syscall.SIGQUIT))
				require.NoError(t, srv.start())
			case round%3 == 0:
				_ = ps[at].cmd.Process.Kill()
				ps[at] = f.spawn()
			case round%3 == 1:
				_ = ps[at].cmd.Process.Signal(syscall.SIGSTOP)
				time.Sleep(idleTimeout + 300*time.Millisecond)
				_ = ps[at].cmd.Process.Signal(syscall.SIGCONT)
			default:
				terminate(t, srv.dsn("postgres"))
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	require.Equal(t, porcupine.Ok, result)
	require.Greater(t, n, 200)
	st := onHost(t, srv.dsn("postgres"), "main", nil)
	_, err = st.Audit().Verify(t.Context(), nil, nil)
	require.NoError(t, err)
}

// terminate ends the connections of all stores.
func terminate(t *testing.T, dsn string) {
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'postgres'")
	require.NoError(t, err)
}

// The control: reads that do not refresh are not linearizable, and the checker says so. Hosts that follow fast are seldom behind, so
// there are several rounds.
func TestProcessesStaleControl(t *testing.T) {
	dsn := onServer(t)
	for range 10 {
		j := job{DSN: dsn, Name: fmt.Sprint(ownName(t), time.Now().UnixNano()), Stale: true}
		if result, _ := fleetRun(t, j, 3, func(*fleet, []*process) { time.Sleep(2 * time.Second) }); result == porcupine.Illegal {
			return
		}
	}
	t.Fatal("the test of processes proves nothing")
}

// The control: a store that takes a lost answer for a commit is caught. A fast server is seldom met in the middle of a commit, so
// there are several rounds.
func TestProcessesCredulousControl(t *testing.T) {
	srv := ownServer(t)
	for round := range 10 {
		result, _ := fleetRun(t, job{DSN: srv.dsn("postgres"), Name: fmt.Sprint("round", round), Credulous: true}, 3, func(*fleet, []*process) {
			for range 20 {
				time.Sleep(75 * time.Millisecond)
				terminate(t, srv.dsn("postgres"))
			}
		})
		if result == porcupine.Illegal {
			return
		}
	}
	t.Fatal("the test of processes proves nothing")
}
