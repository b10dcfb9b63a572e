package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// leafOf returns the newest leaf of the audit.
func newestLeaf(t *testing.T, db *DB) *manifest.Record {
	t.Helper()
	size := must(db.Manifests().Size(t.Context()))(t)
	return must(db.Manifests().Leaf(t.Context(), size-1))(t)
}

// A turn that was written from a context names its trace wherever it is read: in the window, in a recall, in an explanation
// and in an export, also after the file was opened again. What the user said has none.
func TestTurnsNameTheirContext(t *testing.T) {
	ctx := t.Context()
	path := t.TempDir() + "/agent.ctx"
	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme/support")
	must(s.Put(ctx, Artefact{ID: "policy", Text: "Refunds take 14 days."}))(t)
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "How long do refunds take?"}))(t)
	a := must(s.Assemble(ctx, Query{Text: "How long do refunds take?", Budget: 2000, Session: "chat"}))(t)
	refs := must(chat.Append(ctx,
		Turn{Role: "user", Text: "Be quick."},
		Turn{Role: "assistant", Text: "Fourteen days.", Trace: a.Trace, Subject: "dana"}))(t)
	id := refs[1].ID

	check := func(db *DB) {
		s := db.Scope("acme/support")
		chat := s.Session("chat")
		w := must(chat.Inspect(ctx))(t)
		var traces []string
		for _, turn := range w.Turns {
			traces = append(traces, turn.Trace)
		}
		require.Equal(t, []string{"", "", a.Trace}, traces)
		v := must(chat.Recall(ctx, id))(t)
		require.Equal(t, a.Trace, v.Trace)
		require.Equal(t, "dana", v.Subject)
		v = must(s.Get(ctx, id))(t)
		require.Equal(t, a.Trace, v.Trace)
		in := must(chat.Inspect(ctx, id, refs[0].ID))(t)
		require.Contains(t, in.Turn[id], "written from the context of trace "+a.Trace)
		require.NotContains(t, in.Turn[refs[0].ID], "written from", "the user was given no context")
		var out strings.Builder
		must(db.Admin().Export(ctx, &out, portable.ExportOptions{}))(t)
		require.Equal(t, 1, strings.Count(out.String(), `"trace":"`+a.Trace+`","artefact"`), out.String())

		w2 := must(db.Why(ctx, v.Trace, Ref{}))(t)
		told := strings.Join(w2.Steps, "\n")
		require.Contains(t, told, "asked in acme/support by acme/support")
		require.Contains(t, told, "in session chat")
		require.Contains(t, told, "in: acme/support:policy#1@1, full")
		require.Equal(t, "How long do refunds take?", w2.Question)
	}
	check(db)
	require.NoError(t, db.Close())
	db = must(Open(path, Options{}))(t)
	check(db)
	require.NoError(t, db.Close())
}

// A memory that an agent wrote names the context of its draft, also when it was held and approved.
func TestMemoriesNameTheirContext(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "policy", Text: "Refunds take 14 days."}))(t)
	require.Empty(t, must(s.Get(ctx, "policy"))(t).Trace, "the host put it")
	a := must(s.Assemble(ctx, Query{Text: "refunds", Budget: 1000}))(t)
	for id, confidence := range map[string]float64{"sure": .9, "unsure": .1} {
		tx, err := db.Scope("acme", Gated()).Resume(ctx, a.Trace)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "Refunds take two weeks, " + id}))
		if err = tx.Commit(ctx, Verdict{Confidence: confidence, By: "judge"}); confidence < .7 {
			var held *store.HeldError
			require.ErrorAs(t, err, &held)
			_, err = db.Review().Approve(ctx, held.Batch, Approval{By: "kim"})
		}
		require.NoError(t, err)
		require.Equal(t, a.Trace, must(s.Get(ctx, id))(t).Trace, id)
	}
}

