package filestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/seal"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

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
	path    string
	key     []byte
	ring    *seal.Ring // nil: the database is plain
	file    *os.File   // nil: not there
	scopes  map[uint32]string
	heads   map[format.HeadKey][]byte
	texts   map[uint64]span
	logged  map[uint64]string // texts of the log
	held    map[ulid.ULID][]byte
	state   map[string][]byte
	sealed  map[string][]byte // state rows as the file has them, unless the log has newer ones
	applied uint64            // the LSN up to which the file has the log's effect; 0: not known, or none
	seq     uint64            // the record that carries it
	system  bool              // the system row was read
	noKey   error             // a value did not open for want of the right key; the first
	id      string            // of the database
	last    uint64            // the last record of the log that was read
	lsn     uint64            // the last commit of the log that was read
	commits []logged
	gapTo   uint64 // commits up to this LSN are lost, and their writes are not known; newer ones are complete
	missed  bool   // rows of heads may be missing without a trace; the audit may know of them
	cut     bool   // commits and their leaves may be missing
	newest  map[uint64]uint32
	broken  map[uint64]uint32           // the newest version of which a damaged row tells
	others  map[format.HeadKey][][]byte // rows of the same key as in heads, from free pages and the log
	alike   int                         // rows that file and log have both
	unlike  int                         // and those that they should, and do not
	foreign bool                        // the log is another database's: neither its commits nor its leaves say anything of this one
	edited  map[format.HeadKey]bool
	decided map[string]bool // held batches, by the audit
	trust   bool            // negative control of tests: rows are not held against the audit
	asked   map[uint64]bool // leaves whose question is there
	lost    []Loss
}

// logged is a commit in the log.
type logged struct{ seq, lsn uint64 }

