package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// span is the place of a sealed value in the file.
type span struct {
	at int64
	n  int // bytes, with the checksum; sealed, if the database is
}

// keep takes a head row beside others of the same key, in front or behind: gc and erase rewrite the row
// of a version, and the old bytes stay on free pages and in the log. The audit knows which row was
// committed; without it the first counts.
func (d *damaged) keep(k format.HeadKey, row []byte, front bool) {
	is := d.heads[k]
	switch {
	case is == nil:
		d.heads[k] = row
	case bytes.Equal(is, row):
	case front:
		d.heads[k], d.others[k] = row, append([][]byte{is}, d.others[k]...)
	default:
		d.others[k] = append(d.others[k], row)
	}
}

// readFile reads the rows of bbolt's file. If no meta page can be read, the tree is lost but the pages
// are not: every page is then looked at as a stray one.
func (d *damaged) readFile(ctx context.Context) (err error) {
	if d.file, err = system.OpenFile(d.path, os.O_RDONLY, 0); err != nil {
		d.file, d.missed = nil, true
		if errors.Is(err, os.ErrNotExist) {
			d.lose("file", "it is missing")
			return nil
		}
		return fmt.Errorf("ctxpage: salvage: %w", err)
	}
	st, err := d.file.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("ctxpage: salvage: %s is not a regular file", d.path), err)
	}
	walk := &boltWalk{f: d.file, ended: ctx.Err, used: map[uint64]bool{0: true, 1: true}, bad: func(format string, args ...any) {
		d.missed = true
		d.lose("file", format, args...)
	}}
	walk.m, err = newestMeta(d.file, st.Size())
	if err != nil {
		walk.bad("%v", err)
		walk.m = boltMeta{pageSize: likelyPageSize(d.file, st.Size())}
	}
	walk.m.high = uint64(st.Size() / walk.m.pageSize)
	if err == nil {
		walk.row = d.row
		walk.tree(walk.m.root, nil)
		if !d.system { // which commits the log must have is not known
			d.missed = true
			d.lose("system row", "missing or damaged")
		}
	}
	return d.strays(ctx, walk)
}

// row takes a row that the tree leads to. Outcomes, vectors and the index are not taken: the copy is
// another database, and the last two can be computed again.
func (d *damaged) row(bucket string, k, v []byte, at int64) {
	if bucket == string(bucketSys) {
		s := &Store{opts: Options{Path: d.path, Key: d.key}}
		s.ring.Store(d.ring)
		switch err := s.decodeSys(v); {
		case err == nil:
			d.sys, d.system = s.sys, true
		case errors.Is(err, store.ErrKey):
			d.noKey = err
		}
		return
	}
	n := len(v)
	v = d.opened(bucket, k, v)
	if bucket == string(bucketState) {
		if row, err := format.UnsealState(k, v); err != nil {
			d.damagedRow(bucket, k, err)
		} else {
			d.state[string(k)], d.sealed[string(k)] = row.Value, bytes.Clone(v)
		}
		return
	}
	tag := map[string]byte{"meta": 'm', "content": 'c', "held": 'd', "question": 'q'}[bucket]
	if tag == 0 {
		return // can be computed again, or is of no use in another database
	}
	value, err := codec.Unseal(tag, k, v)
	if err != nil {
		d.damagedRow(bucket, k, err)
		return
	}
	switch {
	case tag == 'd' && len(k) == 16:
		d.held[ulid.ULID(k)] = bytes.Clone(value)
	case tag == 'q' && len(k) == 8:
		d.asked[binary.BigEndian.Uint64(k)] = true
	default:
		d.fixed(tag, k, value, span{at, n})
	}
}

// opened returns the plain value of a row of a bucket.
func (d *damaged) opened(bucket string, k, v []byte) []byte {
	for t, name := range bucketNames {
		if string(name) == bucket {
			return unsealRow(d.ring, engine.Table(t), k, v)
		}
	}
	return v
}

// damagedRow notes a row that cannot be read. The key of a head still proves that its version existed. A
// row with another key may have been a head with a damaged key (missed).
func (d *damaged) damagedRow(bucket string, k []byte, err error) {
	head, isHead := format.ReadHeadKey(k)
	switch {
	case errors.Is(err, codec.ErrDestroyed):
		return // it was erased
	case bucket == "content":
		return // reported with its artefact
	case bucket == "meta" && isHead:
		d.broken[head.Art] = max(d.broken[head.Art], head.Version)
		d.lose(fmt.Sprintf("version %d of artefact number %d", head.Version, head.Art), "its row is damaged: %v", err)
	case bucket == "held" && len(k) == 16:
		d.lose("held batch "+ulid.ULID(k).String(), "%v", err)
	case bucket == string(bucketAsked):
		return // questions are not copied
	case bucket == "state":
		d.lose(fmt.Sprintf("state %q", k), "%v", err)
	default:
		d.missed = true
		d.lose(fmt.Sprintf("row %x of %s", k, bucket), "%v", err)
	}
}

// fixed takes a row of a kind that is never written twice, but by gc and erase (keep, proveHead).
func (d *damaged) fixed(tag byte, k, value []byte, at span) {
	if tag == 'c' {
		if num, rest := codec.Ordered(k); rest != nil && len(rest) == 0 {
			d.texts[num] = at
		}
		return
	}
	if head, ok := format.ReadHeadKey(k); ok {
		d.keep(head, bytes.Clone(value), false)
	} else if len(k) == 5 && k[0] == 's' {
		d.scopes[binary.BigEndian.Uint32(k[1:])] = string(value)
	}
}

// strays looks at the pages that no tree leads to: those below a damaged branch, and free ones. A
// row has the checksum of its bucket, key and value, so it is recognised anywhere. Only rows that
// never change are taken: of a state row or a held batch nothing tells the newest from an older one.
func (d *damaged) strays(ctx context.Context, tree *boltWalk) error {
	walk := &boltWalk{f: d.file, m: tree.m, used: map[uint64]bool{}, bad: func(string, ...any) {}, row: func(_ string, k, v []byte, at int64) {
		for tag, bucket := range map[byte]string{'c': string(bucketContent), 'm': string(bucketMeta)} {
			if value, err := codec.Unseal(tag, k, d.opened(bucket, k, v)); err == nil {
				d.fixed(tag, k, value, span{at, len(v)})
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
		if head, err := walk.m.page(d.file, id, boltLeaf); err != nil || binary.NativeEndian.Uint16(head[10:]) == 0 {
			continue
		}
		if b := walk.load(id, boltLeaf); b != nil {
			walk.page(id, b, int64(id)*walk.m.pageSize, nil)
		}
	}
	return nil
}

// text reads the text of a page and compares it with its row: length, hash and digest. The log is asked
// first, because its texts are in memory; the digest proves the text of either source.
func (d *damaged) text(r *store.PageRow) (string, error) {
	text, ok := d.logged[r.Num]
	if s, inFile := d.texts[r.Num]; !ok && inFile {
		b := make([]byte, s.n)
		if _, err := io.ReadFull(io.NewSectionReader(d.file, s.at, int64(s.n)), b); err != nil {
			return "", err
		}
		key := format.TextRowKey(r.Num)
		v, err := codec.Unseal('c', key, d.opened(string(bucketContent), key, b))
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
