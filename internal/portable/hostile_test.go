package portable_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

func small(t testing.TB, dir string, n int) *ctxpage.DB {
	t.Helper()
	db := open(t, filepath.Join(dir, "small.ctx"), nil, store.Info{})
	s := db.Scope("acme")
	require.NoError(t, s.Update(t.Context(), func(tx *ctxpage.Txn) error {
		for i := range n {
			if err := tx.Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprintf("a%04d", i), Text: fmt.Sprintf("page number %d", i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	return db
}

// A file that was edited, cut off, or made by somebody else is refused with line and field, and nothing of it is written.
func TestDamagedExport(t *testing.T) {
	dir := t.TempDir()
	from := small(t, dir, 5)
	file := export(t, from, portable.ExportOptions{})
	lines := bytes.SplitAfter(file, []byte("\n"))
	edit := func(old, new string) []byte { return bytes.Replace(file, []byte(old), []byte(new), 1) }
	join := func(part ...[]byte) []byte { return bytes.Join(part, nil) }
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"an edited text":      {edit("page number 3", "page number 4"), "line 7, field digest"},
		"an edited time":      {edit(`"put_at":"20`, `"put_at":"19`), "line 7, field digest"},
		"cut off":             {join(lines[:4]...), "line 5: "},
		"cut off in a line":   {file[:len(file)-500], "before the last line"},
		"a line less":         {join(append(append([][]byte{}, lines[:2]...), lines[3:]...)...), "field digest"},
		"a line after":        {join(file, lines[2]), "more lines after the last"},
		"another file":        {[]byte(`{"role":"user","content":"x"}` + "\n"), "line 1: header: got type"},
		"no file":             {nil, "expected an export"},
		"a later version":     {edit(`"version":1,"database"`, `"version":9,"database"`), "use a newer release"},
		"a field from later":  {edit(`"type":"header",`, `"type":"header","later":1,`), "field later"},
		"a line without type": {join(lines[0], []byte("[]\n")), "line 3"},
	} {
		for what, r := range map[string]io.Reader{"verified": bytes.NewReader(c.file), "streamed": struct{ io.Reader }{bytes.NewReader(c.file)}} {
			to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
			_, err := to.Admin().Import(t.Context(), r, portable.ImportOptions{By: "operator"})
			require.Error(t, err, "%s, %s", name, what)
			if what == "verified" {
				require.ErrorContains(t, err, c.says, name)
				st := must(to.Stats(t.Context()))(t)
				require.Zero(t, st.LSN, "%s: something was written", name)
			}
		}
	}
	text := edit("page number 3", "page number 4")
	to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
	_, err := to.Admin().Import(t.Context(), struct{ io.Reader }{bytes.NewReader(text)}, portable.ImportOptions{By: "operator"})
	var at *portable.LineError
	require.ErrorAs(t, err, &at)
	require.Equal(t, []any{5, "pages[0].text"}, []any{at.Line, at.Field})
	rep := bring(t, to, file)
	require.EqualValues(t, 5, rep.Versions.New+rep.Versions.Same, "control")
}

// An export that was cut off anywhere goes on to the same file.
func TestResumeExport(t *testing.T) {
	dir := t.TempDir()
	from := small(t, dir, 1500)
	must(from.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "a0001", Text: "again"}))(t)
	whole := export(t, from, portable.ExportOptions{})
	must(from.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "later", Text: "is not in it"}))(t)
	for _, cut := range []int{len(whole) / 2, len(whole) - 2, 3000, bytes.IndexByte(whole, '\n') + 1} {
		part := whole[:cut]
		at := must(portable.ReadPosition(bytes.NewReader(part)))(t)
		rest := bytes.NewBuffer(bytes.Clone(part[:at.Bytes]))
		must(from.Admin().Export(t.Context(), rest, portable.ExportOptions{Resume: at}))(t)
		require.Equal(t, string(whole), rest.String(), cut)
	}
	require.ErrorIs(t, errOf(portable.ReadPosition(bytes.NewReader(whole))), store.ErrInvalid, "it is complete")
}

// failing ends reading, as a killed process does.
type failing struct {
	r     io.Reader
	after int
	stop  context.CancelFunc
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p[:min(len(p), 4096)])
	if f.after -= n; f.after < 0 {
		f.stop()
	}
	return n, err
}

// An import that ends anywhere is finished by the next one.
func TestImportGoesOn(t *testing.T) {
	dir := t.TempDir()
	from := small(t, dir, 4000)
	file := export(t, from, portable.ExportOptions{})
	for _, after := range []int{0, len(file) / 3, len(file) / 2, len(file) - 100} {
		to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
		ctx, stop := context.WithCancel(t.Context())
		_, err := to.Admin().Import(ctx, &failing{bytes.NewReader(file), after, stop}, portable.ImportOptions{By: "operator"})
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		stop()
		rep := bring(t, to, file)
		require.EqualValues(t, 4000, rep.Versions.New+rep.Versions.Same)
		require.Equal(t, same(t, file), same(t, export(t, to, portable.ExportOptions{})))
		sound(t, to)
	}
}

