package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The rows that gc leaves behind are bounded too:
//
//	records   the newest few rows of dropped versions of an artefact stay; the oldest of these is its floor
//	names     the newest of the deleted and dropped artefacts keep their rows; the others are forgotten
//	drafts    what past contexts showed of drafts, which only Replay reads
//	reviews   held batches that were approved or rejected
//	journals  records of passes and directives that newer ones replaced (drop.go)
//	scopes    names of scopes in which nothing is left (drop.go)
//
// The first two travel as head rows with a flag of their own (format.FlagFloor, FlagForgotten), the others
// as state rows. So the log orders and repeats them like any commit.
//
// Invariant: a number is never used again. After an artefact is forgotten nothing in the rows says
// that its number was used, so the system row keeps the highest numbers (highest), and pad restores
// the length of the tables at open. Audit leaves name pages by number, so a number that came back
// would make them name another artefact's page.

// outcomesKept is the number of outcomes that the file keeps. Older ids are looked up in the
// audit (usedBefore).
const outcomesKept = 10_000

const reviewGonePrefix = format.ReviewGonePrefix

// forgotten is an artefact of which the rows below a version go, or all rows.
type forgotten struct {
	art   uint64
	below uint32
	group uint64 // the group of its own pages, which goes with it; 0: none
	whole bool
}

// highest are the highest numbers given, as of a checkpoint: the number of a forgotten artefact
// must not be given to another.
type highest struct{ art, num, group, scope uint64 }

// add raises the numbers to the ones of another moment.
func (h *highest) add(o highest) {
	h.art, h.num, h.group, h.scope = max(h.art, o.art), max(h.num, o.num), max(h.group, o.group), max(h.scope, o.scope)
}

// String is the form in the system row: artefact, page, group, scope.
func (h highest) String() string { return fmt.Sprintf("%d %d %d %d", h.art, h.num, h.group, h.scope) }

// parseHighest reads that form. "" is all zeros: the
// numbers follow from the rows.
func parseHighest(s string) (h highest, err error) {
	if s == "" { // nothing was written yet
		return h, nil
	}
	if strings.Count(s, " ") != 3 {
		return h, codec.ErrMalformed
	}
	_, err = fmt.Sscanf(s, "%d %d %d %d", &h.art, &h.num, &h.group, &h.scope)
	return h, err
}

// pad extends the tables of the catalogue to the length they had when the file was written. Both bounds
// are of hostile numbers: artefacts and scopes have 32 bits, and pageLimit bounds files of this
// size can have.
func (s *Engine) pad(h highest) error {
	if max(h.art, h.num, h.group, h.scope) > mostNumber || s.pageLimit != 0 && max(h.art, h.num, h.group, h.scope) > s.pageLimit {
		return fmt.Errorf("highest numbers %v are not possible in files of this size", h)
	}
	c := s.cat
	c.growArts(int(h.art))
	c.pages.grow(int(h.num))
	c.groups = append(c.groups, make([]groupCol, max(0, int(h.group)-len(c.groups)))...)
	c.scopes.grow(int(h.scope))
	return nil
}

// installForget makes it visible that rows go. The caller holds cat.mu, or is recovery. The columns
// of the pages of an artefact that is forgotten are the caller's: to find them takes a walk over
// all, which is made once for a record.
func (s *Engine) installForget(t *format.Hot, rows []store.PageRow, row []byte) error {
	c, o := s.cat, s.overlay
	if t.Art == 0 || t.Art > uint64(c.arts.len()) || c.newestOf(c.art(t.Art)).version < t.Version {
		return codec.ErrMalformed
	}
	f := forgotten{art: t.Art, below: t.Version, whole: t.Flags&format.FlagForgotten != 0}
	if !f.whole {
		k := format.HeadKey{Art: t.Art, Version: t.Version}
		o.heads[k] = row
		o.Bytes += len(row)
		o.forgot = append(o.forgot, f)
		c.clear(map[uint64]uint32{t.Art: t.Version}, rows)
		return nil
	}
	if a := c.art(t.Art); a.live() || c.newestOf(a).version != t.Version {
		return codec.ErrMalformed
	}
	own := artKey{t.Scope, "\x00" + string(t.ID)}
	if f.group = c.named[own]; f.group != 0 {
		delete(c.named, own)
		c.groups[f.group-1] = groupCol{}
	}
	o.forgot = append(o.forgot, f)
	c.forget(t.Art)
	return nil
}

