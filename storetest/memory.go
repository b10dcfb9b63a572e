package storetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Memory is the reference store: the contract of store.Store in maps and slices, one lock, no engine, no file. It is
// simple and slow on purpose, and made for reading beside the interface.
//
// Every write takes the lock, judges the batch against what stands, and installs it whole before the lock goes; so a
// reader sees all of a batch or nothing, and two batches never pass judgement side by side.
//
// Words are found by an index of package lexical, as the interface's Weights and Stats ask for.
//
// It leaves out: backup and check (Maintain answers ErrNoFile and finds nothing), the forgetting of rows that gc
// dropped long ago (KeepRecords, KeepNames), the limits on how many candidates of one provenance are named, and the
// forgetting of outcomes.
type Memory struct {
	*place
	closed atomic.Bool
}

// place is what outlives a handle, as files do: OpenMemory again gives what was committed.
type place struct {
	mu       sync.RWMutex
	cfg      Config
	info     store.Info
	lsn      uint64
	asked    map[uint64]string // questions by leaf
	arts     []*art            // by number, from 1
	pages    []*page           // likewise
	byID     map[name]*art
	scopes   map[string]uint32
	groups   map[name]uint64
	state    map[string][]byte
	held     map[ulid.ULID]*store.HeldBatch
	outcomes map[ulid.ULID]remembered
	vectors  map[vector][]float32
	analyzer *lexical.Analyzer
	index    *lexical.Index
	log      *manifest.Log
	moved    chan struct{} // closed by the next commit
}

// name is what stands under an id, or a group's name, in a scope.
type name struct{ scope, id string }

type vector struct {
	model string
	num   uint64
}

type remembered struct {
	store.Outcome
	bound []byte
}

// art is an artefact. by is the artefact that superseded it, since an LSN; a later put of it ends that.
type art struct {
	name
	num   uint64
	heads []*store.Head // by version, from 1
	by    *art
	since uint64
}

// page is one page version. It is current until end, and next answers for it then.
type page struct {
	num, lsn  uint64
	of        *art
	at        int         // page of its artefact, from 1
	head      *store.Head // the newest version that has it
	text      string
	end, next uint64
	ended     uint64 // LSN of the commit that ended it, at or after end
	gone      bool
}

// NewMemory makes an empty database and opens it.
func NewMemory(cfg Config) (*Memory, error) {
	cfg.Now, cfg.Rand = cmpNow(cfg.Now), cmpRand(cfg.Rand)
	id, err := store.NewID(cfg.Now(), cfg.Rand)
	if err != nil {
		return nil, err
	}
	p := &place{
		cfg: cfg, info: store.Info{ID: id.String(), Secret: make([]byte, 32)},
		byID: map[name]*art{}, scopes: map[string]uint32{}, groups: map[name]uint64{}, state: map[string][]byte{},
		held: map[ulid.ULID]*store.HeldBatch{}, outcomes: map[ulid.ULID]remembered{}, vectors: map[vector][]float32{},
		analyzer: lexical.NewAnalyzer(), moved: make(chan struct{}),
	}
	if _, err = io.ReadFull(cfg.Rand, p.info.Secret); err != nil {
		return nil, fmt.Errorf("storetest: secret: %w", err)
	}
	if p.index, err = lexical.Open(noRows{}); err != nil {
		return nil, err
	}
	p.log, err = newLog()
	return &Memory{place: p}, err
}