// What the database has under the same name as something else stays, and is counted.
func TestImportBesideOthers(t *testing.T) {
	ctx := t.Context()
	from := small(t, t.TempDir(), 3)
	must(from.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a0001", Text: "second"}))(t)
	file := export(t, from, portable.ExportOptions{})
	to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
	must(to.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a0001", Text: "mine"}))(t)
	for _, n := range []uint64{2, 0} {
		rep := bring(t, to, file)
		require.Equal(t, portable.Tally{New: n, Same: 2 - n, Other: 2}, rep.Versions)
		require.Equal(t, []string{"acme:a0001"}, rep.Others)
	}
	v := must(to.Scope("acme").Get(ctx, "a0001"))(t)
	require.Equal(t, "mine", v.Text)

	later := must(from.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a0002", Text: "grew"}))(t)
	require.EqualValues(t, 2, later.Version)
	rep := bring(t, to, export(t, from, portable.ExportOptions{}))
	require.EqualValues(t, 1, rep.Versions.New, "a later export continues what is here")
	sound(t, to)
}

// What was erased here does not come back with an older export: no text, no title of a turn, no held batch.
func TestImportAfterErase(t *testing.T) {
	ctx := t.Context()
	c := &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, filepath.Join(t.TempDir(), "a.ctx"), c, store.Info{})
	s := db.Scope("acme/ann")
	for i := range 3 {
		must(s.Put(ctx, ctxpage.Artefact{ID: "secret", Text: fmt.Sprintf("okapi %d", i), Subject: "ann"}))(t)
	}
	must(s.Session("talk").Append(ctx, ctxpage.Turn{Role: "user", Text: "okapi turn. " + strings.Repeat("word ", 50)}))(t)
	must(s.Directives().Step(ctx, "use okapi units"))(t)
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "secret", Text: "okapi held", Subject: "ann"}))
	require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
	must(s.Put(ctx, ctxpage.Artefact{ID: "other", Text: "lemur"}))(t)
	file := export(t, db, portable.ExportOptions{})
	require.Contains(t, string(file), "okapi held")

	must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked"}))(t)
	rep := bring(t, db, file)
	require.Zero(t, rep.Versions.New+rep.State.New+rep.Held.New, "%+v", rep)
	require.NotZero(t, rep.Erased)
	require.NotContains(t, string(export(t, db, portable.ExportOptions{})), "okapi")
	found := must(s.Search(ctx, "okapi", 10))(t)
	require.Empty(t, found.Hits)

	to := open(t, filepath.Join(t.TempDir(), "b.ctx"), c, store.Info{})
	bring(t, to, file)
	require.Contains(t, string(export(t, to, portable.ExportOptions{})), "okapi", "control: another database takes it")
	must(s.Put(ctx, ctxpage.Artefact{ID: "secret", Text: "gnu"}))(t)
	fresh := open(t, filepath.Join(t.TempDir(), "c.ctx"), c, store.Info{})
	bring(t, fresh, export(t, db, portable.ExportOptions{}))
	v := must(fresh.Scope("acme/ann").Get(ctx, "secret"))(t)
	require.Equal(t, "gnu", v.Text)
	require.ErrorIs(t, errOf(fresh.Scope("acme/ann").Recall(ctx, ctxpage.Ref{Scope: "acme/ann", ID: "secret", Version: 1})), store.ErrErased)
	sound(t, fresh)
}

// A person gets what an erase would take, and nothing of others.
func TestExportOfAPerson(t *testing.T) {
	ctx := t.Context()
	db := open(t, filepath.Join(t.TempDir(), "a.ctx"), nil, store.Info{})
	for _, who := range []string{"ann", "bob"} {
		s := db.Scope("acme")
		must(s.Put(ctx, ctxpage.Artefact{ID: "likes-" + who, Text: who + " likes tea ``` # no *head*", Subject: who, Tags: []string{"of-" + who}}))(t)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "draft-" + who, Text: who + " may like coffee", Subject: who}))
		require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
		must(s.Assemble(ctx, ctxpage.Query{Text: "what does " + who + " drink", Budget: 2000, Filter: store.Filter{Subject: who}}))(t)
	}
	file := export(t, db, portable.ExportOptions{Subject: "ann"})
	head := must(portable.ReadHeader(bytes.NewReader(file)))(t)
	require.Empty(t, head.Secret)
	var md bytes.Buffer
	require.NoError(t, portable.Markdown(ctx, &md, bytes.NewReader(file)))
	for _, out := range []string{string(file), md.String()} {
		require.Contains(t, out, "ann likes tea")
		require.Contains(t, out, "ann may like coffee")
		require.Contains(t, out, "what does ann drink")
		require.NotContains(t, out, "bob")
	}
	require.Contains(t, md.String(), "````\nann likes tea ``` # no *head*\n````")
	require.ErrorIs(t, errOf(db.Admin().Export(ctx, io.Discard, portable.ExportOptions{Subject: "nobody"})), store.ErrNotFound)
	require.ErrorIs(t, errOf(db.Admin().Export(ctx, io.Discard, portable.ExportOptions{Subject: "ann", Scope: "elsewhere"})), store.ErrNotFound)
	full := &fullDisk{100}
	require.ErrorIs(t, errOf(db.Admin().Export(ctx, full, portable.ExportOptions{})), errFull)
}

