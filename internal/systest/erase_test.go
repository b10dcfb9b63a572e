package systest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// needles are words that stand nowhere but where a test put them.
type needles struct{ n int }

func (n *needles) next() string {
	n.n++
	return fmt.Sprintf("zq%06dx", n.n)
}

func (n *needles) words(count int) string {
	var out []string
	for range count {
		out = append(out, n.next())
	}
	return strings.Join(out, " ")
}

var needle = regexp.MustCompile(`(?i)zq[0-9]{6}x`)

// hits are the needles in the files of a directory, by file.
func (n *needles) hits(t testing.TB, dir string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for path, b := range must(dbtest.Files(dir))(t) {
		if found := needle.FindAll(dbtest.Readable(path, b), -1); len(found) > 0 {
			rel, _ := filepath.Rel(dir, path)
			out[rel] = len(found)
		}
	}
	return out
}

// needleVectors embeds every text as a needle: the bytes of three numbers spell it. Another person's texts get one that is none.
type needleVectors struct {
	mu sync.Mutex
	n  *needles
}

func (e *needleVectors) Model() string { return "needles" }

func (e *needleVectors) Embed(_ context.Context, texts []string) (out [][]float32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range texts {
		word := "bobsvectors!"
		if !strings.Contains(text, "bob") {
			word = e.n.next() + "..."
		}
		v := make([]float32, 3)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte(word[4*i:])))
		}
		out = append(out, v)
	}
	return out, nil
}

// plant fills a scope with needles in every place that holds content, and another one with what must stay.
func plant(t testing.TB, db *DB, n *needles) (trace string, shown Ref) {
	t.Helper()
	ctx := t.Context()
	s := db.Scope("acme/ann", WithActor("agent"))
	for i := range 40 {
		require.NoError(t, errOf(s.Put(ctx, Artefact{ID: fmt.Sprintf("fact-%d", i), Text: "kettle " + n.words(16), Subject: "ann", Tags: []string{n.next()}, Meta: map[string]string{n.next(): n.next()}, Name: n.next()})))
		must(db.Scope("acme/bob").Put(ctx, Artefact{ID: fmt.Sprintf("fact-%d", i), Text: fmt.Sprintf("kettle of bob %d", i)}))(t)
	}
	must(s.Put(ctx, Artefact{ID: "fact-1", Text: "kettle again " + n.words(5), Subject: "ann"}))(t)
	require.NoError(t, s.Delete(ctx, "fact-2"))
	require.NoError(t, errOf(s.Put(ctx, Artefact{ID: "child", Text: "kettle derived " + n.words(5), Subject: "ann", DerivedFrom: []Ref{{Scope: "acme/ann", ID: "fact-3", Version: 1}}})))
	a := must(s.Assemble(ctx, Query{Text: "kettle " + n.words(3), Budget: 4000}))(t)
	require.NotEmpty(t, a.Manifest.Pages)
	shown = must(store.ParseRef(db.RefOf(ctx, a.Manifest.Pages[0].Num)))(t)

	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "kettle draft " + n.words(5), Subject: "ann", Tags: []string{n.next()}}))
	must(tx.Assemble(ctx, Query{Text: "kettle draft " + n.words(2), Budget: 4000}))(t)
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
	tx = must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "fact-4", Text: "kettle held " + n.words(5), Subject: "ann"}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 0.1, By: "judge"}), &held)
	must(db.Review().Reject(ctx, held.Batch, "operator", "no"))(t)

	must(s.Directives().Step(ctx, "use "+n.next()))(t)
	talk := s.Session("talk")
	for i := range 30 {
		role := []string{"user", "assistant"}[i%2]
		must(talk.Append(ctx, Turn{ID: fmt.Sprintf("turn-%d", i), Role: role, Text: "kettle " + n.words(8) + " " + strings.Repeat("word ", 30)}))(t)
	}
	must(talk.Pass(ctx, session.PassQuery{Keywords: []string{n.next(), "kettle"}}))(t)
	require.NoError(t, talk.Record(ctx, session.Notes{Text: n.next(), Done: []string{n.next()}}))
	packet := must(talk.Handoff(ctx, "night shift"))(t)
	require.NotEmpty(t, needle.FindAll(packet.Markdown(), -1))
	must(s.Put(ctx, Artefact{ID: "packet", Text: string(packet.Markdown())}))(t)
	require.NoError(t, errOf(s.Put(ctx, Artefact{ID: "summary", Kind: store.KindSummary, Text: "kettle " + n.words(5), DerivedFrom: []Ref{{Scope: "acme/ann", ID: "fact-5", Version: 1}}})))
	must(s.Put(ctx, Artefact{ID: "copy", Source: "page:fact-6"}))(t)
	return a.Manifest.Trace, shown
}

