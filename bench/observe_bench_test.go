package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
)

// counting is the least that an observer does.
type counting struct{ n, took, dropped atomic.Int64 }

func (c *counting) Observe(_ context.Context, e ops.Event) {
	c.n.Add(1)
	c.took.Add(int64(e.Took))
	if e.Dropped > 0 {
		c.dropped.Add(int64(e.Dropped))
	}
}

// observed are the operations whose price an observer may raise.
func observed(b *testing.B, opts ctxpage.Options) map[string]func(n int) error {
	db := open(b, fresh(b), opts)
	b.Cleanup(func() { must(b, db.Close()) })
	s, pages := db.Scope("acme/bench"), texts(256, longPage)
	for i := range 256 {
		_, err := s.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: pages[i]})
		must(b, err)
	}
	return map[string]func(n int) error{
		"get": func(n int) error {
			_, err := s.Get(ctx, pageID(n%256))
			return err
		},
		"put": func(n int) error {
			_, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("put-", n), Text: pages[n%256]})
			return err
		},
	}
}

// perRound is how many operations a round has: some milliseconds of gets, so that most rounds meet little else that the machine does. Puts
// take longer than the goroutine of the observer waits for further events, which it would otherwise do once for a few of them.
var perRound = map[string]int{"get": 1500, "put": 400}

// BenchmarkObserver compares a database with an observer that counts and one without, by turns in many short rounds of one process. A round
// ends when the observer has been told, which would otherwise be paid by the next round. It reports the ratios of the medians of CPU and time per
// operation and of the tenth percentiles of CPU, and the quartiles of the ratio of neighbouring rounds in CPU.
func BenchmarkObserver(b *testing.B) {
	seen := &counting{}
	without, with := observed(b, ctxpage.Options{}), observed(b, ctxpage.Options{Observer: seen})
	for _, name := range []string{"get", "put"} {
		b.Run(name, func(b *testing.B) {
			const rounds = 401
			defer debug.SetGCPercent(debug.SetGCPercent(1000)) // marking on a processor that is idle counts as CPU, and varies more than an observer takes
			n := 0
			round := func(do func(int) error) (cpu, took float64) {
				from, began := cpuTime(), time.Now()
				for range perRound[name] {
					n++
					must(b, do(n))
				}
				took = float64(time.Since(began))
				time.Sleep(15 * time.Millisecond) // without an observer too: sleeping takes CPU
				each := float64(perRound[name])
				return float64(cpuTime()-from) / each, took / each
			}
			for b.Loop() {
				var cpu, took [2][]float64
				var ratio []float64
				told, dropped := seen.n.Load(), seen.dropped.Load()
				for i := range 2 * rounds {
					which, do := i%2, without[name]
					if which == 1 {
						do = with[name]
					}
					c, d := round(do)
					cpu[which], took[which] = append(cpu[which], c), append(took[which], d)
					if which == 1 {
						ratio = append(ratio, c/cpu[0][len(cpu[0])-1])
					}
				}
				if seen.n.Load() == told {
					b.Fatal("the observer was told nothing")
				}
				b.ReportMetric(float64(seen.dropped.Load()-dropped)/float64(rounds*perRound[name]), "dropped/op")
				b.ReportMetric(quantile(cpu[0], .5)/1000, "µs-cpu-unset")
				b.ReportMetric(quantile(cpu[1], .5)/quantile(cpu[0], .5), "cpu-set/unset")
				b.ReportMetric(quantile(cpu[1], .1)/quantile(cpu[0], .1), "cpu-set/unset-p10")
				b.ReportMetric(quantile(took[1], .5)/quantile(took[0], .5), "time-set/unset")
				b.ReportMetric(quantile(ratio, .25), "q1")
				b.ReportMetric(quantile(ratio, .5), "q2")
				b.ReportMetric(quantile(ratio, .75), "q3")
			}
		})
	}
}

func quantile(of []float64, q float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[int(q*float64(len(of)-1))]
}

// BenchmarkUnobserved is a hot get and a put without an observer, to compare two commits.
func BenchmarkUnobserved(b *testing.B) {
	do := observed(b, ctxpage.Options{})
	for _, name := range []string{"get", "put"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n, from := 0, cpuTime()
			for b.Loop() {
				n++
				must(b, do[name](n))
			}
			b.ReportMetric(float64(cpuTime()-from)/float64(b.N)/1000, "µs-cpu/op")
		})
	}
}
