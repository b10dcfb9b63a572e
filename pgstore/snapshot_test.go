package pgstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// lockBuffers is how many buffers the server reads to lock the row of a database, in a table of its own.
func lockBuffers(t *testing.T, dsn, table string, db int) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var plan []byte
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM %s WHERE db = %d FOR UPDATE", table, db)).Scan(&plan))
	var out []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(plan, &out))
	return out[0].Plan.Hit + out[0].Plan.Read
}

// Commits beside a snapshot that is open for long, as that of a pg_dump, do not make the turn slower: the row that is locked is
// never updated. The control is a row that every turn updates, as a counter would be. CTXPAGE_LONG=1 makes 100,000 commits.
func TestLongSnapshot(t *testing.T) {
	srv := ownServer(t)
	ctx, dsn := t.Context(), srv.dsn("postgres")
	st := quiet(t, dsn, "main", nil)
	dump, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer dump.Close(context.Background())
	_, err = dump.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ctxpage_records")
	require.NoError(t, err)
	turns, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer turns.Close(context.Background())
	_, err = turns.Exec(ctx, "CREATE TABLE counter (db int PRIMARY KEY, n bigint); INSERT INTO counter VALUES (1, 0); SET synchronous_commit = off")
	require.NoError(t, err)
	for range 3000 {
		_, err = turns.Exec(ctx, "UPDATE counter SET n = n + 1")
		require.NoError(t, err)
	}
	commits, writers := 500, 4
	if long {
		commits, writers = 100_000, 64
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := w; n < commits; n += writers {
				b, err := factBatch(st, fmt.Sprint("a", n%1000), fmt.Sprint("words ", n))
				if err == nil {
					_, err = st.Commit(ctx, b)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, commits, st.Mark().LSN)
	t.Logf("after %d commits: %d buffers to lock the turn, %d for the control", commits, lockBuffers(t, dsn, "ctxpage_turn", st.db.num), lockBuffers(t, dsn, "counter", 1))
	require.LessOrEqual(t, lockBuffers(t, dsn, "ctxpage_turn", st.db.num), 10)
	require.Greater(t, lockBuffers(t, dsn, "counter", 1), 10, "the control: it proves nothing")
}

// Audit leaves of reads that were answered are in the audit after the server was stopped as by a power cut, as long as the host
// that read is running: it writes again what the inbox lost.
func TestLeavesOverServerCrash(t *testing.T) {
	srv := ownServer(t)
	ctx := t.Context()
	st := onHost(t, srv.dsn("postgres"), "main", nil)
	const reads = 60
	for n := range reads {
		leaf := &manifest.Record{Type: manifest.TypeGet, Trace: fmt.Sprint("read ", n), Scope: "acme", Time: int64(n)}
		require.NoError(t, st.Append(ctx, []*manifest.Record{leaf}, store.Written))
		if n%20 == 10 {
			require.NoError(t, srv.stop(3)) // SIGQUIT
			require.NoError(t, srv.start())
		}
	}
	head, err := st.Head(ctx)
	require.NoError(t, err)
	require.EqualValues(t, reads, head.Size)
	for n := range reads {
		found, err := st.Audit().ByTrace(ctx, fmt.Sprint("read ", n))
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
}

// Damage of the rows in an image or in a kept cache ends no process. An image is refused, or it serves what was written; a cache is fetched
// anew. The control: what is not damaged opens.
func TestDamagedRows(t *testing.T) {
	t.Parallel()
	ctx, dsn, dir := t.Context(), onServer(t), t.TempDir()
	o := Options{Name: ownName(t), NoNotify: true, Poll: time.Hour, MaxLag: -1}
	kept := o
	kept.CacheDir = dir
	a, err := Open(ctx, dsn, kept)
	require.NoError(t, err)
	const pages = 30
	for i := range pages {
		mustPut(t, a, fmt.Sprint("page ", i), strings.Repeat(fmt.Sprint("words of ", i, " "), 40))
	}
	_, err = a.WriteImage(ctx, nil)
	require.NoError(t, err)
	num := a.db.num
	require.NoError(t, a.Close())
	cache, err := os.ReadFile(filepath.Join(dir, rowsFile))
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var image []byte
	require.NoError(t, conn.QueryRow(ctx, "SELECT body FROM ctxpage_image_parts WHERE db = $1 AND file = $2 AND part = 0", num, rowsFile).Scan(&image))
	opens := func(o Options) error {
		st, err := Open(ctx, dsn, o)
		if err != nil {
			return err
		}
		for i := range pages {
			at, err := st.Resolve(ctx, acme, store.Ref{ID: fmt.Sprint("page ", i)})
			require.NoError(t, err)
			got, err := st.Load(ctx, acme, at.Pages, store.WantText)
			if err = cmp.Or(err, got[0].Err); err != nil {
				require.ErrorIs(t, err, store.ErrCorrupt)
			} else {
				require.Equal(t, strings.Repeat(fmt.Sprint("words of ", i, " "), 40), got[0].Text)
			}
		}
		return st.Close()
	}
	put := func(b []byte) {
		_, err := shared.exec(ctx, "UPDATE ctxpage_image_parts SET body = $3 WHERE db = $1 AND file = $2 AND part = 0", num, rowsFile, b)
		require.NoError(t, err)
	}
	require.NoError(t, opens(o))
	rounds, refused := 30, 0
	if long {
		rounds = 2000
	}
	for i := range rounds {
		put(damagedPage(image, i))
		if err := opens(o); err != nil {
			require.ErrorIs(t, err, store.ErrCorrupt, i)
			refused++
		}
	}
	require.NotZero(t, refused)
	put(image)
	for i := range rounds / 3 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, rowsFile), damagedPage(cache, i), 0o600))
		require.NoError(t, opens(kept), i)
	}
}

// damagedPage changes the head of a page of a file of rows, or zeros a page, or leads a branch to another page.
func damagedPage(rows []byte, seed int) []byte {
	r, b := rand.New(rand.NewPCG(1, uint64(seed))), slices.Clone(rows)
	size := os.Getpagesize()
	used := 2 + r.IntN(int(binary.NativeEndian.Uint64(b[16+40:]))-2) // below the high-water mark of the first meta page
	page := b[used*size : (used+1)*size]
	switch seed % 3 {
	case 0:
		page[r.IntN(16)] ^= byte(1 + r.IntN(255))
	case 1:
		clear(page)
	case 2:
		page[16+r.IntN(64)] ^= byte(1 + r.IntN(255))
	}
	return b
}
