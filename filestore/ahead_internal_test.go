package filestore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// aheadOwner is a database that has rows in the file and commits, and a question, in the log alone.
func aheadOwner(t *testing.T) *Store {
	st := ownLocked(t, Options{Path: dbtest.MemoryPath(t)})
	for n := uint64(1); n <= 120; n++ {
		_, err := st.Commit(t.Context(), liveBatch(t, st, n))
		require.NoError(t, err)
		if n == 80 {
			checkpointed(t, st)
		}
	}
	asked(t, st)
	return st
}

// ownLocked opens a database as an owner does.
func ownLocked(t *testing.T, opts Options) *Store {
	t.Helper()
	lock, err := TakeLock(opts)
	require.NoError(t, err)
	opts.Lock = lock
	st, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close(); _ = lock.Release() })
	return st
}

// handOver closes a store whose lock is wanted.
func handOver(t *testing.T, st *Store) {
	t.Helper()
	st.opts.Lock.Wanted(true)
	require.NoError(t, st.Close())
	require.NoError(t, st.opts.Lock.Release())
}

func checkpointed(t *testing.T, st *Store) {
	t.Helper()
	_, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCheckpoint}, nil)
	require.NoError(t, err)
}

func asked(t *testing.T, st *Store) {
	t.Helper()
	require.NoError(t, st.note(t.Context(), store.Synced, &manifest.Record{Type: manifest.TypeSearch, Scope: "acme", Question: "where is the zebra?"}))
}

// What was read ahead is used if it is still true, with what came after it; otherwise the rows are read. In both cases the next
// owner answers as one that read nothing ahead, and passes its check.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	more := func(t *testing.T, st *Store) {
		for n := uint64(121); n <= 150; n++ {
			_, err := st.Commit(t.Context(), liveBatch(t, st, n))
			require.NoError(t, err)
		}
		asked(t, st)
	}
	for name, c := range map[string]struct {
		before  func(t *testing.T, st *Store)
		between func(t *testing.T, st *Store)
		spoil   func(a *Ahead)
		used    bool
	}{
		"nothing came after it":                {used: true},
		"commits and a question came after it": {between: more, used: true},
		"a checkpoint came after it":           {between: func(t *testing.T, st *Store) { more(t, st); checkpointed(t, st) }},
		"vectors came after it": {between: func(t *testing.T, st *Store) {
			at, err := st.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "a1"})
			require.NoError(t, err)
			require.NoError(t, st.PutVectors(t.Context(), "model", []uint64{at.Pages[0].Num}, [][]float32{{1, 2}}))
			checkpointed(t, st)
		}, before: checkpointed},
		"the file was written anew": {between: func(t *testing.T, st *Store) {
			_, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCompact}, nil)
			require.NoError(t, err)
		}},
		"a record is another one": {spoil: func(a *Ahead) { a.log[a.last-3]++ }},
		"the log is shorter": {spoil: func(a *Ahead) {
			a.last += 50
			for n := range uint64(50) {
				a.log[a.last-n] = 1
			}
		}},
		"it is of another database": {spoil: func(a *Ahead) { a.sys.ID = "another" }},
		"it was used before":        {spoil: func(a *Ahead) { a.used.Store(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := aheadOwner(t)
			path := st.opts.Path
			if c.before != nil {
				c.before(t, st)
			}
			a, err := ReadAhead(t.Context(), Options{Path: path})
			require.NoError(t, err)
			eng := a.st.eng
			if c.between != nil {
				c.between(t, st)
			}
			if c.spoil != nil {
				c.spoil(a)
			}
			handOver(t, st)

			st = ownLocked(t, Options{Path: path})
			want, waiting := seen(t, st), st.eng.Waiting()
			handOver(t, st)
			st = ownLocked(t, Options{Path: path, Ahead: a})
			require.Equal(t, c.used, st.eng == eng, "the catalogue that was read ahead is used")
			have := st.eng.Waiting()
			require.Equal(t, want, seen(t, st))
			require.Equal(t, waiting.Bytes, have.Bytes, "nothing is followed twice")
			require.Equal(t, waiting.Rows, have.Rows)
			_, err = st.Commit(t.Context(), liveBatch(t, st, 200))
			require.NoError(t, err)
			checkpointed(t, st)
			rep, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil)
			require.NoError(t, err)
			require.Empty(t, rep.Problems)
			_, err = st.Audit().Verify(t.Context(), nil, nil)
			require.NoError(t, err)
		})
	}
}

