// Package bench measures the parts of ctxpage beside plain baselines.
package bench

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/lexical"
)

// lexRows is the store of the index: one bbolt bucket, as in the database.
type lexRows struct {
	b       *bbolt.Bucket
	cursor  *bbolt.Cursor // that is used again
	written *int
}

func (r lexRows) Get(k []byte) []byte { return r.b.Get(k) }

func (r lexRows) Next(k []byte) (key, value []byte) { return r.cursor.Seek(k) }

func (r lexRows) Delete(k []byte) error { return r.b.Delete(k) }
func (r lexRows) Put(k, v []byte) error {
	*r.written += len(k) + len(v)
	return r.b.Put(k, v)
}
func (r lexRows) Scan(prefix, from []byte, fn func(k, v []byte) bool) {
	if from == nil {
		from = prefix
	}
	c := r.b.Cursor()
	for k, v := c.Seek(from); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if !fn(k, v) {
			return
		}
	}
}

var lexBucket = []byte("seg")

// lexStore is an index over a file, with everything that a query needs.
type lexStore struct {
	db     *bbolt.DB
	index  *lexical.Index
	corpus lexCorpus

	speakers int // > 0: pages are turns of so many
	written  int // bytes of keys and values given to bbolt
}

// lexCorpus puts every perGroup consecutive pages in a group; all are live.
type lexCorpus struct{ pages, perGroup uint64 }

func (c lexCorpus) Resolve(num uint64) (uint64, bool) { return num, num <= c.pages }
func (c lexCorpus) Touch(uint64)                      {}
func (c lexCorpus) Alone(uint64) bool                 { return c.perGroup == 0 }
func (c lexCorpus) Group(num uint64) (uint64, int) {
	if c.perGroup == 0 {
		return 0, 0
	}
	return (num-1)/c.perGroup + 1, int((num - 1) % c.perGroup)
}
func (c lexCorpus) At(group uint64, pos int) (uint64, bool) {
	num := (group-1)*c.perGroup + uint64(pos) + 1
	return num, pos >= 0 && uint64(pos) < c.perGroup && num <= c.pages
}

func (c lexCorpus) Shown(num uint64) bool { return num <= c.pages }

// lexicalWords draws words with the frequencies of natural text (Zipf).
type lexicalWords struct {
	words []lexical.TermCount
	sum   []float64
}

func newVocabulary(n int) *lexicalWords {
	v := &lexicalWords{}
	total := 0.0
	for i := range n {
		total += 1 / math.Pow(float64(i)+3, 1.07)
		v.words = append(v.words, lexical.TermCount{Term: fmt.Sprintf("w%05d", i), N: 1})
		v.sum = append(v.sum, total)
	}
	return v
}

func (v *lexicalWords) draw(r *rand.Rand) int {
	x := r.Float64() * v.sum[len(v.sum)-1]
	lo, hi := 0, len(v.sum)-1
	for lo < hi {
		if m := (lo + hi) / 2; v.sum[m] < x {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (v *lexicalWords) analysis(r *rand.Rand, words int) lexical.Analysis {
	n := map[int]uint32{}
	for range words {
		n[v.draw(r)]++
	}
	a := lexical.Analysis{Length: words}
	for _, i := range slices.Sorted(maps.Keys(n)) {
		a.Terms = append(a.Terms, lexical.TermCount{Term: v.words[i].Term, N: n[i]})
	}
	return a
}

func (v *lexicalWords) query(r *rand.Rand, words, skip int) []string {
	terms := make([]string, 0, words)
	for len(terms) < words {
		if i := v.draw(r); i >= skip {
			terms = append(terms, v.words[i].Term)
		}
	}
	return terms
}

func lexSpeaker(i int) string { return fmt.Sprintf("speaker%02d", i) }

func newLexStore(b testing.TB, pages, words, perGroup, speakers int) *lexStore {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "lex"), 0o600, &bbolt.Options{NoSync: true})
	require.NoError(b, err)
	b.Cleanup(func() { db.Close() })
	s := &lexStore{db: db, corpus: lexCorpus{uint64(pages), uint64(perGroup)}, speakers: speakers}
	s.update(b, func(w lexRows) {
		s.index, err = lexical.Open(w)
		require.NoError(b, err)
	})
	s.fill(b, pages, words)
	return s
}

func (s *lexStore) update(b testing.TB, fn func(lexRows)) {
	require.NoError(b, s.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(lexBucket)
		require.NoError(b, err)
		bucket.FillPercent = .95
		fn(lexRows{bucket, bucket.Cursor(), &s.written})
		return nil
	}))
}

func (s *lexStore) fill(b testing.TB, pages, words int) {
	v, r := newVocabulary(50_000), rand.New(rand.NewPCG(1, 2))
	every := uint64(max(1024, pages/64)) // a checkpoint under load takes what has gathered
	for num := uint64(1); num <= uint64(pages); num++ {
		group, _ := s.corpus.Group(num)
		d := lexical.Doc{Num: num, Scope: 1, Group: group, Analysis: v.analysis(r, words)}
		if s.speakers > 0 {
			d.Turn = &lexical.Turn{Speaker: lexSpeaker(r.IntN(s.speakers)), Month: lexical.Month(1200 + num*24/uint64(pages))}
			if r.IntN(2) == 0 {
				d.Analysis.Traits = lexical.FirstPerson
			}
		}
		s.index.Add(d)
		if num%every == 0 {
			s.checkpoint(b)
		}
	}
}

