package archive

import (
	"context"
	"runtime"
	"sync"

	"github.com/ctxpage/ctxpage/manifest"
)

// leavesAhead is how many leaves are read at a time, and readersAhead how many readers do it.
const (
	leavesAhead  = 128
	readersAhead = 4
)

type records interface {
	Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error)
}

// EachAhead calls fn for the first size leaves, in order, until fn, a leaf or ctx fails. Most of the time goes into decoding
// them, so parts of them are read side by side: one for each reader is in memory, and the one that fn is shown. No reader is left when it returns.
func EachAhead(ctx context.Context, a records, size uint64, fn func(*manifest.Record) error) error {
	type part struct {
		records []*manifest.Record
		err     error
	}
	readers := min(runtime.GOMAXPROCS(0), readersAhead)
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	var ahead []chan part // in the order of their leaves
	for from := uint64(0); from < size || len(ahead) > 0; {
		for ; from < size && len(ahead) < readers; from += leavesAhead {
			at, to, next := from, min(from+leavesAhead, size), make(chan part, 1)
			ahead = append(ahead, next)
			reading.Go(func() {
				var p part
				for more := true; more && at < to; {
					var some []*manifest.Record
					some, p.err = a.Records(ctx, at, to, false, int(to-at))
					p.records, at = append(p.records, some...), at+uint64(len(some))
					more = p.err == nil && len(some) > 0
				}
				next <- p
			})
		}
		p := <-ahead[0]
		ahead = ahead[1:]
		for _, r := range p.records {
			if err := fn(r); err != nil {
				return err
			}
		}
		if p.err != nil {
			return p.err
		}
	}
	return nil
}
