package lexical

import "slices"

// columns holds what a query asks of each page version in the index: its length
// and its group, by page number. Page numbers are dense, so these are plain
// slices of 12 bytes a page; a number that is not in the index has scope 0.
// The integer statistics of scopes and groups are kept here too.
type columns struct {
	base   uint64 // page number of element 0
	length []uint32
	group  []uint32 // index into groups
	scope  []uint32 // index into scopes

	scopes  []scopeStats // element 0 is nobody's
	scopeAt map[uint32]uint32
	groups  []groupStats // element 0: no group
	groupAt map[groupKey]uint32
}

type scopeStats struct {
	id            uint32
	pages, length uint64
	groups        uint64 // groups with a page
	groupLength   uint64 // length of the pages in them
}

type groupStats struct {
	scope         uint32 // index into scopes
	pages, length uint64
}

// A group belongs to one scope: the same number in another scope is another
// group, so a length never tells about pages of strangers.
type groupKey struct {
	scope uint32
	group uint64
}

func newColumns() *columns {
	return &columns{
		scopes: make([]scopeStats, 1), scopeAt: map[uint32]uint32{},
		groups: make([]groupStats, 1), groupAt: map[groupKey]uint32{},
	}
}

// add takes a page version; its number must be above all before.
func (c *columns) add(num uint64, scope uint32, group uint64, length uint32) {
	if len(c.scope) == 0 {
		c.base = num
	}
	at := int(num - c.base)
	c.length = grow(c.length, at+1)
	c.group = grow(c.group, at+1)
	c.scope = grow(c.scope, at+1)

	s := c.scopeIndex(scope)
	g := c.groupIndex(s, group)
	c.length[at], c.group[at], c.scope[at] = length, g, s
	c.scopes[s].pages++
	c.scopes[s].length += uint64(length)
	if g == 0 {
		return
	}
	if c.groups[g].pages == 0 {
		c.scopes[s].groups++
	}
	c.groups[g].pages++
	c.groups[g].length += uint64(length)
	c.scopes[s].groupLength += uint64(length)
}

// grow extends a slice with zeros, in amortised constant time an element.
func grow(s []uint32, n int) []uint32 {
	old := len(s)
	s = slices.Grow(s, n-old)[:n]
	clear(s[old:])
	return s
}

// remove forgets a page version; it reports whether it was there.
func (c *columns) remove(num uint64) bool {
	if !c.has(num) {
		return false
	}
	at := num - c.base
	length, s, g := uint64(c.length[at]), c.scope[at], c.group[at]
	c.scope[at] = 0
	c.scopes[s].pages--
	c.scopes[s].length -= length
	if g == 0 {
		return true
	}
	c.groups[g].pages--
	c.groups[g].length -= length
	c.scopes[s].groupLength -= length
	if c.groups[g].pages == 0 {
		c.scopes[s].groups--
	}
	return true
}

func (c *columns) has(num uint64) bool {
	return num >= c.base && num-c.base < uint64(len(c.scope)) && c.scope[num-c.base] != 0
}

func (c *columns) scopeIndex(id uint32) uint32 {
	at, ok := c.scopeAt[id]
	if !ok {
		at = uint32(len(c.scopes))
		c.scopes = append(c.scopes, scopeStats{id: id})
		c.scopeAt[id] = at
	}
	return at
}

func (c *columns) groupIndex(scope uint32, group uint64) uint32 {
	if group == 0 {
		return 0
	}
	key := groupKey{scope, group}
	at, ok := c.groupAt[key]
	if !ok {
		at = uint32(len(c.groups))
		c.groups = append(c.groups, groupStats{scope: scope})
		c.groupAt[key] = at
	}
	return at
}

// total sums the statistics of a chain of scopes.
func (c *columns) total(scopes []uint32) scopeStats {
	var t scopeStats
	for _, id := range scopes {
		s := c.scopes[c.scopeAt[id]] // element 0 is all zero
		t.pages += s.pages
		t.length += s.length
		t.groups += s.groups
		t.groupLength += s.groupLength
	}
	return t
}
