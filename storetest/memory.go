package storetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
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
// by walking the list: an artefact is its newest version by then, unless a version of another artefact superseded it
// since; for a page that is not current the page in its place in that version answers. A write judges its batch against
// that, then appends all of it, both under the lock: a reader sees all of a batch or nothing.
//
// Words are found by an index of package lexical, as Weights and Stats of a query ask for. It leaves out: backup and check
// (Maintain answers ErrNoFile, and finds nothing), the forgetting of rows that gc dropped long ago (KeepRecords,
// KeepNames), the limits on how many candidates of one provenance are named, the forgetting of outcomes, quotas, and what scopes take.
type Memory struct {
	*place
	closed atomic.Bool
	holds  map[store.Ticket]store.Moment
	ticket store.Ticket // given last
}

// place is what outlives a handle, as files do.
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

func nameOf(h *store.Head) name { return name{h.Scope, h.ID} }

type vector struct {
	model string
	num   uint64
}

type remembered struct {
	store.Outcome
	bound []byte
}

// page is one page version.
type page struct {
	store.PageRow
	of   name
	at   int // page of its artefact, from 1
	text string
	gone uint64 // LSN of the gc that dropped it
}

const now = ^uint64(0) // as an LSN

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
		cfg: cfg, info: store.Info{ID: id.String(), Secret: make([]byte, 32)}, arts: map[name]uint64{}, scopes: map[name]uint64{},
		groups: map[name]uint64{}, state: map[string]store.StateRow{}, held: map[ulid.ULID]store.HeldBatch{}, asked: map[uint64]string{},
		outcomes: map[ulid.ULID]remembered{}, vectors: map[vector][]float32{}, analyzer: lexical.NewAnalyzer(), moved: make(chan struct{}),
	}
	if _, err = io.ReadFull(cfg.Rand, p.info.Secret); err != nil {
		return nil, fmt.Errorf("storetest: secret: %w", err)
	}
	if p.index, err = lexical.Open(noRows{}); err != nil {
		return nil, err
	}
	p.log, _, err = manifest.Open(context.Background(), "memory", noFiles{}, manifest.Options{ReadOnly: true}) // no archive
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

// outcomeDays is how old the id of a batch may be, and idAhead how far ahead of the clock.
const (
	outcomeDays = 7 * 24 * time.Hour
	idAhead     = 12 * time.Hour
)

// Commit: see store.Store.
func (m *Memory) Commit(ctx context.Context, b store.Batch) (out store.Outcome, err error) {
	defer m.locked()()
	if err := cmp.Or(m.usable(ctx), store.CheckClock(b.Now), b.CheckIDs()); err != nil {
		return out, err
	}
	switch age := b.Now.Sub(ulid.Time(b.ID.Time())); {
	case age > outcomeDays:
		return out, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age)
	case age < -idAhead:
		return out, store.Invalid("batch id", b.ID.String(), "a ULID of about now")
	}
	if b = own(b); b.Bound == nil {
		if err := b.Bind(); err != nil {
			return out, err
		}
	}
	if known, ok := m.outcomes[b.ID]; ok {
		if !bytes.Equal(known.bound, b.Bound) {
			return out, store.Invalid("batch id", b.ID.String(), "an id of your own")
		}
		return own(known.Outcome), nil
	}
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		if known, err := m.review(&b); known != nil || err != nil {
			return *cmp.Or(known, &out), err
		}
	}
	v := m.judge(&b)
	if v.err != nil {
		return out, m.refuse(&b, v)
	}
	out, err = m.apply(&b, v)
	return own(out), err
}

var decision = map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}

