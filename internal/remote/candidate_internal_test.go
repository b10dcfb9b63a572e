package remote

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// What is written and read directly has the bytes and the meaning of the list of fields, with any fields missing, and damaged.
func TestCandidatesDirectly(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var last store.Candidate
	direct, refused := 0, 0
	for range 20_000 {
		n := r.IntN(1 << 20)
		var c store.Candidate
		fill(reflect.ValueOf(&c).Elem(), &n)
		for _, v := range []reflect.Value{reflect.ValueOf(&c).Elem(), reflect.ValueOf(&c.Lexical).Elem(), reflect.ValueOf(&c.Ref).Elem()} {
			for i := range v.NumField() {
				if r.IntN(2) == 0 {
					v.Field(i).SetZero()
				}
			}
		}
		if r.IntN(2) == 0 { // the usual form
			c.Pinned, c.Recent, c.Near, c.Cosine, c.Excluded, c.Lexical.Speaker, c.Lexical.Date, c.Lexical.First, c.Lexical.Forms, c.Lexical.Via = false, false, false, nil, "", 0, 0, 0, 0, 0
		}
		var e codec.Encoder
		candidateFields.Append(&e, &c)
		b := appendCandidate(nil, &c)
		require.Equal(t, string(e.B), string(b))
		if len(b) > 0 && r.IntN(2) == 0 {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
		}
		var fast, slow store.Candidate
		d := codec.Decoder{B: b}
		candidateFields.Read(&d, &slow)
		err := d.Done()
		if err != nil {
			refused++
		}
		if readCandidate(b, &fast, &last) {
			direct++
			require.NoError(t, err)
			require.Equal(t, slow, fast)
			last = fast
		}
	}
	require.Greater(t, direct, 5_000)
	require.Greater(t, refused, 2_000)
}
