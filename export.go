package ctxpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Reads that hand out whole contents leave a leaf like any other read. An export writes the leaf of a batch before its
// lines, so the audit never lacks what left the database; when writing the lines fails, it may name some that did not.

// exportBatch bounds the artefacts that one leaf of an export names.
const exportBatch = 500

// Export writes the scope's own live artefacts as JSON, one per line, by id. Each batch is in the manifest before it is
// written out. Export skips expired artefacts and those that are erased meanwhile, and probes no sources. It returns how
// many artefacts it wrote.
func (s *Scope) Export(ctx context.Context, w io.Writer) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	trace, err := s.db.newID()
	if err != nil {
		return 0, err
	}
	enc := json.NewEncoder(w)
	for cursor := ""; ; {
		batch, leaf, next, err := s.exportBatch(ctx, cursor)
		if err != nil {
			return n, err
		}
		leaf.Trace = trace.String()
		if len(batch) > 0 {
			if err := s.emit(ctx, leaf); err != nil {
				return n, err
			}
		}
		for _, v := range batch {
			if err := enc.Encode(v); err != nil {
				return n, fmt.Errorf("ctxpage: export: %w", err)
			}
			n++
		}
		if cursor = next; cursor == "" {
			return n, nil
		}
	}
}

// exportBatch lists artefacts after a cursor, reads their texts and prepares the leaf that names them. It reads by page number, in
// the version that was listed: a put in between does not mix two versions, and gc leaves them. What is erased in between is
// left out.
func (s *Scope) exportBatch(ctx context.Context, cursor string) (out []*Version, _ *manifest.Record, next string, _ error) {
	held, err := s.db.hold(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	defer s.db.store.Release(held)
	list, next, err := s.list(ctx, "", cursor, exportBatch, readOptions{})
	if err != nil {
		return nil, nil, "", err
	}
	leaf := &manifest.Record{Type: manifest.TypeExport, Counter: s.db.opts.Counter.Name()}
	now := s.db.opts.Clock()
	for _, h := range list {
		if !h.ExpiresAt.IsZero() && !h.ExpiresAt.After(now) {
			continue
		}
		l := store.Located{Scope: s.name, Version: h.Version, LSN: h.LSN}
		for _, p := range h.Pages {
			l.Pages = append(l.Pages, store.PageKey{Num: p.Num, Version: h.Version})
		}
		v, err := s.db.version(ctx, s.chain, l)
		if errors.Is(err, store.ErrGone) && s.left(ctx, h) {
			continue
		}
		if err != nil {
			return nil, nil, "", err
		}
		v.exported(leaf)
		out = append(out, v)
	}
	return out, leaf, next, nil
}

// left reports whether the scope no longer has a version that was listed. If it still has it, a read that misses it found damage.
func (s *Scope) left(ctx context.Context, v *Version) bool {
	now, err := s.db.store.Resolve(ctx, s.chain[:1], Ref{Scope: s.name, ID: v.ID})
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) || err == nil && now.Version != v.Version
}

// Export writes the database to w as lines of JSON, or what is held of a scope or a person. The manifest records it. See
// package portable for what it has, and what an import of it keeps. Options.State and Options.Now are set by DB.
func (ad *Admin) Export(ctx context.Context, w io.Writer, opts ExportOptions) (*portable.Exported, error) {
	opts.State, opts.Now = StateKinds(), ad.db.opts.Clock()
	if !ad.db.opts.ReadOnly {
		trace, err := ad.db.newID()
		if err != nil {
			return nil, err
		}
		leaf := &manifest.Record{Type: manifest.TypeExport, Trace: trace.String(), Time: opts.Now.UnixMicro(), Actor: "operator", LSN: ad.db.store.Mark().LSN, Action: "export", Scope: opts.Scope}
		if err := ad.db.store.Append(ctx, []*manifest.Record{leaf}, store.Written); err != nil {
			return nil, err
		}
	}
	return portable.Export(ctx, ad.db.store, w, opts)
}

// Import brings an export into the database. Only the operator can call it, and vouches for everything that the file
// calls verified. See package portable. Options.State, Now, Rand and Counter are set by DB. The database keeps its id and
// secret. To give a new one the identity of the export, so that its contexts are the same byte for byte, open it with
// Options.Identity (ExportOf).
func (ad *Admin) Import(ctx context.Context, r io.Reader, opts ImportOptions) (*portable.Imported, error) {
	opts.State, opts.Now, opts.Rand, opts.Counter = StateKinds(), ad.db.opts.Clock, ad.db.opts.Rand, ad.db.opts.Counter
	rep, err := portable.Import(ctx, ad.db.store, r, opts)
	_ = ad.db.table.dropEnded(ctx) // else the next fault does
	ad.db.sessions.Swept()
	return rep, err
}
