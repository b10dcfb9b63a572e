package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// counted is the context of the listings that an interrupted store counts: what the database reads in the background at that
// moment (the watcher's rows, when a session was begun) is none of them.
var counted = context.WithValue(ctx, listing{}, true)

type listing struct{}

// interrupted is a store whose listings of one kind, under a context made from counted, call before each part; an error of it is that of
// the part.
type interrupted struct {
	store.Store
	what   store.ScanKind
	before func(part int) error
	part   int
}

func (s *interrupted) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if q.What == s.what && s.before != nil && ctx.Value(listing{}) != nil {
		s.part++
		if err := s.before(s.part); err != nil {
			return store.ScanPage{}, err
		}
	}
	return s.Store.Scan(ctx, q)
}

func openInterrupted(t *testing.T, what store.ScanKind) (*DB, *interrupted) {
	t.Helper()
	mem := must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)
	s := &interrupted{Store: mem, what: what}
	db := must(Open("in memory", Options{Store: s}))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, s
}

// drain collects a sequence, and checks that an error is its last pair.
func drain[T any](t *testing.T, seq iter.Seq2[T, error]) (items []T, failed error) {
	t.Helper()
	for x, err := range seq {
		require.NoError(t, failed, "nothing comes after an error")
		if failed = err; err == nil {
			items = append(items, x)
		}
	}
	return items, failed
}

// numbered puts n artefacts with ids in order.
func numbered(t *testing.T, s *Scope, n int) (want []string) {
	t.Helper()
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range n {
			want = append(want, fmt.Sprintf("a-%04d", i))
			if err := tx.Put(ctx, Artefact{ID: want[i], Text: "text " + want[i]}); err != nil {
				return err
			}
		}
		return nil
	}))
	return want
}

func namesOf(list []*Version) (out []string) {
	for _, v := range list {
		out = append(out, v.ID)
	}
	return out
}

// atOnce is how many items a sequence reads in one part; the tests want lists of several.
const atOnce = 256

func TestArtefactsAsASequence(t *testing.T) {
	t.Parallel()
	db, st := openInterrupted(t, store.ScanArtefacts)
	s := db.Scope("acme")
	want := numbered(t, s, 2*atOnce+10)
	put(t, s, Artefact{ID: "b", Text: "not of the prefix"})

	got := must(drain(t, s.Artefacts(counted, "a-")))(t)
	require.Equal(t, want, namesOf(got))
	require.Empty(t, got[0].Text)
	listed := must(loop.Collect(s.Artefacts(counted, "a-", AtMost(1000, "", nil))))(t)
	require.Equal(t, listed, got, "what the cursor form gives")
	size := dbtest.SizeOf(db.Manifests())

	st.before = func(int) error { return nil }
	for v, err := range s.Artefacts(counted, "") {
		require.NoError(t, err)
		if v.ID == want[3] {
			break
		}
	}
	require.Equal(t, 1, st.part, "a loop that breaks reads no further part")

	st.part, st.before = 0, func(part int) error {
		if part == 2 {
			return errors.New("the disk is on fire")
		}
		return nil
	}
	got, err := drain(t, s.Artefacts(counted, "a-"))
	require.ErrorContains(t, err, "on fire")
	require.Equal(t, want[:atOnce], namesOf(got), "what came before the error is good")

	st.before = nil
	cut, cancel := context.WithCancel(counted)
	defer cancel()
	n := 0
	for _, err = range s.Artefacts(cut, "a-") {
		if n++; n == 5 {
			cancel()
		}
	}
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 6, n)
	require.Equal(t, size, dbtest.SizeOf(db.Manifests()), "a listing leaves no manifest")

	got, err = drain(t, db.Scope("no/../scope\x00").Artefacts(counted, ""))
	require.ErrorIs(t, err, store.ErrInvalid)
	require.Empty(t, got)
}

