package engine

import (
	"context"
	"errors"
	mathbits "math/bits"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/store"
)

// Vectors as candidates. The vectors of a model that is asked for are kept in memory, quantised
// (internal/vector), in a set for each scope, so that a question costs what its scopes have and
// not what the file has. The first question by a model reads its rows; from then on PutVectors and
// gc keep the sets right.
//
// Reading the rows takes seconds for a million, so no question does it itself: goroutines read
// (near.go), and questions wait until their deadline. A question that stops waiting loses
// nothing: the next one finds the vectors read, or further on. They read without a lock. Before
// they begin, the model is listed: vectors that are put or dropped during the read are noted, and
// replace those that were read. The overlays are copied at the same moment, and the snapshots of
// the rows are taken after it, so a vector that a checkpoint moves is seen at least once.
//
// Not stored: the quantised codes. A file with the codes is read in a fraction of the time
// (bench/README.md), but a process that added vectors would write 400 MB of it for a million when
// it closes, and it would be one more copy of what a text says for erase, gc and restore to know.
// Vectors do not move the LSN, so nothing in the database tells yet whether such a file is of the
// rows that are there.

// nearKept is the number of models that stay in memory. A host has one; a server may have hosts with several.
const nearKept = 4

// nearModels are the models in memory, oldest first. The list and what the models have are under
// cat.mu.
//
// More than nearKept may be in the list while several are being read at once: a model that is being
// read is not dropped.
type nearModels struct{ last []*nearModel }

// nearModel holds the vectors of one model in memory.
//
//	listed    since is a map; puts and drops are noted there        the goroutine reads the rows
//	ready     since is nil; puts and drops change the sets          read is closed
//	failed    not in the list any more; err says why                read is closed, and the next question lists it anew
type nearModel struct {
	name string
	sets map[nearKey]*vector.Set
	has  bits // by page number
	// read is closed when all are read, or err says why not.
	read chan struct{}
	err  error
	// While they are read: vectors that were put, and pages that were dropped (nil). Then it is
	// nil.
	since map[uint64][]float32
}

// ready says that all vectors are there. The caller holds cat.mu.
func (m *nearModel) ready() bool { return m.since == nil }

// nearKey names a set. Vectors of one model may differ in length, and those that differ cannot be
// compared.
type nearKey struct {
	scope uint32
	dims  int
}

// model finds a model in memory. The caller holds cat.mu.
func (n *nearModels) model(name string) *nearModel {
	for _, m := range n.last {
		if m.name == name {
			return m
		}
	}
	return nil
}

// put keeps a vector of a model that is in memory. The caller holds cat.mu for writing.
func (n *nearModels) put(name string, scope uint32, num uint64, v []float32) {
	switch m := n.model(name); {
	case m == nil:
	case !m.ready():
		m.since[num] = slices.Clone(v)
	default:
		m.put(scope, num, v)
	}
}

// remove forgets pages that gc dropped. The caller holds cat.mu for writing.
func (n *nearModels) remove(nums []uint64) {
	for _, m := range n.last {
		for _, num := range nums {
			if !m.ready() {
				m.since[num] = nil
				continue
			}
			for _, s := range m.sets {
				s.Remove(num)
			}
			m.has.set(num, false)
		}
	}
}

// put keeps the vector of a page in the set of its scope and length. The caller holds cat.mu for
// writing, or is the only one that knows m.
func (m *nearModel) put(scope uint32, num uint64, v []float32) {
	if m.has.has(num) {
		for k, s := range m.sets { // its predecessor may have had another length
			if k.scope == scope && k.dims != len(v) {
				s.Remove(num)
			}
		}
	}
	setOf(m.sets, nearKey{scope, len(v)}).Put(num, v)
	m.has.set(num, true)
}

// nearModel returns a model whose vectors are in memory. The first caller has them read.
func (s *Engine) nearModel(ctx context.Context, name string) (*nearModel, error) {
	m := s.nearListed(name)
	select {
	case <-m.read:
		return m, m.err
	default:
	}
	select {
	case <-m.read:
		return m, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.stop:
		return nil, store.ErrClosed
	}
}

// nearListed finds a model in the list, or lists it and begins to read its vectors.
func (s *Engine) nearListed(name string) *nearModel {
	s.cat.mu.RLock()
	m := s.near.model(name)
	s.cat.mu.RUnlock()
	if m != nil {
		return m
	}
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if m := s.near.model(name); m != nil {
		return m
	}
	m = &nearModel{name: name, sets: map[nearKey]*vector.Set{}, read: make(chan struct{}), since: map[uint64][]float32{}}
	s.near.last = append(s.near.last, m)
	hash, unfiled := modelHash(name), map[uint64][]byte{}
	for _, o := range []*overlay{s.frozen, s.overlay} {
		if o == nil {
			continue
		}
		for k, row := range o.vecs {
			if k.model == hash {
				unfiled[k.num] = row
			}
		}
	}
	scopes := s.cat.scopesOf()
	go func() {
		defer close(m.read)
		m.err = m.load(s.rows.View, hash, scopes, s.stop)
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		s.nearLoaded(m, unfiled)
	}()
	return m
}

