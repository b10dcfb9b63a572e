package storetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

var operators = []store.Operator{store.OpEqual, store.OpNotEqual, store.OpGreater, store.OpGreaterOrEqual, store.OpLess, store.OpLessOrEqual, store.OpExists}

// The model: whatever was put, changed, superseded and deleted, and whatever a filter asks, a store on files proposes,
// counts and lists the same as the reference, which looks at every head; and what it lists is what a naive filter leaves
// of a full listing. The store keeps sets of what passed and follows commits with them, so filters are asked again after
// each commit.
func TestFilterModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := newFilterModel(t, seed)
			for range 18 {
				m.write()
				for range 3 {
					m.ask()
				}
			}
			m.crash()
			for range 20 {
				m.ask()
			}
			require.Greater(t, m.matched, 100, "few filters matched anything: the test shows little")
			require.Greater(t, m.refused, 100)
			require.Less(t, 5*m.differ, m.asked)
		})
	}
}

type filterModel struct {
	t                *testing.T
	ctx              context.Context
	rng              *rand.Rand
	now              time.Time
	files            storetest.Database
	is, want         store.Store
	ids              *rand.ChaCha8
	filters          []store.Filter
	matched, refused int
	asked, differ    int // questions; those that the two answer differently without a filter
}

func newFilterModel(t *testing.T, seed uint64) *filterModel {
	m := &filterModel{t: t, ctx: context.Background(), rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), ids: rand.NewChaCha8([32]byte{byte(seed)})}
	cfg := storetest.Config{Now: func() time.Time { return m.now }}
	m.files = onFilesAt(t, cfg)
	m.is, m.want = m.files.Open(t), newInMemory(t, cfg).Open(t)
	for range 12 {
		m.filters = append(m.filters, m.filter())
	}
	return m
}

func (m *filterModel) crash() {
	m.files.Crash(m.t, m.is)
	m.is = m.files.Open(m.t)
}

func pick[T any](m *filterModel, of ...T) T { return of[m.rng.IntN(len(of))] }

