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
		"a late result":                {"a>x b c<x", ""},
		"one of two results, late":     {"a>x,y b c<x", "a c"},
		"one of two results":           {"a>x,y b<x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out []string
			for _, h := range Unpaired(headsOf(c.turns)) {
				out = append(out, h.ID)
			}
			require.Equal(t, c.out, strings.Join(out, " "))
		})
	}
}

// In the notation of TestUnpaired. A turn of two pages is written twice; "-" is a page that is no turn.
func TestBeside(t *testing.T) {
	for name, c := range map[string]struct{ turns, order string }{
		"talk alone":                    {"a b c", ""},
		"a pair":                        {"a>x b<x c", ""},
		"a result without its call":     {"a b<x c", ""},
		"two results":                   {"a>x,y b<x c<y d", ""},
		"a late result":                 {"a>x b c<x d", "a c b d"},
		"the second result comes late":  {"a>x,y b<x c d<y e", "a b d c e"},
		"a late chain":                  {"a>x b c<x>y d<y", "a c d b"},
		"an id that is used again":      {"a>x b<x c>x d e<x", "a b c e d"},
		"turns of two pages":            {"a>x a>x b b c<x c<x d", "a a c c b b d"},
		"pages that are no turns":       {"- a>x b c<x", "- a c b"},
		"both calls are answered late":  {"a>x b>y c d<y e<x", "a e b d c"},
		"an unknown call among others":  {"a>x b<z c<x", "a c b"},
		"the page of a turn of its own": {"a>x b<x b<x c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pages := headsOf(c.turns)
			var order []string
			for _, i := range Beside(pages) {
				order = append(order, strings.Fields(c.turns)[i][:1])
			}
			require.Equal(t, c.order, strings.Join(order, " "))
		})
	}
}

// headsOf reads turns in the notation of TestUnpaired.
func headsOf(line string) (turns []*store.Head) {
	for i, s := range strings.Fields(line) {
		if s == "-" {
			turns = append(turns, nil)
			continue
		}
		h := &store.Head{Artefact: store.Artefact{ID: s[:1], Seq: int64(i)}}
		s, calls, _ := strings.Cut(s[1:], ">")
		h.ToolCallID = strings.TrimPrefix(s, "<")
		for _, id := range strings.FieldsFunc(calls, func(r rune) bool { return r == ',' }) {
			h.ToolCalls = append(h.ToolCalls, store.ToolCall{ID: id})
		}
		turns = append(turns, h)
	}
	return turns
}
