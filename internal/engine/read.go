package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Reads of versions. A head or a text is looked for in this order, and the order matters:
//
//	overlay    commits since the last checkpoint began
//	frozen     the overlay that a checkpoint is writing
//	rows       what checkpoints wrote
//
// A checkpoint moves rows down this list under cat.mu. So a reader that holds cat.mu, or that
// goes from top to bottom, finds a row at least once. The other direction would miss a row that is
// applied in between. A version below the floor of its artefact has no row at all; the row of the
// floor answers for it as gone.
//
// A row is compared with the audit (audit.go) before it is returned, and a text with the digest
// in its head. An entry of an overlay needs no comparison: this process wrote it, or compared it
// when the log was redone.
//
// Errors: a version that is not in the catalogue is ErrNotFound, also for a page outside the
// caller's scopes, so that the error does not tell that it exists. A version that gc or an erase
// took is ErrGone or ErrErased. Damage is a CorruptError of that one page; the other pages of a
// Load are answered.

// Resolve implements store.Store. Scopes are tried in their order, nearest first. An artefact that
// is deleted in one scope lets the next answer, unless the reference names the scope or a
// version: then the deletion is the answer.
func (s *Engine) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if s.closed.Load() {
		return store.Located{}, store.ErrClosed
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	for _, name := range scopes {
		if ref.Scope != "" && ref.Scope != name {
			continue
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
		if ref.Version != 0 && ref.Version != s.cat.newestOf(a).version {
			return s.resolveOld(name, art, ref)
		}
		if !a.live() {
			h, err := s.headLocked(format.HeadKey{Art: art, Version: s.cat.newestOf(a).version})
			if err != nil { // a row that was edited may say so, too
				return store.Located{}, err
			}
			if ref.Version == 0 && ref.Scope == "" {
				continue // deleted here: an ancestor may have one
			}
			ref.Scope = name // for the error
			if h.ErasedBy != "" {
				return store.Located{}, fmt.Errorf("%w: %w", store.ErrNotFound, format.GoneError(h, ref.Page))
			}
			return store.Located{}, fmt.Errorf("%w: %s was deleted", store.ErrNotFound, ref)
		}
		return s.locate(name, art, ref)
	}
	return store.Located{}, fmt.Errorf("%w: %q", store.ErrNotFound, ref.ID)
}

// locate returns the pages of the newest version of an artefact. The caller holds cat.mu.
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
	newest := s.cat.newestOf(a)
	l := store.Located{Scope: scope, Version: newest.version, LSN: newest.lsn, Current: true, Expires: s.cat.expires(s.cat.page(uint64(nums[0])))}
	if a.retired() {
		l.By, l.ByID = uint64(s.cat.art(uint64(s.cat.succession(art).by)).first), s.cat.supersededBy(art)
	}
	l.Pages = make([]store.PageKey, len(nums))
	for i, n := range nums {
		l.Pages[i] = store.PageKey{Num: uint64(n), Version: newest.version}
	}
	return l, nil
}

