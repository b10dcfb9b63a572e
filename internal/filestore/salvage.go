package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// SalvageOptions configure Salvage. The zero value is ready to use.
type SalvageOptions struct {
	// Older also copies artefacts whose newest version is known to be lost, as they were in the
	// newest version that can be read. Their content was corrected or replaced since, so this is
	// not the default.
	Older bool
	// By is the name of the operator, for the manifest.
	By string
	// Clock as in Options.
	Clock func() time.Time

	State []store.StateKind

	// Key opens the damaged database and encrypts the copy, which gets a keyring of its own.
	Key     []byte
	Keyring string // path of the damaged database's keyring; "": beside the database

	trust bool // negative control of tests
}

// Salvaged is the report of Salvage.
type Salvaged struct {
	Artefacts int    `json:"artefacts"` // copied, including the next two
	Older     int    `json:"older"`     // in a version that is known not to be the newest
	Unproved  int    `json:"unproved"`  // in the newest version that can be read, without proof that it was the newest
	Held      int    `json:"held"`      // drafts that wait for review
	State     int    `json:"state"`     // rows: directives, file roots
	Questions int    `json:"questions"` // texts of the old audit, which are not copied
	Lost      []Loss `json:"lost"`
}

// Loss is something that could not be copied, or not with certainty in its last state.
type Loss struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Salvage copies what can be read of a damaged database to a new one at another path, and lists
// what is lost. It only reads the damaged files. It never guesses: it takes a row if its checksum
// is right and the audit, as far as it can be read, has its digest; a text if its digest is right;
// and an artefact in its newest version.
//
// If commits are lost and nothing says which artefacts they wrote, the copy is the newest state
// that can be proved. Artefacts written after the gap are copied in their last state. The others
// are copied as they were before the gap, and each is listed, because it may have been
// changed or deleted since.
//
//	rows    bbolt's tree as far as it can be walked; heads and texts, which never change, also from pages that no
//	        tree leads to any more; then the log, past damaged records
//	judge   the newest version of each artefact, by the rows and by the audit, which names every version
//	copy    in the order of the old commits, so that supersessions come out the same
//
// The copy is another database: versions begin at 1, older versions and the audit are not copied,
// and sessions keep their turns but not the decisions about them. An artefact derived from a
// version that was not copied counts as changed.
//
// After an error nothing was salvaged: ErrLocked, ErrNotExist, ErrNotDatabase, or an error of the
// file system. On a full disk the error says how much space the copy needs and how much was free,
// and nothing of the copy is left. Salvage holds the lock of a reader, so no writer can change the
// files meanwhile; other readers can go on.
func Salvage(ctx context.Context, path, to string, opts SalvageOptions) (rep Salvaged, err error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if err := store.CheckClock(opts.Clock()); err != nil {
		return rep, err
	}
	for _, p := range []*string{&path, &to} {
		if *p, err = filepath.Abs(*p); err != nil {
			return rep, fmt.Errorf("ctxpage: salvage: %w", err)
		}
	}
	if err := auditThere(path); err != nil {
		return rep, err
	}
	if err := mayReplace("salvage", to, false); err != nil {
		return rep, err
	}
	lock, err := lockProcess(path, lockHolder{Reading: true}, 0, opts.Clock)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	d := newDamaged(path)
	d.trust = opts.trust
	defer func() { _ = d.file.Close() }() // of a nil file: an error
	d.key = opts.Key
	if d.ring, err = readerRing(path, d.key, opts.Keyring); err != nil {
		return rep, err
	}
	if err := d.gather(ctx); err != nil {
		return rep, err
	}
	if err := d.unopened(); err != nil {
		return rep, err
	}
	if d.nothing() {
		return rep, fmt.Errorf("%w: %s: neither it nor its log has a row of a database; expected the main file of a database, with its log and audit beside it under the same name", store.ErrNotDatabase, path)
	}
	if err := mayReplace("salvage", to, false); err != nil { // reading took its time
		return rep, err
	}
	space := copySpaceFor(path, to)
	st, err := Open(Options{Path: to, Key: opts.Key, Now: opts.Clock, State: opts.State})
	if err != nil {
		if !errors.Is(err, store.ErrLocked) { // otherwise another process has made a database there
			removeDatabase(to)
		}
		return rep, space.explain("salvage", err)
	}
	c := &copier{d: d, st: st, opts: opts}
	err = c.copy(ctx)
	c.rep.Lost, c.rep.Questions = d.lost, len(d.asked)
	if err = errors.Join(err, st.Close()); err != nil {
		removeDatabase(to)
	}
	return c.rep, space.explain("salvage", err)
}

