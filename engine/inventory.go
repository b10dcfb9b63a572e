package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A row is compared with the audit when its page is loaded (rowproof.go). A page that a context
// leaves out is not loaded. So an attacker could hide a page by editing its row, to make it count
// as expired, distrusted, deleted, replaced or of another scope, or by removing the row. The
// catalogue decides which pages are left out, and it is built from the head rows. So all head rows
// are compared with the audit once, by the first question or listing after an open.
//
//	rows      every head row has the digest in the leaf that it names; each claims one digest                  claim
//	leaves    what a digest that no row claims was written for is deleted, or has a newer row; or is missing    missing
//	doubts    what is missing, by name: counted in every context of its scope, and an error of Get              nameDoubted
//
// Rows that come later are our own.
//
// Rejected: to look only at what a question leaves out. A row of another artefact or scope may be
// the reason, and where a row was removed there is nothing to look at. Rejected: a sum of all rows
// in the audit. It must not be forgeable by rows of the forger's choice, and such sums cost more
// than the digests.
//
// Locks: busy is a token, taken before cat.mu and before any snapshot, and never while either is
// held. So a question waits for the inventory without blocking commits.

// doubt is an artefact whose rows and whose leaves do not agree. A put of the artefact ends it: the
// newest version is then one that this process wrote (doubtHolds).
type doubt struct {
	scope, id string
	key       store.PageKey // of its first page, as the audit or the row has it
	lsn       uint64        // versions put after this LSN are not in doubt
}

// inventory is made once, by the first caller of doubts.
type inventory struct {
	busy  chan struct{} // has a token while the inventory is made
	found atomic.Pointer[found]
}

// found is what an inventory found. It does not change.
type found struct {
	doubts []doubt
	lsn    uint64            // it compared everything written up to here
	state  map[string]bool   // state rows that are not the newest of their keys, or were never committed
	tags   map[stateTag]bool // the tags of missing state rows
	places *statePlaces      // of the snapshot that stood for it; nil: rows were looked at
}

// stateTag stands for the key of a state row in the audit; see Engine.stateTag.
type stateTag [8]byte

// inventoryRows is how many rows are read in one snapshot: a longer snapshot would hold up a
// checkpoint.
const inventoryRows = 4096

// inventoryReaders is the most goroutines that read rows for it: the host has work of its own.
const inventoryReaders = 4

