package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/faultfs"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// memory is an engine over a log and rows in memory, for tests of this package. A record is durable when somebody syncs.
type memory struct {
	*Engine
	t testing.TB

	sync   sync.Mutex // one leader installs at a time, as in a log
	log    [][]byte   // under mu, as the rows
	mu     sync.RWMutex
	tables [TableVec + 1]map[string][]byte
	base   Base
}

// newMemory makes an empty database.
func newMemory(t testing.TB, now func() time.Time) *memory {
	t.Helper()
	m := &memory{t: t, base: Base{Size: 1 << 40}}
	for i := range m.tables {
		m.tables[i] = map[string][]byte{}
	}
	var err error
	m.Engine = New(Options{Path: "memory", Now: now, Rand: rand.Reader, Analyzer: lexical.NewAnalyzer(), Checkpoint: func(context.Context) error { return m.checkpoint() }})
	m.Engine.Rows, m.Engine.Log = m, m
	require.NoError(t, m.View(func(r Reader) error { return m.LoadRows(r, m.base) }))
	m.Leaves, _, err = manifest.Open(t.Context(), "/audit", faultfs.New(), manifest.Options{DB: "memory"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Leaves.Close() })
	m.Start(store.Info{ID: "memory"})
	return m
}

func (m *memory) View(fn func(Reader) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return fn(memoryRows{m})
}

func (m *memory) Append(_ Kind, _ bool, parts ...[]byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, slices.Concat(parts...))
	return uint64(len(m.log)), nil
}

func (m *memory) Last() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return uint64(len(m.log))
}

func (m *memory) Write() error { return nil }

func (m *memory) Sync(_ context.Context, seq uint64) error {
	m.sync.Lock()
	defer m.sync.Unlock()
	m.InstallDurable(seq)
	return nil
}

func (m *memory) SyncOr(ctx context.Context, seq uint64, _ <-chan struct{}) error {
	return m.Sync(ctx, seq)
}

// checkpoint brings the overlay into the rows.
func (m *memory) checkpoint() error {
	o, _ := m.Freeze()
	m.base.Rows.Asked = max(m.base.Rows.Asked, o.AskedTo())
	rows := memoryRows{m}
	m.mu.Lock()
	swap, err := m.Index.Checkpoint(SegRows{rows}, false)
	err = cmp.Or(err, ApplyOverlay(rows, o, &m.base.Rows))
	filed := NewestOutcome(rows)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.Catalogue.Mu.Lock()
	defer m.Catalogue.Mu.Unlock()
	m.High.Add(o.High)
	m.base.Applied, m.base.High = o.LSN, m.High.String()
	m.Old, m.Filed = nil, filed
	m.Index.Apply(swap)
	m.CountUnflushed()
	m.Releases.Add(1)
	return nil
}

// memoryRows reads and changes the tables. The lock is its user's.
type memoryRows struct{ m *memory }

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
