package ctxpage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// unknownField is a field of an artefact that no release has.
var unknownField = []byte{0xff, 0x7f, 2, 'h', 'i'}

const fieldsScope = "acme/desk"

// still is a source that always says the same.
type still struct{}

func (still) Probe(context.Context, string, store.Validator) (store.Validator, error) {
	return store.Validator{Stamp: "1"}, nil
}

func (still) Fetch(context.Context, string) (store.Fetched, error) {
	return store.Fetched{Text: "from the source", Validator: store.Validator{Stamp: "1"}}, nil
}

func openFields(t *testing.T, path string) *DB {
	now := dbtest.NewClock(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	return openTest(t, path, Options{Sources: map[string]store.Source{"still": still{}}, Clock: func() time.Time { return now.Add(time.Second) }})
}

// fullArtefacts gives artefacts that have, between them, every exported field set by reflection. A field that is added to
// Artefact is in them by itself. What a put refuses together is in different ones.
func fullArtefacts() []Artefact {
	make := func(id string, leave ...string) Artefact {
		var a Artefact
		dbtest.Fill(&a, slices.Concat(leave, []string{"Artefact.TTL"})...)
		a.ID, a.Kind, a.Role, a.Unknown = id, store.KindFact, "user", unknownField
		a.ExpiresAt, a.CurrentAsOf = time.Date(2096, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		a.DerivedFrom = []Ref{{Scope: fieldsScope, ID: "parent", Page: 1, Version: 1}}
		if a.Source != "" {
			a.Source, a.Text = "still:"+id, "from the source"
		}
		if len(a.Parts) > 0 {
			a.Parts = append(a.Parts, store.Part{Type: "text", Text: "words of " + id})
		}
		if len(a.Supersedes) > 0 {
			a.Supersedes = []string{"old-" + id}
		}
		return a
	}
	return []Artefact{
		make("text", "Artefact.Parts", "Artefact.Source"), make("parts", "Artefact.Text", "Artefact.Source"),
		make("sourced", "Artefact.Parts", "Artefact.ToolCalls"),
	}
}

func putParents(t *testing.T, s *Scope, full []Artefact) {
	t.Helper()
	must(s.Put(ctx, Artefact{ID: "parent", Text: "what it was made from"}))(t)
	for _, a := range full {
		must(s.Put(ctx, Artefact{ID: "old-" + a.ID, Text: "before " + a.ID}))(t)
	}
}

// sameArtefact compares every exported field but those named.
func sameArtefact(want, got Artefact, but ...string) error {
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		name := w.Type().Field(i).Name
		if slices.Contains(but, name) {
			continue
		}
		x, y := w.Field(i).Interface(), g.Field(i).Interface()
		if a, ok := x.(time.Time); ok {
			x, y = a.UTC(), y.(time.Time).UTC()
		}
		if !reflect.DeepEqual(x, y) {
			return fmt.Errorf("%s: %s is %v, was put as %v", want.ID, name, y, x)
		}
	}
	return nil
}

// checkFull reads all artefacts back; a draft is worth what the gate makes of it.
func checkFull(t *testing.T, s *Scope, full []Artefact, but ...string) {
	t.Helper()
	for _, want := range full {
		v, err := s.Get(context.Background(), want.ID)
		require.NoError(t, err, want.ID)
		require.NoError(t, sameArtefact(want, v.Artefact, but...))
	}
}

// Every field of an artefact comes back from each place that keeps or copies one: memory, the file, a held batch, its
// approval, an export, a salvaged copy. The control is the comparison, which sees every field that is not as it was.
func TestEveryFieldIsKept(t *testing.T) {
	full := fullArtefacts()
	for i := range reflect.TypeFor[Artefact]().NumField() {
		name := reflect.TypeFor[Artefact]().Field(i).Name
		set := slices.ContainsFunc(full, func(a Artefact) bool { return !reflect.ValueOf(a).Field(i).IsZero() })
		require.True(t, set || name == "TTL", "%s is not set in any artefact of this test", name) // TTL becomes ExpiresAt
		for _, a := range full {                                                                  // control
			b := a
			reflect.ValueOf(&b).Elem().Field(i).SetZero()
			require.Equal(t, !reflect.ValueOf(a).Field(i).IsZero(), sameArtefact(a, b) != nil, name)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db := openFields(t, path)
	s := db.Scope(fieldsScope, WithActor("agent"))
	putParents(t, s, full)
	for _, a := range full {
		require.NoError(t, errOf(s.Put(ctx, a)), a.ID)
	}
	checkFull(t, s, full)
	require.NoError(t, db.Close())
	db = openFields(t, path)
	s = db.Scope(fieldsScope, WithActor("agent"))
	checkFull(t, s, full)

	var out bytes.Buffer
	must(s.Export(ctx, &out))(t)
	exported := map[string]Artefact{}
	for line := range bytes.Lines(out.Bytes()) {
		var a Artefact
		require.NoError(t, json.Unmarshal(line, &a))
		exported[a.ID] = a
	}
	for _, a := range full {
		require.NoError(t, sameArtefact(a, exported[a.ID]))
	}
	require.NoError(t, db.Close())

	copied := filepath.Join(dir, "copy.ctx")
	must(Salvage(ctx, path, copied, filestore.SalvageOptions{}))(t)
	db = openFields(t, copied)
	checkFull(t, db.Scope(fieldsScope), full)
	require.NoError(t, db.Close())
}

// The same of drafts: as they wait, over a reopen and a salvage, and once they are approved.
func TestEveryFieldOfADraftIsKept(t *testing.T) {
	full := fullArtefacts()
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db := openFields(t, path)
	s := db.Scope(fieldsScope, WithActor("agent"))
	putParents(t, s, full)
	tx := must(s.Begin(ctx))(t)
	for _, a := range full {
		require.NoError(t, tx.Put(ctx, a), a.ID)
	}
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "judge"}), store.ErrHeld)
	require.NoError(t, db.Close())
	copied := filepath.Join(dir, "copy.ctx")
	must(Salvage(ctx, path, copied, filestore.SalvageOptions{}))(t)
	for _, path := range []string{path, copied} {
		db = openFields(t, path)
		s = db.Scope(fieldsScope, WithActor("agent"))
		held := must(loop.Collect(db.Review().Batches(ctx, "", false)))(t)
		require.Len(t, held[0].Writes, len(full))
		for i, a := range full {
			require.NoError(t, sameArtefact(a, held[0].Writes[i].Artefact, "Text", "Parts")) // one joined text
		}
		must(db.Review().Approve(ctx, held[0].ID, Approval{By: "anna", Stale: true}))(t)
		checkFull(t, s, full)
		require.NoError(t, db.Close())
		db = openFields(t, path)
		checkFull(t, db.Scope(fieldsScope), full)
		require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
		require.NoError(t, db.Close())
	}
}

