package filestore

import (
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
)

// An erase must also make the erased rows unreadable in earlier backups. Pages and vectors are
// always encrypted under keys of their numbers. The other rows that hold content are encrypted
// again for a backup, each under the key of a number:
//
//	row                                  number                      what stays of it once the key is destroyed
//	head                                 of its first page           the row that an erase leaves of it, without a proof
//	state row, held batch, question      of its tag in the audit     its checksum, which is a part of the sum of the rows
//	outcome, scope, group                none                        all
//
// The leaves of an erase have the tag of each row that it took, so a run that a crash interrupted
// needs no list. The tag stands for a key, not for a value: an old version of a row in a
// backup goes too, and so does a row that the erase rewrote.
//
// An engine reads the remainder of such a row as an erased version, or as no row. It still counts
// it, because the system row of the backup does. Only a row that opens with the keys of the
// database can say that it was erased.

// backupRows writes the rows of a backup.
type backupRows struct {
	ring *Ring
	tag  func(t engine.Table, key []byte) [8]byte
	art  uint64 // the artefact of the head before
	page uint64 // its first page; 0: it has none yet
}

// forBackup decides what becomes of the rows of a backup. The index stays out: its rows are under
// keys that no erase destroys, and it is made again from the pages.
func (s *Store) forBackup() func(bucket string, k, v []byte) ([]byte, error) {
	b := &backupRows{ring: s.ring.Load(), tag: s.eng.ErasedTag}
	return b.row
}

// row returns the value of a row as the backup has it; nil: the backup does not have the row.
func (b *backupRows) row(bucket string, k, v []byte) ([]byte, error) {
	switch bucket {
	case string(bucketSeg):
		return nil, nil
	case string(bucketMeta):
		if k[0] == metaHead {
			return b.head(k, v)
		}
	case string(bucketState):
		return b.tagged(engine.TableState, k, v)
	case string(bucketHeld):
		return b.tagged(engine.TableHeld, k, v)
	case string(bucketAsked):
		return b.tagged(engine.TableQuestion, k, v)
	}
	return v, nil
}

// head seals the row of a version under the key of its first page; a tombstone, which has none,
// under the key of the previous version. A damaged row stays as it is; reading it reports the damage.
func (b *backupRows) head(k, v []byte) ([]byte, error) {
	plain, err := b.ring.Open(SpaceMeta, k, v)
	if err != nil {
		return v, nil
	}
	stays, art, page, err := engine.DestroyedHead(k, plain)
	if err != nil {
		return v, nil
	}
	if art != b.art {
		b.art, b.page = art, 0
	}
	if page != 0 {
		b.page = page
	}
	if b.page == 0 || !b.ring.Has(b.page) {
		return v, nil
	}
	return b.ring.SealUnder(nil, SpaceMeta, k, b.page, stays, plain)
}

// tagged seals a state row, a held batch or a question under the key of its tag, with its checksum
// as what stays. Keys of a keyring that has no number for the tag leave the row as it is.
func (b *backupRows) tagged(t engine.Table, k, v []byte) ([]byte, error) {
	plain, err := b.ring.Open(spaceOf[t], k, v)
	if err != nil || len(plain) <= 8 || codec.IsDestroyed(plain) {
		return v, nil // damage is told where the row is read
	}
	num, ok := b.ring.TagNumber(b.tag(t, k))
	if !ok {
		return v, nil
	}
	return b.ring.SealUnder(nil, spaceOf[t], k, num, plain[len(plain)-8:], plain)
}