// span is the place of a sealed value in the file.
type span struct {
	at int64
	n  int // bytes, with the checksum; sealed, if the database is
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
	if _, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.belongs); err != nil {
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	if w.unlike > 0 && w.alike == 0 { // edited rows differ too, but then some others are the same
		w.cutAll()
		w.foreign = true
		w.lose("log", "it belongs to another database; nothing was taken from it")
		w.count()
		return nil
	}
	holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.record)
	for _, h := range holes {
		switch {
		case h.From == 0: // missing records show up as another hole
			w.lose("a file in the log's directory", "%v", h.Err)
		case errors.Is(h.Err, wal.ErrMissing): // a database has a log from its first moment
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
	first, err := wal.First(w.path+"-wal", nil)
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

// around returns the LSNs of the commits before and after a hole; after 0: there is none.
//
// w.commits ascends in both numbers, because ScanIntact reads the segments in the order of the log.
func (w *wreck) around(h wal.Hole) (before, after uint64) {
	i, _ := slices.BinarySearchFunc(w.commits, h.From, func(c logged, seq uint64) int { return cmp.Compare(c.seq, seq) })
	before = w.applied
	if i > 0 {
		before = max(before, w.commits[i-1].lsn)
	}
	if h.To != 0 && i < len(w.commits) {
		after = w.commits[i].lsn
	}
	return before, after
}

// noCommit reports whether the commits around a hole follow each other, so that the hole has none.
//
// LSNs count commits only. So two that are neighbours prove that every record between them was a
// read, even where none of those records can be read.
func (w *wreck) noCommit(h wal.Hole) bool {
	before, after := w.around(h)
	return (w.system || before != 0) && after != 0 && after <= before+1
}

// cutAt notes a hole that has commits. Rows of a later commit in the log are newer than they are.
func (w *wreck) cutAt(h wal.Hole) {
	w.cut = true
	if _, after := w.around(h); after != 0 {
		w.gapTo = max(w.gapTo, after-1)
		return
	}
	w.cutAll()
}

// cutAll notes that commits are lost and that nothing says which.
func (w *wreck) cutAll() { w.cut, w.gapTo = true, math.MaxUint64 }

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

// count computes the newest version of each artefact.
func (w *wreck) count() {
	w.newest = maps.Clone(w.broken)
	for k := range w.heads {
		w.newest[k.Art] = max(w.newest[k.Art], k.Version)
	}
}

// belongs compares a record with what the file has under the same numbers, because a log does not
// say whose it is. A single equal row is proof, since its salt is random. Different rows alone may
// be edits: a log is foreign only if nothing in it fits (gather).
func (w *wreck) belongs(r wal.Record) error {
	r, err := openRecord(w.ring, r)
	if errors.Is(err, store.ErrKey) {
		w.noKey = cmp.Or(w.noKey, err)
	}
	if err != nil {
		return nil // record reports it
	}
	if r.Kind == wal.KindAudit {
		index, _, question, err := format.DecodeLeaf(r.Body)
		if err == nil && question != nil {
			w.asked[index] = true
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
		if name := w.scopes[n.Num]; name != "" && name != n.Name {
			w.unlike++
		}
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&d)
		k := format.HeadKey{Art: t.Art, Version: t.Version}
		is := func(row []byte) bool { return bytes.Equal(row, h.Row) }
		switch row := w.heads[k]; {
		case row == nil:
		case is(row) || slices.ContainsFunc(w.others[k], is):
			w.alike++ // a row has a random salt: no other database has the same
		case !format.GoneRow(row) && t.Flags&format.FlagGone == 0:
			w.unlike++
		}
	}
	return nil
}

// keep takes a head row beside others of the same key, in front of them or behind. Which of them
// was committed, the audit tells; without it the first counts.
//
// Several rows of one key are normal: gc and erase rewrite the row of a version, and the old bytes
// stay on free pages and in the log.
func (w *wreck) keep(k format.HeadKey, row []byte, front bool) {
	is := w.heads[k]
	switch {
	case is == nil:
		w.heads[k] = row
	case bytes.Equal(is, row):
	case front:
		w.heads[k], w.others[k] = row, append([][]byte{is}, w.others[k]...)
	default:
		w.others[k] = append(w.others[k], row)
	}
}

// readFile reads the rows of bbolt's file.
//
// If no meta page can be read, the tree is lost but the pages are not: every page is then looked at
// as a stray one, with the page size of this system.
func (w *wreck) readFile(ctx context.Context) (err error) {
	if w.file, err = os.OpenFile(w.path, os.O_RDONLY|oNoFollow|syscall.O_NONBLOCK, 0); err != nil {
		w.file, w.missed = nil, true
		if errors.Is(err, os.ErrNotExist) {
			w.lose("file", "it is missing")
			return nil
		}
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	st, err := w.file.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("ctxpage: salvage: %s is not a regular file", w.path), err)
	}
	walk := &boltWalk{f: w.file, used: map[uint64]bool{0: true, 1: true}, bad: func(format string, args ...any) {
		w.missed = true
		w.lose("file", format, args...)
	}}
	walk.m, err = newestMeta(w.file, st.Size())
	if err != nil {
		walk.bad("%v", err)
		walk.m = boltMeta{pageSize: likelyPageSize(w.file, st.Size())}
	}
	walk.m.high = uint64(st.Size() / walk.m.pageSize)
	if err == nil {
		walk.row = w.row
		walk.tree(walk.m.root, nil)
		if !w.system { // which commits the log must have is not known
			w.missed = true
			w.lose("system row", "missing or damaged")
		}
	}
	return w.strays(ctx, walk)
}

// row takes a row that the tree leads to.
//
// The system row is read through a Store of its own, because decodeSys checks format, keyring and
// checksum in the right order. Outcomes, vectors and the index are not taken: the copy is another
// database, and the last two can be computed again.
func (w *wreck) row(bucket string, k, v []byte, at int64) {
	if bucket == string(bucketSys) {
		s := &Store{opts: Options{Path: w.path, Key: w.key}}
		s.ring.Store(w.ring)
		switch err := s.decodeSys(v); {
		case err == nil:
			w.applied, w.seq, w.id, w.system = s.sys.Applied, s.sys.Seq, s.sys.ID, true
		case errors.Is(err, store.ErrKey):
			w.noKey = err
		}
		return
	}
	n := len(v)
	v = w.opened(bucket, k, v)
	if bucket == string(bucketState) {
		if row, err := format.UnsealState(k, v); err != nil {
			w.damagedRow(bucket, k, err)
		} else {
			w.state[string(k)], w.sealed[string(k)] = row.Value, bytes.Clone(v)
		}
		return
	}
	tag := map[string]byte{"meta": 'm', "content": 'c', "held": 'd', "question": 'q'}[bucket]
	if tag == 0 {
		return // can be computed again, or is of no use in another database
	}
	value, err := codec.Unseal(tag, k, v)
	if err != nil {
		w.damagedRow(bucket, k, err)
		return
	}
	switch {
	case tag == 'd' && len(k) == 16:
		w.held[ulid.ULID(k)] = bytes.Clone(value)
	case tag == 'q' && len(k) == 8:
		w.asked[binary.BigEndian.Uint64(k)] = true
	default:
		w.fixed(tag, k, value, span{at, n})
	}
}

// opened is the value of a row of a bucket, as an engine would be given it.
func (w *wreck) opened(bucket string, k, v []byte) []byte {
	for t, name := range bucketNames {
		if string(name) == bucket {
			return unsealRow(w.ring, engine.Table(t), k, v)
		}
	}
	return v
}

// damagedRow notes a row that cannot be read. The key of a head still says that its version
// existed.
//
// A row whose key is none of these may have been a head with a damaged key, so heads may be missing
// (missed).
func (w *wreck) damagedRow(bucket string, k []byte, err error) {
	switch {
	case errors.Is(err, codec.ErrDestroyed):
		return // it was erased
	case bucket == "content":
		return // reported with its artefact
	case bucket == "meta" && len(k) == 13 && k[0] == 'h':
		art, version := binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(k[9:])
		w.broken[art] = max(w.broken[art], version)
		w.lose(fmt.Sprintf("version %d of artefact number %d", version, art), "its row is damaged: %v", err)
	case bucket == "held" && len(k) == 16:
		w.lose("held batch "+ulid.ULID(k).String(), "%v", err)
	case bucket == string(bucketAsked):
		return // questions are not copied
	case bucket == "state":
		w.lose(fmt.Sprintf("state %q", k), "%v", err)
	default:
		w.missed = true
		w.lose(fmt.Sprintf("row %x of %s", k, bucket), "%v", err)
	}
}

// fixed takes a row of a kind that is never written twice.
//
// Rows of versions rewritten by gc or erase are the exception; keep and proveHead sort those out.
func (w *wreck) fixed(tag byte, k, value []byte, at span) {
	switch {
	case tag == 'c' && len(k) == 8:
		w.texts[binary.BigEndian.Uint64(k)] = at
	case tag == 'm' && len(k) == 5 && k[0] == 's':
		w.scopes[binary.BigEndian.Uint32(k[1:])] = string(value)
	case tag == 'm' && len(k) == 13 && k[0] == 'h':
		w.keep(format.HeadKey{Art: binary.BigEndian.Uint64(k[1:]), Version: binary.BigEndian.Uint32(k[9:])}, bytes.Clone(value), false)
	}
}

// strays looks at the pages that no tree leads to: those below a damaged branch, and free ones. A
// row has the checksum of its bucket, key and value, so it is recognised anywhere. Only rows that
// never change are taken.
//
// State rows and held batches change under one key, and nothing on a free page tells the newest
// from an older one, so they are not taken from there.
func (w *wreck) strays(ctx context.Context, tree *boltWalk) error {
	walk := &boltWalk{f: w.file, m: tree.m, used: map[uint64]bool{}, bad: func(string, ...any) {}, row: func(_ string, k, v []byte, at int64) {
		for tag, bucket := range map[byte]string{'c': string(bucketContent), 'm': string(bucketMeta)} {
			if value, err := codec.Unseal(tag, k, w.opened(bucket, k, v)); err == nil {
				w.fixed(tag, k, value, span{at, len(v)})
			}
		}
	}}
	for id := uint64(2); id < walk.m.high; id++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if tree.used[id] || walk.used[id] {
			continue
		}
		if head, err := walk.m.page(w.file, id, boltLeaf); err != nil || binary.NativeEndian.Uint16(head[10:]) == 0 {
			continue
		}
		if b := walk.load(id, boltLeaf); b != nil {
			walk.page(id, b, int64(id)*walk.m.pageSize, nil)
		}
	}
	return nil
}

