package portable_test

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// people fills a database with what two persons said, what was made from it, and what is nobody's.
func people(t testing.TB, db *ctxpage.DB) {
	t.Helper()
	ctx := t.Context()
	s := db.Scope("acme/desk", ctxpage.WithActor("agent"))
	put := func(a ctxpage.Artefact) ctxpage.Ref {
		return must(s.Put(ctx, a))(t)
	}
	first := put(ctxpage.Artefact{ID: "ann-1", Text: "okapi one", Subject: "ann"})
	put(ctxpage.Artefact{ID: "ann-1", Text: "okapi two", Subject: "ann"})
	put(ctxpage.Artefact{ID: "was-anns", Text: "okapi three", Subject: "ann"})
	put(ctxpage.Artefact{ID: "was-anns", Text: "gnu of nobody"})
	put(ctxpage.Artefact{ID: "told", Text: "derived okapi words", DerivedFrom: []ctxpage.Ref{first}})
	put(ctxpage.Artefact{ID: "copy", Source: "page:" + ctxpage.Ref{Scope: first.Scope, ID: first.ID}.String()})
	put(ctxpage.Artefact{ID: "bob-1", Text: "lemur of bob", Subject: "bob", Supersedes: []string{"was-anns"}})
	put(ctxpage.Artefact{ID: "rule", Text: "refunds up to 400"})
	for _, id := range []string{"talk", "other"} {
		for i, text := range []string{"okapi turn of a conversation", "an answer", "more"} {
			must(s.Session(id).Append(ctx, ctxpage.Turn{Role: []string{"user", "assistant"}[i%2], Text: text + strings.Repeat(" word", 40)}))(t)
		}
	}
	must(db.Scope("acme/desk/sub").Put(ctx, ctxpage.Artefact{ID: "below", Text: "lemur below"}))(t)
	must(db.Scope("acme/desk/sub").Directives().Step(ctx, "use metric units"))(t)
	for _, a := range []ctxpage.Artefact{{ID: "ann-1", Text: "okapi held", Subject: "ann"}, {ID: "bob-1", Text: "lemur held"}} {
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, a))
		must(tx.Assemble(ctx, ctxpage.Query{Text: a.Text, Budget: 2000}))(t) // stores the draft that it shows
		require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
	}
}

// alive are the lines of an export but those that only say that something was erased.
func alive(t testing.TB, file []byte) []string {
	t.Helper()
	return slices.DeleteFunc(same(t, file), func(line string) bool { return strings.Contains(line, `"erased_by"`) })
}

func receiptOf(t testing.TB, db *ctxpage.DB, req ops.Request) *ops.Receipt {
	t.Helper()
	req.By, req.Reason = "desk", "request 4711"
	rep := must(db.Admin().Erase(t.Context(), req))(t)
	head := must(db.Head(t.Context()))(t)
	return must(ops.NewReceipt(t.Context(), db.Manifests(), *rep.Done, head))(t)
}