func (s *lexStore) checkpoint(b testing.TB) {
	var swap lexical.Swap
	for more := true; more; {
		s.update(b, func(w lexRows) {
			var err error
			swap, more, err = s.index.Step(w)
			require.NoError(b, err)
		})
		s.index.Apply(swap)
	}
	s.update(b, func(w lexRows) {
		var err error
		swap, err = s.index.Checkpoint(w, false)
		require.NoError(b, err)
	})
	s.index.Apply(swap)
}

func (s *lexStore) search(b testing.TB, terms []string, weights lexical.Weights) (hits []lexical.Hit) {
	require.NoError(b, s.db.View(func(tx *bbolt.Tx) error {
		var err error
		bucket := tx.Bucket(lexBucket)
		hits, err = s.index.Search(lexRows{bucket, bucket.Cursor(), nil}, s.corpus, lexical.Query{
			Scopes: []uint32{1}, Terms: terms, K: 50, Weights: weights,
		})
		return err
	}))
	return hits
}

// BenchmarkLexicalSearch asks for the best 50 of short pages (12 words), without
// groups and in groups of 20, and of turns of 20 speakers in groups of 20. Queries
// are five words: drawn like the words of the pages, so mostly common ones, or
// without the 100 most common; of turns also with a speaker's name, and as if they
// were no turns: the difference is what their scores cost.
func BenchmarkLexicalSearch(b *testing.B) {
	for _, pages := range []int{1_000, 10_000, 100_000, 1_000_000} {
		for _, c := range []struct{ perGroup, speakers int }{{0, 0}, {20, 0}, {20, 20}} {
			b.Run(fmt.Sprintf("pages=%d/group=%d/speakers=%d", pages, c.perGroup, c.speakers), func(b *testing.B) {
				s := newLexStore(b, pages, 12, c.perGroup, c.speakers)
				s.bench(b, "natural", 0, "")
				s.bench(b, "content", 100, "")
				if c.speakers > 0 {
					s.bench(b, "named", 100, lexSpeaker(7))
					s.bench(b, "content-asPages", 100, "")
				}
			})
		}
	}
}

func (s *lexStore) bench(b *testing.B, name string, skip int, speaker string) {
	v, r := newVocabulary(50_000), rand.New(rand.NewPCG(3, 4))
	queries := make([][]string, 64)
	for i := range queries {
		if queries[i] = v.query(r, 5, skip); speaker != "" {
			queries[i] = append(queries[i], speaker)
		}
	}
	b.Run("query="+name, func(b *testing.B) {
		weights := lexical.DefaultWeights()
		weights.Turns = !strings.HasSuffix(name, "asPages")
		require.NotEmpty(b, s.search(b, queries[0], weights))
		b.ReportAllocs()
		before := cpu(b)
		for i := 0; b.Loop(); i++ {
			s.search(b, queries[i%len(queries)], weights)
		}
		b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkLexicalAnalyze analyses texts of 1 KiB, with a warm cache of stems
// and with a cold one.
func BenchmarkLexicalAnalyze(b *testing.B) {
	text := lexText(1024)
	warm := lexical.NewAnalyzer()
	require.Greater(b, warm.Analyze(text).Length, 50)
	for name, analyzer := range map[string]func() *lexical.Analyzer{
		"warm": func() *lexical.Analyzer { return warm },
		"cold": lexical.NewAnalyzer,
	} {
		b.Run("cache="+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				analyzer().Analyze("8 May 2023 Caroline", text)
			}
		})
	}
}

// cpu is the processor time of the process, which others on the machine do not lengthen as they do that of the clock.
func cpu(b testing.TB) time.Duration {
	return dbtest.CPUTime()
}

func lexText(size int) string {
	sentence := strings.Fields("The customer reported that invoices were charged twice after migrating her workspace " +
		"and wondered whether refunds exceeding the previous limit require approval from accounting managers")
	r := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(sentence[r.IntN(len(sentence))])
		b.WriteByte(" .\n"[r.IntN(3)])
		b.WriteByte(' ')
	}
	return b.String()[:size]
}

// BenchmarkLexicalIndex adds short pages and checkpoints every 1,024 and every
// 16,384; written-B/page is what bbolt was given, keys and merges included.
func BenchmarkLexicalIndex(b *testing.B) {
	for _, words := range []int{12, 90} {
		for _, every := range []int{1024, 16384} {
			b.Run(fmt.Sprintf("words=%d/checkpoint=%d", words, every), func(b *testing.B) {
				s := newLexStore(b, 0, 0, 20, 0)
				s.corpus.pages = 1 << 40
				v, r := newVocabulary(50_000), rand.New(rand.NewPCG(1, 2))
				analyses := make([]lexical.Analysis, 4096)
				for i := range analyses {
					analyses[i] = v.analysis(r, words)
				}
				num := uint64(0)
				for b.Loop() {
					num++
					group, _ := s.corpus.Group(num)
					s.index.Add(lexical.Doc{Num: num, Scope: 1, Group: group, Analysis: analyses[num%4096]})
					if num%uint64(every) == 0 {
						s.checkpoint(b)
					}
				}
				b.ReportMetric(float64(s.written)/float64(num), "written-B/page")
			})
		}
	}
}
