package ctxpage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Each finding counts what it says, and nothing of a scope that is in order.
func TestHealth(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, Options{Clock: now.now})
	s := db.Scope("acme")
	count := func() map[string]int {
		r := must(s.Health(ctx, ops.HealthOptions{}))(t)
		require.Len(t, r.Findings, 7)
		out := map[string]int{}
		for _, f := range r.Findings {
			require.NotEmpty(t, f.Mend)
			if f.Count > 0 {
				require.NotEmpty(t, f.Examples, f.What)
				out[f.What] = f.Count
			}
		}
		return out
	}
	long := "the quick brown fox jumps over the lazy dog near the river bank at noon on a %s day of the year"
	put(t, s, Artefact{ID: "one", Text: fmt.Sprintf(long, "sunny")})
	put(t, s, Artefact{ID: "fine", Text: fmt.Sprintf(long, "rainy")})
	put(t, s, Artefact{ID: "color-old", Text: "blue", Subject: "ada", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "color-bob", Text: "red", Subject: "bob", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "base", Text: "a base of something"})
	require.Empty(t, count(), "control: nothing is wrong yet")

	put(t, s, Artefact{ID: "two", Text: fmt.Sprintf(long, "sunny")})
	put(t, s, Artefact{ID: "three", Text: "The quick, brown FOX" + fmt.Sprintf(long, "sunny")[len("the quick brown fox"):]})
	put(t, s, Artefact{ID: "color-new", Text: "green", Subject: "ada", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "brief", Text: "soon over", TTL: time.Hour})
	put(t, s, Artefact{ID: "replaced", Text: "old rule"})
	put(t, s, Artefact{ID: "rule", Text: "new rule", Supersedes: []string{"replaced"}})
	put(t, s, Artefact{ID: "child", Text: "made from a base", DerivedFrom: []Ref{{ID: "base"}}})
	require.NoError(t, s.Delete(ctx, "base"))
	now.add(2 * time.Hour)
	require.Equal(t, map[string]int{"exact duplicate": 1, "near duplicate": 1, "contradiction": 1, "expired": 1, "superseded": 1, "orphan": 1}, count())

	must(s.Assemble(ctx, Query{Text: "rule", Budget: 150}))(t)
	require.Positive(t, count()["never served"])
	require.Less(t, count()["never served"], 9)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(s.Health(ended, ops.HealthOptions{})), context.Canceled)
	require.ErrorIs(t, errOf(s.Health(ctx, ops.HealthOptions{Examples: 100 + 1})), store.ErrInvalid)
	require.ErrorIs(t, errOf(db.Scope("acme", Gated()).Health(ctx, ops.HealthOptions{})), store.ErrGated)
}

// Only a whole artefact repeats another: a page that two documents share makes neither worth deleting.
func TestHealthOfDocuments(t *testing.T) {
	t.Parallel()
	db := open(t, Options{PageTokens: 40})
	s := db.Scope("acme")
	para := func(about string) string {
		return "This paragraph of the handbook is about " + about + " and says at some length what everybody who works here should know of it before the first day.\n\n"
	}
	put(t, s, Artefact{ID: "a", Text: para("the licence") + para("refunds") + para("vouchers")})
	put(t, s, Artefact{ID: "b", Text: para("the licence") + para("holidays") + para("sickness")})
	v := must(s.Get(ctx, "a"))(t)
	require.Greater(t, len(v.Pages), 1, "control: the documents have several pages, of which they share the first")
	find := func() map[string]ops.Finding {
		r := must(s.Health(ctx, ops.HealthOptions{}))(t)
		out := map[string]ops.Finding{}
		for _, f := range r.Findings {
			if f.Count > 0 {
				out[f.What] = f
			}
		}
		return out
	}
	require.Empty(t, find())
	put(t, s, Artefact{ID: "a again", Text: para("the licence") + para("refunds") + para("vouchers")})
	put(t, s, Artefact{ID: "a nearly", Text: para("the licence") + strings.Replace(para("refunds"), "handbook", "Handbook", 1) + para("vouchers")})
	got := find()
	require.Len(t, got, 2)
	require.Equal(t, []ops.Example{{ID: "a again", With: "a"}}, got["exact duplicate"].Examples)
	require.Equal(t, []ops.Example{{ID: "a nearly", With: "a"}}, got["near duplicate"].Examples)
	require.Equal(t, 1, got["exact duplicate"].Count, "one artefact, however many pages it has")
}

