package token

import (
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

// reference counts as the estimators are defined: it remembers nothing, and each string is hashed anew.
type reference struct {
	next   func(string) int
	filter filter
}

func (r reference) has(s string) bool { return r.filter.has(s, hash(s)) }

func (r reference) count(text string) int {
	text = string([]rune(text))
	sum, cut := 0, 0
	for len(text) > 0 {
		end := r.next(text)
		if p := text[:end]; r.token(p) {
			sum++
		} else {
			cut += r.cut(p)
		}
		text = text[end:]
	}
	return sum + cut + (cut*12+99)/100
}

func (r reference) token(p string) bool {
	return len(p) == 1 || len(p) <= 128 && r.has(p) && (len(p) <= 12 && p[len(p)-1] < utf8.RuneSelf || r.joins(p))
}

// joins: every token of more than one byte is two tokens joined.
func (r reference) joins(p string) bool {
	for i := 1; i < len(p); i++ {
		if (i == 1 || r.has(p[:i])) && (i == len(p)-1 || r.has(p[i:])) {
			return true
		}
	}
	return false
}

func (r reference) cut(p string) (n int) {
	for first := true; len(p) > 0; first = false {
		end := r.longest(p)
		if n++; first && end == 1 && p[0] == ' ' && len(p) > 1 && p[1] >= 0xe0 {
			n++
		}
		p = p[end:]
	}
	return n
}

func (r reference) longest(p string) int {
	ends := map[int]bool{} // where characters end
	n := 0
	for chars := 0; n < len(p) && n < 16; n++ {
		if utf8.RuneStart(p[n]) {
			ends[n] = true
			if chars == 4 || n > 0 && !utf8.RuneStart(p[0]) {
				break
			}
			chars++
		}
	}
	ends[n] = true
	_, size := utf8.DecodeRuneInString(p)
	if strings.HasPrefix(p, strings.Repeat(p[:size], 3)) {
		n = size
		if size == 1 {
			for run := 128; run > 4; run /= 2 {
				if strings.HasPrefix(p, strings.Repeat(p[:1], run)) && r.has(p[:run]) && r.has(p[:run/2]) {
					return run
				}
			}
			n = 2
		}
	}
	for ; n > 1; n-- {
		inFirst := true
		for i := 1; i < n; i++ {
			inFirst = inFirst && !ends[i]
		}
		if (ends[n] || inFirst) && r.has(p[:n]) && r.joins(p[:n]) {
			return n
		}
	}
	return 1
}

// kindsOfText draws texts of every kind: words of an invented language, random bytes of ASCII and of any, runs, and
// characters of all scripts.
func kindsOfText(r *rand.Rand) string {
	var b strings.Builder
	letters := []string{"aeiou", "bcdfghklmnprstvz", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \n\r\t.,'\"/-_(){}\x00\x01\x7f"}
	for size := 1 + r.Intn(400); b.Len() < size; {
		switch r.Intn(9) {
		case 0, 1, 2:
			b.WriteByte(" \t.-\n_'\x02 "[r.Intn(9)])
			for range 1 + r.Intn(6) {
				b.WriteByte(letters[1][r.Intn(16)])
				b.WriteByte(letters[0][r.Intn(5)])
			}
		case 3:
			from := letters[2+r.Intn(3)]
			for range 1 + r.Intn(14) {
				b.WriteByte(from[r.Intn(len(from))])
			}
		case 4:
			b.WriteString(strings.Repeat(string(rune(r.Intn(utf8.RuneSelf))), 1+r.Intn(150)))
		case 5:
			b.WriteRune(rune(r.Intn(0x3000)))
		case 6:
			b.WriteRune(rune(r.Intn(0x20000)))
		case 7:
			b.WriteByte(byte(r.Intn(256)))
		case 8:
			b.WriteByte(byte(r.Intn(utf8.RuneSelf)))
		}
	}
	return b.String()
}

// What the estimators remember changes no count, from any number of goroutines.
func TestCountsAreThoseOfTheReference(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var texts []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		texts = append(texts, string(b))
	}
	r := rand.New(rand.NewSource(9))
	several := 20_000
	if dbtest.Race { // what is shared is filled by the first hundreds
		several = 2_000
	}
	for range several {
		texts = append(texts, kindsOfText(r))
	}
	for _, e := range []*estimator{o200kEstimate, cl100kEstimate} {
		ref := reference{e.next, e.filter}
		want := make([]int, len(texts))
		for i, text := range texts {
			want[i] = ref.count(text)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for i, text := range texts {
					if got := e.Count(text); got != want[i] {
						t.Errorf("%s counts %d in %q, want %d", e.name, got, text, want[i])
						return
					}
				}
			})
		}
		wg.Wait()
	}
	// Negative control: a memo that forgets part of the key answers for another string.
	var m memo
	m.put(nextKey(uint64('a'|1<<7), 'b'), 2)
	require.Equal(t, 2, m.get(nextKey(uint64('a'|1<<7), 'b')))
	require.Zero(t, m.get(nextKey(uint64('a'|1<<7), 'c')))
	require.Zero(t, m.get(nextKey(nextKey(uint64('a'|1<<7), 'b'), 'b')))
}

// NewFilter returns the filter of the given tokens, for the test that makes the filters from the vocabularies.
func NewFilter(tokens []string) string {
	bits := make([]byte, (len(tokens)*bitsPerToken/8/block+1)*block)
	for _, t := range tokens {
		x, at := hash(t).place(len(bits))
		for range probesOf(t) {
			bits[at+int(x>>58)] |= 1 << (x >> 55 & 7)
			x *= spread
		}
	}
	return string(bits)
}

// plain agrees with the split of both encodings wherever it answers.
func TestPlainIsThePiece(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	runes := []rune("abAB zZ'_-. 0129\n\r\t,(é٣漢\u0301\u00a0's")
	answered, keys := 0, map[uint64]string{}
	for range 200_000 {
		text := make([]rune, 1+r.Intn(8))
		for i := range text {
			text[i] = runes[r.Intn(len(runes))]
		}
		end, key := plain(string(text))
		if end == 0 {
			continue
		}
		answered++
		require.Equal(t, nextO200k(string(text)), end, "%q", string(text))
		require.Equal(t, nextCL100k(string(text)), end, "%q", string(text))
		if piece := string(text)[:end]; key != 0 {
			if keys[key] == "" {
				keys[key] = piece
			}
			require.Equal(t, keys[key], piece, "two pieces of one key")
		}
	}
	require.Greater(t, answered, 50_000)
}