// Others write between the parts: no id comes twice, and none is missed that was there all the time.
func TestArtefactsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	db, st := openInterrupted(t, store.ScanArtefacts)
	s := db.Scope("acme")
	want := numbered(t, s, 2*atOnce+10)
	gone := want[atOnce+5]
	st.before = func(part int) error {
		if part != 2 {
			return nil
		}
		put(t, s, Artefact{ID: "a-0000x", Text: "behind the cursor"})
		put(t, s, Artefact{ID: "a-9999", Text: "before it"})
		put(t, s, Artefact{ID: want[2], Text: "a second version"})
		return s.Delete(ctx, gone)
	}
	got := must(drain(t, s.Artefacts(counted, "")))(t)
	expected := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id == gone })
	require.Equal(t, append(expected, "a-9999"), namesOf(got))
}

func TestVersionsAsASequence(t *testing.T) {
	t.Parallel()
	db, st := openInterrupted(t, store.ScanHistory)
	above, s := db.Scope("acme"), db.Scope("acme/support")
	const n = atOnce + 44
	for i := range n {
		put(t, above, Artefact{ID: "policy", Text: fmt.Sprint("policy ", i)})
	}
	st.before = func(part int) error {
		if part == 2 { // the newest version, and one nearer to the reader
			put(t, above, Artefact{ID: "policy", Text: "policy anew"})
			put(t, s, Artefact{ID: "policy", Text: "our policy"})
		}
		return nil
	}
	seq := s.Versions(counted, "policy")
	got := must(drain(t, seq))(t)
	require.Len(t, got, n)
	for i, v := range got {
		require.Equal(t, "acme", v.Ref.Scope)
		require.EqualValues(t, n-i, v.Version)
	}

	st.before = nil
	got, err := drain(t, seq) // reads anew
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "acme/support", got[0].Ref.Scope)

	require.ErrorIs(t, errOf(drain(t, s.Versions(counted, "nobody"))), store.ErrNotFound)
}

func TestScopesAsASequence(t *testing.T) {
	t.Parallel()
	db, st := openInterrupted(t, store.ScanScopes)
	var want []string
	for i := range 4*atOnce + 3 {
		want = append(want, fmt.Sprintf("acme/s%04d", i))
		put(t, db.Scope(want[i]), Artefact{ID: "a", Text: "x"})
	}
	put(t, db.Scope("other"), Artefact{ID: "a", Text: "x"})
	got := must(drain(t, db.Scopes(counted, "acme/")))(t)
	var names []string
	for _, s := range got {
		names = append(names, s.Name)
	}
	require.Equal(t, want, names)

	st.before = func(part int) error { return map[int]error{2: errors.New("the disk is on fire")}[part] }
	got, err := drain(t, db.Scopes(counted, ""))
	require.ErrorContains(t, err, "on fire")
	require.Len(t, got, 4*atOnce)
}

