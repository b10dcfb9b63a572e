package manifest

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Inclusion proves that a leaf is at Index among the first Size leaves of the
// log whose root is Root. It survives JSON unchanged.
type Inclusion struct {
	Index uint64 `json:"index"`
	Size  uint64 `json:"size"`
	Leaf  Hash   `json:"leaf"` // LeafHash of the leaf's bytes
	Root  Hash   `json:"root"`
	Path  []Hash `json:"path"`
}

// Verify checks that body is the leaf and that head contains it. Do not take head from the source
// of the proof. Every failure is ErrProof.
func (p Inclusion) Verify(body []byte, head Head) error {
	switch {
	case LeafHash(body) != p.Leaf:
		return fmt.Errorf("%w: it is about another leaf than the one given", ErrProof)
	case p.Size != head.Size || p.Root != head.Root:
		return fmt.Errorf("%w: it is for %d leaves, root %v; the head says %d, root %v", ErrProof, p.Size, p.Root, head.Size, head.Root)
	case p.Index >= p.Size || p.Size > maxLeaves:
		return fmt.Errorf("%w: leaf %d of %d", ErrProof, p.Index, p.Size)
	}
	if err := tlog.CheckRecord(tlog.RecordProof(p.Path), int64(p.Size), p.Root, int64(p.Index), p.Leaf); err != nil {
		return fmt.Errorf("%w: leaf %d of %d: %w", ErrProof, p.Index, p.Size, err)
	}
	return nil
}

// Consistency proves that a log of Size leaves begins with the Old leaves of an
// earlier head: nothing was edited, removed or moved since.
type Consistency struct {
	Old     uint64 `json:"old"`
	Size    uint64 `json:"size"`
	OldRoot Hash   `json:"old_root"`
	Root    Hash   `json:"root"`
	Path    []Hash `json:"path"`
}

// Verify checks the proof between two heads. Take old from where it was kept, not from the source
// of the proof. Every failure is ErrProof.
func (p Consistency) Verify(old, head Head) error {
	switch {
	case p.Old != old.Size || p.OldRoot != old.Root || p.Size != head.Size || p.Root != head.Root:
		return fmt.Errorf("%w: it is from %d leaves of root %v to %d of root %v; the heads say %d, %v and %d, %v",
			ErrProof, p.Old, p.OldRoot, p.Size, p.Root, old.Size, old.Root, head.Size, head.Root)
	case p.Old > p.Size || p.Size > maxLeaves:
		return fmt.Errorf("%w: from %d to %d leaves", ErrProof, p.Old, p.Size)
	case p.Old == 0: // every log begins with nothing
		empty := Frontier{}
		if p.OldRoot != empty.Root() || len(p.Path) != 0 {
			return fmt.Errorf("%w: an empty log has another root", ErrProof)
		}
		return nil
	}
	if err := tlog.CheckTree(tlog.TreeProof(p.Path), int64(p.Size), p.Root, int64(p.Old), p.OldRoot); err != nil {
		return fmt.Errorf("%w: from %d to %d leaves: %w", ErrProof, p.Old, p.Size, err)
	}
	return nil
}

// ProveInclusion proves leaf i among the first size leaves.
func (l *Log) ProveInclusion(i, size uint64) (Inclusion, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return Inclusion{}, err
	}
	if i >= size {
		return Inclusion{}, fmt.Errorf("%w: %d of %d", ErrNoLeaf, i, size)
	}
	p := Inclusion{Index: i, Size: size}
	if p.Root, err = v.root(size); err != nil {
		return Inclusion{}, err
	}
	leaf, err := v.ReadHashes([]int64{leafHashAt(i)})
	if err != nil {
		return Inclusion{}, err
	}
	p.Leaf = leaf[0]
	path, err := tlog.ProveRecord(int64(size), int64(i), v)
	p.Path = path
	return p, err
}

// ProveConsistency proves that the first size leaves begin with the first old.
func (l *Log) ProveConsistency(old, size uint64) (Consistency, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return Consistency{}, err
	}
	if old > size {
		return Consistency{}, fmt.Errorf("manifest: a log of %d leaves cannot begin with %d", size, old)
	}
	p := Consistency{Old: old, Size: size}
	if p.OldRoot, err = v.root(old); err != nil {
		return Consistency{}, err
	}
	if p.Root, err = v.root(size); err != nil || old == 0 {
		return p, err
	}
	path, err := tlog.ProveTree(int64(size), int64(old), v)
	p.Path = path
	return p, err
}