// What people say twice in a conversation is no duplicate, and its turns are not advised to be deleted one by one.
func TestHealthOfConversations(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, Options{Clock: now.now})
	s := db.Scope("acme")
	for range 3 {
		must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: "Thank you very much, that is all I wanted to know for today."}))(t)
	}
	put(t, s, Artefact{ID: "fact", Text: "something else"})
	now.add(time.Hour)
	must(s.Assemble(ctx, Query{Text: "nothing", Budget: 60, Kinds: []store.Kind{store.KindSystem}}))(t)
	r := must(s.Health(ctx, ops.HealthOptions{}))(t)
	for _, f := range r.Findings {
		if f.What == "never served" {
			require.Equal(t, []ops.Example{{ID: "fact"}}, f.Examples, "control: what is no turn is found")
		} else {
			require.Zero(t, f.Count, f.What)
		}
	}
}

// loads counts the calls that read pages.
type loads struct {
	store.Store
	n int
}

func (s *loads) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	s.n++
	return s.Store.Load(ctx, scopes, keys, want)
}

// Beside a busy process each call takes its time, so a report makes at most a few for each artefact, however many are alike.
func TestHealthMakesFewCalls(t *testing.T) {
	t.Parallel()
	files := must(filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), NoSync: true, State: StateKinds()}))(t)
	st := &loads{Store: files}
	db := must(Open("files", Options{Store: st, NoWatch: true}))(t)
	defer func() { require.NoError(t, db.Close()) }()
	s := db.Scope("acme")
	text := strings.Repeat("the quick brown fox jumps over the lazy dog near the river bank at noon ", 5)
	const n = 60
	for i := range n {
		put(t, s, Artefact{ID: fmt.Sprint("same-", i), Text: strings.Replace(text, "dog", "dog"+strings.Repeat("!", i+1), 1)})
	}
	st.n = 0
	r := must(s.Health(ctx, ops.HealthOptions{}))(t)
	for _, f := range r.Findings {
		if f.What == "near duplicate" {
			require.Equal(t, n-1, f.Count)
			require.Len(t, f.Examples, 5)
		}
	}
	require.LessOrEqual(t, st.n, 2*n+3*5)
}

// A message that a plain write puts into a group begins a session, which is listed as one that was appended to. A write does not
// undo what was decided about a session.
func TestPutBeginsSession(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/ann")
	turn := Artefact{ID: "m1", Kind: store.KindMessage, Role: "user", Text: "which tea?", Group: "chat-1", Seq: 1}
	put(t, s, turn)
	put(t, s, Artefact{ID: "f1", Text: "a fact in a group", Group: "notes"})
	list := must(loop.Collect(s.Sessions(ctx)))(t)
	require.Equal(t, []string{"chat-1"}, list)
	put(t, s, Artefact{ID: "m2", Kind: store.KindMessage, Role: "assistant", Text: "green", Group: "chat-1", Seq: 2})
	must(s.Session("chat-1").Append(ctx, Turn{Role: "user", Text: "why?"}))(t)
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		turn.ID, turn.Group = "m3", "chat-2"
		return tx.Put(ctx, turn)
	}))
	s = reopen(t, db, Options{}).Scope("acme/ann")
	list = must(loop.Collect(s.Sessions(ctx)))(t)
	require.Equal(t, []string{"chat-1", "chat-2"}, list)
	require.Len(t, must(s.Session("chat-1").Inspect(ctx))(t).Turns, 3)
}

// Raise gives the artefacts of a selection a higher provenance, so that a search shows them. The audit says by whom and why.
func TestRaise(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/ann")
	for id, text := range map[string]string{"a1": "Ann likes tea in the morning", "a2": "tea is bought at the harbour every Friday", "b1": "the cupboard above the stove holds tea"} {
		put(t, s, Artefact{ID: id, Kind: store.KindFact, Text: text, Provenance: store.Scratch, Tags: []string{id[:1]}, Meta: map[string]string{"k": id}})
	}
	put(t, s, Artefact{ID: "m1", Kind: store.KindMessage, Role: "assistant", Text: "green tea", Group: "chat", Seq: 1})
	shown := func(opts ...ReadOption) (n int, below string) {
		found := must(s.Search(ctx, "tea", 10, opts...))(t)
		return len(found.Hits), found.Below()
	}
	n, below := shown()
	require.Zero(t, n)
	require.Contains(t, below, "matches below the provenance floor: 4")
	n, below = shown(WithFloor(store.Scratch))
	require.Equal(t, 3, n, "the turn is found in its session only")
	require.Empty(t, below)

	r := Raise{To: store.Validated, By: "bob", Why: "read them", Where: Filter{TagsAll: []string{"a"}}, DryRun: true}
	require.Len(t, must(db.Admin().Raise(ctx, "acme/ann", r))(t).Refs, 2)
	n, _ = shown()
	require.Zero(t, n, "a dry run writes nothing")
	r.DryRun = false
	require.Len(t, must(db.Admin().Raise(ctx, "acme/ann", r))(t).Refs, 2)
	v := get(t, s, "a1")
	require.Equal(t, store.Validated, v.Provenance)
	require.Equal(t, map[string]string{"k": "a1"}, v.Meta, "everything else is as it was")
	var last manifest.Record
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Type == manifest.TypeCommit {
			last = *r
		}
		return nil
	}))
	require.Equal(t, []string{"bob", "read them", "raised to validated"}, []string{last.By, last.Note, last.Reason})
	require.Equal(t, Raised{Refs: []Ref{}, Above: 2}, *must(db.Admin().Raise(ctx, "acme/ann", r))(t))
	n, below = shown()
	require.Equal(t, 2, n)
	require.Contains(t, below, ": 2")

	must(db.Admin().Raise(ctx, "acme/ann", Raise{To: store.HumanVerified, By: "bob", IDs: []string{"m1"}}))(t)
	require.Len(t, must(loop.Collect(s.Session("chat").Turns(ctx, 0)))(t), 1, "a raised turn stays in its session")
	require.ErrorIs(t, errOf(db.Admin().Raise(ctx, "acme/ann", Raise{To: store.Validated, By: "bob", IDs: []string{"none"}})), store.ErrNotFound)
	for _, bad := range []Raise{{To: store.Validated}, {To: store.Scratch, By: "bob"}, {By: "bob"}} {
		require.ErrorIs(t, errOf(db.Admin().Raise(ctx, "acme/ann", bad)), store.ErrInvalid)
	}
}