// A loop over what waits may decide it.
func TestSessionsAndDirectoriesAsSequences(t *testing.T) {
	t.Parallel()
	db, st := openInterrupted(t, store.ScanState)
	s := db.Scope("acme")
	srv := t.TempDir()
	require.NoError(t, db.Admin().AddFileRoot(ctx, srv))
	var names []string
	var dirs []Directory
	for i := range atOnce + 2 {
		name := fmt.Sprintf("chat-%04d", i)
		must(s.Session(name).Append(ctx, Turn{Role: "user", Text: "Hello."}))(t)
		names = append(names, name)
		d := Directory{Dir: srv, Prefix: fmt.Sprintf("d%04d/", i)}
		require.NoError(t, s.AddDirectory(ctx, d))
		d.MaxSize = 1 << 20
		dirs = append(dirs, d)
	}
	must(db.Scope("acme/below").Session("other").Append(ctx, Turn{Role: "user", Text: "Hello."}))(t)
	require.NoError(t, db.Scope("acme/below").AddDirectory(ctx, Directory{Dir: srv}))
	size := dbtest.SizeOf(db.Manifests())

	got := must(drain(t, s.Sessions(counted)))(t)
	require.Equal(t, names, got)
	require.Equal(t, must(loop.Collect(s.Sessions(counted)))(t), got)
	gotDirs := must(drain(t, s.Directories(counted)))(t)
	require.Equal(t, dirs, gotDirs)
	require.Equal(t, must(loop.Collect(s.Directories(counted)))(t), gotDirs)
	require.Equal(t, size, dbtest.SizeOf(db.Manifests()), "a listing leaves no manifest")

	st.before = func(int) error { return nil }
	for range s.Sessions(counted) {
		break
	}
	require.Equal(t, 1, st.part, "a loop that breaks reads no further part")
	broken := errors.New("the disk is on fire")
	st.part, st.before = 0, func(part int) error {
		if part == 2 {
			return broken
		}
		return nil
	}
	got, err := drain(t, s.Sessions(counted))
	require.ErrorIs(t, err, broken)
	require.Equal(t, names[:atOnce], got, "what was read before it")
	st.part = 0
	gotDirs, err = drain(t, s.Directories(counted))
	require.ErrorIs(t, err, broken)
	require.Equal(t, dirs[:atOnce], gotDirs)
	st.before = nil
	require.ErrorIs(t, errOf(drain(t, db.Scope("a//b").Sessions(counted))), store.ErrInvalid)
	require.ErrorIs(t, errOf(drain(t, db.Scope("a//b").Directories(counted))), store.ErrInvalid)
	ended, cancel := context.WithCancel(counted)
	cancel()
	require.ErrorIs(t, errOf(drain(t, s.Sessions(ended))), context.Canceled)
}

func TestBatchesAsASequence(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	var want []string
	for i := range atOnce + 4 {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: fmt.Sprint("d-", i), Text: "draft"}))
		want = append(want, heldAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "checker"}), ReasonLowConfidence).Batch)
	}
	slices.Sort(want) // the order within a millisecond is that of the ids
	var got []string
	for h, err := range db.Review().Batches(ctx, "acme", false) {
		require.NoError(t, err)
		got = append(got, h.ID)
		must(db.Review().Reject(ctx, h.ID, "kim", "no"))(t)
	}
	require.Equal(t, want, got)
	require.Empty(t, must(drain(t, db.Review().Batches(ctx, "", false)))(t))
	require.Len(t, must(drain(t, db.Review().Batches(ctx, "", true)))(t), len(want))
}

func TestDirectivesAsASequence(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	d := db.Scope("acme").Directives()
	for i := range atOnce + 4 {
		must(d.Step(ctx, fmt.Sprintf("use tool%d", i)))(t)
	}
	want := must(loop.Collect(d.Entries(ctx, AtMost(1000, "", nil))))(t)
	require.Greater(t, len(want), atOnce)
	require.Equal(t, want, must(drain(t, d.Entries(ctx)))(t))
	require.ErrorIs(t, errOf(drain(t, db.Scope("no/../scope\x00").Directives().Entries(ctx))), store.ErrInvalid)
}

func TestTurnsAsASequence(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	chat := db.Scope("acme").Session("s")
	var turns []Turn
	for i := range atOnce + 4 {
		turns = append(turns, Turn{Role: "user", Text: fmt.Sprint("turn ", i)})
	}
	must(chat.Append(ctx, turns...))(t)
	got := must(drain(t, chat.Turns(ctx, 0)))(t)
	require.Len(t, got, len(turns))
	for i, v := range got {
		require.Equal(t, turns[i].Text, v.Text)
	}
	require.Equal(t, got[atOnce:], must(drain(t, chat.Turns(ctx, got[atOnce].Seq)))(t))
	require.Empty(t, must(drain(t, db.Scope("acme").Session("nobody").Turns(ctx, 0)))(t))
}