// An owner that commits and makes checkpoints all the time is read ahead, or not; what is read is never wrong.
func TestReadAheadOfABusyOwner(t *testing.T) {
	t.Parallel()
	st := aheadOwner(t)
	path := st.opts.Path
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		var err error
		for n := uint64(121); ctx.Err() == nil && err == nil; n++ {
			if _, err = st.Commit(context.Background(), liveBatch(t, st, n)); err == nil && n%7 == 0 {
				_, err = st.Maintain(context.Background(), store.Job{Kind: store.JobCheckpoint}, nil)
			}
		}
		written <- err
	}()
	var last *Ahead
	for range 30 {
		if a, err := ReadAhead(t.Context(), Options{Path: path}); err == nil {
			last = a
		} else {
			require.ErrorIs(t, err, errAhead)
		}
	}
	stop()
	require.NoError(t, <-written)
	handOver(t, st)
	st = ownLocked(t, Options{Path: path, Ahead: last})
	rep, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil)
	require.NoError(t, err)
	require.Empty(t, rep.Problems)
}

// Pages give the rows that bbolt gives, from any key on and before any key.
func TestPageRows(t *testing.T) {
	t.Parallel()
	st := aheadOwner(t)
	checkpointed(t, st)
	f, err := os.Open(st.opts.Path)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Stat()
	require.NoError(t, err)
	pages, err := newPageRows(f, size.Size())
	require.NoError(t, err)
	rows := 0
	require.NoError(t, st.viewRows(func(tx engine.Reader) error {
		for table := engine.TableMeta; table <= engine.TableQuestion; table++ {
			require.Equal(t, tx.Len(table), pages.Len(table), table)
			require.Equal(t, tx.Last(table), pages.Last(table), table)
			keys := [][]byte{nil, {0}, {0xff}}
			for k := range tx.From(table, nil) {
				rows++
				keys = append(keys, bytes.Clone(k), append(bytes.Clone(k), 0), k[:len(k)-1])
			}
			for _, key := range keys {
				require.Equal(t, tx.Get(table, key), pages.Get(table, key), "%s %x", table, key)
				require.Equal(t, tx.Before(table, key), pages.Before(table, key), "%s %x", table, key)
				wantK, wantV := tx.Next(table, key)
				haveK, haveV := pages.Next(table, key)
				require.Equal(t, wantK, haveK, "%s %x", table, key)
				require.Equal(t, wantV, haveV, "%s %x", table, key)
			}
		}
		return nil
	}))
	require.Greater(t, rows, 300)
	require.NoError(t, pages.err)
}

// Damaged pages end the reading. None makes it crash or go on for ever.
func TestPageRowsOfDamagedPages(t *testing.T) {
	t.Parallel()
	st := aheadOwner(t)
	checkpointed(t, st)
	whole, err := os.ReadFile(st.opts.Path)
	require.NoError(t, err)
	m, err := newestMeta(bytes.NewReader(whole), int64(len(whole)))
	require.NoError(t, err)
	rnd, ended := rand.New(rand.NewPCG(1, 2)), 0
	for range dbtest.Times(300, 20_000) {
		b := bytes.Clone(whole)
		for range 20 { // in the heads and first entries of pages, where the numbers are
			at := int64(2+rnd.IntN(int(m.high)-2))*m.pageSize + int64(rnd.IntN(64))
			b[at] = byte(rnd.Uint32())
		}
		r, err := newPageRows(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			ended++
			continue
		}
		for table := engine.TableMeta; table <= engine.TableQuestion; table++ {
			n := 0
			for k := range r.From(table, nil) {
				if r.Before(table, k); n > len(whole) {
					t.Fatal("more rows than bytes")
				}
				n++
			}
			r.Last(table)
		}
		if r.err != nil {
			ended++
		}
	}
	require.Positive(t, ended)
}
