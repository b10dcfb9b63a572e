package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// StateKinds describes the state rows of policies and quotas to a store.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: rowPrefix, Copy: true, Policy: true, Check: func(key string, value []byte) error {
			_, err := decode(store.StateRow{Key: key, Value: value})
			return err
		}},
		{Prefix: format.QuotaRows, Copy: true, Policy: true, Check: func(key string, value []byte) error {
			_, err := format.DecodeQuota(store.StateRow{Key: key, Value: value})
			return err
		}, Paths: opened},
	}
}

// opened takes Closed from the row of a quota: it is about the database that the row comes from.
func opened(key string, value []byte, _ func(dir string) bool) (kept []byte, left []string, err error) {
	q, err := format.DecodeQuota(store.StateRow{Key: key, Value: value})
	if err != nil || q.Closed == "" {
		return value, nil, nil // Check refuses what cannot be read
	}
	left = []string{q.Scope + ", closed: " + q.Closed}
	if q.Closed = ""; q.Quota == (store.Quota{}) {
		return nil, left, nil
	}
	kept, err = json.Marshal(q)
	return kept, left, err
}

// operator makes the operator's commits.
type operator struct {
	store store.Store
	now   func() time.Time
	newID func() (ulid.ULID, error)
}

// batch begins a commit. A scope "" stands for the whole database.
func (o operator) batch(scope string, leaf manifest.Record) (store.Batch, error) {
	id, err := o.newID()
	return store.Batch{ID: id, Scope: cmp.Or(scope, store.OperatorScope), Actor: "operator", Now: o.now(), Leaf: leaf}, err
}

// changeRow replaces the row of a scope by what next makes of it; nil removes the row. It calls next again if the row was
// changed concurrently. The leaf has the new value.
func (o operator) changeRow(ctx context.Context, prefix, scope, action, by string, next func(row store.StateRow) (any, error)) error {
	return format.Retry(ctx, func() error {
		row, err := o.store.State(ctx, prefix+scope)
		if err != nil {
			return err
		}
		v, err := next(row)
		if err != nil || v == nil && row.Value == nil {
			return err
		}
		changed, note := store.StateRow{Key: row.Key}, "removed"
		if v != nil {
			if changed.Value, err = json.Marshal(v); err != nil {
				return fmt.Errorf("ctxpage: encode a row of %s: %w", action, err)
			}
			note = string(changed.Value)
		}
		b, err := o.batch(scope, manifest.Record{Type: manifest.TypeCommit, Action: action, By: by, Note: note})
		if err != nil {
			return err
		}
		b.State, b.ExpectState = []store.StateRow{changed}, []store.StatePre{{Key: row.Key, LSN: row.LSN}}
		_, err = o.store.Commit(ctx, b)
		return err
	})
}
