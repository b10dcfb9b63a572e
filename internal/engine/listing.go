package engine

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// The order of listings: by id, or by the commit of the newest version, latest first. Both orders
// are kept as slices by idList, which is sorted only when a listing asks.
//
// A cursor names a place in an order, not a row: the artefact it was made at may be gone when the
// next page is asked for.

// listed returns the artefacts of a scope that a query lists, and the one behind which the next
// page begins; 0: there is none. The caller holds cat.mu for reading.
//
// By id, the walk ends at the first id without the prefix; by age, ids with the prefix are anywhere,
// so it goes on to the end. With Ever it ends after everAtOnce artefacts: few of them may pass.
func (s *Engine) listed(scope uint32, q *store.ScanQuery) (out []uint64, last uint64, err error) {
	c := s.cat
	prefix := q.Prefix
	if q.Filter != nil && strings.HasPrefix(q.Filter.IDPrefix, prefix) {
		prefix = q.Filter.IDPrefix
	}
	var match *matcher
	if !q.Filter.IsZero() {
		match = newMatcher(q.Filter)
	}
	ever := c.newEverMatch(scope, q.Ever)
	rows, err := c.after(scope, prefix, q)
	if err != nil {
		return nil, 0, err
	}
	for i, num := range rows {
		art := uint64(num)
		if ever != nil && i == everAtOnce {
			return out, uint64(rows[i-1]), nil
		}
		if !strings.HasPrefix(string(c.idBytes(num)), prefix) {
			if q.Newest {
				continue
			}
			break
		}
		if !q.Deleted && !c.art(art).live() {
			continue
		}
		if ever != nil && !ever.holds(c, art) {
			continue
		}
		ok := match == nil
		if !ok {
			if ok, err = s.artPasses(art, q.Filter, match); err != nil {
				return nil, 0, err
			}
		}
		if !ok {
			continue
		}
		if len(out) == q.Limit {
			return out, out[q.Limit-1], nil
		}
		out = append(out, art)
	}
	return out, 0, nil
}

// artPasses reports whether an artefact passes a filter, by the columns of its first page. A
// deleted artefact has no page, so its head is read.
func (s *Engine) artPasses(art uint64, f *store.Filter, match *matcher) (bool, error) {
	a := s.cat.art(art)
	if !a.live() {
		h, err := s.headLocked(format.HeadKey{Art: art, Version: a.version})
		return err == nil && f.Match(h), err
	}
	p := s.cat.page(uint64(a.first))
	w := narrowing{f: f}
	return match.holds(s.cat, p) && (!timed(f) || w.within(p.asOf, a.putAt)), nil
}

// after returns the artefacts behind a cursor.
func (c *catalogue) after(scope uint32, prefix string, q *store.ScanQuery) ([]uint32, error) {
	if !q.Newest {
		arts := c.scopes[scope-1].byID.sorted(c)
		from := sort.Search(len(arts), func(i int) bool {
			id := c.idBytes(arts[i])
			return string(id) >= prefix && (q.Cursor == "" || string(id) > q.Cursor)
		})
		return arts[from:], nil
	}
	arts := c.scopes[scope-1].byID.newest(c)
	if q.Cursor == "" {
		return arts, nil
	}
	at, id, ok := strings.Cut(q.Cursor, ".")
	lsn, err := strconv.ParseUint(at, 10, 64)
	if !ok || err != nil {
		return nil, store.Invalid("cursor", strconv.Quote(q.Cursor), "a cursor from the page before of a listing by the newest")
	}
	from := sort.Search(len(arts), func(i int) bool {
		a := c.art(uint64(arts[i]))
		return a.lsn < lsn || a.lsn == lsn && string(c.idBytes(arts[i])) > id
	})
	return arts[from:], nil
}

// cursor returns the cursor behind an artefact.
func (c *catalogue) cursor(art uint64, newest bool) string {
	a := c.art(art)
	if !newest {
		return c.id(a)
	}
	return strconv.FormatUint(a.lsn, 10) + "." + c.id(a)
}

// newest returns the artefacts by the commit of their newest version, latest first; within a commit
// by id. The first listing after a commit makes the order anew. The slice must not be changed.
func (l *idList) newest(c *catalogue) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byAge != nil && l.aged == c.lsn {
		return l.byAge
	}
	byAge := slices.Clone(l.arts)
	slices.SortFunc(byAge, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(c.art(uint64(b)).lsn, c.art(uint64(a)).lsn), bytes.Compare(c.idBytes(a), c.idBytes(b)))
	})
	l.byAge, l.aged = byAge, c.lsn
	return byAge
}
