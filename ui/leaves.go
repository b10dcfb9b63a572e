package ui

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Limits of one view. Lists go on behind a link.
const (
	rowsAtOnce   = 40   // rows of a list
	leavesAtOnce = 2000 // leaves that one view looks at
	batchLeaves  = 250  // leaves that are read together
)

// leafRow is a leaf in a list.
type leafRow struct {
	*manifest.Record
	Asked string // the question, or why it is not shown
}

// What describes in some words what happened.
func (l leafRow) What() string {
	r := l.Record
	switch {
	case l.Asked != "":
		return l.Asked
	case r.Pruned != nil:
		return "body " + r.Pruned.String()
	case r.Action != "":
		return r.Action
	case len(r.Writes) > 0:
		more := ""
		if len(r.Writes) > 1 {
			more = " and " + strconv.Itoa(len(r.Writes)-1) + " more"
		}
		return r.Writes[0].Ref + more
	}
	return r.Reason
}

// newest lists leaves before an index that pass a filter, newest first. next is where to go on, 0 at the end of the audit.
func (h *Handler) newest(ctx context.Context, before uint64, limit int, keep func(r *manifest.Record) bool) (rows []leafRow, next uint64, err error) {
	audit, looked := h.o.DB.Manifests(), 0
	for to := before; to > 0 && looked < leavesAtOnce; {
		from := to - min(to, batchLeaves)
		leaves, err := audit.Records(ctx, from, to, true, int(to-from))
		if err != nil {
			return nil, 0, err
		}
		for _, r := range leaves {
			if !keep(r) {
				continue
			}
			if len(rows) == limit {
				return rows, r.Index + 1, nil
			}
			row := leafRow{Record: r}
			if row.Asked, err = h.asked(ctx, r); err != nil {
				return nil, 0, err
			}
			rows = append(rows, row)
		}
		looked += int(to - from)
		to = from
		next = to
	}
	return rows, next, nil
}

// asked returns the question of a leaf; "": there is none, or its text was erased or not kept.
func (h *Handler) asked(ctx context.Context, r *manifest.Record) (string, error) {
	if len(r.Query) == 0 || !r.QuestionKept {
		return "", nil
	}
	text, err := h.o.DB.Manifests().Question(ctx, r)
	if errors.Is(err, manifest.ErrNoQuestion) {
		return "", nil
	}
	return text, err
}

// before is the cursor of a list of leaves; without one it is the end of the audit.
func (h *Handler) before(r *http.Request) (uint64, error) {
	if s := r.FormValue("before"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, store.Invalid("before", s, "the number of a leaf")
		}
		return n, nil
	}
	return h.o.DB.Manifests().Size(r.Context())
}

// assembly finds the leaf of a context, and the leaves that followed from it.
func (h *Handler) assembly(ctx context.Context, trace string) (leaf *manifest.Record, followed []*manifest.Record, err error) {
	if trace == "" {
		return nil, nil, store.Invalid("trace", "nothing", "the trace of a context")
	}
	leaves, err := h.o.DB.Manifests().ByTrace(ctx, trace)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range leaves {
		switch {
		case l.Type == manifest.TypeAssemble && l.Trace == trace && leaf == nil:
			leaf = l
		case !l.Type.Reads():
			followed = append(followed, l)
		}
	}
	if leaf == nil {
		return nil, nil, store.Invalid("trace", trace, "the trace of a context; this one is of something else")
	}
	leaf.Question, err = h.asked(ctx, leaf)
	return leaf, followed, err
}

// earlier lists the contexts before one, of its session or else of its scope.
func (h *Handler) earlier(ctx context.Context, leaf *manifest.Record, limit int) ([]leafRow, error) {
	rows, _, err := h.newest(ctx, leaf.Index, limit, func(r *manifest.Record) bool {
		return r.Type == manifest.TypeAssemble && r.Pruned == nil && r.Scope == leaf.Scope && r.Session == leaf.Session
	})
	return rows, err
}

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
