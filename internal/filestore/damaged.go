package filestore

import (
	"bytes"
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

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
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

// committed is the newest version of an artefact that the audit names.
type committed struct {
	version uint32
	deleted bool
}

// audited reads from the audit which versions were committed, by artefactKey, and reports whether
// all of it can be read. Leaves are walked in order, so the last write of a name is its newest.
func (d *damaged) audited(ctx context.Context) (newest map[string]committed, whole bool) {
	newest = map[string]committed{}
	l, rep, err := archive.OpenReader(ctx, d.path+"-manifest", nil, sealerOf(d.ring), func(add func(uint64, []byte) error) error {
		return d.leaves(ctx, add)
	})
	if err != nil {
		return newest, false
	}
	defer l.Close()
	if d.sys.ID != "" && l.DB() != "" && l.DB() != d.sys.ID {
		d.lose("audit", "it belongs to another database; nothing was taken from it")
		return newest, false
	}
	nameless := d.nameless()
	err = l.Each(ctx, 0, l.Size(), false, func(r *manifest.Record) error {
		for _, x := range r.Writes {
			ref, err := store.ParseRef(x.Ref)
			if n := nameless[x.Num]; n != 0 && err == nil {
				d.scopes[n] = ref.Scope
			}
			name := artefactKey(ref.Scope, ref.ID)
			was := newest[name]
			restarted := was.deleted && !x.Gone && !x.Touch // gc forgot it: the next put begins with version 1
			if err == nil && x.Version > 0 && (x.Version >= was.version || restarted) {
				newest[name] = committed{x.Version, x.Deleted}
			}
		}
		if r.Type == manifest.TypeApprove || r.Type == manifest.TypeReject {
			d.decided[r.From] = true
		}
		return nil
	})
	if err == nil {
		d.compare(l)
	}
	return newest, err == nil && !d.foreign && rep.Damage == nil && rep.Archived >= rep.Marked
}

// compare compares the rows with the audit, because checksums do not find an edit. A row that is
// not the one that was committed is not taken, and its version counts only as far as the audit
// names it.
func (d *damaged) compare(l *archive.Log) {
	if d.trust {
		return
	}
	proofs := format.Proofs{Log: l}
	keys := slices.SortedFunc(maps.Keys(d.heads), func(a, b format.HeadKey) int {
		return cmp.Or(cmp.Compare(a.Art, b.Art), cmp.Compare(a.Version, b.Version))
	})
	for _, k := range keys {
		d.proveHead(proofs, k)
	}
	for id, row := range d.held {
		if _, err := format.DecodeHeld(row); err == nil && proofs.Held(id[:], row) != nil {
			d.lose("held batch "+id.String(), "its row was edited: %v", format.ErrEdited)
			delete(d.held, id)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(d.sealed)) {
		if proofs.State([]byte(key), d.sealed[key]) != nil {
			d.lose(fmt.Sprintf("state %q", key), "its row was edited: %v", format.ErrEdited)
			d.state[key] = nil
		}
	}
}

// proveHead takes the first row of a key that was committed.
func (d *damaged) proveHead(proofs format.Proofs, k format.HeadKey) {
	h := d.head(k)
	if h == nil || proofs.Head(d.heads[k], h) == nil {
		return
	}
	name := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	for _, row := range d.others[k] {
		d.heads[k] = row
		if h := d.head(k); h != nil && proofs.Head(row, h) == nil {
			d.lose(name, "its row was edited; the committed one was found elsewhere in the files and copied")
			return
		}
	}
	d.lose(name, "its row was edited: %v", format.ErrEdited)
	delete(d.heads, k)
	d.edited[k] = true
}

// leaves calls add for the leaves of the log, and fails if records are missing. A file with a strange name
// beside the segments is no obstacle here: the segments have everything.
func (d *damaged) leaves(ctx context.Context, add func(uint64, []byte) error) error {
	if d.foreign {
		return nil
	}
	_, holes, err := wal.ScanIntact(ctx, d.path+"-wal", nil, func(r wal.Record) error {
		r, err := openRecord(d.ring, r)
		if err != nil {
			return err
		}
		index, leaf, err := leafOf(r)
		if err == nil && leaf != nil {
			err = add(index, leaf)
		}
		return err
	})
	for _, h := range holes {
		if err == nil && h.From != 0 && !h.Torn {
			err = h.Err
		}
	}
	return err
}

// nameless returns pages of scopes whose name is lost, with the number of the scope: the audit has
// them by name.
func (d *damaged) nameless() map[uint64]uint32 {
	out := map[uint64]uint32{}
	for _, row := range d.heads {
		dec := codec.Decoder{B: row}
		t := format.DecodeHot(&dec)
		if d.scopes[t.Scope] != "" {
			continue
		}
		for _, r := range format.DecodeRows(&dec, &t, nil) {
			out[r.Num] = t.Scope
		}
	}
	return out
}

// logged is a commit in the log.
type logged struct{ seq, lsn uint64 }

// around returns the LSNs of the commits before and after a hole; after 0: there is none. commits ascends
// in both numbers.
func (d *damaged) around(h wal.Hole) (before, after uint64) {
	i, _ := slices.BinarySearchFunc(d.commits, h.From, func(c logged, seq uint64) int { return cmp.Compare(c.seq, seq) })
	before = d.sys.Applied
	if i > 0 {
		before = max(before, d.commits[i-1].lsn)
	}
	if h.To != 0 && i < len(d.commits) {
		after = d.commits[i].lsn
	}
	return before, after
}

// noCommit reports whether the commits around a hole follow each other: LSNs count commits only, so every
// record between two neighbours was a read.
func (d *damaged) noCommit(h wal.Hole) bool {
	before, after := d.around(h)
	return (d.system || before != 0) && after != 0 && after <= before+1
}

// cutAt notes a hole that has commits. Rows of a later commit in the log are newer than they are.
func (d *damaged) cutAt(h wal.Hole) {
	d.cut = true
	if _, after := d.around(h); after != 0 {
		d.gapTo = max(d.gapTo, after-1)
		return
	}
	d.cutAll()
}

// cutAll notes that commits are lost and that nothing says which.
func (d *damaged) cutAll() { d.cut, d.gapTo = true, math.MaxUint64 }

// belongs compares a record with what the file has under the same numbers, because a log does not
// say whose it is. A single equal row is proof, since its salt is random. Different rows alone may
// be edits: a log is foreign only if nothing in it fits (gather).
func (d *damaged) belongs(r wal.Record) error {
	r, err := openRecord(d.ring, r)
	if errors.Is(err, store.ErrKey) {
		d.noKey = cmp.Or(d.noKey, err)
	}
	if err != nil {
		return nil // record reports it
	}
	if r.Kind == wal.KindAudit {
		index, _, question, err := format.DecodeLeaf(r.Body)
		if err == nil && question != nil {
			d.asked[index] = true
		}
		return nil
	}
	if r.Kind != wal.KindCommit {
		return nil
	}
	c, err := format.DecodeCommit(r.Body)
	if err != nil {
		return nil // record reports it
	}
	for _, n := range c.Scopes {
		if name := d.scopes[n.Num]; name != "" && name != n.Name {
			d.unlike++
		}
	}
	for _, h := range c.Heads {
		dec := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&dec)
		k := format.HeadKey{Art: t.Art, Version: t.Version}
		is := func(row []byte) bool { return bytes.Equal(row, h.Row) }
		switch row := d.heads[k]; {
		case row == nil:
		case is(row) || slices.ContainsFunc(d.others[k], is):
			d.alike++ // a row has a random salt: no other database has the same
		case !format.GoneRow(row) && t.Flags&format.FlagGone == 0:
			d.unlike++
		}
	}
	return nil
}

// record takes the rows of a record of the log. A head of a commit that the file does not have goes in
// front of the rows of the file, any other behind them. State and held batches of the log replace older
// ones of the file.
func (d *damaged) record(r wal.Record) error {
	d.last = r.Seq
	if r.Kind != wal.KindCommit {
		return nil
	}
	r, err := openRecord(d.ring, r)
	var c *format.Commit
	if err == nil {
		c, err = format.DecodeCommit(r.Body)
	}
	if err != nil {
		d.cutAll()
		d.lose(fmt.Sprintf("record %d of the log", r.Seq), "%v", err)
		return nil
	}
	if from := max(d.sys.Applied, d.lsn) + 1; c.LSN > from && d.system {
		d.missed = true // the audit names them, if it is complete
		d.lose("log", "commits %d to %d", from, c.LSN-1)
	}
	d.lsn, d.commits = c.LSN, append(d.commits, logged{r.Seq, c.LSN})
	for _, n := range c.Scopes {
		d.scopes[n.Num] = n.Name
	}
	for _, h := range c.Heads {
		dec := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&dec)
		d.keep(format.HeadKey{Art: t.Art, Version: t.Version}, h.Row, c.LSN > d.sys.Applied)
		for _, x := range h.Texts {
			d.logged[x.Num] = x.Text
		}
	}
	if c.LSN <= d.sys.Applied {
		return nil // the file has these rows, or newer ones
	}
	for _, s := range c.State {
		if leaf, ok := format.GoneQuestion(s.Key); ok {
			delete(d.asked, leaf)
			continue
		}
		if id, ok := format.GoneReview(s.Key); ok {
			delete(d.held, id)
			continue
		}
		d.state[s.Key] = s.Value
		delete(d.sealed, s.Key)
	}
	if len(c.Held) > 0 {
		d.held[c.HeldID] = c.Held
	}
	return nil
}
