package main

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// frozenIn are the arguments of an operation on the library.
type frozenIn struct {
	ID, Ref, Session, Trace, Prefix, Text, By, Why, Search, Show, Approve, Reject, To, Input, Path, Subject, Scope, Reason string
	Limit, Estimated, Actual                                                                                               int
	From                                                                                                                   int64
	Version, I                                                                                                             uint64
	Floor                                                                                                                  store.Provenance
	Newest, DryRun, All, Stale, Verified, Rollback, Supported, Expired, Names                                              bool
	Where                                                                                                                  store.Filter
	Puts                                                                                                                   []ctxpage.Artefact
	Deletes, Gets, Refs                                                                                                    []string
	Query                                                                                                                  *frozenQuery
	Verdict                                                                                                                ctxpage.Verdict
	Turns                                                                                                                  []ctxpage.Turn
	Config                                                                                                                 session.Config
	Keywords                                                                                                               []string
	Params                                                                                                                 struct{ RetainCut float64 }
	Notes                                                                                                                  session.Notes
	KeepVersions                                                                                                           int
	KeepFor                                                                                                                time.Duration
	Policy                                                                                                                 ops.Policy
	Quota                                                                                                                  store.Quota
	Cascade                                                                                                                ops.Cascade
	Raise                                                                                                                  ctxpage.Raise

	ctx context.Context
	w   *frozenWorld
	s   *ctxpage.Scope
	raw []byte
}

// frozenQuery is a query without its counter, which is no data.
type frozenQuery struct {
	Text, Preset, Session string
	Budget, Reserve, TopK int
	Overflow, Charge      uint8
	AsOf                  uint64
	Floor                 store.Provenance
	Filter                store.Filter
}

type m = map[string]any

