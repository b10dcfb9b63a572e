package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

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

// goneScopeKey makes such a key.
func goneScopeKey(num uint32, name string) string {
	return string(binary.BigEndian.AppendUint32([]byte(scopeGonePrefix), num)) + name
}

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
		b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "forget scopes"}}, unname: part}
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
	for _, sc := range cat.scopes {
		if sc != nil && len(sc.byID.all()) == planned[sc.name] {
			empty[sc.name] = true
		}
	}
	return empty
}

// namedByState takes the scopes out that rows of a kind name.
func (c *collector) namedByState(k *store.StateKind, empty map[string]bool) error {
	if k.Scope == nil {
		return nil
	}
	for q := (store.ScanQuery{What: store.ScanState, Prefix: k.Prefix, Limit: 1000}); len(empty) > 0; {
		page, err := c.s.Scan(c.ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.State {
			delete(empty, k.Scope(r.Key))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
	return nil
}

// unname returns the state rows by which scopes go, without those into which something was put since
// they were planned. The caller has the tail of the log. A commit in flight that puts into a scope
// makes it busy, whether or not it will be installed.
func (s *Engine) unname(names []string) (rows []store.StateRow) {
	if len(names) == 0 {
		return nil
	}
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
		if num := s.cat.byName[name]; num != 0 && !busy[name] && s.cat.scopes[num-1].empty() {
			rows = append(rows, store.StateRow{Key: goneScopeKey(num, name)})
		}
	}
	return rows
}

// empty reports whether a scope has no artefact, not even a deleted one that is still known.
func (sc *scopeCol) empty() bool { return len(sc.byID.all()) == 0 }

// unnamed lets go of the names of scopes that a record deletes, and of those of their groups. The
// caller holds flight.
func (q *sequencer) unnamed(gone map[uint32]string) {
	if len(gone) == 0 {
		return
	}
	for num, name := range gone {
		if q.scopes[name] == num {
			delete(q.scopes, name)
		}
	}
	maps.DeleteFunc(q.groups, func(k artKey, _ uint64) bool { return gone[k.scope] != "" })
}

// dropScopes takes scopes out of the catalogue and has their rows deleted. The caller holds cat.mu,
// or is recovery.
func (s *Engine) dropScopes(gone map[uint32]string) error {
	if len(gone) == 0 {
		return nil
	}
	c, o := s.cat, s.overlay
	for num, name := range gone {
		if num == 0 || c.byName[name] != num || !c.scopes[num-1].empty() {
			return codec.ErrMalformed
		}
	}
	for num, name := range gone {
		delete(c.byName, name)
		c.scopes[num-1] = nil
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
