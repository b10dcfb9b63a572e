package serve

import (
	"context"
	"slices"

	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type policyIn struct {
	Whole  bool       `json:"whole,omitempty" jsonschema:"the policy of the whole database, instead of the scope"`
	Policy ops.Policy `json:"policy" jsonschema:"ages such as 36h, 30d, 8w or forever; an empty policy removes the one that is stored"`
	DryRun bool       `json:"dry_run,omitempty" jsonschema:"check it, store nothing"`
}

type keptOut struct {
	Scope  string     `json:"scope" jsonschema:"empty: the whole database"`
	Policy ops.Policy `json:"policy"`
}

func setPolicy(ctx context.Context, r *request, in policyIn) (keptOut, error) {
	scope := r.scope
	if in.Whole {
		if err := r.wholeDatabase(); err != nil {
			return keptOut{}, err
		}
		scope = ""
	}
	out := keptOut{scope, in.Policy}
	if in.DryRun {
		return out, in.Policy.Check()
	}
	return out, r.srv.db.Admin().Retention().Set(ctx, scope, in.Policy, r.actor)
}

type policiesOut struct {
	Effective ops.Effective `json:"effective" jsonschema:"what holds in the scope, and which policy says it"`
	Policies  []keptOut     `json:"policies" jsonschema:"the policies that apply to the scope, the whole database first"`
}

func showPolicies(ctx context.Context, r *request, _ struct{}) (out policiesOut, err error) {
	k := r.srv.db.Admin().Retention()
	if out.Effective, err = k.Effective(ctx, r.scope); err != nil {
		return out, err
	}
	all, err := k.All(ctx)
	out.Policies = []keptOut{}
	for _, p := range all {
		if p.Scope == "" || store.Below(r.scope, p.Scope) {
			out.Policies = append(out.Policies, keptOut{p.Scope, p.Policy})
		}
	}
	return out, err
}

type retentionIn struct {
	EveryScope bool `json:"every_scope,omitempty" jsonschema:"in all scopes, not only in this one and those below it"`
	DryRun     bool `json:"dry_run,omitempty"`
}

func runRetention(ctx context.Context, r *request, in retentionIn) (*ops.RunReport, error) {
	scope, err := r.scope, error(nil)
	if in.EveryScope {
		if scope, err = r.everyScope(); err != nil {
			return nil, err
		}
	}
	rep, err := r.srv.db.Admin().Retention().Run(ctx, ops.RunOptions{Scope: scope, By: r.actor, DryRun: in.DryRun})
	view.FillLists(rep)
	return rep, err
}

type quotaIn struct {
	Quota  store.Quota `json:"quota" jsonschema:"0 is no limit; an empty quota removes the one that is stored"`
	DryRun bool        `json:"dry_run,omitempty" jsonschema:"check it, store nothing"`
}

type quotaOut struct {
	Scope string      `json:"scope"`
	Quota store.Quota `json:"quota"`
	Used  store.Quota `json:"used"`
}

func setQuota(ctx context.Context, r *request, in quotaIn) (quotaOut, error) {
	out := quotaOut{Scope: r.scope, Quota: in.Quota}
	if in.DryRun {
		return out, in.Quota.Check()
	}
	k := r.srv.db.Admin().Quotas()
	if err := k.Set(ctx, r.scope, in.Quota, r.actor); err != nil {
		return out, err
	}
	all, err := k.All(ctx)
	if at := slices.IndexFunc(all, func(u ops.Usage) bool { return u.Scope == r.scope }); at >= 0 {
		out.Used = all[at].Used
	}
	return out, err
}

type quotasIn struct {
	EveryScope bool `json:"every_scope,omitempty" jsonschema:"the quotas of all scopes"`
}

type quotasOut struct {
	Quotas []quotaOut `json:"quotas"`
}

func showQuotas(ctx context.Context, r *request, in quotasIn) (quotasOut, error) {
	if in.EveryScope {
		if err := r.wholeDatabase(); err != nil {
			return quotasOut{}, err
		}
	}
	all, err := r.srv.db.Admin().Quotas().All(ctx)
	out := quotasOut{[]quotaOut{}}
	for _, u := range all {
		if in.EveryScope || store.Below(r.scope, u.Scope) {
			out.Quotas = append(out.Quotas, quotaOut{u.Scope, u.Quota, u.Used})
		}
	}
	return out, err
}
