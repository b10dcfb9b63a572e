package ctxpage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// checkDirectives walks I14, and I10 for the rows of directives, through the store like any reader. No step of this
// process runs meanwhile: between its row and its page the two would differ.
func (db *DB) checkDirectives(ctx context.Context) ([]Problem, error) {
	select {
	case db.steps <- struct{}{}:
		defer func() { <-db.steps }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := directiveCheck{db: db, rows: map[string][]byte{}, want: map[string]string{}}
	err := c.run(ctx)
	if errors.Is(err, ErrCorrupt) { // the store told of it
		err = nil
	}
	return c.problems, err
}

// directiveCheck is one walk.
type directiveCheck struct {
	db       *DB
	rows     map[string][]byte // by key
	want     map[string]string // the page each scope should have, by its state row; "": none
	problems []Problem
}

func (c *directiveCheck) bad(invariant, where, format string, args ...any) {
	c.problems = append(c.problems, Problem{Invariant: invariant, Where: where, What: fmt.Sprintf(format, args...)})
}

func (c *directiveCheck) run(ctx context.Context) error {
	err := c.db.scanState(ctx, directivePrefix, func(r store.StateRow) error {
		c.rows[r.Key] = r.Value
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(c.rows)) {
		c.row(key)
	}
	if err := c.scopes(ctx); err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(c.want)) {
		text, err := c.page(ctx, scope)
		switch {
		case errors.Is(err, ErrCorrupt): // the store told of it
		case err != nil:
			return err
		case text != c.want[scope]:
			c.bad("I14", Ref{Scope: scope, ID: DirectivesID}.String(), "the page differs from the state row of the scope")
		}
	}
	return nil
}

// row compares a row with the journal.
func (c *directiveCheck) row(key string) {
	rest, isLog := strings.CutPrefix(key, directiveLogPrefix)
	scope, isState := strings.CutPrefix(key, directiveStatePrefix)
	r, err := unpackDirective(c.rows[key])
	switch {
	case err != nil:
		c.bad("I10", "state "+key, "%v", err)
	case isLog && !strings.HasSuffix(rest, "/"+strconv.FormatUint(r.Version, 10)):
		c.bad("I14", "state "+key, "holds version %d", r.Version)
	case isState && !bytes.Equal(c.rows[key], c.rows[directiveLogKey(scope, r.Version)]):
		c.bad("I14", "state "+key, "is not what the journal says of version %d", r.Version)
	case isState:
		c.want[scope] = r.After.State.Text()
	}
}

// scopes adds those without a state row: they must have no page.
func (c *directiveCheck) scopes(ctx context.Context) error {
	for q := (store.ScanQuery{What: store.ScanScopes, Limit: 1000}); ; {
		page, err := c.db.store.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, s := range page.Names {
			if _, ok := c.want[s.Name]; !ok {
				c.want[s.Name] = ""
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// page is the text of the page of directives of a scope, "" where there is none.
func (c *directiveCheck) page(ctx context.Context, scope string) (string, error) {
	l, err := c.db.store.Resolve(ctx, store.Scopes{scope}, Ref{ID: DirectivesID})
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrGone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	loaded, err := c.db.store.Load(ctx, nil, l.Pages, store.WantText)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for i := range loaded {
		if loaded[i].Err != nil {
			return "", loaded[i].Err
		}
		text.WriteString(loaded[i].Text)
	}
	return text.String(), nil
}
