package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/remote"
	"github.com/ctxpage/ctxpage/store"
)

type manifestCmd struct {
	Ls     manifestLsCmd     `cmd:"" help:"List leaves, newest first."`
	Tail   manifestTailCmd   `cmd:"" help:"Show the newest leaves, and follow new ones with -f."`
	Show   manifestShowCmd   `cmd:"" help:"Show a leaf, or all leaves of a trace."`
	Head   manifestHeadCmd   `cmd:"" help:"Print the head of the audit, a line to keep elsewhere."`
	Prove  manifestProveCmd  `cmd:"" help:"Prove that a leaf is in the log, or that the log extends an earlier head."`
	Verify manifestVerifyCmd `cmd:"" help:"Reread everything and compare it with the tree, its checkpoints and a head kept elsewhere."`
}

func (manifestCmd) Help() string {
	return `The audit has one leaf for each read of content and for each end of a transaction. These verbs read archive and log as files without a lock, so they work while an agent is writing. They show what was written when they started. For unix:PATH they ask the process that serves the database.

Example: dbctl manifest head agent.ctx >head.txt`
}

// auditOf is the audit of a database, from its files or from the process that serves it.
type auditOf struct {
	store.Audit
	head     func(ctx context.Context) (manifest.Head, error) // synced: somebody may keep it
	archived func() uint64
}

// audit opens the audit of a database: the files without their lock, or what a socket serves.
func (a *app) audit(path string, fn func(l auditOf) error) error {
	socket, is, err := served(path)
	switch {
	case err != nil:
		return err
	case is:
		c, err := remote.Dial(a.ctx, socket, remote.ClientOptions{Now: a.now})
		if err != nil {
			return err
		}
		return errors.Join(fn(auditOf{c.Audit(), c.Head, func() uint64 { return 0 }}), c.Close())
	}
	l, rep, err := filestore.OpenManifestsKey(a.ctx, path, a.key, a.Keyring)
	if err != nil {
		return err
	}
	if rep.Damage != nil {
		a.warn("the audit is damaged, what can be read is shown: " + rep.Damage.Error())
	}
	head := func(ctx context.Context) (manifest.Head, error) {
		size, err := l.Size(ctx)
		if err == nil {
			err = syncLog(path + "-wal")
		}
		if err != nil {
			return manifest.Head{}, err
		}
		return l.Head(ctx, size, a.now().UnixMicro())
	}
	return errors.Join(fn(auditOf{l, head, l.Archived}), l.Close())
}

// warn says what is no error, on the error stream: a line, or a line of JSON.
func (a *app) warn(what string) {
	if !a.JSON {
		fmt.Fprintln(a.err, "dbctl: "+what)
		return
	}
	b, _ := json.Marshal(map[string]string{"warning": what})
	fmt.Fprintf(a.err, "%s\n", b)
}

