package systest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestEraseCascade: what was derived stays and is dirty, or goes, as asked; a summary and a copy go in any case.
func TestEraseCascade(t *testing.T) {
	for _, c := range []ops.Cascade{ops.Keep, ops.Rederive, ops.Erase} {
		t.Run(string(c), func(t *testing.T) {
			path := dbtest.MemoryPath(t)
			db := must(Open(path, Options{}))(t)
			s := db.Scope("acme")
			from := func(ids ...string) (refs []Ref) {
				for _, id := range ids {
					refs = append(refs, Ref{Scope: "acme", ID: id, Version: 1})
				}
				return refs
			}
			for _, a := range []Artefact{
				{ID: "a", Text: "kettle zqone", Subject: "ann"}, {ID: "b", Text: "kettle other"},
				{ID: "sum", Kind: store.KindSummary, Text: "kettle zqtwo", DerivedFrom: from("a")}, {ID: "copy", Source: "page:a"},
				{ID: "child", Text: "kettle zqthree", DerivedFrom: from("a", "b")}, {ID: "grandchild", Text: "kettle zqfour", DerivedFrom: from("child")},
			} {
				must(s.Put(ctx, a))(t)
			}
			rep := must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "operator", Reason: "asked", Cascade: c}))(t)
			var gone []string
			for _, e := range rep.Erased {
				gone = append(gone, strings.TrimPrefix(e.Ref, "acme:"))
			}
			dir := filepath.Dir(path)
			require.False(t, filesHave(t, "zqone", dir) || filesHave(t, "zqtwo", dir))
			switch c {
			case ops.Keep:
				require.Equal(t, []string{"a", "copy", "sum"}, gone)
				require.Equal(t, []ops.Derived{{Ref: "acme:child", From: []string{"acme:a"}, Left: []string{"acme:b"}, Stays: true}}, rep.Derived)
				a := must(s.Assemble(ctx, Query{Text: "kettle", Budget: 2000}))(t)
				require.NotContains(t, text(a), "zqthree", "it was derived from a page that changed")
				require.Contains(t, text(a), "kettle other")
				require.Equal(t, "kettle other", must(s.Get(ctx, "b"))(t).Text)
			default:
				require.Equal(t, []string{"a", "child", "copy", "grandchild", "sum"}, gone)
				require.False(t, filesHave(t, "zqthree", dir) || filesHave(t, "zqfour", dir))
			}
			if c == ops.Rederive {
				require.Equal(t, []ops.Derived{{Ref: "acme:child", From: []string{"acme:a"}, Left: []string{"acme:b"}}}, rep.Derived)
			}
			require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
			require.NoError(t, db.Close())
		})
	}
}

func text(a *Assembly) string {
	var b strings.Builder
	for _, m := range a.Messages() {
		fmt.Fprint(&b, m)
	}
	return b.String()
}

// TestEraseTurn: of one turn its title, its place, and what passes and notes may have of it go; the others stay.
func TestEraseTurn(t *testing.T) {
	path := dbtest.MemoryPath(t)
	db := must(Open(path, Options{}))(t)
	talk := db.Scope("acme").Session("talk")
	for i, text := range []string{"kettle zqfive zqsix", "the kettle stays", "and what of the pan?"} {
		must(talk.Append(ctx, Turn{ID: fmt.Sprint("turn-", i), Role: []string{"user", "assistant"}[i%2], Text: text}))(t)
	}
	must(talk.Pass(ctx, session.PassQuery{Keywords: []string{"zqfive"}}))(t)
	require.NoError(t, talk.Record(ctx, session.Notes{Text: "zqsix"}))
	rep := must(db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "turn-0"}}, By: "operator", Reason: "asked"}))(t)
	require.Equal(t, []string{"acme/talk"}, rep.Sessions)
	for _, word := range []string{"zqfive", "zqsix"} {
		require.False(t, filesHave(t, word, filepath.Dir(path)), word)
	}
	require.Len(t, must(loop.Collect(talk.Turns(ctx, 0, AtMost(10, "", nil))))(t), 2)
	must(talk.Append(ctx, Turn{ID: "turn-9", Role: "assistant", Text: "it goes on"}))(t)
	must(talk.Pass(ctx, session.PassQuery{Keywords: []string{"pan"}}))(t)
	require.False(t, filesHave(t, "zqfive", filepath.Dir(path)), "the session in memory writes none of it back")
	require.NoError(t, db.Close())
}

