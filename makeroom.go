package ctxpage

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// relieve makes room where the window is above its limit: the backstop. It changes rows in memory and in the batch and
// says what it compacted, with an error as well. No summariser is asked: a commit does not wait for a model.
func (c *conversation) relieve(ctx context.Context, w *talk.Writes) ([]talk.PassItem, error) {
	return c.makeRoom(ctx, w, func(s session.State) (session.Plan, error) { return s.Backstop(c.db.opts.Clock(), 0) })
}

// reliefTries is how often room is made for one commit: a form may turn out longer than was thought, and then the next plan
// knows its size.
const reliefTries = 16

func (c *conversation) makeRoom(ctx context.Context, w *talk.Writes, planned func(session.State) (session.Plan, error)) ([]talk.PassItem, error) {
	if c.Fits() == nil {
		return nil, nil
	}
	var items []talk.PassItem
	for range reliefTries {
		plan, err := planned(c.Window())
		if err != nil {
			return items, err
		}
		forms := c.FormsOf(plan)
		for i := range forms {
			forms[i].Texts = w.Texts[forms[i].Block.ID]
		}
		if forms, err = c.makeForms(ctx, forms, nil); err != nil {
			return items, err
		}
		more, err := c.CarryOut(w, plan, forms)
		if err != nil {
			return items, err
		}
		if items = talk.JoinItems(items, more); c.Fits() == nil {
			return items, nil
		}
	}
	return items, c.Fits()
}

// formWorkers is how many summaries are asked for at once.
const formWorkers = 8

// makeForms writes the forms. It may run without the session's lock: it reads immutable pages. A summariser is asked for
// several at once.
func (c *conversation) makeForms(ctx context.Context, forms []talk.Form, by Summarizer) ([]talk.Form, error) {
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

func (c *conversation) makeForm(ctx context.Context, f *talk.Form, by Summarizer) error {
	b := &f.Block
	keys := make([]store.PageKey, len(b.Nums))
	for i, n := range b.Nums {
		keys[i] = store.PageKey{Num: n, Version: b.Version}
	}
	texts, version := f.Texts, b.Version
	var err error
	if texts == nil {
		texts, err = c.db.texts(ctx, store.Scopes{c.Scope}, keys)
	} else {
		version, err = c.nextVersion(ctx, b.ID)
	}
	if err != nil {
		return err
	}
	count := c.db.opts.Counter.Count
	whole := strings.Join(texts, "")
	text, author := "", "ctxpage"
	if f.Level == session.Trimmed {
		text = session.Trim(whole)
	} else {
		text, author = c.summary(ctx, whole, b.Row.Sizes[session.Summary], by)
	}
	n := count(text)
	size := n + max(b.Row.Sizes[session.Raw]-count(whole), 0) // calls stay
	if n == 0 || n > MaxPageTokens || size >= b.Row.Sizes[session.Raw] {
		return nil
	}
	put, err := c.db.makePut(Artefact{
		ID: c.FormID(b, f.Level), Kind: KindSummary, Provenance: Scratch, Priority: PriorityLow, Text: text, CurrentAsOf: codec.FromMicros(b.AsOf), Name: author,
		DerivedFrom: []Ref{{Scope: c.Scope, ID: b.ID, Version: version}},
	}, store.Validator{})
	f.Put, f.Size = &put, size
	return err
}

// nextVersion is the version that a turn on its way in will be: its id may have been deleted before.
func (c *conversation) nextVersion(ctx context.Context, id string) (uint32, error) {
	l, err := c.db.store.Resolve(ctx, store.Scopes{c.Scope}, Ref{ID: id})
	if errors.Is(err, ErrNotFound) {
		return 1, nil
	}
	return l.Version + 1, err
}

func (c *conversation) summary(ctx context.Context, text string, tokens int, by Summarizer) (summary, author string) {
	if by != nil {
		if got := c.db.shorten(ctx, by, text, tokens); got != "" {
			return got, by.Name()
		}
		c.db.opts.Logger.Warn("summariser gave nothing, an extract stands in", "session", c.ID, "summarizer", by.Name())
	}
	return session.Extract(text, tokens, c.db.opts.Counter.Count), "ctxpage"
}
