package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/owner"
	"github.com/ctxpage/ctxpage/store"
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

// remoteTests makes tests that open a database with openAt or openTest clients of another owner: what they expect does not
// depend on who has the files. The owner ends with the last of its clients, so a test that closes its database finds the files
// as they would be had it owned them.
var remoteTests = os.Getenv("CTXPAGE_TEST_REMOTE") == "1"

// AloneHere skips a test where remoteTests is set: it looks at what only the process that has the files sees.
func AloneHere(t testing.TB, why string) {
	t.Helper()
	if remoteTests {
		t.Skip("not through a client: " + why)
	}
}

// owners are the databases that remoteTests made owners, by path.
var owners struct {
	sync.Mutex
	by map[string]*ownedElsewhere
}

type ownedElsewhere struct {
	*DB
	clients int
}

// OwnedElsewhere opens the database as another process would, before the test does, where remoteTests is set. The test gives
// what it opened to the function that is returned.
func OwnedElsewhere(t testing.TB, path string, o Options) func(*DB) *DB {
	if !remoteTests || o.Store != nil || o.ReadOnly || o.Exclusive {
		return func(db *DB) *DB { return db }
	}
	owners.Lock()
	defer owners.Unlock()
	if owners.by == nil {
		owners.by = map[string]*ownedElsewhere{}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	e := owners.by[path]
	if e == nil {
		db, err := Open(path, Options{
			Clock: o.Clock, LockTimeout: 20 * time.Second, Key: o.Key, Keyring: o.Keyring, MustExist: o.MustExist, Identity: o.Identity, NoWatch: true,
			segment: o.segment, rotate: o.rotate, columns: o.columns, noSync: o.noSync, trust: o.trust, hook: o.hook, fs: o.fs,
		})
		if err != nil { // the test is told the same
			return func(db *DB) *DB { return db }
		}
		e = &ownedElsewhere{DB: db}
		owners.by[path] = e
	}
	e.clients++
	var once sync.Once
	left := func() (err error) {
		once.Do(func() {
			owners.Lock()
			defer owners.Unlock()
			if e.clients--; e.clients == 0 {
				delete(owners.by, path)
				err = e.Close()
			}
		})
		return err
	}
	t.Cleanup(func() { _ = left() })
	return func(db *DB) *DB {
		if db != nil {
			db.store = leaving{db.store, left}
		}
		return db
	}
}

// leaving is the store of a client whose owner ends with it.
type leaving struct {
	store.Store
	left func() error
}

func (l leaving) Close() error { return errors.Join(l.Store.Close(), l.left()) }

// FrameBytes returns the bytes the working set believes it keeps, and the sum over the frames on its list. Without a pin
// the two are equal.
func (db *DB) FrameBytes() (counted, listed int64) {
	t := db.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frames.settle()
	for _, f := range t.frames.list.Values() {
		listed += f.bytes
	}
	return t.frames.bytes, listed
}

// ProvesText reports whether the salted digest of a page version is the one of a text.
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

// files are the files of a database that this process owns.
func (db *DB) files() *filestore.Store {
	st := db.store
	if l, is := st.(leaving); is {
		st = l.Store
	}
	if files, ok := owner.Files(st); ok {
		return files
	}
	owners.Lock()
	elsewhere := owners.by[db.path]
	owners.Unlock()
	if elsewhere == nil {
		return nil
	}
	return elsewhere.files()
}
