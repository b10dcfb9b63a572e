package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// A read of one artefact:
//
//	Get ─▶ Resolve: the nearest scope of the chain that has it ─▶ version: frames, pinned
//	          │                                                       │
//	          └─ expired: ErrExpired                                  ▼
//	                                     Freshen (dirty check): clean ─────────▶ leaf ─▶ emit ─▶ the version
//	                                                 │ fetched again ─▶ reread ──▶ ▲
//	                                                 └ dirty: ErrDirty, or served stale ─▶ ▲
//
// Invariants: a read that cannot be audited fails (emit), so nothing is served without a leaf. A version is a copy: the
// caller may change it. What a chain does not contain is not found, so the visibility of scopes is decided in one
// place, the store.Scopes that the handle was made with.

// Scope is the handle of a scope. It reads its own pages and its ancestors' pages, and writes its own. No method
// takes a scope or an actor, so the holder of a handle cannot reach further. Put, Delete, Update, sessions and
// directives belong to the host, who vouches for what it writes. Code that acts for a model gets a handle made with
// Gated, which writes only through the commit gate. A Scope is safe for concurrent use and needs no closing.
type Scope struct {
	db    *DB
	name  string
	chain store.Scopes
	actor string
	gate  float64
	gated bool
	view  freshness.View // what it sees, for the dirty check
	judge Evaluator      // of this handle, nil: the database's
	err   error          // of the name or an option: every method returns it
}

// ScopeOption configures a handle when it is made.
type ScopeOption func(*scopeOptions)

// scopeOptions are a separate type so that the holder of a handle cannot change it with an option.
type scopeOptions struct {
	actor string
	gate  float64
	gated bool
	judge Evaluator
}

// WithActor names the actor of the handle: manifests record it, and an actor cannot certify its own drafts. Default:
// the name of the scope.
func WithActor(actor string) ScopeOption { return func(o *scopeOptions) { o.actor = actor } }

// WithGate sets the confidence below which commits of this handle are held, or GateOff.
func WithGate(gate float64) ScopeOption { return func(o *scopeOptions) { o.gate = gate } }

// Scope returns the handle of a scope, a path like acme/support/agent-7. A scope needs no creating. An invalid name or
// option is reported by the first method call.
func (db *DB) Scope(name string, opts ...ScopeOption) *Scope {
	o := scopeOptions{actor: name, gate: db.opts.Gate}
	for _, f := range opts {
		f(&o)
	}
	s := &Scope{db: db, name: name, actor: o.actor, gate: o.gate, gated: o.gated, judge: o.judge}
	if s.err = store.CheckScope(name); s.err == nil {
		s.err = rendering.CheckName("actor", s.actor)
	}
	if s.err == nil && s.gate != GateOff && !(s.gate > 0 && s.gate <= 1) {
		s.err = store.Invalid("gate", fmt.Sprint(s.gate), "a confidence above 0 up to 1, or GateOff")
	}
	if s.err == nil && s.gated && s.gate == GateOff {
		s.err = store.Invalid("gate", "GateOff on a gated handle", "a confidence above 0 up to 1 (WithGate)")
	}
	s.chain = store.ScopeChain(name)
	s.view = db.checker.Of(name, s.chain)
	return s
}

// Name returns the path of the scope.
func (s *Scope) Name() string { return s.name }

// ReadOption changes one read.
type ReadOption func(*readOptions)

type readOptions struct {
	check  time.Duration
	stale  bool
	filter store.Filter
	newest bool
	floor  store.Provenance
	part   *part // of a listing; nil: all of it
}

// AtMost makes a listing yield at most limit items (0: 100) and begin at a cursor ("": at the start). It stores the cursor of
// the item that follows in next, "" at the end of the list; next may be nil. It suits a program that shows one part of a list
// and ends. Other reads ignore it.
func AtMost(limit int, cursor string, next *string) ReadOption {
	return func(o *readOptions) { o.part = &part{limit, cursor, next} }
}

// WithFloor makes a Search serve pages of this provenance and above instead of Tool: with Scratch also drafts, notes and imports
// that nobody has vouched for. Turns of the assistant and of tools, and the summaries that the database made of them, are found
// only in their session, whatever the floor. Other reads ignore it.
func WithFloor(p store.Provenance) ReadOption { return func(o *readOptions) { o.floor = p } }

// Where restricts a Search or Artefacts to what passes a filter, system pages included. Other reads ignore it.
func Where(f Filter) ReadOption { return func(o *readOptions) { o.filter = f } }

