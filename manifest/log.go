package manifest

import (
	"context"
	"errors"
)

var errSoon = errors.New("manifest: not there yet")

// Options configure Open.
type Options struct {
	ReadOnly    bool   // create, cut and write nothing; Add works in memory
	DB          string // database id; an archive of another database is refused. Empty: not compared
	SegmentSize int64  // bytes after which a new segment file begins; 0 means 16 MiB
}

// Report says what Open found.
type Report struct {
	Archived uint64 // leaves in the archive
	Marked   uint64 // leaves the archive's own mark vouches for; more than Archived when synced leaves are missing
	Cut      int64  // bytes of an unfinished Archive that were cut off
	Damage   error  // why Archived < Marked or the mark could not be read; nil in health
}

// Log is the archive and the tail of the newest leaves.
type Log struct{}

// Open opens or creates the archive.
func Open(ctx context.Context, dir string, fs FS, opts Options) (*Log, Report, error) {
	return nil, Report{}, errSoon
}

// OpenReader opens read-only beside a live process.
func OpenReader(ctx context.Context, dir string, fs FS, tail func(add func(index uint64, body []byte) error) error) (*Log, Report, error) {
	return nil, Report{}, errSoon
}

// Add appends the next leaf, or compares one the log already has.
func (l *Log) Add(index uint64, body []byte) error { return errSoon }

// Size is the number of leaves.
func (l *Log) Size() uint64 { return 0 }

// Archived is the number of leaves in the archive.
func (l *Log) Archived() uint64 { return 0 }

// Archive copies leaves [Archived, upTo) into the archive and syncs it.
func (l *Log) Archive(ctx context.Context, upTo uint64) error { return errSoon }

// Body is the bytes of leaf i.
func (l *Log) Body(i uint64) ([]byte, error) { return nil, errSoon }

// Leaf is leaf i.
func (l *Log) Leaf(i uint64) (*Record, error) { return nil, errSoon }

// Each calls fn for leaves [from, to).
func (l *Log) Each(ctx context.Context, from, to uint64, reverse bool, fn func(*Record) error) error {
	return errSoon
}

// ByTrace is every leaf whose Trace or Parent is trace, in log order.
func (l *Log) ByTrace(ctx context.Context, trace string) ([]*Record, error) { return nil, errSoon }

// Written is the leaf and the write that made a page version.
func (l *Log) Written(ctx context.Context, num uint64, version uint32) (*Record, Write, error) {
	return nil, Write{}, errSoon
}

// Names maps page numbers to references.
type Names map[uint64]string

// Names reads all writes of the log.
func (l *Log) Names(ctx context.Context) (Names, error) { return nil, errSoon }

// Root is the root over the first size leaves.
func (l *Log) Root(size uint64) (Hash, error) { return Hash{}, errSoon }

// Mark is the body of a mark record over the first size leaves.
func (l *Log) Mark(size uint64) ([]byte, error) { return nil, errSoon }

// CheckMark compares a mark with the log.
func (l *Log) CheckMark(body []byte) error { return errSoon }

// Head is a size and the root over that many leaves.
type Head struct {
	DB   string `json:"db"`
	Size uint64 `json:"size"`
	Root Hash   `json:"root"`
	Time int64  `json:"time,omitempty"`
}

// String is one line.
func (h Head) String() string { return "" }

// ParseHead reads it.
func ParseHead(s string) (Head, error) { return Head{}, errSoon }

// Inclusion proves that a leaf stands at an index below a root.
type Inclusion struct {
	Index uint64 `json:"index"`
	Size  uint64 `json:"size"`
	Leaf  Hash   `json:"leaf"`
	Root  Hash   `json:"root"`
	Path  []Hash `json:"path"`
}

// Verify checks the proof for these bytes and that head.
func (p Inclusion) Verify(body []byte, head Head) error { return errSoon }

// Consistency proves that a newer head only adds leaves to an older one.
type Consistency struct {
	Old     uint64 `json:"old"`
	Size    uint64 `json:"size"`
	OldRoot Hash   `json:"old_root"`
	Root    Hash   `json:"root"`
	Path    []Hash `json:"path"`
}

// Verify checks the proof between two heads.
func (p Consistency) Verify(old, head Head) error { return errSoon }

// ProveInclusion proves leaf i in the first size leaves.
func (l *Log) ProveInclusion(i, size uint64) (Inclusion, error) { return Inclusion{}, errSoon }

// ProveConsistency proves that the first size leaves begin with the first old.
func (l *Log) ProveConsistency(old, size uint64) (Consistency, error) { return Consistency{}, errSoon }

// Verification is what Verify found.
type Verification struct {
	Size, Archived uint64
	Root           Hash
	Problems       []error
	Against        *Head
}

// Verify rehashes every leaf and compares.
func (l *Log) Verify(ctx context.Context, against *Head, progress func(done, total uint64)) (Verification, error) {
	return Verification{}, errSoon
}

// Close releases the files.
func (l *Log) Close() error { return nil }

// Encode is the byte form of r.
func Encode(r *Record) ([]byte, error) { return nil, errSoon }

// Decode is its inverse.
func Decode(index uint64, body []byte) (*Record, error) { return nil, errSoon }

// Scan checks lengths and depth of one msgpack value.
func Scan(b []byte) error { return errSoon }

// Found is a page of a record.
type Found struct {
	Page     Page
	Position int
	Excluded bool
	Reason   string
}

// Find finds a page.
func (r *Record) Find(num uint64) (Found, bool) { return Found{}, false }

// Difference is what changed between two reads.
type Difference struct {
	In, Out []Page
	Changed []Change
}

// Change is a page both served, differently.
type Change struct{ A, B Page }

// Diff compares two reads.
func Diff(a, b *Record) Difference { return Difference{} }