// clear empties the columns of pages that no row names any more: those that arts ended up to a
// version, except the pages in but.
func (c *catalogue) clear(arts map[uint64]uint32, but []store.PageRow) {
	if len(arts) == 0 {
		return
	}
	for num, p := range c.pages.all() {
		if upTo := arts[uint64(p.art)]; p.art == 0 || !p.gone() || c.numbers(p).version > upTo {
			continue
		}
		if !slices.ContainsFunc(but, func(r store.PageRow) bool { return r.Num == num }) {
			c.setRare(p, nothing)
			if p.wide() {
				delete(c.wide, p.rare)
			}
			*p = pageCol{}
			c.dropped--
		}
	}
}

// forget takes a deleted artefact out of the tables. Its column stays, empty, so that no number
// moves. The table is open addressing without marks for removed places: the entries behind are
// moved up instead, so a search never gets longer by what was forgotten.
func (c *catalogue) forget(num uint64) {
	a := c.art(num)
	mask := uint64(len(c.table) - 1)
	i := keyHash(a.scope, c.id(a)) & mask
	for uint64(c.table[i]) != num {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; c.table[j] != 0; j = (j + 1) & mask { // close the gap: a search ends at the first empty place
		b := c.art(uint64(c.table[j]))
		if home := keyHash(b.scope, c.id(b)) & mask; (j-home)&mask >= (j-i)&mask {
			c.table[i], i = c.table[j], j
		}
	}
	c.table[i] = 0
	c.used--
	c.scope(a.scope).byID.remove(num)
	c.setSuccession(num, succession{})
	*a, *c.history.at(num - 1) = artCol{}, 0
}

// remove makes a new slice, because readers may hold the old one.
func (l *idList) remove(art uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.arts, uint32(art))
	if at < 0 {
		return
	}
	l.arts = slices.Concat(l.arts[:at], l.arts[at+1:])
	if at < l.done {
		l.done--
	}
}

// applyForgotten deletes the rows of forgotten artefacts and returns the head rows of the overlay
// that are still to be written.
func applyForgotten(tx Writer, o *overlay, n *RowCounts) (heads map[format.HeadKey][]byte, err error) {
	if len(o.forgot) == 0 {
		return o.heads, nil
	}
	heads = make(map[format.HeadKey][]byte, len(o.heads))
	below := map[uint64]uint32{}
	for _, f := range o.forgot {
		if f.whole {
			f.below = 1<<32 - 1
		}
		below[f.art] = max(below[f.art], f.below)
		if err := deleteHeads(tx, f, n); err != nil {
			return nil, err
		}
		if key := format.GroupRowKey(f.group); f.group != 0 && tx.Get(TableMeta, key) != nil {
			n.meta--
			if err := tx.Delete(TableMeta, key); err != nil {
				return nil, err
			}
		}
	}
	for k, row := range o.heads {
		if k.Version >= below[k.Art] {
			heads[k] = row
		}
	}
	return heads, nil
}