// doubts are the artefacts that an edit of the rows changed or hides. The first caller waits until
// all rows were compared, about a microsecond each; the others get its findings. An error is of
// ctx, or of reading; it is not kept, and the next caller begins again.
func (s *Engine) doubts(ctx context.Context) ([]doubt, error) {
	if s.opts.Trust {
		return nil, nil
	}
	if known := s.inventory.found.Load(); known != nil {
		return known.doubts, nil
	}
	select {
	case s.inventory.busy <- struct{}{}:
		defer func() { <-s.inventory.busy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known := s.inventory.found.Load(); known != nil {
		return known.doubts, nil
	}
	f, err := s.takeStock(ctx)
	if err != nil {
		return nil, err
	}
	s.inventory.found.Store(f)
	return f.doubts, nil
}

// takeStock makes an inventory. Rows that a checkpoint moved during the walk may look missing; then
// it begins anew.
func (s *Engine) takeStock(ctx context.Context) (*found, error) {
	for try := 0; ; try++ {
		released := s.releases.Load()
		t := &stocktaking{s: s, ctx: ctx, found: &found{state: map[string]bool{}, tags: map[stateTag]bool{}}}
		if err := t.take(); err != nil {
			return nil, err
		}
		if len(t.state)+len(t.tags) == 0 || s.releases.Load() == released || try == 3 {
			return t.found, nil
		}
	}
}

// doubted returns the error for an artefact in doubt, if the inventory was made. The caller holds
// cat.mu.
func (s *Engine) doubted(scope, id string) error {
	known := s.inventory.found.Load()
	if known == nil {
		return nil
	}
	for i := range known.doubts {
		if d := &known.doubts[i]; d.scope == scope && d.id == id && s.doubtHolds(d) {
			return s.Corrupt("rows of "+store.Ref{Scope: scope, ID: id}.String(), errMissing)
		}
	}
	return nil
}

// doubtHolds reports whether the doubted artefact was not put again since. The caller holds cat.mu.
func (s *Engine) doubtHolds(d *doubt) bool {
	art := s.cat.lookup(s.cat.byName[d.scope], d.id)
	return art == 0 || s.cat.art(art).lsn <= d.lsn
}

var errMissing = errors.New("they are not the rows that the audit says were committed")

// stocktaking is an inventory in progress.
//
// The rows are read first and then the leaves, each in one pass. claimed joins the two passes: a
// leaf whose digests are all claimed by rows needs no second look, and that is nearly every leaf.
type stocktaking struct {
	s   *Engine
	ctx context.Context
	*found
	scan    *manifest.RowScan
	scopes  []string // by number-1, when it began
	groups  []string
	arts    uint64   // how many numbers of artefacts there were then
	claimed []uint16 // digests of each leaf that rows claim
	wrong   []format.HeadKey
	held    map[stateTag]stateAt // state rows that there are
	named   map[stateTag]stateAt // the newest of each key that the leaves name
}

// claim is the place where a row says that its digest is, and the digest it has.
type claim struct {
	proof format.Proof
	key   format.HeadKey
	is    [32]byte
}

// take does the steps in order. scan fixes the leaves that count before any row is read, so a row
// that names a later leaf was written since and is ours.
func (t *stocktaking) take() (err error) {
	if t.scan, err = t.s.Leaves.ScanRows(); err != nil {
		return AuditError(err)
	}
	t.names()
	t.claimed = make([]uint16, t.scan.Size())
	if err := t.heads(); err != nil {
		return err
	}
	if err := t.stateRows(); err != nil {
		return err
	}
	if err := t.edited(); err != nil {
		return err
	}
	if err := t.missing(); err != nil {
		return err
	}
	return t.states()
}

// names copies the names that rows refer to by number before any row is read: the catalogue's lock
// must not be waited for in a snapshot of the rows.
func (t *stocktaking) names() {
	c := t.s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	t.lsn, t.arts = c.lsn, uint64(c.arts.len())
	t.unfiled()
	for i := range c.scopes {
		t.scopes = append(t.scopes, c.scopeName(uint32(i+1)))
	}
	t.groups = make([]string, len(c.groups))
	for i := range c.groups {
		t.groups[i] = c.groups[i].name
	}
}

// headPart is what the head rows of some artefacts, which follow each other, claim.
type headPart struct {
	claims []claim
	wrong  []format.HeadKey // rows that say themselves that they are none of ours
	err    error
}

// heads holds all head rows against the audit. Most of the time goes into digests, so several
// goroutines read, each the rows of inventoryRows artefacts at a time. The rows are then compared
// here in their order, so the findings do not depend on which goroutine was first. The last part
// has no end: rows of numbers that no artefact has are found, too.
func (t *stocktaking) heads() error {
	ctx, stop := context.WithCancel(t.ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	n := int(t.arts/inventoryRows) + 1
	parts, readers := make([]chan headPart, n), min(runtime.GOMAXPROCS(0), inventoryReaders, n)
	for i := range parts {
		parts[i] = make(chan headPart, 1)
	}
	var next atomic.Int64
	ahead := make(chan struct{}, 2*readers) // parts that were read and not compared: they are memory
	for range readers {
		reading.Go(func() {
			for {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				parts[i] <- t.readPart(ctx, i, i == n-1)
			}
		})
	}
	for i := range parts {
		select {
		case p := <-parts[i]:
			<-ahead
			t.wrong = append(t.wrong, p.wrong...)
			if p.err == nil {
				p.err = t.compare(p.claims)
			}
			if p.err != nil {
				return p.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// readPart reads the rows of a part, in snapshots of a bounded length: an artefact may have any
// number of versions.
func (t *stocktaking) readPart(ctx context.Context, i int, last bool) (p headPart) {
	p.claims = make([]claim, 0, inventoryRows)
	from, to := format.HeadRowKey(format.HeadKey{Art: uint64(i) * inventoryRows}), format.HeadRowKey(format.HeadKey{Art: uint64(i+1) * inventoryRows})
	if last {
		to = []byte{'h' + 1}
	}
	for from != nil && p.err == nil {
		if p.err = ctx.Err(); p.err != nil {
			return p
		}
		p.err = t.s.rows.View(func(tx Reader) error {
			from = t.read(tx, from, to, &p)
			return nil
		})
	}
	return p
}

// read takes the claims of some rows below a key, and gives the key of the next one; nil: there is
// none.
func (t *stocktaking) read(tx Reader, from, to []byte, p *headPart) (next []byte) {
	n := 0
	for k, v := range tx.From(TableMeta, from) {
		if len(k) != 13 || bytes.Compare(k, to) >= 0 {
			return nil
		}
		if n++; n > inventoryRows {
			return slices.Clone(k)
		}
		key := format.HeadKey{Art: binary.BigEndian.Uint64(k[1:]), Version: binary.BigEndian.Uint32(k[9:])}
		row, err := codec.Unseal('m', k, v)
		if err != nil {
			p.wrong = append(p.wrong, key)
			continue
		}
		h := format.DecodeHot(&codec.Decoder{B: row})
		if row[0] == format.RowVersionOld {
			if t.s.unproved(h.LSN) != nil {
				p.wrong = append(p.wrong, key)
			}
			continue
		}
		rest, proof, err := format.CutHeadProof(row)
		if err == nil && t.s.destroyed(proof) {
			continue
		}
		if err != nil || h.Art != key.Art || h.Version != key.Version || proof.Leaf < t.scan.Size() && (int(h.Scope) > len(t.scopes) || h.Group > uint64(len(t.groups))) {
			p.wrong = append(p.wrong, key)
			continue
		}
		if proof.Leaf >= t.scan.Size() && h.LSN > t.lsn { // written since
			continue
		}
		scope, group := "", ""
		if h.Scope != 0 && int(h.Scope) <= len(t.scopes) {
			scope = t.scopes[h.Scope-1]
		}
		if h.Group != 0 && h.Group <= uint64(len(t.groups)) {
			group = t.groups[h.Group-1]
		}
		p.claims = append(p.claims, claim{proof, key, format.HeadDigest(proof.Salt[:], scope, group, rest)})
	}
	return nil
}

// compare looks the claims up in the audit, in the order of its leaves.
func (t *stocktaking) compare(claims []claim) error {
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.proof.Leaf, b.proof.Leaf), cmp.Compare(a.proof.Place, b.proof.Place))
	})
	for i := range claims {
		c := &claims[i]
		has, err := t.scan.Digests(c.proof.Leaf)
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		at := int(c.proof.Place) * len(c.is)
		repeated := i > 0 && claims[i-1].proof.Leaf == c.proof.Leaf && claims[i-1].proof.Place == c.proof.Place // one digest, two rows
		if err != nil || at+len(c.is) > len(has.Rows) || [32]byte(has.Rows[at:]) != c.is || repeated {
			t.wrong = append(t.wrong, c.key)
			continue
		}
		t.claimed[c.proof.Leaf]++
	}
	return nil
}

// damagedLeaf tells damage of a leaf from a read that failed.
func damagedLeaf(err error) bool {
	var ce *store.CorruptError
	return errors.As(err, &ce) || errors.Is(err, manifest.ErrNoLeaf)
}

// edited names the artefacts of rows that do not have the digest they claim, and the artefacts that
// such a row says it replaced.
func (t *stocktaking) edited() error {
	s := t.s
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, k := range t.wrong {
		if k.Art == 0 || k.Art > uint64(s.cat.arts.len()) || s.cat.art(k.Art).idLen() == 0 {
			continue // gc forgot it during the walk
		}
		_, err := s.headLocked(k) // it may have been replaced since it was read
		if err == nil {
			continue
		}
		if !errors.Is(err, store.ErrCorrupt) {
			return err
		}
		a := s.cat.art(k.Art)
		t.doubt(s.cat.scopeName(a.scope), s.cat.id(a), store.PageKey{Num: uint64(a.first), Version: k.Version})
		if a.flags&format.FlagSupersedes == 0 {
			continue
		}
		for num, x := range s.cat.arts.all() {
			if uint64(s.cat.succession(num).by) == k.Art {
				t.doubt(s.cat.scopeName(x.scope), s.cat.id(x), store.PageKey{Num: uint64(x.first), Version: x.version})
			}
		}
	}
	return nil
}

// doubt notes an artefact once.
func (t *stocktaking) doubt(scope, id string, key store.PageKey) {
	if !slices.ContainsFunc(t.doubts, func(d doubt) bool { return d.scope == scope && d.id == id }) {
		t.doubts = append(t.doubts, doubt{scope, id, key, t.lsn})
	}
}

// missing goes through the leaves that have digests no row claims, oldest first. The row that such
// a leaf wrote was rewritten since, or deleted and forgotten. If it was neither, its row was edited
// or removed. Digests of held batches do not belong to heads, and what gc drops is never the newest
// version.
func (t *stocktaking) missing() error {
	gone := lost{map[store.Ref]store.PageKey{}, map[uint64]store.Ref{}}
	for i := uint64(0); i < t.scan.Size(); i++ {
		if i%inventoryRows == 0 && t.ctx.Err() != nil {
			return t.ctx.Err()
		}
		has, err := t.scan.Digests(i)
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		t.name(i, has.State)
		if len(has.Rows) == int(t.claimed[i])*32 {
			continue
		}
		leaf, err := t.scan.Leaf(i)
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		if err != nil || leaf.LSN > t.lsn { // a damaged leaf is reported when the audit is verified
			continue
		}
		if err := t.unclaimed(leaf, gone); err != nil {
			return err
		}
	}
	for ref, key := range gone.keys {
		t.doubt(ref.Scope, ref.ID, key)
	}
	slices.SortFunc(t.doubts, func(a, b doubt) int { return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.id, b.id)) })
	return nil
}

// lost describes a version without a row; a later leaf may say that it was deleted. The stub of
// such a leaf names nothing: then the number of a page tells what it was about.
type lost struct {
	keys map[store.Ref]store.PageKey
	refs map[uint64]store.Ref // by number of a page
}

// unclaimed decides what a leaf wrote is: replaced, deleted, or missing.
func (t *stocktaking) unclaimed(leaf *manifest.Record, gone lost) error {
	s := t.s
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	sound := uint64(0) // the artefact whose head was read last: a leaf names each of its pages, and the head has all of them
	for _, w := range leaf.Writes {
		if w.Ref == "" && w.Deleted && w.Num != 0 {
			delete(gone.keys, gone.refs[w.Num])
		}
		ref, err := store.ParseRef(w.Ref)
		if err != nil || w.Touch || w.Gone {
			continue
		}
		ref = store.Ref{Scope: ref.Scope, ID: ref.ID}
		art := s.cat.lookup(s.cat.byName[ref.Scope], ref.ID)
		is := uint32(0)
		if art != 0 {
			if is = s.cat.art(art).version; is > w.Version {
				continue
			}
			if !s.cat.hasPage(art, w.Num) { // gc forgot the artefact that had the name then
				art = 0
			}
		}
		if art == 0 {
			if w.Deleted {
				delete(gone.keys, ref)
				continue
			}
			gone.refs[w.Num] = ref
			if _, known := gone.keys[ref]; !known {
				gone.keys[ref] = store.PageKey{Num: w.Num, Version: w.Version}
			}
			continue
		}
		if is == w.Version {
			if art == sound {
				continue
			}
			if _, err = s.headLocked(format.HeadKey{Art: art, Version: is}); err == nil {
				sound = art
				continue
			}
			if !errors.Is(err, store.ErrCorrupt) {
				return err
			}
		}
		t.doubt(ref.Scope, ref.ID, store.PageKey{Num: w.Num, Version: w.Version})
	}
	return nil
}

// hasPage reports whether a page ever belonged to an artefact. The numbers of a forgotten artefact
// belong to none.
func (c *catalogue) hasPage(art, num uint64) bool {
	return num > 0 && num <= uint64(c.pages.len()) && uint64(c.page(num).art) == art
}

// nameDoubted reports artefacts as damaged that the rows hide from the scopes of a question. Damage
// of a candidate is found when it is loaded. The caller holds cat.mu.
func (s *Engine) nameDoubted(doubts []doubt, q *store.CandidateQuery, found []proposal, out *store.Candidates) {
	var e *store.Excluded
	for i := range doubts {
		d := &doubts[i]
		if !slices.Contains(q.Scopes, d.scope) || !s.doubtHolds(d) || slices.ContainsFunc(q.Mask, func(r store.Ref) bool { return r.Scope == d.scope && r.ID == d.id }) {
			continue
		}
		art := s.cat.lookup(s.cat.byName[d.scope], d.id)
		if art != 0 && slices.ContainsFunc(found, func(p proposal) bool { return uint64(s.cat.page(p.num).art) == art }) {
			continue
		}
		if e == nil {
			e = excludedFor(out, store.ReasonDamaged)
		}
		if e.Count, e.Matched = e.Count+1, e.Matched+1; len(e.Nearest) < namedDoubts {
			e.Nearest = append(e.Nearest, store.Candidate{Key: d.key, Ref: store.Ref{Scope: d.scope, ID: d.id}, Excluded: store.ReasonDamaged})
		}
	}
}

// namedDoubts is how many doubts a question names: there are few, and one of them may be the page
// it needs.
const namedDoubts = 100

// listedWhole refuses a listing of a scope whose rows hide some of it.
func (s *Engine) listedWhole(doubts []doubt, scope string) error {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for i := range doubts {
		if d := &doubts[i]; d.scope == scope && s.doubtHolds(d) {
			return s.Corrupt("rows of "+store.Ref{Scope: d.scope, ID: d.id}.String(), fmt.Errorf("%w; without them the list is not whole", errMissing))
		}
	}
	return nil
}
