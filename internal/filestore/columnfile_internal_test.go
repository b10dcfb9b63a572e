package filestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// columned is a closed database with a snapshot of its columns, of as many commits as asked for.
func columned(t *testing.T, commits uint64) string {
	path := dbtest.MemoryPath(t)
	writeColumned(t, path, 1, commits)
	require.FileExists(t, path+columnsSuffix)
	return path
}

func writeColumned(t *testing.T, path string, from, to uint64) {
	st := openColumned(t, path, Options{})
	for n := from; n <= to; n++ {
		must(st.Commit(t.Context(), liveBatch(t, st, n)))(t)
	}
	require.NoError(t, st.Close())
}

func openColumned(t *testing.T, path string, opts Options) *Store {
	t.Helper()
	opts.Path, opts.NoSync, opts.Columns = path, true, cmp.Or(opts.Columns, 1)
	st := must(Open(opts))(t)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// used reports whether an open read its columns from the snapshot.
func used(t *testing.T, st *Store) bool {
	t.Helper()
	return must(st.Stat(t.Context()))(t).ColumnsRead
}

// seen is what a database answers: each artefact with its text, every state row, a search.
func seen(t *testing.T, st *Store) (out []string) {
	t.Helper()
	ctx, chain := t.Context(), store.Scopes{"acme"}
	for i := range liveArts {
		at, err := st.Resolve(ctx, chain, store.Ref{ID: fmt.Sprintf("a%d", i)})
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		for _, p := range must(st.Load(ctx, chain, at.Pages, store.WantText))(t) {
			require.NoError(t, p.Err)
			out = append(out, p.Text, p.Head.ID, fmt.Sprint(p.Head.Version))
		}
	}
	for i := range liveRows {
		row := must(st.State(ctx, fmt.Sprintf("k%d", i)))(t)
		out = append(out, fmt.Sprintf("%d %s", row.LSN, row.Value))
	}
	found := must(st.Candidates(ctx, store.CandidateQuery{Scopes: chain, Terms: []string{"word3", "word5", "word7"}, K: 20, Now: time.Unix(1_800_000_000, 0)}))(t)
	return append(out, fmt.Sprintf("%+v", found))
}

// TestColumns: with the snapshot a database answers as without it, passes its check, and goes on from there.
func TestColumns(t *testing.T) {
	path := columned(t, 90)
	without := openColumned(t, path, Options{ReadOnly: true, Trust: true}) // the control
	require.False(t, used(t, without))
	want := seen(t, without)
	require.NoError(t, without.Close())
	st := openColumned(t, path, Options{})
	require.True(t, used(t, st))
	require.Equal(t, want, seen(t, st))
	rep := must(st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil))(t)
	require.Empty(t, rep.Problems)
	require.NoError(t, st.Close())
	for round := range uint64(3) { // from snapshot to snapshot
		writeColumned(t, path, 91+40*round, 130+40*round)
	}
	st = openColumned(t, path, Options{})
	require.True(t, used(t, st))
	have := seen(t, st)
	rep = must(st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil))(t)
	require.Empty(t, rep.Problems)
	require.NoError(t, st.Close())
	without = openColumned(t, path, Options{ReadOnly: true, Trust: true})
	require.Equal(t, seen(t, without), have)
}

// TestColumnsAreOfTheIndex: a close whose last checkpoint only cuts the log does not merge the index, so the columns of it that
// the close wrote before are used by the next open. The database gets a segment with each close, so some are due to be merged.
func TestColumnsAreOfTheIndex(t *testing.T) {
	path := dbtest.MemoryPath(t)
	for round := range uint64(20) {
		st := openColumned(t, path, Options{Rotate: 4 << 10})
		for n := 5*round + 1; n <= 5*round+5; n++ {
			must(st.Commit(t.Context(), liveBatch(t, st, n)))(t)
		}
		require.NoError(t, st.Close())
		require.Equal(t, listOf(t, path), listIn(t, path), "close %d", round)
	}
}

// listOf is the digest of the rows of the index that say which segments it has, and listIn that of the rows that a snapshot is
// of.
func listOf(t *testing.T, path string) []byte {
	h := sha256.New()
	editRow(t, path, func(tx *bbolt.Tx) {
		for _, key := range []string{"L", "R"} {
			row := tx.Bucket(bucketSeg).Get([]byte(key))
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(row))))
			h.Write(row)
		}
	})
	return h.Sum(nil)
}

