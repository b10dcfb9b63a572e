package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// What a client pays for not being the owner: medians of calls to one database, by turns, in one process. The clock says what a
// caller waits; the CPU, of both sides, what the work costs, also where others use the machine.
func BenchmarkRemote(b *testing.B) {
	path := dbtest.Path(b) // of a real file system: a commit is durable there
	own, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(b, err)
	defer own.Close()
	client, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(b, err)
	defer client.Close()
	for n := range 500 {
		_, err := own.Scope("acme").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("the zebra of page %d has %d stripes, and eats grass in the morning", n, n*7)})
		require.NoError(b, err)
	}
	for _, do := range []struct {
		name string
		call func(db *ctxpage.DB, n int) error
	}{
		{"get", func(db *ctxpage.DB, n int) error {
			_, err := db.Scope("acme").Get(ctx, fmt.Sprint("page-", n%500))
			return err
		}},
		{"assemble50", func(db *ctxpage.DB, n int) error {
			a, err := db.Scope("acme").Assemble(ctx, ctxpage.Query{Text: fmt.Sprint("zebra stripes grass ", n%500), Budget: 4000, TopK: 50})
			if err == nil && len(a.Blocks) < 45 {
				return fmt.Errorf("%d blocks", len(a.Blocks))
			}
			return err
		}},
		{"commit", func(db *ctxpage.DB, n int) error {
			_, err := db.Scope("acme/other").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("w-", n%50), Text: fmt.Sprint("the zebra ", n)})
			return err
		}},
	} {
		b.Run(do.name, func(b *testing.B) {
			took, cpu := map[*ctxpage.DB][]time.Duration{}, map[*ctxpage.DB]time.Duration{}
			var ratios []float64
			both := []*ctxpage.DB{own, client}
			call := func(db *ctxpage.DB, n int) {
				begun := time.Now()
				if err := do.call(db, n); err != nil {
					b.Fatal(err)
				}
				took[db] = append(took[db], time.Since(begun))
			}
			for n := 0; b.Loop(); n += remoteRound {
				for i := range remoteRound {
					for _, db := range both { // by turns: the machine may be busy
						call(db, n+i)
					}
				}
				for _, db := range both {
					used := cpuTime()
					for i := range remoteRound {
						if err := do.call(db, n+i); err != nil {
							b.Fatal(err)
						}
					}
					cpu[db] = cpuTime() - used
				}
				ratios = append(ratios, float64(cpu[client])/float64(cpu[own]))
			}
			slices.Sort(took[own])
			slices.Sort(took[client])
			slices.Sort(ratios)
			at := len(took[own]) / 2
			b.ReportMetric(float64(took[own][at].Microseconds()), "µs-owner")
			b.ReportMetric(float64(took[client][at].Microseconds()), "µs-client")
			b.ReportMetric(float64(took[client][at])/float64(took[own][at]), "times")
			b.ReportMetric(ratios[len(ratios)/2], "×cpu")
			b.ReportMetric(ratios[len(ratios)-1], "×cpu-worst")
		})
	}
}

// remoteRound is how many calls one side makes in a turn: enough for the clock of the CPU, which ticks in milliseconds.
const remoteRound = 20
