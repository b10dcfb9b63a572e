package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A drop, from the sequencer to the rows. A dropped version keeps its row as a tombstone; its texts
// and vectors go.
//
// 	enqueueDrops  at the tail: whatever was named since the plan stays, and with it the rest of its artefact in this commit
// 	installGone   the catalogue learns which pages no version has any more; index and vectors forget them
// 	applyGone     the checkpoint deletes their texts and vectors, in the transaction that writes the tombstone
//
// Invariants: the newest version is never dropped, so every number in the catalogue still answers.
// A page goes with the newest version that has it, so a page that is gone here is gone for every
// version. A text that is still in the overlay is taken out of it: otherwise the checkpoint would
// write a text that the same transaction deletes.
//
// Rejected: deleting the row too. History, lineage and old manifests name the version, and "dropped
// by gc" would look like "never existed".

// errNoneLeft means that all that was to be dropped is named by now.
var errNoneLeft = errors.New("ctxpage: nothing is left to drop")

// enqueueDrops makes head records of what gc drops, except what has been named since the plan. If
// one version of an artefact is kept, the others in this commit are kept too, because they may
// share pages.
func (s *Engine) enqueueDrops(b *Request, p *Commit, leaf *manifest.Record) error {
	stays := map[uint64]string{}
	for _, d := range b.extra.drops {
		if why := cmp.Or(d.kept, s.seq.watch.why(d.head)); why != "" {
			stays[d.head.Art] = why
		}
	}
	for _, d := range b.extra.drops {
		if d.kept = stays[d.head.Art]; d.kept != "" {
			continue
		}
		h := d.head
		if err := s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, s.scopeNumber(h.Scope), d.group, d.cold); err != nil {
			return err
		}
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version, Gone: true})
	}
	if len(p.record.Heads) == 0 {
		return errNoneLeft
	}
	return nil
}

// dropped is a version that gc dropped, in an overlay, with the pages that no version has any more.
type dropped struct {
	key  format.HeadKey
	nums []uint64
}

// installGone makes the drop of a version visible. The caller holds cat.mu, or is recovery.
func (s *Engine) installGone(t *format.Hot, rows []store.PageRow, row []byte, ended *[]uint64) error {
	gone, err := s.cat.drop(t, rows)
	if err != nil {
		return err
	}
	o := s.overlay
	d := dropped{format.HeadKey{Art: t.Art, Version: t.Version}, gone}
	o.heads[d.key] = row
	o.Bytes += len(row)
	o.gone = append(o.gone, d)
	for _, num := range gone {
		o.Bytes -= len(o.texts[num])
		delete(o.texts, num)
	}
	s.index.Remove(gone...)
	s.near.remove(gone)
	*ended = append(*ended, gone...)
	return nil
}

// setGone fills the column of a page that no version has any more. It depends only on fields that
// are still known after a reopen.
func (c *catalogue) setGone(p *pageCol, t *format.Hot, r *store.PageRow, page uint32) {
	c.setPageCol(p, pageCol{art: uint32(t.Art), scope: t.Scope, flags: format.FlagGone}, pageNumbers{lsn: r.LSN, page: page, version: r.Version})
}

// hasPage reports whether a page ever belonged to an artefact. The numbers of a forgotten artefact
// belong to none.
func (c *catalogue) hasPage(art, num uint64) bool {
	return num > 0 && num <= uint64(c.pages.len()) && uint64(c.page(num).art) == art
}

// drop takes a version that is not the newest out of the catalogue, and returns its pages that no
// version has any more: those for which it was the newest that had them (share). ErrMalformed: the
// record names what this catalogue does not have, so it is damaged or of another history.
func (c *catalogue) drop(t *format.Hot, rows []store.PageRow) (gone []uint64, err error) {
	if t.Art > uint64(c.arts.len()) || t.Version >= c.newestOf(c.art(t.Art)).version {
		return nil, codec.ErrMalformed
	}
	for i := range rows {
		num := rows[i].Num
		if !c.hasPage(t.Art, num) {
			return nil, codec.ErrMalformed
		}
		p := c.page(num)
		if c.numbers(p).head != t.Version || p.gone() {
			continue
		}
		ended := *c.rareOf(p)
		ended.expires = 0
		c.account(p, -1)
		c.setGone(p, t, &rows[i], uint32(i+1))
		c.setRare(p, ended)
		c.grouped.set(num, false)
		c.versions--
		c.dropped++
		gone = append(gone, num)
	}
	return gone, nil
}