// whole checks a database after an erase: sound, the heads of before hold, what is another's is there.
func whole(t testing.TB, db *DB, heads []manifest.Head) {
	t.Helper()
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	now := must(db.Head(ctx))(t)
	for _, h := range heads {
		require.NoError(t, must(db.Manifests().ProveConsistency(ctx, h.Size, now.Size))(t).Verify(h, now))
	}
	for i := range 40 {
		v := must(db.Scope("acme/bob").Get(ctx, fmt.Sprintf("fact-%d", i)))(t)
		require.Equal(t, fmt.Sprintf("kettle of bob %d", i), v.Text)
	}
	require.Len(t, must(hitsOf(db.Scope("acme/bob").Search(ctx, "kettle", 100)))(t), 40)
}

// TestEraseScope plants needles in every place, erases the scope, and looks at every byte of every file; with a crash at each
// step, too. The control: before the file is written anew the needles are found.
func TestEraseScope(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	var steps []string
	hook := func(string) error { return nil }
	vectors := &needleVectors{n: n}
	opts, files := Options{Embedder: vectors}, filestore.Options{Columns: 1, Hook: func(step string) error {
		if bytes.Contains(debug.Stack(), []byte("refreshColumns")) { // a snapshot that is made beside the erase, of a test that takes long
			return nil
		}
		return hook(step)
	}}
	db := must(openOver(path, opts, files))(t)
	trace, shown := plant(t, db, n)
	require.NoError(t, db.Close())
	require.NotZero(t, n.hits(t, filepath.Dir(path))["agent.ctx.columns"], "control: the snapshot of the columns has ids, tags and names")
	db = must(openOver(path, opts, files))(t)
	var heads []manifest.Head
	for range 2 {
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	require.NotEmpty(t, n.hits(t, filepath.Dir(path)))
	require.Regexp(t, `zq[0-9]{6}x\.\.\.`, string(must(os.ReadFile(path))(t)), "control: the vectors are found")

	dry := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", DryRun: true}))(t)
	require.Nil(t, dry.Done)
	copies, seen := t.TempDir(), map[string]int{}
	before := map[string]int{}
	hook = func(step string) error {
		if seen[step]++; seen[step] > 1 && step != "after bbolt" || seen[step] > 3 {
			return nil
		}
		at := filepath.Join(copies, fmt.Sprintf("%02d", len(steps)))
		require.NoError(t, os.Mkdir(at, 0o700))
		require.NoError(t, dbtest.Copy(path, filepath.Join(at, "agent.ctx")))
		for _, suffix := range []string{".compact", ".columns"} {
			if b, err := os.ReadFile(path + suffix); err == nil {
				require.NoError(t, os.WriteFile(filepath.Join(at, "agent.ctx"+suffix), b, 0o600))
			}
		}
		before[step] += len(n.hits(t, at))
		steps = append(steps, step)
		return nil
	}
	rep := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for"}))(t)
	hook = func(string) error { return nil }
	require.NotNil(t, rep.Done)
	done := *rep.Done
	dry.DryRun, rep.Done = false, nil
	require.Equal(t, dry, rep, "a dry run tells what is done")
	require.Greater(t, n.n, 1000)
	require.Empty(t, n.hits(t, filepath.Dir(path)), "steps %v", steps)
	for _, step := range []string{"erase commit", "erase committed", "erase cut", "compact copied", "compact synced", "compact renamed", "compact changed", "erase purged"} {
		require.Contains(t, steps, step)
	}
	require.NotZero(t, before["erase committed"], "control: the log and the file still have them")
	require.NotZero(t, before["erase cut"], "control: the pages of the old file still have them")

	whole(t, db, heads)
	_, err := db.Replay(ctx, trace)
	require.ErrorIs(t, err, store.ErrErased)
	require.ErrorContains(t, err, "by operator")
	why := must(db.Why(ctx, trace, Ref{Scope: shown.Scope, ID: shown.ID}))(t)
	require.True(t, why.In)
	require.Contains(t, strings.Join(why.Steps, "\n"), "erased at ")
	require.Contains(t, strings.Join(must(db.Why(ctx, trace, Ref{}))(t).Steps, "\n"), "erased at ", "of the context as a whole, too")
	require.True(t, why.QuestionGone)
	require.Empty(t, must(loop.Collect(db.Scope("acme/ann").Session("talk").Turns(ctx, 0, AtMost(100, "", nil))))(t))
	receipt, err := ops.NewReceipt(ctx, db.Manifests(), done, heads[0])
	require.Error(t, err, "a head of before does not have the leaf")
	require.Nil(t, receipt)
	now := must(db.Head(ctx))(t)
	receipt = must(ops.NewReceipt(ctx, db.Manifests(), done, now))(t)
	receipt.Done.Reason = "another"
	require.ErrorIs(t, receipt.Verify(nil), ops.ErrReceipt)
	require.NoError(t, db.Close())
	require.FileExists(t, path+".columns", "control: there is a snapshot of what is left")
	require.Empty(t, n.hits(t, filepath.Dir(path)))

	for i, step := range steps {
		t.Run(fmt.Sprintf("%02d %s", i, step), func(t *testing.T) {
			at := filepath.Join(copies, fmt.Sprintf("%02d", i))
			db := must(Open(filepath.Join(at, "agent.ctx"), Options{}))(t)
			require.Empty(t, n.hits(t, at))
			whole(t, db, heads)
			require.NoError(t, db.Close())
			require.Empty(t, n.hits(t, at))
			saved := filepath.Join(t.TempDir(), "saved.ctx")
			must(Salvage(ctx, filepath.Join(at, "agent.ctx"), saved, filestore.SalvageOptions{}))(t)
			require.Empty(t, n.hits(t, filepath.Dir(saved)), "salvage")
			require.NotZero(t, size(t, saved), "control: it copied something")
		})
	}
}

// TestEraseNothing: what is not there cannot be erased, and a second run finds nothing.
func TestEraseNothing(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "kettle"}))(t)
	req := ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "a"}}, By: "operator", Reason: "asked for"}
	must(db.Admin().Erase(ctx, req))(t)
	require.ErrorIs(t, errOf(db.Scope("acme").Get(ctx, "a")), store.ErrNotFound)
	require.ErrorIs(t, errOf(db.Scope("acme").Recall(ctx, Ref{Scope: "acme", ID: "a", Version: 1})), store.ErrErased)
	require.ErrorIs(t, errOf(db.Admin().Erase(ctx, req)), store.ErrNotFound)
	for _, bad := range []ops.Request{{}, {Subject: "a", Session: store.Ref{Scope: "b", ID: "c"}, By: "x", Reason: "y"}, {Subject: "a", Scope: "/", By: "x", Reason: "y"}, {Subject: "a", Reason: "y"}, {Subject: "a", By: "x"}, {Subject: "a", By: "x", Reason: "y", Cascade: "some"}} {
		require.ErrorIs(t, errOf(db.Admin().Erase(ctx, bad)), store.ErrInvalid)
	}
	require.NoError(t, db.Close())
}

