package freshness

import (
	"context"
	"errors"
	"fmt"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pageSource reads another artefact of the chain that a view sees: page:id or page:scope:id.
type pageSource struct{ s *View }

func (p pageSource) locate(ctx context.Context, key string) (store.Located, error) {
	ref, err := store.SourceRef(key)
	if err != nil {
		return store.Located{}, err
	}
	l, err := p.s.Store.Resolve(ctx, p.s.chain, ref)
	if err == nil && l.Current && l.Expires != 0 && l.Expires <= codec.Micros(p.s.Clock()) {
		err = fmt.Errorf("%w: source page:%s", store.ErrExpired, key)
	}
	return l, err
}

// Probe compares versions; it loads nothing.
func (p pageSource) Probe(ctx context.Context, key string, have store.Validator) (store.Validator, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return store.Validator{}, err
	}
	stamp := strconv.FormatUint(l.LSN, 10)
	if stamp == have.Stamp {
		return have, nil
	}
	f, err := p.copyOf(ctx, l)
	return f.Validator, err
}

// Fetch loads the other artefact.
func (p pageSource) Fetch(ctx context.Context, key string) (store.Fetched, error) {
	f, err := p.fetch(ctx, key)
	return f.Fetched, err
}

func (p pageSource) fetch(ctx context.Context, key string) (Got, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return Got{}, err
	}
	return p.copyOf(ctx, l)
}

func (p pageSource) copyOf(ctx context.Context, l store.Located) (Got, error) {
	f, err := p.s.Read(ctx, p.s.chain, l)
	if err != nil {
		return Got{}, err
	}
	f.Validator = store.Validator{Stamp: strconv.FormatUint(l.LSN, 10), Hash: store.ContentHash(f.Text), At: p.s.Clock()}
	return f, nil
}

// source finds who answers for a source, and the key without the scheme.
func (s *View) source(src string) (store.Source, string, error) {
	scheme, key, ok := strings.Cut(src, ":")
	if !ok || scheme == "" || key == "" {
		return nil, "", store.Invalid("source", strconv.Quote(src), "scheme:key, like file:/path/to/it")
	}
	if scheme == "page" {
		return pageSource{s}, key, nil
	}
	if found := s.Sources[scheme]; found != nil {
		return found, key, nil
	}
	return nil, "", &schemeError{&store.InvalidError{Field: "source", Got: strconv.Quote(src), Expected: "a scheme this database knows: file, page or one of Options.Sources"}}
}

// schemeError means that nobody here answers for the scheme of a source.
type schemeError struct{ *store.InvalidError }

func (e *schemeError) Unwrap() error { return e.InvalidError }

// reasonOf is the reason a page is left out for whose source could not be asked. What this process may not read is
// told apart from what could not be read: the one is for who opened the database to mend.
func reasonOf(err error) string {
	var scheme *schemeError
	switch {
	case errors.Is(err, store.ErrFileRoot):
		return triage.NoRoot
	case errors.As(err, &scheme):
		return triage.NoScheme
	case errors.Is(err, store.ErrVanished):
		return triage.Vanished
	}
	return triage.FetchFailed
}

// Fetch loads from a source under the deadline and checks what comes.
func (s *View) Fetch(ctx context.Context, src string) (Got, error) {
	from, key, err := s.source(src)
	if err != nil {
		return Got{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	f, err := loop.Call(ctx, func() (Got, error) {
		if page, ok := from.(pageSource); ok {
			return page.fetch(ctx, key)
		}
		f, err := from.Fetch(ctx, key)
		return Got{Fetched: f}, err
	})
	switch {
	case err != nil:
		return f, fmt.Errorf("fetch %s: %w", src, err)
	case len(f.Text) > store.MaxText:
		return f, fmt.Errorf("fetch %s: %d bytes, expected at most %d", src, len(f.Text), store.MaxText)
	case !utf8.ValidString(f.Text):
		return f, fmt.Errorf("fetch %s: the content is not UTF-8 text", src)
	}
	if f.Validator.Hash == 0 {
		f.Validator.Hash = store.ContentHash(f.Text)
	}
	return f, nil
}

func (s *View) probe(ctx context.Context, src string, have store.Validator) (store.Validator, error) {
	from, key, err := s.source(src)
	if err != nil {
		return store.Validator{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return loop.Call(ctx, func() (store.Validator, error) { return from.Probe(ctx, key, have) })
}
