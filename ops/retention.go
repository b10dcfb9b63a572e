package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// rowPrefix begins the keys of stored policies; the scope follows.
const rowPrefix = "retention/"

// Retention stores the policies of one database and carries them out. Admin.Retention returns it. It is meant for the operator and
// is safe for concurrent use.
type Retention struct {
	Store store.Store
	Now   func() time.Time
	NewID func() (ulid.ULID, error)
	// Swept, if not nil, is called after each Run and RemoveSession that was no dry run.
	Swept func(ctx context.Context)
}

// Set replaces the policy of a scope; "" is the whole database. An empty policy removes it. Set itself deletes nothing.
func (k *Retention) Set(ctx context.Context, scope string, p Policy, by string) error {
	return k.Change(ctx, scope, by, func(*Policy) (Policy, error) { return p, nil })
}

// Change applies a function to the policy of a scope. The function is called again if the policy was changed concurrently.
func (k *Retention) Change(ctx context.Context, scope, by string, change func(was *Policy) (Policy, error)) error {
	if err := store.CheckID("by", by); err != nil {
		return err
	}
	if scope != "" {
		if err := store.CheckScope(scope); err != nil {
			return err
		}
	}
	return operator{k.Store, k.Now, k.NewID}.changeRow(ctx, rowPrefix, scope, "retention", by, func(row store.StateRow) (any, error) {
		var was Stored
		if row.Value != nil {
			var err error
			if was, err = decode(row); err != nil {
				return nil, err
			}
		}
		p, err := change(&was.Policy)
		if err == nil {
			err = p.Check()
		}
		if err != nil || p.empty() {
			return nil, err
		}
		return Stored{Scope: scope, By: by, At: k.Now().UTC(), Policy: p}, nil
	})
}

func decode(row store.StateRow) (Stored, error) {
	var s Stored
	err := json.Unmarshal(row.Value, &s)
	if err == nil && s.Scope != strings.TrimPrefix(row.Key, rowPrefix) {
		err = fmt.Errorf("it is of scope %q", s.Scope)
	}
	if err != nil {
		err = &store.CorruptError{File: "state row " + row.Key, Err: err}
	}
	return s, err
}

// All returns the stored policies, sorted by scope.
func (k *Retention) All(ctx context.Context) (list []Stored, err error) {
	err = format.Walk(ctx, k.Store, rowPrefix, func(r store.StateRow) error {
		s, err := decode(r)
		list = append(list, s)
		return err
	})
	return list, err
}

// Effective returns what applies in a scope, and which policy sets it.
func (k *Retention) Effective(ctx context.Context, scope string) (Effective, error) {
	all, err := k.All(ctx)
	return effective(byScope(all), scope), err
}

func byScope(all []Stored) map[string]Stored {
	out := map[string]Stored{}
	for _, s := range all {
		out[s.Scope] = s
	}
	return out
}

// batch begins a commit of the operator's.
func (k *Retention) batch(scope string, leaf manifest.Record) (store.Batch, error) {
	return operator{k.Store, k.Now, k.NewID}.batch(scope, leaf)
}

// scopes returns the scopes of the database that are below another, by name.
func (k *Retention) scopes(ctx context.Context, under string) ([]string, error) {
	all := map[string]bool{}
	for page, err := range format.Pages(ctx, k.Store, store.ScanQuery{What: store.ScanScopes, Limit: scanRows}) {
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			if below(s.Name, under) {
				all[s.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// scanRows bounds the rows that are listed at a time.
const scanRows = 500
