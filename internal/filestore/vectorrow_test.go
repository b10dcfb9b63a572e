package filestore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func TestVectorRows(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	for _, scope := range []string{"acme", "acme/a", "acme/b"} {
		must(db.Scope(scope).Put(ctx, Artefact{ID: "x", Text: "text of " + scope}))(t)
	}
	s := storeOf(db)
	vecs := [][]float32{{1, -2.5, math.MaxFloat32}, {0, 1, 2}, {4, 5, 6}}
	require.NoError(t, s.PutVectors(ctx, "m", []uint64{1, 2, 3}, vecs))
	require.NoError(t, s.PutVectors(ctx, "other", []uint64{1, 99, 0}, [][]float32{{7}, {8}, {9}}), "pages that are not there are passed over")
	read := func(scopes store.Scopes, model string) [][]float32 {
		t.Helper()
		return must(s.Vectors(ctx, scopes, model, []uint64{3, 2, 1, 0, 99}))(t)
	}
	for _, where := range []string{"overlay", "file"} {
		require.Equal(t, [][]float32{nil, vecs[1], vecs[0], nil, nil}, read(store.Scopes{"acme/a", "acme"}, "m"), where)
		require.Equal(t, [][]float32{nil, nil, {7}, nil, nil}, read(store.Scopes{"acme"}, "other"), where)
		require.Equal(t, make([][]float32, 5), read(store.Scopes{"acme"}, "unknown"), where)
		require.Equal(t, make([][]float32, 5), read(store.Scopes{}, "m"), where)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	// A newer vector of the same page and model takes the place of the old one, from the overlay and from the file.
	require.NoError(t, s.PutVectors(ctx, "m", []uint64{1}, [][]float32{{3}}))
	require.Equal(t, []float32{3}, read(store.Scopes{"acme"}, "m")[2])
	must(db.Admin().Checkpoint(ctx))(t)
	require.Equal(t, []float32{3}, read(store.Scopes{"acme"}, "m")[2])
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

// vectorKey and vectorRow are made by FORMAT.md, not by the store: a row that the store itself would make is among the
// tests, and is read.
func vectorKey(num uint64, model string) []byte {
	return binary.BigEndian.AppendUint64(codec.AppendOrdered(nil, num), xxhash.Sum64String(model))
}

func vectorRow(model string, v []float32) []byte {
	e := codec.Encoder{B: []byte{1}}
	e.Str(model)
	for _, f := range v {
		e.B = binary.LittleEndian.AppendUint32(e.B, math.Float32bits(f))
	}
	return e.B
}

// TestDamagedVectorIsNone: what does not check is not compared; a check names it, and a new vector heals it.
func TestDamagedVectorIsNone(t *testing.T) {
	key := vectorKey(1, "m")
	inf := binary.LittleEndian.AppendUint32(vectorRow("m", nil), math.Float32bits(float32(math.Inf(1))))
	gone := vectorKey(77, "m")
	for name, c := range map[string]struct{ key, row []byte }{
		"flipped bit": {key, func() []byte {
			b := codec.Seal('v', key, vectorRow("m", []float32{1, 2}))
			b[5] ^= 1
			return b
		}()},
		"short":             {key, []byte{1, 2}},
		"not finite":        {key, codec.Seal('v', key, inf)},
		"no numbers":        {key, codec.Seal('v', key, vectorRow("m", nil))},
		"other version":     {key, codec.Seal('v', key, append([]byte{9}, vectorRow("m", []float32{1})[1:]...))},
		"half a number":     {key, codec.Seal('v', key, append(vectorRow("m", []float32{1}), 0))},
		"other model":       {key, codec.Seal('v', key, vectorRow("collides", []float32{1}))},
		"of another key":    {key, codec.Seal('v', gone, vectorRow("m", []float32{1}))},
		"page is not there": {gone, codec.Seal('v', gone, vectorRow("m", []float32{1}))},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
			defer db.Close()
			must(db.Scope("acme").Put(ctx, Artefact{ID: "x", Text: "text"}))(t)
			s := storeOf(db)
			must(db.Admin().Checkpoint(ctx))(t)
			require.NoError(t, inside(db).Bolt.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists(names.Vectors)
				if err != nil {
					return err
				}
				return b.Put(c.key, c.row)
			}))
			got := must(s.Vectors(ctx, store.Scopes{"acme"}, "m", []uint64{1, 77}))(t)
			require.Equal(t, make([][]float32, 2), got)
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.Len(t, problems, 1)
			if string(c.key) == string(gone) {
				return
			}
			require.NoError(t, s.PutVectors(ctx, "m", []uint64{1}, [][]float32{{1}}))
			problems = must(db.Admin().Check(ctx, nil))(t)
			require.Empty(t, problems)
			got = must(s.Vectors(ctx, store.Scopes{"acme"}, "m", []uint64{1}))(t)
			require.Equal(t, [][]float32{{1}}, got)
		})
	}
}