// resolveOld finds an older version. The caller holds cat.mu. Head rows are read under it:
// references to old versions are rare.
func (s *Engine) resolveOld(scope string, art uint64, ref store.Ref) (store.Located, error) {
	newest := s.cat.newestOf(s.cat.art(art)).version
	ref.Scope = scope // for the errors
	if ref.Version > newest {
		return store.Located{}, fmt.Errorf("%w: %s has versions up to %d", store.ErrNotFound, ref, newest)
	}
	h, err := s.headLocked(format.HeadKey{Art: art, Version: ref.Version})
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

// head reads the head of a version, which must exist. It takes cat.mu.
func (s *Engine) head(k format.HeadKey) (*store.Head, error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.headLocked(k)
}

// headLocked reads a head: overlay first, then bbolt. The other order would miss a row applied in
// between.
func (s *Engine) headLocked(k format.HeadKey) (h *store.Head, err error) {
	if row := s.overlayHead(k); row != nil {
		return format.DecodeHead(row, s.cat.scopeName)
	}
	err = s.rows.View(func(tx Reader) error {
		h, err = s.headIn(tx, k)
		return err
	})
	return h, err
}

// headWithin is headLocked while a snapshot is open; nil: none is. A second snapshot inside the
// first would wait for a checkpoint that must remap the file, and that waits for the first to end.
func (s *Engine) headWithin(tx Reader, k format.HeadKey) (*store.Head, error) {
	if tx == nil {
		return s.headLocked(k)
	}
	if row := s.overlayHead(k); row != nil {
		return format.DecodeHead(row, s.cat.scopeName)
	}
	return s.headIn(tx, k)
}

// loading is a Load under way. Names are taken with the catalogue's lock, before the rows are read,
// because nothing may take that lock inside a transaction of bbolt. The deadlock would have three
// parties: a reader in a transaction that waits for the lock, a checkpoint that waits for readers
// to end so that it can remap the file, and a search that holds the lock and waits for the
// checkpoint.
//
// A Load runs in four steps, and each step leaves the lock of the previous one:
//
//	look        under cat.mu for reading: columns, names, and the rows and texts of the overlays
//	fromFile    in a snapshot of the rows: what the overlays did not have
//	proveLater  under cat.mu again: rows of versions whose group had another name
//	texts       no lock: texts are compared with the digests in their heads
//
// The slices arts, newest, rows and out are parallel to the keys that were asked for.
type loading struct {
	s       *Engine
	want    store.Want
	out     []store.Loaded
	arts    []uint64
	newest  []uint32 // the newest version of the artefact
	rows    [][]byte // of heads, from the overlay
	missing []int    // pages that the overlays did not have, or not completely
	names   map[uint32]string
	groups  map[uint64]string
	heads   map[format.HeadKey]*store.Head
	later   []unnamed
}

// loadTries bounds how often a page is looked for. A checkpoint may remove what gc or an erase took between look and fromFile,
// and then a row is missing that look promised. A live page becomes one that is gone, and then one that is forgotten.
const loadTries = 3

// Load implements store.Store. Pages outside the chain give ErrNotFound, as if they did not exist.
func (s *Engine) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if err := s.Readable(ctx); err != nil {
		return nil, err
	}
	out, err := s.loadOnce(scopes, keys, want)
	for try := 1; err == nil && try < loadTries; try++ {
		var at []int
		var again []store.PageKey
		for i := range out {
			if errors.Is(out[i].Err, store.ErrCorrupt) {
				at, again = append(at, i), append(again, keys[i])
			}
		}
		if at == nil {
			break
		}
		var found []store.Loaded
		found, err = s.loadOnce(scopes, again, want)
		for k := range found {
			out[at[k]] = found[k]
		}
	}
	return out, err
}

// loadOnce looks for pages once.
func (s *Engine) loadOnce(scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
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

// loadings are idle loadings: what a Load of one page costs is mostly allocation.
var loadings = sync.Pool{New: func() any {
	return &loading{names: map[uint32]string{}, groups: map[uint64]string{}, heads: map[format.HeadKey]*store.Head{}}
}}

// maxLoading is the number of pages up to which the memory of a Load is kept for the next one.
const maxLoading = 256

// begin prepares l for n pages.
func (l *loading) begin(s *Engine, want store.Want, n int) {
	l.s, l.want, l.out = s, want, make([]store.Loaded, n)
	l.arts, l.newest, l.rows = slices.Grow(l.arts[:0], n)[:n], slices.Grow(l.newest[:0], n)[:n], slices.Grow(l.rows[:0], n)[:n]
	clear(l.arts)
	clear(l.newest)
	clear(l.rows)
}

// done returns l to the pool without anything that it read.
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

// texts compares the texts with the digests in their heads.
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

// look finds the pages in the catalogue and takes the rows that the overlays have, under one read
// lock.
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
		n := c.numbers(p)
		k.Version = cmp.Or(k.Version, n.head, n.version)
		l.out[i], l.arts[i], l.names[p.scope] = store.Loaded{Key: k, Page: int(n.page)}, uint64(p.art), c.scopeName(p.scope)
		l.newest[i] = c.newestOf(c.art(uint64(p.art))).version
		l.nameGroup(p)
		l.rows[i] = l.s.overlayHead(format.HeadKey{Art: uint64(p.art), Version: k.Version})
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

// head decodes a head row for a page. Pages of one head share it.
func (l *loading) head(i int, row []byte) (err error) {
	o := &l.out[i]
	k := format.HeadKey{Art: l.arts[i], Version: o.Key.Version}
	if l.heads[k] == nil {
		if l.heads[k], err = format.DecodeHead(row, func(n uint32) string { return l.names[n] }); err != nil {
			return err
		}
	}
	l.take(o, l.heads[k])
	return nil
}

// take fills in what a decoded head says about a page.
func (*loading) take(o *store.Loaded, h *store.Head) {
	if o.Page > len(h.Rows) || h.Rows[o.Page-1].Num != o.Key.Num {
		o.Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if o.Head = h; h.Gone {
		o.Err = format.GoneError(h, o.Page)
	}
}

// fromFile reads from the rows what the overlays did not have.
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

// headIn reads the head of a page from a snapshot. Damage is the error of this page alone.
func (l *loading) headIn(tx Reader, i int) {
	o := &l.out[i]
	k := format.HeadKey{Art: l.arts[i], Version: o.Key.Version}
	if h := l.heads[k]; h != nil { // its checksum was looked at with the first of its pages
		l.take(o, h)
		return
	}
	key := format.HeadRowKey(k)
	v := tx.Get(TableMeta, key)
	if v == nil && o.Key.Version > l.newest[i] {
		o.Err = fmt.Errorf("%w: version %d of page %d", store.ErrGone, o.Key.Version, o.Key.Num)
		return
	}
	if v == nil {
		if row, err := floorOf(tx, k); row != nil && err == nil {
			h, err := format.DecodeHead(row, func(n uint32) string { return l.names[n] })
			if err == nil {
				err = l.prove(format.HeadKey{Art: k.Art, Version: h.Version}, row)
			}
			if err == nil {
				o.Head = format.BelowFloor(h, k.Version)
				o.Err = format.GoneError(o.Head, o.Page)
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

// prove compares a row with its digest. An older version may have been in another group than its
// artefact is now: its name is asked for when the transaction of bbolt is over.
func (l *loading) prove(k format.HeadKey, row []byte) error {
	t := format.DecodeHot(&codec.Decoder{B: row})
	if _, known := l.groups[t.Group]; t.Group != 0 && !known {
		l.later = append(l.later, unnamed{k, slices.Clone(row)})
		return nil
	}
	return l.s.provedHead(k, row, func(t *format.Hot) (scope, group string) { return l.names[t.Scope], l.groups[t.Group] })
}

// unnamed is a row whose group has no known name yet.
type unnamed struct {
	k   format.HeadKey
	row []byte
}

// proveLater compares the rows that prove postponed.
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
				l.out[i] = store.Loaded{Key: l.out[i].Key, Page: l.out[i].Page, Err: l.s.Corrupt(fmt.Sprintf("head row %x", format.HeadRowKey(u.k)), err)}
			}
		}
	}
}

// withoutLost returns a head in which pages whose text can no longer be read have no digest. Then
// no new page passes for a lost one, and putting the text again repairs it.
func (s *Engine) withoutLost(h *store.Head, pages []store.NewPage) (*store.Head, error) {
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
				out.Rows[i].Digest = [32]byte{} // no text has it
			}
		}
		return nil
	})
	return &out, err
}