// What an erase took stays away when an export from before it is imported: into the database itself, and with the receipt into
// another one. What comes in is what the erase left.
func TestImportFromBeforeErase(t *testing.T) {
	for name, req := range map[string]ops.Request{
		"subject":          {Subject: "ann"},
		"subject, cascade": {Subject: "ann", Cascade: ops.Erase},
		"subject, names":   {Subject: "ann", Names: true},
		"session":          {Session: store.Ref{Scope: "acme/desk", ID: "talk"}},
		"session, names":   {Session: store.Ref{Scope: "acme/desk", ID: "talk"}, Names: true},
		"scope":            {Scope: "acme/desk/sub"},
		"scope, names":     {Scope: "acme/desk/sub", Names: true},
		"references":       {Refs: []store.Ref{{Scope: "acme/desk", ID: "ann-1"}, {Scope: "acme/desk", ID: "rule"}}, Cascade: ops.Rederive},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
			dir := t.TempDir()
			db := open(t, filepath.Join(dir, "a.ctx"), c, store.Info{})
			people(t, db)
			file := export(t, db, portable.ExportOptions{})
			head := must(portable.ReadHeader(bytes.NewReader(file)))(t)
			r := receiptOf(t, db, req)
			after := export(t, db, portable.ExportOptions{})
			left := alive(t, after)
			require.NotEqual(t, alive(t, file), left, "control: it took something")

			rep := bring(t, db, file)
			require.Zero(t, rep.Versions.New+rep.State.New+rep.Held.New, "into the database itself: %+v", rep)
			require.NotZero(t, rep.Erased)
			require.Equal(t, []string{r.Done.Trace}, rep.Erasures)
			require.Equal(t, left, alive(t, export(t, db, portable.ExportOptions{})))

			to := open(t, filepath.Join(dir, "b.ctx"), c, head.Identity())
			rep = must(to.Admin().Import(t.Context(), bytes.NewReader(file), portable.ImportOptions{By: "operator", Receipts: []*ops.Receipt{r}}))(t)
			require.NotZero(t, rep.Erased)
			require.Equal(t, left, alive(t, export(t, to, portable.ExportOptions{})), "into another database, with the receipt")
			sound(t, to)
			rep = bring(t, to, file)
			require.Zero(t, rep.Versions.New+rep.State.New+rep.Held.New, "again, without the receipt: %+v", rep)
			require.NotZero(t, rep.Erased)
			require.Equal(t, []string{r.Done.Trace}, rep.Erasures, "it is remembered")
			require.Equal(t, left, alive(t, export(t, to, portable.ExportOptions{})))
			require.NoError(t, to.Close())
			to = open(t, filepath.Join(dir, "b.ctx"), c, store.Info{})
			must(to.Scope("acme/desk").Put(t.Context(), ctxpage.Artefact{ID: "ann-9", Text: "gnu came back", Subject: "ann"}))(t)
			rep = bring(t, to, export(t, to, portable.ExportOptions{}))
			require.Empty(t, rep.Erasures, "what it exports was made after the erase: who came back is not left out")

			bare := open(t, filepath.Join(dir, "c.ctx"), c, head.Identity())
			bring(t, bare, file)
			require.Equal(t, alive(t, file), alive(t, export(t, bare, portable.ExportOptions{})), "control: without the receipt")

			fresh := open(t, filepath.Join(dir, "d.ctx"), c, head.Identity())
			rep = must(fresh.Admin().Import(t.Context(), bytes.NewReader(after), portable.ImportOptions{By: "operator", Receipts: []*ops.Receipt{r}}))(t)
			require.Empty(t, rep.Erasures, "the export was made after it")
		})
	}
}

// Whoever came back after an erase is in a later export, and a receipt of that erase does not take it again.
func TestImportAfterPersonCameBack(t *testing.T) {
	c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, filepath.Join(t.TempDir(), "a.ctx"), c, store.Info{})
	people(t, db)
	r := receiptOf(t, db, ops.Request{Subject: "ann", Names: true})
	must(db.Scope("acme/desk").Put(t.Context(), ctxpage.Artefact{ID: "ann-2", Text: "gnu again", Subject: "ann"}))(t)
	file := export(t, db, portable.ExportOptions{})
	to := open(t, filepath.Join(t.TempDir(), "b.ctx"), c, store.Info{})
	rep := must(to.Admin().Import(t.Context(), bytes.NewReader(file), portable.ImportOptions{By: "operator", Receipts: []*ops.Receipt{r}}))(t)
	require.Empty(t, rep.Erasures)
	must(to.Scope("acme/desk").Get(t.Context(), "ann-2"))(t)
}

