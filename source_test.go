package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// memo is a source of a host: texts by key, and every way to fail.
type memo struct {
	mu      sync.Mutex
	texts   map[string]string
	stamp   map[string]string // "": probes give hashes instead
	fail    error
	hang    chan struct{}
	panics  bool
	probes  atomic.Int64
	fetches atomic.Int64
}

func newMemo() *memo { return &memo{texts: map[string]string{}, stamp: map[string]string{}} }

func (m *memo) set(key, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts[key] = text
}

// do changes the source while others may be reading it.
func (m *memo) do(change func(m *memo)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *memo) Probe(ctx context.Context, key string, have store.Validator) (store.Validator, error) {
	m.probes.Add(1)
	m.mu.Lock()
	stamp := m.stamp[key]
	m.mu.Unlock()
	if stamp != "" {
		return store.Validator{Stamp: stamp}, nil
	}
	f, err := m.load(key)
	return f.Validator, err
}

func (m *memo) Fetch(ctx context.Context, key string) (store.Fetched, error) {
	m.fetches.Add(1)
	m.mu.Lock()
	hang, panics := m.hang, m.panics
	m.mu.Unlock()
	if hang != nil {
		<-hang // ignores its context, as a bad source does
	}
	if panics {
		panic("source")
	}
	return m.load(key)
}

func (m *memo) load(key string) (store.Fetched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.texts[key]
	if m.fail != nil || !ok {
		return store.Fetched{}, errors.Join(m.fail, errors.New("memo: no "+key))
	}
	return store.Fetched{Text: text, Validator: store.Validator{Stamp: m.stamp[key], Hash: hashOf(text)}}, nil
}

// hashOf stands for any hash: equal texts, equal numbers.
func hashOf(s string) uint64 {
	s = s[:min(len(s), 1<<12)]
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func TestFileSource(t *testing.T) {
	clk := newClock()
	dir := t.TempDir()
	db := open(t, Options{Clock: clk.now, FileRoots: []string{dir}})
	s := db.Scope("acme")
	path := filepath.Join(dir, "policy.md")
	writeFile(t, path, "refunds up to 200")
	put(t, s, Artefact{ID: "policy", Source: "file:" + path})
	require.Equal(t, store.Chunk, get(t, s, "policy").Provenance)

	writeFile(t, path, "refunds up to 400")
	v := get(t, s, "policy")
	require.Equal(t, []any{"refunds up to 400", uint32(2), "source"}, []any{v.Text, v.Version, v.Actor})
	require.Equal(t, "refunds up to 200", must(s.Recall(ctx, Ref{ID: "policy", Version: 1}))(t).Text, "history stays")
	require.Equal(t, uint32(2), get(t, s, "policy").Version, "and is not fetched again")

	writeFile(t, path, "refunds up to 500")
	a := assemble(t, s, Query{Text: "refunds"})
	require.Contains(t, a.Text(), "500")
	require.True(t, a.Manifest.Pages[0].Refetched)
	writeFile(t, path, "refunds up to 600")
	require.Equal(t, "refunds up to 600", must(hitsOf(s.Search(ctx, "refunds", 1)))(t)[0].Text)
	writes := 0
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Type == manifest.TypeRefetch {
			require.Equal(t, "source", r.Actor)
			writes++
		}
		return nil
	}))
	require.Equal(t, 3, writes)

	now := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(path, now, now))
	require.Equal(t, uint32(4), get(t, s, "policy").Version, "a new time alone is no new version")
}

