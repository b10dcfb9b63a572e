package engine

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// An erase with Names leaves no row that has a name of what it took:
//
//	artefacts   all of their rows go, as gc forgets one                                forgets, installForget
//	scopes      as when gc finds them empty                                            unname, dropScopes
//	groups      the names of sessions and other groups, once no row is in them         ungroup, dropGroup
//	outcomes    of batches whose leaf is pruned keep status and LSN, and no reference  EraseOutcomes
//
// The bodies of leaves are the owner's of the archive (manifest.Log.Prune). They go last, because
// an outcome with references is compared with the body of its leaf.

// groupGonePrefix begins the keys of state rows, always without a value, that delete the row of a
// group. The number follows in eight bytes. A program that does not know the key keeps the name.
const groupGonePrefix = "\x00group/"

// goneGroup reads such a key.
func goneGroup(key string) (num uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, groupGonePrefix)
	if !ok || len(rest) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(rest)), true
}

// groupNumbers returns the numbers of groups that are there; nil: none is.
func (s *Engine) groupNumbers(refs []store.Ref) (nums map[uint64]bool) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, r := range refs {
		if num := s.cat.named[artKey{s.cat.byName[r.Scope], r.ID}]; num != 0 {
			if nums == nil {
				nums = map[uint64]bool{}
			}
			nums[num] = true
		}
	}
	return nums
}

// groupsBeside returns the groups of a job, and with Names all those of the scopes in which it erases: a row of which gc or an
// earlier erase left little does not say of which group it was. Which of them are empty is seen at the tail (ungroup).
func (s *Engine) groupsBeside(job *store.EraseJob) []store.Ref {
	if !job.Names {
		return job.Groups
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	in := map[uint32]string{}
	for _, r := range slices.Concat(job.Refs, job.Groups) {
		in[s.cat.byName[r.Scope]] = r.Scope
	}
	delete(in, 0)
	var all []store.Ref
	for i := range s.cat.groups {
		if g := &s.cat.groups[i]; in[g.scope] != "" {
			all = append(all, store.Ref{Scope: in[g.scope], ID: g.name})
		}
	}
	return all
}

// pastGroups are groups that rows of past versions are in, as of an LSN. Such a row is proved with
// the name of its group, so the name stays as long as the row does.
type pastGroups struct {
	nums map[uint64]bool
	lsn  uint64
}

// pastGroups reads the rows of artefacts that were in more than one group; of the others the
// catalogue knows the group. It runs before the tail is taken, because it reads rows.
func (s *Engine) pastGroups(refs []store.Ref) (p pastGroups, err error) {
	p.nums = map[uint64]bool{}
	var moved []format.HeadKey
	s.cat.mu.RLock()
	p.lsn = s.cat.lsn
	scopes := map[uint32]bool{}
	for _, r := range refs {
		scopes[s.cat.byName[r.Scope]] = true
	}
	for num, a := range s.cat.arts.all() {
		if ever := *s.cat.ever.at(num - 1); a.version > 0 && scopes[a.scope] && ever&everMoved != 0 {
			moved = append(moved, format.HeadKey{Art: num, Version: a.version})
		}
	}
	s.cat.mu.RUnlock()
	for _, k := range moved {
		heads, err := s.heads(k.Art, k.Version)
		if err != nil {
			return p, err
		}
		for _, h := range heads {
			p.nums[h.GroupNum] = true
		}
	}
	return p, nil
}

// ungroup returns the state rows by which groups go that no row is in, and that no version left since
// past was read. The caller has the tail of the log.
func (s *Engine) ungroup(refs []store.Ref, past *pastGroups) (rows []store.StateRow) {
	if len(refs) == 0 {
		return nil
	}
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	busy := map[uint64]bool{}
	for _, c := range s.seq.ids {
		for i := range c.record.Heads {
			busy[c.record.Heads[i].Head.GroupNum] = true
		}
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, a := range s.cat.arts.all() {
		busy[uint64(a.group)] = true
	}
	for _, r := range refs {
		if num := s.cat.named[artKey{s.cat.byName[r.Scope], r.ID}]; num != 0 && !busy[num] && !past.nums[num] && s.cat.groups[num-1].moved <= past.lsn {
			rows = append(rows, store.StateRow{Key: string(binary.BigEndian.AppendUint64([]byte(groupGonePrefix), num))})
		}
	}
	return rows
}

// dropGroup takes a group out of the catalogue and has its row deleted. The caller holds cat.mu, or
// is recovery.
func (s *Engine) dropGroup(num uint64) {
	c := s.cat
	if num == 0 || num > uint64(len(c.groups)) || c.groups[num-1].scope == 0 {
		return
	}
	g := &c.groups[num-1]
	delete(c.named, artKey{g.scope, g.name})
	s.overlay.noNames = append(s.overlay.noNames, format.GroupRowKey(num))
	*g = groupCol{}
}

// EraseOutcomes takes the references out of the outcomes of batches whose leaves are to be pruned.
// The rows are written with the next checkpoint. The caller must not let a checkpoint run
// meanwhile.
func (s *Engine) EraseOutcomes(leaves []manifest.Span) error {
	rows := map[ulid.ULID][]byte{}
	take := func(id ulid.ULID, row []byte) error {
		r, err := decodeOutcome(row)
		if err != nil {
			return s.Corrupt("outcome of "+id.String(), err)
		}
		if !manifest.Covered(leaves, r.Leaf) || len(r.Refs)+len(r.Repeats)+len(r.Stale)+len(r.Reason) == 0 {
			return nil
		}
		r.Refs, r.Repeats, r.Stale, r.Reason = nil, nil, nil, ""
		rows[id] = r.encode()
		return nil
	}
	err := s.rows.View(func(tx Reader) error {
		return each(tx, TableTxn, func(k, v []byte) error {
			row, err := codec.Unseal('t', k, v)
			if err != nil || len(k) != len(ulid.ULID{}) {
				return s.Corrupt("outcome", err)
			}
			return take(ulid.ULID(k), row)
		})
	})
	if err != nil {
		return err
	}
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	for id, row := range s.overlay.result {
		if err := take(id, row); err != nil {
			return err
		}
	}
	maps.Copy(s.overlay.result, rows)
	return nil
}
