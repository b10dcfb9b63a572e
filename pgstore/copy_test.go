package pgstore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// A copy of a file is the file: references, versions, LSNs, what was held, why and replay of past contexts; a head of the file
// verifies against it, and it goes on from there.
func TestCopyFile(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	s := db.Scope("acme/support")
	for i := range 30 {
		_, err = s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page ", i%20), Text: fmt.Sprintf("Refunds number %d are paid within %d days.", i%20, i)})
		require.NoError(t, err)
	}
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "what refunds are paid?", Budget: 2000})
	require.NoError(t, err)
	_, err = db.Scope("acme/support").Directives().Step(ctx, "prohibit fax")
	require.NoError(t, err)
	stats, err := db.Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	var told int
	got, err := CopyFile(ctx, path, dsn, Options{Name: ownName(t)}, func(string, uint64, uint64) { told++ })
	require.NoError(t, err)
	require.Equal(t, stats.LSN, got.LSN)
	var takesThere int64
	require.NoError(t, connectTo(t, shared.s).QueryRow(ctx, "SELECT sum(length(body)) FROM ctxpage_image_parts p JOIN ctxpage_db d USING (db) WHERE d.name = $1", ownName(t)).Scan(&takesThere))
	require.Equal(t, takesThere, got.Bytes)
	require.NotZero(t, told)
	_, err = CopyFile(ctx, path, dsn, Options{Name: ownName(t)}, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = CopyFile(ctx, path, dsn, Options{Name: "another name"}, nil)
	require.ErrorIs(t, err, store.ErrInvalid, "two databases of one id would have one history each")

	moved, err := ctxpage.Open("moved", ctxpage.Options{Store: onHost(t, dsn, ownName(t), nil)})
	require.NoError(t, err)
	defer moved.Close()
	replay, err := moved.Replay(ctx, a.Trace)
	require.NoError(t, err)
	require.Empty(t, replay.Missing)
	require.Equal(t, a.Text(), replay.Text)
	again, err := moved.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{stats.ID, stats.LSN, stats.Artefacts, stats.PageVersions, stats.Leaves}, []any{again.ID, again.LSN, again.Artefacts, again.PageVersions, again.Leaves})
	ref, err := moved.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "page 3", Text: "It goes on."})
	require.NoError(t, err)
	require.EqualValues(t, 3, ref.Version)
	_, err = moved.Manifests().Verify(ctx, &got.Head, nil)
	require.NoError(t, err)
	problems, err := moved.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	now, err := moved.Stats(ctx)
	require.NoError(t, err)

	// And back, into a file that is again the same.
	back := filepath.Join(t.TempDir(), "back.ctx")
	returned, err := CopyToFile(ctx, dsn, back, Options{Name: ownName(t)}, nil)
	require.NoError(t, err)
	require.Equal(t, now.LSN, returned.LSN)
	takes, err := sizeOf(back)
	require.NoError(t, err)
	require.Equal(t, takes, returned.Bytes)
	_, err = CopyToFile(ctx, dsn, back, Options{Name: ownName(t)}, nil)
	require.ErrorContains(t, err, "already exists")
	for range 2 { // the second open finds what the first left
		db, err = ctxpage.Open(back, ctxpage.Options{})
		require.NoError(t, err)
		problems, err = db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		replay, err = db.Replay(ctx, a.Trace)
		require.NoError(t, err)
		require.Equal(t, a.Text(), replay.Text)
		_, err = db.Manifests().Verify(ctx, &got.Head, nil)
		require.NoError(t, err)
		ref, err = db.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "page 3", Text: fmt.Sprint("at home again ", ref.Version)})
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	require.EqualValues(t, 5, ref.Version)
}

// copyJob is a copy that a process of its own makes, and stops in the middle of.
type copyJob struct {
	DSN, Name, Path string
	Back            bool
	At              string // what of the progress
	N               int    // how many calls of it
}

const copyEnv = "PGSTORE_TEST_COPY"

// copyAndStop copies until it stands at a place. There it waits to be killed.
func copyAndStop(env string) {
	var j copyJob
	if err := json.Unmarshal([]byte(env), &j); err != nil {
		panic(err)
	}
	progress := func(what string, _, _ uint64) {
		if what != j.At {
			return
		}
		if j.N--; j.N <= 0 {
			fmt.Println("here")
			select {}
		}
	}
	var err error
	if j.Back {
		_, err = CopyToFile(context.Background(), j.DSN, j.Path, Options{Name: j.Name, ImageBytes: -1}, progress)
	} else {
		_, err = CopyFile(context.Background(), j.Path, j.DSN, Options{Name: j.Name}, progress)
	}
	fmt.Println("ended", err)
	os.Exit(0)
}

// killCopy kills a process that copies, at a place of its progress.
func killCopy(t *testing.T, j copyJob) {
	t.Helper()
	env, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), copyEnv+"="+string(env))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "here\n", line)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// filler is a long text that takes little time to analyse.
func filler(seed uint64) string { return fmt.Sprint(seed, strings.Repeat(" refunds", 60<<10)) }

