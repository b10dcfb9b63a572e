package ctxpage_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

type oddFamily struct {
	name string
	of   func(r *rand.Rand, b *strings.Builder)
}

// oddTexts are texts of few repetitions, or of pieces that no writer makes: what the index pays for a word, a page or a
// cut is paid most often.
var oddTexts = []oddFamily{
	{"unique words", func(r *rand.Rand, b *strings.Builder) { fmt.Fprintf(b, "%07x ", r.Uint32()>>4) }},
	{"Han without spaces", func(r *rand.Rand, b *strings.Builder) { b.WriteRune(rune(0x4e00 + r.IntN(20000))) }},
	{"one token", func(r *rand.Rand, b *strings.Builder) { b.WriteByte(byte('a' + r.IntN(26))) }},
	{"base64", func(r *rand.Rand, b *strings.Builder) {
		for range 76 {
			b.WriteByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[r.IntN(64)])
		}
		b.WriteByte('\n')
	}},
	{"digits", func(r *rand.Rand, b *strings.Builder) { fmt.Fprintf(b, "%d ", r.IntN(10_000_000)) }},
	{"mixed scripts", func(r *rand.Rand, b *strings.Builder) {
		s := [...][2]int{{'a', 26}, {0x430, 32}, {0x621, 26}, {0xe01, 46}, {0x4e00, 20000}, {0xac00, 11000}, {0x1f600, 60}, {0x3b1, 24}}[r.IntN(8)]
		for range 1 + r.IntN(6) {
			b.WriteRune(rune(s[0] + r.IntN(s[1])))
		}
		b.WriteByte(' ')
	}},
	{"white space", func(r *rand.Rand, b *strings.Builder) { b.WriteByte(" \n"[r.IntN(2)]) }},
}

// oddFamilies are the worst three in every run, and all of them in the long form. Under the race detector it is the first:
// it slows them tenfold, and they run on one goroutine.
func oddFamilies() []oddFamily {
	switch {
	case dbtest.Long:
		return oddTexts
	case dbtest.Race:
		return oddTexts[:1]
	}
	return oddTexts[:3]
}

func oddText(of func(*rand.Rand, *strings.Builder), seed uint64, size int) string {
	r, b := rand.New(rand.NewPCG(seed, 7)), strings.Builder{}
	for b.Grow(size + 128); b.Len() < size; {
		of(r, &b)
	}
	return strings.ToValidUTF8(b.String()[:size], "")
}

// heapBytes is what objects of the heap take, garbage that was not collected yet included.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	return heapBytes()
}

// heapPeak is the most that the heap has while fn runs above what was live before. It collects as a user's program does:
// the tests' own setting lets the heap grow fivefold, and the peak was then one of garbage.
func heapPeak(fn func()) int64 { return heapPeakAt(100, fn) }

// heapPeakAt is heapPeak of a program that collects when the heap has grown by so many percent.
func heapPeakAt(percent int, fn func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	base, most := liveBytes(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for {
			most = max(most, heapBytes())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	fn()
	close(stop)
	<-done
	return max(most, heapBytes()) - base
}

// TestOddTextsTakeLittle: whatever a text is made of, to put it, to write its index, and to read it back from the log
// take at most twelve times the text and a fixed bound, and what stays of it until the next checkpoint is less. Of
// unique words a put took 26 times the text, and a checkpoint 129 times. Of 16 MiB of random Han, the worst of them, put
// and checkpoint together take 11 times the text, with 104 MiB live at most.
func TestOddTextsTakeLittle(t *testing.T) {
	const size, fixed = 1 << 20, 48 << 20
	atMost := func(t *testing.T, times float64, plus, took int64, what string) {
		t.Helper()
		t.Logf("%s: %.1f times the text", what, float64(took)/size)
		require.Less(t, took, int64(times*size)+plus, what)
	}
	for _, odd := range oddFamilies() {
		t.Run(odd.name, func(t *testing.T) {
			text := oddText(odd.of, 1, size)
			path := filepath.Join(t.TempDir(), "a.ctx")
			db, err := Open(path, Options{Exclusive: true}) // its files are copied as they are
			require.NoError(t, err)
			defer func() { db.Close() }()
			before := liveBytes()
			took := int64(math.MaxInt64)
			// On a busy machine the collector comes late, which only adds: the least is what a put takes. In the end it comes more often.
			for _, percent := range []int{100, 100, 100, 50, 50, 25, 25} {
				took = min(took, heapPeakAt(percent, func() {
					_, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: text})
					require.NoError(t, err)
				}))
				if took < 12*size+8<<20 {
					break
				}
				require.NoError(t, db.Scope("acme").Delete(ctx, "a"))
				_, err := db.Admin().Checkpoint(ctx) // the next put begins as the first one did
				require.NoError(t, err)
			}
			atMost(t, 12, 8<<20, took, "put")
			atMost(t, 8, 0, liveBytes()-before, "stays")
			crashed := filepath.Join(t.TempDir(), "a.ctx")
			require.NoError(t, dbtest.Copy(path, crashed))
			atMost(t, 12, fixed, heapPeak(func() {
				_, err := db.Admin().Checkpoint(ctx)
				require.NoError(t, err)
			}), "checkpoint")
			require.NoError(t, db.Close())
			for what, path := range map[string]string{"open": path, "open after a crash": crashed} {
				atMost(t, 12, fixed, heapPeak(func() {
					db, err = Open(path, Options{})
					require.NoError(t, err)
				}), what)
				v, err := db.Scope("acme").Get(ctx, "a")
				require.NoError(t, err)
				require.True(t, v.Text == text)
				require.NoError(t, db.Close())
			}
		})
	}
}

// TestMergeTakesLittle: when eight segments of unique words become one, what is in memory does not grow with them.
func TestMergeTakesLittle(t *testing.T) {
	size := 1 << 19
	if dbtest.Race {
		size >>= 3
	}
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range uint64(9) { // eight are merged when the ninth comes
		text := oddText(oddTexts[0].of, i, size)
		took := heapPeakAt(20, func() {
			_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("a", i), Text: text})
			require.NoError(t, err)
			_, err = db.Admin().Checkpoint(ctx)
			require.NoError(t, err)
		})
		t.Logf("%d: %.1f MiB", i, float64(took)/(1<<20))
		require.Less(t, took, int64(48<<20), "put and checkpoint %d", i)
		found, err := s.Search(ctx, text[:7], 5)
		require.NoError(t, err)
		require.NotEmpty(t, found.Hits)
	}
}

// TestOddQuestionTakesLittle: the longest question of words that nobody asks takes no more than an odd text.
func TestOddQuestionTakesLittle(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for i, odd := range oddFamilies() {
		text := oddText(odd.of, 1, 64<<10)
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("a", i), Text: text})
		require.NoError(t, err)
		for _, question := range []string{text, strings.Repeat(text, 16)} {
			took := int64(math.MaxInt64)
			for try := 0; try < 5 && took >= 32<<20; try++ { // what a busy machine collects late is no need
				took = min(took, heapPeakAt(20, func() {
					_, err = s.Search(ctx, question, 10)
					require.NoError(t, err)
				}))
			}
			require.Less(t, took, int64(32<<20), odd.name)
		}
	}
}
