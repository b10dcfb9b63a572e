package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A row is held against the audit when its page is loaded (rowproof.go). A page that a context leaves out is not loaded:
// who edits its row so that it counts as expired, distrusted, deleted, replaced or of another scope, or takes the row away,
// hides it. All that is left out follows from the catalogue, and the catalogue from the head rows; so all of these are held
// against the audit once, by the first question or listing after an open.
//
//	rows      every head row has the digest in the leaf that it names; each claims one digest           claim
//	leaves    what a digest that no row claims was written for is deleted, or has a newer row; or gone  missing
//	doubts    what is neither, by name: counted in every context of its scope, and an error of Get      nameDoubted
//
// Rows that come later are our own. Rejected: to look at what a question leaves out only. A row of another artefact, or of
// another scope, may be why, and there is nothing to look at where a row was taken away. Rejected: a sum of all rows in the
// audit. It must not be forgeable by rows of the forger's choice, and such sums cost more than the digests do.

// doubt is an artefact of which the rows and the audit do not say the same.
type doubt struct {
	scope, id string
	key       store.PageKey // of its first page, as the audit or the row has it
	lsn       uint64        // up to which that is so: what is put later holds
}

// inventory is made once.
type inventory struct {
	busy  chan struct{} // holds one token while it is made
	found atomic.Pointer[found]
}

// found is what an inventory found. It is not changed any more.
type found struct {
	doubts []doubt
	lsn    uint64            // up to which it looked; what is written later holds
	state  map[string]bool   // state rows that are not the newest of their keys, or are none of ours
	tags   map[stateTag]bool // of state rows that are missing
}

type stateTag [8]byte

// inventoryRows is how many rows are read in one snapshot: a longer one would hold up a checkpoint.
const inventoryRows = 4096

// doubts are the artefacts that an edit of the rows changed or hides. The first caller waits until all rows were compared,
// about a microsecond each; the others get what it found.
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

// takeStock makes an inventory. Rows that a checkpoint moved under it may look missing: then it begins anew.
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

// doubted is the doubt about an artefact, as far as the inventory was made. The caller holds cat.mu.
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

// doubtHolds says whether nothing was put in the place of what is doubted. The caller holds cat.mu.
func (s *Engine) doubtHolds(d *doubt) bool {
	art := s.cat.lookup(s.cat.byName[d.scope], d.id)
	return art == 0 || s.cat.art(art).lsn <= d.lsn
}

var errMissing = errors.New("they are not those that the audit says were committed")

// stocktaking is an inventory under way.
type stocktaking struct {
	s   *Engine
	ctx context.Context
	*found
	scan    *manifest.RowScan
	scopes  []string // by number-1, as of then
	groups  []string
	claimed []uint16 // digests of each leaf that rows claim
	wrong   []HeadKey
	held    map[stateTag]stateAt // state rows that there are
	named   map[stateTag]stateAt // the newest of each key that the leaves name
}

// claim is a row's claim to a digest.
type claim struct {
	proof rowProof
	key   HeadKey
	is    [32]byte
}

func (t *stocktaking) take() (err error) {
	if t.scan, err = t.s.Leaves.ScanRows(); err != nil {
		return AuditError(err)
	}
	t.names()
	t.claimed = make([]uint16, t.scan.Size())
	for from := []byte{'h'}; from != nil; {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		var claims []claim
		err := t.s.rows.View(func(tx Reader) error {
			claims, from = t.read(tx, from)
			return nil
		})
		if err == nil {
			err = t.compare(claims)
		}
		if err != nil {
			return err
		}
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

// names takes the names that rows stand for, before any row is read: the catalogue's lock must not be waited for in a
// snapshot of the rows.
func (t *stocktaking) names() {
	c := t.s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	t.lsn = c.lsn
	t.unfiled()
	for i := range c.scopes {
		t.scopes = append(t.scopes, c.scopes[i].name)
	}
	t.groups = make([]string, len(c.groups))
	for i := range c.groups {
		t.groups[i] = c.groups[i].name
	}
}

// read takes the claims of some rows, and gives the key of the next one; nil: there is none.
func (t *stocktaking) read(tx Reader, from []byte) (claims []claim, next []byte) {
	claims = make([]claim, 0, inventoryRows)
	n := 0
	for k, v := range tx.From(TableMeta, from) {
		if len(k) != 13 || k[0] != 'h' {
			return claims, nil
		}
		if n++; n > inventoryRows {
			return claims, slices.Clone(k)
		}
		key := HeadKey{binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(k[9:])}
		row, err := codec.Unseal('m', k, v)
		if err != nil {
			t.wrong = append(t.wrong, key)
			continue
		}
		h := DecodeHot(&codec.Decoder{B: row})
		if row[0] == rowVersionOld {
			if t.s.unproved(h.lsn) != nil {
				t.wrong = append(t.wrong, key)
			}
			continue
		}
		rest, p, err := cutProof(row)
		if err != nil || h.Art != key.Art || h.Version != key.Version || p.leaf < t.scan.Size() && (int(h.Scope) > len(t.scopes) || h.group > uint64(len(t.groups))) {
			t.wrong = append(t.wrong, key)
			continue
		}
		if p.leaf >= t.scan.Size() && h.lsn > t.lsn { // written since
			continue
		}
		scope, group := "", ""
		if h.Scope != 0 && int(h.Scope) <= len(t.scopes) {
			scope = t.scopes[h.Scope-1]
		}
		if h.group != 0 && h.group <= uint64(len(t.groups)) {
			group = t.groups[h.group-1]
		}
		claims = append(claims, claim{p, key, headDigest(p.salt[:], scope, group, rest)})
	}
	return claims, nil
}

// compare looks the claims up in the audit, in the order of its leaves.
func (t *stocktaking) compare(claims []claim) error {
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.proof.leaf, b.proof.leaf), cmp.Compare(a.proof.place, b.proof.place))
	})
	for i := range claims {
		c := &claims[i]
		has, err := t.scan.Digests(c.proof.leaf)
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		at := int(c.proof.place) * len(c.is)
		repeated := i > 0 && claims[i-1].proof.leaf == c.proof.leaf && claims[i-1].proof.place == c.proof.place // one digest, two rows
		if err != nil || at+len(c.is) > len(has.Rows) || [32]byte(has.Rows[at:]) != c.is || repeated {
			t.wrong = append(t.wrong, c.key)
			continue
		}
		t.claimed[c.proof.leaf]++
	}
	return nil
}