// copier writes the gathered rows into the new database. Its steps build on each other: what was
// chosen decides which supersessions, state units and held batches can follow.
type copier struct {
	d        *damaged
	st       *Store // the copy
	opts     SalvageOptions
	rep      Salvaged
	taken    map[string]*taken // by artefactKey
	byCommit []*taken          // as they were committed
}

// taken is an artefact that is copied.
type taken struct {
	head  *store.Head
	texts []string
	lsn   uint64 // its LSN in the copy
}

// artefactKey names an artefact in the maps of a salvage: no scope has a zero byte.
func artefactKey(scope, id string) string { return scope + "\x00" + id }

// key is the artefactKey of the artefact.
func (t *taken) key() string { return artefactKey(t.head.Scope, t.head.ID) }

// copy makes the copy, and ends it with a leaf that says where it came from.
func (c *copier) copy(ctx context.Context) error {
	if err := c.choose(ctx); err != nil {
		return err
	}
	c.supersede()
	for _, step := range []func(context.Context) error{c.artefacts, c.state, c.held} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return c.st.note(ctx, store.Written, &manifest.Record{
		Type: manifest.TypeRestored, By: c.opts.By,
		Reason: fmt.Sprintf("salvaged: %d artefacts and %d held batches of a damaged database; %d losses", c.rep.Artefacts, c.rep.Held, len(c.d.lost)),
	})
}

// choose picks the version of each artefact to copy.
//
//	newest known version ──readable──▶ copied
//	        │ not readable: an older one is copied if the caller asked for it (Older), and listed
//	        │ deleted: nothing is copied
//	        └ no version readable: listed as lost
func (c *copier) choose(ctx context.Context) error {
	d := c.d
	audit, whole := d.audited(ctx)
	d.count()
	if !whole {
		d.lose("audit", "not all of it can be read")
		d.loseUnnamed()
	}
	c.taken = map[string]*taken{}
	proved, known, later := d.proved(whole), map[string]bool{}, d.lastOfName()
	for _, art := range slices.Sorted(maps.Keys(d.newest)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := d.anyHead(art)
		if h == nil {
			d.lose(fmt.Sprintf("artefact number %d", art), "none of its versions up to %d can be read", d.newest[art])
			continue
		}
		name := artefactKey(h.Scope, h.ID)
		known[name] = true
		if later[name] > art { // gc forgot this one, and its rows stand on free pages
			continue
		}
		newest := max(d.newest[art], audit[name].version)
		c.chooseOne(art, newest, proved)
	}
	for _, name := range slices.Sorted(maps.Keys(audit)) {
		if a := audit[name]; !known[name] && !a.deleted {
			scope, id, _ := strings.Cut(name, "\x00")
			d.lose(store.Ref{Scope: scope, ID: id, Version: a.version}.String(), "the audit names it, nothing of it can be read")
		}
	}
	slices.SortFunc(c.byCommit, func(x, y *taken) int {
		return cmp.Or(cmp.Compare(x.head.LSN, y.head.LSN), cmp.Compare(x.head.Scope, y.head.Scope), cmp.Compare(x.head.Art, y.head.Art))
	})
	return nil
}

