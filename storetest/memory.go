package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Memory is the reference store: the contract of store.Store in slices and maps under one lock, no engine and no file. It
// is slow on purpose, and made for reading beside the interface.
//
// What it keeps is the list of all versions in the order of their commits. What is current, now or as of an LSN, is found
// by walking the list (memory_versions.go). A write judges its batch against that, then appends all of it, both under the
// lock: a reader sees all of a batch or nothing (memory_commit.go).
//
// Words are found by an index of package lexical. Left out are: backup and check (Maintain answers ErrNoFile, and finds
// nothing), the forgetting of rows that gc dropped long ago (KeepRecords, KeepNames), the limits on how many candidates of
// one provenance are named, the forgetting of outcomes, quotas, and the space that scopes take.
type Memory struct {
	*place
	closed atomic.Bool
	holds  map[store.Ticket]store.Moment
	ticket store.Ticket // given last
}

// place is what outlives a handle, as files do. mu guards all of it that changes.
type place struct {
	mu       sync.Mutex
	cfg      Config
	info     store.Info
	lsn      uint64
	heads    []*store.Head // versions
	pages    []*page       // by number, from 1
	arts     map[name]uint64
	scopes   map[name]uint64 // the id is empty
	groups   map[name]uint64
	state    map[string]store.StateRow
	held     map[ulid.ULID]store.HeldBatch
	outcomes map[ulid.ULID]remembered
	vectors  map[vector][]float32
	asked    map[uint64]string // salt and text of questions, by leaf
	analyzer *lexical.Analyzer
	index    *lexical.Index
	log      *manifest.Log
	moved    chan struct{} // closed by the next commit
}

// name is what has an id, or a group its name, in a scope.
type name struct{ scope, id string }

type vector struct {
	model string
	num   uint64
}

type remembered struct {
	store.Outcome
	bound []byte
}

// page is one page version. It has no text when gc or an erase took it, at the commit gone.
type page struct {
	store.PageRow
	of   name
	at   int // page of its artefact, from 1
	text string
	gone uint64
}

// NewMemory makes an empty database and opens it.
func NewMemory(cfg Config) (*Memory, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	id, err := store.NewID(cfg.Now(), cfg.Rand)
	if err != nil {
		return nil, err
	}
	p := &place{
		cfg: cfg, info: store.Info{ID: id.String(), Secret: make([]byte, 32)}, log: manifest.InMemory(id.String()),
		arts: map[name]uint64{}, scopes: map[name]uint64{}, groups: map[name]uint64{}, state: map[string]store.StateRow{},
		held: map[ulid.ULID]store.HeldBatch{}, outcomes: map[ulid.ULID]remembered{}, vectors: map[vector][]float32{},
		asked: map[uint64]string{}, analyzer: lexical.NewAnalyzer(), moved: make(chan struct{}),
	}
	if _, err := io.ReadFull(cfg.Rand, p.info.Secret); err != nil {
		return nil, fmt.Errorf("storetest: secret: %w", err)
	}
	p.index, err = lexical.Open(lexical.NoRows{})
	return &Memory{place: p, holds: map[store.Ticket]store.Moment{}}, err
}

// Reopen gives another handle to the same database; the old one is closed, whatever it was doing.
func (m *Memory) Reopen() *Memory {
	_ = m.Close()
	return &Memory{place: m.place, holds: map[store.Ticket]store.Moment{}}
}

// Close ends the handle and its holds. A commit under way ends first; a second Close does nothing.
func (m *Memory) Close() error {
	m.closed.Store(true)
	defer m.locked()()
	return nil
}

// locked takes the lock; what it returns gives it back.
func (m *Memory) locked() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

func (m *Memory) usable(ctx context.Context) error {
	if m.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Info: see store.Store.
func (m *Memory) Info(context.Context) (store.Info, error) { return own(m.info), nil }

// Mark: see store.Store.
func (m *Memory) Mark() store.Mark {
	defer m.locked()()
	return store.Mark{LSN: m.lsn}
}

// Refresh: see store.Store.
func (m *Memory) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	at := m.Mark()
	if err := m.usable(ctx); err != nil || at.LSN >= atLeast {
		return at, err
	}
	return at, store.Invalid("lsn", fmt.Sprint(atLeast), fmt.Sprintf("at most %d, the newest", at.LSN))
}

// Outcome: see store.Store.
func (m *Memory) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	defer m.locked()()
	known, ok := m.outcomes[id]
	switch err := m.usable(ctx); {
	case err != nil || ok:
		return own(known.Outcome), err
	case m.cfg.Now().Sub(ulid.Time(id.Time())) > outcomeDays:
		return store.Outcome{}, fmt.Errorf("%w: %s", store.ErrTxnExpired, id)
	}
	return store.Outcome{}, fmt.Errorf("%w: no batch %s", store.ErrNotFound, id)
}

// Hold: see store.Store.
func (m *Memory) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	defer m.locked()()
	m.ticket++
	m.holds[m.ticket] = at
	return m.ticket, m.usable(ctx)
}

// Release: see store.Store.
func (m *Memory) Release(t store.Ticket) {
	defer m.locked()()
	delete(m.holds, t)
}

// Held: see store.Store.
func (m *Memory) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	defer m.locked()()
	if h, ok := m.held[id]; ok {
		return own(h), m.usable(ctx)
	}
	return store.HeldBatch{}, cmp.Or(m.usable(ctx), fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id))
}

// State: see store.Store.
func (m *Memory) State(ctx context.Context, key string) (store.StateRow, error) {
	defer m.locked()()
	row := own(m.state[key])
	row.Key = key
	return row, m.usable(ctx)
}

// Vectors: see store.Store.
func (m *Memory) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	defer m.locked()()
	out := make([][]float32, len(nums))
	for i, num := range nums {
		if m.visible(scopes, num) != nil {
			out[i] = own(m.vectors[vector{model, num}])
		}
	}
	return out, m.usable(ctx)
}

// PutVectors: see store.Store.
func (m *Memory) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	defer m.locked()()
	for i, num := range nums {
		if p := m.visible(nil, num); p != nil && p.gone == 0 {
			m.vectors[vector{model, num}] = own(vecs[i])
		}
	}
	return m.usable(ctx)
}

// Stat: see store.Store.
func (m *Memory) Stat(ctx context.Context) (store.StoreStats, error) {
	defer m.locked()()
	st := store.StoreStats{ID: m.info.ID, LSN: m.lsn, Applied: m.lsn, Scopes: len(m.scopes), Leaves: m.log.Size()}
	for _, h := range m.current() {
		if h.Live() {
			st.Artefacts, st.Pages = st.Artefacts+1, st.Pages+len(h.Rows)
		}
	}
	for _, p := range m.pages {
		if p.gone == 0 {
			st.PageVersions++
		}
	}
	for _, h := range m.held {
		if h.Decided == "" {
			st.Held++
		}
	}
	return st, m.usable(ctx)
}
