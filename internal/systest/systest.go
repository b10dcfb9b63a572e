// Package systest opens databases for tests of the whole: over files with options of their own, which users of the library
// do not have, and that are checked at the end. Its own tests are of what goes through all layers.
package systest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

// segment is a size of segments of the log that are preallocated in steps of 64 KiB: tests make, copy and read many.
const segment = 8 << 20

// opened maps a database that OpenOver returned to its store.
var opened sync.Map

// OpenOver opens a database over files with options of their own. What both options say is taken from opts.
func OpenOver(path string, opts ctxpage.Options, files filestore.Options) (*ctxpage.DB, error) {
	files.Path, files.State, files.Segment = path, ctxpage.StateKinds(), cmp.Or(files.Segment, segment)
	files.ReadOnly, files.Identity, files.MustExist, files.LockWait = opts.ReadOnly, opts.Identity, opts.MustExist, opts.LockTimeout
	files.Key, files.Keyring, files.Now, files.Logger = opts.Key, opts.Keyring, opts.Clock, opts.Logger
	if opts.Rand != nil {
		files.Rand = &filestore.LockedReader{R: opts.Rand}
	}
	if files.Audit = store.Written; opts.AuditSync {
		files.Audit = store.Synced
	}
	st, err := filestore.Open(files)
	if err != nil {
		return nil, err
	}
	opts.Identity, opts.MustExist, opts.LockTimeout, opts.Key, opts.Keyring, opts.Exclusive = store.Info{}, false, 0, nil, "", false
	opts.Store = st
	db, err := ctxpage.Open(path, opts)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	opened.Store(db, st)
	return db, nil
}

// OpenTest opens a database over files whose sessions are watched only when the test asks for it. It is closed when the test
// ends, unless the test closes it.
func OpenTest(t testing.TB, path string, opts ctxpage.Options, files ...filestore.Options) *ctxpage.DB {
	t.Helper()
	opts.NoWatch = true
	db := dbtest.Must(OpenOver(path, opts, append(files, filestore.Options{})[0]))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// OpenChecked opens files after a test, to be checked.
func OpenChecked(path string) (*ctxpage.DB, error) { return ctxpage.Open(path, ctxpage.Options{}) }

// StoreOf returns the store of a database that OpenOver opened.
func StoreOf(db *ctxpage.DB) *filestore.Store {
	st, ok := opened.Load(db)
	if !ok {
		panic("OpenOver did not open this database")
	}
	return st.(*filestore.Store)
}

// NewID makes a batch id.
func NewID() (ulid.ULID, error) { return store.NewID(time.Now(), rand.Reader) }

// HitsOf returns the hits of a search, for tests that ask nothing else of it.
func HitsOf(f ctxpage.Found, err error) ([]ctxpage.Hit, error) { return f.Hits, err }

// TextOf returns the text of an artefact; "" if there is none.
func TextOf(s *ctxpage.Scope, id string) (string, error) {
	v, err := s.Get(context.Background(), id)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return v.Text, nil
}

// Together runs fn in n goroutines and returns their errors joined.
func Together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// FilesHave reports whether a file of some directories has a text, in small letters or large ones.
func FilesHave(t testing.TB, text string, dirs ...string) bool {
	t.Helper()
	files, err := dbtest.Files(dirs...)
	require.NoError(t, err)
	for path, b := range files {
		if bytes.Contains(bytes.ToLower(dbtest.Readable(path, b)), []byte(strings.ToLower(text))) {
			return true
		}
	}
	return false
}
