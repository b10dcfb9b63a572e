package ui

import (
	"errors"
	"net/http"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// reviewView lists held batches.
type reviewView struct {
	Scope   string
	All     bool
	Batches []ctxpage.Held
	Next    string
	Damage  string
}

func (h *Handler) reviews() *ctxpage.Review {
	return h.o.DB.Review(ctxpage.WithActor(h.o.Actor))
}

func (h *Handler) review(r *http.Request) (*content, error) {
	v := &reviewView{Scope: r.FormValue("scope"), All: r.FormValue("all") != ""}
	for b, err := range h.reviews().Batches(r.Context(), v.Scope, v.All, ctxpage.AtMost(rowsAtOnce, r.FormValue("after"), &v.Next)) {
		switch {
		case errors.Is(err, store.ErrCorrupt):
			v.Damage = problem(err)
		case err != nil:
			return nil, err
		default:
			v.Batches = append(v.Batches, b)
		}
	}
	return &content{Name: "review", Title: "Review", Nav: "review", View: v}, nil
}

// batchView is a held batch with everything that its approval does.
type batchView struct {
	*ctxpage.Held
	Drafts []draft
	By     string
}

// draft is a write of a batch.
type draft struct {
	Ref      string
	Effects  []string
	Fields   [][2]string
	Text     *part
	Replaces string // reference of the version that it takes the place of
	Diff     []diffLine
}

func (h *Handler) batch(r *http.Request) (*content, error) {
	ctx := r.Context()
	held, err := h.reviews().Show(ctx, r.FormValue("id"))
	if err != nil {
		return nil, err
	}
	v := &batchView{Held: held, By: r.FormValue("by")}
	for i := range held.Writes[:min(len(held.Writes), rowsAtOnce)] {
		x := &held.Writes[i]
		shown := &pageView{Version: x}
		h.describe(shown, 0)
		if i > 0 { // the first one whole, as far as it fits
			p := partOf(x.Text, 0, blockBytes)
			shown.Text = &p
		}
		d := draft{Ref: ctxpage.Ref{Scope: held.Scope, ID: x.ID}.String(), Effects: effects(held, x), Fields: shown.Fields, Text: shown.Text}
		for _, ref := range held.Replaces {
			if ref.ID != x.ID || i >= 5 {
				continue
			}
			d.Replaces = ref.String()
			was, err := h.scope(held.Scope).Recall(ctx, ref, ctxpage.WithCheck(ctxpage.CheckNever), ctxpage.ServeStale())
			if err == nil {
				d.Diff = diffTexts(was.Text, x.Text)
			} else if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrGone) && !errors.Is(err, store.ErrExpired) {
				return nil, err
			}
		}
		v.Drafts = append(v.Drafts, d)
	}
	return &content{Name: "batch", Title: "Held batch " + held.ID, Nav: "review", View: v}, nil
}

// effects says what the approval of a draft does beside storing its text, gravest first.
func effects(held *ctxpage.Held, x *ctxpage.Version) (out []string) {
	for _, ref := range held.Replaces {
		if ref.ID != x.ID {
			continue
		}
		out = append(out, "Replaces "+ref.String()+".")
		for _, d := range held.Drops {
			if lost, of := strings.CutPrefix(d, ref.String()+": "); of {
				out = append(out, "Drops from it: "+lost+".")
			}
		}
	}
	for _, id := range x.Supersedes {
		out = append(out, "Supersedes "+id+", which is no longer found.")
	}
	if x.Kind == store.KindSystem || store.SpokenAs(x.Role) == "system" {
		out = append(out, "Instructs the model: every context of the scope shows it as an instruction.")
	}
	if x.Role != "" && x.Group != "" {
		out = append(out, "Becomes a turn of the "+x.Role+" in the session "+x.Group+".")
	}
	if x.Pinned {
		out = append(out, "Is pinned: every context of the scope shows it.")
	}
	return out
}

// decide approves or rejects a held batch.
func (h *Handler) decide(r *http.Request) (next string, err error) {
	if err := r.ParseForm(); err != nil {
		return "", store.Invalid("form", err.Error(), "the form of a batch")
	}
	id, by, note := r.PostForm.Get("id"), strings.TrimSpace(r.PostForm.Get("by")), r.PostForm.Get("note")
	switch what := r.PostForm.Get("decision"); what {
	case "approve":
		_, err = h.reviews().Approve(r.Context(), id, ctxpage.Approval{
			By: by, Note: note, HumanVerified: r.PostForm.Get("verified") != "", Stale: r.PostForm.Get("stale") != "",
		})
	case "reject":
		_, err = h.reviews().Reject(r.Context(), id, by, note)
	default:
		err = store.Invalid("decision", what, "approve or reject")
	}
	return h.link("/batch", "id", id, "by", by), err
}
