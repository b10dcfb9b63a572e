package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A state row is kept with the LSN of the commit that last wrote it, which is what ExpectState compares. Older programs
// kept the value alone, under another tag of the checksum; those rows count as written by the first commit (store.StateRow).
//
// A row ends its head with its place in the audit: the leaf of its commit has an entry for every state row of the batch, in
// their order (manifest.Record.State), which begins with what stands for the key, under the secret of the database, so that
// the newest leaf of a key can be told without the key; then comes a salted digest of the row, zeros where it was deleted.
//
//	body    LSN, salt, leaf, place, value; the leaf is noLeaf in rows without an entry, of a redo of an older log
//
// The newest state of a row is, in this order: a batch in flight (blocker waits for it), the overlay, the overlay that a
// checkpoint is writing, the rows. The overlays are looked at under the sequencer. The rows are read before it, because
// that may wait for the disk; Releases says whether an overlay has gone there since.

const (
	tagState    = 'S'
	tagStateOld = 's' // of a value without an LSN

	lsnUntold = 1 // of a row that does not tell
)

const (
	stateHead = 8 + rowProofSize // bytes of a body before the value
	noLeaf    = 1<<64 - 1
)

// stateBody is a row without its checksum; nil: a row that is deleted. The value is copied: it is the caller's.
func stateBody(lsn uint64, p rowProof, value []byte) []byte {
	if value == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, stateHead+len(value)), lsn)
	return append(p.append(b), value...)
}

// stateRow reads the body of a row. The value is a copy, and not nil where there is a row.
func stateRow(key string, body []byte) store.StateRow {
	if len(body) < stateHead {
		return store.StateRow{Key: key}
	}
	return store.StateRow{Key: key, Value: append([]byte{}, body[stateHead:]...), LSN: binary.BigEndian.Uint64(body)}
}

// stateProof is the place of a row in the audit, without one leaf is noLeaf.
func stateProof(body []byte) (p rowProof) {
	d := codec.Decoder{B: body[8:]}
	copy(p.salt[:], d.Take(store.DigestSaltSize))
	p.leaf, p.place = d.U64(), d.U32()
	return p
}

// stateTag stands for a key in the audit. It is keyed: who chooses names must not find two keys of one tag.
func (s *Engine) stateTag(key []byte) (tag [8]byte) {
	d := store.SaltedMAC(s.stateSecret(), func(b []byte) []byte { return append(append(b, "state"...), key...) })
	return [8]byte(d[:])
}

// stateSecret is at most as long as a salt may be.
func (s *Engine) stateSecret() []byte { return s.info.Secret[:min(len(s.info.Secret), 32)] }

// stateMAC is the second part of the entry of a row.
func stateMAC(salt []byte, lsn uint64, key, value []byte) (m [manifest.StateSize - 8]byte) {
	d := store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("state")
		e.U64(lsn)
		e.Bytes(key)
		e.Raw(value)
		return e.B
	})
	return [len(m)]byte(d[:])
}

// addState adds the state rows of a batch to a commit, and their entries to the leaf.
func (s *Engine) addState(rec *commitRecord, leaf *manifest.Record, rows []store.StateRow) error {
	rec.State = rows
	if len(rows) == 0 {
		return nil
	}
	if len(rows) > manifest.MaxState {
		return store.Invalid("state", fmt.Sprintf("%d rows", len(rows)), fmt.Sprintf("at most %d in one batch; write it in several", manifest.MaxState))
	}
	rec.salts = make([]byte, len(rows)*store.DigestSaltSize)
	if _, err := io.ReadFull(s.opts.Rand, rec.salts); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	entries := make([]byte, 0, len(rows)*manifest.StateSize)
	for i := range rows {
		tag := s.stateTag([]byte(rows[i].Key))
		var mac [manifest.StateSize - 8]byte
		if rows[i].Value != nil {
			mac = stateMAC(rec.salt(i), rec.LSN, []byte(rows[i].Key), rows[i].Value)
		}
		entries = append(append(entries, tag[:]...), mac[:]...)
		leaf.State = append(leaf.State, entries[len(entries)-manifest.StateSize:len(entries):len(entries)])
	}
	return nil
}

// salt is that of state row i; nil: it has none.
func (c *commitRecord) salt(i int) []byte {
	if at := i * store.DigestSaltSize; at < len(c.salts) {
		return c.salts[at : at+store.DigestSaltSize]
	}
	return nil
}

// stateProof is the place of state row i in the audit.
func (c *commitRecord) stateProof(i int) (p rowProof) {
	if p.leaf = noLeaf; c.salt(i) != nil {
		copy(p.salt[:], c.salt(i))
		p.leaf, p.place = c.leaf, uint32(i)
	}
	return p
}

// redoneState compares the state rows of a record of the log with its leaf.
func (s *Engine) redoneState(c *commitRecord) error {
	for i, r := range c.State {
		if r.Value == nil || c.salt(i) == nil || s.opts.Trust {
			continue
		}
		if err := s.provedState([]byte(r.Key), stateBody(c.LSN, c.stateProof(i), r.Value)); err != nil {
			return err
		}
	}
	return nil
}