// Every read leaves a manifest: a replay and a shown draft, too. What returns no contents leaves none.
func TestReplayAndReviewLeaveManifests(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "policy", Text: "Refunds take 14 days."}))(t)
	a := must(s.Assemble(ctx, Query{Text: "refunds", Budget: 1000}))(t)
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "Perhaps."}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "judge"}), &held)

	leaves := func() uint64 {
		return must(db.Manifests().Size(ctx))(t)
	}
	was := leaves()
	for _, read := range []struct {
		what, actor, parent string
		do                  func() error
	}{
		{"replay", "operator", a.Trace, func() error { _, err := db.Replay(ctx, a.Trace); return err }},
		{"replay", "ann", a.Trace, func() error {
			_, err := db.Scope("acme", WithActor("ann"), Gated()).Replay(ctx, a.Trace)
			return err
		}},
		{"review", "operator", held.Batch, func() error { _, err := db.Review().Show(ctx, held.Batch); return err }},
	} {
		require.NoError(t, read.do())
		require.Equal(t, was+1, leaves(), read.what)
		leaf := newestLeaf(t, db)
		require.Equal(t, []any{manifest.TypeRecall, read.what, "acme", read.actor, read.parent}, []any{leaf.Type, leaf.Action, leaf.Scope, leaf.Actor, leaf.Parent})
		require.Positive(t, leaf.Tokens)
		if read.what == "replay" {
			require.Len(t, leaf.Pages, 1)
			require.Equal(t, a.Manifest.Pages[0].Num, leaf.Pages[0].Num)
			require.Equal(t, a.Manifest.Rendered, leaf.Rendered)
		}
		was++
	}
	require.ErrorIs(t, errOf(db.Scope("other").Replay(ctx, a.Trace)), store.ErrNotFound, "a handle replays its own contexts alone")
	require.NoError(t, db.Replayable(ctx, a.Trace))
	list := must(loop.Collect(db.Review().Batches(ctx, "acme", false)))(t)
	require.Len(t, list, 1)
	require.Empty(t, list[0].Writes[0].Text, "a list has no contents")
	require.Empty(t, list[0].Writes[0].Pages[0].Text)
	require.Positive(t, list[0].Writes[0].Tokens)
	require.Equal(t, was, leaves())
	require.NoError(t, errOf(s.Resume(ctx, a.Trace)), "a replay does not join the read set")
}

