package dbctl

import (
	"fmt"
	"io"
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

func (quotaCmd) Help() string {
	return `A quota bounds what a scope and those below it hold: bytes and pages of all stored versions, old ones too, batches that wait for review, and bytes of manifest bodies. A commit that would pass one is refused and says what is used, and by what. Reads, deletes, gc and erase always work; reads are recorded even when the quota of bodies is full, and only writes are refused then. All quotas above a scope count.

Example: dbctl quota set agent.ctx acme --bytes 500M --held 100 --by ann`
}

type quotaSetCmd struct {
	File   string  `arg:"" help:"Database."`
	Scope  string  `arg:"" help:"Scope; the quota includes those below it."`
	Bytes  *string `help:"Bytes of text, such as 500M or 2G; 0: no limit." placeholder:"N"`
	Pages  *int    `help:"Page versions; 0: no limit." placeholder:"N"`
	Held   *int    `help:"Batches that wait for review; 0: no limit." placeholder:"N"`
	Bodies *string `help:"Bytes of manifest bodies, such as 100M; 0: no limit." placeholder:"N"`
	By     string  `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool    `help:"Show the quota that would be stored."`
}

func (quotaSetCmd) Help() string {
	return `Limits that you do not give stay as they are. A limit below the current use deletes nothing: it refuses writes that add to it.

Example: dbctl quota set agent.ctx acme/support --pages 100000`
}

func (c *quotaSetCmd) Run(a *app) error {
	if c.Bytes == nil && c.Pages == nil && c.Held == nil && c.Bodies == nil {
		return usage("quota set: expected --bytes, --pages, --held or --bodies")
	}
	var sizes [2]int64
	for i, f := range []struct {
		name string
		is   *string
	}{{"bytes", c.Bytes}, {"bodies", c.Bodies}} {
		var err error
		if f.is == nil {
			continue
		}
		if sizes[i], err = bytesOf(*f.is); err != nil {
			return usage("quota set: --%s: %v", f.name, err)
		}
	}
	var now store.Quota
	change := func(q store.Quota) store.Quota {
		if c.Bytes != nil {
			q.Bytes = sizes[0]
		}
		if c.Pages != nil {
			q.Pages = *c.Pages
		}
		if c.Held != nil {
			q.Held = *c.Held
		}
		if c.Bodies != nil {
			q.Bodies = sizes[1]
		}
		now = q
		return q
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		if err := c.apply(a, db.Admin().Quotas(), change); err != nil {
			return err
		}
		v := store.StoredQuota{Scope: c.Scope, By: c.By, At: a.now().UTC(), Quota: now}
		return a.emit(v, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s bytes, %s pages, %s held", line(c.Scope), bound(now.Bytes), bound(int64(now.Pages)), bound(int64(now.Held)))
			if c.Bodies != nil {
				fmt.Fprintf(w, ", %s bytes of bodies", bound(now.Bodies))
			}
			fmt.Fprintln(w)
		})
	})
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

func (quotaShowCmd) Help() string { return "Example: dbctl quota show agent.ctx" }

func (c *quotaShowCmd) Run(a *app) error {
	if c.Scope != "" {
		if err := store.CheckScope(c.Scope); err != nil {
			return err
		}
	}
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		all, err := db.Admin().Quotas().All(a.ctx)
		if err != nil {
			return err
		}
		show := []ops.Usage{}
		for _, u := range all {
			if c.Scope == "" || store.Below(c.Scope, u.Scope) {
				show = append(show, u)
			}
		}
		return a.emit(show, func(w io.Writer) {
			if len(show) == 0 {
				fmt.Fprintln(w, "no quota is set")
				return
			}
			table(w, "SCOPE BYTES OF PAGES OF HELD OF BODIES OF", func(row func(...any)) {
				for _, u := range show {
					row(u.Scope, u.Used.Bytes, bound(u.Bytes), u.Used.Pages, bound(int64(u.Pages)), u.Used.Held, bound(int64(u.Held)), u.Used.Bodies, bound(u.Bodies))
				}
			})
		})
	})
}
