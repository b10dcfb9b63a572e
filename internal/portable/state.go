package portable

import (
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

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
