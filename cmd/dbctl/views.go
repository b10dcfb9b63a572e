package main

import (
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
)

// The JSON of dbctl is its own, apart from the library's types: its fields are pinned by a test, theirs may grow.

// versionView is an artefact version.
type versionView struct {
	Ref         string            `json:"ref"`
	Scope       string            `json:"scope"`
	ID          string            `json:"id"`
	Version     uint32            `json:"version"`
	LSN         uint64            `json:"lsn"`
	Kind        string            `json:"kind"`
	Provenance  string            `json:"provenance"`
	Tokens      int               `json:"tokens"`
	Pages       []pageView        `json:"pages"`
	PutAt       time.Time         `json:"put_at"`
	CurrentAsOf time.Time         `json:"current_as_of,omitzero"`
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`
	Actor       string            `json:"actor,omitempty"`
	Trace       string            `json:"trace,omitempty"` // of the read that it was written from
	Source      string            `json:"source,omitempty"`
	Group       string            `json:"group,omitempty"`
	Seq         int64             `json:"seq,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Role        string            `json:"role,omitempty"`
	DerivedFrom []string          `json:"derived_from,omitempty"`
	Supersedes  []string          `json:"supersedes,omitempty"`
	Pinned      bool              `json:"pinned,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Deleted     bool              `json:"deleted,omitempty"`
	Gone        bool              `json:"gone,omitempty"`
	GoneBy      string            `json:"gone_by,omitempty"`
	// SupersededBy is the id of the artefact that answers for it.
	SupersededBy string `json:"superseded_by,omitempty"`
	Stale        bool   `json:"stale,omitempty"`
	Elsewhere    string `json:"elsewhere,omitempty"` // host that has the file of its source
	Text         string `json:"text,omitempty"`
}

type pageView struct {
	Ref    string          `json:"ref"`
	Num    uint64          `json:"num"`
	Tokens int             `json:"tokens"`
	Digest manifest.Digest `json:"digest"`
}

func viewOf(v *ctxpage.Version) versionView {
	out := versionView{
		Ref: v.Ref.String(), Scope: v.Ref.Scope, ID: v.ID, Version: v.Version, LSN: v.LSN, Kind: v.Kind.String(), Provenance: v.Provenance.String(),
		Tokens: v.Tokens, Pages: []pageView{}, PutAt: v.PutAt, CurrentAsOf: v.CurrentAsOf, ExpiresAt: v.ExpiresAt, Actor: v.Actor, Trace: v.Trace, Source: v.Source,
		Group: v.Group, Seq: v.Seq, Subject: v.Subject, Role: v.Role, DerivedFrom: refStrings(v.DerivedFrom), Supersedes: v.Supersedes,
		Pinned: v.Pinned, Tags: v.Tags, Meta: v.Meta, Deleted: v.Deleted, Gone: v.Gone, GoneBy: v.GoneBy, SupersededBy: v.SupersededBy, Stale: v.Stale, Elsewhere: v.Elsewhere, Text: textOf(v),
	}
	for _, p := range v.Pages {
		out.Pages = append(out.Pages, pageView{p.Ref.String(), p.Num, p.Tokens, p.Digest[:]})
	}
	return out
}

// state is what is particular of a version, for a listing.
func (v *versionView) state() string {
	switch {
	case v.Gone:
		return "gone"
	case v.Deleted:
		return "deleted"
	case v.SupersededBy != "":
		return "superseded by " + v.SupersededBy
	}
	return "-"
}

// textOf is the text of a version, also of a message whose text stands in its parts.
func textOf(v *ctxpage.Version) string {
	text := v.Text
	for _, p := range v.Parts {
		text += p.Text
	}
	return text
}

func refStrings(refs []ctxpage.Ref) []string {
	var out []string
	for _, r := range refs {
		out = append(out, r.String())
	}
	return out
}

// nonNil makes an empty list [] in JSON, not null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
