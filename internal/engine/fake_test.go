package engine

import (
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// shared is a log in memory that any number of engines follow, each through a memory of its own, and rows that they share.
type shared struct {
	tail sync.Mutex // held by the memory whose group is being made
	grow chan struct{}

	mu      sync.RWMutex
	records []memoryRecord
	first   int // records before it were thrown away
	next    Counters
	tree    archive.Frontier
	roots   []manifest.Hash // by number of leaves
	tables  [TableQuestion + 1]map[string][]byte
	base    Base
	fail    func() error // of a group, before it is written
}

type memoryRecord struct {
	kind Kind
	body []byte
}

// flying is an entry in flight.
type flying struct {
	Entry
	memoryRecord
}

func entries(group []flying) (out []Entry) {
	for _, f := range group {
		out = append(out, f.Entry)
	}
	return out
}

func newShared() *shared {
	o := &shared{base: Base{Size: 1 << 40}, grow: make(chan struct{}), next: Counters{LSN: 1, Art: 1, Num: 1, Group: 1}}
	for i := range o.tables {
		o.tables[i] = map[string][]byte{}
	}
	o.roots = append(o.roots, o.tree.Root())
	return o
}

// append makes a group durable.
func (o *shared) append(group []flying) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		if err := o.fail(); err != nil {
			return err
		}
	}
	for _, e := range group {
		if e.Commit != nil {
			o.next = e.Commit.After
			o.tree.Add(archive.LeafHash(e.Commit.leaf.Body()))
		} else {
			o.next.Leaf = e.Leaf.Index + 1
			o.tree.Add(archive.LeafHash(e.Leaf.Body()))
		}
		o.records = append(o.records, e.memoryRecord)
		o.roots = append(o.roots, o.tree.Root())
	}
	close(o.grow)
	o.grow = make(chan struct{})
	return nil
}

// memory is an engine over an order and rows in memory, for tests of this package.
type memory struct {
	*Engine
	*shared
	host *host
	t    testing.TB
}

// newMemory makes an empty database.
func newMemory(t testing.TB, now func() time.Time) *memory {
	t.Helper()
	return newShared().join(t, now)
}

// join opens another engine on an order.
func (o *shared) join(t testing.TB, now func() time.Time) *memory {
	t.Helper()
	m := &memory{t: t, shared: o}
	m.Engine = New(Options{Path: "memory", Now: now, Rand: rand.Reader, Analyzer: lexical.NewAnalyzer(), Checkpoint: func(context.Context) error { return m.checkpoint() }})
	m.host = &host{o: o, e: m.Engine}
	m.Attach(m.host)
	require.NoError(t, m.host.Snapshot(t.Context(), m.LoadRows))
	var err error
	m.Leaves, _, err = archive.Open(t.Context(), "/audit", dbtest.NewFS(), archive.Options{DB: "memory"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Leaves.Close() })
	require.NoError(t, m.host.Follow(t.Context(), 0))
	m.Identify(store.Info{ID: "memory"})
	m.Start()
	return m
}

// host is an order as one engine has it. A commit is durable when somebody syncs. Its tail is a lock of the order, which it
// keeps until its group is durable, as one would that is a lock on a server.
type host struct {
	o *shared
	e Follower

	own     sync.Mutex // the tail among the goroutines of this engine
	holds   bool       // the order's tail
	flying  []flying
	applied int // records of the order that the engine has
}

func (h *host) Acquire(context.Context) (Tail, error) {
	h.own.Lock()
	if h.holds {
		return h, nil
	}
	h.o.tail.Lock()
	if err := h.catchUp(); err != nil {
		h.o.tail.Unlock()
		h.own.Unlock()
		return nil, err
	}
	h.holds = true
	return h, nil
}

func (h *host) Next() Counters {
	h.o.mu.RLock()
	next := h.o.next
	h.o.mu.RUnlock()
	for _, e := range h.flying {
		if next.Leaf++; e.Commit != nil {
			next = e.Commit.After
		}
	}
	return next
}

func (h *host) seq() uint64 {
	h.o.mu.RLock()
	defer h.o.mu.RUnlock()
	return uint64(h.o.first + len(h.o.records) + len(h.flying) + 1)
}

func (h *host) Commit(c *Commit) error {
	c.Seq = h.seq()
	h.flying = append(h.flying, flying{Entry{Commit: c}, memoryRecord{KindCommit, c.Append(nil)}})
	return nil
}

func (h *host) Release() {
	defer h.own.Unlock()
	if len(h.flying) == 0 {
		h.letGo()
	}
}

func (h *host) letGo() {
	h.holds = false
	h.o.tail.Unlock()
}