func listIn(t *testing.T, path string) []byte {
	const partWords = 6
	b := must(os.ReadFile(path + columnsSuffix))(t)
	at := columnsHead + int(binary.BigEndian.Uint32(b[12:]))
	d := &codec.Decoder{B: b[columnsHead:at]}
	d.U64()
	_ = d.Str()
	for e := d.B; len(e) > 0; e = e[columnsEntry:] {
		if e[0] == partWords {
			return b[at:][:sha256.Size]
		}
		at += int(binary.BigEndian.Uint64(e[1:]))
	}
	t.Fatal("the snapshot has no part of the index")
	return nil
}

// TestColumnsAreNotKept: what opens as fast without it has none, and who asks for none neither reads nor keeps one.
func TestColumnsAreNotKept(t *testing.T) {
	for _, from := range []int{-1, 0} {
		path := dbtest.MemoryPath(t)
		st := must(Open(Options{Path: path, NoSync: true, Columns: from}))(t)
		must(st.Commit(t.Context(), liveBatch(t, st, 1)))(t)
		require.NoError(t, st.Close())
		require.NoFileExists(t, path+columnsSuffix)
	}
}

// TestColumnsDamaged: whatever happens to the bytes of the file, the database answers as without it. An open for writing
// removes it.
func TestColumnsDamaged(t *testing.T) {
	path := columned(t, 60)
	whole := must(os.ReadFile(path + columnsSuffix))(t)
	st := openColumned(t, path, Options{ReadOnly: true})
	require.True(t, used(t, st), "the control")
	want := seen(t, st)
	require.NoError(t, st.Close())
	try := func(what string, b []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path+columnsSuffix, b, 0o600))
		st := openColumned(t, path, Options{ReadOnly: true})
		require.False(t, used(t, st), what)
		require.Equal(t, want, seen(t, st), what)
		require.NoError(t, st.Close())
	}
	step := max(1, len(whole)/dbtest.Times(10, 40, 2000))
	for at := 0; at < len(whole); at += step {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x10
		try(fmt.Sprintf("byte %d flipped", at), flipped)
	}
	for at := 0; at < len(whole); at += 4 * step {
		try(fmt.Sprintf("cut at %d", at), whole[:at])
	}
	try("longer", append(slices.Clone(whole), 0))
	st = openColumned(t, path, Options{})
	require.NoFileExists(t, path+columnsSuffix)
	require.NoError(t, st.Close())
}

// TestColumnsForged: a snapshot that was edited with all its checksums right is not the one of the leaf, and neither is one
// that names another leaf, an older one put back, or one of another database.
func TestColumnsForged(t *testing.T) {
	path := columned(t, 60)
	old := must(os.ReadFile(path + columnsSuffix))(t)
	writeColumned(t, path, 61, 70)
	whole := must(os.ReadFile(path + columnsSuffix))(t)
	foreign := must(os.ReadFile(columned(t, 70) + columnsSuffix))(t)
	refused := func(what string, b []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path+columnsSuffix, b, 0o600))
		st := openColumned(t, path, Options{ReadOnly: true})
		require.False(t, used(t, st), what)
		require.NoError(t, st.Close())
	}
	refused("an old one", old)
	refused("of another database", foreign)

	edited := slices.Clone(whole)
	edited[len(edited)-1] ^= 1 // of the last part
	resealColumns(edited)
	refused("edited", edited)

	renamed := slices.Clone(old) // the old one, at the LSN of the rows
	copy(renamed[columnsHead:], whole[columnsHead:columnsHead+8])
	resealColumns(renamed)
	refused("an old one that names the new LSN", renamed)

	refused("of another leaf", atLeaf(whole, 0))
	for _, version := range []uint32{columnsVersion - 1, columnsVersion + 1} { // its parts would be read as what they are not
		other := slices.Clone(whole)
		binary.BigEndian.PutUint32(other[8:], version)
		resealColumns(other)
		refused("of another version", other)
	}
	control := slices.Clone(whole)
	resealColumns(control)
	require.NoError(t, os.WriteFile(path+columnsSuffix, control, 0o600))
	require.True(t, used(t, openColumned(t, path, Options{ReadOnly: true})), "the control: it was sealed as it was before")
}

// resealColumns makes the digests and the checksum right again.
func resealColumns(b []byte) {
	n := int(binary.BigEndian.Uint32(b[12:]))
	d := codec.Decoder{B: b[columnsHead : columnsHead+n]}
	d.U64()
	d.Str()
	at := columnsHead + n
	for e := d.B; len(e) > 0; e = e[columnsEntry:] {
		length := int(binary.BigEndian.Uint64(e[1:]))
		sum := sha256Of(b[at : at+length])
		copy(e[9:], sum)
		at += length
	}
	copy(b, atLeaf(b, binary.BigEndian.Uint64(b[16:])))
}

