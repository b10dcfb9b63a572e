package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A state row is rewritten under its key, so a row of ours may still be an old one that was put back, and a missing row leaves
// nothing to look at. A check therefore follows each key through the leaves: the row in the file must be from the newest leaf
// that names its key, and there must be none if that leaf deleted it.
//
//	held   tag → the entry that the row in the file claims       from the rows
//	named  tag → the newest entry that any leaf has for the key   from the leaves, oldest first
//
// A leaf names a key by its tag only, the first 8 bytes of an HMAC. Rows that were written since the check began are ours and
// are not judged.

// stateTag stands for the key of a state row in the audit; see Engine.stateTag.
type stateTag [8]byte

// stateRowsAtOnce is how many rows are read in one snapshot: a longer snapshot would hold up a checkpoint.
const stateRowsAtOnce = 4096

// stateCheck compares all state rows with the audit.
type stateCheck struct {
	s     *Engine
	ctx   context.Context
	scan  *manifest.RowScan
	lsn   uint64               // rows above it were written since
	held  map[stateTag]stateAt // state rows that there are
	named map[stateTag]stateAt // the newest of each key that the leaves name
	bad   map[string]bool      // keys of rows that are not the newest of their keys, or were never committed
	gone  int                  // rows that are missing
}

// stateAt is where the audit has the entry of a row.
type stateAt struct {
	leaf    uint64
	place   uint32
	deleted bool   // an entry that says so
	ours    bool   // a row that was not yet in the file, or was written since
	key     string // of a row in the file
}

// unfiled collects the rows that are not in the file yet; those are ours.
func (t *stateCheck) unfiled() {
	t.s.cat.mu.RLock()
	defer t.s.cat.mu.RUnlock()
	t.lsn = t.s.cat.lsn
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
func (t *stateCheck) stateRows() error {
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
func (t *stateCheck) readStates(tx Reader, from []byte) (claims []stateClaim, next []byte, err error) {
	n := 0
	for k, v := range tx.From(TableState, from) {
		if n++; n > stateRowsAtOnce {
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
		if p.Leaf >= t.scan.Size() && format.StateLSN(body) > t.lsn {
			t.hold(k, stateAt{ours: true, key: at.key})
			continue
		}
		claims = append(claims, stateClaim{at, format.StateMAC(p.Salt[:], format.StateLSN(body), k, body[format.StateHead:])})
	}
	return claims, nil, nil
}

// hold notes a row, but for one of ours.
func (t *stateCheck) hold(key []byte, at stateAt) {
	tag := t.s.stateTag(key)
	if !t.held[tag].ours {
		t.held[tag] = at
	}
}

// compareStates looks the claims up in the audit, in the order of its leaves, and notes the rows
// whose entry says something else.
func (t *stateCheck) compareStates(claims []stateClaim) error {
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
			t.bad[c.at.key] = true
		}
		t.hold([]byte(c.at.key), c.at)
	}
	return nil
}

// name notes the entries of a leaf; leaves come oldest first.
func (t *stateCheck) name(leaf uint64, entries []byte) {
	var none [manifest.StateSize - 8]byte
	for k := 0; len(entries) > 0; k++ {
		t.named[stateTag(entries)] = stateAt{leaf: leaf, place: uint32(k), deleted: [len(none)]byte(entries[8:]) == none}
		entries = entries[manifest.StateSize:]
	}
}

// states compares what there is with what the leaves name last.
func (t *stateCheck) states() error {
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
				t.bad[is.key] = true
			} else {
				t.gone++
			}
		}
	}
	return nil
}

// checkState reads the rows first and then the leaves. The leaves that count are fixed before any row is read, so a row that
// names a later leaf was written since.
func (s *Engine) checkState(ctx context.Context) (*stateCheck, error) {
	t := &stateCheck{s: s, ctx: ctx, held: map[stateTag]stateAt{}, named: map[stateTag]stateAt{}, bad: map[string]bool{}}
	var err error
	if t.scan, err = s.Leaves.ScanRows(); err != nil {
		return nil, AuditError(err)
	}
	t.unfiled()
	if err := t.stateRows(); err != nil {
		return nil, err
	}
	for i := uint64(0); i < t.scan.Size(); i++ {
		if i%stateRowsAtOnce == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		has, err := t.scan.Digests(i)
		if err != nil && !damagedLeaf(err) {
			return nil, AuditError(err)
		}
		t.name(i, has.State)
	}
	return t, t.states()
}

// damagedLeaf tells damage of a leaf from a read that failed.
func damagedLeaf(err error) bool {
	var ce *store.CorruptError
	return errors.As(err, &ce) || errors.Is(err, manifest.ErrNoLeaf)
}

// stateRows walks the rest of I17: no state row was changed, put back or taken away.
func (c *invariantWalk) stateRows() error {
	if c.s.opts.Trust || c.s.Leaves == nil {
		return nil
	}
	t, err := c.s.checkState(c.ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(t.bad)) {
		c.bad("I17", fmt.Sprintf("state %q", key), "%v", format.ErrEdited)
	}
	if t.gone > 0 {
		c.bad("I17", "state", "%d rows that the audit says were written are missing", t.gone)
	}
	return nil
}
