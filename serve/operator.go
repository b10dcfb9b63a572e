package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// The upkeep of a database. Each call is one call of ctxpage.Admin, as the verbs of dbctl make it. A call works on the scope of its
// caller, unless it says whole or every_scope; a server that is restricted to a scope (Options.Within) refuses that. The caller's actor
// is recorded as the one who did it.

var operatorCalls = []call{
	unary("scopes", Operator, "The scopes that were written to, by name.", scopes),
	unary("stats", Operator, "Sizes and counters of the database.", stats),
	unary("health", Operator, "Which pages of the scope are of no use, or mislead.", health),
	stream("export", Operator, "The scope and those below it, a person, or the whole database, as lines that import takes.", export),
	unary("import", Operator, "Bring an export into the database. Its own scopes are kept.", bring),
	unary("erase", Operator, "Remove content from every file of the database. Answers with a receipt.", erase),
	unary("erase/list", Operator, "The finished erases, oldest first.", erasures),
	unary("erase/receipt", Operator, "The receipt of a finished erase, for the present head.", receipt),
	unary("retention/set", Operator, "Set the policy of the scope, or of the whole database, in place of the one it has. Removes nothing.", setPolicy),
	unary("retention/show", Operator, "What holds in the scope, and the policies that say it.", showPolicies),
	unary("retention/run", Operator, "Remove what is older than the policies allow, in the scope and those below it.", runRetention),
	unary("quota/set", Operator, "Set the quota of the scope, in place of the one it has. Removes nothing.", setQuota),
	unary("quota/show", Operator, "The quotas that apply to the scope, and what is used of them.", showQuotas),
	unary("backup", Operator, "Copy the database to another path of the server's machine.", backup),
	unary("embed", Operator, "Make the vectors that pages lack.", embedPages),
}

// wholeDatabase refuses a call on more than the scopes that are served.
func (r *request) wholeDatabase() error { _, err := r.everyScope(); return err }