// Leaves lists the audit by what somebody remembers of a call.
func TestLeavesByFilter(t *testing.T) {
	ctx := t.Context()
	now := dbtest.NewClock(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	db := open(t, Options{Clock: func() time.Time { return now.Add(time.Minute) }})
	for _, scope := range []string{"acme", "globex"} {
		s := db.Scope(scope, WithActor("bot-"+scope))
		for _, chat := range []string{"one", "two"} {
			must(s.Session(chat).Append(ctx, Turn{Role: "user", Text: "Hello."}))(t)
		}
		must(s.Put(ctx, Artefact{ID: "policy", Text: "Refunds take 14 days."}))(t)
		for _, chat := range []string{"one", "two"} {
			must(s.Assemble(ctx, Query{Text: "refunds in " + chat, Budget: 1000, Session: chat}))(t)
		}
	}
	questions := func(f manifest.Filter) (out []string) {
		f.Type = manifest.TypeAssemble
		for r, err := range db.Leaves(ctx, f) {
			require.NoError(t, err)
			out = append(out, r.Scope+" "+r.Question)
		}
		return out
	}
	require.Equal(t, []string{"globex refunds in two", "globex refunds in one", "acme refunds in two", "acme refunds in one"}, questions(manifest.Filter{}))
	require.Equal(t, []string{"globex refunds in two", "acme refunds in two"}, questions(manifest.Filter{Session: "two"}))
	require.Equal(t, []string{"acme refunds in two", "acme refunds in one"}, questions(manifest.Filter{Actor: "bot-acme"}))
	require.Equal(t, []string{"acme refunds in one"}, questions(manifest.Filter{Scope: "acme", Session: "one"}))
	var times []time.Time
	for r, err := range db.Leaves(ctx, manifest.Filter{Type: manifest.TypeAssemble}) {
		require.NoError(t, err)
		times = append(times, time.UnixMicro(r.Time))
	}
	require.Equal(t, []string{"globex refunds in one", "acme refunds in two"}, questions(manifest.Filter{Since: times[2], Until: times[0]}))
}

// A turn says which context it was written from: one that nobody was given is refused, also where another scope made it.
func TestTraceOfATurnThatNamesNoAssembly(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	chat := s.Session("chat")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	theirs := assemble(t, db.Scope("umbrella"), Query{Text: "refunds"})
	below := assemble(t, db.Scope("acme/agent"), Query{Text: "refunds"})
	committed := begin(t, s)
	require.NoError(t, committed.Put(ctx, Artefact{ID: "x", Text: "a draft"}))
	require.NoError(t, committed.Commit(ctx, good))
	before := dbtest.SizeOf(db.Manifests())
	for name, trace := range map[string]string{
		"never": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "other scope": theirs.Trace, "child": below.Trace, "a commit": committed.ID(), "no ulid": "yesterday",
	} {
		turn := Turn{ID: "answer", Role: "assistant", Text: "at most 400", Trace: trace}
		_, err := chat.Append(ctx, Turn{Role: "user", Text: "how much?"}, turn)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		require.ErrorContains(t, err, "trace", name)
		_, err = chat.Try(ctx, turn)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		if name != "no ulid" {
			require.ErrorIs(t, err, store.ErrNotFound, name)
			require.ErrorContains(t, err, "scope acme has recorded no assembly", name)
		}
	}
	require.Equal(t, before, dbtest.SizeOf(db.Manifests()))
	require.Empty(t, must(loop.Collect(chat.Turns(ctx, 0)))(t))
	invisible(t, s, "answer", "at most 400")

	a := assemble(t, s, Query{Text: "refunds"}) // the negative control; its trace in another spelling is the same
	for i, trace := range []string{a.Trace, strings.ToLower(a.Trace)} {
		turn := Turn{ID: fmt.Sprint("answer", i), Role: "assistant", Text: "at most 400", Trace: trace}
		for range 2 { // appending it again is no new turn
			must(chat.Append(ctx, turn))(t)
			require.Equal(t, trace, turn.Trace, "the caller's turn stays as it is")
		}
	}
	require.Len(t, must(db.Manifests().ByTrace(ctx, a.Trace))(t), 3)
}

// talk puts a conversation, "Speaker: text", a turn a line.
func putTalk(t *testing.T, s *Scope, at time.Time, lines ...string) {
	require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
		for i, line := range lines {
			name, text, _ := strings.Cut(line, ": ")
			a := Artefact{
				ID: fmt.Sprintf("%s-%02d", at.Format("2006-01"), i), Kind: store.KindMessage, Role: "user", Name: name, Text: text,
				Group: at.Format("2006-01"), Seq: int64(i), CurrentAsOf: at,
			}
			if err := tx.Put(t.Context(), a); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Why tells each part of a score in words, and who spoke by name.
func TestWhyTellsOfTurns(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("talk")
	putTalk(t, s, time.Date(2023, 5, 8, 0, 0, 0, 0, time.UTC), "Caroline: I bought shoes yesterday", "Melanie: Caroline, these shoes are lovely", "Caroline: Thanks!")
	putTalk(t, s, time.Date(2023, 6, 8, 0, 0, 0, 0, time.UTC), "Melanie: Rain again", "Caroline: And wind")
	must(s.Put(t.Context(), Artefact{ID: "shop.md", Kind: store.KindChunk, Text: "Shoes to buy: all sizes."}))(t)

	a := must(s.Assemble(t.Context(), Query{Text: "Which shoes did Caroline buy in May 2023?", Budget: 2000}))(t)
	steps := func(id string) string {
		return strings.Join(must(db.Why(t.Context(), a.Trace, Ref{ID: id}))(t).Steps, "\n")
	}
	first := steps("2023-05-00")
	require.Contains(t, first, "spoken by Caroline, whom the question names")
	require.Contains(t, first, "said in May 2023: the question names the month")
	require.Contains(t, first, "its author tells of himself or herself")
	require.Contains(t, first, "an irregular form of a word of the question")
	require.NotContains(t, first, "no turn of a conversation")
	require.NotContains(t, steps("2023-05-01"), "spoken by")
	require.Contains(t, steps("2023-06-01"), "none of its words is asked for; it was a candidate by who speaks and when")
	require.Contains(t, steps("shop.md"), "it is no turn of a conversation")

	before := func(x, y string) {
		at := func(id string) float64 {
			for _, b := range a.Blocks {
				if b.Ref.ID == id {
					return b.Score
				}
			}
			return -1
		}
		require.Greater(t, at(x), at(y), "%s before %s", x, y)
	}
	before("2023-05-00", "2023-05-01") // who is named, and not who names her
	before("2023-05-00", "2023-06-01")
}

// mutable lists the methods by which a log is changed.
var mutable = []string{"Add", "AddNew", "Archive", "Mark"}

// writers names what of a value could change the log: a method of that name, a *archive.Log among the results of its
// methods, the fields it shows, or inside an interface.
func writers(v any) (out []string) {
	if _, ok := v.(*archive.Log); ok {
		out = append(out, "it is the log")
	}
	log := reflect.TypeFor[*archive.Log]()
	t := reflect.TypeOf(v)
	for i := range t.NumMethod() {
		m := t.Method(i)
		for _, name := range mutable {
			if m.Name == name {
				out = append(out, "method "+name)
			}
		}
		for k := range m.Type.NumOut() {
			if r := m.Type.Out(k); r == log || r.Kind() == reflect.Interface && r.NumMethod() > 0 && r != reflect.TypeFor[error]() {
				out = append(out, fmt.Sprintf("%s gives %v", m.Name, r))
			}
		}
	}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		for i := range t.Elem().NumField() {
			if f := t.Elem().Field(i); f.IsExported() {
				out = append(out, "field "+f.Name)
			}
		}
	}
	return out
}

// TestHostsReadTheAuditOnly: nothing that a host gets of the audit can append a leaf, and a body or a leaf that the host
// changes is the host's own copy.
func TestHostsReadTheAuditOnly(t *testing.T) {
	path := t.TempDir() + "/agent.ctx"
	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "policy", Text: "refunds take 14 days"}))(t)
	must(s.Get(ctx, "policy"))(t)
	require.Empty(t, writers(db.Manifests()))

	read, _, err := filestore.OpenManifests(ctx, path, nil, "")
	require.NoError(t, err)
	require.Empty(t, writers(read))
	require.NoError(t, read.Close())

	body := must(db.Manifests().Body(ctx, 0))(t)
	clear(body)
	leaf := must(db.Manifests().Leaf(ctx, 0))(t)
	*leaf = manifest.Record{}
	if c, ok := db.Manifests().(interface{ Close() error }); ok {
		require.NoError(t, c.Close(), "a host cannot close the log under the database")
	}
	must(db.Manifests().Verify(ctx, nil, nil))(t)
	require.NoError(t, errOf(s.Get(ctx, "policy")), "the database goes on writing")
	require.NoError(t, db.Close())
	db = must(Open(path, Options{}))(t)
	require.NoError(t, db.Close())
}

