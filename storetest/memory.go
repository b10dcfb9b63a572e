package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// ErrNoFile is the answer to a backup: there is no file to copy.
var ErrNoFile = errors.New("storetest: the reference store has no file to copy")

// Memory is the reference store: the contract of store.Store in code, without an engine and without files. It is slow on
// purpose, and made for reading beside the interface. Its methods implement store.Store.
//
// It keeps every version of every artefact in the order of their commits, and works out from that list what is current, what
// supersedes what, and what words and vectors find. A read as of an LSN leaves out the versions of later commits. One call
// runs at a time. A batch is judged before anything of it is written, so a batch that is refused changes nothing. Rules that
// every store applies alike are in package rules.
//
// Left out are: backup and check (Maintain answers ErrNoFile, and finds nothing), the forgetting of rows that gc dropped
// long ago (KeepRecords, KeepNames), the limits on how many candidates of one provenance are named, the forgetting of
// outcomes, quotas, and the space that scopes take.
type Memory struct {
	*database
	closed bool
	holds  map[store.Ticket]store.Moment
}

// database outlives a handle, as files do. mu guards all of it that changes.
type database struct {
	mu       sync.Mutex
	cfg      Config
	info     store.Info
	newest   uint64                 // LSN of the last commit
	heads    []*store.Head          // all versions, in the order of their commits
	versions map[name][]*store.Head // the same of each artefact
	pages    []*page                // by number, from 1
	state    map[string]store.StateRow
	held     map[ulid.ULID]store.HeldBatch
	outcomes map[ulid.ULID]outcome
	arts     map[name]uint64 // numbers of artefacts, scopes and groups
	scopes   map[string]uint64
	groups   map[name]uint64
	asked    map[uint64]manifest.Record // leaves with the texts of their questions, by index
	log      *archive.Log
	analyzer *lexical.Analyzer
	ticket   store.Ticket // given last
}

// name is the id of an artefact, or the name of a group, in a scope.
type name struct{ scope, id string }

// page is a page version.
type page struct {
	num   uint64
	head  *store.Head // the newest version of its artefact that has it
	at    int         // its place there, from 1
	first store.Head  // the version that brought it: questions find it by the fields of that one
	text  string
	vecs  map[string][]float32 // by model
	gone  bool                 // it has no text: gc or an erase took it
	ended uint64               // LSN of the commit that left it out of the newest version, or took its text; 0: none did
}

func (p *page) row() store.PageRow { return p.head.Rows[p.at-1] }

type outcome struct {
	bound []byte
	store.Outcome
}

// view is the database as of a commit: versions of later commits are not in it.
type view struct {
	*database
	lsn uint64
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
	info := store.Info{ID: id.String(), Secret: make([]byte, 32)}
	if _, err := io.ReadFull(cfg.Rand, info.Secret); err != nil {
		return nil, fmt.Errorf("storetest: secret: %w", err)
	}
	return open(&database{
		cfg: cfg, info: info, log: archive.InMemory(info.ID), analyzer: lexical.NewAnalyzer(),
		versions: map[name][]*store.Head{}, state: map[string]store.StateRow{}, held: map[ulid.ULID]store.HeldBatch{}, outcomes: map[ulid.ULID]outcome{},
		arts: map[name]uint64{}, scopes: map[string]uint64{}, groups: map[name]uint64{}, asked: map[uint64]manifest.Record{},
	}), nil
}

func open(d *database) *Memory { return &Memory{database: d, holds: map[store.Ticket]store.Moment{}} }

// Reopen returns another handle to the same database; the old one is closed, whatever it was doing.
func (m *Memory) Reopen() *Memory {
	_ = m.Close()
	return open(m.database)
}

// Close ends the handle and its holds. A commit under way ends first; a second Close does nothing.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// call passes the database as it is to fn, unless the handle is closed or ctx has ended. One call runs at a time, so each is one
// snapshot. The answer is a copy: callers share no memory with the store.
func call[T any](ctx context.Context, m *Memory, fn func(v view) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none T
	if m.closed {
		return none, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	out, err := fn(view{m.database, m.newest})
	return own(out), err
}

func (m *Memory) Info(context.Context) (store.Info, error) { return own(m.info), nil }

func (m *Memory) Mark() store.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Mark{LSN: m.newest}
}

func (m *Memory) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	return call(ctx, m, func(v view) (at store.Mark, err error) {
		if at.LSN = v.lsn; at.LSN < atLeast {
			err = store.Invalid("lsn", fmt.Sprint(atLeast), fmt.Sprintf("at most %d, the newest", at.LSN))
		}
		return at, err
	})
}

func (m *Memory) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	return call(ctx, m, func(view) (store.Ticket, error) {
		m.ticket++
		m.holds[m.ticket] = at
		return m.ticket, nil
	})
}

func (m *Memory) Release(t store.Ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.holds, t)
}

func (m *Memory) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	return call(ctx, m, func(v view) (store.Outcome, error) {
		known, ok := v.outcomes[id]
		switch {
		case ok:
			return known.Outcome, nil
		case v.cfg.Now().Sub(ulid.Time(id.Time())) > format.OutcomeDays:
			return store.Outcome{}, fmt.Errorf("%w: %s", store.ErrTxnExpired, id)
		}
		return store.Outcome{}, fmt.Errorf("%w: no batch %s", store.ErrNotFound, id)
	})
}

