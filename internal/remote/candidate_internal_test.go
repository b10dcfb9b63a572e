package remote

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// A list of candidates comes back as it was, whatever fields differ from one to the next. A damaged one is refused, or is another list.
func TestListOfCandidates(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	n, refused := 0, 0
	for range 2_000 {
		list := make([]store.Candidate, r.IntN(20))
		for i := range list {
			c := &list[i]
			if i > 0 {
				*c = list[i-1]
			}
			for _, v := range []reflect.Value{reflect.ValueOf(c).Elem(), reflect.ValueOf(&c.Lexical).Elem(), reflect.ValueOf(&c.Ref).Elem()} {
				for i := range v.NumField() {
					switch r.IntN(6) {
					case 0:
						v.Field(i).SetZero()
					case 1:
						n += r.IntN(1 << 20)
						fill(v.Field(i), &n)
					}
				}
			}
		}
		b := must(pack(list))(t)
		var got []store.Candidate
		require.NoError(t, unpack(b, &got))
		require.Equal(t, list, got)
		room := make([]store.Candidate, r.IntN(20))
		for i := range room {
			fill(reflect.ValueOf(&room[i]).Elem(), &n)
		}
		var again []store.Candidate
		require.NoError(t, unpackInto(b, &again, room))
		require.Equal(t, list, again, "in memory that was used before")
		require.Equal(t, len(list) > 0 && len(list) <= len(room), len(list) > 0 && len(room) > 0 && &again[0] == &room[0])
		if len(list) == 0 {
			continue
		}
		b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
		if unpack(b, &got) != nil {
			refused++
			continue
		}
		var same []store.Candidate
		require.NoError(t, unpack(must(pack(got))(t), &same))
		require.Equal(t, got, same)
	}
	require.Greater(t, refused, 200)
}
