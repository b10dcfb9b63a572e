package manifest

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// maxLeaves keeps every offset of an archive within an int64.
const maxLeaves = 1 << 48

// Inclusion proves that a leaf is at Index among the first Size leaves of the
// log whose root is Root. It survives JSON unchanged.
type Inclusion struct {
	Index uint64 `json:"index"`
	Size  uint64 `json:"size"`
	Leaf  Hash   `json:"leaf"` // of the leaf's bytes: tlog.RecordHash
	Root  Hash   `json:"root"`
	Path  []Hash `json:"path"`
}

// Verify checks that body is the leaf and that head contains it. Do not take head from the source
// of the proof. Every failure is ErrProof.
func (p Inclusion) Verify(body []byte, head Head) error {
	switch {
	case tlog.RecordHash(body) != p.Leaf:
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
		if empty, _ := tlog.TreeHash(0, nil); p.OldRoot != empty || len(p.Path) != 0 {
			return fmt.Errorf("%w: an empty log has another root", ErrProof)
		}
		return nil
	}
	if err := tlog.CheckTree(tlog.TreeProof(p.Path), int64(p.Size), p.Root, int64(p.Old), p.OldRoot); err != nil {
		return fmt.Errorf("%w: from %d to %d leaves: %w", ErrProof, p.Old, p.Size, err)
	}
	return nil
}

// Verification is the result of Verify.
type Verification struct {
	Size     uint64  `json:"size"`
	Archived uint64  `json:"archived"`
	Root     Hash    `json:"root"`              // over Size leaves, from their bytes
	Against  *Head   `json:"against,omitempty"` // the head it was compared with
	Problems []error `json:"-"`                 // in the order of the log, at most 20
	Found    int     `json:"found"`             // how many problems in all
	First    int64   `json:"first"`             // first leaf that differs; -1: none, or not known
	Note     string  `json:"note,omitempty"`    // what a good result does not prove
}
