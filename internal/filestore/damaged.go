package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// damaged is everything that can be read of a damaged database, and the list of known losses. Salvage
// fills it (gather), and copies from it the rows that the audit confirms.
//
//	rows that the tree leads to    the newest state as of the applied LSN, if the system row was read
//	rows on stray pages            heads and texts, which are never written twice; not state, which has newer versions
//	records of the log             everything above the applied LSN, except in holes
//	leaves of the audit            the newest version of every artefact, and the digest of every row
//
// A row is taken only if its checksum is right and, if the audit has a digest of it, that matches too. A
// row is either known to be lost (lost), or may be missing without a trace: missed says so for heads, cut
// for commits and their leaves.
//
// One goroutine uses it, and nothing is written to the damaged files. Everything is in memory but the
// texts of the file, which are most of a database: of those only the place is (span).
type damaged struct {
	path     string
	key      []byte
	ring     *Ring    // nil: the database is plain
	file     *os.File // nil: not there
	sys      sysRow   // of the file, if system
	system   bool
	noKey    error // a value did not open for want of the right key; the first
	scopes   map[uint32]string
	heads    map[format.HeadKey][]byte
	others   map[format.HeadKey][][]byte // rows of the same key as in heads, from free pages and the log
	texts    map[uint64]span
	logged   map[uint64]string // texts of the log
	held     map[ulid.ULID][]byte
	state    map[string][]byte
	sealed   map[string][]byte // state rows as the file has them, unless the log has newer ones
	asked    map[uint64]bool   // leaves whose question is there
	last     uint64            // the last record of the log that was read
	lsn      uint64            // the last commit of the log that was read
	commits  []logged
	gapTo    uint64 // commits up to this LSN are lost, and their writes are not known; newer ones are complete
	missed   bool   // rows of heads may be missing without a trace; the audit may know of them
	cut      bool   // commits and their leaves may be missing
	alike    int    // rows that file and log have both
	unlike   int    // and those that they should, and do not
	foreign  bool   // the log is another database's: neither its commits nor its leaves say anything of this one
	newest   map[uint64]uint32
	versions map[uint64][]uint32 // of which there is a row, newest first
	broken   map[uint64]uint32   // the newest version that a damaged row names
	edited   map[format.HeadKey]bool
	decided  map[string]bool // held batches, by the audit
	trust    bool            // negative control of tests: rows are not compared with the audit
	lost     []Loss
}

// newDamaged describes the database at path, with nothing read yet.
func newDamaged(path string) *damaged {
	return &damaged{
		path: path, scopes: map[uint32]string{}, heads: map[format.HeadKey][]byte{}, others: map[format.HeadKey][][]byte{},
		texts: map[uint64]span{}, logged: map[uint64]string{}, held: map[ulid.ULID][]byte{}, state: map[string][]byte{},
		sealed: map[string][]byte{}, asked: map[uint64]bool{}, broken: map[uint64]uint32{}, edited: map[format.HeadKey]bool{}, decided: map[string]bool{},
	}
}

// lose adds something to the list of losses.
func (d *damaged) lose(what, format string, args ...any) {
	d.lost = append(d.lost, Loss{what, fmt.Sprintf(format, args...)})
}

// nothing reports that no row at all was recognised: the file is not a damaged database but another
// file.
func (d *damaged) nothing() bool {
	return !d.system && len(d.heads)+len(d.texts)+len(d.logged)+len(d.held)+len(d.state) == 0
}

// unopened returns the error for a database whose values need another key than the one that was
// given, or a key at all. A keyring beside the file tells nothing by itself: it stays when a
// database is decrypted.
func (d *damaged) unopened() error {
	switch {
	case d.system: // it opened, so a sealed log beside it is another database's
		return nil
	case d.noKey != nil:
		return d.noKey
	case d.key != nil || !d.nothing():
		return nil
	}
	if _, err := os.Lstat(d.path + keysSuffix); err == nil {
		return needKey(d.path)
	}
	return nil
}

// gather reads file and log. The file comes first, so that the log can be compared with it: a log of
// another database has rows for the same numbers (belongs). Rows of commits above the applied LSN then
// replace the rows of the file. The holes of the log are judged by what they can have contained: only
// reads, a torn end that was never acknowledged, or commits.
func (d *damaged) gather(ctx context.Context) error {
	if err := d.readFile(ctx); err != nil {
		return err
	}
	if _, _, err := wal.ScanIntact(ctx, d.path+"-wal", nil, d.belongs); err != nil {
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	if d.unlike > 0 && d.alike == 0 { // edited rows differ too, but then some others are the same
		d.cutAll()
		d.foreign = true
		d.lose("log", "it belongs to another database; nothing was taken from it")
		return nil
	}
	first, holes, err := wal.ScanIntact(ctx, d.path+"-wal", nil, d.record)
	for _, h := range holes {
		switch {
		case h.From == 0: // missing records show up as another hole
			d.lose("a file in the log's directory", "%v", h.Err)
		case errors.Is(h.Err, fs.ErrNotExist): // a database has a log from its first moment
			d.cutAll()
			d.lose("log", "%v: it was removed, or not copied with the file", h.Err)
		case h.To != 0 && h.To <= d.sys.Seq: // the file has their effect
		case d.noCommit(h):
			d.lose("log", "records %d to %d are damaged, all of them reads: %v", h.From, h.To, h.Err)
		case h.Torn:
			d.lose("end of the log", "%v: a crash or a power cut may have torn it, and then it was never acknowledged", h.Err)
		default:
			d.cutAt(h)
			d.lose("log", "records %d to %s: %v", h.From, cmp.Or(strings.TrimPrefix(fmt.Sprint(h.To), "0"), "the end of the segment"), h.Err)
		}
	}
	if err != nil {
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	if d.system && first > d.sys.Seq+1 { // known from the file, even if no record is left to show a gap
		d.cutAt(wal.Hole{From: 1, To: first - 1})
		d.lose("log", "it begins at record %d, but the file ends at record %d: its first segments are missing", first, d.sys.Seq)
	}
	if d.last < d.sys.Seq || d.last == 0 && !d.system {
		d.cutAll()
		d.lose("log", "it ends at record %d, but the file has record %d: the log was removed, replaced or overwritten", d.last, d.sys.Seq)
	}
	return nil
}

// proved returns the LSN above which all commits were read. Below it rows of heads may be missing that
// no audit names, and a missing row cannot be told from one that never was.
func (d *damaged) proved(whole bool) uint64 {
	switch {
	case whole || !d.missed:
		return d.gapTo
	case d.system:
		return max(d.gapTo, d.sys.Applied)
	}
	return math.MaxUint64
}

// count computes the newest version of each artefact, and the versions of which there is a row. Numbers
// in damaged rows may be anything, so nothing may count up or down to one.
func (d *damaged) count() {
	d.newest, d.versions = maps.Clone(d.broken), map[uint64][]uint32{}
	add := func(k format.HeadKey) {
		d.newest[k.Art] = max(d.newest[k.Art], k.Version)
		d.versions[k.Art] = append(d.versions[k.Art], k.Version)
	}
	for k := range d.heads {
		add(k)
	}
	for k := range d.edited {
		add(k)
	}
	for _, list := range d.versions {
		slices.SortFunc(list, func(a, b uint32) int { return cmp.Compare(b, a) })
	}
}
