package dbctl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a table shows of two ids that look alike differs.
func TestTablesShowWhatHides(t *testing.T) {
	file := newDB(t)
	for _, id := range []string{"invoice", "in\u200bvoice", "invoice\U000e0041", "inv\u00adoice", "invoice\ufe0f", "in\u202evoice"} {
		ok(t, "", "put", file, "acme/support", id, "text of "+id)
	}
	shownAs := map[string]bool{}
	for _, row := range strings.Split(ok(t, "", "ls", file, "acme/support", "--prefix", "in"), "\n") {
		id, _, _ := strings.Cut(row, "  ")
		if strings.HasPrefix(id, "in") {
			shownAs[id] = true
		}
	}
	require.Equal(t, map[string]bool{"invoice": true, "in<U+200B>voice": true, "invoice<U+E0041>": true, "inv<U+00AD>oice": true, "invoice<U+FE0F>": true, "in voice": true}, shownAs)
}

func TestGuardKeepsRunesWhole(t *testing.T) {
	for _, text := range []string{"naïve 👩‍👩‍👧 résumé میخواهم", "a\u202eb\u009bc\U000e0041d", "\xff\xfe broken \xc3"} {
		for _, asJSON := range []bool{false, true} {
			want := shown(text)
			if asJSON {
				want = escaped(text)
			}
			var out bytes.Buffer
			g := &guard{w: &out, terminal: true, as: &globals{JSON: asJSON}}
			for i := range len(text) { // a byte at a time
				n := must(g.Write([]byte{text[i]}))(t)
				require.Equal(t, 1, n)
			}
			require.Equal(t, strings.TrimSuffix(want, "�"), strings.TrimSuffix(out.String(), "�"))
		}
	}
	require.Equal(t, "👩‍👩‍👧 میخواهم", shown("👩‍👩‍👧 میخواهم"), "scripts and emoji stay as they are written")
}
