package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// A caller puts an artefact; it is stored as pages, and a page version never changes. This
// file has what happens to it in turn:
//
//	artefact → pages      content fetches the text of a source; makePut splits it, and counts, hashes and salts each page
//	pages → Version       version loads a stored version, and versionOf describes it for a user
//	the dirty bit         a source that changed makes the page dirty (package freshness finds out). writeFetched stores what
//	                      was fetched as the next version, and dirtyError says why a page could not be fetched
//	page → candidate      candidateOf describes a page to the ranking; nothing else of it decides on its place

// Version is one version of an artefact as it is stored: what the caller put, and what the database adds. The caller
// owns it; it shares nothing with the database.
type Version struct {
	Artefact
	Ref     Ref       `json:"ref"`
	Version uint32    `json:"version"`
	LSN     uint64    `json:"lsn"` // log sequence number of the commit that wrote it
	PutAt   time.Time `json:"put_at"`
	Actor   string    `json:"actor,omitempty"`
	// Trace names the read that it was written from, for Why and Replay: the assembly of Turn.Trace, of a resumed
	// transaction, or of the draft that was approved. What a user said has none.
	Trace   string `json:"trace,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Gone: gc dropped the version; GoneBy is the trace of that run. A list names it, its text cannot be read.
	Gone   bool   `json:"gone,omitempty"`
	GoneBy string `json:"gone_by,omitempty"`
	// SupersededBy is the id of the artefact of the scope that answers for this one; "": none. Only the newest version
	// has it. If that artefact was deleted, nothing answers until this one is put again.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Stale: the source changed, and the reader asked for the page all the same.
	Stale bool `json:"stale,omitempty"`
	// Elsewhere is the host that has the file of its source, if that is another one: the source was not probed.
	Elsewhere string `json:"elsewhere,omitempty"`

	Tokens int `json:"tokens"` // of all pages, by Counter
	// SourceHash is xxhash64 of what the source held when it was loaded; 0: no source. It is not salted, and an erased
	// text could be guessed from it, so it is kept out of JSON.
	SourceHash uint64 `json:"-"`
	Pages      []Page `json:"pages"`
	src        *store.Head
}

// Page is the unit of paging, ranking, budgeting and dirty checking.
type Page struct {
	Ref    Ref    `json:"ref"`
	Num    uint64 `json:"num"` // number of this page version in the database; manifests name pages by it
	Tokens int    `json:"tokens"`
	// Digest is HMAC-SHA256 of the text under a random salt of this version, so that an erased text cannot be guessed
	// from the log.
	Digest [32]byte `json:"-"`
	Text   string   `json:"text,omitempty"`
}

// makePut splits the text of a checked artefact into pages and digests them.
func (db *DB) makePut(a Artefact, v store.Validator) (store.Put, error) {
	return db.makePages(a, v, db.opts.PageTokens)
}

// makePages splits a text into pages of at most size tokens. Each page gets a salt of its own, so that equal texts have
// different digests and an erased text cannot be guessed from the log.
func (db *DB) makePages(a Artefact, v store.Validator, size int) (store.Put, error) {
	p := store.Put{Source: v, AsOfGiven: !a.CurrentAsOf.IsZero(), Counter: db.opts.Counter.Name()}
	if !p.AsOfGiven {
		a.CurrentAsOf = db.opts.Clock()
	}
	text := a.Text
	if len(a.Parts) > 0 {
		text, p.PartBytes = format.JoinParts(a.Parts)
		a.Parts = format.StripParts(a.Parts)
	}
	a.Text = ""
	p.Artefact = a
	if (a.Role != "" || a.Kind == store.KindSummary) && size < store.MaxPageTokens {
		size = store.MaxPageTokens // a message, or the summary of one, stays one page if it can
	}
	pages := prose.Chunks(text, size, db.opts.Counter.Count)
	p.Pages = make([]store.NewPage, len(pages))
	for i, c := range pages {
		np := &p.Pages[i]
		np.Text, np.Tokens, np.Hash = c.Text, c.Tokens, store.ContentHash(c.Text)
		if _, err := io.ReadFull(db.opts.Rand, np.Salt[:]); err != nil {
			return p, fmt.Errorf("ctxpage: randomness: %w", err)
		}
		np.Digest = store.SaltedDigest(np.Salt[:], np.Text)
	}
	return p, nil
}

// content fetches the text of an artefact with a source and returns the validator of the source. A given text must
// equal it, because the first read would replace a different one.
func content(ctx context.Context, view freshness.View, a *Artefact) (store.Validator, error) {
	if a.Source == "" {
		return store.Validator{}, nil
	}
	if err := view.Known(a.Source); err != nil {
		return store.Validator{}, err
	}
	given := a.Text != "" || len(a.Parts) > 0
	f, err := view.Fetch(ctx, a.Source)
	if err != nil && given {
		return store.Validator{}, fmt.Errorf("%s: a text given with a source must equal what the source holds; leave one of them out: %w", a.ID, err)
	}
	if err != nil {
		return store.Validator{}, err
	}
	if f.Trust != 0 {
		a.Provenance = min(a.Provenance, f.Trust)
	}
	if given {
		text, _ := format.JoinParts(a.Parts)
		if a.Text+text != f.Text {
			return store.Validator{}, store.Invalid("text", fmt.Sprintf("a text that differs from what source %s holds", strconv.Quote(a.Source)), "a text or a source: with a source the text is fetched from there")
		}
	} else {
		a.Text = f.Text
	}
	if a.CurrentAsOf.IsZero() {
		a.CurrentAsOf = f.AsOf
	}
	return f.Validator, nil
}

// version builds an artefact from its pages.
func (db *DB) version(ctx context.Context, scopes store.Scopes, l store.Located) (*Version, error) {
	var few [4]*frame // of most artefacts it stays on the stack
	frames, errs, err := db.table.load(ctx, scopes, l.Pages, few[:0])
	if err != nil {
		return nil, err
	}
	defer db.table.unpin(frames)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	v := newVersion(len(frames))
	v.fill(frames[0].head)
	v.Ref.Scope, v.SupersededBy = l.Scope, l.ByID
	texts := make([]string, 0, 8) // likewise
	for i, f := range frames {
		r := &f.head.Rows[f.page-1]
		v.Pages = append(v.Pages, Page{
			Ref: Ref{Scope: l.Scope, ID: v.ID, Page: f.page, Version: r.Version}, Num: f.num, Tokens: tokens(db.opts.Counter, f.head, f.page, f.text), Digest: r.Digest, Text: f.text,
		})
		v.Tokens += v.Pages[i].Tokens
		texts = append(texts, f.text)
	}
	v.Text = strings.Join(texts, "") // of one page: its own string, not a copy
	v.fillParts(frames[0].head, len(frames) == len(frames[0].head.Rows))
	return v, nil
}

// texts reads the texts of pages through the working set.
func (db *DB) texts(ctx context.Context, scopes store.Scopes, keys []store.PageKey) ([]string, error) {
	frames, errs, err := db.table.load(ctx, scopes, keys, nil)
	if err != nil {
		return nil, err
	}
	defer db.table.unpin(frames)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := make([]string, len(frames))
	for i, f := range frames {
		out[i] = f.text
	}
	return out, nil
}

// tokens returns the stored count of a page if the same counter made it; otherwise it counts again.
func tokens(c token.Counter, h *store.Head, page int, text string) int {
	if page <= len(h.Rows) && h.Counter == c.Name() {
		return int(h.Rows[page-1].Tokens)
	}
	return c.Count(text)
}

// versionOf copies a head into a version that the caller may change.
func versionOf(h *store.Head) *Version {
	v := new(Version)
	v.fill(h)
	return v
}

// newVersion makes an empty version with memory for its pages, in one piece for one page.
func newVersion(pages int) *Version {
	if pages == 1 {
		one := new(struct {
			v    Version
			page [1]Page
		})
		one.v.Pages = one.page[:0]
		return &one.v
	}
	return &Version{Pages: make([]Page, 0, pages)}
}

// fill is versionOf for an empty version.
func (v *Version) fill(h *store.Head) {
	v.Artefact, v.Version, v.LSN, v.PutAt, v.Actor, v.Trace = h.Artefact, h.Version, h.LSN, h.PutAt, h.Actor, h.Trace
	v.Deleted, v.Gone, v.GoneBy, v.SourceHash, v.SupersededBy = h.Deleted, h.Gone, h.GoneBy, h.Source.Hash, h.Superseded
	v.Ref = Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	v.Parts = append([]store.Part(nil), h.Parts...)
	v.ToolCalls = append([]store.ToolCall(nil), h.ToolCalls...)
	v.DerivedFrom = append([]Ref(nil), h.DerivedFrom...)
	v.Supersedes = append([]string(nil), h.Supersedes...)
	v.Tags = append([]string(nil), h.Tags...)
	v.Unknown = append([]byte(nil), h.Artefact.Unknown...)
	if h.Relevance != nil {
		x := *h.Relevance
		v.Relevance = &x
	}
	v.src = h
	if h.Meta != nil {
		v.Meta = make(map[string]string, len(h.Meta))
		for k, x := range h.Meta {
			v.Meta[k] = x
		}
	}
}

// draftOf describes a put that has no version yet.
func draftOf(p *store.Put, scope, actor string) *Version {
	v := versionOf(&store.Head{Artefact: p.Artefact, Scope: scope, Actor: actor, PartBytes: p.PartBytes})
	var text strings.Builder
	for i, np := range p.Pages {
		text.WriteString(np.Text)
		v.Tokens += np.Tokens
		v.Pages = append(v.Pages, Page{Ref: Ref{Scope: scope, ID: v.ID, Page: i + 1}, Tokens: np.Tokens, Digest: np.Digest, Text: np.Text})
	}
	v.Text = text.String()
	return v
}

// exported adds a version to the leaf of the export that hands it out.
func (v *Version) exported(leaf *manifest.Record) {
	for _, p := range v.Pages {
		leaf.Pages = append(leaf.Pages, manifest.Page{Num: p.Num, Version: v.Version, Tokens: p.Tokens})
		leaf.Tokens += p.Tokens
	}
	leaf.LSN = max(leaf.LSN, v.LSN)
}

// head is the stored head that the version was copied from; nil for a version of the caller's own.
func (v *Version) head() *store.Head { return v.src }

// fillParts moves the text back into the text parts of a message. Text is then empty.
func (v *Version) fillParts(h *store.Head, whole bool) {
	if len(v.Parts) == 0 || !whole {
		return
	}
	rest := v.Text
	for i := range v.Parts {
		if v.Parts[i].Type == "text" && i < len(h.PartBytes) && h.PartBytes[i] <= len(rest) {
			v.Parts[i].Text, rest = rest[:h.PartBytes[i]], rest[h.PartBytes[i]:]
		}
	}
	v.Text = ""
}

// writeFetched commits what sources returned as the next versions of artefacts of one scope: all, or none.
func (db *DB) writeFetched(ctx context.Context, heads []*store.Head, fetched []freshness.Got) error {
	id, err := db.newID()
	if err != nil {
		return err
	}
	b := store.Batch{
		ID: id, Scope: heads[0].Scope, Actor: "source", Now: db.opts.Clock(),
		Leaf: manifest.Record{Type: manifest.TypeRefetch, Reason: "source changed"},
	}
	var asked time.Time // the first of the sources
	for i, h := range heads {
		if at := fetched[i].Began; i == 0 || at.Before(asked) {
			asked = at
		}
		put, err := db.makeFetched(h, &fetched[i])
		if err != nil {
			return err
		}
		b.Puts = append(b.Puts, put)
		b.Expect = append(b.Expect, store.Precondition{Ref: Ref{Scope: h.Scope, ID: h.ID}, LSN: h.LSN})
	}
	if db.watch != nil {
		ctx = db.since(ctx, db.watch.at(asked))
	}
	_, err = db.store.Commit(ctx, b)
	return err
}

// makeFetched makes the next version of an artefact from what its source returned.
func (db *DB) makeFetched(h *store.Head, f *freshness.Got) (store.Put, error) {
	a := h.Artefact
	a.Text, a.CurrentAsOf = f.Text, f.AsOf
	a.Parts = nil
	if f.Validator.Hash != h.Source.Hash {
		a.Supersedes = nil                            // it superseded them when it was put; artefacts put again since stay current
		a.Provenance = min(a.Provenance, store.Chunk) // whoever verified the old text did not see the new one
	}
	if f.Trust != 0 {
		a.Provenance = min(a.Provenance, f.Trust)
	}
	return db.makePut(a, f.Validator)
}

// readCopied returns what a page: source has for an artefact.
func (db *DB) readCopied(ctx context.Context, scopes store.Scopes, l store.Located) (freshness.Got, error) {
	v, err := db.version(ctx, scopes, l)
	if err != nil {
		return freshness.Got{}, err
	}
	text := v.Text
	if len(v.Parts) > 0 {
		text, _ = format.JoinParts(v.Parts)
	}
	return freshness.Got{Fetched: store.Fetched{Text: text, AsOf: v.CurrentAsOf}, Trust: v.Provenance}, nil
}

// dirtyError says why an artefact cannot be served. Errors that explain themselves get no prefix.
func dirtyError(id string, f freshness.Finding) error {
	if f.Reason == triage.NoRoot || f.Reason == triage.NoScheme || f.Reason == triage.Vanished {
		return fmt.Errorf("%w: %s: %w", store.ErrDirty, id, f.Err)
	}
	return fmt.Errorf("%w: %s: %s: %w", store.ErrDirty, id, strings.TrimPrefix(f.Reason, "dirty: "), f.Err)
}

const (
	// longTurn is the size of a turn, in tokens, above which it may enter as an extract (brief).
	longTurn = 100
	// nearTurn is the size of a turn above which its nearness counts by the token: a turn of twice the size takes the place of two
	// that may be as near.
	nearTurn = 60
)

// candidateOf describes a page to the ranking. The id is its position among the items of an assembly, because drafts have
// no number; own marks drafts and turns of the asking session.
func candidateOf(id int, c *store.Candidate, now time.Time, cosine *float64, beside float64, own bool) triage.Candidate {
	long := 1.0
	if c.Kind == store.KindMessage && c.Group != 0 {
		long = max(1, float64(c.Tokens)/nearTurn)
	}
	return triage.Candidate{
		ID: uint64(id), Turn: c.Kind == store.KindMessage && c.Lexical.Score > 0, Long: long, Provenance: c.Provenance, Age: now.Sub(codec.FromMicros(c.AsOf)), Lexical: c.Lexical.Score, Apart: c.Lexical.First, Cosine: cosine, Beside: beside,
		Excluded: c.Excluded, Pinned: c.Pinned, System: c.Kind == store.KindSystem, Directive: directivelog.IsPage(c.Kind, c.Ref.ID), Own: own,
	}
}
