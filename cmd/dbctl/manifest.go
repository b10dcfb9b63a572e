package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage"
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

type manifestShowCmd struct {
	File string `arg:"" help:"Database."`
	Leaf string `arg:"" help:"Index of a leaf, or a trace."`
}

func (manifestShowCmd) Help() string {
	return `Page numbers are shown as references, taken from the leaves that wrote the pages.

Example: dbctl manifest show agent.ctx 01J…`
}

// leafPage is a page with the reference its number stands for.
type leafPage struct {
	Ref string `json:"ref"`
	manifest.Page
}

type leafExclusion struct {
	Reason  string     `json:"reason"`
	Count   int        `json:"count"`
	Nearest []leafPage `json:"nearest,omitempty"`
}

// leafView is a leaf whole.
type leafView struct {
	manifest.Record
	At       time.Time       `json:"at"`
	Asked    string          `json:"question_state,omitempty"` // kept, or why the text is not shown
	Pages    []leafPage      `json:"pages,omitempty"`
	Excluded []leafExclusion `json:"excluded,omitempty"`
}

type leavesView struct {
	Leaves []leafView `json:"leaves"`
}

func (c *manifestShowCmd) Run(a *app) error {
	return a.audit(c.File, func(l auditOf) error {
		leaves, err := c.leaves(a.ctx, l)
		if err != nil {
			return err
		}
		names, err := l.Names(a.ctx)
		if err != nil {
			return err
		}
		var out leavesView
		for _, r := range leaves {
			v := wholeOf(r, names)
			if v.Question, v.Asked, err = asked(a.ctx, l, r); err != nil {
				return err
			}
			out.Leaves = append(out.Leaves, v)
		}
		return a.emit(out, func(w io.Writer) {
			for i := range out.Leaves {
				if i > 0 {
					fmt.Fprintln(w)
				}
				out.Leaves[i].print(w, names)
			}
		})
	})
}

// notKept is said of a question of which the audit has the digest alone.
const notKept = "erased or not kept"

// asked is what a leaf was asked, and what became of it: kept, or why its text is not shown; empty where a leaf has none.
func asked(ctx context.Context, l store.Audit, r *manifest.Record) (text, state string, err error) {
	if len(r.Query) == 0 {
		return "", "", nil
	}
	text, err = l.Question(ctx, r)
	var damaged *ctxpage.CorruptError
	switch {
	case err == nil:
		return text, "kept", nil
	case errors.Is(err, manifest.ErrNoQuestion):
		return "", notKept, nil
	case errors.Is(err, ctxpage.ErrLocked):
		return "", "in the file of the database, which is in use: " + err.Error(), nil
	case errors.As(err, &damaged):
		return "", "damaged: " + err.Error(), nil
	case errors.Is(err, os.ErrNotExist):
		return "", "in the file of the database, which is missing", nil
	}
	return "", "", err
}

func (c *manifestShowCmd) leaves(ctx context.Context, l auditOf) ([]*manifest.Record, error) {
	if i, err := strconv.ParseUint(c.Leaf, 10, 64); err == nil {
		r, err := l.Leaf(ctx, i)
		return []*manifest.Record{r}, err
	}
	trace, err := fullTrace(ctx, l, c.Leaf)
	if err != nil {
		return nil, err
	}
	return l.ByTrace(ctx, trace)
}

func refOf(names manifest.Names, num uint64) string {
	return or(names[num], "page "+strconv.FormatUint(num, 10))
}

func wholeOf(r *manifest.Record, names manifest.Names) leafView {
	v := leafView{Record: *r, At: time.UnixMicro(r.Time).UTC()}
	pages := func(ps []manifest.Page) (out []leafPage) {
		for _, p := range ps {
			out = append(out, leafPage{refOf(names, p.Num), p})
		}
		return out
	}
	v.Pages = pages(r.Pages)
	for _, x := range r.Excluded {
		v.Excluded = append(v.Excluded, leafExclusion{x.Reason, x.Count, pages(x.Nearest)})
	}
	return v
}

