package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// What clients do to some registers, each an artefact, and to the directives of their scope. 0 stands for an artefact that
// is not there.
const registers = 3

type state struct {
	of   [registers]int
	said uint64 // directives, a bit each
}

const directives = 64

type opKind int

const (
	opGet opKind = iota
	opPut
	opPair   // a transaction reads two registers and writes both
	opDelete // of a register; gone says whether it was there
	opGated  // a commit that the gate lets pass
	opHeld   // one that it holds: nothing may change
	opShow   // an assembly shows all registers
	opStep   // a directive, which may stand already
	opSaid   // all directives
	opKinds
)

type input struct {
	op   opKind
	a, b int // registers
	x, y int // values to write
}

type output struct {
	x, y    int
	gone    bool
	shown   [registers]int
	said    uint64
	unknown bool // its client was killed before it heard: it may have taken effect at any later time, or never
}

// model is what the registers are by themselves, one operation after the other.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, out any) (bool, any) {
		st, i, o := s.(state), in.(input), out.(output)
		switch i.op {
		case opGet:
			return o.x == st.of[i.a] || o.unknown, st
		case opPut, opGated:
			st.of[i.a] = i.x
		case opPair:
			ok := o.x == st.of[i.a] && o.y == st.of[i.b]
			st.of[i.a], st.of[i.b] = i.x, i.y
			return ok || o.unknown, st
		case opDelete:
			ok := o.gone == (st.of[i.a] != 0)
			st.of[i.a] = 0
			return ok || o.unknown, st
		case opShow:
			return o.shown == st.of || o.unknown, st
		case opStep:
			st.said |= 1 << (i.x % directives)
		case opSaid:
			return o.said == st.said || o.unknown, st
		}
		return true, st
	},
}

// system does one operation. applied false: it is known to have had no effect.
type system interface {
	do(ctx context.Context, in input) (out output, applied bool, err error)
}

// database is a store of ctxpage.
type database struct{ s *ctxpage.Scope }

func name(r int) string { return fmt.Sprintf("register-%d", r) }

func text(r, v int) string { return fmt.Sprintf("zebra register %d holds %d", r, v) }

var holds = regexp.MustCompile(`register (\d+) holds (\d+)`)

// parse reads the registers in a text.
func parse(text string) (s [registers]int) {
	for _, m := range holds.FindAllStringSubmatch(text, -1) {
		r, _ := strconv.Atoi(m[1])
		v, _ := strconv.Atoi(m[2])
		s[r] = v
	}
	return s
}

func read(r int, v *ctxpage.Version, err error) (int, error) {
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parse(v.Text)[r], nil
}

func (d database) do(ctx context.Context, in input) (out output, applied bool, err error) {
	applied = true
	put := func(r, v int) ctxpage.Artefact { return ctxpage.Artefact{ID: name(r), Text: text(r, v)} }
	switch in.op {
	case opGet:
		v, gerr := d.s.Get(ctx, name(in.a))
		out.x, err = read(in.a, v, gerr)
	case opPut:
		_, err = d.s.Put(ctx, put(in.a, in.x))
	case opPair:
		err = d.s.Update(ctx, func(tx *ctxpage.Txn) error {
			v, gerr := tx.Get(ctx, name(in.a))
			x, err := read(in.a, v, gerr)
			if err != nil {
				return err
			}
			v, gerr = tx.Get(ctx, name(in.b))
			y, err := read(in.b, v, gerr)
			out.x, out.y = x, y
			return errors.Join(err, tx.Put(ctx, put(in.a, in.x)), tx.Put(ctx, put(in.b, in.y)))
		})
	case opDelete:
		err = d.s.Delete(ctx, name(in.a))
		out.gone = !errors.Is(err, store.ErrNotFound)
		if !out.gone {
			err = nil
		}
	case opGated, opHeld:
		var tx *ctxpage.Txn
		if tx, err = d.s.Begin(ctx); err != nil {
			return out, false, err
		}
		if err = tx.Put(ctx, put(in.a, in.x)); err != nil {
			return out, false, errors.Join(err, tx.Rollback())
		}
		err = tx.Commit(ctx, ctxpage.Verdict{Confidence: map[opKind]float64{opGated: .9, opHeld: .1}[in.op], By: "tests"})
		if in.op == opHeld && errors.Is(err, store.ErrHeld) {
			err = nil
		}
	case opShow:
		var a *ctxpage.Assembly
		if a, err = d.s.Assemble(ctx, ctxpage.Query{Text: "zebra register", Budget: 100_000}); err == nil {
			out.shown = parse(a.Text())
		}
	case opStep:
		_, err = d.s.Directives().Step(ctx, fmt.Sprintf("use tool%d", in.x%directives))
	case opSaid:
		var st ctxpage.DirectiveState
		if st, err = d.s.Directives().State(ctx); err == nil {
			out.said, err = tools(st)
		}
	}
	if errors.Is(err, store.ErrConflict) {
		return out, false, nil
	}
	return out, applied, err
}