// What cannot be fetched is left out and says why; whoever wants it all the same gets it marked.
func TestFetchFails(t *testing.T) {
	dir := t.TempDir()
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme")
	path := filepath.Join(dir, "policy.md")
	writeFile(t, path, "refunds up to 200")
	put(t, s, Artefact{ID: "policy", Source: "file:" + path})
	put(t, s, Artefact{ID: "other", Text: "refunds are paid on Monday"})
	require.NoError(t, os.Remove(path))

	_, err := s.Get(ctx, "policy")
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorIs(t, err, os.ErrNotExist, "and why")
	a := assemble(t, s, Query{Text: "refunds policy"})
	require.Equal(t, []string{"other"}, ids(a))
	require.Equal(t, []string{"dirty: source vanished"}, left(a, "policy"))
	w := must(db.Why(ctx, a.Trace, Ref{ID: "policy"}))(t)
	require.False(t, w.In)
	require.Contains(t, strings.Join(w.Steps, "\n"), "dirty: source vanished")
	require.Equal(t, []string{"other"}, hitIDs(must(hitsOf(s.Search(ctx, "refunds policy", 0)))(t)))

	v := get(t, s, "policy", ServeStale())
	require.Equal(t, []any{"refunds up to 200", true}, []any{v.Text, v.Stale})
	a = assemble(t, s, Query{Text: "refunds policy", ServeStale: true})
	require.Contains(t, ids(a), "policy")
	require.Contains(t, a.Text(), ", source changed, ")
	for i, b := range a.Blocks {
		require.Equal(t, b.Ref.ID == "policy", b.Stale)
		require.Equal(t, b.Ref.ID == "policy", a.Manifest.Pages[i].Stale)
	}
	require.True(t, a.Manifest.ServeStale)
	require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text, "a replay asks no source")

	v = get(t, s, "policy", WithCheck(CheckNever))
	require.False(t, v.Stale, "nobody looked, so nobody knows")
	writeFile(t, path, "refunds up to 300")
	require.Equal(t, "refunds up to 300", get(t, s, "policy").Text, "and it heals")
}

// Sixty ways out of a root, none of which leads out.
func TestFileSourceStaysInside(t *testing.T) {
	dbtest.NeedsPosix(t, "links without a privilege, and named pipes")
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sub", "deep"), 0o700))
	require.NoError(t, os.MkdirAll(outside, 0o700))
	require.NoError(t, os.MkdirAll(root+"-evil", 0o700))
	secret := filepath.Join(outside, "secret")
	for _, p := range []string{secret, filepath.Join(root+"-evil", "secret"), filepath.Join(base, "secret")} {
		writeFile(t, p, "the secret")
	}
	writeFile(t, filepath.Join(root, "sub", "fine"), "inside")
	for name, target := range map[string]string{
		"abs": secret, "rel": "../outside/secret", "dir": outside, "reldir": "../outside", "up": "..", "root": "/", "proc": "/proc/self/root",
		"cwd": "/proc/self/cwd", "chain": "abs", "sub/up": "../..", "sub/rel": "../../outside/secret", "sub/deep/up": "../../../outside", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	require.NoError(t, dbtest.Mkfifo(filepath.Join(root, "fifo")))

	forms := []string{
		"../outside/secret", "../../" + secret, "sub/../../outside/secret", "sub/../../../../../../../../../.." + secret, "./../outside/secret",
		"sub/./../../outside/secret", "..//outside/secret", "...//outside/secret", "..\\outside\\secret", "..%2foutside%2fsecret", "%2e%2e/outside/secret",
		"..%252foutside/secret", "..\x00/outside/secret", "sub/fine\x00", "sub/fine\x00.md", "abs", "rel", "dir/secret", "reldir/secret", "up/outside/secret",
		"up/secret", "root" + secret, "proc" + secret, "cwd/../../../../../.." + secret, "chain", "sub/up/outside/secret", "sub/rel", "sub/deep/up/secret", "loop",
		"loop/x", "sub/fine/../../outside/secret", "sub/deep/../../../outside/secret", ".", "..", "sub", "sub/", "", "/", "//", "fifo", "SUB/FINE", "sub/Fine",
		"sub/fine/", "sub/fine/x", strings.Repeat("../", 60) + secret, strings.Repeat("sub/../", 300) + "../outside/secret", strings.Repeat("x", 300),
		strings.Repeat("x/", 400) + "y", "~/secret", "$HOME/secret", "dir/../secret", "up/root-evil/secret", "sub/up/../outside/secret", "sub/..", "sub/deep/up",
	}
	keys := []string{
		secret, "//" + secret, "secret", "outside/secret", root, root + "/", root + "-evil/secret", root + "/../root-evil/secret", "/", "/etc/passwd",
		strings.ToUpper(root) + "/sub/fine", "/proc/self/root" + secret, "/dev/stdin", " " + secret,
	}
	for _, f := range forms {
		keys = append(keys, root+"/"+f)
	}
	require.GreaterOrEqual(t, len(keys), 60)
	db := open(t, Options{FileRoots: []string{root}, SourceTimeout: time.Hour})
	s := db.Scope("acme")
	bound := time.AfterFunc(time.Minute, func() { panic("it waits for a pipe") })
	for _, key := range keys {
		_, err := s.Put(ctx, Artefact{ID: "x", Source: "file:" + key})
		require.Error(t, err, key)
		require.NotContains(t, err.Error(), "the secret")
		_, err = s.Put(ctx, Artefact{ID: "given", Text: "of the caller", Source: "file:" + key})
		if err == nil { // the text is the caller's own; the file is asked when it is read
			_, err = s.Get(ctx, "given")
		}
		require.Error(t, err, key)
		if v, err := s.Get(ctx, "given", ServeStale()); err == nil {
			require.Equal(t, "of the caller", v.Text)
		}
	}
	bound.Stop()
	put(t, s, Artefact{ID: "x", Source: "file:" + root + "/sub/fine"})
	require.Equal(t, "inside", get(t, s, "x").Text)
	t.Run("control: without roots nothing, with a wider root everything", func(t *testing.T) {
		require.Error(t, errOf(open(t, Options{}).Scope("a").Put(ctx, Artefact{ID: "x", Source: "file:" + root + "/sub/fine"})))
		wide := open(t, Options{FileRoots: []string{base}}).Scope("a")
		put(t, wide, Artefact{ID: "x", Source: "file:" + secret})
		require.Equal(t, "the secret", get(t, wide, "x").Text)
	})
}

// A file that is swapped for a link out of the root after it was put is not followed.
func TestFileSwappedForALink(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	require.NoError(t, os.Mkdir(root, 0o700))
	writeFile(t, filepath.Join(base, "secret"), "the secret")
	path := filepath.Join(root, "page")
	writeFile(t, path, "inside")
	db := open(t, Options{FileRoots: []string{root}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "x", Source: "file:" + path})
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("../secret", path))
	require.ErrorIs(t, errOf(s.Get(ctx, "x")), store.ErrDirty)
	require.Equal(t, "inside", get(t, s, "x", ServeStale()).Text)
}

