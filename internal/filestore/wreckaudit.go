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
// all of it can be read.
//
// The answer is by name, because a leaf names artefacts by scope and id. Leaves are walked in
// order, so the last write of a name is its newest.
func (w *wreck) audited(ctx context.Context) (newest map[string]committed, whole bool) {
	newest = map[string]committed{}
	l, rep, err := archive.OpenSealedReader(ctx, w.path+"-manifest", nil, sealerOf(w.ring), func(add func(uint64, []byte) error) error {
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
func (w *wreck) compare(ctx context.Context, l *archive.Log) error {
	if w.trust {
		return nil
	}
	proofs := format.Proofs{Log: l}
	keys := slices.SortedFunc(maps.Keys(w.heads), func(a, b format.HeadKey) int {
		return cmp.Or(cmp.Compare(a.Art, b.Art), cmp.Compare(a.Version, b.Version))
	})
	for _, k := range keys {
		w.proveHead(proofs, k)
	}
	for id, row := range w.held {
		if _, err := format.DecodeHeld(row); err == nil && proofs.Held(id[:], row) != nil {
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
	_, holes, err := wal.ScanIntact(ctx, w.path+"-wal", nil, func(r wal.Record) error {
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
