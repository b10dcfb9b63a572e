package storetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// two opens two databases on one store, as two processes do that share one. Before each commit the other gets a turn: with one
// processor neither would be between the look of the other and its commit.
func two(t *testing.T, wrap func(store.Store) store.Store) [2]*ctxpage.DB {
	mem := must(storetest.NewMemory(storetest.Config{State: ctxpage.StateKinds()}))(t)
	var dbs [2]*ctxpage.DB
	for i := range dbs {
		st := changed(mem, func(*store.Batch) { runtime.Gosched() })
		if wrap != nil {
			st = wrap(st)
		}
		dbs[i] = must(ctxpage.Open(filepath.Join("memory", fmt.Sprint(i)), ctxpage.Options{Store: st}))(t)
	}
	t.Cleanup(func() { _ = dbs[0].Close(); _ = dbs[1].Close() })
	return dbs
}

// unguarded is a store that judges no preconditions on state: what the databases did before there were any.
func unguarded(st store.Store) store.Store {
	return changed(st, func(b *store.Batch) { b.ExpectState = nil })
}

// both runs fn on both databases at once.
func both(t *testing.T, dbs [2]*ctxpage.DB, fn func(db *ctxpage.DB, who int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var errs [2]error
	for i, db := range dbs {
		wg.Go(func() { errs[i] = fn(db, i) })
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
}

const steps = 15

// stepBoth has both databases prohibit things, and says how many of the acknowledged steps are in the state.
func stepBoth(t *testing.T, dbs [2]*ctxpage.DB) (acknowledged, kept int) {
	ctx := context.Background()
	both(t, dbs, func(db *ctxpage.DB, who int) error {
		d := db.Scope("acme/support").Directives()
		for n := range steps {
			if out, err := d.Step(ctx, fmt.Sprintf("prohibit thing-%d-%d", who, n)); err != nil || out.Kind != directive.Update {
				return fmt.Errorf("step %d: %v, %w", n, out, err)
			}
		}
		return nil
	})
	st := must(dbs[0].Scope("acme/support").Directives().State(ctx))(t)
	return 2 * steps, len(slices.Collect(st.Own.State.Policies()))
}

// Two processes step the directives of one scope: no acknowledged step is lost, and the journal has each of them.
func TestTwoStepDirectives(t *testing.T) {
	t.Parallel()
	dbs := two(t, nil)
	acknowledged, kept := stepBoth(t, dbs)
	require.Equal(t, acknowledged, kept)
	d := dbs[1].Scope("acme/support").Directives()
	st := must(d.State(context.Background()))(t)
	require.Equal(t, uint64(acknowledged), st.Version)
	list := must(loop.Collect(d.Entries(context.Background(), ctxpage.AtMost(100, "", nil))))(t)
	require.Len(t, list, acknowledged)
}

// The control: without preconditions steps are lost.
func TestTwoStepDirectivesControl(t *testing.T) {
	t.Parallel()
	for range 300 {
		if acknowledged, kept := stepBoth(t, two(t, unguarded)); kept < acknowledged {
			return
		}
	}
	t.Fatal("a store without preconditions lost nothing: the test of steps proves nothing")
}

// A step is judged on the ancestors' states, so a change of one between the judgement and the commit is a conflict, too.
func TestStepBesideAncestor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dbs := two(t, nil)
	both(t, dbs, func(db *ctxpage.DB, who int) error {
		for n := range steps {
			var err error
			if who == 0 {
				_, err = db.Scope("acme").Directives().Step(ctx, fmt.Sprintf("prohibit tool-%d", n))
			} else {
				_, err = db.Scope("acme/support").Directives().Step(ctx, fmt.Sprintf("use tool-%d", n))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	above := must(dbs[0].Scope("acme").Directives().State(ctx))(t)
	require.Len(t, slices.Collect(above.Own.State.Policies()), steps)
	// What the child uses was used before the ancestor prohibited it: the audit tells the order.
	order := map[string]uint64{}
	log := dbs[0].Manifests()
	require.NoError(t, store.EachRecord(ctx, log, 0, dbtest.SizeOf(log), false, func(r *manifest.Record) error {
		order[r.Scope+" "+r.Note] = r.LSN
		return nil
	}))
	entries := must(loop.Collect(dbs[1].Scope("acme/support").Directives().Entries(ctx, ctxpage.AtMost(100, "", nil))))(t)
	parents := must(loop.Collect(dbs[1].Scope("acme").Directives().Entries(ctx, ctxpage.AtMost(100, "", nil))))(t)
	for _, used := range entries {
		for _, e := range parents {
			if e.Input == "prohibit"+used.Input[len("use"):] && used.Decision.Kind == directive.Update {
				at, prohibited := order[fmt.Sprintf("acme/support version %d", used.Version)], order[fmt.Sprintf("acme version %d", e.Version)]
				require.NotZero(t, at)
				require.Less(t, at, prohibited, "%s after %s", used.Input, e.Input)
			}
		}
	}
}

// talkBoth has both databases append to one session, pin each turn and run passes. It says what of the acknowledged is
// not there: turns without a number of their own, pins and passes.
func talkBoth(t *testing.T, dbs [2]*ctxpage.DB) (lost []string) {
	ctx := context.Background()
	require.NoError(t, dbs[0].Scope("acme").Session("case").SetWindow(ctx, session.Config{Total: 8000}))
	both(t, dbs, func(db *ctxpage.DB, who int) error {
		c := db.Scope("acme").Session("case")
		for n := range steps {
			id := fmt.Sprintf("turn-%d-%d", who, n)
			if _, err := c.Append(ctx, ctxpage.Turn{ID: id, Role: "user", Text: fmt.Sprintf("the words of %s", id)}); err != nil {
				return fmt.Errorf("append %s: %w", id, err)
			}
			if err := c.Pin(ctx, id); err != nil {
				return fmt.Errorf("pin %s: %w", id, err)
			}
			if n%5 == 4 {
				if _, err := c.Pass(ctx, session.PassQuery{Keywords: []string{id}}); err != nil {
					return fmt.Errorf("pass: %w", err)
				}
			}
		}
		return nil
	})
	for i, db := range dbs {
		w := must(db.Scope("acme").Session("case").Inspect(ctx))(t)
		require.Len(t, w.Turns, 2*steps)
		seen := map[int64]bool{}
		for _, turn := range w.Turns {
			if !turn.Pinned {
				lost = append(lost, fmt.Sprintf("pin of %s in %d", turn.ID, i))
			}
			if seen[turn.Seq] {
				lost = append(lost, fmt.Sprintf("number %d in %d", turn.Seq, i))
			}
			seen[turn.Seq] = true
		}
	}
	passes := must(dbs[0].Scope("acme").Session("case").Passes(ctx))(t)
	if want := 2 * (steps / 5); len(passes) != want {
		lost = append(lost, fmt.Sprintf("%d of %d passes", want-len(passes), want))
	}
	return lost
}

// Two processes append to one session, pin turns, set its window and run passes: every acknowledged change is there, each
// turn has a number of its own, and what the one did the other reads.
func TestTwoWriteSession(t *testing.T) {
	t.Parallel()
	require.Empty(t, talkBoth(t, two(t, nil)))
}

// The control: without preconditions changes are lost.
func TestTwoWriteSessionControl(t *testing.T) {
	t.Parallel()
	for range 300 {
		if lost := talkBoth(t, two(t, unguarded)); len(lost) > 0 {
			t.Log(lost)
			return
		}
	}
	t.Fatal("a store without preconditions lost nothing: the test of sessions proves nothing")
}

// What one process writes to a session the other sees at its next call, without a commit of its own.
func TestOtherReadsSession(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dbs := two(t, nil)
	one, other := dbs[0].Scope("acme").Session("case"), dbs[1].Scope("acme").Session("case")
	must(one.Append(ctx, ctxpage.Turn{ID: "first", Role: "user", Text: "hello"}))(t)
	w := must(other.Inspect(ctx))(t)
	require.False(t, w.Turns[0].Pinned)
	require.NoError(t, one.Pin(ctx, "first"))
	w = must(other.Inspect(ctx))(t)
	require.True(t, w.Turns[0].Pinned)
}

// Two processes record file roots and directories.
func TestTwoRecordRoots(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dbs := two(t, nil)
	base := t.TempDir()
	var dirs [2][]string
	for who := range dirs {
		for range 5 {
			dirs[who] = append(dirs[who], t.TempDir())
		}
	}
	both(t, dbs, func(db *ctxpage.DB, who int) error {
		for _, dir := range dirs[who] {
			if err := db.Admin().AddFileRoot(ctx, dir); err != nil {
				return err
			}
		}
		return nil
	})
	roots := must(dbs[0].Admin().FileRoots(ctx))(t)
	require.ElementsMatch(t, append(dirs[0], dirs[1]...), roots, base)
}

// onHost is a store as one of several hosts has it.
type onHost struct {
	store.Store
	name string
}

func (s onHost) Info(ctx context.Context) (store.Info, error) {
	info, err := s.Store.Info(ctx)
	info.Host = s.name
	return info, err
}

func (s onHost) Close() error { return nil }

// twoHosts opens a database on two hosts, which read files of one path below one root.
func twoHosts(t *testing.T, root, nameA, nameB string) (a, b *ctxpage.DB) {
	t.Helper()
	mem := must(storetest.NewMemory(storetest.Config{State: ctxpage.StateKinds()}))(t)
	open := func(name string) *ctxpage.DB {
		db := must(ctxpage.Open("hosts", ctxpage.Options{Store: onHost{mem, name}, FileRoots: []string{root}}))(t)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	return open(nameA), open(nameB)
}

// noted is what the manifest of a read says of its pages that come from files.
func noted(t *testing.T, db *ctxpage.DB, trace string) (reasons []string) {
	t.Helper()
	found := must(db.Manifests().ByTrace(t.Context(), trace))(t)
	for _, r := range found {
		for _, p := range r.Pages {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

func pageReason(t *testing.T, db *ctxpage.DB, trace, id string) string {
	t.Helper()
	why := must(db.Why(t.Context(), trace, ctxpage.Ref{Scope: "acme", ID: id}))(t)
	require.True(t, why.In)
	return why.Page.Reason
}

// The file: source of a page belongs to the host that read it. On another host, which has another file at that path or none, the page
// is neither dirty nor fetched anew: it is served by its age, and get, search, assembly and why say that nobody asked its source.
func TestFilesOfAnotherHost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const unchecked = "unchecked: its file is on host a"
	root := t.TempDir()
	path := filepath.Join(root, "policy.md")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("Refunds are paid within 30 days.")
	a, b := twoHosts(t, root, "a", "b")
	must(a.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "policy", Source: "file:" + path}))(t)
	must(a.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "summary", Text: "Refunds: a month.", DerivedFrom: []ctxpage.Ref{{Scope: "acme", ID: "policy", Version: 1}}}))(t)

	for _, now := range []struct {
		name   string
		change func()
	}{
		{"another file", func() { write("Refunds are never paid.") }},
		{"no file", func() { require.NoError(t, os.Remove(path)) }},
	} {
		now.change()
		on := b.Scope("acme")
		got, err := on.Get(ctx, "policy")
		require.NoError(t, err, now.name)
		require.Contains(t, got.Text, "30 days")
		require.Equal(t, "a", got.Elsewhere)
		require.False(t, got.Stale)
		got, err = on.Get(ctx, "summary")
		require.NoError(t, err, now.name)
		require.Equal(t, "a", got.Elsewhere, "what it was made from was not asked")
		found := must(on.Search(ctx, "refunds paid", 5))(t)
		require.Len(t, found.Hits, 2, now.name)
		require.Equal(t, []string{unchecked, unchecked}, noted(t, b, found.Trace))
		asm := must(on.Assemble(ctx, ctxpage.Query{Text: "refunds paid", Budget: 1000}))(t)
		require.Equal(t, unchecked, pageReason(t, b, asm.Trace, "policy"))
		r := must(on.Refresh(ctx, ops.RefreshOptions{Delete: true}))(t)
		require.Zero(t, r.Sources, now.name)
		require.Equal(t, 1, r.Elsewhere)
		require.Empty(t, r.Changed)
		require.Empty(t, r.Vanished)
	}

	// The control: the host that has the file sees both.
	require.ErrorIs(t, errOf(a.Scope("acme").Get(ctx, "policy")), store.ErrDirty)
	write("Refunds are paid within 60 days.")
	got := must(a.Scope("acme").Get(ctx, "policy"))(t)
	require.Contains(t, got.Text, "60 days")
	require.Empty(t, got.Elsewhere)
	require.EqualValues(t, 2, got.Version)

	// The host that puts it has it from then on, also if the content is the same.
	must(b.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "policy", Source: "file:" + path}))(t)
	write("Refunds are paid within 90 days.")
	got = must(a.Scope("acme").Get(ctx, "policy"))(t)
	require.Contains(t, got.Text, "60 days")
	require.Equal(t, "b", got.Elsewhere)
	got = must(b.Scope("acme").Get(ctx, "policy"))(t)
	require.Contains(t, got.Text, "90 days")
}

// A database that records no host, and one that was made before hosts were recorded, asks every file: source where it is opened.
func TestFilesOfNoHost(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"", "b"}, {"a", ""}, {"", ""}, {"a", "a"}} {
		root := t.TempDir()
		path := filepath.Join(root, "policy.md")
		require.NoError(t, os.WriteFile(path, []byte("Refunds are paid within 30 days."), 0o600))
		a, b := twoHosts(t, root, names[0], names[1])
		must(a.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "policy", Source: "file:" + path}))(t)
		require.NoError(t, os.WriteFile(path, []byte("Refunds are never paid."), 0o600))
		got := must(b.Scope("acme").Get(t.Context(), "policy"))(t)
		require.Contains(t, got.Text, "never", names)
		require.Empty(t, got.Elsewhere)
	}
}

