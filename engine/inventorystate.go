package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
)

// The part of the inventory that compares state rows with the audit. See inventory.go for when it
// runs and what it costs.
//
// 	held   tag → the entry that the row in the file claims       from the rows
// 	named  tag → the newest entry that any leaf has for the key   from the leaves, oldest first
//
// A tag stands for a key without telling it (its first 8 bytes of an HMAC). A row is good if its
// claim is the newest entry; a key without a row is good if its newest entry says "deleted". Rows
// that were written since the inventory began are ours and are not judged.

// State rows are rewritten under the same key, so a genuine row may still be an old one that was
// put back. The inventory follows each key, by its tag, through the leaves. The row in the file
// must be from the newest leaf that names its key, and if that leaf deleted the row there must be
// none.

// stateAt is where the audit has the entry of a row.
type stateAt struct {
	leaf    uint64 // noLeaf: a row without an entry
	place   uint32
	deleted bool   // an entry that says so
	ours    bool   // a row that was not yet in the file, or was written since
	key     string // of a row in the file
}

// unfiled collects the rows that are not in the file yet; those are ours. The caller holds cat.mu.
func (t *stocktaking) unfiled() {
	t.held, t.named = map[stateTag]stateAt{}, map[stateTag]stateAt{}
	for _, o := range []*overlay{t.s.frozen, t.s.overlay} {
		if o == nil {
			continue
		}
		for key := range o.state {
			t.held[t.s.stateTag([]byte(key))] = stateAt{ours: true, key: key}
		}
	}
}

// stateClaim is a row's claim to an entry.
type stateClaim struct {
	at  stateAt
	mac [manifest.StateSize - 8]byte
}

// stateRows compares the rows of the file with their entries.
func (t *stocktaking) stateRows() error {
	for from := []byte{}; from != nil; {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		var claims []stateClaim
		err := t.s.rows.View(func(tx Reader) (err error) {
			claims, from, err = t.readStates(tx, from)
			return err
		})
		if err == nil {
			err = t.compareStates(claims)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readStates takes the claims of some state rows, and gives the key of the next one; nil: there is
// none. Rows that do not decode are left to the reader who meets them.
func (t *stocktaking) readStates(tx Reader, from []byte) (claims []stateClaim, next []byte, err error) {
	n := 0
	for k, v := range tx.From(TableState, from) {
		if n++; n > inventoryRows {
			return claims, slices.Clone(k), nil
		}
		if codec.IsDestroyed(v) { // it was there
			t.hold(k, stateAt{ours: true, key: string(k)})
			continue
		}
		body, err := format.StateBodyOf(k, v)
		if err != nil {
			continue // reported when it is read
		}
		p := format.StateProof(body)
		at := stateAt{leaf: p.Leaf, place: p.Place, key: string(k)}
		if p.Leaf != format.NoLeaf && p.Leaf >= t.scan.Size() && format.StateLSN(body) > t.lsn {
			t.hold(k, stateAt{ours: true, key: at.key})
			continue
		}
		if p.Leaf == format.NoLeaf {
			if t.s.unprovedState(format.StateLSN(body)) != nil {
				t.state[at.key] = true
			}
			t.hold(k, at)
			continue
		}
		claims = append(claims, stateClaim{at, format.StateMAC(p.Salt[:], format.StateLSN(body), k, body[format.StateHead:])})
	}
	return claims, nil, nil
}

// hold notes a row, but for one of ours.
func (t *stocktaking) hold(key []byte, at stateAt) {
	tag := t.s.stateTag(key)
	if !t.held[tag].ours {
		t.held[tag] = at
	}
}

// compareStates looks the claims up in the audit, in the order of its leaves, and notes the rows
// whose entry says something else.
func (t *stocktaking) compareStates(claims []stateClaim) error {
	slices.SortFunc(claims, func(a, b stateClaim) int {
		return cmp.Or(cmp.Compare(a.at.leaf, b.at.leaf), cmp.Compare(a.at.place, b.at.place))
	})
	for i := range claims {
		c := &claims[i]
		has, err := t.scan.Digests(c.at.leaf)
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		from := int(c.at.place) * manifest.StateSize
		if err != nil || from+manifest.StateSize > len(has.State) || [len(c.mac)]byte(has.State[from+8:]) != c.mac {
			t.state[c.at.key] = true
		}
		t.hold([]byte(c.at.key), c.at)
	}
	return nil
}

// name notes the entries of a leaf; leaves come oldest first.
func (t *stocktaking) name(leaf uint64, entries []byte) {
	var none [manifest.StateSize - 8]byte
	for k := 0; len(entries) > 0; k++ {
		t.named[stateTag(entries)] = stateAt{leaf: leaf, place: uint32(k), deleted: [len(none)]byte(entries[8:]) == none}
		entries = entries[manifest.StateSize:]
	}
}

// states compares what there is with what the leaves name last.
func (t *stocktaking) states() error {
	for tag, last := range t.named {
		is, there := t.held[tag]
		switch {
		case is.ours, !there && last.deleted:
		case there && !last.deleted && is.leaf == last.leaf && is.place == last.place:
		default:
			leaf, err := t.scan.Leaf(last.leaf)
			if err != nil && !damagedLeaf(err) {
				return AuditError(err)
			}
			if err != nil || leaf.LSN > t.lsn { // not looked at
				continue
			}
			if there {
				t.state[is.key] = true
			} else {
				t.tags[tag] = true
			}
		}
	}
	return nil
}

// stateDoubted refuses a row of the file that the inventory, as far as it was made, found to be
// none of ours, or that is not the one a snapshot of the columns has.
func (s *Engine) stateDoubted(key, body []byte) error {
	f := s.inventory.found.Load()
	if f == nil || format.StateLSN(body) > f.lsn {
		return nil
	}
	if f.state[string(key)] || f.places != nil && !f.places.same(s.stateTag(key), format.StateProof(body)) {
		return fmt.Errorf("%w: it is not the newest of its key", format.ErrEdited)
	}
	return nil
}

// stateGone refuses to call a row absent that the audit names.
func (s *Engine) stateGone(key string) error {
	if f := s.inventory.found.Load(); f != nil && (len(f.tags) > 0 || f.places != nil) {
		if tag := s.stateTag([]byte(key)); f.tags[tag] || f.places.missing(tag) {
			return s.Corrupt(fmt.Sprintf("state row %q", key), errMissing)
		}
	}
	return nil
}

// stateDeleted notes that a commit deleted a row that a snapshot has.
func (s *Engine) stateDeleted(key string) {
	if f := s.inventory.found.Load(); f != nil && f.places != nil {
		f.places.delete(s.stateTag([]byte(key)))
	}
}

// inventory walks the rest of I17: no state row was changed, put back or taken away.
func (c *invariantWalk) inventory() error {
	if c.s.opts.Trust || c.s.Leaves == nil {
		return nil
	}
	f, err := c.s.takeStock(c.ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(f.state)) {
		c.bad("I17", fmt.Sprintf("state %q", key), "%v", format.ErrEdited)
	}
	if n := len(f.tags); n > 0 {
		c.bad("I17", "state", "%d rows that the audit says were written are missing", n)
	}
	return nil
}