// deleteHeads deletes the head rows of an artefact below a version.
func deleteHeads(tx Writer, f forgotten, n *RowCounts) error {
	var keys [][]byte
	for k := range tx.From(TableMeta, format.HeadRowPrefix(f.art)) {
		if at, ok := format.ReadHeadKey(k); !ok || at.Art != f.art || at.Version >= f.below {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := tx.Delete(TableMeta, k); err != nil {
			return err
		}
		n.meta--
	}
	return nil
}

// floorOf reads the row that stands for a version and all before it; nil: there is none. It reads
// the first row of the artefact: rows below a floor are gone, so the floor is the first.
func floorOf(tx Reader, k format.HeadKey) ([]byte, error) {
	var key, v []byte
	for key, v = range tx.From(TableMeta, format.HeadRowPrefix(k.Art)) {
		break
	}
	if at, ok := format.ReadHeadKey(key); !ok || at.Art != k.Art || at.Version <= k.Version {
		return nil, nil
	}
	row, err := codec.Unseal('m', key, v)
	if err != nil {
		return nil, err
	}
	d := codec.Decoder{B: row}
	if t := format.DecodeHot(&d); t.Flags&format.FlagFloor == 0 {
		return nil, nil
	}
	return row, nil
}

// usedBefore reports whether the audit says that a batch was committed, held or rejected under an
// id.
func (s *Engine) usedBefore(id ulid.ULID) (bool, error) {
	leaves, err := s.Leaves.ByTrace(context.Background(), id.String())
	if errors.Is(err, manifest.ErrNoLeaf) {
		return false, nil
	}
	for _, l := range leaves {
		if l.Batch == id.String() && (l.Status == store.StatusApplied.String() || l.Status == store.StatusHeld.String() || l.Status == store.StatusRejected.String()) {
			return true, nil
		}
	}
	return false, AuditError(err)
}

// enqueueForget makes head records that forget artefacts, except those that were put again since
// the plan.
//
// It runs at the tail of the log, so no commit can come between its look at the catalogue and its
// record.
func (s *Engine) enqueueForget(b *Request, p *Commit, leaf *manifest.Record) error {
	scopes := make([]uint32, len(b.extra.forget))
	for i, h := range b.extra.forget {
		scopes[i] = s.scopeNumber(h.Scope)
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for i, h := range b.extra.forget {
		if a := s.cat.art(h.Art); h.Forgotten && (s.cat.newestOf(a).version != h.Version || a.live()) {
			continue
		}
		_, group := s.cat.names(&format.Hot{Group: h.GroupNum})
		if err := s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, scopes[i], group, format.EncodeCold(h)); err != nil {
			return err
		}
	}
	if len(p.record.Heads) == 0 {
		return errNoneLeft
	}
	return nil
}

// planRows plans which rows of dropped versions of an artefact go. heads are all of its rows,
// oldest first.
//
// A floor is the row of a dropped version, never of a deletion. At least one of these rows
// stays, whatever KeepRecords says.
func (c *collector) planRows(heads []*store.Head) {
	last := len(heads) - 1
	droppable := 0 // this many, from the oldest on, are dropped and needed by nothing
	for droppable < last && c.forgettable(heads[droppable]) {
		droppable++
	}
	keep, _ := format.KeepIn(c.job, heads[last].Scope)
	if h := heads[last]; droppable == last && h.Deleted && c.forgettable(h) && codec.Micros(h.PutAt) <= c.now-keep.For.Microseconds() && !c.s.holds.keep(h.LSN, 0) {
		f := *h
		f.Forgotten = true
		c.deleted = append(c.deleted, &f)
	}
	floor := droppable - max(1, c.job.KeepRecords)
	for floor > 0 && !heads[floor].Gone {
		floor--
	}
	if floor < 1 {
		return
	}
	f := *heads[floor]
	f.Floor = true
	c.rep.Records += floor
	c.forget = append(c.forget, &f)
}

// forgettable reports whether nothing needs the row of a version without content: it is not named,
// its artefact replaces nothing any more, and no page that first appeared in it is left.
func (c *collector) forgettable(h *store.Head) bool {
	if !h.Gone && !h.Deleted {
		return false
	}
	c.names.mu.Lock()
	named := c.names.Refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}] != ""
	c.names.mu.Unlock()
	if named {
		return false
	}
	cat := c.s.cat
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	for _, id := range h.Supersedes { // the artefact that it superseded must not come back
		if art := cat.lookup(cat.byName[h.Scope], id); art != 0 && uint64(cat.succession(art).by) == h.Art {
			return false
		}
	}
	for i := range h.Rows { // a reference to a page names the version in which it appeared
		if r := &h.Rows[i]; r.Version == h.Version && !cat.page(r.Num).gone() {
			return false
		}
	}
	return true
}

// forgetRows commits what planRows planned. The newest KeepNames of the deleted and dropped
// artefacts keep their rows.
func (c *collector) forgetRows() error {
	slices.SortFunc(c.deleted, func(a, b *store.Head) int { return cmp.Compare(a.LSN, b.LSN) })
	for _, h := range c.deleted[:max(0, len(c.deleted)-c.job.KeepNames)] {
		c.rep.Names++
		c.forget = append(c.forget, h)
	}
	if c.dry {
		return nil
	}
	for part := range slices.Chunk(c.forget, dropVersions) {
		err := c.commit(Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "forget rows"}}, extra: &extra{forget: part}})
		if err != nil && !errors.Is(err, errNoneLeft) {
			return err
		}
	}
	return nil
}