// TestGCDropsVectorsOfOtherModels: those of the models that are named stay, in memory and in the file. A run that is cut
// between two checkpoints leaves the rest to the next one.
func TestGCDropsVectorsOfOtherModels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	defer func() { db.Close() }()
	nums, vecs := []uint64{1, 2, 3}, [][]float32{{1, 2}, {3, 4}, {5, 6}}
	for _, id := range []string{"x", "y", "z"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: "text of " + id}))(t)
	}
	has := func(model string) (n int) {
		for _, v := range must(storeOf(db).Vectors(ctx, store.Scopes{"acme"}, model, nums))(t) {
			if v != nil {
				n++
			}
		}
		return n
	}
	for _, model := range []string{"old", "new"} {
		require.NoError(t, storeOf(db).PutVectors(ctx, model, nums, vecs))
	}
	must(db.Admin().Checkpoint(ctx))(t)
	require.NoError(t, storeOf(db).PutVectors(ctx, "older", nums, vecs), "no checkpoint has seen these")

	rep := must(db.Admin().GC(ctx, GCOptions{}))(t)
	require.Zero(t, rep.Vectors, "the control: without models none goes")
	require.NoError(t, storeOf(db).PutVectors(ctx, "older", nums, vecs))
	rep = must(db.Admin().GC(ctx, GCOptions{Models: []string{"new"}, DryRun: true}))(t)
	require.Positive(t, rep.Vectors)
	require.Equal(t, [3]int{3, 3, 3}, [3]int{has("old"), has("older"), has("new")}, "a dry run drops none")
	require.ErrorIs(t, errOf(db.Admin().GC(ctx, GCOptions{Models: []string{"new"}, Scope: "acme"})), store.ErrInvalid)

	cut, cancel := context.WithCancel(ctx)
	_, err := db.Admin().GC(cut, GCOptions{Models: []string{"new"}, Progress: func(what string, _, _ uint64) {
		if what == "vectors" {
			cancel()
		}
	}})
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	must(db.Admin().GC(ctx, GCOptions{Models: []string{"new"}}))(t)
	require.Equal(t, [3]int{0, 0, 3}, [3]int{has("old"), has("older"), has("new")})
	require.NoError(t, storeOf(db).PutVectors(ctx, "old", nums[:1], vecs[:1]), "a model that comes back")
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{})
	require.Equal(t, [3]int{1, 0, 3}, [3]int{has("old"), has("older"), has("new")})
	rep = must(db.Admin().GC(ctx, GCOptions{Models: []string{}}))(t)
	require.Equal(t, 4, rep.Vectors, "no model is used any more")
	require.Equal(t, [3]int{}, [3]int{has("old"), has("older"), has("new")})
}

// vectorRows counts the vectors in the file.
func vectorRows(db *DB) (n int) {
	_ = inside(db).Bolt.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(names.Vectors); b != nil {
			n = b.Stats().KeyN
		}
		return nil
	})
	return n
}

// Vectors go with their pages, also those that are put after the drop.
func TestGCVectors(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	for i, text := range []string{"zebra one", "zebra two"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: text}))(t)
		v := must(db.Scope("acme").Get(ctx, "a"))(t)
		require.NoError(t, storeOf(db).PutVectors(ctx, "meanings", []uint64{v.Pages[0].Num}, [][]float32{{1, float32(i)}}))
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
		require.Equal(t, 1, vectorRows(db))
	}
	require.NoError(t, storeOf(db).PutVectors(ctx, "meanings", []uint64{1}, [][]float32{{1, 0}}), "of the page that went")
	must(db.Admin().Checkpoint(ctx))(t)
	require.Equal(t, 1, vectorRows(db))
}

