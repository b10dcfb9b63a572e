package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"golang.org/x/mod/sumdb/tlog"
)

// keptLevels: each fourth level of the tree is stored, the leaves first. Half of all hashes would be of the levels between, and
// those are computed from at most eight hashes below.
const keptLevels = 4

// hashCount returns how many hashes are stored for the first n leaves.
func hashCount(n uint64) (all uint64) {
	for ; n > 0; n >>= keptLevels {
		all += n
	}
	return all
}

// hashPlace returns the place of hash n of a level that is stored.
func hashPlace(level int, n int64) int64 {
	completes := (n+1)<<level - 1 // the leaf
	return int64(hashCount(uint64(completes))) + int64(level/keptLevels)
}

// LeafHash returns the hash of a leaf's bytes in the tree.
func LeafHash(body []byte) manifest.Hash { return tlog.RecordHash(body) }

// Frontier is the right edge of a tree: the roots of its full subtrees, widest first, one for every
// bit set in Size. Adding a leaf and computing the root need nothing else, so a log of any length
// adds a leaf without reading a file. The zero Frontier is the empty tree.
type Frontier struct {
	Size  uint64
	Nodes []manifest.Hash
}

// Add appends a leaf hash and returns the hashes that it fixed and that are stored, the leaf's own
// first.
func (f *Frontier) Add(leaf manifest.Hash) []manifest.Hash { return f.addTo(nil, leaf) }

// addTo is Add, and appends the hashes to fixed.
func (f *Frontier) addTo(fixed []manifest.Hash, leaf manifest.Hash) []manifest.Hash {
	fixed = append(fixed, leaf)
	for n, level := f.Size, 1; n&1 == 1; n, level = n>>1, level+1 {
		last := len(f.Nodes) - 1
		leaf = tlog.NodeHash(f.Nodes[last], leaf)
		f.Nodes = f.Nodes[:last]
		if level%keptLevels == 0 {
			fixed = append(fixed, leaf)
		}
	}
	f.Nodes = append(f.Nodes, leaf)
	f.Size++
	return fixed
}

// Root returns the root over Size leaves.
func (f *Frontier) Root() manifest.Hash {
	if len(f.Nodes) == 0 {
		root, _ := tlog.TreeHash(0, nil) // RFC 6962: SHA-256 of nothing; reads no hash
		return root
	}
	last := len(f.Nodes) - 1
	root := f.Nodes[last]
	for i := last - 1; i >= 0; i-- {
		root = tlog.NodeHash(f.Nodes[i], root)
	}
	return root
}

// frontierAt reads the frontier of the first size leaves from stored hashes.
func frontierAt(size uint64, r tlog.HashReader) (Frontier, error) { return Frontier{}.at(size, r) }

// at is frontierAt of the same tree, and takes from f the subtrees that both have: each is the same
// as long as no wider one differs.
func (f Frontier) at(size uint64, r tlog.HashReader) (Frontier, error) {
	var at []int64
	first, both := uint64(0), 0
	for level := bits.Len64(size) - 1; level >= 0; level-- {
		switch {
		case size>>level&1 == 0:
			continue
		case size>>level == f.Size>>level:
			both++
		default:
			at = append(at, tlog.StoredHashIndex(level, int64(first>>level)))
		}
		first += 1 << level
	}
	nodes, err := r.ReadHashes(at)
	return Frontier{Size: size, Nodes: append(f.Nodes[:both:both], nodes...)}, err
}

// Mark is a mark record of the log: the number of synced leaves, and their tree.
type Mark struct {
	Root     manifest.Hash
	Frontier Frontier
}

// markVersion is the first byte of a mark.
const markVersion = 1

// Encode returns the bytes of a mark: version, size, root, frontier nodes.
func (m Mark) Encode() []byte {
	b := append(make([]byte, 0, 9+32*(1+len(m.Frontier.Nodes))), markVersion)
	b = binary.LittleEndian.AppendUint64(b, m.Frontier.Size)
	b = append(b, m.Root[:]...)
	for _, h := range m.Frontier.Nodes {
		b = append(b, h[:]...)
	}
	return b
}

// ParseMark reads the bytes of a mark and checks its root by its frontier.
func ParseMark(b []byte) (Mark, error) {
	if len(b) > 0 && b[0] > markVersion {
		return Mark{}, fmt.Errorf("mark version %d, this program knows %d: %w", b[0], markVersion, codec.ErrNewerFormat)
	}
	m, err := parseMark(b)
	if err != nil {
		return Mark{}, &codec.CorruptError{File: audit, Err: err, Hint: "restore a backup"}
	}
	return m, nil
}

// parseMark is ParseMark without the types of its errors.
func parseMark(b []byte) (m Mark, err error) {
	const fixed = 1 + 8 + tlog.HashSize
	if len(b) < fixed || b[0] != markVersion {
		return m, fmt.Errorf("a mark of %d bytes; expected version %d and at least %d", len(b), markVersion, fixed)
	}
	m.Frontier.Size = binary.LittleEndian.Uint64(b[1:])
	m.Root = manifest.Hash(b[9:fixed])
	rest := b[fixed:]
	if want := bits.OnesCount64(m.Frontier.Size); len(rest) != want*tlog.HashSize {
		return m, fmt.Errorf("a mark over %d leaves with %d bytes of frontier; expected %d nodes", m.Frontier.Size, len(rest), want)
	}
	for ; len(rest) > 0; rest = rest[tlog.HashSize:] {
		m.Frontier.Nodes = append(m.Frontier.Nodes, manifest.Hash(rest[:tlog.HashSize]))
	}
	if m.Frontier.Root() != m.Root {
		return m, errors.New("the frontier of a mark does not give its root")
	}
	return m, nil
}

// ProveInclusion proves leaf i among the first size leaves.
func (l *Log) ProveInclusion(i, size uint64) (manifest.Inclusion, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return manifest.Inclusion{}, err
	}
	if i >= size {
		return manifest.Inclusion{}, fmt.Errorf("%w: %d of %d", manifest.ErrNoLeaf, i, size)
	}
	p := manifest.Inclusion{Index: i, Size: size}
	if p.Root, err = v.root(size); err != nil {
		return manifest.Inclusion{}, err
	}
	if p.Leaf, err = v.hash(0, int64(i)); err != nil {
		return manifest.Inclusion{}, err
	}
	path, err := tlog.ProveRecord(int64(size), int64(i), v)
	p.Path = path
	return p, err
}

// ProveConsistency proves that the first size leaves begin with the first old.
func (l *Log) ProveConsistency(old, size uint64) (manifest.Consistency, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return manifest.Consistency{}, err
	}
	if old > size {
		return manifest.Consistency{}, fmt.Errorf("manifest: a log of %d leaves cannot begin with %d", size, old)
	}
	p := manifest.Consistency{Old: old, Size: size}
	if p.OldRoot, err = v.root(old); err != nil {
		return manifest.Consistency{}, err
	}
	if p.Root, err = v.root(size); err != nil || old == 0 {
		return p, err
	}
	path, err := tlog.ProveTree(int64(size), int64(old), v)
	p.Path = path
	return p, err
}
