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
// What a change costs is what it copies, most of it the collector's: a node of 32
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

// policySetOf makes a set of sorted, which has no item twice.
func policySetOf(sorted []Policy) policySet { return policySet{treeOf(sorted), len(sorted)} }

func treeOf(sorted []Policy) *node {
	if len(sorted) == 0 {
		return nil
	}
	mid := len(sorted) / 2
	return join(treeOf(sorted[:mid]), &sorted[mid], treeOf(sorted[mid+1:]))
}

// get returns the polarity of key, 0 when it is not in the set.
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
	return 0
}

// with returns the set in which key has the polarity.
func (s policySet) with(key string, polarity Polarity) policySet {
	root, more := s.root.with(key, polarity)
	return policySet{root, s.n + more}
}

// with tells besides whether key is one more.
func (t *node) with(key string, polarity Polarity) (out *node, more int) {
	if t == nil {
		return join(nil, &Policy{key, polarity}, nil), 1
	}
	switch c := strings.Compare(key, t.Item); {
	case c < 0:
		left, more := t.left.with(key, polarity)
		if left == t.left {
			return t, 0
		}
		return rebalance(left, t.Policy, t.right), more
	case c > 0:
		right, more := t.right.with(key, polarity)
		if right == t.right {
			return t, 0
		}
		return rebalance(t.left, t.Policy, right), more
	case polarity == t.Polarity:
		return t, 0
	}
	return join(t.left, &Policy{key, polarity}, t.right), 0
}

// without returns the set without key.
func (s policySet) without(key string) policySet {
	if s.get(key) == 0 {
		return s
	}
	return policySet{s.root.without(key), s.n - 1}
}

// without removes a key that is in the tree.
func (t *node) without(key string) *node {
	switch c := strings.Compare(key, t.Item); {
	case c < 0:
		return rebalance(t.left.without(key), t.Policy, t.right)
	case c > 0:
		return rebalance(t.left, t.Policy, t.right.without(key))
	case t.left == nil:
		return t.right
	case t.right == nil:
		return t.left
	}
	next := t.right
	for next.left != nil {
		next = next.left
	}
	return rebalance(t.left, next.Policy, t.right.without(next.Item))
}

// all yields the policies in code point order, which is byte order in UTF-8.
func (s policySet) all() iter.Seq[Policy] {
	return func(yield func(Policy) bool) { s.root.each(yield) }
}

func (t *node) each(yield func(Policy) bool) bool {
	return t == nil || t.left.each(yield) && yield(*t.Policy) && t.right.each(yield)
}
