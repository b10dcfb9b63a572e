package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Reads of versions. A head or a text is looked for in this order, and the order matters:
//
//	overlay    commits since the last checkpoint began
//	frozen     the overlay that a checkpoint is writing
//	rows       what checkpoints wrote
//
// Freeze and Thaw move rows down this list under cat.mu, so a reader that holds it, or that goes from top to bottom, finds
// a row at least once. The other direction would miss a row that is applied in between. A version below the floor of its
// artefact has no row at all; the row of the floor answers for it as gone.
//
// What is read from the rows is held against the audit (rowproof.go) before it is given, texts against the digest in
// their head. What comes from an overlay was written by this process or proved when the log was redone.

// Resolve: see the Store interface.
func (s *Engine) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if s.closed.Load() {
		return store.Located{}, store.ErrClosed
	}
	if _, err := s.doubts(ctx); err != nil { // the newest row may have been taken away, and the one before has its digest
		return store.Located{}, err
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, name := range scopes {
		if ref.Scope != "" && ref.Scope != name {
			continue
		}
		if err := s.doubted(name, ref.ID); err != nil {
			return store.Located{}, err
		}
		n := s.cat.byName[name]
		if n == 0 {
			continue
		}
		art := s.cat.lookup(n, ref.ID)
		if art == 0 {
			continue
		}
		a := s.cat.art(art)
		if ref.Version != 0 && ref.Version != a.version {
			return s.resolveOld(name, art, ref)
		}
		if a.pages == 0 {
			h, err := s.headLocked(HeadKey{art, a.version})
			if err != nil { // a row that was edited may say so, too
				return store.Located{}, err
			}
			if ref.Version == 0 && ref.Scope == "" {
				continue // deleted here: an ancestor's may stand
			}
			ref.Scope = name // for the error
			if h.ErasedBy != "" {
				return store.Located{}, fmt.Errorf("%w: %w", store.ErrNotFound, store.GoneError(h, ref.Page))
			}
			return store.Located{}, fmt.Errorf("%w: %s was deleted", store.ErrNotFound, ref)
		}
		return s.locate(name, art, ref)
	}
	return store.Located{}, fmt.Errorf("%w: %q", store.ErrNotFound, ref.ID)
}

func (s *Engine) locate(scope string, art uint64, ref store.Ref) (store.Located, error) {
	a := s.cat.art(art)
	nums := s.cat.nums(art)
	if ref.Page > len(nums) {
		ref.Scope = scope // for the error
		return store.Located{}, fmt.Errorf("%w: %s has %d pages", store.ErrNotFound, ref, len(nums))
	}
	if ref.Page > 0 {
		nums = nums[ref.Page-1 : ref.Page]
	}
	l := store.Located{Scope: scope, Version: a.version, LSN: a.lsn, Current: true, Expires: s.cat.page(nums[0]).expires}
	if a.by != 0 {
		l.By, l.ByID = s.cat.art(a.by).first, s.cat.supersededBy(a)
	}
	l.Pages = make([]store.PageKey, len(nums))
	for i, n := range nums {
		l.Pages[i] = store.PageKey{Num: n, Version: a.version}
	}
	return l, nil
}

// resolveOld finds an older version. The caller holds cat.mu; head rows are read under it, which history can afford.
func (s *Engine) resolveOld(scope string, art uint64, ref store.Ref) (store.Located, error) {
	a := s.cat.art(art)
	ref.Scope = scope // for the errors
	if ref.Version > a.version {
		return store.Located{}, fmt.Errorf("%w: %s has versions up to %d", store.ErrNotFound, ref, a.version)
	}
	h, err := s.headLocked(HeadKey{art, ref.Version})
	if err != nil {
		return store.Located{}, err
	}
	if h.Gone {
		return s.locateGone(scope, h, ref)
	}
	l := store.Located{Scope: scope, Version: h.Version, LSN: h.LSN, Expires: codec.Micros(h.ExpiresAt)}
	for i := range h.Rows {
		if ref.Page == 0 || ref.Page == i+1 {
			l.Pages = append(l.Pages, store.PageKey{Num: h.Rows[i].Num, Version: h.Version})
		}
	}
	if len(l.Pages) == 0 { // a deletion, or a page that the version does not have
		return store.Located{}, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
	}
	return l, nil
}

func (s *Engine) head(k HeadKey) (*store.Head, error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.headLocked(k)
}