func size(t testing.TB, path string) int64 {
	t.Helper()
	return must(os.Stat(path))(t).Size()
}

// TestEraseAndBackup: the database names the backups that have what it erases, and a restore of one erases it again when it
// is given the receipt. The control: without the receipt the restore brings it back.
func TestEraseAndBackup(t *testing.T) {
	n := &needles{}
	path, old := filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "old.ctx")
	db := must(Open(path, Options{}))(t)
	plant(t, db, n)
	for _, ref := range []string{"gone"} { // forgotten before the erase, and in the backup
		must(db.Scope("acme/ann").Put(ctx, Artefact{ID: ref, Text: n.words(5), Subject: "ann"}))(t)
	}
	must(db.Admin().Backup(ctx, old, nil))(t)
	require.NoError(t, db.Scope("acme/ann").Delete(ctx, "gone"))
	for range 2 {
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1}))(t)
	}
	rep := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "desk", Reason: "4711"}))(t)
	require.Len(t, rep.Backups, 1)
	require.Equal(t, "old.ctx", rep.Backups[0].Name)
	require.Equal(t, rep.Backups, rep.Done.Backups)
	head := must(db.Head(ctx))(t)
	r := must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head))(t)
	require.NoError(t, db.Close())

	restored := filepath.Join(t.TempDir(), "again.ctx")
	must(filestore.Restore(ctx, old, restored, filestore.RestoreOptions{}))(t)
	require.NotEmpty(t, n.hits(t, filepath.Dir(restored)), "control")
	restored = filepath.Join(t.TempDir(), "again.ctx")
	require.NoError(t, errOf(filestore.Restore(ctx, old, restored, filestore.RestoreOptions{Prepare: func(ctx context.Context, st store.Store) error {
		again, err := eraseplan.Repeat(ctx, st, []*ops.Receipt{r}, false, nil)
		require.Len(t, again, 1)
		return err
	}})))
	require.Empty(t, n.hits(t, filepath.Dir(restored)))
	db = must(Open(restored, Options{}))(t)
	whole(t, db, nil)
	require.NoError(t, db.Close())
}