// damagedLeaf tells a leaf that says nothing from files that could not be read.
func damagedLeaf(err error) bool {
	var ce *store.CorruptError
	return errors.As(err, &ce) || errors.Is(err, manifest.ErrNoLeaf)
}

// edited names the artefacts of rows that have not the digest they claim, and those that they say they replaced.
func (t *stocktaking) edited() error {
	s := t.s
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, k := range t.wrong {
		if k.Art == 0 || k.Art > uint64(len(s.cat.arts)) || s.cat.art(k.Art).keyLen == 0 {
			continue // gc forgot it meanwhile
		}
		_, err := s.headLocked(k) // it may have been replaced since it was read
		if err == nil {
			continue
		}
		if !errors.Is(err, store.ErrCorrupt) {
			return err
		}
		a := s.cat.art(k.Art)
		t.doubt(s.cat.scopeName(a.scope), s.cat.id(a), store.PageKey{Num: a.first, Version: k.Version})
		for i := range s.cat.arts {
			if x := &s.cat.arts[i]; x.by == k.Art && a.flags&flagSupersedes != 0 {
				t.doubt(s.cat.scopeName(x.scope), s.cat.id(x), store.PageKey{Num: x.first, Version: x.version})
			}
		}
	}
	return nil
}

func (t *stocktaking) doubt(scope, id string, key store.PageKey) {
	if !slices.ContainsFunc(t.doubts, func(d doubt) bool { return d.scope == scope && d.id == id }) {
		t.doubts = append(t.doubts, doubt{scope, id, key, t.lsn})
	}
}

// missing goes through the leaves whose digests no row claims, oldest first. What such a leaf wrote was written anew since,
// or deleted and forgotten; where it was neither, its row was edited or taken away. Digests of held batches are no head's,
// and gc drops what is not the newest.
func (t *stocktaking) missing() error {
	gone := map[store.Ref]store.PageKey{} // without a row; a later leaf may say that it was deleted
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
		if err != nil || leaf.LSN > t.lsn { // damaged: the check of the audit tells
			continue
		}
		if err := t.unclaimed(leaf, gone); err != nil {
			return err
		}
	}
	for ref, key := range gone {
		t.doubt(ref.Scope, ref.ID, key)
	}
	slices.SortFunc(t.doubts, func(a, b doubt) int { return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.id, b.id)) })
	return nil
}

// unclaimed looks at what a leaf wrote.
func (t *stocktaking) unclaimed(leaf *manifest.Record, gone map[store.Ref]store.PageKey) error {
	s := t.s
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	sound := uint64(0) // the artefact whose head was read last: a leaf names each of its pages, and the head has all of them
	for _, w := range leaf.Writes {
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
				delete(gone, ref)
			} else if _, known := gone[ref]; !known {
				gone[ref] = store.PageKey{Num: w.Num, Version: w.Version}
			}
			continue
		}
		if is == w.Version {
			if art == sound {
				continue
			}
			if _, err = s.headLocked(HeadKey{art, is}); err == nil {
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

// hasPage says whether a page was ever one of an artefact. The numbers of an artefact that gc forgot are nobody's.
func (c *catalogue) hasPage(art, num uint64) bool {
	return num > 0 && num <= uint64(len(c.pages)) && c.page(num).art == art
}

// nameDoubted counts as damaged what the rows hide of the scopes of a question. What is a candidate all the same is found
// damaged when it is loaded. The caller holds cat.mu.
func (s *Engine) nameDoubted(doubts []doubt, q *store.CandidateQuery, found []proposal, out *store.Candidates) {
	var e *store.Excluded
	for i := range doubts {
		d := &doubts[i]
		if !slices.Contains(q.Scopes, d.scope) || !s.doubtHolds(d) || slices.ContainsFunc(q.Mask, func(r store.Ref) bool { return r.Scope == d.scope && r.ID == d.id }) {
			continue
		}
		art := s.cat.lookup(s.cat.byName[d.scope], d.id)
		if art != 0 && slices.ContainsFunc(found, func(p proposal) bool { return s.cat.page(p.num).art == art }) {
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

// namedDoubts is how many doubts a question names: there are few, and one of them may be what it cannot do without.
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
