package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// argumentRounds is how often checkArguments makes each call.
const argumentRounds = 200

// checkArguments makes every call with what it cannot do without missing, and then with arguments drawn at random.
func checkArguments(b *bench) {
	b.put("rule", "refunds up to 400")
	ctx := b.ctx
	for name, call := range map[string]func() error{
		"Scan without a scope":    func() error { _, err := b.st.Scan(ctx, store.ScanQuery{}); return err },
		"Scan of nothing known":   func() error { _, err := b.st.Scan(ctx, store.ScanQuery{What: 99, Scopes: chain}); return err },
		"PutVectors of less":      func() error { return b.st.PutVectors(ctx, "m", []uint64{1, 2}, [][]float32{{1}}) },
		"gc of nothing":           func() error { _, err := b.st.Maintain(ctx, store.Job{Kind: store.JobGC}, nil); return err },
		"a plan of gc of nothing": func() error { _, err := b.st.Maintain(ctx, store.Job{Kind: store.JobGCPlan}, nil); return err },
		"an erase of nothing":     func() error { _, err := b.st.Maintain(ctx, store.Job{Kind: store.JobErase}, nil); return err },
		"a job of no kind":        func() error { _, err := b.st.Maintain(ctx, store.Job{Kind: 99}, nil); return err },
		"Append of nothing":       func() error { return b.st.Append(ctx, []*manifest.Record{nil}, store.Written) },
		"Commit without pages": func() error {
			_, err := b.st.Commit(ctx, b.batch(store.Put{Artefact: store.Artefact{ID: "empty"}}))
			return err
		},
		"Commit without an id": func() error { _, err := b.st.Commit(ctx, b.batch(b.fact("", "text"))); return err },
	} {
		require.ErrorIs(b, call(), store.ErrInvalid, name)
	}
	g := &arguments{rand: rand.New(rand.NewPCG(1, 3)), now: b.time()}
	for range argumentRounds {
		b.anyCall(g)
	}
	require.Equal(b, "refunds up to 400", b.text("rule"))
	if rep, err := b.st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil); err == nil {
		require.Empty(b, rep.Problems)
	}
	b.put("rule", "refunds up to 500")
	require.Equal(b, "refunds up to 500", b.text("rule"))
}

// anyCall makes each call once, with random arguments. Only that it returns counts.
func (b *bench) anyCall(g *arguments) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	var (
		scan  = draw[store.ScanQuery](g)
		cand  = draw[store.CandidateQuery](g)
		keys  = draw[[]store.PageKey](g)
		ref   = draw[store.Ref](g)
		some  = draw[store.Scopes](g)
		leafs = draw[[]*manifest.Record](g)
		batch = draw[store.Batch](g)
		nums  = draw[[]uint64](g)
		vecs  = draw[[][]float32](g)
		id    = draw[ulid.ULID](g)
	)
	if batch.Scope == "" || g.rand.IntN(2) == 0 { // deep enough for the rest of it to be looked at
		batch.ID, batch.Scope, batch.Now = b.id(), scope, b.time()
	}
	say := func(name string, args ...any) {
		if r := recover(); r != nil {
			b.Fatalf("%s panics: %v\n%+v", name, r, args)
		}
	}
	for _, call := range []func(){
		func() { defer say("Resolve", some, ref); _, _ = b.st.Resolve(ctx, some, ref) },
		func() { defer say("Load", some, keys); _, _ = b.st.Load(ctx, some, keys, store.Want(g.rand.IntN(3))) },
		func() { defer say("Candidates", cand); _, _ = b.st.Candidates(ctx, cand) },
		func() { defer say("Scan", scan); _, _ = b.st.Scan(ctx, scan) },
		func() { defer say("Commit", batch); _, _ = b.st.Commit(ctx, batch) },
		func() { defer say("Held", id); _, _ = b.st.Held(ctx, id) },
		func() { defer say("Vectors", some, nums); _, _ = b.st.Vectors(ctx, some, "m", nums) },
		func() { defer say("PutVectors", nums, vecs); _ = b.st.PutVectors(ctx, "m", nums, vecs) },
		func() { defer say("State", ref.ID); _, _ = b.st.State(ctx, ref.ID) },
		func() { defer say("Outcome", id); _, _ = b.st.Outcome(ctx, id) },
		func() { defer say("Append", leafs); _ = b.st.Append(ctx, leafs, store.Durability(g.rand.IntN(3))) },
		func() { defer say("Changes", nums); _, _ = b.st.Changes(ctx, uint64(len(nums)), 0) },
	} {
		call()
	}
}

