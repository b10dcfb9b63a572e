package commands

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
)

func TestExport(t *testing.T) {
	r := &session.StoredPass{At: noon, Verdicts: []session.Verdict{{ID: "block-1", Action: session.Page}, {ID: "m 3", Action: session.Evict}}}
	b, err := ExportPass(r, []byte("torn"))
	require.NoError(t, err)
	require.Equal(t, "\nadd \"block-1\" to paged-blocks\nadd \""+handoff.ContractName("m 3")+"\" to evicted-blocks\n"+stampLine, string(b))
	b, err = ExportPass(r, []byte("whole\n"))
	require.NoError(t, err)
	require.NotEqual(t, byte('\n'), b[0])
	r.Repeated = true
	b, err = ExportPass(r, nil)
	require.NoError(t, err)
	require.Nil(t, b)
}

func TestTokensAreASCIIRunsAfterPythonLower(t *testing.T) {
	for text, want := range map[string][]string{
		"Fix a_b, x9-Y!":  {"fix", "a_b", "x9", "y"},
		"naïve":           {"na", "ve"},
		"Привет мир":      {},
		"\u212A \u0130st": {"k", "i", "st"}, // Kelvin sign, dotted capital I
		"x x X":           {"x"},
		"":                {},
		"a\xed\xa0\x80b":  {"a", "b"}, // a lone surrogate separates
	} {
		got := slices.Collect(maps.Keys(tokens(text)))
		require.ElementsMatch(t, want, got, "%q", text)
	}
}

func TestGate(t *testing.T) {
	for id, ok := range map[string]bool{
		"block-1": true, "block-": true, "pager": true, "": true, `"`: true, "2026-01-02Tx;y": true, "٢٠٢٦-٠١-٠٢t": true,
		"block-1\x1cblock-2": true, "block-1\u2003note": true,
		"Block-1": false, "Note": false, "msg-7": false, "block-1 extra": false, "2026-01-02": false, "x2026-01-02t": false, "блок-1": false,
	} {
		_, err := statement(id, session.Retain)
		if ok {
			require.NoError(t, err, "%q", id)
		} else {
			require.ErrorIs(t, err, ErrVocabulary, "%q", id)
		}
	}
	require.Len(t, vocabulary, 35)
}