// TestEraseInParts erases more than one commit takes, and goes on after a crash behind the first of them.
func TestEraseInParts(t *testing.T) {
	const artefacts = 4500
	path := dbtest.MemoryPath(t)
	crash := filepath.Join(t.TempDir(), "agent.ctx")
	commits := 0
	db := must(openOver(path, Options{}, filestore.Options{Hook: func(step string) error {
		if step == "erase commit" {
			if commits++; commits == 1 {
				return dbtest.Copy(path, crash)
			}
		}
		return nil
	}}))(t)
	for i := 0; i < artefacts; i += 500 {
		require.NoError(t, db.Scope("acme").Update(ctx, func(tx *Txn) error {
			for j := range 500 {
				if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("a-", i+j), Text: fmt.Sprintf("zqseven %d", i+j)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	rep := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme", By: "operator", Reason: "asked"}))(t)
	require.Equal(t, artefacts, rep.Done.Artefacts)
	require.Greater(t, commits, 1)
	require.False(t, filesHave(t, "zqseven", filepath.Dir(path)))
	require.NoError(t, db.Close())

	require.True(t, filesHave(t, "zqseven", filepath.Dir(crash)), "control")
	db = must(Open(crash, Options{}))(t)
	require.False(t, filesHave(t, "zqseven", filepath.Dir(crash)))
	leaves := must(db.Manifests().ByTrace(ctx, rep.Done.Trace))(t)
	last := ""
	for _, l := range leaves {
		if l.Type == manifest.TypeErase {
			last = l.Note
		}
	}
	require.Contains(t, last, fmt.Sprintf("artefacts %d, versions %d", artefacts, artefacts), "also those of the commit before the crash")
	require.Zero(t, must(db.Stats(ctx))(t).Artefacts)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// TestEraseBesideReaders: reads and writes go on while the file under them is exchanged.
func TestEraseBesideReaders(t *testing.T) {
	db := must(Open(dbtest.MemoryPath(t), Options{WorkingSet: -1}))(t)
	s := db.Scope("acme")
	for i := range 50 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("stays-", i), Text: fmt.Sprintf("kettle %d", i)}))(t)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	var failed sync.Map
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				var err error
				switch id := fmt.Sprint("stays-", i%50); g {
				case 0:
					_, err = s.Put(ctx, Artefact{ID: id, Text: fmt.Sprintf("kettle %d, again %d", i%50, i)})
				case 1:
					_, err = s.Search(ctx, "kettle", 5)
				default:
					_, err = s.Get(ctx, id)
				}
				if err != nil {
					failed.Store(g, err)
					return
				}
			}
		})
	}
	for i := range 8 {
		id := fmt.Sprint("goes-", i)
		must(s.Put(ctx, Artefact{ID: id, Text: "kettle secret"}))(t)
		must(db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: id}}, By: "operator", Reason: "asked"}))(t)
	}
	close(done)
	wg.Wait()
	failed.Range(func(g, err any) bool { t.Errorf("worker %v: %v", g, err); return true })
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// eraseSequences is how many random sequences TestEraseModel makes; a nightly run asks for 10,000.
var eraseSequences = flag.Int("erase.sequences", 0, "random sequences of TestEraseModel; 0: some seconds of them")

// eraseModel is a database with what must be in it, and what must not.
type eraseModel struct {
	*testing.T
	seed  uint64
	rng   *rand.Rand
	path  string
	db    *DB
	now   *dbtest.Clock
	live  map[string]string    // word of the newest version, by id
	at    map[string]time.Time // when that was written
	words map[string][]string  // of all versions
	gone  []string             // words that were erased
	heads []manifest.Head
}

// eraseModelAge is how old facts of the model may become before retention takes them.
const eraseModelAge = 5 * 24 * time.Hour

func (m *eraseModel) open() {
	m.Helper()
	db := must(Open(m.path, Options{Clock: m.now.Now}))(m)
	m.db = db
}

