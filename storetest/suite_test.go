package storetest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// inMemory opens a reference store again and again.
type inMemory struct{ *storetest.Memory }

func (m *inMemory) Open(testing.TB) store.Store {
	m.Memory = m.Reopen()
	return m.Memory
}

func (m *inMemory) Crash(testing.TB, store.Store) {}

func newInMemory(t testing.TB, cfg storetest.Config) storetest.Database {
	m := must(storetest.NewMemory(cfg))(t)
	return &inMemory{m}
}

func TestMemory(t *testing.T) { t.Parallel(); storetest.Run(t, newInMemory) }

// onFiles crashes by leaving the old files where they are, their process unaware, and going on with a copy of them.
type onFiles struct {
	path string
	cfg  storetest.Config
	key  []byte
	n    int
}

func (f *onFiles) Open(t testing.TB) store.Store {
	return must(filestore.Open(filestore.Options{Path: f.path, Key: f.key, Now: f.cfg.Now, State: f.cfg.State, Segment: 64 << 10}))(t)
}

func (f *onFiles) Crash(t testing.TB, st store.Store) {
	was := f.path
	f.n++
	f.path = filepath.Join(filepath.Dir(was), "copy-"+string(rune('a'+f.n)))
	require.NoError(t, dbtest.Copy(was, f.path))
	t.Cleanup(func() { _ = st.Close() })
}

func TestFileStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg}
	})
}

// TestEncryptedFileStore is the same over encrypted files.
func TestEncryptedFileStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, cfg storetest.Config) storetest.Database {
		return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg, key: []byte("a key of thirty-two bytes: 89012")}
	})
}

func onFilesAt(t testing.TB, cfg storetest.Config) storetest.Database {
	return &onFiles{path: dbtest.MemoryPath(t), cfg: cfg}
}