func cmpNow(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

func cmpRand(r io.Reader) io.Reader {
	if r == nil {
		return rand.Reader
	}
	return r
}

// Reopen gives another handle to the same database; the old one is closed, whatever it was doing.
func (m *Memory) Reopen() *Memory {
	m.closed.Store(true)
	m.mu.Lock() // a commit under way ends first
	defer m.mu.Unlock()
	return &Memory{place: m.place}
}

func (m *Memory) usable(ctx context.Context) error {
	if m.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// outcomeDays is how old the id of a batch may be, and idAhead how far ahead of the clock.
const (
	outcomeDays = 7 * 24 * time.Hour
	idAhead     = 12 * time.Hour
)

// Commit: see store.Store.
func (m *Memory) Commit(ctx context.Context, b store.Batch) (out store.Outcome, err error) {
	if err := cmp.Or(m.usable(ctx), store.CheckClock(b.Now)); err != nil {
		return out, err
	}
	made := ulid.Time(b.ID.Time())
	switch age := b.Now.Sub(made); {
	case age > outcomeDays:
		return out, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age)
	case age < -idAhead:
		return out, store.Invalid("batch id", b.ID.String(), "a ULID of about now")
	}
	if b.Bound == nil {
		if err := b.Bind(); err != nil {
			return out, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.outcomes[b.ID]; ok {
		if !bytes.Equal(known.bound, b.Bound) {
			return out, store.Invalid("batch id", b.ID.String(), "an id of your own")
		}
		return known.Outcome, nil
	}
	var review *store.HeldBatch
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		var decided *store.Outcome
		if review, decided, err = m.review(&b); decided != nil || err != nil {
			return *cmp.Or(decided, &out), err
		}
	}
	v := m.judge(&b)
	if v.err != nil {
		return out, m.refuse(&b, v)
	}
	return m.apply(&b, v, review)
}

// review takes over what the held batch wanted; a batch that was decided the same way gives that outcome again.
func (m *Memory) review(b *store.Batch) (*store.HeldBatch, *store.Outcome, error) {
	h := m.held[b.From]
	want := decision[b.Action]
	switch {
	case h == nil:
		return nil, nil, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, b.From)
	case h.Decided == want:
		return nil, &h.Outcome, nil
	case h.Decided != "":
		return nil, nil, fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
	}
	was := clone(&h.Batch)
	b.Scope, b.Actor, b.Trace = was.Scope, was.Actor, was.Trace
	if b.Action == store.ActReject {
		return h, nil, nil
	}
	b.Expect, b.Context, b.Puts, b.Deletes, b.State = was.Expect, was.Context, was.Puts, was.Deletes, was.State
	for i := range b.Puts {
		if b.Raise {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
	return h, nil, nil
}

var decision = map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}

type verdict struct {
	err   error // refuse
	hold  string
	leaf  []manifest.Stale
	stale []store.Ref
}

// judge decides in this order: conflict, then stale context, then what was asked.
func (m *Memory) judge(b *store.Batch) (v verdict) {
	for _, e := range b.Expect {
		if now := m.standing(e.Ref); now != e.LSN {
			v.err = &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: now}
			return v
		}
	}
	for _, c := range b.Context {
		if c.Num == 0 || c.Num > uint64(len(m.pages)) {
			continue
		}
		p := m.pages[c.Num-1]
		st := manifest.Stale{Num: c.Num, Seen: p.version()}
		switch live := m.answers(c.Num, 0); {
		case live == c.Num && !expired(p.head, b.Now):
			continue
		case live == c.Num:
			st.Reason = "expired"
		case live == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", m.pages[live-1].version()
		}
		v.leaf = append(v.leaf, st)
		v.stale = append(v.stale, store.Ref{Scope: c.Scope, ID: c.ID, Page: c.Page, Version: st.Seen})
	}
	switch {
	case b.Action == store.ActReject:
	case b.Action == store.ActHold:
		v.hold = b.Reason
	case len(v.stale) == 0 || b.OnStale == store.AllowStale || b.Force:
	case b.Action == store.ActApprove || b.OnStale == store.FailStale:
		v.err = fmt.Errorf("%w: %v", store.ErrStaleContext, v.stale)
	default:
		v.hold = store.ReasonStaleContext
	}
	return v
}

// standing is the LSN of the last commit that changed an artefact, 0 where there is none or it is deleted.
func (m *Memory) standing(r store.Ref) uint64 {
	if a := m.byID[name{r.Scope, r.ID}]; a != nil && len(a.newest().Rows) > 0 && !a.newest().Gone {
		return a.newest().LSN
	}
	return 0
}

// leafOf is the audit leaf of a batch, without what its outcome adds.
func leafOf(b *store.Batch, v verdict, lsn uint64) *manifest.Record {
	leaf := b.Leaf
	leaf.Trace, leaf.Parent, leaf.Batch, leaf.Scope, leaf.Actor = b.ID.String(), b.Trace, b.ID.String(), b.Scope, b.Actor
	leaf.Time, leaf.LSN, leaf.Stale, leaf.Writes = b.Now.UnixMicro(), lsn, v.leaf, nil
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	return &leaf
}

// refuse leaves a trace in the audit and nothing else: the id may be used again.
func (m *Memory) refuse(b *store.Batch, v verdict) error {
	leaf := leafOf(b, v, m.lsn)
	leaf.Type, leaf.Status, leaf.Reason = manifest.TypeConflict, "stale", store.ReasonStaleContext
	if c, ok := v.err.(*store.ConflictError); ok {
		leaf.Status, leaf.Reason = "conflict", ""
		leaf.Conflicts = []manifest.Conflict{{Ref: c.Ref.String(), Expect: c.Have, Found: c.Now}}
	}
	if err := m.append(leaf); err != nil {
		return err
	}
	return v.err
}

func (m *Memory) apply(b *store.Batch, v verdict, review *store.HeldBatch) (store.Outcome, error) {
	m.lsn++
	leaf := leafOf(b, v, m.lsn)
	out := store.Outcome{LSN: m.lsn, Leaf: m.log.Size(), Reason: v.hold, Stale: v.stale}
	switch {
	case v.hold != "":
		leaf.Type, leaf.Reason, out.Status = manifest.TypeHeld, v.hold, store.StatusHeld
		m.held[b.ID] = clone(&store.HeldBatch{Batch: *b, Reason: v.hold, Stale: v.stale, At: b.Now, LSN: m.lsn})
	case b.Action == store.ActReject:
		leaf.Type, out.Status = manifest.TypeReject, store.StatusRejected
	default:
		if leaf.Type == 0 {
			leaf.Type = manifest.TypeCommit
		}
		m.write(b, &out, leaf)
	}
	if review != nil {
		if b.Action == store.ActApprove {
			leaf.Type = manifest.TypeApprove
		}
		review.Decided, review.By, review.Note, review.Outcome = decision[b.Action], leaf.By, leaf.Note, out
	}
	leaf.Status = out.Status.String()
	m.outcomes[b.ID] = remembered{out, b.Bound}
	m.tell()
	return out, m.append(leaf)
}

// tell wakes those who wait for a commit.
func (m *Memory) tell() {
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *Memory) write(b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	var put []*store.Head
	for i := range b.Puts {
		if h := m.put(b, &b.Puts[i], out, leaf); h != nil {
			put = append(put, h)
		}
	}
	for _, id := range b.Deletes {
		if a := m.byID[name{b.Scope, id}]; a != nil && !a.newest().Deleted {
			m.delete(a, b, out, leaf)
		}
	}
	for _, h := range put { // when all are there: one may replace another of the same batch
		for _, id := range h.Supersedes {
			if a := m.byID[name{b.Scope, id}]; a != nil && a.num != h.Art {
				if a.by == nil {
					a.since = m.lsn
				}
				a.by = m.arts[h.Art-1]
			}
		}
	}
	for _, r := range b.State {
		if delete(m.state, r.Key); r.Value != nil {
			m.state[r.Key] = slices.Clone(r.Value)
		}
	}
}

// put makes a version of an artefact, nil where the put repeats what stands. A page that says what the page in its
// place said goes on under its number, unless the artefact was superseded meanwhile, or is found by other words now.
func (m *Memory) put(b *store.Batch, p *store.Put, out *store.Outcome, leaf *manifest.Record) *store.Head {
	a := m.byID[name{b.Scope, p.Artefact.ID}]
	if a == nil {
		a = &art{name: name{b.Scope, p.Artefact.ID}, num: uint64(len(m.arts)) + 1}
	}
	h := ownHead(&store.Head{Artefact: p.Artefact, Scope: b.Scope, Art: a.num, Version: uint32(len(a.heads)) + 1, LSN: m.lsn, PutAt: b.Now,
		Actor: b.Actor, Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter})
	if m.scopes[b.Scope] == 0 {
		m.scopes[b.Scope] = uint32(len(m.scopes)) + 1
	}
	h.GroupNum = m.groupOf(h, len(p.Pages))
	var old *store.Head
	if len(a.heads) > 0 {
		old = a.newest()
	}
	repeats := old != nil && m.says(old, p) && sameHead(old, h, p.AsOfGiven)
	replaces := slices.ContainsFunc(h.Supersedes, func(id string) bool {
		s := m.byID[name{b.Scope, id}]
		return s != nil && s.by == nil && !s.newest().Deleted
	})
	if repeats && !replaces && (a.by == nil || h.Artefact.Source != "") {
		ref := store.Ref{Scope: b.Scope, ID: h.ID, Version: old.Version}
		out.Refs, out.Repeats = append(out.Refs, ref), append(out.Repeats, ref)
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: old.Rows[0].Num, Ref: ref.String(), Version: old.Version, Touch: true})
		return nil
	}
	keep := old != nil && (repeats || !m.foundOtherwise(old, h, p)) && a.by == nil
	out.Refs = append(out.Refs, store.Ref{Scope: b.Scope, ID: h.ID, Version: h.Version})
	made := m.rows(a, h, old, p, keep)
	if len(made) == 0 {
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: out.Refs[len(out.Refs)-1].String(), Version: h.Version})
	}
	leaf.Writes = append(leaf.Writes, made...)
	if old == nil {
		m.arts = append(m.arts, a)
		m.byID[a.name] = a
	}
	m.install(a, h)
	return h
}

