package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Database is the place of one database, which outlives the handles that are opened on it.
type Database interface {
	// Open opens the database, which is new at first. One handle is open at a time.
	Open(t testing.TB) store.Store
	// Crash ends a handle as a killed process ends: without Close. What it acknowledged must be there after the next Open.
	Crash(t testing.TB, st store.Store)
}

// Factory makes a place for a database. What it makes is cleaned up through t.
type Factory func(t testing.TB, cfg Config) Database

// clause is one test: a sentence of the contract, and what checks it.
type clause struct {
	name, says string
	check      func(b *bench)
}

// Run checks a store against the contract, a database for each clause. A clause that fails prints its sentence.
func Run(t *testing.T, f Factory) {
	for _, c := range contract() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, f)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the contract: %s", c.says)
				}
			})
			c.check(b)
			require.NoError(t, b.st.Close())
		})
	}
}

func contract() (all []clause) {
	for _, part := range [][]clause{writing, reviewing, reading, keeping, edges} {
		all = append(all, part...)
	}
	return all
}

// bench is the world of a clause: a database of its own, a clock that moves when it is told to, and names of few words.
type bench struct {
	testing.TB
	ctx  context.Context
	db   Database
	st   store.Store
	mu   sync.Mutex
	now  time.Time
	rand *rand.ChaCha8
}

const scope = "acme/support"

var chain = store.Scopes{scope, "acme"}

// Rows under these prefixes belong to a pipeline: the first names pages, the second serves only the past.
const (
	namesPages = "names/"
	pastOnly   = "past/"
	toldRows   = "told/"

	journalRows = "journal/" // NAME/NUMBER: a time in µs as text. The head row head/NAME has the number of a row it needs.
)

func journalEntry(key string) (string, uint64) {
	name, number, _ := strings.Cut(strings.TrimPrefix(key, journalRows), "/")
	n, _ := strconv.ParseUint(number, 10, 64)
	return name, n
}

func journalAt(row []byte) (int64, error) { return strconv.ParseInt(string(row), 10, 64) }

func journalHead(name string) string { return "head/" + name }

func journalNeeds(head []byte) ([]uint64, error) {
	n, err := strconv.ParseUint(string(head), 10, 64)
	return []uint64{n}, err
}

func newBench(t testing.TB, f Factory) *bench {
	b := &bench{TB: t, ctx: context.Background(), now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), rand: rand.NewChaCha8([32]byte{1})}
	b.db = f(t, Config{Now: b.time, State: []store.StateKind{
		{Prefix: namesPages, Names: func(v []byte) ([]uint64, error) { return []uint64{uint64(v[0])}, nil }},
		{Prefix: journalRows, Journal: &store.StateJournal{Keep: 2, Entry: journalEntry, At: journalAt, Head: journalHead, Needs: journalNeeds}},
		{Prefix: toldRows, Told: true},
		{Prefix: pastOnly, Past: func(string) (int64, store.Ref) { return 1, store.Ref{} }},
	}})
	b.st = b.db.Open(t)
	return b
}

func (b *bench) time() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// crash ends the store and opens it again.
func (b *bench) crash() {
	b.Helper()
	b.db.Crash(b, b.st)
	b.st = b.db.Open(b)
}

// id makes a batch id of now.
func (b *bench) id() ulid.ULID {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, err := store.NewID(b.now, b.rand)
	require.NoError(b, err)
	return id
}

func (b *bench) batch(puts ...store.Put) store.Batch {
	return store.Batch{ID: b.id(), Scope: scope, Actor: "writer", Now: b.time(), Puts: puts, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}
}

// fact is a put of a fact, a page for each text.
func (b *bench) fact(id string, texts ...string) store.Put {
	p := store.Put{Artefact: store.Artefact{ID: id, Kind: store.KindFact, CurrentAsOf: b.time()}, Counter: "words"}
	p.Artefact.KindDefaults()
	for i, text := range texts {
		n := store.NewPage{Text: text, Tokens: len(text)/4 + 1, Hash: store.ContentHash(text)}
		n.Salt[0], n.Salt[1] = byte(i), byte(len(text))
		n.Digest = store.SaltedDigest(n.Salt[:], text)
		p.Pages = append(p.Pages, n)
	}
	return p
}

func (b *bench) commit(batch store.Batch) store.Outcome {
	b.Helper()
	out, err := b.st.Commit(b.ctx, batch)
	require.NoError(b, err)
	return out
}

// put commits one fact of one page.
func (b *bench) put(id, text string) store.Outcome {
	b.Helper()
	return b.commit(b.batch(b.fact(id, text)))
}

func (b *bench) find(id string) store.Located {
	b.Helper()
	l, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: id})
	require.NoError(b, err, id)
	return l
}

func (b *bench) absent(id string) {
	b.Helper()
	_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: id})
	require.ErrorIs(b, err, store.ErrNotFound, id)
}

// load returns the first page of a located version.
func (b *bench) load(l store.Located) store.Loaded {
	b.Helper()
	got, err := b.st.Load(b.ctx, chain, l.Pages[:1], store.WantText)
	require.NoError(b, err)
	require.Len(b, got, 1)
	return got[0]
}

func (b *bench) text(id string) string {
	b.Helper()
	got := b.load(b.find(id))
	require.NoError(b, got.Err)
	return got.Text
}

// seen returns the pages of an artefact as a model saw them.
func (b *bench) seen(id string) store.Seen {
	l := b.find(id)
	return store.Seen{Scope: l.Scope, ID: id, Page: 1, Num: l.Pages[0].Num}
}

// ask makes a query of words that no stemmer changes.
func (b *bench) ask(words ...string) store.CandidateQuery {
	return store.CandidateQuery{Scopes: chain, Terms: words, Now: b.time(), K: 50}
}

// hits are the ids of the candidates that the words of a question found.
func (b *bench) hits(q store.CandidateQuery) []string {
	b.Helper()
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	ids := []string{}
	for _, c := range out.Hits {
		if c.Lexical.Num != 0 {
			ids = append(ids, c.Ref.ID)
		}
	}
	return ids
}

// scan reads a listing to its end, page by page.
func (b *bench) scan(q store.ScanQuery) (rows []string) {
	b.Helper()
	rows = []string{}
	for range 1000 {
		page, err := b.st.Scan(b.ctx, q)
		require.NoError(b, err)
		n := len(rows)
		for _, h := range page.Heads {
			rows = append(rows, fmt.Sprintf("%s@%d", h.ID, h.Version))
		}
		for i := range page.Held {
			rows = append(rows, page.Held[i].Batch.ID.String())
		}
		for _, s := range page.Names {
			rows = append(rows, fmt.Sprintf("%s %d", s.Name, s.Artefacts))
		}
		for _, s := range page.State {
			rows = append(rows, s.Key+"="+string(s.Value))
		}
		for _, k := range page.Keys {
			rows = append(rows, fmt.Sprintf("page %d@%d", k.Num, k.Version))
		}
		if q.Limit > 0 && page.Keys == nil {
			require.LessOrEqual(b, len(rows)-n, q.Limit)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return rows
		}
	}
	b.Fatalf("a scan of kind %d does not end", q.What)
	return nil
}

// leaves is the size of an audit.
func (b *bench) leaves(log store.Audit) uint64 {
	b.Helper()
	n, err := log.Size(b.ctx)
	require.NoError(b, err)
	return n
}