func all[T any](seq iter.Seq2[T, error]) (any, error) {
	out := []T{}
	for v, err := range seq {
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (in *frozenIn) artefact() (a ctxpage.Artefact, err error) { return a, json.Unmarshal(in.raw, &a) }

func assembled(a *ctxpage.Assembly, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return m{"text": a.Text(), "messages": a.Messages(), "assembly": a}, nil
}

func (q *frozenQuery) query() ctxpage.Query {
	out := ctxpage.Query{Text: q.Text, Budget: q.Budget, Reserve: q.Reserve, TopK: q.TopK, Preset: q.Preset, Session: q.Session, AsOf: q.AsOf, Floor: q.Floor, Filter: q.Filter}
	if q.Overflow > 0 {
		_ = out.SetNames("", "", "ladder", "", "")
	}
	out.ContentsOnly = q.Charge > 0
	return out
}

// transaction begins or resumes one, works in it, and ends it.
func transaction(in *frozenIn) (any, error) {
	if in.Supported {
		in.s = in.w.db.Scope(in.s.Name(), ctxpage.WithActor("agent"), ctxpage.JudgedBy(ctxpage.Supported()))
	}
	tx, err := in.s.Begin(in.ctx)
	if in.Trace != "" {
		tx, err = in.s.Resume(in.ctx, in.Trace)
	}
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	out := m{"trace": tx.Trace()}
	if in.Query != nil {
		if out["assembly"], err = assembled(tx.Assemble(in.ctx, in.Query.query())); err != nil {
			return out, err
		}
	}
	for _, id := range in.Gets {
		v, err := tx.Get(in.ctx, id)
		out[id] = []any{v, errText(err)}
	}
	for _, a := range in.Puts {
		if err := tx.Put(in.ctx, a); err != nil {
			return out, err
		}
	}
	for _, id := range in.Deletes {
		out["deleted "+id] = errText(tx.Delete(in.ctx, id))
	}
	if in.Search != "" {
		found, err := tx.Search(in.ctx, in.Search, 5)
		out["found"] = []any{found, errText(err)}
	}
	if in.Rollback {
		return out, tx.Rollback()
	}
	err = tx.Commit(in.ctx, in.Verdict)
	out["outcome"] = tx.Outcome()
	out["batch"] = tx.ID()
	return out, err
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func updated(in *frozenIn) error {
	return in.s.Update(in.ctx, func(tx *ctxpage.Txn) error {
		for _, a := range in.Puts {
			if err := tx.Put(in.ctx, a); err != nil {
				return err
			}
		}
		for _, id := range in.Deletes {
			if err := tx.Delete(in.ctx, id); err != nil {
				return err
			}
		}
		return nil
	}, ctxpage.VouchedBy(in.By, in.Why))
}

func reviewed(in *frozenIn) (any, error) {
	switch r := in.w.db.Review(); {
	case in.Show != "":
		return r.Show(in.ctx, in.Show)
	case in.Approve != "":
		return r.Approve(in.ctx, in.Approve, ctxpage.Approval{By: in.By, Stale: in.Stale, HumanVerified: in.Verified})
	case in.Reject != "":
		return r.Reject(in.ctx, in.Reject, in.By, "no")
	default:
		return all(r.Batches(in.ctx, "", in.All))
	}
}

func erased(in *frozenIn) (any, error) {
	req := ops.Request{Subject: in.Subject, Scope: in.Scope, By: in.By, Reason: in.Reason, Cascade: in.Cascade, Names: in.Names, DryRun: in.DryRun}
	for _, r := range in.Refs {
		ref, err := store.ParseRef(r)
		if err != nil {
			return nil, err
		}
		req.Refs = append(req.Refs, ref)
	}
	return in.w.db.Admin().Erase(in.ctx, req)
}

func proved(in *frozenIn) (any, error) {
	audit := in.w.db.Manifests()
	size, err := audit.Size(in.ctx)
	if err != nil {
		return nil, err
	}
	p, err := audit.ProveInclusion(in.ctx, in.I, size)
	if err != nil {
		return nil, err
	}
	head, err := audit.Head(in.ctx, size, in.w.now().UnixMicro())
	return m{"size": size, "proof": p, "head": head.String()}, err
}

// frozenSessions are the verbs of a conversation.
var frozenSessions = map[string]func(c *ctxpage.Session, in *frozenIn) (any, error){
	"append": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return c.Append(in.ctx, in.Turns...)
	},
	"try": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return c.Try(in.ctx, in.Turns...)
	},
	"window": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		x, err := c.Inspect(in.ctx)
		return x.Window, err
	},
	"limit": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return nil, c.SetWindow(in.ctx, in.Config)
	},
	"observe": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return nil, c.Observe(in.ctx, in.Estimated, in.Actual)
	},
	"passes": func(c *ctxpage.Session, in *frozenIn) (any, error) { return c.Passes(in.ctx) },
	"undo":   func(c *ctxpage.Session, in *frozenIn) (any, error) { return c.Undo(in.ctx, 0) },
	"pin": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return nil, c.Pin(in.ctx, in.ID)
	},
	"unpin": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return nil, c.Unpin(in.ctx, in.ID)
	},
	"turns": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return all(c.Turns(in.ctx, in.From))
	},
	"turnrecall": func(c *ctxpage.Session, in *frozenIn) (any, error) { return c.Recall(in.ctx, in.ID) },
	"explain": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		x, err := c.Inspect(in.ctx, in.ID)
		if err != nil {
			return "", err
		}
		return x.Turn[in.ID], nil
	},
	"notes": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		return nil, c.Record(in.ctx, in.Notes)
	},
	"handoff": func(c *ctxpage.Session, in *frozenIn) (any, error) { return c.Handoff(in.ctx, in.To) },
	"contract": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		b, err := c.Contract(in.ctx, nil, nil)
		return string(b), err
	},
	"pass": func(c *ctxpage.Session, in *frozenIn) (any, error) {
		q := session.PassQuery{Keywords: in.Keywords, DryRun: in.DryRun}
		if in.Params.RetainCut > 0 {
			q.Params = session.RecommendedParams()
			q.Params.RetainCut = in.Params.RetainCut
		}
		return c.Pass(in.ctx, q)
	},
}