// NewestFirst orders Artefacts by the commits of the newest versions, latest first. A cursor is valid only in the order
// that it came from.
func NewestFirst() ReadOption { return func(o *readOptions) { o.newest = true } }

// WithCheck has a read probe the sources of what it reads only if their last probe is at least d old; CheckNever: not at all.
// Without it every read probes.
func WithCheck(d time.Duration) ReadOption { return func(o *readOptions) { o.check = d } }

// ServeStale serves a page whose source changed and could not be fetched, marked as stale, instead of returning
// ErrDirty.
func ServeStale() ReadOption { return func(o *readOptions) { o.stale = true } }

// readOpts collects the options of one read.
func readOpts(opts []ReadOption) readOptions {
	if len(opts) == 0 {
		return readOptions{}
	}
	var o readOptions // declared here because an option takes its address: on the heap only when there is one
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Get reads the current version of an artefact: the scope's own, or the nearest ancestor's. If its source
// changed, Get fetches it again first.
//
// Errors: ErrNotFound, ErrExpired, ErrDirty.
func (s *Scope) Get(ctx context.Context, id string, opts ...ReadOption) (*Version, error) {
	if s.err != nil {
		return nil, s.err
	}
	if err := store.CheckID("id", id); err != nil {
		return nil, err
	}
	at, in := s.db.began(), ctx
	guess := remote.Guessing(ctx, unobserved(s.db.store))
	if guess != nil {
		in = guess
	}
	v, err := s.get(in, at, id, opts)
	if guess != nil && guess.Renew(err) {
		v, err = s.get(in, at, id, opts)
	}
	if err != nil {
		return nil, s.failed(s.db.since(ctx, at), manifest.TypeGet, err)
	}
	return v, nil
}

// get is Get once, from the time at on.
func (s *Scope) get(ctx context.Context, at moment, id string, opts []ReadOption) (*Version, error) {
	v, leaf, err := s.read(ctx, Ref{ID: id}, readOpts(opts))
	if err != nil {
		return nil, err
	}
	return v, s.emitRead(ctx, at, leaf)
}

// Recall reads the version, or the page, that a reference names, if its scope is visible from here: what an assembly showed as a
// stub, an extract or a summary, or left out. A context is a view, and evicting a page from it loses nothing. TRACE#n names page n
// of the assembly TRACE of this scope, unless an artefact has that id. The manifest records it as a recall. Recall checks the source of a current version as Get does. An old version is history: its source is not
// probed and its expiry ignored.
func (s *Scope) Recall(ctx context.Context, ref Ref, opts ...ReadOption) (*Version, error) {
	if s.err != nil {
		return nil, s.err
	}
	at := s.db.began()
	v, leaf, err := s.read(ctx, ref, readOpts(opts))
	if err == nil {
		leaf.Type = manifest.TypeRecall
		err = s.emitRead(ctx, at, leaf)
	}
	if err != nil {
		return nil, s.failed(s.db.since(ctx, at), manifest.TypeRecall, err)
	}
	return v, nil
}

// numbered returns the reference of a page that is named by the trace of an assembly of the scope and its number there: TRACE#n.
func (s *Scope) numbered(ctx context.Context, ref Ref) (Ref, bool) {
	trace, n := ref.ID, ref.Page
	if before, after, ok := strings.Cut(trace, "#"); ok && n == 0 {
		trace = before
		n, _ = strconv.Atoi(after)
	}
	if _, err := parseBatchID(trace); err != nil || n < 1 || ref.Scope != "" || ref.Version != 0 {
		return Ref{}, false
	}
	leaf, err := s.db.assemblyLeaf(ctx, trace)
	if err != nil || leaf.Scope != s.name || n > len(leaf.Pages) || leaf.Pages[n-1].Num == 0 {
		return Ref{}, false
	}
	shown, err := store.ParseRef(rendering.RefOf(ctx, s.db.store, leaf.Pages[n-1].Num))
	return shown, err == nil
}

// read does the work of a Get and prepares its leaf. A version that gc dropped between Resolve and the load was
// replaced before, so the artefact is resolved once more. An expired artefact is refused from the catalogue, which
// nothing has compared with the audit yet; its head is read first, so that an edit of the file which makes it look
// expired is reported as damage.
func (s *Scope) read(ctx context.Context, ref Ref, o readOptions) (*Version, *readLeaf, error) {
	l, err := s.db.store.Resolve(ctx, s.chain, ref)
	if errors.Is(err, store.ErrNotFound) {
		if shown, ok := s.numbered(ctx, ref); ok {
			ref = shown
			l, err = s.db.store.Resolve(ctx, s.chain, ref)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if l.Current && l.Expires != 0 && l.Expires <= codec.Micros(s.db.opts.Clock()) {
		if err := s.db.headsRead(ctx, s.chain, l); err != nil {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("%w: %s at %s", store.ErrExpired, ref.ID, codec.FromMicros(l.Expires).Format(time.RFC3339))
	}
	current := Ref{Scope: ref.Scope, ID: ref.ID, Page: ref.Page} // read once more after it was fetched, or dropped by gc
	v, err := s.db.version(ctx, s.chain, l)
	if l.Current && ref.Version == 0 && errors.Is(err, store.ErrGone) { // replaced since, and dropped
		v, l, err = s.db.read(ctx, s.chain, current)
	}
	if err != nil {
		return nil, nil, err
	}
	var f freshness.Finding
	if l.Current {
		if h := v.head(); h != nil && freshness.Ages(h) { // what follows asks sources, and may write
			if err := remote.Guessed(ctx); err != nil {
				return nil, nil, err
			}
		}
		f = s.view.FreshenOne(ctx, v.head(), o.check)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if f.Refetched {
			if v, l, err = s.db.read(ctx, s.chain, current); err != nil {
				return nil, nil, err
			}
		} else if f.Reason != "" && !o.stale {
			return nil, nil, dirtyError(ref.ID, f)
		}
		v.Stale, v.Elsewhere = f.Reason != "", f.Elsewhere
	}
	leaf := s.db.readLeaf()
	leaf.Type, leaf.LSN, leaf.Tokens, leaf.ServeStale, leaf.Counter = manifest.TypeGet, l.LSN, v.Tokens, o.stale, s.db.opts.Counter.Name()
	for i := range v.Pages {
		p := &v.Pages[i]
		leaf.Pages = append(leaf.Pages, manifest.Page{
			Num: p.Num, Version: v.Version, Tokens: p.Tokens, Dirty: f.Dirty, Refetched: f.Refetched, Stale: v.Stale, Reason: f.Note(),
		})
	}
	return v, leaf, nil
}

// readLeaf is the leaf of a read in memory that the next read uses again: a Record is a kilobyte, and a store keeps nothing
// of it. It belongs to one goroutine, from readLeaf to emitRead.
type readLeaf struct {
	manifest.Record
	list [1]*manifest.Record // of itself
	call began               // with an observer
}

// readLeaf returns an empty leaf with memory for pages.
func (db *DB) readLeaf() *readLeaf {
	if l, _ := db.leaves.Get().(*readLeaf); l != nil {
		return l
	}
	l := new(readLeaf)
	l.list[0] = &l.Record
	return l
}

// emitRead is emit for the leaf of a read, which the caller must not use any more. After an error nobody else does. at is when the read
// began; 0: nobody wants to know.
func (s *Scope) emitRead(ctx context.Context, at moment, leaf *readLeaf) error {
	if at != 0 {
		leaf.call = began{Context: ctx, at: at}
		ctx = &leaf.call
	}
	if err := s.emitAll(ctx, leaf.list[:]); err != nil {
		return err
	}
	if cap(leaf.Pages) <= maxKeptPages {
		leaf.Record, leaf.call = manifest.Record{Pages: leaf.Pages[:0]}, began{}
		s.db.leaves.Put(leaf)
	}
	return nil
}

// maxKeptPages bounds the memory kept for the leaf of a read.
const maxKeptPages = 64

// headsRead reads the stored head of an artefact that is refused because of its catalogue entry. The read compares it
// with the audit.
func (db *DB) headsRead(ctx context.Context, scopes store.Scopes, l store.Located) error {
	loaded, err := db.store.Load(ctx, scopes, l.Pages[:1], store.WantHead)
	if err == nil && !errors.Is(loaded[0].Err, store.ErrGone) {
		err = loaded[0].Err
	}
	return err
}

// read resolves a reference and reads its version.
func (db *DB) read(ctx context.Context, scopes store.Scopes, ref Ref) (*Version, store.Located, error) {
	l, err := db.store.Resolve(ctx, scopes, ref)
	if err != nil {
		return nil, l, err
	}
	v, err := db.version(ctx, scopes, l)
	return v, l, err
}

// failed tells the observer of a read that has no leaf, because it returned an error.
func (s *Scope) failed(ctx context.Context, what manifest.Type, err error) error {
	if o, is := s.db.store.(*observed); is && err != nil && s.err == nil {
		var at moment
		if b := beganIn(ctx); b != nil {
			at = b.at
		}
		o.tell(ctx, at, &ops.Event{Kind: what.String(), Scope: s.name}, err)
	}
	return err
}

// emit signs a leaf and writes it. A read that cannot be audited fails.
func (s *Scope) emit(ctx context.Context, leaf *manifest.Record) error {
	return s.emitAll(ctx, []*manifest.Record{leaf})
}

// emitAll is emit for a caller that has the list; it has one leaf.
func (s *Scope) emitAll(ctx context.Context, leaves []*manifest.Record) error {
	leaf := leaves[0]
	leaf.Scope, leaf.Actor = s.name, s.actor
	leaf.ReadOnly = s.db.opts.ReadOnly
	if err := s.db.append(ctx, leaves); err != nil {
		return fmt.Errorf("ctxpage: the read could not be audited: %w", err)
	}
	return nil
}

// Artefacts ranges over the scope's own live artefacts whose ids begin with prefix, by id, without their text. Where,
// NewestFirst and AtMost apply. An expired one is listed, with its ExpiresAt, until gc deletes it. Artefacts that are put
// or deleted meanwhile may or may not be listed; no id comes twice.
func (s *Scope) Artefacts(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[*Version, error] {
	o := readOpts(opts)
	return ranged(ctx, o.part, listedAtOnce, func(cursor string, limit int) ([]*Version, string, error) {
		return s.list(ctx, prefix, cursor, limit, o)
	})
}

// list reads a part of Artefacts.
func (s *Scope) list(ctx context.Context, prefix, cursor string, limit int, o readOptions) ([]*Version, string, error) {
	if s.err != nil {
		return nil, "", s.err
	}
	if err := o.filter.Check(); err != nil {
		return nil, "", err
	}
	q := store.ScanQuery{Scopes: s.chain[:1], Prefix: store.Canonical(prefix), Limit: limit, Filter: &o.filter, Newest: o.newest}
	if q.Newest {
		return s.listNewest(ctx, q, cursor)
	}
	var ok bool
	if q.Cursor, ok = loop.Bound(cursor, s.name, "id", q.Prefix); cursor != "" && !ok {
		return nil, "", badCursor(cursor)
	}
	out, next, err := s.scan(ctx, q)
	if next != "" {
		next = loop.Bind(next, s.name, "id", q.Prefix)
	}
	return out, next, err
}

// Versions ranges over the versions of an artefact, newest first, without their text; AtMost applies. ErrNotFound if no
// visible scope has the artefact. Versions that are put meanwhile are not listed, even in a nearer scope.
func (s *Scope) Versions(ctx context.Context, id string, opts ...ReadOption) iter.Seq2[*Version, error] {
	return ranged(ctx, readOpts(opts).part, listedAtOnce, func(cursor string, limit int) ([]*Version, string, error) {
		return s.scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: s.chain, ID: id, Cursor: cursor, Limit: limit})
	})
}

// scan lists heads as versions without text.
func (s *Scope) scan(ctx context.Context, q store.ScanQuery) ([]*Version, string, error) {
	if s.err != nil {
		return nil, "", s.err
	}
	page, err := s.db.store.Scan(ctx, q)
	if err != nil {
		return nil, "", err
	}
	return versionsOf(page.Heads), page.Next, nil
}

// versionsOf makes versions without text of heads.
func versionsOf(heads []*store.Head) []*Version {
	out := make([]*Version, len(heads))
	for i, h := range heads {
		v := versionOf(h)
		for j, r := range h.Rows {
			v.Pages = append(v.Pages, Page{Ref: Ref{Scope: h.Scope, ID: h.ID, Page: j + 1, Version: r.Version}, Num: r.Num, Tokens: int(r.Tokens), Digest: r.Digest})
			v.Tokens += int(r.Tokens)
		}
		out[i] = v
	}
	return out
}

// ScopeOf makes the path of a scope from names that come from elsewhere, one level for each name: a user called bob/eve
// gets a scope beside bob's, not inside it. ScopeOf writes every byte that could end a name, hide in it or look like a
// separator as %XX: slashes and their look-alikes, names of dots, percent signs, control, invisible and formatting
// characters, and bytes that are not UTF-8. Different names give different paths. Plain names do not change.
//
// A scope cannot have an empty name, no name, more than MaxScopeDepth names or more than MaxScope bytes. ScopeOf then
// returns a path that every method of the handle refuses with an *InvalidError.
func ScopeOf(names ...string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = rendering.EscapeName(n)
	}
	return strings.Join(parts, "/")
}

// listNewest lists artefacts by the commits of their newest versions. An artefact that was not listed yet and got a new
// version since the part before is listed next, so that none is missed and none comes twice.
func (s *Scope) listNewest(ctx context.Context, q store.ScanQuery, cursor string) ([]*Version, string, error) {
	limit := q.Limit
	var at newestPlace
	if cursor != "" {
		text, ok := loop.Bound(cursor, s.name, "newest", q.Prefix)
		if !ok || !at.parse(text) {
			return nil, "", badCursor(cursor)
		}
	}
	out := func(heads []*store.Head) ([]*Version, string, error) {
		if at.next == "" {
			return versionsOf(heads), "", nil
		}
		return versionsOf(heads), loop.Bind(at.String(), s.name, "newest", q.Prefix), nil
	}
	var changed []*store.Head
	for try := 0; ; try++ {
		q.Limit, q.Cursor = max(limit-len(changed), 1), at.next
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return nil, "", err
		}
		seen := page.LSN
		if cursor == "" {
			at.from = page.LSN
		} else if changed, seen, err = s.changedSince(ctx, q, at, page.LSN, limit); err != nil {
			return nil, "", err
		}
		if len(changed) >= limit {
			at.seen = seen
			return out(changed)
		}
		if len(changed)+len(page.Heads) > limit && try < 2 { // leave room, as of the commits since
			continue
		}
		if at.seen, at.next = seen, page.Next; len(page.Heads) > 0 {
			last := page.Heads[len(page.Heads)-1]
			at.lsn, at.id = last.LSN, last.ID
		}
		return out(append(changed, page.Heads...))
	}
}

// newestPlace is the place from which a listing by the newest continues: behind the version of an id in the order that stood when it began.
// What was replaced since has moved to the front, so it is looked for among the changes.
type newestPlace struct {
	from uint64 // the LSN at which the listing began
	seen uint64 // up to this LSN the changes have been listed
	lsn  uint64 // the place
	id   string
	next string // the store's cursor; "": only changes are left
}

func (p newestPlace) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%s%s", p.from, p.seen, p.lsn, len(p.next), p.next, p.id)
}