func TestRecordedRoots(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page")
	writeFile(t, path, "one")
	db := open(t, Options{})
	require.NoError(t, db.Admin().AddFileRoot(ctx, dir))
	put(t, db.Scope("a"), Artefact{ID: "x", Source: "file:" + path})
	db = reopen(t, db, Options{})
	writeFile(t, path, "two")
	require.ErrorIs(t, errOf(db.Scope("a").Get(ctx, "x")), store.ErrDirty, "a file from elsewhere cannot say what may be read here")
	require.Equal(t, []string{dir}, must(db.Admin().FileRoots(ctx))(t))
	db = reopen(t, db, Options{RecordedRoots: true})
	require.Equal(t, "two", get(t, db.Scope("a"), "x").Text)
}

// A file written within the grain of its time stamp has the size and the time it had before. The stamp proves nothing
// then, and the content is looked at.
func TestRacyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page")
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	write := func(text string, mtime time.Time) {
		writeFile(t, path, text)
		require.NoError(t, os.Chtimes(path, mtime, mtime))
	}
	clk := newClock()
	db := open(t, Options{Clock: clk.now, FileRoots: []string{dir}})
	s := db.Scope("acme")
	write("limit 200", at)
	put(t, s, Artefact{ID: "x", Source: "file:" + path})
	write("limit 400", at)
	require.Equal(t, "limit 400", get(t, s, "x").Text)
	clk.add(time.Minute)
	get(t, s, "x")
	write("limit 999", at)
	require.Equal(t, "limit 999", get(t, s, "x").Text, "a forged mtime is not believed")
	write("limit 998", at.Add(time.Second))
	require.Equal(t, "limit 998", get(t, s, "x").Text)
}

func TestPageSource(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	org, agent := db.Scope("acme"), db.Scope("acme/agent")
	put(t, org, Artefact{ID: "base", Text: "limit 200"})
	put(t, agent, Artefact{ID: "copy", Source: "page:base"})
	put(t, agent, Artefact{ID: "named", Source: "page:acme:base"})
	put(t, org, Artefact{ID: "base", Text: "limit 400"})
	for _, id := range []string{"copy", "named"} {
		require.Equal(t, "limit 400", get(t, agent, id).Text)
		require.Equal(t, uint32(2), get(t, agent, id).Version)
	}
	require.NoError(t, org.Delete(ctx, "base"))
	require.ErrorIs(t, errOf(agent.Get(ctx, "copy")), store.ErrDirty)

	put(t, org, Artefact{ID: "base", Text: "limit 600", TTL: time.Hour})
	require.Equal(t, "limit 600", get(t, agent, "copy").Text)
	clk.add(time.Hour)
	_, err := agent.Get(ctx, "copy")
	require.ErrorIs(t, err, store.ErrDirty, "what expired is not served under another name")
	require.ErrorIs(t, err, store.ErrExpired)

	put(t, db.Scope("acme/other"), Artefact{ID: "secret", Text: "the secret"})
	for _, src := range []string{"page:secret", "page:acme/other:secret", "page:none", "page:", "page:a:b:c", "page:acme:base#9"} {
		require.Error(t, errOf(agent.Put(ctx, Artefact{ID: "y", Source: src})), src)
	}
}

