package filestore

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"sync/atomic"
)

// A tree has a key for every number, and keeps few keys: the key of a node yields the keys of its
// two children, down to the numbers at level 64, and from the key of a child nobody gets back to
// its parent. To destroy the key of a number, the nodes above it go, and their other children stay
// in their place. So a ring of a million pages of which none was erased has one key; each
// number that is destroyed adds at most as many as the tree has levels, and neighbours share
// theirs.
//
// The way that was rejected is a random key for each subject, made with its first page: the ring
// would have to be written and synced before the commits that need a new key, and every page
// without a subject would be left out. Here the ring changes when something is erased, and never
// else, and what is erased may be any set of pages.

const levels = 64

// node is a node that a tree keeps: the first level bits of its numbers, the rest zero, and its
// key.
type node struct {
	first uint64
	level uint8
	key   [KeySize]byte
}

// last is the greatest number below a node.
func (n *node) last() uint64 {
	if n.level == 0 {
		return ^uint64(0)
	}
	return n.first | (1<<(levels-n.level) - 1)
}

// child is the key of a child: bit is 0 for the left one.
func child(key [KeySize]byte, bit byte) [KeySize]byte {
	var in [KeySize + 1]byte
	copy(in[:], key[:])
	in[KeySize] = bit
	return sha256.Sum256(in[:])
}

// keys are the nodes of a tree, none below another, by number. They are never changed.
type keys struct {
	nodes []node
	// near has nodes above numbers that were asked for lately: a walk over rows goes down from
	// there.
	near *[nearSlots]atomic.Pointer[node]
}

const (
	nearLevel = levels - 8
	nearSlots = 256
)

func newKeys(nodes []node) keys {
	return keys{nodes: nodes, near: new([nearSlots]atomic.Pointer[node])}
}

// key is the key of a number; !ok: it was destroyed.
func (k *keys) key(num uint64) (key [KeySize]byte, ok bool) {
	slot := &k.near[num>>(levels-nearLevel)%nearSlots]
	from := slot.Load()
	if from == nil || from.first != num&^(1<<(levels-nearLevel)-1) {
		if from = k.above(num); from == nil {
			return key, false
		}
		if from.level < nearLevel {
			from = from.down(num, nearLevel)
			slot.Store(from)
		}
	}
	return from.down(num, levels).key, true
}

// above is the node that has a number; nil: none.
func (k *keys) above(num uint64) *node {
	at, found := slices.BinarySearchFunc(k.nodes, num, func(n node, num uint64) int { return cmp.Compare(n.first, num) })
	if !found {
		at--
	}
	if at < 0 || k.nodes[at].last() < num {
		return nil
	}
	return &k.nodes[at]
}

// down goes from a node to the one above a number at a level.
func (n *node) down(num uint64, level uint8) *node {
	d := *n
	for d.level < level {
		bit := num >> (levels - 1 - d.level) & 1
		d.key = child(d.key, byte(bit))
		d.first |= bit << (levels - 1 - d.level)
		d.level++
	}
	return &d
}

// without returns the tree less the keys of some numbers, which rise.
func (k *keys) without(nums []uint64) keys {
	var kept []node
	for i := range k.nodes {
		n := &k.nodes[i]
		from, _ := slices.BinarySearch(nums, n.first)
		to := len(nums)
		if last := n.last(); last != ^uint64(0) {
			to, _ = slices.BinarySearch(nums, last+1)
		}
		kept = n.cut(kept, nums[from:to])
	}
	return newKeys(kept)
}

// cut appends the remains of a node without some numbers, which are all below it.
func (n *node) cut(kept []node, nums []uint64) []node {
	switch {
	case len(nums) == 0:
		return append(kept, *n)
	case n.level == levels:
		return kept
	}
	half := n.first | 1<<(levels-1-n.level)
	at, _ := slices.BinarySearch(nums, half)
	left, right := node{n.first, n.level + 1, child(n.key, 0)}, node{half, n.level + 1, child(n.key, 1)}
	return right.cut(left.cut(kept, nums[:at]), nums[at:])
}