var errFull = errors.New("full")

type fullDisk struct{ left int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func FuzzImport(f *testing.F) {
	db := open(f, filepath.Join(f.TempDir(), "a.ctx"), &clock{time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}, store.Info{})
	must(db.Scope("acme").Put(f.Context(), ctxpage.Artefact{ID: "a", Text: "one", Supersedes: nil, Tags: []string{"x"}}))(f)
	require.NoError(f, db.Scope("acme").Delete(f.Context(), "a"))
	must(db.Scope("acme").Session("s").Append(f.Context(), ctxpage.Turn{Role: "user", Text: "hello"}))(f)
	var b bytes.Buffer
	must(db.Admin().Export(f.Context(), &b, portable.ExportOptions{}))(f)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		to := must(storetest.NewMemory(storetest.Config{}))(t)
		opts := portable.ImportOptions{By: "operator", State: ctxpage.StateKinds(), Now: time.Now, Rand: rand.Reader}
		first, err := portable.Import(t.Context(), to, struct{ io.Reader }{bytes.NewReader(file)}, opts)
		again, err2 := portable.Import(t.Context(), to, struct{ io.Reader }{bytes.NewReader(file)}, opts)
		require.Equal(t, err == nil, err2 == nil, "%v, %v", err, err2)
		if err == nil {
			require.Zero(t, again.Versions.New+again.State.New+again.Held.New, "%+v %+v", first, again)
		}
		_ = portable.Markdown(t.Context(), io.Discard, bytes.NewReader(file))
	})
}

// heaped notes the most memory that was in use while a file was read.
type heaped struct {
	io.Reader
	read int64
	heap uint64
}

func (h *heaped) Read(p []byte) (n int, err error) {
	n, err = h.Reader.Read(p)
	if was := h.read; was>>24 != (was+int64(n))>>24 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.heap = max(h.heap, m.HeapInuse)
	}
	h.read += int64(n)
	return n, err
}

// Exports of 1 GiB that are wrong end with one error that names a line, in bounded memory, and nothing of them is written.
func TestGiantExports(t *testing.T) {
	if os.Getenv("CTXPAGE_LONG") == "" {
		t.Skip("CTXPAGE_LONG=1 reads lines of 128 MiB")
	}
	head := `{"type":"header","format":"ctxpage-export","version":1,"database":"01ARZ3NDEKTSV4RRFFQ69G5FAV","lsn":9,"at":"2026-03-01T09:00:00Z"}` + "\n"
	to := open(t, filepath.Join(t.TempDir(), "to.ctx"), nil, store.Info{})
	for name, g := range map[string]struct {
		head, again string
		line        int
	}{
		"no header":         {"", "x", 1},
		"one long line":     {head + `{"type":"version","scope":"`, "x", 2},
		"nesting":           {head + `{"type":"version","artefact":`, "[", 2},
		"entries":           {head + `{"type":"version","pages":[{}`, ",{}", 2},
		"many erasures":     {`{"type":"header","format":"ctxpage-export","version":1,"erasures":["a"`, `,"a"`, 1},
		"lines of nothing":  {head, "\n", 2},
		"lines of no type":  {head, "{}\n", 2},
		"lines of no value": {head, `{"type":"state"}` + "\n", 2},
	} {
		runtime.GC() // what the case before left is not this one's
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r := &heaped{Reader: dbtest.Giant(g.head, g.again)}
		_, err := to.Admin().Import(t.Context(), r, portable.ImportOptions{By: "operator"})
		var at *portable.LineError
		require.ErrorAs(t, err, &at, name)
		require.Equal(t, g.line, at.Line, "%s: %v", name, err)
		require.Less(t, len(err.Error()), 1000, name)
		grew := max(r.heap, m.HeapInuse) - m.HeapInuse
		require.Less(t, grew, uint64(400<<20), name)
		t.Logf("%s: %d MiB: %v", name, grew>>20, err)
	}
	st := must(to.Stats(t.Context()))(t)
	require.Zero(t, st.LSN, "something was written")
}
