package bench

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// What a put of 1 KiB with 64 writers writes and hashes, bytes.
const (
	recordBytes = 1600 // in the log: text, head, leaf, outcome
	headBytes   = 180
	leafBytes   = 320
	groupPuts   = 48      // share a sync of the log
	filedPuts   = 8 << 10 // share a checkpoint
)

// BenchmarkPutFloor runs each thing that a put cannot do without by itself, with nothing around it: the CPU of a put is
// at least their sum. The pages are those of BenchmarkPut.
func BenchmarkPutFloor(b *testing.B) {
	pages := texts(4096, longPage)
	for _, part := range []struct {
		name string
		run  func(b *testing.B, pages []string)
	}{
		{"digests", floorDigests}, {"tokens", floorTokens}, {"terms", floorTerms}, {"terms-and-index", floorIndex},
		{"log", floorLog}, {"rows", floorRows}, {"wakes", floorWakes},
	} {
		b.Run("part="+part.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime()
			part.run(b, pages)
			b.ReportMetric(micros(cpuTime()-before)/float64(b.N), "cpu-µs/op")
		})
	}
}

// floorDigests: the hash of the text, its salted digest, the digest of the batch, that of the head row, the leaf's.
func floorDigests(b *testing.B, pages []string) {
	head, leaf, salt := string(make([]byte, headBytes)), make([]byte, leafBytes), make([]byte, store.DigestSaltSize)
	for i := range b.N {
		text := pages[i%len(pages)]
		store.ContentHash(text)
		store.SaltedDigest(salt, text)
		store.SaltedDigest(salt, head)
		sha256.Sum256([]byte(text))
		sha256.Sum256(leaf)
	}
}

func floorTokens(b *testing.B, pages []string) {
	count := token.Default().Count
	for i := range b.N {
		count(pages[i%len(pages)])
	}
}

func floorTerms(b *testing.B, pages []string) {
	an := lexical.NewAnalyzer()
	for i := range b.N {
		an.Analyze("26 November 2026 ", pages[i%len(pages)])
	}
}

// floorIndex analyses pages, enters them into an index and writes it into bbolt.
func floorIndex(b *testing.B, pages []string) {
	s := newLexStore(b, 0, 0, 20, 0)
	s.corpus.pages = 1 << 40
	an := lexical.NewAnalyzer()
	for i := range b.N {
		s.index.Add(lexical.Doc{Num: uint64(i + 1), Scope: 1, Analysis: an.Analyze("26 November 2026 ", pages[i%len(pages)])})
		if (i+1)%filedPuts == 0 {
			s.checkpoint(b)
		}
	}
}

// floorLog appends what a group has over zeros that are there already, and syncs it.
func floorLog(b *testing.B, _ []string) {
	f, err := os.Create(fresh(b))
	must(b, err)
	defer f.Close()
	group := make([]byte, groupPuts*recordBytes)
	_, err = f.Write(make([]byte, 64*len(group)))
	must(b, err)
	must(b, f.Sync())
	for i := 0; i < b.N; i += groupPuts {
		_, err := f.WriteAt(group, int64(i/groupPuts%64)*int64(len(group)))
		must(b, err)
		must(b, datasync(f))
	}
}

// floorRows puts the text and the head of each page into bbolt, in the order of their keys.
func floorRows(b *testing.B, pages []string) {
	db, err := bbolt.Open(fresh(b), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, PageSize: 8 << 10})
	must(b, err)
	defer db.Close()
	head := make([]byte, headBytes)
	for at := 0; at < b.N; at += filedPuts {
		must(b, db.Update(func(tx *bbolt.Tx) error {
			heads, err := tx.CreateBucketIfNotExists([]byte("heads"))
			must(b, err)
			texts, err := tx.CreateBucketIfNotExists([]byte("texts"))
			must(b, err)
			heads.FillPercent, texts.FillPercent = 1, 1
			for i := at; i < min(at+filedPuts, b.N); i++ {
				key := binary.BigEndian.AppendUint64(nil, uint64(i))
				must(b, heads.Put(key, head))
				must(b, texts.Put(key, []byte(pages[i%len(pages)])))
			}
			return nil
		}))
	}
}

// floorWakes lets a group of goroutines wait for one that ends, and wake up.
func floorWakes(b *testing.B, _ []string) {
	for i := 0; i < b.N; i += groupPuts {
		done := make(chan struct{})
		var ready, over sync.WaitGroup
		ready.Add(groupPuts)
		for range groupPuts {
			over.Go(func() {
				ready.Done()
				<-done
			})
		}
		ready.Wait()
		close(done)
		over.Wait()
	}
}