// headLocked reads a head: overlay first, then bbolt. The other order would miss a row applied in between.
func (s *Engine) headLocked(k HeadKey) (h *store.Head, err error) {
	row := s.overlay.heads[k]
	if row == nil && s.frozen != nil {
		row = s.frozen.heads[k]
	}
	if row != nil {
		return DecodeHead(row, s.cat.scopeName)
	}
	err = s.rows.View(func(tx Reader) error {
		h, err = s.headIn(tx, k)
		return err
	})
	return h, err
}

// loading is a Load under way. Names are taken along with the catalogue's lock, because nothing may take that lock
// inside a transaction of bbolt: a reader there who waits for it, while the checkpoint waits for readers to remap the
// file, while a search holds the lock and waits for the checkpoint, would wait for ever.
type loading struct {
	s       *Engine
	want    store.Want
	out     []store.Loaded
	arts    []uint64
	newest  []uint32 // version up to which the artefact has a head row each
	rows    [][]byte // of heads, from the overlay
	missing []int    // what the overlay did not have, in whole or in part
	names   map[uint32]string
	groups  map[uint64]string
	heads   map[HeadKey]*store.Head
	later   []unnamed
}

// Load: see the Store interface. Pages outside the chain give ErrNotFound, as if they did not exist.
func (s *Engine) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if err := s.Readable(ctx); err != nil {
		return nil, err
	}
	l := loadings.Get().(*loading)
	defer l.done()
	l.begin(s, want, len(keys))
	l.look(scopes, keys)
	for i := range keys {
		if l.rows[i] == nil {
			continue
		}
		if err := l.head(i, l.rows[i]); err != nil {
			return nil, s.Corrupt("head in the log", err)
		}
	}
	if len(l.missing) > 0 {
		if err := s.rows.View(l.fromFile); err != nil {
			return nil, err
		}
	}
	l.proveLater()
	l.texts()
	return l.out, nil
}

// loadings are those that nobody uses: a Load of one page is mostly what it allocates.
var loadings = sync.Pool{New: func() any {
	return &loading{names: map[uint32]string{}, groups: map[uint64]string{}, heads: map[HeadKey]*store.Head{}}
}}

// maxLoading is how many pages the memory of a Load may be for to be used again.
const maxLoading = 256

// begin makes room for n pages.
func (l *loading) begin(s *Engine, want store.Want, n int) {
	l.s, l.want, l.out = s, want, make([]store.Loaded, n)
	l.arts, l.newest, l.rows = slices.Grow(l.arts[:0], n)[:n], slices.Grow(l.newest[:0], n)[:n], slices.Grow(l.rows[:0], n)[:n]
	clear(l.arts)
	clear(l.newest)
	clear(l.rows)
}

// done gives l back. It keeps nothing of what it read.
func (l *loading) done() {
	if len(l.arts) > maxLoading {
		return
	}
	l.s, l.out = nil, nil
	clear(l.rows)
	clear(l.later)
	l.missing, l.later = l.missing[:0], l.later[:0]
	clear(l.names)
	clear(l.groups)
	clear(l.heads)
	loadings.Put(l)
}

// texts holds what was read against the digests of the heads.
func (l *loading) texts() {
	if l.want != store.WantText {
		return
	}
	for i := range l.out {
		o := &l.out[i]
		if o.Err != nil || o.Head == nil {
			continue
		}
		if o.Err = l.s.provedText(o.Key.Num, &o.Head.Rows[o.Page-1], o.Text); o.Err != nil {
			o.Text = ""
		}
	}
}

// look finds the pages in the catalogue and takes what the overlay has of them, under one read lock.
func (l *loading) look(scopes store.Scopes, keys []store.PageKey) {
	c := l.s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	var chain []uint32 // nil: the operator's view of all scopes
	if scopes != nil {
		chain = c.chain(scopes)
	}
	for i, k := range keys {
		p, err := c.visible(k.Num, chain)
		if err != nil {
			l.out[i] = store.Loaded{Key: k, Err: err}
			continue
		}
		k.Version = cmp.Or(k.Version, p.head, p.version)
		l.out[i], l.arts[i], l.names[p.scope] = store.Loaded{Key: k, Page: int(p.page)}, p.art, c.scopeName(p.scope)
		l.newest[i] = c.art(p.art).version
		l.nameGroup(p)
		l.rows[i] = l.s.overlayHead(HeadKey{p.art, k.Version})
		whole := l.rows[i] != nil
		if l.want == store.WantText {
			var ok bool
			l.out[i].Text, ok = l.s.overlayText(k.Num)
			whole = whole && ok
		}
		if !whole {
			l.missing = append(l.missing, i)
		}
	}
}