func (p *newestPlace) parse(text string) bool {
	var n int
	if got, err := fmt.Sscanf(text, "%d.%d.%d.%d.", &p.from, &p.seen, &p.lsn, &n); got != 4 || err != nil {
		return false
	}
	rest := strings.SplitN(text, ".", 5)[4]
	if n < 0 || n > len(rest) {
		return false
	}
	p.next, p.id = rest[:n], rest[n:]
	return true
}

func badCursor(cursor string) error {
	return store.Invalid("cursor", strconv.Quote(cursor), "a cursor from the page before, of the same listing in the same order")
}

// changedSince returns the artefacts behind a place that got a new version after at.seen and up to an LSN, oldest change
// first, and the LSN up to which they are complete: they end with the commit that reaches limit.
func (s *Scope) changedSince(ctx context.Context, q store.ScanQuery, at newestPlace, upTo uint64, limit int) (out []*store.Head, seen uint64, err error) {
	type change struct {
		head *store.Head
		lsn  uint64
	}
	var changes []change
	q.Limit, q.Cursor = listedAtOnce, ""
	for more := true; more; more = more && q.Cursor != "" {
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		for _, h := range page.Heads {
			if more = h.LSN > at.seen; !more {
				break
			}
			lsn, err := s.waits(ctx, h.ID, at, upTo)
			if err != nil {
				return nil, 0, err
			}
			if lsn > 0 {
				changes = append(changes, change{h, lsn})
			}
		}
		q.Cursor = page.Next
	}
	sort.SliceStable(changes, func(i, j int) bool { return changes[i].lsn < changes[j].lsn })
	for i, c := range changes {
		if len(out) >= limit && c.lsn > changes[i-1].lsn {
			return out, changes[i-1].lsn, nil
		}
		out = append(out, c.head)
	}
	return out, upTo, nil
}

// waits returns the LSN of the version of an artefact that stood at upTo, if it is newer than at.seen and the version
// before it stood behind the place, so that it was not listed; else 0.
func (s *Scope) waits(ctx context.Context, id string, at newestPlace, upTo uint64) (lsn uint64, err error) {
	q := store.ScanQuery{What: store.ScanHistory, Scopes: s.chain[:1], ID: id, Limit: listedAtOnce}
	for {
		page, err := s.db.store.Scan(ctx, q)
		if err != nil {
			return 0, err
		}
		for _, old := range page.Heads {
			switch {
			case old.LSN > upTo:
			case old.LSN > at.seen:
				lsn = max(lsn, old.LSN)
			case !old.Deleted && old.LSN <= at.from && (old.LSN < at.lsn || old.LSN == at.lsn && old.ID > at.id):
				return lsn, nil
			default:
				return 0, nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return 0, nil // it is new
		}
	}
}
