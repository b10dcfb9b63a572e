package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// invariantWalk compares a whole database with its invariants. Tests and `dbctl check` run it; each
// problem names a number.
//
//	I1  every row carries the checksum of its key and value
//	I2  every head row decodes, and stands under the key it names
//	I3  versions of an artefact rise by one, LSNs rise with them (but above a version that came without content, carried from
//	    another database in one commit with the next), and none is above the applied LSN
//	I4  every page row has its content, of the length, hash and salted digest it says
//	I5  page numbers are unique; a page keeps its number while its content stands
//	I6  every scope and group a head names is there, and a group belongs to the scope of its members
//	I7  the catalogue in memory says what a scan of the heads and the redo of the log say, and of each head what an erase
//	    looks for
//	I8  the audit verifies: every leaf hashes to its place in the tree
//	I9  every committed page version has a write in the audit, with the same digest
//	I10 outcomes, held batches and state decode
//	I11 bbolt's own pages are sound
//	I12 the index decodes, and its lists agree with its statistics
//	I13 every bucket has as many rows as the system row counts, and the small ones have its sum
//	I14 the directives of a scope: page, state row and the newest journal row say the same (internal/directivelog)
//	I15 every vector decodes, is finite, and belongs to a page that is there
//	I16 of a page that no version has any more nothing is there: no content, no vector (I15), nothing in the index, which
//	    has as many pages as the catalogue
//	I17 every head row, held batch and state row has the digest that its leaf says, but those from before the audit had any;
//	    and each newest version, and each state row, that the audit names has its row
//	I18 every text of a question has the digest that its leaf says
//	I19 every outcome says how the batch ended by its leaf, and each of the newest batches that the audit names has one
//
// Rows of the overlay are checked after a checkpoint has written them into the file. A walk
// continues after a problem, so that one damaged row does not hide another; a walk that cannot go
// on reports I1 and leaves the others to run.
type invariantWalk struct {
	s         *Engine
	base      Base
	ctx       context.Context
	progress  store.Progress
	problems  []store.Problem
	nums      map[uint64]format.HeadKey
	gone      map[uint64]bool // pages of versions that gc dropped, and of no others
	digests   map[uint64][32]byte
	proved    map[store.Ref]bool  // versions of artefacts in the file: whether their rows have a digest
	newest    map[store.Ref]named // newest version of each artefact in the file
	forgotten bool                // gc forgot versions of an artefact in the file
	outcomes  outcomeWalk
	failed    error // a read that failed, which says nothing about the rows
}

// MaxProblems is the most problems that a check lists. The walk goes on without listing more.
const MaxProblems = 1000

// Check walks the invariants over the rows, which belong to one LSN, and over what is in memory.
// The caller must not let a checkpoint run meanwhile: the walks take cat.mu inside a snapshot of
// the rows, which would not be safe then (see loading).
//
// The order of the walks matters. heads collects the pages, digests and newest versions that
// contents, vectors and audit compare with; a walk that runs without them would report what is not
// there. catalogue, vectors and index compare the rows with memory, under cat.mu.
func (s *Engine) Check(ctx context.Context, base Base, progress store.Progress) ([]store.Problem, error) {
	c := &invariantWalk{s: s, base: base, ctx: ctx, progress: progress, nums: map[uint64]format.HeadKey{}, gone: map[uint64]bool{}, digests: map[uint64][32]byte{}, proved: map[store.Ref]bool{}, newest: map[store.Ref]named{}}
	for _, walk := range []func() error{c.heads, c.contents, c.small, c.catalogue, c.vectors, c.index, c.questions, c.stateRows, c.audit} {
		switch err := walk(); {
		case errors.Is(err, store.ErrCorrupt): // this walk ended there; the others run
			c.bad("I1", "file", "%v", err)
		case err != nil:
			return c.problems, err
		}
		if err := cmp.Or(ctx.Err(), c.failed); err != nil {
			return c.problems, err
		}
	}
	return c.problems, nil
}

// bad adds a problem. A failed read among args is no problem of the data: it ends the check.
func (c *invariantWalk) bad(invariant, where, format string, args ...any) {
	for _, a := range args {
		var failed syscall.Errno
		if err, ok := a.(error); ok && errors.As(err, &failed) {
			c.failed = err
		}
	}
	if len(c.problems) < MaxProblems {
		c.problems = append(c.problems, store.Problem{Invariant: invariant, Where: where, What: fmt.Sprintf(format, args...)})
	}
}

