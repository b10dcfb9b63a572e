package archive

import (
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"golang.org/x/mod/sumdb/tlog"
)

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
