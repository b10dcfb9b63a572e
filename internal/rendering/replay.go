package rendering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// ErrReplay means that a past assembly cannot be rendered again to the same bytes; the error says why.
var ErrReplay = errors.New("ctxpage: replay differs")

var errDraft = errors.New("a draft of the transaction, which was not kept, or was dropped by gc")

// The forms of a context, as a leaf names them (manifest.Record.Shape).
const (
	Dense = "dense"
	Long  = "long"
)

// Form names a form.
func Form(long bool) string {
	if long {
		return Long
	}
	return Dense
}

// Replayer shows past contexts once more, from their leaves and the immutable page versions these name.
type Replayer struct {
	Store  store.Store
	File   string                   // names the database in an error
	Fence  string                   // the seed of fences in this database
	Digest func(text []byte) []byte // as leaves keep it of a rendered context
}

// Replayed is a past context, rendered again.
type Replayed struct {
	Text     string
	Same     bool             // the bytes are the recorded ones
	Missing  []string         // pages that gc dropped
	Shown    []Page           // its pages, in the order of the leaf
	Messages []render.Message // the same context as messages
}

// Replay renders a past context. The error matches ErrReplay when the bytes differ from what was recorded, ErrGone
// when gc took a page, and ErrErased when an erase did: then only Missing is set.
func (a Replayer) Replay(ctx context.Context, leaf *manifest.Record) (out Replayed, err error) {
	if leaf.Renderer != render.Version {
		return out, fmt.Errorf("%w: rendered by renderer %d, this program has renderer %d", ErrReplay, leaf.Renderer, render.Version)
	}
	shown, missing, err := a.Shown(ctx, leaf)
	if err != nil {
		return out, err
	}
	if len(missing) > 0 {
		return lacks(missing)
	}
	seed, pages := a.Fence+"/"+leaf.Scope, Pages(nil, shown, leaf.Session)
	long := leaf.Shape == Long
	b := render.Text(nil, seed, pages, long)
	out = Replayed{Text: string(b), Same: bytes.Equal(a.Digest(b), leaf.Rendered), Shown: shown, Messages: render.Messages(seed, pages, long)}
	if !out.Same {
		return out, fmt.Errorf("%w: the digest of %d bytes is not the recorded one", ErrReplay, len(b))
	}
	return out, nil
}

// lacks says which pages of a context cannot be shown, those first that were erased: a caller may have to tell them apart.
func lacks(missing []error) (out Replayed, err error) {
	erased := slices.DeleteFunc(slices.Clone(missing), func(err error) bool { return !errors.Is(err, store.ErrErased) })
	missing = slices.DeleteFunc(missing, func(err error) bool { return errors.Is(err, store.ErrErased) })
	for _, err := range slices.Concat(erased, missing) {
		out.Missing = append(out.Missing, goneText(err))
	}
	text := strings.Join(out.Missing, "; ")
	if len(erased) > 0 {
		return out, fmt.Errorf("%w%s", store.ErrErased, strings.TrimPrefix(text, "erased"))
	}
	return out, fmt.Errorf("%w: %s", store.ErrGone, text)
}

// Shown returns the pages of a past context in the form that it showed, and for each that is missing why.
func (a Replayer) Shown(ctx context.Context, leaf *manifest.Record) (shown []Page, missing []error, err error) {
	keys := make([]store.PageKey, len(leaf.Pages))
	for i, p := range leaf.Pages {
		keys[i] = store.PageKey{Num: p.Num, Version: p.Version}
	}
	loaded, err := a.Store.Load(ctx, store.ScopeChain(leaf.Scope), keys, store.WantText)
	if err != nil {
		return nil, nil, err
	}
	forms, err := a.forms(ctx, leaf)
	if err != nil {
		return nil, nil, err
	}
	drafts, err := a.drafts(ctx, leaf)
	if err != nil {
		return nil, nil, err
	}
	shown = make([]Page, 0, len(loaded))
	for i := range loaded {
		l, p := &loaded[i], &leaf.Pages[i]
		if p.Num == 0 && len(drafts) > 0 {
			l, drafts = &drafts[0], drafts[1:]
		}
		text, lost, err := textOf(l, p, forms)
		switch {
		case err != nil:
			return nil, nil, err
		case lost != nil:
			missing = append(missing, lost)
		default:
			ref := store.Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Rows[l.Page-1].Version}.String()
			shown = append(shown, Page{Head: l.Head, Ref: ref, Text: text, Page: l.Page, Form: p.Form, Stale: p.Stale})
		}
	}
	return shown, missing, nil
}

// textOf is the text of a page in the form the leaf names, or what is missing of it.
func textOf(l *store.Loaded, p *manifest.Page, forms map[uint64]store.Loaded) (text string, lost, err error) {
	switch {
	case p.Num == 0 && l.Head == nil:
		return "", errDraft, nil
	case errors.Is(l.Err, store.ErrGone):
		return "", l.Err, nil
	case errors.Is(l.Err, store.ErrNotFound):
		return "", fmt.Errorf("page %d version %d: not found", p.Num, p.Version), nil
	case l.Err != nil:
		return "", nil, l.Err
	}
	switch p.Form {
	case manifest.FormRange:
		if !prose.InRanges(p.Ranges, len(l.Text)) {
			return "", nil, fmt.Errorf("%w: ranges %v of a page of %d bytes", ErrReplay, p.Ranges, len(l.Text))
		}
		return Cut(l.Head.Kind, l.Head.ID, l.Text, p.Ranges), nil, nil
	case manifest.FormStub:
		return Stub(l.Head, l.Text), nil, nil
	case manifest.FormSummary:
		f := forms[p.Via]
		if f.Err != nil {
			return "", fmt.Errorf("%w, which stood for page %d", f.Err, p.Num), nil
		}
		return f.Text, nil, nil
	}
	return l.Text, nil, nil
}

// forms loads the derived pages that stood for others.
func (a Replayer) forms(ctx context.Context, leaf *manifest.Record) (map[uint64]store.Loaded, error) {
	var keys []store.PageKey
	for _, p := range leaf.Pages {
		if p.Form == manifest.FormSummary {
			keys = append(keys, store.PageKey{Num: p.Via})
		}
	}
	loaded, err := a.Store.Load(ctx, store.ScopeChain(leaf.Scope), keys, store.WantText)
	if err != nil {
		return nil, err
	}
	out := make(map[uint64]store.Loaded, len(loaded))
	for i, l := range loaded {
		if l.Err != nil && !errors.Is(l.Err, store.ErrGone) && !errors.Is(l.Err, store.ErrNotFound) {
			return nil, l.Err
		}
		out[keys[i].Num] = l
	}
	return out, nil
}

// goneText returns the text of an ErrGone without its prefix.
func goneText(err error) string {
	if !errors.Is(err, store.ErrGone) {
		return err.Error()
	}
	return strings.TrimPrefix(err.Error(), store.ErrGone.Error()+": ")
}
