package dbctl

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type quotaCmd struct {
	Set  quotaSetCmd  `cmd:"" help:"Change the quota of a scope. Deletes nothing."`
	Show quotaShowCmd `cmd:"" help:"Show the quotas, and what is used of them."`
}

type quotaSetCmd struct {
	File   string  `arg:"" help:"Database."`
	Scope  string  `arg:"" help:"Scope; the quota includes those below it."`
	Bytes  *string `help:"Bytes of text, such as 500M or 2G; 0: no limit." placeholder:"N"`
	Pages  *int    `help:"Page versions; 0: no limit." placeholder:"N"`
	Held   *int    `help:"Batches that wait for review; 0: no limit." placeholder:"N"`
	Bodies *string `help:"Bytes of manifest bodies, such as 100M; 0: no limit." placeholder:"N"`
	Closed *string `help:"Refuse all writes to these scopes and tell writers this text, such as where the scope was moved to. An empty text accepts them again." placeholder:"TEXT"`
	By     string  `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool    `help:"Show the quota that would be stored."`
}

func (c *quotaSetCmd) Run(a *app) error {
	if c.Bytes == nil && c.Pages == nil && c.Held == nil && c.Bodies == nil && c.Closed == nil {
		return usage("quota set: expected --bytes, --pages, --held, --bodies or --closed")
	}
	q, err := c.changed(store.Quota{})
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return err
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (v store.StoredQuota, err error) {
		v = store.StoredQuota{Scope: c.Scope, By: c.By, At: a.now().UTC()}
		err = c.apply(a, db.Admin().Quotas(), func(q store.Quota) store.Quota {
			v.Quota, _ = c.changed(q) // the flags were read before
			return v.Quota
		})
		return v, err
	}, func(v store.StoredQuota, w io.Writer) {
		fmt.Fprintf(w, "%s: %s bytes, %s pages, %s held", line(v.Scope), bound(v.Bytes), bound(int64(v.Pages)), bound(int64(v.Held)))
		if c.Bodies != nil {
			fmt.Fprintf(w, ", %s bytes of bodies", bound(v.Bodies))
		}
		fmt.Fprintln(w)
		printClosed(w, v.Scope, v.Closed)
	})
}

// changed is a quota with what the flags say.
func (c *quotaSetCmd) changed(q store.Quota) (_ store.Quota, err error) {
	for _, f := range []struct {
		name string
		is   *string
		to   *int64
	}{{"bytes", c.Bytes, &q.Bytes}, {"bodies", c.Bodies, &q.Bodies}} {
		if f.is == nil {
			continue
		}
		if *f.to, err = bytesOf(*f.is); err != nil {
			return q, usage("quota set: --%s: %v", f.name, err)
		}
	}
	if c.Pages != nil {
		q.Pages = *c.Pages
	}
	if c.Held != nil {
		q.Held = *c.Held
	}
	if c.Closed != nil {
		q.Closed = *c.Closed
	}
	return q, nil
}

// printClosed says that a scope refuses writes.
func printClosed(w io.Writer, scope, closed string) {
	if closed != "" {
		fmt.Fprintf(w, "%s is closed for writes: %s\n", line(scope), line(closed))
	}
}

// apply stores what change makes of the quota, or only asks it.
func (c *quotaSetCmd) apply(a *app, k *ops.Quotas, change func(store.Quota) store.Quota) error {
	if !c.DryRun {
		return k.Change(a.ctx, c.Scope, c.By, change)
	}
	if err := store.CheckScope(c.Scope); err != nil {
		return err
	}
	all, err := k.All(a.ctx)
	if err != nil {
		return err
	}
	was := store.Quota{}
	for _, u := range all {
		if u.Scope == c.Scope {
			was = u.Quota
		}
	}
	q := change(was)
	return q.Check()
}

// bytesOf reads a number of bytes, with K, M, G or T for powers of 1024.
func bytesOf(s string) (int64, error) {
	shift, digits := 0, strings.ToUpper(s)
	for i, unit := range []string{"K", "M", "G", "T"} {
		if cut, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = cut, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("got %q, expected a number of bytes such as 500000, 500M or 2G", s)
	}
	return n << shift, nil
}

// bound is a limit for people.
func bound(n int64) string {
	if n == 0 {
		return "any"
	}
	return strconv.FormatInt(n, 10)
}

type quotaShowCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" optional:"" help:"Only the quotas that apply to this scope: its own and those of its ancestors."`
}

func (c *quotaShowCmd) Run(a *app) error {
	if c.Scope != "" {
		if err := store.CheckScope(c.Scope); err != nil {
			return err
		}
	}
	return show(a, c.File, false, func(db *ctxpage.DB) ([]ops.Usage, error) {
		all, err := db.Admin().Quotas().All(a.ctx)
		return slices.DeleteFunc(nonNil(all), func(u ops.Usage) bool { return c.Scope != "" && !store.Below(c.Scope, u.Scope) }), err
	}, func(all []ops.Usage, w io.Writer) {
		if len(all) == 0 {
			fmt.Fprintln(w, "no quota is set")
			return
		}
		rows(w, "SCOPE BYTES OF PAGES OF HELD OF BODIES OF", all, func(u *ops.Usage) []any {
			return []any{u.Scope, u.Used.Bytes, bound(u.Bytes), u.Used.Pages, bound(int64(u.Pages)), u.Used.Held, bound(int64(u.Held)), u.Used.Bodies, bound(u.Bodies)}
		})
		for i := range all {
			printClosed(w, all[i].Scope, all[i].Closed)
		}
	})
}
