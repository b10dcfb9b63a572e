package vectors

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// All makes the vectors that the pages of scopes lack. What is made is stored part by part: a run that is cut short lost
// nothing, and the next goes on. If a part fails, its pages are tried one by one; those that fail are in the report. The
// error is for a run that could not go on: the caller's context, the store, or an embedder that takes no page at all.
func (m *Maker) All(ctx context.Context, o store.EmbedOptions) (store.EmbedReport, error) {
	out := store.EmbedReport{Model: m.By.Model(), Scopes: []store.EmbeddedIn{}, Failed: []store.EmbedFailure{}, DryRun: o.DryRun}
	scopes, err := m.scopes(ctx, o.Scope)
	if err != nil {
		return out, err
	}
	want, err := m.current(ctx)
	if err != nil {
		return out, err
	}
	total := 0
	for _, name := range scopes {
		page, err := m.lacking(ctx, store.Scopes{name}, want, "", 1)
		if err != nil {
			return out, err
		}
		if total += page.Count; page.Count > 0 {
			out.Scopes = append(out.Scopes, store.EmbeddedIn{Scope: name, Pages: page.Count})
		}
	}
	out.Left = total
	if o.DryRun {
		return out, nil
	}
	for i := range out.Scopes {
		if err := m.allOf(ctx, &out, &out.Scopes[i], want, o.Progress, total); err != nil {
			return out, err
		}
	}
	return out, nil
}

// current finds out how long the vectors of the embedder are now. If it does not answer, any length will do: the pages
// say what is wrong with it.
func (m *Maker) current(ctx context.Context) (lack, error) {
	m.Forget() // questions may be remembered with another length
	probe, err := m.Question(ctx, "How long is a vector of this model?", nil)
	switch {
	case errors.Is(err, ErrZeros): // a static model that knows no word of it, or an endpoint that is broken: the pages tell
		return lack{zeros: true, broken: true}, nil
	case ctx.Err() != nil:
		return lack{}, ctx.Err()
	}
	return lack{length: len(probe), zeros: len(probe) > 0}, nil
}

// scopes are the names of those that are asked for.
func (m *Maker) scopes(ctx context.Context, only string) (names []string, err error) {
	if only != "" {
		return []string{only}, store.CheckScope(only)
	}
	for cursor := ""; ; {
		page, err := m.Store.Scan(ctx, store.ScanQuery{What: store.ScanScopes, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			names = append(names, s.Name)
		}
		if cursor = page.Next; cursor == "" {
			return names, nil
		}
	}
}

func (m *Maker) allOf(ctx context.Context, out *store.EmbedReport, in *store.EmbeddedIn, want lack, progress store.Progress, total int) error {
	chain := store.Scopes{in.Scope}
	for cursor := ""; ; {
		page, err := m.lacking(ctx, chain, want, cursor, listed)
		if err != nil {
			return err
		}
		for keys := range slices.Chunk(page.Keys, chunk) {
			made, err := m.makeSome(ctx, chain, keys, want)
			if err != nil {
				if made, err = m.oneByOne(ctx, out, chain, keys, want, err); err != nil {
					return err
				}
			}
			in.Made, out.Made, out.Left = in.Made+made, out.Made+made, out.Left-made
			if progress != nil {
				progress("embed", uint64(out.Made+len(out.Failed)), uint64(total))
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// oneByOne tries the pages of a part that failed. If every one fails, and nothing was made yet, the embedder is at fault and
// not the pages.
func (m *Maker) oneByOne(ctx context.Context, out *store.EmbedReport, chain store.Scopes, keys []store.PageKey, want lack, whole error) (made int, err error) {
	failed := []store.EmbedFailure{}
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return made, err
		}
		n, err := m.makeSome(ctx, chain, []store.PageKey{k}, want)
		if made += n; err != nil {
			failed = append(failed, store.EmbedFailure{Ref: m.refOf(ctx, chain, k), Err: err.Error()})
		}
		if made == 0 && out.Made == 0 && len(failed) == 3 {
			break
		}
	}
	if made == 0 && out.Made == 0 {
		return 0, fmt.Errorf("no page could be embedded: %w", whole)
	}
	out.Failed = append(out.Failed, failed...)
	return made, nil
}

func (m *Maker) refOf(ctx context.Context, chain store.Scopes, k store.PageKey) store.Ref {
	if pages, err := m.Store.Load(ctx, chain, []store.PageKey{k}, store.WantHead); err == nil && pages[0].Head != nil {
		return pages[0].Head.PageRef(pages[0].Page)
	}
	return store.Ref{Scope: chain[0], ID: fmt.Sprintf("page %d", k.Num)}
}