// A receipt that cannot be used is refused before anything is written.
func TestImportReceiptRefused(t *testing.T) {
	c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, filepath.Join(t.TempDir(), "a.ctx"), c, store.Info{})
	people(t, db)
	file := export(t, db, portable.ExportOptions{})
	bare := export(t, db, portable.ExportOptions{NoSecret: true})
	r := receiptOf(t, db, ops.Request{Subject: "ann"})
	edited := *r
	edited.Done.Reason = "another"
	elsewhere := open(t, filepath.Join(t.TempDir(), "b.ctx"), c, store.Info{})
	people(t, elsewhere)
	foreign := receiptOf(t, elsewhere, ops.Request{Subject: "ann"})
	for name, x := range map[string]struct {
		file io.Reader
		r    *ops.Receipt
		is   error
		says string
	}{
		"edited":                {bytes.NewReader(file), &edited, ops.ErrReceipt, "its reason"},
		"of another database":   {bytes.NewReader(file), foreign, ops.ErrReceipt, "receipt 1 is of database"},
		"an export no secret":   {bytes.NewReader(bare), r, store.ErrInvalid, "without the secret"},
		"a stream":              {struct{ io.Reader }{bytes.NewReader(file)}, r, store.ErrInvalid, "which can be read twice"},
		"control: the same one": {bytes.NewReader(file), r, nil, ""},
	} {
		to := open(t, filepath.Join(t.TempDir(), "to.ctx"), c, store.Info{})
		_, err := to.Admin().Import(t.Context(), x.file, portable.ImportOptions{By: "operator", Receipts: []*ops.Receipt{x.r}})
		require.ErrorIs(t, err, x.is, name)
		if x.is != nil {
			require.ErrorContains(t, err, x.says, name)
			st := must(to.Stats(t.Context()))(t)
			require.Zero(t, st.LSN, name)
		}
	}
	_, err := db.Admin().Import(t.Context(), struct{ io.Reader }{bytes.NewReader(file)}, portable.ImportOptions{By: "operator"})
	require.ErrorIs(t, err, store.ErrInvalid, "a stream into the database that knows of an erase")
}

// A packet that a session received has titles and notes of the session that handed it on. It stays away with that session.
func TestImportPacketOfErasedSession(t *testing.T) {
	c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, filepath.Join(t.TempDir(), "a.ctx"), c, store.Info{})
	ctx, s := t.Context(), db.Scope("acme/desk")
	for _, id := range []string{"talk", "other"} {
		must(s.Session(id).Append(ctx, ctxpage.Turn{Role: "user", Text: "okapi of " + id}))(t)
		require.NoError(t, s.Session(id).Record(ctx, session.Notes{Text: "gnu of " + id}))
		p := must(s.Session(id).Handoff(ctx, "shift"))(t)
		must(s.Session("later").Receive(ctx, p))(t)
	}
	file := export(t, db, portable.ExportOptions{})
	r := receiptOf(t, db, ops.Request{Session: store.Ref{Scope: "acme/desk", ID: "talk"}})
	to := open(t, filepath.Join(t.TempDir(), "b.ctx"), c, store.Info{})
	must(to.Admin().Import(ctx, bytes.NewReader(file), portable.ImportOptions{By: "operator", Receipts: []*ops.Receipt{r}}))(t)
	left := string(export(t, to, portable.ExportOptions{}))
	require.NotContains(t, left, "gnu of talk")
	require.Contains(t, left, "gnu of other", "control")
}

// What an export listed may be erased before it is read. That is a conflict, which a repeated export does not have, and not the
// error for a person of whom nothing is held.
func TestExportBesideErase(t *testing.T) {
	for _, names := range []bool{false, true} {
		ctx := t.Context()
		db := open(t, filepath.Join(t.TempDir(), "agent.ctx"), nil, store.Info{})
		s := db.Scope("acme")
		for _, id := range []string{"kept", "gone"} {
			must(s.Put(ctx, ctxpage.Artefact{ID: id, Text: "okapi " + id}))(t)
		}
		require.NoError(t, s.Delete(ctx, "gone"))
		once := false
		listed := func(what string, done, total uint64) {
			if what != "scopes" || done != total || once {
				return
			}
			once = true
			must(db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "gone"}}, By: "operator", Reason: "asked", Names: names}))(t)
		}
		_, err := db.Admin().Export(ctx, io.Discard, portable.ExportOptions{Progress: listed})
		require.True(t, once)
		require.ErrorIs(t, err, store.ErrConflict)
		require.NotErrorIs(t, err, store.ErrNotFound)
		rep := must(db.Admin().Export(ctx, io.Discard, portable.ExportOptions{Progress: listed}))(t)
		require.EqualValues(t, 1, rep.Pages)
	}
}