// A copy is trusted no more than what it copies, now and after a change.
func TestPageSourceTrust(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "note", Kind: store.KindScratch, Text: "zebra one"})
	put(t, s, Artefact{ID: "copy", Source: "page:note"})
	require.Equal(t, store.Scratch, get(t, s, "copy").Provenance)
	put(t, s, Artefact{ID: "base", Kind: store.KindChunk, Text: "zebra base"})
	put(t, s, Artefact{ID: "of-base", Source: "page:base"})
	require.Equal(t, store.Chunk, get(t, s, "of-base").Provenance)
	put(t, s, Artefact{ID: "base", Kind: store.KindScratch, Text: "zebra scratch"})
	require.Equal(t, store.Scratch, get(t, s, "of-base").Provenance)
	require.Empty(t, ids(assemble(t, s, Query{Text: "zebra"})))
}

// A person answered for the words that were there, not for what the source says later.
func TestRefetchIsNotVerified(t *testing.T) {
	m := newMemo()
	m.set("k", "limit 200")
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "policy", Source: "memo:k"}))(t)
	require.Equal(t, store.HumanVerified, get(t, s, "policy").Provenance)
	m.do(func(m *memo) { m.stamp["k"] = "etag-2" })
	require.Equal(t, store.HumanVerified, get(t, s, "policy").Provenance, "the same words under a new stamp")
	m.do(func(m *memo) { m.stamp["k"] = "" })
	m.set("k", "limit 900")
	a := assemble(t, s, Query{Text: "limit"})
	require.Contains(t, a.Text(), "limit 900")
	require.Equal(t, store.Chunk, a.Blocks[0].Provenance)
	require.Equal(t, store.Chunk, get(t, s, "policy").Provenance)
}

// Each case has a clock of its own, which stands still while anybody works: a busy machine takes nothing of the deadline.
func TestHostSource(t *testing.T) {
	m := newMemo()
	for name, c := range map[string]struct {
		set  func()
		undo func()
		says string
	}{
		"deadline": {func() { m.do(func(m *memo) { m.hang = make(chan struct{}) }) }, func() { m.do(func(m *memo) { close(m.hang); m.hang = nil }) }, "deadline"},
		"panic":    {func() { m.do(func(m *memo) { m.panics = true }) }, func() { m.do(func(m *memo) { m.panics = false }) }, "panic"},
		"utf-8":    {func() { m.set("k", "\xff\xfe") }, func() { m.set("k", "one") }, "UTF-8"},
		"too large": {func() { m.set("k", strings.Repeat("x", store.MaxText+1)) }, func() { m.set("k", "one") },
			fmt.Sprint(store.MaxText)},
		"error": {func() { m.do(func(m *memo) { m.fail = errors.New("out of order") }) }, func() { m.do(func(m *memo) { m.fail = nil }) }, "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 100 * time.Millisecond
				m.set("k", "one")
				s := open(t, Options{Exclusive: true, Sources: map[string]store.Source{"memo": m}, SourceTimeout: limit}).Scope("acme")
				put(t, s, Artefact{ID: "x", Source: "memo:k"})
				m.do(func(m *memo) { m.texts["k"] += " and more" })
				c.set()
				begun := time.Now()
				_, err := s.Get(ctx, "x")
				require.ErrorIs(t, err, store.ErrDirty)
				require.ErrorContains(t, err, c.says)
				require.Equal(t, name == "deadline", time.Since(begun) == limit, "only who hangs is waited for, and for no longer than that")
				a := assemble(t, s, Query{Text: "one"})
				require.Equal(t, []string{"dirty: fetch failed"}, left(a, "x"))
				require.ErrorContains(t, errOf(s.Put(ctx, Artefact{ID: "y", Source: "memo:k"})), c.says)
				c.undo()
				m.set("k", "one")
				require.Equal(t, "one", get(t, s, "x").Text)
			})
		})
	}
	s := open(t, Options{Sources: map[string]store.Source{"memo": m}}).Scope("acme")
	for _, src := range []string{"memo:", "memo", ":k", "nobody:k", "MEMO:k", strings.Repeat("x", store.MaxSource+1)} {
		require.ErrorIs(t, errOf(s.Put(ctx, Artefact{ID: "y", Source: src})), store.ErrInvalid, src)
	}
	for _, scheme := range []string{"page", ""} {
		require.ErrorIs(t, errOf(Open(filepath.Join(t.TempDir(), "x"), Options{Sources: map[string]store.Source{scheme: m}})), store.ErrInvalid)
	}
}