// locateGone finds a page of a dropped version that newer ones have: a reference to a page names
// the version in which it appeared. The caller holds cat.mu.
func (s *Engine) locateGone(scope string, h *store.Head, ref store.Ref) (store.Located, error) {
	if ref.Page > 0 && ref.Page <= len(h.Rows) {
		num := h.Rows[ref.Page-1].Num
		if p := s.cat.page(num); !p.gone() {
			head := s.cat.numbers(p).head
			return store.Located{Scope: scope, Version: head, LSN: h.LSN, Pages: []store.PageKey{{Num: num, Version: head}}, Expires: s.cat.expires(p)}, nil
		}
	}
	return store.Located{}, format.GoneError(h, ref.Page)
}

// replacedRows counts the stored head rows that a tombstone in the overlay replaces.
func replacedRows(tx Reader, o *overlay, rows map[format.HeadKey][]byte) (n int) {
	keys := map[format.HeadKey]bool{}
	for _, d := range o.gone {
		keys[d.key] = true
	}
	for _, f := range o.forgot {
		keys[format.HeadKey{Art: f.art, Version: f.below}] = true
	}
	for k := range keys {
		if rows[k] != nil && tx.Get(TableMeta, format.HeadRowKey(k)) != nil {
			n++
		}
	}
	return n
}

// applyGone deletes the texts of the pages that no version has any more, and their vectors,
// including vectors that were put after the drop.
func applyGone(tx Writer, o *overlay, n *RowCounts) error {
	for _, d := range o.gone {
		for _, num := range d.nums {
			key := format.TextRowKey(num)
			if tx.Get(TableContent, key) != nil {
				n.content--
			}
			if err := tx.Delete(TableContent, key); err != nil {
				return err
			}
			if err := deletePrefix(tx, TableVec, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletePrefix deletes the rows whose keys begin with a prefix. Keys are collected first: the walk
// does not survive a change of its table.
func deletePrefix(tx Writer, t Table, prefix []byte) error {
	var keys [][]byte
	for k := range tx.From(t, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := tx.Delete(t, k); err != nil {
			return err
		}
	}
	return nil
}

// nameGone reports how many pages that were current at the moment a question asks about have been
// dropped since. The caller holds cat.mu.
func (s *Engine) nameGone(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	n := 0
	for num, p := range s.cat.pages.all() {
		if !p.gone() || s.cat.numbers(p).lsn > q.AsOf || s.cat.end(p) <= q.AsOf || v.masked[uint64(p.art)] || !slices.Contains(v.chain, p.scope) {
			continue
		}
		if n++; n <= nearestMisses {
			c := s.cat.candidate(num)
			c.Excluded = triage.Gone
			addMiss(out, c)
		}
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == triage.Gone })
		out.Excluded[i].Count = n
	}
}

// A scope has a row with its number from its first put on. Head rows and the rows of groups name it
// by that number; held batches, state rows and the audit name it by its name. So the row may go
// once no head row names the scope: when gc has forgotten its last artefact. It goes with the rows
// of its groups.
//
// A scope that a held batch or a state row names keeps its row all the same, because it would not
// be listed without one. That only affects listings, not correctness: such a row may come between
// the plan and the commit.
//
//	plan      scopes without an artefact that no held batch and no state row names   emptyScopes
//	decide    at the tail of the log: nothing was put into it since                   unname
//	travel    as state rows without a value, each with number and name                goneScopeKey
//	install   catalogue and sequencer let go of the name                              dropScopes, named
//	apply     the rows of scope and groups are deleted with the checkpoint            applyGoneNames
//
// Numbers are never used again: a forgotten name may still be on a page of the file that was not
// overwritten yet. The system row keeps the highest. A scope that comes back is another one, with a
// number of its own.

// scopeGonePrefix begins the keys of state rows, always without a value, that delete the row of a
// scope. The number follows in four bytes, then the name.
const scopeGonePrefix = "\x00scope/"

// goneScope reads such a key.
func goneScope(key string) (num uint32, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, scopeGonePrefix)
	if !ok || len(rest) < 4 {
		return 0, "", false
	}
	return binary.BigEndian.Uint32([]byte(rest[:4])), rest[4:], true
}

// goneScopes are the scopes that the state rows of a record delete, by number.
func goneScopes(rows []store.StateRow) (out map[uint32]string) {
	for i := range rows {
		if num, name, ok := goneScope(rows[i].Key); ok {
			if out == nil {
				out = map[uint32]string{}
			}
			out[num] = name
		}
	}
	return out
}

// forgetScopes drops the names of scopes in which nothing is left.
func (c *collector) forgetScopes() error {
	if c.job.Scope != "" {
		return nil
	}
	empty, err := c.emptyScopes()
	if err != nil {
		return err
	}
	if c.dry {
		c.rep.Scopes = len(empty)
		return nil
	}
	if err := c.s.At("gc scopes"); err != nil {
		return err
	}
	for part := range slices.Chunk(empty, dropPages/c.most()) {
		b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "forget scopes"}}, extra: &extra{unname: part}}
		err := c.commit(b)
		if err != nil && !errors.Is(err, errNoneLeft) {
			return err
		}
		if err == nil {
			c.rep.Scopes += len(part)
		}
	}
	return nil
}

