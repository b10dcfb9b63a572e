package filestore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
)

// An erase destroys the keys of the rows that it took, so that they can no longer be decrypted in
// earlier copies:
//
//	plan       the pages of every version that is marked as erased: texts and vectors
//	reseal     a row that lives although its key is to go gets one of the database while the file is written anew
//	destroy    the keyring without those keys replaces the old one
//
// The pages are computed from the file as it is after the commits of the erase, so a run that a
// crash interrupted needs no list of what it has to destroy, and doing it twice changes nothing.
// After an erase that takes names, no row of a page is left that has its number, so the row of the
// run lists the numbers.
//
// The new file takes its place before the new keyring does. A crash between the two leaves a file
// that both keyrings open.
//
// Heads, state rows, held batches and questions of a backup are under keys of numbers, too
// (under.go). Those that an erase took are in the entries of its leaves.
//
// In a copy, the key still opens outcomes, names of scopes and groups, and bodies of leaves; in a
// copy of the files that no backup made it opens everything. docs/encryption.md says so.

// planDestroy computes the keyring without the keys of the pages and rows that this run, or an earlier
// one, erased.
func (s *Store) planDestroy(p *engine.Purge) error {
	ring := s.ring.Load()
	if ring == nil {
		return nil
	}
	return s.viewRows(func(tx engine.Reader) error {
		nums, err := erasedPages(tx, ring)
		if err != nil {
			return err
		}
		nums = append(nums, p.Pages...)
		for _, tag := range p.Tags {
			if num, ok := ring.TagNumber(tag); ok {
				nums = append(nums, num)
			}
		}
		if len(nums) > 0 {
			s.nextRing = ring.Without(sortUnique(nums))
		}
		return nil
	})
}

// erasedPages are the pages of versions that were erased and whose keys are still there.
func erasedPages(tx engine.Reader, ring *Ring) ([]uint64, error) {
	var nums []uint64
	for k, v := range tx.From(engine.TableMeta, []byte{metaHead}) {
		if k[0] != metaHead {
			break
		}
		row, err := codec.Unseal('m', k, v)
		if err != nil {
			return nil, fmt.Errorf("ctxpage: erase: head row %x: %w", k, err)
		}
		h, err := format.DecodeHead(row, func(uint32) string { return "" })
		if err != nil {
			return nil, fmt.Errorf("ctxpage: erase: head row %x: %w", k, err)
		}
		if h.ErasedBy == "" {
			continue
		}
		for _, r := range h.Rows {
			if ring.Has(r.Num) {
				nums = append(nums, r.Num)
			}
		}
	}
	return nums, nil
}

// destroy replaces the keyring.
func (s *Store) destroy() error {
	if s.nextRing == nil {
		return nil
	}
	if err := s.eng.At("keys planned"); err != nil {
		return err
	}
	if err := writeRing(s.opts.FS, s.opts.keysPath(), s.nextRing, s.opts.Key); err != nil {
		return fmt.Errorf("ctxpage: destroy the keys of what was erased: %w", err)
	}
	s.ring.Store(s.nextRing)
	return s.eng.At("keys destroyed")
}

// resealed is the value of a row in the file that is written anew.
func (s *Store) resealed(bucket string, k, v []byte) ([]byte, error) {
	if s.nextRing == nil || !Destructible(v) && !IsUnder(v) {
		return v, nil
	}
	for t, name := range bucketNames {
		space := spaceOf[t]
		if string(name) != bucket || !s.losesKey(space, k, v) {
			continue
		}
		value, err := s.ring.Load().Open(space, k, v)
		if errors.Is(err, ErrDestroyed) { // restored from a copy that was made before an erase
			return v, nil
		}
		if err != nil {
			return nil, fmt.Errorf("row %x of %s: %w", k, bucket, err)
		}
		return s.nextRing.Seal(nil, space, k, value)
	}
	return v, nil
}

// losesKey reports whether the key of a value is to be destroyed.
func (s *Store) losesKey(space Space, k, v []byte) bool {
	if IsUnder(v) {
		num, ok := s.ring.Load().Under(space, k, v)
		return ok && !s.nextRing.Has(num)
	}
	return Numbered(space) && !s.nextRing.Has(Number(k))
}

// sortUnique sorts numbers and removes duplicates.
func sortUnique(nums []uint64) []uint64 {
	slices.Sort(nums)
	return slices.Compact(nums)
}