func commitState(ctx context.Context, db *DB, rows ...store.StateRow) error {
	id, err := newID()
	if err != nil {
		return err
	}
	_, err = storeOf(db).Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "test", Now: time.Now(), State: rows, Leaf: manifest.Record{Type: manifest.TypeCommit}})
	return err
}

// A state row that was edited in the file, put back as it was, taken away, copied to another key, or added,
// is told by the check; and by a read, if the row itself is not one that was committed there. The
// control serves all of them.
func TestAnEditedStateRowIsNotServed(t *testing.T) {
	t.Parallel()
	const key, gone, new = "note/a", "note/gone", "note/new"
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db := openTest(t, path, Options{})
	set := func(key, value string) {
		t.Helper()
		b := store.StateRow{Key: key, Value: []byte(value)}
		if value == "" {
			b.Value = nil
		}
		require.NoError(t, commitState(ctx, db, b))
	}
	e := &editable{t: t, dir: dir}
	row := func(tx *bbolt.Tx, key string) []byte { return slices.Clone(tx.Bucket(names.State).Get([]byte(key))) }
	set(key, "one")
	set("note/b", "other")
	set(gone, "was here")
	require.NoError(t, db.Close())
	var was, wasGone []byte
	e.edit(false, func(tx *bbolt.Tx) { was, wasGone = row(tx, key), row(tx, gone) })
	db = openTest(t, path, Options{})
	set(key, "two")
	set(gone, "")
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "some words"}))(t)
	require.NoError(t, db.Close())

	put := func(tx *bbolt.Tx, key string, row []byte) {
		require.NoError(e.t, tx.Bucket(names.State).Put([]byte(key), row))
	}
	count := func(tx *bbolt.Tx, n int) {
		sys := tx.Bucket(names.Sys)
		require.NoError(e.t, sys.Put(names.SysKey, must(names.Recount(sys.Get(names.SysKey), engine.TableState, n))(e.t)))
	}
	for name, c := range map[string]struct {
		key    string
		read   bool
		change func(tx *bbolt.Tx)
	}{
		"edited": {key, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte(key), row(tx, key), []byte("evil")))(e.t)
			put(tx, key, b)
		}},
		"of another key": {key, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte("note/b"), row(tx, "note/b"), []byte("other")))(e.t)
			b = must(moveState([]byte("note/b"), b, []byte(key)))(e.t)
			put(tx, key, b)
		}},
		"added": {new, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte(key), row(tx, key), []byte("evil")))(e.t)
			b = must(moveState([]byte(key), b, []byte(new)))(e.t)
			put(tx, new, b)
			count(tx, 1)
		}},
		"put back":   {key, false, func(tx *bbolt.Tx) { put(tx, key, was) }},
		"come back":  {gone, false, func(tx *bbolt.Tx) { put(tx, gone, wasGone); count(tx, 1) }},
		"taken away": {key, false, func(tx *bbolt.Tx) { require.NoError(e.t, tx.Bucket(names.State).Delete([]byte(key))); count(tx, -1) }},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			db := e.edit(false, c.change)
			_, err := storeOf(db).State(ctx, c.key)
			require.Equal(t, c.read, errors.Is(err, store.ErrCorrupt), "%v", err)
			other, err := storeOf(db).State(ctx, "note/b")
			require.NoError(t, err, "the others are served")
			require.Equal(t, "other", string(other.Value))
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.True(t, slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" }), "%v", problems)
			require.NoError(t, commitState(ctx, db, store.StateRow{Key: c.key, Value: []byte("three")})) // what is written now holds
			require.Equal(t, "three", string(must(storeOf(db).State(ctx, c.key))(t).Value))
			must(db.Admin().Checkpoint(ctx))(t)
			must(storeOf(db).State(ctx, c.key))(t)

			db = e.edit(true, c.change)
			must(db.Scope("acme").Search(ctx, "words", 1))(t)
			require.NoError(t, errOf(storeOf(db).State(ctx, c.key)), "the control")
		})
	}
}
