package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// put commits artefacts of one page each to a scope.
func (m *memory) put(scope string, as ...store.Artefact) store.Outcome {
	m.t.Helper()
	out := must(m.Commit(context.Background(), m.batch(scope, as...)))(m.t)
	return out
}

func (m *memory) batch(scope string, as ...store.Artefact) store.Batch {
	m.t.Helper()
	b := store.Batch{Scope: scope, Now: m.opts.Now(), Leaf: manifest.Record{Type: manifest.TypeCommit}}
	var err error
	b.ID, err = store.NewID(b.Now, rand.Reader)
	require.NoError(m.t, err)
	for _, a := range as {
		p := store.NewPage{Text: a.Text, Tokens: len(a.Text)/4 + 1, Hash: store.ContentHash(a.Text)}
		_, _ = rand.Read(p.Salt[:])
		p.Digest = store.SaltedDigest(p.Salt[:], a.Text)
		given := !a.CurrentAsOf.IsZero()
		if !given {
			a.CurrentAsOf = b.Now
		}
		a.Text, a.Provenance = "", cmp.Or(a.Provenance, store.Validated)
		b.Puts = append(b.Puts, store.Put{Artefact: a, AsOfGiven: given, Pages: []store.NewPage{p}})
	}
	return b
}

// fill commits n artefacts to a scope, 500 a commit. Of two with one id in a commit the later one counts.
func (m *memory) fill(scope string, n int, a func(i int) store.Artefact) {
	m.t.Helper()
	for i := 0; i < n; {
		var as []store.Artefact
		for ; i < n && len(as) < 500; i++ {
			next := a(i)
			as = append(slices.DeleteFunc(as, func(was store.Artefact) bool { return was.ID == next.ID }), next)
		}
		m.put(scope, as...)
	}
}
