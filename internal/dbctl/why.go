package dbctl

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type whyCmd struct {
	File  string `arg:"" help:"Database."`
	Trace string `arg:"" optional:"" help:"Trace of an assembly."`
	Ref   string `arg:"" optional:"" help:"Id, or a reference like policy#2 or acme:policy#2@3. Without it the whole context is explained."`
	Turn  string `help:"Instead of TRACE: the id of a turn or of another artefact, or a reference with its scope. Explains the context that it was written from." placeholder:"ID"`
}

type whyView struct {
	Trace string         `json:"trace"`
	Ref   string         `json:"ref"`
	In    bool           `json:"in"`
	Asked string         `json:"question,omitempty"`
	Gone  bool           `json:"question_gone,omitempty"`
	Steps []string       `json:"steps"`
	Page  *manifest.Page `json:"page,omitempty"`
}

func whyOf(w *ctxpage.Why) whyView {
	ref := w.Ref.String()
	if w.Ref.Scope == "" { // also of no page
		ref = w.Ref.ID
	}
	return whyView{w.Trace, ref, w.In, w.Question, w.QuestionGone, nonNil(w.Steps), w.Page}
}

func (v whyView) print(w io.Writer) {
	switch {
	case v.In:
		fmt.Fprint(w, line(v.Ref), " is in ")
	case v.Ref != "":
		fmt.Fprint(w, line(v.Ref), " is not in ")
	}
	fmt.Fprintf(w, "the context of trace %s\n", v.Trace)
	if v.Asked != "" || v.Gone {
		fmt.Fprintln(w, "  question:", line(or(v.Asked, notKept)))
	}
	printEach(w, "  %s\n", v.Steps)
}

// named finds what is asked about, as the scope of the assembly sees it. What is not there may have been, or may be out
// of its sight: a reference is one then.
func (c *whyCmd) named(a *app, db *ctxpage.DB, trace string) (ctxpage.Ref, error) {
	leaves, err := db.Manifests().ByTrace(a.ctx, trace)
	if err != nil || len(leaves) == 0 {
		return ctxpage.Ref{ID: c.Ref}, nil // Why says so
	}
	n := &namer{a: a, db: db, scope: leaves[0].Scope}
	ref, err := n.find(a.ctx, c.Ref)
	if err == nil && ref.Scope == "" {
		if parsed, perr := store.ParseRef(c.Ref); perr == nil {
			return parsed, nil
		}
	}
	if ref.ID == c.Ref {
		ref.Scope = "" // whichever of the scopes had it then
	}
	return ref, err
}

func (c *whyCmd) Run(a *app) error {
	if c.Turn != "" && c.Ref == "" {
		c.Trace, c.Ref = "", c.Trace // the trace comes from the turn
	}
	if (c.Turn == "") == (c.Trace == "") {
		return usage("why: expected a trace, or --turn with the id of a turn, and then perhaps a page")
	}
	return show(a, c.File, false, func(db *ctxpage.DB) (v whyView, err error) {
		if c.Turn != "" {
			c.Trace, err = writtenFrom(a, db, c.Turn)
		} else {
			c.Trace, err = fullTrace(a.ctx, db.Manifests(), c.Trace)
		}
		var ref ctxpage.Ref
		if c.Ref != "" && err == nil {
			ref, err = c.named(a, db, c.Trace)
		}
		if err != nil {
			return v, err
		}
		w, err := db.Why(a.ctx, c.Trace, ref)
		if err != nil {
			return v, err
		}
		return whyOf(w), nil
	}, whyView.print)
}

// writtenFrom finds the trace of the context that a turn was written from. An id without a scope is looked for in all.
func writtenFrom(a *app, db *ctxpage.DB, turn string) (string, error) {
	var found []*ctxpage.Version
	look := func(scope string, ref ctxpage.Ref) error {
		for v, err := range db.Scope(scope).Versions(a.ctx, ref.ID) {
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if v.Ref.Scope == scope && (ref.Version == 0 || ref.Version == v.Version) {
				found = append(found, v)
				return nil
			}
		}
		return nil
	}
	for s, err := range db.Scopes(a.ctx, "") {
		if err == nil {
			err = look(s.Name, ctxpage.Ref{ID: turn})
		}
		if err != nil {
			return "", err
		}
	}
	if ref, err := store.ParseRef(turn); err == nil && ref.Scope != "" && len(found) == 0 {
		if err := look(ref.Scope, ref); err != nil {
			return "", err
		}
	}
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%w: no scope has the turn %q", store.ErrNotFound, turn)
	case len(found) > 1:
		var refs []string
		for _, v := range found {
			refs = append(refs, v.Ref.String())
		}
		return "", usage("--turn %s: %d scopes have one; expected one of %s", turn, len(found), strings.Join(refs, ", "))
	case found[0].Trace == "":
		return "", failed("%s was written from no recorded context: it is the user's, or whoever appended it gave no trace", found[0].Ref)
	}
	return found[0].Trace, nil
}
