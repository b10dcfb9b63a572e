package talk

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Each turn is written as its id, what it answers and what it calls: "b<x>y" answers x and calls y.
func TestUnpaired(t *testing.T) {
	for name, c := range map[string]struct{ turns, out string }{
		"talk alone":                   {"a b c", ""},
		"a pair":                       {"a>x b<x c", ""},
		"a result alone":               {"a b<x c", "b"},
		"a call alone":                 {"a>x c", "a"},
		"the last call waits":          {"a b>x", ""},
		"one result of two":            {"a>x,y b<x c", "a b"},
		"of two calls one is answered": {"a>x b<x c>y d", "c"},
		"a chain goes as a whole":      {"a>x b<x>y c", "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			var turns []*store.Head
			for i, s := range strings.Fields(c.turns) {
				h := &store.Head{Artefact: store.Artefact{ID: s[:1], Seq: int64(i)}}
				s, calls, _ := strings.Cut(s[1:], ">")
				h.ToolCallID = strings.TrimPrefix(s, "<")
				for _, id := range strings.FieldsFunc(calls, func(r rune) bool { return r == ',' }) {
					h.ToolCalls = append(h.ToolCalls, store.ToolCall{ID: id})
				}
				turns = append(turns, h)
			}
			var out []string
			for _, h := range Unpaired(turns) {
				out = append(out, h.ID)
			}
			require.Equal(t, c.out, strings.Join(out, " "))
		})
	}
}
