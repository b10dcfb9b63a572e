package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/stretchr/testify/require"
)

// TestEncryptionCost compares a database that has a key with one that has none, by turns in one process: CPU time of a put, a
// cold get, an assembly and an open, and bytes of the file. It is a measurement, so it runs with CTXPAGE_LONG=1 only.
func TestEncryptionCost(t *testing.T) {
	if os.Getenv("CTXPAGE_LONG") == "" {
		t.Skip("CTXPAGE_LONG=1 measures")
	}
	ctx := context.Background()
	const pages, rounds = 10000, 5
	keys := map[string][]byte{"plain": nil, "key": bytes.Repeat([]byte{7}, 32)}
	kinds := []string{"plain", "key"}
	paths, dbs := map[string]string{}, map[string]*ctxpage.DB{}
	spent := map[string]map[string][]float64{}
	took := func(what, kind string, n int, fn func()) {
		from := cpuTime()
		fn()
		if spent[what] == nil {
			spent[what] = map[string][]float64{}
		}
		spent[what][kind] = append(spent[what][kind], float64((cpuTime()-from).Microseconds())/float64(n))
	}
	open := func(kind string) {
		db, err := ctxpage.Open(paths[kind], ctxpage.Options{Key: keys[kind], WorkingSet: -1})
		require.NoError(t, err)
		dbs[kind] = db
	}
	for _, kind := range kinds {
		paths[kind] = filepath.Join(t.TempDir(), kind+".ctx")
		open(kind)
	}
	words := strings.Fields("kettle harbour ledger winter orchard signal canyon violet engine marble lantern river copper meadow falcon summit")
	text := func(i int) string {
		var b strings.Builder
		for k := range 60 {
			fmt.Fprintf(&b, "%s%d ", words[(i*7+k*k)%len(words)], (i+k)%97)
		}
		return b.String()
	}
	put := func(kind string, from, to int) {
		for at := from; at < to; at += 100 {
			require.NoError(t, dbs[kind].Scope("acme").Update(ctx, func(tx *ctxpage.Txn) error {
				for i := at; i < min(at+100, to); i++ {
					if err := tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("p", i), Text: text(i)}); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	for round := range rounds {
		slices.Reverse(kinds)
		for _, kind := range kinds {
			took("put", kind, pages/rounds, func() {
				put(kind, round*pages/rounds, (round+1)*pages/rounds)
				_, err := dbs[kind].Admin().Checkpoint(ctx)
				require.NoError(t, err)
			})
		}
	}
	for range rounds {
		slices.Reverse(kinds)
		for _, kind := range kinds {
			require.NoError(t, dbs[kind].Close())
			took("open", kind, 1, func() { open(kind) })
			took("get, cold", kind, 300, func() {
				for i := range 300 {
					v, err := dbs[kind].Scope("acme").Get(ctx, fmt.Sprint("p", i*31%pages))
					require.NoError(t, err)
					require.Equal(t, text(i*31%pages), v.Text)
				}
			})
			took("assembly", kind, 30, func() {
				for i := range 30 {
					a, err := dbs[kind].Scope("acme").Assemble(ctx, ctxpage.Query{Text: fmt.Sprint("kettle", i, " ledger", i+3), Budget: 4000, TopK: 50})
					require.NoError(t, err)
					require.NotEmpty(t, a.Manifest.Pages)
				}
			})
		}
	}
	for _, what := range []string{"put", "get, cold", "assembly", "open"} {
		p, k := spent[what]["plain"], spent[what]["key"]
		slices.Sort(p)
		slices.Sort(k)
		t.Logf("%-10s cpu µs/op: plain %.0f (worst %.0f), key %.0f (worst %.0f), ratio %.2f", what, p[rounds/2], p[rounds-1], k[rounds/2], k[rounds-1], k[rounds/2]/p[rounds/2])
	}
	for _, kind := range kinds {
		require.NoError(t, dbs[kind].Close())
		st, err := os.Stat(paths[kind])
		require.NoError(t, err)
		t.Logf("%s: %d bytes of the file", kind, st.Size())
	}
}