// nearLoaded adds to what was read of a model what the overlays had, and what was put and dropped
// since. The caller holds cat.mu for writing.
func (s *Engine) nearLoaded(m *nearModel, unfiled map[uint64][]byte) {
	if m.err != nil {
		s.near.last = slices.DeleteFunc(s.near.last, func(x *nearModel) bool { return x == m })
		return
	}
	for num, row := range unfiled {
		if v := vectorOf(m.name, row); v != nil {
			m.put(s.cat.page(num).scope, num, v)
		}
	}
	for num, v := range m.since {
		if v != nil {
			m.put(s.cat.page(num).scope, num, v)
		}
	}
	m.forgetGone(s.cat)
	m.since = nil
	surplus := len(s.near.last) - nearKept
	s.near.last = slices.DeleteFunc(s.near.last, func(x *nearModel) bool {
		surplus--
		return surplus >= 0 && x.ready() && x != m
	})
}

// scopesOf copies the scope of each page by number-1; 0: the page is not there.
func (c *catalogue) scopesOf() []uint32 {
	out := make([]uint32, c.pages.len())
	for num, p := range c.pages.all() {
		if c.has(num) {
			out[num-1] = p.scope
		}
	}
	return out
}

// forgetGone removes the vectors of pages that were dropped while the rows were read.
func (m *nearModel) forgetGone(c *catalogue) {
	for i, word := range m.has {
		for ; word != 0; word &= word - 1 {
			if num := uint64(i)*64 + uint64(mathbits.TrailingZeros64(word)); !c.has(num) {
				for _, s := range m.sets {
					s.Remove(num)
				}
				m.has.set(num, false)
			}
		}
	}
}

// counted returns the pages whose vectors count for a listing of those without: of the length that
// is asked for, and not of zeros. The caller holds cat.mu.
func (m *nearModel) counted(q *store.ScanQuery) bits {
	out, copied := m.has, false
	for k, s := range m.sets {
		other := q.Numbers > 0 && k.dims != q.Numbers
		if s.Len() == 0 || !other && (!q.Zeros || !s.Zeros()) {
			continue
		}
		if !copied {
			out, copied = slices.Clone(m.has), true
		}
		for num := range s.Numbers(!other) {
			out.set(num, false)
		}
	}
	return out
}

// addNear proposes the pages with the nearest vectors, as far as they are near at all. Excluded pages are skipped and take no place
// among them.
func (f *finding) addNear(m *nearModel) {
	v, near := &f.corpus, f.q.Near
	f.asks = vector.NewQuestion(near.Vector)
	f.sets = f.sets[:0]
	for i, scope := range v.chain {
		if s := m.sets[nearKey{scope, len(near.Vector)}]; s != nil && !slices.Contains(v.chain[:i], scope) {
			f.sets = append(f.sets, s)
		}
	}
	see := vector.Visible{Only: v.numbers(), Shown: func(num uint64) bool {
		live, ok := v.Resolve(num)
		return ok && live == num
	}}
	if v.past == nil {
		see.Live = v.c.current // pages that are not live have a bit in Only, and a vector until gc
	}
	for _, h := range f.finder.Search(f.sets, f.asks, near.K, see) {
		if h.Cosine < format.NearFloor {
			break
		}
		f.found = append(f.found, proposal{num: h.Num, near: true, cosine: h.Cosine})
	}
}

// compare sets the cosines of all candidates, however they were found, and what
// their neighbours lend. The candidates are in the order of what was found.
func (f *finding) compare(hits []store.Candidate) {
	cosines := make([]float64, len(hits))
	found := f.found
	f.others = f.others[:0]
	for i := range hits {
		h := &hits[i]
		for ; len(found) > 0 && found[0].num == h.Key.Num; found = found[1:] {
			if found[0].near {
				cosines[i], h.Cosine = found[0].cosine, &cosines[i]
			}
		}
		if h.Cosine == nil {
			f.others = append(f.others, h.Key.Num)
		}
	}
	computed := f.finder.Cosines(f.sets, f.asks, f.others)
	for i := range hits {
		h := &hits[i]
		if len(computed) > 0 && computed[0].Num == h.Key.Num {
			cosines[i], h.Cosine = computed[0].Cosine, &cosines[i]
			computed = computed[1:]
		}
		h.Beside = f.beside(h.Key.Num)
	}
}

