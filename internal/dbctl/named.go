package dbctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// One rule for every verb whose argument names an artefact. Any text may be an id, also one that looks like a reference, so a text may
// have several readings, tried in this order:
//
//  1. an id, as it is, of the scope or its ancestors
//  2. id#page@version, the id as it is
//  3. scope:id#page@version, percent-encoded
//
// The first that names something counts. If others do too, verbs that read warn and verbs that write refuse; both show how to write
// each. Ids of what a verb creates are literal.
const namesHelp = `An artefact is named by its id, by id#page@version, or by scope:id#page@version with scope and id percent-encoded. The first of these readings that names something is used. If a second reading names something too, verbs that read print a warning, verbs that write refuse, and both show how to write each unambiguously. TRACE#n names page n of a context that the scope assembled. put, commit and session append take the id of what they create literally.`

// namer finds what arguments name, seen from a scope.
type namer struct {
	a      *app
	db     *ctxpage.DB
	scope  string
	writes bool
}

// cutRef splits page and version from a text: the second reading.
func cutRef(s string) (ctxpage.Ref, bool) {
	for _, sep := range []string{"#", "@"} {
		i := strings.LastIndex(s, sep)
		if i <= 0 {
			continue
		}
		// The suffix is read by the one parser of references; its id is a placeholder.
		if r, err := store.ParseRef("s:i" + s[i:]); err == nil {
			r.Scope, r.ID = "", s[:i]
			return r, true
		}
	}
	return ctxpage.Ref{}, false
}

func readings(s string) []ctxpage.Ref {
	out := []ctxpage.Ref{{ID: s}}
	if r, ok := cutRef(s); ok {
		out = append(out, r)
	}
	if r, err := store.ParseRef(s); err == nil {
		out = append(out, r)
	}
	return out
}

// presence says how much of what a reading names exists.
type presence int

const (
	nothing presence = iota
	artefactOnly
	allOfIt
)

// look completes a reading with its scope.
func (n *namer) look(ctx context.Context, r ctxpage.Ref) (ctxpage.Ref, presence, error) {
	from := n.scope
	if r.Scope != "" {
		if from = r.Scope; from != n.scope && !strings.HasPrefix(n.scope, from+"/") {
			return r, nothing, nil // not seen from here
		}
	}
	state := nothing
	var opts []ctxpage.ReadOption
	if r.Version == 0 {
		opts = append(opts, ctxpage.AtMost(1, "", nil)) // the newest
	}
	for v, err := range n.db.Scope(from).Versions(ctx, r.ID, opts...) {
		switch {
		case errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid):
			return r, nothing, nil
		case err != nil:
			return r, nothing, err
		case r.Scope != "" && v.Ref.Scope != r.Scope:
			return r, nothing, nil
		}
		r.Scope, state = v.Ref.Scope, artefactOnly
		if names(r, v) {
			return r, allOfIt, nil
		}
	}
	return r, state, nil
}

// names reports whether a reference names a version, or a page of it. A page keeps its version while its text does not change.
func names(r ctxpage.Ref, v *ctxpage.Version) bool {
	if r.Page > len(v.Pages) {
		return false
	}
	return r.Version == 0 || r.Version == v.Version || r.Page > 0 && v.Pages[r.Page-1].Ref.Version == r.Version
}

// find returns what a text names. If it names nothing that is there, it is taken for an id.
func (n *namer) find(ctx context.Context, s string) (ctxpage.Ref, error) {
	var whole, part []ctxpage.Ref
	for _, r := range readings(s) {
		found, state, err := n.look(ctx, r)
		if err != nil {
			return r, err
		}
		switch {
		case state == allOfIt && !slices.Contains(whole, found):
			whole = append(whole, found)
		case state == artefactOnly:
			part = append(part, found)
		}
	}
	switch {
	case len(whole) > 1:
		return whole[0], n.ambiguous(ctx, s, whole)
	case len(whole) == 1:
		return whole[0], nil
	case len(part) > 0:
		return part[0], nil // the verb says what is missing
	}
	return ctxpage.Ref{ID: s}, nil
}

// ambiguous tells how each reading is written: an error of verbs that write.
func (n *namer) ambiguous(ctx context.Context, s string, found []ctxpage.Ref) error {
	var ways []string
	for i, r := range found {
		way, err := n.spelled(ctx, r)
		if err != nil {
			return err
		}
		ways = append(ways, fmt.Sprintf("%s for %s", way, reads(r, i == 0)))
	}
	if n.writes {
		return usage("%q may mean more than one thing: write %s", s, strings.Join(ways, ", "))
	}
	n.a.warn(fmt.Sprintf("%q is taken for the first of these: %s", s, strings.Join(ways, ", ")))
	return nil
}

