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
	"github.com/ctxpage/ctxpage/internal/seal"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// wreck holds everything that can be read of a damaged database, and the list of known losses.
// Salvage fills it (gather), and copies from it the rows that the audit confirms.
//
// Each source can still prove a part:
//
//	rows that the tree leads to    the newest state as of the applied LSN, if the system row was read
//	rows on stray pages            heads and texts, which are never written twice; not state, which has newer versions
//	records of the log             everything above the applied LSN, except in holes
//	leaves of the audit            the newest version of every artefact, and the digest of every row
//
// A row is taken only if its checksum is right. If the audit has a digest of it, that must match
// too. A row is either known to be lost (lost), or may be missing without a trace: missed says so
// for heads, cut for commits and their leaves.
//
// It belongs to one goroutine, and nothing in it is written back: the damaged files stay as they
// are. Everything but the texts of the file is kept in memory; of those only the place is (span),
// since texts are most of a database.
type wreck struct {
	path     string
	key      []byte
	ring     *seal.Ring // nil: the database is plain
	file     *os.File   // nil: not there
	scopes   map[uint32]string
	heads    map[format.HeadKey][]byte
	texts    map[uint64]span
	logged   map[uint64]string // texts of the log
	held     map[ulid.ULID][]byte
	state    map[string][]byte
	sealed   map[string][]byte // state rows as the file has them, unless the log has newer ones
	applied  uint64            // the LSN up to which the file has the log's effect; 0: not known, or none
	seq      uint64            // the record that carries it
	system   bool              // the system row was read
	noKey    error             // a value did not open for want of the right key; the first
	id       string            // of the database
	last     uint64            // the last record of the log that was read
	lsn      uint64            // the last commit of the log that was read
	commits  []logged
	gapTo    uint64 // commits up to this LSN are lost, and their writes are not known; newer ones are complete
	missed   bool   // rows of heads may be missing without a trace; the audit may know of them
	cut      bool   // commits and their leaves may be missing
	newest   map[uint64]uint32
	versions map[uint64][]uint32         // of which there is a row, newest first
	broken   map[uint64]uint32           // the newest version of which a damaged row tells
	others   map[format.HeadKey][][]byte // rows of the same key as in heads, from free pages and the log
	alike    int                         // rows that file and log have both
	unlike   int                         // and those that they should, and do not
	foreign  bool                        // the log is another database's: neither its commits nor its leaves say anything of this one
	edited   map[format.HeadKey]bool
	decided  map[string]bool // held batches, by the audit
	trust    bool            // negative control of tests: rows are not held against the audit
	asked    map[uint64]bool // leaves whose question is there
	lost     []Loss
}

// newWreck makes the wreck of the database at path, with nothing read yet.
func newWreck(path string) *wreck {
	return &wreck{
		path: path, scopes: map[uint32]string{}, heads: map[format.HeadKey][]byte{}, texts: map[uint64]span{}, logged: map[uint64]string{},
		held: map[ulid.ULID][]byte{}, state: map[string][]byte{}, sealed: map[string][]byte{}, newest: map[uint64]uint32{}, broken: map[uint64]uint32{}, edited: map[format.HeadKey]bool{}, others: map[format.HeadKey][][]byte{}, decided: map[string]bool{}, asked: map[uint64]bool{},
	}
}

func (w *wreck) close() {
	if w.file != nil {
		w.file.Close()
	}
}

// lose adds something to the list of losses.
func (w *wreck) lose(what, format string, args ...any) {
	w.lost = append(w.lost, Loss{what, fmt.Sprintf(format, args...)})
}

// nothing reports that no row at all was recognised: the file is not a damaged database but another
// file.
func (w *wreck) nothing() bool {
	return !w.system && len(w.heads)+len(w.texts)+len(w.logged)+len(w.held)+len(w.state) == 0
}

