package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/staterows"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// rowPrefix begins the keys of stored policies; the scope follows.
const rowPrefix = "retention/"

// StateKind describes the state rows of policies to a store.
func StateKind() store.StateKind {
	return store.StateKind{Prefix: rowPrefix, Copy: true, Policy: true, Check: func(key string, value []byte) error {
		_, err := decode(store.StateRow{Key: key, Value: value})
		return err
	}}
}

// Keeper stores the policies of one database and carries them out. Admin.Retention returns it. It is meant for the operator and
// is safe for concurrent use.
type Keeper struct {
	Store store.Store
	Now   func() time.Time
	NewID func() (ulid.ULID, error)
	// Swept, if not nil, is called after each Run and RemoveSession that was no dry run.
	Swept func(ctx context.Context)
}

// Set replaces the policy of a scope; "" is the whole database. An empty policy removes it. Set itself deletes nothing.
func (k *Keeper) Set(ctx context.Context, scope string, p Policy, by string) error {
	return k.Change(ctx, scope, by, func(*Policy) (Policy, error) { return p, nil })
}

// Change applies a function to the policy of a scope. The function is called again if the policy was changed concurrently.
func (k *Keeper) Change(ctx context.Context, scope, by string, change func(was *Policy) (Policy, error)) error {
	if err := store.CheckID("by", by); err != nil {
		return err
	}
	if scope != "" {
		if err := store.CheckScope(scope); err != nil {
			return err
		}
	}
	return staterows.Retry(ctx, func() error { return k.change(ctx, scope, by, change) })
}

func (k *Keeper) change(ctx context.Context, scope, by string, change func(was *Policy) (Policy, error)) error {
	row, err := k.Store.State(ctx, rowPrefix+scope)
	if err != nil {
		return err
	}
	var was Stored
	if row.Value != nil {
		if was, err = decode(row); err != nil {
			return err
		}
	}
	p, err := change(&was.Policy)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return err
	}
	next := store.StateRow{Key: row.Key}
	note := "removed"
	if !p.Empty() {
		if next.Value, err = json.Marshal(Stored{Scope: scope, By: by, At: k.Now().UTC(), Policy: p}); err != nil {
			return fmt.Errorf("ctxpage: encode a policy: %w", err)
		}
		note = string(next.Value)
	} else if row.Value == nil {
		return nil
	}
	b, err := k.batch(cmpScope(scope), manifest.Record{Type: manifest.TypeCommit, Action: "retention", By: by, Note: note})
	if err != nil {
		return err
	}
	b.State, b.ExpectState = []store.StateRow{next}, []store.StatePre{{Key: row.Key, LSN: row.LSN}}
	_, err = k.Store.Commit(ctx, b)
	return err
}

// cmpScope is the scope that a commit about a policy is recorded under.
func cmpScope(scope string) string {
	if scope == "" {
		return store.OperatorScope
	}
	return scope
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
func (k *Keeper) All(ctx context.Context) (list []Stored, err error) {
	err = staterows.Walk(ctx, k.Store, rowPrefix, func(r store.StateRow) error {
		s, err := decode(r)
		list = append(list, s)
		return err
	})
	return list, err
}

// Effective returns what applies in a scope, and which policy sets it.
func (k *Keeper) Effective(ctx context.Context, scope string) (Effective, error) {
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
func (k *Keeper) batch(scope string, leaf manifest.Record) (store.Batch, error) {
	id, err := k.NewID()
	return store.Batch{ID: id, Scope: scope, Actor: "operator", Now: k.Now(), Leaf: leaf}, err
}

// scopes are those of the database that are below another, by name.
func (k *Keeper) scopes(ctx context.Context, under string) ([]string, error) {
	all := map[string]bool{}
	for q := (store.ScanQuery{What: store.ScanScopes, Limit: scanRows}); ; {
		page, err := k.Store.Scan(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			if below(s.Name, under) {
				all[s.Name] = true
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return slices.Sorted(maps.Keys(all)), nil
		}
	}
}

// scanRows is how much is listed at a time.
const scanRows = 500
