package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A state row is kept with the LSN of the commit that last wrote it, which ExpectState compares.
//
// The head of a row ends with its place in the audit. The leaf of its commit has an entry for every
// state row of the batch, in their order (manifest.Record.State). The entry begins with a tag that
// stands for the key, keyed with the secret of the database, so that the newest leaf of a key can
// be found without the key. Then comes a salted digest of the row, zeros if it was deleted.
//
//	body    LSN, salt, leaf, place, value
//
// The newest state of a row is, in this order: a batch in flight (blocker waits for it), the
// overlay, the frozen overlay, the rows. The overlays are read under the sequencer. The rows are
// read before it, because that may wait for the disk; Engine.releases shows an overlay that was
// moved into the rows since.

// stateTag stands for a key in the audit. It is keyed so that a caller who chooses the names cannot
// find two keys with the same tag.
func (s *Engine) stateTag(key []byte) (tag [8]byte) {
	secret := s.info.Secret[:min(len(s.info.Secret), 32)] // the length of a salt
	d := store.SaltedMAC(secret, func(b []byte) []byte { return append(append(b, "state"...), key...) })
	return [8]byte(d[:])
}

// addState adds the state rows of a batch to a commit, and their entries to the leaf. The entries
// of all rows are cut from one piece of memory.
func (s *Engine) addState(rec *format.Commit, leaf *manifest.Record, rows []store.StateRow) error {
	rec.State = rows
	if len(rows) > archive.MaxState {
		return store.Invalid("state", fmt.Sprintf("%d rows", len(rows)), fmt.Sprintf("at most %d in one batch; write it in several", archive.MaxState))
	}
	rec.Salts = make([]byte, len(rows)*store.DigestSaltSize)
	if _, err := io.ReadFull(s.opts.Rand, rec.Salts); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	entries := make([]byte, 0, len(rows)*archive.StateSize)
	for i := range rows {
		tag := s.stateTag([]byte(rows[i].Key))
		var mac [archive.StateSize - 8]byte
		if rows[i].Value != nil {
			mac = format.StateMAC(rec.Salt(i), rec.LSN, []byte(rows[i].Key), rows[i].Value)
		}
		entries = append(append(entries, tag[:]...), mac[:]...)
		leaf.State = append(leaf.State, entries[len(entries)-archive.StateSize:len(entries):len(entries)])
	}
	return nil
}

// redoneState compares the state rows of a record of the log with its leaf.
func (s *Engine) redoneState(c *format.Commit) error {
	for i, r := range c.State {
		if r.Value == nil || s.opts.Trust {
			continue
		}
		if err := s.provedState([]byte(r.Key), format.StateBody(c.LSN, c.StateProof(i), r.Value)); err != nil {
			return err
		}
	}
	return nil
}

// provedState compares a row with its entry.
func (s *Engine) provedState(key, body []byte) error {
	if s.Leaves == nil || s.opts.Trust {
		return nil
	}
	p := format.StateProof(body)
	was, err := s.Leaves.StateEntry(p.Leaf, int(p.Place))
	return proofError(err == nil && format.StateEntered(was, key, body), err)
}

// readState is UnsealState that compares the row with the audit.
func (s *Engine) readState(key, sealed []byte) (row store.StateRow, err error) {
	body, err := format.StateBodyOf(key, sealed)
	if err == nil {
		err = s.provedState(key, body)
	}
	if err != nil {
		return row, s.Corrupt(fmt.Sprintf("state row %q", key), err)
	}
	return format.StateRow(string(key), body), nil
}

// State implements store.Store.
func (s *Engine) State(ctx context.Context, key string) (store.StateRow, error) {
	if err := s.Readable(ctx); err != nil {
		return store.StateRow{}, err
	}
	s.cat.mu.RLock()
	body, known := s.unfiledState(key)
	s.cat.mu.RUnlock()
	if known {
		return format.StateRow(key, body), nil
	}
	return s.filedRow(key)
}

// unfiledState returns the body of a row that an overlay has; nil if the overlay says it is
// deleted. The caller holds cat.mu.
func (s *Engine) unfiledState(key string) (body []byte, known bool) {
	if body, known = s.overlay.state[key]; !known && s.frozen != nil {
		body, known = s.frozen.state[key]
	}
	return body, known
}