// review takes over what the held batch wanted; a batch that was decided the same way gives that outcome again.
func (m *Memory) review(b *store.Batch) (*store.Outcome, error) {
	h, ok := m.held[b.From]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, b.From)
	case h.Decided == decision[b.Action]:
		return &h.Outcome, nil
	case h.Decided != "":
		return nil, fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
	}
	was := own(h.Batch)
	b.Scope, b.Actor, b.Trace = was.Scope, was.Actor, was.Trace
	if b.Action == store.ActReject {
		return nil, nil
	}
	b.Expect, b.ExpectState, b.Context, b.Puts, b.Deletes, b.State = was.Expect, was.ExpectState, was.Context, was.Puts, was.Deletes, was.State
	for i := range b.Puts {
		if b.Raise {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
	return nil, nil
}

type verdict struct {
	err   error // refuse
	hold  string
	leaf  []manifest.Stale
	stale []store.Ref
}

// judge decides in this order: conflict, then stale context, then what was asked.
func (m *Memory) judge(b *store.Batch) (v verdict) {
	if b.Hold != nil { // it was judged where it was held
		return verdict{hold: b.Reason, stale: b.Hold.Stale}
	}
	if c := m.carryConflict(b); c != nil {
		return verdict{err: c}
	}
	for _, e := range b.Expect {
		var is uint64 // 0: absent, or deleted
		if h := m.at(name{e.Ref.Scope, e.Ref.ID}, now); h != nil && live(h) {
			is = h.LSN
		}
		if is != e.LSN {
			return verdict{err: &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: is}}
		}
	}
	for _, e := range b.ExpectState {
		if is := m.state[e.Key].LSN; is != e.LSN {
			return verdict{err: &store.ConflictError{Key: e.Key, Have: e.LSN, Now: is}}
		}
	}
	for _, c := range b.Context {
		if c.Num == 0 || c.Num > uint64(len(m.pages)) {
			continue
		}
		p := m.pages[c.Num-1]
		st := manifest.Stale{Num: c.Num, Seen: p.Version}
		switch is := m.answers(c.Num, now); {
		case is == c.Num && !expired(m.headOf(p), b.Now):
			continue
		case is == c.Num:
			st.Reason = "expired"
		case is == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", m.pages[is-1].Version
		}
		v.leaf, v.stale = append(v.leaf, st), append(v.stale, store.Ref{Scope: c.Scope, ID: c.ID, Page: c.Page, Version: st.Seen})
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
		leaf.Conflicts = []manifest.Conflict{{Ref: c.Name(), Expect: c.Have, Found: c.Now}}
	}
	if err := m.append(leaf); err != nil {
		return err
	}
	return v.err
}

func (m *Memory) apply(b *store.Batch, v verdict) (store.Outcome, error) {
	m.lsn++
	leaf := leafOf(b, v, m.lsn)
	out := store.Outcome{LSN: m.lsn, Leaf: m.log.Size(), Reason: v.hold, Stale: v.stale}
	switch {
	case v.hold != "":
		leaf.Type, leaf.Reason, out.Status = manifest.TypeHeld, v.hold, store.StatusHeld
		h := store.HeldBatch{Batch: *b, Reason: v.hold, Stale: v.stale, At: b.Now, LSN: m.lsn}
		if was := b.Hold; was != nil {
			h.Decided, h.By, h.Note, h.Outcome, h.Batch.Hold = was.Decided, was.By, was.Note, was.Outcome, nil
		}
		m.held[b.ID] = h
	case b.Action == store.ActReject:
		leaf.Type, out.Status = manifest.TypeReject, store.StatusRejected
	default:
		leaf.Type = cmp.Or(leaf.Type, manifest.TypeCommit)
		for i := range b.Carry {
			if err := m.carry(&b.Carry[i], leaf); err != nil {
				return store.Outcome{}, err
			}
		}
		m.write(b, &out, leaf)
	}
	if h, ok := m.held[b.From]; ok {
		if b.Action == store.ActApprove {
			leaf.Type = manifest.TypeApprove
		}
		h.Decided, h.By, h.Note, h.Outcome = decision[b.Action], leaf.By, leaf.Note, out
		m.held[b.From] = h
	}
	leaf.Status = out.Status.String()
	m.outcomes[b.ID] = remembered{out, b.Bound}
	close(m.moved)
	m.moved = make(chan struct{})
	return out, m.append(leaf)
}