// editRow edits a row of a closed file.
func editRow(t *testing.T, path string, change func(tx *bbolt.Tx)) {
	t.Helper()
	db := must(bbolt.Open(path, 0o600, nil))(t)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { change(tx); return nil }))
	require.NoError(t, db.Close())
}

// TestRowsUnderColumns: under a good snapshot an edited row hides nothing, and is never served. A check finds state
// rows that were put back, removed, or deleted and brought again.
func TestRowsUnderColumns(t *testing.T) {
	ctx, chain := context.Background(), store.Scopes{"acme"}
	was := map[string][]byte{} // state rows of an older moment
	path := columned(t, 30)
	editRow(t, path, func(tx *bbolt.Tx) {
		require.NoError(t, tx.Bucket(bucketState).ForEach(func(k, v []byte) error { was[string(k)] = bytes.Clone(v); return nil }))
	})
	writeColumned(t, path, 31, 55)
	now := map[string][]byte{}
	editRow(t, path, func(tx *bbolt.Tx) {
		require.NoError(t, tx.Bucket(bucketState).ForEach(func(k, v []byte) error { now[string(k)] = bytes.Clone(v); return nil }))
	})
	var gone string
	for k := range was {
		if now[k] == nil {
			gone = k
		}
	}
	require.NotEmpty(t, gone, "some row was deleted since")
	newest := format.HeadRowKey(format.HeadKey{Art: 2, Version: 2})
	for what, c := range map[string]struct {
		edit func(tx *bbolt.Tx)
		ask  func(st *Store) error
	}{
		"a head taken away": {
			func(tx *bbolt.Tx) { require.NoError(t, tx.Bucket(bucketMeta).Delete(newest)) },
			func(st *Store) error {
				_, err := st.Resolve(ctx, chain, store.Ref{ID: "a2"})
				return loadErr(st, err, "a2")
			},
		},
		"a head edited": {
			func(tx *bbolt.Tx) {
				row := must(codec.Unseal('m', newest, bytes.Clone(tx.Bucket(bucketMeta).Get(newest))))(t)
				row[45] ^= 1 // when it expires
				require.NoError(t, tx.Bucket(bucketMeta).Put(newest, codec.Seal('m', newest, row)))
			},
			func(st *Store) error {
				_, err := st.Resolve(ctx, chain, store.Ref{ID: "a2"})
				return loadErr(st, err, "a2")
			},
		},
		"a state row put back": {
			func(tx *bbolt.Tx) { require.NoError(t, tx.Bucket(bucketState).Put([]byte("n"), was["n"])) },
			checkErr,
		},
		"one state row taken away, another brought again": {
			func(tx *bbolt.Tx) {
				require.NoError(t, tx.Bucket(bucketState).Put([]byte(gone), was[gone]))
				require.NoError(t, tx.Bucket(bucketState).Delete([]byte("n")))
			},
			checkErr,
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Dir(path))))
			at := filepath.Join(dir, filepath.Base(path))
			for _, edited := range []bool{false, true} {
				if edited {
					editRow(t, at, c.edit)
				}
				st := must(Open(Options{Path: at, NoSync: true, Columns: 1, ReadOnly: true}))(t)
				require.True(t, used(t, st))
				switch err := c.ask(st); edited {
				case true:
					require.ErrorIs(t, err, store.ErrCorrupt)
				default:
					require.NotErrorIs(t, err, store.ErrCorrupt, "the control")
				}
				require.NoError(t, st.Close())
			}
		})
	}
}

// checkErr returns ErrCorrupt for a problem that a check finds in the audit's rows.
func checkErr(st *Store) error {
	rep, err := st.Maintain(context.Background(), store.Job{Kind: store.JobCheck}, nil)
	for _, p := range rep.Problems {
		if p.Invariant == "I17" {
			err = errors.Join(err, store.ErrCorrupt)
		}
	}
	return err
}

// loadErr is what a reader of an artefact meets.
func loadErr(st *Store, err error, id string) error {
	if err != nil {
		return err
	}
	ctx, chain := context.Background(), store.Scopes{"acme"}
	at, err := st.Resolve(ctx, chain, store.Ref{ID: id})
	if err != nil {
		return err
	}
	pages, err := st.Load(ctx, chain, at.Pages, store.WantText)
	for _, p := range pages {
		err = errors.Join(err, p.Err)
	}
	return err
}