// A caller who gives up gets his own error, not an assembly that looks as if all sources had failed.
func TestCallerGivesUp(t *testing.T) {
	m := newMemo()
	m.set("k", "one")
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "x", Source: "memo:k"})
	m.set("k", "two")
	m.do(func(m *memo) { m.hang = make(chan struct{}) })
	defer m.do(func(m *memo) { close(m.hang) })
	c, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(s.Assemble(c, Query{Text: "one", Budget: 1000})), context.Canceled)
	c, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errOf(s.Assemble(c, Query{Text: "one", Budget: 1000})), context.DeadlineExceeded)
	require.ErrorIs(t, errOf(s.Search(c, "one", 1)), context.DeadlineExceeded)
}

func TestCheckPolicy(t *testing.T) {
	clk := newClock()
	m := newMemo()
	db := open(t, Options{Clock: clk.now, Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	m.set("k", "one")
	put(t, s, Artefact{ID: "x", Source: "memo:k"})
	probed := func(p time.Duration) int64 {
		before := m.probes.Load()
		get(t, s, "x", WithCheck(p))
		return m.probes.Load() - before
	}
	require.EqualValues(t, 0, probed(CheckNever))
	require.EqualValues(t, 1, probed(0))
	require.EqualValues(t, 1, probed(0))
	require.EqualValues(t, 0, probed(time.Minute))
	clk.add(time.Minute - time.Millisecond)
	require.EqualValues(t, 0, probed(time.Minute))
	clk.add(time.Millisecond)
	require.EqualValues(t, 1, probed(time.Minute))
	clk.add(-time.Hour)
	require.EqualValues(t, 1, probed(time.Minute), "a clock that was set back proves nothing")
	m.set("k", "two")
	require.Equal(t, "one", get(t, s, "x", WithCheck(time.Minute)).Text)
	a := assemble(t, s, Query{Text: "one two", Check: CheckNever})
	require.Contains(t, a.Text(), "one")
	a = assemble(t, s, Query{Text: "one two"})
	require.Contains(t, a.Text(), "two")
}

// Files of two roots, looked at together, are told apart one by one: one that is gone, and those of a directory that
// another took the place of. The others stay as they are. The control is a change with a forged time: that it is
// hidden shows that a look was all there was.
func TestLooksTogether(t *testing.T) {
	clk := newClock()
	old := clk.now().Add(-time.Hour)
	roots := []string{t.TempDir(), t.TempDir()}
	db := open(t, Options{Clock: clk.now, FileRoots: roots})
	s := db.Scope("acme")
	path := func(i int) string {
		return filepath.Join(roots[i%2], fmt.Sprint("dir", i%3), fmt.Sprint("page", i))
	}
	write := func(i int, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path(i)), 0o700))
		writeFile(t, path(i), text)
		require.NoError(t, os.Chtimes(path(i), old, old))
	}
	for i := range 40 {
		write(i, fmt.Sprintf("zebra number%d", i))
		put(t, s, Artefact{ID: fmt.Sprint("x", i), Source: "file:" + path(i)})
	}
	query := Query{Text: "zebra", Budget: 10_000, TopK: 50}
	require.Len(t, assemble(t, s, query).Blocks, 40)

	write(7, "zebra forged7") // as long as it was, with the time it had
	require.NoError(t, os.Remove(path(9)))
	require.NoError(t, os.Rename(roots[0], roots[0]+"-away"))
	for i := 0; i < 40; i += 2 {
		write(i, fmt.Sprintf("zebra another number%d", i))
	}
	a := assemble(t, s, query)
	require.Len(t, a.Blocks, 39)
	refetched := 0
	for i, b := range a.Blocks {
		var n int
		must(fmt.Sscanf(b.Ref.ID, "x%d", &n))(t)
		want := fmt.Sprintf("zebra number%d", n)
		moved := n%2 == 0 || n == 7
		if n == 7 {
			want = "zebra forged7"
		} else if moved {
			want = fmt.Sprintf("zebra another number%d", n)
		}
		require.Equal(t, want, b.Text)
		require.Equal(t, moved, a.Manifest.Pages[i].Refetched)
		if moved {
			refetched++
		}
	}
	require.Equal(t, 21, refetched)
	require.Len(t, a.Left, 1)
	require.Equal(t, Ref{Scope: "acme", ID: "x9", Page: 1, Version: 1}, a.Left[0].Ref)
}