// rows gives a head its pages, and says which of them are new.
func (m *Memory) rows(a *art, h, old *store.Head, p *store.Put, keep bool) (made []manifest.Write) {
	for i := range p.Pages {
		np := &p.Pages[i]
		if keep && i < len(old.Rows) && m.pages[old.Rows[i].Num-1].text == np.Text && !m.pages[old.Rows[i].Num-1].gone {
			h.Rows = append(h.Rows, old.Rows[i])
			h.Rows[i].Tokens = uint32(np.Tokens)
			continue
		}
		pg := &page{num: uint64(len(m.pages)) + 1, lsn: m.lsn, of: a, at: i + 1, head: h, text: np.Text}
		m.pages = append(m.pages, pg)
		h.Rows = append(h.Rows, store.PageRow{Num: pg.num, Version: h.Version, LSN: m.lsn, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)),
			Hash: np.Hash, Salt: np.Salt, Digest: np.Digest})
		m.index.Add(lexical.Doc{Num: pg.num, Scope: m.scopes[h.Scope], Group: h.GroupNum, Analysis: store.Analyse(m.analyzer, &h.Artefact, np.Text)})
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
		made = append(made, manifest.Write{Num: pg.num, Ref: ref.String(), Version: h.Version, Digest: np.Digest[:]})
	}
	return made
}