// The leaves of an audit, in both directions, up to an error in the middle.
func TestRecordsAsASequence(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	for i := range 3*atOnce/2 + 1 {
		put(t, db.Scope("acme"), Artefact{ID: "a", Text: fmt.Sprint("text ", i)})
	}
	log := db.Manifests()
	up := must(drain(t, store.Records(ctx, log, 0, 1<<60, false)))(t)
	require.Len(t, up, int(dbtest.SizeOf(log)))
	for i, r := range up {
		require.EqualValues(t, i, r.Index)
	}
	down := must(drain(t, store.Records(ctx, log, 3, dbtest.SizeOf(log)-1, true)))(t)
	slices.Reverse(down)
	require.Equal(t, up[3:len(up)-1], down)
	none, err := drain(t, store.Records(ctx, log, 7, 7, false))
	require.NoError(t, err)
	require.Empty(t, none)

	n := 0
	for range store.Records(ctx, log, 0, dbtest.SizeOf(log), false) {
		put(t, db.Scope("acme"), Artefact{ID: "a", Text: fmt.Sprint("meanwhile ", n)})
		n++
	}
	require.Len(t, up, n, "leaves that were added meanwhile are not listed")

	cut, cancel := context.WithCancel(ctx)
	defer cancel()
	n = 0
	for _, err = range store.Records(cut, log, 0, dbtest.SizeOf(log), true) {
		if n++; n == 300 {
			cancel()
		}
	}
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 301, n)
}

func TestListingsOfAnyLimit(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range 70 {
		put(t, s, Artefact{ID: strings.Repeat("x", i+1), Text: "t"})
	}
	for _, limit := range []int{math.MinInt, -1, 0, math.MaxInt} {
		list := must(loop.Collect(s.Artefacts(ctx, "", AtMost(limit, "", nil))))(t)
		require.Len(t, list, 70)
		list = must(loop.Collect(s.Versions(ctx, "x", AtMost(limit, "", nil))))(t)
		require.Len(t, list, 1)
		require.ErrorIs(t, errOf(loop.Collect(s.Versions(ctx, "x", AtMost(limit, "4000000000", nil)))), store.ErrInvalid, "a cursor from elsewhere")
		must(loop.Collect(db.Scopes(ctx, "", AtMost(limit, "", nil))))(t)
		must(loop.Collect(db.Review().Batches(ctx, "", true, AtMost(limit, "", nil))))(t)
	}
}

// A page of the newest does not skip an artefact that got a new version since the page before, and lists none twice.
func TestNewestBesideUpdates(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		s := db.Scope(fmt.Sprint("acme/", round))
		write := func(n int) {
			put(t, s, Artefact{ID: fmt.Sprintf("a%d", n), Text: fmt.Sprint("text ", n, " of ", rng.Uint64())})
		}
		for n := range 8 {
			write(n)
		}
		seen := map[string]int{}
		for cursor, part := "", 0; ; part++ {
			limit := 1 + rng.IntN(3)
			var next string
			list := must(loop.Collect(s.Artefacts(ctx, "", AtMost(limit, cursor, &next), NewestFirst())))(t)
			require.LessOrEqual(t, len(list), limit)
			for _, v := range list {
				seen[v.ID]++
			}
			if cursor = next; next == "" {
				break
			}
			require.Less(t, part, 40, "a listing ends")
			for range rng.IntN(3) {
				write(rng.IntN(10))
			}
		}
		for n := range 8 {
			require.Equal(t, 1, seen[fmt.Sprintf("a%d", n)], "round %d: a%d in %v", round, n, seen)
		}
	}
}