// leafRow is a leaf in a listing.
type leafRow struct {
	Index      uint64    `json:"index"`
	Type       string    `json:"type"`
	At         time.Time `json:"at"`
	Trace      string    `json:"trace"`
	Parent     string    `json:"parent,omitempty"`
	Scope      string    `json:"scope,omitempty"`
	Actor      string    `json:"actor,omitempty"`
	LSN        uint64    `json:"lsn"`
	Pages      int       `json:"pages"`
	Writes     int       `json:"writes"`
	Tokens     int       `json:"tokens"`
	Tier       int       `json:"tier,omitempty"`
	Status     string    `json:"status,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Confidence float64   `json:"confidence,omitempty"`
	By         string    `json:"by,omitempty"`
	Pruned     string    `json:"pruned,omitempty"`
}

func rowOf(r *manifest.Record) leafRow {
	pruned := ""
	if r.Pruned != nil {
		pruned = r.Pruned.String()
	}
	return leafRow{
		Pruned: pruned, Index: r.Index, Type: r.Type.String(), At: time.UnixMicro(r.Time).UTC(), Trace: r.Trace, Parent: r.Parent, Scope: r.Scope, Actor: r.Actor,
		LSN: r.LSN, Pages: len(r.Pages), Writes: len(r.Writes), Tokens: r.Tokens, Tier: r.Tier, Status: r.Status, Reason: r.Reason,
		Confidence: r.Confidence, By: r.By,
	}
}

type manifestLsCmd struct {
	File  string `arg:"" help:"Database."`
	Type  string `help:"Only this type, such as get, search, assemble, commit, held, approve, reject, rollback, conflict or refetch."`
	Scope string `help:"Only this scope."`
	Trace string `help:"Only this trace and what followed from it."`
	Since string `help:"Only leaves since this time, or within this duration, like 1h or 7d." placeholder:"TIME"`
	pageFlags
}

func (manifestLsCmd) Help() string {
	return "Example: dbctl manifest ls agent.ctx --type assemble --since 1h"
}

type leafList struct {
	Leaves []leafRow `json:"leaves"`
	Size   uint64    `json:"size"`
	Next   string    `json:"next,omitempty"`
}

func (c *manifestLsCmd) Run(a *app) error {
	keep, err := c.filter(a.now())
	if err != nil {
		return err
	}
	cursor, err := c.raw("manifest")
	if err != nil {
		return err
	}
	return a.audit(c.File, func(l auditOf) error {
		size, err := l.Size(a.ctx)
		if err != nil {
			return err
		}
		out := leafList{Leaves: []leafRow{}, Size: size}
		before := size
		if cursor != "" {
			if before, err = strconv.ParseUint(cursor, 10, 64); err != nil {
				return usage("--cursor: expected a cursor that this listing printed")
			}
		}
		trace, err := fullTrace(a.ctx, l, c.Trace)
		if err != nil {
			return err
		}
		if err := out.fill(a.ctx, l, before, trace, c.Limit, keep); err != nil {
			return err
		}
		return a.emit(out, out.print)
	})
}

// filter makes the test of a leaf out of the flags. A leaf is older than the time given: the rest is older still,
// but for clocks that were set back, so nothing is cut off there.
func (c *manifestLsCmd) filter(now time.Time) (func(r *manifest.Record) bool, error) {
	var typ manifest.Type
	var since time.Time
	var err error
	if c.Type != "" {
		if typ, err = manifest.ParseType(c.Type); err != nil {
			return nil, usage("--type: %v", err)
		}
	}
	if d, derr := parseDuration(c.Since); derr == nil {
		since = now.Add(-d)
	} else if since, err = parseTime("--since", c.Since); err != nil {
		return nil, err
	}
	return func(r *manifest.Record) bool {
		return (typ == 0 || r.Type == typ) && (c.Scope == "" || r.Scope == c.Scope) && (since.IsZero() || r.Time >= since.UnixMicro())
	}, nil
}

var errFull = errors.New("listing is full")

func (v *leafList) fill(ctx context.Context, l auditOf, before uint64, trace string, limit int, keep func(*manifest.Record) bool) error {
	add := func(r *manifest.Record) error {
		if r.Index >= before || !keep(r) {
			return nil
		}
		if len(v.Leaves) == limit {
			v.Next = cursorOut("manifest", strconv.FormatUint(v.Leaves[limit-1].Index, 10))
			return errFull
		}
		v.Leaves = append(v.Leaves, rowOf(r))
		return nil
	}
	if trace == "" {
		err := store.EachRecord(ctx, l, 0, before, true, add)
		if errors.Is(err, errFull) {
			return nil
		}
		return err
	}
	leaves, err := l.ByTrace(ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return err
	}
	for i := len(leaves) - 1; i >= 0; i-- {
		if add(leaves[i]) != nil {
			break
		}
	}
	return nil
}

func (v *leafList) print(w io.Writer) {
	if len(v.Leaves) == 0 {
		fmt.Fprintf(w, "none of %d leaves\n", v.Size)
		return
	}
	table(w, "LEAF TIME TYPE TRACE SCOPE ACTOR SERVED WRITTEN TOKENS STATUS", func(row func(...any)) {
		for _, r := range v.Leaves {
			status := strings.TrimSpace(r.Status + " " + r.Reason)
			switch {
			case r.Confidence > 0 && r.Type != "approve" && r.Type != "reject":
				status += fmt.Sprintf(" (%.2f by %s)", r.Confidence, r.By)
			case r.By != "":
				status += " by " + r.By
			}
			if r.Pruned != "" {
				status = strings.TrimSpace(status + " " + r.Pruned)
			}
			row(r.Index, when(r.At), r.Type, r.Trace, or(r.Scope, "-"), or(r.Actor, "-"), r.Pages, r.Writes, r.Tokens, or(status, "-"))
		}
	})
	more(w, v.Next)
}
