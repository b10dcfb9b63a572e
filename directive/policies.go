package directive

import (
	"iter"
	"strings"
)

// policySet is a persistent sorted set: a height-balanced tree in which a change
// copies the path from the root to where it happens, and shares the rest.
// Invariants: no node is modified once a set holds it; the heights of two
// siblings differ by at most one.
//
// A change costs what it copies, most of it the collector's: a node of 32
// bytes for each level, of 1,000 items 0.4 KB. Slices of slices were tried, two
// levels of 64 (1.6 KB, twice as long) and three of 24 (0.8 KB, a third longer).
type policySet struct {
	root *node
	n    int
}

type node struct {
	*Policy
	left, right *node
	height      uint8
}

func (t *node) tall() int {
	if t == nil {
		return 0
	}
	return int(t.height)
}

// join makes a node over two trees that are in balance with each other.
func join(left *node, p *Policy, right *node) *node {
	return &node{p, left, right, uint8(1 + max(left.tall(), right.tall()))}
}

// rebalance makes a node over two trees of which one may be taller by two.
func rebalance(left *node, p *Policy, right *node) *node {
	switch l, r := left.tall(), right.tall(); {
	case l > r+1 && left.left.tall() >= left.right.tall():
		return join(left.left, left.Policy, join(left.right, p, right))
	case l > r+1:
		mid := left.right
		return join(join(left.left, left.Policy, mid.left), mid.Policy, join(mid.right, p, right))
	case r > l+1 && right.right.tall() >= right.left.tall():
		return join(join(left, p, right.left), right.Policy, right.right)
	case r > l+1:
		mid := right.left
		return join(join(left, p, mid.left), mid.Policy, join(mid.right, right.Policy, right.right))
	}
	return join(left, p, right)
}

// policySetOf makes a set of sorted, which has no item twice and must not change
// from now on.
func policySetOf(sorted []Policy) policySet { return policySet{treeOf(sorted), len(sorted)} }

func treeOf(sorted []Policy) *node {
	if len(sorted) == 0 {
		return nil
	}
	mid := len(sorted) / 2
	return join(treeOf(sorted[:mid]), &sorted[mid], treeOf(sorted[mid+1:]))
}

// get returns the polarity of key, "" when it is not in the set.
func (s policySet) get(key string) Polarity {
	for t := s.root; t != nil; {
		switch c := strings.Compare(key, t.Item); {
		case c == 0:
			return t.Polarity
		case c < 0:
			t = t.left
		default:
			t = t.right
		}
	}
	return ""
}

// add returns the set with key, which had no polarity before; else the set
// as it is, and the polarity that key has.
func (s policySet) add(key string, polarity Polarity) (policySet, Polarity) {
	root, had := s.root.add(key, polarity)
	if had != "" {
		return s, had
	}
	return policySet{root, s.n + 1}, ""
}

// add returns no tree if it reports that the key is in this one.
func (t *node) add(key string, polarity Polarity) (*node, Polarity) {
	if t == nil {
		return join(nil, &Policy{key, polarity}, nil), ""
	}
	switch c := strings.Compare(key, t.Item); {
	case c < 0:
		left, had := t.left.add(key, polarity)
		if had != "" {
			return nil, had
		}
		return rebalance(left, t.Policy, t.right), ""
	case c > 0:
		right, had := t.right.add(key, polarity)
		if had != "" {
			return nil, had
		}
		return rebalance(t.left, t.Policy, right), ""
	}
	return nil, t.Polarity
}

// remove returns the set without key, and the polarity that key had.
func (s policySet) remove(key string) (policySet, Polarity) {
	root, had := s.root.remove(key)
	if had == "" {
		return s, ""
	}
	return policySet{root, s.n - 1}, had
}

// remove returns no tree if it reports that the key is not in this one.
func (t *node) remove(key string) (*node, Polarity) {
	if t == nil {
		return nil, ""
	}
	switch c := strings.Compare(key, t.Item); {
	case c < 0:
		left, had := t.left.remove(key)
		if had == "" {
			return nil, ""
		}
		return rebalance(left, t.Policy, t.right), had
	case c > 0:
		right, had := t.right.remove(key)
		if had == "" {
			return nil, ""
		}
		return rebalance(t.left, t.Policy, right), had
	case t.left == nil:
		return t.right, t.Polarity
	case t.right == nil:
		return t.left, t.Polarity
	}
	next, right := t.right.cutFirst()
	return rebalance(t.left, next, right), t.Polarity
}

// cutFirst takes the first policy out of a tree.
func (t *node) cutFirst() (*Policy, *node) {
	if t.left == nil {
		return t.Policy, t.right
	}
	first, left := t.left.cutFirst()
	return first, rebalance(left, t.Policy, t.right)
}

// all yields the policies in code point order, which is byte order in UTF-8.
func (s policySet) all() iter.Seq[Policy] {
	return func(yield func(Policy) bool) { s.root.each(yield) }
}

func (t *node) each(yield func(Policy) bool) bool {
	return t == nil || t.left.each(yield) && yield(*t.Policy) && t.right.each(yield)
}