// A recorded directory of one host is not emptied by another host that has other files there.
func TestDirectoryOfAnotherHost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	root := t.TempDir()
	a, b := twoHosts(t, root, "a", "b")
	require.NoError(t, os.WriteFile(filepath.Join(root, "one.md"), []byte("Refunds are paid within 30 days."), 0o600))
	require.NoError(t, a.Scope("acme").AddDirectory(ctx, ctxpage.Directory{Dir: root}))
	r := must(a.Scope("acme").Refresh(ctx, ops.RefreshOptions{}))(t)
	require.Equal(t, []string{"one.md"}, r.New)

	require.NoError(t, os.Remove(filepath.Join(root, "one.md"))) // as on a host that does not have it
	require.NoError(t, os.WriteFile(filepath.Join(root, "two.md"), []byte("Of the other host."), 0o600))
	r = must(b.Scope("acme").Refresh(ctx, ops.RefreshOptions{Delete: true}))(t)
	require.Equal(t, []string{"two.md"}, r.New)
	require.Equal(t, 1, r.Elsewhere)
	require.Empty(t, r.Deleted)
	r = must(a.Scope("acme").Refresh(ctx, ops.RefreshOptions{Delete: true}))(t)
	require.Equal(t, []string{"one.md"}, r.Deleted, "the control: the host that has the directory deletes it")
}