// A deletion keeps all but what the version replaced; a version that gc dropped keeps what FORMAT.md says, and fields that
// this release does not know. Both over a reopen.
func TestUnknownFieldsOutliveRewrites(t *testing.T) {
	full := fullArtefacts()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openFields(t, path)
	s := db.Scope(fieldsScope, WithActor("agent"))
	putParents(t, s, full)
	for _, a := range full {
		must(s.Put(ctx, a))(t)
		silent := a
		silent.Unknown = nil
		ref := must(s.Put(ctx, silent))(t)
		require.Equal(t, uint32(1), ref.Version, "a release that does not know the field repeats what is there")
		require.NoError(t, s.Delete(ctx, a.ID))
	}
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: 100}))(t)
	for range 2 {
		for _, a := range full {
			versions := must(loop.Collect(s.Versions(ctx, a.ID)))(t)
			require.Len(t, versions, 2)
			require.Equal(t, []bool{true, false, false, true}, []bool{versions[0].Deleted, versions[0].Gone, versions[1].Deleted, versions[1].Gone})
			require.NoError(t, sameArtefact(a, versions[0].Artefact, "Text", "Parts", "Supersedes"))
			dropped := Artefact{
				ID: a.ID, Kind: a.Kind, Provenance: a.Provenance, Priority: a.Priority, CurrentAsOf: a.CurrentAsOf, ExpiresAt: a.ExpiresAt,
				Seq: a.Seq, Name: a.Name, Source: a.Source, Supersedes: a.Supersedes, Unknown: a.Unknown,
			}
			require.NoError(t, sameArtefact(dropped, versions[1].Artefact))
		}
		require.NoError(t, db.Close())
		db = openFields(t, path)
		s = db.Scope(fieldsScope)
	}
	require.NoError(t, db.Close())
}

// A caller who writes into Unknown what no release wrote is refused.
func TestUnknownFieldsAreChecked(t *testing.T) {
	db := openFields(t, filepath.Join(t.TempDir(), "agent.ctx"))
	defer db.Close()
	for _, b := range [][]byte{{1}, []byte("words"), {7, 1, 'x'}, make([]byte, 64<<10+1)} {
		_, err := db.Scope("s").Put(ctx, Artefact{ID: "a", Text: "b", Unknown: b})
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "unknown")
	}
}

