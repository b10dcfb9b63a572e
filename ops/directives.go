package ops

import (
	"errors"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// entry is a stored version of the directives of a scope.
type entry struct {
	key    string
	number uint64
	at     int64 // when it was written, unix µs
}

// directives drops versions that were replaced before the time of the rule, but for the newest that a journal always keeps.
func (r *run) directives() error {
	j := directivelog.StateKind().Journal
	versions := map[string][]entry{}
	var scopes []string
	err := format.Walk(r.ctx, r.k.Store, directivelog.StateKind().Prefix, func(row store.StateRow) error {
		scope, number := j.Entry(row.Key)
		if number == 0 || !below(scope, r.o.Scope) {
			return nil
		}
		at, err := j.At(row.Value)
		if err != nil {
			return &store.CorruptError{File: "state row " + row.Key, Err: err}
		}
		if versions[scope] == nil {
			scopes = append(scopes, scope)
		}
		versions[scope] = append(versions[scope], entry{row.Key, number, at})
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(scopes)
	for _, scope := range scopes {
		if err := r.oldDirectives(scope, versions[scope]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) oldDirectives(scope string, all []entry) error {
	rule := r.rules(scope).Directives
	end, ok := rule.before(r.now)
	j := directivelog.StateKind().Journal
	if !ok || len(all) <= j.Keep {
		return nil
	}
	head, err := r.k.Store.State(r.ctx, j.Head(scope))
	if err != nil {
		return err
	}
	sort.Slice(all, func(i, j int) bool { return all[i].number < all[j].number })
	b := store.Batch{
		Scope: scope, ExpectState: []store.StatePre{{Key: head.Key, LSN: head.LSN}},
		Leaf: manifest.Record{Action: "retention", Reason: rule.told("versions of directives")},
	}
	var names []string
	for i := 0; i < len(all)-j.Keep && all[i+1].at <= end.UnixMicro(); i++ { // the next one replaced it
		b.State = append(b.State, store.StateRow{Key: all[i].key})
		names = append(names, all[i].key)
	}
	if len(b.State) == 0 {
		return nil
	}
	if !r.o.DryRun {
		if err := r.commit(b); errors.Is(err, store.ErrConflict) {
			r.report.Changed += len(names)
			return nil
		} else if err != nil {
			return err
		}
	}
	r.took(scope, "directives", rule, names)
	return nil
}
