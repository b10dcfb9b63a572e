package view

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// Write is a page to be written.
type Write struct {
	ID          string            `json:"id" jsonschema:"key in the scope; an id that exists gets a new version, with the fields of this write alone"`
	Text        string            `json:"text,omitempty" jsonschema:"the content; empty with source or parts"`
	Parts       []Part            `json:"parts,omitempty"`
	Kind        string            `json:"kind,omitempty" jsonschema:"system, fact (default), chunk, message, tool, scratch or summary"`
	Provenance  string            `json:"provenance,omitempty" jsonschema:"scratch, tool, validated or chunk; default: that of the kind"`
	Role        string            `json:"role,omitempty"`
	Name        string            `json:"name,omitempty"`
	Source      string            `json:"source,omitempty" jsonschema:"where the text comes from: file:PATH or page:REF"`
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`
	TTL         int               `json:"ttl_s,omitempty" jsonschema:"seconds until it expires, instead of expires_at"`
	CurrentAsOf time.Time         `json:"current_as_of,omitzero" jsonschema:"when the content was true; default: now"`
	Group       string            `json:"group,omitempty"`
	Seq         int64             `json:"seq,omitempty"`
	Subject     string            `json:"subject,omitempty" jsonschema:"whom it is about"`
	DerivedFrom []string          `json:"derived_from,omitempty" jsonschema:"references of what it was made from"`
	Supersedes  []string          `json:"supersedes,omitempty" jsonschema:"ids of the scope that it replaces"`
	Pinned      bool              `json:"pinned,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
}

// MaxSeconds is a hundred years, far below what a duration holds.
const MaxSeconds = 100 * 366 * 24 * 3600

// Artefact returns the page as the library takes it. It checks only what JSON cannot say in the library's types, such as a
// TTL that a duration cannot hold. The store checks the limits of ids, texts and tags for every caller.
func (w *Write) Artefact() (a ctxpage.Artefact, err error) {
	a = ctxpage.Artefact{
		ID: w.ID, Text: w.Text, Role: w.Role, Name: w.Name, Source: w.Source, ExpiresAt: w.ExpiresAt, TTL: time.Duration(w.TTL) * time.Second,
		CurrentAsOf: w.CurrentAsOf, Group: w.Group, Seq: w.Seq, Subject: w.Subject, Supersedes: w.Supersedes, Pinned: w.Pinned, Tags: w.Tags, Meta: w.Meta,
	}
	for _, p := range w.Parts {
		a.Parts = append(a.Parts, store.Part(p))
	}
	if w.TTL < 0 || w.TTL > MaxSeconds {
		return a, store.Invalid("ttl_s", fmt.Sprint(w.TTL), fmt.Sprintf("1 to %d seconds", MaxSeconds))
	}
	if w.Kind != "" {
		if a.Kind, err = store.ParseKind(w.Kind); err != nil {
			return a, err
		}
	}
	if w.Provenance != "" {
		if a.Provenance, err = triage.ParseProvenance(w.Provenance); err != nil {
			return a, store.Invalid("provenance", fmt.Sprintf("%.40q", w.Provenance), "scratch, tool, validated or chunk")
		}
	}
	for _, text := range w.DerivedFrom {
		ref, err := store.ParseRef(text)
		if err != nil {
			return a, err
		}
		a.DerivedFrom = append(a.DerivedFrom, ref)
	}
	return a, nil
}

// Filter restricts a read. All fields that are set must hold.
type Filter struct {
	IDPrefix     string         `json:"id_prefix,omitempty" jsonschema:"how ids begin"`
	TagsAny      []string       `json:"tags_any,omitempty" jsonschema:"at least one of these tags"`
	TagsAll      []string       `json:"tags_all,omitempty" jsonschema:"all of these tags"`
	Subject      string         `json:"subject,omitempty" jsonschema:"whom it is about, exactly"`
	Meta         map[string]any `json:"meta,omitempty" jsonschema:"metadata by key: a value, or an object of operators $eq $ne $gt $gte $lt $lte $exists"`
	Kinds        []string       `json:"kinds,omitempty" jsonschema:"only these kinds: system, fact, chunk, message, tool, scratch, summary"`
	Since        string         `json:"since,omitempty" jsonschema:"current at or after this time, RFC 3339"`
	Until        string         `json:"until,omitempty" jsonschema:"current before this time, RFC 3339"`
	WrittenSince string         `json:"written_since,omitempty" jsonschema:"written at or after this time, RFC 3339"`
	WrittenUntil string         `json:"written_until,omitempty" jsonschema:"written before this time, RFC 3339"`
}

// Filter returns the filter as the library takes it. A nil filter lets everything through.
func (in *Filter) Filter() (f ctxpage.Filter, err error) {
	if in == nil {
		return f, nil
	}
	f = ctxpage.Filter{IDPrefix: in.IDPrefix, TagsAny: in.TagsAny, TagsAll: in.TagsAll, Subject: in.Subject}
	if len(in.Meta) > 0 {
		text, err := json.Marshal(in.Meta)
		if err == nil {
			err = f.Meta.UnmarshalJSON(text)
		}
		if err != nil {
			return f, err
		}
	}
	if f.Kinds, err = Kinds(in.Kinds); err != nil {
		return f, err
	}
	for _, t := range []struct {
		name, text string
		to         *time.Time
	}{{"since", in.Since, &f.Since}, {"until", in.Until, &f.Until}, {"written_since", in.WrittenSince, &f.WrittenSince}, {"written_until", in.WrittenUntil, &f.WrittenUntil}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = time.Parse(time.RFC3339, t.text); err != nil {
			return f, store.Invalid("filter."+t.name, fmt.Sprintf("%.40q", t.text), "a time such as 2026-03-01T09:00:00Z")
		}
	}
	return f, f.Check()
}

// Kinds parses names of kinds. It returns nil, which stands for all kinds, if there are none.
func Kinds(names []string) (out []store.Kind, err error) {
	for _, name := range names {
		k, err := store.ParseKind(name)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}