func (v *leafView) print(w io.Writer, names manifest.Names) {
	r := &v.Record
	table(w, "", func(row func(...any)) {
		row("leaf", fmt.Sprintf("%d: %s", r.Index, r.Type))
		row("time", v.At.Format(time.RFC3339Nano))
		row("trace", r.Trace)
		for _, f := range []struct{ name, text string }{
			{"parent", r.Parent}, {"scope", r.Scope}, {"actor", r.Actor}, {"batch", r.From}, {"status", r.Status}, {"reason", r.Reason},
			{"evaluator", r.Evaluator}, {"note", r.Note}, {"action", r.Action}, {"question", or(r.Question, v.Asked)}, {"filter", r.Filter}, {"query digest", r.Query.String()}, {"rendered", r.Rendered.String()},
		} {
			if f.text != "" {
				row(f.name, f.text)
			}
		}
		if r.Pruned != nil {
			row("body", fmt.Sprintf("%s, leaf %d; the hash stays", r.Pruned, r.Pruned.Leaf))
		}
		row("lsn", r.LSN)
		switch {
		case r.Gate > 0 && r.By != "":
			row("verdict", fmt.Sprintf("%.2f by %s, gate %.2f", r.Confidence, r.By, r.Gate))
		case r.By != "":
			row("by", r.By)
		}
		if r.Budget > 0 {
			row("budget", fmt.Sprintf("%d of %d tokens, %d reserved, tier %d, preset %s, counter %s", r.Tokens, r.Budget, r.Reserve, r.Tier, r.Preset, r.Counter))
		}
		if r.Type == manifest.TypeRestored {
			row("backup", fmt.Sprintf("%d leaves, root %s", r.Size, r.Root))
		}
		if r.Type == manifest.TypePrune {
			row("covers", fmt.Sprintf("%d leaves", r.Size))
		}
		if r.Type == manifest.TypeRecovered {
			row("cut", fmt.Sprintf("%d bytes after record %d", r.Lost, r.Cut))
		}
	})
	v.printPages(w)
	if len(r.Writes) > 0 {
		fmt.Fprintln(w)
		table(w, "PAGE WRITTEN DIGEST", func(row func(...any)) {
			for _, x := range r.Writes {
				what := "version " + strconv.FormatUint(uint64(x.Version), 10)
				if x.Deleted {
					what = "deleted"
				} else if x.Touch {
					what = "unchanged"
				} else if x.Gone {
					what += ", dropped"
				}
				row(or(x.Ref, "page "+strconv.FormatUint(x.Num, 10)), what, or(x.Digest.String(), "-"))
			}
		})
	}
	for _, s := range r.Stale {
		fmt.Fprintf(w, "stale: %s, %s\n", line(refOf(names, s.Num)), s.Reason)
	}
	for _, x := range r.Conflicts {
		fmt.Fprintf(w, "conflict: %s, expected lsn %d, found %d\n", line(x.Ref), x.Expect, x.Found)
	}
}

func (v *leafView) printPages(w io.Writer) {
	if len(v.Pages) == 0 && len(v.Excluded) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "PAGE ACTION SCORE R P S TAG TOKENS WHY", func(row func(...any)) {
		for _, p := range v.Pages {
			row(p.Ref, p.Form, score(p.Score), score(p.R), score(p.P), score(p.S), or(p.Tag.String(), "-"), p.Tokens, or(sourceState(&p.Page), "-"))
		}
		for _, x := range v.Excluded {
			for _, p := range x.Nearest {
				row(p.Ref, "out", score(p.Score), score(p.R), score(p.P), score(p.S), or(p.Tag.String(), "-"), p.Tokens, x.Reason)
			}
			if rest := x.Count - len(x.Nearest); rest > 0 {
				row(fmt.Sprintf("and %d more", rest), "out", "-", "-", "-", "-", "-", "-", x.Reason)
			}
		}
	})
}

func score(s manifest.Score) string { return fmt.Sprintf("%.3f", s.Float()) }

func sourceState(p *manifest.Page) string {
	switch {
	case p.Refetched:
		return "dirty, refetched"
	case p.Stale:
		return "dirty, served stale"
	case p.Dirty:
		return "dirty"
	}
	return p.Reason
}

type manifestHeadCmd struct {
	File string `arg:"" help:"Database."`
}

func (manifestHeadCmd) Help() string {
	return `Keep the line where nobody who can edit the database can change it. dbctl manifest verify --head then detects any later edit or rollback of the log. While an agent is writing, the head covers what can be read now; that part is synced first, so that a power cut cannot lose it.

Example: dbctl manifest head agent.ctx >>heads.txt`
}

type headView struct {
	Head    string `json:"head"`
	DB      string `json:"db"`
	Size    uint64 `json:"size"`
	Root    string `json:"root"`
	Covers  string `json:"covers"`
	Archive uint64 `json:"archived"`
}

func (c *manifestHeadCmd) Run(a *app) error {
	return a.audit(c.File, func(l auditOf) error {
		h, err := l.head(a.ctx)
		if err != nil {
			return err
		}
		v := headView{h.String(), h.DB, h.Size, h.Root.String(), "what is readable now", l.archived()}
		if err := a.emit(v, func(w io.Writer) { fmt.Fprintln(w, v.Head) }); err != nil || a.JSON {
			return err
		}
		fmt.Fprintf(a.err, "it covers what is readable now: %s, %d of them in the archive\n", plural(int(v.Size), "leaf", "leaves"), v.Archive)
		return nil
	})
}