func (m *Memory) write(b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	for i := range b.Puts {
		m.put(b, &b.Puts[i], out, leaf)
	}
	for _, id := range b.Deletes {
		if h := m.at(name{b.Scope, id}, now); h != nil && !h.Deleted {
			m.delete(h, b, out, leaf)
		}
	}
	for _, r := range b.State {
		if delete(m.state, r.Key); r.Value != nil {
			m.state[r.Key] = store.StateRow{Key: r.Key, Value: r.Value, LSN: m.lsn}
		}
	}
}

// put makes a version of an artefact, or none where the put repeats what is current: then it is named in Repeats. It
// repeats nothing where it supersedes an artefact that is current, or where its own was superseded meanwhile and it is no
// source that says what it said. A page that says what the page in its place said goes on under its number, unless the
// artefact was superseded, or the page would be found by other words or neighbours.
func (m *Memory) put(b *store.Batch, p *store.Put, out *store.Outcome, leaf *manifest.Record) {
	h := &store.Head{Artefact: p.Artefact, Scope: b.Scope, Version: 1, LSN: m.lsn, PutAt: b.Now, Actor: b.Actor, Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter}
	h.Art = number(m.arts, nameOf(h))
	number(m.scopes, name{scope: b.Scope})
	if h.Group != "" {
		h.GroupNum = number(m.groups, name{b.Scope, h.Group})
	} else if len(p.Pages) > 1 { // the pages of one artefact are neighbours
		h.GroupNum = number(m.groups, name{b.Scope, "\x00" + h.ID})
	}
	goesOn := false // under its numbers
	if old := m.at(nameOf(h), now); old != nil {
		h.Version = old.Version + 1
		superseded := m.supersededBy(old, m.lsn-1) != nil
		supersedes := slices.ContainsFunc(h.Supersedes, func(id string) bool {
			s := m.at(name{b.Scope, id}, m.lsn-1)
			return s != nil && !s.Deleted && m.supersededBy(s, m.lsn-1) == nil
		})
		repeats := m.says(old, p) && sameHead(old, h, p.AsOfGiven)
		if repeats && !supersedes && (!superseded || h.Artefact.Source != "") {
			ref := store.Ref{Scope: b.Scope, ID: h.ID, Version: old.Version}
			out.Refs, out.Repeats = append(out.Refs, ref), append(out.Repeats, ref)
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: old.Rows[0].Num, Ref: ref.String(), Version: old.Version, Touch: true})
			return
		}
		was, is := old.Artefact, h.Artefact
		if !p.AsOfGiven || !m.says(old, p) {
			was.CurrentAsOf = is.CurrentAsOf
		}
		goesOn = !superseded && (repeats || old.GroupNum == h.GroupNum && store.FoundAlike(&was, &is))
	}
	ref := store.Ref{Scope: b.Scope, ID: h.ID, Version: h.Version}
	out.Refs = append(out.Refs, ref)
	made := m.addPages(h, p, goesOn)
	if len(made) == 0 {
		made = []manifest.Write{{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version}}
	}
	leaf.Writes = append(leaf.Writes, made...)
	m.heads = append(m.heads, h)
}