// TestWritersSeesALog is the control: what the database handed out before is found.
func TestWritersSeesALog(t *testing.T) {
	l, _, err := archive.Open(context.Background(), t.TempDir(), nil, archive.Options{DB: "x"})
	require.NoError(t, err)
	defer l.Close()
	found := writers(l)
	require.Contains(t, found, "it is the log")
	require.Contains(t, found, "method AddNew")
	require.Contains(t, writers(struct{ *archive.Log }{l}), "method Add")
}

func TestRefOfNamesPagesOfAnyScope(t *testing.T) {
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	must(db.Scope("acme/support").Put(ctx, Artefact{ID: "policy", Text: "refunds"}))(t)
	require.Equal(t, "acme/support:policy#1@1", db.RefOf(ctx, 1))
	require.Equal(t, "page 2", db.RefOf(ctx, 2))
}

// The leaf says of a page that found no place what it would have taken.
func TestLeftOutPagesKeepTheirTokens(t *testing.T) {
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	s := db.Scope("acme")
	for i := range 6 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("note-", i), Text: strings.Repeat("refund policy of the shop. ", 40)}))(t)
	}
	a := must(s.Assemble(ctx, Query{Text: "refund policy", Budget: 500}))(t)
	require.NotEmpty(t, a.Manifest.Excluded)
	for _, e := range a.Manifest.Excluded {
		for _, p := range e.Nearest {
			require.Positive(t, p.Tokens, "page %d, %s", p.Num, e.Reason)
		}
	}
}

// What is superseded is told with the name of what answers for it, and a page that an artefact does not have is told apart
// from an artefact that is not there.
func TestWhyNamesWhatItMeans(t *testing.T) {
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	s := db.Scope("acme")
	for _, a := range []Artefact{{ID: "old", Text: "refunds take ten days"}, {ID: "new", Text: "nothing alike", Supersedes: []string{"old"}}} {
		must(s.Put(ctx, a))(t)
	}
	a := must(s.Assemble(ctx, Query{Text: "shipping", Budget: 500}))(t)
	told := func(ref Ref) string {
		return strings.Join(must(db.Why(ctx, a.Trace, ref))(t).Steps, "\n")
	}
	require.Contains(t, told(Ref{ID: "old"}), "superseded by acme:new#1@1")
	for _, ref := range []Ref{{ID: "new", Page: 9}, {Scope: "acme", ID: "new", Version: 7}} {
		require.Contains(t, told(ref), "acme:new has no such page or version; its newest is version 1, of 1 pages")
	}
	for _, ref := range []Ref{{ID: "none", Page: 1}, {Scope: "globex", ID: "new", Page: 9}} {
		require.Contains(t, told(ref), "had no such artefact in sight")
	}
}