func (m *filterModel) some(of ...string) (out []string) {
	for _, s := range of {
		if m.rng.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func (m *filterModel) id() string { return pick(m, "a/", "a/b/", "c") + fmt.Sprint(m.rng.IntN(40)) }

func (m *filterModel) put() store.Put {
	a := store.Artefact{
		ID: m.id(), Kind: pick(m, store.KindFact, store.KindFact, store.KindChunk, store.KindMessage, store.KindSystem), Tags: m.some("red", "hot", "blue"),
		Subject: pick(m, "", "Ada", "Bob"), Seq: m.rng.Int64N(50), Pinned: m.rng.IntN(15) == 0,
		CurrentAsOf: m.now.Add(-time.Duration(m.rng.IntN(100)) * time.Hour), Provenance: pick(m, store.Provenance(0), store.Scratch, store.HumanVerified),
	}
	a.Group = []string{"", "talk", "walk"}[int(a.ID[len(a.ID)-1])%3] // who moved between groups is told of the past by the group of now
	for _, k := range m.some("rank", "team", "x") {
		if a.Meta == nil {
			a.Meta = map[string]string{}
		}
		a.Meta[k] = pick(m, "1", "2.5", "10", "red", "")
	}
	if a.Kind == store.KindMessage {
		a.Role, a.Name = pick(m, "user", "assistant"), pick(m, "Ada", "Bob")
	}
	if m.rng.IntN(8) == 0 {
		if by := m.id(); by != a.ID {
			a.Supersedes = []string{by}
		}
	}
	if m.rng.IntN(10) == 0 {
		a.ExpiresAt = m.now.Add(time.Duration(m.rng.IntN(20)) * time.Minute)
	}
	if a.Kind == store.KindSystem { // the pipeline lets nobody write one of less trust
		a.Provenance = 0
	}
	a.KindDefaults()
	p := store.Put{Artefact: a, AsOfGiven: true, Counter: "words"}
	for range 1 + m.rng.IntN(2) {
		text := pick(m, "zebra", "okapi", "gnu") + " " + pick(m, "zebra", "runs", "eats")
		n := store.NewPage{Text: text, Tokens: 2, Hash: store.ContentHash(text)}
		n.Digest = store.SaltedDigest(n.Salt[:], text)
		p.Pages = append(p.Pages, n)
	}
	return p
}

// write commits the same batch to both.
func (m *filterModel) write() {
	m.now = m.now.Add(time.Minute)
	id := must(store.NewID(m.now, m.ids))(m.t)
	b := store.Batch{ID: id, Scope: pick(m, "acme/a", "acme"), Actor: "w", Now: m.now, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}
	for range 1 + m.rng.IntN(8) {
		p := m.put()
		if !slices.ContainsFunc(b.Puts, func(o store.Put) bool { return o.Artefact.ID == p.Artefact.ID }) {
			b.Puts = append(b.Puts, p)
		}
	}
	if m.rng.IntN(3) == 0 {
		page := must(m.want.Scan(m.ctx, store.ScanQuery{Scopes: store.Scopes{b.Scope}, Limit: 1000}))(m.t)
		if n := len(page.Heads); n > 0 {
			if id := page.Heads[m.rng.IntN(n)].ID; !slices.ContainsFunc(b.Puts, func(o store.Put) bool { return o.Artefact.ID == id }) {
				b.Deletes = []string{id}
			}
		}
	}
	_, err1 := m.is.Commit(m.ctx, b)
	_, err2 := m.want.Commit(m.ctx, b)
	require.Equal(m.t, err2 == nil, err1 == nil, "%v; %v", err1, err2)
}

func (m *filterModel) filter() (f store.Filter) {
	f.IDPrefix = pick(m, "", "", "a/", "a/b/1")
	if m.rng.IntN(2) == 0 {
		f.TagsAny = m.some("red", "hot", "none")
	} else {
		f.TagsAll = m.some("red", "hot")
	}
	f.Subject = pick(m, "", "", "", "Ada")
	if m.rng.IntN(2) == 0 {
		op := operators[m.rng.IntN(len(operators))]
		v := pick(m, "1", "2.50", "9", "red", "")
		if op == store.OpExists {
			v = pick(m, "true", "false")
		}
		f.Meta = store.Conditions{{Key: pick(m, "rank", "team"), Op: op, Value: v}}
	}
	if m.rng.IntN(4) == 0 {
		f.Kinds = []store.Kind{store.KindFact, pick(m, store.KindMessage, store.KindChunk)}
	}
	return f
}

// times bounds a filter anew each time it is asked.
func (m *filterModel) times(f store.Filter) *store.Filter {
	if m.rng.IntN(3) == 0 {
		f.Since = m.now.Add(-time.Duration(m.rng.IntN(120)) * time.Hour)
	}
	if m.rng.IntN(4) == 0 {
		f.WrittenSince = m.now.Add(-time.Duration(m.rng.IntN(30)) * time.Minute)
		f.WrittenUntil = f.WrittenSince.Add(time.Duration(1+m.rng.IntN(20)) * time.Minute)
	}
	require.NoError(m.t, f.Check())
	return &f
}

func (m *filterModel) ask() {
	m.asked++
	w := lexical.DefaultWeights()
	f := m.times(pick(m, m.filters...))
	q := store.CandidateQuery{
		Scopes: store.Scopes{"acme/a", "acme"}, Terms: pick(m, []string{"zebra"}, []string{"okapi", "run"}, nil), Floor: pick(m, store.Provenance(0), store.Tool), Now: m.now,
		K: 1000, Recent: m.rng.IntN(5), Session: pick(m, "", "", "talk"), Weights: &w, Filter: f, Strict: m.rng.IntN(2) == 0,
	}
	if m.rng.IntN(4) == 0 {
		q.AsOf, q.Session, q.Recent, q.Weights = 1+m.rng.Uint64N(m.want.Mark().LSN), "", 0, nil
	}
	if !m.agree(q) {
		m.differ++
		return
	}
	got := must(m.is.Candidates(m.ctx, q))(m.t)
	want := must(m.want.Candidates(m.ctx, q))(m.t)
	require.Equal(m.t, numbers(want, q.AsOf != 0), numbers(got, q.AsOf != 0), "%+v filter %s", q, f.JSON())
	require.Equal(m.t, filtered(want), filtered(got), "%+v filter %s", q, f.JSON())
	q.K, q.Recent = pick(m, 1, 3), 0
	few := must(m.is.Candidates(m.ctx, q))(m.t)
	best := scores(want)
	require.Equal(m.t, best[:min(q.K, len(best))], scores(few), "%+v filter %s", q, f.JSON())
	m.matched += len(got.Hits)
	m.refused += filtered(got)
	m.list(f)
}

// agree says that both answer the question alike without its filter. The reference looks for what answers for a page that
// was superseded more than once by another way, and says otherwise now and then; then a filter shows nothing.
func (m *filterModel) agree(q store.CandidateQuery) bool {
	q.Filter = nil
	got := must(m.is.Candidates(m.ctx, q))(m.t)
	want := must(m.want.Candidates(m.ctx, q))(m.t)
	return slices.Equal(numbers(want, q.AsOf != 0), numbers(got, q.AsOf != 0))
}

// numbers are the candidates, or those that words found: what stood in the past whatever it says is another test's.
func numbers(c store.Candidates, found bool) (nums []string) {
	for i := range c.Hits {
		if found && c.Hits[i].Lexical.Score == 0 {
			continue
		}
		nums = append(nums, fmt.Sprintf("%d %.9f %v", c.Hits[i].Key.Num, c.Hits[i].Lexical.Score, c.Hits[i].Recent))
	}
	return nums
}

// scores are those of what words found, the best first.
func scores(c store.Candidates) (out []string) {
	for i := range c.Hits {
		if s := c.Hits[i].Lexical.Score; s > 0 {
			out = append(out, fmt.Sprintf("%012.7f", s))
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

func filtered(c store.Candidates) (n int) {
	for _, e := range c.Excluded {
		if e.Reason == triage.Filtered {
			n = e.Count
		}
	}
	return n
}

func (m *filterModel) list(f *store.Filter) {
	q := store.ScanQuery{Scopes: store.Scopes{"acme/a"}, Deleted: m.rng.IntN(2) == 0, Newest: m.rng.IntN(2) == 0, Limit: 1000}
	all := must(m.want.Scan(m.ctx, q))(m.t)
	want := []string{}
	for _, h := range all.Heads {
		if f.Match(h) {
			want = append(want, h.ID)
		}
	}
	q.Filter, q.Limit = f, 1+m.rng.IntN(5)
	got := []string{}
	for {
		page := must(m.is.Scan(m.ctx, q))(m.t)
		for _, h := range page.Heads {
			got = append(got, h.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	require.Equal(m.t, want, got, "%+v", q)
}

// The model: whatever was put, superseded, expired and deleted, under whatever filter, a store on files finds by vectors
// what the reference finds, which compares all. The vectors are such that quantising them changes no cosine much: pairs
// that differ less are equal.
func TestNearModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := newFilterModel(t, 100+seed)
			found := 0
			for round := range 24 {
				m.write()
				m.embed()
				for range 4 {
					found += m.askNear()
				}
				if round%8 == 7 {
					must(m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
					m.crash() // the vectors of the file are read anew
				}
			}
			require.Greater(t, found, 100)
		})
	}
}

// embed gives some pages vectors of few directions, and both stores the same.
func (m *filterModel) embed() {
	page := must(m.want.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: store.Scopes{"acme/a", "acme"}, Model: "m", Limit: 1000}))(m.t)
	got := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: store.Scopes{"acme/a", "acme"}, Model: "m", Limit: 1000}))(m.t)
	if m.simple(page, got) {
		require.Equal(m.t, page.Keys, got.Keys)
	}
	var nums []uint64
	var vecs [][]float32
	for _, k := range page.Keys {
		if m.rng.IntN(3) > 0 {
			nums = append(nums, k.Num)
			vecs = append(vecs, m.direction())
		}
	}
	require.NoError(m.t, m.is.PutVectors(m.ctx, "m", nums, vecs))
	require.NoError(m.t, m.want.PutVectors(m.ctx, "m", nums, vecs))
}