// record takes the rows of a record of the log.
//
// A head of a commit that the file does not have yet goes in front of what the file has; one that
// the file has goes behind it, as another candidate. State and held batches of the log replace
// those of the file, because the log is newer there.
func (w *wreck) record(r wal.Record) error {
	w.last = r.Seq
	if r.Kind != wal.KindCommit {
		return nil
	}
	r, err := openRecord(w.ring, r)
	var c *format.Commit
	if err == nil {
		c, err = format.DecodeCommit(r.Body)
	}
	if err != nil {
		w.cutAll()
		w.lose(fmt.Sprintf("record %d of the log", r.Seq), "%v", err)
		return nil
	}
	if from := max(w.applied, w.lsn) + 1; c.LSN > from && w.system {
		w.missed = true // the audit names them, if it is complete
		w.lose("log", "commits %d to %d", from, c.LSN-1)
	}
	w.lsn, w.commits = c.LSN, append(w.commits, logged{r.Seq, c.LSN})
	for _, n := range c.Scopes {
		w.scopes[n.Num] = n.Name
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&d)
		w.keep(format.HeadKey{Art: t.Art, Version: t.Version}, h.Row, c.LSN > w.applied)
		for _, x := range h.Texts {
			w.logged[x.Num] = x.Text
		}
	}
	if c.LSN <= w.applied {
		return nil // the file has these rows, or newer ones
	}
	for _, s := range c.State {
		if leaf, ok := format.GoneQuestion(s.Key); ok {
			delete(w.asked, leaf)
			continue
		}
		if id, ok := format.GoneReview(s.Key); ok {
			delete(w.held, id)
			continue
		}
		w.state[s.Key] = s.Value
		delete(w.sealed, s.Key)
	}
	if len(c.Held) > 0 {
		w.held[c.HeldID] = c.Held
	}
	return nil
}