// addPages gives a head its pages, and says which of them are new.
func (m *Memory) addPages(h *store.Head, p *store.Put, goesOn bool) (made []manifest.Write) {
	old := m.at(nameOf(h), now)
	for i, np := range p.Pages {
		row := store.PageRow{Num: uint64(len(m.pages)) + 1, Version: h.Version, LSN: m.lsn, Bytes: uint32(len(np.Text)), Hash: np.Hash, Salt: np.Salt, Digest: np.Digest}
		if goesOn && i < len(old.Rows) && m.saysAt(old, i, np.Text) {
			row = old.Rows[i]
		} else {
			m.pages = append(m.pages, &page{PageRow: row, of: nameOf(h), at: i + 1, text: np.Text})
			an := store.Analyse(m.analyzer, &h.Artefact, np.Text)
			m.index.Add(lexical.Doc{Num: row.Num, Scope: uint32(m.scopes[name{scope: h.Scope}]), Group: h.GroupNum, Analysis: an, Turn: store.TurnOf(&h.Artefact)})
			ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
			made = append(made, manifest.Write{Num: row.Num, Ref: ref.String(), Version: h.Version, Digest: np.Digest[:]})
		}
		row.Tokens = uint32(np.Tokens)
		h.Rows = append(h.Rows, row)
	}
	return made
}

func (m *Memory) delete(old *store.Head, b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	h := own(*old)
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor, h.Rows, h.Supersedes = true, h.Version+1, m.lsn, b.Now, b.Actor, nil, nil
	out.Refs = append(out.Refs, store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	for i, r := range old.Rows {
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: ref.String(), Version: h.Version, Deleted: true})
	}
	m.heads = append(m.heads, &h)
}

// says tells whether a put has the texts of a version.
func (m *Memory) says(old *store.Head, p *store.Put) bool {
	same := len(old.Rows) == len(p.Pages)
	for i := 0; same && i < len(p.Pages); i++ {
		same = m.saysAt(old, i, p.Pages[i].Text)
	}
	return same
}

func (m *Memory) saysAt(old *store.Head, i int, text string) bool {
	p := m.pages[old.Rows[i].Num-1]
	return p.gone == 0 && p.text == text
}

// sameHead: a put repeats what is current when all but who wrote it, when, and the stamp of the source is the same. A source
// that another host read is another source.
func sameHead(old, h *store.Head, asOf bool) bool {
	plain := func(h *store.Head) store.Head {
		c := own(*h)
		c.Actor, c.Source, c.PutAt, c.LSN, c.Version, c.Rows = "", store.Validator{Hash: h.Source.Hash}, time.Time{}, 0, 0, nil
		c.ExpiresAt, c.TTL = c.ExpiresAt.UTC().Round(time.Microsecond), 0
		if c.CurrentAsOf = c.CurrentAsOf.UTC().Round(time.Microsecond); !asOf {
			c.CurrentAsOf = time.Time{}
		}
		return c
	}
	return old.SourceHost() == h.SourceHost() && reflect.DeepEqual(plain(old), plain(h))
}

// number gives a name its number, the next one where it has none.
func number(of map[name]uint64, n name) uint64 {
	if of[n] == 0 {
		of[n] = uint64(len(of)) + 1
	}
	return of[n]
}

// own copies plain data with all that it points at: no memory is shared with a caller.
func own[T any](v T) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	out.Set(reflect.ValueOf(v))
	deepen(out)
	return out.Interface().(T)
}

func deepen(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				deepen(v.Field(i))
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(v.Elem())
		deepen(c.Elem())
		v.Set(c)
	case v.Kind() == reflect.Slice && !v.IsNil():
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		for i := range c.Len() {
			deepen(c.Index(i))
		}
		v.Set(c)
	case v.Kind() == reflect.Map && !v.IsNil(): // of plain values
		c := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			c.SetMapIndex(k, v.MapIndex(k))
		}
		v.Set(c)
	}
}

// noFiles is a file system without files, for a log that has no archive and writes none.
type noFiles struct{ manifest.FS }

func (noFiles) ReadDir(string) ([]string, error) { return nil, fs.ErrNotExist }
func (noFiles) Stat(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
func (noFiles) OpenFile(string, int, fs.FileMode) (manifest.File, error) {
	return nil, fs.ErrNotExist
}

// noRows is an index without segments: all of it is in memory.
type noRows struct{}

func (noRows) Get([]byte) []byte                          { return nil }
func (noRows) Scan(_, _ []byte, _ func(_, _ []byte) bool) {}
