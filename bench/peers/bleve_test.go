package peers

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/ctxpage/ctxpage"
	"github.com/stretchr/testify/require"
)

var (
	ctx   = context.Background()
	pages = flag.Int("pages", 20_000, "pages to index, of 130 and of 1,024 bytes")
)

const (
	hits      = 10
	questions = 300
	perCommit = 500 // pages a transaction, and a batch of bleve
)

// lexicon is a list of invented words, so that no stemmer and no stop list favours one of the two.
func lexicon(r *rand.Rand) []string {
	seen := map[string]bool{}
	var out []string
	for len(out) < 20_000 {
		var b strings.Builder
		for range 2 + r.Intn(3) {
			b.WriteByte("bcdfghklmnprtvz"[r.Intn(15)])
			b.WriteByte("aiou"[r.Intn(4)])
		}
		if w := b.String(); !seen[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	return out
}

// texts draws words with the frequencies of natural text (Zipf) until size bytes are there.
func texts(n, size int) (pages, asks []string) {
	r := rand.New(rand.NewSource(7))
	words := lexicon(r)
	zipf := rand.NewZipf(r, 1.1, 50, uint64(len(words)-1))
	draw := func(more func(b *strings.Builder, n int) bool) string {
		var b strings.Builder
		for n := 0; more(&b, n); n++ {
			b.WriteString(words[zipf.Uint64()] + " ")
		}
		return strings.TrimSpace(b.String())
	}
	for range n {
		pages = append(pages, draw(func(b *strings.Builder, _ int) bool { return b.Len() < size }))
	}
	for range questions {
		asks = append(asks, draw(func(_ *strings.Builder, n int) bool { return n < 6 }))
	}
	return pages, asks
}

// searcher is one of the two systems.
type searcher struct {
	name   string
	put    func(from, to int) error // one transaction
	search func(q string) (ids []string, err error)
	dir    string
}

func openCtxpage(tb testing.TB, text []string) *searcher {
	dir := tb.TempDir()
	db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	s := db.Scope("bench")
	return &searcher{name: "ctxpage", dir: dir,
		put: func(from, to int) error {
			return s.Update(ctx, func(tx *ctxpage.Txn) error {
				for i := from; i < to; i++ {
					if err := tx.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: text[i]}); err != nil {
						return err
					}
				}
				return nil
			})
		},
		search: func(q string) (ids []string, err error) {
			found, err := s.Search(ctx, q, hits)
			for _, h := range found.Hits {
				ids = append(ids, h.Ref.ID)
			}
			return ids, err
		},
	}
}

func openBleve(tb testing.TB, text []string) *searcher {
	dir := filepath.Join(tb.TempDir(), "bleve")
	m := bleve.NewIndexMapping()
	m.DefaultAnalyzer = "en"
	m.ScoringModel = "bm25"
	stored := mapping.NewTextFieldMapping()
	stored.IncludeTermVectors = false
	m.DefaultMapping.AddFieldMappingsAt("text", stored)
	x, err := bleve.New(dir, m)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, x.Close()) })
	return &searcher{name: "bleve", dir: dir,
		put: func(from, to int) error {
			b := x.NewBatch()
			for i := from; i < to; i++ {
				if err := b.Index(pageID(i), map[string]any{"text": text[i]}); err != nil {
					return err
				}
			}
			return x.Batch(b)
		},
		search: func(q string) (ids []string, err error) {
			match := bleve.NewMatchQuery(q)
			match.SetField("text")
			ask := bleve.NewSearchRequestOptions(match, hits, 0, false)
			ask.Fields = []string{"text"} // ours brings the text, too
			res, err := x.Search(ask)
			if err != nil {
				return nil, err
			}
			for _, h := range res.Hits {
				ids = append(ids, h.ID)
			}
			return ids, nil
		},
	}
}

func pageID(i int) string { return fmt.Sprint("page-", i) }

// BenchmarkBleve puts the same pages into both and asks both the same questions, by turns. Both make each transaction
// durable. Ours also keeps versions, digests and an audit leaf of each commit and each search; bleve merges in the
// background, ours at checkpoints.
func BenchmarkBleve(b *testing.B) {
	for _, size := range []int{130, 1024} {
		b.Run(fmt.Sprintf("pages=%d/size=%d", *pages, size), func(b *testing.B) {
			var last figures
			for range b.N {
				last = duel(b, *pages, size)
			}
			for name, v := range last {
				b.ReportMetric(v, name)
			}
		})
	}
}

// TestBothFind holds the comparison to what it claims on a small scale: both answer, and mostly with the same pages.
func TestBothFind(t *testing.T) {
	f := duel(t, 1500, 130)
	require.Greater(t, f["same-hits"], .7)
	for _, name := range []string{"ctxpage-search-p50-µs", "bleve-search-p50-µs", "ctxpage-put-µs/page", "bleve-put-µs/page"} {
		require.Positive(t, f[name], name)
	}
}

type figures map[string]float64

// duel gives the figures of one comparison, by the name of their metric.
func duel(b testing.TB, n, size int) figures {
	out := figures{}
	text, asks := texts(n, size)
	both := []*searcher{openCtxpage(b, text), openBleve(b, text)}
	spent, cpu := make([]time.Duration, 2), make([]time.Duration, 2)
	for from := 0; from < len(text); from += perCommit {
		for i, s := range both {
			start, used := time.Now(), cpuTime(b)
			require.NoError(b, s.put(from, min(from+perCommit, len(text))))
			spent[i] += time.Since(start)
			cpu[i] += cpuTime(b) - used
		}
	}
	for i, s := range both {
		out[s.name+"-put-µs/page"] = micros(spent[i]) / float64(len(text))
		out[s.name+"-file-B/page"] = float64(onDisk(b, s.dir)) / float64(len(text))
	}

	for _, q := range asks[:20] { // both are warm, and both find
		for _, s := range both {
			ids, err := s.search(q)
			require.NoError(b, err)
			require.Len(b, ids, hits, "%s: %q", s.name, q)
		}
	}
	took := make([][]time.Duration, 2)
	same := 0
	for _, q := range asks {
		var found [2][]string
		for i, s := range both {
			start := time.Now()
			ids, err := s.search(q)
			took[i] = append(took[i], time.Since(start))
			require.NoError(b, err)
			found[i] = ids
		}
		for _, id := range found[0] {
			if slices.Contains(found[1], id) {
				same++
			}
		}
	}
	for i, s := range both {
		slices.Sort(took[i])
		out[s.name+"-search-p50-µs"] = micros(took[i][len(took[i])/2])
		out[s.name+"-search-p99-µs"] = micros(took[i][len(took[i])*99/100])
	}
	require.Greater(b, same, questions, "hardly a page that both find: one of the two does not search")
	out["same-hits"] = float64(same) / float64(questions*hits)
	out["put-cpu-ratio"] = float64(cpu[0]) / float64(cpu[1]) // of the process meanwhile: work in the background may fall to the other
	return out
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func cpuTime(tb testing.TB) time.Duration {
	var r syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func onDisk(tb testing.TB, dir string) (n int64) {
	require.NoError(tb, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if os.IsNotExist(err) { // merged away meanwhile
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
