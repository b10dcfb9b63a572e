package bpe_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
)

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		text          string
		o200k, cl100k int
	}{
		{"", 0, 0}, {"hello world", 2, 2}, {"tiktoken is great!", 6, 6}, {"1234567", 3, 3},
		{"<|endoftext|>", 7, 7}, {"antidisestablishmentarianism", 6, 6}, {"a\xffb", 3, 3},
		{"\x7f", 1, 1}, {"a\n    \nb", 3, 3},
	} {
		require.Equal(t, c.o200k, bpe.O200k().Count(c.text), "o200k %q", c.text)
		require.Equal(t, c.cl100k, bpe.CL100k().Count(c.text), "cl100k %q", c.text)
	}
}

// A byte that is not UTF-8 counts as the replacement character.
func TestCountOfBrokenText(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for range 2000 {
		b := make([]byte, r.Intn(12))
		r.Read(b)
		require.Equal(t, bpe.O200k().Count(string([]rune(string(b)))), bpe.O200k().Count(string(b)), "%q", b)
	}
}

// A text made to be slow is counted like others: a step for each pair of its bytes would take half a minute.
func TestHostileTextIsCounted(t *testing.T) {
	const n = 1 << 17
	for s, want := range map[string]int{"a": n / 8, "-": n / 64, " ": n / 128, "\n": n / 16} {
		require.Equal(t, want, bpe.O200k().Count(strings.Repeat(s, n)), "%q", s)
	}
}

// TestPartsAddUp: the counts of the lines of a context and of a line's header and text add up to the count of the context, whatever
// the texts are. The control: cut anywhere, some do not.
func TestPartsAddUp(t *testing.T) {
	pieces := []string{" ", "  ", "\n", "\n\n", "/", "\t", "a", "word", "Word", "'s", "'", ":", ": ", "1", "12345", ".", "…", "é", "\u0301", "ß", "漢字", "🐌", "\u00a0", "\r", "-", "--------", "\"", "(", "x1"}
	r := rand.New(rand.NewSource(9))
	draw := func(n int) (text string) {
		for range r.Intn(n) {
			text += pieces[r.Intn(len(pieces))]
		}
		return text
	}
	for _, c := range []token.Counter{token.Default(), token.Estimate(token.CL100k), bpe.O200k(), bpe.CL100k()} {
		by := c.(interface {
			Part(text string) (sum, cut int)
			Total(sum, cut int) int
		})
		wrong := 0
		for range 20_000 {
			whole, sum, cut := "", 0, 0
			add := func(part string) {
				n, m := by.Part(part)
				whole, sum, cut = whole+part, sum+n, cut+m
			}
			for i, mark := range []string{"■", "123456789♪", "※", "†", "★", "►"} {
				add(mark)
				head := fmt.Sprint(7*i+1, []string{"", " Ana", ", 14:10", " [user] ß2"}[r.Intn(4)])
				if text := draw(8) + "\n"; r.Intn(2) > 0 {
					add(head)
					add(":\n" + text)
				} else {
					add(head + []string{"", "]", "\""}[r.Intn(3)] + ":")
					add(" " + text)
				}
			}
			require.Equal(t, c.Count(whole), by.Total(sum, cut), "%s: %q", c.Name(), whole)
			at := r.Intn(len(whole))
			sum, cut = by.Part(whole[:at])
			if n, m := by.Part(whole[at:]); by.Total(sum+n, cut+m) != c.Count(whole) {
				wrong++
			}
		}
		require.Greater(t, wrong, 1000, c.Name())
	}
}

var update = flag.Bool("update", false, "pack the vocabularies anew")

// The vocabularies are those that OpenAI publishes, by the sums in the source of its tiktoken.
func TestVocabulariesAreThePublished(t *testing.T) {
	for name, sum := range map[string]string{
		token.O200k:  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
		token.CL100k: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
	} {
		file, err := assets.Assets.ReadFile(name + ".tiktoken")
		require.NoError(t, err)
		require.Equal(t, sum, fmt.Sprintf("%x", sha256.Sum256(file)))
		want, rank := packed(t, file), 0
		if *update {
			var b bytes.Buffer
			w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
			require.NoError(t, err)
			_, err = w.Write(want)
			require.NoError(t, errors.Join(err, w.Close(), os.WriteFile(name+".gz", b.Bytes(), 0o644)))
			continue // this program has the ones from before
		}
		f, err := os.Open(name + ".gz")
		require.NoError(t, err)
		unzip, err := gzip.NewReader(f)
		require.NoError(t, err)
		got, err := io.ReadAll(unzip)
		require.NoError(t, errors.Join(err, f.Close()))
		require.True(t, bytes.Equal(want, got), name)
		c, _ := bpe.Find(name)
		for line := range bytes.Lines(file) {
			if rank++; rank%100 == 0 {
				b, _ := base64.StdEncoding.DecodeString(string(bytes.Fields(line)[0]))
				if text := string(b); utf8.ValidString(text) && token.NextPiece(name)(text) == len(text) {
					require.Equal(t, 1, c.Count(text), "%q", text)
				}
			}
		}
	}
}

// packed is a published vocabulary, a line for each token with its bytes in base64 and its rank, in the form that the program has.
func packed(t *testing.T, file []byte) []byte {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(file), []byte("\n"))
	head := binary.AppendUvarint(nil, uint64(len(lines)))
	var text []byte
	for i, line := range lines {
		code, rank, _ := bytes.Cut(line, []byte(" "))
		require.Equal(t, fmt.Sprint(i), string(rank))
		b, err := base64.StdEncoding.DecodeString(string(code))
		require.NoError(t, err)
		head, text = binary.AppendUvarint(head, uint64(len(b))), append(text, b...)
	}
	return append(head, text...)
}

func TestFind(t *testing.T) {
	for _, name := range []string{token.O200k, token.CL100k} {
		c, ok := bpe.Find(name)
		require.True(t, ok)
		require.Equal(t, name, c.Name())
		require.Equal(t, token.Exact, token.LabelOf(c))
	}
	_, ok := bpe.Find("p50k_base")
	require.False(t, ok)
}

func TestConcurrentUse(t *testing.T) {
	text := strings.Repeat("one counter serves many goroutines. ", 20)
	want := bpe.O200k().Count(text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if n := bpe.O200k().Count(text); n != want {
					t.Errorf("got %d, want %d", n, want)
				}
			}
		})
	}
	wg.Wait()
}

// A counter has the name that it is found by, with and without a percentage.
func TestNamed(t *testing.T) {
	for name, want := range map[string]string{
		"o200k_base": "o200k_base", "cl100k_base": "cl100k_base", token.Default().Name(): token.Default().Name(), "est/2-cl100k": "est/2-cl100k", "est/2*110%": "est/2*110%", "o200k_base*125%": "o200k_base*125%",
		"claude": "o200k_base*135%", "gemini": "o200k_base*115%", "gpt-4": "cl100k_base", "openai/gpt-4o-mini": "o200k_base", "cl100k_base*100%": "cl100k_base",
	} {
		c, err := bpe.Named(name)
		require.NoError(t, err, name)
		require.Equal(t, want, c.Name(), name)
	}
	for _, name := range []string{"", "gpt", "o200k", "o200k_base*", "o200k_base*2", "o200k_base*0%", "o200k_base*-5%", "o200k_base*1001%", "*120%"} {
		_, err := bpe.Named(name)
		require.ErrorContains(t, err, "expected", name)
	}
}
