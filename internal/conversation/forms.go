package conversation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Turns give room by taking a shorter form: trimmed, a summary, a stub. A commit makes room by itself when the window is
// above its limit (the backstop); it never waits for a model, so its forms are extracts. The watcher makes room ahead of
// need and may ask a summarizer, without the lock of the session (MakeForms).

// Exists refuses a session that nobody has begun: a context without the conversation it was asked for misleads.
func (c *Conversation) Exists(ctx context.Context) error {
	if len(c.Blocks) > 0 || c.State.Created != 0 {
		return nil
	}
	if err := c.home.Readable(ctx, c.Scope); err != nil { // a damaged row may hide the turns
		return err
	}
	return fmt.Errorf("%w: scope %s has no session %q; append its first turn or set its window first", store.ErrNotFound, c.Scope, c.ID)
}

// Relieve makes room when the window is above its limit. It changes rows in memory and in the batch, and returns what it
// compacted, also beside an error.
func (c *Conversation) Relieve(ctx context.Context, w *Writes) ([]PassItem, error) {
	return c.MakeRoom(ctx, w, false)
}

// reliefTries is how often a commit plans again. A form may turn out longer than estimated; the next plan knows its size.
const reliefTries = 16

// MakeRoom compacts until the window fits. With yield, protected turns give way to the newest one.
func (c *Conversation) MakeRoom(ctx context.Context, w *Writes, yield bool) ([]PassItem, error) {
	if c.Fits() == nil {
		return nil, nil
	}
	var items []PassItem
	for range reliefTries {
		plan, err := c.Window().Backstop(c.host.Clock(), yield)
		if err != nil {
			return items, err
		}
		forms := c.FormsOf(plan)
		for i := range forms {
			forms[i].Texts = w.Texts[forms[i].Block.ID]
		}
		if forms, err = c.MakeForms(ctx, forms, nil); err != nil {
			return items, err
		}
		more, err := c.CarryOut(w, plan, forms)
		if err != nil {
			return items, err
		}
		if items = JoinItems(items, more); c.Fits() == nil {
			return items, nil
		}
	}
	return items, c.Fits()
}

// formWorkers is how many summaries are requested at once.
const formWorkers = 8

// MakeForms writes the forms. It may run without the lock of the session, because it reads immutable pages only. It asks a
// summarizer for several at once; without one it takes extracts.
func (c *Conversation) MakeForms(ctx context.Context, forms []Form, by Summarizer) ([]Form, error) {
	errs := make([]error, len(forms))
	gate := make(chan struct{}, formWorkers)
	var wg sync.WaitGroup
	for i := range forms {
		if by == nil {
			errs[i] = c.makeForm(ctx, &forms[i], nil)
			continue
		}
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			errs[i] = c.makeForm(ctx, &forms[i], by)
		})
	}
	wg.Wait()
	return forms, errors.Join(errs...)
}

// makeForm leaves f without a put when the form would not be shorter than the turn.
func (c *Conversation) makeForm(ctx context.Context, f *Form, by Summarizer) error {
	b := &f.Block
	keys := make([]store.PageKey, len(b.Nums))
	for i, n := range b.Nums {
		keys[i] = store.PageKey{Num: n, Version: b.Version}
	}
	texts, version := f.Texts, b.Version
	var err error
	if texts == nil {
		texts, err = c.host.Texts(ctx, store.Scopes{c.Scope}, keys)
	} else {
		version, err = c.nextVersion(ctx, b.ID)
	}
	if err != nil {
		return err
	}
	count := c.host.Counter.Count
	whole := strings.Join(texts, "")
	text, author := "", "ctxpage"
	if f.Level == session.Trimmed {
		text = prose.Trim(whole)
	} else {
		text, author = c.summary(ctx, whole, b.Row.Sizes[session.Summary], by)
	}
	n := count(text)
	size := n + max(b.Row.Sizes[session.Raw]-count(whole), 0) // calls stay
	if n == 0 || n > store.MaxPageTokens || size >= b.Row.Sizes[session.Raw] {
		return nil
	}
	put, err := c.host.MakePut(store.Artefact{
		ID: c.FormID(b, f.Level), Kind: store.KindSummary, Provenance: store.Scratch, Priority: store.PriorityLow, Text: text, CurrentAsOf: codec.FromMicros(b.AsOf), Name: author,
		DerivedFrom: []store.Ref{{Scope: c.Scope, ID: b.ID, Version: version}},
	})
	f.Put, f.Size = &put, size
	return err
}

// nextVersion is the version that an incoming turn will get. It is above 1 when its id was deleted before.
func (c *Conversation) nextVersion(ctx context.Context, id string) (uint32, error) {
	l, err := c.host.Store.Resolve(ctx, store.Scopes{c.Scope}, store.Ref{ID: id})
	if errors.Is(err, store.ErrNotFound) {
		return 1, nil
	}
	return l.Version + 1, err
}

func (c *Conversation) summary(ctx context.Context, text string, tokens int, by Summarizer) (summary, author string) {
	if by != nil {
		if got := c.host.Shorten(ctx, by, text, tokens); got != "" {
			return got, by.Name()
		}
		c.host.Logger.Warn("the summarizer gave nothing usable; an extract takes its place", "session", c.ID, "summarizer", by.Name())
	}
	return prose.Extract(text, tokens, c.host.Counter.Count), "ctxpage"
}
