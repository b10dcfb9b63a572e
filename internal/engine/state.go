package engine

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
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
// read before it, because that may wait for the disk; Engine.releases tells whether an overlay was
// moved into the rows since.

// stateTag stands for a key in the audit. It is keyed so that a caller who chooses the names cannot
// find two keys with the same tag.
func (s *Engine) stateTag(key []byte) (tag [8]byte) {
	d := store.SaltedMAC(s.stateSecret(), func(b []byte) []byte { return append(append(b, "state"...), key...) })
	return [8]byte(d[:])
}

// recentTags are the tags of keys that were written lately: each turn of a conversation writes one
// row of it again.
type recentTags [64]struct {
	key string
	tag [8]byte
}

// of returns the tag of a key.
func (t *recentTags) of(s *Engine, key string) [8]byte {
	at := &t[xxhash.Sum64String(key)%uint64(len(t))]
	if at.key != key {
		at.key, at.tag = strings.Clone(key), s.stateTag([]byte(key))
	}
	return at.tag
}

// stateSecret returns the secret, cut to the length of a salt.
func (s *Engine) stateSecret() []byte { return s.info.Secret[:min(len(s.info.Secret), 32)] }

// addState adds the state rows of a batch to a commit, and their entries to the leaf. The entries
// of all rows are cut from one piece of memory.
func (s *Engine) addState(rec *format.Commit, leaf *manifest.Record, rows []store.StateRow) error {
	rec.State = rows
	if len(rows) == 0 {
		return nil
	}
	if len(rows) > manifest.MaxState {
		return store.Invalid("state", fmt.Sprintf("%d rows", len(rows)), fmt.Sprintf("at most %d in one batch; write it in several", manifest.MaxState))
	}
	rec.Salts = make([]byte, len(rows)*store.DigestSaltSize)
	if _, err := io.ReadFull(s.opts.Rand, rec.Salts); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	entries := make([]byte, 0, len(rows)*manifest.StateSize)
	for i := range rows {
		tag := s.seq.tags.of(s, rows[i].Key)
		var mac [manifest.StateSize - 8]byte
		if rows[i].Value != nil {
			mac = format.StateMAC(rec.Salt(i), rec.LSN, []byte(rows[i].Key), rows[i].Value)
		}
		entries = append(append(entries, tag[:]...), mac[:]...)
		leaf.State = append(leaf.State, entries[len(entries)-manifest.StateSize:len(entries):len(entries)])
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
		if now != e.LSN && !b.Carried {
			return &store.ConflictError{Key: e.Key, Have: e.LSN, Now: now}
		}
	}
	return nil
}
