package portable_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// clock moves a minute with each look, so that every commit has a time of its own.
type clock struct{ now time.Time }

func (c *clock) tick() time.Time {
	c.now = c.now.Add(time.Second)
	return c.now
}

func open(t testing.TB, path string, c *clock, is store.Info) *ctxpage.DB {
	t.Helper()
	opts := ctxpage.Options{Exclusive: true, Identity: is, NoWatch: true} // the tests compare what depends on how often the clock was read
	if c != nil {
		opts.Clock = c.tick
	}
	db := must(ctxpage.Open(path, opts))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

const odd = "acme/ä ö%/a:b#c@1"

// fill puts everything into a database that an export can have.
func fill(t testing.TB, db *ctxpage.DB) {
	t.Helper()
	ctx := t.Context()
	s := db.Scope(odd, ctxpage.WithActor("agent"))
	rel := 0.25
	put := func(s *ctxpage.Scope, a ctxpage.Artefact) ctxpage.Ref {
		return must(s.Put(ctx, a))(t)
	}
	first := put(s, ctxpage.Artefact{ID: "rule:#@%/1", Text: "refunds up to 400", Subject: "ann", Tags: []string{"b", "a"}, Meta: map[string]string{"k": "v", "": "empty"}, Pinned: true, Priority: store.PriorityHigh, Relevance: &rel})
	put(s, ctxpage.Artefact{ID: "long", Text: strings.Repeat("A paragraph of refunds.\n\n", 400)})
	put(s, ctxpage.Artefact{ID: "long", Text: strings.Repeat("A paragraph of refunds.\n\n", 399) + "The end."})
	put(s, ctxpage.Artefact{ID: "child", Text: "refunds were 300", DerivedFrom: []ctxpage.Ref{first}, ExpiresAt: time.Date(2031, 1, 1, 0, 0, 0, 123000, time.UTC)})
	put(s, ctxpage.Artefact{ID: "old", Text: "refunds up to 100"})
	put(s, ctxpage.Artefact{ID: "new", Text: "refunds up to 500", Supersedes: []string{"old"}, CurrentAsOf: time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)})
	put(s, ctxpage.Artefact{ID: "back", Text: "refunds one"})
	put(s, ctxpage.Artefact{ID: "over", Text: "refunds two", Supersedes: []string{"back"}})
	put(s, ctxpage.Artefact{ID: "back", Text: "refunds one"})
	for i := range 12 {
		put(s, ctxpage.Artefact{ID: "busy", Text: fmt.Sprintf("refunds round %d", i)})
	}
	put(s, ctxpage.Artefact{ID: "dead", Text: "refunds dead"})
	require.NoError(t, s.Delete(ctx, "dead"))
	put(s, ctxpage.Artefact{ID: "dead2", Text: "refunds dead"})
	require.NoError(t, s.Delete(ctx, "dead2"))
	put(s, ctxpage.Artefact{ID: "dead2", Text: "refunds alive <b>&\u2028"})
	put(s, ctxpage.Artefact{ID: "gone", Text: "okapi secret", Subject: "bob"})
	must(db.Admin().PutVerified(ctx, "acme", "ann", ctxpage.Artefact{ID: "fact", Text: "refunds are verified"}))(t)
	put(s, ctxpage.Artefact{ID: "copy", Source: "page:" + first.String()})
	require.NoError(t, s.Update(ctx, func(tx *ctxpage.Txn) error {
		for i := range 5 {
			if err := tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("many-%d", i), Text: fmt.Sprintf("refunds many %d", i), Group: "thread", Seq: int64(i)}); err != nil {
				return err
			}
		}
		return nil
	}))

	for i, judge := range []float64{0.2, 0.3} {
		a := must(s.Assemble(ctx, ctxpage.Query{Text: "refunds", Budget: 2000}))(t)
		tx := must(s.Resume(ctx, a.Trace))(t)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("answer-%d", i), Text: "refunds answer"}))
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "rule:#@%/1", Text: "refunds up to 900"}))
		var held *store.HeldError
		require.ErrorAs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: judge, By: "judge"}), &held)
		if i == 1 {
			must(db.Review().Reject(ctx, held.Batch, "operator", "no"))(t)
		}
	}
	for _, say := range []string{"use metric units", "never promise refunds"} {
		must(s.Directives().Step(ctx, say))(t)
	}
	talk := s.Session("talk")
	require.NoError(t, talk.SetWindow(ctx, session.Config{Total: 2000}))
	for i := range 30 {
		must(talk.Append(ctx, ctxpage.Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("turn %d of refunds ", i) + strings.Repeat("word ", 60)}))(t)
	}
	must(talk.Pass(ctx, session.PassQuery{Keywords: []string{"refunds"}}))(t)
	require.NoError(t, talk.Record(ctx, session.Notes{Text: "what was done", Done: []string{"it"}}))
	require.NoError(t, db.Admin().AddFileRoot(ctx, t.TempDir()))
	must(db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepRecords: 3}))(t)
	must(db.Admin().Erase(ctx, ops.Request{Subject: "bob", By: "operator", Reason: "asked"}))(t)
}

func export(t testing.TB, db *ctxpage.DB, opts portable.ExportOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	rep := must(db.Admin().Export(t.Context(), &b, opts))(t)
	require.EqualValues(t, b.Len(), rep.Bytes)
	return b.Bytes()
}