// heads walks I1, I2, I3, I5, I6.
func (c *invariantWalk) heads() error {
	return c.s.rows.View(func(tx Reader) error {
		total, done := uint64(tx.Len(TableMeta)), uint64(0)
		var last *store.Head
		for k, v := range tx.From(TableMeta, nil) {
			if done++; done%4096 == 0 {
				c.progress("heads", done, total)
				if err := c.ctx.Err(); err != nil {
					return err
				}
			}
			row, err := codec.Unseal('m', k, v)
			if err != nil {
				c.bad("I1", fmt.Sprintf("meta %x", k), "%v", err)
				continue
			}
			if k[0] == 'h' {
				last = c.head(k, row, last)
			}
		}
		c.progress("heads", total, total)
		return nil
	})
}

// head checks one head row; last is the row before it.
//
// The rows of an artefact stand together and ascend by version, so the row before is enough for I3.
// A head that does not decode is passed over: its successor is compared with the last one that did.
func (c *invariantWalk) head(k, row []byte, last *store.Head) *store.Head {
	where := fmt.Sprintf("head %x", k[1:])
	h, err := format.DecodeHead(row, c.s.scopeName)
	if err != nil {
		c.bad("I2", where, "%v", err)
		return last
	}
	where = store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	if !bytes.Equal(k, format.HeadRowKey(format.HeadKey{Art: h.Art, Version: h.Version})) {
		c.bad("I2", where, "stands under key %x", k)
	}
	if err := c.s.provedHead(format.HeadKey{Art: h.Art, Version: h.Version}, row, c.s.namesOf); err != nil {
		c.bad("I17", where, "%v", err)
	}
	c.proved[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}] = true
	c.newest[store.Ref{Scope: h.Scope, ID: h.ID}] = named{version: h.Version, lsn: h.LSN}
	c.forgotten = c.forgotten || h.Floor
	if last != nil && last.Art == h.Art && (h.Version != last.Version+1 || h.LSN < last.LSN || h.LSN == last.LSN && !last.Gone) {
		c.bad("I3", where, "follows version %d of lsn %d with lsn %d", last.Version, last.LSN, h.LSN)
	}
	if h.LSN > c.base.Applied {
		c.bad("I3", where, "lsn %d is above the applied lsn %d", h.LSN, c.base.Applied)
	}
	if h.Scope == "" {
		c.bad("I6", where, "its scope is not there")
	}
	for i := range h.Rows {
		r := &h.Rows[i]
		if other, ok := c.nums[r.Num]; ok && other.Art != h.Art {
			c.bad("I5", where, "page number %d is also of artefact %d", r.Num, other.Art)
		}
		if h.ErasedBy != "" { // its digest went with it
			c.gone[r.Num] = c.nums[r.Num] == format.HeadKey{}
			continue
		}
		if d, ok := c.digests[r.Num]; ok && d != r.Digest {
			c.bad("I5", where, "page number %d changed its digest", r.Num)
		}
		c.digests[r.Num] = r.Digest
		if _, stays := c.nums[r.Num]; h.Gone {
			c.gone[r.Num] = !stays
			continue
		}
		c.nums[r.Num], c.gone[r.Num] = format.HeadKey{Art: h.Art, Version: h.Version}, false
	}
	c.s.cat.mu.RLock()
	defer c.s.cat.mu.RUnlock()
	if g := h.GroupNum; g != 0 && (g > uint64(len(c.s.cat.groups)) || c.s.cat.scopeName(c.s.cat.groups[g-1].scope) != h.Scope) {
		c.bad("I6", where, "group %d is not of its scope", g)
	}
	if c.s.cat.overlooked(h) {
		c.bad("I7", where, "an erase would not look at its artefact")
	}
	return h
}

// contents walks I1 and I4.
func (c *invariantWalk) contents() error {
	return c.s.rows.View(func(tx Reader) error {
		done, total := uint64(0), uint64(len(c.nums))
		for _, pages := range c.byHead() { // a head of many pages is decoded once, not once for each of them
			h, err := c.s.headIn(tx, c.nums[pages[0]])
			if err != nil {
				continue // told already
			}
			rows := make(map[uint64]*store.PageRow, len(h.Rows))
			for i := range h.Rows {
				rows[h.Rows[i].Num] = &h.Rows[i]
			}
			for _, num := range pages {
				if done++; done%4096 == 0 {
					c.progress("contents", done, total)
					if err := c.ctx.Err(); err != nil {
						return err
					}
				}
				key := format.TextRowKey(num)
				text, err := codec.Unseal('c', key, tx.Get(TableContent, key))
				if errors.Is(err, codec.ErrDestroyed) { // it was erased after this copy was made
					continue
				}
				if err != nil {
					c.bad("I1", fmt.Sprintf("content %d", num), "%v", err)
					continue
				}
				if r := rows[num]; r != nil { // a row that stands under another key was told as I2
					c.content(r, h, string(text))
				}
			}
		}
		for _, num := range slices.Sorted(maps.Keys(c.gone)) {
			if c.gone[num] && tx.Get(TableContent, format.TextRowKey(num)) != nil {
				c.bad("I16", fmt.Sprintf("content %d", num), "no version has this page any more")
			}
		}
		c.progress("contents", total, total)
		return nil
	})
}