// lastOfName returns the greatest number of an artefact of each name.
func (d *damaged) lastOfName() map[string]uint64 {
	out := map[string]uint64{}
	for art := range d.newest {
		if h := d.anyHead(art); h != nil {
			name := artefactKey(h.Scope, h.ID)
			out[name] = max(out[name], art)
		}
	}
	return out
}

// loseUnnamed tells of artefacts of which no row is left and that no audit names: their numbers are
// missing among the others, and there may have been higher ones.
func (d *damaged) loseUnnamed() {
	next := uint64(1)
	for _, art := range slices.Sorted(maps.Keys(d.newest)) {
		if art > next {
			d.lose(fmt.Sprintf("artefacts number %d to %d", next, art-1), "nothing of them can be read")
		}
		next = art + 1
	}
	if d.missed || d.cut {
		d.lose(fmt.Sprintf("artefacts from number %d on", next), "if there were any, nothing of them can be read")
	}
}

// chooseOne goes down from the newest version of an artefact to one that can be read whole. A
// version that was written above the LSN proved is certainly the newest.
func (c *copier) chooseOne(art uint64, newest uint32, proved uint64) {
	var why error
	next := newest
	for _, v := range c.d.versions[art] {
		if v < next {
			why = cmp.Or(why, error(codec.ErrMalformed))
		}
		next = v - 1
		h := c.d.head(format.HeadKey{Art: art, Version: v})
		if h == nil {
			if why == nil && c.d.edited[format.HeadKey{Art: art, Version: v}] {
				why = format.ErrEdited
			}
			why = cmp.Or(why, error(codec.ErrMalformed))
			continue
		}
		name, sure := store.Ref{Scope: h.Scope, ID: h.ID, Version: newest}.String(), h.LSN > proved
		if h.Deleted {
			if !sure {
				c.d.lose(name, "it was deleted at lsn %d; later commits are lost, which may have put it again", h.LSN)
			}
			return
		}
		if h.Gone {
			continue
		}
		t := &taken{head: h}
		var err error
		for i := range h.Rows {
			var text string
			if text, err = c.d.text(&h.Rows[i]); err != nil {
				break
			}
			t.texts = append(t.texts, text)
		}
		if err != nil {
			why = cmp.Or(why, err)
			continue
		}
		switch {
		case v < newest && !c.opts.Older:
			c.d.lose(name, "%v; version %d can be read, and is copied when older versions are asked for", why, v)
			return
		case v < newest:
			c.d.lose(name, "%v; copied as it was in version %d", why, v)
			c.rep.Older++
		case !sure:
			c.d.lose(name, "copied as it was at lsn %d; later commits are lost, which may have changed or deleted it", h.LSN)
			c.rep.Unproved++
		}
		c.taken[t.key()] = t
		c.byCommit = append(c.byCommit, t)
		return
	}
	if h := c.d.anyHead(art); h != nil {
		c.d.lose(store.Ref{Scope: h.Scope, ID: h.ID, Version: newest}.String(), "%v; no older version can be read", why)
	}
}

// head decodes a head row that was read; nil: there is none, its scope is not known, or it stands
// under the wrong key.
func (d *damaged) head(k format.HeadKey) *store.Head {
	h, err := format.DecodeHead(d.heads[k], func(n uint32) string { return d.scopes[n] })
	if err != nil || h.Scope == "" || h.Art != k.Art || h.Version != k.Version {
		return nil
	}
	return h
}

// anyHead returns the newest head of an artefact that can be read; nil: none can.
func (d *damaged) anyHead(art uint64) *store.Head {
	for _, v := range d.versions[art] {
		if h := d.head(format.HeadKey{Art: art, Version: v}); h != nil {
			return h
		}
	}
	return nil
}