// tools are the directives that stand.
func tools(st ctxpage.DirectiveState) (said uint64, err error) {
	for _, item := range st.Own.State.Items() {
		n, err := strconv.Atoi(strings.TrimPrefix(item, "tool"))
		if err != nil {
			return 0, err
		}
		said |= 1 << n
	}
	return said, nil
}

// stale is a store that reads one register once and gives that answer for a while.
type stale struct {
	system
	mu   sync.Mutex
	last map[int]int
	n    int
}

func (s *stale) do(ctx context.Context, in input) (output, bool, error) {
	out, applied, err := s.system.do(ctx, in)
	if in.op == opGet && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if was, ok := s.last[in.a]; ok && s.n%20 != 0 {
			out.x = was
		} else {
			s.last[in.a] = out.x
		}
		s.n++
	}
	return out, applied, err
}

func randomInput(rnd *rand.Rand, unique func() int) input {
	in := input{op: opKind(rnd.IntN(int(opKinds))), a: rnd.IntN(registers), x: unique(), y: unique()}
	in.b = (in.a + 1 + rnd.IntN(registers-1)) % registers
	return in
}

// history lets clients work on a store at once.
func history(t *testing.T, st system, seed uint64, clients, each int) []porcupine.Operation {
	var mu sync.Mutex
	var out []porcupine.Operation
	var next atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for c := range clients {
		rnd := rand.New(rand.NewPCG(seed, uint64(c)))
		wg.Go(func() {
			for range each {
				in := randomInput(rnd, func() int { return int(next.Add(1)) })
				call := time.Since(begin)
				o, applied, err := st.do(context.Background(), in)
				end := time.Since(begin)
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				if applied {
					mu.Lock()
					out = append(out, porcupine.Operation{ClientId: c, Input: in, Output: o, Call: int64(call), Return: int64(end)})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return out
}

// beside maintains the database until the test stops it.
func beside(t *testing.T, db *ctxpage.DB, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	n := 0
	for _, job := range []func() error{
		func() error { _, err := db.Admin().Checkpoint(ctx); return err },
		func() error {
			_, err := db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: -1})
			return err
		},
		func() error {
			n++
			_, err := db.Admin().Backup(ctx, filepath.Join(dir, fmt.Sprintf("copy-%d", n)), nil)
			return err
		},
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := job(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// run makes a history and judges it.
func run(t *testing.T, seed uint64, wrap func(system) system) porcupine.CheckResult {
	t.Helper()
	dir := t.TempDir()
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{WorkingSet: []int64{0, -1, 200}[seed%3]})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stop := beside(t, db, dir)
	h := history(t, wrap(database{db.Scope("acme", ctxpage.WithActor("agent"))}), seed, 6, 100)
	stop()
	result := porcupine.CheckOperationsTimeout(model, h, 20*time.Second)
	if problems, err := db.Admin().Check(context.Background(), nil); err != nil || len(problems) > 0 {
		t.Errorf("check: %v %v", problems, err)
	}
	return result
}

// TestLinearizable: every operation takes effect at one moment between its call and its return, whatever maintenance runs
// beside it. An assembly is one look at all registers.
func TestLinearizable(t *testing.T) {
	results := map[porcupine.CheckResult]int{}
	until := time.Now().Add(25 * time.Second)
	for seed := uint64(1); seed <= 12 && (seed <= 3 || time.Now().Before(until)); seed++ {
		got := run(t, seed, func(s system) system { return s })
		if results[got]++; got == porcupine.Illegal {
			t.Fatalf("the history of seed %d is not linearizable", seed)
		}
	}
	if results[porcupine.Ok] == 0 {
		t.Fatalf("no history was judged in time: %v", results)
	}
	t.Logf("histories of 600 operations: %v", results)
}

// The control: a store that serves stale reads is found out.
func TestLinearizableControl(t *testing.T) {
	var got []porcupine.CheckResult
	for seed := range uint64(3) {
		got = append(got, run(t, seed, func(s system) system { return &stale{system: s, last: map[int]int{}} }))
	}
	if !slices.Contains(got, porcupine.Illegal) {
		t.Fatalf("stale reads were taken for linearizable: %v", got)
	}
}
