package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func refresh(t testing.TB, s *Scope, o ops.RefreshOptions) ops.RefreshReport {
	t.Helper()
	r := must(s.Refresh(ctx, o))(t)
	require.Empty(t, r.Failed)
	return r
}

// docs is a directory with what an import takes and what it leaves out.
func docs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md": "alpha", "b.md": "beta", "sub/c.md": "gamma", "x.tmp": "ignored", ".gitignore": "*.tmp\n", "image.bin": "a\x00b", "large.md": strings.Repeat("large ", 1000),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		writeFile(t, path, text)
	}
	return dir
}

// Delete looks twice: a file that an editor moved away or emptied for a moment is not gone.
func TestRefreshDeletesOnSecondLook(t *testing.T) {
	dir := docs(t)
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme/docs")
	require.NoError(t, s.AddDirectory(ctx, Directory{Dir: dir, Prefix: "d/", MaxSize: 4000}))
	refresh(t, s, ops.RefreshOptions{})
	path := filepath.Join(dir, "b.md")
	text := must(os.ReadFile(path))(t)
	require.NoError(t, os.Rename(path, path+"~"))
	writeFile(t, filepath.Join(dir, "new.md"), "delta") // so that there is progress between the two looks
	r := refresh(t, s, ops.RefreshOptions{Delete: true, Progress: func(what string, _, _ uint64) {
		if strings.HasPrefix(what, "directory") {
			writeFile(t, path, string(text))
		}
	}})
	require.Empty(t, r.Deleted)
	require.Empty(t, r.NotTaken)
	require.Equal(t, string(text), get(t, s, "d/b.md").Text)
	require.NoError(t, os.Remove(path))
	require.Equal(t, []string{"d/b.md"}, refresh(t, s, ops.RefreshOptions{Delete: true}).Deleted, "control")
}

// A refresh of a scope sees new, changed and vanished files of a recorded directory; what it does not write in a dry run
// it reports all the same.
func TestRefreshDirectory(t *testing.T) {
	dir := docs(t)
	opts := Options{FileRoots: []string{dir}}
	db := open(t, opts)
	s := db.Scope("acme/docs")
	require.NoError(t, s.AddDirectory(ctx, Directory{Dir: dir, Prefix: "d/", MaxSize: 4000}))
	put(t, s, Artefact{ID: "own", Text: "nobody's file"})
	first := []string{"d/.gitignore", "d/a.md", "d/b.md", "d/sub/c.md"}
	require.Equal(t, first, refresh(t, s, ops.RefreshOptions{DryRun: true}).New)
	require.Equal(t, first, refresh(t, s, ops.RefreshOptions{}).New)
	require.Equal(t, "gamma", get(t, s, "d/sub/c.md").Text)
	r := refresh(t, s, ops.RefreshOptions{})
	require.Equal(t, []any{4, 4, 0, 0, 0}, []any{r.Sources, r.Unchanged, len(r.New), len(r.Changed), len(r.Vanished)})

	db = reopen(t, db, opts)
	s = db.Scope("acme/docs")
	require.Equal(t, []Directory{{Dir: dir, Prefix: "d/", MaxSize: 4000}}, must(loop.Collect(s.Directories(ctx)))(t))
	writeFile(t, filepath.Join(dir, "a.md"), "alpha heliotrope")
	writeFile(t, filepath.Join(dir, "new.md"), "delta")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.md")))
	writeFile(t, filepath.Join(dir, ".gitignore"), "*.tmp\nsub/\n")
	lsn := assemble(t, db.Scope("other"), Query{Text: "x"}).LSN
	want := func(r ops.RefreshReport) {
		t.Helper()
		require.Equal(t, []string{"d/.gitignore", "d/a.md"}, r.Changed)
		require.Equal(t, []string{"d/new.md"}, r.New)
		require.Equal(t, []string{"d/b.md"}, r.Vanished)
		require.Equal(t, []string{"d/sub/c.md"}, r.NotTaken)
		require.Empty(t, r.Deleted)
	}
	want(refresh(t, s, ops.RefreshOptions{DryRun: true}))
	require.Equal(t, lsn, assemble(t, db.Scope("other"), Query{Text: "x"}).LSN, "a dry run writes nothing")
	want(refresh(t, s, ops.RefreshOptions{}))
	require.Equal(t, "alpha heliotrope", get(t, s, "d/a.md", WithCheck(CheckNever)).Text)
	require.Equal(t, []string{"dirty: source vanished"}, left(assemble(t, s, Query{Text: "beta"}), "d/b.md"))
	require.Equal(t, "gamma", get(t, s, "d/sub/c.md").Text, "only Delete deletes")

	require.NoError(t, os.Rename(dir, dir+"-away"))
	r = must(s.Refresh(ctx, ops.RefreshOptions{Delete: true}))(t)
	require.Empty(t, r.Deleted, "a directory that is away is no reason to delete")
	require.Len(t, r.Failed, 6)
	require.NoError(t, os.Rename(dir+"-away", dir))

	require.Empty(t, refresh(t, s, ops.RefreshOptions{Delete: true, DryRun: true}).Deleted[2:])
	require.Equal(t, []string{"d/b.md", "d/sub/c.md"}, refresh(t, s, ops.RefreshOptions{Delete: true}).Deleted)
	require.ErrorIs(t, errOf(s.Get(ctx, "d/b.md")), store.ErrNotFound)
	require.Equal(t, "nobody's file", get(t, s, "own").Text)

	require.NoError(t, s.RemoveDirectory(ctx, Directory{Dir: dir, Prefix: "d/"}))
	require.ErrorIs(t, s.RemoveDirectory(ctx, Directory{Dir: dir, Prefix: "d/"}), store.ErrNotFound)
	writeFile(t, filepath.Join(dir, "newer.md"), "epsilon")
	require.Empty(t, refresh(t, s, ops.RefreshOptions{}).New, "it is forgotten")
}