// A copy that is killed goes on where it was, in both directions: parts that had arrived are not sent again, nobody can open
// what is not whole, and the result is verified.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	ctx, dsn, name := t.Context(), onServer(t), ownName(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	for i := range 12 {
		_, err = db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page ", i), Kind: store.KindFact, Text: filler(uint64(i))})
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())

	type part struct {
		file string
		n    int
		xmin string
	}
	parts := func() (found map[part]bool) {
		conn, err := pgx.Connect(ctx, dsn)
		require.NoError(t, err)
		defer conn.Close(ctx)
		rows, err := conn.Query(ctx, "SELECT p.file, p.part, p.xmin::text FROM ctxpage_image_parts p JOIN ctxpage_db USING (db) WHERE name = ANY($1)", []string{name, name + copySuffix})
		require.NoError(t, err)
		found = map[part]bool{}
		var p part
		_, err = pgx.ForEachRow(rows, []any{&p.file, &p.n, &p.xmin}, func() error { found[p] = true; return nil })
		require.NoError(t, err)
		return found
	}
	to := copyJob{DSN: dsn, Name: name, Path: path, At: "image", N: 1}
	killCopy(t, to)
	require.Empty(t, parts())
	to.At, to.N = "image", copyParts+2
	killCopy(t, to)
	before := parts()
	require.Len(t, before, copyParts)
	_, err = Open(ctx, dsn, Options{Name: name, MustExist: true})
	require.ErrorIs(t, err, store.ErrNotExist)
	_, err = Open(ctx, dsn, Options{Name: name + copySuffix, MustExist: true})
	require.ErrorIs(t, err, store.ErrInvalid)
	to.At, to.N = "verify", 1
	killCopy(t, to)
	require.FileExists(t, filepath.Join(path+"-copy", stagedFile))
	got, err := CopyFile(ctx, path, dsn, Options{Name: name}, nil)
	require.NoError(t, err)
	after := parts()
	require.Greater(t, len(after), len(before))
	for p := range before {
		require.Contains(t, after, p, "it was sent again")
	}
	require.NoDirExists(t, path+"-copy")

	// And back.
	back := filepath.Join(dir, "back.ctx")
	from := copyJob{DSN: dsn, Name: name, Path: back, Back: true, At: "image", N: 7}
	killCopy(t, from)
	require.NoFileExists(t, back)
	rows := filepath.Join(back+"-copy", "cache", rowsFile)
	first, err := os.Stat(rows)
	require.NoError(t, err)
	from.At, from.N = "verify", 1
	killCopy(t, from)
	require.NoFileExists(t, back)
	second, err := os.Stat(rows)
	require.NoError(t, err)
	require.True(t, os.SameFile(first, second), "the download began anew")
	returned, err := CopyToFile(ctx, dsn, back, Options{Name: name}, nil)
	require.NoError(t, err)
	require.Equal(t, got.LSN, returned.LSN)
	require.NoDirExists(t, back+"-copy")
	db, err = ctxpage.Open(back, ctxpage.Options{})
	require.NoError(t, err)
	defer db.Close()
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	_, err = db.Manifests().Verify(ctx, &got.Head, nil)
	require.NoError(t, err)
}

// What a killed copy left of another state of the file is not mixed with the new one.
func TestCopyOfChangedFile(t *testing.T) {
	t.Parallel()
	ctx, dsn, name := t.Context(), onServer(t), ownName(t)
	path := filepath.Join(t.TempDir(), "agent.ctx")
	put := func(ids ...string) {
		db, err := ctxpage.Open(path, ctxpage.Options{})
		require.NoError(t, err)
		defer db.Close()
		for _, id := range ids {
			_, err = db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: id, Kind: store.KindFact, Text: filler(uint64(time.Now().UnixNano()))})
			require.NoError(t, err)
		}
	}
	put("page 0", "page 1", "page 2", "page 3", "page 4", "page 5", "page 6", "page 7", "page 8", "page 9")
	killCopy(t, copyJob{DSN: dsn, Name: name, Path: path, At: "image", N: copyParts + 2})
	put("page 3")
	_, err := CopyFile(ctx, path, dsn, Options{Name: name}, nil)
	require.NoError(t, err)
	st := onHost(t, dsn, name, nil)
	rep, err := st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil)
	require.NoError(t, err)
	require.Empty(t, rep.Problems)
	require.EqualValues(t, 2, mustFind(t, st, "page 3").Version)

	// A file that was moved into place only half is moved whole by the next call.
	back := filepath.Join(t.TempDir(), "back.ctx")
	killCopy(t, copyJob{DSN: dsn, Name: name, Path: back, Back: true, At: "verify", N: 1})
	_, err = CopyToFile(ctx, dsn, back, Options{Name: name}, nil)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(back+"-copy"), 0o700))
	head, err := st.Head(ctx)
	require.NoError(t, err)
	require.NoError(t, os.Rename(back, filepath.Join(back+"-copy", "made.ctx")))
	require.NoError(t, writeWhole(filepath.Join(back+"-copy", movableFile), fmt.Sprintf("%s\n%s\n%d 1", name, head.String(), st.Mark().LSN)))
	_, err = CopyToFile(ctx, dsn, back, Options{Name: name}, nil)
	require.NoError(t, err)
	require.FileExists(t, back)
}