// emptyScopes lists the scopes without an artefact that no held batch and no state row names. In a
// dry run, artefacts that would be forgotten do not count.
func (c *collector) emptyScopes() ([]string, error) {
	empty := c.withoutArtefacts()
	if len(empty) == 0 {
		return nil, nil
	}
	limit := c.now - c.job.KeepFor.Microseconds()
	if err := c.eachHeldBatch(func(_ ulid.ULID, h *store.HeldBatch) {
		if h.Decided == "" || codec.Micros(h.At) > limit { // otherwise this run drops it
			delete(empty, h.Batch.Scope)
		}
	}); err != nil {
		return nil, err
	}
	for i := range c.s.opts.State {
		if err := c.namedByState(&c.s.opts.State[i], empty); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(empty)), nil
}

// withoutArtefacts returns the scopes that have no artefact, not even a deleted one whose rows are
// still there.
func (c *collector) withoutArtefacts() map[string]bool {
	planned := map[string]int{}
	if c.dry {
		for _, h := range c.forget {
			if h.Forgotten {
				planned[h.Scope]++
			}
		}
	}
	empty := map[string]bool{}
	cat := c.s.cat
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	for num, name := range cat.scopes.named() {
		if _, known := cat.counts(num); known == planned[name] {
			empty[name] = true
		}
	}
	return empty
}

// namedByState takes the scopes out that rows of a kind name.
func (c *collector) namedByState(k *store.StateKind, empty map[string]bool) error {
	if k.Scope == nil {
		return nil
	}
	return c.s.eachState(c.ctx, k.Prefix, func(r store.StateRow) error {
		delete(empty, k.Scope(r.Key))
		return nil
	})
}