// A cursor belongs to its listing: its scope, its order, its prefix.
func TestCursorsOfOtherListings(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	s, other := db.Scope("acme"), db.Scope("other")
	for _, id := range []string{"a", "b", "c"} {
		put(t, s, Artefact{ID: id, Text: id})
		put(t, other, Artefact{ID: id, Text: id})
	}
	var byID string
	must(loop.Collect(s.Artefacts(ctx, "", AtMost(1, "", &byID))))(t)
	var newest string
	must(loop.Collect(s.Artefacts(ctx, "", AtMost(1, "", &newest), NewestFirst())))(t)
	for name, list := range map[string]func() error{
		"no cursor": func() error {
			_, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1, "zzz", nil)))
			return err
		},
		"an id": func() error { _, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1, "b", nil))); return err },
		"newest by id": func() error {
			_, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1, newest, nil)))
			return err
		},
		"by id newest": func() error {
			_, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1, byID, nil), NewestFirst()))
			return err
		},
		"3.b newest": func() error {
			_, err := loop.Collect(s.Artefacts(ctx, "", AtMost(1, "3.b", nil), NewestFirst()))
			return err
		},
		"another scope": func() error {
			_, err := loop.Collect(other.Artefacts(ctx, "", AtMost(1, byID, nil)))
			return err
		},
		"a prefix": func() error {
			_, err := loop.Collect(s.Artefacts(ctx, "a", AtMost(1, byID, nil)))
			return err
		},
	} {
		require.ErrorIs(t, list(), store.ErrInvalid, name)
	}
	require.Equal(t, "b", must(loop.Collect(s.Artefacts(ctx, "", AtMost(1, byID, nil))))(t)[0].ID, "control")
}

// A name is the same in composed and decomposed form, wherever it is given.
func TestNamesInBothForms(t *testing.T) {
	ctx := t.Context()
	const nfc, nfd = "Jos\u00e9", "Jose\u0301"
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: nfd, Text: "likes tea", Subject: nfd, Tags: []string{nfd}})
	for _, id := range []string{nfc, nfd} {
		require.Equal(t, nfc, must(s.Get(ctx, id))(t).ID)
		for _, f := range []Filter{{Subject: id}, {TagsAny: []string{id}}, {TagsAll: []string{id}}, {IDPrefix: id}} {
			require.Len(t, must(loop.Collect(s.Artefacts(ctx, "", AtMost(9, "", nil), Where(f))))(t), 1, "%+v", f)
			require.Len(t, must(s.Search(ctx, "tea", 9, Where(f)))(t).Hits, 1, "%+v", f)
		}
		require.Len(t, must(loop.Collect(s.Artefacts(ctx, id, AtMost(9, "", nil))))(t), 1)
		require.Len(t, must(loop.Collect(s.Versions(ctx, id, AtMost(9, "", nil))))(t), 1)
		report := must(db.Admin().Erase(ctx, ops.Request{Subject: id, By: "ann", Reason: "asked", DryRun: true}))(t)
		require.Len(t, report.Erased, 1)
		ref := must(store.ParseRef("acme:" + id))(t)
		must(s.Recall(ctx, ref))(t)
	}
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: nfc, Text: "likes coffee"}))
	require.Equal(t, "likes coffee", must(tx.Get(ctx, nfd))(t).Text)
	require.NoError(t, tx.Rollback())
	require.NoError(t, s.Delete(ctx, nfd))
	require.ErrorIs(t, errOf(s.Get(ctx, nfc)), store.ErrNotFound)
	require.Equal(t, s.Session(nfc).ID(), s.Session(nfd).ID())

	must(s.Session(nfd).Append(ctx, Turn{ID: "turn-" + nfd, Role: "user", Text: "which tea?"}))(t)
	for _, id := range []string{nfc, nfd} {
		a := assemble(t, s, Query{Text: "tea", Budget: 500, Session: id})
		require.Equal(t, []string{"turn-" + nfc}, ids(a))
		require.NoError(t, s.Session(id).Pin(ctx, "turn-"+id))
		must(s.Session(id).Recall(ctx, "turn-"+id))(t)
		require.Contains(t, must(s.Session(nfc).Inspect(ctx, "turn-"+id))(t).Turn, "turn-"+id)
		require.NotEmpty(t, must(loop.Collect(db.Leaves(ctx, manifest.Filter{Session: id})))(t))
	}
}