func (m *Memory) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	return call(ctx, m, func(v view) (store.HeldBatch, error) { return v.waiting(id) })
}

func (m *Memory) State(ctx context.Context, key string) (store.StateRow, error) {
	return call(ctx, m, func(v view) (store.StateRow, error) {
		return store.StateRow{Key: key, Value: v.state[key].Value, LSN: v.state[key].LSN}, nil
	})
}

func (m *Memory) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	return call(ctx, m, func(v view) (store.Located, error) { return v.resolve(scopes, ref) })
}

func (m *Memory) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	return call(ctx, m, func(v view) (out []store.Loaded, _ error) {
		for _, k := range pages {
			out = append(out, v.load(scopes, k, want))
		}
		return out, nil
	})
}

func (m *Memory) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	return call(ctx, m, func(v view) (store.ScanPage, error) {
		if err := format.CheckScan(&q); err != nil {
			return store.ScanPage{}, err
		}
		return v.scan(&q)
	})
}

func (m *Memory) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	return call(ctx, m, func(v view) (store.Candidates, error) { return v.candidates(&q) })
}

func (m *Memory) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return call(ctx, m, func(v view) (store.Outcome, error) {
		if err := format.CheckCommit(&b); err != nil {
			return store.Outcome{}, err
		}
		b := own(b)
		return v.commit(&b)
	})
}

// Changes waits for leaves of the audit: a commit has one.
func (m *Memory) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	for end := time.Now().Add(wait); ; {
		leaves := m.log.Size()
		out, err := call(ctx, m, func(v view) (store.Changes, error) {
			out := store.Changes{LSN: v.lsn}
			for _, p := range v.pages {
				if p.ended > after {
					out.Ended = append(out.Ended, p.num)
				}
			}
			for key, r := range v.state {
				if r.LSN > after && slices.ContainsFunc(v.cfg.State, func(k store.StateKind) bool { return k.Told && strings.HasPrefix(key, k.Prefix) }) {
					out.Told = append(out.Told, r)
				}
			}
			return out, nil
		})
		if left := time.Until(end); err != nil || out.LSN > after || left <= 0 {
			return out, err
		} else if _, err := m.log.Wait(ctx, leaves, left); err != nil {
			return store.Changes{}, err
		}
	}
}

func (m *Memory) Append(ctx context.Context, leaves []*manifest.Record, _ store.Durability) error {
	_, err := call(ctx, m, func(v view) (none int, err error) {
		err = format.CheckLeaves(leaves)
		for i := 0; i < len(leaves) && err == nil; i++ {
			err = v.leave(leaves[i])
		}
		return none, err
	})
	return err
}

func (m *Memory) Audit() store.Audit { return m.log.Reader(m.question) }

func (m *Memory) Head(ctx context.Context) (manifest.Head, error) {
	return call(ctx, m, func(v view) (manifest.Head, error) { return v.log.Head(v.log.Size(), v.cfg.Now().UnixMicro()) })
}

func (m *Memory) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	return call(ctx, m, func(v view) ([][]float32, error) {
		out := make([][]float32, len(nums))
		for i, num := range nums {
			if p := v.page(num); p != nil && visible(scopes, p) {
				out[i] = p.vecs[model]
			}
		}
		return out, nil
	})
}

func (m *Memory) PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error {
	_, err := call(ctx, m, func(v view) (none int, _ error) {
		if err := format.CheckVectors(nums, vecs); err != nil {
			return none, err
		}
		for i, num := range nums {
			if p := v.page(num); p != nil && !p.gone {
				p.vecs[model] = own(vecs[i])
			}
		}
		return none, nil
	})
	return err
}

func (m *Memory) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	rep, err := call(ctx, m, func(v view) (rep store.JobReport, err error) {
		if err := format.CheckJob(&job); err != nil {
			return rep, err
		}
		switch job.Kind {
		case store.JobBackup:
			return rep, ErrNoFile
		case store.JobGC, store.JobGCPlan:
			rep.GC, err = v.collect(job.GC, m.holds, job.Kind == store.JobGCPlan)
		case store.JobErase:
			rep.Erase, err = v.erase(job.Erase)
		case store.JobCompactPlan:
			rep.Compact.DryRun = true
		}
		rep.Applied = v.newest
		return rep, err
	})
	if err == nil && job.Kind == store.JobErase && progress != nil {
		progress("erase", 1, 1)
	}
	return rep, err
}

func (m *Memory) Stat(ctx context.Context) (store.StoreStats, error) {
	return call(ctx, m, func(v view) (store.StoreStats, error) {
		st := store.StoreStats{ID: v.info.ID, LSN: v.lsn, Applied: v.lsn, Scopes: len(v.scopes), Leaves: v.log.Size()}
		for _, h := range v.current() {
			st.Artefacts, st.Pages = st.Artefacts+1, st.Pages+len(h.Rows)
		}
		for _, p := range v.pages {
			if !p.gone {
				st.PageVersions++
			}
		}
		for _, h := range v.held {
			if h.Decided == "" {
				st.Held++
			}
		}
		return st, nil
	})
}