// A put that changes one field, whichever, is a new version; the same once more is not.
func TestEveryFieldMakesAVersion(t *testing.T) {
	full := fullArtefacts()
	db := openFields(t, filepath.Join(t.TempDir(), "agent.ctx"))
	defer db.Close()
	s := db.Scope(fieldsScope, WithActor("agent"))
	putParents(t, s, full)
	for _, id := range []string{"other", "other-old"} {
		must(s.Put(ctx, Artefact{ID: id, Text: id}))(t)
	}
	one := 1.
	changes := map[string]any{ // where adding one, or a letter, is not a valid value
		"Kind": store.KindScratch, "DerivedFrom": []Ref{{Scope: fieldsScope, ID: "other", Page: 1, Version: 1}}, "Supersedes": []string{"other-old"},
		"Unknown": []byte{0xff, 0x7f, 2, 'h', 'o'}, "TTL": time.Hour, "Role": "assistant", "Relevance": &one,
		"Meta": map[string]string{"other": "x"}, "Pinned": false, "ExpiresAt": time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC),
		"CurrentAsOf": time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), "Source": "still:other",
	}
	changed := map[string]bool{}
	for _, a := range full {
		for i := range reflect.TypeFor[Artefact]().NumField() {
			name := reflect.TypeFor[Artefact]().Field(i).Name
			if name == "ID" || reflect.ValueOf(a).Field(i).IsZero() && name != "TTL" || a.Source != "" && name == "Text" {
				continue // another artefact; not in this one; what the source says
			}
			b := a
			f := reflect.ValueOf(&b).Elem().Field(i)
			if x, ok := changes[name]; ok {
				f.Set(reflect.ValueOf(x))
			} else {
				bump(f)
			}
			if name == "TTL" {
				b.ExpiresAt = time.Time{}
			}
			before := must(s.Put(ctx, a))(t)
			require.Equal(t, before, must(s.Put(ctx, a))(t), "control")
			after, err := s.Put(ctx, b)
			require.NoError(t, err, "%s of %s", name, a.ID)
			require.Equal(t, before.Version+1, after.Version, "a put with another %s of %s is taken for the same", name, a.ID)
			changed[name] = true
		}
	}
	require.Len(t, changed, reflect.TypeFor[Artefact]().NumField()-1)
}

// bump changes a value that has no rules; of a list, the last item.
func bump(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Slice:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len()) // the other is shared
		reflect.Copy(list, v)
		bump(list.Index(v.Len() - 1))
		v.Set(list)
	case v.Kind() == reflect.Struct:
		bump(v.Field(v.NumField() - 1))
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	default:
		v.SetUint(v.Uint() + 1)
	}
}