// simple says that the reference and the store agree on what answers: see agree.
func (m *filterModel) simple(want, got store.ScanPage) bool { return want.Count == got.Count }

// direction is one of few: their cosines with each other are far apart or equal.
func (m *filterModel) direction() []float32 {
	v := make([]float32, 4)
	v[m.rng.IntN(4)] = float32(1 - 2*m.rng.IntN(2))
	v[m.rng.IntN(4)] = float32(1 - 2*m.rng.IntN(2))
	return v
}

func (m *filterModel) askNear() int {
	w := lexical.DefaultWeights()
	f := m.times(pick(m, m.filters...))
	if m.rng.IntN(2) == 0 {
		f = nil
	}
	q := store.CandidateQuery{
		Scopes: store.Scopes{"acme/a", "acme"}, Terms: pick(m, []string{"zebra"}, nil), Floor: pick(m, store.Provenance(0), store.Tool), Now: m.now,
		K: 3, Session: pick(m, "", "", "talk"), Weights: &w, Filter: f, Strict: m.rng.IntN(2) == 0, Kinds: pick(m, nil, nil, []store.Kind{store.KindFact}),
	}
	if m.rng.IntN(4) == 0 {
		q.AsOf, q.Session, q.Weights = 1+m.rng.Uint64N(m.want.Mark().LSN), "", nil
	}
	if !m.agree(q) {
		return 0
	}
	q.Near = &store.Near{Model: "m", Vector: m.direction(), K: pick(m, 1, 5, 1000)}
	got := must(m.is.Candidates(m.ctx, q))(m.t)
	want := must(m.want.Candidates(m.ctx, q))(m.t)
	require.Equal(m.t, near(want), near(got), "%+v %+v", q, q.Near)
	return len(near(got))
}