// TestEraseTellsOfFiles: an erase reports the file that an artefact was imported from, because the next refresh imports it
// again. The control: once it is removed, or excluded, nothing comes back, and where no directory is recorded nothing is
// reported.
func TestEraseTellsOfFiles(t *testing.T) {
	dir := docs(t)
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme/docs")
	require.NoError(t, s.AddDirectory(ctx, Directory{Dir: dir, Prefix: "d/", MaxSize: 4000}))
	put(t, s, Artefact{ID: "own", Source: "file:" + filepath.Join(dir, "a.md")})
	refresh(t, s, ops.RefreshOptions{})
	erased := func(id string, dry bool) []ops.File {
		t.Helper()
		r := must(db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme/docs", ID: id}}, By: "desk", Reason: "asked", DryRun: dry}))(t)
		return r.Files
	}
	want := []ops.File{{Ref: "acme/docs:d%2Fa.md", Path: filepath.Join(dir, "a.md"), Dir: dir}}
	require.Equal(t, want, erased("d/a.md", true))
	require.Equal(t, want, erased("d/a.md", false))
	require.Equal(t, []string{"d/a.md"}, refresh(t, s, ops.RefreshOptions{}).New, "it comes back")
	require.Equal(t, []ops.File{}, erased("own", false), "no refresh makes it again")

	require.Equal(t, want, erased("d/a.md", false))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.md")))
	require.Len(t, erased("d/b.md", false), 1)
	writeFile(t, filepath.Join(dir, ".gitignore"), "*.tmp\nb.md\n")
	require.Empty(t, refresh(t, s, ops.RefreshOptions{}).New)

	r := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme", By: "desk", Reason: "asked", DryRun: true}))(t)
	require.NotEmpty(t, r.Erased)
	require.Empty(t, r.Files, "the recorded directory goes as well")
}

// A new file does not replace what the host put under its id, and a directory that no root allows is not read.
func TestRefreshKeepsToItsRoots(t *testing.T) {
	dir := docs(t)
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a.md", Text: "my own words"})
	require.NoError(t, s.AddDirectory(ctx, Directory{Dir: dir}))
	r := must(s.Refresh(ctx, ops.RefreshOptions{}))(t)
	require.Len(t, r.Failed, 1)
	require.Equal(t, "a.md", r.Failed[0].ID)
	require.Equal(t, "my own words", get(t, s, "a.md").Text)
	require.Contains(t, r.New, "b.md")
	require.NotContains(t, r.New, "image.bin")

	db = reopen(t, db, Options{})
	writeFile(t, filepath.Join(dir, "new.md"), "delta")
	r, err := db.Scope("acme").Refresh(ctx, ops.RefreshOptions{})
	require.ErrorIs(t, err, store.ErrFileRoot, "not an empty report")
	require.Empty(t, r.New)
	require.ErrorIs(t, db.Scope("acme").AddDirectory(ctx, Directory{Dir: t.TempDir()}), store.ErrFileRoot)
	require.Len(t, must(loop.Collect(db.Scope("acme").Directories(ctx)))(t), 1, "a refused directory is not recorded")
	all, err := db.Refresh(ctx, ops.RefreshOptions{})
	require.ErrorIs(t, err, store.ErrFileRoot)
	require.Len(t, all, 1)
	r, err = db.Scope("acme").Refresh(ctx, ops.RefreshOptions{})
	require.ErrorContains(t, err, "file:"+dir+" lies below no allowed root", "it names the directory")
	require.Contains(t, r.Failed[len(r.Failed)-1].Err, "root")
	require.Equal(t, dir, r.Failed[len(r.Failed)-1].Dir)
	require.ErrorIs(t, errOf(db.Scope("acme").Refresh(ctx, ops.RefreshOptions{Check: CheckNever})), store.ErrInvalid)
	db = reopen(t, db, Options{ReadOnly: true, FileRoots: []string{dir}})
	require.ErrorIs(t, errOf(db.Scope("acme").Refresh(ctx, ops.RefreshOptions{})), store.ErrReadOnly)
	require.Contains(t, refresh2(t, db.Scope("acme")).New, "new.md")
}

func refresh2(t testing.TB, s *Scope) ops.RefreshReport {
	t.Helper()
	return must(s.Refresh(ctx, ops.RefreshOptions{DryRun: true}))(t)
}

// Sources of hosts are probed too, each once and many at once; those that fail are named. A cancelled refresh keeps what
// it has done.
func TestRefreshSources(t *testing.T) {
	m := newMemo()
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	const n = 600
	for i := range n {
		m.set(fmt.Sprint(i), fmt.Sprint("text ", i))
	}
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range n {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprintf("m-%03d", i), Source: "memo:" + fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	m.set("7", "text seven")
	m.set("599", "the last")
	m.do(func(m *memo) { delete(m.texts, "9") })
	cctx, cancel := context.WithCancel(ctx)
	var seen []uint64
	r, err := s.Refresh(cctx, ops.RefreshOptions{Progress: func(_ string, done, total uint64) {
		seen = append(seen, done)
		require.Equal(t, uint64(n), total)
		cancel()
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"m-007"}, r.Changed)
	require.Equal(t, []uint64{256}, seen)
	probes := m.probes.Load()
	r = must(s.Refresh(ctx, ops.RefreshOptions{}))(t)
	require.Equal(t, []string{"m-599"}, r.Changed)
	require.Equal(t, n-2, r.Unchanged)
	require.Len(t, r.Failed, 1)
	require.Equal(t, "m-009", r.Failed[0].ID)
	require.Equal(t, int64(n), m.probes.Load()-probes)
	probes = m.probes.Load()
	r = must(s.Refresh(ctx, ops.RefreshOptions{Check: time.Hour}))(t)
	require.LessOrEqual(t, m.probes.Load()-probes, int64(2), "what was probed just now is not probed again")
	require.Len(t, r.Failed, 1)
	require.Zero(t, refresh(t, s, ops.RefreshOptions{FilesOnly: true}).Sources)
	m.do(func(m *memo) { m.fail = store.ErrVanished })
	r = refresh(t, s, ops.RefreshOptions{})
	require.Len(t, r.Vanished, n, "a host's source can say so, too")
	require.Len(t, must(db.Refresh(ctx, ops.RefreshOptions{DryRun: true}))(t), 1)
}

// The background sees an edit and a new file without anybody asking, and ends with Close.
func TestRefreshInTheBackground(t *testing.T) {
	dir := docs(t)
	db := open(t, Options{FileRoots: []string{dir}, RefreshEvery: 5 * time.Millisecond})
	s := db.Scope("acme")
	require.NoError(t, s.AddDirectory(ctx, Directory{Dir: dir}))
	becomes := func(id, text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			v, err := s.Get(ctx, id, WithCheck(CheckNever))
			return err == nil && v.Text == text
		}, time.Minute, time.Millisecond)
	}
	becomes("a.md", "alpha")
	writeFile(t, filepath.Join(dir, "a.md"), "alpha, later")
	becomes("a.md", "alpha, later")
	writeFile(t, filepath.Join(dir, "z.md"), "zeta")
	becomes("z.md", "zeta")
	checkAndClose(t, db)
	require.ErrorIs(t, errOf(s.Get(ctx, "a.md")), store.ErrClosed)
}

// Close does not wait for a source that hangs, and nothing is written after it.
func TestCloseEndsTheBackgroundRefresh(t *testing.T) {
	m := newMemo()
	var asked atomic.Bool
	m.set("x", "one")
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	writeFile(t, path, "one")
	block := &slowFile{ctx: make(chan struct{}), asked: &asked}
	db := open(t, Options{Sources: map[string]store.Source{"file": block}, RefreshEvery: time.Millisecond, SourceTimeout: time.Hour})
	put(t, db.Scope("acme"), Artefact{ID: "x", Source: "file:" + path})
	require.Eventually(t, asked.Load, time.Minute, time.Millisecond)
	bound := time.AfterFunc(time.Minute, func() { panic("it waits for the source") })
	require.NoError(t, db.Close())
	bound.Stop()
	close(block.ctx)
}

// slowFile answers no probe until it is let go.
type slowFile struct {
	ctx   chan struct{}
	asked *atomic.Bool
}

func (f *slowFile) Probe(context.Context, string, store.Validator) (store.Validator, error) {
	f.asked.Store(true)
	<-f.ctx
	return store.Validator{}, errors.New("too late")
}

func (f *slowFile) Fetch(context.Context, string) (store.Fetched, error) {
	return store.Fetched{Text: "one"}, nil
}

// A folder is one call: allowed, recorded and imported. The next process that opens with the recorded roots refreshes it.
func TestAddFolder(t *testing.T) {
	dir := docs(t)
	db := open(t, Options{})
	r := must(db.AddFolder(ctx, "acme/docs", dir))(t)
	require.Contains(t, r.New, "a.md")
	require.Equal(t, "alpha", get(t, db.Scope("acme/docs"), "a.md").Text)
	require.Equal(t, []string{dir}, must(db.Admin().FileRoots(ctx))(t))

	db = reopen(t, db, Options{RecordedRoots: true})
	writeFile(t, filepath.Join(dir, "new.md"), "delta")
	r = must(db.AddFolder(ctx, "acme/docs", dir))(t)
	require.Equal(t, []string{"new.md"}, r.New)

	require.ErrorIs(t, errOf(db.AddFolder(ctx, "acme/docs", filepath.Join(dir, "not-there"))), store.ErrInvalid)
	require.ErrorIs(t, errOf(db.AddFolder(ctx, "/", dir)), store.ErrInvalid)
	require.Len(t, must(loop.Collect(db.Scope("acme/docs").Directories(ctx)))(t), 1)
}