// afterListing is a store that does something once, right after a listing of one kind.
type afterListing struct {
	store.Store
	what store.ScanKind
	do   func()
}

func (s *afterListing) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := s.Store.Scan(ctx, q)
	if do := s.do; do != nil && q.What == s.what {
		s.do = nil
		do()
	}
	return page, err
}

// TestExportBesideJobs: an export leaves out what is erased between the listing and the read of the texts, and gc leaves it the
// versions that it listed.
func TestExportBesideJobs(t *testing.T) {
	ctx := t.Context()
	erases := func(names bool) func(db *DB) error {
		return func(db *DB) error {
			_, err := db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme", ID: "a"}}, By: "desk", Reason: "asked", Names: names})
			return err
		}
	}
	for name, job := range map[string]struct {
		do    func(db *DB) error
		wants string
	}{
		"erase":            {erases(false), "b1"},
		"erase with names": {erases(true), "b1"},
		"gc": {func(db *DB) error {
			if _, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "a2"}); err != nil {
				return err
			}
			_, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
			return err
		}, "a1b1"},
	} {
		t.Run(name, func(t *testing.T) {
			files := must(filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), State: StateKinds()}))(t)
			st := &afterListing{Store: files, what: store.ScanArtefacts}
			db := must(Open("files", Options{Store: st, WorkingSet: -1, NoWatch: true}))(t)
			defer db.Close()
			for _, id := range []string{"a", "b"} {
				must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: id + "1"}))(t)
			}
			var failed error
			st.do = func() { failed = job.do(db) }
			var out bytes.Buffer
			_, err := db.Scope("acme").Export(ctx, &out)
			require.NoError(t, failed)
			require.NoError(t, err)
			texts := ""
			for dec := json.NewDecoder(&out); dec.More(); {
				var v Version
				require.NoError(t, dec.Decode(&v))
				texts += v.Text
			}
			require.Equal(t, job.wants, texts)
		})
	}
}

// TestAppendBesideErase: a turn that is erased after the turns were listed, and before they are read, does not fail an append to its
// session.
func TestAppendBesideErase(t *testing.T) {
	files := must(filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), State: StateKinds()}))(t)
	st := &afterListing{Store: files, what: store.ScanMembers}
	db := must(Open("files", Options{Store: st, NoWatch: true}))(t)
	defer db.Close()
	s := db.Scope("acme")
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "hello"}))(t)
	for _, id := range []string{"past", "kept"} { // turns that this session has not read
		must(s.Put(ctx, Artefact{ID: id, Kind: store.KindMessage, Role: "user", Group: "chat", Seq: 5, Text: "put past the session", Provenance: store.Chunk}))(t)
	}
	var failed error
	st.do = func() {
		_, failed = db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme", ID: "past"}}, By: "desk", Reason: "asked"})
	}
	must(chat.Append(ctx, Turn{Role: "user", Text: "go on"}))(t)
	require.NoError(t, failed)
	require.Nil(t, st.do, "control: it was listed")
	var said []string
	for v, err := range chat.Turns(ctx, 0) {
		require.NoError(t, err)
		said = append(said, v.Text)
	}
	require.Equal(t, []string{"hello", "put past the session", "go on"}, said)
}