// text reads the text of a page and compares it with its row: length, hash and digest.
//
// The log is asked first, because its texts are in memory. Which source a text is from does not
// matter: a page number names one text for ever, and the digest in the row proves it.
func (w *wreck) text(r *store.PageRow) (string, error) {
	text, ok := w.logged[r.Num]
	if s, inFile := w.texts[r.Num]; !ok && inFile {
		b := make([]byte, s.n)
		if _, err := io.ReadFull(io.NewSectionReader(w.file, s.at, int64(s.n)), b); err != nil {
			return "", err
		}
		key := format.TextRowKey(r.Num)
		v, err := codec.Unseal('c', key, w.opened(string(bucketContent), key, b))
		if err != nil {
			return "", fmt.Errorf("the text of page %d: %w", r.Num, err)
		}
		text, ok = string(v), true
	}
	switch {
	case !ok:
		return "", fmt.Errorf("the text of page %d is missing or damaged", r.Num)
	case int(r.Bytes) != len(text) || r.Hash != store.ContentHash(text) || r.Digest != store.SaltedDigest(r.Salt[:], text):
		return "", fmt.Errorf("the text of page %d is not the one that was committed", r.Num)
	}
	return text, nil
}

// committed is the newest version of an artefact that the audit names.
type committed struct {
	version uint32
	deleted bool
}