func (m *Memory) groupOf(h *store.Head, pages int) uint64 {
	k := name{h.Scope, h.Group}
	if h.Group == "" {
		if pages < 2 {
			return 0
		}
		k.id = "\x00" + h.ID // the pages of one artefact are neighbours
	}
	if m.groups[k] == 0 {
		m.groups[k] = uint64(len(m.groups)) + 1
	}
	return m.groups[k]
}

func (m *Memory) delete(a *art, b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	h := ownHead(a.newest())
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor, h.Rows, h.Supersedes = true, h.Version+1, m.lsn, b.Now, b.Actor, nil, nil
	out.Refs = append(out.Refs, store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	for i, r := range a.newest().Rows {
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: ref.String(), Version: h.Version, Deleted: true})
	}
	m.install(a, h)
}

// install makes a head the newest. Pages that it has no more end, as of the commit that ended them.
func (m *Memory) install(a *art, h *store.Head) {
	ended := m.lsn
	if a.by != nil {
		ended = a.since
	}
	has := map[uint64]bool{}
	for _, r := range h.Rows {
		has[r.Num] = true
		m.pages[r.Num-1].head = h
	}
	if len(a.heads) > 0 {
		for i, r := range a.newest().Rows {
			if p := m.pages[r.Num-1]; !has[r.Num] {
				if p.end, p.ended = ended, m.lsn; len(h.Rows) > 0 {
					p.next = h.Rows[min(i, len(h.Rows)-1)].Num
				}
			}
		}
	}
	a.heads = append(a.heads, h)
	a.by, a.since = nil, 0
}

