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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// SalvageOptions configure Salvage. The zero value is ready to use.
type SalvageOptions struct {
	// Older also copies artefacts whose newest version is known to be lost, as they were in the newest version that can
	// be read. They say what was corrected or replaced since, so it is not the default.
	Older bool
	// By names who salvages, in the manifest.
	By string
	// Clock as in Options.
	Clock func() time.Time

	State []store.StateKind
}

// Salvaged says what Salvage did.
type Salvaged struct {
	Artefacts int    `json:"artefacts"` // copied, of which
	Older     int    `json:"older"`     // in a version that is known not to be the newest
	Unproved  int    `json:"unproved"`  // in the newest version that can be read, of which nothing proves that it was the newest
	Held      int    `json:"held"`      // drafts that wait for review
	State     int    `json:"state"`     // rows: directives, file roots
	Questions int    `json:"questions"` // texts in the old audit, which stay behind with it
	Lost      []Loss `json:"lost"`
}

// Loss is something that could not be copied, or not as what it surely was in the end.
type Loss struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Salvage copies what can be read of a damaged database to a new one at another path, and lists what is lost. It reads
// the files as they are and changes nothing of them. It never guesses: a row is taken when its checksum fits, a text
// when its digest does, and an artefact in its newest version. Where commits are lost and nothing says which artefacts they
// wrote, the copy is the newest state that can be proved: what was written after the gap is as it was in the end, the rest
// as it was before the gap, and each artefact of the rest is listed, for it may have been changed or deleted since.
//
//	rows    bbolt's tree as far as it can be walked; heads and texts, which never change, also from pages that no
//	        tree leads to any more; then the log, past damaged records
//	judge   the newest version of each artefact, by the rows and by the audit, which names every version
//	copy    in the order of the old commits, so that supersessions come out the same
//
// The copy is another database: versions begin at 1, older ones and the audit stay behind, and sessions keep their turns
// but not what was decided about them. What is derived from a version that is not the copied one counts as changed.
//
// Errors are for what cannot be salvaged at all: ErrLocked, ErrNotExist, or what the file system said; a full disk is told
// with what the copy takes and what was free, and nothing of the copy is left.
func Salvage(ctx context.Context, path, to string, opts SalvageOptions) (rep Salvaged, err error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if err := store.CheckClock(opts.Clock()); err != nil {
		return rep, err
	}
	for _, p := range []*string{&path, &to} {
		if *p, err = filepath.Abs(*p); err != nil {
			return rep, fmt.Errorf("ctxpage: salvage: %w", err)
		}
	}
	if err := auditThere(path); err != nil {
		return rep, err
	}
	if err := mayReplace("salvage", to, false); err != nil {
		return rep, err
	}
	lock, err := lockProcess(path, true, 0, opts.Clock)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	w := newWreck(path)
	defer w.close()
	if err := w.gather(ctx); err != nil {
		return rep, err
	}
	if w.nothing() {
		return rep, fmt.Errorf("%w: %s: nothing in it, nor in its log, is of one; expected the main file of a database, with its log and audit beside it under the same name", store.ErrNotDatabase, path)
	}
	if err := mayReplace("salvage", to, false); err != nil { // reading took its time
		return rep, err
	}
	room := roomFor(path, to)
	st, err := Open(Options{Path: to, Now: opts.Clock, State: opts.State})
	if err != nil {
		if !errors.Is(err, store.ErrLocked) { // else it is somebody else's by now
			removeDatabase(to)
		}
		return rep, room.explain("salvage", err)
	}
	c := &copier{w: w, st: st, opts: opts}
	err = c.copy(ctx)
	c.rep.Lost, c.rep.Questions = w.lost, len(w.asked)
	if err = errors.Join(err, st.Close()); err != nil {
		removeDatabase(to)
	}
	return c.rep, room.explain("salvage", err)
}

// nothing says that not one row was recognised: that is no damaged database but another file.
func (w *wreck) nothing() bool {
	return !w.system && len(w.heads)+len(w.texts)+len(w.logged)+len(w.held)+len(w.state) == 0
}

