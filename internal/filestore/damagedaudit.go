package filestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

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
		err = d.compare(ctx, l)
	}
	return newest, err == nil && !d.foreign && rep.Damage == nil && rep.Archived >= rep.Marked
}

// compare compares the rows with the audit, because checksums do not find an edit. A row that is
// not the one that was committed is not taken, and its version counts only as far as the audit
// names it.
func (d *damaged) compare(ctx context.Context, l *archive.Log) error {
	if d.trust {
		return nil
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
	return nil
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
