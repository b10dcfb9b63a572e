package portable

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// An export writes versions in the order of their commits, so that an import meets a version after those it supersedes. The
// store lists artefacts, not commits, so all versions are collected first as small entries and sorted. Heads and texts are
// read later, some hundred at a time.

// scanRows is the size of one part of a listing.
const scanRows = 1000

// entry is one version that gets a line, 40 bytes of it: an export holds one for each version, and no more.
type entry struct {
	lsn, art uint64
	put      int64  // µs. Only an import has several in one commit: those of the old commits
	num      uint64 // of its first page, 0: it has none
	version  uint32
	refAt    uint32 // place in plan.refs, from 1; 0: it is neither deleted, nor has it versions before it without content
}

// plan lists what an export writes, in the order of the commits.
type plan struct {
	entries   []entry
	refs      []store.Ref
	artefacts uint64
	head      *Header // which versions
}

// collect lists the versions that a header announces, of the artefacts in only; nil: of all.
func collect(ctx context.Context, st store.Store, head *Header, only map[store.Ref]bool, progress store.Progress) (*plan, error) {
	o := &plan{head: head}
	scopes, err := scopesOf(ctx, st)
	if err != nil {
		return nil, err
	}
	for i, scope := range scopes {
		progress("scopes", uint64(i), uint64(len(scopes)))
		err := eachHead(ctx, st, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Brief: true}, func(h *store.Head) error {
			if only != nil && !only[store.Ref{Scope: h.Scope, ID: h.ID}] {
				return nil
			}
			return o.artefact(ctx, st, h)
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Slice(o.entries, func(i, j int) bool {
		a, b := &o.entries[i], &o.entries[j]
		return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.put, b.put), cmp.Compare(a.num, b.num), cmp.Compare(a.art, b.art)) < 0
	})
	progress("scopes", uint64(len(scopes)), uint64(len(scopes)))
	return o, nil
}

func scopesOf(ctx context.Context, st store.Store) (names []string, err error) {
	for q := (store.ScanQuery{What: store.ScanScopes, Limit: scanRows}); ; {
		page, err := st.Scan(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			names = append(names, s.Name)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return names, nil
		}
	}
}