// The pages of an artefact share one look at its source, however they came into memory: two looks could give a context
// half of the old text and half of the new.
func TestOneProbeForAllPages(t *testing.T) {
	m := newMemo()
	db := open(t, Options{PageTokens: 64, Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	m.set("k", strings.Repeat("zebra crossing of the road. ", 60))
	put(t, s, Artefact{ID: "x", Source: "memo:k"})
	must(s.Recall(ctx, Ref{ID: "x", Page: 1}, WithCheck(CheckNever)))(t)
	before := m.probes.Load()
	require.Greater(t, len(assemble(t, s, Query{Text: "zebra"}).Blocks), 2)
	require.EqualValues(t, 1, m.probes.Load()-before)
}

// A source that knows stamps only, and gives a new one for the same content, is fetched once for it, not at each read.
func TestNewStampSameContent(t *testing.T) {
	m := newMemo()
	m.set("k", "one")
	m.do(func(m *memo) { m.stamp["k"] = "etag-1" })
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}, SourceTimeout: time.Hour})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "x", Source: "memo:k"})
	m.do(func(m *memo) { m.stamp["k"] = "etag-2" })
	m.do(func(m *memo) { m.hang = make(chan struct{}) })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if v, err := s.Get(ctx, "x"); err != nil || v.Text != "one" {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return m.fetches.Load() == 2 && m.probes.Load() >= 4 }, time.Minute, time.Millisecond)
	m.do(func(m *memo) { close(m.hang) })
	wg.Wait()
	m.do(func(m *memo) { m.hang = nil })
	get(t, s, "x")
	require.EqualValues(t, 2, m.fetches.Load())
	require.Equal(t, uint32(1), get(t, s, "x").Version)
}