// checkForged writes what only a store may write.
func checkForged(b *bench) {
	b.put("rule", "refunds up to 400")
	size, err := b.st.Audit().Size(b.ctx)
	require.NoError(b, err)
	appended, committed := 0, 0
	for t := manifest.Type(1); t.Known(); t++ {
		leaf := &manifest.Record{Type: t, Trace: b.id().String(), By: "kim", Note: "forged"}
		if err := b.st.Append(b.ctx, []*manifest.Record{leaf}, store.Written); err == nil {
			appended++
			require.True(b, t.Reads() || slices.Contains([]manifest.Type{manifest.TypeRollback, manifest.TypeHandoff, manifest.TypePass}, t), t.String())
		} else {
			require.ErrorIs(b, err, store.ErrInvalid, t.String())
		}
		batch := b.batch(b.fact("note", fmt.Sprintf("of type %d", t)))
		batch.Leaf = manifest.Record{Type: t, By: "kim"}
		if _, err := b.st.Commit(b.ctx, batch); err == nil {
			committed++
			require.Contains(b, []manifest.Type{manifest.TypeCommit, manifest.TypeRefetch, manifest.TypeDirective, manifest.TypePass, manifest.TypePromote}, t)
		} else {
			require.ErrorIs(b, err, store.ErrInvalid, t.String())
		}
	}
	require.Positive(b, appended*committed, "control")
	batch := b.state(format.EraseRows+b.id().String(), "{}")
	_, err = b.st.Commit(b.ctx, batch)
	require.ErrorIs(b, err, store.ErrInvalid)
	now, err := b.st.Audit().Size(b.ctx)
	require.NoError(b, err)
	require.Equal(b, size+uint64(appended+committed), now, "what was refused left nothing")
}

// arguments draws values of any type of plain data: small, large, missing, and not fitting each other.
type arguments struct {
	rand *rand.Rand
	now  time.Time
}

func draw[T any](g *arguments) (v T) {
	g.fill(reflect.ValueOf(&v).Elem(), 5)
	return v
}

var words = []string{"", scope, "acme", "rules", "note", "refunds", "a/b/../c", "\x00", "\xff\xfe", "ctxpage:directives", "erase/x", "block-chat-1"}

// fill sets a value; depth bounds how deep values lie in each other.
func (g *arguments) fill(v reflect.Value, depth int) {
	if g.rand.IntN(5) == 0 || depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(g.rand.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{1, 2, 3, -1, 100, 1 << 40, -1 << 63, 1<<63 - 1}[g.rand.IntN(8)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint([]uint64{1, 2, 3, 4, 100, 1 << 40, 1<<64 - 1}[g.rand.IntN(7)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0.5, -1, 1e300, 1}[g.rand.IntN(4)])
	case reflect.String:
		v.SetString(words[g.rand.IntN(len(words))])
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), g.rand.IntN(4), 4)
		for i := range s.Len() {
			g.fill(s.Index(i), depth-1)
		}
		v.Set(s)
	case reflect.Array:
		for i := range v.Len() {
			g.fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		for range g.rand.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			g.fill(key, depth-1)
			g.fill(value, depth-1)
			m.SetMapIndex(key, value)
		}
		v.Set(m)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		g.fill(v.Elem(), depth-1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(g.now.Add(time.Duration(g.rand.IntN(3)-1) * time.Hour)))
			return
		}
		for i := range v.NumField() {
			g.fill(v.Field(i), depth-1)
		}
	}
}