// supersede adds to the copied heads what any version of their artefact replaced, because the copy
// has only one version. An artefact that was replaced by one that is not copied would become
// current again, so it is not copied either.
func (c *copier) supersede() {
	var later []*store.Head
	for k := range c.d.heads {
		if h := c.d.head(k); h != nil && len(h.Supersedes) > 0 {
			later = append(later, h)
		}
	}
	slices.SortFunc(later, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(x.LSN, y.LSN), cmp.Compare(x.Art, y.Art)) })
	by := map[string]*store.Head{}
	for _, h := range later {
		for _, id := range h.Supersedes {
			if t := c.taken[artefactKey(h.Scope, id)]; t != nil && t.head.Art != h.Art && t.head.LSN <= h.LSN {
				by[t.key()] = h
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		prior, h := c.taken[name], by[name]
		if next := c.taken[artefactKey(h.Scope, h.ID)]; next != nil {
			if !slices.Contains(next.head.Supersedes, prior.head.ID) {
				next.head.Supersedes = append(next.head.Supersedes, prior.head.ID)
			}
			continue
		}
		delete(c.taken, name)
		c.byCommit = slices.DeleteFunc(c.byCommit, func(t *taken) bool { return t == prior })
		c.d.lose(store.Ref{Scope: prior.head.Scope, ID: prior.head.ID, Version: prior.head.Version}.String(), "%s replaced it, and is lost", h.ID)
	}
}

// artefacts commits the chosen versions. Artefacts of one old commit are committed together. So
// the copy has the order of the old commits, and half of one is never seen.
func (c *copier) artefacts(ctx context.Context) error {
	for rest := c.byCommit; len(rest) > 0; {
		first, n := rest[0].head, 1
		for n < len(rest) && rest[n].head.LSN == first.LSN && rest[n].head.Scope == first.Scope {
			n++
		}
		b := engine.Request{Batch: store.Batch{Scope: first.Scope, Actor: first.Actor, Now: first.PutAt, OnStale: store.AllowStale, Leaf: manifest.Record{Type: manifest.TypeCommit, By: c.opts.By, Reason: "salvaged"}}}
		for _, t := range rest[:n] {
			b.Puts = append(b.Puts, c.put(t))
		}
		out, err := c.commit(ctx, b)
		if err != nil {
			return err
		}
		for _, t := range rest[:n] {
			t.lsn = out.LSN
		}
		c.rep.Artefacts += n
		rest = rest[n:]
	}
	return nil
}

// commit submits a batch to the copy, under a new id unless it has one.
func (c *copier) commit(ctx context.Context, b engine.Request) (out store.Outcome, err error) {
	if b.ID == (ulid.ULID{}) {
		if b.ID, err = store.NewID(b.Now, c.st.opts.Rand); err != nil {
			return out, err
		}
	}
	if out, err = c.st.eng.Submit(ctx, b); err != nil {
		return out, fmt.Errorf("ctxpage: salvage: %w", err)
	}
	return out, nil
}

// put makes the put of an artefact, with the salts and digests of its pages.
func (c *copier) put(t *taken) store.Put {
	h := t.head
	p := store.Put{Artefact: h.Artefact, Source: h.Source, AsOfGiven: true, PartBytes: h.PartBytes, Counter: h.Counter}
	for i := range h.Rows {
		r := &h.Rows[i]
		p.Pages = append(p.Pages, store.NewPage{Text: t.texts[i], Tokens: int(r.Tokens), Hash: r.Hash, Salt: r.Salt, Digest: r.Digest})
	}
	if strings.HasPrefix(p.Artefact.Source, "page:") {
		p.Source = store.Validator{} // it names a version of the old database: the first read fetches it again
	}
	p.Artefact.DerivedFrom = c.derived(p.Artefact.DerivedFrom)
	return p
}

// derived names the parents as they are in the copy. A version that is not the copied one is
// replaced by a version that never existed, so that artefacts derived from it count as changed.
func (c *copier) derived(from []store.Ref) []store.Ref {
	out := slices.Clone(from)
	for i := range out {
		r := &out[i]
		same := false
		if t := c.taken[artefactKey(r.Scope, r.ID)]; t != nil {
			same = r.Version == t.head.Version || r.Page > 0 && r.Page <= len(t.head.Rows) && t.head.Rows[r.Page-1].Version == r.Version
		}
		if r.Version = math.MaxUint32; same {
			r.Version = 1
		}
	}
	return out
}

// state copies the state rows that may be copied. Rows that belong to a unit are copied only if the
// unit is complete. At most 500 rows go into one commit, so that memory and the record stay small.
func (c *copier) state(ctx context.Context) error {
	var rows []store.StateRow
	left, lost := map[string]int{}, map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(c.d.state)) {
		k := format.KindOf(c.st.opts.State, key)
		switch {
		case k == nil || c.d.state[key] == nil:
		case !k.Copy:
			left[k.Prefix]++
		case k.Unit != nil && c.unitLost(k.Unit(key)):
			lost[k.Unit(key).Name] = true
		default:
			rows = append(rows, store.StateRow{Key: key, Value: c.d.state[key]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		c.d.lose(name, "not all of them can be read")
	}
	for _, prefix := range slices.Sorted(maps.Keys(left)) {
		if k := format.KindOf(c.st.opts.State, prefix); k.Lost != "" {
			c.d.lose(fmt.Sprintf("%s (%d)", k.Lost, left[prefix]), "%s", k.Why)
		}
	}
	c.rep.State = len(rows)
	for batch := range slices.Chunk(rows, 500) {
		_, err := c.commit(ctx, engine.Request{Batch: store.Batch{
			Scope: store.OperatorScope, Actor: "operator", Now: c.opts.Clock(), State: batch,
			Leaf: manifest.Record{Type: manifest.TypeCommit, By: c.opts.By, Reason: "salvaged"},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// unitLost reports whether the main row of a unit is missing, or the artefact that shows it existed
// and is not copied.
func (c *copier) unitLost(u store.StateUnit) bool {
	if c.d.state[u.Key] == nil {
		return true
	}
	if c.taken[artefactKey(u.Page.Scope, u.Page.ID)] != nil {
		return false
	}
	name := store.Ref{Scope: u.Page.Scope, ID: u.Page.ID}.String() + "@"
	return slices.ContainsFunc(c.d.lost, func(l Loss) bool { return strings.HasPrefix(l.What, name) })
}

// held copies the drafts that wait for review. Their preconditions are compared with the versions
// in the copy. Their contexts cannot be compared, and their reason says so.
func (c *copier) held(ctx context.Context) error {
	ids := make([]ulid.ULID, 0, len(c.d.held))
	for id := range c.d.held {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].Compare(ids[j]) < 0 })
	for _, id := range ids {
		h, err := format.DecodeHeld(c.d.held[id])
		if err != nil {
			c.d.lose("held batch "+id.String(), "%v", err)
			continue
		}
		if h.Decided == "" && c.d.decided[id.String()] && !c.d.trust {
			c.d.lose("held batch "+id.String(), "the audit says it was decided, its row says it was not")
			continue
		}
		if h.Decided != "" {
			continue
		}
		b := engine.Request{Batch: h.Batch, Carried: true}
		b.Action, b.Reason, b.Now = store.ActHold, h.Reason, h.At
		if len(b.Context) > 0 {
			b.Context, b.Reason = nil, h.Reason+"; salvaged, so its context cannot be compared"
		}
		for i := range b.Expect {
			e := &b.Expect[i]
			t := c.taken[artefactKey(e.Ref.Scope, e.Ref.ID)]
			switch {
			case t != nil && t.head.LSN == e.LSN:
				e.LSN = t.lsn
			case t != nil || e.LSN != 0:
				e.LSN = store.LsnElsewhere // it was a conflict and stays one
			}
		}
		for i := range b.Puts {
			b.Puts[i].Artefact.DerivedFrom = c.derived(b.Puts[i].Artefact.DerivedFrom)
		}
		if _, err := c.commit(ctx, b); err != nil {
			return err
		}
		c.rep.Held++
	}
	return nil
}