type scopesIn struct {
	Prefix string `json:"prefix,omitempty" jsonschema:"only names that begin with it"`
	Depth  int    `json:"depth,omitempty" jsonschema:"cut names to this many parts; what is below counts for the part above"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next of the answer before"`
	Limit  int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

type scopesOut struct {
	Scopes []scopeOut `json:"scopes"`
	Next   string     `json:"next,omitempty" jsonschema:"give it as cursor for what follows"`
}

type scopeOut struct {
	Name      string `json:"name"`
	Artefacts int    `json:"artefacts" jsonschema:"live ones"`
}

func scopes(ctx context.Context, r *request, in scopesIn) (scopesOut, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	switch {
	case err != nil:
		return scopesOut{}, err
	case in.Depth < 0:
		return scopesOut{}, store.Invalid("depth", fmt.Sprint(in.Depth), "a number of parts, or 0 for whole names")
	case in.Depth > 0:
		return r.scopesByDepth(ctx, in, limit)
	}
	out := scopesOut{Scopes: []scopeOut{}}
	all, err := loop.Collect(r.srv.db.Scopes(ctx, in.Prefix, ctxpage.AtMost(limit, in.Cursor, &out.Next)))
	for _, s := range all {
		if r.srv.serves(s.Name) {
			out.Scopes = append(out.Scopes, scopeOut{s.Name, s.Artefacts})
		}
	}
	return out, err
}

// scopesByDepth counts the scopes under cut names. All names are read: cut names are not in the order of the names. The cursor is the
// last name of the answer before.
func (r *request) scopesByDepth(ctx context.Context, in scopesIn, limit int) (scopesOut, error) {
	sums := map[string]int{}
	for s, err := range r.srv.db.Scopes(ctx, in.Prefix) {
		if err != nil {
			return scopesOut{}, fmt.Errorf("scopes: %w", err)
		}
		if r.srv.serves(s.Name) {
			parts := strings.Split(s.Name, "/")
			sums[strings.Join(parts[:min(in.Depth, len(parts))], "/")] += s.Artefacts
		}
	}
	out := scopesOut{Scopes: []scopeOut{}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if in.Cursor != "" && name <= in.Cursor {
			continue
		}
		if len(out.Scopes) == limit {
			out.Next = out.Scopes[limit-1].Name
			break
		}
		out.Scopes = append(out.Scopes, scopeOut{name, sums[name]})
	}
	return out, nil
}

type statsIn struct {
	Space bool `json:"space,omitempty" jsonschema:"also what each scope takes, by kind"`
}

type statsOut struct {
	Path string `json:"path"`
	store.StoreStats
	FileRoots []string          `json:"file_roots" jsonschema:"directories that file sources may be in"`
	Space     []store.ScopeInfo `json:"space,omitempty"`
}

func stats(ctx context.Context, r *request, in statsIn) (out statsOut, err error) {
	if err := r.wholeDatabase(); err != nil {
		return out, err
	}
	s, err := r.srv.db.Stats(ctx)
	if err != nil {
		return out, err
	}
	out.Path, out.StoreStats = s.Path, s.StoreStats
	if out.FileRoots, err = r.srv.db.Admin().FileRoots(ctx); err != nil {
		return out, err
	}
	if in.Space {
		out.Space, err = r.srv.db.Admin().Quotas().Spaces(ctx)
	}
	view.FillLists(&out)
	return out, err
}

type healthIn struct {
	Assemblies int `json:"assemblies,omitempty" jsonschema:"a page counts as never served if none of this many newest contexts showed it; default 1000"`
	Examples   int `json:"examples,omitempty" jsonschema:"how many pages each finding names; default 5"`
}

func health(ctx context.Context, r *request, in healthIn) (*ops.HealthReport, error) {
	rep, err := r.s.Health(ctx, ops.HealthOptions{Assemblies: in.Assemblies, Examples: in.Examples})
	view.FillLists(rep)
	return rep, err
}

type exportIn struct {
	Whole    bool   `json:"whole,omitempty" jsonschema:"the whole database"`
	Subject  string `json:"subject,omitempty" jsonschema:"only what is held about this person: what an erase of them would take"`
	NoSecret bool   `json:"no_secret,omitempty" jsonschema:"leave out the secret from which the fences of contexts are derived"`
	Versions bool   `json:"versions,omitempty" jsonschema:"only versions of pages: the first parts of a move"`
	Since    uint64 `json:"since,omitempty" jsonschema:"leave out versions of commits up to this LSN, which an earlier export brought"`
}

// export streams the lines of an export. The last line counts and digests those before it, so a file that was cut off is refused.
func export(ctx context.Context, r *request, in exportIn, line func(any) error) error {
	opts := ctxpage.ExportOptions{Scope: r.scope, Subject: in.Subject, NoSecret: in.NoSecret, Versions: in.Versions, Since: in.Since}
	if in.Whole {
		if err := r.wholeDatabase(); err != nil {
			return err
		}
		opts.Scope = ""
	}
	_, err := r.srv.db.Admin().Export(ctx, &lineWriter{line: line}, opts)
	return err
}

// lineWriter answers with each line that is written to it.
type lineWriter struct {
	line func(any) error
	rest []byte
}

// Write takes bytes, and answers with the lines that they complete.
func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		at := bytes.IndexByte(w.rest, '\n')
		if at < 0 {
			return len(b), nil
		}
		if err := w.line(json.RawMessage(w.rest[:at])); err != nil {
			return 0, err
		}
		w.rest = w.rest[at+1:]
	}
}

type importIn struct {
	Path     string   `json:"path,omitempty" jsonschema:"an export on the server's machine"`
	Lines    string   `json:"lines,omitempty" jsonschema:"the export itself, instead of path"`
	Roots    []string `json:"roots,omitempty" jsonschema:"also take file roots and directories at or below these; by default none"`
	Policies bool     `json:"policies,omitempty" jsonschema:"also take retention policies and quotas"`
	Receipts []any    `json:"receipts,omitempty" jsonschema:"of erases that came after the export: what they took is left out"`
	DryRun   bool     `json:"dry_run,omitempty"`
}