// TestEraseHeld: of a batch that waited and was erased, Review says who erased it.
func TestEraseHeld(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	tx := must(db.Scope("acme").Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "kettle", Subject: "ann"}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 0.1, By: "judge"}), &held)
	require.Len(t, must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "desk", Reason: "4711"}))(t).Held, 1)
	require.Empty(t, must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(10, "", nil))))(t))
	_, err := db.Review().Show(ctx, held.Batch)
	require.ErrorIs(t, err, store.ErrErased)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.ErrorContains(t, err, "by desk")
	require.ErrorIs(t, errOf(db.Review().Approve(ctx, held.Batch, Approval{By: "ann"})), store.ErrErased)
	_, err = db.Review().Show(ctx, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NotErrorIs(t, err, store.ErrErased, "control: it never was")
	require.NoError(t, db.Close())
}

// An erase that takes the name of a session leaves every row sound, also those of past versions that were in the session: a
// row is proved with the name of its group. The name goes once no row needs it.
func TestEraseNameOfPastGroup(t *testing.T) {
	t.Parallel()
	const session = "zqsession"
	for name, c := range map[string]struct {
		past  func(t *testing.T, db *DB, s *Scope) // what became of the version that was in the session
		stays bool                                 // the name stays: another artefact has a row that needs it
	}{
		"taken":  {func(*testing.T, *DB, *Scope) {}, false},
		"erased": {func(t *testing.T, db *DB, _ *Scope) { eraseRefs(t, db, "moved") }, true},
		"gone": {func(t *testing.T, db *DB, _ *Scope) {
			must(db.Admin().GC(t.Context(), GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: -1}))(t)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			path := filepath.Join(t.TempDir(), "agent.ctx")
			db := must(Open(path, Options{}))(t)
			s := db.Scope("acme")
			put := func(a Artefact) {
				t.Helper()
				must(s.Put(ctx, a))(t)
			}
			put(Artefact{ID: "old", Text: "a pan"})
			put(Artefact{ID: "moved", Kind: store.KindScratch, Text: "one kettle", Group: session})
			put(Artefact{ID: "moved", Text: "two kettles", Supersedes: []string{"old"}}) // so its rows are not forgotten
			put(Artefact{ID: "turn", Kind: store.KindMessage, Text: "a kettle", Group: session})
			c.past(t, db, s)
			put(Artefact{ID: "moved", Text: "three kettles"})
			must(db.Admin().Erase(ctx, ops.Request{Session: Ref{Scope: "acme", ID: session}, By: "desk", Reason: "asked", Names: true}))(t)
			for range 2 {
				require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
				require.NoError(t, db.Close())
				db = must(Open(path, Options{}))(t)
			}
			require.NoError(t, db.Close())
			require.Equal(t, c.stays, bytes.Contains(must(os.ReadFile(path))(t), []byte(session)))
		})
	}
}