// audited reads from the audit which versions were committed, by artefactKey, and reports whether
// all of it can be read.
//
// The answer is by name, because a leaf names artefacts by scope and id. Leaves are walked in
// order, so the last write of a name is its newest.
func (w *wreck) audited(ctx context.Context) (newest map[string]committed, whole bool) {
	newest = map[string]committed{}
	l, rep, err := manifest.OpenSealedReader(ctx, w.path+"-manifest", nil, sealerOf(w.ring), func(add func(uint64, []byte) error) error {
		return w.leaves(ctx, add)
	})
	if err != nil {
		return newest, false
	}
	defer l.Close()
	if w.id != "" && l.DB() != "" && l.DB() != w.id {
		w.lose("audit", "it belongs to another database; nothing was taken from it")
		return newest, false
	}
	nameless := w.nameless()
	err = l.Each(ctx, 0, l.Size(), false, func(r *manifest.Record) error {
		for _, x := range r.Writes {
			ref, err := store.ParseRef(x.Ref)
			if n := nameless[x.Num]; n != 0 && err == nil {
				w.scopes[n] = ref.Scope
			}
			name := artefactKey(ref.Scope, ref.ID)
			was := newest[name]
			restarted := was.deleted && !x.Gone && !x.Touch // gc forgot it: the next put begins with version 1
			if err == nil && x.Version > 0 && (x.Version >= was.version || restarted) {
				newest[name] = committed{x.Version, x.Deleted}
			}
		}
		if r.Type == manifest.TypeApprove || r.Type == manifest.TypeReject {
			w.decided[r.From] = true
		}
		return nil
	})
	if err == nil {
		err = w.compare(ctx, l)
	}
	return newest, err == nil && !w.foreign && rep.Damage == nil && rep.Archived >= rep.Marked
}

// compare compares the rows with the audit, because checksums do not find an edit. A row that is
// not the one that was committed is not taken, and its version counts only as far as the audit
// names it.
func (w *wreck) compare(ctx context.Context, l *manifest.Log) error {
	proofs, err := format.ProofsOf(ctx, l)
	if err != nil || w.trust {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(w.heads), func(a, b format.HeadKey) int {
		return cmp.Or(cmp.Compare(a.Art, b.Art), cmp.Compare(a.Version, b.Version))
	})
	for _, k := range keys {
		w.proveHead(proofs, k)
	}
	for id, row := range w.held {
		if h, err := format.DecodeHeld(row); err == nil && proofs.Held(id[:], row, max(h.LSN, h.Outcome.LSN)) != nil {
			w.lose("held batch "+id.String(), "its row was edited: %v", format.ErrEdited)
			delete(w.held, id)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.sealed)) {
		if proofs.State([]byte(key), w.sealed[key]) != nil {
			w.lose(fmt.Sprintf("state %q", key), "its row was edited: %v", format.ErrEdited)
			w.state[key] = nil
		}
	}
	w.count()
	return nil
}

// proveHead takes the first row of a key that was committed.
func (w *wreck) proveHead(proofs format.Proofs, k format.HeadKey) {
	h := w.head(k)
	if h == nil || proofs.Head(w.heads[k], h) == nil {
		return
	}
	name := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	for _, row := range w.others[k] {
		w.heads[k] = row
		if h := w.head(k); h != nil && proofs.Head(row, h) == nil {
			w.lose(name, "its row was edited; the committed one was found elsewhere in the files and copied")
			return
		}
	}
	w.lose(name, "its row was edited: %v", format.ErrEdited)
	delete(w.heads, k)
	w.edited[k] = true
}

// leaves gives add the leaves of the log, and fails if records are missing. A file with a strange
// name beside the segments is no obstacle here, although every other reader refuses it: the
// segments have everything.
func (w *wreck) leaves(ctx context.Context, add func(uint64, []byte) error) error {
	if w.foreign {
		return nil
	}
	holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, func(r wal.Record) error {
		r, err := openRecord(w.ring, r)
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
func (w *wreck) nameless() map[uint64]uint32 {
	out := map[uint64]uint32{}
	for _, row := range w.heads {
		d := codec.Decoder{B: row}
		t := format.DecodeHot(&d)
		if w.scopes[t.Scope] != "" {
			continue
		}
		for _, r := range format.DecodeRows(&d, &t, nil) {
			out[r.Num] = t.Scope
		}
	}
	return out
}
