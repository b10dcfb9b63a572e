package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// span is the place of a sealed value in the file.
type span struct {
	at int64
	n  int // bytes, with the checksum; sealed, if the database is
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
	walk := &boltWalk{f: w.file, ended: ctx.Err, used: map[uint64]bool{0: true, 1: true}, bad: func(format string, args ...any) {
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

// text reads the text of a page and compares it with its row: length, hash and digest.
//
// The log is asked first, because its texts are in memory. Which source a text is from does not
// matter: a page number names one text forever, and the digest in the row proves it.
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
