package ctxpage_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/token"
)

// askedCounter counts how often it is asked.
type askedCounter struct {
	token.Counter
	n atomic.Int64
}

func (c *askedCounter) Count(text string) int {
	c.n.Add(1)
	return c.Counter.Count(text)
}

// What a page takes in a context is counted once for each form it is shown in, also in a session, and is the same when it
// is not counted again.
func TestCostsAreKept(t *testing.T) {
	c := &askedCounter{Counter: token.Default()}
	db := open(t, ctxpage.Options{Counter: c})
	s := db.Scope("acme")
	for i := range 30 {
		putPages(t, s, ctxpage.Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprintf("Zebras number %d cross the road", i)})
	}
	chat := s.Session("chat")
	for i := range 20 {
		_, err := chat.Append(t.Context(), ctxpage.Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("zebra %d?", i)})
		require.NoError(t, err)
	}
	for _, session := range []string{"", "chat"} {
		assemble := func() (text string, asked int64) {
			before := c.n.Load()
			a, err := s.Assemble(t.Context(), ctxpage.Query{Text: "zebras", Budget: 6000, Session: session})
			require.NoError(t, err)
			return a.Text(), c.n.Load() - before
		}
		text, first := assemble()
		again, second := assemble()
		require.Equal(t, text, again)
		require.Greater(t, first, int64(10), "session %q: the control", session)
		require.Less(t, second, int64(10), "session %q", session)
	}
}