// eachHead calls fn for the heads of a listing.
func eachHead(ctx context.Context, st store.Store, q store.ScanQuery, fn func(*store.Head) error) error {
	for q.Limit = scanRows; ; {
		page, err := st.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			if err := fn(h); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// artefact notes the versions of an artefact, of which newest is the newest. Pages of directives come with their rows, and
// then whole (ExportOptions.Versions).
func (o *plan) artefact(ctx context.Context, st store.Store, newest *store.Head) error {
	was, since := len(o.entries), o.head.Since
	if newest.ID == directivelog.PageID {
		if o.head.Versions {
			return nil
		}
		since = 0
	}
	if newest.LSN <= since {
		return nil
	}
	heads := []*store.Head{newest} // newest first
	if newest.Version > 1 {
		heads = heads[:0]
		if err := history(ctx, st, newest.Scope, newest.ID, func(h *store.Head) { heads = append(heads, h) }); err != nil {
			return err
		}
	}
	for i, h := range heads {
		if h.Gone || h.LSN <= since || h.LSN > o.head.LSN {
			continue
		}
		e := entry{lsn: h.LSN, art: h.Art, put: h.PutAt.UnixMicro(), version: h.Version}
		if len(h.Rows) > 0 {
			e.num = h.Rows[0].Num
		}
		if h.Deleted || i+1 < len(heads) && heads[i+1].Gone { // its history is read again
			o.refs = append(o.refs, store.Ref{Scope: h.Scope, ID: h.ID})
			e.refAt = uint32(len(o.refs))
		}
		o.entries = append(o.entries, e)
	}
	if len(o.entries) > was {
		o.artefacts++
	}
	return nil
}

func history(ctx context.Context, st store.Store, scope, id string, fn func(*store.Head)) error {
	return eachHead(ctx, st, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{scope}, ID: id}, func(h *store.Head) error {
		fn(h)
		return nil
	})
}

// The store has no snapshot of all rows at once, so an export that meets a row written after the LSN of its header fails with a
// conflict. Rows of kinds that Stay are left out.

// selection is the data of a scope or a person.
type selection struct {
	refs      map[store.Ref]bool
	held      map[ulid.ULID]bool
	rows      []string
	questions []uint64
}

// choose selects what an erase with the same arguments would take.
func (x *exporter) choose(*Header) error {
	if x.opts.Scope == "" && x.opts.Subject == "" {
		return nil
	}
	plan, err := eraseplan.Find(x.ctx, x.st, &ops.Request{
		Scope: x.opts.Scope, Subject: x.opts.Subject, By: "export", Reason: "export", DryRun: true, Progress: x.opts.Progress,
	})
	if err != nil {
		return err
	}
	if plan.Report.Empty() {
		return fmt.Errorf("%w: nothing is held of %s", store.ErrNotFound, strings.TrimSpace(x.opts.Subject+" "+x.opts.Scope))
	}
	x.pick = &selection{refs: map[store.Ref]bool{}, held: map[ulid.ULID]bool{}, questions: plan.Job.Questions}
	for _, r := range plan.Job.Refs {
		x.pick.refs[store.Ref{Scope: r.Scope, ID: r.ID}] = true
	}
	for _, id := range plan.Job.Held {
		x.pick.held[id] = true
	}
	for _, r := range plan.Job.State {
		x.pick.rows = append(x.pick.rows, r.Key)
	}
	return nil
}

func (x *exporter) state(head *Header) error {
	if x.pick != nil {
		for _, key := range x.pick.rows {
			row, err := x.st.State(x.ctx, key)
			if err == nil && row.Value != nil {
				row.Key = key
				err = x.stateRow(&row, head.LSN)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for q := (store.ScanQuery{What: store.ScanState, Limit: scanRows}); ; {
		page, err := x.st.Scan(x.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.State {
			if err := x.stateRow(&page.State[i], head.LSN); err != nil {
				return err
			}
		}
		x.opts.Progress("rows of state", x.rep.State, 0)
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

func (x *exporter) stateRow(r *store.StateRow, upTo uint64) error {
	kind := kindOf(x.opts.State, r.Key)
	if kind != nil && kind.Stays {
		return nil
	}
	if r.LSN > upTo {
		return fmt.Errorf("%w: the row %q was written while the database was exported; export it again while there are no writes, or make a backup and export that", store.ErrConflict, printable(r.Key))
	}
	line := stateLine{Type: typeState, Key: []byte(r.Key), Name: printable(r.Key), Value: r.Value}
	if kind != nil && kind.Renumber != nil {
		nums, err := kind.Names(r.Value)
		if err == nil {
			line.Pages, err = x.names(nums)
		}
		if err != nil {
			return fmt.Errorf("ctxpage: export: row %q: %w", line.Name, err)
		}
	}
	x.rep.State++
	return x.out.line(&line)
}

func printable(key string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(key, "\x00", " "), "?")
}

func kindOf(kinds []store.StateKind, key string) *store.StateKind {
	for i := range kinds {
		if strings.HasPrefix(key, kinds[i].Prefix) {
			return &kinds[i]
		}
	}
	return nil
}

// names returns the references of page numbers. A page that is gone has none.
func (x *exporter) names(nums []uint64) ([]pageName, error) {
	keys := make([]store.PageKey, len(nums))
	for i, n := range nums {
		keys[i].Num = n
	}
	loaded, err := x.st.Load(x.ctx, nil, keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	var out []pageName
	for i := range loaded {
		if l := &loaded[i]; l.Err == nil {
			out = append(out, pageName{nums[i], l.Head.PageRef(l.Page).String()})
		}
	}
	return out, nil
}

func (x *exporter) held(head *Header) error {
	for q := (store.ScanQuery{What: store.ScanHeld, All: true, Limit: 100}); ; {
		page, err := x.st.Scan(x.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Held {
			h := &page.Held[i]
			if h.LSN > head.LSN || x.pick != nil && !x.pick.held[h.Batch.ID] {
				continue
			}
			line, err := x.heldLine(h)
			if err != nil {
				return err
			}
			x.rep.Held++
			if err := x.out.line(line); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

func (x *exporter) heldLine(h *store.HeldBatch) (*heldLine, error) {
	b := &h.Batch
	line := &heldLine{
		Type: typeHeld, ID: b.ID.String(), Scope: b.Scope, Actor: b.Actor, At: h.At.UTC(), Trace: b.Trace, Reason: h.Reason, Stale: refStrings(h.Stale),
		Decided: h.Decided, By: h.By, Note: h.Note, Refs: refStrings(h.Outcome.Refs), OnStale: b.OnStale, Raise: b.Raise, Force: b.Force, Deletes: b.Deletes,
		Leaf: b.Leaf, Unknown: b.Unknown,
	}
	for _, e := range b.Expect {
		now, err := lsnOf(x.ctx, x.st, e.Ref)
		if err != nil {
			return nil, err
		}
		line.Expect = append(line.Expect, expectLine{Ref: e.Ref.String(), Elsewhere: now != e.LSN})
	}
	for _, s := range b.Context {
		names, err := x.names([]uint64{s.Num})
		if err != nil {
			return nil, err
		}
		if len(names) == 0 { // gone, or a draft
			names = []pageName{{Ref: store.Ref{Scope: s.Scope, ID: s.ID, Page: s.Page}.String()}}
		}
		line.Context = append(line.Context, seenLine{Ref: names[0].Ref})
	}
	for i := range b.Puts {
		line.Puts = append(line.Puts, putOf(&b.Puts[i]))
	}
	return line, nil
}

func putOf(p *store.Put) putLine {
	out := putLine{Artefact: p.Artefact, AsOfGiven: p.AsOfGiven, PartBytes: p.PartBytes, Counter: p.Counter, Unknown: p.Unknown}
	if p.Source != (store.Validator{}) {
		out.Source = &p.Source
	}
	for i := range p.Pages {
		n := &p.Pages[i]
		out.Pages = append(out.Pages, pageLine{Tokens: uint32(n.Tokens), Bytes: uint32(len(n.Text)), Salt: n.Salt[:], Digest: n.Digest[:], Text: &n.Text})
	}
	return out
}

func refStrings(refs []store.Ref) (out []string) {
	for _, r := range refs {
		out = append(out, r.String())
	}
	return out
}

func (x *exporter) questions(*Header) error {
	if x.pick == nil {
		return nil
	}
	audit := x.st.Audit()
	for _, i := range x.pick.questions {
		leaf, err := audit.Leaf(x.ctx, i)
		if err != nil {
			return err
		}
		text, err := audit.Question(x.ctx, leaf)
		if err != nil {
			continue // erased during the export
		}
		line := questionLine{Type: typeQuestion, Trace: leaf.Trace, At: time.UnixMicro(leaf.Time).UTC(), Scope: leaf.Scope, Actor: leaf.Actor, Text: text}
		x.rep.Questions++
		if err := x.out.line(&line); err != nil {
			return err
		}
	}
	return nil
}
