package rendering

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

func someDrafts() (*Drafts, *manifest.Record) {
	p := &store.Put{
		Artefact: store.Artefact{ID: "answer", Kind: store.KindSummary, Provenance: store.Scratch, Tags: []string{"x"}, ExpiresAt: time.UnixMicro(7).UTC()},
		Pages:    []store.NewPage{{Text: "one", Tokens: 1, Hash: 3, Digest: [32]byte{1}}, {Text: "two", Tokens: 2, Digest: [32]byte{2}}}, Counter: "words",
	}
	other := &store.Put{Artefact: store.Artefact{ID: "other"}, Pages: []store.NewPage{{Text: "three"}}}
	d := &Drafts{}
	d.Add(p, 2)
	d.Add(other, 1)
	return d, &manifest.Record{Trace: "T", Rendered: []byte{1, 2}}
}

// TestDraftRows: a row of drafts is read back as it was; one with what this program does not know is refused.
func TestDraftRows(t *testing.T) {
	d, leaf := someDrafts()
	row, ok := d.Row(leaf, "agent")
	require.True(t, ok)
	back, err := readDrafts(row.Value)
	require.NoError(t, err)
	require.Equal(t, d.row, back)
	require.Empty(t, back.Puts[0].Pages[0].Text, "not shown")

	_, err = readDrafts(append(row.Value[:len(row.Value):len(row.Value)], "\x60\x01y"...))
	require.ErrorIs(t, err, codec.ErrNewer, "a field of a later release")
	row.Value[0]++
	_, err = readDrafts(row.Value)
	require.ErrorIs(t, err, codec.ErrNewer, "a later version")
	_, err = readDrafts(nil)
	require.ErrorIs(t, err, codec.ErrMalformed)
	_, err = readDrafts(row.Value[:len(row.Value)-1])
	require.Error(t, err)
}