// nameGroup notes the name of the group of a page. The caller holds cat.mu.
func (l *loading) nameGroup(p *pageCol) {
	if g := l.s.cat.art(uint64(p.art)).group; g != 0 {
		l.groups[uint64(g)] = l.s.cat.groups[g-1].name
	}
}

// scopeName is the catalogue's scopeName for a caller that does not hold cat.mu.
func (s *Engine) scopeName(n uint32) string {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return s.cat.scopeName(n)
}

// visible returns the column of a page, or an error for a page outside the chain. A nil chain sees
// all scopes.
func (c *catalogue) visible(num uint64, chain []uint32) (*pageCol, error) {
	if num == 0 || num > uint64(c.pages.len()) {
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

// overlayHead is the row of a head, or what stands for one below a floor; nil: it is in the rows.
// The caller holds cat.mu. The newer overlay goes first: it may have a tombstone of what the older
// one has whole.
func (s *Engine) overlayHead(k format.HeadKey) []byte {
	for _, o := range [...]*overlay{s.overlay, s.frozen} {
		if o == nil {
			continue
		}
		if row := o.heads[k]; row != nil {
			return row
		}
		if floor := o.floors[k.Art]; k.Version < floor {
			return s.belowFloor(o.heads[format.HeadKey{Art: k.Art, Version: floor}], k)
		}
	}
	return nil
}

// overlayText returns a text from the overlays. The caller holds cat.mu.
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

// Mark implements store.Store. Commits are visible before they are answered, so readers see at
// least the answered ones.
func (s *Engine) Mark() store.Mark {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return store.Mark{LSN: s.cat.lsn}
}

// Refresh implements store.Store. It waits for the commits in flight here, and follows the commits of
// other hosts. atLeast beyond the newest commit is an error of the caller: an LSN that was never
// given cannot be waited for.
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

// overlayRow looks a row up in the newer overlay, then in the older one. The first that has the key
// answers, even with a row that says deleted.
func (s *Engine) overlayRow(get func(*overlay) ([]byte, bool)) []byte {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if row, ok := get(s.overlay); ok || s.frozen == nil {
		return row
	}
	row, _ := get(s.frozen)
	return row
}

// row reads and checks a row; nil: there is none. The result is a copy.
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

// Info implements store.Store.
func (s *Engine) Info(context.Context) (store.Info, error) {
	return store.Info{ID: s.info.ID, Secret: slices.Clone(s.info.Secret), Host: s.info.Host}, nil
}
