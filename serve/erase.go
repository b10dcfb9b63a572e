package serve

import (
	"context"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type eraseIn struct {
	IDs        []string `json:"ids,omitempty" jsonschema:"pages of the scope; all their versions go"`
	Subject    string   `json:"subject,omitempty" jsonschema:"everything about this person or thing, in the scope and those below it"`
	Session    string   `json:"session,omitempty" jsonschema:"a conversation of the scope"`
	Whole      bool     `json:"whole,omitempty" jsonschema:"the scope and everything below it"`
	EveryScope bool     `json:"every_scope,omitempty" jsonschema:"with subject: in all scopes"`
	Reason     string   `json:"reason" jsonschema:"it stays in the audit, so it must not contain what is erased"`
	Cascade    string   `json:"cascade,omitempty" jsonschema:"what happens to pages derived from what is erased: keep (default), rederive or erase"`
	Names      bool     `json:"names,omitempty" jsonschema:"also remove ids, scopes and sessions of what is erased"`
	DryRun     bool     `json:"dry_run,omitempty" jsonschema:"report what would go and what is affected"`
}

type eraseOut struct {
	Report  *ops.Report `json:"report"`
	Receipt any         `json:"receipt,omitempty" jsonschema:"proves the erase to others: keep it whole"`
}

func (r *request) eraseOf(in eraseIn) (ops.Request, error) {
	req := ops.Request{Subject: in.Subject, By: r.actor, Reason: in.Reason, Cascade: ops.Cascade(in.Cascade), Names: in.Names, DryRun: in.DryRun}
	given := 0
	for _, is := range []bool{len(in.IDs) > 0, in.Subject != "", in.Session != "", in.Whole} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return req, store.Invalid("ids, subject, session, whole", fmt.Sprintf("%d of them", given), "one of them")
	case in.EveryScope && in.Subject == "":
		return req, store.Invalid("every_scope", "one without subject", "a subject; a scope, an id or a session is of one scope")
	case in.EveryScope:
		if err := r.wholeDatabase(); err != nil {
			return req, err
		}
	case in.Subject != "" || in.Whole:
		req.Scope = r.scope
	case in.Session != "":
		req.Session = store.Ref{Scope: r.scope, ID: in.Session}
	}
	for _, id := range in.IDs {
		req.Refs = append(req.Refs, store.Ref{Scope: r.scope, ID: id})
	}
	return req, req.Check()
}

func erase(ctx context.Context, r *request, in eraseIn) (out eraseOut, err error) {
	req, err := r.eraseOf(in)
	if err != nil {
		return out, err
	}
	rep, err := r.srv.db.Admin().Erase(ctx, req)
	if err != nil {
		return out, err
	}
	view.FillLists(rep)
	out.Report = rep
	if rep.Done != nil {
		if out.Receipt, err = r.receipt(ctx, rep.Done); err != nil {
			return out, fmt.Errorf("erase %s is done, its receipt was not made; erase/receipt makes it: %w", rep.Done.Trace, err)
		}
	}
	return out, nil
}

func (r *request) receipt(ctx context.Context, done *store.EraseReport) (any, error) {
	head, err := r.srv.db.Head(ctx)
	if err != nil {
		return nil, err
	}
	return ops.NewReceipt(ctx, r.srv.db.Manifests(), *done, head)
}

type erasuresOut struct {
	Erases []store.EraseReport `json:"erases"`
}

func erasures(ctx context.Context, r *request, _ struct{}) (erasuresOut, error) {
	if err := r.wholeDatabase(); err != nil {
		return erasuresOut{}, err
	}
	list, err := r.srv.db.Admin().Erasures(ctx)
	view.FillLists(&list)
	return erasuresOut{list}, err
}

type receiptOut struct {
	Receipt any `json:"receipt"`
}

func receipt(ctx context.Context, r *request, in traceIn) (out receiptOut, err error) {
	all, err := erasures(ctx, r, struct{}{})
	if err != nil {
		return out, err
	}
	for i := range all.Erases {
		if all.Erases[i].Trace == strings.ToUpper(in.Trace) {
			out.Receipt, err = r.receipt(ctx, &all.Erases[i])
			return out, err
		}
	}
	return out, fmt.Errorf("%w: no finished erase has the trace %.100q; erase/list lists them", store.ErrNotFound, in.Trace)
}