// unopened returns the error for a database whose values need another key than the one that was
// given, or a key at all. A keyring beside the file tells nothing by itself: it stays when a
// database is decrypted.
func (w *wreck) unopened() error {
	switch {
	case w.system: // it opened, so a sealed log beside it is another database's
		return nil
	case w.noKey != nil:
		return w.noKey
	case w.key != nil || !w.nothing():
		return nil
	}
	if _, err := os.Lstat(w.path + keysSuffix); err == nil {
		return needKey(w.path)
	}
	return nil
}

// gather reads file and log. The log is read twice: first only to find out whether it belongs to
// this database, then for what it has. The holes of the log come out with what they can have
// contained: only reads, a torn end that was never acknowledged, or commits.
//
// The order of the sources decides which of two rows counts. The file comes first, so that the log
// can be compared with it: a log of another database says nothing about this one, and has rows for
// the same numbers. The rows of the log then replace those of the file where their commit is above
// the applied LSN.
func (w *wreck) gather(ctx context.Context) error {
	if err := w.readFile(ctx); err != nil {
		return err
	}
	if _, _, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.belongs); err != nil {
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	if w.unlike > 0 && w.alike == 0 { // edited rows differ too, but then some others are the same
		w.cutAll()
		w.foreign = true
		w.lose("log", "it belongs to another database; nothing was taken from it")
		w.count()
		return nil
	}
	first, holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.record)
	for _, h := range holes {
		switch {
		case h.From == 0: // missing records show up as another hole
			w.lose("a file in the log's directory", "%v", h.Err)
		case errors.Is(h.Err, fs.ErrNotExist): // a database has a log from its first moment
			w.cutAll()
			w.lose("log", "%v: it was removed, or not copied with the file", h.Err)
		case h.To != 0 && h.To <= w.seq: // the file has their effect
		case w.noCommit(h):
			w.lose("log", "records %d to %d are damaged, all of them reads: %v", h.From, h.To, h.Err)
		case h.Torn:
			w.lose("end of the log", "%v: a crash or a power cut may have torn it, and then it was never acknowledged", h.Err)
		default:
			w.cutAt(h)
			w.lose("log", "records %d to %s: %v", h.From, cmp.Or(strings.TrimPrefix(fmt.Sprint(h.To), "0"), "the end of the segment"), h.Err)
		}
	}
	if err != nil {
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	if w.system && first > w.seq+1 { // known from the file, even if no record is left to show a gap
		w.cutAt(wal.Hole{From: 1, To: first - 1})
		w.lose("log", "it begins at record %d, but the file ends at record %d: its first segments are missing", first, w.seq)
	}
	if w.last < w.seq || w.last == 0 && !w.system {
		w.cutAll()
		w.lose("log", "it ends at record %d, but the file has record %d: the log was removed, replaced or overwritten", w.last, w.seq)
	}
	w.count()
	return nil
}

// proved returns the LSN above which all commits were read. Below it rows of heads may be missing
// whose commits no audit names.
//
// Below it a missing row cannot be told from one that never was.
func (w *wreck) proved(whole bool) uint64 {
	switch {
	case whole || !w.missed:
		return w.gapTo
	case w.system:
		return max(w.gapTo, w.applied)
	}
	return math.MaxUint64
}

// count computes the newest version of each artefact, and lists those of which there is a row. Numbers
// in damaged rows may be anything, so nothing may count up or down to one.
func (w *wreck) count() {
	w.newest, w.versions = maps.Clone(w.broken), map[uint64][]uint32{}
	add := func(k format.HeadKey) {
		w.newest[k.Art] = max(w.newest[k.Art], k.Version)
		w.versions[k.Art] = append(w.versions[k.Art], k.Version)
	}
	for k := range w.heads {
		add(k)
	}
	for k := range w.edited {
		add(k)
	}
	for _, list := range w.versions {
		slices.SortFunc(list, func(a, b uint32) int { return cmp.Compare(b, a) })
	}
}