// wreck is what is left of a damaged database.
type wreck struct {
	path    string
	file    *os.File // nil: not there
	scopes  map[uint32]string
	heads   map[engine.HeadKey][]byte
	texts   map[uint64]span
	logged  map[uint64]string // texts of the log
	held    map[ulid.ULID][]byte
	state   map[string][]byte
	applied uint64 // LSN up to which the file has the log's effect; 0: not known, or none
	seq     uint64 // record that carries it
	system  bool   // the system row was read
	id      string // of the database
	last    uint64 // record of the log
	lsn     uint64 // commit of the log
	commits []logged
	gapTo   uint64 // LSN up to which commits are lost, with no trace of what they wrote; what is newer is proved
	missed  bool   // rows of heads may be missing without a trace; the audit may know of them
	cut     bool   // so may commits with all that the audit has of them
	newest  map[uint64]uint32
	asked   map[uint64]bool // leaves whose question is there
	lost    []Loss
}

// logged is a commit that the log has.
type logged struct{ seq, lsn uint64 }

// span is a sealed value in the file.
type span struct {
	at int64
	n  int
}

func newWreck(path string) *wreck {
	return &wreck{
		path: path, scopes: map[uint32]string{}, heads: map[engine.HeadKey][]byte{}, texts: map[uint64]span{}, logged: map[uint64]string{},
		held: map[ulid.ULID][]byte{}, state: map[string][]byte{}, newest: map[uint64]uint32{}, asked: map[uint64]bool{},
	}
}

func (w *wreck) close() {
	if w.file != nil {
		w.file.Close()
	}
}

func (w *wreck) lose(what, format string, args ...any) {
	w.lost = append(w.lost, Loss{what, fmt.Sprintf(format, args...)})
}

func (w *wreck) gather(ctx context.Context) error {
	if err := w.readFile(ctx); err != nil {
		return err
	}
	if _, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.belongs); err != nil {
		if !errors.Is(err, errForeign) {
			return fmt.Errorf("ctxpage: salvage: %w", err)
		}
		w.cutAll()
		w.lose("log", "%v: what it has is not taken", err)
		w.count()
		return nil
	}
	holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, w.record)
	for _, h := range holes {
		switch {
		case h.From == 0: // if records are missing for it, the others tell
			w.lose("a file in the log's directory", "%v", h.Err)
		case errors.Is(h.Err, wal.ErrMissing): // a database has a log from its first moment
			w.cutAll()
			w.lose("log", "%v: it was removed, or not copied with the file", h.Err)
		case h.To != 0 && h.To <= w.seq: // the file has what they brought
		case w.noCommit(h):
			w.lose("log", "records %d to %d, which were of reads: %v", h.From, h.To, h.Err)
		case h.Torn:
			w.lose("end of the log", "%v: torn by the end of the process or of the power, if it was never acknowledged", h.Err)
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
	if w.system && first > w.seq+1 { // the file tells, also where no record is left to show a gap
		w.cutAt(wal.Hole{From: 1, To: first - 1})
		w.lose("log", "it begins at record %d, the file ends at %d: its first segments are missing", first, w.seq)
	}
	if w.last < w.seq || w.last == 0 && !w.system {
		w.cutAll()
		w.lose("log", "it ends at record %d, the file at %d: it was removed, replaced or overwritten", w.last, w.seq)
	}
	w.count()
	return nil
}

// around gives the LSNs of the commits before and after a hole; after 0: there is none.
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

// noCommit says whether the commits around a hole follow each other, so that there is none in it.
func (w *wreck) noCommit(h wal.Hole) bool {
	before, after := w.around(h)
	return (w.system || before != 0) && after != 0 && after <= before+1
}

// cutAt notes a hole with commits in it. What a later commit of the log wrote is newer than they are.
func (w *wreck) cutAt(h wal.Hole) {
	w.cut = true
	if _, after := w.around(h); after != 0 {
		w.gapTo = max(w.gapTo, after-1)
		return
	}
	w.cutAll()
}

// cutAll is for commits that are lost, nobody knows which.
func (w *wreck) cutAll() { w.cut, w.gapTo = true, math.MaxUint64 }

// proved is the LSN above which all commits are there. Below it rows of heads may be missing whose commits no audit names.
func (w *wreck) proved(whole bool) uint64 {
	switch {
	case whole || !w.missed:
		return w.gapTo
	case w.system:
		return max(w.gapTo, w.applied)
	}
	return math.MaxUint64
}

func (w *wreck) count() {
	for k := range w.heads {
		w.newest[k.Art] = max(w.newest[k.Art], k.Version)
	}
}

var errForeign = errors.New("it is the log of another database")

// belongs compares a record with what the file has under the same numbers: the log does not say whose it is.
func (w *wreck) belongs(r wal.Record) error {
	if r.Kind == wal.KindAudit {
		index, _, question, err := engine.DecodeLeaf(r.Body)
		if err == nil && question != nil {
			w.asked[index] = true
		}
		return nil
	}
	if r.Kind != wal.KindCommit {
		return nil
	}
	c, err := engine.DecodeCommit(r.Body)
	if err != nil {
		return nil // told when it is taken
	}
	for _, n := range c.Scopes {
		if name := w.scopes[n.Num]; name != "" && name != n.Name {
			return errForeign
		}
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := engine.DecodeHot(&d)
		if row := w.heads[engine.HeadKey{Art: t.Art, Version: t.Version}]; row != nil && !bytes.Equal(row, h.Row) && !engine.GoneRow(row) && t.Flags&engine.FlagGone == 0 {
			return errForeign
		}
	}
	return nil
}

// readFile reads the rows of bbolt's file.
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
		return errors.Join(fmt.Errorf("ctxpage: salvage: %s is no file", w.path), err)
	}
	walk := &boltWalk{f: w.file, used: map[uint64]bool{0: true, 1: true}, bad: func(format string, args ...any) {
		w.missed = true
		w.lose("file", format, args...)
	}}
	walk.m, err = newestMeta(w.file, st.Size())
	if err != nil {
		walk.bad("%v", err)
		walk.m = boltMeta{pageSize: int64(os.Getpagesize())}
	}
	walk.m.high = uint64(st.Size() / walk.m.pageSize)
	if err == nil {
		walk.row = w.row
		walk.tree(walk.m.root, nil)
		if !w.system { // then nobody knows which commits the log must have
			w.missed = true
			w.lose("system row", "missing or damaged")
		}
	}
	return w.strays(ctx, walk)
}