func (h *host) Leave(ctx context.Context, leaves []*Leaf) (seq uint64, err error) {
	tail, err := h.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer tail.Release()
	for _, l := range leaves {
		l.Index, l.Seq = h.Next().Leaf, h.seq()
		seq = l.Seq
		h.flying = append(h.flying, flying{Entry{Leaf: l}, memoryRecord{KindLeaf, slices.Concat(AppendLeafHead(nil, l.Index, l.Question()), l.Body())}})
	}
	return seq, h.flush() // nobody may sync it for long, and others wait for the tail
}

func (h *host) Write() error { return nil }

func (h *host) Sync(_ context.Context, _ uint64, heard <-chan struct{}) error {
	select {
	case <-heard:
		return nil
	default:
	}
	h.own.Lock()
	defer h.own.Unlock()
	if len(h.flying) == 0 {
		return nil
	}
	err := h.flush()
	h.letGo()
	return err
}

// flush makes the group durable. The tail is held.
func (h *host) flush() error {
	group := h.flying
	h.flying = nil
	if err := h.o.append(group); err != nil {
		h.e.Lost(entries(group))
		return err
	}
	h.applied += len(group)
	h.e.Durable(entries(group))
	return nil
}

// catchUp gives the engine what others wrote. The tail among goroutines is held.
func (h *host) catchUp() error {
	h.o.mu.RLock()
	records, roots := h.o.records, h.o.roots
	first := h.o.first
	h.o.mu.RUnlock()
	if h.applied < first {
		return ErrTooOld
	}
	if at := h.e.Position(); at.Leaves >= uint64(len(roots)) || roots[at.Leaves] != at.Root {
		return ErrForked
	}
	for _, r := range records[h.applied-first:] {
		if err := h.e.Follow(r.kind, uint64(h.applied+1), r.body); err != nil {
			return err
		}
		h.applied++
	}
	return nil
}

func (h *host) Follow(ctx context.Context, wait time.Duration) error {
	h.own.Lock()
	defer h.own.Unlock()
	h.o.mu.RLock()
	grow, none := h.o.grow, h.applied == h.o.first+len(h.o.records)
	h.o.mu.RUnlock()
	if none && wait > 0 {
		select {
		case <-grow:
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h.holds {
		return nil
	}
	return h.catchUp()
}

func (h *host) Outcome(_ context.Context, id ulid.ULID) (row []byte, err error) {
	err = h.View(func(tx Reader) error { row, err = OutcomeIn(tx, id); return err })
	return row, err
}

func (h *host) Snapshot(_ context.Context, fn func(Reader, Base) error) error {
	return h.View(func(tx Reader) error { return fn(tx, h.o.base) })
}

func (h *host) View(fn func(Reader) error) error {
	h.o.mu.RLock()
	defer h.o.mu.RUnlock()
	return fn(memoryRows{h.o})
}

// checkpoint brings the overlay into the rows.
func (m *memory) checkpoint() error {
	c := m.Checkpoint()
	m.mu.Lock()
	high, err := c.Write(memoryRows{m.shared}, &m.base.Rows, false)
	m.base.Applied, m.base.High = c.LSN, high
	m.mu.Unlock()
	if err != nil {
		return err
	}
	c.Done(func(ulid.ULID) {})
	return nil
}

// memoryRows reads and changes the tables. The lock is its user's.
type memoryRows struct{ m *shared }

func (r memoryRows) Get(t Table, key []byte) []byte { return r.m.tables[t][string(key)] }

func (r memoryRows) keys(t Table) []string { return slices.Sorted(maps.Keys(r.m.tables[t])) }

func (r memoryRows) From(t Table, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		keys := r.keys(t)
		at, _ := slices.BinarySearch(keys, string(key))
		for _, k := range keys[at:] {
			if !yield([]byte(k), r.m.tables[t][k]) {
				return
			}
		}
	}
}

func (r memoryRows) Next(t Table, key []byte) (k, v []byte) {
	for k, v := range r.From(t, key) {
		return k, v
	}
	return nil, nil
}

func (r memoryRows) Before(t Table, key []byte) []byte {
	keys := r.keys(t)
	if at, _ := slices.BinarySearch(keys, string(key)); at > 0 {
		return []byte(keys[at-1])
	}
	return nil
}

func (r memoryRows) Last(t Table) []byte {
	if keys := r.keys(t); len(keys) > 0 {
		return []byte(keys[len(keys)-1])
	}
	return nil
}

func (r memoryRows) Len(t Table) int { return len(r.m.tables[t]) }

func (r memoryRows) Put(t Table, key, value []byte) error {
	r.m.tables[t][string(key)] = value
	return nil
}

func (r memoryRows) Delete(t Table, key []byte) error {
	delete(r.m.tables[t], string(key))
	return nil
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