// filedRow reads a state row from the rows. A row whose key was destroyed is absent.
func (s *Engine) filedRow(key string) (row store.StateRow, err error) {
	row.Key = key
	err = s.rows.View(func(tx Reader) error {
		sealed := tx.Get(TableState, []byte(key))
		if sealed == nil {
			return nil
		}
		if codec.IsDestroyed(sealed) {
			return nil
		}
		r, err := s.readState([]byte(key), sealed)
		if err == nil {
			row = r
		}
		return err
	})
	return row, err
}

// filedState reads the LSNs of expected rows before the sequencer is entered. A row that an overlay
// has is not read: it leaves the overlay only with a release, and then the batch is prepared again.
func (s *Engine) filedState(expect []store.StatePre) ([]uint64, error) {
	lsns := make([]uint64, len(expect))
	for i := range expect {
		s.cat.mu.RLock()
		_, known := s.unfiledState(expect[i].Key)
		s.cat.mu.RUnlock()
		if known {
			continue
		}
		row, err := s.filedRow(expect[i].Key)
		if err != nil {
			return nil, err
		}
		lsns[i] = row.LSN
	}
	return lsns, nil
}

// stateConflict returns the first state row that is not as the batch expects it; nil: all are. The
// caller holds cat.mu, and nothing in flight writes the rows. 0 expects that there is no row; a
// deleted row counts as none.
func (s *Engine) stateConflict(b *Request, filed []uint64) *store.ConflictError {
	for i, e := range b.ExpectState {
		now := filed[i]
		if body, known := s.unfiledState(e.Key); known {
			now = format.StateLSN(body)
		}
		if now != e.LSN {
			return &store.ConflictError{Key: e.Key, Have: e.LSN, Now: now}
		}
	}
	return nil
}

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

// stateRowsAtOnce is the number of rows that are read in one snapshot: a longer snapshot would hold up a checkpoint.
const stateRowsAtOnce = 4096

// stateCheck compares all state rows with the audit.
type stateCheck struct {
	s     *Engine
	ctx   context.Context
	size  uint64               // leaves that count
	lsn   uint64               // rows above it were written since
	held  map[stateTag]stateAt // state rows that there are
	named map[stateTag]stateAt // the newest of each key that the leaves name
	bad   map[string]bool      // keys of rows that are not the newest of their keys, or were never committed
	gone  int                  // rows that are missing
}

// stateAt is the place of the entry of a row in the audit.
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
	mac [archive.StateSize - 8]byte
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

// readStates returns the claims of some state rows, and the key of the next row; nil: there is
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
		if p.Leaf >= t.size && format.StateLSN(body) > t.lsn {
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
	sort.Slice(claims, func(i, j int) bool {
		a, b := &claims[i], &claims[j]
		return cmp.Or(cmp.Compare(a.at.leaf, b.at.leaf), cmp.Compare(a.at.place, b.at.place)) < 0
	})
	for i := range claims {
		c := &claims[i]
		entry, err := t.s.Leaves.StateEntry(c.at.leaf, int(c.at.place))
		if err != nil && !damagedLeaf(err) {
			return AuditError(err)
		}
		if err != nil || [len(c.mac)]byte(entry[8:]) != c.mac {
			t.bad[c.at.key] = true
		}
		t.hold([]byte(c.at.key), c.at)
	}
	return nil
}

// name notes the entries of a leaf; leaves come oldest first.
func (t *stateCheck) name(leaf uint64, entries []byte) {
	var none [archive.StateSize - 8]byte
	for k := 0; len(entries) > 0; k++ {
		t.named[stateTag(entries)] = stateAt{leaf: leaf, place: uint32(k), deleted: [len(none)]byte(entries[8:]) == none}
		entries = entries[archive.StateSize:]
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
			leaf, err := t.s.Leaves.Leaf(last.leaf)
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
	t := &stateCheck{s: s, ctx: ctx, size: s.Leaves.Size(), held: map[stateTag]stateAt{}, named: map[stateTag]stateAt{}, bad: map[string]bool{}}
	t.unfiled()
	if err := t.stateRows(); err != nil {
		return nil, err
	}
	if err := s.Leaves.EachState(ctx, t.size, t.name); err != nil {
		return nil, AuditError(err)
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