// row takes a row that the tree leads to.
func (w *wreck) row(bucket string, k, v []byte, at int64) {
	if bucket == string(bucketSys) {
		s := &Store{}
		if err := s.decodeSys(v); err == nil {
			w.applied, w.seq, w.id, w.system = s.sys.Applied, s.sys.Seq, s.sys.ID, true
		}
		return
	}
	tag := map[string]byte{"meta": 'm', "content": 'c', "held": 'd', "state": 's', "question": 'q'}[bucket]
	if tag == 0 {
		return // derived, or of no use in another database
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
	case tag == 's':
		w.state[string(k)] = bytes.Clone(value)
	default:
		w.fixed(tag, k, value, at)
	}
}

// damagedRow notes a row that cannot be read. The version that a head's key names is known to have been all the same.
func (w *wreck) damagedRow(bucket string, k []byte, err error) {
	switch {
	case bucket == "content":
		return // told with its artefact
	case bucket == "meta" && len(k) == 13 && k[0] == 'h':
		art, version := binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(k[9:])
		w.newest[art] = max(w.newest[art], version)
		w.lose(fmt.Sprintf("version %d of artefact number %d", version, art), "its row: %v", err)
	case bucket == "held" && len(k) == 16:
		w.lose("held batch "+ulid.ULID(k).String(), "%v", err)
	case bucket == string(bucketAsked):
		return // it stays behind
	case bucket == "state":
		w.lose(fmt.Sprintf("state %q", k), "%v", err)
	default:
		w.missed = true
		w.lose(fmt.Sprintf("row %x of %s", k, bucket), "%v", err)
	}
}

// fixed takes a row that is never written twice.
func (w *wreck) fixed(tag byte, k, value []byte, at int64) {
	switch {
	case tag == 'c' && len(k) == 8:
		w.texts[binary.BigEndian.Uint64(k)] = span{at, len(value)}
	case tag == 'm' && len(k) == 5 && k[0] == 's':
		w.scopes[binary.BigEndian.Uint32(k[1:])] = string(value)
	case tag == 'm' && len(k) == 13 && k[0] == 'h':
		w.heads[engine.HeadKey{Art: binary.BigEndian.Uint64(k[1:]), Version: binary.BigEndian.Uint32(k[9:])}] = bytes.Clone(value)
	}
}