func bring(ctx context.Context, r *request, in importIn) (out *portable.Imported, err error) {
	if err := r.wholeDatabase(); err != nil {
		return nil, err
	}
	if (in.Path == "") == (in.Lines == "") {
		return nil, store.Invalid("path, lines", "both or none", "one of them")
	}
	opts := ctxpage.ImportOptions{By: r.actor, Roots: in.Roots, Policies: in.Policies, DryRun: in.DryRun}
	for i, given := range in.Receipts {
		b, err := json.Marshal(given)
		var rec ops.Receipt
		if err == nil {
			err = json.Unmarshal(b, &rec)
		}
		if err != nil {
			return nil, store.Invalid(fmt.Sprintf("receipts[%d]", i), err.Error(), "the receipt of an erase")
		}
		opts.Receipts = append(opts.Receipts, &rec)
	}
	var from io.Reader = strings.NewReader(in.Lines)
	if in.Path != "" {
		f, err := serverFile(in.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	out, err = r.srv.db.Admin().Import(ctx, from, opts)
	view.FillLists(out)
	return out, err
}

func serverFile(path string) (*os.File, error) {
	if err := absolute(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, store.Invalid("path", err.Error(), "a file that the server can read")
	}
	return f, nil
}

// absolute refuses a relative path: the server has a working directory of its own.
func absolute(path string) error {
	if !filepath.IsAbs(path) {
		return store.Invalid("path", fmt.Sprintf("%.200q", path), "an absolute path on the server's machine")
	}
	return nil
}

type backupIn struct {
	Path string `json:"path" jsonschema:"of the copy, absolute; the directory must exist, the files must not"`
}

type backupOut struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Head  string `json:"head" jsonschema:"of the audit: keep it elsewhere"`
}

func backup(ctx context.Context, r *request, in backupIn) (backupOut, error) {
	if err := cmp.Or(r.wholeDatabase(), absolute(in.Path)); err != nil {
		return backupOut{}, err
	}
	rep, err := r.srv.db.Admin().Backup(ctx, in.Path, nil)
	if err != nil {
		return backupOut{}, err
	}
	head, err := r.srv.db.Head(ctx)
	return backupOut{in.Path, rep.Bytes, head.String()}, err
}

type embedIn struct {
	EveryScope bool `json:"every_scope,omitempty" jsonschema:"of all scopes, not only of this one"`
	DryRun     bool `json:"dry_run,omitempty" jsonschema:"count, make and write nothing"`
}

// embedOut has of failures what a person can act on.
type embedOut struct {
	Model  string        `json:"model"`
	Scopes []embeddedOut `json:"scopes" jsonschema:"those that had pages without a vector"`
	Made   int           `json:"made"`
	Left   int           `json:"left"`
	Failed []failureOut  `json:"failed"`
	DryRun bool          `json:"dry_run,omitempty"`
}

type embeddedOut struct {
	Scope string `json:"scope"`
	Pages int    `json:"pages"`
	Made  int    `json:"made"`
}

func embedPages(ctx context.Context, r *request, in embedIn) (embedOut, error) {
	scope, err := r.scope, error(nil)
	if in.EveryScope {
		if scope, err = r.everyScope(); err != nil {
			return embedOut{}, err
		}
	}
	rep, err := r.srv.db.Admin().Embed(ctx, store.EmbedOptions{Scope: scope, DryRun: in.DryRun})
	if err != nil {
		return embedOut{}, err
	}
	out := embedOut{Model: rep.Model, Scopes: []embeddedOut{}, Made: rep.Made, Left: rep.Left, Failed: []failureOut{}, DryRun: rep.DryRun}
	for _, s := range rep.Scopes {
		out.Scopes = append(out.Scopes, embeddedOut{s.Scope, s.Pages, s.Made})
	}
	for _, f := range rep.Failed {
		out.Failed = append(out.Failed, failureOut{ID: f.Ref.String(), Error: f.Err})
	}
	return out, nil
}

type approveAllIn struct {
	EveryScope    bool   `json:"every_scope,omitempty" jsonschema:"of all scopes, not only of this one"`
	Actor         string `json:"actor,omitempty" jsonschema:"only batches that this actor wrote"`
	Kind          string `json:"kind,omitempty" jsonschema:"only batches whose writes are all of this kind"`
	Tag           string `json:"tag,omitempty" jsonschema:"only batches whose writes all have this tag"`
	Reason        string `json:"reason,omitempty" jsonschema:"only batches held for this reason, or a part of it"`
	Older         int    `json:"older_s,omitempty" jsonschema:"only batches held for at least this many seconds"`
	Replacing     bool   `json:"replacing,omitempty" jsonschema:"also batches that replace, supersede or delete pages"`
	Note          string `json:"note,omitempty"`
	HumanVerified bool   `json:"human_verified,omitempty" jsonschema:"raise what is written to the highest provenance"`
	Stale         bool   `json:"stale,omitempty" jsonschema:"approve although pages that they were written from have changed"`
	DryRun        bool   `json:"dry_run,omitempty"`
}

func approveAll(ctx context.Context, r *request, in approveAllIn) (view.ApprovedList, error) {
	if in.Older < 0 || in.Older > view.MaxSeconds {
		return view.ApprovedList{}, store.Invalid("older_s", fmt.Sprint(in.Older), fmt.Sprintf("0 to %d seconds", view.MaxSeconds))
	}
	bulk := view.BulkApproval{
		Scope: r.scope, Actor: in.Actor, Kind: in.Kind, Tag: in.Tag, Reason: in.Reason, Older: time.Duration(in.Older) * time.Second, Replacing: in.Replacing, DryRun: in.DryRun,
		Approval: ctxpage.Approval{By: r.actor, Note: in.Note, HumanVerified: in.HumanVerified, Stale: in.Stale},
	}
	if in.EveryScope {
		var err error
		if bulk.Scope, err = r.everyScope(); err != nil {
			return view.ApprovedList{}, err
		}
	}
	out, err := bulk.Approve(ctx, r.srv.db, r.srv.opts.Now())
	if errors.Is(err, store.ErrCorrupt) && len(out.Batches) > 0 { // of batches that review/list names
		err = nil
	}
	return out, err
}

type eraseIn struct {
	IDs        []string `json:"ids,omitempty" jsonschema:"pages of the scope; all their versions go"`
	Subject    string   `json:"subject,omitempty" jsonschema:"everything about this person or thing, in the scope and those below it"`
	Session    string   `json:"session,omitempty" jsonschema:"a conversation of the scope"`
	Whole      bool     `json:"whole,omitempty" jsonschema:"the scope and everything below it"`
	EveryScope bool     `json:"every_scope,omitempty" jsonschema:"with subject: in all scopes"`
	Reason     string   `json:"reason" jsonschema:"it stays in the audit, so it must not contain what is erased"`
	Cascade    string   `json:"cascade,omitempty" jsonschema:"what happens to pages derived from what is erased: keep (default), rederive or erase"`
	Names      bool     `json:"names,omitempty" jsonschema:"also remove ids, scopes and sessions of what is erased"`
	DryRun     bool     `json:"dry_run,omitempty" jsonschema:"report what would go and what is affected"`
}

type eraseOut struct {
	Report  *ops.Report `json:"report"`
	Receipt any         `json:"receipt,omitempty" jsonschema:"proves the erase to others: keep it whole"`
}

func (r *request) eraseOf(in eraseIn) (ops.Request, error) {
	req := ops.Request{Subject: in.Subject, By: r.actor, Reason: in.Reason, Cascade: ops.Cascade(in.Cascade), Names: in.Names, DryRun: in.DryRun}
	given := 0
	for _, is := range []bool{len(in.IDs) > 0, in.Subject != "", in.Session != "", in.Whole} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return req, store.Invalid("ids, subject, session, whole", fmt.Sprintf("%d of them", given), "one of them")
	case in.EveryScope && in.Subject == "":
		return req, store.Invalid("every_scope", "one without subject", "a subject; a scope, an id or a session is of one scope")
	case in.EveryScope:
		if err := r.wholeDatabase(); err != nil {
			return req, err
		}
	case in.Subject != "" || in.Whole:
		req.Scope = r.scope
	case in.Session != "":
		req.Session = store.Ref{Scope: r.scope, ID: in.Session}
	}
	for _, id := range in.IDs {
		req.Refs = append(req.Refs, store.Ref{Scope: r.scope, ID: id})
	}
	return req, req.Check()
}