func (m *Memory) says(old *store.Head, p *store.Put) bool {
	if len(old.Rows) != len(p.Pages) || old.Gone {
		return false
	}
	for i := range p.Pages {
		if m.pages[old.Rows[i].Num-1].text != p.Pages[i].Text {
			return false
		}
	}
	return true
}

// foundOtherwise: the index knows a page by the header it came with and by its neighbours.
func (m *Memory) foundOtherwise(old, h *store.Head, p *store.Put) bool {
	was, is := old.Artefact, h.Artefact
	if !p.AsOfGiven || !m.says(old, p) {
		was.CurrentAsOf = is.CurrentAsOf
	}
	return old.GroupNum != h.GroupNum || store.IndexHeader(&was) != store.IndexHeader(&is)
}

// sameHead: a put repeats what stands when all but who wrote it, when, and the stamp of the source is the same.
func sameHead(old, h *store.Head, asOf bool) bool {
	plain := func(h *store.Head) (c store.Head) {
		c = *ownHead(h)
		c.Actor, c.Source, c.PutAt, c.LSN, c.Version, c.Rows = "", store.Validator{Hash: h.Source.Hash}, time.Time{}, 0, 0, nil
		c.ExpiresAt, c.TTL = c.ExpiresAt.UTC().Round(time.Microsecond), 0
		if c.CurrentAsOf = c.CurrentAsOf.UTC().Round(time.Microsecond); !asOf {
			c.CurrentAsOf = time.Time{}
		}
		return c
	}
	return reflect.DeepEqual(plain(old), plain(h))
}

func (a *art) newest() *store.Head { return a.heads[len(a.heads)-1] }

// version is that of the artefact in which the page appeared.
func (p *page) version() uint32 {
	for _, h := range p.of.heads {
		if h.LSN == p.lsn {
			return h.Version
		}
	}
	return 0
}

func expired(h *store.Head, now time.Time) bool {
	return !h.ExpiresAt.IsZero() && h.ExpiresAt.UnixMicro() <= now.UnixMicro()
}

// ownHead copies a head with all that it points at: no memory is shared with a caller.
func ownHead(h *store.Head) *store.Head {
	c := *h
	c.Parts, c.ToolCalls, c.DerivedFrom = slices.Clone(h.Parts), slices.Clone(h.ToolCalls), slices.Clone(h.DerivedFrom)
	c.Supersedes, c.Tags, c.Meta = slices.Clone(h.Supersedes), slices.Clone(h.Tags), maps.Clone(h.Meta)
	c.Rows, c.PartBytes = slices.Clone(h.Rows), slices.Clone(h.PartBytes)
	if h.Relevance != nil {
		r := *h.Relevance
		c.Relevance = &r
	}
	return &c
}

// clone copies plain data through its bytes.
func clone[T any](v *T) *T {
	out := new(T)
	b, err := msgpack.Marshal(v)
	if err == nil {
		err = msgpack.Unmarshal(b, out)
	}
	if err != nil {
		panic(fmt.Sprintf("storetest: copy of plain data: %v", err)) // it has neither channels nor functions
	}
	return out
}
