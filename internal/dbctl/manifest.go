package dbctl

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
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
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

// auditOf is the audit of a database, from its files or from the process that serves it.
type auditOf struct {
	store.Audit
	head     func(ctx context.Context) (manifest.Head, error) // synced: somebody may keep it
	archived func() uint64
	damage   error                       // found when it was opened
	owner    func() (store.Audit, error) // of the process that has the database open; nil: this is it
}

// Question asks the process that has the database open where its file, which has the older questions, is locked.
func (l auditOf) Question(ctx context.Context, leaf *manifest.Record) (string, error) {
	text, err := l.Audit.Question(ctx, leaf)
	if l.owner == nil || !errors.Is(err, store.ErrLocked) {
		return text, err
	}
	o, oerr := l.owner()
	if oerr != nil {
		return "", err
	}
	return o.Question(ctx, leaf)
}

// audit opens the audit of a database: the files without their lock, or what a socket serves.
func (a *app) audit(path string, fn func(l auditOf) error) error {
	if fileless(path) {
		st, err := a.store(path, Opening{})
		if err != nil {
			return err
		}
		return errors.Join(fn(auditOf{Audit: st.Audit(), head: st.Head, archived: func() uint64 { return 0 }}), st.Close())
	}
	l, rep, err := filestore.OpenManifests(a.ctx, path, a.key, a.Keyring)
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
	var db *ctxpage.DB
	owner := func() (_ store.Audit, err error) {
		if db == nil {
			db, err = a.open(path, false)
		}
		if err != nil {
			return nil, err
		}
		return db.Manifests(), nil
	}
	err = fn(auditOf{l, head, l.Archived, rep.Damage, owner})
	if db != nil {
		err = errors.Join(err, db.Close())
	}
	return errors.Join(err, l.Close())
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
	Session    string    `json:"session,omitempty"`
	Question   string    `json:"question,omitempty"` // in ls alone, unless it was erased or not kept
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
		Pruned: pruned, Index: r.Index, Type: r.Type.String(), At: time.UnixMicro(r.Time).UTC(), Trace: r.Trace, Parent: r.Parent, Scope: r.Scope, Actor: r.Actor, Session: r.Session,
		LSN: r.LSN, Pages: len(r.Pages), Writes: len(r.Writes), Tokens: r.Tokens, Tier: r.Tier, Status: r.Status, Reason: r.Reason,
		Confidence: r.Confidence, By: r.By,
	}
}

type manifestLsCmd struct {
	File    string `arg:"" help:"Database."`
	Type    string `help:"Only this type, such as get, search, assemble, commit, held, approve, reject, rollback, conflict or refetch."`
	Scope   string `help:"Only this scope."`
	Session string `help:"Only this session."`
	Actor   string `help:"Only this actor."`
	Trace   string `help:"Only this trace and what followed from it."`
	Since   string `help:"Only leaves since this time, or within this duration, like 1h or 7d." placeholder:"TIME"`
	Until   string `help:"Only leaves before this time, or older than this duration." placeholder:"TIME"`
	pageFlags
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
		if err := out.fill(a.ctx, l, before, trace, c.Limit, &keep); err != nil {
			return err
		}
		return a.emit(out, out.print)
	})
}

// filter makes the test of a leaf out of the flags. Clocks may be set back, so a time cuts no part of the audit off.
func (c *manifestLsCmd) filter(now time.Time) (f manifest.Filter, err error) {
	f = manifest.Filter{Scope: c.Scope, Session: c.Session, Actor: c.Actor}
	if c.Type != "" {
		if f.Type, err = manifest.ParseType(c.Type); err != nil {
			return f, usage("--type: %v", err)
		}
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", c.Since, &f.Since}, {"--until", c.Until, &f.Until}} {
		if d, derr := parseDuration(t.text); derr == nil {
			*t.to = now.Add(-d)
		} else if *t.to, err = parseTime(t.flag, t.text); err != nil {
			return f, err
		}
	}
	return f, nil
}

var errFull = errors.New("listing is full")

func (v *leafList) fill(ctx context.Context, l auditOf, before uint64, trace string, limit int, keep *manifest.Filter) error {
	add := func(r *manifest.Record) error {
		if r.Index >= before || !keep.Match(r) {
			return nil
		}
		if len(v.Leaves) == limit {
			v.Next = cursorOut("manifest", strconv.FormatUint(v.Leaves[limit-1].Index, 10))
			return errFull
		}
		row := rowOf(r)
		var err error
		if row.Question, _, err = asked(ctx, l, r); err == nil {
			v.Leaves = append(v.Leaves, row)
		}
		return err
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
		if err := add(leaves[i]); err != nil && !errors.Is(err, errFull) {
			return err
		} else if err != nil {
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
	table(w, "LEAF TIME TYPE TRACE SCOPE SESSION ACTOR SERVED WRITTEN TOKENS STATUS QUESTION -LSN -PARENT", func(row func(...any)) {
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
			row(r.Index, when(r.At), r.Type, r.Trace, or(r.Scope, "-"), or(r.Session, "-"), or(r.Actor, "-"), r.Pages, r.Writes, r.Tokens, or(status, "-"), or(cut(r.Question, 60), "-"), r.LSN, or(r.Parent, "-"))
		}
	})
	more(w, v.Next)
}

type manifestHeadCmd struct {
	File string `arg:"" help:"Database."`
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
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), system.ToSync, 0)
		if errors.Is(err, os.ErrNotExist) || !system.ReadSyncs && errors.Is(err, os.ErrPermission) {
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
	if err == nil || errors.Is(err, store.ErrNewerFormat) {
		return &h, err
	}
	var b []byte
	f, ferr := openInput(s)
	if ferr == nil {
		b, ferr = io.ReadAll(io.LimitReader(f, maxReceipt))
		ferr = errors.Join(ferr, f.Close())
	}
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
		if got.Found == 0 && l.damage != nil { // of the audit as a whole: no leaf of it differs
			got.Found, got.Problems = 1, []error{l.damage}
		}
		v := verifyOf(got)
		return unless(v.OK, exitDamaged, a.emit(v, v.print))
	})
}

func verifyOf(got manifest.Verification) verifyView {
	v := verifyView{OK: got.Found == 0, Size: got.Size, Archived: got.Archived, Root: got.Root.String(), Found: got.Found, First: got.First, Problems: []string{}, Note: got.Note}
	if got.Against != nil {
		v.Against = got.Against.String()
	}
	for _, p := range got.Problems {
		var damaged *store.CorruptError
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