func erase(ctx context.Context, r *request, in eraseIn) (out eraseOut, err error) {
	req, err := r.eraseOf(in)
	if err != nil {
		return out, err
	}
	rep, err := r.srv.db.Admin().Erase(ctx, req)
	if err != nil {
		return out, err
	}
	view.FillLists(rep)
	out.Report = rep
	if rep.Done != nil {
		if out.Receipt, err = r.receipt(ctx, rep.Done); err != nil {
			return out, fmt.Errorf("erase %s is done, its receipt was not made; erase/receipt makes it: %w", rep.Done.Trace, err)
		}
	}
	return out, nil
}

func (r *request) receipt(ctx context.Context, done *store.EraseReport) (any, error) {
	head, err := r.srv.db.Head(ctx)
	if err != nil {
		return nil, err
	}
	return ops.NewReceipt(ctx, r.srv.db.Manifests(), *done, head)
}

type erasuresOut struct {
	Erases []store.EraseReport `json:"erases"`
}

func erasures(ctx context.Context, r *request, _ struct{}) (erasuresOut, error) {
	if err := r.wholeDatabase(); err != nil {
		return erasuresOut{}, err
	}
	list, err := r.srv.db.Admin().Erasures(ctx)
	view.FillLists(&list)
	return erasuresOut{list}, err
}

type receiptOut struct {
	Receipt any `json:"receipt"`
}

func receipt(ctx context.Context, r *request, in traceIn) (out receiptOut, err error) {
	all, err := erasures(ctx, r, struct{}{})
	if err != nil {
		return out, err
	}
	for i := range all.Erases {
		if all.Erases[i].Trace == strings.ToUpper(in.Trace) {
			out.Receipt, err = r.receipt(ctx, &all.Erases[i])
			return out, err
		}
	}
	return out, fmt.Errorf("%w: no finished erase has the trace %.100q; erase/list lists them", store.ErrNotFound, in.Trace)
}