// cosine returns the cosine between the question and the vector of a page; false: the page has none
// in the sets of this question.
func (f *finding) cosine(num uint64) (float64, bool) {
	for _, s := range f.sets {
		if c, ok := s.Cosine(f.asks, num); ok {
			return c, true
		}
	}
	return 0, false
}

// beside is the score that the neighbours of a page lend it.
func (f *finding) beside(num uint64) (lent float64) {
	v := &f.corpus
	group, pos := v.Group(num)
	if group == 0 {
		return 0
	}
	for by, share := range [...]float64{1: format.LendNext, 2: format.LendAfter} {
		if by == 0 {
			continue
		}
		for _, at := range [...]int{pos - by, pos + by} {
			if n, ok := v.At(group, at); ok && v.Shown(n) {
				c, _ := f.cosine(n)
				lent = max(lent, float64(share*c))
			}
		}
	}
	return lent
}

// scanUnembedded lists the pages of a chain that have no vector yet. In a small chain it looks at
// all pages of the chain. In a large one it looks at all pages of the file that have no vector, 64
// pages with each word of bits.
func (s *Engine) scanUnembedded(ctx context.Context, q store.ScanQuery) (out store.ScanPage, err error) {
	m, err := s.nearModel(ctx, q.Model)
	if err != nil {
		return out, err
	}
	after := uint64(0)
	if q.Cursor != "" {
		if after, err = strconv.ParseUint(q.Cursor, 10, 64); err != nil {
			return out, store.Invalid("cursor", strconv.Quote(q.Cursor), "a cursor from the page before")
		}
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	out.LSN = s.cat.lsn
	chain := s.cat.chain(q.Scopes)
	last, more := uint64(0), false
	for num := range s.cat.unembedded(m.counted(&q), chain) {
		out.Count++
		switch {
		case num <= after:
		case len(out.Keys) < q.Limit:
			out.Keys = append(out.Keys, store.PageKey{Num: num, Version: s.cat.numbers(s.cat.page(num)).head})
			last = num
		default:
			more = true
		}
	}
	if more {
		out.Next = strconv.FormatUint(last, 10)
	}
	return out, nil
}

// unembedded returns the live pages of a chain without a vector, rising.
func (c *catalogue) unembedded(have bits, chain []uint32) func(yield func(num uint64) bool) {
	wanted := func(num uint64) bool {
		p := c.page(num)
		return slices.Contains(chain, p.scope) && p.kind != store.KindSystem && p.prov >= store.Tool
	}
	return func(yield func(num uint64) bool) {
		for _, num := range c.without(have, chain) {
			if wanted(num) && !yield(num) {
				return
			}
		}
	}
}

// without returns live pages that have no vector, rising, among them all pages of a chain.
func (c *catalogue) without(have bits, chain []uint32) (nums []uint64) {
	total, mine := 0, 0
	lacks := func(i int) uint64 {
		if i < len(have) {
			return c.current[i] &^ have[i]
		}
		return c.current[i]
	}
	for i := range c.current {
		total += mathbits.OnesCount64(lacks(i))
	}
	for _, n := range chain {
		mine += c.scope(n).arts
	}
	if total > 4*mine+1024 { // most of them are elsewhere
		for i, n := range chain {
			if slices.Contains(chain[:i], n) {
				continue
			}
			for _, art := range c.scope(n).byID.all() {
				for _, n := range c.nums(uint64(art)) {
					num := uint64(n)
					if c.current.has(num) && !have.has(num) {
						nums = append(nums, num)
					}
				}
			}
		}
		slices.Sort(nums)
		return nums
	}
	for i := range c.current {
		for word := lacks(i); word != 0; word &= word - 1 {
			nums = append(nums, uint64(i)*64+uint64(mathbits.TrailingZeros64(word)))
		}
	}
	return nums
}

// nearPart is the number of pages that are read in one snapshot.
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
			own := nearRead{name: m.name, sets: map[nearKey]*vector.Set{}}
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

// nearRead holds the vectors that one goroutine has read and not yet handed over.
type nearRead struct {
	name string
	sets map[nearKey]*vector.Set
	nums []uint64
}

// load puts the vectors of some pages, from and to included, into the sets. Damaged rows count as
// none, and so do rows of pages that are not there. scopes has the number of each page's scope, 0
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
func setOf(sets map[nearKey]*vector.Set, k nearKey) *vector.Set {
	s := sets[k]
	if s == nil {
		s = vector.NewSet(k.dims)
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