// byHead groups the pages by the newest head that names them, in the order of their first pages, so
// that a head of many pages is decoded once.
//
// nums has the newest head that names a page, because heads walks versions upwards and later ones
// overwrite earlier ones. A page that a later version drops keeps its entry.
func (c *invariantWalk) byHead() [][]uint64 {
	var out [][]uint64
	at := map[format.HeadKey]int{}
	for _, num := range slices.Sorted(maps.Keys(c.nums)) {
		i, ok := at[c.nums[num]]
		if !ok {
			i = len(out)
			at[c.nums[num]], out = i, append(out, nil)
		}
		out[i] = append(out[i], num)
	}
	return out
}

// content compares a text with what its page row says: length, hash and salted digest.
func (c *invariantWalk) content(r *store.PageRow, h *store.Head, text string) {
	if int(r.Bytes) != len(text) || r.Hash != store.ContentHash(text) || r.Digest != store.SaltedDigest(r.Salt[:], text) {
		c.bad("I4", fmt.Sprintf("content %d", r.Num), "differs from the length, hash or digest in %s", store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	}
}

// small walks I13, and I1 and I10 over the other buckets.
//
// The counts say nothing about which rows there are. That an old row was put back under its key
// shows in the sum alone.
func (c *invariantWalk) small() error {
	return c.s.rows.View(func(tx Reader) error {
		n := c.base.Rows
		for _, b := range []struct {
			table Table
			want  int
		}{{TableMeta, n.meta}, {TableContent, n.content}, {TableHeld, n.held}, {TableTxn, n.txn}, {TableState, n.state}, {TableQuestion, n.question}} {
			if err := c.s.countRows(tx, b.table, b.want); err != nil {
				c.bad("I13", "bucket "+b.table.String(), "%v", err)
			}
		}
		if sum, _ := SumRows(tx); sum != n.Sum {
			c.bad("I13", "file", "rows of held, txn or state are not those that the system row was written with")
		}
		for _, b := range []struct {
			table Table
			tag   byte
			check func(row []byte) error
		}{{TableTxn, 't', outcomeDecodes}, {TableHeld, 'd', heldDecodes}, {table: TableState}} {
			err := each(tx, b.table, func(k, v []byte) error {
				if b.table != TableTxn && codec.IsDestroyed(v) {
					return nil
				}
				if b.table == TableState { // its content belongs to the pipeline
					if _, err := format.StateBodyOf(k, v); err != nil {
						c.bad("I1", fmt.Sprintf("%s %x", b.table, k), "%v", err)
					}
					return nil
				}
				row, err := codec.Unseal(b.tag, k, v)
				if err != nil {
					c.bad("I1", fmt.Sprintf("%s %x", b.table, k), "%v", err)
					return nil
				}
				if err := b.check(row); err != nil {
					c.bad("I10", fmt.Sprintf("%s %x", b.table, k), "%v", err)
				} else if b.tag == 'd' {
					c.held(k, row)
				} else {
					c.outcomes.row(k, row)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func outcomeDecodes(row []byte) error {
	_, err := format.DecodeOutcome(row)
	return err
}

func heldDecodes(row []byte) error {
	_, err := format.DecodeHeld(row)
	return err
}

// held walks I17 over a held batch.
func (c *invariantWalk) held(id, row []byte) {
	if err := c.s.provedHeld(id, row); err != nil {
		c.bad("I17", fmt.Sprintf("held %x", id), "%v", err)
	}
}

// catalogue walks I7: it builds a second catalogue from the file and compares. While the overlay
// has rows the two may differ, and the comparison is left out.
//
// Columns are compared as they are. Places in the buffer of ids and numbers of facts depend on the
// order in which rows came, so their contents are compared instead.
func (c *invariantWalk) catalogue() error {
	other := New(c.s.opts)
	err := c.s.rows.View(func(tx Reader) error {
		return other.loadMeta(tx, c.base)
	})
	if errors.Is(err, store.ErrCorrupt) {
		return nil // told already
	}
	if err != nil {
		return err
	}
	c.s.cat.mu.RLock()
	defer c.s.cat.mu.RUnlock()
	if c.s.overlay.Rows() > 0 {
		return nil
	}
	a, b := c.s.cat, other.cat
	if a.arts.len() != b.arts.len() || a.live != b.live || a.livePages != b.livePages || a.versions != b.versions {
		c.bad("I7", "catalogue", "has %d artefacts, %d live, %d pages; the file gives %d, %d, %d", a.arts.len(), a.live, a.livePages, b.arts.len(), b.live, b.livePages)
		return nil
	}
	forgot := c.forgotten || b.forgot()
	for num := range a.arts.all() {
		x, y := a.wholeArt(num), b.wholeArt(num)
		if forgot && x.since > 0 && x.since < y.since {
			x.since = y.since
		}
		if x != y {
			c.bad("I7", "catalogue", "artefact %d differs from the file: %+v, %+v", num, x, y)
		}
	}
	for num := range uint64(min(a.pages.len(), b.pages.len())) {
		x, y := a.wholePage(num+1), b.wholePage(num+1)
		if forgot && x.end > 0 && x.end < y.end {
			x.end = y.end
		}
		if x != y {
			c.bad("I7", "catalogue", "page %d differs from the file: %+v, %+v", num+1, x, y)
		}
	}
	for i := range min(len(a.scopes.cols), len(b.scopes.cols)) {
		x, y := a.scope(uint32(i+1)), b.scope(uint32(i+1))
		if x != nil && y != nil && !sameUses(x.uses, y.uses) { // nil: gc dropped its name, and its row goes with the next checkpoint
			c.bad("I7", "catalogue", "what scope %s holds differs from the file: %v, %v", x.name, x.uses, y.uses)
		}
	}
	for _, s := range a.sieves.all() {
		if num := s.stray(a); num != 0 {
			c.bad("I7", "catalogue", "page %d is on the wrong side of the filter %s", num, s.key)
		}
	}
	return nil
}

// forgot reports whether gc forgot an artefact, of which the file then has no row. It may have superseded another one for a
// time, as may versions that gc forgot: memory still knows since when, and the rows only tell of a later moment, at which the
// other one was put again or superseded by a third.
func (c *catalogue) forgot() bool {
	for _, a := range c.arts.all() {
		if a.idLen() == 0 {
			return true
		}
	}
	return false
}

// wholeArt has what a catalogue knows of an artefact, without the places where it has it.
type wholeArt struct {
	artCol
	newestCol
	succession
	id    string
	pages int
}

func (c *catalogue) wholeArt(num uint64) wholeArt {
	a := *c.art(num)
	w := wholeArt{newestCol: c.newestOf(&a), id: c.id(&a), pages: c.pageCount(num), succession: c.succession(num)}
	a.setIDAt(0)
	a.newest = 0
	a.mark(artNewest, false)
	w.artCol = a
	return w
}

// wholePage is the same of a page.
type wholePage struct {
	pageCol
	rareCol
	pageNumbers
	facts   string
	current bool
}

func (c *catalogue) wholePage(num uint64) wholePage {
	p := *c.page(num)
	w := wholePage{rareCol: *c.rareOf(&p), pageNumbers: c.numbers(&p), facts: string(c.facts.get(p.facts)), current: c.current.has(num)}
	p.rare, p.facts = 0, 0 // places and numbers are given in the order in which rows are seen
	w.pageCol = p
	return w
}

// vectors walks I15, and I1 for their rows.
func (c *invariantWalk) vectors() error {
	return c.s.rows.View(func(tx Reader) error {
		c.s.cat.mu.RLock()
		defer c.s.cat.mu.RUnlock()
		return each(tx, TableVec, func(k, v []byte) error {
			where := fmt.Sprintf("vec %x", k)
			row, err := codec.Unseal('v', k, v)
			if errors.Is(err, codec.ErrDestroyed) { // like the text of its page
				return nil
			}
			if err != nil {
				c.bad("I1", where, "%v", err)
				return nil
			}
			model, _, err := decodeVector(row)
			num, hash, ok := vecKeyOf(k)
			switch {
			case err != nil || !ok:
				c.bad("I15", where, "%v", errors.Join(err, codec.ErrMalformed))
			case hash != modelHash(model):
				c.bad("I15", where, "the key is not of model %q", model)
			case c.s.overlay.Rows() > 0 && num <= uint64(c.s.cat.pages.len()): // gc may have dropped it since
			case !c.s.cat.has(num):
				c.bad("I15", where, "there is no such page")
			}
			return nil
		})
	})
}

// index walks I12.
func (c *invariantWalk) index() error {
	return c.s.rows.View(func(tx Reader) error {
		c.s.cat.mu.RLock()
		defer c.s.cat.mu.RUnlock()
		if err := c.s.index.Check(SegRows{tx}); err != nil {
			c.bad("I12", "index", "%v", err)
			return nil
		}
		return c.indexed(SegRows{tx})
	})
}

// indexed walks I16 over the index. The caller holds cat.mu.
func (c *invariantWalk) indexed(rows SegRows) error {
	scopes := make([]uint32, len(c.s.cat.scopes.cols))
	for i := range scopes {
		scopes[i] = uint32(i + 1)
	}
	st, err := c.s.index.Stats(scopes, rows, nil)
	if err == nil && st.Pages != uint64(c.s.cat.versions) {
		c.bad("I16", "index", "has %d pages, the catalogue %d", st.Pages, c.s.cat.versions)
	}
	return err
}

// audit walks I8 and I9.
//
// The rest is only compared if the tree verifies: otherwise the leaves prove nothing about the rows.
func (c *invariantWalk) audit() error {
	v, err := c.s.Leaves.Verify(c.ctx, nil, func(done, total uint64) { c.progress("audit", done, total) })
	if err != nil && v.Found == 0 {
		return err
	}
	for _, p := range v.Problems {
		c.bad("I8", "audit", "%v", p)
	}
	if len(v.Problems) > 0 {
		return nil
	}
	written := map[uint64][]byte{}
	last := map[store.Ref]named{}
	refs := map[uint64]store.Ref{} // by page: an erase that takes names tells its deletions by number
	err = c.s.Leaves.Each(c.ctx, 0, c.s.Leaves.Size(), false, func(r *manifest.Record) error {
		c.outcome(r)
		for _, w := range r.Writes {
			if len(w.Digest) > 0 {
				written[w.Num] = w.Digest
			}
			ref, err := store.ParseRef(w.Ref)
			of := store.Ref{Scope: ref.Scope, ID: ref.ID}
			if was, ok := refs[w.Num]; ok && w.Ref == "" && w.Deleted {
				of, err = was, nil
			}
			if err == nil && len(r.Rows) > 0 && !w.Touch && !w.Gone && r.LSN <= c.base.Applied {
				last[of], refs[w.Num] = named{w.Version, w.Deleted, r.LSN}, of
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.rowsOf(last)
	c.outcomesDue()
	for _, num := range slices.Sorted(maps.Keys(c.digests)) {
		if d := c.digests[num]; !bytes.Equal(written[num], d[:]) {
			c.bad("I9", fmt.Sprintf("page %d", num), "the audit says digest %x, the file %x", shortDigest(written[num]), d[:4])
		}
	}
	return nil
}

// named is the newest version of an artefact that a leaf with digests names, or that the file has.
type named struct {
	version uint32
	deleted bool
	lsn     uint64
}

// rowsOf walks the rest of I17: the version that the audit names last has its row, with its digest.
// An artefact that was deleted and forgotten has none; put again it begins with version 1, by a leaf whose names may be pruned.
func (c *invariantWalk) rowsOf(last map[store.Ref]named) {
	refs := slices.SortedFunc(maps.Keys(last), func(a, b store.Ref) int { return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.ID, b.ID)) })
	for _, r := range refs {
		is, was := c.newest[r], last[r]
		r.Version = was.version
		switch {
		case was.deleted && (is.version == 0 || is.lsn > was.lsn):
		case is.version < was.version:
			c.bad("I17", r.String(), "the audit says it was written, the file has versions up to %d", is.version)
		case is.version == was.version && !c.proved[r]:
			c.bad("I17", r.String(), "%v", format.ErrEdited)
		}
	}
}

// shortDigest is the first four bytes of a digest for a message; zeros where there is none.
func shortDigest(d []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(append(append([]byte(nil), d...), 0, 0, 0, 0)))
}

// each shows fn every row of a table.
func each(tx Reader, t Table, fn func(k, v []byte) error) error {
	for k, v := range tx.From(t, nil) {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// sameUses compares what two scopes hold. Kinds that one of them left out have nothing in the other.
func sameUses(a, b []use) bool {
	for i := range max(len(a), len(b)) {
		var x, y use
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return false
		}
	}
	return true
}