// strays looks at the pages that no tree leads to: those of a damaged branch, and free ones. A row carries the checksum
// of its bucket, key and value, so it is known wherever it stands; only rows that never change are taken.
func (w *wreck) strays(ctx context.Context, tree *boltWalk) error {
	walk := &boltWalk{f: w.file, m: tree.m, used: map[uint64]bool{}, bad: func(string, ...any) {}, row: func(_ string, k, v []byte, at int64) {
		for _, tag := range []byte("cm") {
			if value, err := codec.Unseal(tag, k, v); err == nil {
				w.fixed(tag, k, value, at)
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

// record takes what a record of the log brings.
func (w *wreck) record(r wal.Record) error {
	w.last = r.Seq
	if r.Kind != wal.KindCommit {
		return nil
	}
	c, err := engine.DecodeCommit(r.Body)
	if err != nil {
		w.cutAll()
		w.lose(fmt.Sprintf("record %d of the log", r.Seq), "%v", err)
		return nil
	}
	if from := max(w.applied, w.lsn) + 1; c.LSN > from && w.system {
		w.missed = true // the audit knows, if its leaves are all there
		w.lose("log", "commits %d to %d", from, c.LSN-1)
	}
	w.lsn, w.commits = c.LSN, append(w.commits, logged{r.Seq, c.LSN})
	for _, n := range c.Scopes {
		w.scopes[n.Num] = n.Name
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := engine.DecodeHot(&d)
		w.heads[engine.HeadKey{Art: t.Art, Version: t.Version}] = h.Row
		for _, x := range h.Texts {
			w.logged[x.Num] = x.Text
		}
	}
	if c.LSN <= w.applied {
		return nil // the file has these rows, or newer ones
	}
	for _, s := range c.State {
		if leaf, ok := engine.GoneQuestion(s.Key); ok {
			delete(w.asked, leaf)
			continue
		}
		w.state[s.Key] = s.Value
	}
	if len(c.Held) > 0 {
		w.held[c.HeldID] = c.Held
	}
	return nil
}

// text reads the text of a page and holds it against everything its row says.
func (w *wreck) text(r *store.PageRow) (string, error) {
	text, ok := w.logged[r.Num]
	if s, inFile := w.texts[r.Num]; !ok && inFile {
		b := make([]byte, s.n)
		if _, err := io.ReadFull(io.NewSectionReader(w.file, s.at, int64(s.n)), b); err != nil {
			return "", err
		}
		text, ok = string(b), true
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

// audited reads what was committed, by flightKey, and says whether all of the audit can be read.
func (w *wreck) audited(ctx context.Context) (newest map[string]committed, whole bool) {
	newest = map[string]committed{}
	l, rep, err := manifest.OpenReader(ctx, w.path+"-manifest", nil, func(add func(uint64, []byte) error) error {
		return w.leaves(ctx, add)
	})
	if err != nil {
		return newest, false
	}
	defer l.Close()
	if w.id != "" && l.DB() != "" && l.DB() != w.id {
		w.lose("audit", "it is that of another database")
		return newest, false
	}
	nameless := w.nameless()
	err = l.Each(ctx, 0, l.Size(), false, func(r *manifest.Record) error {
		for _, x := range r.Writes {
			ref, err := store.ParseRef(x.Ref)
			if n := nameless[x.Num]; n != 0 && err == nil {
				w.scopes[n] = ref.Scope
			}
			if name := engine.FlightKey(ref.Scope, ref.ID); err == nil && x.Version >= newest[name].version && x.Version > 0 {
				newest[name] = committed{x.Version, x.Deleted}
			}
		}
		return nil
	})
	return newest, err == nil && rep.Damage == nil && rep.Archived >= rep.Marked
}

// leaves hands out the leaves of the log, and fails where records of it are missing. A file with a strange name beside its
// segments does not matter here, though every other reader refuses it: what is in the segments is all there.
func (w *wreck) leaves(ctx context.Context, add func(uint64, []byte) error) error {
	holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, func(r wal.Record) error {
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

// nameless gives pages of scopes whose name is lost, with the number of the scope: the audit has them by name.
func (w *wreck) nameless() map[uint64]uint32 {
	out := map[uint64]uint32{}
	for _, row := range w.heads {
		d := codec.Decoder{B: row}
		t := engine.DecodeHot(&d)
		if w.scopes[t.Scope] != "" {
			continue
		}
		for _, r := range engine.DecodeRows(&d, nil) {
			out[r.Num] = t.Scope
		}
	}
	return out
}

// copier writes what was gathered into the new database.
type copier struct {
	w     *wreck
	st    *Store // the copy
	opts  SalvageOptions
	rep   Salvaged
	taken map[string]*taken // by flightKey
	order []*taken          // as they were committed
}

// taken is an artefact that is copied.
type taken struct {
	head  *store.Head
	texts []string
	lsn   uint64 // in the copy
}

func (t *taken) key() string { return engine.FlightKey(t.head.Scope, t.head.ID) }

func (c *copier) copy(ctx context.Context) error {
	if err := c.choose(ctx); err != nil {
		return err
	}
	c.supersede()
	for _, step := range []func(context.Context) error{c.artefacts, c.state, c.held} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return c.st.note(ctx, store.Written, &manifest.Record{
		Type: manifest.TypeRestored, By: c.opts.By,
		Reason: fmt.Sprintf("salvaged: %d artefacts and %d held batches of a damaged database; %d losses", c.rep.Artefacts, c.rep.Held, len(c.w.lost)),
	})
}

// choose picks the version of each artefact to copy.
func (c *copier) choose(ctx context.Context) error {
	w := c.w
	audit, whole := w.audited(ctx)
	if !whole {
		w.lose("audit", "not all of it can be read")
		w.loseUnnamed()
	}
	c.taken = map[string]*taken{}
	proved, known := w.proved(whole), map[string]bool{}
	for _, art := range slices.Sorted(maps.Keys(w.newest)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := w.anyHead(art, w.newest[art])
		if h == nil {
			w.lose(fmt.Sprintf("artefact number %d", art), "none of its %d versions can be read", w.newest[art])
			continue
		}
		name := engine.FlightKey(h.Scope, h.ID)
		known[name] = true
		newest := max(w.newest[art], audit[name].version)
		c.chooseOne(art, newest, proved)
	}
	for _, name := range slices.Sorted(maps.Keys(audit)) {
		if a := audit[name]; !known[name] && !a.deleted {
			scope, id, _ := strings.Cut(name, "\x00")
			w.lose(store.Ref{Scope: scope, ID: id, Version: a.version}.String(), "the audit names it, nothing of it can be read")
		}
	}
	slices.SortFunc(c.order, func(x, y *taken) int {
		return cmp.Or(cmp.Compare(x.head.LSN, y.head.LSN), cmp.Compare(x.head.Scope, y.head.Scope), cmp.Compare(x.head.Art, y.head.Art))
	})
	return nil
}

// loseUnnamed tells of artefacts of which no row is left and that no audit names: their numbers are missing among the
// others, and there may have been higher ones.
func (w *wreck) loseUnnamed() {
	next := uint64(1)
	for _, art := range slices.Sorted(maps.Keys(w.newest)) {
		if art > next {
			w.lose(fmt.Sprintf("artefacts number %d to %d", next, art-1), "nothing of them can be read")
		}
		next = art + 1
	}
	if w.missed || w.cut {
		w.lose(fmt.Sprintf("artefacts from number %d on", next), "if there were any, nothing of them can be read")
	}
}

// chooseOne goes down from the newest version of an artefact to one that can be read whole. One that was written above the
// LSN proved is the newest there was.
func (c *copier) chooseOne(art uint64, newest uint32, proved uint64) {
	var why error
	for v := newest; v > 0; v-- {
		h := c.w.head(engine.HeadKey{Art: art, Version: v})
		if h == nil {
			why = cmp.Or(why, error(codec.ErrMalformed))
			continue
		}
		name, sure := store.Ref{Scope: h.Scope, ID: h.ID, Version: newest}.String(), h.LSN > proved
		if h.Deleted {
			if !sure {
				c.w.lose(name, "it was deleted at lsn %d; later commits are lost, which may have put it again", h.LSN)
			}
			return
		}
		if h.Gone {
			continue
		}
		t := &taken{head: h}
		var err error
		for i := range h.Rows {
			var text string
			if text, err = c.w.text(&h.Rows[i]); err != nil {
				break
			}
			t.texts = append(t.texts, text)
		}
		if err != nil {
			why = cmp.Or(why, err)
			continue
		}
		switch {
		case v < newest && !c.opts.Older:
			c.w.lose(name, "%v; version %d can be read, and is copied when older versions are asked for", why, v)
			return
		case v < newest:
			c.w.lose(name, "%v; copied as it was in version %d", why, v)
			c.rep.Older++
		case !sure:
			c.w.lose(name, "copied as it was at lsn %d; later commits are lost, which may have changed or deleted it", h.LSN)
			c.rep.Unproved++
		}
		c.taken[t.key()] = t
		c.order = append(c.order, t)
		return
	}
	if h := c.w.anyHead(art, newest); h != nil {
		c.w.lose(store.Ref{Scope: h.Scope, ID: h.ID, Version: newest}.String(), "%v; no older version can be read", why)
	}
}

func (w *wreck) head(k engine.HeadKey) *store.Head {
	h, err := engine.DecodeHead(w.heads[k], func(n uint32) string { return w.scopes[n] })
	if err != nil || h.Scope == "" || h.Art != k.Art || h.Version != k.Version {
		return nil
	}
	return h
}

func (w *wreck) anyHead(art uint64, newest uint32) *store.Head {
	for v := newest; v > 0; v-- {
		if h := w.head(engine.HeadKey{Art: art, Version: v}); h != nil {
			return h
		}
	}
	return nil
}

// supersede repeats in the copied heads what any version of an artefact replaced, since the copy has one of them only.
// What was replaced by something that is not copied would come back by itself: it stays behind.
func (c *copier) supersede() {
	var later []*store.Head
	for k := range c.w.heads {
		if h := c.w.head(k); h != nil && len(h.Supersedes) > 0 {
			later = append(later, h)
		}
	}
	slices.SortFunc(later, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(x.LSN, y.LSN), cmp.Compare(x.Art, y.Art)) })
	by := map[string]*store.Head{}
	for _, h := range later {
		for _, id := range h.Supersedes {
			if t := c.taken[engine.FlightKey(h.Scope, id)]; t != nil && t.head.Art != h.Art && t.head.LSN <= h.LSN {
				by[t.key()] = h
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		old, h := c.taken[name], by[name]
		if next := c.taken[engine.FlightKey(h.Scope, h.ID)]; next != nil {
			if !slices.Contains(next.head.Supersedes, old.head.ID) {
				next.head.Supersedes = append(next.head.Supersedes, old.head.ID)
			}
			continue
		}
		delete(c.taken, name)
		c.order = slices.DeleteFunc(c.order, func(t *taken) bool { return t == old })
		c.w.lose(store.Ref{Scope: old.head.Scope, ID: old.head.ID, Version: old.head.Version}.String(), "%s replaced it, which is not there any more", h.ID)
	}
}

// artefacts commits what was chosen, together what was committed together.
func (c *copier) artefacts(ctx context.Context) error {
	for rest := c.order; len(rest) > 0; {
		first, n := rest[0].head, 1
		for n < len(rest) && rest[n].head.LSN == first.LSN && rest[n].head.Scope == first.Scope {
			n++
		}
		b := engine.Request{Batch: store.Batch{Scope: first.Scope, Actor: first.Actor, Now: first.PutAt, OnStale: store.AllowStale, Leaf: manifest.Record{Type: manifest.TypeCommit, By: c.opts.By, Reason: "salvaged"}}}
		for _, t := range rest[:n] {
			b.Puts = append(b.Puts, c.put(t))
		}
		out, err := c.commit(ctx, b)
		if err != nil {
			return err
		}
		for _, t := range rest[:n] {
			t.lsn = out.LSN
		}
		c.rep.Artefacts += n
		rest = rest[n:]
	}
	return nil
}

func (c *copier) commit(ctx context.Context, b engine.Request) (out store.Outcome, err error) {
	if b.ID == (ulid.ULID{}) {
		if b.ID, err = store.NewID(b.Now, c.st.opts.Rand); err != nil {
			return out, err
		}
	}
	if out, err = c.st.Submit(ctx, b); err != nil {
		return out, fmt.Errorf("ctxpage: salvage: %w", err)
	}
	return out, nil
}

func (c *copier) put(t *taken) store.Put {
	h := t.head
	p := store.Put{Artefact: h.Artefact, Source: h.Source, AsOfGiven: true, PartBytes: h.PartBytes, Counter: h.Counter}
	for i := range h.Rows {
		r := &h.Rows[i]
		p.Pages = append(p.Pages, store.NewPage{Text: t.texts[i], Tokens: int(r.Tokens), Hash: r.Hash, Salt: r.Salt, Digest: r.Digest})
	}
	if strings.HasPrefix(p.Artefact.Source, "page:") {
		p.Source = store.Validator{} // it names a version: fetched anew by the first who reads it
	}
	p.Artefact.DerivedFrom = c.derived(p.Artefact.DerivedFrom)
	return p
}

// derived names the parents as they are in the copy. A version that is not the copied one is named as one that never was,
// so that what came from it counts as changed.
func (c *copier) derived(from []store.Ref) []store.Ref {
	out := slices.Clone(from)
	for i := range out {
		r := &out[i]
		same := false
		if t := c.taken[engine.FlightKey(r.Scope, r.ID)]; t != nil {
			same = r.Version == t.head.Version || r.Page > 0 && r.Page <= len(t.head.Rows) && t.head.Rows[r.Page-1].Version == r.Version
		}
		if r.Version = math.MaxUint32; same {
			r.Version = 1
		}
	}
	return out
}

// state copies the state rows that may be copied, units of them only where all is there.
func (c *copier) state(ctx context.Context) error {
	var rows []store.StateRow
	left, lost := map[string]int{}, map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(c.w.state)) {
		k := engine.KindOf(c.st.opts.State, key)
		switch {
		case k == nil || c.w.state[key] == nil:
		case !k.Copy:
			left[k.Prefix]++
		case k.Unit != nil && c.unitLost(k.Unit(key)):
			lost[k.Unit(key).Name] = true
		default:
			rows = append(rows, store.StateRow{Key: key, Value: c.w.state[key]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		c.w.lose(name, "not all of them can be read")
	}
	for _, prefix := range slices.Sorted(maps.Keys(left)) {
		if k := engine.KindOf(c.st.opts.State, prefix); k.Lost != "" {
			c.w.lose(fmt.Sprintf("%s (%d)", k.Lost, left[prefix]), "%s", k.Why)
		}
	}
	c.rep.State = len(rows)
	for batch := range slices.Chunk(rows, 500) {
		_, err := c.commit(ctx, engine.Request{Batch: store.Batch{
			Scope: store.OperatorScope, Actor: "operator", Now: c.opts.Clock(), State: batch,
			Leaf: manifest.Record{Type: manifest.TypeCommit, By: c.opts.By, Reason: "salvaged"},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// unitLost says whether the main row of a unit is missing, or the artefact that shows it was there and is not copied.
func (c *copier) unitLost(u store.StateUnit) bool {
	if c.w.state[u.Key] == nil {
		return true
	}
	if c.taken[engine.FlightKey(u.Page.Scope, u.Page.ID)] != nil {
		return false
	}
	name := store.Ref{Scope: u.Page.Scope, ID: u.Page.ID}.String() + "@"
	return slices.ContainsFunc(c.w.lost, func(l Loss) bool { return strings.HasPrefix(l.What, name) })
}

// held copies the drafts that wait for review. What they overwrite is judged by the copy's versions; what they were
// written from cannot be, and they say so.
func (c *copier) held(ctx context.Context) error {
	ids := make([]ulid.ULID, 0, len(c.w.held))
	for id := range c.w.held {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ulid.ULID.Compare)
	for _, id := range ids {
		var h store.HeldBatch
		if err := engine.UnpackHeld(c.w.held[id], &h); err != nil {
			c.w.lose("held batch "+id.String(), "%v", err)
			continue
		}
		if h.Decided != "" {
			continue
		}
		b := engine.Request{Batch: h.Batch, Carried: true}
		b.Action, b.Reason, b.Now = store.ActHold, h.Reason, h.At
		if len(b.Context) > 0 {
			b.Context, b.Reason = nil, h.Reason+"; salvaged, so what it was written from cannot be compared"
		}
		for i := range b.Expect {
			e := &b.Expect[i]
			t := c.taken[engine.FlightKey(e.Ref.Scope, e.Ref.ID)]
			switch {
			case t != nil && t.head.LSN == e.LSN:
				e.LSN = t.lsn
			case t != nil || e.LSN != 0:
				e.LSN = store.LsnElsewhere // a conflict, as it was
			}
		}
		for i := range b.Puts {
			b.Puts[i].Artefact.DerivedFrom = c.derived(b.Puts[i].Artefact.DerivedFrom)
		}
		if _, err := c.commit(ctx, b); err != nil {
			return err
		}
		c.rep.Held++
	}
	return nil
}