// step is one random call.
func (m *eraseModel) step(n int) (err error) {
	ctx, rng := context.Background(), m.rng
	s, id := m.db.Scope("acme"), fmt.Sprint("a-", rng.IntN(6))
	switch rng.IntN(13) {
	case 0, 1, 2, 3:
		word := fmt.Sprintf("zqw%dx%dx", m.seed, n)
		_, err = s.Put(ctx, Artefact{ID: id, Text: "kettle " + word, Tags: []string{word}})
		m.live[id], m.at[id], m.words[id] = word, m.now.Now(), append(m.words[id], word)
	case 4:
		if m.live[id] != "" {
			err = s.Delete(ctx, id)
		}
		delete(m.live, id)
	case 5:
		_, err = s.Assemble(ctx, Query{Text: "kettle " + id, Budget: 2000})
	case 6:
		_, err = m.db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepRecords: 1 + rng.IntN(3), KeepNames: rng.IntN(3)})
	case 7:
		_, err = m.db.Admin().Checkpoint(ctx)
	case 8:
		h, herr := m.db.Head(ctx)
		require.NoError(m, herr)
		m.heads = append(m.heads, h)
		require.NoError(m, m.db.Close())
		m.open()
	case 9:
		_, err = m.db.Admin().Compact(ctx, rng.IntN(2) == 0, nil)
	case 10:
		m.now.Add(time.Duration(rng.IntN(40)) * time.Hour)
	case 11:
		err = m.retain(ctx)
	default:
		err = m.erase(ctx, id)
	}
	return err
}

func (m *eraseModel) retain(ctx context.Context) error {
	k := m.db.Admin().Retention()
	p := ops.Policy{Kinds: map[string]ops.Age{"fact": ops.Age(eraseModelAge)}, Versions: ops.Day}
	if err := k.Set(ctx, "", p, "operator"); err != nil {
		return err
	}
	_, err := k.Run(ctx, ops.RunOptions{})
	for id := range m.live {
		if !m.at[id].After(m.now.Now().Add(-eraseModelAge)) {
			delete(m.live, id)
		}
	}
	return err
}

func (m *eraseModel) erase(ctx context.Context, id string) error {
	_, err := m.db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: id}}, By: "operator", Reason: "asked"})
	if errors.Is(err, store.ErrNotFound) { // never put, or forgotten by gc
		require.Empty(m, m.live[id])
		return nil
	}
	m.gone = append(m.gone, m.words[id]...)
	delete(m.live, id)
	delete(m.words, id)
	for _, w := range m.gone {
		require.False(m, filesHave(m, w, filepath.Dir(m.path)), "seed %d: %s", m.seed, w)
	}
	return err
}

// check looks at all of it: what lives, what does not, every head that was taken, every invariant.
func (m *eraseModel) check() {
	now := must(m.db.Head(ctx))(m)
	for _, h := range m.heads {
		require.NoError(m, must(m.db.Manifests().ProveConsistency(ctx, h.Size, now.Size))(m).Verify(h, now))
	}
	list := must(loop.Collect(m.db.Scope("acme").Artefacts(ctx, "", AtMost(100, "", nil))))(m)
	require.Len(m, list, len(m.live), "seed %d", m.seed)
	for id, word := range m.live {
		require.Contains(m, must(m.db.Scope("acme").Get(ctx, id))(m).Text, word)
	}
	require.Empty(m, must(m.db.Admin().Check(ctx, nil))(m), "seed %d", m.seed)
	require.NoError(m, m.db.Close())
}

// TestEraseModel makes random sequences of puts, deletes, reads, gc, retention, checkpoints, compactions, reopens and erases.
// After each erase it looks for the words of what was erased; at the end for what must be there.
func TestEraseModel(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Duration(dbtest.Times(0, 1, 30)) * time.Second)
	for seed := uint64(1); seed <= uint64(*eraseSequences) || *eraseSequences == 0 && (seed < 4 || time.Now().Before(until)); seed++ {
		m := &eraseModel{
			T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), path: dbtest.MemoryPath(t), now: dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)),
			live: map[string]string{}, at: map[string]time.Time{}, words: map[string][]string{},
		}
		m.open()
		for n := range 60 {
			require.NoError(t, m.step(n), "seed %d step %d", seed, n)
		}
		m.check()
		require.NoError(t, os.RemoveAll(filepath.Dir(m.path)))
	}
}

