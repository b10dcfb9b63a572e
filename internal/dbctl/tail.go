package dbctl

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type manifestTailCmd struct {
	File   string `arg:"" help:"Database."`
	Lines  uint64 `short:"n" default:"10" help:"Number of leaves to start with."`
	Follow bool   `short:"f" help:"Follow what an agent writes, until Ctrl-C."`
}

func (c *manifestTailCmd) Run(a *app) error {
	var from uint64
	err := a.audit(c.File, func(l auditOf) error {
		size, err := l.Size(a.ctx)
		if err != nil {
			return err
		}
		from = size - min(c.Lines, size)
		if c.Follow {
			return nil
		}
		return store.EachRecord(a.ctx, l, from, size, false, a.tailLine)
	})
	if err != nil || !c.Follow {
		return err
	}
	return a.untilStopped(a.followAudit(c.File, from, a.tailLine))
}

// followAudit calls fn for each leaf from an index on, as they are written, until the app's context ends.
func (a *app) followAudit(path string, from uint64, fn func(*manifest.Record) error) error {
	if !fileless(path) {
		return filestore.FollowManifests(a.ctx, path, a.key, a.Keyring, from, 0, fn)
	}
	return a.audit(path, func(l auditOf) error {
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for {
			err := store.EachRecord(a.ctx, l, from, math.MaxUint64, false, func(r *manifest.Record) error {
				from = r.Index + 1
				return fn(r)
			})
			if err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-a.ctx.Done():
				return a.ctx.Err()
			}
		}
	})
}

// followEvery is the interval at which a socket is asked for new leaves.
const followEvery = 250 * time.Millisecond

func (a *app) tailLine(r *manifest.Record) error {
	row := rowOf(r)
	if a.JSON {
		return json.NewEncoder(a.out).Encode(row)
	}
	_, err := fmt.Fprintf(a.out, "%d  %s  %-9s %s  %s  %s  pages %d, writes %d, tokens %d  %s\n", r.Index, row.At.Format("15:04:05.000"), r.Type, r.Trace,
		r.Scope, r.Actor, len(r.Pages), len(r.Writes), r.Tokens, strings.TrimSpace(r.Status+" "+r.Reason))
	return err
}
