// Package freshness is the dirty check: it compares stored pages with their sources, and brings them up to date.
//
// A check of several artefacts goes through three steps:
//
//	glance   files whose stamp did not change are clean; a stat each, no read, no goroutine per file
//	ask      the other sources, and those of all that the artefacts were made from, are probed at once and each once;
//	         what changed is fetched. Nothing is written.
//	write    what was fetched is committed, one artefact after the other in the order of the heads
//
//	clean ──probe differs──► pending ──Host.Write──► refetched
//	  ▲                         │ fetch failed, read only, or dry
//	  └──stamp or hash equal    └──► dirty, with a Reason: it is left out, or served as stale where that is asked for
//
// Writing waits until all have answered because page numbers break ties in a ranking and must not depend on which
// source was quickest. No lock is held while a source runs. Rejected: fetching under a lock for each artefact, because
// a source that hangs would block every reader of its page. Instead the second reader of a page waits for the first, or
// until its own context ends (refetching).
package freshness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// Host has the functions that the dirty check needs of the database that runs it. All of it is set before the first check.
type Host struct {
	Store    store.Store
	Files    *Files
	Sources  map[string]store.Source // by scheme, file among them
	Clock    func() time.Time
	Timeout  time.Duration // for one call of a source
	ReadOnly bool          // what is dirty is not fetched
	Logger   *slog.Logger
	// Write commits what sources gave as the next versions of artefacts of one scope: all, or none.
	Write func(ctx context.Context, heads []*store.Head, fetched []Got) error
	// Read returns the text, the date and the trust of a stored artefact, for a page: source.
	Read func(ctx context.Context, scopes store.Scopes, l store.Located) (Got, error)
}

// Checker remembers across checks what was probed, and which artefacts of a scope come from a source. It may be used
// concurrently.
type Checker struct {
	Host
	Refetches atomic.Int64 // since it was made

	memory  memory
	sourced sourcedScopes
}

// New makes a checker that remembers nothing.
func New(h Host) *Checker {
	return &Checker{Host: h, memory: memory{seen: map[VersionKey]probed{}, busy: map[VersionKey]*refetching{}}}
}

// View is a checker as one scope sees it.
type View struct {
	*Checker
	name  string
	chain store.Scopes
	dry   bool // it only looks: what is dirty is not fetched
}

// Of is the view of a scope.
func (c *Checker) Of(scope string, chain store.Scopes) View {
	return View{Checker: c, name: scope, chain: chain}
}

// Got is the answer of a source.
type Got struct {
	store.Fetched
	Trust store.Provenance // of the artefact that a page: source copies; 0: the source is a document
	Began time.Time        // when the source was asked; zero: not noted
}

// Looking is the view for a run that only looks: what is dirty is reported and not fetched.
func (s View) Looking() View {
	s.dry = true
	return s
}

// Known reports whether anybody answers for a source.
func (s *View) Known(src string) error {
	_, _, err := s.source(src)
	return err
}

// Reprobe asks the source of an artefact once more, with the sources of the scope that owns it.
func (s *View) Reprobe(ctx context.Context, h *store.Head, have store.Validator) (store.Validator, error) {
	return s.owner(h).probe(ctx, h.Artefact.Source, have)
}

// Copied finds what the page: source of an artefact copies.
func (s *View) Copied(ctx context.Context, h *store.Head, key string) (store.Located, error) {
	return pageSource{s.owner(h)}.locate(ctx, key)
}

// FilesOf lists the artefacts of a scope that come from files, and counts those that come from any source. The list is
// empty when the count is above MaxListed. It must not be written to.
func (c *Checker) FilesOf(ctx context.Context, scope string) (list []File, n int, err error) {
	sc, err := c.sourced.of(ctx, c.Store, scope)
	if err != nil {
		return nil, 0, err
	}
	return sc.list, sc.n, nil
}

// AsksOf returns the question that FilesOf will ask of the store.
func (c *Checker) AsksOf(scope string) store.ScanQuery {
	return c.sourced.asks(scope, c.sourced.get(scope))
}

// OwnFiles reports whether file: sources are read by this package, and not by one of the host's.
func (c *Checker) OwnFiles() bool { return c.Sources["file"] == store.Source(c.Files) }

// Elsewhere names the host that has the file an artefact comes from, if that is not this one. A file of the same path may be
// here: it says nothing about the artefact. "": the source can be asked here.
func (c *Checker) Elsewhere(h *store.Head) string {
	if c.Files == nil || !c.Files.isElsewhere(format.SourceHost(h)) || !c.OwnFiles() {
		return ""
	}
	return format.SourceHost(h)
}

// BeginSweep numbers a look at all files of an assembly; SeenClean tells what it found clean.
func (c *Checker) BeginSweep() uint64 { return c.memory.sweeps.Add(1) }

// SeenClean reports whether the look of that number found the file of an artefact unchanged.
func (c *Checker) SeenClean(h *store.Head, sweep uint64) bool {
	last, known := c.memory.get(KeyOf(h))
	return known && last.sweep == sweep
}

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