// TestLineageOfLayers: layers of which each artefact is made from the whole layer before it. The ways through them are
// millions of millions; what they lead by is looked at once for a whole assembly.
func TestLineageOfLayers(t *testing.T) {
	const layers, wide = 6, 64
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	s := db.Scope("acme")
	layer := func(i, j int) string { return fmt.Sprintf("layer%d-%d", i, j) }
	for i := range layers {
		require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
			for j := range wide {
				a := Artefact{ID: layer(i, j), Text: fmt.Sprintf("zebra %d %d", i, j)}
				for k := 0; i > 0 && k < wide; k++ {
					a.DerivedFrom = append(a.DerivedFrom, Ref{ID: layer(i-1, k)})
				}
				if err := tx.Put(t.Context(), a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	bound := time.AfterFunc(5*time.Minute, func() { panic("an assembly goes all the ways through the layers") }) // there are 64⁵ of them
	defer bound.Stop()
	q := Query{Text: "zebra", Budget: 100_000, TopK: layers * wide}
	a := must(s.Assemble(t.Context(), q))(t)
	require.Len(t, a.Blocks, layers*wide)
	must(s.Put(t.Context(), Artefact{ID: layer(0, 0), Text: "another animal"}))(t)
	a = must(s.Assemble(t.Context(), q))(t)
	require.Len(t, a.Blocks, wide, "all that was made from what changed is left out")
	_, err := s.Get(t.Context(), layer(layers-1, 0))
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorContains(t, err, "which changed")
}

// TestLongLineage: what follows from thousands of generations is served, and its error stays short.
func TestLongLineage(t *testing.T) {
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	s := db.Scope("acme")
	const n = 4500
	for i := range n {
		a := Artefact{ID: fmt.Sprint("s", i), Text: fmt.Sprint("summary ", i)}
		if i > 0 {
			a.DerivedFrom = []Ref{{ID: fmt.Sprint("s", i-1)}}
		}
		must(s.Put(t.Context(), a))(t)
	}
	require.Equal(t, fmt.Sprint("summary ", n-1), must(s.Get(t.Context(), fmt.Sprint("s", n-1)))(t).Text)
	must(s.Put(t.Context(), Artefact{ID: "s0", Text: "another"}))(t)
	_, err := s.Get(t.Context(), fmt.Sprint("s", n-1))
	require.ErrorIs(t, err, store.ErrDirty)
	require.Less(t, len(err.Error()), 1000)
	require.ErrorContains(t, err, "derived from acme:s0")
}

func TestKindDefaults(t *testing.T) {
	for _, c := range []struct {
		a          Artefact
		kind       store.Kind
		provenance store.Provenance
		priority   store.Priority
	}{
		{Artefact{}, store.KindFact, store.Validated, store.PriorityHigh},
		{Artefact{Source: "file:/x"}, store.KindChunk, store.Chunk, store.PriorityMedium},
		{Artefact{Role: "user"}, store.KindMessage, store.Chunk, store.PriorityMedium},
		{Artefact{Role: "assistant"}, store.KindMessage, store.Scratch, store.PriorityMedium},
		{Artefact{Role: "tool", Source: "file:/x"}, store.KindMessage, store.Tool, store.PriorityMedium},
		{Artefact{Kind: store.KindSystem}, store.KindSystem, store.Chunk, store.PriorityCritical},
		{Artefact{Kind: store.KindTool}, store.KindTool, store.Tool, store.PriorityMedium},
		{Artefact{Kind: store.KindScratch}, store.KindScratch, store.Scratch, store.PriorityLow},
		{Artefact{Kind: store.KindSummary}, store.KindSummary, store.Validated, store.PriorityMedium},
		{Artefact{Kind: store.KindFact, Provenance: store.Tool, Priority: store.PriorityLow}, store.KindFact, store.Tool, store.PriorityLow},
	} {
		a := c.a
		a.KindDefaults()
		require.Equal(t, fmt.Sprint(c.kind, c.provenance, c.priority), fmt.Sprint(a.Kind, a.Provenance, a.Priority), "%+v", c.a)
	}
	for k := store.KindAuto; k <= store.KindSummary; k++ {
		text := must(k.MarshalText())(t)
		var back store.Kind
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, k, back)
	}
	require.ErrorIs(t, errOf(store.ParseKind("page")), store.ErrInvalid)
}

// One transaction may write so much and no more; what it replaces of its own is not counted twice.
func TestTransactionLimits(t *testing.T) {
	db := must(Open(t.TempDir()+"/agent.ctx", Options{}))(t)
	defer db.Close()
	tx := must(db.Scope("acme").Begin(t.Context()))(t)
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("x", 10)}))
	tx.bytes = store.MaxTxnBytes - 10
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("y", 20)}), "ten of it go")
	require.Equal(t, store.MaxTxnBytes, tx.bytes)
	require.ErrorIs(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}), store.ErrInvalid)
	require.NoError(t, tx.Delete(t.Context(), "x"))
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}))
	require.NoError(t, tx.Rollback())

	require.ErrorIs(t, db.Scope("acme").Update(t.Context(), func(tx *Txn) error {
		for i := range store.MaxTxnWrites {
			require.NoError(t, tx.Put(t.Context(), Artefact{ID: fmt.Sprint(i), Text: "t"}))
		}
		require.NoError(t, tx.Put(t.Context(), Artefact{ID: "0", Text: "again"}), "the same artefact is no more")
		return tx.Put(t.Context(), Artefact{ID: "one more", Text: "t"})
	}), store.ErrInvalid)
}

// TestFormatNames: FORMAT.md has all types of leaves. Its tags of fields, those of an outcome too, are package format's TestFormatHasTheTags.
func TestFormatNames(t *testing.T) {
	b := must(os.ReadFile("FORMAT.md"))(t)
	for typ := manifest.TypeGet; typ.Known(); typ++ {
		require.Regexp(t, "[ |]\\d+ "+typ.String()+"[, |]", string(b))
	}
}

// A transaction finds its own drafts by their words, and not what they replace; nobody else finds them. What it finds
// is part of what it saw.
func TestTxnSearch(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme", WithActor("agent"))
	for id, text := range map[string]string{"policy": "the refund limit is 200", "hours": "the refund desk opens at noon"} {
		must(s.Put(ctx, Artefact{ID: id, Text: text}))(t)
	}
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "policy", Text: "the refund limit is 400"}))
	hits := must(hitsOf(tx.Search(ctx, "refund limit", 10)))(t)
	texts := map[string]bool{}
	for _, h := range hits {
		texts[h.Text] = true
	}
	require.Equal(t, map[string]bool{"the refund limit is 400": true, "the refund desk opens at noon": true}, texts)
	hits = must(hitsOf(s.Search(ctx, "refund limit", 10)))(t)
	require.Equal(t, "the refund limit is 200", hits[0].Text)

	must(s.Put(ctx, Artefact{ID: "hours", Text: "the refund desk opens at nine"}))(t)
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), &held)
	require.Equal(t, store.ReasonStaleContext, held.Reason)
	require.ErrorIs(t, errOf(tx.Search(ctx, "refund", 1)), store.ErrTxnDone)
}
