package storetest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

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