// frozenLib are the verbs of the library.
var frozenLib = map[string]func(in *frozenIn) (any, error){
	"put": func(in *frozenIn) (any, error) {
		a, err := in.artefact()
		if err != nil {
			return nil, err
		}
		return in.s.Put(in.ctx, a)
	},
	"verified": func(in *frozenIn) (any, error) {
		a, err := in.artefact()
		if err != nil {
			return nil, err
		}
		return in.w.db.Admin().PutVerified(in.ctx, in.s.Name(), "ann", a)
	},
	"update": func(in *frozenIn) (any, error) {
		return nil, updated(in)
	},
	"get": func(in *frozenIn) (any, error) {
		return in.s.Get(in.ctx, in.ID, ctxpage.WithFloor(in.Floor))
	},
	"getref": func(in *frozenIn) (any, error) {
		ref, err := store.ParseRef(in.Ref)
		if err != nil {
			return nil, err
		}
		return in.s.Recall(in.ctx, ref)
	},
	"recall": func(in *frozenIn) (any, error) {
		ref, err := store.ParseRef(in.Ref)
		if err != nil {
			return nil, err
		}
		return in.s.Recall(in.ctx, ref)
	},
	"history": func(in *frozenIn) (any, error) {
		var next string
		list, err := loop.Collect(in.s.Versions(in.ctx, in.ID, ctxpage.AtMost(in.Limit, "", &next)))
		return partOf(list, next, err)
	},
	"versions": func(in *frozenIn) (any, error) {
		return all(in.s.Versions(in.ctx, in.ID))
	},
	"list": func(in *frozenIn) (any, error) {
		var next string
		opts := []ctxpage.ReadOption{ctxpage.Where(in.Where), ctxpage.AtMost(in.Limit, "", &next)}
		if in.Newest {
			opts = append(opts, ctxpage.NewestFirst())
		}
		list, err := loop.Collect(in.s.Artefacts(in.ctx, in.Prefix, opts...))
		return partOf(list, next, err)
	},
	"artefacts": func(in *frozenIn) (any, error) {
		return all(in.s.Artefacts(in.ctx, in.Prefix))
	},
	"scopes": func(in *frozenIn) (any, error) {
		return all(in.w.db.Scopes(in.ctx, in.Prefix))
	},
	"search": func(in *frozenIn) (any, error) {
		return in.s.Search(in.ctx, in.Text, in.Limit, ctxpage.Where(in.Where))
	},
	"assemble": func(in *frozenIn) (any, error) {
		var q frozenQuery
		if err := json.Unmarshal(in.raw, &q); err != nil {
			return nil, err
		}
		return assembled(in.s.Assemble(in.ctx, q.query()))
	},
	"txn": transaction,
	"delete": func(in *frozenIn) (any, error) {
		return nil, in.s.Delete(in.ctx, in.ID)
	},
	"promote": func(in *frozenIn) (any, error) {
		ref, err := store.ParseRef(in.Ref)
		if err != nil {
			return nil, err
		}
		return in.w.db.Admin().Promote(in.ctx, ref, "acme", in.By)
	},
	"raise": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().Raise(in.ctx, in.s.Name(), in.Raise)
	},
	"sessions": func(in *frozenIn) (any, error) {
		return all(in.s.Sessions(in.ctx))
	},
	"watch": func(in *frozenIn) (any, error) {
		watcher, err := in.s.Session(in.Session).Watch(in.ctx)
		if err != nil {
			return nil, err
		}
		plan, err := watcher.Plan(in.ctx, in.w.now())
		if err != nil {
			return nil, err
		}
		events, err := watcher.Step(in.ctx, in.w.now())
		return m{"plan": plan, "events": events}, err
	},
	"step": func(in *frozenIn) (any, error) {
		return in.s.Directives().Step(in.ctx, in.Input)
	},
	"preview": func(in *frozenIn) (any, error) {
		return in.s.Directives().Preview(in.ctx, in.Input)
	},
	"directives": func(in *frozenIn) (any, error) {
		return in.s.Directives().State(in.ctx)
	},
	"entries": func(in *frozenIn) (any, error) {
		return all(in.s.Directives().Entries(in.ctx))
	},
	"restore": func(in *frozenIn) (any, error) {
		return nil, in.s.Directives().Restore(in.ctx, in.Version)
	},
	"review": reviewed,
	"why": func(in *frozenIn) (any, error) {
		ref, err := store.ParseRef(in.Ref)
		if err != nil {
			return nil, err
		}
		return in.w.db.Why(in.ctx, in.Trace, ref)
	},
	"replay": func(in *frozenIn) (any, error) {
		return in.w.db.Replay(in.ctx, in.Trace)
	},
	"scopereplay": func(in *frozenIn) (any, error) {
		return in.s.Replay(in.ctx, in.Trace)
	},
	"diff": func(in *frozenIn) (any, error) {
		return in.w.db.Diff(in.ctx, in.Trace, in.Ref)
	},
	"leaves": func(in *frozenIn) (any, error) {
		size, err := in.w.db.Manifests().Size(in.ctx)
		if err != nil {
			return nil, err
		}
		return in.w.db.Manifests().Records(in.ctx, 0, size, true, in.Limit)
	},
	"trace": func(in *frozenIn) (any, error) {
		return in.w.db.Manifests().ByTrace(in.ctx, in.Trace)
	},
	"prove": proved,
	"verify": func(in *frozenIn) (any, error) {
		return in.w.db.Manifests().Verify(in.ctx, nil, nil)
	},
	"refresh": func(in *frozenIn) (any, error) {
		return in.w.db.Refresh(in.ctx, ops.RefreshOptions{DryRun: in.DryRun})
	},
	"refreshscope": func(in *frozenIn) (any, error) {
		return in.s.Refresh(in.ctx, ops.RefreshOptions{DryRun: in.DryRun})
	},
	"changedoc": func(in *frozenIn) (any, error) {
		in.w.docs[in.ID] = in.Text
		return in.w.db.Refresh(in.ctx, ops.RefreshOptions{})
	},
	"gc": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().GC(in.ctx, ctxpage.GCOptions{KeepVersions: in.KeepVersions, KeepFor: in.KeepFor, Scope: in.Scope, DryRun: in.DryRun, Expired: in.Expired, By: in.By})
	},
	"retention": func(in *frozenIn) (any, error) {
		k := in.w.db.Admin().Retention()
		if err := k.Set(in.ctx, in.s.Name(), in.Policy, "ann"); err != nil {
			return nil, err
		}
		return k.Run(in.ctx, ops.RunOptions{DryRun: in.DryRun})
	},
	"quota": func(in *frozenIn) (any, error) {
		if err := in.w.db.Admin().Quotas().Set(in.ctx, in.s.Name(), in.Quota, "ann"); err != nil {
			return nil, err
		}
		return in.w.db.Admin().Quotas().All(in.ctx)
	},
	"erase": erased,
	"erasures": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().Erasures(in.ctx)
	},
	"health": func(in *frozenIn) (any, error) {
		return in.s.Health(in.ctx, ops.HealthOptions{Now: in.w.now()})
	},
	"export": func(in *frozenIn) (any, error) {
		var b bytes.Buffer
		n, err := in.s.Export(in.ctx, &b)
		return m{"n": n, "text": b.String()}, err
	},
	"portable": func(in *frozenIn) (any, error) {
		var b bytes.Buffer
		rep, err := in.w.db.Admin().Export(in.ctx, &b, portable.ExportOptions{Scope: in.Scope, Subject: in.Subject, Now: in.w.now()})
		if err != nil {
			return nil, err
		}
		again, err := in.w.db.Admin().Import(in.ctx, bytes.NewReader(b.Bytes()), portable.ImportOptions{By: "ann", Now: in.w.now, Rand: opRand{}, DryRun: true})
		return m{"export": rep, "text": b.String(), "import": again}, err
	},
	"backup": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().Backup(in.ctx, in.Path, nil)
	},
	"checkpoint": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().Checkpoint(in.ctx)
	},
	"check": func(in *frozenIn) (any, error) {
		return in.w.db.Admin().Check(in.ctx, nil)
	},
	"stats": func(in *frozenIn) (any, error) {
		return in.w.db.Stats(in.ctx)
	},
}

func init() {
	for name, do := range frozenSessions {
		frozenLib[name] = func(in *frozenIn) (any, error) {
			return do(in.s.Session(in.Session), in)
		}
	}
}

// partOf is a part of a listing and the cursor of the next.
func partOf(list []*ctxpage.Version, next string, err error) (any, error) {
	if err == nil && list == nil {
		list = []*ctxpage.Version{}
	}
	return m{"list": list, "next": next}, err
}