// reads tells what a reading names.
func reads(r ctxpage.Ref, first bool) string {
	what := ""
	if r.Page > 0 {
		what = fmt.Sprintf("page %d of ", r.Page)
	}
	if r.Version > 0 {
		what += fmt.Sprintf("version %d of ", r.Version)
	}
	if what == "" && first {
		what = "the id "
	} else {
		what += "id "
	}
	return fmt.Sprintf("%s%q of %s", what, r.ID, r.Scope)
}

// spelled writes a reference so that it has this reading alone. Where an id looks like the reference, bytes are encoded
// that need not be, until none does.
func (n *namer) spelled(ctx context.Context, r ctxpage.Ref) (string, error) {
	tail := strings.TrimPrefix(r.String(), ctxpage.Ref{Scope: r.Scope, ID: r.ID}.String())
	for k := range len(r.ID) + 1 {
		head := ctxpage.Ref{Scope: r.Scope, ID: "x"}.String()
		way := head[:len(head)-1]
		for i := range k {
			way += fmt.Sprintf("%%%02X", r.ID[i])
		}
		if k < len(r.ID) {
			rest := ctxpage.Ref{Scope: "s", ID: r.ID[k:]}.String()
			way += rest[len("s:"):]
		}
		way += tail
		clear := true
		for _, other := range readings(way) {
			found, state, err := n.look(ctx, other)
			if err != nil {
				return "", err
			}
			clear = clear && (state == nothing || found == r)
		}
		if clear {
			return way, nil
		}
	}
	return r.String(), nil
}

// whole is find for verbs that take an artefact with all its pages and versions.
func (n *namer) whole(ctx context.Context, s string) (ctxpage.Ref, error) {
	r, err := n.find(ctx, s)
	if err != nil || r.Page == 0 && r.Version == 0 {
		return r, err
	}
	named := reads(r, false)
	r.Page, r.Version = 0, 0
	way, serr := n.spelled(ctx, r)
	if serr != nil {
		return r, serr
	}
	id, serr := n.spelled(ctx, ctxpage.Ref{Scope: n.scope, ID: s})
	if serr != nil {
		return r, serr
	}
	return r, usage("%q names %s, and a whole artefact is expected here: write %s, or %s for an artefact with the id %q", s, named, way, id, s)
}

// own is whole for verbs that reach into the scope alone.
func (n *namer) own(ctx context.Context, s string) (ctxpage.Ref, error) {
	r, err := n.whole(ctx, s)
	if err != nil {
		return r, err
	}
	return r, n.inScope(r, s)
}

// turn is own for turns. A turn is shown with its version, so that may be given.
func (n *namer) turn(ctx context.Context, s string) (ctxpage.Ref, error) {
	r, err := n.find(ctx, s)
	if err != nil {
		return r, err
	}
	if r.Page > 0 {
		return n.own(ctx, s)
	}
	return r, n.inScope(r, s)
}

func (n *namer) inScope(r ctxpage.Ref, s string) error {
	if r.Scope != "" && r.Scope != n.scope && r.ID != s {
		return usage("%q names an artefact of scope %s, expected one of %s", s, r.Scope, n.scope)
	}
	return nil
}

// hinted adds to a not-found how the text is written as an id, where it could be read as something else and nothing was
// found.
func (n *namer) hinted(err error, found ctxpage.Ref, s string) error {
	if found.Scope != "" || !errors.Is(err, store.ErrNotFound) || !strings.ContainsAny(s, ":#@%") {
		return err
	}
	return fmt.Errorf("%w; a reference is written scope:id#page@version, percent-encoded: %s for the id %q", err, ctxpage.Ref{Scope: n.scope, ID: s}, s)
}

// fresh tells who makes an artefact that its id also reads as a part of another.
func (n *namer) fresh(ctx context.Context, id string) error {
	for _, r := range readings(id)[1:] {
		found, state, err := n.look(ctx, r)
		if err != nil {
			return err
		}
		if state == allOfIt {
			way, err := n.spelled(ctx, ctxpage.Ref{Scope: n.scope, ID: id})
			if err != nil {
				return err
			}
			n.a.warn(fmt.Sprintf("%q is taken for an id; it also names %s, so verbs find the artefact as %s", id, reads(found, false), way))
		}
	}
	return nil
}