// TestColumnsAfterAKill: a process that ends at any step of writing the snapshot, or behind it, leaves a database that
// opens with everything, and no snapshot that is not of its rows.
func TestColumnsAfterAKill(t *testing.T) {
	for _, step := range []string{"columns named", "columns written", "columns renamed"} {
		t.Run(step, func(t *testing.T) {
			path := columned(t, 40)
			copied := filepath.Join(t.TempDir(), "agent.ctx")
			reached := 0
			st := openColumned(t, path, Options{Hook: func(at string) error {
				if at == step {
					reached++
					return dbtest.Copy(path, copied)
				}
				return nil
			}})
			for n := uint64(41); n <= 50; n++ {
				must(st.Commit(t.Context(), liveBatch(t, st, n)))(t)
			}
			want := seen(t, st)
			require.NoError(t, st.Close())
			require.Equal(t, 1, reached)
			for _, suffix := range []string{columnsSuffix, newSuffix} {
				if b, err := os.ReadFile(path + suffix); err == nil {
					require.NoError(t, os.WriteFile(copied+suffix, b, 0o600))
				}
			}
			again := openColumned(t, copied, Options{})
			require.Equal(t, want, seen(t, again))
			require.NoFileExists(t, copied+newSuffix)
			require.Empty(t, must(again.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil))(t).Problems)
		})
	}
}

// killed copies the files of an open store of which nothing moves, as a kill would leave them.
func killed(t *testing.T, path string) string {
	dir := filepath.Join(t.TempDir(), "killed")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Dir(path))))
	return filepath.Join(dir, filepath.Base(path))
}

// TestColumnsBesideCommits: a snapshot that was written while the database was open is read after a kill, with what the log has
// behind it, until a checkpoint moves the rows. A kill at any step of it leaves everything.
func TestColumnsBesideCommits(t *testing.T) {
	path := dbtest.MemoryPath(t)
	var at []string // copies, each at a step
	st := openColumned(t, path, Options{Hook: func(step string) error {
		if strings.HasPrefix(step, "columns ") {
			at = append(at, killed(t, path))
		}
		return nil
	}})
	next := uint64(1)
	commit := func(n uint64) {
		for end := next + n; next < end; next++ {
			must(st.Commit(t.Context(), liveBatch(t, st, next)))(t)
		}
	}
	opened := func(copied string, from bool, want []string) {
		t.Helper()
		again := openColumned(t, copied, Options{})
		require.Equal(t, from, used(t, again))
		require.Equal(t, want, seen(t, again))
		require.Empty(t, must(again.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil))(t).Problems)
		require.NoError(t, again.Close())
	}
	commit(60)
	require.False(t, KeepColumns(st), "rows wait for their checkpoint")
	must(st.checkpoint(t.Context()))(t)
	require.True(t, KeepColumns(st))
	require.Len(t, at, 3)
	want := seen(t, st)
	opened(at[0], false, want)
	opened(at[1], false, want)
	opened(at[2], true, want)
	commit(5)
	opened(killed(t, path), true, seen(t, st))
	must(st.checkpoint(t.Context()))(t)
	require.True(t, st.columnsOld())
	opened(killed(t, path), false, seen(t, st)) // the control: it is of older rows
	require.True(t, KeepColumns(st))
	commit(5)
	opened(killed(t, path), true, seen(t, st))
	require.Zero(t, st.refreshColumns(), "the snapshot is of the rows")
	require.Len(t, at, 6)
}

// TestColumnsHoldCheckpoints: while the snapshot is of the rows, an old row alone is no reason for a checkpoint, but many bytes
// in the log and vectors are.
func TestColumnsHoldCheckpoints(t *testing.T) {
	was := PeekAge(-1) // every row is older, also by a clock that stands still meanwhile
	defer PeekAge(was)
	path := columned(t, 60)
	for _, from := range []int{1, -1} { // the control has no snapshot
		st := openColumned(t, path, Options{Columns: from})
		if from < 0 {
			require.NoError(t, st.dropColumns())
		}
		st.worker.awake.Store(true) // no run begins: it would do what is due
		st.worker.timer.Stop()
		st.worker.mu.Lock() // one that has begun ends
		st.worker.retryAt = time.Time{}
		st.worker.mu.Unlock()
		if from > 0 {
			st.columns.state.Store(&columnsStat{bytes: 1 << 20}) // as a large database has
		}
		must(st.Commit(t.Context(), liveBatch(t, st, 61)))(t)
		require.Equal(t, from < 0, st.due())
		if from > 0 {
			require.Zero(t, st.nextWork(), "nothing to do before the next record")
			full := *st.columns.state.Load()
			st.columns.state.Store(&columnsStat{bytes: int64(st.eng.Waiting().Bytes)*columnsShare - 1})
			require.True(t, st.due(), "the log has more than its share")
			st.columns.state.Store(&full)
			require.False(t, st.due())
			at := must(st.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "a1"}))(t)
			require.NoError(t, st.PutVectors(t.Context(), "m", []uint64{at.Pages[0].Num}, [][]float32{{1, 0}}))
			require.True(t, st.due(), "only the file will have vectors")
		}
		require.NoError(t, st.Close())
	}
}