func bring(t testing.TB, db *ctxpage.DB, file []byte) *portable.Imported {
	t.Helper()
	return must(db.Admin().Import(t.Context(), bytes.NewReader(file), portable.ImportOptions{By: "operator", Roots: []string{"/"}, Policies: true}))(t)
}

// same drops from lines what is of one database: LSNs, page numbers, the head and the time. Pages of directives come last:
// an import writes them after the rows that they must agree with.
func same(t testing.TB, file []byte) []string {
	t.Helper()
	var out, last []string
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "lsn")
			delete(v, "num")
			for k := range v {
				v[k] = walk(v[k])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	for _, line := range lines[1 : len(lines)-1] {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		if name, _ := v["name"].(string); strings.HasPrefix(name, "session/pass/") && v["pages"] != nil {
			delete(v, "value") // has numbers
		}
		b := must(json.Marshal(walk(v)))(t)
		if v["id"] == directivelog.PageID {
			last = append(last, string(b))
			continue
		}
		out = append(out, string(b))
	}
	return append(out, last...)
}

func sound(t testing.TB, db *ctxpage.DB) {
	t.Helper()
	problems := must(db.Admin().Check(t.Context(), nil))(t)
	require.Empty(t, problems)
}

func context_(t testing.TB, db *ctxpage.DB, q ctxpage.Query) string {
	t.Helper()
	q.Check = ctxpage.CheckNever
	a := must(db.Scope(odd).Assemble(t.Context(), q))(t)
	return a.Text()
}

func TestRoundTrip(t *testing.T) {
	c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	dir := t.TempDir()
	from := open(t, filepath.Join(dir, "a.ctx"), c, store.Info{})
	fill(t, from)
	sound(t, from)
	file := export(t, from, portable.ExportOptions{})
	require.NotContains(t, string(file), "okapi", "erased")
	head := must(portable.ReadHeader(bytes.NewReader(file)))(t)

	path := filepath.Join(dir, "b.ctx")
	to := open(t, path, c, head.Identity())
	dry := must(to.Admin().Import(t.Context(), bytes.NewReader(file), portable.ImportOptions{By: "operator", Roots: []string{"/"}, Policies: true, DryRun: true}))(t)
	rep := bring(t, to, file)
	require.Equal(t, rep.Versions, dry.Versions)
	require.Equal(t, []any{rep.State, rep.Held, rep.Erased}, []any{dry.State, dry.Held, dry.Erased})
	require.Zero(t, rep.Versions.Same+rep.Versions.Other+rep.State.Other+rep.Held.Other)
	sound(t, to)
	require.Equal(t, same(t, file), same(t, export(t, to, portable.ExportOptions{})))

	questions := []ctxpage.Query{{Text: "refunds", Budget: 3000}, {Text: "refunds metric", Budget: 700}, {Text: "refunds", Budget: 6000, Session: "talk"}}
	for _, q := range questions {
		at := c.now
		want := context_(t, from, q)
		c.now = at
		require.Equal(t, want, context_(t, to, q))
	}
	differs, mark := false, regexp.MustCompile(`[■♪※†★►]`)
	for n := 0; n < 40 && !differs; n++ { // another database draws one of six marks
		other := open(t, filepath.Join(dir, fmt.Sprintf("c%d.ctx", n)), c, store.Info{})
		bring(t, other, file)
		at := c.now
		want := context_(t, from, questions[0])
		c.now = at
		got := context_(t, other, questions[0])
		differs = want != got
		require.Equal(t, mark.ReplaceAllString(want, ""), mark.ReplaceAllString(got, ""), "and nothing else")
	}
	require.True(t, differs, "control: another database has another mark")

	again := bring(t, to, file)
	require.Zero(t, again.Versions.New+again.State.New+again.Held.New+again.Versions.Other+again.State.Other+again.Held.Other)
	require.NoError(t, to.Close())
	to = open(t, path, c, store.Info{})
	sound(t, to)
	require.Equal(t, same(t, file), same(t, export(t, to, portable.ExportOptions{})))
	w := must(from.Scope(odd).Session("talk").Inspect(t.Context()))(t)
	w2 := must(to.Scope(odd).Session("talk").Inspect(t.Context()))(t)
	w.LSN, w2.LSN = 0, 0
	require.Equal(t, w, w2)
	for _, db := range []*ctxpage.DB{from, to} {
		n := 0
		for h, err := range db.Review().Batches(t.Context(), "", false) {
			require.NoError(t, err)
			must(db.Review().Approve(t.Context(), h.ID, ctxpage.Approval{By: "ann", Stale: true}))(t)
			n++
		}
		require.Equal(t, 1, n)
		v := must(db.Scope(odd).Get(t.Context(), "rule:#@%/1"))(t)
		require.Equal(t, []any{"refunds up to 900", uint32(2)}, []any{v.Text, v.Version})
	}
	require.ErrorIs(t, errOf(to.Scope(odd).Get(t.Context(), "gone")), store.ErrNotFound)
	must(to.Scope(odd).Session("talk").Append(t.Context(), ctxpage.Turn{Role: "user", Text: "goes on"}))(t)
	must(to.Scope(odd).Directives().Step(t.Context(), "use imperial units"))(t)
	sound(t, to)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
