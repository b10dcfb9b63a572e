package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Supported returns an evaluator that judges by a rule, without a model: a draft passes, with confidence 1, if each of
// its sentences stands word for word on a page that its context showed. Numbers, names and negations must agree. All
// else has confidence 0 and is held.
//
// Only pages of provenance validated or above and the user's own turns count. Results of tools, drafts, imports that
// nobody approved, summaries and stubs never do. A draft that passes is validated, unless it is derived from something
// of a lower provenance, as every draft. The verdict's note names the pages, or the sentence that stands on no page.
// docs/mcp.md has the rule in full.
//
// It is safe for concurrent use.
func Supported() Evaluator { return supportedRule{} }

type supportedRule struct{}

func (supportedRule) Name() string { return "supported" }

// Evaluate judges all writes of a draft together: one that is not supported holds them all.
func (supportedRule) Evaluate(_ context.Context, d Draft) (confidence float64, note string, err error) {
	var pages []rendering.Support
	for i := range d.Context {
		if b := &d.Context[i]; supports(b) {
			pages = append(pages, rendering.Support{
				Ref: b.Ref.String(), Text: b.Text, User: b.Kind == store.KindMessage && b.Role == render.RoleUser,
				CutStart: b.Ref.Page > 1, CutEnd: b.Ref.Page < b.Pages,
			})
		}
	}
	var by []string
	for i := range d.Writes {
		a := &d.Writes[i]
		refs, why := []string(nil), beyondText(a)
		if why == "" {
			refs, why = rendering.Judge(rendering.Draft{ID: a.ID, Trace: d.Trace, Text: a.Text, Labels: labelsOf(a)}, pages)
		}
		if why != "" {
			return 0, fmt.Sprintf("%s is not supported: %s", a.ID, why), nil
		}
		for _, r := range refs {
			if !slices.Contains(by, r) {
				by = append(by, r)
			}
		}
	}
	switch {
	case len(d.Deletes) > 0:
		return 0, "a deletion is not supported by what a page says", nil
	case len(by) == 0:
		return 0, "nothing to judge", nil
	}
	note = "every sentence stands in " + strings.Join(by, ", ")
	return 1, note[:min(len(note), store.MaxNote)], nil
}

// supports reports whether a page counts. A draft has no version. Of a conversation only what the user said does, whatever
// provenance the turns were given.
func supports(b *Block) bool {
	if b.Role != "" && b.Role != render.RoleUser {
		return false
	}
	return b.Provenance >= store.Validated && b.Kind != store.KindSystem && b.Kind != store.KindTool && b.Ref.Version != 0 && !b.Stale && (b.Form == manifest.FormFull || b.Form == manifest.FormRange)
}

// judgedFields are the fields of an artefact that Supported judges, or that say nothing. A draft with any other is held.
var judgedFields = []string{"ID", "Kind", "Provenance", "Text", "ExpiresAt", "TTL", "CurrentAsOf", "Priority", "Relevance", "Subject", "DerivedFrom", "Tags", "Meta"}

// beyondText says what a draft has that its text does not tell: a place in a conversation, a source, a page that it
// replaces.
func beyondText(a *Artefact) string {
	if a.Kind == store.KindTool || a.Kind == store.KindSystem {
		return "its kind is " + a.Kind.String()
	}
	v := reflect.ValueOf(*a)
	for i := range v.NumField() {
		f := v.Field(i)
		empty := f.IsZero() || (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0
		if name := v.Type().Field(i).Name; !empty && !slices.Contains(judgedFields, name) {
			return "it has the field " + name + ", about which pages say nothing"
		}
	}
	return ""
}

// labelsOf are the texts of a draft beside its text.
func labelsOf(a *Artefact) []string {
	labels := append([]string{a.Subject}, a.Tags...)
	for _, k := range sortedKeys(a.Meta) {
		labels = append(labels, k, a.Meta[k])
	}
	return labels
}

// shown returns what the reads of a trace showed.
func (s *Scope) shown(ctx context.Context, trace string) (out []Block, err error) {
	leaves, err := s.readSet(ctx, trace)
	if err != nil {
		return nil, err
	}
	for _, leaf := range leaves {
		pages, _, err := rendering.Replayer{Store: s.db.store, File: s.db.path}.Shown(ctx, leaf)
		if err != nil {
			return nil, err
		}
		for i := range pages {
			out = append(out, blockOf(&pages[i]))
		}
	}
	return out, nil
}

// blockOf is a page of a past context, without what only its leaf has: number, tokens and score.
func blockOf(p *rendering.Page) Block {
	h := p.Head
	return Block{
		Ref: h.PageRef(p.Page), Pages: len(h.Rows), Form: p.Form, Text: p.Text, Stale: p.Stale, Kind: h.Kind, Provenance: h.Provenance, Pinned: h.Pinned,
		Role: h.Role, Name: h.Name, Source: h.Artefact.Source, AsOf: h.CurrentAsOf, Meta: h.Meta,
	}
}

// readSet returns the leaves whose pages the context of a trace was made of: the leaves of the trace itself, and, if drafts
// were part of it, the leaves of the context that the drafts were written from. For a transaction that read without an
// assembly it returns its reads.
func (s *Scope) readSet(ctx context.Context, trace string) (out []*manifest.Record, err error) {
	seen := map[string]bool{}
	for trace != "" && !seen[trace] {
		seen[trace] = true
		leaves, err := s.db.Manifests().ByTrace(ctx, trace)
		if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
			return nil, filestore.LogError(err)
		}
		leaves = slices.DeleteFunc(leaves, func(l *manifest.Record) bool { return l.Scope != s.name || !l.Type.Reads() })
		own := slices.DeleteFunc(slices.Clone(leaves), func(l *manifest.Record) bool { return l.Trace != trace })
		if len(own) > 0 {
			leaves = own
		}
		out, trace = append(out, leaves...), ""
		for _, l := range own {
			if slices.ContainsFunc(l.Pages, func(p manifest.Page) bool { return p.Num == 0 }) {
				trace = l.Parent
			}
		}
	}
	return out, nil
}
