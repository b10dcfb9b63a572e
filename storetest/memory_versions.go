package storetest

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// What is current is not kept: it is read off the list of versions. An artefact is its newest version by an LSN, unless a
// version of another artefact superseded it since. For a page that is not current, the page in its place answers.

const now = ^uint64(0) // as an LSN

func nameOf(h *store.Head) name { return name{h.Scope, h.ID} }

// versions are those of an artefact: version n is the nth.
func (m *Memory) versions(of name) (vs []*store.Head) {
	for _, h := range m.heads {
		if nameOf(h) == of {
			vs = append(vs, h)
		}
	}
	return vs
}

// at is the newest version of an artefact as of an LSN; nil: there is none.
func (m *Memory) at(of name, asOf uint64) (newest *store.Head) {
	for _, h := range m.heads {
		if nameOf(h) == of && h.LSN <= asOf {
			newest = h
		}
	}
	return newest
}

// current is the newest version of every artefact, by its number.
func (m *Memory) current() []*store.Head {
	newest := make([]*store.Head, len(m.arts))
	for _, h := range m.heads {
		newest[h.Art-1] = h
	}
	return newest
}

// supersededBy is the newest version that superseded the artefact of another since that was written, as of an LSN; nil: none.
func (m *Memory) supersededBy(of *store.Head, asOf uint64) (by *store.Head) {
	for _, h := range m.heads {
		if h.Scope == of.Scope && h.Art != of.Art && h.LSN >= of.LSN && h.LSN <= asOf && slices.Contains(h.Supersedes, of.ID) {
			by = h
		}
	}
	return by
}

// answers is the page that answers for a page version as of an LSN; 0: none does. A deletion ends what was before it.
func (m *Memory) answers(num, asOf uint64) uint64 {
	for range len(m.arts) + 1 { // artefacts may supersede each other
		p := m.pages[num-1]
		h := m.at(p.of, asOf)
		if h == nil || p.LSN > asOf || slices.ContainsFunc(m.versions(p.of), func(v *store.Head) bool { return v.Deleted && v.LSN > p.LSN && v.LSN <= asOf }) {
			return 0
		}
		by := m.supersededBy(h, asOf)
		if by == nil {
			if num = h.Rows[min(p.at, len(h.Rows))-1].Num; m.pages[num-1].gone != 0 {
				return 0
			}
			return num
		}
		if by = m.at(nameOf(by), asOf); len(by.Rows) == 0 {
			return 0
		}
		num = by.Rows[0].Num
	}
	return 0
}

// headOf is the newest version that has a page.
func (m *Memory) headOf(p *page) (newest *store.Head) {
	for _, h := range m.heads {
		if has(h, p) {
			newest = h
		}
	}
	return newest
}

func has(h *store.Head, p *page) bool { return len(h.Rows) >= p.at && h.Rows[p.at-1].Num == p.Num }

// visible is a page of the chain; nil scopes see all.
func (m *Memory) visible(scopes store.Scopes, num uint64) *page {
	if num == 0 || num > uint64(len(m.pages)) || scopes != nil && !slices.Contains(scopes, m.pages[num-1].of.scope) {
		return nil
	}
	return m.pages[num-1]
}

// members are the live pages of a group, in order.
func (m *Memory) members(group uint64) (nums []uint64) {
	var heads []*store.Head
	for _, h := range m.current() {
		if group != 0 && h.GroupNum == group && h.Live() {
			heads = append(heads, h)
		}
	}
	slices.SortStableFunc(heads, func(a, b *store.Head) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, h := range heads {
		for _, r := range h.Rows {
			nums = append(nums, r.Num)
		}
	}
	return nums
}