// A dry question fetches nothing and stores nothing but its manifest, which says that it was one.
func TestDryQuestionWritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	writeFile(t, file, "refunds take 14 days")
	shortens := &countingSummarizer{}
	db := open(t, Options{FileRoots: []string{filepath.Dir(file)}, Summarizer: shortens, NoWatch: true})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "doc", Source: "file:" + file})
	put(t, s, Artefact{ID: "long", Text: words(1, 400) + " refunds"})
	writeFile(t, file, "refunds take 30 days, so the source has changed")
	before := must(db.Stats(ctx))(t).LSN
	a := assemble(t, s, Query{Text: "refunds", Budget: 300, Dry: true})
	require.Equal(t, "dry", a.Manifest.Action)
	require.NotEmpty(t, left(a, "doc"), "its source changed, and is not fetched")
	require.Equal(t, before, must(db.Stats(ctx))(t).LSN)
	require.Zero(t, shortens.calls)
	a = assemble(t, s, Query{Text: "refunds", Budget: 300})
	require.Contains(t, a.Text(), "30 days", "control")
	require.Empty(t, a.Manifest.Action)
	require.Positive(t, shortens.calls, "control")
}

type countingSummarizer struct{ calls int }

func (*countingSummarizer) Name() string { return "counting" }
func (c *countingSummarizer) Summarize(context.Context, string, int) (string, error) {
	c.calls++
	return "", errors.New("none")
}

// A question by words alone does not ask the embedder.
func TestWordsOnlyAsksNoEmbedder(t *testing.T) {
	db := open(t, Options{Embedder: failing{}, NoWatch: true})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "refunds take 14 days"})
	require.NotEmpty(t, assemble(t, s, Query{Text: "refunds"}).Degraded, "control")
	a := assemble(t, s, Query{Text: "refunds", WordsOnly: true})
	require.Empty(t, a.Degraded)
	require.Equal(t, []string{"a"}, ids(a))
}

type failing struct{}

func (failing) Model() string { return "failing" }
func (failing) Embed(context.Context, []string) ([][]float32, error) {
	return nil, errors.New("no model")
}

// A replay has the blocks and the messages that the assembly had.
func TestReplayHasBlocksAndMessages(t *testing.T) {
	db := open(t, Options{NoWatch: true})
	s := db.Scope("acme", WithActor("bot"))
	put(t, s, Artefact{ID: "rules", Kind: store.KindSystem, Text: "Be brief."})
	put(t, s, Artefact{ID: "pinned", Text: "The desk is open.", Pinned: true})
	put(t, s, Artefact{ID: "policy", Text: "Refunds take 14 days. " + words(3, 700)})
	must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: "how long do refunds take?"}))(t)
	a := assemble(t, s, Query{Text: "refunds", Budget: 900, Session: "chat"})
	r := must(s.Replay(ctx, a.Trace))(t)
	require.True(t, r.Same)
	require.Equal(t, a.Messages(), r.Messages)
	require.Len(t, r.Blocks, len(a.Blocks))
	for i, b := range a.Blocks {
		require.InDelta(t, min(b.Score, 1), r.Blocks[i].Score, 1.0/65535)
		b.Score = r.Blocks[i].Score
		require.Equal(t, b, r.Blocks[i])
	}
}

// Who looks at a held batch is named in the manifest.
func TestReviewNamesWhoLooks(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "x"}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{}), store.ErrHeld)
	for who, review := range map[string]*Review{"operator": db.Review(), "ann": db.Review(WithActor("ann"))} {
		must(review.Show(ctx, tx.ID()))(t)
		size := must(db.Manifests().Size(ctx))(t)
		leaf := must(db.Manifests().Leaf(ctx, size-1))(t)
		require.Equal(t, manifest.TypeRecall, leaf.Type)
		require.Equal(t, who, leaf.Actor)
	}
}
