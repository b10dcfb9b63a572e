package ui

import (
	"net/http"

	"github.com/ctxpage/ctxpage/manifest"
)

// liveView lists what happened, newest first.
type liveView struct {
	Type, Scope, Session, Actor string
	Types                       []string
	Rows                        []leafRow
	Next                        uint64
	Size                        uint64 // leaves of the audit: where live updates go on
	Follows                     bool   // the newest rows are shown, so live updates fit
	Strip                       []strip
}

// types are the leaf types that a list can be restricted to.
var types = []string{"assemble", "search", "get", "recall", "export", "commit", "held", "approve", "reject", "rollback", "conflict", "refetch", "directive", "pass", "gc", "promote", "handoff", "erase", "backup", "prune"}

// kept reads the filter of a list of leaves.
func filterOf(r *http.Request) (f manifest.Filter, err error) {
	f = manifest.Filter{Scope: r.FormValue("scope"), Session: r.FormValue("session"), Actor: r.FormValue("actor")}
	if t := r.FormValue("type"); t != "" {
		f.Type, err = manifest.ParseType(t)
	}
	return f, err
}

func (h *Handler) live(r *http.Request) (*content, error) {
	f, err := filterOf(r)
	if err != nil {
		return nil, err
	}
	v := &liveView{Type: r.FormValue("type"), Scope: f.Scope, Session: f.Session, Actor: f.Actor, Types: types, Follows: r.FormValue("before") == ""}
	before, err := h.before(r)
	if err != nil {
		return nil, err
	}
	v.Size = before
	if v.Rows, v.Next, err = h.newest(r.Context(), before, rowsAtOnce, f.Match); err != nil {
		return nil, err
	}
	if v.Follows {
		if v.Strip, err = h.strip(r.Context(), before); err != nil {
			return nil, err
		}
	}
	return &content{Name: "live", Title: "Live", Nav: "live", View: v}, nil
}