// head decodes a head row for a page, once for all pages of it.
func (l *loading) head(i int, row []byte) (err error) {
	o := &l.out[i]
	k := HeadKey{l.arts[i], o.Key.Version}
	if l.heads[k] == nil {
		if l.heads[k], err = DecodeHead(row, func(n uint32) string { return l.names[n] }); err != nil {
			return err
		}
	}
	l.take(o, l.heads[k])
	return nil
}

// take says what a decoded head has of a page.
func (*loading) take(o *store.Loaded, h *store.Head) {
	if o.Page > len(h.Rows) || h.Rows[o.Page-1].Num != o.Key.Num {
		o.Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if o.Head = h; h.Gone {
		o.Err = store.GoneError(h, o.Page)
	}
}

// fromFile reads from bbolt what the overlay did not have.
func (l *loading) fromFile(tx Reader) error {
	for _, i := range l.missing {
		o := &l.out[i]
		if o.Head == nil && o.Err == nil {
			l.headIn(tx, i)
		}
		if l.want == store.WantText && o.Err == nil && o.Text == "" {
			o.Text, o.Err = l.s.textIn(tx, o.Key.Num) // an empty text has a row, too
		}
	}
	return nil
}

func (l *loading) headIn(tx Reader, i int) {
	o := &l.out[i]
	k := HeadKey{l.arts[i], o.Key.Version}
	if h := l.heads[k]; h != nil { // its checksum was looked at with the first of its pages
		l.take(o, h)
		return
	}
	key := headRowKey(k)
	v := tx.Get(TableMeta, key)
	if v == nil && o.Key.Version > l.newest[i] {
		o.Err = fmt.Errorf("%w: version %d of page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if v == nil {
		if row, err := floorOf(tx, k); row != nil && err == nil {
			h, err := DecodeHead(row, func(n uint32) string { return l.names[n] })
			if err == nil {
				err = l.prove(HeadKey{k.Art, h.Version}, row)
			}
			if err == nil {
				o.Head = h.Below(k.Version)
				o.Err = store.GoneError(o.Head, o.Page)
				return
			}
		}
	}
	row, err := codec.Unseal('m', key, v)
	if err == nil {
		err = l.prove(k, row)
	}
	if err == nil {
		err = l.head(i, row)
	}
	if err != nil {
		o.Err = l.s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
}

// prove compares a row with its digest. An older version may have been in another group than its artefact is now: its
// name is asked for when the transaction of bbolt is over.
func (l *loading) prove(k HeadKey, row []byte) error {
	t := DecodeHot(&codec.Decoder{B: row})
	if _, known := l.groups[t.group]; t.group != 0 && !known {
		l.later = append(l.later, unnamed{k, slices.Clone(row)})
		return nil
	}
	return l.s.provedHead(k, row, func(t *hot) (scope, group string) { return l.names[t.Scope], l.groups[t.group] })
}

// unnamed is a row of a group whose name is not known yet.
type unnamed struct {
	k   HeadKey
	row []byte
}

// proveLater compares the rows that prove put off.
func (l *loading) proveLater() {
	if len(l.later) == 0 {
		return
	}
	l.s.cat.mu.RLock()
	defer l.s.cat.mu.RUnlock()
	for _, u := range l.later {
		err := l.s.provedHead(u.k, u.row, l.s.cat.names)
		if err == nil {
			continue
		}
		for i := range l.out {
			if l.arts[i] == u.k.Art && l.out[i].Key.Version == u.k.Version {
				l.out[i] = store.Loaded{Key: l.out[i].Key, Page: l.out[i].Page, Err: l.s.Corrupt(fmt.Sprintf("head row %x", headRowKey(u.k)), err)}
			}
		}
	}
}

// withoutLost is a head without what would make a page pass for one of its own whose text can no longer be read: putting
// the text again must bring it back.
func (s *Engine) withoutLost(h *store.Head, pages []store.NewPage) (*store.Head, error) {
	if h == nil {
		return nil, nil
	}
	var same []int
	s.cat.mu.RLock()
	for i := range min(len(h.Rows), len(pages)) {
		if _, ok := s.overlayText(h.Rows[i].Num); !ok && h.Rows[i].Hash == pages[i].Hash {
			same = append(same, i)
		}
	}
	s.cat.mu.RUnlock()
	if len(same) == 0 {
		return h, nil
	}
	out := *h
	out.Rows = slices.Clone(h.Rows)
	err := s.rows.View(func(tx Reader) error {
		for _, i := range same {
			text, err := s.textIn(tx, h.Rows[i].Num)
			if err == nil {
				err = s.provedText(h.Rows[i].Num, &h.Rows[i], text)
			}
			if err != nil {
				out.Rows[i].Digest = [32]byte{} // of no text
			}
		}
		return nil
	})
	return &out, err
}

// nameGroup notes what the group of a page is called. The caller holds cat.mu.
func (l *loading) nameGroup(p *pageCol) {
	if g := l.s.cat.art(p.art).group; g != 0 {
		l.groups[g] = l.s.cat.groups[g-1].name
	}
}

func (s *Engine) scopeName(n uint32) string {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.scopeName(n)
}

// visible refuses pages outside the chain.
func (c *catalogue) visible(num uint64, chain []uint32) (*pageCol, error) {
	if num == 0 || num > uint64(len(c.pages)) {
		return nil, fmt.Errorf("%w: page %d", store.ErrNotFound, num)
	}
	p := c.page(num)
	if p.art == 0 {
		return nil, fmt.Errorf("%w: page %d", store.ErrGone, num)
	}
	if chain != nil && !slices.Contains(chain, p.scope) {
		return nil, fmt.Errorf("%w: page %d", store.ErrNotFound, num)
	}
	return p, nil
}

func (s *Engine) overlayHead(k HeadKey) []byte {
	if row := s.overlay.heads[k]; row != nil {
		return row
	}
	if s.frozen != nil {
		return s.frozen.heads[k]
	}
	return nil
}

func (s *Engine) overlayText(num uint64) (string, bool) {
	if t, ok := s.overlay.texts[num]; ok {
		return t, true
	}
	if s.frozen != nil {
		t, ok := s.frozen.texts[num]
		return t, ok
	}
	return "", false
}

// Mark: see store.Store. Commits are visible before they are answered, so readers see all of them.
func (s *Engine) Mark() store.Mark {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return store.Mark{LSN: s.cat.lsn}
}

// Refresh: see store.Store. It waits for what is in flight here, and takes what others committed.
func (s *Engine) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	if err := s.Readable(ctx); err != nil {
		return store.Mark{}, err
	}
	if err := s.Failure(); err != nil {
		return store.Mark{}, err
	}
	if !s.opts.ReadOnly {
		if err := s.log.Sync(ctx, 0, nil); ctx.Err() != nil {
			return store.Mark{}, ctx.Err()
		} else if err != nil {
			return store.Mark{}, s.syncError(ctx, err)
		}
	}
	if err := s.log.Follow(ctx, 0); err != nil {
		return store.Mark{}, fmt.Errorf("ctxpage: log: %w", err)
	}
	m := s.Mark()
	if m.LSN < atLeast {
		return m, store.Invalid("lsn", strconv.FormatUint(atLeast, 10), fmt.Sprintf("at most %d, the newest", m.LSN))
	}
	return m, nil
}

// Readable is asked first by what reads.
func (s *Engine) Readable(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// overlayRow looks a row up in the newer, then in the older overlay; the first that has the key answers.
func (s *Engine) overlayRow(get func(*Overlay) ([]byte, bool)) []byte {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if row, ok := get(s.overlay); ok || s.frozen == nil {
		return row
	}
	row, _ := get(s.frozen)
	return row
}

// row reads and checks a row of bbolt; nil when there is none. The result is a copy.
func (s *Engine) row(t Table, tag byte, key []byte) (out []byte, err error) {
	err = s.rows.View(func(tx Reader) error {
		v := tx.Get(t, key)
		if v == nil {
			return nil
		}
		row, err := codec.Unseal(tag, key, v)
		if err != nil {
			return s.Corrupt(fmt.Sprintf("row %x of %s", key, t), err)
		}
		out = append([]byte{}, row...)
		return nil
	})
	return out, err
}

// Info: see the Store interface.
func (s *Engine) Info(context.Context) (store.Info, error) {
	return store.Info{ID: s.info.ID, Secret: slices.Clone(s.info.Secret)}, nil
}