// provedState compares a row with its entry. One without is good only if it is from before there were entries.
func (s *Engine) provedState(key, body []byte) error {
	if s.Leaves == nil || s.opts.Trust {
		return nil
	}
	p := stateProof(body)
	if p.leaf == noLeaf {
		return s.unprovedState(stateLSN(body))
	}
	was, err := s.Leaves.StateEntry(p.leaf, int(p.place))
	switch {
	case errors.Is(err, manifest.ErrNoLeaf):
		return fmt.Errorf("%w (%w)", errUnproved, err)
	case err != nil:
		return AuditError(err)
	}
	if is := stateMAC(p.salt[:], stateLSN(body), key, body[stateHead:]); is != [len(is)]byte(was[8:]) {
		return errUnproved
	}
	return nil
}

// stateLSN is the LSN in the body of a row, 0 where it was deleted.
func stateLSN(body []byte) uint64 {
	if len(body) < stateHead {
		return 0
	}
	return binary.BigEndian.Uint64(body)
}

// unprovedState refuses a row without an entry, but those from before the audit had any.
func (s *Engine) unprovedState(lsn uint64) error {
	s.stateFrom.once.Do(func() { s.stateFrom.lsn, s.stateFrom.err = s.firstTold() })
	if s.stateFrom.err != nil {
		return s.stateFrom.err
	}
	if from := s.stateFrom.lsn; from != 0 && lsn >= from {
		return fmt.Errorf("%w: it has no place in the audit, and all state rows from lsn %d on have one", errUnproved, from)
	}
	return nil
}

// firstTold is the LSN of the first leaf of a program that writes entries of state rows; 0: there is none.
func (s *Engine) firstTold() (lsn uint64, err error) {
	scan, err := s.Leaves.ScanRows()
	for i := uint64(0); err == nil && i < scan.Size(); i++ {
		var d manifest.RowDigests
		if d, err = scan.Digests(i); err == nil && d.Told {
			leaf, err := scan.Leaf(i)
			if err != nil {
				return 0, AuditError(err)
			}
			return leaf.LSN, nil
		}
	}
	return 0, AuditError(err)
}

// UnsealState checks and reads a stored state row, without comparing it with the audit. The value is a copy.
func UnsealState(key, sealed []byte) (store.StateRow, error) {
	body, err := unsealState(key, sealed)
	if err != nil {
		return store.StateRow{}, err
	}
	return stateRow(string(key), body), nil
}

// unsealState gives the body of a stored row, which is borrowed if it can be.
func unsealState(key, sealed []byte) ([]byte, error) {
	body, err := codec.Unseal(tagState, key, sealed)
	if err == nil && (len(body) < stateHead || stateLSN(body) == 0) {
		err = fmt.Errorf("%w: a state row without the LSN of its last change", codec.ErrMalformed)
	}
	if err == nil {
		return body, nil
	}
	if value, oldErr := codec.Unseal(tagStateOld, key, sealed); oldErr == nil {
		return stateBody(lsnUntold, rowProof{leaf: noLeaf}, value), nil
	}
	return nil, err
}

// readState is UnsealState that compares the row with the audit.
func (s *Engine) readState(key, sealed []byte) (row store.StateRow, err error) {
	body, err := unsealState(key, sealed)
	if err == nil {
		err = s.provedState(key, body)
	}
	if err == nil {
		err = s.stateDoubted(key, stateLSN(body))
	}
	if err != nil {
		return row, s.Corrupt(fmt.Sprintf("state row %q", key), err)
	}
	return stateRow(string(key), body), nil
}

// State: see store.Store.
func (s *Engine) State(ctx context.Context, key string) (store.StateRow, error) {
	if err := s.Readable(ctx); err != nil {
		return store.StateRow{}, err
	}
	s.cat.mu.RLock()
	body, known := s.unfiledState(key)
	s.cat.mu.RUnlock()
	if known {
		return stateRow(key, body), nil
	}
	return s.filedRow(key)
}

// unfiledState is the body of a row that the rows do not have yet, nil where it was deleted. The caller holds cat.mu.
func (s *Engine) unfiledState(key string) (body []byte, known bool) {
	if body, known = s.overlay.state[key]; !known && s.frozen != nil {
		body, known = s.frozen.state[key]
	}
	return body, known
}

// filedRow reads a row of the rows.
func (s *Engine) filedRow(key string) (row store.StateRow, err error) {
	row.Key = key
	err = s.rows.View(func(tx Reader) error {
		sealed := tx.Get(TableState, []byte(key))
		if sealed == nil {
			return s.stateGone(key)
		}
		r, err := s.readState([]byte(key), sealed)
		if err == nil {
			row = r
		}
		return err
	})
	return row, err
}

// filedState reads the LSNs of expected rows before the sequencer is taken. A row that an overlay has is not read: it
// leaves the overlay only with a release, and then the batch is prepared again.
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

// stateConflict is the first state row that is not as the batch expects it; nil: there is none. The caller holds cat.mu,
// and nothing in flight writes the rows.
func (s *Engine) stateConflict(b *Request, filed []uint64) *store.ConflictError {
	for i, e := range b.ExpectState {
		now := filed[i]
		if body, known := s.unfiledState(e.Key); known {
			now = stateLSN(body)
		}
		if now != e.LSN && !b.Carried {
			return &store.ConflictError{Key: e.Key, Have: e.LSN, Now: now}
		}
	}
	return nil
}
