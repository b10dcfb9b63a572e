package engine

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/nearest"
	"github.com/ctxpage/ctxpage/store"
)

// nearPart is how many page numbers are read in one snapshot.
const nearPart = 8192

// load reads the vectors of a model. Several goroutines each take the next page numbers, read and
// quantise their vectors into sets of their own, and add those to the sets of the model. The order
// in which they finish decides only where a vector lies in its set; the answers do not depend on
// that. Memory: what the goroutines hold beside the sets is one part each. stop ends it between a
// thousand rows.
func (m *nearModel) load(view func(func(Reader) error) error, hash uint64, scopes []uint32, stop <-chan struct{}) error {
	parts := (len(scopes) + nearPart - 1) / nearPart
	var mu sync.Mutex // of m
	var next atomic.Int64
	var failed atomic.Bool
	var reading sync.WaitGroup
	done, errs := 0, make([]error, min(runtime.GOMAXPROCS(0), maxReaders, max(parts, 1)))
	for w := range errs {
		reading.Go(func() {
			own := nearRead{name: m.name, sets: map[nearKey]*nearest.Set{}}
			for i := int(next.Add(1)) - 1; i < max(parts, 1) && !failed.Load(); i = int(next.Add(1)) - 1 {
				from, to := uint64(i)*nearPart+1, uint64(min((i+1)*nearPart, len(scopes)))
				if errs[w] = view(func(tx Reader) error { return own.load(tx, hash, from, to, scopes, stop) }); errs[w] != nil {
					failed.Store(true)
					return
				}
				mu.Lock()
				done++
				m.join(&own, parts, done)
				mu.Unlock()
			}
		})
	}
	reading.Wait()
	return errors.Join(errs...)
}

// nearRead is what one goroutine has read and not yet handed over.
type nearRead struct {
	name string
	sets map[nearKey]*nearest.Set
	nums []uint64
}

// load puts the vectors of some pages, from and to included, into the sets. Damaged rows count as
// none, and so do those of pages that are not there. scopes has the number of each page's scope, 0
// where there is no page. hash is only 64 bits of the model's name, so the name in the row is
// compared too.
func (r *nearRead) load(tx Reader, hash, from, to uint64, scopes []uint32, stop <-chan struct{}) error {
	n := 0
	var buf []float32
	for k, sealed := range tx.From(TableVec, vecKey{num: from}.row()) {
		if n++; n%1024 == 0 {
			select {
			case <-stop:
				return store.ErrClosed
			default:
			}
		}
		num, model, ok := vecKeyOf(k)
		if ok && num > to {
			return nil
		}
		if !ok || model != hash || num < from || scopes[num-1] == 0 {
			continue
		}
		row, err := codec.Unseal('v', k, sealed)
		if err != nil {
			continue
		}
		if name, v, err := decodeVectorTo(buf, row); err == nil && name == r.name {
			buf = v
			setOf(r.sets, nearKey{scopes[num-1], len(v)}).Put(num, v)
			r.nums = append(r.nums, num)
		}
	}
	return nil
}

// setOf returns a set, or makes it.
func setOf(sets map[nearKey]*nearest.Set, k nearKey) *nearest.Set {
	s := sets[k]
	if s == nil {
		s = nearest.NewSet(k.dims)
		sets[k] = s
	}
	return s
}

// join moves the vectors of a part into the sets of the model. When a set has its first few
// thousand, it makes room for those that the parts still to come are likely to have: to copy a
// growing set was a quarter of the time.
func (m *nearModel) join(part *nearRead, parts, done int) {
	const few = 4096
	for k, from := range part.sets {
		if from.Len() == 0 {
			continue
		}
		to := setOf(m.sets, k)
		if had, has := to.Len(), to.Len()+from.Len(); had < few && has >= few {
			to.Reserve(has * parts / done * 17 / 16)
		}
		to.Join(from)
		from.Clear()
	}
	for _, num := range part.nums {
		m.has.set(num, true)
	}
	part.nums = part.nums[:0]
}
