package ctxpage

import (
	"cmp"
	"context"
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/owner"
	"github.com/ctxpage/ctxpage/internal/peek"
	"github.com/ctxpage/ctxpage/store"
	"go.etcd.io/bbolt"
)

// What tests outside the package may reach into.

// WithoutSync is Options without syncs: for tests that do many commits and are about answers, not about durability.
func WithoutSync(o Options) Options {
	o.noSync = true
	return o
}

// Trusting is Options that serve what was edited in the file: for controls.
func Trusting(o Options) Options {
	o.trust = true
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

// remoteTests makes tests that open a database with openAt or openTest clients of another owner: what they expect does not
// depend on who has the files. It is for tests that look at nothing but answers.
var remoteTests = os.Getenv("CTXPAGE_TEST_REMOTE") == "1"

// owners are the databases that remoteTests made owners, by path.
var owners sync.Map

// OwnedElsewhere opens the database as another process would, before the test does, where remoteTests is set.
func OwnedElsewhere(t testing.TB, path string, o Options) {
	if !remoteTests || o.Store != nil || o.ReadOnly || o.Exclusive {
		return
	}
	elsewhere, err := Open(path, Options{Clock: o.Clock, LockTimeout: time.Second, segment: o.segment, noSync: o.noSync})
	if err != nil {
		t.Fatal(err)
	}
	owners.LoadOrStore(elsewhere.path, elsewhere)
	t.Cleanup(func() { // after the test's own
		owners.CompareAndDelete(elsewhere.path, elsewhere)
		_ = elsewhere.Close()
	})
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
	loaded, err := db.store.Load(context.Background(), nil, []store.PageKey{{Num: num}}, store.WantHead)
	if err != nil || loaded[0].Err != nil {
		return false
	}
	for _, r := range loaded[0].Head.Rows {
		if r.Num == num {
			return store.SaltedDigest(r.Salt[:], text) == r.Digest
		}
	}
	page, err := db.store.Scan(context.Background(), store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{loaded[0].Head.Scope}, ID: loaded[0].Head.ID, Limit: 1000})
	if err != nil {
		return false
	}
	at := slices.IndexFunc(page.Heads, func(h *store.Head) bool { return h.Version == loaded[0].Key.Version })
	if at < 0 {
		return false
	}
	h := page.Heads[at]
	for _, r := range h.Rows {
		if r.Num == num {
			return store.SaltedDigest(r.Salt[:], text) == r.Digest
		}
	}
	return false
}

// inside looks into the embedded store.
func (db *DB) inside() filestore.Inside { return db.files().Peek(peek.Token{}) }

// files are the files of a database that this process owns.
func (db *DB) files() *filestore.Store {
	st, ok := owner.Files(db.store)
	if elsewhere, is := owners.Load(db.path); !ok && is {
		return elsewhere.(*DB).files()
	}
	return st
}

// bounds are those of the engine.
var bounds = peek.Engine.Bounds()

// highest are the highest numbers of artefacts, pages and groups that were given.
func (db *DB) highest() (n [3]uint64) {
	n[0], n[1], n[2], _ = peek.Engine.Numbers(db.inside().Engine)
	return n
}

// textKey is the key of a page's text.
func textKey(num uint64) []byte { return binary.BigEndian.AppendUint64(nil, num) }

// names are those of the files and rows of the embedded store.
var names = filestore.PeekNames(peek.Token{})

// Forge puts another text in the place of a page's, with a right checksum: what somebody with the file could do.
func (db *DB) Forge(num uint64, text string) error {
	if _, err := db.Checkpoint(context.Background()); err != nil {
		return err
	}
	return db.inside().Bolt.Update(func(tx *bbolt.Tx) error {
		key := textKey(num)
		return tx.Bucket(names.Content).Put(key, codec.Seal('c', key, []byte(text)))
	})
}

// VectorRows counts the vectors in the file.
func (db *DB) VectorRows() (n int) {
	_ = db.inside().Bolt.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(names.Vectors); b != nil {
			n = b.Stats().KeyN
		}
		return nil
	})
	return n
}