func eraseRefs(t *testing.T, db *DB, ids ...string) {
	t.Helper()
	req := ops.Request{By: "desk", Reason: "asked"}
	for _, id := range ids {
		req.Refs = append(req.Refs, Ref{Scope: "acme", ID: id})
	}
	must(db.Admin().Erase(t.Context(), req))(t)
}

// plantNames puts needles into every name: scope, ids, session, subject, actor's note, filter, source, batch outcome.
func plantNames(t testing.TB, db *DB, n *needles) (scope, session string, ids []string, bob string) {
	t.Helper()
	ctx := t.Context()
	scope, session = "acme/"+n.next(), n.next()
	s := db.Scope(scope, WithActor("agent"))
	for range 8 {
		id := "fact-" + n.next()
		ids = append(ids, id)
		must(s.Put(ctx, Artefact{ID: id, Text: "kettle " + n.words(4), Subject: n.next()}))(t)
	}
	for i := range 40 {
		must(db.Scope("acme/bob").Put(ctx, Artefact{ID: fmt.Sprintf("fact-%d", i), Text: fmt.Sprintf("kettle of bob %d", i)}))(t)
	}
	require.NoError(t, s.Delete(ctx, ids[0]))
	must(s.Put(ctx, Artefact{ID: "fact-" + n.next(), Text: "kettle derived", DerivedFrom: []Ref{{Scope: scope, ID: ids[1], Version: 1}}}))(t)
	a := must(s.Assemble(ctx, Query{Text: "kettle " + n.next(), Budget: 4000, Filter: Filter{IDPrefix: "fact-" + n.next()[:4]}}))(t)
	must(s.Assemble(ctx, Query{Text: "kettle", Budget: 4000, Filter: Filter{Subject: n.next()}}))(t)
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: ids[2], Text: "kettle held"}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: 0.1, By: "judge", Note: "about " + ids[2]}), store.ErrHeld)
	must(s.Directives().Step(ctx, "use "+n.next()))(t)
	talk := s.Session(session)
	for i := range 12 {
		must(talk.Append(ctx, Turn{ID: "turn-" + n.next(), Role: []string{"user", "assistant"}[i%2], Text: "kettle " + n.words(3)}))(t)
	}
	bobs := must(db.Scope("acme/bob").Assemble(ctx, Query{Text: "kettle", Budget: 2000}))(t)
	require.NotEmpty(t, a.Manifest.Trace)
	return scope, session, ids, bobs.Manifest.Trace
}