func near(c store.Candidates) (out []string) {
	for i := range c.Hits {
		if h := &c.Hits[i]; h.Near {
			out = append(out, fmt.Sprintf("%d %.2f %.2f", h.Key.Num, *h.Cosine+1, h.Beside))
		}
	}
	return out
}

// TestNearConcurrently: questions by vector while a model is loaded, vectors are put, pages are written and checkpoints run.
// At the end everything that was put is found.
func TestNearConcurrently(t *testing.T) {
	t.Parallel()
	m := newFilterModel(t, 7)
	for range 8 {
		m.write()
	}
	chain := store.Scopes{"acme/a", "acme"}
	page := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Limit: 1000}))(t)
	require.NotEmpty(t, page.Keys)
	must(m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i, k := range page.Keys {
				switch {
				case i%4 == g:
					if err := m.is.PutVectors(m.ctx, "m", []uint64{k.Num}, [][]float32{{1, float32(i)}}); err != nil {
						t.Error(err)
					}
				case g == 0 && i%16 == 5:
					if _, err := m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil); err != nil {
						t.Error(err)
					}
				default:
					model := fmt.Sprint("m", i%6) // more than are kept
					if _, err := m.is.Candidates(m.ctx, store.CandidateQuery{Scopes: chain, Now: m.now, Near: &store.Near{Model: model, Vector: []float32{1, 0}, K: 5}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	left := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Limit: 1000}))(t)
	require.Zero(t, left.Count)
}