// unname returns the state rows by which scopes go, without those into which something was put since
// they were planned. The caller has the tail of the log. A commit in flight that puts into a scope
// makes it busy, whether or not it will be installed.
func (s *Engine) unname(names []string) (rows []store.StateRow) {
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	busy := map[string]bool{}
	for _, c := range s.seq.ids {
		for i := range c.record.Heads {
			busy[c.record.Heads[i].Head.Scope] = true
		}
		for _, n := range c.record.Scopes {
			busy[n.Name] = true
		}
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, name := range names {
		if num := s.cat.byName[name]; num != 0 && !busy[name] && s.cat.empty(num) {
			rows = append(rows, store.StateRow{Key: string(binary.BigEndian.AppendUint32([]byte(scopeGonePrefix), num)) + name})
		}
	}
	return rows
}

// empty reports whether a scope has no artefact, not even a deleted one that is still known.
func (c *catalogue) empty(scope uint32) bool {
	_, known := c.counts(scope)
	return known == 0
}

// dropScopes takes scopes out of the catalogue and has their rows deleted. The caller holds cat.mu,
// or is recovery.
func (s *Engine) dropScopes(gone map[uint32]string) error {
	if len(gone) == 0 {
		return nil
	}
	c, o := s.cat, s.overlay
	for num, name := range gone {
		if num == 0 || c.byName[name] != num || !c.empty(num) {
			return codec.ErrMalformed
		}
	}
	for num, name := range gone {
		delete(c.byName, name)
		c.scopes.drop(num)
		o.noNames = append(o.noNames, format.ScopeRowKey(num))
	}
	for i := range c.groups {
		g := &c.groups[i]
		if g.scope == 0 || gone[g.scope] == "" {
			continue
		}
		delete(c.named, artKey{g.scope, g.name})
		o.noNames = append(o.noNames, format.GroupRowKey(uint64(i+1)))
		*g = groupCol{}
	}
	return nil
}

// applyGoneNames deletes the rows of scopes and groups that were removed, after the new ones are
// written.
func applyGoneNames(tx Writer, o *overlay, n *RowCounts) error {
	slices.SortFunc(o.noNames, bytes.Compare)
	for _, key := range o.noNames {
		if tx.Get(TableMeta, key) == nil {
			continue
		}
		if err := tx.Delete(TableMeta, key); err != nil {
			return err
		}
		n.meta--
	}
	return nil
}

// Rows of a journal are numbered as they come, and each replaces its predecessor: the passes of a
// session, the steps of a scope's directives. Without a bound they grow while the live set stays
// the same. A row goes by the rule for versions: it was replaced longer ago than KeepFor, it is not
// among the newest, and it is not named.
//
// The head row of a journal names the rows that are in use. The commit that drops rows expects the
// head as gc saw it. So a row that comes into use during the run stays, and the next run looks
// again.

// oldJournal has the rows of one journal that go.
type oldJournal struct {
	name string
	head store.StatePre
	rows []store.StateRow // their keys
}

// forgetJournals drops the rows of journals that were replaced before a time.
func (c *collector) forgetJournals(limit int64) error {
	for i := range c.s.opts.State {
		k := &c.s.opts.State[i]
		if k.Journal == nil {
			continue
		}
		journals, err := c.journals(k)
		if err != nil {
			return err
		}
		var old []oldJournal
		for _, name := range slices.Sorted(maps.Keys(journals)) {
			o, err := c.replaced(k.Journal, name, journals[name], limit)
			if err != nil {
				return err
			}
			if len(o.rows) > 0 {
				old = append(old, o)
			}
		}
		if err := c.dropJournals(old); err != nil {
			return err
		}
	}
	return nil
}

// journals returns the rows of a kind without their values: some dozen bytes each.
func (c *collector) journals(k *store.StateKind) (map[string][]format.JournalRow, error) {
	out := map[string][]format.JournalRow{}
	err := c.s.eachState(c.ctx, k.Prefix, func(r store.StateRow) error {
		name, number := k.Journal.Entry(r.Key)
		if number == 0 {
			return nil
		}
		at, err := k.Journal.At(r.Value)
		if err != nil {
			return c.s.Corrupt("state row "+r.Key, err)
		}
		out[name] = append(out[name], format.JournalRow{Key: r.Key, Number: number, At: at})
		return nil
	})
	return out, err
}

// replaced returns the rows of a journal that go. The head is read after the rows: what came since
// can only keep more rows.
func (c *collector) replaced(j *store.StateJournal, name string, rows []format.JournalRow, limit int64) (oldJournal, error) {
	o := oldJournal{name: name, head: store.StatePre{Key: j.Head(name)}}
	var read bool
	var err error
	o.rows, err = format.Replaced(j, rows, limit, c.job.KeepVersions, func() ([]byte, error) {
		head, err := c.s.State(c.ctx, o.head.Key)
		o.head.LSN, read = head.LSN, err == nil
		return head.Value, err
	})
	if err != nil && read { // it is not what the journal understands
		err = c.s.Corrupt("state row "+o.head.Key, err)
	}
	return o, err
}

// dropJournals commits what goes, some journals at a time. A journal whose head changed during the
// run is left to the next one.
func (c *collector) dropJournals(old []oldJournal) error {
	for len(old) > 0 {
		part, n := 0, 0
		for part < len(old) && (part == 0 || n+len(old[part].rows) <= dropPages) {
			n += len(old[part].rows)
			part++
		}
		if err := c.dropPart(old[:part]); err != nil {
			return err
		}
		old = old[part:]
	}
	return nil
}

// dropPart commits the rows that go of some journals, together. A journal whose head was written
// since gc looked is a conflict: it is left out, and the others are tried again. The conflict names
// the head row of one journal, so each round has one journal less and the loop ends.
func (c *collector) dropPart(part []oldJournal) error {
	for len(part) > 0 {
		b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "drop replaced records"}}}
		for i := range part {
			b.ExpectState, b.State = append(b.ExpectState, part[i].head), append(b.State, part[i].rows...)
		}
		var err error
		if !c.dry {
			err = c.commit(b)
		}
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			if err == nil {
				c.rep.Journal += len(b.State)
			}
			return err
		}
		part = slices.DeleteFunc(slices.Clone(part), func(o oldJournal) bool { return o.head.Key == conflict.Key })
	}
	return nil
}
