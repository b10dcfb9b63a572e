package directivelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Check walks I14, and I10 for the rows of directives, through the store like any reader. No step may run meanwhile:
// between its row and its page the two would differ.
func (j Journal) Check(ctx context.Context) ([]store.Problem, error) {
	c := walk{store: j.Store, rows: map[string][]byte{}, want: map[string]string{}}
	err := c.run(ctx)
	if errors.Is(err, store.ErrCorrupt) { // the store told of it
		err = nil
	}
	return c.problems, err
}

// walk is one check.
type walk struct {
	store    store.Store
	rows     map[string][]byte // by key
	want     map[string]string // the page each scope should have, by its state row; "": none
	problems []store.Problem
}

func (c *walk) bad(invariant, where, format string, args ...any) {
	c.problems = append(c.problems, store.Problem{Invariant: invariant, Where: where, What: fmt.Sprintf(format, args...)})
}

func (c *walk) run(ctx context.Context) error {
	for page, err := range format.Pages(ctx, c.store, store.ScanQuery{What: store.ScanState, Prefix: prefix, Limit: 1000}) {
		if err != nil {
			return err
		}
		for _, r := range page.State {
			c.rows[r.Key] = r.Value
		}
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
		case errors.Is(err, store.ErrCorrupt): // the store told of it
		case err != nil:
			return err
		case text != c.want[scope]:
			c.bad("I14", store.Ref{Scope: scope, ID: PageID}.String(), "the page differs from the state row of the scope")
		}
	}
	return nil
}

// row compares a row with the journal.
func (c *walk) row(key string) {
	rest, isLog := strings.CutPrefix(key, logPrefix)
	scope, isState := strings.CutPrefix(key, statePrefix)
	r, err := unpack(c.rows[key])
	switch {
	case err != nil:
		c.bad("I10", "state "+key, "%v", err)
	case isLog && !strings.HasSuffix(rest, "/"+strconv.FormatUint(r.Version, 10)):
		c.bad("I14", "state "+key, "holds version %d", r.Version)
	case isState && !bytes.Equal(c.rows[key], c.rows[LogKey(scope, r.Version)]):
		c.bad("I14", "state "+key, "is not what the journal says of version %d", r.Version)
	case isState:
		c.want[scope] = r.After.State.Text()
	}
}

// scopes adds those without a state row: they must have no page.
func (c *walk) scopes(ctx context.Context) error {
	for page, err := range format.Pages(ctx, c.store, store.ScanQuery{What: store.ScanScopes, Limit: 1000}) {
		if err != nil {
			return err
		}
		for _, s := range page.Names {
			if _, ok := c.want[s.Name]; !ok {
				c.want[s.Name] = ""
			}
		}
	}
	return nil
}

// page is the text of the page of directives of a scope, "" where there is none.
func (c *walk) page(ctx context.Context, scope string) (string, error) {
	l, err := c.store.Resolve(ctx, store.Scopes{scope}, store.Ref{ID: PageID})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	loaded, err := c.store.Load(ctx, nil, l.Pages, store.WantText)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for i := range loaded {
		switch err := loaded[i].Err; {
		case errors.Is(err, store.ErrErased): // after this backup was made, with the rows of the scope
			return "", nil
		case err != nil:
			return "", err
		}
		text.WriteString(loaded[i].Text)
	}
	return text.String(), nil
}