// TestForgottenNameIsPutAgain: an id whose artefact gc forgot is another artefact, and the leaves of the first one say nothing
// of its rows.
func TestForgottenNameIsPutAgain(t *testing.T) {
	path := dbtest.MemoryPath(t)
	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme")
	for _, text := range []string{"kettle one", "kettle two"} {
		must(s.Put(ctx, Artefact{ID: "a", Text: text}))(t)
	}
	require.NoError(t, s.Delete(ctx, "a"))
	names := 0
	for range 2 {
		rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1}))(t)
		names += rep.Names
	}
	require.Equal(t, 1, names)
	require.EqualValues(t, 1, must(s.Put(ctx, Artefact{ID: "a", Text: "kettle three"}))(t).Version)
	require.NoError(t, db.Close())
	db = must(Open(path, Options{}))(t)
	require.Len(t, must(loop.Collect(db.Scope("acme").Artefacts(ctx, "", AtMost(10, "", nil))))(t), 1)
	require.NoError(t, db.Close())
}

// A packet that another session received has titles of the turns and the notes of the session that handed it on. It goes
// with them, and so does a packet that was made of it; the control is a packet of a session that stays.
func TestEraseReachesPackets(t *testing.T) {
	ctx := t.Context()
	day := Ref{Scope: "acme", ID: "day"}
	for name, ask := range map[string]func() ops.Request{
		"session": func() ops.Request { return ops.Request{Session: day} },
		"turn":    func() ops.Request { return ops.Request{Refs: []Ref{{Scope: "acme", ID: "turn-60"}}} },
		"scope":   func() ops.Request { return ops.Request{Scope: "acme"} },
	} {
		for _, turns := range []int{2, 80} { // a packet that is pinned, and one that has a brief
			n := &needles{}
			path := filepath.Join(t.TempDir(), "agent.ctx")
			db := openTest(t, path, Options{})
			talk := db.Scope("acme").Session("day")
			for i := range turns {
				must(talk.Append(ctx, Turn{ID: fmt.Sprintf("turn-%d", i+60), Role: []string{"user", "assistant"}[i%2], Text: n.words(8)}))(t)
			}
			require.NoError(t, talk.Record(ctx, session.Notes{Goal: n.next(), Open: []string{n.next()}}))
			other := db.Scope("acme").Session("other")
			must(other.Append(ctx, Turn{ID: "another", Role: "user", Text: "words of another session"}))(t)
			p := must(talk.Handoff(ctx, "night"))(t)
			night := db.Scope("other/agent").Session("night")
			must(night.Receive(ctx, p))(t)
			p = must(night.Handoff(ctx, "morning"))(t)
			must(db.Scope("other").Session("morning").Receive(ctx, p))(t)
			p = must(other.Handoff(ctx, "night"))(t)
			stays := must(night.Receive(ctx, p))(t)
			must(night.Append(ctx, Turn{Role: "user", Text: "go on"}))(t)
			must(db.Admin().Checkpoint(ctx))(t)
			require.NotEmpty(t, n.hits(t, filepath.Dir(path)))

			req := ask()
			req.By, req.Reason = "operator", "asked for"
			rep := must(db.Admin().Erase(ctx, req))(t)
			if name == "turn" { // the other turns have needles, too
				for _, x := range rep.Erased {
					require.True(t, x.Ref == "acme:turn-60" || x.Why == "handed on from what goes", "%+v", x)
				}
				require.Greater(t, len(rep.Erased), 2)
				must(db.Admin().Erase(ctx, ops.Request{Session: day, By: "operator", Reason: "asked for"}))(t)
			}
			require.Empty(t, n.hits(t, filepath.Dir(path)), "%s, %d turns: %+v", name, turns, rep.Erased)
			w := must(night.Inspect(ctx))(t)
			if name == "scope" {
				stays = nil
			}
			require.Len(t, w.Turns, len(stays)+1)
			a := must(db.Scope("other/agent").Assemble(ctx, Query{Text: "words", Session: "night", Budget: 2000}))(t)
			require.Contains(t, a.Text(), "go on")
			require.Equal(t, name != "scope", strings.Contains(a.Text(), "words of another session"))
			require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
			require.NoError(t, db.Close())
		}
	}
}
