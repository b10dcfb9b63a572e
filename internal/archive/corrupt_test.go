package archive_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func TestCorruptErrorText(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*codec.CorruptError{
		"ctxpage: a.ctx is damaged":                                 {File: "a.ctx"},
		"ctxpage: a.ctx at offset 9 is damaged: EOF":                {File: "a.ctx", Offset: 9, Err: io.EOF},
		"ctxpage: index at offset 9 (leaf 0) is damaged: EOF; wait": {File: "index", Offset: 9, Unit: codec.UnitLeaf, Err: io.EOF, Hint: "wait"},
		"ctxpage: a.ctx (lsn 7) is damaged: do: wait":               {File: "a.ctx", Unit: codec.UnitLSN, Num: 7, Err: errors.New("do: wait"), Hint: "wait"},
	} {
		require.Equal(t, want, e.Error())
	}
}

// A caller asks once, whichever layer found the damage and however often it was wrapped.
func TestCorruptErrorIsOneType(t *testing.T) {
	t.Parallel()
	_, fromAudit := archive.Decode(3, []byte{0})
	for name, err := range map[string]error{
		"direct": &codec.CorruptError{File: "a", Err: io.EOF},
		"store":  &store.CorruptError{File: "a", Err: io.EOF},
		"audit":  fromAudit,
	} {
		err = fmt.Errorf("open: %w", err)
		require.ErrorIs(t, err, store.ErrCorrupt, name)
		var e *codec.CorruptError
		require.ErrorAs(t, err, &e, name)
		require.ErrorIs(t, err, e.Err, name)
	}
	require.NotErrorIs(t, io.EOF, codec.ErrCorrupt)
	require.NotErrorIs(t, codec.ErrNewerFormat, codec.ErrCorrupt, "a newer format is not damage")
}