// Of many who find a page dirty at once one fetches it, and all get the one new version.
func TestConcurrentRefetch(t *testing.T) {
	m := newMemo()
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	m.set("k", "one")
	put(t, s, Artefact{ID: "x", Source: "memo:k"})
	for i := range 10 {
		text := fmt.Sprint("text ", i)
		m.set("k", text)
		before := m.fetches.Load()
		var wg sync.WaitGroup
		for j := range 8 {
			wg.Go(func() {
				switch j % 2 {
				case 0:
					if v, err := s.Get(ctx, "x"); err != nil || v.Text != text {
						t.Error(err, v)
					}
				default:
					if a, err := s.Assemble(ctx, Query{Text: "text", Budget: 1000}); err != nil || !strings.Contains(a.Text(), text) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, uint32(i+2), get(t, s, "x").Version)
		require.LessOrEqual(t, m.fetches.Load()-before, int64(2))
	}
}

// A database that is only read fetches nothing and writes nothing: what is dirty is left out, and the answer says so.
func TestReadOnlyNeverRefetches(t *testing.T) {
	m := newMemo()
	m.set("k", "limit 200")
	opts := Options{Sources: map[string]store.Source{"memo": m}}
	db := open(t, opts)
	put(t, db.Scope("acme"), Artefact{ID: "x", Source: "memo:k"})
	put(t, db.Scope("acme"), Artefact{ID: "y", Text: "limit of another kind"})
	size := dbtest.SizeOf(db.Manifests())
	opts.ReadOnly = true
	ro := reopen(t, db, opts)
	s := ro.Scope("acme")
	require.Equal(t, "limit 200", get(t, s, "x").Text)
	m.set("k", "limit 400")
	fetches := m.fetches.Load()
	_, err := s.Get(ctx, "x")
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorIs(t, err, store.ErrReadOnly)
	a := assemble(t, s, Query{Text: "limit"})
	require.Equal(t, []string{"y"}, ids(a))
	require.Contains(t, left(a, "x")[0], "read-only")
	require.True(t, a.Manifest.ReadOnly)
	require.Equal(t, "limit 200", get(t, s, "x", ServeStale()).Text)
	require.Equal(t, fetches, m.fetches.Load())
	require.Equal(t, size, dbtest.SizeOf(ro.Manifests()))
	require.ErrorIs(t, errOf(s.Put(ctx, Artefact{ID: "z", Text: "z"})), store.ErrReadOnly)
	require.ErrorIs(t, s.Delete(ctx, "y"), store.ErrReadOnly)
	require.ErrorIs(t, errOf(s.Begin(ctx)), store.ErrReadOnly)
	require.ErrorIs(t, errOf(ro.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "z"})), store.ErrReadOnly)
}

// What changed at the far end of a chain makes all of it dirty: a summary of a summary, a copy of a copy, and a page
// that nobody asked for between them.
func TestStalenessIsTransitive(t *testing.T) {
	m := newMemo()
	m.set("k", "limit 200")
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme/a")
	put(t, db.Scope("acme"), Artefact{ID: "page", Source: "memo:k"})
	put(t, s, Artefact{ID: "copy", Source: "page:page"})
	put(t, s, Artefact{ID: "copy of copy", Source: "page:copy"})
	put(t, s, Artefact{ID: "summary", Text: "zebra: the limit is low", DerivedFrom: []Ref{{ID: "page"}}})
	put(t, s, Artefact{ID: "summary of summary", Text: "zebra: low", DerivedFrom: []Ref{{ID: "summary"}}})
	put(t, s, Artefact{ID: "summary of copy", Text: "zebra: lowest", DerivedFrom: []Ref{{ID: "copy of copy"}}})
	b := assemble(t, s, Query{Text: "zebra", Kinds: []store.Kind{store.KindFact}})
	require.Len(t, b.Blocks, 3, "%v", b.Left)
	m.set("k", "limit 900")
	require.Equal(t, "limit 900", get(t, s, "copy of copy").Text)
	m.set("k", "limit 1000")
	a := assemble(t, s, Query{Text: "zebra", Kinds: []store.Kind{store.KindFact}})
	require.Empty(t, ids(a))
	for _, id := range []string{"summary", "summary of summary", "summary of copy"} {
		require.NotEmpty(t, left(a, id), id)
		require.ErrorIs(t, errOf(s.Get(ctx, id)), store.ErrDirty, id)
	}
	m.do(func(m *memo) { m.fail = errors.New("out of order") })
	require.ErrorIs(t, errOf(s.Get(ctx, "copy of copy")), store.ErrDirty, "what cannot be checked at its root is not served")
	m.do(func(m *memo) { m.fail = nil })
	require.Equal(t, "limit 1000", get(t, s, "copy of copy").Text)
}

// Sources that name each other end, and lineage of hundreds of generations is looked at once, not once a path.
func TestSourceCycles(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "one"})
	put(t, s, Artefact{ID: "b", Source: "page:a"})
	put(t, s, Artefact{ID: "a", Source: "page:b"})
	put(t, s, Artefact{ID: "self", Text: "own"})
	put(t, s, Artefact{ID: "self", Text: "own", Source: "page:self"})
	for i := range 400 {
		a := Artefact{ID: fmt.Sprint("s", i), Text: fmt.Sprint("summary ", i)}
		for j := max(0, i-3); j < i; j++ {
			a.DerivedFrom = append(a.DerivedFrom, Ref{ID: fmt.Sprint("s", j)})
		}
		put(t, s, a)
	}
	bound := time.AfterFunc(5*time.Minute, func() { panic("lineage is looked at once for each path") })
	defer bound.Stop()
	for range 3 {
		for _, id := range []string{"a", "b", "self", "s10"} {
			require.Contains(t, []string{"one", "own", "summary 10"}, get(t, s, id).Text)
		}
		require.Equal(t, "summary 399", get(t, s, "s399").Text, "four hundred generations are vouched for")
	}
}

// late is a source whose answers come in another order than they are asked for.
type late struct {
	text  string
	delay func(key string) time.Duration
}

