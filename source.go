package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Source loads content of one scheme. Both methods run concurrently, under a deadline and under no lock of the
// database; they may call nothing of it. Key is the source without its scheme and colon.
type Source interface {
	// Probe says what the content is recognised by now. It must be cheap: given what is known, it may answer from a
	// stamp alone, and gives back have when nothing changed.
	Probe(ctx context.Context, key string, have Validator) (Validator, error)
	// Fetch loads the content; it may be a network.
	Fetch(ctx context.Context, key string) (Fetched, error)
}

// Fetched is what a source gave. Text must be UTF-8.
type Fetched struct {
	Text      string
	Validator Validator
	// AsOf is when the content was true; zero: now.
	AsOf time.Time

	trust Provenance // of the artefact that a page: source copies; 0: the source is a document
}

// CheckPolicy says when a read probes the sources of what it serves. The zero value probes at every read; CheckEvery
// at most every so often; CheckNever not at all.
type CheckPolicy time.Duration

// CheckNever trusts what is stored: neither sources nor what a derived page was made from are looked at.
const CheckNever CheckPolicy = -1

// CheckAlways probes at every read.
const CheckAlways CheckPolicy = 0

// CheckEvery probes a source when its last probe is at least d old.
func CheckEvery(d time.Duration) CheckPolicy { return CheckPolicy(max(d, 0)) }

// pageSource reads another artefact of the visible chain: page:id or page:scope:id.
type pageSource struct {
	db     *DB
	scopes store.Scopes
}

func (p pageSource) locate(ctx context.Context, key string) (store.Located, error) {
	ref, err := store.SourceRef(key)
	if err != nil {
		return store.Located{}, err
	}
	l, err := p.db.store.Resolve(ctx, p.scopes, ref)
	if err == nil && l.Current && l.Expires != 0 && l.Expires <= codec.Micros(p.db.opts.Clock()) {
		err = fmt.Errorf("%w: source page:%s", ErrExpired, key)
	}
	return l, err
}

// Probe compares versions; it loads nothing.
func (p pageSource) Probe(ctx context.Context, key string, have Validator) (Validator, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return Validator{}, err
	}
	stamp := strconv.FormatUint(l.LSN, 10)
	if stamp == have.Stamp {
		return have, nil
	}
	f, err := p.Fetch(ctx, key)
	return f.Validator, err
}

// Fetch loads the other artefact.
func (p pageSource) Fetch(ctx context.Context, key string) (Fetched, error) {
	l, err := p.locate(ctx, key)
	if err != nil {
		return Fetched{}, err
	}
	v, err := p.db.version(ctx, p.scopes, l)
	if err != nil {
		return Fetched{}, err
	}
	text := v.Text
	if len(v.Parts) > 0 {
		text, _ = joinParts(v.Parts)
	}
	return Fetched{
		Text: text, AsOf: v.CurrentAsOf, trust: v.Provenance,
		Validator: Validator{Stamp: strconv.FormatUint(l.LSN, 10), Hash: store.ContentHash(text), At: p.db.opts.Clock()},
	}, nil
}

// source finds who answers for a source, and the key without the scheme.
func (s *Scope) source(src string) (Source, string, error) {
	scheme, key, ok := strings.Cut(src, ":")
	if !ok || scheme == "" || key == "" {
		return nil, "", store.Invalid("source", strconv.Quote(src), "scheme:key, like file:/path/to/it")
	}
	if scheme == "page" {
		return pageSource{s.db, s.chain}, key, nil
	}
	if found := s.db.sources[scheme]; found != nil {
		return found, key, nil
	}
	return nil, "", &schemeError{&InvalidError{Field: "source", Got: strconv.Quote(src), Expected: "a scheme this database knows: file, page or one of Options.Sources"}}
}

// schemeError means that nobody here answers for the scheme of a source.
type schemeError struct{ *InvalidError }

func (e *schemeError) Unwrap() error { return e.InvalidError }

// unreadable is the reason a page is left out for whose source could not be asked. What this process may not read is
// told apart from what could not be read: the one is for who opened the database to mend.
func unreadable(err error) string {
	var scheme *schemeError
	switch {
	case errors.Is(err, ErrFileRoot):
		return store.ReasonNoRoot
	case errors.As(err, &scheme):
		return store.ReasonNoScheme
	case errors.Is(err, ErrVanished):
		return store.ReasonVanished
	}
	return store.ReasonFetchFailed
}

// fetch loads from a source under the deadline and checks what comes.
func (s *Scope) fetch(ctx context.Context, src string) (Fetched, error) {
	from, key, err := s.source(src)
	if err != nil {
		return Fetched{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
	defer cancel()
	f, err := callSource(ctx, func() (Fetched, error) { return from.Fetch(ctx, key) })
	switch {
	case err != nil:
		return f, fmt.Errorf("fetch %s: %w", src, err)
	case len(f.Text) > MaxText:
		return f, fmt.Errorf("fetch %s: %d bytes, expected at most %d", src, len(f.Text), MaxText)
	case !utf8.ValidString(f.Text):
		return f, fmt.Errorf("fetch %s: the content is not UTF-8 text", src)
	}
	if f.Validator.Hash == 0 {
		f.Validator.Hash = store.ContentHash(f.Text)
	}
	return f, nil
}

func (s *Scope) probe(ctx context.Context, src string, have Validator) (Validator, error) {
	from, key, err := s.source(src)
	if err != nil {
		return Validator{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
	defer cancel()
	return callSource(ctx, func() (Validator, error) { return from.Probe(ctx, key, have) })
}

// callSource lets a source, or an embedder, that ignores its context not hold up a read beyond the deadline: its answer is then dropped.
func callSource[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ch <- answer{err: fmt.Errorf("panicked: %v", r)}
			}
		}()
		v, err := call()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}
