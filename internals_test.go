package ctxpage

import (
	"cmp"
	"context"

	"github.com/ctxpage/ctxpage/store"
	"go.etcd.io/bbolt"
)

// What tests outside the package may reach into.

// WithoutSync is Options without syncs: for tests that do many commits and are about answers, not about durability.
func WithoutSync(o Options) Options {
	o.noSync = true
	return o
}

// hitsOf are the hits of a search, for tests that ask nothing else of it.
func hitsOf(f Found, err error) ([]Hit, error) { return f.Hits, err }

// testSegment is a size of segments of the log that are preallocated in steps of 64 KiB: tests make, copy and read many.
const testSegment = 8 << 20

// ShortLog is Options with segments of that size.
func ShortLog(o Options) Options {
	o.segment = cmp.Or(o.segment, testSegment)
	return o
}

// FrameBytes gives the bytes the working set believes it keeps, and the sum over the frames on its list. Without a pin
// the two are equal.
func (db *DB) FrameBytes() (counted, listed int64) {
	t := db.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.frames.list.Values() {
		listed += f.bytes
	}
	return t.frames.bytes, listed
}

// ProvesText says whether the salted digest of a page version is the one of a text.
func (db *DB) ProvesText(num uint64, text string) bool {
	loaded, err := db.store.Load(context.Background(), nil, []PageKey{{Num: num}}, WantHead)
	if err != nil || loaded[0].Err != nil {
		return false
	}
	for _, r := range loaded[0].Head.Rows {
		if r.Num == num {
			return store.SaltedDigest(r.Salt[:], text) == r.Digest
		}
	}
	h, err := db.store.(*fileStore).head(headKey{loaded[0].Head.Art, loaded[0].Key.Version})
	if err != nil {
		return false
	}
	for _, r := range h.Rows {
		if r.Num == num {
			return store.SaltedDigest(r.Salt[:], text) == r.Digest
		}
	}
	return false
}

// Forge puts another text in the place of a page's, with a right checksum: what somebody with the file could do.
func (db *DB) Forge(num uint64, text string) error {
	st := db.store.(*fileStore)
	if _, err := st.checkpoint(context.Background()); err != nil {
		return err
	}
	return st.update(func(tx *bbolt.Tx) error {
		return putRow(tx.Bucket(bucketContent), 'c', textRowKey(num), []byte(text))
	})
}

// VectorRows counts the vectors in the file.
func (db *DB) VectorRows() (n int) {
	_ = db.store.(*fileStore).view(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketVec); b != nil {
			n = b.Stats().KeyN
		}
		return nil
	})
	return n
}