func (l *late) Probe(_ context.Context, _ string, _ store.Validator) (store.Validator, error) {
	return store.Validator{Stamp: l.text}, nil
}

func (l *late) Fetch(_ context.Context, key string) (store.Fetched, error) {
	<-time.After(l.delay(key))
	return store.Fetched{Text: l.text, Validator: store.Validator{Stamp: l.text}}, nil
}

// Pages of equal score stand in the same order whichever source was quickest to be fetched anew.
func TestRefetchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var first string
	for round := range 4 {
		src := &late{text: "zebra before", delay: func(string) time.Duration { return 0 }}
		db := open(t, Options{Clock: newClock().now, Sources: map[string]store.Source{"late": src}})
		s := db.Scope("acme")
		for i := range 8 {
			put(t, s, Artefact{ID: fmt.Sprint("doc-", i), Source: fmt.Sprint("late:", i), Kind: store.KindChunk})
		}
		assemble(t, s, Query{Text: "zebra"})
		src.text = "zebra after"
		src.delay = func(key string) time.Duration {
			return time.Duration((int(key[0])*(2*round+1)+round)%8) * time.Millisecond
		}
		for range 2 {
			assemble(t, s, Query{Text: "zebra"})
		}
		order := fmt.Sprint(ids(assemble(t, s, Query{Text: "zebra"})))
		require.Equal(t, 8, strings.Count(order, "doc-"))
		if first == "" {
			first = order
		}
		require.Equal(t, first, order)
	}
}

// slowSource answers its first fetch at once, and others when it is let go, or when their caller gives up.
type slowSource struct {
	asked   *atomic.Bool
	fetched chan struct{}
	let     chan struct{}
}

func (s slowSource) Probe(context.Context, string, store.Validator) (store.Validator, error) {
	return store.Validator{Stamp: "new", Hash: 7}, nil
}

func (s slowSource) Fetch(ctx context.Context, _ string) (store.Fetched, error) {
	if s.asked.CompareAndSwap(false, true) {
		return store.Fetched{Text: "old words", Validator: store.Validator{Stamp: "old", Hash: 6}}, nil
	}
	s.fetched <- struct{}{}
	select {
	case <-s.let:
		return store.Fetched{Text: "new words", Validator: store.Validator{Stamp: "new", Hash: 7}}, nil
	case <-ctx.Done():
		return store.Fetched{}, ctx.Err()
	}
}

// One caller who gives up says nothing about the source: whoever waited for his refetch does it again.
func TestRefetchOfACallerWhoGaveUp(t *testing.T) {
	src := slowSource{asked: new(atomic.Bool), fetched: make(chan struct{}), let: make(chan struct{})}
	db := open(t, Options{Sources: map[string]store.Source{"slow": src}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Source: "slow:x"})
	gone, cancel := context.WithCancel(ctx)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Get(gone, "a"); first <- err }()
	<-src.fetched
	go func() {
		v, err := s.Get(ctx, "a")
		if err == nil && v.Text != "new words" {
			err = errors.New(v.Text)
		}
		second <- err
	}()
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	<-src.fetched
	close(src.let)
	require.NoError(t, <-second)
}

func TestTextBesideASource(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy")
	require.NoError(t, os.WriteFile(file, []byte("refunds up to 400"), 0o600))
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "page", Text: "of the page"})
	for source, text := range map[string]string{"file:" + file: "refunds up to 900", "page:page": "another", "file:" + dir + "/none": "x"} {
		require.ErrorContains(t, errOf(s.Put(ctx, Artefact{ID: "x", Text: text, Source: source})), "text", source)
		require.Error(t, errOf(s.Put(ctx, Artefact{ID: "x", Parts: []store.Part{{Type: "text", Text: text}}, Source: source})), source)
		require.ErrorIs(t, errOf(s.Get(ctx, "x")), store.ErrNotFound)
	}
	ref := put(t, s, Artefact{ID: "policy", Source: "file:" + file})
	v := get(t, s, "policy") // what was read back can be put back
	require.NotEmpty(t, v.Text)
	require.Equal(t, ref, put(t, s, v.Artefact))
	require.NoError(t, os.WriteFile(file, []byte("refunds up to 500"), 0o600))
	require.ErrorIs(t, errOf(s.Put(ctx, v.Artefact)), store.ErrInvalid)
	require.Equal(t, "refunds up to 500", get(t, s, "policy").Text)
}