// at is a version of an artefact, 0: the newest. One that is not there is the zero Head.
func (v view) at(of name, version uint32) *store.Head {
	for _, h := range slices.Backward(v.versions[of]) {
		if h.LSN <= v.lsn && (version == 0 || version == h.Version) {
			return h
		}
	}
	return &store.Head{}
}

// artefacts are the newest versions of all artefacts, in the order of their commits.
func (v view) artefacts() (all []*store.Head) {
	for _, h := range v.heads {
		if h == v.at(nameOf(h), 0) {
			all = append(all, h)
		}
	}
	return all
}

// current returns the heads of artefacts that are not deleted.
func (v view) current() []*store.Head {
	return slices.DeleteFunc(v.artefacts(), func(h *store.Head) bool { return !format.Live(h) })
}

// successor is the newest version that superseded the artefact of another since that was written; nil: none did.
func (v view) successor(of *store.Head) *store.Head {
	for _, h := range slices.Backward(v.heads) {
		if of.LSN <= h.LSN && h.LSN <= v.lsn && h.Scope == of.Scope && h.ID != of.ID && slices.Contains(h.Supersedes, of.ID) {
			return h
		}
	}
	return nil
}

// answers is the page that answers for a page; nil: none does. A deletion ends what was before it.
func (v view) answers(p *page) *page {
	for range v.heads { // artefacts may supersede each other
		of, since := nameOf(p.head), p.row().LSN
		ends := func(h *store.Head) bool { return h.Deleted && since < h.LSN && h.LSN <= v.lsn }
		if since > v.lsn || slices.ContainsFunc(v.versions[of], ends) {
			return nil
		}
		h := v.at(of, 0)
		by := v.successor(h)
		if by == nil {
			if p = v.page(h.Rows[min(p.at, len(h.Rows))-1].Num); p.gone {
				return nil
			}
			return p
		}
		if by = v.at(nameOf(by), 0); len(by.Rows) == 0 {
			return nil
		}
		p = v.page(by.Rows[0].Num)
	}
	return nil
}

// page returns the page with a number; nil: there is none.
func (d *database) page(num uint64) *page {
	if num == 0 || num > uint64(len(d.pages)) {
		return nil
	}
	return d.pages[num-1]
}

// visible reports whether a chain sees a page. Nil scopes see all.
func visible(scopes store.Scopes, p *page) bool {
	return scopes == nil || slices.Contains(scopes, p.head.Scope)
}

func (v view) resolve(scopes store.Scopes, ref store.Ref) (l store.Located, err error) {
	for _, scope := range scopes {
		newest := v.at(name{scope, ref.ID}, 0)
		if newest.Version == 0 || ref.Scope != "" && ref.Scope != scope || newest.Deleted && ref.Scope == "" && ref.Version == 0 {
			continue // deleted here: that of an ancestor may be current
		}
		h := v.at(nameOf(newest), ref.Version)
		if h.Gone {
			return l, format.GoneError(h, ref.Page)
		}
		for i, r := range h.Rows {
			if ref.Page == 0 || ref.Page == i+1 {
				l.Pages = append(l.Pages, store.PageKey{Num: r.Num, Version: h.Version})
			}
		}
		if len(l.Pages) == 0 {
			break // an ancestor is not asked
		}
		l.Scope, l.Version, l.LSN, l.Current = scope, h.Version, h.LSN, h == newest
		if !h.ExpiresAt.IsZero() {
			l.Expires = h.ExpiresAt.UnixMicro()
		}
		if by := v.successor(h); by != nil && l.Current {
			if l.ByID = by.ID; len(v.at(nameOf(by), 0).Rows) > 0 {
				l.By = v.at(nameOf(by), 0).Rows[0].Num
			}
		}
		return l, nil
	}
	return l, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
}

func (v view) load(scopes store.Scopes, k store.PageKey, want store.Want) store.Loaded {
	p := v.page(k.Num)
	if p == nil || !visible(scopes, p) {
		return store.Loaded{Key: k, Err: fmt.Errorf("%w: page %d", store.ErrNotFound, k.Num)}
	}
	k.Version = cmp.Or(k.Version, p.head.Version)
	out, h := store.Loaded{Key: k, Page: p.at}, v.at(nameOf(p.head), k.Version)
	switch {
	case len(h.Rows) < p.at || h.Rows[p.at-1].Num != p.num:
		out.Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, k.Version, k.Num)
		return out
	case h.Gone:
		out.Err = format.GoneError(h, p.at)
	case want == store.WantText:
		out.Text = p.text
	}
	out.Head = h
	return out
}

// waiting is a held batch, decided or not.
func (d *database) waiting(id ulid.ULID) (store.HeldBatch, error) {
	h, ok := d.held[id]
	if !ok {
		return h, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id)
	}
	return h, nil
}

func nameOf(h *store.Head) name { return name{h.Scope, h.ID} }

func refOf(h *store.Head, page int) store.Ref {
	return store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
}