// syncLog brings to the disk what was read from the segments of a log: a writer may have written it without a sync.
// A segment that is gone by now is in the archive, which is synced before.
func syncLog(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed("head: %v", err)
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return failed("head: %v", err)
		}
		err = f.Sync()
		f.Close()
		if err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
			return failed("head: sync %s: %v", e.Name(), err)
		}
	}
	return nil
}

// readHead takes a head line, or a file whose last line is one, as the value of a flag.
func readHead(flag, s string) (*manifest.Head, error) {
	if s == "" {
		return nil, nil
	}
	h, err := manifest.ParseHead(s)
	if err == nil || errors.Is(err, manifest.ErrNewerFormat) {
		return &h, err
	}
	b, ferr := os.ReadFile(s)
	if ferr != nil {
		return nil, usage("%s: neither a head line (%v) nor a readable file (%v)", flag, err, ferr)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if h, err = manifest.ParseHead(lines[len(lines)-1]); err != nil {
		return nil, usage("%s: the last line of %s: %v", flag, s, err)
	}
	return &h, nil
}

type manifestVerifyCmd struct {
	File  string `arg:"" optional:"" help:"Database."`
	Head  string `help:"Head kept elsewhere: the line itself, or a file that ends with it."`
	Proof string `help:"Verify a proof made by dbctl manifest prove --json against --head, without a database." placeholder:"PATH"`
}

func (manifestVerifyCmd) Help() string {
	return `Rehashes every leaf, rebuilds the tree, and compares it with the stored hashes, the tree's checkpoints and the head. Exit code 3 if anything differs. Without a head, an audit that was rolled back or rewritten as a whole cannot be detected. While an agent is writing, it covers what could be read when it started.

Example: dbctl manifest verify agent.ctx --head head.txt`
}

type verifyView struct {
	OK       bool     `json:"ok"`
	Size     uint64   `json:"size"`
	Archived uint64   `json:"archived"`
	Root     string   `json:"root"`
	Against  string   `json:"against,omitempty"`
	Found    int      `json:"found"`
	First    int64    `json:"first"`
	Problems []string `json:"problems"`
	Note     string   `json:"note,omitempty"`
}

func (c *manifestVerifyCmd) Run(a *app) error {
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	if (c.File == "") == (c.Proof == "") {
		return usage("verify: name a database, or a proof with --proof")
	}
	if c.Proof != "" {
		return verifyProof(a, c.Proof, head)
	}
	return a.audit(c.File, func(l auditOf) error {
		progress := a.progress()
		got, err := l.Verify(a.ctx, head, func(done, total uint64) { progress("verify", done, total) })
		if err != nil && got.Found == 0 {
			return err
		}
		v := verifyOf(got)
		if err := a.emit(v, v.print); err != nil {
			return err
		}
		if !v.OK {
			return ended(exitDamaged)
		}
		return nil
	})
}

func verifyOf(got manifest.Verification) verifyView {
	v := verifyView{OK: got.Found == 0, Size: got.Size, Archived: got.Archived, Root: got.Root.String(), Found: got.Found, First: got.First, Problems: []string{}, Note: got.Note}
	if got.Against != nil {
		v.Against = got.Against.String()
	}
	for _, p := range got.Problems {
		var damaged *ctxpage.CorruptError
		if errors.As(p, &damaged) { // what to do is the same for all
			bare := *damaged
			bare.Hint, p = "", &bare
		}
		v.Problems = append(v.Problems, p.Error())
	}
	return v
}

func (v verifyView) print(w io.Writer) {
	if v.OK {
		fmt.Fprintf(w, "verified %s, %d archived, root %s\n", plural(int(v.Size), "leaf", "leaves"), v.Archived, v.Root)
		if v.Against != "" {
			fmt.Fprintf(w, "it contains all that this head vouches for: %s\n", v.Against)
		}
		if v.Note != "" {
			fmt.Fprintln(w, v.Note)
		}
		return
	}
	fmt.Fprintf(w, "NOT VERIFIED: %s in %d leaves\n", plural(v.Found, "problem", "problems"), v.Size)
	if v.First >= 0 {
		fmt.Fprintf(w, "the first leaf that differs: %d\n", v.First)
	}
	for _, p := range v.Problems {
		fmt.Fprintln(w, " ", line(p))
	}
	if v.Found > len(v.Problems) {
		fmt.Fprintf(w, "  and %d more\n", v.Found-len(v.Problems))
	}
}
