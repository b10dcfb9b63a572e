package conversation

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Each turn is written as its id, what it answers and what it calls: "b<x>y" answers x and calls y.
func TestPair(t *testing.T) {
	for name, c := range map[string]struct{ turns, of string }{
		"talk alone":                   {"a b c", ". . ."},
		"a pair":                       {"a>x b<x c", "0 0 ."},
		"a result alone":               {"a b<x c", ". - ."},
		"a call alone":                 {"a>x c", "- ."},
		"a call that waits":            {"a b>x", ". -"},
		"one result of two":            {"a>x,y b<x c", "- - ."},
		"of two calls one is answered": {"a>x b<x c>y d", "0 0 - ."},
		"a result that makes a call":   {"a>x b<x>y c<y", "- - -"},
		"a late result":                {"a>x b c<x", "0 . 0"},
		"one of two results, late":     {"a>x,y b c<x", "- . -"},
		"shuffled results":             {"a>x,y b>z c<z d<y e<x", "0 1 1 0 0"},
		"an id that is used again":     {"a>x b>x c<x", "- 1 1"},
		"a call twice in one turn":     {"a>x,x b<x", "- -"},
		"a result twice":               {"a>x b<x c<x", "0 0 -"},
	} {
		t.Run(name, func(t *testing.T) {
			var of []string
			for _, at := range Pair(headsOf(c.turns)) {
				of = append(of, cmp.Or(map[int]string{NoTools: ".", Refused: "-"}[at], fmt.Sprint(at)))
			}
			require.Equal(t, c.of, strings.Join(of, " "))
		})
	}
}

// In the notation of TestPair. A turn of two pages is written twice; "-" is a page that is no turn.
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

// headsOf reads turns in the notation of TestPair.
func headsOf(line string) (turns []*store.Head) {
	for i, s := range strings.Fields(line) {
		if s == "-" {
			turns = append(turns, nil)
			continue
		}
		h := &store.Head{Artefact: store.Artefact{ID: s[:1], Seq: int64(i), Role: "user"}}
		s, calls, _ := strings.Cut(s[1:], ">")
		if h.ToolCallID = strings.TrimPrefix(s, "<"); h.ToolCallID != "" {
			h.Role = "tool"
		} else if calls != "" {
			h.Role = "assistant"
		}
		for _, id := range strings.FieldsFunc(calls, func(r rune) bool { return r == ',' }) {
			h.ToolCalls = append(h.ToolCalls, store.ToolCall{ID: id})
		}
		turns = append(turns, h)
	}
	return turns
}