// TestIdleStoreHasNoWork: a run that finds nothing to do starts no timer, and the next record does.
func TestIdleStoreHasNoWork(t *testing.T) {
	st := openColumned(t, dbtest.MemoryPath(t), Options{})
	must(st.Commit(t.Context(), liveBatch(t, st, 1)))(t)
	st.worker.timer.Stop()
	st.worker.awake.Store(false)
	next, ok := st.workOnce()
	require.True(t, ok)
	require.Greater(t, next, syncEvery, "the age of the row, and no sooner")
	must(st.checkpoint(t.Context()))(t)
	require.True(t, KeepColumns(st))
	st.worker.timer.Stop()
	st.worker.awake.Store(false)
	st.work()
	require.False(t, st.worker.timer.Stop(), "nothing is to be done")
	must(st.Commit(t.Context(), liveBatch(t, st, 2)))(t)
	require.True(t, st.worker.awake.Load())
	require.True(t, st.worker.timer.Stop(), "a run was due")
	require.NoError(t, st.Close())
	next, ok = st.workOnce()
	require.False(t, ok)
	require.Zero(t, next)
}

// TestColumnsOfAnOlderProgram: one that commits and knows no snapshot leaves it behind; it is not used, and goes.
func TestColumnsOfAnOlderProgram(t *testing.T) {
	path := columned(t, 40)
	old := openColumned(t, path, Options{Trust: true, Columns: -1}) // it neither reads nor writes one
	must(old.Commit(t.Context(), liveBatch(t, old, 41)))(t)
	want := seen(t, old)
	require.NoError(t, old.Close())
	require.FileExists(t, path+columnsSuffix)
	st := openColumned(t, path, Options{})
	require.False(t, used(t, st))
	require.NoFileExists(t, path+columnsSuffix)
	require.Equal(t, want, seen(t, st))
}

// TestColumnsOfOlderRows: a snapshot of other rows is refused by its directory, before its leaf and its parts are read.
func TestColumnsOfOlderRows(t *testing.T) {
	for _, commits := range []uint64{0, 1} {
		path := columned(t, 40)
		st := openColumned(t, path, Options{Trust: true, Columns: -1}) // it neither reads nor writes one
		for n := range commits {
			must(st.Commit(t.Context(), liveBatch(t, st, 41+n)))(t)
		}
		require.NoError(t, st.Close())
		_, _, err := st.readColumns(t.Context())
		if st.columns.audit != nil {
			require.NoError(t, st.columns.audit.Close())
		}
		if commits == 0 {
			require.NoError(t, err, "control")
			continue
		}
		require.ErrorIs(t, err, errColumns)
	}
}

// TestColumnsAreNotCopied: a backup has none, and a restore over a database takes that one's away.
func TestColumnsAreNotCopied(t *testing.T) {
	path, to := columned(t, 40), filepath.Join(t.TempDir(), "backup")
	st := openColumned(t, path, Options{})
	must(st.Maintain(t.Context(), store.Job{Kind: store.JobBackup, Path: to}, nil))(t)
	require.NoError(t, st.Close())
	require.NoFileExists(t, to+columnsSuffix)
	require.FileExists(t, path+columnsSuffix)
	must(Restore(t.Context(), to, path, RestoreOptions{Replace: true}))(t)
	require.NoFileExists(t, path+columnsSuffix)
	require.NoFileExists(t, path+restoringSuffix+columnsSuffix)
}

// atLeaf is a snapshot whose head names a leaf.
func atLeaf(b []byte, leaf uint64) []byte {
	b = slices.Clone(b)
	binary.BigEndian.PutUint64(b[16:], leaf)
	binary.BigEndian.PutUint64(b[24:], xxhash.Sum64(b[:24]))
	return b
}

func sha256Of(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
