package archive

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// A process killed while it made the archive leaves files without a mark. To a reader that is an empty archive, not
// damage; with a leaf in it, it is.
func TestReaderOfANewbornArchive(t *testing.T) {
	ctx := context.Background()
	for _, leaves := range []uint64{0, 1} {
		dir := filepath.Join(t.TempDir(), "m")
		l, _, err := Open(ctx, dir, nil, Options{DB: "d"})
		require.NoError(t, err)
		for i := range leaves {
			body := must(Encode(&manifest.Record{Type: manifest.TypeGet, Trace: "t"}))(t)
			require.NoError(t, l.Add(i, body))
		}
		require.NoError(t, l.Archive(ctx, leaves))
		require.NoError(t, l.Close())
		require.NoError(t, os.Remove(filepath.Join(dir, markName)))
		r, _, err := Open(ctx, dir, nil, Options{ReadOnly: true, DB: "d"})
		require.NoError(t, err)
		v, err := r.Verify(ctx, nil, nil)
		require.Equal(t, leaves > 0, v.Found > 0 || err != nil)
		require.NoError(t, r.Close())
	}
}