// forgetState drops state rows that only the past needs, and held batches that were decided. A run
// for one scope leaves them: they belong to no scope.
func (c *collector) forgetState() error {
	if format.ScopedGC(c.job) {
		return nil
	}
	limit := c.now - c.job.KeepFor.Microseconds()
	rows, err := c.oldReviews(limit)
	if err != nil {
		return err
	}
	deleted := map[store.Ref][]store.StateRow{} // by the artefact whose rows they are
	for i := range c.s.opts.State {
		if k := &c.s.opts.State[i]; k.Past != nil {
			if rows, err = c.past(k, limit, rows, deleted); err != nil {
				return err
			}
		}
	}
	c.rep.Turns = len(deleted)
	for part := range slices.Chunk(rows, dropPages) {
		if c.dry {
			break
		}
		if err := c.commit(Request{Batch: store.Batch{Scope: store.OperatorScope, State: part, Leaf: manifest.Record{Action: "drop drafts and reviews"}}}); err != nil {
			return err
		}
	}
	if err := c.deletedRows(deleted); err != nil {
		return err
	}
	if err := c.forgetJournals(limit); err != nil {
		return err
	}
	return c.forgetScopes()
}

// reviews drops the decided batches that the job names.
func (c *collector) reviews() error {
	for part := range slices.Chunk(c.job.Reviews, dropVersions) {
		b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "drop reviews"}}}
		for _, id := range part {
			h, err := c.s.Held(c.ctx, id)
			if errors.Is(err, store.ErrNotFound) || err == nil && h.Decided == "" {
				continue
			}
			if err != nil {
				return err
			}
			b.State = append(b.State, store.StateRow{Key: reviewGonePrefix + string(id[:])})
		}
		if !c.dry && len(b.State) > 0 {
			if err := c.commit(b); err != nil {
				return err
			}
		}
		c.rep.Reviews += len(b.State)
		c.progress("reviews", uint64(c.rep.Reviews), uint64(len(c.job.Reviews)))
	}
	return nil
}

// oldReviews lists the decided batches that were held before a time.
func (c *collector) oldReviews(limit int64) (rows []store.StateRow, err error) {
	err = c.eachHeldBatch(func(id ulid.ULID, h *store.HeldBatch) {
		if h.Decided != "" && codec.Micros(h.At) <= limit {
			c.rep.Reviews++
			rows = append(rows, store.StateRow{Key: reviewGonePrefix + string(id[:])})
		}
	})
	return rows, err
}

// past adds the rows of a kind that belong to the past since before a time, and sorts out the rows
// of artefacts that were deleted before it.
//
// The time of a row is in its key, or in the key of its artefact, so no value is
// decoded.
func (c *collector) past(k *store.StateKind, limit int64, rows []store.StateRow, deleted map[store.Ref][]store.StateRow) ([]store.StateRow, error) {
	err := c.s.eachState(c.ctx, k.Prefix, func(r store.StateRow) error {
		switch at, of := k.Past(r.Key); {
		case of.ID != "" && c.deletedBy(of, limit):
			deleted[of] = append(deleted[of], store.StateRow{Key: r.Key})
		case of.ID == "" && at != 0 && at <= limit:
			c.rep.Drafts++
			rows = append(rows, store.StateRow{Key: r.Key})
		}
		return nil
	})
	return rows, err
}

// deletedRows drops the rows of deleted artefacts. The commit expects each to be absent, so
// an artefact that is put again during the run keeps its rows.
func (c *collector) deletedRows(rows map[store.Ref][]store.StateRow) error {
	if c.dry {
		return nil
	}
	refs := slices.SortedFunc(maps.Keys(rows), func(a, b store.Ref) int { return cmp.Compare(a.String(), b.String()) })
	for part := range slices.Chunk(refs, dropVersions) {
		for len(part) > 0 {
			b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "drop rows of deleted turns"}}}
			for _, ref := range part {
				b.Expect, b.State = append(b.Expect, store.Precondition{Ref: ref}), append(b.State, rows[ref]...)
			}
			var conflict *store.ConflictError
			err := c.commit(b)
			if err == nil {
				break
			}
			if !errors.As(err, &conflict) {
				return err
			}
			c.rep.Turns--
			part = slices.DeleteFunc(slices.Clone(part), func(r store.Ref) bool { return r == conflict.Ref })
		}
	}
	return nil
}

// deletedBy reports whether there is no such artefact now and was none at a time.
func (c *collector) deletedBy(ref store.Ref, limit int64) bool {
	cat := c.s.cat
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	art := cat.lookup(cat.byName[ref.Scope], ref.ID)
	return art == 0 || !cat.art(art).live() && cat.newestOf(cat.art(art)).putAt <= limit
}