// TestEraseNames: after an erase with Names no file has a name, with a crash at each step, too. The control: without Names
// they are found. What is another's can still be explained and replayed, and every head of before holds.
func TestEraseNames(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	hook := func(string) error { return nil }
	db := must(openOver(path, Options{}, filestore.Options{Hook: func(step string) error { return hook(step) }}))(t)
	scope, _, _, bob := plantNames(t, db, n)
	var heads []manifest.Head
	for range 2 {
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	request := ops.Request{Scope: scope, By: "operator", Reason: "asked for", Cascade: ops.Erase}

	control := filepath.Join(t.TempDir(), "agent.ctx")
	must(db.Admin().Backup(ctx, control, nil))(t)
	plain := must(Open(control, Options{}))(t)
	must(plain.Admin().Erase(ctx, request))(t)
	require.NoError(t, plain.Close())
	require.NotEmpty(t, n.hits(t, filepath.Dir(control)), "control: without Names they stay")

	copies, steps, seen := t.TempDir(), []string{}, map[string]int{}
	hook = func(step string) error {
		if seen[step]++; seen[step] > 1 {
			return nil
		}
		at := filepath.Join(copies, fmt.Sprintf("%02d", len(steps)))
		require.NoError(t, os.Mkdir(at, 0o700))
		require.NoError(t, dbtest.Copy(path, filepath.Join(at, "agent.ctx")))
		steps = append(steps, step)
		return nil
	}
	request.Names = true
	request.DryRun = true
	dry := must(db.Admin().Erase(ctx, request))(t)
	require.NotZero(t, dry.Bodies)
	request.DryRun = false
	rep := must(db.Admin().Erase(ctx, request))(t)
	hook = func(string) error { return nil }
	require.Equal(t, dry.Bodies, rep.Done.Bodies)
	require.Empty(t, rep.NamedBy)
	require.Contains(t, steps, "prune vouched")
	require.Contains(t, steps, "prune done")
	require.Empty(t, n.hits(t, filepath.Dir(path)))
	whole(t, db, heads)
	require.True(t, must(db.Replay(ctx, bob))(t).Same)
	pruned := 0
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, heads[0].Size, false, func(r *manifest.Record) error {
		if r.Pruned != nil {
			pruned++
			require.Equal(t, "operator", r.Pruned.By)
			require.Contains(t, r.Pruned.String(), "erased at ")
			require.ErrorIs(t, errOf(db.Manifests().Body(ctx, r.Index)), manifest.ErrPruned)
		}
		return nil
	}))
	require.NotZero(t, pruned)
	now := must(db.Head(ctx))(t)
	require.NoError(t, must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, now))(t).Verify(&now))
	require.NotContains(t, fmt.Sprint(must(loop.Collect(db.Scopes(ctx, "acme", AtMost(100, "", nil))))(t)), scope)
	must(db.Scope(scope).Put(ctx, Artefact{ID: "new", Text: "the scope can be used again"}))(t)
	require.NoError(t, db.Close())

	for i, step := range steps {
		t.Run(fmt.Sprintf("%02d %s", i, step), func(t *testing.T) {
			at := filepath.Join(copies, fmt.Sprintf("%02d", i))
			db := must(Open(filepath.Join(at, "agent.ctx"), Options{}))(t)
			require.Empty(t, n.hits(t, at))
			whole(t, db, heads)
			require.NoError(t, db.Close())
		})
	}
}

// TestEraseNamesOfOne: the names of a few artefacts and of a session go; what was written with them, and what stays and names
// them, is said.
func TestEraseNamesOfOne(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme")
	id, talk, turn := n.next(), n.next(), n.next()
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		if err := tx.Put(ctx, Artefact{ID: id, Text: "of one"}); err != nil {
			return err
		}
		return tx.Put(ctx, Artefact{ID: "other", Text: "written with it"})
	}))
	must(s.Put(ctx, Artefact{ID: "child", Text: "made of it", DerivedFrom: []Ref{{Scope: "acme", ID: id, Version: 1}}}))(t)
	must(s.Session(talk).Append(ctx, Turn{ID: turn, Role: "user", Text: "a word"}))(t)
	head := must(db.Head(ctx))(t)
	for _, req := range []ops.Request{{Refs: []Ref{{Scope: "acme", ID: id}}}, {Session: Ref{Scope: "acme", ID: talk}}} {
		req.By, req.Reason, req.Names = "desk", "request", true
		rep := must(db.Admin().Erase(ctx, req))(t)
		if len(req.Refs) > 0 {
			require.Equal(t, []string{"acme:child"}, rep.NamedBy)
		}
	}
	require.NotEmpty(t, n.hits(t, filepath.Dir(path)), "the row of the child names its parent, as NamedBy says")
	must(db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme", ID: "child"}}, By: "desk", Reason: "request", Names: true}))(t)
	require.Empty(t, n.hits(t, filepath.Dir(path)))
	require.Equal(t, "written with it", must(s.Get(ctx, "other"))(t).Text)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	must(db.Manifests().Verify(ctx, &head, nil))(t)
	must(s.Session(talk).Append(ctx, Turn{ID: turn, Role: "user", Text: "again"}))(t)
	require.NoError(t, db.Close())
	db = must(Open(path, Options{}))(t)
	require.Len(t, must(loop.Collect(db.Scope("acme").Session(talk).Turns(ctx, 0, AtMost(10, "", nil))))(t), 1)
	require.NoError(t, db.Close())
	require.NotEmpty(t, strings.TrimSpace(talk))
}
